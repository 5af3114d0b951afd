//! A share that can be given up while others are using it: what `close()` of every class rests on.
#![allow(unsafe_code)]

use cuirass_fault::lock::Mutex;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Set by [`Slot::close`]: nobody enters any more.
const CLOSED: usize = 1 << (usize::BITS - 1);
/// Set by whoever takes the value out; once.
const TAKEN: usize = 1 << (usize::BITS - 2);

/// What a slot holds, and how it is dropped where nobody is left to be told of a failure.
pub trait Share: Send + Sync + Sized {
    /// Drops it: a failure is reported. The thread is attached to the interpreter.
    fn drop_share(self);
}

impl Share for cuirass::Event {
    fn drop_share(self) {
        // Measured: a real driver makes the end of an event wait while another thread's launch waits on a full queue,
        // which a Python callback may keep full.
        drop_detached(self);
    }
}

impl Share for cuirass::Stream {
    fn drop_share(self) {
        drop_detached(self);
    }
}

impl Share for cuirass::Context {
    fn drop_share(self) {
        drop_detached(self);
    }
}

impl Share for cuirass::memory::MemoryPool {
    fn drop_share(self) {
        drop_detached(self);
    }
}

impl Share for cuirass::Program {
    fn drop_share(self) {
        drop_detached(self);
    }
}

/// Drops what may wait for the driver, with the interpreter released.
pub fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    let detached = crate::report::attached(|py| {
        let value = value.take();
        py.detach(move || drop(value));
    });
    if detached.is_none() {
        drop(value);
    }
}

/// What a Python object holds of cuirass without a [`Slot`]: it is dropped with the interpreter released, since it may be
/// the last share of something whose end waits for the driver.
pub struct Detached<T: Send>(ManuallyDrop<T>);

impl<T: Send> Detached<T> {
    pub fn new(value: T) -> Detached<T> {
        Detached(ManuallyDrop::new(value))
    }

