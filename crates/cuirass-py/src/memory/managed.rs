//! Managed memory: `ManagedMemoryResource`, of a pool, and `ManagedBuffer`, of which a program says how it is used.
#![allow(unsafe_code)]

use crate::device;
use crate::error::{ask, not_constructed, run};
use crate::memory::buffer::Buffer;
use crate::memory::location;
use crate::memory::pool::MemPool;
use crate::memory::resource::{overrides_deallocate, size_of, through_override};
use crate::number;
use crate::options;
use crate::slot::Detached;
use crate::stream;
use cuirass::DeviceAttribute;
use cuirass::memory::{
    Location, ManagedMemoryResource as ManagedPool, ManagedMemoryResourceOptions, MemoryPool, pointer_info,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use std::cell::RefCell;

/// Managed memory of a pool, allocated and freed in the order of a stream: host and devices use it at one address, and
/// the driver moves it to where it is used. Measured: drivers of CUDA 13.0 take no advice for memory of a pool
/// (``NOT_SUPPORTED``), only for what ``cuMemAllocManaged`` gave; prefetches and discards work with both.
///
/// Parameters
/// ----------
/// options : ManagedMemoryResourceOptions, optional
///     How a pool of its own is made. Without them it is the driver's current pool of managed memory.
///
/// Raises
/// ------
/// ValueError
///     If the options name no place, or a device that is not there.
/// CUDAError
///     What the driver answers; it has to be of CUDA 13.0.
#[pyclass(frozen, subclass, extends = MemPool, module = "cuirass", name = "ManagedMemoryResource")]
pub struct ManagedMemoryResource {
    preferred: Option<Location>,
}

/// What the options say of the place where memory is rather to be.
fn preferred(py: Python<'_>, options: &Bound<'_, PyAny>) -> PyResult<Option<Location>> {
    let number: Option<i32> = number::of_optional(&options.getattr("preferred_location")?, "preferred_location")?;
    let kind = options.getattr("preferred_location_type")?;
    let shown = number.map_or_else(|| "None".to_owned(), |number| number.to_string());
    let wrong = |wanted: &str| Err(PyValueError::new_err(format!("preferred_location must be {wanted}, not {shown}")));
    let of_device = |ordinal: i32| {
        crate::sim::prepare(py)?;
        device::of_ordinal(py, ordinal, "preferred_location").map(Location::Device)
    };
    if kind.is_none() {
        return match number {
            None => Ok(None),
            Some(-1) => Ok(Some(Location::Host)),
            Some(ordinal) if ordinal >= 0 => of_device(ordinal).map(Some),
            Some(_negative) => wrong("the ordinal of a device, -1 for the host, or None"),
        };
    }
    let kind = kind.cast::<PyString>().ok().map(|kind| kind.to_string());
    match (kind.as_deref(), number) {
        (Some("device"), Some(ordinal)) if ordinal >= 0 => of_device(ordinal).map(Some),
        (Some("device"), _) => wrong("the ordinal of a device"),
        (Some("host"), None) => Ok(Some(Location::Host)),
        (Some("host"), Some(_)) => wrong("None for the host"),
        (Some("host_numa"), Some(node)) if node >= 0 => Ok(Some(Location::HostNuma(node))),
        (Some("host_numa"), Some(_negative)) => wrong("the number of a NUMA node, or None"),
        (Some("host_numa"), None) => {
            let device = device::current(py)?;
            let node = ask(py, || device.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID))?;
            match node.unwrap_or(0) {
                node if node >= 0 => Ok(Some(Location::HostNuma(node))),
                _none => Err(PyRuntimeError::new_err("the current device has no NUMA node that is nearest to it")),
            }
        }
        (_other, _) => Err(PyValueError::new_err(
            "preferred_location_type must be 'device', 'host', 'host_numa' or None: see ManagedMemoryLocationType",
        )),
    }
}

