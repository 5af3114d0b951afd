//! The stream-order checker: reports uses of memory that no order between streams makes safe.
//!
//! It is off unless `CUIRASS_SIM=check=order` or `cuirass_sim_check_order` turn it on. On, every operation put into a
//! stream remembers what comes before it (a vector clock): what its stream was given before, what it was made to wait
//! for, and what the host knew to be done. Operations tell what they touch when they run, and what no order keeps
//! apart is a finding, whether or not the two happened to run one after the other this time.
//!
//! Where it cannot know it is silent. All threads of the host count as one: what one of them waited for, any of them may
//! know. A host function makes all known that came before it in its stream. What another process waits for before it
//! records an event is not seen: whoever waits for that event counts as having waited for all that this process had by
//! then recorded in events that are shared. What is remembered is bounded: of much work that no host has waited for, the
//! oldest counts as being before all that comes.

mod checker;
pub mod clock;
mod finding;
mod guard;
mod pieces;
mod sets;

use crate::engine::{self, Dep, QueueKey};
use crate::handle::Handle;
use crate::memory::buffer::{Copy, Fill};
use crate::memory::{Allocation, ipc, pool};
use crate::state::{Guard, State};
use crate::task::{Job, Work};
use crate::thread::{self, Place};
use checker::Checker;
use clock::{Clock, Epoch};
use cuirass_ptx::Touched;
use parking_lot::Mutex;
use pieces::{Piece, Release};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static ON: AtomicBool = AtomicBool::new(false);
static CHECKER: Mutex<Option<Checker>> = Mutex::new(None);

/// How long turning the checker off waits for work that is pending.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the checker is on.
#[inline]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Something that a stream was given to do.
pub struct Operation {
    epoch: Epoch,
    before: Arc<Clock>,
    serial: u64,
    place: Place,
    on: Arc<str>,
}

fn with<T>(ask: impl FnOnce(&mut Checker) -> T) -> Option<T> {
    CHECKER.lock().as_mut().map(ask)
}

/// Turns the checker on. What happened before it is not looked at. To be turned off as often.
pub fn start(state: &State) {
    let mut checker = CHECKER.lock();
    let checker = checker.get_or_insert_default();
    checker.users += 1;
    if checker.users == 1 {
        state
            .memory
            .allocations()
            .for_each(|allocation| checker.enter(&Allocation { since: None, ..allocation.clone() }));
        ON.store(true, Ordering::Relaxed);
    }
}

/// Turns the checker off, once the work that is pending has been done (or does not end).
pub fn stop(state: &mut Guard) {
    settle(state);
    let ended = with(|checker| {
        checker.users = checker.users.saturating_sub(1);
        checker.users == 0
    });
    if ended == Some(true) {
        ON.store(false, Ordering::Relaxed);
        let mut checker = CHECKER.lock().take();
        if let Some(checker) = &mut checker {
            checker.unguard(|_, _| true);
        }
        for (context, queue) in checker.into_iter().flat_map(|checker| checker.departed) {
            state.queue_ended(context, queue);
        }
    }
}

/// Waits until nothing is pending: findings are made when work runs. The host learns nothing by it.
pub fn settle(state: &mut Guard) {
    let until = Instant::now() + PATIENCE;
    let tails = state.engine.tails();
    engine::reach(state, &tails, Some(until));
}

/// Work is put at the end of a queue, as its `count`-th, after these places.
pub fn submitted(state: &State, key: QueueKey, count: u64, after: &[Dep], work: &Work) -> Option<Arc<Operation>> {
    with(|checker| {
        let operation = checker.submit(state, key, count, after)?;
        let Work::Task(task) = work else { return Some(operation) };
        if let Some(made) = task.as_any().downcast_ref::<pool::Allocate>() {
            let ready = Some((operation.epoch, operation.on.clone()));
            let place = (made.start(), made.len());
            checker.pieces.add(Piece::new(made.number(), place, operation.place, ready, operation.serial));
        } else if let Some(ended) = ended_by(task.as_any()) {
            checker.open(ended);
            checker.pieces.release(ended, Release::Stream(operation.clone()), &checker.lines);
        } else if let Some(rows) = task.as_any().downcast_ref::<Copy>().and_then(Copy::rows) {
            let label: Arc<str> = COPY.into();
            checker.guard(&operation, &label, rows[0], true);
            checker.guard(&operation, &label, rows[1], false);
        } else if let Some(row) = task.as_any().downcast_ref::<Fill>().and_then(Fill::row) {
            checker.guard(&operation, &FILL.into(), row, true);
        }
        Some(operation)
    })
    .flatten()
}

/// The allocation that work ends: of this process, or of another.
fn ended_by(task: &dyn Any) -> Option<u64> {
    let of_pool = task.downcast_ref::<pool::Free>().map(|free| free.id);
    of_pool.or_else(|| task.downcast_ref::<ipc::Unmap>().map(|unmap| unmap.id))
}

