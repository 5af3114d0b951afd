//! What stands for pools, memory and events of one process in another.

use crate::error::{close, not_constructed, raised, run};
use crate::memory::pinned::PinnedMemoryResource;
use crate::memory::pool::{DeviceMemoryResource, MemPool};
use crate::number::{self, Number};
use crate::slot::{Closed, Share, Slot, Use};
use cuirass::memory::{IpcAllocationHandle, IpcBufferDescriptor, IpcEventDescriptor};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use std::os::fd::AsRawFd;

/// What another process imports memory by: plain data, which is pickled.
///
/// It comes from a peer that is trusted: memory that it does not describe truly must not be used.
#[pyclass(frozen, module = "cuirass._memory._ipc", name = "IPCBufferDescriptor")]
pub struct BufferDescriptor(pub IpcBufferDescriptor);

#[pymethods]
impl BufferDescriptor {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<BufferDescriptor> {
        not_constructed("IPCBufferDescriptor", "Buffer.ipc_descriptor")
    }

    /// As it was received; also the driver's own 64 bytes.
    #[classmethod]
    fn _init(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        reserved: &[u8],
        size: Number<usize>,
    ) -> PyResult<BufferDescriptor> {
        let size = size.named("size")?;
        if let Ok(data) = <[u8; 64]>::try_from(reserved) {
            return Ok(BufferDescriptor(IpcBufferDescriptor::from_raw(data, size)));
        }
        let descriptor = IpcBufferDescriptor::from_bytes(reserved).map_err(|error| raised(py, error))?;
        if descriptor.size() != size {
            let known = descriptor.size();
            return Err(PyValueError::new_err(format!("the descriptor is of {known} bytes of memory, not {size}")));
        }
        Ok(BufferDescriptor(descriptor))
    }

    fn __reduce__<'py>(slf: &Bound<'py, BufferDescriptor>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, descriptor) = (slf.py(), &slf.get().0);
        let bytes = PyBytes::new(py, &descriptor.to_bytes());
        Ok((slf.get_type().getattr("_init")?, (bytes, descriptor.size()).into_pyobject(py)?))
    }

    /// The size of the memory, in bytes.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    fn __repr__(&self) -> String {
        format!("<IPCBufferDescriptor size={}>", self.0.size())
    }
}

/// What another process opens an event by: plain data, which is pickled.
#[pyclass(frozen, module = "cuirass._event", name = "IPCEventDescriptor")]
pub struct EventDescriptor(pub IpcEventDescriptor);

#[pymethods]
impl EventDescriptor {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<EventDescriptor> {
        not_constructed("IPCEventDescriptor", "Event.ipc_descriptor")
    }

    /// As it was received; also the driver's own 64 bytes.
    #[classmethod]
    fn _init(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        reserved: &[u8],
        is_blocking_sync: bool,
    ) -> PyResult<EventDescriptor> {
        if let Ok(handle) = <[u8; 64]>::try_from(reserved) {
            return Ok(EventDescriptor(IpcEventDescriptor::from_raw(handle, is_blocking_sync)));
        }
        IpcEventDescriptor::from_bytes(reserved).map(EventDescriptor).map_err(|error| raised(py, error))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> crate::handle::Equal {
        crate::handle::Equal(other.cast::<EventDescriptor>().ok().map(|other| other.get().0 == self.0))
    }

    fn __reduce__<'py>(slf: &Bound<'py, EventDescriptor>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, descriptor) = (slf.py(), &slf.get().0);
        let bytes = PyBytes::new(py, &descriptor.to_bytes());
        Ok((slf.get_type().getattr("_init")?, (bytes, descriptor.blocking_sync()).into_pyobject(py)?))
    }
}

/// What another process imports a pool by: a file descriptor, and the pool's UUID.
///
/// ``multiprocessing`` passes it on, with a file descriptor of the other process's. It is closed with this object.
#[pyclass(frozen, weakref, module = "cuirass._memory._ipc", name = "IPCAllocationHandle")]
pub struct AllocationHandle {
    slot: Slot<IpcAllocationHandle>,
    file: i32,
    uuid: Option<[u8; 16]>,
}

impl Share for IpcAllocationHandle {
    fn drop_share(self) {
        // A file descriptor is closed at once.
    }
}

impl AllocationHandle {
    fn of(handle: IpcAllocationHandle) -> AllocationHandle {
        let (file, uuid) = (handle.as_raw_fd(), handle.uuid());
        AllocationHandle { slot: Slot::new(handle), file, uuid }
    }