    /// The value, whose drop is now the caller's.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: [slot-taken] `this` is not dropped, so that it is taken this once.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        // SAFETY: [slot-taken] its own drop, after which nobody has it.
        drop_detached(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// A value that attached threads read and set, as a whole. Where one of them runs at a time that costs no locked operation.
pub struct Shared<T: Copy + Send> {
    lock: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: [slot-share] it is read and set by one thread at a time: the one that is attached, or has the lock.
unsafe impl<T: Copy + Send> Sync for Shared<T> {}

impl<T: Copy + Send> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared { lock: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    #[inline]
    fn locked<R>(&self, code: impl FnOnce(*mut T) -> R) -> R {
        assert_attached();
        let _alone = (!ONE_AT_A_TIME).then(|| self.lock.lock());
        code(self.value.get())
    }

    /// The value as it is now.
    #[inline]
    pub fn get(&self) -> T {
        // SAFETY: [slot-share] nobody sets it meanwhile.
        self.locked(|value| unsafe { *value })
    }

    /// Changes it. The code runs no Python, which could let another thread run.
    pub fn change(&self, code: impl FnOnce(&mut T)) {
        // SAFETY: [slot-share] nobody else reads or sets it meanwhile.
        self.locked(|value| code(unsafe { &mut *value }));
    }
}

/// Whether one attached thread runs at a time.
const ONE_AT_A_TIME: bool = cfg!(not(Py_GIL_DISABLED));

/// A value, with counts of who is using it now. Where one attached thread runs at a time, a use by it costs no locked
/// operation: behind a driver call that has written to the device, one waits for these writes.
///
/// `close()` stops new uses. Whoever brings the counts to zero after that takes the value out: the closer itself where
/// nobody is using it, so that it can return what the driver says; else the last user, who drops it, so that a
/// failure is reported.
pub struct Slot<T: Share> {
    /// What says that it is closed, and the uses that may end on any thread.
    state: AtomicUsize,
    /// The uses of attached threads, where one of them runs at a time: whoever changes it has the interpreter's lock.
    attached: AtomicUsize,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: [slot-share] users share the value (`T: Sync`), and one of them may end up with it (`T: Send`).
unsafe impl<T: Share> Sync for Slot<T> {}

/// Debug builds check what methods of Python's classes have anyway: that the calling thread is attached to the interpreter.
/// Where it is not, the interpreter ends the process and says so.
#[inline]
fn assert_attached() {
    #[cfg(debug_assertions)]
    // SAFETY: [interpreter] it only reads, and is what checks that.
    unsafe {
        pyo3::ffi::PyThreadState_Get();
    }
}

/// What a close came to.
pub enum Closed<T> {
    /// Nobody was using it: the value is the closer's, to be closed.
    Taken(T),
    /// Somebody is using it, who will drop it.
    InUse,
    /// It was closed before.
    Before,
}

impl<T: Share> Slot<T> {
    /// An open slot.
    pub fn new(value: T) -> Slot<T> {
        Slot {
            state: AtomicUsize::new(0),
            attached: AtomicUsize::new(0),
            value: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }

    /// Whether `close()` was called.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// The value for as long as the result lives; `None` once it is closed. For threads that are attached to the
    /// interpreter; while the result lives they may release it.
    #[inline]
    pub fn enter(&self) -> Option<Use<'_, T>> {
        assert_attached();
        if !ONE_AT_A_TIME {
            return self.enter_until_left().then_some(Use(self, PhantomData));
        }
        if self.is_closed() {
            return None;
        }
        // Closing wants the interpreter's lock too, and so does every other change of this count.
        self.attached.store(self.attached.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(Use(self, PhantomData))
    }

    /// As [`enter`](Slot::enter), where nobody else is using it; for the collector. While the interpreter's lock is held
    /// nobody can begin to, so that the collector, which asks several times with the lock held, gets one answer.
    pub fn enter_alone(&self) -> Option<Use<'_, T>> {
        let is_used = self.attached.load(Ordering::Relaxed) != 0 || self.state.load(Ordering::Acquire) != 0;
        if is_used { None } else { self.enter() }
    }

    /// As [`enter`](Slot::enter), for a use that no Rust scope bounds, and that may end on any thread: true says that
    /// [`leave`](Slot::leave) must be called once.
    #[inline]
    pub fn enter_until_left(&self) -> bool {
        assert_attached();
        if self.state.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Ends a use.
    #[inline]
    pub fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            self.drop_as_last_user();
        }
    }

    /// Ends a use of an attached thread, and returns whether it was the last one of a closed slot.
    #[inline]
    fn leave_attached(&self) -> bool {
        assert_attached();
        if !ONE_AT_A_TIME {
            return self.state.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1;
        }
        let left = self.attached.load(Ordering::Relaxed).wrapping_sub(1);
        self.attached.store(left, Ordering::Release);
        left == 0 && self.is_closed()
    }

    #[cold]
    fn drop_as_last_user(&self) {
        if let Some(value) = self.take_if_unused() {
            value.drop_share();
        }
    }

    /// Stops new uses.
    #[inline]
    pub fn close(&self) -> Closed<T> {
        self.take().map_or_else(|| self.close_in_use(), Closed::Taken)
    }

    #[cold]
    #[inline(never)]
    fn close_in_use(&self) -> Closed<T> {
        if self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return Closed::Before;
        }
        self.take_if_unused().map_or(Closed::InUse, Closed::Taken)
    }

    /// As [`close`](Slot::close), where nobody is left to be told of a failure: for a finalizer.
    pub fn close_and_drop(&self) {
        if let Closed::Taken(value) = self.close() {
            value.drop_share();
        }
    }

    /// As [`close`](Slot::close) of a slot that [`take`](Slot::take) gave nothing of, where what the value becomes is said
    /// before: `told` is called with the value where somebody is using it, who will drop it. If that fails the slot stays
    /// open.
    pub fn close_told<E>(&self, told: impl FnOnce(&T) -> Result<(), E>) -> Result<Closed<T>, E> {
        let Some(value) = self.enter() else { return Ok(Closed::Before) };
        told(&value)?;
        if self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return Ok(Closed::Before);
        }
        // This use ends here, and not with a drop of the value, which may be the closer's by now.
        let _left = ManuallyDrop::new(value);
        if !self.leave_attached() {
            return Ok(Closed::InUse);
        }
        Ok(self.take_if_unused().map_or(Closed::InUse, Closed::Taken))
    }

    /// Takes the value out of an open slot that nobody uses: it looks closed until the value is put back, if it is.
    #[inline]
    pub fn take(&self) -> Option<T> {
        assert_attached();
        if self.attached.load(Ordering::Relaxed) != 0 {
            return None;
        }
        if ONE_AT_A_TIME {
            // A use that may end on any thread begins on one that is attached, and so do closing and putting back: while
            // there is none, nobody else changes it.
            if self.state.load(Ordering::Acquire) != 0 {
                return None;
            }
            self.state.store(CLOSED | TAKEN, Ordering::Release);
        } else {
            self.state.compare_exchange(0, CLOSED | TAKEN, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        }
        // SAFETY: [slot-taken] whoever sets `TAKEN` has the value to itself.
        Some(unsafe { ManuallyDrop::take(&mut *self.value.get()) })
    }

    /// Puts a value back that [`take`](Slot::take) gave.
    pub fn put_back(&self, value: T) {
        // SAFETY: [slot-taken] the value was taken by the caller, and nobody enters before the state says so.
        unsafe { *self.value.get() = ManuallyDrop::new(value) };
        self.state.fetch_and(!(CLOSED | TAKEN), Ordering::Release);
    }

    /// The value, if it is closed, nobody uses it, and nobody took it before.
    fn take_if_unused(&self) -> Option<T> {
        // The last uses of both kinds may end at once: each has left before it looks at the other count, so that not both
        // see the other there.
        fence(Ordering::SeqCst);
        if self.attached.load(Ordering::Acquire) != 0 {
            return None;
        }
        self.state.compare_exchange(CLOSED, CLOSED | TAKEN, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // SAFETY: [slot-share] closed and unused: nobody has a reference and nobody gets one; TAKEN was set here, so
        // that nobody else takes it.
        Some(unsafe { ManuallyDrop::take(&mut *self.value.get()) })
    }
}

impl<T: Share> Drop for Slot<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() & TAKEN == 0 {
            // SAFETY: [slot-share] it was not taken, and `&mut self` says that nobody uses it.
            let value = unsafe { ManuallyDrop::take(self.value.get_mut()) };
            value.drop_share();
        }
    }
}

/// A use of a slot's value. It ends on the thread that it began on, attached again.
pub struct Use<'a, T: Share>(&'a Slot<T>, PhantomData<*const ()>);

// SAFETY: [slot-share] to share a use is to share the value; it is ended by its owner.
unsafe impl<T: Share> Sync for Use<'_, T> {}

impl<T: Share> Deref for Use<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: [slot-share] this use is counted, so that the value is there.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: Share> Drop for Use<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.leave_attached() {
            self.0.drop_as_last_user();
        }
    }
}
