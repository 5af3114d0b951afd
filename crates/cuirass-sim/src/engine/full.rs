//! Full queues: a launch waits for room in one, and some calls of other threads wait for that launch, as measured
//! (`facts/README.md`). A program that makes such a call while it holds what a host function needs hangs.

use super::{DONE, Dep, HELD_UP, QueueKey, reach};
use crate::state::{self, Guard, State};
use crate::status::Answer;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much work of a stream may be pending when a kernel is launched into it.
const ROOM: u64 = 1022;

/// As many launches wait for room: for those who only look.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Calls that wait for them.
const WAIT: [&str; 6] = [
    "cuCtxGetLimit",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventDestroy_v2",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
];

/// Whether a launch into a queue has to wait.
#[inline]
pub fn is_full(state: &State, key: QueueKey) -> bool {
    state.engine.find(key).is_some_and(|queue| queue.pushed - queue.done >= ROOM)
}

/// Waits until there is room in a queue. The lock is given up meanwhile.
#[cold]
pub fn make_room(state: &mut Guard, key: QueueKey) {
    let Some(queue) = state.engine.find(key) else { return };
    let dep = Dep { queue: key, count: queue.pushed.saturating_sub(ROOM - 1) };
    state.engine.waiting_launches += 1;
    WAITING.store(state.engine.waiting_launches, Ordering::Release);
    reach(state, &[dep], None);
    state.engine.waiting_launches -= 1;
    WAITING.store(state.engine.waiting_launches, Ordering::Release);
    DONE.notify_all();
}

/// What a call begins with: some wait until no launch waits any more.
///
/// # Errors
/// As [`state::lock`].
#[inline]
pub fn wait_for_launches(call: &str) -> Answer {
    if WAITING.load(Ordering::Acquire) != 0 && WAIT.contains(&call) { wait() } else { Ok(()) }
}

#[cold]
fn wait() -> Answer {
    let mut state = state::lock()?;
    while state.engine.waiting_launches > 0 {
        DONE.wait_for(&mut state, HELD_UP);
    }
    Ok(())
}
