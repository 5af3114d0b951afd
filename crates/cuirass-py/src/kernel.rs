//! `Kernel`: an entry point of loaded code, its attributes and its occupancy.
#![allow(unsafe_code)]

use crate::context::not_yet;
use crate::device;
use crate::error::{not_constructed, run};
use crate::handle;
use crate::handle::Equal;
use crate::number::{self, Number};
use crate::slot::Detached;
use cuirass::KernelAttribute;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};

/// A kernel: an entry point of loaded code, which it keeps loaded.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Kernel")]
pub struct Kernel {
    kernel: Detached<cuirass::Kernel>,
    /// What keeps a kernel of another library's loaded.
    _code: Option<Py<PyAny>>,
}

impl Kernel {
    pub fn of(kernel: cuirass::Kernel, code: Option<Py<PyAny>>) -> Kernel {
        Kernel { kernel: Detached::new(kernel), _code: code }
    }

    #[inline]
    pub fn kernel(&self) -> &cuirass::Kernel {
        &self.kernel
    }

    /// Whether another library's object keeps its code loaded.
    pub fn is_foreign(&self) -> bool {
        self._code.is_some()
    }

    fn raw(&self) -> u64 {
        self.kernel.as_raw().addr() as u64
    }
}

#[pymethods]
impl Kernel {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Kernel> {
        not_constructed("Kernel", "ObjectCode.get_kernel() or Kernel.from_handle()")
    }

    /// Its attributes on the current device; ``attributes[device]`` has those on another.
    #[getter]
    fn attributes(&self) -> KernelAttributes {
        KernelAttributes { kernel: Detached::new(self.kernel.clone()), device: None }
    }

    /// How many parameters it has (``cuKernelGetParamInfo``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     ``CUDA_ERROR_NOT_SUPPORTED`` with a driver before CUDA 12.4.
    #[getter]
    fn num_arguments(&self, py: Python<'_>) -> PyResult<usize> {
        run(py, || Ok(self.kernel.parameters()?.len()))
    }

