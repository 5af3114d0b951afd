//! Page-locked host memory: `PinnedMemoryResource`, of a pool, and `LegacyPinnedMemoryResource`.

use crate::device;
use crate::error::run;
use crate::memory::buffer::Buffer;
use crate::memory::ipc;
use crate::memory::pool::MemPool;
use crate::memory::resource::{MemoryResource, overrides_deallocate, size_of, through_override};
use crate::number;
use crate::options;
use crate::slot::Detached;
use crate::stream;
use cuirass::MemoryResource as _;
use cuirass::memory::{
    LegacyPinnedMemoryResource as Pinned, MemoryPool, PinnedMemoryResource as PinnedPool, PinnedMemoryResourceOptions,
};
use cuirass_fault::Failure;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// Page-locked host memory of a pool, allocated and freed in the order of a stream.
///
/// Parameters
/// ----------
/// options : PinnedMemoryResourceOptions, optional
///     How a pool of its own is made. Without them it is the driver's current pool of page-locked memory. All devices are
///     given access to the memory of either.
///
/// Raises
/// ------
/// ValueError
///     If the NUMA node is negative.
/// CUDAError
///     What the driver answers; without options it has to be of CUDA 13.0.
#[pyclass(frozen, subclass, extends = MemPool, module = "cuirass", name = "PinnedMemoryResource")]
pub struct PinnedMemoryResource {
    numa_id: Option<i32>,
}

#[pymethods]
impl PinnedMemoryResource {
    #[new]
    #[classmethod]
    #[pyo3(signature = (options=None), text_signature = "(options=None)")]
    fn new(
        cls: &Bound<'_, PyType>,
        py: Python<'_>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<PinnedMemoryResource>> {
        crate::sim::prepare(py)?;
        let pool = match options::instance(options, "PinnedMemoryResourceOptions")? {
            None => Detached::new(run(py, PinnedPool::current)?),
            Some(options) => {
                let options = PinnedMemoryResourceOptions {
                    max_size: number::of(&options.getattr("max_size")?, "max_size")?,
                    ipc_enabled: options::flag(&options, "ipc_enabled")?,
                    numa_id: number::of_optional(&options.getattr("numa_id")?, "numa_id")?,
                };
                if options.ipc_enabled {
                    ipc::send(cls)?;
                }
                Detached::new(run(py, || PinnedPool::create(&options))?)
            }
        };
        let numa_id = pool.numa_id();
        Ok(MemPool::base(MemoryPool::clone(&pool)).add_subclass(PinnedMemoryResource { numa_id }))
    }

    /// Host memory is on no device: -1.
    #[getter]
    fn device_id(&self) -> i32 {
        -1
    }

    /// The NUMA node that its memory is on; -1 where the system places it.
    #[getter]
    fn numa_id(&self) -> i32 {
        self.numa_id.unwrap_or(-1)
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

    /// Another process's pool (``cuMemPoolImportFromShareableHandle``). It allocates nothing; what it is for is
    /// ``Buffer.from_ipc_descriptor()``.
    ///
    /// It is for other processes: once the pool's own process has imported it, and given that up, a real driver
    /// refuses work on the memory of the original.
    ///
    /// Parameters
    /// ----------
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
    #[pyo3(signature = (alloc_handle))]
    fn from_allocation_handle<'py>(
        cls: &Bound<'py, PyType>,
        alloc_handle: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PinnedMemoryResource>> {
        let handle = ipc::handle_argument(alloc_handle)?;
        let pool = Detached::new(ipc::import(&handle, PinnedPool::from_allocation_handle)?);
        let numa_id = pool.numa_id();
        let base = MemPool::imported(MemoryPool::clone(&pool), Some(handle.unbind()));
        Bound::new(cls.py(), base.add_subclass(PinnedMemoryResource { numa_id }))
    }

    fn __repr__(slf: &Bound<'_, PinnedMemoryResource>) -> String {
        let node = slf.get().numa_id;
        let node = node.map(|node| format!(" numa_id={node}")).unwrap_or_default();
        slf.as_super().get().shown("PinnedMemoryResource", format_args!("{node}"))
    }
}

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
    ///     Plays no part, unless a subclass has a ``deallocate()`` of its own, which gets it.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the size is negative.
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
        let stream = Detached::new(stream);
        let buffer = run(py, || Pinned.allocate(size, &stream))?;
        let buffer = Buffer::of_resource(buffer, slf.as_any().clone().unbind());
        if overrides_deallocate(slf.as_any(), &py.get_type::<LegacyPinnedMemoryResource>())? {
            return through_override(buffer, slf.as_any(), cuirass::Stream::clone(&stream));
        }
        Ok(buffer)
    }

    /// Takes memory back (``cuMemFreeHost``), once what is on the stream now is done, if one is given that is not a default
    /// stream: the call waits for that.
    ///
    /// Parameters
    /// ----------
    /// ptr : int or CUdeviceptr, optional
    ///     The address that ``allocate()`` gave; ``None`` or 0 is no memory.
    /// size : int
    ///     In bytes. The driver knows it by itself.
    /// stream : Stream, optional
    ///     What the memory is used on.
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
                Some(stream) if !stream.is_default() => stream.synchronize().map_err(|error| {
                    let note =
                        format!("the memory ({address:#x}) was not released, since the device may not be done with it");
                    Failure::from(error).note(note).raise()
                })?,
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
