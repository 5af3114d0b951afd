//! Releases that have to wait: for a capture to end, or for a thread that may call the driver.
//!
//! They are tried again by [`drain`], which every creation, release and synchronisation of cuirass begins with while
//! something waits. Waiting costs the others one load. The queue has room for the release of everything that is alive
//! ([`later`]): putting one off allocates nothing.

use crate::Outcome;
use crate::device::Device;
use cuirass_call::later::{self, Attempt, Deferrer, Later, Named, Slot};
use cuirass_call::owner::{self, Handle, in_callback};
use cuirass_fault::lock::{self, Global};
use cuirass_fault::{Failure, Misuse};
use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One release that waits.
struct Waiting {
    named: Named,
    later: Later,
    _slot: Slot,
}

static QUEUE: Global<VecDeque<Waiting>> = Global::new(VecDeque::new(), VecDeque::new());
thread_local! {
    // No destructor: it is read while a thread ends.
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as trying what waits.
struct Trying(());

impl Trying {
    /// `None` where it is marked already.
    fn start() -> Option<Trying> {
        (!TRYING.replace(true)).then(|| Trying(()))
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        TRYING.set(false);
    }
}

/// How many wait, those that are being tried among them; for those who only look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Makes this the queue for releases that come where no CUDA call may be made.
pub(crate) fn install() {
    later::set_deferrer(Deferrer { defer: put_off, reserve });
}

/// Puts a release off.
pub(crate) fn defer(
    what: &'static str,
    handle: impl Handle,
    attempt: impl FnMut() -> Outcome<Attempt> + Send + 'static,
) {
    put_off(Named { what, handle: handle.number() }, Later::new(attempt));
}

fn put_off(named: Named, later: Later) {
    COUNT.fetch_add(1, Ordering::AcqRel);
    wait(Waiting { named, later, _slot: Slot::take() });
}

/// Puts a release that is counted into the queue; where there is no room, which its slot should have made, what it
/// releases is leaked and reported.
fn wait(waiting: Waiting) {
    let Some(waiting) = push(waiting) else { return };
    COUNT.fetch_sub(1, Ordering::AcqRel);
    let Named { what, handle } = ManuallyDrop::new(waiting).named;
    let which = if handle == 0 { what.to_owned() } else { format!("{what}, {handle:#x},") };
    let failure =
        Failure::no_memory(format_args!("to put the release of {which} off: it is leaked with what it needs"));
    failure.report(&format!("releasing {what}"));
}

/// Puts it at the end of the queue; returns it where there is no room.
fn push(waiting: Waiting) -> Option<Waiting> {
    let mut queue = QUEUE.lock();
    if queue.len() == queue.capacity() && queue.try_reserve(1).is_err() {
        return Some(waiting);
    }
    queue.push_back(waiting);
    None
}

/// Makes room for as many, and returns for how many there is.
fn reserve(wanted: usize) -> usize {
    // A new one, and not a longer one: the places that nobody has used yet take no memory.
    let mut longer = VecDeque::new();
    let reserved = QUEUE.lock().capacity() < wanted && longer.try_reserve_exact(wanted).is_ok();
    let mut queue = QUEUE.lock();
    if reserved && longer.capacity() > queue.capacity() {
        longer.extend(queue.drain(..));
        std::mem::swap(&mut *queue, &mut longer);
    }
    let room = queue.capacity();
    drop(queue);
    room
}

/// What a creation begins with: what waits is tried, and there is room for the release of what is created. May run user
/// code: the reporter.
#[inline]
pub(crate) fn before_creating() -> Outcome<()> {
    if COUNT.load(Ordering::Acquire) == 0 && later::is_there_room() { Ok(()) } else { drain_and_make_room() }
}

#[cold]
#[inline(never)]
fn drain_and_make_room() -> Outcome<()> {
    drain_if_any();
    if later::is_there_room() || later::make_room() {
        return Ok(());
    }
    Err(Failure::no_memory("for one more object: its release could not be put off"))
}

/// How many that have to wait still may be met by those who only pass by: what waits for one capture does so together,
/// and each passer-by meets others of them.
const PATIENCE: usize = 4;

/// Tries what waits, if anything does, until some have to wait still. May run user code: the reporter.
#[inline]
pub(crate) fn drain_if_any() {
    if COUNT.load(Ordering::Acquire) != 0 {
        try_until(PATIENCE);
    }
}

/// Tries every release that waits, and returns how many still do; the streams that are kept for the next graph builders
/// are destroyed too. A failure is reported. May run user code: the reporter.
pub fn drain() -> usize {
    if !lock::is_forked() && !in_callback() {
        Device::give_spare_streams_back();
    }
    try_until(usize::MAX)
}

#[cold]
fn try_until(waits: usize) -> usize {
    if lock::is_forked() {
        return 0;
    }
    if in_callback() {
        // No CUDA call may be made here: what waits goes on waiting.
        return pending();
    }
    // A release that is tried here may begin with trying what waits, as releases do: the loop below does that, and the
    // stack does not grow with what waits.
    let Some(_trying) = Trying::start() else { return pending() };
    // Each once at most: what others put off meanwhile comes after them, and so does what has to wait still.
    let tries = QUEUE.lock().len();
    let mut waited = 0;
    for _ in 0..tries {
        let next = QUEUE.lock().pop_front();
        let Some(mut waiting) = next else { break };
        match waiting.later.attempt() {
            // Its place in the queue is still its own.
            Ok(Attempt::Wait) => {
                wait(waiting);
                waited += 1;
                if waited == waits {
                    break;
                }
            }
            Ok(Attempt::Done) => {
                drop(waiting);
                COUNT.fetch_sub(1, Ordering::AcqRel);
            }
            Err(failure) => {
                let what = waiting.named.what;
                drop(waiting);
                COUNT.fetch_sub(1, Ordering::AcqRel);
                owner::report_release(what, ", which had been put off", failure);
            }
        }
    }
    pending()
}

/// How many releases wait. What waited when a child was forked is the parent's.
pub fn pending() -> usize {
    if lock::is_forked() { 0 } else { COUNT.load(Ordering::Acquire) }
}

/// What waits: what each is, and the number of its handle (0 where it has none).
pub(crate) fn waiting() -> Vec<(&'static str, u64)> {
    if lock::is_forked() {
        return Vec::new();
    }
    QUEUE.lock().iter().map(|waiting| (waiting.named.what, waiting.named.handle)).collect()
}

/// Reports what still waits, as a program does that is about to end: it is leaked.
pub fn report_left_at_exit() {
    let left = drain();
    if left > 0 {
        let message = match left {
            1 => "a release still waits for a capture or for a stream's work to end: what it was to release is leaked"
                .to_owned(),
            left => format!(
                "{left} releases still wait for a capture or for a stream's work to end: what they were to release is \
                 leaked"
            ),
        };
        Failure::misuse(Misuse::State, message).report("ending the process");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_reserved_leaves_the_queue_as_it_is() {
        let room = reserve(1000);
        assert!(room >= 1000);
        assert_eq!(reserve(usize::MAX / 2), room);
        assert_eq!(reserve(10), room);
    }
}
