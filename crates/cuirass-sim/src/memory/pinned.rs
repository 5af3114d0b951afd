//! Page-locked host memory. Devices see it at the host's addresses.

use super::buffer::here_if_any;
use super::{Allocation, Origin, live};
use crate::c::{Out, Untyped};
use crate::engine;
use crate::order;
use crate::report;
use crate::state::{self, State};
use crate::status::{
    Answer, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY,
};
use crate::thread;
use cuirass_sys::cuda::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED, CU_MEMHOSTREGISTER_DEVICEMAP,
    CU_MEMHOSTREGISTER_IOMEMORY, CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY, CUdeviceptr,
};
use std::ffi::{c_uint, c_void};

fn alloc(pp: Out<*mut c_void>, bytes: usize, flags: u32) -> Answer {
    pp.check()?;
    let mut state = state::lock()?;
    let here = state.here()?;
    state.potentially_unsafe()?;
    if bytes == 0 {
        return pp.write(std::ptr::null_mut());
    }
    let start = state.allocate_shared(here, bytes as u64, Origin::Pinned(flags), None)?;
    pp.write(crate::host::pointer(start as usize).cast())
}

pub fn cuMemAllocHost_v2(pp: Out<*mut c_void>, bytes: usize) -> Answer {
    alloc(pp, bytes, 0)
}

pub fn cuMemHostAlloc(pp: Out<*mut c_void>, bytes: usize, flags: c_uint) -> Answer {
    let known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if flags & !known != 0 {
        return Err(INVALID_VALUE);
    }
    alloc(pp, bytes, flags)
}

pub fn cuMemFreeHost(pointer: Untyped) -> Answer {
    let mut state = state::lock()?;
    let here = here_if_any(&state)?;
    state.potentially_unsafe()?;
    if pointer.is_null() {
        return state.not_lost(here);
    }
    let address = pointer.address() as u64;
    if order::on()
        && let Some(memory) = state.memory.at(address)
    {
        // The real driver happens to wait, too, but does not promise it.
        order::freed(memory.id);
    }
    wait_for_all(&mut state);
    let Some(allocation) = state.memory.at(address) else { return Err(state.memory.refuse(address)) };
    if !matches!(allocation.origin, Origin::Pinned(_)) {
        let about = state.memory.about(address);
        report::bug(format!("{} was given memory that it does not free: {about}", thread::place()));
        return Err(INVALID_VALUE);
    }
    state.release(address);
    state.not_lost(here)
}

/// Every context sees the memory, so the work of all of them is waited for.
fn wait_for_all(state: &mut state::Guard) {
    let contexts = state.contexts.handles(|_| true);
    let tails = state.tails(&contexts);
    engine::wait(state, &tails);
}

pub fn cuMemHostGetDevicePointer_v2(dptr: Out<CUdeviceptr>, pointer: Untyped, flags: c_uint) -> Answer {
    dptr.check()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let state = state::lock()?;
    state.here()?;
    let address = pointer.address() as u64;
    host_memory(&state, address)?;
    dptr.write(address)
}

pub fn cuMemHostGetFlags(flags: Out<c_uint>, pointer: Untyped) -> Answer {
    flags.check()?;
    let state = state::lock()?;
    state.here()?;
    match host_memory(&state, pointer.address() as u64)?.origin {
        // With one address space all of it is mapped.
        Origin::Pinned(set) => flags.write(set | CU_MEMHOSTALLOC_DEVICEMAP),
        Origin::Registered(set) => flags.write(set | CU_MEMHOSTREGISTER_DEVICEMAP),
        _ => Err(INVALID_VALUE),
    }
}

fn host_memory(state: &State, address: u64) -> Answer<&Allocation> {
    match state.memory.find(address) {
        Some(memory) if matches!(memory.origin, Origin::Pinned(_) | Origin::Registered(_)) => Ok(memory),
        Some(_) => Err(INVALID_VALUE),
        None => Err(state.memory.refuse(address)),
    }
}

pub fn cuMemHostRegister_v2(pointer: Untyped, bytes: usize, flags: c_uint) -> Answer {
    let known = CU_MEMHOSTREGISTER_PORTABLE
        | CU_MEMHOSTREGISTER_DEVICEMAP
        | CU_MEMHOSTREGISTER_IOMEMORY
        | CU_MEMHOSTREGISTER_READ_ONLY;
    if pointer.is_null() || bytes == 0 || flags & !known != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let here = state.here()?;
    state.potentially_unsafe()?;
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        report::unsupported(format!("{}: memory of other devices is not simulated", thread::place()));
        return Err(NOT_SUPPORTED);
    }
    let (start, len) = (pointer.address() as u64, bytes as u64);
    let end = start.checked_add(len).ok_or(INVALID_VALUE)?;
    if state.memory.ours(start) {
        return Err(INVALID_VALUE);
    }
    if state.memory.allocations().any(|memory| memory.start < end && start < memory.start + memory.len.max(1)) {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    if !crate::host::is_mapped(start as usize, bytes) {
        report::bug(format!("{} was given {len} bytes at {start:#x}, not all of which are memory", thread::place()));
        return Err(OUT_OF_MEMORY);
    }
    let id = state.memory.number();
    let allocation = Allocation {
        start,
        len,
        span: len,
        device: None,
        context: here,
        origin: Origin::Registered(flags),
        id,
        made: thread::place(),
        since: None,
        sync_memops: false,
    };
    let writable = flags & CU_MEMHOSTREGISTER_READ_ONLY == 0;
    state.memory.enter(allocation, start as usize, u64::MAX, writable);
    Ok(())
}

pub fn cuMemHostUnregister(pointer: Untyped) -> Answer {
    let mut state = state::lock()?;
    let here = here_if_any(&state)?;
    state.potentially_unsafe()?;
    let address = pointer.address() as u64;
    wait_for_all(&mut state);
    match state.memory.at(address).map(|memory| (memory.origin, memory.id)) {
        Some((Origin::Registered(_), id)) => {
            state.memory.strike(address);
            live::LIVE.remove(address, id);
            state.not_lost(here)
        }
        _ if address == 0 => Err(INVALID_VALUE),
        _ => Err(HOST_MEMORY_NOT_REGISTERED),
    }
}

pub fn cuMemHostRegister(pointer: Untyped, bytes: usize, flags: c_uint) -> Answer {
    cuMemHostRegister_v2(pointer, bytes, flags)
}
