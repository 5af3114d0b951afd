//! Events: markers in streams, for order and for time.

use crate::Result;
use crate::load;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUevent, CUstream};

/// `cuEventCreate`, in the current context.
pub fn create(flags: u32) -> Result<CUevent> {
    let mut event = std::ptr::null_mut();
    driver_call!(entry!(cuEventCreate), (&raw mut event, flags), "flags {flags}")?;
    Ok(event)
}

/// `cuEventDestroy_v2`
pub fn destroy(event: CUevent) -> Result<()> {
    driver_call!(entry!(cuEventDestroy_v2), (event), "{event:p}")
}

/// `cuEventRecord`: puts the event behind the work that is on the stream now.
#[inline]
pub fn record(event: CUevent, stream: CUstream) -> Result<()> {
    driver_call!(entry!(cuEventRecord), (event, stream), "event {event:p}, stream {stream:p}")
}

/// `cuEventQuery`: whether the work before its last record is done; true for an event never recorded.
#[inline]
pub fn query(event: CUevent) -> Result<bool> {
    driver_call!(entry!(cuEventQuery), (event), answers NOT_READY, "event {event:p}")
}

/// `cuEventSynchronize`: waits for the work before its last record.
#[inline]
pub fn synchronize(event: CUevent) -> Result<()> {
    driver_call!(entry!(cuEventSynchronize), (event), "event {event:p}")
}

/// `cuEventElapsedTime_v2` (before CUDA 12.8 `cuEventElapsedTime`): milliseconds between two events; `None` while
/// one of them is still pending.
pub fn elapsed_time(start: CUevent, end: CUevent) -> Result<Option<f32>> {
    let mut milliseconds = 0.0;
    let newest = load::is_since(12080);
    let done = if newest {
        driver_call!(
            entry!(cuEventElapsedTime_v2),
            (&raw mut milliseconds, start, end),
            answers NOT_READY,
            "from event {start:p} to event {end:p}"
        )
    } else {
        driver_call!(
            entry!(cuEventElapsedTime),
            (&raw mut milliseconds, start, end),
            answers NOT_READY,
            "from event {start:p} to event {end:p}"
        )
    }?;
    Ok(done.then_some(milliseconds))
}
