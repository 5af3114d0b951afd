//! `Device`: a GPU, by ordinal; one object a thread and ordinal.

use crate::context::{self, Context};
use crate::error::{ask, leave, run};
use crate::event::Event;
use crate::graph::builder::GraphBuilder;
use crate::handle::Equal;
use crate::memory;
use crate::options;
use crate::properties::DeviceProperties;
use crate::raw::{object, raw};
use crate::slot::Detached;
use crate::stream::Stream;
use cuirass::{EventOptions, StreamOptions};
use cuirass_fault::lock::Mutex;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple, PyType};
use std::convert::identity;
use std::sync::atomic::{AtomicBool, Ordering};

mod cached;

use cached::ordinal;
pub use cached::{address, argument, current, of_ordinal};

/// A GPU.
///
/// ``Device(n)`` is the same object every time on the same thread. Nothing is loaded before the first one is made.
/// Used in a ``with`` statement it makes its context current, and restores exactly what was current before.
///
/// Parameters
/// ----------
/// device_id : int or Device, optional
///     The ordinal. Without it, the device of the current context, or device 0 where none is current.
///
/// Raises
/// ------
/// ValueError
///     If there is no such device.
/// CUDAError
///     If there is no driver; the message says what to do.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Device")]
pub struct Device {
    device: cuirass::Device,
    /// Whether `set_current(ctx)` chose a context other than the primary one.
    has_chosen: AtomicBool,
    chosen: Mutex<Option<Detached<cuirass::Context>>>,
    /// Whether its primary context has been retained: that makes one, which takes long and may wait.
    is_retained: AtomicBool,
    resource: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (device_id=None))]
    fn new(py: Python<'_>, device_id: Option<&Bound<'_, PyAny>>) -> PyResult<Py<Device>> {
        let device = match device_id {
            None => current(py)?,
            Some(object) => match object.cast::<Device>() {
                Ok(device) => device.get().device,
                Err(_number) => {
                    let ordinal = ordinal(py, object, "device_id")?;
                    crate::sim::prepare(py)?;
                    of_ordinal(py, ordinal, "device_id")?
                }
            },
        };
        Device::cached(py, device)
    }

    /// All devices, in the driver's order (``cuDeviceGetCount``).
    #[classmethod]
    fn get_all_devices<'py>(_cls: &Bound<'py, PyType>, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        crate::sim::prepare(py)?;
        let all = run(py, cuirass::Device::all)?;
        let all = all.into_iter().map(|device| Device::cached(py, device)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, all)
    }

    /// Its ordinal.
    #[getter]
    fn device_id(&self) -> i32 {
        self.device.ordinal()
    }

    /// Its address on the PCI bus: ``0000:06:00.0`` (``cuDeviceGetPCIBusId``).
    #[getter]
    fn pci_bus_id(&self, py: Python<'_>) -> PyResult<String> {
        run(py, || self.device.pci_bus_id())
    }

    /// Whether this device's kernels can be given access to another one's memory (``cuDeviceCanAccessPeer``); true
    /// for its own. Access is given by ``DeviceMemoryResource.peer_accessible_by``.
    fn can_access_peer(&self, py: Python<'_>, peer: &Bound<'_, PyAny>) -> PyResult<bool> {
        let peer = argument(py, peer, "peer")?;
        if peer == self.device {
            return Ok(true);
        }
        ask(py, || self.device.can_access_peer(peer))
    }

    /// Its UUID, as 32 hexadecimal digits in five groups (``cuDeviceGetUuid``).
    #[getter]
    fn uuid(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = String::with_capacity(36);
        for (at, byte) in run(py, || self.device.uuid())?.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(text)
    }

    /// Its name (``cuDeviceGetName``).
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        ask(py, || self.device.name())
    }

    /// Its attributes, each read from the driver when it is asked for.
    #[getter]
    fn properties(&self) -> DeviceProperties {
        DeviceProperties::of(self.device)
    }

    /// Its compute capability, a pair ``(major, minor)``.
    #[getter]
    fn compute_capability<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pair = ask(py, || self.device.compute_capability())?;
        py.import("cuirass._types")?.getattr("ComputeCapability")?.call1(pair)
    }

    /// Its compute capability as the compiler writes it: ``90``.
    #[getter]
    pub fn arch(&self, py: Python<'_>) -> PyResult<String> {
        let (major, minor) = ask(py, || self.device.compute_capability())?;
        Ok(format!("{major}{minor}"))
    }

    /// The context that this object's methods work in: the one given to ``set_current()``, else the primary one, which
    /// is retained by the first use.
    #[getter]
    fn context(&self, py: Python<'_>) -> PyResult<Context> {
        Ok(Context::of(self.working_context(py)?))
    }

    /// The resource that ``allocate()`` takes memory from: a ``DeviceMemoryResource``, of the device's default pool,
    /// until another is set.
    #[getter]
    fn memory_resource<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.resource(py)
    }

    #[setter]
    fn set_memory_resource(&self, resource: &Bound<'_, PyAny>) -> PyResult<()> {
        if !memory::resource::is_resource(resource) {
            let kind = resource.get_type().name()?;
            return Err(PyTypeError::new_err(format!("memory_resource must be a MemoryResource, not {kind}")));
        }
        let previous = self.resource.lock().replace(resource.clone().unbind());
        drop(previous);
        Ok(())
    }

    /// The stream that operations without one would use: the legacy default stream, or with
    /// ``CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM=1`` the thread's own.
    #[getter]
    fn default_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let per_thread = std::env::var("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM").is_ok_and(|text| text == "1");
        let name = if per_thread { "PER_THREAD_DEFAULT_STREAM" } else { "LEGACY_DEFAULT_STREAM" };
        py.import("cuirass._cuirass")?.getattr(name)
    }

    fn __int__(&self) -> i32 {
        self.device.ordinal()
    }

    fn __hash__(&self) -> u64 {
        // As a device of its own kind, not as its number.
        0x6375_0000 + self.device.ordinal().unsigned_abs() as u64
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<Device>().ok().map(|other| other.get().device == self.device))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (i32,)) {
        (py.get_type::<Device>(), (self.device.ordinal(),))
    }

    /// Makes this device's primary context, or the one that is given, current on the calling thread, with one
    /// ``cuCtxSetCurrent``.
    ///
    /// Parameters
    /// ----------
    /// ctx : Context, optional
    ///     The context, which may be another device's. Without it, the primary one.
    ///
    /// Returns
    /// -------
    /// Context or None
    ///     With ``ctx``, what was current before, if anything was; else ``None``.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If ``ctx`` is closed.
    /// CUDAError
    ///     What the driver answers; what was current before still is.
    #[pyo3(signature = (ctx=None))]
    fn set_current(&self, py: Python<'_>, ctx: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Context>> {
        let Some(ctx) = ctx else {
            if !self.is_retained.load(Ordering::Acquire) {
                self.retained_context(py)?;
            }
            ask(py, || self.device.set_current())?;
            if self.has_chosen.load(Ordering::Acquire) {
                self.choose(None);
            }
            return Ok(None);
        };
        let context = context::argument(ctx)?.enter()?;
        let previous = ask(py, || context.set_current())?.map(Context::of);
        let ours = context.device() == self.device && !context.is_primary();
        self.choose(ours.then(|| cuirass::Context::clone(&context)));
        Ok(previous)
    }

    /// A new context on this device (``cuCtxCreate``). What is current on this thread stays so.
    ///
    /// Parameters
    /// ----------
    /// options : ContextOptions, optional
    ///     Which resources it has. Not available yet.
    #[pyo3(signature = (options=None))]
    fn create_context(&self, py: Python<'_>, options: Option<&Bound<'_, PyAny>>) -> PyResult<Context> {
        if options::instance(options, "ContextOptions")?.is_some() {
            return Err(PyNotImplementedError::new_err("green contexts are not available in this version of cuirass"));
        }
        Ok(Context::of(run(py, || cuirass::Context::create(self.device))?))
    }

    /// A new stream (``cuStreamCreateWithPriority``), or another library's stream as one of ours.
    ///
    /// Parameters
    /// ----------
    /// obj : object with ``__cuda_stream__``, optional
    ///     Another library's stream. It is kept alive, and not destroyed here.
    /// options : StreamOptions, optional
    ///     How a new stream is made; not together with ``obj``.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the priority is out of range, or ``obj`` and ``options`` are both given.
    /// CUDAError
    ///     What the driver answers; nothing is left created.
    #[pyo3(signature = (obj=None, options=None))]
    fn create_stream(
        &self,
        py: Python<'_>,
        obj: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Stream> {
        if let Some(obj) = obj {
            if options.is_some() {
                return Err(PyValueError::new_err("obj and options cannot both be given"));
            }
            return Stream::of_object(obj);
        }
        let options = options::stream(options)?;
        let context = self.working_context(py)?;
        Ok(Stream::of(run(py, move || cuirass::Stream::create(&context, &options))?))
    }

    /// A new event (``cuEventCreate``).
    ///
    /// Parameters
    /// ----------
    /// options : EventOptions, optional
    ///     How it is made; without them it takes no time.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers; nothing is left created.
    #[pyo3(signature = (options=None))]
    fn create_event(&self, py: Python<'_>, options: Option<&Bound<'_, PyAny>>) -> PyResult<Event> {
        let options = options::event(options)?;
        let context = self.working_context(py)?;
        Ok(Event::of(run(py, move || cuirass::Event::create(&context, &options))?))
    }

    /// A graph builder with a stream of its own, a new one or that of a builder that was closed.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers; nothing is left created.
    fn create_graph_builder(&self, py: Python<'_>) -> PyResult<GraphBuilder> {
        let context = self.working_context(py)?;
        let builder = run(py, move || {
            let stream = cuirass::Stream::create(&context, &cuirass::StreamOptions::default())?;
            stream.create_graph_builder()
        })?;
        Ok(GraphBuilder::of(builder))
    }

    /// Memory from this device's memory resource, usable in the stream's order.
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     In bytes.
    /// stream : Stream
    ///     The stream that orders the allocation and, unless another is set, the release.
    #[pyo3(signature = (size, *, stream))]
    fn allocate<'py>(
        &self,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        memory::resource::allocate(py, &self.resource(py)?, size, stream)
    }

    /// Waits for all work in this device's context (``cuCtxSynchronize``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, an earlier kernel's fault among it.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        if self.has_chosen.load(Ordering::Acquire) {
            let context = self.working_context(py)?;
            return run(py, move || context.synchronize());
        }
        run(py, || self.device.synchronize())
    }

    fn __enter__(slf: &Bound<'_, Device>, py: Python<'_>) -> PyResult<Py<Device>> {
        slf.get().enter(py)?;
        Ok(slf.clone().unbind())
    }

    #[pyo3(signature = (exc_type, exc_val, exc_tb))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_val: &Bound<'_, PyAny>,
        exc_tb: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _unused = (exc_type, exc_tb);
        leave(py, exc_val, "what was current before could not be restored after this failure", self.leave(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Device {} ({})>", self.device.ordinal(), self.name(py)?))
    }
}

