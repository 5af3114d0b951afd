//! `Buffer`: an address, a size, where it comes from, and the stream that orders its release.
#![allow(unsafe_code)]

use crate::device;
use crate::error::{self, closed, leave, not_constructed, run};
use crate::graph::keep;
use crate::handle::Equal;
use crate::memory::copy;
use crate::memory::graph::GraphMemoryResource;
use crate::memory::ipc::{self, BufferDescriptor};
use crate::memory::resource::{allocate, size_of};
use crate::memory::share::{Memory, let_owner_go};
use crate::raw::{Call, exact, given, nothing, raw};
use crate::slot::{Closed, Detached, Share, Slot};
use crate::{number, stream, view};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple, PyType};
use pyo3::{PyTraverseError, ffi};
use std::ffi::c_int;

/// A piece of memory.
///
/// It is made by a memory resource, or by ``Buffer.from_handle()`` for memory of another library's. Closed or
/// collected, it goes back to where it comes from, once the work that is by then on the stream that orders its release
/// is done: work on other streams that uses it must be ordered before that. An exported ``memoryview`` keeps it.
///
/// ``memoryview(buffer)`` and ``numpy.asarray(buffer)`` read and write memory that the host can use
/// (``is_host_accessible``); for other memory they raise ``BufferError``: ``copy_to()`` a buffer of a
/// ``PinnedMemoryResource``, wait for the stream, and read that.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Buffer")]
pub struct Buffer {
    pub(super) slot: Slot<Memory>,
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) resource: Option<Py<PyAny>>,
}

impl Buffer {
    /// Whether its memory belongs to a graph, whatever else there is of it.
    pub fn is_of_a_graph(&self, py: Python<'_>) -> bool {
        let resource = self.resource.as_ref().map(|resource| resource.bind(py));
        resource.is_some_and(|resource| resource.is_instance_of::<GraphMemoryResource>())
    }

    /// Gives memory back that the Rust buffer knows how to. Apart, so that the buffer is not moved once more.
    #[inline(never)]
    fn close_ours(py: Python<'_>, buffer: cuirass::Buffer, stream: Option<&cuirass::Stream>) -> PyResult<()> {
        error::close(py, || match stream {
            None => buffer.close(),
            Some(stream) => buffer.close_on(stream),
        })
    }

    /// Gives memory back of which the slot is rid.
    #[inline(never)]
    fn give_back(&self, py: Python<'_>, memory: Memory, stream: Option<&cuirass::Stream>) -> PyResult<()> {
        match memory {
            Memory::Ours(buffer) => Buffer::close_ours(py, buffer, stream),
            Memory::Owners(borrowed, owner) => {
                let _borrowed = Detached::new(borrowed);
                stream.map_or(Ok(()), |stream| let_owner_go(py, stream, self.address, owner))
            }
            Memory::Users(_borrowed, users) => {
                if let Some(stream) = stream {
                    users.set_stream(stream.clone());
                }
                users.close(py)
            }
        }
    }

