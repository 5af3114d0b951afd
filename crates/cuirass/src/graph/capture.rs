//! How captures end: on purpose, by a builder that is closed, or by one that is only dropped.

use crate::context::Context;
use crate::graph::boundary;
use crate::graph::builder::state;
use crate::graph::recording::Recording;
use crate::stream::Stream;
use crate::{Outcome, deferred};
use cuirass_call::graph::{builder as call, definition};
use cuirass_call::owner::{Kind, Opaque};
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{CUgraph, CUstream, CUstreamCaptureStatus};
use cuirass_fault::lock::Global;
use cuirass_fault::{Failure, Misuse};
use std::sync::Arc;

const INVALIDATED: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
const ACTIVE: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
const NONE: CUstreamCaptureStatus = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;

/// A capture in progress, as what a builder owns of it: dropped, it is ended, and what was captured is lost.
pub(crate) struct CaptureKind;

impl Kind for CaptureKind {
    const NAME: &'static str = "a graph builder that is building";
    type Raw = Opaque<CUstream>;
    type Parent = Arc<Recording>;

    fn release(_stream: Opaque<CUstream>, recording: Arc<Recording>) -> Outcome<()> {
        match discard(&recording)? {
            Discarded::Before => Ok(()),
            Discarded::Now => Err(Failure::misuse(
                Misuse::State,
                format!(
                    "a graph builder was dropped while it was building: the capture on stream {:p} has been ended, and \
                     what it had captured is lost; end_building() or close() ends it",
                    recording.origin.raw()
                ),
            )),
        }
    }
}

/// A forked builder's part in a capture: dropped, the fork is given up.
pub(crate) struct ForkKind;

impl Kind for ForkKind {
    const NAME: &'static str = "a forked graph builder";
    type Raw = Opaque<CUstream>;
    type Parent = Arc<Recording>;

    fn release(_stream: Opaque<CUstream>, recording: Arc<Recording>) -> Outcome<()> {
        // The driver's own error at the end of the capture says it; the note on that error says why.
        recording.lose_fork();
        Ok(())
    }
}

/// Whether a capture had ended before.
pub(crate) enum Discarded {
    Before,
    Now,
}

/// Ends a capture whose graph nobody wants. A good capture ends without an error, on any thread.
pub(crate) fn discard(recording: &Arc<Recording>) -> Outcome<Discarded> {
    // In a forked child there is nothing to end: the capture is the parent's.
    if crate::driver::is_forked() || !recording.claim() {
        return Ok(Discarded::Before);
    }
    let (was, result) = finish(recording);
    recording.set_ending(None);
    match result {
        Ok(graph) => {
            // A body's graph belongs to its node.
            if !recording.is_body() && !graph.is_null() {
                definition::destroy(graph)?;
            }
            Ok(Discarded::Now)
        }
        // What the driver answers to the end of a good capture that nobody wants is of no interest: it has ended. But
        // for what it costs.
        Err(failure)
            if was != INVALIDATED
                && is_expected(&failure)
                && !recording.is_broken()
                && !failure.facts().is_some_and(|facts| facts.notes.iter().any(|note| note == LOST)) =>
        {
            failure.answered();
            Ok(Discarded::Now)
        }
        Err(failure) => Err(failure),
    }
}

fn is_expected(failure: &Failure) -> bool {
    matches!(failure.status(), Some(code::STREAM_CAPTURE_WRONG_THREAD | code::STREAM_CAPTURE_UNJOINED))
}

/// Ends a capture, which the caller has claimed: the graph, which the caller then owns unless it is a body's. Whatever
/// the answer, the capture is over. What its status was before is returned too.
pub(crate) fn finish(recording: &Arc<Recording>) -> (CUstreamCaptureStatus, Outcome<CUgraph>) {
    let stream = recording.origin.raw();
    let mut first: Option<Failure> = None;
    let (was, ours) = match call::stream_get_capture_id(stream) {
        Ok((ACTIVE, id)) => (ACTIVE, id == recording.id),
        Ok((status, _)) => (status, true),
        Err(failure) => {
            first = Some(failure);
            // For all that is known it may be.
            (INVALIDATED, true)
        }
    };
    // Bodies end before what they are part of.
    if recording.has_bodies() {
        first = match finish_bodies(recording, was, first) {
            Ok(first) => first,
            Err(failure) => return (was, Err(failure)),
        };
    }
    let broken = recording.is_broken();
    if broken && ours && (was == INVALIDATED || was == ACTIVE && !recording.ends_well()) {
        abandon(recording, None);
        return (was, Err(first.unwrap_or_else(|| state(BROKEN)).note(LEFT_ALONE)));
    }
    let doomed = was == INVALIDATED
        && match is_invalidated(recording.parent.as_deref()) {
            Ok(answer) => answer,
            Err(failure) => {
                first = Some(chain(first, failure, "the state of the capture that it is part of is not known"));
                true
            }
        };
    let crossing = (boundary::crossing(&recording.origin), recording.cross_joined());
    let ended = if ours { raw_end(stream, recording.is_body()) } else { Err(not_ours(stream)) };
    let ended = ended.map_err(|failure| with_lost_graph(recording.parent.as_deref(), failure));
    let result = match (ended, first) {
        (Ok(_leaked), first) if broken && !recording.is_body() => {
            keep_for_good(recording.context().clone());
            Err(first.unwrap_or_else(|| state(BROKEN)).note(LEAKED))
        }
        (Ok(graph), None) => Ok(graph),
        (Ok(graph), Some(first)) if recording.is_body() || graph.is_null() => Err(first),
        (Ok(graph), Some(first)) => Err(match definition::destroy(graph) {
            Ok(()) => first,
            Err(failure) => failure.attach_to(first, "the captured graph was not destroyed"),
        }),
        (Err(failure), None) => Err(failure),
        (Err(failure), Some(first)) => Err(failure.attach_to(first, "the capture ended with an error too")),
    };
    let result = result.map_err(|failure| with_lost_forks(recording, failure));
    if doomed {
        abandon(recording, None);
        return (was, result.map_err(|failure| failure.note(ABANDONED)));
    }
    let streams = recording.leave();
    drop(crossing);
    drop(streams);
    deferred::drain_if_any();
    (was, result)
}

