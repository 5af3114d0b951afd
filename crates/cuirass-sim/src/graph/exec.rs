//! Executable graphs: what a graph was when it was instantiated, launched into streams.
//!
//! The file beside this one puts the nodes into queues.

use super::condition;
use super::node::{data, generic, kernel};
use crate::c::{HostFunction, In, Out, Untyped};
use crate::engine::{Dep, Random};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, GRAPH_EXEC_UPDATE_FAILURE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::stream::At;
use crate::task::{Failure, Job, NodeKind, Task, Work};
use crate::{report, thread};
use cuirass_sys::cuda::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphInstantiate_flags, CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams,
    CUstream, cuuint64_t,
};
use std::any::Any;
use std::collections::HashSet;
use std::ffi::{c_char, c_ulonglong};
use std::sync::Arc;

/// An executable graph.
pub struct Exec {
    /// The flags that it was instantiated with.
    pub flags: u64,
    /// Its steps, in an order that satisfies all dependencies.
    pub steps: Vec<Step>,
    /// User objects that it holds.
    held: Vec<(Handle, u32)>,
    /// What every launch resets first, if there is anything.
    reset: Option<Work>,
    /// Where its last launch ends: launches of one executable follow each other.
    last: Option<Dep>,
}

/// One node of an executable graph.
#[derive(Clone)]
pub struct Step {
    /// The node that it was made from.
    pub node: Handle,
    /// What sort of node it is.
    pub kind: NodeKind,
    /// What it does.
    pub work: Work,
    /// The nodes that it waits for.
    pub after: Vec<Handle>,
    /// How deep in child graphs it stands.
    pub depth: usize,
    /// Whether a launch does it.
    pub enabled: bool,
}

impl State {
    fn steps(&self, graph: Handle, depth: usize, into: &mut Vec<Step>) -> Answer {
        for handle in self.graphs.order(graph).ok_or(INVALID_VALUE)? {
            let node = self.graphs.nodes.get(handle, INVALID_VALUE)?;
            let (kind, after) = (node.kind, node.after.clone());
            let work = match &node.conditional {
                Some(conditional) => self.conditional_work(conditional)?,
                None => node.work.clone(),
            };
            if let Work::Task(task) = &work {
                self.can_be_executable(&**task)?;
            }
            into.push(Step { node: handle, kind, work, after, depth, enabled: true });
            if let Some(child) = node.child {
                self.steps(child, depth + 1, into)?;
            }
        }
        Ok(())
    }

    /// User objects of a graph and of the child graphs in it.
    fn held(&self, graph: Handle, into: &mut Vec<(Handle, u32)>) {
        let Some(graph) = self.graphs.graphs.peek(graph) else { return };
        into.extend(&graph.held);
        for node in &graph.nodes {
            if let Some(child) = self.graphs.nodes.peek(*node).and_then(|node| node.child) {
                self.held(child, into);
            }
        }
    }

    /// Makes a graph executable.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a graph that is none, or that has a cycle; what capture refuses.
    pub fn instantiate(&mut self, graph: Handle, flags: u64) -> Answer<Handle> {
        use CUgraphInstantiate_flags as Flags;
        self.here()?;
        self.potentially_unsafe()?;
        let known = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0
            | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0
            | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0
            | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        if flags & !u64::from(known) != 0 {
            return Err(INVALID_VALUE);
        }
        if flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0 {
            report::unsupported(format!("{}: launching graphs from kernels is not simulated", thread::place()));
            return Err(NOT_SUPPORTED);
        }
        if self.graphs.graphs.get(graph, INVALID_VALUE)?.capturing {
            return Err(INVALID_VALUE);
        }
        let (mut steps, mut held) = (Vec::new(), Vec::new());
        self.steps(graph, 0, &mut steps)?;
        self.held(graph, &mut held);
        for (object, count) in &held {
            self.graphs.user_objects.get_mut(*object, INVALID_VALUE)?.references += count;
        }
        let mut conditions = Vec::new();
        self.conditions(graph, &mut conditions);
        let reset = (!conditions.is_empty()).then(|| Work::Task(Arc::new(condition::Reset(conditions))));
        self.graphs.execs.insert(Exec { flags, steps, held, reset, last: None })
    }

