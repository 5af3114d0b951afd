//! Pools: what all resources that are one have, and `DeviceMemoryResource`, the memory of a device's pool.

use crate::device;
use crate::error::{close, not_constructed, run};
use crate::handle;
use crate::memory::buffer::Buffer;
use crate::memory::ipc::{self, AllocationHandle};
use crate::memory::pool_attributes::MemPoolAttributes;
use crate::memory::resource::{MemoryResource, enter, overrides_deallocate, size_of, through_override};
use crate::number;
use crate::options;
use crate::raw::{object, raw};
use crate::slot::{Closed, Detached, Slot};
use crate::stream;
use cuirass::MemoryResource as _;
use cuirass::memory::{DeviceMemoryResource as DevicePool, DeviceMemoryResourceOptions, MemoryPool};
use cuirass_fault::lock::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::convert::identity;

/// What resources that are a pool of the driver's have in common. Messages call it by the name that users know, that of
/// its base; [`add`] gives it the name of its own that it is found by.
#[pyclass(frozen, weakref, subclass, extends = MemoryResource, module = "cuirass", name = "MemoryResource")]
pub struct MemPool {
    slot: Slot<MemoryPool>,
    raw: u64,
    is_owned: bool,
    is_ipc_enabled: bool,
    is_mapped: bool,
    /// What other processes import it by, once somebody has asked; of a mapped one what it was imported by.
    pub(super) handle: Mutex<Option<Py<AllocationHandle>>>,
}

impl MemPool {
    /// What a resource's class is put on.
    pub fn base(pool: MemoryPool) -> PyClassInitializer<MemPool> {
        MemPool::imported(pool, None)
    }

    /// The same for a pool that was imported by a handle.
    pub fn imported(pool: MemoryPool, by: Option<Py<AllocationHandle>>) -> PyClassInitializer<MemPool> {
        PyClassInitializer::from(MemoryResource).add_subclass(MemPool {
            raw: pool.as_raw().addr() as u64,
            is_owned: pool.is_owned(),
            is_ipc_enabled: pool.is_ipc_enabled(),
            is_mapped: pool.is_mapped(),
            slot: Slot::new(pool),
            handle: Mutex::new(by),
        })
    }

    /// The pool, shared.
    pub fn pool(&self) -> PyResult<Detached<MemoryPool>> {
        Ok(Detached::new(MemoryPool::clone(&*enter(&self.slot)?)))
    }

