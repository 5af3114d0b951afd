//! Copies of bytes in a row.

use super::shaped::Layout;
use super::{Bytes, Expect, Missing, SMALL, Side, finished};
use crate::c::Untyped;
use crate::engine;
use crate::handle::Handle;
use crate::host;
use crate::order;
use crate::state::{self, Guard, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::stream::{At, Submitted};
use crate::task::{Failure, Job, NodeKind, Task};
use cuirass_ptx::{Touch, Touched};
use cuirass_sys::cuda::{CUcontext, CUdeviceptr, CUstream};
use std::any::Any;

/// A copy of bytes, in a row or in rows and slices.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Where to.
    pub to: Side,
    /// Where from.
    pub from: Side,
    /// How the bytes lie.
    pub layout: Layout,
    /// The bytes of the source, taken when the call was made.
    staged: Option<Vec<u8>>,
}

impl Copy {
    /// A copy that has been checked.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn new(state: &State, to: (u64, Expect), from: (u64, Expect), layout: Layout) -> Answer<Self> {
        let to = state.side(to.0, layout.to_extent()?, to.1)?;
        let from = state.side(from.0, layout.from_extent()?, from.1)?;
        Ok(Self { to, from, layout, staged: None })
    }

    /// The bytes that are written and those that are read, if they are in a row.
    pub fn rows(&self) -> Option<[(u64, u64); 2]> {
        let row = |side: &Side| (side.address, side.address + self.layout.width);
        self.in_a_row().then(|| [row(&self.to), row(&self.from)])
    }

    /// Tells the stream-order checker what is touched.
    fn tell(&self, job: &Job) {
        let mut touched = Touched::default();
        let Layout { width, height, depth, .. } = self.layout;
        for (slice, row) in (0..depth).flat_map(|slice| (0..height).map(move |row| (slice, row))) {
            let to = slice * self.layout.to_slice + row * self.layout.to_pitch;
            let from = slice * self.layout.from_slice + row * self.layout.from_pitch;
            touched.add(Touch::Write, self.to.address + to, width);
            if self.staged.is_none() {
                touched.add(Touch::Read, self.from.address + from, width);
            }
        }
        order::moved(job, order::COPY, touched);
    }

    /// Reads the bytes of the source now; false if they are not there.
    pub(super) fn stage(&mut self) -> bool {
        let bytes = self.layout.bytes();
        self.staged = self.from.host(bytes).ok().map(|from| host::read(from, bytes as usize));
        self.staged.is_some()
    }

    /// Refuses memory that the stream's device would need access to.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub(super) fn reaches(&self, state: &State, at: &At) -> Answer {
        let device = state.context(at.context)?.device;
        state.can_copy(device, (self.to.address, self.layout.to_extent()?), true)?;
        state.can_copy(device, (self.from.address, self.layout.from_extent()?), false)
    }

    fn in_a_row(&self) -> bool {
        self.layout.height == 1 && self.layout.depth == 1
    }
}

impl Bytes for Copy {
    fn attempt(&self) -> Result<(), Missing> {
        let Layout { width, height, depth, .. } = self.layout;
        let (to_extent, from_extent) = (self.layout.to_extent(), self.layout.from_extent());
        let to = self.to.host(to_extent.unwrap_or(u64::MAX))?;
        let from = match &self.staged {
            Some(bytes) => bytes.as_ptr() as usize,
            None => self.from.host(from_extent.unwrap_or(u64::MAX))?,
        };
        for slice in 0..depth {
            for row in 0..height {
                let to = to as u64 + slice * self.layout.to_slice + row * self.layout.to_pitch;
                let from = from as u64 + slice * self.layout.from_slice + row * self.layout.from_pitch;
                host::copy(to as usize, from as usize, width as usize);
            }
        }
        Ok(())
    }
}

