//! Where a graph was launched, and the release of what it refers to once those launches are done.

use crate::context::{Context, capture as relaxed_scope, scope};
use crate::deferred::{self, Attempt};
use crate::event::{Event, EventOptions};
use crate::graph::recording::Attachments;
use crate::stream::Stream;
use crate::{Outcome, event};
use cuirass_call::graph::builder as call;
use cuirass_call::status::code;
use cuirass_call::sys::cuda::CUstreamCaptureStatus;
use cuirass_fault::Failure;
use cuirass_fault::lock::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The streams that a graph was launched on. A launch on one of the last few is seen without a lock.
#[derive(Default)]
pub(crate) struct Launched {
    /// Handles; 0 where there is none.
    recent: [AtomicUsize; 4],
    streams: Mutex<Vec<Stream>>,
}

impl Launched {
    #[inline]
    pub(crate) fn knows(&self, stream: &Stream) -> bool {
        let handle = stream.as_raw().addr();
        self.recent.iter().any(|recent| recent.load(Ordering::Acquire) == handle)
    }

    /// Remembers a stream: it lives as long as the graph.
    #[cold]
    pub(crate) fn note(&self, stream: &Stream, context: &Context) {
        let handle = stream.as_raw().addr();
        // A default stream is that of the context that is current now: the graph's own, or the launch would have
        // failed. The per-thread one is another on every thread, so that it is never among the recent ones.
        let stream = if stream.is_default() { stream.bound_to(context.clone()) } else { stream.clone() };
        let known = {
            let mut streams = self.streams.lock();
            let known = handle != 2 && streams.iter().any(|known| known.as_raw().addr() == handle);
            if !known {
                streams.push(stream.clone());
            }
            if handle != 2 {
                let at = streams.len() % self.recent.len();
                if let Some(slot) = self.recent.get(at) {
                    slot.store(handle, Ordering::Release);
                }
            }
            known
        };
        drop((known, stream));
    }

    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.streams.lock().clone()
    }

    pub(crate) fn into_streams(self) -> Vec<Stream> {
        self.streams.into_inner()
    }
}

/// One stream that has to pass what was on it.
enum Passing {
    /// Its event is not recorded yet: the stream is being captured.
    Unmarked(Stream),
    /// Behind the launches.
    Marked(Event),
    Passed,
}

/// What waits for its streams.
struct Waiting {
    streams: Vec<Passing>,
    attachments: Arc<Attachments>,
}

/// Things that may be in use by the device still, and so are never released.
static LEAKED: Mutex<Vec<Arc<Attachments>>> = Mutex::new(Vec::new());

/// Lets go of what a graph refers to, once the streams have passed what is on them now: at once where they have.
pub(crate) fn release_after(streams: Vec<Stream>, attachments: Arc<Attachments>) -> Outcome<()> {
    if streams.is_empty() || attachments.is_empty() {
        drop(attachments);
        return Ok(());
    }
    let mut waiting = Waiting { streams: streams.into_iter().map(Passing::Unmarked).collect(), attachments };
    match waiting.attempt() {
        Ok(Attempt::Done) => Ok(()),
        Ok(Attempt::Wait) => {
            deferred::defer("what a graph refers to", move || waiting.attempt().map_err(Waiting::leaked));
            Ok(())
        }
        Err(failure) => Err(Waiting::leaked(failure)),
    }
}

impl Waiting {
    fn attempt(&mut self) -> Outcome<Attempt> {
        let mut done = true;
        for at in 0..self.streams.len() {
            let Some(passing) = self.streams.get_mut(at) else { break };
            match step(passing) {
                Ok(Attempt::Done) => {}
                Ok(Attempt::Wait) => done = false,
                Err(failure) => {
                    // It is not certain that the device is done with it.
                    LEAKED.lock().push(std::mem::take(&mut self.attachments));
                    return Err(failure);
                }
            }
        }
        if !done {
            return Ok(Attempt::Wait);
        }
        drop(std::mem::take(&mut self.attachments));
        Ok(Attempt::Done)
    }

    fn leaked(failure: Failure) -> Failure {
        failure.note("what the graph refers to is leaked, since it is not certain that its launches are done")
    }
}

fn step(passing: &mut Passing) -> Outcome<Attempt> {
    if let Passing::Unmarked(stream) = passing {
        match mark(stream)? {
            None => return Ok(Attempt::Wait),
            Some(event) => *passing = Passing::Marked(event),
        }
    }
    if let Passing::Marked(event) = passing {
        if !relaxed_scope::relaxed(|| event::query_inner(event))? {
            return Ok(Attempt::Wait);
        }
        *passing = Passing::Passed;
    }
    Ok(Attempt::Done)
}

/// An event behind what is on a stream; `None` while the stream is being captured.
fn mark(stream: &Stream) -> Outcome<Option<Event>> {
    let context = stream.context_inner()?;
    let raw = stream.as_raw();
    scope::create(
        context.as_raw(),
        || {
            match call::stream_is_capturing(raw) {
                Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) => {}
                Ok(_captured) => return Ok(None),
                Err(failure) if failure.status() == Some(code::STREAM_CAPTURE_IMPLICIT) => {
                    failure.answered();
                    return Ok(None);
                }
                Err(failure) => return Err(failure),
            }
            // Held outside, so that it is undone with the failure where the mode cannot be restored.
            let mut made = None;
            let result = relaxed_scope::relaxed(|| {
                let event = made.insert(Event::create(&context, &EventOptions::default())?);
                cuirass_call::event::record(event.as_raw(), raw)
            });
            match (result, made) {
                (Ok(()), made) => Ok(made),
                (Err(failure), None) => Err(failure),
                (Err(failure), Some(event)) => Err(Failure::from(event.undone_after(failure.raise()))),
            }
        },
        |event| event.map_or(Ok(()), |event| event.close().map_err(Failure::from)),
    )
}