    fn enter(&self) -> PyResult<Use<'_, IpcAllocationHandle>> {
        self.slot.enter().ok_or_else(|| crate::error::closed("allocation handle"))
    }
}

#[pymethods]
impl AllocationHandle {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<AllocationHandle> {
        not_constructed("IPCAllocationHandle", "DeviceMemoryResource.allocation_handle")
    }

    /// A handle with a file descriptor of its own, of the same file as ``handle``, which stays the caller's.
    #[classmethod]
    #[pyo3(signature = (handle, uuid))]
    fn _init(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        handle: Number<i32>,
        uuid: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AllocationHandle> {
        let handle = handle.named("handle")?;
        let uuid = uuid.map(uuid_of).transpose()?;
        let handle = run(py, || IpcAllocationHandle::duplicate_of(handle, uuid))?;
        Ok(AllocationHandle::of(handle))
    }

    /// Closes the file descriptor. Memory resources that were made with it are as they were.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the system refuses: somebody else has closed it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.slot.close() {
            Closed::Taken(handle) => close(py, || handle.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    fn __int__(&self) -> PyResult<i32> {
        if self.slot.is_closed() {
            return Err(PyValueError::new_err("this allocation handle is closed, and is no number any more"));
        }
        Ok(self.file)
    }

    /// The file descriptor; -1 once it is closed.
    #[getter]
    fn handle(&self) -> i32 {
        if self.slot.is_closed() { -1 } else { self.file }
    }

    /// The UUID of its pool; ``None`` for a handle that was made of a file descriptor alone.
    #[getter]
    fn uuid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.uuid.map(|uuid| uuid_object(py, uuid)).transpose()
    }

    fn __reduce__(&self) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "an allocation handle is pickled by multiprocessing alone, which passes its file descriptor on",
        ))
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() {
            return "<IPCAllocationHandle closed>".to_owned();
        }
        format!("<IPCAllocationHandle handle={}>", self.file)
    }
}

/// A UUID as Python has it.
pub fn uuid_object(py: Python<'_>, uuid: [u8; 16]) -> PyResult<Bound<'_, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item("bytes", PyBytes::new(py, &uuid))?;
    py.import("uuid")?.getattr("UUID")?.call((), Some(&keywords))
}

/// A UUID of Python's.
pub fn uuid_of(object: &Bound<'_, PyAny>) -> PyResult<[u8; 16]> {
    if !object.is_instance(&object.py().import("uuid")?.getattr("UUID")?)? {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("uuid must be a uuid.UUID, not {kind}")));
    }
    object.getattr("bytes")?.extract()
}

/// The module that knows the mapped resources, and how multiprocessing sends them.
pub fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("cuirass._memory._ipc")
}

/// Has multiprocessing send the resources of a class, which may be a user's; what arrives is of ours.
pub fn send(class: &Bound<'_, PyType>) -> PyResult<()> {
    module(class.py())?.getattr("_send")?.call1((class,))?;
    Ok(())
}

/// A handle that was given: one of ours, or the number of a file descriptor, which stays the caller's.
pub fn handle_argument<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, AllocationHandle>> {
    if let Ok(handle) = object.cast::<AllocationHandle>() {
        handle.get().enter()?;
        return Ok(handle.clone());
    }
    let py = object.py();
    let file: i32 = number::read(object.as_borrowed()).map_err(|refused| {
        refused.error_of("alloc_handle", "an IPCAllocationHandle or a file descriptor", &i32::MIN, &i32::MAX)
    })?;
    // An OSError for what is none.
    py.import("os")?.call_method1("fstat", (file,)).map_err(|error| not_open(py, error, file))?;
    Bound::new(py, AllocationHandle::of(run(py, || IpcAllocationHandle::duplicate_of(file, None))?))
}

/// The system's error for what is no file descriptor, with its number.
#[cold]
fn not_open(py: Python<'_>, error: PyErr, file: i32) -> PyErr {
    let told = |name| error.value(py).getattr(name);
    match (told("errno"), told("strerror")) {
        (Ok(number), Ok(text)) => PyOSError::new_err((number.unbind(), format!("{text}: alloc_handle is {file}"))),
        _ => error,
    }
}

/// Imports a pool by a handle.
pub fn import<T: Send>(
    handle: &Bound<'_, AllocationHandle>,
    import: impl FnOnce(&IpcAllocationHandle) -> cuirass::Result<T> + Send,
) -> PyResult<T> {
    let py = handle.py();
    crate::sim::prepare(py)?;
    module(py)?;
    let handle = handle.get().enter()?;
    run(py, || import(&handle))
}

