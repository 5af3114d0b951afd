//! Nodes and edges of graphs: the graph's own kinds of node here, those that move data and those that launch kernels
//! in the files beside this one.

pub mod condition;
pub(super) mod data;
pub(super) mod generic;
pub(super) mod kernel;

pub use condition::cuGraphConditionalHandleCreate;
pub use data::*;
pub use generic::*;
pub use kernel::*;

use super::builder::plain_edges;
use super::definition::{list, plain_data};
use crate::c::{HostFunction, In, Out, Untyped};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE};
use crate::task::{NodeKind, Work};
use cuirass_sys::cuda::{
    CUDA_HOST_NODE_PARAMS, CUevent, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUgraphNodeType,
};
use std::ffi::c_uint;

/// Adds a node.
fn add(
    state: &mut State,
    out: &Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    kind: NodeKind,
    work: Work,
) -> Answer<Handle> {
    out.check()?;
    let after: Vec<Handle> = dependencies.read_many(count)?.into_iter().map(Handle::of).collect();
    let node = state.graphs.add(Handle::of(graph), kind, work, &after)?;
    out.write(node.raw())?;
    Ok(node)
}

pub fn cuGraphAddEmptyNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
) -> Answer {
    add(&mut *state::lock()?, &out, graph, dependencies, count, NodeKind::Empty, Work::Nothing).map(drop)
}

fn host_work(params: In<CUDA_HOST_NODE_PARAMS>) -> Answer<Work> {
    let params = params.read()?;
    HostFunction::new(params.fn_, Untyped::from(params.userData)).map(Work::Host)
}

pub fn cuGraphAddHostNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let work = host_work(params)?;
    add(&mut *state::lock()?, &out, graph, dependencies, count, NodeKind::Host, work).map(drop)
}

pub fn cuGraphHostNodeGetParams(node: CUgraphNode, params: Out<CUDA_HOST_NODE_PARAMS>) -> Answer {
    let state = state::lock()?;
    match &state.graphs.nodes.get(Handle::of(node), INVALID_VALUE)?.work {
        Work::Host(function) => params.write(function.params()),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuGraphHostNodeSetParams(node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) -> Answer {
    let work = host_work(params)?;
    change(node, NodeKind::Host, work)
}

fn change(node: CUgraphNode, kind: NodeKind, work: Work) -> Answer {
    let mut state = state::lock()?;
    let node = state.graphs.nodes.get_mut(Handle::of(node), INVALID_VALUE)?;
    if node.kind != kind {
        return Err(INVALID_VALUE);
    }
    node.work = work;
    Ok(())
}

pub fn cuGraphAddEventRecordNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Answer {
    let mut state = state::lock()?;
    let event = Handle::of(event);
    state.events.get(event, INVALID_HANDLE)?;
    let work = Work::Record { event, serial: 0 };
    add(&mut state, &out, graph, dependencies, count, NodeKind::RecordEvent, work).map(drop)
}

pub fn cuGraphAddEventWaitNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Answer {
    let mut state = state::lock()?;
    let event = Handle::of(event);
    state.events.get(event, INVALID_HANDLE)?;
    add(&mut state, &out, graph, dependencies, count, NodeKind::WaitEvent, Work::Wait { event }).map(drop)
}

fn event_of(node: CUgraphNode, kind: NodeKind, out: &Out<CUevent>) -> Answer {
    let state = state::lock()?;
    let node = state.graphs.nodes.get(Handle::of(node), INVALID_VALUE)?;
    match node.work {
        Work::Record { event, .. } | Work::Wait { event } if node.kind == kind => out.write(event.raw()),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) -> Answer {
    event_of(node, NodeKind::RecordEvent, &event)
}

pub fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) -> Answer {
    event_of(node, NodeKind::WaitEvent, &event)
}

pub fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) -> Answer {
    change(node, NodeKind::RecordEvent, Work::Record { event: Handle::of(event), serial: 0 })
}

pub fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) -> Answer {
    change(node, NodeKind::WaitEvent, Work::Wait { event: Handle::of(event) })
}

pub fn cuGraphAddChildGraphNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> Answer {
    let mut state = state::lock()?;
    state.graphs.graphs.get(Handle::of(child), INVALID_VALUE)?;
    if child == graph {
        return Err(INVALID_VALUE);
    }
    let node = add(&mut state, &out, graph, dependencies, count, NodeKind::Graph, Work::Nothing)?;
    set_child(&mut state, node, Handle::of(child))
}

/// Gives a child graph node its own copy of a graph.
fn set_child(state: &mut State, node: Handle, child: Handle) -> Answer {
    let graph = state.graphs.nodes.get(node, INVALID_VALUE)?.graph;
    let copy = state.graphs.copy(child, Some(graph))?;
    state.graphs.nodes.get_mut(node, INVALID_VALUE)?.child = Some(copy);
    Ok(())
}

pub fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: Out<CUgraph>) -> Answer {
    let state = state::lock()?;
    let child = state.graphs.nodes.get(Handle::of(node), INVALID_VALUE)?.child;
    graph.write(child.ok_or(INVALID_VALUE)?.raw())
}

pub fn cuGraphNodeFindInClone(out: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) -> Answer {
    let state = state::lock()?;
    let nodes = &state.graphs.graphs.get(Handle::of(clone), INVALID_VALUE)?.nodes;
    let is_twin = |node: &&Handle| {
        state.graphs.nodes.peek(**node).is_some_and(|node| node.original == Some(Handle::of(original)))
    };
    out.write(nodes.iter().find(is_twin).ok_or(INVALID_VALUE)?.raw())
}

pub fn cuGraphNodeGetType(node: CUgraphNode, out: Out<CUgraphNodeType>) -> Answer {
    let state = state::lock()?;
    out.write(match state.graphs.nodes.get(Handle::of(node), INVALID_VALUE)?.kind {
        NodeKind::Kernel => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
        NodeKind::Copy => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
        NodeKind::Fill => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
        NodeKind::Host => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
        NodeKind::Graph => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
        NodeKind::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
        NodeKind::WaitEvent => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        NodeKind::RecordEvent => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        NodeKind::Alloc => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        NodeKind::Free => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
        NodeKind::Conditional => CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
    })
}

pub fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let state = state::lock()?;
    let found = &state.graphs.graphs.get(Handle::of(graph), INVALID_VALUE)?.nodes;
    list(&found.iter().map(|node| node.raw()).collect::<Vec<_>>(), &nodes, &count)
}

pub fn cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let state = state::lock()?;
    let all = &state.graphs.graphs.get(Handle::of(graph), INVALID_VALUE)?.nodes;
    let is_root = |node: &&Handle| state.graphs.nodes.peek(**node).is_some_and(|node| node.after.is_empty());
    list(&all.iter().filter(is_root).map(|node| node.raw()).collect::<Vec<_>>(), &nodes, &count)
}

fn earlier(node: CUgraphNode, nodes: &Out<CUgraphNode>, count: &Out<usize>) -> Answer {
    let state = state::lock()?;
    let found = &state.graphs.nodes.get(Handle::of(node), INVALID_VALUE)?.after;
    list(&found.iter().map(|node| node.raw()).collect::<Vec<_>>(), nodes, count)
}

pub fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    earlier(node, &nodes, &count)
}

pub fn cuGraphNodeGetDependencies_v2(
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    earlier(node, &nodes, &count)?;
    plain_data(&data, &count)
}

fn later(node: CUgraphNode, nodes: &Out<CUgraphNode>, count: &Out<usize>) -> Answer {
    let state = state::lock()?;
    let handle = Handle::of(node);
    let graph = state.graphs.nodes.get(handle, INVALID_VALUE)?.graph;
    let all = &state.graphs.graphs.get(graph, INVALID_VALUE)?.nodes;
    let follows = |node: &&Handle| state.graphs.nodes.peek(**node).is_some_and(|node| node.after.contains(&handle));
    list(&all.iter().filter(follows).map(|node| node.raw()).collect::<Vec<_>>(), nodes, count)
}

pub fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    later(node, &nodes, &count)
}

pub fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    later(node, &nodes, &count)?;
    plain_data(&data, &count)
}

