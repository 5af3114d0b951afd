//! Primary contexts: one a device, counted.

use super::empty;
use crate::c::Out;
use crate::handle::Handle;
use crate::report;
use crate::state::{self, Guard};
use crate::status::{Answer, INVALID_CONTEXT, INVALID_VALUE};
use crate::thread;
use cuirass_sys::cuda::{CUcontext, CUctx_flags, CUdevice};
use std::ffi::{c_int, c_uint};

/// Every flag that a context may have.
pub(super) const FLAGS: u32 = CUctx_flags::CU_CTX_FLAGS_MASK.0;

/// Flags that `cuda.h` allows: known ones, and at most one way of waiting.
pub(super) fn check_flags(flags: c_uint) -> Answer {
    let waiting = flags & CUctx_flags::CU_CTX_SCHED_MASK.0;
    let one_way = waiting == 0
        || waiting == CUctx_flags::CU_CTX_SCHED_SPIN.0
        || waiting == CUctx_flags::CU_CTX_SCHED_YIELD.0
        || waiting == CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC.0;
    if flags & !FLAGS != 0 || !one_way { Err(INVALID_VALUE) } else { Ok(()) }
}

pub fn cuDevicePrimaryCtxRetain(pctx: Out<CUcontext>, dev: CUdevice) -> Answer {
    pctx.check()?;
    let mut state = state::lock()?;
    let device = state.device(dev)?;
    let (flags, ordinal) = (device.primary_flags, device.ordinal);
    let handle = match device.primary {
        Some(handle) => handle,
        None => state.new_context(ordinal, true, flags)?,
    };
    if state.contexts.peek(handle).is_some_and(|context| context.ended.is_some()) {
        state.open_legacy(handle)?;
        let id = state.new_id();
        let context = state.contexts.get_mut(handle, INVALID_CONTEXT)?;
        (context.ended, context.lost, context.flags, context.id) = (None, None, flags, id);
        context.limits.clear();
    }
    let device = state.device_mut(dev)?;
    device.primary = Some(handle);
    device.retained += 1;
    pctx.write(handle.raw())
}

/// Ends the primary context; its handle stays known.
pub(super) fn end(state: &mut Guard, handle: Handle) {
    empty(state, handle);
    let place = thread::place();
    if let Some(context) = state.contexts.peek_mut(handle) {
        context.ended = Some(place);
        context.lost = None;
    }
}

fn release(dev: CUdevice) -> Answer {
    let mut state = state::lock()?;
    let device = state.device_mut(dev)?;
    let Some(handle) = device.primary.filter(|_| device.retained > 0) else {
        report::bug(format!("{} released the primary context of device {dev}, which nobody holds", thread::place()));
        return Err(INVALID_CONTEXT);
    };
    device.retained -= 1;
    if device.retained == 0 {
        end(&mut state, handle);
    }
    Ok(())
}

pub fn cuDevicePrimaryCtxRelease(dev: CUdevice) -> Answer {
    release(dev)
}

pub fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> Answer {
    release(dev)
}

fn reset(dev: CUdevice) -> Answer {
    let mut state = state::lock()?;
    let device = state.device(dev)?;
    let Some(handle) = device.primary else { return Ok(()) };
    if state.contexts.peek(handle).is_some_and(|context| context.ended.is_none()) {
        // Whoever retained it must still release it.
        end(&mut state, handle);
    }
    Ok(())
}

pub fn cuDevicePrimaryCtxReset(dev: CUdevice) -> Answer {
    reset(dev)
}

pub fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> Answer {
    reset(dev)
}

pub fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: Out<c_uint>, active: Out<c_int>) -> Answer {
    flags.check()?;
    active.check()?;
    let state = state::lock()?;
    let device = state.device(dev)?;
    let alive =
        device.primary.and_then(|handle| state.contexts.peek(handle)).is_some_and(|context| context.ended.is_none());
    flags.write(device.primary_flags)?;
    active.write(c_int::from(alive))
}

fn set_flags(dev: CUdevice, flags: c_uint) -> Answer {
    check_flags(flags)?;
    let mut state = state::lock()?;
    let device = state.device_mut(dev)?;
    device.primary_flags = flags;
    if let Some(handle) = device.primary
        && let Some(context) = state.contexts.peek_mut(handle)
    {
        context.flags = flags;
    }
    Ok(())
}

pub fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint) -> Answer {
    set_flags(dev, flags)
}

pub fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint) -> Answer {
    set_flags(dev, flags)
}
