//! Page-locked host memory.

use crate::Result;
use crate::status::driver_call;
use std::ffi::c_void;

/// `cuMemAllocHost_v2`
pub fn alloc_host(bytes: usize) -> Result<*mut c_void> {
    let mut address = std::ptr::null_mut();
    driver_call!(entry!(cuMemAllocHost_v2), (&raw mut address, bytes), "{bytes} bytes")?;
    Ok(address)
}

/// `cuMemHostAlloc`
pub fn host_alloc(bytes: usize, flags: u32) -> Result<*mut c_void> {
    let mut address = std::ptr::null_mut();
    driver_call!(entry!(cuMemHostAlloc), (&raw mut address, bytes, flags), "{bytes} bytes, flags {flags}")?;
    Ok(address)
}

/// `cuMemFreeHost`
pub fn free_host(address: *mut c_void) -> Result<()> {
    driver_call!(entry!(cuMemFreeHost), (address), "{address:p}")
}
