//! Copies of rows and slices.

use super::copy::{Returns, send};
use super::{Copy, Expect};
use crate::c::In;
use crate::report;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::stream::At;
use crate::thread;
use cuirass_sys::cuda::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUdevice_attribute, CUmemorytype, CUstream};

/// How the bytes of a copy lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
    /// From row to row of the destination.
    pub to_pitch: u64,
    /// From slice to slice of the destination.
    pub to_slice: u64,
    /// From row to row of the source.
    pub from_pitch: u64,
    /// From slice to slice of the source.
    pub from_slice: u64,
}

impl Layout {
    /// Bytes in a row.
    pub fn linear(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1, to_pitch: 0, to_slice: 0, from_pitch: 0, from_slice: 0 }
    }

    /// How many bytes are copied.
    pub fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    fn extent(&self, pitch: u64, slice: u64) -> Answer<u64> {
        let slices = self.depth.saturating_sub(1).checked_mul(slice).ok_or(INVALID_VALUE)?;
        super::fill::extent(self.width, self.height, pitch)?.checked_add(slices).ok_or(INVALID_VALUE)
    }

    /// From the first byte of the destination to behind the last.
    ///
    /// # Errors
    /// `INVALID_VALUE` for more than 64 bits.
    pub fn to_extent(&self) -> Answer<u64> {
        self.extent(self.to_pitch, self.to_slice)
    }

    /// From the first byte of the source to behind the last.
    ///
    /// # Errors
    /// `INVALID_VALUE` for more than 64 bits.
    pub fn from_extent(&self) -> Answer<u64> {
        self.extent(self.from_pitch, self.from_slice)
    }
}

