//! Capture: what it makes of work, and which calls it refuses.
//!
//! Three modes decide about potentially unsafe calls (`cuMemAlloc`, waiting for another stream, …): while a
//! capture begun in global mode is going on, they are refused on every thread whose own mode is global; a
//! thread-local one refuses them on its own thread; a relaxed one nowhere. Calls that touch a captured stream
//! itself are refused in every mode. What is refused invalidates the capture, except where the state of things
//! (`ILLEGAL_STATE`) or an argument (`INVALID_VALUE`) is the reason.

use crate::event::Standing;
use crate::graph::condition;
use crate::handle::Handle;
use crate::state::State;
use crate::status::{
    Answer, CAPTURED_EVENT, INVALID_HANDLE, INVALID_VALUE, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNSUPPORTED, Status,
};
use crate::stream::{At, StreamKind};
use crate::task::{NodeKind, Work};
use crate::thread;
use cuirass_sys::cuda::{CUevent_wait_flags, CUstreamCaptureMode};
use smallvec::SmallVec;

/// Nodes, usually one.
pub type NodeSet = SmallVec<[Handle; 4]>;

/// A capture in progress.
pub struct Capture {
    /// The mode that it was begun in.
    pub mode: CUstreamCaptureMode,
    /// The thread that began it.
    pub thread: u64,
    /// The context of its streams.
    pub context: Handle,
    /// The stream that it was begun on.
    pub origin: Handle,
    /// All its streams.
    pub streams: Vec<Handle>,
    /// The graph that it adds to.
    pub graph: Handle,
    /// Whether the graph existed before (`cuStreamBeginCaptureToGraph`).
    pub borrowed: bool,
    /// Whether a refused call has spoilt it.
    pub invalid: bool,
    /// Whether it was spoilt together with a related one (of a conditional body) that has been ended since: touching it
    /// crashes the real driver.
    pub poisoned: bool,
    /// Its number.
    pub id: u64,
}

/// What a stream that is being captured knows.
#[derive(Clone)]
pub struct Capturing {
    /// The capture.
    pub capture: Handle,
    /// What the next node of the stream comes after.
    pub last: NodeSet,
}

impl State {
    /// The capture of a stream.
    pub fn capture_of(&self, at: &At) -> Option<Handle> {
        Some(self.streams.peek(at.stream)?.capture.as_ref()?.capture)
    }

    /// Whether a stream is being captured.
    pub fn is_captured(&self, at: &At) -> bool {
        !self.graphs.captures.is_empty() && self.capture_of(at).is_some()
    }

    /// Spoils a capture.
    pub fn invalidate(&mut self, capture: Handle) {
        if let Some(capture) = self.graphs.captures.peek_mut(capture) {
            capture.invalid = true;
        }
    }

    /// To be asked by every call that CUDA calls potentially unsafe.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED`: a capture in progress forbids it, and is spoilt.
    pub fn potentially_unsafe(&mut self) -> Answer {
        let own = CUstreamCaptureMode(thread::capture_mode());
        if self.graphs.captures.is_empty() || own == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let global = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let me = thread::id();
        let forbids = |capture: &Capture| {
            capture.thread == me && capture.mode != relaxed || own == global && capture.mode == global
        };
        let forbidding = self.graphs.captures.handles(forbids);
        if forbidding.is_empty() {
            return Ok(());
        }
        forbidding.into_iter().for_each(|capture| self.invalidate(capture));
        Err(STREAM_CAPTURE_UNSUPPORTED)
    }

