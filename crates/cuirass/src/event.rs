//! Events: markers in streams, for order and for time.

use crate::context::{Context, capture, scope};
use crate::deferred;
use crate::device::Device;
use crate::graph::{boundary, recording};
use crate::memory::IpcEventDescriptor;
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::event as call;
use cuirass_call::later::Attempt;
use cuirass_call::owner::{Kind, Owned};
use cuirass_call::sys::cuda::CUevent;
use cuirass_fault::Failure;
use std::mem::ManuallyDrop;
use std::sync::Arc;

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// An event. Dropped or closed, it is destroyed; who shares one puts it into an `Arc`.
pub struct Event {
    owned: Owned<EventKind>,
    options: EventOptions,
    /// What another process's event was opened by.
    opened_by: Option<Box<IpcEventDescriptor>>,
}

struct EventKind;

impl Kind for EventKind {
    const NAME: &'static str = "an event";
    type Raw = CUevent;
    type Parent = Context;

    fn release(event: CUevent, _context: Context) -> Outcome<()> {
        recording::forgotten(event);
        // Measured: it invalidates no capture and needs no context to be current.
        call::destroy(event)
    }
}

/// How an event is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// Whether it takes the time, for [`Event::elapsed_until`]. An event that does not is cheaper.
    pub timing: bool,
    /// Whether waiting for it sleeps instead of spinning.
    pub blocking_sync: bool,
    /// Whether other processes can use it; it then takes no time.
    pub interprocess: bool,
}

impl EventOptions {
    /// An event that takes the time.
    pub fn timed() -> EventOptions {
        EventOptions { timing: true, ..EventOptions::default() }
    }

    fn flags(self) -> u32 {
        (if self.blocking_sync { BLOCKING_SYNC } else { 0 })
            | (if self.timing { 0 } else { DISABLE_TIMING })
            | (if self.interprocess { INTERPROCESS } else { 0 })
    }
}

impl Event {
    /// `cuEventCreate`, in a context.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for an event that is interprocess and takes the time.
    pub fn create(context: &Context, options: &EventOptions) -> Result<Event> {
        Event::create_in(context.clone(), options)
    }

    #[inline]
    pub(crate) fn create_in(context: Context, options: &EventOptions) -> Result<Event> {
        deferred::before_creating()?;
        let raw = scope::create(context.raw(), || call::create(options.flags()), call::destroy)?;
        Ok(Event { owned: Owned::new(raw, context), options: *options, opened_by: None })
    }

    /// Takes charge of an event: it is destroyed with the last clone.
    ///
    /// # Safety
    /// The handle is a live event of `context`, made with `options`, that nobody else destroys.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(raw: CUevent, context: &Context, options: &EventOptions) -> Event {
        Event { owned: Owned::new(raw, context.clone()), options: *options, opened_by: None }
    }

    /// Another process's event.
    pub(crate) fn opened(raw: CUevent, context: Context, options: EventOptions, by: IpcEventDescriptor) -> Event {
        Event { owned: Owned::new(raw, context), options, opened_by: Some(Box::new(by)) }
    }

    pub(crate) fn opened_by(&self) -> Option<&IpcEventDescriptor> {
        self.opened_by.as_deref()
    }

    /// The driver's handle.
    #[inline]
    pub fn as_raw(&self) -> CUevent {
        self.owned.raw()
    }

    /// How it was made.
    pub fn options(&self) -> EventOptions {
        self.options
    }

    /// The context that it belongs to.
    pub fn context(&self) -> Context {
        self.owned.parent().clone()
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.owned.parent().device()
    }

    /// Destroys it, and returns the driver's answer.
    ///
    /// # Errors
    /// What the driver answers to the destruction; the handle is spent all the same.
    pub fn close(self) -> Result<()> {
        Ok(self.owned.close()?)
    }

    /// Destroys it because of an error that is on its way.
    #[cold]
    pub(crate) fn undone_after(self, error: crate::Error) -> crate::Error {
        match self.owned.close() {
            Ok(()) => error,
            Err(undoing) => undoing.attach_to(error.into(), "the event that was made for it was not undone").raise(),
        }
    }

    #[inline]
    pub(crate) fn record_on(&self, stream: &Stream) -> Result<()> {
        call::record(self.as_raw(), stream.raw())?;
        recording::recorded(self, stream);
        Ok(())
    }

    /// `cuEventQuery`: whether the work before its last record is done; true for an event never recorded.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it.
    #[inline]
    pub fn is_done(&self) -> Result<bool> {
        Ok(call::query(self.as_raw())?)
    }

    /// `cuEventSynchronize`: waits for the work before its last record.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it.
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        deferred::drain_if_any();
        Ok(call::synchronize(self.as_raw())?)
    }

    /// `cuEventElapsedTime`: milliseconds from this event to a later one; `None` while one of them is still pending.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` when one of them takes no time or was never recorded, or they are of different devices.
    pub fn elapsed_until(&self, end: &Event) -> Result<Option<f32>> {
        Ok(call::elapsed_time(self.as_raw(), end.as_raw())?)
    }
}

