//! Where a graph was launched, and the release of what it refers to once those launches are done.

use crate::context::{Context, capture as relaxed_scope};
use crate::deferred;
use crate::event::{Event, EventOptions, Passing};
use crate::graph::recording::Attachments;
use crate::stream::Stream;
use crate::{Outcome, event};
use cuirass_call::graph::builder as call;
use cuirass_call::later::Attempt;
use cuirass_call::sys::cuda::CUstreamCaptureStatus;
use cuirass_fault::lock::{Global, Mutex};
use cuirass_fault::{Failure, Misuse};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

/// The streams that a graph was launched on. A launch on one of the last few is seen without a lock.
#[derive(Default)]
pub(crate) struct Launched {
    /// Handles; 0 where there is none.
    recent: [AtomicUsize; 4],
    places: Mutex<Vec<Place>>,
}

/// So many are kept without looking which are over.
const FEW: usize = 8;

/// Where a graph was launched.
#[derive(Clone)]
pub(crate) enum Place {
    Stream(Stream),
    /// The default stream of a thread, which no other thread can name: its event is recorded behind every launch.
    Thread(ThreadId, Arc<Event>),
    /// Nobody knows when a launch is done: what it refers to is never let go.
    Lost,
}

/// The handle of the calling thread's default stream.
const PER_THREAD: usize = 2;

impl Launched {
    #[inline]
    pub(crate) fn knows(&self, stream: &Stream) -> bool {
        let handle = stream.as_raw().addr();
        self.recent.iter().any(|recent| recent.load(Ordering::Acquire) == handle)
    }

    /// Remembers a stream. One that nobody else has is let go when it is done, or with the graph: what a graph keeps does
    /// not grow with the streams and threads that it was ever launched on. A default stream is that of the context that
    /// is current now: the graph's own, or the launch would have failed.
    #[cold]
    pub(crate) fn note(&self, stream: &Stream, context: &Context) -> Outcome<()> {
        let handle = stream.as_raw().addr();
        if handle == PER_THREAD {
            return self.note_thread(stream, context);
        }
        let stream = if stream.is_default() { stream.bound_to(context.clone()) } else { stream.clone() };
        let is_it = |place: &Place| matches!(place, Place::Stream(known) if known.as_raw().addr() == handle);
        let spare = {
            let mut places = self.places.lock();
            let known = places.iter().position(is_it);
            let at = known.unwrap_or(places.len()) % self.recent.len();
            let spare = if known.is_none() {
                places.push(Place::Stream(stream));
                None
            } else {
                Some(stream)
            };
            if let Some(slot) = self.recent.get(at) {
                slot.store(handle, Ordering::Release);
            }
            spare
        };
        drop(spare);
        self.let_go();
        Ok(())
    }

    /// Lets go of streams and events that nobody else has, and that are done. Looked for at each power of two.
    fn let_go(&self) {
        let mut over = Vec::new();
        let looked = {
            let mut places = self.places.lock();
            if places.len() < FEW || !places.len().is_power_of_two() {
                return;
            }
            relaxed_scope::relaxed(|| self.take_over(&mut places, &mut over))
        };
        drop(over);
        if let Err(failure) = looked {
            failure.report("looking whether a stream that a graph was launched on is done");
        }
    }

    /// With the lock held: who has no share of a stream or an event cannot launch on it or record it meanwhile.
    fn take_over(&self, all: &mut Vec<Place>, over: &mut Vec<Place>) -> Outcome<()> {
        for at in (0..all.len()).rev() {
            let Some(place) = all.get(at) else { continue };
            if !place.is_over()? {
                continue;
            }
            if let Place::Stream(stream) = place {
                let handle = stream.as_raw().addr();
                for recent in &self.recent {
                    // Its handle may come round again.
                    if recent.load(Ordering::Relaxed) == handle {
                        recent.store(0, Ordering::Release);
                    }
                }
            }
            over.push(all.swap_remove(at));
        }
        Ok(())
    }

    fn note_thread(&self, stream: &Stream, context: &Context) -> Outcome<()> {
        let me = thread::current().id();
        let known = self.places.lock().iter().find_map(|place| match place {
            Place::Thread(thread, event) if *thread == me => Some(Arc::clone(event)),
            _ => None,
        });
        let followed = match known {
            Some(event) => cuirass_call::event::record(event.as_raw(), stream.as_raw()),
            None => self.follow_thread(me, stream, context),
        };
        if followed.is_err() {
            self.places.lock().push(Place::Lost);
        }
        self.let_go();
        followed
    }

    fn follow_thread(&self, me: ThreadId, stream: &Stream, context: &Context) -> Outcome<()> {
        let event = Arc::new(Event::create(context, &EventOptions::default())?);
        cuirass_call::event::record(event.as_raw(), stream.as_raw())?;
        self.places.lock().push(Place::Thread(me, event));
        Ok(())
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        self.places.lock().clone()
    }

    pub(crate) fn into_places(self) -> Vec<Place> {
        self.places.into_inner()
    }
}

impl Place {
    /// Whether its launches are done, and nobody can launch there any more.
    fn is_over(&self) -> Outcome<bool> {
        match self {
            Place::Stream(stream) if stream.is_created() && !stream.is_shared() => {
                Ok(call::stream_is_capturing(stream.as_raw())? == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
                    && cuirass_call::stream::query(stream.as_raw())?)
            }
            Place::Thread(_, event) if Arc::strong_count(event) == 1 => event::query_inner(event),
            Place::Stream(_) | Place::Thread(..) | Place::Lost => Ok(false),
        }
    }
}

/// What waits for its streams.
struct Waiting {
    streams: Vec<Passing>,
    attachments: Arc<Attachments>,
}

/// Things that may be in use by the device still, and so are never released.
static LEAKED: Global<Vec<Arc<Attachments>>> = Global::new(Vec::new(), Vec::new());

/// Lets go of what a graph refers to, once the streams have passed what is on them now: at once where they have.
pub(crate) fn release_after(places: Vec<Place>, attachments: Arc<Attachments>) -> Outcome<()> {
    if places.is_empty() || attachments.is_empty() {
        drop(attachments);
        return Ok(());
    }
    let passing = |place| match place {
        Place::Stream(stream) => Some(Passing::Unmarked(stream)),
        Place::Thread(_, event) => Some(Passing::Marked(event)),
        Place::Lost => None,
    };
    let known: Option<Vec<Passing>> = places.into_iter().map(passing).collect();
    let Some(streams) = known else {
        LEAKED.lock().push(attachments);
        let message = "a launch on a thread's default stream could not be followed when it was made";
        return Err(Waiting::leaked(Failure::misuse(Misuse::State, message)));
    };
    let mut waiting = Waiting { streams, attachments };
    match waiting.attempt() {
        Ok(Attempt::Done) => Ok(()),
        Ok(Attempt::Wait) => {
            deferred::defer("what a graph refers to", 0_u64, move || waiting.attempt().map_err(Waiting::leaked));
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
            match passing.step() {
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
