//! Streams: queues of work on a device.

use crate::context::{Context, capture as relaxed_scope, scope};
use crate::deferred;
use crate::device::Device;
use crate::driver;
use crate::event::{Event, EventOptions, Passing};
use crate::graph::boundary;
use crate::graph::known::Known;
use crate::graph::recording;
use crate::memory::MemoryPool;
use crate::{Outcome, Result};
use cuirass_call::context as context_call;
use cuirass_call::event as event_call;
use cuirass_call::graph::builder as capture;
use cuirass_call::later::{Attempt, Places};
use cuirass_call::owner::{Kind, Opaque, Owned, in_callback};
use cuirass_call::status::code;
use cuirass_call::stream as call;
use cuirass_call::sys::cuda::{CUstream, CUstreamCaptureStatus};
use cuirass_fault::{Failure, Misuse};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// A stream. Clones are the same stream; it is destroyed with the last of them and of what depends on it.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    raw: Opaque<CUstream>,
    /// Where it comes from, which is what its end depends on.
    origin: Origin,
    /// Of the capture that it takes part in.
    known: Known,
    /// Whether anybody outside cuirass has been given the handle.
    is_known_outside: AtomicBool,
    /// A pool that is not destroyed here and that memory was allocated from in the stream's order: such memory has a share
    /// of the stream, and needs none of the pool.
    pool: OnceLock<MemoryPool>,
    /// For the releases of that memory, should they have to wait.
    places: Places,
}

impl Inner {
    fn shared(raw: CUstream, origin: Origin) -> Stream {
        Stream(Arc::new(Inner {
            raw: Opaque(raw),
            origin,
            known: Known::default(),
            is_known_outside: AtomicBool::new(false),
            pool: OnceLock::new(),
            places: Places::default(),
        }))
    }
}

enum Origin {
    Created(Owned<StreamKind>),
    /// Another library's; what keeps it alive is kept.
    Foreign {
        _owner: Option<Arc<dyn Any + Send + Sync>>,
    },
    /// One of the two default streams. It follows the current context, unless it is bound to one, as it is where it
    /// orders a release that comes later.
    Default {
        bound: Option<Context>,
    },
}

pub(crate) struct StreamKind;

impl Kind for StreamKind {
    const NAME: &'static str = "a stream";
    type Raw = CUstream;
    type Parent = Context;

    fn release(stream: CUstream, context: Context) -> Outcome<()> {
        deferred::drain_if_any();
        match is_captured(stream) {
            // Measured: it invalidates no capture and needs no context to be current.
            Ok(false) => call::destroy(stream),
            Ok(true) => {
                // Destroying it would work, and silently drop the capture.
                let token = Opaque(stream);
                deferred::defer(StreamKind::NAME, stream, move || destroy_after_capture(token, &context));
                Err(captured(stream))
            }
            Err(failure) => Err(scope::keep_if_leaked(context, leaking(stream, failure))),
        }
    }
}

/// Whether it is being captured is not known: its end might drop the capture, and so might that of its context.
#[cold]
fn leaking(stream: CUstream, failure: Failure) -> Failure {
    failure.leaking(format_args!("stream {stream:p}"))
}

fn is_captured(stream: CUstream) -> Outcome<bool> {
    Ok(capture::stream_is_capturing(stream)? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

fn captured(stream: CUstream) -> Failure {
    Failure::misuse(
        Misuse::State,
        format!("stream {stream:p} is being captured; it is destroyed once the capture has ended"),
    )
}

fn destroy_after_capture(stream: Opaque<CUstream>, context: &Context) -> Outcome<Attempt> {
    match is_captured(stream.0) {
        Ok(true) => Ok(Attempt::Wait),
        Ok(false) => call::destroy(stream.0).map(|()| Attempt::Done),
        Err(failure) => Err(scope::keep_if_leaked(context.clone(), leaking(stream.0, failure))),
    }
}

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// It is not.
    None,
    /// It is.
    Active,
    /// It is, and the capture has been invalidated: ending it returns an error, and no graph.
    Invalidated,
}

/// How a stream is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether it takes no part in the implicit order of the legacy default stream. True by default.
    pub nonblocking: bool,
    /// A lower number goes first; `None` is the default priority, 0.
    pub priority: Option<i32>,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { nonblocking: true, priority: None }
    }
}