    /// Memory that goes back to the pool; `resource` is what the buffer says it comes from.
    #[inline]
    pub fn allocate_ours(
        &self,
        resource: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<Buffer> {
        self.allocate_for(resource.py(), size, stream)
            .map(|buffer| Buffer::of_resource(buffer, resource.clone().unbind()))
    }

    #[inline]
    fn allocate_for(
        &self,
        py: Python<'_>,
        size: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<cuirass::Buffer> {
        let pool = enter(&self.slot)?;
        let (size, stream) = (size_of(size)?, stream::argument(stream)?);
        let stream: &cuirass::Stream = &stream;
        run(py, || pool.allocate(size, stream))
    }

    /// How a closed or open resource is shown.
    pub fn shown(&self, class: &str, rest: std::fmt::Arguments<'_>) -> String {
        if self.slot.is_closed() {
            return format!("<{class} closed>");
        }
        format!("<{class} handle={:#x}{rest}>", self.raw)
    }
}

#[pymethods]
impl MemPool {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<PyClassInitializer<MemPool>> {
        not_constructed("Memory pool", "DeviceMemoryResource, PinnedMemoryResource or ManagedMemoryResource")
    }

    /// Memory of ``size`` bytes, usable in the stream's order (``cuMemAllocFromPoolAsync``).
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     In bytes.
    /// stream : Stream or GraphBuilder
    ///     Orders the allocation, and the release.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the size is negative.
    /// CUDAError
    ///     ``CUDA_ERROR_OUT_OF_MEMORY``, and what else the driver answers.
    #[pyo3(signature = (size, *, stream))]
    fn allocate<'py>(
        slf: &Bound<'py, MemPool>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Buffer> {
        let buffer = slf.get().allocate_ours(slf.as_any(), size, stream)?;
        if slf.is_exact_instance_of::<DeviceMemoryResource>()
            || !overrides_deallocate(slf.as_any(), &py.get_type::<MemPool>())?
        {
            return Ok(buffer);
        }
        let stream = cuirass::Stream::clone(&*stream::argument(stream)?);
        through_override(buffer, slf.as_any(), stream)
    }

    /// Takes memory of this pool back, in the stream's order (``cuMemFreeAsync``).
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If it is another process's pool: its memory goes back with the last buffer that has it.
    /// CUDAError
    ///     What the driver answers.
    #[pyo3(signature = (ptr, size, *, stream))]
    fn deallocate(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let pool = enter(&self.slot)?;
        let (address, size, stream) = (device::address(ptr)?, size_of(size)?, stream::argument(stream)?);
        run(py, || pool.deallocate(address, size, &stream))
    }

    /// Gives up this object's share. A pool of its own is destroyed with the last share; buffers are shares.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     If the pool was destroyed here and the driver refused.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.lock().take();
        drop(handle);
        match self.slot.close() {
            Closed::Taken(pool) => close(py, || pool.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    /// The pool's attributes, each read from the driver when it is asked for.
    #[getter]
    fn attributes(&self) -> PyResult<MemPoolAttributes> {
        Ok(MemPoolAttributes { pool: self.pool()? })
    }

    /// The driver's ``CUmemoryPool``, as a ``cuda.bindings.driver`` object where that package is there, else a number;
    /// 0 once it is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUmemoryPool", if self.slot.is_closed() { 0 } else { self.raw })
    }

    /// Whether the kernels of a device may use its memory.
    fn _is_accessible_by(&self, py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (pool, device) = (self.pool()?, device::argument(py, device, "device")?);
        run(py, || pool.is_accessible_by(device))
    }

    /// Gives devices access, and takes it from others, in one call.
    fn _set_access(
        &self,
        py: Python<'_>,
        granted: Vec<Bound<'_, PyAny>>,
        revoked: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let devices = |of: &[Bound<'_, PyAny>]| -> PyResult<Vec<cuirass::Device>> {
            of.iter().map(|device| device::argument(py, device, "device")).collect()
        };
        let (pool, granted, revoked) = (self.pool()?, devices(&granted)?, devices(&revoked)?);
        run(py, || pool.set_access(&granted, &revoked))
    }

    /// Whether the pool is one of its own, destroyed with it.
    #[getter]
    fn is_handle_owned(&self) -> bool {
        self.is_owned
    }

    /// Whether other processes can use its memory, or it is another process's.
    #[getter]
    fn is_ipc_enabled(&self) -> bool {
        self.is_ipc_enabled
    }

    /// Whether it is another process's pool: it allocates nothing, and imports memory.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// What names it between processes, as a ``uuid.UUID``: ``None`` for a pool of this process alone, and for a mapped
    /// one whose UUID nobody has said.
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(pool) = self.slot.enter() else { return Ok(None) };
        pool.uuid().map(|uuid| ipc::uuid_object(py, uuid)).transpose()
    }

    /// What another process imports the pool by (``cuMemPoolExportToShareableHandle``). It is the same object each time
    /// as long as it is open, and is given up with this one. ``multiprocessing`` sends it; by other means its file
    /// descriptor is sent over a socket.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the pool is not IPC-enabled; of a mapped one, if its handle was closed.
    /// CUDAError
    ///     What the driver answers.
    #[getter]
    fn allocation_handle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, AllocationHandle>> {
        self.shared_handle(py)
    }

    /// Makes this resource the one that buffers of a UUID are unpickled with.
    ///
    /// Parameters
    /// ----------
    /// uuid : uuid.UUID
    ///     What the pool is called in the process whose it is.
    ///
    /// Returns
    /// -------
    /// DeviceMemoryResource or PinnedMemoryResource
    ///     The one that was registered first: this one, unless there was another.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the pool is not IPC-enabled.
    /// ValueError
    ///     If it is known to be another pool.
    fn register<'py>(slf: &Bound<'py, MemPool>, uuid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        ipc::register(slf, uuid)
    }

    /// The registered resource of a UUID. Registered ones are not kept alive.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If there is none.
    #[classmethod]
    fn from_registry<'py>(cls: &Bound<'py, PyType>, uuid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        ipc::uuid_of(uuid)?;
        ipc::module(cls.py())?.getattr("_lookup")?.call1((cls, uuid))
    }

    fn __reduce__<'py>(slf: &Bound<'py, MemPool>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        ipc::reduce(slf)
    }
}

/// Memory of a device, from one of its pools.
///
/// With ``ipc_enabled`` other processes can use it: ``multiprocessing`` sends the resource, and its buffers. There it is
/// a mapped resource, one however many buffers arrive, which allocates nothing. Who sends memory keeps it until the
/// others have let it go.
///
/// Parameters
/// ----------
/// device_id : int or Device
///     The device.
/// options : DeviceMemoryResourceOptions, optional
///     How a pool of its own is made. Without them it is the device's current pool, whose freed memory is kept for
///     reuse; making that disturbs no capture.
///
/// Raises
/// ------
/// CUDAError
///     What the driver answers.
#[pyclass(frozen, subclass, extends = MemPool, module = "cuirass", name = "DeviceMemoryResource")]
pub struct DeviceMemoryResource {
    device: cuirass::Device,
}

impl DeviceMemoryResource {
    fn of(pool: &DevicePool) -> PyResult<PyClassInitializer<DeviceMemoryResource>> {
        let Some(device) = pool.device() else { return Err(PyRuntimeError::new_err("a device's pool has a device")) };
        Ok(MemPool::base(MemoryPool::clone(pool)).add_subclass(DeviceMemoryResource { device }))
    }

