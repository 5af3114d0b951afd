//! Allocating and freeing in stream order.

use super::super::live::LIVE;
use super::super::{Origin, ipc};
use super::{Owner, PoolKey, allocate, give, graph};
use crate::c::Out;
use crate::handle::Handle;
use crate::report;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::stream::At;
use crate::task::{Failure, Job, NodeKind, Task, Work};
use crate::thread;
use cuirass_sys::cuda::{CUdeviceptr, CUmemoryPool, CUstream};
use std::any::Any;
use std::sync::Arc;

/// The end of memory in a stream's order: work may touch it until then.
pub struct Free {
    /// The first address.
    pub start: u64,
    /// The allocation's number.
    pub id: u64,
}

impl Task for Free {
    fn run(&self, _job: &Job) -> Result<(), Failure> {
        LIVE.remove(self.start, self.id);
        Ok(())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Free
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn allocate_from(state: &mut State, dptr: &Out<CUdeviceptr>, key: PoolKey, bytes: usize, at: &At) -> Answer {
    if state.memory.pools.get(key).ok_or(INVALID_VALUE)?.shape.imported {
        report::bug(format!("{}: an imported pool gives no memory", thread::place()));
        return Err(INVALID_VALUE);
    }
    state.not_lost(at.context)?;
    if bytes == 0 {
        return dptr.write(0);
    }
    if let Some(capture) = state.good_capture(at)? {
        return dptr.write(graph::allocate(state, capture, bytes as u64, at)?);
    }
    state.potentially_unsafe()?;
    dptr.write(allocate(state, key, bytes as u64, at)?)
}

pub fn cuMemAllocAsync(dptr: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> Answer {
    dptr.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let device = state.context(at.context)?.device;
    let pool = state.memory.pools.current_of(Owner::Device(device))?;
    let key = state.memory.pools.key(pool)?;
    allocate_from(&mut state, &dptr, key, bytes, &at)
}

pub fn cuMemAllocFromPoolAsync(dptr: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream) -> Answer {
    dptr.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let key = state.memory.pools.key(Handle::of(pool))?;
    allocate_from(&mut state, &dptr, key, bytes, &at)
}

pub fn cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    if dptr == 0 {
        return Ok(());
    }
    if let Some(capture) = state.good_capture(&at)? {
        return graph::free_node(&mut state, capture, dptr, &at);
    }
    state.potentially_unsafe()?;
    let Some(known) = state.memory.at(dptr) else { return Err(state.memory.refuse(dptr)) };
    let id = known.id;
    match known.origin {
        Origin::Pool(key) => {
            let after = free_in_order(&mut state, dptr, id, &at)?;
            if let Some(allocation) = state.memory.strike(dptr) {
                give(&mut state, key, &allocation, after);
            }
        }
        Origin::Imported(_) => {
            ipc::free_in_order(&mut state, dptr, &at)?;
        }
        Origin::Graph { made: true, .. } => {
            free_in_order(&mut state, dptr, id, &at)?;
            graph::freed(&mut state, dptr);
        }
        Origin::Graph { .. } => return Err(INVALID_VALUE),
        _ => {
            let about = state.memory.about(dptr);
            report::bug(format!("{} was given memory of no pool: {about}", thread::place()));
            return Err(INVALID_VALUE);
        }
    }
    state.not_lost(at.context)
}

/// Takes memory away from work in a stream's order; at once, if nothing stands before it.
fn free_in_order(state: &mut State, start: u64, id: u64, at: &At) -> Answer<Option<crate::engine::Dep>> {
    if state.is_clear(at) || state.not_lost(at.context).is_err() {
        LIVE.remove(start, id);
        return Ok(Some(state.engine.tail(at.queue)));
    }
    let before = state.before(at);
    state.push(at.queue, &before, Work::Task(Arc::new(Free { start, id }))).map(Some)
}

/// Frees pool memory for `cuMemFree`, which has waited for all work.
pub fn free_now(state: &mut State, key: PoolKey, start: u64) {
    let Some(allocation) = state.memory.strike(start) else { return };
    LIVE.remove(start, allocation.id);
    give(state, key, &allocation, None);
}
