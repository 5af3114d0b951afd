//! Host functions in stream order.

use crate::c::{HostFunction, Untyped};
use crate::state;
use crate::status::{Answer, INVALID_VALUE};
use crate::task::Work;
use cuirass_sys::cuda::{CUhostFn, CUstream};
use std::ffi::c_uint;

pub fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: Untyped) -> Answer {
    let function = HostFunction::new(function, data)?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.submit_work(&at, Work::Host(function)).map(drop)
}

pub fn cuLaunchHostFunc_v2(stream: CUstream, function: CUhostFn, data: Untyped, sync_mode: c_uint) -> Answer {
    if sync_mode > 1 {
        return Err(INVALID_VALUE);
    }
    cuLaunchHostFunc(stream, function, data)
}
