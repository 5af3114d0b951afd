//! The one owner of driver handles, with the one `Drop` for them in the workspace.

use crate::later::{self, Attempt, Later, Named, Slot};
use crate::status::{STICKY_NOTE, code};
use crate::table::is_forked;
use cuirass_fault::{Facts, Failure};
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a driver handle can be: a token that is copied, and has a number to name it by.
pub trait Handle: Copy + 'static {
    /// The number that a report names it by.
    fn number(self) -> u64;
}

impl<T: 'static> Handle for *mut T {
    fn number(self) -> u64 {
        self.addr() as u64
    }
}

impl Handle for std::ffi::c_int {
    fn number(self) -> u64 {
        u64::from(self.unsigned_abs())
    }
}

impl Handle for u64 {
    fn number(self) -> u64 {
        self
    }
}

impl<T: Handle> Handle for Opaque<T> {
    fn number(self) -> u64 {
        self.0.number()
    }
}

/// A kind of handle: how it is called and how it is given back.
pub trait Kind: Sized + 'static {
    /// What it is called in a report: "a stream".
    const NAME: &'static str;
    /// The driver's handle.
    type Raw: Handle;
    /// What the handle needs as long as it lives.
    type Parent: Send + Sync + 'static;

    /// Gives the handle back, and what it needed. Called once; whatever it returns, the handle is spent: a destroy may
    /// return an older, asynchronous error after having worked, so that it is never called again.
    fn release(raw: Self::Raw, parent: Self::Parent) -> Result<(), Failure>;

    /// Whether each has a place in the queue of releases that wait, should its own have to. Where not, what it needs has it.
    const HAS_PLACE: bool = true;

    /// Whether the release may wait for work that is under way.
    fn waits(_parent: &Self::Parent) -> bool {
        false
    }
}

/// Runs a function when the process ends; false where the C library has no room for it.
pub fn when_the_process_ends(function: extern "C" fn()) -> bool {
    // SAFETY: [process-exit] a function of the program's own.
    unsafe { libc::atexit(function) == 0 }
}

static ENDING: AtomicBool = AtomicBool::new(false);

/// From now on a drop leaves what its release might wait for to the process's end.
pub fn leave_what_waits() {
    ENDING.store(true, Ordering::Release);
}

/// A handle that somebody else gives back: a token, and nothing more.
#[derive(Clone, Copy)]
pub struct Opaque<T: Copy>(pub T);

// SAFETY: [opaque-handle] a driver handle is a token without thread affinity.
unsafe impl<T: Copy> Send for Opaque<T> {}
// SAFETY: [opaque-handle] as above.
unsafe impl<T: Copy> Sync for Opaque<T> {}

/// A handle and what it needs. Dropped or closed, the handle is given back, once.
pub struct Owned<K: Kind> {
    raw: K::Raw,
    /// Taken out once: by `close`, by `into_raw`, or by the drop that then comes.
    parent: ManuallyDrop<K::Parent>,
    /// For its release, should it have to wait.
    place: Place<K>,
}

/// A place in the queue of releases that wait, of a kind that has one.
struct Place<K: Kind>(PhantomData<fn() -> K>);

impl<K: Kind> Place<K> {
    #[inline]
    fn take() -> Place<K> {
        if K::HAS_PLACE {
            // Given up by the drop.
            let _taken = ManuallyDrop::new(Slot::take());
        }
        Place(PhantomData)
    }
}

impl<K: Kind> Drop for Place<K> {
    #[inline]
    fn drop(&mut self) {
        if K::HAS_PLACE {
            drop(Slot::taken());
        }
    }
}

// SAFETY: [opaque-handle] a driver handle is a token without thread affinity, and every handle may be used and given
// back from any thread; the parent has to promise the same for itself.
unsafe impl<K: Kind> Send for Owned<K> where K::Parent: Send + Sync {}
// SAFETY: [opaque-handle] as above.
unsafe impl<K: Kind> Sync for Owned<K> where K::Parent: Send + Sync {}

impl<K: Kind> Owned<K> {
    /// Takes charge of a handle that the driver has just made.
    #[inline]
    pub fn new(raw: K::Raw, parent: K::Parent) -> Owned<K> {
        Owned { raw, parent: ManuallyDrop::new(parent), place: Place::take() }
    }

    /// The handle, where it is.
    #[inline]
    pub fn raw_ref(&self) -> &K::Raw {
        &self.raw
    }

