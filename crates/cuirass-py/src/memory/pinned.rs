//! `LegacyPinnedMemoryResource`: page-locked host memory.

use crate::device;
use crate::error::run;
use crate::memory::buffer::Buffer;
use crate::memory::resource::{MemoryResource, overrides_deallocate, size_of, through_override};
use crate::stream;
use cuirass::MemoryResource as _;
use cuirass::memory::LegacyPinnedMemoryResource as Pinned;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Page-locked host memory (``cuMemAllocHost``), which both the host and every device can use. No stream orders it.
#[pyclass(
    frozen, weakref, dict, subclass, extends = MemoryResource, module = "cuirass", name = "LegacyPinnedMemoryResource"
)]
pub struct LegacyPinnedMemoryResource;

#[pymethods]
impl LegacyPinnedMemoryResource {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "()")]
    fn new(
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyClassInitializer<LegacyPinnedMemoryResource> {
        PyClassInitializer::from(MemoryResource).add_subclass(LegacyPinnedMemoryResource)
    }

    /// Memory of ``size`` bytes (``cuMemAllocHost``).
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     In bytes.
    /// stream : Stream, optional
    ///     Plays no part.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers.
    #[pyo3(signature = (size, *, stream=None))]
    fn allocate<'py>(
        slf: &Bound<'py, LegacyPinnedMemoryResource>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Buffer> {
        crate::sim::prepare(py)?;
        let (size, stream) = (size_of(size)?, stream.map(stream::argument).transpose()?);
        let stream = stream.map_or_else(cuirass::Stream::legacy_default, |stream| cuirass::Stream::clone(&*stream));
        let buffer = run(py, || Pinned.allocate(size, &stream))?;
        let buffer = Buffer::of_resource(buffer, slf.as_any().clone().unbind());
        if overrides_deallocate(slf.as_any(), &py.get_type::<LegacyPinnedMemoryResource>())? {
            return through_override(buffer, slf.as_any(), stream);
        }
        Ok(buffer)
    }

    /// Takes memory back (``cuMemFreeHost``), once what is on the stream now is done, if one is given.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers.
    #[pyo3(signature = (ptr, size, *, stream=None))]
    fn deallocate(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (address, size, stream) =
            (device::address(ptr)?, size_of(size)?, stream.map(stream::argument).transpose()?);
        run(py, || {
            match &stream {
                Some(stream) if !stream.is_default() => stream.synchronize()?,
                _ => {}
            }
            Pinned.deallocate(address, size, &cuirass::Stream::legacy_default())
        })
    }

    /// Kernels can use its memory: true.
    #[getter]
    fn is_device_accessible(&self) -> bool {
        true
    }

    /// The host can use its memory: true.
    #[getter]
    fn is_host_accessible(&self) -> bool {
        true
    }

    /// Host memory is on no device: -1.
    #[getter]
    fn device_id(&self) -> i32 {
        -1
    }
}