    /// To be asked by calls that touch a stream itself (its id, its flags).
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED`, `STREAM_CAPTURE_IMPLICIT`: the capture is spoilt.
    pub fn asked_in_capture(&mut self, at: &At) -> Answer {
        if self.graphs.captures.is_empty() {
            return Ok(());
        }
        if let Some(capture) = self.capture_of(at) {
            self.invalidate(capture);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        self.implicit_in_capture(at)
    }

    /// As [`State::asked_in_capture`], for calls that wait for the stream or ask whether it is done.
    ///
    /// # Errors
    /// As there, and for a capture elsewhere that forbids potentially unsafe calls.
    pub fn waited_in_capture(&mut self, at: &At) -> Answer {
        self.asked_in_capture(at)?;
        self.potentially_unsafe()
    }

    /// The captured streams that the legacy stream would have to wait for.
    fn implied(&self, at: &At) -> Vec<Handle> {
        if at.kind != StreamKind::Legacy || self.graphs.captures.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (handle, capture) in self.graphs.captures.iter() {
            let blocking = |stream: &Handle| self.stream_at(*stream).is_ok_and(|at| at.blocking);
            if capture.context == at.context && capture.streams.iter().any(blocking) {
                found.push(handle);
            }
        }
        found
    }

    /// To be asked by work on a stream: the legacy stream cannot wait for a captured one.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_IMPLICIT`: the capture is spoilt.
    pub fn implicit_in_capture(&mut self, at: &At) -> Answer {
        let implied = self.implied(at);
        if implied.is_empty() {
            return Ok(());
        }
        implied.into_iter().for_each(|capture| self.invalidate(capture));
        Err(STREAM_CAPTURE_IMPLICIT)
    }

    /// Whether asking for the legacy stream's capture status is refused; that spoils nothing.
    pub fn is_implied(&self, at: &At) -> bool {
        !self.implied(at).is_empty()
    }