    /// The handle.
    #[inline]
    pub fn raw(&self) -> K::Raw {
        self.raw
    }

    /// What it needs.
    #[inline]
    pub fn parent(&self) -> &K::Parent {
        &self.parent
    }

    /// Gives the handle back and returns what the driver said. The handle is spent, whatever that was.
    #[inline]
    pub fn close(self) -> Result<(), Failure> {
        let (raw, parent, _place) = self.into_parts();
        release::<K>(raw, parent)
    }

    /// Leaves the handle, and what it needs, to the caller: it is not given back here.
    #[inline]
    pub fn into_raw(self) -> (K::Raw, K::Parent) {
        let (raw, parent, _place) = self.into_parts();
        (raw, parent)
    }

    #[inline]
    fn into_parts(self) -> (K::Raw, K::Parent, Place<K>) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: [owner-parent] `this` is not dropped, so that the parent and the place are taken this once.
        let (parent, place) = unsafe { (ManuallyDrop::take(&mut this.parent), std::ptr::read(&raw const this.place)) };
        (this.raw, parent, place)
    }
}

impl<K: Kind> Drop for Owned<K> {
    fn drop(&mut self) {
        // SAFETY: [owner-parent] whatever else takes the parent prevents this drop.
        let parent = unsafe { ManuallyDrop::take(&mut self.parent) };
        if ENDING.load(Ordering::Relaxed) && K::waits(&parent) {
            let _left = ManuallyDrop::new(parent);
            return;
        }
        if let Err(failure) = release::<K>(self.raw, parent) {
            report_release(K::NAME, "", failure);
        }
    }
}

thread_local! {
    // No destructor: it is read while a thread ends.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a callback of the driver, in which no CUDA call may be made.
#[inline]
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Marks this thread as running a callback of the driver, until it is dropped.
#[must_use = "the mark is gone when this is dropped"]
pub struct CallbackThread {
    before: bool,
}

impl CallbackThread {
    /// Marks the calling thread.
    pub fn enter() -> CallbackThread {
        CallbackThread { before: IN_CALLBACK.replace(true) }
    }
}

impl Drop for CallbackThread {
    fn drop(&mut self) {
        IN_CALLBACK.set(self.before);
    }
}

/// Gives a handle back. In a forked child there is nothing to give back: the handle is the parent's. In a callback of
/// the driver it is only queued.
#[inline]
fn release<K: Kind>(raw: K::Raw, parent: K::Parent) -> Result<(), Failure> {
    if is_forked() {
        return Ok(());
    }
    if in_callback()
        && let Some(deferrer) = later::deferrer()
    {
        defer_release::<K>(deferrer.defer, raw, parent);
        return Ok(());
    }
    K::release(raw, parent)
}

#[cold]
fn defer_release<K: Kind>(defer: fn(Named, Later), raw: K::Raw, parent: K::Parent) {
    let mut left = Some((Opaque(raw), parent));
    let release = move || match left.take() {
        Some((Opaque(raw), parent)) => K::release(raw, parent).map(|()| Attempt::Done),
        None => Ok(Attempt::Done),
    };
    defer(Named { what: K::NAME, handle: raw.number() }, Later::new(release));
}

/// Whether a fault has been reported with what to do about it.
static SAID: AtomicBool = AtomicBool::new(false);

/// Whether all that a release met is that the driver is shutting down: that is an answer.
pub fn is_answer_to_release(facts: &Facts) -> bool {
    let own = facts.status.as_ref().map(|status| status.code);
    std::iter::once(&own).chain(&facts.attached).all(|status| *status == Some(code::DEINITIALIZED))
}

/// Reports a failed release of `name`: "an event". `how` follows that in the report. May run user code: the reporter.
pub fn report_release(name: &str, how: &str, failure: Failure) {
    if failure.facts().is_some_and(is_answer_to_release) {
        failure.answered();
    } else {
        let sticky = failure.facts().and_then(|facts| facts.status.as_ref()).is_some_and(|status| status.sticky);
        let doing = if sticky { ", and returned an earlier kernel's fault" } else { "" };
        // What to do about a fault is said once; the other releases in the context say in a line that they met it.
        let known = sticky && SAID.swap(true, Ordering::AcqRel);
        let failure = if known { failure.without_note(STICKY_NOTE) } else { failure };
        failure.report(&format!("releasing {name}{how}{doing}"));
    }
}
