//! Nodes that launch kernels.

use super::data::with_task;
use super::{add, change};
use crate::c::{In, Out, pointers};
use crate::graph::exec;
use crate::handle::{Handle, Kind};
use crate::launch::KernelTask;
use crate::state::{self, State};
use crate::status::Answer;
use crate::task::{NodeKind, Work};
use cuirass_sys::cuda::{
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_KERNEL_NODE_PARAMS_v3, CUgraph, CUgraphExec,
    CUgraphNode,
};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

/// A node's work, in the context that the parameters name or else in the current one.
pub(super) fn work(state: &mut State, params: &CUDA_KERNEL_NODE_PARAMS_v3) -> Answer<Work> {
    let context = if params.ctx.is_null() { state.here()? } else { Handle::of(params.ctx) };
    state.context(context)?;
    let task = state.kernel_task(context, &second(params))?;
    Ok(Work::Task(Arc::new(task)))
}

fn second(params: &CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: params.kern,
        ctx: params.ctx,
    }
}

/// The versions of the structure, as the newest one.
trait Params {
    fn newest(&self) -> CUDA_KERNEL_NODE_PARAMS_v3;
}

impl Params for CUDA_KERNEL_NODE_PARAMS_v1 {
    fn newest(&self) -> CUDA_KERNEL_NODE_PARAMS_v3 {
        CUDA_KERNEL_NODE_PARAMS_v3 {
            func: self.func,
            gridDimX: self.gridDimX,
            gridDimY: self.gridDimY,
            gridDimZ: self.gridDimZ,
            blockDimX: self.blockDimX,
            blockDimY: self.blockDimY,
            blockDimZ: self.blockDimZ,
            sharedMemBytes: self.sharedMemBytes,
            kernelParams: self.kernelParams,
            extra: self.extra,
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        }
    }
}

impl Params for CUDA_KERNEL_NODE_PARAMS_v2 {
    fn newest(&self) -> CUDA_KERNEL_NODE_PARAMS_v3 {
        CUDA_KERNEL_NODE_PARAMS_v3 {
            func: self.func,
            gridDimX: self.gridDimX,
            gridDimY: self.gridDimY,
            gridDimZ: self.gridDimZ,
            blockDimX: self.blockDimX,
            blockDimY: self.blockDimY,
            blockDimZ: self.blockDimZ,
            sharedMemBytes: self.sharedMemBytes,
            kernelParams: self.kernelParams,
            extra: self.extra,
            kern: self.kern,
            ctx: self.ctx,
        }
    }
}

fn add_node<P: Params + Copy>(
    out: &Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: In<P>,
) -> Answer {
    let params = params.read()?.newest();
    let mut state = state::lock()?;
    let work = work(&mut state, &params)?;
    add(&mut state, out, graph, dependencies, count, NodeKind::Kernel, work).map(drop)
}

pub fn cuGraphAddKernelNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    add_node(&out, graph, dependencies, count, params)
}

pub fn cuGraphAddKernelNode_v2(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS_v2>,
) -> Answer {
    add_node(&out, graph, dependencies, count, params)
}

/// Parameter values and pointers to them, lent to the calling thread until it asks for a kernel node's again.
fn lend(task: &KernelTask) -> *mut *mut c_void {
    type Lent = (Vec<u8>, Vec<*mut c_void>);
    thread_local! {
        static LENT: RefCell<Lent> = const { RefCell::new((Vec::new(), Vec::new())) };
    }
    let offsets: Vec<usize> = task.callable.kernel.params().iter().map(|param| param.offset as usize).collect();
    let lent = LENT.try_with(|lent| {
        let mut lent = lent.borrow_mut();
        lent.0 = task.params.to_vec();
        lent.1 = pointers(&mut lent.0, &offsets);
        lent.1.as_mut_ptr()
    });
    lent.unwrap_or(std::ptr::null_mut())
}

fn params_of(node: CUgraphNode) -> Answer<CUDA_KERNEL_NODE_PARAMS_v3> {
    with_task(node, |task: &KernelTask| {
        let null = Handle::NULL;
        let (func, kern) = if task.function.is(Kind::Kernel) { (null, task.function) } else { (task.function, null) };
        CUDA_KERNEL_NODE_PARAMS_v3 {
            func: func.raw(),
            gridDimX: task.grid[0],
            gridDimY: task.grid[1],
            gridDimZ: task.grid[2],
            blockDimX: task.block[0],
            blockDimY: task.block[1],
            blockDimZ: task.block[2],
            sharedMemBytes: task.shared,
            kernelParams: lend(task),
            extra: std::ptr::null_mut(),
            kern: kern.raw(),
            ctx: std::ptr::null_mut(),
        }
    })
}

pub fn cuGraphKernelNodeGetParams(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    params.check()?;
    let found = params_of(node)?;
    params.write(CUDA_KERNEL_NODE_PARAMS_v1 {
        func: if found.func.is_null() { Handle::of(found.kern).raw() } else { found.func },
        gridDimX: found.gridDimX,
        gridDimY: found.gridDimY,
        gridDimZ: found.gridDimZ,
        blockDimX: found.blockDimX,
        blockDimY: found.blockDimY,
        blockDimZ: found.blockDimZ,
        sharedMemBytes: found.sharedMemBytes,
        kernelParams: found.kernelParams,
        extra: found.extra,
    })
}

pub fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v2>) -> Answer {
    params.check()?;
    params.write(second(&params_of(node)?))
}

fn set<P: Params + Copy>(node: CUgraphNode, params: In<P>) -> Answer {
    let work = work(&mut *state::lock()?, &params.read()?.newest())?;
    change(node, NodeKind::Kernel, work)
}

pub fn cuGraphKernelNodeSetParams(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Answer {
    set(node, params)
}

pub fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v2>) -> Answer {
    set(node, params)
}

fn set_exec<P: Params + Copy>(graph: CUgraphExec, node: CUgraphNode, params: In<P>) -> Answer {
    let work = work(&mut *state::lock()?, &params.read()?.newest())?;
    exec::change(graph, node, NodeKind::Kernel, work)
}

pub(in super::super) fn set_exec_v1(
    graph: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    set_exec(graph, node, params)
}

pub(in super::super) fn set_exec_v2(
    graph: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS_v2>,
) -> Answer {
    set_exec(graph, node, params)
}
