//! `VirtualMemoryResource`: reserved addresses that physical memory is mapped to.

use crate::device::{self, Device};
use crate::error::run;
use crate::memory::buffer::Buffer;
use crate::memory::resource::{MemoryResource, overrides_deallocate, size_of, through_override};
use crate::number;
use crate::options;
use crate::slot::Detached;
use crate::stream;
use cuirass::MemoryResource as _;
use cuirass::memory::{
    Location, VirtualMemoryAccess, VirtualMemoryHandleType, VirtualMemoryResource as Virtual,
    VirtualMemoryResourceOptions as Options,
};
use cuirass::{DeviceAttribute, raw};
use cuirass_fault::lock::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Memory of reserved addresses that physical memory is mapped to (``cuMemAddressReserve``, ``cuMemCreate``,
/// ``cuMemMap``), so that an allocation can grow and keep what is in it.
///
/// Parameters
/// ----------
/// device_id : int or Device
///     The device.
/// config : VirtualMemoryResourceOptions, optional
///     How its memory is made.
///
/// Raises
/// ------
/// ValueError
///     If an option has a value that it cannot have.
#[pyclass(frozen, weakref, subclass, extends = MemoryResource, module = "cuirass", name = "VirtualMemoryResource")]
pub struct VirtualMemoryResource {
    device: Mutex<cuirass::Device>,
    config: Mutex<Py<PyAny>>,
}

#[pymethods]
impl VirtualMemoryResource {
    #[new]
    #[pyo3(signature = (device_id, config=None))]
    fn new(
        py: Python<'_>,
        device_id: &Bound<'_, PyAny>,
        config: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<VirtualMemoryResource>> {
        let device = device::argument(py, device_id, "device_id")?;
        let config = configuration(py, config)?;
        parse(&config, device)?;
        let made = VirtualMemoryResource { device: Mutex::new(device), config: Mutex::new(config.unbind()) };
        Ok(PyClassInitializer::from(MemoryResource).add_subclass(made))
    }

    /// Memory of at least ``size`` bytes, rounded up to the granularity (2 MiB on most devices).
    ///
    /// The buffer's ``size`` is the rounded one, and copies between buffers want equal sizes. A buffer of what was asked
    /// for is ``Buffer.from_handle(int(buffer.handle), size, owner=buffer)``; an array in it,
    /// ``StridedMemoryView.from_buffer(buffer, shape, dtype=dtype)``.
    ///
    /// Parameters
    /// ----------
    /// size : int
    ///     In bytes.
    /// stream : Stream, optional
    ///     Orders the release: the memory goes back once what is on the stream when the buffer is closed or collected is
    ///     done. Without it the memory goes back at once, and whoever closes the buffer sees to it that no work uses it.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the size is 0 or negative.
    /// CUDAError
    ///     What the driver answers; nothing is left of the allocation.
    #[pyo3(signature = (size, *, stream=None))]
    fn allocate<'py>(
        slf: &Bound<'py, VirtualMemoryResource>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Buffer> {
        let (size, stream) = (size_of(size)?, stream.map(stream::argument).transpose()?);
        let stream = stream.map(|stream| Detached::new(cuirass::Stream::clone(&stream)));
        let resource = slf.get().resource(py, None)?;
        let buffer = run(py, || match &stream {
            Some(stream) => resource.allocate(size, stream),
            None => resource.allocate_unordered(size),
        })?;
        let buffer = Buffer::of_resource(buffer, slf.as_any().clone().unbind());
        if slf.is_exact_instance_of::<VirtualMemoryResource>()
            || !overrides_deallocate(slf.as_any(), &py.get_type::<VirtualMemoryResource>())?
        {
            return Ok(buffer);
        }
        through_override(
            buffer,
            slf.as_any(),
            stream.as_deref().map_or_else(cuirass::Stream::legacy_default, Clone::clone),
        )
    }

    /// Takes memory back that is of one allocation and never grew, once what is on the stream is done.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the driver knows no memory there.
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
        let (address, size) = (device::address(ptr)?, size_of(size)?);
        let stream = stream.map(stream::argument).transpose()?;
        let stream = stream.map_or_else(cuirass::Stream::legacy_default, |stream| cuirass::Stream::clone(&stream));
        let (resource, stream) = (self.resource(py, None)?, Detached::new(stream));
        run(py, || resource.deallocate(address, size, &stream))
    }

    /// Memory of a buffer of this resource with more behind it: what is in it stays.
    ///
    /// Where the addresses behind it are free the address stays too; else all of its memory is mapped to other addresses,
    /// and the old ones are given back in the order of the buffer's stream. The buffer that is given is closed. One that
    /// is long enough is returned as it is.
    ///
    /// Parameters
    /// ----------
    /// buf : Buffer
    ///     The buffer. It must not be in use: no view of it, no other thread.
    /// new_size : int
    ///     In bytes; rounded up to the granularity.
    /// config : VirtualMemoryResourceOptions, optional
    ///     How the new memory is made, instead of the resource's own way.
    ///
    /// Returns
    /// -------
    /// Buffer
    ///     The longer one.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the buffer is no virtual memory.
    /// RuntimeError
    ///     If the buffer is closed or in use.
    /// CUDAError
    ///     What the driver answers; the buffer is as it was.
    #[pyo3(signature = (buf, new_size, config=None))]
    fn modify_allocation<'py>(
        slf: &Bound<'py, VirtualMemoryResource>,
        py: Python<'py>,
        buf: &Bound<'py, Buffer>,
        new_size: &Bound<'py, PyAny>,
        config: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Buffer>> {
        let size = number::of(new_size, "new_size")?;
        let resource = slf.get().resource(py, config)?;
        buf.get().replaced(
            buf,
            |buffer| buffer.len() >= size,
            |buffer| {
                let mut same = None;
                let grown = run(py, || {
                    resource.grow(buffer, size).map_err(|(buffer, error)| {
                        same = Some(buffer);
                        error
                    })
                });
                grown.map_err(|error| Box::new((same, error)))
            },
        )
    }

    /// Whether kernels of the device can use its memory: whether ``self_access`` is given.
    #[getter]
    fn is_device_accessible(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.options(py, None)?.self_access.is_some())
    }

    /// Whether the host can use its memory: whether its location is the host.
    #[getter]
    fn is_host_accessible(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(is_of_host(&self.options(py, None)?))
    }

    /// The ordinal of the device that its memory is on; -1 for memory of the host.
    #[getter]
    fn device_id(&self, py: Python<'_>) -> PyResult<i32> {
        let of_host = is_of_host(&self.options(py, None)?);
        Ok(if of_host { -1 } else { self.device.lock().ordinal() })
    }

    /// The device that its memory is on; ``None`` for memory of the host. Another one serves for what is allocated later.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Option<Py<Device>>> {
        let device = *self.device.lock();
        if is_of_host(&self.options(py, None)?) { Ok(None) } else { Device::cached(py, device).map(Some) }
    }

    #[setter]
    fn set_device(&self, py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
        let device = device::argument(py, device, "device")?;
        *self.device.lock() = device;
        Ok(())
    }

    /// How its memory is made. Another one serves for what is allocated later.
    #[getter]
    fn config(&self, py: Python<'_>) -> Py<PyAny> {
        self.config.lock().clone_ref(py)
    }

    #[setter]
    fn set_config(&self, py: Python<'_>, config: &Bound<'_, PyAny>) -> PyResult<()> {
        let config = configuration(py, Some(config))?;
        let device = *self.device.lock();
        parse(&config, device)?;
        let before = std::mem::replace(&mut *self.config.lock(), config.unbind());
        drop(before);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<VirtualMemoryResource device={}>", self.device.lock().ordinal())
    }
}