/// The pairs of an edge call, all of one graph.
fn pairs(
    state: &State,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Answer<Vec<(Handle, Handle)>> {
    let graph = Handle::of(graph);
    state.graphs.graphs.get(graph, INVALID_VALUE)?;
    let from = from.read_many(count)?.into_iter().map(Handle::of);
    let pairs: Vec<(Handle, Handle)> = from.zip(to.read_many(count)?.into_iter().map(Handle::of)).collect();
    for (from, to) in &pairs {
        let inside = |node: &Handle| state.graphs.nodes.get(*node, INVALID_VALUE).map(|node| node.graph == graph);
        if from == to || !inside(from)? || !inside(to)? {
            return Err(INVALID_VALUE);
        }
    }
    Ok(pairs)
}

fn add_edges(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Answer {
    let mut state = state::lock()?;
    let pairs = pairs(&state, graph, from, to, count)?;
    for (at, (from, to)) in pairs.iter().enumerate() {
        let known = state.graphs.nodes.get(*to, INVALID_VALUE)?.after.contains(from);
        if known || pairs[..at].contains(&(*from, *to)) {
            return Err(INVALID_VALUE);
        }
    }
    for (from, to) in pairs {
        state.graphs.nodes.get_mut(to, INVALID_VALUE)?.after.push(from);
    }
    Ok(())
}

pub fn cuGraphAddDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Answer {
    add_edges(graph, from, to, count)
}

pub fn cuGraphAddDependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    plain_edges(data, count)?;
    add_edges(graph, from, to, count)
}

fn remove_edges(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Answer {
    let mut state = state::lock()?;
    let pairs = pairs(&state, graph, from, to, count)?;
    for (from, to) in &pairs {
        if !state.graphs.nodes.get(*to, INVALID_VALUE)?.after.contains(from) {
            return Err(INVALID_VALUE);
        }
    }
    for (from, to) in pairs {
        state.graphs.nodes.get_mut(to, INVALID_VALUE)?.after.retain(|earlier| *earlier != from);
    }
    Ok(())
}

pub fn cuGraphRemoveDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Answer {
    remove_edges(graph, from, to, count)
}

pub fn cuGraphRemoveDependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: In<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    plain_edges(data, count)?;
    remove_edges(graph, from, to, count)
}

pub fn cuGraphDestroyNode(node: CUgraphNode) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(node);
    let kind = state.graphs.nodes.get(handle, INVALID_VALUE)?.kind;
    if matches!(kind, NodeKind::Alloc | NodeKind::Free) {
        return Err(crate::status::NOT_SUPPORTED);
    }
    let node = state.graphs.nodes.remove(handle, INVALID_VALUE, INVALID_VALUE)?;
    let siblings = {
        let graph = state.graphs.graphs.get_mut(node.graph, INVALID_VALUE)?;
        graph.nodes.retain(|other| *other != handle);
        graph.nodes.clone()
    };
    for sibling in siblings {
        if let Some(sibling) = state.graphs.nodes.peek_mut(sibling) {
            sibling.after.retain(|earlier| *earlier != handle);
        }
    }
    let bodies = node.conditional.into_iter().flat_map(|conditional| conditional.bodies);
    for inner in node.child.into_iter().chain(bodies) {
        for destructor in state.graphs.destroy(inner)? {
            state.run_destructor(destructor);
        }
    }
    Ok(())
}

/// Only these kinds can be left out of a launch.
fn can_be_disabled(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Kernel | NodeKind::Copy | NodeKind::Fill)
}

pub fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Answer {
    let mut state = state::lock()?;
    let exec = state.graphs.execs.get_mut(Handle::of(exec), INVALID_VALUE)?;
    let step = exec.steps.iter_mut().find(|step| step.node == Handle::of(node) && can_be_disabled(step.kind));
    step.ok_or(INVALID_VALUE)?.enabled = enabled != 0;
    Ok(())
}

pub fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<c_uint>) -> Answer {
    let state = state::lock()?;
    let exec = state.graphs.execs.get(Handle::of(exec), INVALID_VALUE)?;
    let step = exec.steps.iter().find(|step| step.node == Handle::of(node) && can_be_disabled(step.kind));
    enabled.write(c_uint::from(step.ok_or(INVALID_VALUE)?.enabled))
}