    /// Puts an executable graph's nodes into a stream.
    ///
    /// # Errors
    /// A fault that sticks; what a node's own call would refuse.
    fn launch_graph(&mut self, handle: Handle, at: &At) -> Answer {
        let exec = self.graphs.execs.get(handle, INVALID_VALUE)?;
        let (last, flags, reset) = (exec.last, exec.flags, exec.reset.clone().unwrap_or(Work::Nothing));
        let order = match self.engine.random() {
            // With a seed one thing is done at a time: the order is drawn here.
            Some(random) => shuffled(&exec.steps, random),
            None => (0..exec.steps.len()).collect(),
        };
        let steps = exec.steps.clone();
        crate::memory::graph_launch(self, handle, flags)?;
        let mut after = self.before(at);
        after.extend(last);
        let start = self.push(at.queue, &after, reset)?;
        let end = self.run_steps(at, &steps, &order, start)?;
        self.graphs.execs.get_mut(handle, INVALID_VALUE)?.last = Some(end);
        Ok(())
    }
}

/// Another order of the steps that satisfies the dependencies, drawn at random. Child graphs stay in one piece.
fn shuffled(steps: &[Step], random: &mut Random) -> Vec<usize> {
    let tops: Vec<usize> = (0..steps.len()).filter(|at| steps[*at].depth == 0).collect();
    let mut left = tops.clone();
    let mut done: HashSet<Handle> = HashSet::new();
    let mut order = Vec::with_capacity(steps.len());
    while !left.is_empty() {
        let ready = |at: &usize| steps[left[*at]].after.iter().all(|node| done.contains(node));
        let ready: Vec<usize> = (0..left.len()).filter(ready).collect();
        // The steps stand in an order that satisfies the dependencies, so that one is always ready.
        let top = left.remove(ready.get(random.below(ready.len())).copied().unwrap_or(0));
        done.insert(steps[top].node);
        let end = tops.iter().copied().find(|next| *next > top).unwrap_or(steps.len());
        order.extend(top..end);
    }
    order
}

fn instantiate(out: &Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Answer {
    out.check()?;
    let exec = state::lock()?.instantiate(Handle::of(graph), flags)?;
    out.write(exec.raw())
}

fn with_log(out: &Out<CUgraphExec>, graph: CUgraph, node: &Out<CUgraphNode>, log: &Out<c_char>, room: usize) -> Answer {
    node.write_if_wanted(std::ptr::null_mut());
    if !log.is_null() && room > 0 {
        log.write_text("", room)?;
    }
    instantiate(out, graph, 0)
}

pub fn cuGraphInstantiate(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    log: Out<c_char>,
    room: usize,
) -> Answer {
    with_log(&out, graph, &node, &log, room)
}

pub fn cuGraphInstantiate_v2(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    log: Out<c_char>,
    room: usize,
) -> Answer {
    with_log(&out, graph, &node, &log, room)
}

pub fn cuGraphInstantiateWithFlags(out: Out<CUgraphExec>, graph: CUgraph, flags: c_ulonglong) -> Answer {
    instantiate(&out, graph, flags)
}

pub fn cuGraphInstantiateWithParams(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    let mut asked = params.read()?;
    let answer = instantiate(&out, graph, asked.flags);
    asked.hErrNode_out = std::ptr::null_mut();
    asked.result_out = match answer {
        Ok(()) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        Err(INVALID_VALUE) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
        Err(_) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR,
    };
    params.write(asked)?;
    answer
}

pub fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.not_lost(at.context)?;
    state.graphs.execs.get(Handle::of(exec), INVALID_VALUE).map(drop)
}

pub fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.not_lost(at.context)?;
    state.asked_in_capture(&at)?;
    state.launch_graph(Handle::of(exec), &at)
}

pub fn cuGraphExecDestroy(exec: CUgraphExec) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(exec);
    state.graphs.execs.get(handle, INVALID_VALUE)?;
    state.potentially_unsafe()?;
    let exec = state.graphs.execs.remove(handle, INVALID_VALUE, INVALID_VALUE)?;
    crate::memory::graph_exec_ended(&mut state, handle);
    let pending = exec.last.filter(|last| !state.engine.reached(*last));
    let Some(last) = pending.filter(|_| !exec.held.is_empty()) else {
        return exec.held.into_iter().try_for_each(|(object, count)| state.release_object(object, count));
    };
    // What the graph holds stays until its last launch is done.
    let queue = state.engine.open(Handle::NULL, 0, 0);
    state.push(queue, &[last], Work::Task(Arc::new(Release(exec.held))))?;
    state.engine.close(queue);
    Ok(())
}

/// Gives up what an executable graph held.
struct Release(Vec<(Handle, u32)>);