    /// To be asked by calls that wait for a whole context: no mode allows it.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED`: the context's captures are spoilt.
    pub fn whole_context_in_capture(&mut self, context: Handle) -> Answer {
        let captures = self.graphs.captures.handles(|capture| capture.context == context);
        if captures.is_empty() {
            return Ok(());
        }
        captures.into_iter().for_each(|capture| self.invalidate(capture));
        Err(STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The capture of a stream if it is not spoilt; refuses work that the legacy stream cannot take now.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_INVALIDATED`, `STREAM_CAPTURE_IMPLICIT`
    pub fn good_capture(&mut self, at: &At) -> Answer<Option<Handle>> {
        if self.graphs.captures.is_empty() {
            return Ok(None);
        }
        let Some(handle) = self.capture_of(at) else {
            self.implicit_in_capture(at)?;
            return Ok(None);
        };
        if self.graphs.captures.get(handle, INVALID_HANDLE)?.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        Ok(Some(handle))
    }

    /// Makes a node of work if the stream is being captured.
    ///
    /// # Errors
    /// As [`State::good_capture`].
    pub fn capture_work(&mut self, at: &At, work: &Work) -> Answer<Option<Handle>> {
        let Some(capture) = self.good_capture(at)? else { return Ok(None) };
        let kind = match work {
            Work::Task(task) => task.node(),
            Work::Host(_) => NodeKind::Host,
            Work::Nothing => NodeKind::Empty,
            Work::Record { .. } => NodeKind::RecordEvent,
            Work::Wait { .. } => NodeKind::WaitEvent,
            Work::Callback(_) => {
                self.invalidate(capture);
                return Err(STREAM_CAPTURE_UNSUPPORTED);
            }
        };
        self.capture_node(at, capture, kind, work.clone()).map(Some)
    }

    fn capture_node(&mut self, at: &At, capture: Handle, kind: NodeKind, work: Work) -> Answer<Handle> {
        let graph = self.graphs.captures.get(capture, INVALID_HANDLE)?.graph;
        let stream = self.streams.get_mut(at.stream, INVALID_HANDLE)?;
        let Some(capturing) = &mut stream.capture else { return Err(INVALID_HANDLE) };
        let node = self.graphs.add(graph, kind, work, &capturing.last)?;
        capturing.last = NodeSet::from_slice(&[node]);
        Ok(node)
    }

    /// What an event recorded in the stream stands for, if the stream is being captured.
    ///
    /// # Errors
    /// As [`State::good_capture`].
    pub fn capture_record(&mut self, at: &At) -> Answer<Option<(Handle, NodeSet)>> {
        let Some(capture) = self.good_capture(at)? else { return Ok(None) };
        let capturing = self.streams.peek(at.stream).and_then(|stream| stream.capture.as_ref());
        Ok(capturing.map(|capturing| (capture, capturing.last.clone())))
    }

    /// Makes a node that records an event each time the graph runs.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; as [`State::good_capture`].
    pub fn capture_external_record(&mut self, at: &At, event: Handle) -> Answer {
        self.events.get(event, INVALID_HANDLE)?;
        let Some(capture) = self.good_capture(at)? else { return Ok(()) };
        self.capture_node(at, capture, NodeKind::RecordEvent, Work::Record { event, serial: 0 }).map(drop)
    }

    /// What asking about an event of a capture answers: it spoils a capture in progress.
    pub fn event_in_capture(&mut self, capture: Handle) -> Status {
        if self.graphs.captures.peek(capture).is_none() {
            return INVALID_VALUE;
        }
        self.invalidate(capture);
        CAPTURED_EVENT
    }

    /// `cuStreamWaitEvent`: pending work, an edge in a capture, or the entry of another stream into it.
    ///
    /// # Errors
    /// What capture refuses; `INVALID_HANDLE`.
    pub fn wait_event(&mut self, at: &At, handle: Handle, flags: u32) -> Answer {
        self.refresh_event(handle)?;
        let standing = event_standing(&self.events.get(handle, INVALID_HANDLE)?.standing);
        let external = flags & CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0 != 0;
        let mine = self.good_capture(at)?;
        match (&standing, mine) {
            (EventIs::Recorded(dep), None) => {
                let mut after = self.before(at);
                after.push(*dep);
                let all = crate::order::on() || self.memory.pools.unwaited.any();
                if all || !self.engine.all_reached(&[*dep]) {
                    self.push(at.queue, &after, Work::Nothing)?;
                }
                Ok(())
            }
            (EventIs::Unrecorded, None) => Ok(()),
            (_, Some(capture)) if external => {
                // The wait is for what is recorded when the graph runs.
                self.capture_node(at, capture, NodeKind::WaitEvent, Work::Wait { event: handle }).map(drop)
            }
            // There is nothing to wait for, and nothing from outside.
            (EventIs::Unrecorded, Some(_)) => Ok(()),
            (EventIs::Recorded(_), Some(capture)) => {
                self.invalidate(capture);
                Err(STREAM_CAPTURE_ISOLATION)
            }
            (EventIs::Captured(theirs, nodes), mine) => {
                let (theirs, nodes) = (*theirs, nodes.clone());
                self.join(at, mine, theirs, nodes)
            }
        }
    }

    fn join(&mut self, at: &At, mine: Option<Handle>, theirs: Handle, nodes: NodeSet) -> Answer {
        // Measured: an event of a capture that has ended or is invalidated is no event to anybody else.
        let gone = self.graphs.captures.peek_mut(theirs).is_none_or(|capture| capture.invalid);
        if mine != Some(theirs) && gone {
            mine.into_iter().for_each(|mine| self.invalidate(mine));
            return Err(INVALID_VALUE);
        }
        let Some(capture) = self.graphs.captures.peek_mut(theirs) else { return Err(INVALID_VALUE) };
        if mine.is_some_and(|mine| mine != theirs) {
            capture.invalid = true;
            mine.into_iter().for_each(|mine| self.invalidate(mine));
            return Err(STREAM_CAPTURE_MERGE);
        }
        if capture.invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        if at.kind == StreamKind::Legacy {
            capture.invalid = true;
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        if mine.is_none() {
            capture.streams.push(at.stream);
        }
        let stream = self.streams.get_mut(at.stream, INVALID_HANDLE)?;
        let capturing = stream.capture.get_or_insert_with(|| Capturing { capture: theirs, last: NodeSet::new() });
        for node in nodes {
            if !capturing.last.contains(&node) {
                capturing.last.push(node);
            }
        }
        Ok(())
    }

    /// Ends a capture and frees its streams from it. A graph that it made goes too.
    pub fn end_capture(&mut self, handle: Handle, later: Status) -> Option<Capture> {
        let capture = self.graphs.captures.end(handle, later)?;
        for stream in &capture.streams {
            if let Some(stream) = self.streams.peek_mut(*stream) {
                stream.capture = None;
            }
        }
        if let Some(graph) = self.graphs.graphs.peek_mut(capture.graph) {
            graph.capturing = false;
        }
        Some(capture)
    }

    /// As [`State::end_capture`], and the graph goes too unless it is the program's own. A conditional body's is of no
    /// use any more.
    pub fn drop_capture(&mut self, handle: Handle) {
        let Some(capture) = self.end_capture(handle, INVALID_HANDLE) else { return };
        if capture.borrowed {
            if let Some(graph) = self.graphs.graphs.peek_mut(capture.graph) {
                graph.broken = graph.parent.is_some();
            }
        } else if self.graphs.graphs.peek(capture.graph).is_some() {
            for destructor in self.graphs.destroy(capture.graph).unwrap_or_default() {
                self.run_destructor(destructor);
            }
        }
    }

    /// A spoilt capture is about to be ended: those that are spoilt too, of which it captures a conditional body or which
    /// capture one of it, must not be touched any more.
    pub fn poison_related(&mut self, ended: Handle) {
        let Some(graph) = self.graphs.captures.peek(ended).map(|capture| capture.graph) else { return };
        let related = |state: &State, other: Handle| state.is_inside(other, graph) || state.is_inside(graph, other);
        for handle in self.graphs.captures.handles(|capture| capture.invalid) {
            let other = self.graphs.captures.peek(handle).map(|capture| capture.graph);
            if handle != ended
                && other.is_some_and(|other| related(self, other))
                && let Some(capture) = self.graphs.captures.peek_mut(handle)
            {
                capture.poisoned = true;
            }
        }
    }

    /// Whether a graph is the body of a node of another one, however deep.
    fn is_inside(&self, graph: Handle, outer: Handle) -> bool {
        let mut at = graph;
        while let Some(parent) = self.graphs.graphs.peek(at).and_then(|graph| graph.parent) {
            if parent == outer {
                return true;
            }
            at = parent;
        }
        false
    }

    /// A stream ends while it is being captured: the capture of an origin goes silently, a fork is spoilt.
    pub fn leave_capture(&mut self, stream: Handle) {
        let Some(capture) = self.streams.peek(stream).and_then(|stream| stream.capture.as_ref()) else { return };
        let handle = capture.capture;
        let origin = self.graphs.captures.peek(handle).is_some_and(|capture| capture.origin == stream);
        if self.graphs.captures.peek(handle).is_some_and(|capture| capture.poisoned) {
            condition::poisoned("a stream of a spoilt capture was destroyed");
        }
        if origin {
            self.drop_capture(handle);
        } else if let Some(capture) = self.graphs.captures.peek_mut(handle) {
            capture.streams.retain(|other| *other != stream);
            capture.invalid = true;
        }
    }
}

enum EventIs {
    Unrecorded,
    Recorded(crate::engine::Dep),
    Captured(Handle, NodeSet),
}

fn event_standing(standing: &Standing) -> EventIs {
    match standing {
        Standing::Unrecorded => EventIs::Unrecorded,
        Standing::Recorded(dep) => EventIs::Recorded(*dep),
        Standing::Captured(capture, nodes) => EventIs::Captured(*capture, nodes.clone()),
    }
}
