//! The calls of stream capture.

use super::{Capture, Capturing, NodeSet, condition};
use crate::c::{In, Out};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{
    Answer, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNJOINED, STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD,
};
use crate::stream::{At, StreamKind};
use crate::{report, thread};
use cuirass_sys::cuda::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags, cuuint64_t,
};
use std::collections::HashSet;
use std::ffi::c_uint;

fn begin(stream: CUstream, mode: CUstreamCaptureMode, into: Option<(Handle, NodeSet)>) -> Answer {
    if mode.0 > CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.not_lost(at.context)?;
    if at.kind == StreamKind::Legacy {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    if state.is_captured(&at) {
        return Err(ILLEGAL_STATE);
    }
    let borrowed = into.is_some();
    let (graph, last) = match into {
        Some((graph, last)) => {
            let known = state.graphs.graphs.get(graph, INVALID_VALUE)?;
            if known.capturing {
                return Err(ILLEGAL_STATE);
            }
            for node in &last {
                if state.graphs.nodes.get(*node, INVALID_VALUE)?.graph != graph {
                    return Err(INVALID_VALUE);
                }
            }
            (graph, last)
        }
        None => (state.graphs.graphs.insert(super::Graph::default())?, NodeSet::new()),
    };
    state.graphs.graphs.get_mut(graph, INVALID_VALUE)?.capturing = true;
    let id = state.new_id();
    let capture = Capture {
        mode,
        thread: thread::id(),
        context: at.context,
        origin: at.stream,
        streams: vec![at.stream],
        graph,
        borrowed,
        invalid: false,
        poisoned: false,
        id,
    };
    let capture = state.graphs.captures.insert(capture)?;
    state.streams.get_mut(at.stream, INVALID_HANDLE)?.capture = Some(Capturing { capture, last });
    Ok(())
}

pub fn cuStreamBeginCapture(stream: CUstream) -> Answer {
    begin(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL, None)
}

pub fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> Answer {
    begin(stream, mode, None)
}

pub fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Answer {
    plain_edges(edges, count)?;
    let last = dependencies.read_many(count)?.into_iter().map(Handle::of).collect();
    begin(stream, mode, Some((Handle::of(graph), last)))
}

/// Edges with ports or types are not simulated; all zero is an ordinary edge.
pub(super) fn plain_edges(edges: In<CUgraphEdgeData>, count: usize) -> Answer {
    if edges.is_null() {
        return Ok(());
    }
    let plain = |edge: &CUgraphEdgeData| edge.from_port == 0 && edge.to_port == 0 && edge.type_ == 0;
    if edges.read_many(count)?.iter().all(plain) {
        return Ok(());
    }
    report::unsupported(format!("{}: edges with ports or types are not simulated", thread::place()));
    Err(NOT_SUPPORTED)
}

/// Whether all nodes of the capture come before what the origin stream would add next.
fn joined(state: &State, capture: &Capture, origin: &NodeSet) -> bool {
    let mut before: HashSet<Handle> = HashSet::new();
    let mut ahead: Vec<Handle> = origin.to_vec();
    while let Some(node) = ahead.pop() {
        if before.insert(node)
            && let Some(node) = state.graphs.nodes.peek(node)
        {
            ahead.extend(&node.after);
        }
    }
    capture.streams.iter().all(|stream| {
        let capturing = state.streams.peek(*stream).and_then(|stream| stream.capture.as_ref());
        capturing.is_none_or(|capturing| capturing.last.iter().all(|node| before.contains(node)))
    })
}

pub fn cuStreamEndCapture(stream: CUstream, out: Out<CUgraph>) -> Answer {
    out.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let Some(handle) = state.capture_of(&at) else {
        state.implicit_in_capture(&at)?;
        return Err(ILLEGAL_STATE);
    };
    let capture = state.graphs.captures.get(handle, INVALID_HANDLE)?;
    let refused = if capture.origin != at.stream {
        state.invalidate(handle);
        return Err(STREAM_CAPTURE_UNMATCHED);
    } else if capture.mode != CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != thread::id() {
        Some(STREAM_CAPTURE_WRONG_THREAD)
    } else if capture.invalid {
        Some(STREAM_CAPTURE_INVALIDATED)
    } else {
        let capturing = state.streams.peek(at.stream).and_then(|stream| stream.capture.as_ref());
        let whole = capturing.is_some_and(|capturing| joined(&state, capture, &capturing.last));
        if whole { None } else { Some(STREAM_CAPTURE_UNJOINED) }
    };
    if let Some(status) = refused {
        if capture.poisoned {
            condition::poisoned("a spoilt capture was ended");
        } else if capture.invalid {
            state.poison_related(handle);
        }
        state.drop_capture(handle);
        out.write(Handle::NULL.raw())?;
        return Err(status);
    }
    let graph = state.end_capture(handle, INVALID_HANDLE).map(|capture| capture.graph);
    out.write(graph.unwrap_or(Handle::NULL).raw())
}

/// The capture status of a stream, and the capture if there is a good one.
fn status(state: &State, at: &At) -> Answer<(CUstreamCaptureStatus, Option<Handle>)> {
    let Some(handle) = state.capture_of(at) else {
        if state.is_implied(at) {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        return Ok((CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, None));
    };
    if state.graphs.captures.get(handle, INVALID_HANDLE)?.invalid {
        return Ok((CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED, None));
    }
    Ok((CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, Some(handle)))
}

pub fn cuStreamIsCapturing(stream: CUstream, out: Out<CUstreamCaptureStatus>) -> Answer {
    out.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    out.write(status(&state, &at)?.0)
}

fn info(
    stream: CUstream,
    out: &Out<CUstreamCaptureStatus>,
    id: &Out<cuuint64_t>,
) -> Answer<Option<(Handle, Vec<CUgraphNode>)>> {
    out.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let (status, capture) = status(&state, &at)?;
    out.write(status)?;
    let Some(handle) = capture else { return Ok(None) };
    let capture = state.graphs.captures.get(handle, INVALID_HANDLE)?;
    id.write_if_wanted(capture.id);
    let stream = state.streams.get(at.stream, INVALID_HANDLE)?;
    let last = stream.capture.iter().flat_map(|capturing| capturing.last.iter().map(|node| node.raw()));
    Ok(Some((capture.graph, last.collect())))
}

pub fn cuStreamGetCaptureInfo(stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<cuuint64_t>) -> Answer {
    info(stream, &status, &id).map(drop)
}

/// The nodes that the next one will depend on, in memory that lives until the thread asks again.
fn lend(nodes: Vec<CUgraphNode>, out: &Out<*const CUgraphNode>) {
    thread_local! {
        static LENT: std::cell::RefCell<Vec<CUgraphNode>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let lent = LENT.try_with(|lent| {
        lent.replace(nodes);
        lent.borrow().as_ptr()
    });
    out.write_if_wanted(lent.unwrap_or(std::ptr::null()));
}

pub fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<cuuint64_t>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    let Some((captured, nodes)) = info(stream, &status, &id)? else { return Ok(()) };
    graph.write_if_wanted(captured.raw());
    count.write_if_wanted(nodes.len());
    if !dependencies.is_null() {
        lend(nodes, &dependencies);
    }
    Ok(())
}

pub fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<cuuint64_t>,
    graph: Out<CUgraph>,
    dependencies: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    edges.write_if_wanted(std::ptr::null());
    cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count)
}