/// The host has waited for places, or asked and been told that they are reached.
pub fn host_knows(state: &mut State, deps: &[Dep]) {
    if with(|checker| checker.learn(deps)) == Some(true) {
        tidy(state);
    }
}

/// A host function runs: whom it tells knows what came before it.
pub fn host_function(state: &mut State, operation: &Operation) {
    if with(|checker| checker.learn_before(operation)) == Some(true) {
        tidy(state);
    }
}

fn tidy(state: &mut State) {
    let gone = with(|checker| {
        let (lanes, host) = (&checker.lanes, &checker.host);
        let is_known = |key: &QueueKey| lanes.get(key).is_none_or(|lane| host.of(lane.line) >= lane.given);
        let (gone, stays) = std::mem::take(&mut checker.departed).into_iter().partition(|(_, key)| is_known(key));
        checker.departed = stays;
        let gone: Vec<(Handle, QueueKey)> = gone;
        gone
    });
    for (context, queue) in gone.into_iter().flatten() {
        state.queue_ended(context, queue);
    }
    let idle = state.engine.pending() == 0;
    with(|checker| {
        checker.sweep(&state.engine);
        if idle {
            checker.prune();
        }
    });
}

/// A stream ends. Which queues may go now; its own stays at first, so that others can still be ordered behind its work.
pub fn departs(context: Handle, queue: QueueKey) -> Vec<(Handle, QueueKey)> {
    with(|checker| {
        if checker.lanes.get(&queue).is_none_or(|lane| checker.host.of(lane.line) >= lane.given) {
            return vec![(context, queue)];
        }
        checker.departed.push((context, queue));
        checker.overdue()
    })
    .unwrap_or_else(|| vec![(context, queue)])
}

/// An event that other processes may wait for is recorded: reached at this place.
pub fn shown(dep: Dep) {
    with(|checker| checker.show(dep));
}

/// An event of another process is to be waited for, by this place.
pub fn gate(state: &State, dep: Dep) {
    with(|checker| checker.gate(state, dep));
}

/// How much the checker remembers, as a JSON object; "null" while it is off.
pub fn records() -> String {
    let rows = |checker: &mut Checker| {
        let rows: Vec<String> = checker.records().iter().map(|(name, count)| format!("\"{name}\":{count}")).collect();
        format!("{{{}}}", rows.join(","))
    };
    with(rows).unwrap_or_else(|| "null".to_owned())
}

/// A context has ended: its queues that stayed may go. The caller ends them.
pub fn context_ended(context: Handle) -> Vec<QueueKey> {
    with(|checker| {
        let (gone, stays) = std::mem::take(&mut checker.departed).into_iter().partition(|(of, _)| *of == context);
        checker.departed = stays;
        let gone: Vec<(Handle, QueueKey)> = gone;
        gone.into_iter().map(|(_, queue)| queue).collect()
    })
    .unwrap_or_default()
}

/// An allocation has come about.
pub fn allocated(allocation: &Allocation) {
    with(|checker| checker.enter(allocation));
}

/// The host ends an allocation: what it does not know to be done by now may still use it. The first end counts.
pub fn freed(number: u64) {
    with(|checker| {
        checker.open(number);
        checker.serial += 1;
        let (clock, serial) = (checker.host.clone(), checker.serial);
        let release = Release::Host { place: thread::place(), clock, serial };
        checker.pieces.release(number, release, &checker.lines);
    });
}

/// A copy or fill touches memory.
pub fn moved(job: &Job, label: &'static str, mut touched: Touched) {
    if let Some(operation) = &job.order {
        with(|checker| checker.pieces.touch(operation, &label.into(), &mut touched, &checker.lines));
    }
}

/// A kernel has touched memory. `label` says which kernel; `told`: the host may know that it has.
pub fn touched(operation: &Arc<Operation>, label: impl FnOnce() -> String, mut touched: Touched, told: bool) {
    let label = label().into();
    with(|checker| {
        checker.pieces.touch(operation, &label, &mut touched, &checker.lines);
        if !told {
            checker.guard_touched(operation, &label, &mut touched);
        }
    });
}

/// A kernel is about to tell the host something through memory that both see: whoever reads it may know that all before
/// the kernel is done, and what of the kernel is.
pub fn host_is_told(operation: &Operation) {
    with(|checker| {
        checker.host.join(&operation.before);
        checker.host.raise(operation.epoch);
        checker.learnt(true);
    });
}

/// An operation has run.
pub fn ran() {
    with(|_| guard::restore());
}

/// Reports what the host has done in the meantime.
pub fn drain() {
    with(Checker::drain);
}

/// What a copy is, for a report.
pub const COPY: &str = "a copy by ";
/// What a fill is.
pub const FILL: &str = "a fill by ";
