//! Graph builders: a stream that is being captured, and what becomes of it.

use crate::context::Context;
use crate::device::Device;
use crate::driver;
use crate::graph::boundary;
use crate::graph::capture::{self, CaptureKind, ForkKind};
use crate::graph::definition::GraphDefinition;
use crate::graph::exec::Graph;
use crate::graph::options::{CaptureMode, GraphCompleteOptions, GraphDebugPrintOptions};
use crate::graph::recording::{self, Attachment, Recording};
use crate::stream::{CaptureStatus, Stream, StreamOptions};
use crate::{Outcome, Result, deferred};
use cuirass_call::context as context_call;
use cuirass_call::graph::{builder as call, definition};
use cuirass_call::owner::{Opaque, Owned};
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{CUgraph, CUstreamCaptureStatus};
use cuirass_fault::lock::Mutex;
use cuirass_fault::{Failure, Misuse};
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// Captures work into a graph. Work is recorded by putting it on [`stream`](GraphBuilder::stream), between
/// [`begin_building`](GraphBuilder::begin_building) and [`end_building`](GraphBuilder::end_building).
///
/// A builder owns no graph while it builds, only what a good end of the capture gave it. Ending or closing a capture
/// that was invalidated returns the driver's error, once, and leaves nothing behind.
pub struct GraphBuilder {
    stream: Stream,
    context: Context,
    role: Role,
    phase: Mutex<Phase>,
    /// The number of its context, where the stream is its own, so that the next builder may have it.
    own_stream_in: Option<u64>,
}

/// What a builder builds.
pub(crate) enum Role {
    /// A graph.
    Whole,
    /// A part of another builder's graph, in parallel with it.
    Fork,
    /// The body of a conditional node.
    Body(Body),
}

/// A graph that belongs to a conditional node.
#[derive(Clone)]
pub(crate) struct Body {
    pub(crate) graph: Opaque<CUgraph>,
    /// The capture that made the node.
    pub(crate) of: Arc<Recording>,
}

pub(crate) enum Phase {
    Fresh,
    Building(Owned<CaptureKind>),
    Forked(Owned<ForkKind>),
    Ended(GraphDefinition),
    Closed,
    /// Somebody is changing it.
    Busy,
}

impl Device {
    /// A graph builder with a stream of its own, in the device's primary context: that of the last builder that was closed
    /// after a good capture, where nobody else has a share of it or was given its handle, no capture goes on there and no
    /// work was left on it, or else a new one (`cuStreamCreateWithPriority`).
    ///
    /// # Errors
    /// What the driver answers.
    pub fn create_graph_builder(self) -> Result<GraphBuilder> {
        deferred::before_creating()?;
        let context = self.primary()?;
        // Asked before a stream is made, so that nothing has to be undone.
        let id = context_call::ctx_get_id(context.raw())?;
        let stream = match self.spare_stream(id) {
            Some(kept) => Stream::owning(kept),
            None => Stream::create_in(context.clone(), &StreamOptions::default())?,
        };
        let builder = GraphBuilder::new(stream, context, Role::Whole, Phase::Fresh);
        Ok(GraphBuilder { own_stream_in: Some(id), ..builder })
    }
}

impl Stream {
    /// A graph builder that captures this stream.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn create_graph_builder(&self) -> Result<GraphBuilder> {
        Ok(GraphBuilder::new(self.clone(), self.context()?, Role::Whole, Phase::Fresh))
    }
}

pub(crate) fn state(message: impl Into<String>) -> Failure {
    Failure::misuse(Misuse::State, message)
}

impl GraphBuilder {
    pub(crate) fn new(stream: Stream, context: Context, role: Role, phase: Phase) -> GraphBuilder {
        GraphBuilder { stream, context, role, phase: Mutex::new(phase), own_stream_in: None }
    }

    /// The stream that it captures: work put on it while building becomes part of the graph.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether it is a fork, which has to be joined.
    pub fn is_join_required(&self) -> bool {
        matches!(self.role, Role::Fork)
    }

    /// Whether it builds the body of a conditional node.
    pub fn is_conditional_body(&self) -> bool {
        matches!(self.role, Role::Body(_))
    }

