//! The calls that take nodes of every kind.

use super::data::{copy_work, fill_work};
use super::{add, change, set_child};
use crate::c::{In, NodeParams, Out};
use crate::graph::builder::plain_edges;
use crate::graph::{condition, exec};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::task::{NodeKind, Work};
use crate::{report, thread};
use cuirass_sys::cuda::{CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUgraphNodeParams};

fn unsupported<T>() -> Answer<T> {
    report::unsupported(format!("{}: a node of this kind is not simulated", thread::place()));
    Err(NOT_SUPPORTED)
}

/// What a node does, and the child graph that it runs.
fn work_of(state: &mut State, params: &CUgraphNodeParams) -> Answer<(NodeKind, Work, Option<CUgraph>)> {
    Ok(match NodeParams::read(params)? {
        NodeParams::Kernel(params) => (NodeKind::Kernel, super::kernel::work(state, &params)?, None),
        NodeParams::Copy(params, ctx) => {
            state.context(Handle::of(ctx))?;
            (NodeKind::Copy, copy_work(state, &params)?, None)
        }
        NodeParams::Fill(params, ctx) => {
            state.context(Handle::of(ctx))?;
            (NodeKind::Fill, fill_work(state, &params)?, None)
        }
        NodeParams::Host(function) => (NodeKind::Host, Work::Host(function), None),
        NodeParams::Graph(graph) => (NodeKind::Graph, Work::Nothing, Some(graph)),
        NodeParams::Empty => (NodeKind::Empty, Work::Nothing, None),
        NodeParams::Wait(event) => {
            state.events.get(Handle::of(event), INVALID_HANDLE)?;
            (NodeKind::WaitEvent, Work::Wait { event: Handle::of(event) }, None)
        }
        NodeParams::Record(event) => {
            state.events.get(Handle::of(event), INVALID_HANDLE)?;
            (NodeKind::RecordEvent, Work::Record { event: Handle::of(event), serial: 0 }, None)
        }
        NodeParams::Free(_) | NodeParams::Conditional(_) | NodeParams::Other => return unsupported(),
    })
}

fn add_node(
    out: &Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    place: Out<CUgraphNodeParams>,
) -> Answer {
    let mut params = place.read()?;
    let mut state = state::lock()?;
    if let NodeParams::Conditional(asked) = NodeParams::read(&params)? {
        out.check()?;
        let bodies = usize::try_from(asked.size).unwrap_or(usize::MAX);
        let of = Handle::of(graph);
        state.graphs.graphs.get(of, INVALID_VALUE)?;
        let conditional = condition::new_conditional(&mut state, of, asked.handle, asked.type_, bodies)?;
        NodeParams::set_bodies(&mut params, conditional.list());
        let node = add(&mut state, out, graph, dependencies, count, NodeKind::Conditional, Work::Nothing)?;
        conditional.take();
        state.graphs.nodes.get_mut(node, INVALID_VALUE)?.conditional = Some(conditional);
        return place.write(params);
    }
    let (kind, work, child) = work_of(&mut state, &params)?;
    if let Some(child) = child {
        state.graphs.graphs.get(Handle::of(child), INVALID_VALUE)?;
    }
    let node = add(&mut state, out, graph, dependencies, count, kind, work)?;
    child.map_or(Ok(()), |child| set_child(&mut state, node, Handle::of(child)))
}

pub fn cuGraphAddNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    add_node(&out, graph, dependencies, count, params)
}

pub fn cuGraphAddNode_v2(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    data: In<CUgraphEdgeData>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Answer {
    plain_edges(data, count)?;
    add_node(&out, graph, dependencies, count, params)
}

pub fn cuGraphNodeSetParams(node: CUgraphNode, params: In<CUgraphNodeParams>) -> Answer {
    let (kind, work, child) = work_of(&mut *state::lock()?, &params.read()?)?;
    if child.is_some() { unsupported() } else { change(node, kind, work) }
}

pub(in super::super) fn set_exec(graph: CUgraphExec, node: CUgraphNode, params: In<CUgraphNodeParams>) -> Answer {
    let (kind, work, child) = work_of(&mut *state::lock()?, &params.read()?)?;
    if child.is_some() { unsupported() } else { exec::change(graph, node, kind, work) }
}
