//! Nodes that copy, fill and free.

use super::{add, change};
use crate::c::{In, Out, device_location};
use crate::handle::Handle;
use crate::memory::buffer::{Copy, Fill, copy_3d};
use crate::memory::pool::{Allocate, Free};
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::task::{NodeKind, Work};
use cuirass_sys::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUgraph, CUgraphNode,
    CUmemAllocationType, CUmemPoolProps, CUmemorytype,
};
use std::sync::Arc;

/// Work on a node's own type of task.
pub(super) fn with_task<T: 'static, R>(node: CUgraphNode, read: impl FnOnce(&T) -> R) -> Answer<R> {
    let state = state::lock()?;
    match &state.graphs.nodes.get(Handle::of(node), INVALID_VALUE)?.work {
        Work::Task(task) => task.as_any().downcast_ref::<T>().map(read).ok_or(INVALID_VALUE),
        _ => Err(INVALID_VALUE),
    }
}

pub(in super::super) fn fill_work(state: &State, params: &CUDA_MEMSET_NODE_PARAMS) -> Answer<Work> {
    let size = (params.width as u64, params.height as u64);
    if size.0 == 0 || size.1 == 0 {
        return Err(INVALID_VALUE);
    }
    let fill = Fill::new(state, params.dst, params.pitch as u64, params.value, u64::from(params.elementSize), size)?;
    Ok(Work::Task(Arc::new(fill)))
}

pub(in super::super) fn copy_work(state: &State, params: &CUDA_MEMCPY3D) -> Answer<Work> {
    Ok(match copy_3d(state, params)? {
        Some(copy) => Work::Task(Arc::new(copy)),
        None => Work::Nothing,
    })
}

pub fn cuGraphAddMemsetNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    ctx: CUcontext,
) -> Answer {
    let mut state = state::lock()?;
    state.context(Handle::of(ctx))?;
    let work = fill_work(&state, &params.read()?)?;
    add(&mut state, &out, graph, dependencies, count, NodeKind::Fill, work).map(drop)
}

pub fn cuGraphMemsetNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEMSET_NODE_PARAMS>) -> Answer {
    params.write(with_task(node, |fill: &Fill| CUDA_MEMSET_NODE_PARAMS {
        dst: fill.to.address,
        pitch: fill.pitch as usize,
        value: fill.value,
        elementSize: fill.element as u32,
        width: fill.width as usize,
        height: fill.height as usize,
    })?)
}

pub fn cuGraphMemsetNodeSetParams(node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) -> Answer {
    let work = fill_work(&*state::lock()?, &params.read()?)?;
    change(node, NodeKind::Fill, work)
}

pub fn cuGraphAddMemcpyNode(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMCPY3D>,
    ctx: CUcontext,
) -> Answer {
    let mut state = state::lock()?;
    state.context(Handle::of(ctx))?;
    let work = copy_work(&state, &params.read()?)?;
    add(&mut state, &out, graph, dependencies, count, NodeKind::Copy, work).map(drop)
}

pub fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEMCPY3D>) -> Answer {
    let rows = |slice: u64, pitch: u64| slice.checked_div(pitch).unwrap_or(0) as usize;
    params.write(with_task(node, |copy: &Copy| CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcDevice: copy.from.address,
        srcPitch: copy.layout.from_pitch as usize,
        srcHeight: rows(copy.layout.from_slice, copy.layout.from_pitch),
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstDevice: copy.to.address,
        dstPitch: copy.layout.to_pitch as usize,
        dstHeight: rows(copy.layout.to_slice, copy.layout.to_pitch),
        WidthInBytes: copy.layout.width as usize,
        Height: copy.layout.height as usize,
        Depth: copy.layout.depth as usize,
        ..CUDA_MEMCPY3D::default()
    })?)
}

pub fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: In<CUDA_MEMCPY3D>) -> Answer {
    let work = copy_work(&*state::lock()?, &params.read()?)?;
    change(node, NodeKind::Copy, work)
}

pub fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: Out<CUdeviceptr>) -> Answer {
    address.write(with_task(node, |free: &Free| free.start)?)
}

pub fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) -> Answer {
    let (start, len) = with_task(node, |allocate: &Allocate| (allocate.start(), allocate.len()))?;
    let device = state::lock()?.memory.at(start).and_then(|memory| memory.device).unwrap_or(0);
    let pool = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: device_location(device),
        ..CUmemPoolProps::default()
    };
    params.write(CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: pool,
        bytesize: len as usize,
        dptr: start,
        ..CUDA_MEM_ALLOC_NODE_PARAMS::default()
    })
}
