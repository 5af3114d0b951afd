//! `DeviceProperties`: every attribute of a device by name, each read from the driver when it is asked for.

use crate::error::{ask, not_constructed};
use cuirass::DeviceAttribute;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The attributes of a device.
///
/// Each is read from the driver (``cuDeviceGetAttribute``) when it is asked for. One that this driver does not know
/// yet is 0, or ``False``.
#[pyclass(frozen, subclass, module = "cuirass._cuirass", name = "DeviceProperties")]
pub struct DeviceProperties {
    device: cuirass::Device,
}

impl DeviceProperties {
    pub fn of(device: cuirass::Device) -> DeviceProperties {
        DeviceProperties { device }
    }

    fn read(&self, py: Python<'_>, attribute: DeviceAttribute) -> PyResult<i32> {
        Ok(ask(py, || self.device.attribute(attribute))?.unwrap_or(0))
    }
}

/// What Python gets of the driver's number.
trait Kind<'py>: IntoPyObject<'py> {
    fn of(value: i32) -> Self;
}

impl Kind<'_> for i32 {
    fn of(value: i32) -> i32 {
        value
    }
}

impl Kind<'_> for bool {
    fn of(value: i32) -> bool {
        value != 0
    }
}

macro_rules! properties {
    ($($name:ident: $kind:ident = $attribute:ident;)*) => {
        #[pymethods]
        impl DeviceProperties {
            #[new]
            #[pyo3(signature = (*_args, **_kwargs))]
            fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<DeviceProperties> {
                not_constructed("DeviceProperties", "Device.properties")
            }

            $(
                #[doc = concat!("``", stringify!($attribute), "``")]
                #[getter]
                fn $name(&self, py: Python<'_>) -> PyResult<properties!(@ $kind)> {
                    Ok(Kind::of(self.read(py, DeviceAttribute::$attribute)?))
                }
            )*
        }
    };
    (@ int) => { i32 };
    (@ bool) => { bool };
}