    /// A new Python object for a pool.
    pub fn object(py: Python<'_>, pool: &DevicePool) -> PyResult<Py<DeviceMemoryResource>> {
        Py::new(py, DeviceMemoryResource::of(pool)?)
    }
}

#[pymethods]
impl DeviceMemoryResource {
    #[new]
    #[classmethod]
    #[pyo3(signature = (device_id, options=None), text_signature = "(device_id, options=None)")]
    fn new(
        cls: &Bound<'_, PyType>,
        py: Python<'_>,
        device_id: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<DeviceMemoryResource>> {
        let device = device::argument(py, device_id, "device_id")?;
        let pool = match options::instance(options, "DeviceMemoryResourceOptions")? {
            None => Detached::new(run(py, || device.memory_resource())?),
            Some(options) => {
                let options = DeviceMemoryResourceOptions {
                    max_size: number::of(&options.getattr("max_size")?, "max_size")?,
                    ipc_enabled: options::flag(&options, "ipc_enabled")?,
                };
                if options.ipc_enabled {
                    ipc::send(cls)?;
                }
                Detached::new(run(py, || DevicePool::create(device, &options))?)
            }
        };
        DeviceMemoryResource::of(&pool)
    }

    /// The ordinal of the device that its memory is on.
    #[getter]
    fn device_id(&self) -> i32 {
        self.device.ordinal()
    }

    /// Kernels can use its memory: true.
    #[getter]
    fn is_device_accessible(&self) -> bool {
        true
    }

    /// The host cannot use its memory: false.
    #[getter]
    fn is_host_accessible(&self) -> bool {
        false
    }

    /// The devices whose kernels can use its memory beside its own: a set that reads and writes the driver's state.
    ///
    /// Each change is one ``cuMemPoolSetAccess``, which can take seconds: it remaps all memory of the pool.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If a device is given that cannot have access.
    /// CUDAError
    ///     What the driver answers.
    #[getter]
    fn peer_accessible_by<'py>(slf: &Bound<'py, DeviceMemoryResource>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("cuirass._memory._peer_access_utils")?.getattr("PeerAccessibleBySetProxy")?.call1((slf,))
    }

    #[setter]
    fn set_peer_accessible_by(slf: &Bound<'_, DeviceMemoryResource>, devices: &Bound<'_, PyAny>) -> PyResult<()> {
        DeviceMemoryResource::peer_accessible_by(slf)?.call_method1("_replace", (devices,))?;
        Ok(())
    }

    /// Another process's pool (``cuMemPoolImportFromShareableHandle``). It allocates nothing; what it is for is
    /// ``Buffer.from_ipc_descriptor()``.
    ///
    /// Parameters
    /// ----------
    /// device_id : int or Device
    ///     The device that the pool is on.
    /// alloc_handle : IPCAllocationHandle or int
    ///     What it is imported by; a file descriptor stays the caller's.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the handle is closed.
    /// OSError
    ///     If the file descriptor is not open.
    /// CUDAError
    ///     What the driver answers.
    #[classmethod]
    #[pyo3(signature = (device_id, alloc_handle))]
    fn from_allocation_handle<'py>(
        cls: &Bound<'py, PyType>,
        device_id: &Bound<'py, PyAny>,
        alloc_handle: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, DeviceMemoryResource>> {
        let py = cls.py();
        let (device, handle) = (device::argument(py, device_id, "device_id")?, ipc::handle_argument(alloc_handle)?);
        let pool = Detached::new(ipc::import(&handle, |handle| DevicePool::from_allocation_handle(device, handle))?);
        let base = MemPool::imported(MemoryPool::clone(&pool), Some(handle.unbind()));
        Bound::new(py, base.add_subclass(DeviceMemoryResource { device }))
    }

    fn __repr__(slf: &Bound<'_, DeviceMemoryResource>) -> String {
        let device = slf.get().device.ordinal();
        slf.as_super().get().shown("DeviceMemoryResource", format_args!(" device={device}"))
    }
}

raw!(static ALLOCATE = |call| {
    let ([size, stream], pool) = (call.one_and_stream()?, call.receiver::<MemPool>());
    // Asked here already: most are of this class.
    Some(match pool.is_exact_instance_of::<DeviceMemoryResource>() {
        true => object(call, pool.get().allocate_for(call.py, &size, &stream), |buffer| {
            Buffer::of_resource(buffer, pool.as_any().to_owned().unbind())
        }),
        false => object(call, MemPool::allocate(&pool, call.py, &size, &stream), identity),
    })
});

/// Adds the class that the pools have in common, with the methods that are called most.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let class = module.py().get_type::<MemPool>();
    class.setattr("__module__", "cuirass._cuirass")?;
    class.setattr("__qualname__", "_MemPool")?;
    module.add("_MemPool", &class)?;
    ALLOCATE.replace_method(&class, "allocate")
}
