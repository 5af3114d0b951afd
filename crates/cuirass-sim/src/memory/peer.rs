//! Access between devices.

use super::{buffer, pool};
use crate::c::{In, Out};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{
    Answer, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
};
use cuirass_sys::cuda::{
    CUDA_MEMCPY3D_PEER, CUcontext, CUdevice, CUdevice_P2PAttribute, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc,
    CUmemLocation, CUmemoryPool, CUstream,
};
use std::ffi::{c_int, c_uint};

pub fn cuDeviceCanAccessPeer(can: Out<c_int>, dev: CUdevice, peer: CUdevice) -> Answer {
    can.check()?;
    let state = state::lock()?;
    state.device(dev)?;
    state.device(peer)?;
    can.write(c_int::from(dev != peer))
}

pub fn cuDeviceGetP2PAttribute(
    value: Out<c_int>,
    attribute: CUdevice_P2PAttribute,
    from: CUdevice,
    to: CUdevice,
) -> Answer {
    value.check()?;
    let state = state::lock()?;
    state.device(from)?;
    state.device(to)?;
    if from == to {
        return Err(INVALID_DEVICE);
    }
    match attribute {
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => value.write(0),
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
        | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => value.write(1),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Answer {
    let mut state = state::lock()?;
    let here = state.here()?;
    let peer = Handle::of(peer);
    let device = state.context(peer)?.device;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    if state.context(here)?.device == device {
        return Err(INVALID_DEVICE);
    }
    if state.memory.peers.insert((here, device), peer).is_some() {
        return Err(PEER_ACCESS_ALREADY_ENABLED);
    }
    Ok(())
}

pub fn cuCtxDisablePeerAccess(peer: CUcontext) -> Answer {
    let mut state = state::lock()?;
    let here = state.here()?;
    let device = state.context(Handle::of(peer)).or(Err(INVALID_CONTEXT))?.device;
    state.memory.peers.remove(&(here, device)).map(drop).ok_or(PEER_ACCESS_NOT_ENABLED)
}

/// The devices whose memory a context has been given access to, a bit each.
pub fn mask(state: &State, context: Handle) -> u64 {
    let of = state.memory.peers.range((context, 0)..=(context, usize::MAX));
    of.fold(0, |mask, ((_, device), _)| mask | 1 << device)
}

pub fn cuMemcpyPeer(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Answer {
    buffer::both(to_context, from_context)?;
    buffer::peer(std::ptr::null_mut(), to, from, bytes)
}

pub fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    buffer::both(to_context, from_context)?;
    buffer::peer(stream, to, from, bytes)
}

pub fn cuMemcpy3DPeer(what: In<CUDA_MEMCPY3D_PEER>) -> Answer {
    let what = what.read()?;
    buffer::both(what.dstContext, what.srcContext)?;
    buffer::peer_3d(std::ptr::null_mut(), &what, true)
}

pub fn cuMemcpy3DPeerAsync(what: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) -> Answer {
    let what = what.read()?;
    buffer::both(what.dstContext, what.srcContext)?;
    buffer::peer_3d(stream, &what, false)
}

pub fn cuMemPoolSetAccess(pool: CUmemoryPool, map: In<CUmemAccessDesc>, count: usize) -> Answer {
    pool::set_access(pool, map, count)
}

pub fn cuMemPoolGetAccess(flags: Out<CUmemAccess_flags>, pool: CUmemoryPool, location: In<CUmemLocation>) -> Answer {
    pool::get_access(flags, pool, location)
}