/// One side of a copy as the structures of `cuda.h` describe it.
struct Described {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Described {
    /// Its first byte, what is expected of it, its pitch and its slice.
    fn place(&self, size: (usize, usize, usize)) -> Answer<((u64, Expect), u64, u64)> {
        let (width, height, depth) = size;
        let (base, expect) = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (self.host, Expect::Any),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (self.device, Expect::Device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (self.device, Expect::Any),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => {
                report::unsupported(format!("{}: copies to and from arrays are not simulated", thread::place()));
                return Err(NOT_SUPPORTED);
            }
            _ => return Err(INVALID_VALUE),
        };
        // A pitch or height of 0 means rows or slices without a gap.
        let pitch = if self.pitch == 0 { self.x + width } else { self.pitch };
        let rows = if self.height == 0 { self.y + height } else { self.height };
        let most_rows = self.y.checked_add(height).ok_or(INVALID_VALUE)?;
        let fits = self.x.checked_add(width).is_some_and(|end| height * depth <= 1 || end <= pitch);
        if !fits || depth > 1 && most_rows > rows {
            return Err(INVALID_VALUE);
        }
        let slice = pitch.checked_mul(rows).ok_or(INVALID_VALUE)?;
        let start = (|| {
            let rows = pitch.checked_mul(self.y)?.checked_add(self.x)?;
            (base as usize).checked_add(slice.checked_mul(self.z)?)?.checked_add(rows)
        })();
        Ok(((start.ok_or(INVALID_VALUE)? as u64, expect), pitch as u64, slice as u64))
    }
}

fn described(state: &State, to: &Described, from: &Described, size: (usize, usize, usize)) -> Answer<Copy> {
    let (to, to_pitch, to_slice) = to.place(size)?;
    let (from, from_pitch, from_slice) = from.place(size)?;
    let (width, height, depth) = (size.0 as u64, size.1 as u64, size.2 as u64);
    let layout = Layout { width, height, depth, to_pitch, to_slice, from_pitch, from_slice };
    Copy::new(state, to, from, layout)
}

/// The copy that `CUDA_MEMCPY3D` describes; `None` if it has no bytes. (Graph nodes are made with it.)
///
/// # Errors
/// `INVALID_VALUE`; `NOT_SUPPORTED` for arrays.
pub fn copy_3d(state: &State, what: &CUDA_MEMCPY3D) -> Answer<Option<Copy>> {
    let size = (what.WidthInBytes, what.Height, what.Depth);
    if size.0 == 0 || size.1 == 0 || size.2 == 0 {
        return Ok(None);
    }
    let to = Described {
        kind: what.dstMemoryType,
        host: what.dstHost as u64,
        device: what.dstDevice,
        x: what.dstXInBytes,
        y: what.dstY,
        z: what.dstZ,
        pitch: what.dstPitch,
        height: what.dstHeight,
    };
    let from = Described {
        kind: what.srcMemoryType,
        host: what.srcHost as u64,
        device: what.srcDevice,
        x: what.srcXInBytes,
        y: what.srcY,
        z: what.srcZ,
        pitch: what.srcPitch,
        height: what.srcHeight,
    };
    described(state, &to, &from, size).map(Some)
}

fn copy_2d(state: &State, what: &CUDA_MEMCPY2D) -> Answer<Option<Copy>> {
    let size = (what.WidthInBytes, what.Height, 1);
    if size.0 == 0 || size.1 == 0 {
        return Ok(None);
    }
    let to = Described {
        kind: what.dstMemoryType,
        host: what.dstHost as u64,
        device: what.dstDevice,
        x: what.dstXInBytes,
        y: what.dstY,
        z: 0,
        pitch: what.dstPitch,
        height: 0,
    };
    let from = Described {
        kind: what.srcMemoryType,
        host: what.srcHost as u64,
        device: what.srcDevice,
        x: what.srcXInBytes,
        y: what.srcY,
        z: 0,
        pitch: what.srcPitch,
        height: 0,
    };
    described(state, &to, &from, size).map(Some)
}

fn submit(raw: CUstream, returns: Returns, make: impl FnOnce(&State, &At) -> Answer<Option<Copy>>) -> Answer {
    let within_reach = |state: &State, at: &At| {
        let task = make(state, at)?;
        task.as_ref().map_or(Ok(()), |task| task.reaches(state, at))?;
        Ok(task)
    };
    submit_anywhere(raw, returns, within_reach)
}

fn submit_anywhere(raw: CUstream, returns: Returns, make: impl FnOnce(&State, &At) -> Answer<Option<Copy>>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(raw)?;
    state.not_lost(at.context)?;
    match make(&state, &at)? {
        Some(task) => send(&mut state, &at, task, returns),
        None => Ok(()),
    }
}

/// Rows farther apart than the device can address are refused, except by the unaligned variant.
fn pitches(state: &State, at: &At, pitches: [usize; 2]) -> Answer {
    let device = state.context(at.context)?.device;
    let most = state.device(device as i32)?.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if pitches.iter().any(|pitch| *pitch > most) { Err(INVALID_VALUE) } else { Ok(()) }
}

const LEGACY: CUstream = std::ptr::null_mut();

pub fn cuMemcpy2D_v2(what: In<CUDA_MEMCPY2D>) -> Answer {
    let what = what.read()?;
    submit(LEGACY, Returns::Done, |state, at| {
        pitches(state, at, [what.dstPitch, what.srcPitch])?;
        copy_2d(state, &what)
    })
}

pub fn cuMemcpy2DUnaligned_v2(what: In<CUDA_MEMCPY2D>) -> Answer {
    let what = what.read()?;
    submit(LEGACY, Returns::Done, |state, _| copy_2d(state, &what))
}

pub fn cuMemcpy2DAsync_v2(what: In<CUDA_MEMCPY2D>, stream: CUstream) -> Answer {
    let what = what.read()?;
    submit(stream, Returns::Early, |state, at| {
        pitches(state, at, [what.dstPitch, what.srcPitch])?;
        copy_2d(state, &what)
    })
}

pub fn cuMemcpy3D_v2(what: In<CUDA_MEMCPY3D>) -> Answer {
    let what = what.read()?;
    submit(LEGACY, Returns::Done, |state, _| copy_3d(state, &what))
}

pub fn cuMemcpy3DAsync_v2(what: In<CUDA_MEMCPY3D>, stream: CUstream) -> Answer {
    let what = what.read()?;
    submit(stream, Returns::Early, |state, _| copy_3d(state, &what))
}

/// `cuMemcpy3DPeer` and `cuMemcpy3DPeerAsync`.
pub(in super::super) fn peer_3d(raw: CUstream, what: &CUDA_MEMCPY3D_PEER, wait: bool) -> Answer {
    let plain = CUDA_MEMCPY3D {
        srcXInBytes: what.srcXInBytes,
        srcY: what.srcY,
        srcZ: what.srcZ,
        srcLOD: what.srcLOD,
        srcMemoryType: what.srcMemoryType,
        srcHost: what.srcHost,
        srcDevice: what.srcDevice,
        srcArray: what.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: what.srcPitch,
        srcHeight: what.srcHeight,
        dstXInBytes: what.dstXInBytes,
        dstY: what.dstY,
        dstZ: what.dstZ,
        dstLOD: what.dstLOD,
        dstMemoryType: what.dstMemoryType,
        dstHost: what.dstHost,
        dstDevice: what.dstDevice,
        dstArray: what.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: what.dstPitch,
        dstHeight: what.dstHeight,
        WidthInBytes: what.WidthInBytes,
        Height: what.Height,
        Depth: what.Depth,
    };
    submit_anywhere(raw, if wait { Returns::Done } else { Returns::Early }, |state, _| copy_3d(state, &plain))
}
