//! `Device`: a GPU, by ordinal; one object a thread and ordinal.

use crate::context::{self, Context};
use crate::error::{ask, attach_note, run};
use crate::event::Event;
use crate::handle;
use crate::memory::pool::DeviceMemoryResource;
use crate::memory;
use crate::options;
use crate::properties::DeviceProperties;
use crate::stream::{self, Stream};
use cuirass_fault::lock::Mutex;
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// This thread's objects, by ordinal. Dropping them needs no interpreter: their references wait for one.
    static CACHED: RefCell<Vec<Option<Py<Device>>>> = const { RefCell::new(Vec::new()) };
    /// What was current at each `with` block that this thread is in, with its device.
    static ENTERED: RefCell<Vec<(i32, cuirass::context::Previous)>> = const { RefCell::new(Vec::new()) };
}

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
    chosen: Mutex<Option<cuirass::Context>>,
    resource: Mutex<Option<Py<PyAny>>>,
}

impl Device {
    /// This thread's object of a device.
    pub fn cached(py: Python<'_>, device: cuirass::Device) -> PyResult<Py<Device>> {
        if let Some(known) = Device::known(py, device.ordinal()) {
            return Ok(known);
        }
        let made = Py::new(
            py,
            Device {
                device,
                has_chosen: AtomicBool::new(false),
                chosen: Mutex::new(None),
                resource: Mutex::new(None),
            },
        )?;
        CACHED.with_borrow_mut(|cached| {
            let index = usize::try_from(device.ordinal()).unwrap_or(0);
            if cached.len() <= index {
                cached.resize_with(index + 1, || None);
            }
            if let Some(slot) = cached.get_mut(index) {
                *slot = Some(made.clone_ref(py));
            }
        });
        Ok(made)
    }

    #[inline]
    fn known(py: Python<'_>, ordinal: i32) -> Option<Py<Device>> {
        let index = usize::try_from(ordinal).ok()?;
        CACHED.with_borrow(|cached| cached.get(index)?.as_ref().map(|device| device.clone_ref(py)))
    }

    /// The device.
    pub fn get(&self) -> cuirass::Device {
        self.device
    }

    /// The context that its methods work in: what `set_current(ctx)` chose, else the primary one.
    fn working_context(&self, py: Python<'_>) -> PyResult<cuirass::Context> {
        if self.has_chosen.load(Ordering::Acquire) {
            let chosen = self.chosen.lock().clone();
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
        ask(py, || self.device.context())
    }

    fn choose(&self, context: Option<cuirass::Context>) {
        self.has_chosen.store(context.is_some(), Ordering::Release);
        let previous = std::mem::replace(&mut *self.chosen.lock(), context);
        drop(previous);
    }

    /// Its memory resource: what was set, else that of its default pool.
    pub fn resource<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.resource.lock().as_ref().map(|resource| resource.clone_ref(py));
        if let Some(known) = known {
            return Ok(known.into_bound(py));
        }
        let made = DeviceMemoryResource::object(py, run(py, || self.device.memory_resource())?)?.into_any();
        let kept = self.resource.lock().get_or_insert_with(|| made.clone_ref(py)).clone_ref(py);
        Ok(kept.into_bound(py))
    }
}

/// The device that an argument is: a `Device`, or an ordinal.
pub fn argument(py: Python<'_>, object: &Bound<'_, PyAny>, name: &str) -> PyResult<cuirass::Device> {
    if let Ok(device) = object.cast::<Device>() {
        return Ok(device.get().device);
    }
    let ordinal = ordinal(object, name)?;
    crate::sim::prepare(py)?;
    run(py, || cuirass::Device::new(ordinal))
}

/// The device of the current context; 0 where none is current.
pub fn current(py: Python<'_>) -> PyResult<cuirass::Device> {
    crate::sim::prepare(py)?;
    match run(py, cuirass::Device::current)? {
        Some(device) => Ok(device),
        None => ask(py, || cuirass::Device::new(0)),
    }
}

fn ordinal(object: &Bound<'_, PyAny>, name: &str) -> PyResult<i32> {
    object.extract::<i32>().map_err(|error| {
        let py = object.py();
        let explained = if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::new_err(format!("{name} must be an int or a Device"))
        } else {
            PyValueError::new_err(format!("{name} is far out of range"))
        };
        explained.set_cause(py, Some(error));
        explained
    })
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
                    let ordinal = ordinal(object, "device_id")?;
                    if let Some(known) = Device::known(py, ordinal)
                        && !cuirass::driver::is_forked()
                    {
                        return Ok(known);
                    }
                    crate::sim::prepare(py)?;
                    run(py, || cuirass::Device::new(ordinal))?
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
        ask(py, || self.device.pci_bus_id())
    }

    /// Its UUID, as 32 hexadecimal digits in five groups (``cuDeviceGetUuid``).
    #[getter]
    fn uuid(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = String::with_capacity(36);
        for (at, byte) in ask(py, || self.device.uuid())?.iter().enumerate() {
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

    /// The resource that ``allocate()`` takes memory from: that of the default pool, until another is set.
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

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
        other.cast::<Device>().ok().map(|other| other.get().device == self.device)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (i32,)) {
        (py.get_type::<Device>(), (self.device.ordinal(),))
    }

    /// Makes a context of this device current on the calling thread, with one ``cuCtxSetCurrent``.
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
    /// CUDAError
    ///     What the driver answers; what was current before still is.
    #[pyo3(signature = (ctx=None))]
    fn set_current(&self, py: Python<'_>, ctx: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Context>> {
        let Some(ctx) = ctx else {
            ask(py, || self.device.set_current())?;
            if self.has_chosen.load(Ordering::Acquire) {
                self.choose(None);
            }
            return Ok(None);
        };
        let context = context::argument(ctx)?.enter()?;
        let previous = ask(py, || context.set_current())?;
        let ours = context.device() == self.device && !context.is_primary();
        self.choose(ours.then(|| cuirass::Context::clone(&context)));
        Ok(previous.map(Context::of))
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
            return match stream::argument(obj)? {
                stream::Argument::Ours(stream) => Ok(Stream::of(cuirass::Stream::clone(&stream))),
                stream::Argument::Foreign(stream) => Ok(Stream::of(stream)),
            };
        }
        let options = options::stream(options)?;
        let context = self.working_context(py)?;
        Ok(Stream::of(run(py, || cuirass::Stream::create(&context, &options))?))
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
        Ok(Event::of(ask(py, || cuirass::Event::create(&context, &options))?))
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
            return run(py, || context.synchronize());
        }
        run(py, || self.device.synchronize())
    }

    fn __enter__(slf: &Bound<'_, Device>, py: Python<'_>) -> PyResult<Py<Device>> {
        let device = slf.get().device;
        let previous = ask(py, || device.enter())?;
        ENTERED.with_borrow_mut(|entered| entered.push((device.ordinal(), previous)));
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
        let ordinal = self.device.ordinal();
        let previous = ENTERED.with_borrow_mut(|entered| {
            let at = entered.iter().rposition(|(device, _)| *device == ordinal)?;
            Some(entered.remove(at).1)
        });
        let Some(previous) = previous else {
            return Err(PyRuntimeError::new_err("this device was not entered on this thread"));
        };
        match ask(py, || previous.restore()) {
            Err(failure) if !exc_val.is_none() => {
                attach_note(py, exc_val, "what was current before could not be restored after this failure", &failure)
            }
            result => result,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Device {} ({})>", self.device.ordinal(), self.name(py)?))
    }
}

/// The number of an address that was given as a handle.
pub fn address(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    handle::take_or_null(object, "ptr")
}