    /// Closes a buffer that somebody is using, or that is closed.
    #[cold]
    fn close_in_use(slf: &Bound<'_, Buffer>, stream: Option<&cuirass::Stream>) -> PyResult<()> {
        match slf.get().slot.close_told(|memory| Buffer::tell_users(slf, memory, stream))? {
            Closed::Taken(memory) => slf.get().give_back(slf.py(), memory, stream),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// What is done before a buffer is closed that somebody is using, who will give the memory back.
    fn tell_users(slf: &Bound<'_, Buffer>, memory: &Memory, stream: Option<&cuirass::Stream>) -> PyResult<()> {
        let py = slf.py();
        if slf.get().is_of_a_graph(py) {
            return Err(PyRuntimeError::new_err(
                "the buffer is in use: no view of memory of a graph may be left, and no other thread use it, when it is \
                 closed",
            ));
        }
        let Some(stream) = stream else { return Ok(()) };
        match memory {
            Memory::Users(_borrowed, users) => {
                users.set_stream(stream.clone());
                Ok(())
            }
            Memory::Ours(buffer) if buffer.deallocation_stream().is_some() => {
                run(py, || buffer.set_deallocation_stream(stream))
            }
            // No stream orders the release: it is waited for now.
            Memory::Ours(_) | Memory::Owners(..) => keep::until_done(stream, slf),
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

    fn __reduce__<'py>(slf: &Bound<'py, Buffer>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, buffer) = (slf.py(), slf.get());
        let is_shared = buffer.enter()?.buffer().pool().is_some_and(|pool| pool.is_ipc_enabled());
        let Some(resource) = buffer.resource.as_ref().filter(|_resource| is_shared) else {
            let instead = match &buffer.resource {
                Some(resource) => crate::memory::ipc::instead(resource.bind(py)),
                None => "copy it into memory of one",
            };
            let text = format!(
                "only memory of an IPC-enabled memory resource is pickled, and this buffer's is not; of its resource: {instead}"
            );
            return Err(PyRuntimeError::new_err(text));
        };
        let parts = (resource.clone_ref(py), buffer.ipc_descriptor(py)?).into_pyobject(py)?;
        Ok((py.get_type::<Buffer>().getattr("_reduce_helper")?, parts))
    }

    /// What a pickled buffer is made of again. The legacy default stream orders the release, until
    /// ``set_deallocation_stream()`` says another.
    #[classmethod]
    fn _reduce_helper<'py>(
        _cls: &Bound<'py, PyType>,
        mr: &Bound<'py, PyAny>,
        ipc_descriptor: &Bound<'py, PyAny>,
    ) -> PyResult<Buffer> {
        let buffer = ipc::import_buffer(mr, ipc_descriptor, &cuirass::Stream::legacy_default())?;
        Ok(Buffer::of_resource(buffer, mr.clone().unbind()))
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
    ///     Keeps the memory alive, and is kept as long as the buffer; not together with ``mr``. A ``Buffer`` that is
    ///     closed meanwhile gives its memory back with the last of those that it is the owner of.
    /// stream : Stream, optional
    ///     Orders the release by ``mr``; without it the legacy default stream does. Without ``mr`` nothing is released.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If ``mr`` and ``owner`` are both given, ``stream`` without ``mr``, or the size is negative.
    /// RuntimeError
    ///     If the owner is a closed buffer.
    #[staticmethod]
    #[pyo3(signature = (ptr, size, mr=None, owner=None, *, stream=None))]
    fn from_handle(
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        mr: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Buffer> {
        Buffer::adopt(device::address(ptr)?, size_of(size)?, mr, owner, stream)
    }

    /// Another process's memory (``cuMemPoolImportPointer``).
    ///
    /// Imported several times it is mapped once, and unmapped after the last of these buffers. The other process must
    /// keep it until then.
    ///
    /// Parameters
    /// ----------
    /// mr : DeviceMemoryResource or PinnedMemoryResource
    ///     The mapped resource of the pool that the memory is of.
    /// ipc_descriptor : IPCBufferDescriptor
    ///     What the other process's buffer gave. It must come from a peer that is trusted.
    /// stream : Stream
    ///     Orders the release.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the resource is not a mapped one.
    /// ValueError
    ///     If the descriptor is of memory of another pool.
    /// CUDAError
    ///     What the driver answers.
    #[classmethod]
    #[pyo3(signature = (mr, ipc_descriptor, *, stream))]
    fn from_ipc_descriptor(
        _cls: &Bound<'_, PyType>,
        mr: &Bound<'_, PyAny>,
        ipc_descriptor: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<Buffer> {
        let stream = stream::argument(stream)?;
        let buffer = ipc::import_buffer(mr, ipc_descriptor, &stream)?;
        Ok(Buffer::of_resource(buffer, mr.clone().unbind()))
    }

    /// What another process imports it by (``cuMemPoolExportPointer``).
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If its memory is not of an IPC-enabled resource.
    /// CUDAError
    ///     What the driver answers.
    #[getter]
    fn ipc_descriptor(&self, py: Python<'_>) -> PyResult<BufferDescriptor> {
        let memory = self.enter()?;
        run(py, || memory.buffer().ipc_descriptor()).map(BufferDescriptor)
    }

    /// Gives the memory back, in the stream's order. Where a view of it is still there, it goes back with the last one.
    ///
    /// Where no stream orders the release, as of page-locked memory and of memory that an owner keeps, the stream is waited
    /// for; while it is being captured, which that would spoil, the memory stays until the capture has ended instead.
    ///
    /// Parameters
    /// ----------
    /// stream : Stream, optional
    ///     Orders the release, instead of the stream that does.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers; the memory is spent all the same. What a resource's ``deallocate()`` raises. Where
    ///     the stream could not be waited for, the owner is kept for good, and a note says so.
    /// RuntimeError
    ///     For memory of a graph that a view is still there of: it is freed here or nowhere. The buffer stays open.
    #[pyo3(signature = (stream=None))]
    fn close(slf: &Bound<'_, Buffer>, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = match stream {
            Some(stream) => Some(stream::argument(stream)?),
            None => None,
        };
        let stream = stream.as_deref();
        match slf.get().slot.take() {
            Some(Memory::Ours(buffer)) => Buffer::close_ours(py, buffer, stream),
            Some(memory) => slf.get().give_back(py, memory, stream),
            None => Buffer::close_in_use(slf, stream),
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
            Memory::Ours(buffer) | Memory::Owners(buffer, _) => run(py, || buffer.set_deallocation_stream(&stream)),
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
        slf: &Bound<'_, Buffer>,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_val: &Bound<'_, PyAny>,
        exc_tb: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _unused = (exc_type, exc_tb);
        leave(py, exc_val, "the buffer could not be released after this failure", Buffer::close(slf, py, None))
    }

    /// Copies all of it into another buffer of the same size, in the stream's order (``cuMemcpyAsync``).
    ///
    /// For a part of it make buffers, or views, of the parts: ``Buffer.from_handle(int(buffer.handle), size,
    /// owner=buffer)`` is its first ``size`` bytes. Parts that overlap are not refused, as ``cuda.core`` does not: what is
    /// then copied CUDA does not say. ``utils.copy_2d()`` and views refuse them.
    ///
    /// Parameters
    /// ----------
    /// dst : Buffer, optional
    ///     The target; without it a new one, from this buffer's resource.
    /// stream : Stream
    ///     The stream.
    /// options : CopyOptions, optional
    ///     How it is made (``cuMemcpyBatchAsync``, with one copy). Not on the legacy default stream, nor on one that is
    ///     being captured.
    ///
    /// Returns
    /// -------
    /// Buffer
    ///     The target.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If options are given, and the stream is one that they are not for.
    /// ValueError
    ///     If the sizes differ.
    /// CUDAError
    ///     What the driver answers; for options other than the default ones it has to be of CUDA 12.8.
    #[pyo3(signature = (dst=None, *, stream, options=None))]
    fn copy_to<'py>(
        slf: &Bound<'py, Buffer>,
        py: Python<'py>,
        dst: Option<&Bound<'py, PyAny>>,
        stream: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let source = slf.get().enter()?;
        let target = match (dst, &slf.get().resource) {
            (Some(dst), _) => dst.clone(),
            (None, Some(resource)) => {
                allocate(py, resource.bind(py), slf.get().bytes.into_pyobject(py)?.as_any(), stream)?
            }
            (None, None) => return Err(PyValueError::new_err("dst must be given: this buffer has no memory resource")),
        };
        let stream = stream::argument(stream)?;
        let to = argument(&target, "dst")?;
        let kept = keep::buffer(&stream, slf).and_then(|()| keep::buffer(&stream, to));
        let copied = kept.and_then(|()| copy::copy(py, to.get().enter()?.buffer(), source.buffer(), &stream, options));
        match copied {
            Ok(()) => Ok(target),
            Err(error) if dst.is_none() => {
                // Nobody gets what was made for it.
                let closed = Buffer::close(to, py, None);
                error::leave(py, error.value(py), "the new buffer was not released", closed)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies all of another buffer of the same size into this one, in the stream's order (``cuMemcpyAsync``).
    ///
    /// Parameters
    /// ----------
    /// src : Buffer
    ///     The source.
    /// stream : Stream
    ///     The stream.
    /// options : CopyOptions, optional
    ///     As for ``copy_to()``, which says what is raised.
    #[pyo3(signature = (src, *, stream, options=None))]
    fn copy_from(
        slf: &Bound<'_, Buffer>,
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (from, stream) = (argument(src, "src")?, stream::argument(stream)?);
        keep::buffer(&stream, slf)?;
        keep::buffer(&stream, from)?;
        copy::copy(py, slf.get().enter()?.buffer(), from.get().enter()?.buffer(), &stream, options)
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
    ///     If the pattern is not in one piece or has another length, or the size is no multiple of it.
    /// TypeError
    ///     If it is no int, and has no bytes.
    #[pyo3(signature = (value, *, stream))]
    fn fill(
        slf: &Bound<'_, Buffer>,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let stream = stream::argument(stream)?;
        let stream: &cuirass::Stream = &stream;
        keep::buffer(stream, slf)?;
        copy::fill(py, slf.get().enter()?.buffer(), value, stream)
    }

    /// The memory for other libraries, as ``int8``: a capsule with a DLPack tensor, which has a share of the memory.
    ///
    /// Parameters
    /// ----------
    /// stream : int, optional
    ///     The stream on which it will be used: it waits for what is by now on the stream that orders the release
    ///     (``cuStreamWaitEvent``). 1 is the legacy default stream, which ``None`` stands for with memory of a device; 2
    ///     the per-thread default stream; -1: nothing is ordered.
    /// max_version : tuple of int, optional
    ///     The newest version that the consumer knows; without it, or before ``(1, 0)``, the capsule is of the old kind.
    /// dl_device : tuple of int, optional
    ///     Where the consumer wants it: where it is, or the host for page-locked memory.
    /// copy : bool, optional
    ///     ``True`` is refused: nothing is copied.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     If a copy would be needed, or the memory would have to be moved.
    /// ValueError
    ///     If ``stream`` is 0, or below -1.
    /// CUDAError
    ///     What the driver answers to the order of the streams; nothing is exported.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Buffer>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        view::export_buffer(slf, stream, max_version, dl_device, copy)
    }

    /// The bytes as a numpy array of ``uint8``, of memory that the host can use; nothing is copied unless it is asked for.
    ///
    /// Parameters
    /// ----------
    /// dtype : numpy.dtype, optional
    ///     What the bytes are converted to, one by one. To see them as another type: ``np.asarray(buffer).view(dtype)``.
    /// copy : bool, optional
    ///     As of ``numpy.array()``.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     If the host cannot use the memory: ``copy_to()`` page-locked memory, and read that.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Buffer>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Refuses memory that the host cannot use, which numpy would make an array of objects of.
        let bytes = PyMemoryView::from(slf.as_any())?;
        view::convert(bytes.as_any(), dtype, copy)
    }

    /// Where it is: DLPack's device type (1 host, 2 CUDA, 3 page-locked, 13 managed) and the device's ordinal.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        let device = self.dlpack_device(py)?.exported();
        Ok((device.kind, device.id))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Buffer>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let buffer = slf.get();
        // The protocol wants it null on failure.
        // SAFETY: [buffer-view] the interpreter's own view, to be filled in.
        unsafe { (*view).obj = std::ptr::null_mut() };
        if !buffer.is_host_accessible(slf.py())? {
            return Err(PyBufferError::new_err(view::NO_HOST));
        }
        buffer.not_null()?;
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

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        let other = other.cast::<Buffer>().ok().map(Bound::get);
        Equal(other.map(|other| {
            crate::context::same(self.address, &self.slot, other.address, &other.slot) && self.bytes == other.bytes
        }))
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
        self.slot.enter().is_some_and(|memory| memory.buffer().is_mapped())
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
        match &*self.slot.enter()? {
            Memory::Owners(_borrowed, owner) => Some(owner.object().clone_ref(py)),
            Memory::Ours(_) | Memory::Users(..) => None,
        }
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
        match self.slot.enter().as_deref() {
            Some(Memory::Users(_borrowed, users)) => visit.call(users.resource()),
            Some(Memory::Owners(_borrowed, owner)) => visit.call(owner.object()),
            Some(Memory::Ours(_)) | None => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() {
            return "<Buffer closed>".to_owned();
        }
        format!("<Buffer ptr={:#x} size={}>", self.address, self.bytes)
    }
}

raw!(static CLOSE = |call| {
    let stream = match call.plain() {
        Some([stream]) => Some(stream).filter(|stream| !stream.is_none()),
        None => call.plain().map(|[]| None)?,
    };
    Some(nothing(call, Buffer::close(&call.receiver::<Buffer>(), call.py, stream.as_deref())))
});

/// A copy between two buffers of one size, on a stream of ours that is not being captured; `None` for any other, of which
/// nothing is done.
#[inline(never)]
fn copy_all(
    py: Python<'_>,
    to: Borrowed<'_, '_, PyAny>,
    from: Borrowed<'_, '_, PyAny>,
    stream: &Bound<'_, PyAny>,
) -> Option<PyResult<()>> {
    let (to, from) = (exact::<Buffer>(to)?.get(), exact::<Buffer>(from)?.get());
    let stream = stream::ours(stream)?;
    let stream: &cuirass::Stream = &stream;
    if to.bytes != from.bytes || cuirass::graph::is_captured(stream) {
        return None;
    }
    let (to, from) = (to.slot.enter()?, from.slot.enter()?);
    let (to, from) = (to.buffer(), from.buffer());
    Some(copy::copy(py, to, from, stream, None))
}

raw!(static COPY_FROM = |call| {
    let ([source, stream], buffer) = (call.one_and_stream()?, call.receiver::<Buffer>());
    Some(match copy_all(call.py, buffer.as_any().as_borrowed(), source, &stream) {
        Some(copied) => nothing(call, copied),
        None => nothing(call, Buffer::copy_from(&buffer, call.py, &source, &stream, None)),
    })
});

raw!(static COPY_TO = |call| {
    let ([target, stream], buffer) = (call.one_and_stream()?, call.receiver::<Buffer>());
    if let Some(copied) = copy_all(call.py, target, buffer.as_any().as_borrowed(), &stream) {
        return Some(given(copied.map(|()| target.to_owned().into_ptr())));
    }
    let target = Some(&*target).filter(|target| !target.is_none());
    Some(given(Buffer::copy_to(&buffer, call.py, target, &stream, None).map(Bound::into_ptr)))
});

/// A fill with a byte, on a stream of ours that is not being captured; `None` for any other, of which nothing is done.
#[inline(always)]
fn fill_byte(call: Call<'_, '_>) -> Option<*mut ffi::PyObject> {
    let ([value, stream], buffer) = (call.one_and_stream()?, call.receiver::<Buffer>());
    let byte = number::small(value)?;
    let stream = stream::ours(&stream)?;
    let stream: &cuirass::Stream = &stream;
    if cuirass::graph::is_captured(stream) {
        return None;
    }
    let memory = buffer.get().slot.enter()?;
    Some(nothing(call, copy::fill_byte(call.py, memory.buffer(), byte, stream)))
}

raw!(static FILL = |call| {
    fill_byte(call).or_else(|| {
        let ([value, stream], buffer) = (call.one_and_stream()?, call.receiver::<Buffer>());
        Some(nothing(call, Buffer::fill(&buffer, call.py, &value, &stream)))
    })
});

/// What the class has beside what PyO3 made: its finalizer, which is set afterwards, since only that fills the slot, and
/// the methods that are called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Buffer>();
    keep::set_finalizer(&class)?;
    CLOSE.replace_method(&class, "close")?;
    COPY_FROM.replace_method(&class, "copy_from")?;
    COPY_TO.replace_method(&class, "copy_to")?;
    FILL.replace_method(&class, "fill")
}

const ARRAYS: &str = ": arrays are copied by cuirass.utils.StridedMemoryView, from_any_interface() of the array and \
                      from_buffer() of the buffer";

pub(super) fn argument<'a, 'py>(object: &'a Bound<'py, PyAny>, name: &str) -> PyResult<&'a Bound<'py, Buffer>> {
    match object.cast::<Buffer>() {
        Ok(buffer) => Ok(buffer),
        Err(_other) => {
            let kind = object.get_type().name()?;
            let is_array =
                ["__dlpack__", "__cuda_array_interface__"].iter().any(|name| object.hasattr(*name).unwrap_or(false));
            let how = if is_array { ARRAYS } else { "" };
            Err(PyTypeError::new_err(format!("{name} must be a Buffer, not {kind}{how}")))
        }
    }
}
