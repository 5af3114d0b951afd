//! Graphs.

use crate::Result;
use crate::load;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUgraph, CUgraphEdgeData, CUgraphNode};
use std::ffi::CStr;

/// `cuGraphDestroy`
pub fn destroy(graph: CUgraph) -> Result<()> {
    driver_call!(entry!(cuGraphDestroy), (graph), "{graph:p}")
}

/// `cuGraphDebugDotPrint`: writes a picture of it to a file.
pub fn debug_dot_print(graph: CUgraph, path: &CStr, flags: u32) -> Result<()> {
    driver_call!(
        entry!(cuGraphDebugDotPrint),
        (graph, path.as_ptr(), flags),
        "graph {graph:p}, {}, flags {flags:#x}",
        path.to_string_lossy()
    )
}

/// `cuGraphGetEdges_v2` (before CUDA 12.3 `cuGraphGetEdges`): the pairs of nodes of which the second waits for the
/// first.
pub fn get_edges(graph: CUgraph) -> Result<Vec<(CUgraphNode, CUgraphNode)>> {
    let newest = load::is_since(12030);
    let ask = |from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize| {
        if newest {
            driver_call!(entry!(cuGraphGetEdges_v2), (graph, from, to, data, count), "graph {graph:p}")
        } else {
            driver_call!(entry!(cuGraphGetEdges), (graph, from, to, count), "graph {graph:p}")
        }
    };
    let mut count = 0;
    ask(std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), &raw mut count)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let (mut from, mut to) = (vec![std::ptr::null_mut(); count], vec![std::ptr::null_mut(); count]);
    let mut data = vec![CUgraphEdgeData::default(); count];
    ask(from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &raw mut count)?;
    Ok(from.into_iter().zip(to).take(count).collect())
}
