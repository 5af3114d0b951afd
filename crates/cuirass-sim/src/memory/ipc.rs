//! Memory and events shared between processes.

use crate::c::{Out, Untyped};
use crate::handle::Handle;
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::{report, state, thread};
use cuirass_sys::cuda::{CUevent, CUevent_flags, CUipcEventHandle, CUmemAllocationHandleType, CUmemoryPool};
use std::ffi::c_ulonglong;

pub fn cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent) -> Answer {
    handle.check()?;
    let state = state::lock()?;
    let event = state.events.get(Handle::of(event), INVALID_HANDLE)?;
    state.not_lost(event.context)?;
    if event.flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 == 0 {
        return Err(INVALID_HANDLE);
    }
    report::unsupported(format!("{}: events between processes are not simulated", thread::place()));
    Err(NOT_SUPPORTED)
}

pub fn cuIpcOpenEventHandle(event: Out<CUevent>, _handle: CUipcEventHandle) -> Answer {
    event.check()?;
    report::unsupported(format!("{}: events between processes are not simulated", thread::place()));
    Err(NOT_SUPPORTED)
}

pub fn cuMemPoolExportToShareableHandle(
    out: Untyped,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let mut state = state::lock()?;
    state.potentially_unsafe()?;
    let key = state.memory.pools.key(Handle::of(pool))?;
    let shared = state.memory.pools.get(key).is_some_and(|pool| kind.0 != 0 && pool.shape.handle_types & kind.0 == kind.0);
    if out.is_null() || flags != 0 || !shared {
        return Err(INVALID_VALUE);
    }
    report::unsupported(format!("{}: pools between processes are not simulated", thread::place()));
    Err(NOT_SUPPORTED)
}
