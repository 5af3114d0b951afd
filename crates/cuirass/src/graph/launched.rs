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
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
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
    /// The default stream of a thread, which no other thread can name.
    Thread(ThreadId, Arc<Followed>),
}

/// Launches on the default stream of a thread: an event is recorded behind each.
pub(crate) struct Followed {
    event: Event,
    state: AtomicU8,
}

/// The event is behind all launches.
const MARKED: u8 = 0;
/// A launch is being made: it is before the event or not yet.
const LAUNCHING: u8 = 1;
/// The event could not be recorded: nobody knows when the launches are done, and what they refer to is never let go.
const LOST: u8 = 2;

impl Followed {
    /// Makes a launch, and records the event behind it: also where the call returned an error, since it may have been made
    /// all the same.
    pub(crate) fn launch(&self, stream: &Stream, launch: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
        self.state.store(LAUNCHING, Ordering::SeqCst);
        let launched = launch();
        let marked = cuirass_call::event::record(self.event.as_raw(), stream.raw());
        self.state.store(if marked.is_ok() { MARKED } else { LOST }, Ordering::SeqCst);
        match (launched, marked) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(failure)) => Err(failure.note("the launch itself was submitted: do not repeat it")),
            (Err(failure), Ok(())) => Err(failure),
            (Err(failure), Err(second)) => {
                Err(second.attach_to(failure, "the launch, if it was made, could not be followed"))
            }
        }
    }

    /// Whether the launches that were made before the question are done.
    fn is_passed(&self) -> Outcome<bool> {
        match self.state.load(Ordering::SeqCst) {
            MARKED => event::query_inner(&self.event),
            LAUNCHING => Ok(false),
            _lost => {
                let message = "a launch on a thread's default stream could not be followed when it was made";
                Err(Failure::misuse(Misuse::State, message))
            }
        }
    }
}

/// The handle of the calling thread's default stream.
const PER_THREAD: usize = 2;

impl Launched {
    #[inline]
    pub(crate) fn knows(&self, stream: &Stream) -> bool {
        let handle = stream.raw().addr();
        self.recent.iter().any(|recent| recent.load(Ordering::Acquire) == handle)
    }

    /// Remembers a stream before a launch on it: an update by another thread that comes after the launch must know of it.
    /// For a thread's default stream, what the launch is to be made through is returned. A stream that nobody else has is let
    /// go when it is done, or with the graph: what a graph keeps does not grow with the streams and threads that it was ever
    /// launched on. A default stream is that of the context that is current now: the graph's own, or the launch fails.
    #[cold]
    pub(crate) fn note(&self, stream: &Stream, context: &Context) -> Outcome<Option<Arc<Followed>>> {
        let handle = stream.raw().addr();
        if handle == PER_THREAD {
            return self.note_thread(context).map(Some);
        }
        let stream = if stream.is_default() { stream.bound_to(context.clone()) } else { stream.clone() };
        let is_it = |place: &Place| matches!(place, Place::Stream(known) if known.raw().addr() == handle);
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
        Ok(None)
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
                let handle = stream.raw().addr();
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

    fn note_thread(&self, context: &Context) -> Outcome<Arc<Followed>> {
        let me = thread::current().id();
        let known = self.places.lock().iter().find_map(|place| match place {
            Place::Thread(thread, followed) if *thread == me => Some(Arc::clone(followed)),
            _ => None,
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let event = Event::create(context, &EventOptions::default())?;
        let followed = Arc::new(Followed { event, state: AtomicU8::new(MARKED) });
        self.places.lock().push(Place::Thread(me, Arc::clone(&followed)));
        self.let_go();
        Ok(followed)
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
                Ok(call::stream_is_capturing(stream.raw())? == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
                    && cuirass_call::stream::query(stream.raw())?)
            }
            Place::Thread(_, followed)
                if Arc::strong_count(followed) == 1 && followed.state.load(Ordering::SeqCst) == MARKED =>
            {
                followed.is_passed()
            }
            Place::Stream(_) | Place::Thread(..) => Ok(false),
        }
    }
}

/// What waits for its streams.
struct Waiting {
    streams: Vec<Passing>,
    threads: Vec<Arc<Followed>>,
    /// `None` once they were let go.
    attachments: Option<Arc<Attachments>>,
}

/// Things that may be in use by the device still, and so are never released.
static LEAKED: Global<Vec<Arc<Attachments>>> = Global::new(Vec::new(), Vec::new());

/// Lets go of what a graph refers to, once the streams have passed what is on them now: at once where they have.
pub(crate) fn release_after(places: Vec<Place>, attachments: &Arc<Attachments>) -> Outcome<()> {
    if places.is_empty() || attachments.is_empty() {
        return Ok(());
    }
    let (mut streams, mut threads) = (Vec::new(), Vec::new());
    for place in places {
        match place {
            Place::Stream(stream) => streams.push(Passing::Unmarked(stream)),
            Place::Thread(_, followed) => threads.push(followed),
        }
    }
    let mut waiting = Waiting { streams, threads, attachments: Some(attachments.clone()) };
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
        match self.step() {
            Ok(true) => {
                drop(self.attachments.take());
                Ok(Attempt::Done)
            }
            Ok(false) => Ok(Attempt::Wait),
            Err(failure) => {
                // It is not certain that the device is done with it.
                LEAKED.lock().extend(self.attachments.take());
                Err(failure)
            }
        }
    }

    fn step(&mut self) -> Outcome<bool> {
        let mut done = true;
        for passing in &mut self.streams {
            done &= passing.step()? == Attempt::Done;
        }
        let mut at = 0;
        while let Some(followed) = self.threads.get(at) {
            if relaxed_scope::relaxed(|| followed.is_passed())? {
                self.threads.swap_remove(at);
            } else {
                done = false;
                at += 1;
            }
        }
        Ok(done)
    }

    fn leaked(failure: Failure) -> Failure {
        failure.note("what the graph refers to is leaked, since it is not certain that its launches are done")
    }
}