/// [`Event::is_done`], for releases.
pub(crate) fn query_inner(event: &Event) -> Outcome<bool> {
    call::query(event.as_raw())
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.as_raw() == other.as_raw()
    }
}

impl Eq for Event {}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:p})", self.as_raw())
    }
}

/// One stream that has to pass what is on it.
pub(crate) enum Passing {
    /// Its event is not recorded yet: the stream is being captured.
    Unmarked(Stream),
    /// Behind what has to be passed.
    Marked(Arc<Event>),
    Passed(Arc<Event>),
}

impl Passing {
    /// Looks whether the stream has passed it, which disturbs no capture.
    pub(crate) fn step(&mut self) -> Outcome<Attempt> {
        if let Passing::Unmarked(stream) = self {
            match mark(stream)? {
                None => return Ok(Attempt::Wait),
                Some(event) => *self = Passing::Marked(Arc::new(event)),
            }
        }
        if let Passing::Marked(event) = self {
            if !capture::relaxed(|| query_inner(event))? {
                return Ok(Attempt::Wait);
            }
            *self = Passing::Passed(Arc::clone(event));
        }
        Ok(Attempt::Done)
    }

    /// [`step`](Passing::step); once the stream has passed it, that is waited for too, which is over at once. Measured: some
    /// of what a driver is given back it lets go only where a call has waited for it.
    pub(crate) fn step_and_wait(&mut self) -> Outcome<Attempt> {
        let attempt = self.step()?;
        if let Passing::Passed(event) = self {
            capture::relaxed(|| call::synchronize(event.as_raw()))?;
        }
        Ok(attempt)
    }

    /// Releases something once the stream has passed it, from the deferred queue. Where that cannot be known it is leaked,
    /// and reported.
    pub(crate) fn release_behind<T: Send + 'static>(
        self,
        what: &'static str,
        number: u64,
        value: T,
        release: fn(T) -> Outcome<()>,
    ) {
        let mut waiting = Box::new(Some((self, value)));
        deferred::defer(what, number, move || {
            let passed = match waiting.as_mut() {
                Some((passing, _value)) => passing.step(),
                None => return Ok(Attempt::Done),
            };
            if matches!(passed, Ok(Attempt::Wait)) {
                return passed;
            }
            let Some((passing, value)) = waiting.take() else { return Ok(Attempt::Done) };
            let released = match passed {
                Ok(_passed) => release(value),
                Err(failure) => {
                    // It is not certain that the device is done with it.
                    let _leaked = ManuallyDrop::new(value);
                    Err(failure.leaking(format_args!("{what} that was to go back behind a captured stream")))
                }
            };
            match (released, passing.close()) {
                (Ok(()), closed) => closed.map(|()| Attempt::Done),
                (Err(first), Ok(())) => Err(first),
                (Err(first), Err(second)) => Err(second.attach_to(first, "its event was not given back")),
            }
        });
    }

    /// Gives up its event.
    pub(crate) fn close(self) -> Outcome<()> {
        let event = match self {
            Passing::Marked(event) | Passing::Passed(event) => Arc::into_inner(event),
            Passing::Unmarked(_) => None,
        };
        event.map_or(Ok(()), |event| event.close().map_err(Failure::from))
    }
}

/// An event behind what is on a stream; `None` while the stream is being captured.
fn mark(stream: &Stream) -> Outcome<Option<Event>> {
    let context = stream.context_inner()?;
    let raw = stream.raw();
    scope::create(
        context.as_raw(),
        || {
            if stream.is_in_a_capture()? {
                return Ok(None);
            }
            // Held outside, so that it is undone with the failure where the mode cannot be restored.
            let mut made = None;
            let result = capture::relaxed(|| {
                let event = made.insert(Event::create(&context, &EventOptions::default())?);
                let Some(_releasing) = boundary::releasing(raw).filter(|_| !recording::is_captured(stream)) else {
                    return Ok(true);
                };
                cuirass_call::event::record(event.as_raw(), raw)?;
                stream.is_in_a_capture()
            });
            match (result, made) {
                (Ok(_), None) => Ok(None),
                (Ok(is_captured), Some(event)) => match is_captured {
                    false => Ok(Some(event)),
                    // A capture of the stream has begun meanwhile: the event may be of that, which asking for it would
                    // spoil.
                    true => event.close().map(|()| None).map_err(Failure::from),
                },
                (Err(failure), None) => Err(failure),
                (Err(failure), Some(event)) => Err(Failure::from(event.undone_after(failure.raise()))),
            }
        },
        |event| event.map_or(Ok(()), |event| event.close().map_err(Failure::from)),
    )
}
