//! Memory that allocation nodes of graphs make: its addresses are fixed when the node is, its life is each launch's.

use super::super::Origin;
use super::super::live::{LIVE, Live};
use super::order::Free;
use crate::handle::Handle;
use crate::state::State;
use crate::status::{Answer, INVALID_VALUE};
use crate::stream::At;
use crate::task::{Failure, Job, NodeKind, Task};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;

/// Allocations whose node is gone, to be looked at when the book is open.
static GONE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// An allocation node.
pub struct Allocate {
    live: Live,
}

impl Allocate {
    /// The first address.
    pub fn start(&self) -> u64 {
        self.live.start
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.live.len
    }

    /// The allocation's number.
    pub fn number(&self) -> u64 {
        self.live.id
    }

    /// Whether it has no bytes (it never has none).
    pub fn is_empty(&self) -> bool {
        self.live.len == 0
    }
}

impl Task for Allocate {
    fn run(&self, _job: &Job) -> Result<(), Failure> {
        if !LIVE.is_there(self.live.start, self.live.id) {
            LIVE.add(self.live);
        }
        Ok(())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Alloc
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Allocate {
    fn drop(&mut self) {
        // The book may be open in this very call.
        GONE.lock().push(self.live.start);
    }
}

/// Makes an allocation node of a capture.
pub(super) fn allocate(state: &mut State, capture: Handle, len: u64, at: &At) -> Answer<u64> {
    sweep(state);
    let origin = Origin::Graph { capture, made: false, node: true };
    let start = state.allocate(at.context, len, origin, true)?;
    let node = node_of(state, start)?;
    state.submit(at, Arc::new(node))?;
    Ok(start)
}

fn node_of(state: &mut State, start: u64) -> Answer<Allocate> {
    let allocation = state.memory.at(start).ok_or(INVALID_VALUE)?;
    let (len, id, device) = (allocation.len.max(1), allocation.id, allocation.device);
    let host = state.arena(device.ok_or(INVALID_VALUE)?)?.host_of(start);
    Ok(Allocate { live: Live { start, len, host, id, device, access: 0, writable: true } })
}

/// `cuMemFreeAsync` in a capture: a node, for memory of the same capture only.
pub(super) fn free_node(state: &mut State, capture: Handle, start: u64, at: &At) -> Answer {
    let allocation = state.memory.at(start).ok_or(INVALID_VALUE)?;
    let id = allocation.id;
    match allocation.origin {
        Origin::Graph { capture: theirs, .. } if theirs == capture => {
            state.submit(at, Arc::new(Free { start, id })).map(drop)
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Whether the task is an allocation node whose memory of an earlier launch has not been freed.
pub fn still_made(state: &State, task: &dyn Task) -> bool {
    let Some(node) = task.as_any().downcast_ref::<Allocate>() else { return false };
    state.memory.at(node.live.start).is_some_and(|memory| matches!(memory.origin, Origin::Graph { made: true, .. }))
}

/// A graph was launched, with this task in it: what it makes may be freed from now on, what it frees may not.
/// (The call that launches an executable graph asks this for each of its tasks.)
pub fn launched(state: &mut State, task: &dyn Task) {
    let task = task.as_any();
    if let Some(node) = task.downcast_ref::<Allocate>() {
        set_made(state, node.live.start, true);
    } else if let Some(node) = task.downcast_ref::<Free>() {
        set_made(state, node.start, false);
    }
}

fn set_made(state: &mut State, start: u64, value: bool) {
    if let Some(allocation) = state.memory.at_mut(start)
        && let Origin::Graph { made, .. } = &mut allocation.origin
    {
        *made = value;
        if let (true, Some(device)) = (value, allocation.device) {
            state.memory.graph_bytes(device);
        }
    }
}

/// The program freed it outside the graph.
pub(super) fn freed(state: &mut State, start: u64) {
    set_made(state, start, false);
    if let Some(allocation) = state.memory.at(start)
        && matches!(allocation.origin, Origin::Graph { node: false, .. })
    {
        GONE.lock().push(start);
    }
}

/// `cuMemFree` of memory that a graph's launch made; all work has been waited for.
pub fn free_graph_memory(state: &mut State, start: u64) {
    if let Some(id) = state.memory.at(start).map(|allocation| allocation.id) {
        LIVE.remove(start, id);
        freed(state, start);
        sweep(state);
    }
}

/// Frees the addresses of allocation nodes that are gone, unless a launch's memory still lives there.
pub fn sweep(state: &mut State) {
    let gone = std::mem::take(&mut *GONE.lock());
    for start in gone {
        let Some(allocation) = state.memory.at_mut(start) else { continue };
        let id = allocation.id;
        let Origin::Graph { made, node, .. } = &mut allocation.origin else { continue };
        *node = false;
        if *made {
            continue;
        }
        if LIVE.is_there(start, id) {
            // Its free is still pending.
            GONE.lock().push(start);
        } else {
            state.release(start);
        }
    }
}