static LEGACY: LazyLock<Stream> = LazyLock::new(|| Stream::default_stream(1));
static PER_THREAD: LazyLock<Stream> = LazyLock::new(|| Stream::default_stream(2));

impl Stream {
    fn default_stream(handle: usize) -> Stream {
        Inner::shared(std::ptr::without_provenance_mut(handle), Origin::Default { bound: None })
    }

    /// The legacy default stream of whichever context is current when it is used.
    pub fn legacy_default() -> Stream {
        LEGACY.clone()
    }

    /// The calling thread's default stream of whichever context is current when it is used.
    pub fn per_thread_default() -> Stream {
        PER_THREAD.clone()
    }

    /// `cuStreamCreateWithPriority`, in a context.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a priority out of range; what the driver answers.
    pub fn create(context: &Context, options: &StreamOptions) -> Result<Stream> {
        Stream::create_in(context.clone(), options)
    }

    #[inline]
    pub(crate) fn create_in(context: Context, options: &StreamOptions) -> Result<Stream> {
        deferred::before_creating()?;
        let flags = u32::from(options.nonblocking);
        let raw = scope::create(
            context.raw(),
            || {
                let priority = options.priority.unwrap_or(0);
                if priority != 0 {
                    // The driver takes any number and clamps it; a user's mistake would pass unseen.
                    let (least, greatest) = context_call::ctx_get_stream_priority_range()?;
                    if !(greatest..=least).contains(&priority) {
                        return Err(Failure::misuse(
                            Misuse::Value,
                            format!("priority must be from {greatest} to {least}, it is {priority}"),
                        ));
                    }
                }
                call::create_with_priority(flags, priority)
            },
            call::destroy,
        )?;
        Ok(Stream::owning(Owned::new(raw, context)))
    }

    pub(crate) fn owning(owned: Owned<StreamKind>) -> Stream {
        Inner::shared(owned.raw(), Origin::Created(owned))
    }

    /// A stream of another library's, which is never destroyed here. `owner` is kept as long as the stream is.
    ///
    /// # Safety
    /// The handle is a live stream, and stays so as long as `owner` lives.
    #[allow(unsafe_code)]
    pub unsafe fn borrow_raw(raw: CUstream, owner: Option<Arc<dyn Any + Send + Sync>>) -> Stream {
        match raw.addr() {
            0 | 1 => Stream::legacy_default(),
            2 => Stream::per_thread_default(),
            _ => Inner::shared(raw, Origin::Foreign { _owner: owner }),
        }
    }

