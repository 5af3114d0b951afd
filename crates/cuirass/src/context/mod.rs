//! Contexts: a device's primary one, created ones, and which one is current.

pub(crate) mod capture;
pub(crate) mod scope;

use crate::device::Device;
use crate::{Outcome, Result};
use cuirass_call::context as call;
use cuirass_call::memory::buffer as memory;
use cuirass_call::owner::{Kind, Opaque, Owned};
use cuirass_call::sys::cuda::{CUcontext, CUdevice, CUlimit};
use cuirass_fault::Failure;
use std::sync::{Arc, Weak};

/// A CUDA context. Clones are the same context; it is released with the last of them and of everything made in it.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    handle: Handle,
    device: Device,
}

/// Tells a context from every other, those that come after it among them, and has no share of it.
pub(crate) struct Identity {
    address: usize,
    /// Keeps the place, so that no other context has the address.
    _place: Weak<Inner>,
}

impl Identity {
    /// Whether it is this context's.
    #[inline]
    pub(crate) fn is(&self, context: &Context) -> bool {
        self.address == Arc::as_ptr(&context.0).addr()
    }
}

enum Handle {
    Primary(Owned<Primary>),
    Created(Owned<Created>),
    Borrowed(Opaque<CUcontext>),
}

struct Primary;

impl Kind for Primary {
    const NAME: &'static str = "a primary context";
    type Raw = CUcontext;
    type Parent = CUdevice;

    fn release(_context: CUcontext, device: CUdevice) -> Outcome<()> {
        call::device_primary_ctx_release(device)
    }

    fn waits(_device: &CUdevice) -> bool {
        true
    }
}

struct Created;

impl Kind for Created {
    const NAME: &'static str = "a context";
    type Raw = CUcontext;
    type Parent = ();

    fn release(context: CUcontext, (): ()) -> Outcome<()> {
        call::ctx_destroy(context)
    }

    fn waits((): &()) -> bool {
        true
    }
}

/// What a context limits: the driver's numbers.
pub type ContextLimit = CUlimit;

impl Context {
    #[cold]
    pub(crate) fn retain_primary(device: Device) -> Outcome<Context> {
        let raw = call::device_primary_ctx_retain(device.raw())?;
        let handle = Handle::Primary(Owned::new(raw, device.raw()));
        Ok(Context(Arc::new(Inner { handle, device })))
    }

    /// `cuCtxCreate_v2`: a context of its own on a device. The caller's context stays current.
    ///
    /// # Errors
    /// What the driver answers; nothing is left created.
    pub fn create(device: Device) -> Result<Context> {
        crate::driver::initialized()?;
        crate::deferred::before_creating()?;
        let previous = call::ctx_get_current()?;
        let raw = scope::create_current(previous, || call::ctx_create(0, device.raw()), call::ctx_destroy)?;
        Ok(Context(Arc::new(Inner { handle: Handle::Created(Owned::new(raw, ())), device })))
    }

    /// The context that is current on this thread; `None` where none is.
    ///
    /// # Errors
    /// What `cuCtxGetCurrent` and `cuCtxGetDevice` answer.
    pub fn current() -> Result<Option<Context>> {
        Ok(Context::current_inner()?)
    }

    pub(crate) fn current_inner() -> Outcome<Option<Context>> {
        crate::driver::initialized()?;
        let raw = call::ctx_get_current()?;
        if raw.is_null() {
            return Ok(None);
        }
        let device = Device::of_raw(call::ctx_get_device()?)?;
        Ok(Some(Context::known(raw, device)))
    }

    /// The current context, or without one the primary context of the first device: for calls that want some context
    /// and do not care which.
    pub(crate) fn current_or_primary() -> Outcome<Context> {
        match Context::current_inner()? {
            Some(context) => Ok(context),
            None => Device::new(0).map_err(Failure::from)?.primary(),
        }
    }

    /// The context of a raw handle: the device's own primary one where it is that, else one that is borrowed.
    pub(crate) fn known(raw: CUcontext, device: Device) -> Context {
        match device.primary_if_retained() {
            Some(primary) if primary.raw() == raw => primary,
            _ => Context(Arc::new(Inner { handle: Handle::Borrowed(Opaque(raw)), device })),
        }
    }

    /// The context that a handle of another library's stream belongs to.
    pub(crate) fn of_raw(raw: CUcontext) -> Outcome<Context> {
        let device = scope::read(raw, call::ctx_get_device)?;
        Ok(Context::known(raw, Device::of_raw(device)?))
    }