/// Ends the bodies that are being captured still. The failures are in the one that is returned; `Err` where nothing of
/// the capture may be touched any more.
#[cold]
fn finish_bodies(
    recording: &Arc<Recording>,
    was: CUstreamCaptureStatus,
    mut first: Option<Failure>,
) -> Outcome<Option<Failure>> {
    for body in recording.live_bodies() {
        if !body.claim() {
            continue;
        }
        let (body_was, result) = finish(&body);
        body.set_ending(None);
        if let Err(failure) = result {
            first = Some(chain(first, failure, "a conditional body was ended with the capture that it is part of"));
        }
        if was == INVALIDATED && body_was == INVALIDATED {
            abandon(recording, Some(body.origin.clone()));
            let failure = first.unwrap_or_else(|| Failure::internal("a spoilt body ended well"));
            return Err(failure.note(ABANDONED));
        }
    }
    Ok(first)
}

fn chain(first: Option<Failure>, next: Failure, doing: &str) -> Failure {
    match first {
        None => next.note(doing),
        Some(first) => next.attach_to(first, doing),
    }
}

const ABANDONED: &str = "both the capture and that of a conditional body of it were invalidated, and the driver crashes \
                         when both are ended: only the body's was; the streams of both and a share of their context are \
                         leaked, and cuCtxSynchronize stays refused in that context";

pub(crate) const BROKEN: &str = "the capture of a conditional body of this graph has failed, so that there is no graph";

const LEAKED: &str = "the driver crashes when a graph with a conditional body whose capture has failed is destroyed: the \
                      capture has been ended, and the graph and a share of its context are leaked";

const LOST: &str = "the graph that the conditional body is part of had ended: the driver crashes when it is used or destroyed \
                    now, so that it and a share of its context are leaked";

const LEFT_ALONE: &str = "the driver crashes when a capture with a conditional body whose own capture has failed ends \
                          without a graph: it is not ended; its streams and a share of their context are leaked, and \
                          cuCtxSynchronize stays refused in that context";

/// Streams and contexts that must never be touched again.
static ABANDONED_FOR_GOOD: Global<Vec<(Vec<Stream>, Context)>> = Global::new(Vec::new(), Vec::new());

/// Keeps a share of a context that a graph is left in which the driver must never be asked to destroy.
pub(crate) fn keep_for_good(context: Context) {
    ABANDONED_FOR_GOOD.lock().push((Vec::new(), context));
}

/// Leaves a capture alone for good, with those that it is part of and those that are part of it.
fn abandon(recording: &Arc<Recording>, also: Option<Stream>) {
    let mut streams = recording.leave();
    streams.push(recording.origin.clone());
    streams.extend(also);
    ABANDONED_FOR_GOOD.lock().push((streams, recording.context().clone()));
    for related in recording.live_bodies().into_iter().chain(recording.parent.clone()) {
        if related.claim() {
            related.set_ending(None);
            abandon(&related, None);
        }
    }
}

fn is_invalidated(recording: Option<&Recording>) -> Outcome<bool> {
    match recording {
        Some(recording) if !recording.has_ended() => {
            Ok(call::stream_is_capturing(recording.origin.raw())? == INVALIDATED)
        }
        _ => Ok(false),
    }
}

/// The failure of a body's capture: what it is part of is no good any more.
pub(crate) fn with_lost_graph(parent: Option<&Recording>, failure: Failure) -> Failure {
    match parent {
        Some(parent) if parent.break_graph() => failure.note(LOST),
        _ => failure,
    }
}

fn with_lost_forks(recording: &Recording, failure: Failure) -> Failure {
    match recording.lost_forks() {
        0 => failure,
        1 => failure.note("a forked graph builder was given up before it was joined"),
        count => failure.note(format!("{count} forked graph builders were given up before they were joined")),
    }
}

fn not_ours(stream: CUstream) -> Failure {
    Failure::misuse(
        Misuse::State,
        format!(
            "the capture that this builder began on stream {stream:p} has been ended by somebody else, who began another"
        ),
    )
}

/// `cuStreamEndCapture`, once more where the first call was refused and the capture goes on. A body's graph belongs to
/// its node.
pub(crate) fn raw_end(stream: CUstream, is_body: bool) -> Outcome<CUgraph> {
    let failure = match call::stream_end_capture(stream) {
        Ok(graph) => return Ok(graph),
        Err(failure) => failure,
    };
    match call::stream_is_capturing(stream) {
        Ok(NONE) => return Err(failure),
        Ok(_still) => {}
        Err(asking) => return Err(asking.attach_to(failure, "whether the capture has ended is not known")),
    }
    match call::stream_end_capture(stream) {
        Ok(graph) if graph.is_null() || is_body => Err(failure.note("the capture was ended by a second call")),
        Ok(graph) => match definition::destroy(graph) {
            Ok(()) => Err(failure.note("the capture was ended by a second call")),
            Err(undoing) => Err(undoing.attach_to(failure, "the captured graph was not destroyed")),
        },
        Err(second) => Err(second.attach_to(failure, "a second call to end the capture failed too")),
    }
}
