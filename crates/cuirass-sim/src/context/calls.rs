//! The calls on contexts: creation, the stack of each thread, limits, waiting.

use super::{end_created, primary};
use crate::c::{In, Out};
use crate::engine::{self, Deps};
use crate::handle::Handle;
use crate::profile;
use crate::report;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED};
use crate::stream::PRIORITIES;
use crate::thread;
use cuirass_sys::cuda::{
    CUcontext, CUctxCreateParams, CUdevice, CUevent, CUexecAffinityParam, CUfunc_cache, CUlimit, CUsharedconfig,
};
use std::ffi::{c_int, c_uint, c_ulonglong};

fn create(pctx: Out<CUcontext>, flags: c_uint, dev: CUdevice) -> Answer {
    pctx.check()?;
    primary::check_flags(flags)?;
    let mut state = state::lock()?;
    let ordinal = state.device(dev)?.ordinal;
    let handle = state.new_context(ordinal, false, flags)?;
    thread::push(handle)?;
    pctx.write(handle.raw())
}

pub fn cuCtxCreate_v2(pctx: Out<CUcontext>, flags: c_uint, dev: CUdevice) -> Answer {
    create(pctx, flags, dev)
}

pub fn cuCtxCreate_v3(
    pctx: Out<CUcontext>,
    affinities: In<CUexecAffinityParam>,
    count: c_int,
    flags: c_uint,
    dev: CUdevice,
) -> Answer {
    if count != 0 || !affinities.is_null() {
        report::unsupported(format!("{}: execution affinity is not simulated", thread::place()));
        return Err(NOT_SUPPORTED);
    }
    create(pctx, flags, dev)
}

pub fn cuCtxCreate_v4(pctx: Out<CUcontext>, params: In<CUctxCreateParams>, flags: c_uint, dev: CUdevice) -> Answer {
    if !params.is_null() {
        let params = params.read()?;
        if params.numExecAffinityParams != 0 || !params.cigParams.is_null() {
            report::unsupported(format!("{}: execution affinity and CIG are not simulated", thread::place()));
            return Err(NOT_SUPPORTED);
        }
    }
    create(pctx, flags, dev)
}

fn destroy(ctx: CUcontext) -> Answer {
    let handle = Handle::of(ctx);
    let mut state = state::lock()?;
    let context = state.contexts.get(handle, INVALID_CONTEXT)?;
    if context.green.is_some() {
        report::bug(format!(
            "{} was given the context of a green context, which cuGreenCtxDestroy ends",
            thread::place()
        ));
        return Err(INVALID_CONTEXT);
    }
    if context.primary {
        report::bug(format!(
            "{} was given the primary context {handle}, which is released, not destroyed",
            thread::place()
        ));
        return Err(INVALID_CONTEXT);
    }
    end_created(&mut state, handle);
    Ok(())
}

pub fn cuCtxDestroy(ctx: CUcontext) -> Answer {
    destroy(ctx)
}

pub fn cuCtxDestroy_v2(ctx: CUcontext) -> Answer {
    destroy(ctx)
}

pub fn cuCtxGetCurrent(pctx: Out<CUcontext>) -> Answer {
    pctx.write(thread::current().raw())
}

/// A context may be made current after its end (any use of it is refused then), but it must have been one.
fn known(ctx: CUcontext) -> Answer<Handle> {
    let handle = Handle::of(ctx);
    if !handle.is_null() && !state::lock()?.contexts.knows(handle) {
        report::bug(format!("{} was given {handle}, which is no context that this driver made", thread::place()));
        return Err(INVALID_CONTEXT);
    }
    Ok(handle)
}

pub fn cuCtxSetCurrent(ctx: CUcontext) -> Answer {
    thread::set_current(known(ctx)?)
}

fn push_current(ctx: CUcontext) -> Answer {
    let handle = known(ctx)?;
    if handle.is_null() { Err(INVALID_CONTEXT) } else { thread::push(handle) }
}

pub fn cuCtxPushCurrent(ctx: CUcontext) -> Answer {
    push_current(ctx)
}

pub fn cuCtxPushCurrent_v2(ctx: CUcontext) -> Answer {
    push_current(ctx)
}

fn pop_current(pctx: Out<CUcontext>) -> Answer {
    let handle = thread::pop();
    if handle.is_null() {
        return Err(INVALID_CONTEXT);
    }
    pctx.write_if_wanted(handle.raw());
    Ok(())
}

pub fn cuCtxPopCurrent(pctx: Out<CUcontext>) -> Answer {
    pop_current(pctx)
}

pub fn cuCtxPopCurrent_v2(pctx: Out<CUcontext>) -> Answer {
    pop_current(pctx)
}

/// The context that a call names: null is the current one.
fn named(state: &State, ctx: CUcontext) -> Answer<Handle> {
    if ctx.is_null() {
        return state.here_even_lost();
    }
    state.context(Handle::of(ctx))?;
    Ok(Handle::of(ctx))
}

pub fn cuCtxGetDevice(device: Out<CUdevice>) -> Answer {
    let state = state::lock()?;
    device.write(state.context(state.here_even_lost()?)?.device as CUdevice)
}