properties! {
    max_threads_per_block: int = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    max_block_dim_x: int = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X;
    max_block_dim_y: int = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y;
    max_block_dim_z: int = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z;
    max_grid_dim_x: int = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X;
    max_grid_dim_y: int = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y;
    max_grid_dim_z: int = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z;
    max_shared_memory_per_block: int = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
    total_constant_memory: int = CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY;
    warp_size: int = CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    max_pitch: int = CU_DEVICE_ATTRIBUTE_MAX_PITCH;
    maximum_texture1d_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH;
    maximum_texture1d_linear_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH;
    maximum_texture1d_mipmapped_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH;
    maximum_texture2d_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH;
    maximum_texture2d_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT;
    maximum_texture2d_linear_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH;
    maximum_texture2d_linear_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT;
    maximum_texture2d_linear_pitch: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH;
    maximum_texture2d_mipmapped_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH;
    maximum_texture2d_mipmapped_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT;
    maximum_texture3d_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH;
    maximum_texture3d_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT;
    maximum_texture3d_depth: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH;
    maximum_texture3d_width_alternate: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE;
    maximum_texture3d_height_alternate: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE;
    maximum_texture3d_depth_alternate: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE;
    maximum_texturecubemap_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH;
    maximum_texture1d_layered_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH;
    maximum_texture1d_layered_layers: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS;
    maximum_texture2d_layered_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH;
    maximum_texture2d_layered_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT;
    maximum_texture2d_layered_layers: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS;
    maximum_texturecubemap_layered_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH;
    maximum_texturecubemap_layered_layers: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS;
    maximum_surface1d_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH;
    maximum_surface2d_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH;
    maximum_surface2d_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT;
    maximum_surface3d_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH;
    maximum_surface3d_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT;
    maximum_surface3d_depth: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH;
    maximum_surface1d_layered_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH;
    maximum_surface1d_layered_layers: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS;
    maximum_surface2d_layered_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH;
    maximum_surface2d_layered_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT;
    maximum_surface2d_layered_layers: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS;
    maximum_surfacecubemap_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH;
    maximum_surfacecubemap_layered_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH;
    maximum_surfacecubemap_layered_layers: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS;
    max_registers_per_block: int = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
    clock_rate: int = CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
    texture_alignment: int = CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT;
    texture_pitch_alignment: int = CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT;
    gpu_overlap: bool = CU_DEVICE_ATTRIBUTE_GPU_OVERLAP;
    multiprocessor_count: int = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    kernel_exec_timeout: bool = CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT;
    integrated: bool = CU_DEVICE_ATTRIBUTE_INTEGRATED;
    can_map_host_memory: bool = CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
    compute_mode: int = CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
    concurrent_kernels: bool = CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS;
    ecc_enabled: bool = CU_DEVICE_ATTRIBUTE_ECC_ENABLED;
    pci_bus_id: int = CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
    pci_device_id: int = CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID;
    pci_domain_id: int = CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID;
    tcc_driver: bool = CU_DEVICE_ATTRIBUTE_TCC_DRIVER;
    memory_clock_rate: int = CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE;
    global_memory_bus_width: int = CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
    l2_cache_size: int = CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
    max_threads_per_multiprocessor: int = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
    unified_addressing: bool = CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
    compute_capability_major: int = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    compute_capability_minor: int = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    global_l1_cache_supported: bool = CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED;
    local_l1_cache_supported: bool = CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED;
    max_shared_memory_per_multiprocessor: int = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    max_registers_per_multiprocessor: int = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR;
    managed_memory: bool = CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY;
    multi_gpu_board: bool = CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD;
    multi_gpu_board_group_id: int = CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID;
    host_native_atomic_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED;
    single_to_double_precision_perf_ratio: int = CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO;
    pageable_memory_access: bool = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
    concurrent_managed_access: bool = CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    compute_preemption_supported: bool = CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED;
    can_use_host_pointer_for_registered_mem: bool = CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    cooperative_launch: bool = CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH;
    max_shared_memory_per_block_optin: int = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    pageable_memory_access_uses_host_page_tables: bool = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
    direct_managed_mem_access_from_host: bool = CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST;
    virtual_memory_management_supported: bool = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    handle_type_posix_file_descriptor_supported: bool = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    handle_type_win32_handle_supported: bool = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED;
    handle_type_win32_kmt_handle_supported: bool = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED;
    max_blocks_per_multiprocessor: int = CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR;
    generic_compression_supported: bool = CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED;
    max_persisting_l2_cache_size: int = CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE;
    max_access_policy_window_size: int = CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE;
    gpu_direct_rdma_with_cuda_vmm_supported: bool = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    reserved_shared_memory_per_block: int = CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK;
    sparse_cuda_array_supported: bool = CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED;
    read_only_host_register_supported: bool = CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    memory_pools_supported: bool = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    gpu_direct_rdma_supported: bool = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED;
    gpu_direct_rdma_flush_writes_options: int = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS;
    gpu_direct_rdma_writes_ordering: int = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING;
    mempool_supported_handle_types: int = CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
    deferred_mapping_cuda_array_supported: bool = CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED;
    numa_config: int = CU_DEVICE_ATTRIBUTE_NUMA_CONFIG;
    numa_id: int = CU_DEVICE_ATTRIBUTE_NUMA_ID;
    multicast_supported: bool = CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;
    surface_alignment: int = CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT;
    async_engine_count: int = CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT;
    can_tex2d_gather: bool = CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER;
    maximum_texture2d_gather_width: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH;
    maximum_texture2d_gather_height: int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT;
    stream_priorities_supported: bool = CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED;
    can_flush_remote_writes: bool = CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES;
    host_register_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
    timeline_semaphore_interop_supported: bool = CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED;
    cluster_launch: bool = CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH;
    can_use_64_bit_stream_mem_ops: bool = CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
    can_use_stream_wait_value_nor: bool = CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR;
    dma_buf_supported: bool = CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    ipc_event_supported: bool = CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED;
    mem_sync_domain_count: int = CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT;
    tensor_map_access_supported: bool = CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED;
    handle_type_fabric_supported: bool = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
    unified_function_pointers: bool = CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS;
    mps_enabled: bool = CU_DEVICE_ATTRIBUTE_MPS_ENABLED;
    host_numa_id: int = CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    d3d12_cig_supported: bool = CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED;
    mem_decompress_algorithm_mask: int = CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK;
    mem_decompress_maximum_length: int = CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH;
    vulkan_cig_supported: bool = CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED;
    gpu_pci_device_id: int = CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID;
    gpu_pci_subsystem_id: int = CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID;
    host_numa_virtual_memory_management_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    host_numa_memory_pools_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED;
    host_numa_multinode_ipc_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED;
    host_memory_pools_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED;
    host_virtual_memory_management_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    host_alloc_dma_buf_supported: bool = CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED;
    only_partial_host_native_atomic_supported: bool = CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED;
}