#[pymethods]
impl ManagedMemoryResource {
    #[new]
    #[pyo3(signature = (options=None))]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyAny>>) -> PyResult<PyClassInitializer<ManagedMemoryResource>> {
        crate::sim::prepare(py)?;
        let pool = match options::instance(options, "ManagedMemoryResourceOptions")? {
            None => Detached::new(run(py, ManagedPool::current)?),
            Some(options) => {
                let options = ManagedMemoryResourceOptions { preferred_location: preferred(py, &options)? };
                Detached::new(run(py, || ManagedPool::create(&options))?)
            }
        };
        let preferred = pool.preferred_location();
        Ok(MemPool::base(MemoryPool::clone(&pool)).add_subclass(ManagedMemoryResource { preferred }))
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
        slf: &Bound<'py, ManagedMemoryResource>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Py<ManagedBuffer>> {
        let mut buffer = slf.as_super().get().allocate_ours(slf.as_any(), size, stream)?;
        if overrides_deallocate(slf.as_any(), &py.get_type::<ManagedMemoryResource>())? {
            let stream = cuirass::Stream::clone(&*stream::argument(stream)?);
            buffer = through_override(buffer, slf.as_any(), stream)?;
        }
        Py::new(py, PyClassInitializer::from(buffer).add_subclass(ManagedBuffer))
    }

    /// The ordinal of the device that its memory is rather to be on; -1 where it is to be elsewhere, or anywhere.
    #[getter]
    fn device_id(&self) -> i32 {
        match self.preferred {
            Some(Location::Device(device)) => device.ordinal(),
            _ => -1,
        }
    }

    /// Where its memory is rather to be: the type, a ``ManagedMemoryLocationType``, and the number of the device or node;
    /// ``None`` where the driver decides.
    #[getter]
    fn preferred_location<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, Option<i32>)>> {
        let (name, number) = match self.preferred {
            None => return Ok(None),
            Some(Location::Device(device)) => ("DEVICE", Some(device.ordinal())),
            Some(Location::Host) => ("HOST", None),
            Some(Location::HostNuma(node)) => ("HOST_NUMA", Some(node)),
            Some(Location::HostNumaCurrent) => ("HOST_NUMA", None),
        };
        let kind = py.import("cuirass.typing")?.getattr("ManagedMemoryLocationType")?.getattr(name)?;
        Ok(Some((kind, number)))
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

    /// Its memory is managed: true.
    #[getter]
    fn is_managed(&self) -> bool {
        true
    }

    fn __repr__(slf: &Bound<'_, ManagedMemoryResource>) -> String {
        let place = match slf.get().preferred {
            None => String::new(),
            Some(Location::Device(device)) => format!(" device={}", device.ordinal()),
            Some(Location::Host | Location::HostNumaCurrent) => " host".to_owned(),
            Some(Location::HostNuma(node)) => format!(" numa_id={node}"),
        };
        slf.as_super().get().shown("ManagedMemoryResource", format_args!("{place}"))
    }
}

/// A piece of managed memory, of which a program can say how it is used.
///
/// It is made by a ``ManagedMemoryResource``, or by ``ManagedBuffer.from_handle()`` for managed memory of another
/// library's. What it says of itself is asked of the driver each time, and holds for all of it.
#[pyclass(frozen, subclass, extends = Buffer, module = "cuirass", name = "ManagedBuffer")]
pub struct ManagedBuffer;

