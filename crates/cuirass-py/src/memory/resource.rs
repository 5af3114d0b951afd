//! `MemoryResource`: what memory resources have in common; users make subclasses of it in Python.

use crate::error::closed;
use crate::late;
use crate::memory::buffer::Buffer;
use crate::memory::pool::DeviceMemoryResource;
use crate::number::{self, Refused};
use crate::slot::{Share, Slot, Use};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Where memory comes from.
///
/// A subclass written in Python has ``allocate(size, *, stream)``, which returns ``Buffer.from_handle(ptr, size,
/// mr=self, stream=stream)``, and ``deallocate(ptr, size, *, stream)``, which is called exactly once for each such
/// buffer. What it raises when a buffer is collected becomes a ``CUDAWarning``; when a buffer is closed, it is raised.
/// It also has ``is_device_accessible``, ``is_host_accessible`` and ``device_id``, as properties or as plain attributes
/// of the class. ``Device.memory_resource = resource`` makes it the one of ``Device.allocate()``.
///
/// Examples
/// --------
/// >>> class Counting(cuirass.MemoryResource):
/// ...     is_device_accessible, is_host_accessible, device_id = True, False, 0
/// ...
/// ...     def __init__(self):
/// ...         self.pool, self.buffers = cuirass.DeviceMemoryResource(0), {}
/// ...
/// ...     def allocate(self, size, *, stream):
/// ...         buffer = self.pool.allocate(size, stream=stream)
/// ...         self.buffers[buffer.handle] = buffer
/// ...         return cuirass.Buffer.from_handle(buffer.handle, size, mr=self, stream=stream)
/// ...
/// ...     def deallocate(self, ptr, size, *, stream):
/// ...         self.buffers.pop(ptr).close(stream)
#[pyclass(frozen, subclass, module = "cuirass", name = "MemoryResource")]
pub struct MemoryResource;

#[pymethods]
impl MemoryResource {
    /// Subclasses have arguments of their own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "()")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> MemoryResource {
        MemoryResource
    }

    /// Memory of ``size`` bytes, usable in the stream's order. Subclasses must have it: here it raises a ``TypeError``, and
    /// so do the other members that they must have.
    #[pyo3(signature = (size, *, stream))]
    fn allocate(slf: &Bound<'_, Self>, size: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _unused = (size, stream);
        Err(lacking(slf, "allocate()"))
    }

    /// Takes memory back, in the stream's order. Subclasses must have it.
    #[pyo3(signature = (ptr, size, *, stream))]
    fn deallocate(
        slf: &Bound<'_, Self>,
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _unused = (ptr, size, stream);
        Err(lacking(slf, "deallocate()"))
    }

    /// Whether kernels can use its memory. Subclasses must have it.
    #[getter]
    fn is_device_accessible(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Err(lacking(slf, "is_device_accessible"))
    }

    /// Whether the host can use its memory. Subclasses must have it.
    #[getter]
    fn is_host_accessible(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Err(lacking(slf, "is_host_accessible"))
    }

    /// Whether its memory is managed: moved between device and host by the driver.
    #[getter]
    fn is_managed(&self) -> bool {
        false
    }

    /// The ordinal of the device that its memory is on; -1 for host memory. Subclasses must have it.
    #[getter]
    fn device_id(slf: &Bound<'_, Self>) -> PyResult<i32> {
        Err(lacking(slf, "device_id"))
    }
}

/// What is said where a subclass lacks a member that all must have: which one does, and what the member has to be.
fn lacking(slf: &Bound<'_, MemoryResource>, member: &str) -> PyErr {
    match slf.get_type().name() {
        Ok(class) => PyTypeError::new_err(format!(
            "{class} has no {member}: a subclass of MemoryResource must have allocate(), deallocate(), \
             is_device_accessible, is_host_accessible and device_id"
        )),
        Err(error) => error,
    }
}

/// Whether an object is a memory resource.
pub fn is_resource(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<MemoryResource>()
}

/// Memory of a resource, whichever it is.
#[inline]
pub fn allocate<'py>(
    py: Python<'py>,
    resource: &Bound<'py, PyAny>,
    size: &Bound<'py, PyAny>,
    stream: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(pool) = resource.cast_exact::<DeviceMemoryResource>() {
        return Ok(Bound::new(py, pool.as_super().get().allocate_ours(resource, size, stream)?)?.into_any());
    }
    let keywords = PyDict::new(py);
    keywords.set_item("stream", stream)?;
    let made = late::call(&resource.getattr("allocate")?, &PyTuple::new(py, [size])?, Some(&keywords))?;
    if let Ok(buffer) = made.cast::<Buffer>() {
        return usable(resource, buffer, size).map(|()| made);
    }
    let (class, kind) = (resource.get_type().name()?, made.get_type().name()?);
    Err(PyTypeError::new_err(format!("{class}.allocate() returned an object of type {kind}, not a Buffer")))
}

/// Refuses what a user's `allocate()` returned and nobody could use.
fn usable(resource: &Bound<'_, PyAny>, buffer: &Bound<'_, Buffer>, size: &Bound<'_, PyAny>) -> PyResult<()> {
    if buffer.get().enter().is_err() {
        let class = resource.get_type().name()?;
        return Err(PyRuntimeError::new_err(format!("{class}.allocate() returned a buffer that is closed")));
    }
    // Whether the size is a number is the resource's business.
    let (_address, has) = buffer.get().range();
    match number::read::<usize>(size.as_borrowed()) {
        Ok(wanted) if has < wanted => {
            let class = resource.get_type().name()?;
            Err(PyRuntimeError::new_err(format!("{class}.allocate({wanted}) returned a buffer of {has} bytes")))
        }
        Err(Refused::Raised(error)) => Err(error),
        _ => Ok(()),
    }
}

/// A number of bytes.
#[inline]
pub fn size_of(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    number::of(object, "size")
}

/// Whether a Python subclass has a `deallocate` of its own, which must then be called.
pub fn overrides_deallocate(object: &Bound<'_, PyAny>, ours: &Bound<'_, pyo3::types::PyType>) -> PyResult<bool> {
    let class = object.get_type();
    Ok(!class.is(ours) && !class.getattr("deallocate")?.is(&ours.getattr("deallocate")?))
}

/// A use of a resource's pool.
pub fn enter<T: Share>(slot: &Slot<T>) -> PyResult<Use<'_, T>> {
    slot.enter().ok_or_else(|| closed("memory resource"))
}

/// A buffer of a resource whose `deallocate` a subclass overrides: the memory goes back through that.
pub fn through_override(buffer: Buffer, resource: &Bound<'_, PyAny>, stream: cuirass::Stream) -> PyResult<Buffer> {
    buffer.freed_by(resource, stream)
}