    pub(crate) fn body(&self) -> Option<&Body> {
        match &self.role {
            Role::Body(body) => Some(body),
            Role::Whole | Role::Fork => None,
        }
    }

    /// Takes the phase out, to change it; [`put`](GraphBuilder::put) ends that.
    fn take(&self) -> Outcome<Phase> {
        driver::refuse_in_child()?;
        let phase = std::mem::replace(&mut *self.phase.lock(), Phase::Busy);
        match phase {
            Phase::Busy => Err(state("another thread is using this graph builder")),
            phase => Ok(phase),
        }
    }

    fn put(&self, phase: Phase) {
        let busy = std::mem::replace(&mut *self.phase.lock(), phase);
        drop(busy);
    }

    /// The capture that it takes part in.
    pub(crate) fn recording(&self) -> Option<Arc<Recording>> {
        match &*self.phase.lock() {
            Phase::Building(capture) => Some(capture.parent().clone()),
            Phase::Forked(fork) => Some(fork.parent().clone()),
            _ => None,
        }
    }

    /// The capture that it takes part in, if that goes on.
    pub(crate) fn building(&self) -> Outcome<Arc<Recording>> {
        driver::refuse_in_child()?;
        match self.recording() {
            Some(recording) if !recording.has_ended() => Ok(recording),
            _ => Err(state("the graph builder is not building")),
        }
    }

    /// Starts the capture.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when it is building or has ended; what the driver answers, for a
    /// stream that is being captured already for instance. The stream is then as it was.
    pub fn begin_building(&self, mode: CaptureMode) -> Result<()> {
        deferred::before_creating()?;
        let phase = self.take()?;
        let message = match phase {
            Phase::Fresh => {
                let begun = self.begin(mode);
                let (phase, result) = match begun {
                    Ok(capture) => (Phase::Building(capture), Ok(())),
                    Err(failure) => (Phase::Fresh, Err(failure.raise())),
                };
                self.put(phase);
                return result;
            }
            Phase::Building(_) => "the graph builder is building already",
            Phase::Forked(_) => "a forked graph builder is part of a capture that has begun already",
            Phase::Ended(_) => "building has ended and cannot be resumed",
            Phase::Closed | Phase::Busy => "the graph builder is closed",
        };
        self.put(phase);
        Err(state(message).raise())
    }

