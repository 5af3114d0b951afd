//! The locks of cuirass: a mutex that counts, in debug builds, how many of them a thread holds.
//!
//! Whoever holds one never takes the GIL, makes a report, or runs a release that might do either.
//! [`assert_none_held`] says so at each such place.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(debug_assertions)]
thread_local! {
    // No destructor: it is read while a thread ends.
    static HELD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Asserts, in debug builds, that this thread holds no cuirass lock.
///
/// # Panics
/// In debug builds only, when it holds one: a mistake in cuirass that the tests must see.
pub fn assert_none_held(what: &str) {
    #[cfg(debug_assertions)]
    if !std::thread::panicking() {
        HELD.with(|held| assert_eq!(held.get(), 0, "{what} with a cuirass lock held"));
    }
    #[cfg(not(debug_assertions))]
    let _: &str = what;
}

/// A mutex whose holders are counted in debug builds. It is not poisoned by a panic.
#[derive(Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Holds a [`Mutex`].
pub struct Guard<'a, T>(parking_lot::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    /// A mutex around a value.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::const_mutex(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Guard<'_, T> {
        let guard = self.0.lock();
        #[cfg(debug_assertions)]
        HELD.with(|held| held.set(held.get() + 1));
        Guard(guard)
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let guard = self.0.try_lock()?;
        #[cfg(debug_assertions)]
        HELD.with(|held| held.set(held.get() + 1));
        Some(Guard(guard))
    }

    /// The value, from the only owner.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A lock of the whole process. In a forked child another one takes its place, around what was given for it: a thread that
/// the child does not have may hold the parent's for ever, and may have been in the middle of a change.
pub struct Global<T> {
    own: Mutex<T>,
    of_a_child: Mutex<T>,
}

impl<T> Global<T> {
    /// A lock around a value, and around the one that a forked child begins with.
    pub const fn new(value: T, in_a_child: T) -> Global<T> {
        Global { own: Mutex::new(value), of_a_child: Mutex::new(in_a_child) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if is_forked() { self.of_a_child.lock() } else { self.own.lock() }
    }
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that had used what [`in_forked_child`] was made a fork handler for.
#[inline]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Acquire)
}

/// What a forked child does first. Only a store, as a fork handler demands.
pub fn in_forked_child() {
    FORKED.store(true, Ordering::Release);
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        HELD.with(|held| held.set(held.get() - 1));
    }
}