impl Task for Copy {
    fn run(&self, job: &Job) -> Result<(), Failure> {
        if job.order.is_some() {
            self.tell(job);
        }
        self.attempt().map_err(|missing| missing.locked())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Copy
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// When a copying call returns.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Returns {
    /// Once it is done.
    Done,
    /// At once, except where memory that devices do not see takes part: then once that may be used again.
    Early,
}

/// Puts a copy into a stream and waits as far as the call does.
pub(super) fn send(state: &mut Guard, at: &At, mut task: Copy, returns: Returns) -> Answer {
    state.not_lost(at.context)?;
    let bytes = task.layout.bytes();
    let captured = state.is_captured(at);
    let mut wait = returns == Returns::Done;
    let mut held = false;
    if !captured && !wait {
        if task.to.pageable {
            wait = true;
        } else if task.from.pageable {
            if bytes <= SMALL && task.in_a_row() {
                task.staged = Some(host::read(task.from.address as usize, bytes as usize));
            } else {
                // The program's memory may be used again then: no more can be relied on.
                held = true;
            }
        }
    }
    let sent = state.submit_bytes(at, bytes, task)?;
    match sent {
        Submitted::Pending(dep) if wait => {
            engine::wait(state, &[dep]);
            finished(state, at)
        }
        Submitted::Pending(dep) if held => {
            engine::reach(state, &[dep], None);
            finished(state, at)
        }
        _ => Ok(()),
    }
}

fn linear(raw: CUstream, to: (u64, Expect), from: (u64, Expect), bytes: usize, returns: Returns) -> Answer {
    between(raw, to, from, bytes, returns, Copy::reaches)
}

fn between(
    raw: CUstream,
    to: (u64, Expect),
    from: (u64, Expect),
    bytes: usize,
    returns: Returns,
    check: impl FnOnce(&Copy, &State, &At) -> Answer,
) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(raw)?;
    state.not_lost(at.context)?;
    if bytes == 0 {
        return Ok(());
    }
    // Measured: without a current context what has several mappings is not copied in one.
    let scattered = |side: u64| state.memory.virtuals.has_several(side, bytes as u64);
    if state.here().is_err() && (scattered(to.0) || scattered(from.0)) {
        return Err(INVALID_VALUE);
    }
    let task = Copy::new(&state, to, from, Layout::linear(bytes as u64))?;
    check(&task, &state, &at)?;
    send(&mut state, &at, task, returns)
}

const LEGACY: CUstream = std::ptr::null_mut();

/// Measured: memory of the host's pools is none of a device to the calls that name one.
fn device(address: CUdeviceptr) -> (u64, Expect) {
    (address, Expect::OnDevice)
}

fn host_side(pointer: Untyped) -> (u64, Expect) {
    (pointer.address() as u64, Expect::Any)
}

fn any(address: CUdeviceptr) -> (u64, Expect) {
    (address, Expect::Any)
}

pub fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
    linear(LEGACY, any(to), any(from), bytes, Returns::Done)
}

pub fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    linear(stream, any(to), any(from), bytes, Returns::Early)
}

pub fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: Untyped, bytes: usize) -> Answer {
    linear(LEGACY, device(to), host_side(from), bytes, Returns::Done)
}

pub fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: Untyped, bytes: usize, stream: CUstream) -> Answer {
    linear(stream, device(to), host_side(from), bytes, Returns::Early)
}

pub fn cuMemcpyDtoH_v2(to: Untyped, from: CUdeviceptr, bytes: usize) -> Answer {
    linear(LEGACY, host_side(to), device(from), bytes, Returns::Done)
}

pub fn cuMemcpyDtoHAsync_v2(to: Untyped, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    linear(stream, host_side(to), device(from), bytes, Returns::Early)
}

pub fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
    linear(LEGACY, device(to), device(from), bytes, Returns::Early)
}

pub fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    linear(stream, device(to), device(from), bytes, Returns::Early)
}

/// Refuses contexts that are none.
pub(in super::super) fn both(to: CUcontext, from: CUcontext) -> Answer {
    let state = state::lock()?;
    state.context(Handle::of(to))?;
    state.context(Handle::of(from)).map(drop)
}

/// `cuMemcpyPeer` and `cuMemcpyPeerAsync`: one address space makes them plain copies, which need no access.
pub(in super::super) fn peer(raw: CUstream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
    let known = |address| (address, Expect::Device);
    between(raw, known(to), known(from), bytes, Returns::Early, |_, _, _| Ok(()))
}
