//! Graphs and user objects.

use super::{Graph, Graphs};
use crate::c::{HostFunction, Out, Text, Untyped};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE, Status};
use crate::task::NodeKind;
use cuirass_sys::cuda::{CUgraph, CUgraphEdgeData, CUgraphNode, CUhostFn, CUuserObject, CUuserObject_flags};
use std::collections::HashMap;
use std::ffi::c_uint;

/// Something of the program's that graphs keep alive.
pub struct UserObject {
    /// How many references there are.
    pub references: u32,
    /// What runs once there are none.
    pub destructor: HostFunction,
}

impl Graphs {
    /// Gives references to a user object up; answers its destructor once there are none.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an object that is none, or that has fewer references.
    pub fn release_object(&mut self, object: Handle, count: u32) -> Answer<Option<HostFunction>> {
        let known = self.user_objects.get_mut(object, INVALID_VALUE)?;
        known.references = known.references.checked_sub(count).ok_or(INVALID_VALUE)?;
        if known.references > 0 {
            return Ok(None);
        }
        Ok(self.user_objects.end(object, INVALID_VALUE).map(|object| object.destructor))
    }

    /// Copies a graph, child graphs included.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a graph that is none.
    pub fn copy(&mut self, graph: Handle, parent: Option<Handle>) -> Answer<Handle> {
        let original = self.graphs.get(graph, INVALID_VALUE)?;
        let (nodes, held, conditions) = (original.nodes.clone(), original.held.clone(), original.conditions.clone());
        for (object, count) in &held {
            self.user_objects.get_mut(*object, INVALID_VALUE)?.references += count;
        }
        let copy = self.graphs.insert(Graph { parent, held, conditions, ..Graph::default() })?;
        let mut copies: HashMap<Handle, Handle> = HashMap::new();
        for node in &nodes {
            let mut twin = self.nodes.get(*node, INVALID_VALUE)?.clone();
            twin.graph = copy;
            twin.original = Some(*node);
            if let Some(child) = twin.child {
                twin.child = Some(self.copy(child, Some(copy))?);
            }
            if let Some(conditional) = twin.conditional.take() {
                let bodies = conditional.bodies.iter().map(|body| self.copy(*body, Some(copy)));
                twin.conditional = Some(conditional.with_bodies(bodies.collect::<Answer<_>>()?));
            }
            let twin = self.nodes.insert(twin)?;
            copies.insert(*node, twin);
            self.graphs.get_mut(copy, INVALID_VALUE)?.nodes.push(twin);
        }
        for twin in copies.values() {
            let node = self.nodes.get_mut(*twin, INVALID_VALUE)?;
            node.after = node.after.iter().filter_map(|earlier| copies.get(earlier).copied()).collect();
        }
        Ok(copy)
    }
}

impl State {
    fn run_destructors(&mut self, destructors: impl IntoIterator<Item = HostFunction>) {
        destructors.into_iter().for_each(|destructor| self.run_destructor(destructor));
    }

    /// Gives references to a user object up, and has its destructor run once there are none.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an object that is none, or that has fewer references.
    pub fn release_object(&mut self, object: Handle, count: u32) -> Answer {
        let destructor = self.graphs.release_object(object, count)?;
        self.run_destructors(destructor);
        Ok(())
    }
}

pub fn cuGraphCreate(out: Out<CUgraph>, flags: c_uint) -> Answer {
    out.check()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let graph = state::lock()?.graphs.graphs.insert(Graph::default())?;
    out.write(graph.raw())
}

pub fn cuGraphDestroy(graph: CUgraph) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(graph);
    let known = state.graphs.graphs.get(handle, INVALID_VALUE)?;
    if known.parent.is_some() || known.capturing {
        return Err(INVALID_VALUE);
    }
    let destructors = state.graphs.destroy(handle)?;
    state.run_destructors(destructors);
    Ok(())
}

pub fn cuGraphClone(out: Out<CUgraph>, original: CUgraph) -> Answer {
    out.check()?;
    let copy = state::lock()?.graphs.copy(Handle::of(original), None)?;
    out.write(copy.raw())
}

/// Writes a list as CUDA's two-step calls do: with a null list only the count, else as many as there is room for,
/// the rest filled with null.
pub(super) fn list<T>(items: &[*mut T], out: &Out<*mut T>, count: &Out<usize>) -> Answer {
    let room = if out.is_null() { 0 } else { count.read()? };
    for at in 0..room {
        out.write_at(at, items.get(at).copied().unwrap_or(std::ptr::null_mut()))?;
    }
    count.write(if out.is_null() { items.len() } else { room.min(items.len()) })
}