pub fn cuCtxGetDevice_v2(device: Out<CUdevice>, ctx: CUcontext) -> Answer {
    let state = state::lock()?;
    device.write(state.context(named(&state, ctx)?)?.device as CUdevice)
}

pub fn cuCtxGetFlags(flags: Out<c_uint>) -> Answer {
    let state = state::lock()?;
    flags.write(state.context(state.here_even_lost()?)?.flags)
}

pub fn cuCtxSetFlags(flags: c_uint) -> Answer {
    primary::check_flags(flags)?;
    let mut state = state::lock()?;
    let here = state.here()?;
    state.context_mut(here)?.flags = flags;
    Ok(())
}

pub fn cuCtxGetId(ctx: CUcontext, id: Out<c_ulonglong>) -> Answer {
    let state = state::lock()?;
    id.write(state.context(named(&state, ctx)?)?.id)
}

pub fn cuCtxGetApiVersion(ctx: CUcontext, version: Out<c_uint>) -> Answer {
    let state = state::lock()?;
    named(&state, ctx)?;
    version.write(3020)
}

pub fn cuCtxGetLimit(value: Out<usize>, limit: CUlimit) -> Answer {
    value.check()?;
    let state = state::lock()?;
    let context = state.context(state.here()?)?;
    if let Some(changed) = context.limits.get(&limit.0) {
        return value.write(*changed as usize);
    }
    let known = profile::LIMITS.iter().find(|(known, _)| *known == limit.0);
    let (_, answer) = known.ok_or(INVALID_VALUE)?;
    value.write((*answer)? as usize)
}

pub fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Answer {
    let mut state = state::lock()?;
    let here = state.here()?;
    let known = profile::LIMITS.iter().find(|(known, _)| *known == limit.0);
    let (_, answer) = known.ok_or(INVALID_VALUE)?;
    (*answer)?;
    let most = match limit {
        CUlimit::CU_LIMIT_SHMEM_SIZE | CUlimit::CU_LIMIT_CIG_ENABLED => return Err(NOT_SUPPORTED),
        CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => 128,
        CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => device_l2(&state, here)?,
        _ => usize::MAX,
    };
    state.context_mut(here)?.limits.insert(limit.0, value.min(most) as u64);
    Ok(())
}

fn device_l2(state: &State, context: Handle) -> Answer<usize> {
    let device = state.context(context)?.device;
    let attribute = cuirass_sys::cuda::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE;
    Ok(usize::try_from(state.device(device as CUdevice)?.attribute(attribute)).unwrap_or(0))
}

pub fn cuCtxResetPersistingL2Cache() -> Answer {
    state::lock()?.here().map(drop)
}

pub fn cuCtxGetCacheConfig(config: Out<CUfunc_cache>) -> Answer {
    let state = state::lock()?;
    config.write(CUfunc_cache(state.context(state.here()?)?.cache_config))
}

pub fn cuCtxSetCacheConfig(config: CUfunc_cache) -> Answer {
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let here = state.here()?;
    state.context_mut(here)?.cache_config = config.0;
    Ok(())
}

pub fn cuCtxGetSharedMemConfig(config: Out<CUsharedconfig>) -> Answer {
    state::lock()?.here()?;
    config.write(CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
}

pub fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> Answer {
    state::lock()?.here()?;
    if config.0 > CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    state::lock()?.here()?;
    least.write_if_wanted(PRIORITIES.0);
    greatest.write_if_wanted(PRIORITIES.1);
    Ok(())
}

fn synchronize(ctx: CUcontext) -> Answer {
    let mut state = state::lock()?;
    let context = named(&state, ctx)?;
    state.whole_context_in_capture(context)?;
    let queues = state.context(context)?.queues.clone();
    let tails: Deps = queues.iter().map(|queue| state.engine.tail(*queue)).collect();
    engine::wait(&mut state, &tails);
    state.memory.pools.unwaited.waited_in(context);
    state.synchronised();
    state.not_lost(context)
}

pub fn cuCtxSynchronize() -> Answer {
    synchronize(Handle::NULL.raw())
}

pub fn cuCtxSynchronize_v2(ctx: CUcontext) -> Answer {
    synchronize(ctx)
}

pub fn cuCtxRecordEvent(ctx: CUcontext, event: CUevent) -> Answer {
    let mut state = state::lock()?;
    let context = named(&state, ctx)?;
    state.not_lost(context)?;
    state.whole_context_in_capture(context)?;
    let legacy = state.context(context)?.legacy;
    let queues = state.context(context)?.queues.clone();
    let tails: Deps = queues.iter().map(|queue| state.engine.tail(*queue)).collect();
    let at = state.stream_at(legacy)?;
    state.record(&at, Handle::of(event), &tails)
}

pub fn cuCtxWaitEvent(ctx: CUcontext, event: CUevent) -> Answer {
    let mut state = state::lock()?;
    let context = named(&state, ctx)?;
    state.not_lost(context)?;
    state.whole_context_in_capture(context)?;
    let Some(dep) = state.event_place(Handle::of(event))? else { return Ok(()) };
    for queue in state.context(context)?.queues.clone() {
        state.push(queue, &[dep], crate::task::Work::Nothing)?;
    }
    Ok(())
}