    /// Takes charge of a stream: it is destroyed with the last clone.
    ///
    /// # Safety
    /// The handle is a live stream of `context` that nobody else destroys.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(raw: CUstream, context: &Context) -> Stream {
        Stream::owning(Owned::new(raw, context.clone()))
    }

    /// The driver's handle: 1 and 2 for the default streams.
    #[inline]
    pub fn as_raw(&self) -> CUstream {
        self.0.is_known_outside.store(true, Ordering::Relaxed);
        self.raw()
    }

    /// The handle, for cuirass itself.
    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.0.raw.0
    }

    /// The pool that it has a share of.
    #[inline]
    pub(crate) fn pool(&self) -> Option<&MemoryPool> {
        self.0.pool.get()
    }

    /// Whether it has a share of a pool, which memory needs that is allocated from it in the stream's order: of the first that
    /// it is asked about and that is not destroyed here, where that keeps no context alive that the stream does not.
    #[inline]
    pub(crate) fn has_pool(&self, pool: &MemoryPool) -> bool {
        match self.pool() {
            Some(own) => own.is_same(pool),
            None => self.take_pool(pool),
        }
    }

    #[cold]
    fn take_pool(&self, pool: &MemoryPool) -> bool {
        !pool.is_owned()
            && self.own_context() == Some(pool.context())
            && self.0.pool.get_or_init(|| pool.clone()).is_same(pool)
    }

    /// Before memory is allocated that it has the pool of: a place for its release, should that have to wait.
    #[inline]
    pub(crate) fn take_place(&self) {
        self.0.places.cover(Arc::strong_count(&self.0) + 1);
    }

    /// What it knows of the capture that it takes part in.
    #[inline]
    pub(crate) fn known(&self) -> &Known {
        &self.0.known
    }

    /// Whether anything else has a share of it: a clone, or a buffer that is freed in its order.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether it is one of the two default streams.
    pub fn is_default(&self) -> bool {
        matches!(self.0.origin, Origin::Default { .. })
    }

    /// Whether it is destroyed with its last share.
    pub(crate) fn is_created(&self) -> bool {
        matches!(self.0.origin, Origin::Created(_))
    }

    pub(crate) fn is_legacy_default(&self) -> bool {
        self.raw().addr() == 1
    }

    /// The same default stream, as that of one context whatever is current.
    pub(crate) fn bound_to(&self, context: Context) -> Stream {
        Inner::shared(self.raw(), Origin::Default { bound: Some(context) })
    }

    /// As it can order a release later: a default stream together with the context whose it is now, which is `otherwise`
    /// where none is current.
    pub(crate) fn bound(&self, otherwise: &Context) -> Outcome<Stream> {
        if !self.is_default() || self.bound_context().is_some() {
            return Ok(self.clone());
        }
        let context = Context::current_inner()?.unwrap_or_else(|| otherwise.clone());
        Ok(self.bound_to(context))
    }

    /// The context that a default stream is bound to.
    pub(crate) fn bound_context(&self) -> Option<&Context> {
        match &self.0.origin {
            Origin::Default { bound } => bound.as_ref(),
            _ => None,
        }
    }

    /// Whether cuirass made it, and so destroys it.
    pub fn is_owned(&self) -> bool {
        matches!(self.0.origin, Origin::Created(_))
    }

    /// Whether it is being captured, and whether the capture is still good (`cuStreamIsCapturing`). Asking disturbs
    /// no capture.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy default stream while another stream's capture involves it.
    pub fn capture_status(&self) -> Result<CaptureStatus> {
        Ok(match capture::stream_is_capturing(self.raw())? {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => CaptureStatus::None,
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => CaptureStatus::Active,
            _ => CaptureStatus::Invalidated,
        })
    }

    /// Whether work on it would now belong to a capture, or disturb one. Asking disturbs none.
    pub(crate) fn is_in_a_capture(&self) -> Outcome<bool> {
        match capture::stream_is_capturing(self.raw()) {
            Ok(status) => Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
            Err(failure) if failure.status() == Some(code::STREAM_CAPTURE_IMPLICIT) => {
                failure.answered();
                Ok(true)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Waits for its work as a release does, which disturbs no capture. While it is being captured it cannot be waited for:
    /// what it then has to pass is returned. Measured: a thread in relaxed mode may wait for a stream whatever is captured
    /// elsewhere.
    pub(crate) fn wait_for_release(&self) -> Outcome<Option<Passing>> {
        deferred::drain_if_any();
        let raw = self.raw();
        relaxed_scope::relaxed(|| {
            let is_captured = match boundary::releasing(raw) {
                Some(_releasing) => self.is_in_a_capture()?,
                None => true,
            };
            if is_captured {
                return self.to_be_passed().map(Some);
            }
            call::synchronize(raw)?;
            Ok(None)
        })
    }

    /// As whichever thread drains the queue can name it.
    #[cold]
    fn to_be_passed(&self) -> Outcome<Passing> {
        if self.raw() == PER_THREAD.raw() {
            let message = "this thread's default stream is being captured, and nobody else can wait for it later: close \
                           behind it when the capture has ended";
            return Err(Failure::misuse(Misuse::State, message));
        }
        Ok(Passing::Unmarked(match Context::current_inner()? {
            Some(context) if self.is_default() => self.bound_to(context),
            _ => self.clone(),
        }))
    }

    /// Lets something go once the work that is on the stream by now is done, for which it waits: how memory goes back whose
    /// release no stream orders. While the stream is being captured, which waiting would spoil, it returns at once: what
    /// waits goes when the capture has ended and the stream has passed what was put on it until then.
    ///
    /// # Errors
    /// What the driver answers where the stream cannot be waited for, with the object: the work may need it still.
    pub fn let_go_behind<T: Send + 'static>(&self, object: T) -> std::result::Result<(), Box<(T, crate::Error)>> {
        match self.wait_for_release() {
            Ok(None) => Ok(()),
            Ok(Some(passing)) => {
                passing.release_behind("what waits for a stream", 0, object, |object| {
                    drop(object);
                    Ok(())
                });
                Ok(())
            }
            Err(failure) => Err(Box::new((object, failure.raise()))),
        }
    }

    /// Gives up this share. If it is the last one the stream is destroyed, and the driver's answer returned. Work
    /// that is on it goes on.
    ///
    /// # Errors
    /// What the driver answers to the destruction; the handle is spent all the same.
    /// [`ErrorKind::State`](crate::ErrorKind::State) while it is being captured: it is then destroyed once the capture
    /// has ended.
    pub fn close(self) -> Result<()> {
        if recording::of(&self).is_some() {
            return Err(captured(self.raw()).raise());
        }
        match Arc::into_inner(self.0).map(|inner| inner.origin) {
            Some(Origin::Created(owned)) => Ok(owned.close()?),
            Some(Origin::Foreign { .. } | Origin::Default { .. }) | None => Ok(()),
        }
    }

    /// Gives up the stream of a graph builder, whose context has this number. The next builder gets it where nothing else
    /// has a share of it, so that no memory is freed in its order, and nobody outside cuirass has its handle, so that
    /// nobody can have changed it or use it still; where it takes no part in a capture, as it does in another library's that
    /// it has waited for; and where all its work is done, which the next one's would wait for.
    pub(crate) fn close_for_next(self, context_id: u64) -> Result<()> {
        let Some(inner) = Arc::into_inner(self.0) else { return Ok(()) };
        let Origin::Created(owned) = inner.origin else { return Ok(()) };
        // Where no call may be made its release is queued.
        if inner.is_known_outside.into_inner() || driver::is_forked() || in_callback() {
            return Ok(owned.close()?);
        }
        match is_captured(owned.raw()) {
            Ok(false) => {}
            Ok(true) => return Ok(owned.close()?),
            Err(failure) => {
                let (raw, context) = owned.into_raw();
                return Err(scope::keep_if_leaked(context, leaking(raw, failure)).raise());
            }
        }
        match relaxed_scope::relaxed(|| call::query(owned.raw())) {
            Ok(true) => {}
            Ok(false) => return Ok(owned.close()?),
            Err(failure) => {
                return Err(match owned.close() {
                    Ok(()) => failure,
                    Err(closing) => closing.attach_to(failure, "the stream was not given back"),
                }
                .raise());
            }
        }
        let device = owned.parent().device();
        Ok(device.keep_stream(owned, context_id).map_or(Ok(()), Owned::close)?)
    }

    /// The context that it belongs to; for a default stream, the current one.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn context(&self) -> Result<Context> {
        match &self.0.origin {
            Origin::Created(owned) => Ok(owned.parent().clone()),
            Origin::Foreign { .. } | Origin::Default { .. } => Ok(Context::of_raw(call::get_ctx(self.raw())?)?),
        }
    }

    /// The context that it keeps alive, of a stream that was created here.
    #[inline]
    pub(crate) fn own_context(&self) -> Option<&Context> {
        match &self.0.origin {
            Origin::Created(owned) => Some(owned.parent()),
            Origin::Foreign { .. } | Origin::Default { .. } => None,
        }
    }

    /// As [`context`](Stream::context); of a default stream that is bound to a context, that one.
    pub(crate) fn context_inner(&self) -> Outcome<Context> {
        match &self.0.origin {
            Origin::Created(owned) => Ok(owned.parent().clone()),
            Origin::Default { bound: Some(context) } => Ok(context.clone()),
            Origin::Foreign { .. } | Origin::Default { .. } => Context::of_raw(call::get_ctx(self.raw())?),
        }
    }

    /// The device that it is on, where that is known without asking the driver.
    pub(crate) fn known_device(&self) -> Option<Device> {
        match &self.0.origin {
            Origin::Created(owned) => Some(owned.parent().device()),
            Origin::Default { bound } => bound.as_ref().map(Context::device),
            Origin::Foreign { .. } => None,
        }
    }

    /// The device that it is on.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn device(&self) -> Result<Device> {
        match &self.0.origin {
            Origin::Created(owned) => Ok(owned.parent().device()),
            Origin::Foreign { .. } | Origin::Default { .. } => Ok(self.context()?.device()),
        }
    }

    /// `cuStreamSynchronize`: waits for all its work.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it.
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        deferred::drain_if_any();
        Ok(call::synchronize(self.raw())?)
    }

    /// `cuStreamQuery`: whether all its work is done.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it.
    #[inline]
    pub fn is_done(&self) -> Result<bool> {
        Ok(call::query(self.raw())?)
    }

    /// `cuEventRecord`: puts the event behind the work that is on the stream now.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` when the event is of another context.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<()> {
        event.record_on(self)
    }

    /// A new event of this stream's context, recorded.
    ///
    /// # Errors
    /// What the driver answers; nothing is left created.
    pub fn record_new(&self, options: &EventOptions) -> Result<Event> {
        let event = Event::create(&self.context()?, options)?;
        match self.record(&event) {
            Ok(()) => Ok(event),
            Err(error) => Err(event.undone_after(error)),
        }
    }

    /// `cuStreamWaitEvent`: what comes later on this stream waits for the event's last record.
    ///
    /// # Errors
    /// What the driver answers.
    #[inline]
    pub fn wait(&self, event: &Event) -> Result<()> {
        if recording::any() {
            return self.wait_beside_captures(event);
        }
        Ok(call::wait_event(self.raw(), event.as_raw(), 0)?)
    }

    #[cold]
    fn wait_beside_captures(&self, event: &Event) -> Result<()> {
        let _crossing = recording::joins_by(event).then(|| boundary::crossing(self));
        call::wait_event(self.raw(), event.as_raw(), 0)?;
        recording::waited(self, event);
        Ok(())
    }

    /// What comes later on this stream waits for the work that is on the other now.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait_for_stream(&self, other: &Stream) -> Result<()> {
        // The event has to be of the context of the stream that is waited for.
        let event = Event::create(&other.context()?, &EventOptions::default())?;
        let crossing = recording::is_captured(other).then(|| boundary::crossing(self));
        let recorded = event_call::record(event.as_raw(), other.raw());
        if let Err(failure) = recorded.and_then(|()| call::wait_event(self.raw(), event.as_raw(), 0)) {
            return Err(event.undone_after(failure.raise()));
        }
        recording::waited_for_stream(self, other);
        drop(crossing);
        // An event may be destroyed while it is waited for.
        let closed = event.close();
        closed.map_err(|error| Failure::from(error).note("the wait itself was submitted: do not repeat it").raise())
    }

    /// As [`wait_for_stream`](Stream::wait_for_stream), where a default stream is that of a device: of the current
    /// context where that is on the device, else of the device's primary one.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn wait_for_stream_of(&self, other: &Stream, device: Device) -> Result<()> {
        let follows_current = self.is_default() || other.is_default();
        if !follows_current || Device::current()? == Some(device) {
            return self.wait_for_stream(other);
        }
        Ok(self.wait_in(other, &device.primary()?)?)
    }

    /// As [`wait_for_stream`](Stream::wait_for_stream), with a context current.
    pub(crate) fn wait_in(&self, other: &Stream, context: &Context) -> Outcome<()> {
        scope::submit(context.raw(), "the wait", || self.wait_for_stream(other).map_err(Failure::from))
    }

    /// `cuStreamGetPriority`: a lower number goes first.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn priority(&self) -> Result<i32> {
        Ok(call::get_priority(self.raw())?)
    }

    /// Whether it takes no part in the implicit order of the legacy default stream (`cuStreamGetFlags`).
    ///
    /// # Errors
    /// What the driver answers.
    pub fn is_nonblocking(&self) -> Result<bool> {
        Ok(call::get_flags(self.raw())? & 1 != 0)
    }

    /// `cuStreamGetId`: a number that no other stream of this process ever has.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn id(&self) -> Result<u64> {
        self.0.is_known_outside.store(true, Ordering::Relaxed);
        Ok(call::get_id(self.raw())?)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Stream {}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:p})", self.raw())
    }
}