    /// A context of another library's, which is never released here.
    ///
    /// # Safety
    /// The handle is a live context, and stays so as long as this and everything made in it lives.
    #[allow(unsafe_code)]
    pub unsafe fn borrow_raw(raw: CUcontext, device: Device) -> Context {
        Context(Arc::new(Inner { handle: Handle::Borrowed(Opaque(raw)), device }))
    }

    /// Takes charge of a context made by `cuCtxCreate`: it is destroyed with the last clone.
    ///
    /// # Safety
    /// The handle is a live context of `device` that nobody else destroys.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(raw: CUcontext, device: Device) -> Context {
        Context(Arc::new(Inner { handle: Handle::Created(Owned::new(raw, ())), device }))
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUcontext {
        self.raw()
    }

    pub(crate) fn raw(&self) -> CUcontext {
        match &self.0.handle {
            Handle::Primary(owned) => owned.raw(),
            Handle::Created(owned) => owned.raw(),
            Handle::Borrowed(token) => token.0,
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity { address: Arc::as_ptr(&self.0).addr(), _place: Arc::downgrade(&self.0) }
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Whether it is its device's primary context, retained by cuirass.
    pub fn is_primary(&self) -> bool {
        matches!(self.0.handle, Handle::Primary(_))
    }

    /// Gives up this share. If it is the last one the context is released, and the driver's answer returned.
    ///
    /// # Errors
    /// What the driver answers to the release; the handle is spent all the same.
    pub fn close(self) -> Result<()> {
        Ok(self.close_inner()?)
    }

    pub(crate) fn close_inner(self) -> Outcome<()> {
        match Arc::into_inner(self.0).map(|inner| inner.handle) {
            Some(Handle::Primary(owned)) => owned.close(),
            Some(Handle::Created(owned)) => owned.close(),
            Some(Handle::Borrowed(_)) | None => Ok(()),
        }
    }

    /// Makes it current on this thread, with one `cuCtxSetCurrent`, and returns what was current before.
    ///
    /// # Errors
    /// What the driver answers; the previous context is then still current.
    pub fn set_current(&self) -> Result<Option<Context>> {
        let previous = Context::current_inner()?;
        call::ctx_set_current(self.raw())?;
        Ok(previous)
    }

    /// `cuCtxSynchronize`: waits for all work in this context.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it.
    pub fn synchronize(&self) -> Result<()> {
        Ok(scope::read(self.raw(), call::ctx_synchronize)?)
    }

    /// `cuCtxGetStreamPriorityRange`: the least and the greatest priority; a lower number goes first.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn stream_priority_range(&self) -> Result<(i32, i32)> {
        Ok(scope::read(self.raw(), call::ctx_get_stream_priority_range)?)
    }

    /// `cuCtxGetLimit`
    ///
    /// # Errors
    /// What the driver answers, `UNSUPPORTED_LIMIT` among it.
    pub fn limit(&self, limit: ContextLimit) -> Result<usize> {
        Ok(scope::read(self.raw(), || call::ctx_get_limit(limit))?)
    }

    /// `cuCtxSetLimit`
    ///
    /// # Errors
    /// What the driver answers.
    pub fn set_limit(&self, limit: ContextLimit, value: usize) -> Result<()> {
        Ok(scope::submit(self.raw(), "the new limit", || call::ctx_set_limit(limit, value))?)
    }

    /// `cuMemGetInfo_v2`: free and total bytes of its device.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        Ok(scope::read(self.raw(), memory::get_info)?)
    }

    /// `cuCtxGetId`: a number that no other context of this process ever has.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn id(&self) -> Result<u64> {
        Ok(call::ctx_get_id(self.raw())?)
    }
}

/// What was current on a thread before [`Context::enter`]: nothing, or a context, whoever made it.
#[must_use = "restore() makes it current again"]
pub struct Previous(Opaque<CUcontext>);

impl Previous {
    /// Makes it current again, with one `cuCtxSetCurrent`.
    ///
    /// # Errors
    /// What the driver answers; what was current until now still is.
    pub fn restore(self) -> Result<()> {
        let previous = self.0.0;
        Ok(call::ctx_set_current(previous).map_err(|failure| {
            failure.note(format!(
                "what was current before ({previous:p}) could not be restored, call `Device.set_current()` before more \
                 CUDA work on this thread"
            ))
        })?)
    }
}

impl Context {
    /// Makes it current on this thread, and returns what was current before, which [`Previous::restore`] puts back:
    /// for code that wants exactly that, whatever happens meanwhile.
    ///
    /// # Errors
    /// What the driver answers; what was current before still is.
    pub fn enter(&self) -> Result<Previous> {
        let previous = Previous(Opaque(call::ctx_get_current()?));
        call::ctx_set_current(self.raw())?;
        Ok(previous)
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:p} on device {})", self.raw(), self.device().ordinal())
    }
}
