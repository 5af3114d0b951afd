//! Launches, host functions and occupancy.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUfunction, CUkernel, CUlaunchConfig, CUstream};
use std::ffi::{c_int, c_void};

/// `cuLaunchKernelEx`, by the kernel's function in the stream's context; a failure names the kernel.
///
/// # Safety
/// `function` is that of `kernel` in the stream's context, or `kernel` itself, which the driver takes in its place;
/// `arguments` holds, for each parameter of the kernel, the address of a value of its size; the attributes that
/// `config` points to are alive; and the kernel may be run with these arguments.
#[inline]
pub unsafe fn kernel_ex(
    config: &CUlaunchConfig,
    function: CUfunction,
    kernel: CUkernel,
    arguments: *mut *mut c_void,
) -> Result<()> {
    driver_call!(
        entry!(cuLaunchKernelEx),
        (config, function, arguments, std::ptr::null_mut()),
        "kernel {kernel:p}, grid {} {} {}, block {} {} {}, {} bytes of shared memory, stream {:p}",
        config.gridDimX,
        config.gridDimY,
        config.gridDimZ,
        config.blockDimX,
        config.blockDimY,
        config.blockDimZ,
        config.sharedMemBytes,
        config.hStream
    )
}

/// `cuLaunchHostFunc`
///
/// # Safety
/// `function` may be called once, on a thread of the driver, with `data`; it does not unwind and calls no CUDA.
pub unsafe fn host_func(
    stream: CUstream,
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> Result<()> {
    driver_call!(entry!(cuLaunchHostFunc), (stream, Some(function), data), "stream {stream:p}")
}

/// `cuOccupancyMaxActiveBlocksPerMultiprocessor`
pub fn occupancy_max_active_blocks_per_multiprocessor(
    function: CUfunction,
    block_size: i32,
    dynamic_shared_bytes: usize,
) -> Result<i32> {
    let mut blocks: c_int = 0;
    driver_call!(
        entry!(cuOccupancyMaxActiveBlocksPerMultiprocessor),
        (&raw mut blocks, function, block_size, dynamic_shared_bytes),
        "kernel {function:p}, {block_size} threads, {dynamic_shared_bytes} bytes of shared memory"
    )?;
    Ok(blocks)
}

/// `cuOccupancyMaxPotentialBlockSize`: the smallest grid that fills the device, and the block size for it.
pub fn occupancy_max_potential_block_size(
    function: CUfunction,
    dynamic_shared_bytes: usize,
    block_size_limit: i32,
) -> Result<(i32, i32)> {
    let (mut grid, mut block): (c_int, c_int) = (0, 0);
    driver_call!(
        entry!(cuOccupancyMaxPotentialBlockSize),
        (&raw mut grid, &raw mut block, function, None, dynamic_shared_bytes, block_size_limit),
        "kernel {function:p}, {dynamic_shared_bytes} bytes of shared memory, at most {block_size_limit} threads"
    )?;
    Ok((grid, block))
}

/// `cuOccupancyAvailableDynamicSMemPerBlock`: in bytes.
pub fn occupancy_available_dynamic_smem_per_block(function: CUfunction, blocks: i32, block_size: i32) -> Result<usize> {
    let mut bytes = 0;
    driver_call!(
        entry!(cuOccupancyAvailableDynamicSMemPerBlock),
        (&raw mut bytes, function, blocks, block_size),
        "kernel {function:p}, {blocks} blocks of {block_size} threads"
    )?;
    Ok(bytes)
}
