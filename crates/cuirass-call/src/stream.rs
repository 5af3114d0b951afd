//! Streams: creation, order, waiting, what they belong to.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUcontext, CUevent, CUstream};
use std::ffi::{c_int, c_uint};

/// `cuStreamCreateWithPriority`, in the current context.
pub fn create_with_priority(flags: u32, priority: i32) -> Result<CUstream> {
    let mut stream = std::ptr::null_mut();
    driver_call!(
        entry!(cuStreamCreateWithPriority),
        (&raw mut stream, flags, priority),
        "flags {flags}, priority {priority}"
    )?;
    Ok(stream)
}

/// `cuStreamDestroy_v2`
pub fn destroy(stream: CUstream) -> Result<()> {
    driver_call!(entry!(cuStreamDestroy_v2), (stream), "{stream:p}")
}

/// `cuStreamQuery`: whether all its work is done.
#[inline]
pub fn query(stream: CUstream) -> Result<bool> {
    driver_call!(entry!(cuStreamQuery), (stream), answers NOT_READY, "stream {stream:p}")
}

/// `cuStreamSynchronize`: waits for all its work.
#[inline]
pub fn synchronize(stream: CUstream) -> Result<()> {
    driver_call!(entry!(cuStreamSynchronize), (stream), "stream {stream:p}")
}

/// `cuStreamWaitEvent`: what comes later on the stream waits for the event's last record.
#[inline]
pub fn wait_event(stream: CUstream, event: CUevent, flags: u32) -> Result<()> {
    driver_call!(entry!(cuStreamWaitEvent), (stream, event, flags), "stream {stream:p}, event {event:p}")
}

/// `cuStreamGetPriority`
pub fn get_priority(stream: CUstream) -> Result<i32> {
    let mut priority: c_int = 0;
    driver_call!(entry!(cuStreamGetPriority), (stream, &raw mut priority), "stream {stream:p}")?;
    Ok(priority)
}

/// `cuStreamGetFlags`
pub fn get_flags(stream: CUstream) -> Result<u32> {
    let mut flags: c_uint = 0;
    driver_call!(entry!(cuStreamGetFlags), (stream, &raw mut flags), "stream {stream:p}")?;
    Ok(flags)
}

/// `cuStreamGetCtx`: the context that it belongs to.
pub fn get_ctx(stream: CUstream) -> Result<CUcontext> {
    let mut context = std::ptr::null_mut();
    driver_call!(entry!(cuStreamGetCtx), (stream, &raw mut context), "stream {stream:p}")?;
    Ok(context)
}

/// `cuStreamGetId`: a number that no other stream of this process ever has.
pub fn get_id(stream: CUstream) -> Result<u64> {
    let mut id = 0;
    driver_call!(entry!(cuStreamGetId), (stream, &raw mut id), "stream {stream:p}")?;
    Ok(id)
}