impl VirtualMemoryResource {
    fn options(&self, py: Python<'_>, config: Option<&Bound<'_, PyAny>>) -> PyResult<Options> {
        let config = match config {
            Some(config) => configuration(py, Some(config))?,
            None => self.config(py).into_bound(py),
        };
        let device = *self.device.lock();
        parse(&config, device)
    }

    fn resource(&self, py: Python<'_>, config: Option<&Bound<'_, PyAny>>) -> PyResult<Detached<Virtual>> {
        let (options, device) = (self.options(py, config)?, *self.device.lock());
        run(py, || Virtual::new(device, options)).map(Detached::new)
    }
}

fn is_of_host(options: &Options) -> bool {
    options.location.is_some_and(|location| !matches!(location, Location::Device(_)))
}

/// The data class, made where none is given.
fn configuration<'py>(py: Python<'py>, config: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    match options::instance_named("config", config, "VirtualMemoryResourceOptions")? {
        Some(config) => Ok(config),
        None => py.import("cuirass._options")?.getattr("VirtualMemoryResourceOptions")?.call0(),
    }
}

fn unknown(name: &str, value: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("{name} must be one of {known}, not {value:?}"))
}

fn access(config: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<VirtualMemoryAccess>> {
    match options::text(config, name)?.as_deref() {
        None => Ok(None),
        Some("r") => Ok(Some(VirtualMemoryAccess::Read)),
        Some("rw") => Ok(Some(VirtualMemoryAccess::ReadWrite)),
        Some(other) => Err(unknown(name, other, "'r', 'rw' and None")),
    }
}

/// What the data class says.
fn parse(config: &Bound<'_, PyAny>, device: cuirass::Device) -> PyResult<Options> {
    let py = config.py();
    let text = |name: &str| options::text(config, name);
    match text("allocation_type")?.as_deref() {
        Some("pinned") => {}
        Some("managed") => return Err(PyValueError::new_err("allocation_type: virtual memory cannot be managed")),
        other => return Err(unknown("allocation_type", other.unwrap_or("None"), "'pinned'")),
    }
    let location = match text("location_type")?.as_deref() {
        Some("device") => None,
        Some("host") => Some(Location::Host),
        Some("host_numa") => {
            let node = run(py, || device.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID))?;
            Some(Location::HostNuma(node.unwrap_or(0).max(0)))
        }
        Some("host_numa_current") => Some(Location::HostNumaCurrent),
        other => {
            let known = "'device', 'host', 'host_numa' and 'host_numa_current'";
            return Err(unknown("location_type", other.unwrap_or("None"), known));
        }
    };
    let handle_type = match text("handle_type")?.as_deref() {
        None => VirtualMemoryHandleType::CU_MEM_HANDLE_TYPE_NONE,
        Some("posix_fd") => VirtualMemoryHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        Some("win32_kmt") => raw::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32_KMT,
        Some("fabric") => VirtualMemoryHandleType::CU_MEM_HANDLE_TYPE_FABRIC,
        Some(other) => return Err(unknown("handle_type", other, "'posix_fd', 'win32_kmt', 'fabric' and None")),
    };
    let recommended_granularity = match text("granularity")?.as_deref() {
        Some("recommended") => true,
        Some("minimum") => false,
        other => return Err(unknown("granularity", other.unwrap_or("None"), "'minimum' and 'recommended'")),
    };
    let mut peers = Vec::new();
    let given = config.getattr("peers")?;
    // What has none is refused here: what its own `__iter__` raises is another thing.
    if !given.hasattr("__iter__")? && !given.hasattr("__getitem__")? {
        let message = format!("peers must be an iterable of devices, not {}", given.get_type().name()?);
        return Err(PyTypeError::new_err(message));
    }
    for peer in given.try_iter()? {
        peers.push(device::argument(py, &peer?, "peers")?);
    }
    Ok(Options {
        location,
        handle_type,
        recommended_granularity,
        gpu_direct_rdma: options::flag(config, "gpu_direct_rdma")?,
        address_hint: number::of_optional(&config.getattr("addr_hint")?, "addr_hint")?.unwrap_or(0),
        address_alignment: number::of_optional(&config.getattr("addr_align")?, "addr_align")?,
        self_access: access(config, "self_access")?,
        peers,
        peer_access: access(config, "peer_access")?,
    })
}