fn edges(graph: CUgraph, from: &Out<CUgraphNode>, to: &Out<CUgraphNode>, count: &Out<usize>) -> Answer {
    if from.is_null() != to.is_null() {
        return Err(INVALID_VALUE);
    }
    let state = state::lock()?;
    let (mut starts, mut ends): (Vec<CUgraphNode>, Vec<CUgraphNode>) = (Vec::new(), Vec::new());
    for handle in &state.graphs.graphs.get(Handle::of(graph), INVALID_VALUE)?.nodes {
        for earlier in &state.graphs.nodes.get(*handle, INVALID_VALUE)?.after {
            starts.push(earlier.raw());
            ends.push(handle.raw());
        }
    }
    if !from.is_null() {
        let room = count.read()?;
        for at in 0..room {
            to.write_at(at, ends.get(at).copied().unwrap_or(std::ptr::null_mut()))?;
        }
    }
    list(&starts, from, count)
}

pub fn cuGraphGetEdges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    edges(graph, &from, &to, &count)
}

pub fn cuGraphGetEdges_v2(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    edges(graph, &from, &to, &count)?;
    plain_data(&data, &count)
}

/// All edges here are ordinary ones.
pub(super) fn plain_data(data: &Out<CUgraphEdgeData>, count: &Out<usize>) -> Answer {
    if data.is_null() {
        return Ok(());
    }
    let plain = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
    (0..count.read()?).try_for_each(|at| data.write_at(at, plain))
}

pub fn cuGraphDebugDotPrint(graph: CUgraph, path: Text, _flags: c_uint) -> Answer {
    let path = path.read()?;
    let state = state::lock()?;
    let mut text = "digraph dot {\n".to_owned();
    for handle in &state.graphs.graphs.get(Handle::of(graph), INVALID_VALUE)?.nodes {
        let node = state.graphs.nodes.get(*handle, INVALID_VALUE)?;
        text.push_str(&format!("  \"{handle}\" [label=\"{}\"];\n", kind_name(node.kind)));
        node.after.iter().for_each(|earlier| text.push_str(&format!("  \"{earlier}\" -> \"{handle}\";\n")));
    }
    text.push_str("}\n");
    drop(state);
    std::fs::write(path, text).or(Err(Status::CUDA_ERROR_OPERATING_SYSTEM))
}

fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Kernel => "KERNEL",
        NodeKind::Copy => "MEMCPY",
        NodeKind::Fill => "MEMSET",
        NodeKind::Host => "HOST",
        NodeKind::Graph => "GRAPH",
        NodeKind::Empty => "EMPTY",
        NodeKind::WaitEvent => "EVENT_WAIT",
        NodeKind::RecordEvent => "EVENT_RECORD",
        NodeKind::Alloc => "MEM_ALLOC",
        NodeKind::Free => "MEM_FREE",
        NodeKind::Conditional => "CONDITIONAL",
    }
}

pub fn cuUserObjectCreate(
    out: Out<CUuserObject>,
    data: Untyped,
    destructor: CUhostFn,
    references: c_uint,
    flags: c_uint,
) -> Answer {
    out.check()?;
    let no_sync = CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0;
    if flags != no_sync || references == 0 || references > i32::MAX as u32 {
        return Err(INVALID_VALUE);
    }
    let object = UserObject { references, destructor: HostFunction::new(destructor, data)? };
    let object = state::lock()?.graphs.user_objects.insert(object)?;
    out.write(object.raw())
}

fn more_references(state: &mut State, object: Handle, count: c_uint) -> Answer {
    let known = state.graphs.user_objects.get_mut(object, INVALID_VALUE)?;
    let all = known.references.checked_add(count).filter(|all| *all <= i32::MAX as u32);
    known.references = all.filter(|_| count > 0).ok_or(INVALID_VALUE)?;
    Ok(())
}

pub fn cuUserObjectRetain(object: CUuserObject, count: c_uint) -> Answer {
    more_references(&mut *state::lock()?, Handle::of(object), count)
}

pub fn cuUserObjectRelease(object: CUuserObject, count: c_uint) -> Answer {
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    state::lock()?.release_object(Handle::of(object), count)
}

/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph takes the caller's references over.
const MOVE: c_uint = 1;

pub fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) -> Answer {
    if flags & !MOVE != 0 || count == 0 {
        return Err(INVALID_VALUE);
    }
    let (graph, object) = (Handle::of(graph), Handle::of(object));
    let mut state = state::lock()?;
    state.graphs.graphs.get(graph, INVALID_VALUE)?;
    state.graphs.user_objects.get(object, INVALID_VALUE)?;
    if flags & MOVE == 0 {
        more_references(&mut state, object, count)?;
    }
    let held = &mut state.graphs.graphs.get_mut(graph, INVALID_VALUE)?.held;
    match held.iter_mut().find(|(other, _)| *other == object) {
        Some((_, references)) => *references += count,
        None => held.push((object, count)),
    }
    Ok(())
}

pub fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) -> Answer {
    let object = Handle::of(object);
    let mut state = state::lock()?;
    let held = &mut state.graphs.graphs.get_mut(Handle::of(graph), INVALID_VALUE)?.held;
    let mine = held.iter_mut().find(|(other, _)| *other == object).ok_or(INVALID_VALUE)?;
    mine.1 = mine.1.checked_sub(count).filter(|_| count > 0).ok_or(INVALID_VALUE)?;
    held.retain(|(_, references)| *references > 0);
    state.release_object(object, count)
}
