//! Nodes of graphs.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraph,
    CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType,
};

/// `cuGraphAddChildGraphNode`: a copy of `child` as one node.
pub fn add_child_graph(graph: CUgraph, after: &[CUgraphNode], child: CUgraph) -> Result<CUgraphNode> {
    let mut node = std::ptr::null_mut();
    driver_call!(
        entry!(cuGraphAddChildGraphNode),
        (&raw mut node, graph, after.as_ptr(), after.len(), child),
        "graph {graph:p}, child {child:p}"
    )?;
    Ok(node)
}

/// `cuGraphAddNode_v2`, a conditional node: the node, and its `count` body graphs, which belong to the node. `edges`
/// is empty where all dependencies are ordinary.
pub fn add_conditional(
    graph: CUgraph,
    after: &[CUgraphNode],
    edges: &[CUgraphEdgeData],
    condition: CUgraphConditionalHandle,
    kind: CUgraphConditionalNodeType,
    count: u32,
    context: CUcontext,
) -> Result<(CUgraphNode, Vec<CUgraph>)> {
    let mut node = std::ptr::null_mut();
    let mut params =
        CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL, ..CUgraphNodeParams::default() };
    params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
        handle: condition,
        type_: kind,
        size: count,
        phGraph_out: std::ptr::null_mut(),
        ctx: context,
    };
    let data = if edges.len() == after.len() && !edges.is_empty() { edges.as_ptr() } else { std::ptr::null() };
    driver_call!(
        entry!(cuGraphAddNode_v2),
        (&raw mut node, graph, after.as_ptr(), data, after.len(), &raw mut params),
        "graph {graph:p}, condition {condition:#x}, type {}, {count} bodies",
        kind.0
    )?;
    // SAFETY: [conditional-bodies] the driver wrote the conditional member of the union: the address of its own list of
    // `count` graphs.
    let bodies = unsafe {
        let list = params.__bindgen_anon_1.conditional.phGraph_out;
        let count = usize::try_from(count).unwrap_or(0);
        if list.is_null() { Vec::new() } else { std::slice::from_raw_parts(list, count).to_vec() }
    };
    Ok((node, bodies))
}

/// `cuGraphConditionalHandleCreate`: with a `default`, the condition has that value at the start of every launch.
pub fn conditional_handle_create(
    graph: CUgraph,
    context: CUcontext,
    default: Option<u32>,
) -> Result<CUgraphConditionalHandle> {
    const ASSIGN_DEFAULT: u32 = 1;
    let mut handle = 0;
    let flags = if default.is_some() { ASSIGN_DEFAULT } else { 0 };
    driver_call!(
        entry!(cuGraphConditionalHandleCreate),
        (&raw mut handle, graph, context, default.unwrap_or(0), flags),
        "graph {graph:p}"
    )?;
    Ok(handle)
}

/// `cuGraphGetNodes`
pub fn get_nodes(graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    let ask = |nodes: *mut CUgraphNode, count: *mut usize| {
        driver_call!(entry!(cuGraphGetNodes), (graph, nodes, count), "graph {graph:p}")
    };
    let mut count = 0;
    ask(std::ptr::null_mut(), &raw mut count)?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    if count > 0 {
        ask(nodes.as_mut_ptr(), &raw mut count)?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

/// `cuGraphNodeGetType`
pub fn get_type(node: CUgraphNode) -> Result<CUgraphNodeType> {
    let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    driver_call!(entry!(cuGraphNodeGetType), (node, &raw mut kind), "node {node:p}")?;
    Ok(kind)
}

/// `cuGraphKernelNodeGetParams_v2`
pub fn kernel_get_params(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let mut params = CUDA_KERNEL_NODE_PARAMS::default();
    driver_call!(entry!(cuGraphKernelNodeGetParams_v2), (node, &raw mut params), "node {node:p}")?;
    Ok(params)
}

/// `cuGraphMemsetNodeGetParams`
pub fn memset_get_params(node: CUgraphNode) -> Result<CUDA_MEMSET_NODE_PARAMS> {
    let mut params = CUDA_MEMSET_NODE_PARAMS::default();
    driver_call!(entry!(cuGraphMemsetNodeGetParams), (node, &raw mut params), "node {node:p}")?;
    Ok(params)
}

/// `cuGraphChildGraphNodeGetGraph`: it belongs to the node.
pub fn child_get_graph(node: CUgraphNode) -> Result<CUgraph> {
    let mut graph = std::ptr::null_mut();
    driver_call!(entry!(cuGraphChildGraphNodeGetGraph), (node, &raw mut graph), "node {node:p}")?;
    Ok(graph)
}
