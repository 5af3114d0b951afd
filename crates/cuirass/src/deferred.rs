//! Releases that have to wait: for a capture to end, or for a thread that may call the driver.
//!
//! They are tried again by [`drain`], which every creation, release and synchronisation of cuirass begins with while
//! something waits. Waiting costs the others one load.

use crate::Outcome;
use cuirass_call::owner::{Later, in_callback};
use cuirass_fault::Failure;
use cuirass_fault::lock::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an attempt came to.
pub(crate) enum Attempt {
    /// It is done.
    Done,
    /// It has to wait still.
    Wait,
}

/// One release that waits.
struct Waiting {
    /// What it releases: "a buffer".
    what: &'static str,
    attempt: Box<dyn FnMut() -> Outcome<Attempt> + Send>,
}

static QUEUE: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());
/// The length of the queue, for those who only look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Puts a release off. Where there is no memory for that it is leaked, and reported: nothing is lost unseen.
pub(crate) fn defer(what: &'static str, attempt: impl FnMut() -> Outcome<Attempt> + Send + 'static) {
    let refused = {
        let mut queue = QUEUE.lock();
        let room = queue.try_reserve(1).is_ok();
        if room {
            queue.push(Waiting { what, attempt: Box::new(attempt) });
            COUNT.store(queue.len(), Ordering::Release);
        }
        !room
    };
    if refused {
        Failure::internal("no memory to put a release off; what it was to release is leaked")
            .report(&format!("releasing {what}"));
    }
}

/// Puts off a release that came on a thread of the driver.
pub(crate) fn defer_from_callback(what: &'static str, release: Later) {
    let mut release = Some(release);
    defer(what, move || match release.take() {
        Some(release) => release().map(|()| Attempt::Done),
        None => Ok(Attempt::Done),
    });
}

/// Tries what waits, if anything does. May run user code: the reporter.
#[inline]
pub(crate) fn drain_if_any() {
    if COUNT.load(Ordering::Acquire) != 0 && !in_callback() {
        drain();
    }
}

/// Tries every release that waits, and returns how many still do. A failure is reported. May run user code: the
/// reporter.
#[cold]
pub fn drain() -> usize {
    if in_callback() {
        // No CUDA call may be made here: what waits goes on waiting.
        return pending();
    }
    let mut tried = std::mem::take(&mut *QUEUE.lock());
    let mut failures = Vec::new();
    tried.retain_mut(|waiting| match (waiting.attempt)() {
        Ok(Attempt::Done) => false,
        Ok(Attempt::Wait) => true,
        Err(failure) => {
            failures.push((waiting.what, failure));
            false
        }
    });
    let left = {
        let mut queue = QUEUE.lock();
        // What others put off meanwhile comes after what waited before.
        let later = std::mem::replace(&mut *queue, tried);
        queue.extend(later);
        COUNT.store(queue.len(), Ordering::Release);
        queue.len()
    };
    for (what, failure) in failures {
        failure.report(&format!("releasing {what}, which had waited for a capture to end"));
    }
    left
}

/// How many releases wait.
pub fn pending() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// Reports what still waits, as a program does that is about to end: it is leaked.
pub fn report_left_at_exit() {
    let left = drain();
    if left > 0 {
        Failure::internal(format_args!("{left} releases still wait for a capture to end, and are leaked"))
            .report("ending the process");
    }
}