impl MemPool {
    /// What another process imports the pool by: the one that was made before, as long as it is open.
    pub fn shared_handle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, AllocationHandle>> {
        let known = self.handle.lock().as_ref().map(|handle| handle.clone_ref(py));
        if let Some(handle) = known.filter(|handle| !handle.get().slot.is_closed()) {
            return Ok(handle.into_bound(py));
        }
        let pool = self.pool()?;
        if pool.is_mapped() {
            let text = "the allocation handle of this mapped memory resource is closed: only the process whose it is \
                        makes another";
            return Err(PyRuntimeError::new_err(text));
        }
        let fresh = Bound::new(py, AllocationHandle::of(run(py, || pool.allocation_handle())?))?;
        // Two threads may have made one: the first is everybody's.
        let (shared, replaced) = {
            let mut slot = self.handle.lock();
            match &*slot {
                Some(first) if !first.get().slot.is_closed() => (first.clone_ref(py).into_bound(py), None),
                _ => (fresh.clone(), slot.replace(fresh.unbind())),
            }
        };
        drop(replaced);
        Ok(shared)
    }
}

/// The registered resource of a UUID, or this one, which is it from now on.
pub fn register<'py>(resource: &Bound<'py, MemPool>, uuid: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, wanted, pool) = (resource.py(), uuid_of(uuid)?, resource.get().pool()?);
    if pool.uuid().is_some() || !pool.is_ipc_enabled() {
        run(py, || pool.identify(wanted))?;
    }
    let registered = module(py)?.getattr("_register")?.call1((resource, uuid))?;
    if registered.is(resource) {
        run(py, || pool.identify(wanted))?;
    }
    Ok(registered)
}

/// How a resource is made whose memory other processes can use, for one whose memory they cannot.
#[cold]
pub fn instead(resource: &Bound<'_, PyAny>) -> &'static str {
    if resource.is_instance_of::<DeviceMemoryResource>() {
        "make it with DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))"
    } else if resource.is_instance_of::<PinnedMemoryResource>() {
        "make it with PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))"
    } else {
        "memory of its kind is of one process alone; that of DeviceMemoryResource(device, \
         DeviceMemoryResourceOptions(ipc_enabled=True)) can be shared"
    }
}

/// How a resource is pickled other than by multiprocessing: the other process must have it.
pub fn reduce<'py>(resource: &Bound<'py, MemPool>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
    let py = resource.py();
    let pool = resource.get().pool()?;
    if !pool.is_ipc_enabled() {
        let instead = instead(resource.as_any());
        let text = format!("this memory resource is not IPC-enabled, and so not pickled: {instead}");
        return Err(PyRuntimeError::new_err(text));
    }
    let Some(uuid) = pool.uuid() else {
        return Err(PyRuntimeError::new_err("register() this mapped memory resource with its UUID first"));
    };
    let lookup = resource.get_type().getattr("from_registry")?;
    Ok((lookup, (uuid_object(py, uuid)?,).into_pyobject(py)?))
}

/// Another process's memory.
pub fn import_buffer<'py>(
    resource: &Bound<'py, PyAny>,
    descriptor: &Bound<'py, PyAny>,
    stream: &cuirass::Stream,
) -> PyResult<cuirass::Buffer> {
    let Ok(pool) = resource.cast::<MemPool>() else {
        let kind = resource.get_type().name()?;
        let text = format!("mr must be a DeviceMemoryResource or a PinnedMemoryResource, not {kind}");
        return Err(PyTypeError::new_err(text));
    };
    let Ok(descriptor) = descriptor.cast::<BufferDescriptor>() else {
        let kind = descriptor.get_type().name()?;
        return Err(PyTypeError::new_err(format!("ipc_descriptor must be an IPCBufferDescriptor, not {kind}")));
    };
    let (pool, descriptor) = (pool.get().pool()?, &descriptor.get().0);
    run(resource.py(), || cuirass::Buffer::from_ipc_descriptor(&pool, descriptor, stream))
}

/// Another process's event.
pub fn open_event(descriptor: &Bound<'_, PyAny>) -> PyResult<cuirass::Event> {
    let py = descriptor.py();
    let Ok(descriptor) = descriptor.cast::<EventDescriptor>() else {
        let kind = descriptor.get_type().name()?;
        return Err(PyTypeError::new_err(format!("ipc_descriptor must be an IPCEventDescriptor, not {kind}")));
    };
    crate::sim::prepare(py)?;
    let descriptor = &descriptor.get().0;
    run(py, || cuirass::Event::from_ipc_descriptor(descriptor))
}