    fn begin(&self, mode: CaptureMode) -> Outcome<Owned<CaptureKind>> {
        let raw = self.stream.raw();
        let _crossing = boundary::crossing(&self.stream);
        let begun = match &self.role {
            Role::Body(body) => {
                if !body.of.has_graph() {
                    return Err(state("the capture that this conditional body is part of ended without a graph"));
                }
                call::stream_begin_capture_to_graph(raw, body.graph.0, mode.raw())
            }
            Role::Whole | Role::Fork => call::stream_begin_capture(raw, mode.raw()),
        };
        let number = match begun {
            Ok(()) => call::stream_get_capture_id(raw),
            // Somebody else's capture of the stream is left alone.
            Err(failure) if failure.status() == Some(code::ILLEGAL_STATE) => Err(failure),
            Err(failure) => match call::stream_is_capturing(raw) {
                Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) => return Err(failure),
                Ok(_begun_all_the_same) => Err(self.undo_begin(failure)),
                Err(asking) => {
                    Err(self.undo_begin(asking.attach_to(failure, "whether the capture began is not known")))
                }
            },
        };
        match number {
            Ok((_active, id)) => {
                let parent = self.body().map(|body| body.of.clone());
                let recording = Recording::begin(self.stream.clone(), self.context.clone(), mode, id, parent);
                Ok(Owned::new(Opaque(raw), recording))
            }
            Err(failure) if failure.facts().is_some_and(|facts| facts.call.starts_with("cuStreamGetCaptureInfo")) => {
                Err(self.undo_begin(failure))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Ends a capture that has just begun, since a later step failed.
    fn undo_begin(&self, failure: Failure) -> Failure {
        match capture::raw_end(self.stream.raw(), self.is_conditional_body()) {
            Ok(graph) if graph.is_null() || self.is_conditional_body() => failure,
            Ok(graph) => match definition::destroy(graph) {
                Ok(()) => failure,
                Err(undoing) => undoing.attach_to(failure, "the captured graph was not destroyed"),
            },
            Err(undoing) => {
                let parent = self.body().map(|body| &*body.of);
                capture::with_lost_graph(parent, undoing).attach_to(failure, "the capture was not ended")
            }
        }
    }

    /// Whether a capture is in progress, as the driver says.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when the capture has been invalidated and has to be ended; what
    /// the driver answers.
    pub fn is_building(&self) -> Result<bool> {
        driver::refuse_in_child()?;
        match self.recording() {
            Some(recording) if !recording.has_ended() => match self.stream.capture_status()? {
                CaptureStatus::None => Ok(false),
                CaptureStatus::Active => Ok(true),
                CaptureStatus::Invalidated => {
                    Err(state("the capture has been invalidated; end_building() or close() ends it").raise())
                }
            },
            _ => Ok(false),
        }
    }

    /// Ends the capture. The builder has the graph then.
    ///
    /// # Errors
    /// The driver's error when the capture was invalidated, or a fork was not joined: the capture is over then, the
    /// builder is closed and the stream usable again. [`ErrorKind::State`](crate::ErrorKind::State), with which the
    /// capture goes on: on a fork, from another thread than the one that began a capture that is not relaxed, while
    /// the body of a conditional node is being built; with which it ends: where the capture of such a body has failed.
    /// The driver crashes when such a graph is destroyed, so that it is leaked.
    pub fn end_building(&self) -> Result<()> {
        let phase = self.take()?;
        let message = match phase {
            Phase::Building(capture) => {
                let (phase, result) = match Self::forbids_end(capture.parent()) {
                    Ok(()) => self.end(capture),
                    Err(failure) => (Phase::Building(capture), Err(failure)),
                };
                self.put(phase);
                return Ok(result?);
            }
            Phase::Forked(_) => {
                "a forked graph builder cannot end the capture: join it, and end the one that it was split from"
            }
            Phase::Fresh | Phase::Ended(_) => "the graph builder is not building",
            Phase::Closed | Phase::Busy => "the graph builder is closed",
        };
        self.put(phase);
        Err(state(message).raise())
    }

    /// Why a capture cannot be ended now, though it is a good one.
    fn forbids_end(recording: &Recording) -> Outcome<()> {
        if recording.has_ended() {
            return Ok(());
        }
        if !recording.may_end_here() {
            return Err(state(format!(
                "a capture in {} mode can be ended only by the thread that began it; the capture goes on",
                recording.mode.name()
            )));
        }
        if recording.has_bodies() { Self::forbids_end_of_bodies(recording) } else { Ok(()) }
    }

    #[cold]
    fn forbids_end_of_bodies(recording: &Recording) -> Outcome<()> {
        let bodies = recording.live_bodies().len();
        if bodies > 0
            && call::stream_is_capturing(recording.origin.raw())?
                == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
        {
            return Err(state(format!(
                "{bodies} conditional bodies of this graph are still being built: end them first; the capture goes on"
            )));
        }
        Ok(())
    }

    fn end(&self, capture: Owned<CaptureKind>) -> (Phase, Outcome<()>) {
        let (_, recording) = capture.into_raw();
        if !recording.claim() {
            let message = "the capture has been ended, with the one that it was part of or that was part of it";
            return (Phase::Closed, Err(state(message)));
        }
        let (_, result) = capture::finish(&recording);
        match result {
            Ok(graph) => {
                let definition = match &self.role {
                    Role::Body(body) => GraphDefinition::body(body.clone()),
                    Role::Whole | Role::Fork => GraphDefinition::captured(graph, recording.attachments.clone()),
                };
                recording.set_ending(Some(&definition));
                (Phase::Ended(definition), Ok(()))
            }
            Err(failure) => {
                recording.set_ending(None);
                (Phase::Closed, Err(failure))
            }
        }
    }

    /// The graph, once building has ended; of a conditional body also before building begins.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) otherwise.
    pub fn definition(&self) -> Result<GraphDefinition> {
        driver::refuse_in_child()?;
        let message = match (&*self.phase.lock(), &self.role) {
            (Phase::Ended(definition), _) => return Ok(definition.clone()),
            (Phase::Fresh, Role::Body(body)) => return Ok(GraphDefinition::body(body.clone())),
            (Phase::Forked(_), _) => "a forked graph builder has no graph of its own",
            (Phase::Building(_), _) => "the graph builder is building: its graph is there once building has ended",
            (Phase::Fresh, _) => "the graph builder has not begun to build",
            (Phase::Closed, _) => "the graph builder is closed",
            (Phase::Busy, _) => "another thread is using this graph builder",
        };
        Err(state(message).raise())
    }

    /// Makes the graph executable.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) before building has ended, and for the body of a conditional
    /// node; what the driver answers, with its reason.
    pub fn complete(&self, options: &GraphCompleteOptions) -> Result<Graph> {
        if self.is_conditional_body() {
            return Err(state("the body of a conditional node is completed with the graph that it is part of").raise());
        }
        self.definition()?.into_executable(options)
    }

    /// `cuGraphDebugDotPrint`: the driver's own picture of the graph, written to a file.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) before building has ended; what the driver answers.
    pub fn debug_dot_print(&self, path: &Path, options: GraphDebugPrintOptions) -> Result<()> {
        self.definition()?.debug_dot_print(path, options)
    }

    /// Keeps something alive as long as the graph and what is made executable of it.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when it is not building.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) -> Result<()> {
        self.building()?.attachments.add(Attachment::Other(object));
        Ok(())
    }

    /// As [`GraphDefinition::see_kept`], of the graph or, while it builds, of what was captured: where it has been split
    /// or has conditional nodes nothing is shown until it has ended.
    pub fn see_kept(&self, see: &mut dyn FnMut(&(dyn Any + Send + Sync))) {
        // Nobody uses this builder, so that the lock is free; in a forked child it may be held for ever.
        match self.phase.try_lock().as_deref() {
            Some(Phase::Building(capture)) => capture.parent().see(see),
            Some(Phase::Ended(definition)) => definition.see_kept(see),
            _ => {}
        }
    }

    /// Gives everything up: a capture in progress is ended and what it captured is lost; a stream of its own goes.
    ///
    /// # Errors
    /// The driver's error when the capture was invalidated; what it answers to the release.
    pub fn close(self) -> Result<()> {
        let GraphBuilder { stream, context, role, phase, own_stream_in } = self;
        let phase = phase.into_inner();
        // What was captured on it has ended well, so that the stream is as a new one.
        let keep = own_stream_in.filter(|_| matches!(phase, Phase::Ended(_)));
        let result = match phase {
            Phase::Building(capture) => {
                let (_, recording) = capture.into_raw();
                capture::discard(&recording).map(|_discarded| ())
            }
            Phase::Forked(fork) => fork.close(),
            Phase::Ended(definition) => definition.close_inner(),
            Phase::Fresh | Phase::Closed | Phase::Busy => Ok(()),
        };
        drop((role, context));
        // A stream that takes part in another builder's capture is kept by that.
        let closed = match keep {
            _ if recording::of(&stream).is_some() => Ok(()),
            Some(id) => stream.close_for_next(id),
            None => stream.close(),
        };
        match (result, closed) {
            (result, Ok(())) => Ok(result?),
            (Ok(()), Err(error)) => Err(error),
            (Err(failure), Err(error)) => {
                Err(Failure::from(error).attach_to(failure, "the builder's stream was not given back").raise())
            }
        }
    }

    /// Gives up a fork that has been joined: its stream is kept until the capture ends.
    pub(crate) fn joined(self) {
        if let Phase::Forked(fork) = self.phase.into_inner() {
            drop(fork.into_raw());
        }
    }
}

impl AsRef<Stream> for GraphBuilder {
    fn as_ref(&self) -> &Stream {
        &self.stream
    }
}

impl std::fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match &*self.phase.lock() {
            Phase::Fresh => "not begun",
            Phase::Building(_) => "building",
            Phase::Forked(_) => "a fork",
            Phase::Ended(_) => "ended",
            Phase::Closed => "closed",
            Phase::Busy => "in use",
        };
        write!(f, "GraphBuilder({phase}, stream {:p})", self.stream.raw())
    }
}