thread_local! {
    /// What the next object of the class is made of.
    static NEXT: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

#[pymethods]
impl ManagedBuffer {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<ManagedBuffer>> {
        match NEXT.with_borrow_mut(Option::take) {
            Some(buffer) => Ok(PyClassInitializer::from(buffer).add_subclass(ManagedBuffer)),
            None => not_constructed(
                "ManagedBuffer",
                "the allocate() of a ManagedMemoryResource, or ManagedBuffer.from_handle()",
            ),
        }
    }

    /// Managed memory that is there already: of ``cuMemAllocManaged``, or of a managed pool.
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
    #[classmethod]
    #[pyo3(signature = (ptr, size, mr=None, owner=None, *, stream=None))]
    fn from_handle<'py>(
        cls: &Bound<'py, PyType>,
        ptr: &Bound<'py, PyAny>,
        size: &Bound<'py, PyAny>,
        mr: Option<&Bound<'py, PyAny>>,
        owner: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = Buffer::adopt(device::address(ptr)?, size_of(size)?, mr, owner, stream)?;
        NEXT.set(Some(buffer));
        let made = cls.call_method1("__new__", (cls,));
        // A subclass may have not taken it.
        drop(NEXT.take());
        made
    }

    /// Whether it is mostly read, so that each processor that reads it has a copy of its own (``cuMemAdvise``,
    /// ``cuMemRangeGetAttribute``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers: ``CUDA_ERROR_INVALID_VALUE`` for memory that is not managed.
    #[getter]
    fn read_mostly(slf: &Bound<'_, ManagedBuffer>, py: Python<'_>) -> PyResult<bool> {
        let memory = slf.as_super().get().enter()?;
        run(py, || memory.buffer().is_read_mostly())
    }

    #[setter]
    fn set_read_mostly(slf: &Bound<'_, ManagedBuffer>, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (memory, value) = (slf.as_super().get().enter()?, options::truth(value, "read_mostly")?);
        run(py, || memory.buffer().set_read_mostly(value))
    }

    /// Where it is rather to be: a ``Device``, a ``Host``, or ``None`` where the driver decides (``cuMemAdvise``,
    /// ``cuMemRangeGetAttribute``). Nothing is moved by it.
    ///
    /// Drivers before CUDA 12.2 tell every part of the host as ``Host()``, and cannot be told a NUMA node.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers: ``CUDA_ERROR_INVALID_VALUE`` for memory that is not managed, and for a place that is
    ///     not there.
    #[getter]
    fn preferred_location(slf: &Bound<'_, ManagedBuffer>, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let memory = slf.as_super().get().enter()?;
        run(py, || memory.buffer().preferred_location())?.map(|place| location::object(py, place)).transpose()
    }

    #[setter]
    fn set_preferred_location(
        slf: &Bound<'_, ManagedBuffer>,
        py: Python<'_>,
        location: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (memory, place) = (slf.as_super().get().enter()?, location::optional(location, "preferred_location")?);
        run(py, || memory.buffer().set_preferred_location(place))
    }

    /// The processors that use it, so that it is mapped for them wherever it is: a set of ``Device`` and ``Host()`` that
    /// reads and writes the driver's state.
    ///
    /// Assigned to, it takes each one out that is no longer wanted, then adds each that is new: where the driver refuses
    /// one of these changes, those before it stay.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If a NUMA node is given: the host is one processor.
    /// CUDAError
    ///     What the driver answers.
    #[getter]
    fn accessed_by<'py>(slf: &Bound<'py, ManagedBuffer>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("cuirass._memory._managed_buffer")?.getattr("AccessedBySetProxy")?.call1((slf,))
    }

    #[setter]
    fn set_accessed_by(slf: &Bound<'_, ManagedBuffer>, locations: &Bound<'_, PyAny>) -> PyResult<()> {
        ManagedBuffer::accessed_by(slf)?.call_method1("_replace", (locations,))?;
        Ok(())
    }

    /// The processors that use it.
    fn _accessed_by(slf: &Bound<'_, ManagedBuffer>, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let memory = slf.as_super().get().enter()?;
        let places = run(py, || memory.buffer().accessed_by())?;
        places.into_iter().map(|place| location::object(py, place)).collect()
    }

    /// Says whether a processor uses it.
    fn _set_accessed_by(
        slf: &Bound<'_, ManagedBuffer>,
        py: Python<'_>,
        location: &Bound<'_, PyAny>,
        is_accessed: bool,
    ) -> PyResult<()> {
        let (memory, place) = (slf.as_super().get().enter()?, location::argument(location, "location")?);
        run(py, || memory.buffer().set_accessed_by(place, is_accessed))
    }

    /// Where it was last asked to be moved to, whether or not it has been by now: a ``Device``, a ``Host``, or ``None``
    /// (``cuMemRangeGetAttribute``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers: ``CUDA_ERROR_INVALID_VALUE`` for memory that is not managed.
    #[getter]
    fn last_prefetch_location(slf: &Bound<'_, ManagedBuffer>, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let memory = slf.as_super().get().enter()?;
        run(py, || memory.buffer().last_prefetch_location())?.map(|place| location::object(py, place)).transpose()
    }

    /// Moves it, in the stream's order (``cuMemPrefetchAsync``).
    ///
    /// Parameters
    /// ----------
    /// location : Device or Host
    ///     Where to.
    /// stream : Stream
    ///     The stream; not one that is being captured, since a graph cannot do it.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the memory is not managed.
    /// RuntimeError
    ///     If a graph builder captures the stream.
    /// CUDAError
    ///     What the driver answers; ``CUDA_ERROR_NOT_SUPPORTED`` for a NUMA node before CUDA 12.2.
    #[pyo3(signature = (location, *, stream))]
    fn prefetch(
        slf: &Bound<'_, ManagedBuffer>,
        py: Python<'_>,
        location: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let place = location::argument(location, "location")?;
        let stream = stream::argument(stream)?;
        let memory = slf.as_super().get().enter()?;
        check_managed(py, slf.as_super().get())?;
        // SAFETY: [stream-ordered-copy] the buffer is held until it is submitted; whoever releases it on another stream
        // orders the two, as the documentation of `close()` says.
        run(py, || unsafe { memory.buffer().prefetch_unordered(place, &stream) })
    }

    /// Gives up its contents, in the stream's order (``cuMemDiscardBatchAsync``): what is read before it is written again
    /// is anything. The driver then need not move it.
    ///
    /// Parameters
    /// ----------
    /// stream : Stream
    ///     The stream; not the legacy default stream, nor one that is being captured.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the memory is not managed.
    /// RuntimeError
    ///     If a graph builder captures the stream.
    /// CUDAError
    ///     What the driver answers; it has to be of CUDA 13.0.
    #[pyo3(signature = (*, stream))]
    fn discard(slf: &Bound<'_, ManagedBuffer>, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = stream::argument(stream)?;
        let memory = slf.as_super().get().enter()?;
        check_managed(py, slf.as_super().get())?;
        // SAFETY: [stream-ordered-copy] as above.
        run(py, || unsafe { memory.buffer().discard_unordered(&stream) })
    }

    /// Gives up its contents and moves it, in the stream's order (``cuMemDiscardAndPrefetchBatchAsync``).
    ///
    /// Parameters
    /// ----------
    /// location : Device or Host
    ///     Where to.
    /// stream : Stream
    ///     The stream; not the legacy default stream, nor one that is being captured.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the memory is not managed.
    /// RuntimeError
    ///     If a graph builder captures the stream.
    /// CUDAError
    ///     What the driver answers; it has to be of CUDA 13.0.
    #[pyo3(signature = (location, *, stream))]
    fn discard_prefetch(
        slf: &Bound<'_, ManagedBuffer>,
        py: Python<'_>,
        location: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let place = location::argument(location, "location")?;
        let stream = stream::argument(stream)?;
        let memory = slf.as_super().get().enter()?;
        check_managed(py, slf.as_super().get())?;
        // SAFETY: [stream-ordered-copy] as above.
        run(py, || unsafe { memory.buffer().discard_prefetch_unordered(place, &stream) })
    }
}

/// Refuses memory that the driver would not take for managed, with a word for it.
pub fn check_managed(py: Python<'_>, buffer: &Buffer) -> PyResult<()> {
    let resource = buffer.resource.as_ref().map(|resource| resource.bind(py));
    if resource.is_some_and(|resource| resource.is_instance_of::<ManagedMemoryResource>())
        || run(py, || pointer_info(buffer.address))?.is_managed
    {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("the memory at {:#x} is not managed memory", buffer.address)))
}
