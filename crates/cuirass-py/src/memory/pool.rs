//! `DeviceMemoryResource`: the memory of a device's pool.

use crate::device;
use crate::error::{ask, close, not_constructed, run};
use crate::handle;
use crate::memory::buffer::Buffer;
use crate::memory::resource::{MemoryResource, enter, overrides_deallocate, size_of, through_override};
use crate::options;
use crate::slot::{Closed, Slot};
use crate::stream;
use cuirass::MemoryResource as _;
use cuirass::memory::{DeviceMemoryResource as Pool, DeviceMemoryResourceOptions, PoolAttribute};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Memory of a device, from one of its pools.
///
/// Parameters
/// ----------
/// device_id : int or Device
///     The device.
/// options : DeviceMemoryResourceOptions, optional
///     How a pool of its own is made. Without them it is the device's default pool, whose freed memory is kept for
///     reuse; making that disturbs no capture.
///
/// Raises
/// ------
/// CUDAError
///     What the driver answers.
#[pyclass(frozen, weakref, subclass, extends = MemoryResource, module = "cuirass", name = "DeviceMemoryResource")]
pub struct DeviceMemoryResource {
    slot: Slot<Pool>,
    device: cuirass::Device,
    raw: u64,
    is_owned: bool,
}

impl DeviceMemoryResource {
    fn of(pool: Pool) -> PyResult<DeviceMemoryResource> {
        let Some(device) = pool.device() else { return Err(PyRuntimeError::new_err("a pool is on a device")) };
        let (raw, is_owned) = (pool.as_raw().addr() as u64, pool.is_owned());
        Ok(DeviceMemoryResource { slot: Slot::new(pool), device, raw, is_owned })
    }

    /// A new Python object for a pool.
    pub fn object(py: Python<'_>, pool: Pool) -> PyResult<Py<DeviceMemoryResource>> {
        Py::new(py, (DeviceMemoryResource::of(pool)?, MemoryResource))
    }

    /// The pool, shared.
    pub fn pool(&self) -> PyResult<Pool> {
        Ok(Pool::clone(&*enter(&self.slot)?))
    }

    /// Memory that goes back to the pool.
    #[inline]
    pub fn allocate_ours<'py>(
        slf: &Bound<'py, DeviceMemoryResource>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Buffer> {
        let pool = enter(&slf.get().slot)?;
        let (size, stream) = (size_of(size)?, stream::argument(stream)?);
        let buffer = run(py, || pool.allocate(size, &stream))?;
        Ok(Buffer::of_resource(buffer, slf.as_any().clone().unbind()))
    }
}

#[pymethods]
impl DeviceMemoryResource {
    #[new]
    #[pyo3(signature = (device_id, options=None))]
    fn new(
        py: Python<'_>,
        device_id: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<DeviceMemoryResource>> {
        let device = device::argument(py, device_id, "device_id")?;
        let pool = match options::instance(options, "DeviceMemoryResourceOptions")? {
            None => run(py, || device.memory_resource())?,
            Some(options) => {
                let options = DeviceMemoryResourceOptions {
                    max_size: size_of(&options.getattr("max_size")?)?,
                    ipc_enabled: options::flag(&options, "ipc_enabled")?,
                };
                run(py, || Pool::create(device, &options))?
            }
        };
        Ok(PyClassInitializer::from(MemoryResource).add_subclass(DeviceMemoryResource::of(pool)?))
    }

    /// Memory of ``size`` bytes, usable in the stream's order (``cuMemAllocFromPoolAsync``).
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the size is negative.
    /// CUDAError
    ///     ``CUDA_ERROR_OUT_OF_MEMORY``, and what else the driver answers.
    #[pyo3(signature = (size, *, stream))]
    fn allocate<'py>(
        slf: &Bound<'py, DeviceMemoryResource>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Buffer> {
        let buffer = DeviceMemoryResource::allocate_ours(slf, py, size, stream)?;
        if slf.is_exact_instance_of::<DeviceMemoryResource>()
            || !overrides_deallocate(slf.as_any(), &py.get_type::<DeviceMemoryResource>())?
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

    /// Whether the pool is one of its own, destroyed with it.
    #[getter]
    fn is_handle_owned(&self) -> bool {
        self.is_owned
    }

    /// Whether other processes can use its memory.
    #[getter]
    fn is_ipc_enabled(&self) -> bool {
        false
    }

    /// Whether it is another process's pool.
    #[getter]
    fn is_mapped(&self) -> bool {
        false
    }

    /// What another process needs to use this pool's memory. Not available yet.
    #[getter]
    fn allocation_handle(&self) -> PyResult<Py<PyAny>> {
        Err(PyRuntimeError::new_err("this pool is of this process alone"))
    }

    /// What names it between processes: ``None`` for a pool of this process alone.
    #[getter]
    fn uuid(&self) -> Option<Py<PyAny>> {
        None
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() {
            return "<DeviceMemoryResource closed>".to_owned();
        }
        format!("<DeviceMemoryResource handle={:#x} device={}>", self.raw, self.device.ordinal())
    }
}

/// The attributes of a pool, each read from the driver (``cuMemPoolGetAttribute``) when it is asked for.
#[pyclass(frozen, subclass, module = "cuirass._cuirass", name = "_MemPoolAttributes")]
pub struct MemPoolAttributes {
    pool: Pool,
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident: $kind:ident = $attribute:ident;)*) => {
        #[pymethods]
        impl MemPoolAttributes {
            #[new]
            #[pyo3(signature = (*_args, **_kwargs))]
            fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<MemPoolAttributes> {
                not_constructed("_MemPoolAttributes", "DeviceMemoryResource.attributes")
            }

            $(
                $(#[$doc])*
                #[getter]
                fn $name(&self, py: Python<'_>) -> PyResult<attributes!(@ $kind)> {
                    let value = ask(py, || self.pool.attribute(PoolAttribute::$attribute))?;
                    Ok(attributes!(@ $kind value))
                }
            )*

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let mut text = String::from("_MemPoolAttributes(");
                $(
                    text.push_str(concat!(stringify!($name), "="));
                    text.push_str(&self.$name(py)?.to_string());
                    text.push_str(", ");
                )*
                text.truncate(text.len() - 2);
                text.push(')');
                Ok(text)
            }
        }
    };
    (@ bool) => { bool };
    (@ int) => { u64 };
    (@ bool $value:ident) => { $value != 0 };
    (@ int $value:ident) => { $value };
}

attributes! {
    /// Whether memory is reused along event dependencies.
    reuse_follow_event_dependencies: bool = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
    /// Whether memory is reused when its free happens to be done.
    reuse_allow_opportunistic: bool = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC;
    /// Whether the driver may add dependencies of its own to reuse memory.
    reuse_allow_internal_dependencies: bool = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
    /// How many bytes are kept before memory goes back to the system.
    release_threshold: int = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    /// Bytes that the pool has of the system now.
    reserved_mem_current: int = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    /// The most bytes that it has had of the system.
    reserved_mem_high: int = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    /// Bytes of the pool that are allocated now.
    used_mem_current: int = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    /// The most bytes of the pool that have been allocated.
    used_mem_high: int = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}
