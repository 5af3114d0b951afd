//! Contexts: the primary one, created ones, and which one is current.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUcontext, CUdevice, CUlimit};
use std::ffi::{c_int, c_uint};

/// `cuDevicePrimaryCtxRetain`
pub fn device_primary_ctx_retain(device: CUdevice) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    driver_call!(entry!(cuDevicePrimaryCtxRetain), (&raw mut context, device), "device {device}")?;
    Ok(context)
}

/// `cuDevicePrimaryCtxRelease_v2`
pub fn device_primary_ctx_release(device: CUdevice) -> Result<()> {
    driver_call!(entry!(cuDevicePrimaryCtxRelease_v2), (device), "device {device}")
}

/// `cuDevicePrimaryCtxGetState`: its flags, and whether it exists.
pub fn device_primary_ctx_get_state(device: CUdevice) -> Result<(u32, bool)> {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    driver_call!(entry!(cuDevicePrimaryCtxGetState), (device, &raw mut flags, &raw mut active), "device {device}")?;
    Ok((flags, active != 0))
}

/// `cuCtxCreate_v2`: makes a context, which is then current.
pub fn ctx_create(flags: u32, device: CUdevice) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    driver_call!(entry!(cuCtxCreate_v2), (&raw mut context, flags, device), "device {device}")?;
    Ok(context)
}

/// `cuCtxDestroy_v2`
pub fn ctx_destroy(context: CUcontext) -> Result<()> {
    driver_call!(entry!(cuCtxDestroy_v2), (context), "{context:p}")
}

/// `cuCtxGetCurrent`: null where none is current.
#[inline]
pub fn ctx_get_current() -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    driver_call!(entry!(cuCtxGetCurrent), (&raw mut context), "")?;
    Ok(context)
}

/// `cuCtxSetCurrent`: null makes none current.
#[inline]
pub fn ctx_set_current(context: CUcontext) -> Result<()> {
    driver_call!(entry!(cuCtxSetCurrent), (context), "context {context:p}")
}

/// `cuCtxGetDevice`: the device of the current context.
pub fn ctx_get_device() -> Result<CUdevice> {
    let mut device = 0;
    driver_call!(entry!(cuCtxGetDevice), (&raw mut device), "")?;
    Ok(device)
}

/// `cuCtxGetFlags`
pub fn ctx_get_flags() -> Result<u32> {
    let mut flags = 0;
    driver_call!(entry!(cuCtxGetFlags), (&raw mut flags), "")?;
    Ok(flags)
}

/// `cuCtxGetLimit`, of the current context.
pub fn ctx_get_limit(limit: CUlimit) -> Result<usize> {
    let mut value = 0;
    driver_call!(entry!(cuCtxGetLimit), (&raw mut value, limit), "limit {}", limit.0)?;
    Ok(value)
}

/// `cuCtxSetLimit`, of the current context.
pub fn ctx_set_limit(limit: CUlimit, value: usize) -> Result<()> {
    driver_call!(entry!(cuCtxSetLimit), (limit, value), "limit {}, value {value}", limit.0)
}

/// `cuCtxSynchronize`: waits for everything in the current context.
pub fn ctx_synchronize() -> Result<()> {
    driver_call!(entry!(cuCtxSynchronize), (), "")
}

/// `cuCtxGetStreamPriorityRange`: the least and the greatest priority; a lower number goes first.
pub fn ctx_get_stream_priority_range() -> Result<(i32, i32)> {
    let (mut least, mut greatest): (c_int, c_int) = (0, 0);
    driver_call!(entry!(cuCtxGetStreamPriorityRange), (&raw mut least, &raw mut greatest), "")?;
    Ok((least, greatest))
}

/// `cuCtxGetApiVersion`
pub fn ctx_get_api_version(context: CUcontext) -> Result<u32> {
    let mut version = 0;
    driver_call!(entry!(cuCtxGetApiVersion), (context, &raw mut version), "context {context:p}")?;
    Ok(version)
}

/// `cuCtxGetId`: a number that no other context of this process ever has.
pub fn ctx_get_id(context: CUcontext) -> Result<u64> {
    let mut id = 0;
    driver_call!(entry!(cuCtxGetId), (context, &raw mut id), "context {context:p}")?;
    Ok(id)
}