    /// Its parameters in order, each with ``offset`` and ``size`` in bytes (``cuKernelGetParamInfo``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     ``CUDA_ERROR_NOT_SUPPORTED`` with a driver before CUDA 12.4.
    #[getter]
    fn arguments_info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let info = py.import("cuirass._types")?.getattr("ParamInfo")?;
        let parameters = run(py, || self.kernel.parameters())?;
        let all = parameters.iter().map(|parameter| info.call1((parameter.offset, parameter.size)));
        PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)
    }

    /// How much of a device it can occupy.
    #[getter]
    fn occupancy(&self) -> KernelOccupancy {
        KernelOccupancy { kernel: Detached::new(self.kernel.clone()) }
    }

    /// The driver's ``CUkernel``, as a ``cuda.bindings.driver`` object where that package is there, else a number.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUkernel", self.raw())
    }

    /// A kernel of another library's, by its ``CUkernel``.
    ///
    /// Parameters
    /// ----------
    /// handle : int or CUkernel
    ///     The handle, which must stay loaded as long as this object lives.
    /// mod : ObjectCode, optional
    ///     What keeps it loaded; it is kept.
    #[staticmethod]
    #[pyo3(signature = (handle, r#mod=None))]
    fn from_handle(handle: &Bound<'_, PyAny>, r#mod: Option<&Bound<'_, PyAny>>) -> PyResult<Kernel> {
        let raw = usize::try_from(handle::take(handle, "handle")?).unwrap_or(0);
        if raw == 0 {
            return Err(pyo3::exceptions::PyValueError::new_err("handle must not be null"));
        }
        // SAFETY: [foreign-kernel] the caller's promise; what keeps it loaded is kept.
        let kernel = unsafe { cuirass::Kernel::borrow_raw(std::ptr::without_provenance_mut(raw)) };
        Ok(Kernel::of(kernel, r#mod.map(|code| code.clone().unbind())))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<Kernel>().ok().map(|other| other.get().raw() == self.raw()))
    }

    fn __hash__(&self) -> u64 {
        self.raw() >> 4
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match py.detach(|| self.kernel.name()) {
            Ok(name) => format!("<Kernel {name} handle={:#x}>", self.raw()),
            Err(_unknown) => format!("<Kernel handle={:#x}>", self.raw()),
        }
    }
}

/// The attributes of a kernel on a device, each read from the driver (``cuKernelGetAttribute``) when it is asked for. Two
/// can be set.
#[pyclass(frozen, subclass, module = "cuirass._cuirass", name = "KernelAttributes")]
pub struct KernelAttributes {
    kernel: Detached<cuirass::Kernel>,
    /// `None`: the current one.
    device: Option<cuirass::Device>,
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident $(($set:ident))?: $kind:ident = $attribute:ident;)*) => {
        #[pymethods]
        impl KernelAttributes {
            #[new]
            #[pyo3(signature = (*_args, **_kwargs))]
            fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<KernelAttributes> {
                not_constructed("KernelAttributes", "Kernel.attributes")
            }

            /// The attributes on a device.
            fn __getitem__(&self, py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<KernelAttributes> {
                let device = device::argument(py, device, "device")?;
                Ok(KernelAttributes { kernel: Detached::new(self.kernel.clone()), device: Some(device) })
            }

            $(
                $(#[$doc])*
                #[getter]
                fn $name(&self, py: Python<'_>) -> PyResult<attributes!(@ $kind)> {
                    let device = match self.device {
                        Some(device) => device,
                        None => device::current(py)?,
                    };
                    let value = run(py, || self.kernel.attribute(KernelAttribute::$attribute, device))?;
                    Ok(attributes!(@ $kind value))
                }

                $(
                    #[setter]
                    fn $set(&self, py: Python<'_>, value: Number<i32>) -> PyResult<()> {
                        let value = value.named(stringify!($name))?;
                        let device = match self.device {
                            Some(device) => device,
                            None => device::current(py)?,
                        };
                        run(py, || self.kernel.set_attribute(KernelAttribute::$attribute, value, device))
                    }
                )?
            )*
        }
    };
    (@ int) => { i32 };
    (@ bool) => { bool };
    (@ int $value:ident) => { $value };
    (@ bool $value:ident) => { $value != 0 };
}

attributes! {
    /// The most threads that a block of it can have.
    max_threads_per_block: int = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    /// Static shared memory of a block, in bytes.
    shared_size_bytes: int = CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
    /// Constant memory of its own, in bytes.
    const_size_bytes: int = CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES;
    /// Local memory of a thread, in bytes.
    local_size_bytes: int = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
    /// Registers of a thread.
    num_regs: int = CU_FUNC_ATTRIBUTE_NUM_REGS;
    /// The PTX version that it was compiled for: 90 for 9.0.
    ptx_version: int = CU_FUNC_ATTRIBUTE_PTX_VERSION;
    /// The architecture that it was compiled for: 90 for 9.0.
    binary_version: int = CU_FUNC_ATTRIBUTE_BINARY_VERSION;
    /// Whether it was compiled with ``-Xptxas --dlcm=ca``.
    cache_mode_ca: bool = CU_FUNC_ATTRIBUTE_CACHE_MODE_CA;
    /// The most dynamic shared memory that a launch may ask for, in bytes. It can be set (``cuKernelSetAttribute``), which
    /// more than 48 KiB need.
    max_dynamic_shared_size_bytes (set_max_dynamic_shared_size_bytes): int = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    /// How much of the cache should be shared memory, in percent; -1 leaves it to the driver. It can be set.
    preferred_shared_memory_carveout (set_preferred_shared_memory_carveout): int = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    /// Whether it can only be launched with a cluster size.
    cluster_size_must_be_set: bool = CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
    /// The cluster width that it needs, in blocks; 0 for any.
    required_cluster_width: int = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
    /// The cluster height that it needs, in blocks; 0 for any.
    required_cluster_height: int = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT;
    /// The cluster depth that it needs, in blocks; 0 for any.
    required_cluster_depth: int = CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH;
    /// Whether it may be launched with clusters that other devices cannot have.
    non_portable_cluster_size_allowed: bool = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    /// How the blocks of a cluster are scheduled, as ``CUclusterSchedulingPolicy`` numbers it.
    cluster_scheduling_policy_preference: int = CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
}

/// How much of a device a kernel can occupy. The device is the current one.
#[pyclass(frozen, subclass, module = "cuirass._cuirass", name = "KernelOccupancy")]
pub struct KernelOccupancy {
    kernel: Detached<cuirass::Kernel>,
}

#[pymethods]
impl KernelOccupancy {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<KernelOccupancy> {
        not_constructed("KernelOccupancy", "Kernel.occupancy")
    }

    /// How many blocks of ``block_size`` threads, each with this much dynamic shared memory in bytes, fit on a
    /// multiprocessor of the current device (``cuOccupancyMaxActiveBlocksPerMultiprocessor``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, for a block without threads for instance.
    fn max_active_blocks_per_multiprocessor(
        &self,
        py: Python<'_>,
        block_size: Number<i32>,
        dynamic_shared_memory_size: Number<usize>,
    ) -> PyResult<i32> {
        let block_size = block_size.named("block_size")?;
        let bytes = dynamic_shared_memory_size.named("dynamic_shared_memory_size")?;
        let device = device::current(py)?;
        run(py, || self.kernel.max_active_blocks(block_size, bytes, device))
    }

    /// The smallest grid that fills the current device, and the block size for it: ``min_grid_size``, in blocks, and
    /// ``max_block_size``, in threads (``cuOccupancyMaxPotentialBlockSize``).
    ///
    /// Parameters
    /// ----------
    /// dynamic_shared_memory_needed : int
    ///     Dynamic shared memory of a block, in bytes.
    /// block_size_limit : int
    ///     The most threads of a block; 0 for no limit.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If the shared memory is a callback, as ``cuda.core`` takes it: not available yet.
    /// CUDAError
    ///     What the driver answers.
    fn max_potential_block_size<'py>(
        &self,
        py: Python<'py>,
        dynamic_shared_memory_needed: &Bound<'py, PyAny>,
        block_size_limit: Number<i32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !dynamic_shared_memory_needed.is_instance_of::<PyInt>() {
            return Err(PyTypeError::new_err(
                "dynamic_shared_memory_needed must be an int; a callback is not available yet",
            ));
        }
        let bytes = number::of(dynamic_shared_memory_needed, "dynamic_shared_memory_needed")?;
        let (limit, device) = (block_size_limit.named("block_size_limit")?, device::current(py)?);
        let pair = run(py, || self.kernel.max_potential_block_size(bytes, limit, device))?;
        py.import("cuirass._types")?.getattr("MaxPotentialBlockSizeOccupancyResult")?.call1(pair)
    }

    /// How much dynamic shared memory a block may have, in bytes, for this many blocks of ``block_size`` threads to fit on
    /// a multiprocessor of the current device (``cuOccupancyAvailableDynamicSMemPerBlock``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, for no blocks, or blocks without threads, for instance.
    fn available_dynamic_shared_memory_per_block(
        &self,
        py: Python<'_>,
        num_blocks_per_multiprocessor: Number<i32>,
        block_size: Number<i32>,
    ) -> PyResult<usize> {
        let blocks = num_blocks_per_multiprocessor.named("num_blocks_per_multiprocessor")?;
        let (block_size, device) = (block_size.named("block_size")?, device::current(py)?);
        run(py, || self.kernel.available_dynamic_shared_bytes(blocks, block_size, device))
    }

    /// The largest cluster that a launch of this shape can have. Not available yet.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     In this version.
    #[pyo3(signature = (config, *, stream))]
    fn max_potential_cluster_size(&self, config: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<i32> {
        let _unused = (config, stream);
        Err(not_yet("KernelOccupancy.max_potential_cluster_size()"))
    }

    /// How many clusters of this shape fit on the device. Not available yet.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     In this version.
    #[pyo3(signature = (config, *, stream))]
    fn max_active_clusters(&self, config: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<i32> {
        let _unused = (config, stream);
        Err(not_yet("KernelOccupancy.max_active_clusters()"))
    }
}
