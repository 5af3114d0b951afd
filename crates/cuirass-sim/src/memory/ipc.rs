//! Memory and events shared between processes.

mod pool;

pub use pool::*;

use crate::c::Out;
use crate::handle::Handle;
use crate::status::{Answer, INVALID_HANDLE, NOT_SUPPORTED};
use crate::{report, state, thread};
use cuirass_sys::cuda::{CUevent, CUevent_flags, CUipcEventHandle};

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