// An object of this thread's that is there already, by its ordinal.
raw!(constructor static NEW = |call| {
    let [ordinal] = call.plain()?;
    // Asked first: a conversion that fails makes an error.
    if !ordinal.is_exact_instance_of::<PyInt>() || cuirass::driver::is_forked() {
        return None;
    }
    Some(Device::known(call.py, ordinal.extract().ok()?)?.into_ptr())
});

raw!(static CREATE_STREAM = |call| {
    let ([], device) = (call.plain()?, call.receiver::<Device>());
    Some(match device.get().in_primary_context() {
        Some(device) => object(call, run(call.py, || device.create_stream(&StreamOptions::default())), Stream::of),
        None => object(call, device.get().create_stream(call.py, None, None), identity),
    })
});

raw!(static CREATE_EVENT = |call| {
    let ([], device) = (call.plain()?, call.receiver::<Device>());
    Some(match device.get().in_primary_context() {
        Some(device) => object(call, run(call.py, || device.create_event(&EventOptions::default())), Event::of),
        None => object(call, device.get().create_event(call.py, None), identity),
    })
});

raw!(static CREATE_GRAPH_BUILDER = |call| {
    let ([], device) = (call.plain()?, call.receiver::<Device>());
    Some(match device.get().in_primary_context() {
        Some(device) => object(call, run(call.py, || device.create_graph_builder()), GraphBuilder::of),
        None => object(call, device.get().create_graph_builder(call.py), identity),
    })
});

/// Puts the methods in that are called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Device>();
    NEW.replace_constructor(&class)?;
    CREATE_GRAPH_BUILDER.replace_method(&class, "create_graph_builder")?;
    CREATE_STREAM.replace_method(&class, "create_stream")?;
    CREATE_EVENT.replace_method(&class, "create_event")
}
