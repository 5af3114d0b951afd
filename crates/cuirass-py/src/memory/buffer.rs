//! `Buffer`: an address, a size, where it comes from, and the stream that orders its release.
#![allow(unsafe_code)]

use crate::context::not_yet;
use crate::device;
use crate::error::{closed, not_constructed, raised, run};
use crate::memory::pinned::LegacyPinnedMemoryResource;
use crate::memory::pool::DeviceMemoryResource;
use crate::memory::resource::{allocate, is_resource, size_of};
use crate::memory::user::UserMemory;
use crate::memory::copy;
use crate::slot::{Closed, Share, Slot, Use, drop_detached};
use crate::stream;
use cuirass::ErrorKind;
use cuirass::memory::{LegacyPinnedMemoryResource as Pinned, PointerInfo, pointer_info};
use pyo3::exceptions::{PyBufferError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{PyTraverseError, ffi};
use std::ffi::c_int;
use std::sync::Arc;

/// A piece of memory.
///
/// It is made by a memory resource, or by ``Buffer.from_handle()`` for memory of another library's. Closed or
/// collected, it goes back to where it comes from, once the work that is by then on the stream that orders its release
/// is done: work on other streams that uses it must be ordered before that. An exported ``memoryview`` keeps it.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Buffer")]
pub struct Buffer {
    slot: Slot<Memory>,
    address: u64,
    bytes: usize,
    resource: Option<Py<PyAny>>,
    owner: Option<Py<PyAny>>,
}

/// What a buffer gives back.
pub enum Memory {
    /// What the Rust buffer knows how to give back.
    Ours(cuirass::Buffer),
    /// What a user's resource gives back; the Rust buffer only borrows it.
    Users(cuirass::Buffer, Box<UserMemory>),
}

impl Memory {
    #[inline]
    fn buffer(&self) -> &cuirass::Buffer {
        match self {
            Memory::Ours(buffer) | Memory::Users(buffer, _) => buffer,
        }
    }
}

impl Share for Memory {
    fn drop_share(self) {
        match self {
            Memory::Ours(buffer) => drop_detached(buffer),
            Memory::Users(_borrowed, users) => users.drop_share(),
        }
    }
}

impl Buffer {
    fn new_of(memory: Memory, resource: Option<Py<PyAny>>, owner: Option<Py<PyAny>>) -> Buffer {
        let (address, bytes) = (memory.buffer().as_raw(), memory.buffer().len());
        Buffer { slot: Slot::new(memory), address, bytes, resource, owner }
    }

    /// A buffer that a resource of ours has allocated.
    #[inline]
    pub fn of_resource(buffer: cuirass::Buffer, resource: Py<PyAny>) -> Buffer {
        Buffer::new_of(Memory::Ours(buffer), Some(resource), None)
    }

    /// The same memory, given back by a resource's `deallocate()`.
    pub fn freed_by(self, resource: &Bound<'_, PyAny>, stream: cuirass::Stream) -> PyResult<Buffer> {
        if let Closed::Taken(Memory::Ours(buffer)) = self.slot.close() {
            let _address = buffer.into_raw();
        }
        Ok(Buffer::of_user(resource, self.address, self.bytes, stream))
    }

    fn of_user(resource: &Bound<'_, PyAny>, address: u64, bytes: usize, stream: cuirass::Stream) -> Buffer {
        // SAFETY: [user-memory] the resource's memory, which `deallocate()` takes back after the last use.
        let borrowed = unsafe { cuirass::Buffer::borrow_raw(address, bytes, None) };
        let users = UserMemory::new(resource.clone().unbind(), address, bytes, stream);
        Buffer::new_of(Memory::Users(borrowed, Box::new(users)), Some(resource.clone().unbind()), None)
    }

    /// The address, for a launch: whoever closes the buffer while a kernel is being launched on it orders the two.
    #[inline]
    pub fn address(&self) -> PyResult<&u64> {
        if self.slot.is_closed() { Err(closed("buffer")) } else { Ok(&self.address) }
    }

    #[inline]
    fn enter(&self) -> PyResult<Use<'_, Memory>> {
        self.slot.enter().ok_or_else(|| closed("buffer"))
    }

    /// What the driver knows of memory that no resource describes. Without a driver it is the host's.
    fn info(&self, py: Python<'_>) -> PyResult<PointerInfo> {
        match py.detach(|| pointer_info(self.address)) {
            Ok(info) => Ok(info),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(PointerInfo {
                is_device_accessible: false,
                is_host_accessible: true,
                is_managed: false,
                device: None,
            }),
            Err(error) => Err(raised(py, error)),
        }
    }

    fn asked<T>(&self, py: Python<'_>, name: &str, of: impl FnOnce(PointerInfo) -> T) -> PyResult<T>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
    {
        match &self.resource {
            Some(resource) => resource.bind(py).getattr(name)?.extract(),
            None => self.info(py).map(of),
        }
    }
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Buffer> {
        not_constructed("Buffer", "the allocate() of a memory resource, or Buffer.from_handle()")
    }

    fn __reduce__(&self) -> PyResult<Py<PyAny>> {
        Err(PyRuntimeError::new_err("only memory that other processes can use is pickled; this buffer's is not"))
    }

    /// Memory that is there already.
    ///
    /// Parameters
    /// ----------
    /// ptr : int or CUdeviceptr
    ///     Its address.
    /// size : int
    ///     In bytes.
    /// mr : MemoryResource, optional
    ///     Takes the memory back, once: its ``deallocate()`` is called.
    /// owner : object, optional
    ///     Keeps the memory alive, and is kept as long as the buffer; not together with ``mr``.
    /// stream : Stream, optional
    ///     Orders the release; without it the legacy default stream.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If ``mr`` and ``owner`` are both given, or the size is negative.
    #[staticmethod]
    #[pyo3(signature = (ptr, size, mr=None, owner=None, *, stream=None))]
    fn from_handle(
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        mr: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Buffer> {
        let (address, bytes) = (device::address(ptr)?, size_of(size)?);
        let Some(resource) = mr else {
            // SAFETY: [foreign-memory] the caller's promise; the owner is kept in the object.
            let borrowed = unsafe { cuirass::Buffer::borrow_raw(address, bytes, None) };
            return Ok(Buffer::new_of(Memory::Ours(borrowed), None, owner.map(|owner| owner.clone().unbind())));
        };
        if owner.is_some() {
            return Err(PyValueError::new_err("owner and mr cannot both be given"));
        }
        let stream = match stream {
            Some(stream) => cuirass::Stream::clone(&*stream::argument(stream)?),
            None => cuirass::Stream::legacy_default(),
        };
        if let Ok(pool) = resource.cast_exact::<DeviceMemoryResource>() {
            // SAFETY: [foreign-memory] the caller's promise: memory of this pool that nobody else frees.
            let buffer = unsafe { cuirass::Buffer::from_raw(address, bytes, &pool.get().pool()?, &stream) };
            return Ok(Buffer::of_resource(buffer, resource.clone().unbind()));
        }
        if resource.is_exact_instance_of::<LegacyPinnedMemoryResource>() {
            let buffer = cuirass::Buffer::from_resource(address, bytes, Arc::new(Pinned), &stream);
            return Ok(Buffer::of_resource(buffer, resource.clone().unbind()));
        }
        if !is_resource(resource) {
            let kind = resource.get_type().name()?;
            return Err(PyTypeError::new_err(format!("mr must be a MemoryResource, not {kind}")));
        }
        Ok(Buffer::of_user(resource, address, bytes, stream))
    }

    /// Another process's memory. Not available yet.
    #[classmethod]
    #[pyo3(signature = (mr, ipc_descriptor, *, stream))]
    fn from_ipc_descriptor(
        _cls: &Bound<'_, PyType>,
        mr: &Bound<'_, PyAny>,
        ipc_descriptor: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<Buffer> {
        let _unused = (mr, ipc_descriptor, stream);
        Err(not_yet("Buffer.from_ipc_descriptor()"))
    }

    /// What another process needs to use it. Not available yet.
    #[getter]
    fn ipc_descriptor(&self) -> PyResult<Py<PyAny>> {
        Err(PyRuntimeError::new_err("this memory is of this process alone"))
    }

    /// Gives the memory back, in the stream's order.
    ///
    /// Parameters
    /// ----------
    /// stream : Stream, optional
    ///     Orders the release, instead of the stream that does.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers; the memory is spent all the same. What a resource's ``deallocate()`` raises.
    #[pyo3(signature = (stream=None))]
    fn close(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = stream.map(stream::argument).transpose()?;
        match self.slot.close() {
            Closed::Taken(Memory::Ours(buffer)) => run(py, || match &stream {
                None => buffer.close(),
                Some(stream) if buffer.deallocation_stream().is_some() => buffer.close_on(stream),
                Some(stream) => {
                    // No stream orders this memory: the work that is on the stream is waited for.
                    stream.synchronize()?;
                    buffer.close()
                }
            }),
            Closed::Taken(Memory::Users(_borrowed, users)) => {
                if let Some(stream) = &stream {
                    users.set_stream(cuirass::Stream::clone(stream));
                }
                users.close(py)
            }
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Replaces the stream that orders the release: the memory goes back once what is on it by then is done.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the buffer is closed, or no stream orders its release.
    fn set_deallocation_stream(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let (memory, stream) = (self.enter()?, stream::argument(stream)?);
        match &*memory {
            Memory::Ours(buffer) => run(py, || buffer.set_deallocation_stream(&stream)),
            Memory::Users(_borrowed, users) => {
                users.set_stream(cuirass::Stream::clone(&stream));
                Ok(())
            }
        }
    }

    fn __enter__(slf: Py<Buffer>) -> Py<Buffer> {
        slf
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
        match self.close(py, None) {
            Err(failure) if !exc_val.is_none() => {
                crate::error::attach_note(py, exc_val, "the buffer could not be released after this failure", &failure)
            }
            result => result,
        }
    }

    /// Copies all of it into another buffer of the same size, in the stream's order (``cuMemcpyAsync``).
    ///
    /// Parameters
    /// ----------
    /// dst : Buffer, optional
    ///     The target; without it a new one, from this buffer's resource.
    /// stream : Stream
    ///     The stream.
    /// options : CopyOptions, optional
    ///     Not available yet.
    ///
    /// Returns
    /// -------
    /// Buffer
    ///     The target.
    #[pyo3(signature = (dst=None, *, stream, options=None))]
    fn copy_to<'py>(
        &self,
        py: Python<'py>,
        dst: Option<&Bound<'py, PyAny>>,
        stream: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        no_copy_options(options)?;
        let source = self.enter()?;
        let target = match (dst, &self.resource) {
            (Some(dst), _) => dst.clone(),
            (None, Some(resource)) => allocate(py, resource.bind(py), self.bytes.into_pyobject(py)?.as_any(), stream)?,
            (None, None) => return Err(PyValueError::new_err("dst must be given: this buffer has no memory resource")),
        };
        let stream = stream::argument(stream)?;
        copy::copy(py, argument(&target, "dst")?.enter()?.buffer(), source.buffer(), &stream)?;
        Ok(target)
    }

    /// Copies all of another buffer of the same size into this one, in the stream's order (``cuMemcpyAsync``).
    #[pyo3(signature = (src, *, stream, options=None))]
    fn copy_from(
        &self,
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        no_copy_options(options)?;
        let (target, source, stream) = (self.enter()?, argument(src, "src")?.enter()?, stream::argument(stream)?);
        copy::copy(py, target.buffer(), source.buffer(), &stream)
    }

    /// Fills it with a pattern, in the stream's order (``cuMemsetD8Async`` and its like).
    ///
    /// Parameters
    /// ----------
    /// value : int or bytes-like
    ///     A byte as a number, or 1, 2 or 4 bytes.
    /// stream : Stream
    ///     The stream.
    ///
    /// Raises
    /// ------
    /// OverflowError
    ///     If a number is not from 0 to 255.
    /// ValueError
    ///     If the pattern has another length, or the size is no multiple of it.
    #[pyo3(signature = (value, *, stream))]
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let (memory, stream) = (self.enter()?, stream::argument(stream)?);
        copy::fill(py, memory.buffer(), value, &stream)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Buffer>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let buffer = slf.get();
        // The protocol wants it null on failure.
        // SAFETY: [buffer-view] the interpreter's own view, to be filled in.
        unsafe { (*view).obj = std::ptr::null_mut() };
        if !buffer.is_host_accessible(slf.py())? {
            return Err(PyBufferError::new_err("the host cannot use this memory: copy it to host memory first"));
        }
        if !buffer.slot.enter_until_left() {
            return Err(closed("buffer"));
        }
        let address = usize::try_from(buffer.address).unwrap_or(0);
        let length = isize::try_from(buffer.bytes).unwrap_or(isize::MAX);
        let memory = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: [buffer-view] the memory stays until `leave()`, which comes with the end of the view.
        if unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, length, 0, flags) } == 0 {
            return Ok(());
        }
        buffer.slot.leave();
        Err(PyErr::fetch(slf.py()))
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.slot.leave();
    }

    /// The ordinal of the device that it is on; -1 for host memory.
    #[getter]
    fn device_id(&self, py: Python<'_>) -> PyResult<i32> {
        self.asked(py, "device_id", |info| info.device.unwrap_or(-1))
    }

    /// Its address, as a number; 0 once it is closed.
    #[getter]
    fn handle(&self) -> u64 {
        if self.slot.is_closed() { 0 } else { self.address }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
        let other = other.cast::<Buffer>().ok()?.get();
        Some(crate::context::same(self.address, &self.slot, other.address, &other.slot) && self.bytes == other.bytes)
    }

    fn __hash__(&self) -> u64 {
        self.address ^ (self.bytes as u64).rotate_left(32)
    }

    /// Whether kernels can use it.
    #[getter]
    fn is_device_accessible(&self, py: Python<'_>) -> PyResult<bool> {
        self.asked(py, "is_device_accessible", |info| info.is_device_accessible)
    }

    /// Whether the host can use it.
    #[getter]
    fn is_host_accessible(&self, py: Python<'_>) -> PyResult<bool> {
        self.asked(py, "is_host_accessible", |info| info.is_host_accessible)
    }

    /// Whether it is managed memory, which moves between device and host.
    #[getter]
    fn is_managed(&self, py: Python<'_>) -> PyResult<bool> {
        self.asked(py, "is_managed", |info| info.is_managed)
    }

    /// Whether it is another process's memory.
    #[getter]
    fn is_mapped(&self) -> bool {
        false
    }

    /// The resource that it comes from; ``None`` for memory that was there already.
    #[getter]
    fn memory_resource(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.resource.as_ref().filter(|_resource| !self.slot.is_closed()).map(|resource| resource.clone_ref(py))
    }

    /// Its size in bytes; 0 once it is closed.
    #[getter]
    fn size(&self) -> usize {
        if self.slot.is_closed() { 0 } else { self.bytes }
    }

    /// What keeps memory alive that was there already; ``None`` once it is closed.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.owner.as_ref().filter(|_owner| !self.slot.is_closed()).map(|owner| owner.clone_ref(py))
    }

    /// What the collector calls before it takes a cycle apart: a user's resource must be whole when it gets its memory.
    fn _finalize(&self) {
        let is_users = self.slot.enter().is_some_and(|memory| matches!(&*memory, Memory::Users(..)));
        if is_users && let Closed::Taken(memory) = self.slot.close() {
            memory.drop_share();
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.resource)?;
        visit.call(&self.owner)?;
        if let Some(memory) = self.slot.enter()
            && let Memory::Users(_borrowed, users) = &*memory
        {
            visit.call(users.resource())?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() {
            return "<Buffer closed>".to_owned();
        }
        format!("<Buffer ptr={:#x} size={}>", self.address, self.bytes)
    }
}

/// Makes `_finalize` the class's finalizer. It is set afterwards, since only that fills the slot.
pub fn install_finalizer(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Buffer>();
    class.setattr("__del__", class.getattr("_finalize")?)?;
    class.delattr("_finalize")
}

fn no_copy_options(options: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match options {
        None => Ok(()),
        Some(_options) => Err(PyNotImplementedError::new_err("CopyOptions is not available in this version of cuirass")),
    }
}

fn argument<'a>(object: &'a Bound<'_, PyAny>, name: &str) -> PyResult<&'a Buffer> {
    match object.cast::<Buffer>() {
        Ok(buffer) => Ok(buffer.get()),
        Err(_other) => {
            let kind = object.get_type().name()?;
            Err(PyTypeError::new_err(format!("{name} must be a Buffer, not {kind}")))
        }
    }
}
