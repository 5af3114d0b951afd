//! Allocating and freeing.

use super::super::{Origin, pool};
use crate::c::Out;
use crate::engine;
use crate::handle::Handle;
use crate::order;
use crate::report;
use crate::state::{self, Guard, State};
use crate::status::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::thread;
use cuirass_sys::cuda::{CUdevice_attribute, CUdeviceptr};
use std::ffi::c_uint;

fn alloc(bytes: usize) -> Answer<u64> {
    let mut state = state::lock()?;
    let here = state.here()?;
    state.potentially_unsafe()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    match state.allocate(here, bytes as u64, Origin::Plain, true) {
        Err(OUT_OF_MEMORY) => {
            // Pools may hold memory that nobody uses.
            pool::trim_all(&mut state);
            state.allocate(here, bytes as u64, Origin::Plain, true)
        }
        answer => answer,
    }
}

pub fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize) -> Answer {
    dptr.check()?;
    dptr.write(alloc(bytes)?)
}

pub fn cuMemAllocPitch_v2(
    dptr: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    dptr.check()?;
    pitch.check()?;
    if width == 0 || height == 0 || ![4, 8, 16].contains(&element) {
        return Err(INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(super::super::GRAIN as usize).ok_or(OUT_OF_MEMORY)?;
    let bytes = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
    {
        let state = state::lock()?;
        let device = state.context(state.here()?)?.device;
        let most = state.device(device as i32)?.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH);
        if row > usize::try_from(most).unwrap_or(usize::MAX) {
            return Err(INVALID_VALUE);
        }
    }
    dptr.write(alloc(bytes)?)?;
    pitch.write(row)
}

/// Waits until no stream uses memory of the calling thread's context or of the one that it was allocated in.
fn settle(state: &mut Guard, here: Handle, address: u64) {
    let theirs = state.memory.at(address).map_or(here, |memory| memory.context);
    let tails = state.tails(&[here, theirs]);
    if !tails.is_empty() {
        engine::wait(state, &tails);
    }
}

/// The calling thread's context, which must be alive; the null handle if there is none: releases need none.
pub(in super::super) fn here_if_any(state: &State) -> Answer<Handle> {
    if thread::current().is_null() { Ok(Handle::NULL) } else { state.here_even_lost() }
}

pub fn cuMemFree_v2(dptr: CUdeviceptr) -> Answer {
    let mut state = state::lock()?;
    let mut here = here_if_any(&state)?;
    state.potentially_unsafe()?;
    if dptr == 0 {
        return state.not_lost(here);
    }
    if order::on()
        && let Some(memory) = state.memory.at(dptr)
        && matches!(memory.origin, Origin::Pool(_) | Origin::Graph { made: true, .. })
    {
        // It waits here for what uses memory of other kinds only.
        order::freed(memory.id);
    }
    settle(&mut state, here, dptr);
    let Some(allocation) = state.memory.at(dptr) else { return Err(state.memory.refuse(dptr)) };
    if here.is_null() {
        here = allocation.context;
    }
    match allocation.origin {
        Origin::Plain | Origin::Managed(_) | Origin::Imported(_) => state.release(dptr),
        Origin::Pool(key) => pool::free_now(&mut state, key, dptr),
        Origin::Graph { made: true, .. } => pool::free_graph_memory(&mut state, dptr),
        Origin::Graph { .. } => return Err(INVALID_VALUE),
        Origin::Pinned(_) | Origin::Registered(_) | Origin::Virtual | Origin::Variable | Origin::Heap => {
            let about = state.memory.about(dptr);
            report::bug(format!("{} was given memory that it does not free: {about}", thread::place()));
            return Err(INVALID_VALUE);
        }
    }
    state.not_lost(here)
}

pub fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Answer {
    free.check()?;
    total.check()?;
    let state = state::lock()?;
    let device = state.context(state.here()?)?.device;
    let memory = state.device(device as i32)?.memory;
    free.write((memory - state.memory.used(device)) as usize)?;
    total.write(memory as usize)
}

pub fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, size: Out<usize>, dptr: CUdeviceptr) -> Answer {
    let state = state::lock()?;
    state.here()?;
    let Some(allocation) = state.memory.find(dptr) else {
        state.memory.refuse(dptr);
        return Err(crate::status::NOT_FOUND);
    };
    base.write_if_wanted(allocation.start);
    size.write_if_wanted(allocation.len as usize);
    Ok(())
}