fn update(stream: CUstream, nodes: Vec<CUgraphNode>, flags: c_uint) -> Answer {
    let set = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES.0;
    if flags & !set != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let capture = state.good_capture(&at)?.ok_or(ILLEGAL_STATE)?;
    let graph = state.graphs.captures.get(capture, INVALID_HANDLE)?.graph;
    let nodes: Vec<Handle> = nodes.into_iter().map(Handle::of).collect();
    for node in &nodes {
        if state.graphs.nodes.get(*node, INVALID_VALUE)?.graph != graph {
            return Err(INVALID_VALUE);
        }
    }
    let stream = state.streams.get_mut(at.stream, INVALID_HANDLE)?;
    let Some(capturing) = &mut stream.capture else { return Err(ILLEGAL_STATE) };
    if flags & set != 0 {
        capturing.last.clear();
    }
    for node in nodes {
        if !capturing.last.contains(&node) {
            capturing.last.push(node);
        }
    }
    Ok(())
}

pub fn cuStreamUpdateCaptureDependencies(
    stream: CUstream,
    dependencies: In<CUgraphNode>,
    count: usize,
    flags: c_uint,
) -> Answer {
    update(stream, dependencies.read_many(count)?, flags)
}

pub fn cuStreamUpdateCaptureDependencies_v2(
    stream: CUstream,
    dependencies: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    flags: c_uint,
) -> Answer {
    plain_edges(edges, count)?;
    update(stream, dependencies.read_many(count)?, flags)
}
