//! Managed memory: host and devices see it at one address, and nothing moves.

use super::Origin;
use crate::c::{Out, location_id};
use crate::state::{self, State};
use crate::status::{Answer, INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::task::Work;
use cuirass_sys::cuda::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmemAttach_flags, CUmemLocation, CUmemLocationType, CUstream,
};
use std::ffi::c_uint;

/// `CU_DEVICE_CPU`
const HOST: CUdevice = -1;

pub fn cuMemAllocManaged(dptr: Out<CUdeviceptr>, bytes: usize, flags: c_uint) -> Answer {
    dptr.check()?;
    let mut state = state::lock()?;
    let here = state.here()?;
    state.potentially_unsafe()?;
    let known = [CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0, CUmemAttach_flags::CU_MEM_ATTACH_HOST.0];
    if bytes == 0 || !known.contains(&flags) {
        return Err(INVALID_VALUE);
    }
    let device = state.context(here)?.device;
    if bytes as u64 > crate::host::default_memory().saturating_mul(2) {
        return Err(OUT_OF_MEMORY);
    }
    dptr.write(state.allocate_shared(here, bytes as u64, Origin::Managed(flags), Some(device))?)
}

/// Refuses a range that is not managed memory.
fn managed(state: &State, address: u64, bytes: usize) -> Answer {
    let Some(memory) = state.memory.find(address) else { return Err(state.memory.refuse(address)) };
    let fits = bytes > 0 && bytes as u64 <= memory.len - (address - memory.start);
    if fits && matches!(memory.origin, Origin::Managed(_)) { Ok(()) } else { Err(INVALID_VALUE) }
}

fn device_or_host(state: &State, device: CUdevice) -> Answer {
    if device == HOST { Ok(()) } else { state.device(device).map(drop).or(Err(INVALID_DEVICE)) }
}

fn location(state: &State, location: &CUmemLocation) -> Answer {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => device_or_host(state, location_id(location)),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

fn advise(dptr: CUdeviceptr, count: usize, advice: CUmem_advise, place: impl FnOnce(&State) -> Answer) -> Answer {
    let state = state::lock()?;
    state.here()?;
    if !(1..=6).contains(&advice.0) {
        return Err(INVALID_VALUE);
    }
    managed(&state, dptr, count)?;
    // Read-mostly advice takes no place.
    if advice.0 > 2 { place(&state) } else { Ok(()) }
}

pub fn cuMemAdvise(dptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) -> Answer {
    advise(dptr, count, advice, |state| device_or_host(state, device))
}

pub fn cuMemAdvise_v2(dptr: CUdeviceptr, count: usize, advice: CUmem_advise, place: CUmemLocation) -> Answer {
    advise(dptr, count, advice, |state| location(state, &place))
}

fn prefetch(dptr: CUdeviceptr, count: usize, stream: CUstream, place: impl FnOnce(&State) -> Answer) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    managed(&state, dptr, count)?;
    place(&state)?;
    // Nothing moves, but the stream has one more thing in its order.
    state.submit_work(&at, Work::Nothing).map(drop)
}

pub fn cuMemPrefetchAsync(dptr: CUdeviceptr, count: usize, device: CUdevice, stream: CUstream) -> Answer {
    prefetch(dptr, count, stream, |state| device_or_host(state, device))
}

pub fn cuMemPrefetchAsync_v2(
    dptr: CUdeviceptr,
    count: usize,
    place: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Answer {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    prefetch(dptr, count, stream, |state| location(state, &place))
}
