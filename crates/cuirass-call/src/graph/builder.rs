//! Stream capture.

use crate::Result;
use crate::load;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};
use std::ptr::null_mut;

/// `cuStreamBeginCapture_v2`
pub fn stream_begin_capture(stream: CUstream, mode: CUstreamCaptureMode) -> Result<()> {
    driver_call!(entry!(cuStreamBeginCapture_v2), (stream, mode), "stream {stream:p}, mode {}", mode.0)
}

/// `cuStreamBeginCaptureToGraph`, after no node of the graph: what the stream captures is added to it.
pub fn stream_begin_capture_to_graph(stream: CUstream, graph: CUgraph, mode: CUstreamCaptureMode) -> Result<()> {
    let none = std::ptr::null();
    driver_call!(
        entry!(cuStreamBeginCaptureToGraph),
        (stream, graph, none, none.cast(), 0, mode),
        "stream {stream:p}, graph {graph:p}, mode {}",
        mode.0
    )
}

/// `cuStreamEndCapture`: the captured graph, which the caller then owns.
pub fn stream_end_capture(stream: CUstream) -> Result<CUgraph> {
    let mut graph = std::ptr::null_mut();
    driver_call!(entry!(cuStreamEndCapture), (stream, &raw mut graph), "stream {stream:p}")?;
    Ok(graph)
}

/// `cuStreamIsCapturing`
pub fn stream_is_capturing(stream: CUstream) -> Result<CUstreamCaptureStatus> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    driver_call!(entry!(cuStreamIsCapturing), (stream, &raw mut status), "stream {stream:p}")?;
    Ok(status)
}

/// What a stream's capture is like.
pub struct CaptureInfo {
    /// Whether the stream is being captured. The rest is there only while the capture is active.
    pub status: CUstreamCaptureStatus,
    /// The number of the capture, which no other capture of the process ever has.
    pub id: u64,
    /// The graph that it adds to.
    pub graph: CUgraph,
    /// What the next node will depend on.
    pub dependencies: Vec<CUgraphNode>,
    /// The kinds of these dependencies; empty where all are ordinary.
    pub edges: Vec<CUgraphEdgeData>,
}

/// As the driver answers: its lists are read before the next call on the stream.
struct RawInfo {
    status: CUstreamCaptureStatus,
    id: u64,
    graph: CUgraph,
    count: usize,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
}

/// Asked for all, or for status and number alone: the driver then makes no list of dependencies.
#[inline]
fn raw_info(stream: CUstream, all: bool) -> Result<RawInfo> {
    let mut info = RawInfo {
        status: CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        id: 0,
        graph: null_mut(),
        count: 0,
        nodes: std::ptr::null(),
        edges: std::ptr::null(),
    };
    let (mut graph, mut nodes, mut edges, mut count) = (null_mut(), null_mut(), null_mut(), null_mut());
    if all {
        (graph, nodes, edges, count) =
            (&raw mut info.graph, &raw mut info.nodes, &raw mut info.edges, &raw mut info.count);
    }
    let (status, id) = (&raw mut info.status, &raw mut info.id);
    if load::is_since(12030) {
        driver_call!(
            entry!(cuStreamGetCaptureInfo_v3),
            (stream, status, id, graph, nodes, edges, count),
            "stream {stream:p}"
        )?;
    } else {
        driver_call!(
            entry!(cuStreamGetCaptureInfo_v2),
            (stream, status, id, graph, nodes, count),
            "stream {stream:p}"
        )?;
    }
    Ok(info)
}

/// `cuStreamGetCaptureInfo_v3` (before CUDA 12.3 `cuStreamGetCaptureInfo_v2`): the capture's status, and its number.
pub fn stream_get_capture_id(stream: CUstream) -> Result<(CUstreamCaptureStatus, u64)> {
    raw_info(stream, false).map(|info| (info.status, info.id))
}

/// As [`stream_get_capture_id`], with all that there is to know.
pub fn stream_get_capture_info(stream: CUstream) -> Result<CaptureInfo> {
    let RawInfo { status, id, graph, count, nodes, edges } = raw_info(stream, true)?;
    let mut info = CaptureInfo { status, id, graph, dependencies: Vec::new(), edges: Vec::new() };
    if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE && count > 0 && !nodes.is_null() {
        // SAFETY: [capture-dependencies] the driver's own list of `count` nodes, read before the next call on the stream.
        info.dependencies = unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec();
        if !edges.is_null() {
            // SAFETY: [capture-dependencies] as above, of `count` edges.
            info.edges = unsafe { std::slice::from_raw_parts(edges, count) }.to_vec();
        }
    }
    Ok(info)
}

/// `cuStreamUpdateCaptureDependencies_v2` (before CUDA 12.3 without its suffix): what the stream captures next comes
/// after `node`, and nothing else.
pub fn stream_set_capture_dependency(stream: CUstream, node: CUgraphNode) -> Result<()> {
    const SET: u32 = 1;
    let mut nodes = [node];
    if load::is_since(12030) {
        driver_call!(
            entry!(cuStreamUpdateCaptureDependencies_v2),
            (stream, nodes.as_mut_ptr(), std::ptr::null(), 1, SET),
            "stream {stream:p}, node {node:p}"
        )
    } else {
        driver_call!(
            entry!(cuStreamUpdateCaptureDependencies),
            (stream, nodes.as_mut_ptr(), 1, SET),
            "stream {stream:p}, node {node:p}"
        )
    }
}