impl Task for Release {
    fn run(&self, _job: &Job) -> Result<(), Failure> {
        if let Ok(mut state) = state::lock() {
            for (object, count) in &self.0 {
                let released = state.release_object(*object, *count);
                debug_assert!(released.is_ok(), "the graph's own references are still there");
            }
        }
        Ok(())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Empty
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub fn cuGraphExecGetFlags(exec: CUgraphExec, flags: Out<cuuint64_t>) -> Answer {
    let state = state::lock()?;
    flags.write(state.graphs.execs.get(Handle::of(exec), INVALID_VALUE)?.flags)
}

/// Gives an executable graph the parameters of a graph of the same shape.
fn update(exec: CUgraphExec, graph: CUgraph) -> Answer<CUgraphExecUpdateResult> {
    let mut state = state::lock()?;
    state.graphs.execs.get(Handle::of(exec), INVALID_VALUE)?;
    state.graphs.graphs.get(Handle::of(graph), INVALID_VALUE)?;
    let mut new = Vec::new();
    state.steps(Handle::of(graph), 0, &mut new)?;
    let exec = state.graphs.execs.get_mut(Handle::of(exec), INVALID_VALUE)?;
    // Nodes correspond by their order; their edges must, too.
    let place = |steps: &[Step], node: &Handle| steps.iter().position(|step| step.node == *node);
    let edges = |steps: &[Step], step: &Step| {
        let mut places: Vec<_> = step.after.iter().map(|node| place(steps, node)).collect();
        places.sort_unstable();
        places
    };
    if new.len() != exec.steps.len() {
        return Ok(CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    }
    for (old, step) in exec.steps.iter().zip(&new) {
        if old.kind != step.kind {
            return Ok(CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        }
        if old.depth != step.depth || edges(&exec.steps, old) != edges(&new, step) {
            return Ok(CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        }
    }
    for (old, step) in exec.steps.iter_mut().zip(new) {
        old.work = step.work;
    }
    Ok(CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS)
}

fn updated(result: CUgraphExecUpdateResult) -> Answer {
    if result == CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS {
        Ok(())
    } else {
        Err(GRAPH_EXEC_UPDATE_FAILURE)
    }
}

pub fn cuGraphExecUpdate(
    exec: CUgraphExec,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    out: Out<CUgraphExecUpdateResult>,
) -> Answer {
    let result = update(exec, graph)?;
    node.write_if_wanted(std::ptr::null_mut());
    out.write_if_wanted(result);
    updated(result)
}

pub fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>) -> Answer {
    info.check()?;
    let result = update(exec, graph)?;
    let null = std::ptr::null_mut();
    info.write(CUgraphExecUpdateResultInfo { result, errorNode: null, errorFromNode: null })?;
    updated(result)
}

/// Gives the step of a node other work of the same kind.
pub(super) fn change(exec: CUgraphExec, node: CUgraphNode, kind: NodeKind, work: Work) -> Answer {
    let mut state = state::lock()?;
    let exec = state.graphs.execs.get_mut(Handle::of(exec), INVALID_VALUE)?;
    let step = exec.steps.iter_mut().find(|step| step.node == Handle::of(node) && step.kind == kind);
    step.ok_or(INVALID_VALUE)?.work = work;
    Ok(())
}

pub fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) -> Answer {
    let params = params.read()?;
    let function = HostFunction::new(params.fn_, Untyped::from(params.userData))?;
    change(exec, node, NodeKind::Host, Work::Host(function))
}

pub fn cuGraphExecMemsetNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    ctx: CUcontext,
) -> Answer {
    let work = {
        let state = state::lock()?;
        state.context(Handle::of(ctx))?;
        data::fill_work(&state, &params.read()?)?
    };
    change(exec, node, NodeKind::Fill, work)
}

pub fn cuGraphExecMemcpyNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMCPY3D>,
    ctx: CUcontext,
) -> Answer {
    let work = {
        let state = state::lock()?;
        state.context(Handle::of(ctx))?;
        data::copy_work(&state, &params.read()?)?
    };
    change(exec, node, NodeKind::Copy, work)
}

pub fn cuGraphExecKernelNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    kernel::set_exec_v1(exec, node, params)
}

pub fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS_v2>,
) -> Answer {
    kernel::set_exec_v2(exec, node, params)
}

pub fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<CUgraphNodeParams>) -> Answer {
    generic::set_exec(exec, node, params)
}

fn known_event(event: CUevent) -> Answer<Handle> {
    let event = Handle::of(event);
    state::lock()?.events.get(event, INVALID_HANDLE)?;
    Ok(event)
}

pub fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
    let event = known_event(event)?;
    change(exec, node, NodeKind::RecordEvent, Work::Record { event, serial: 0 })
}

pub fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
    let event = known_event(event)?;
    change(exec, node, NodeKind::WaitEvent, Work::Wait { event })
}
