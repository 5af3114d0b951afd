//! The stream-order checker: reports uses of memory that no order between streams makes safe.
//!
//! It is off unless `CUIRASS_SIM=check=order` or `cuirass_sim_check_order` turn it on. On, every operation put into a
//! stream remembers what comes before it (a vector clock): what its stream was given before, what it was made to wait
//! for, and what the host knew to be done. Operations tell what they touch when they run, and what no order keeps
//! apart is a finding, whether or not the two happened to run one after the other this time.
//!
//! Where it cannot know it is silent. All threads of the host count as one: what one of them waited for, any of them may
//! know. A host function makes all known that came before it in its stream.

pub mod clock;
mod finding;
mod guard;
mod pieces;
mod sets;

use crate::engine::{self, Dep, Engine, QueueKey};
use crate::handle::Handle;
use crate::memory::buffer::{Copy, Fill};
use crate::memory::{Allocation, Origin, pool};
use crate::state::{Guard, State};
use crate::stream::StreamKind;
use crate::task::{Job, Work};
use crate::thread::{self, Place};
use clock::{Clock, Epoch};
use cuirass_ptx::{Touch, Touched};
use parking_lot::Mutex;
use pieces::{Host, Lines, Piece, Pieces, Release};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static ON: AtomicBool = AtomicBool::new(false);
static CHECKER: Mutex<Option<Checker>> = Mutex::new(None);

/// How many places of a line are remembered apart from each other.
const PLACES: usize = 4096;
/// With fewer lines nobody looks which of them are over.
const FEW: usize = 64;
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

/// What is known of one queue.
struct Lane {
    line: u32,
    name: Arc<str>,
    /// Work of lower numbers is from before the checker.
    first: u64,
    /// How much it has been given.
    given: u64,
    /// What comes before the work from a number on, beside the queue's own.
    places: VecDeque<(u64, Arc<Clock>)>,
    /// Which state of the host's knowledge is in it.
    stamp: u64,
}

impl Lane {
    fn at(&self, count: u64) -> &Arc<Clock> {
        let after = self.places.partition_point(|(from, _)| *from <= count);
        &self.places[after.saturating_sub(1)].1
    }
}

/// Memory that the host must not touch before it has waited for an operation.
struct Guarded {
    operation: Arc<Operation>,
    label: Arc<str>,
    piece: u64,
    writes: bool,
}

#[derive(Default)]
struct Checker {
    lanes: HashMap<QueueKey, Lane>,
    lines: Lines,
    next_line: u32,
    host: Clock,
    /// Changes with `host`.
    stamp: u64,
    serial: u64,
    pieces: Pieces,
    /// Queues of streams that are gone whose work the host does not know to be done.
    departed: Vec<(Handle, QueueKey)>,
    sweep_at: usize,
    /// What the host must not touch yet, by the number of its guard.
    guards: HashMap<u64, Guarded>,
    users: usize,
}

impl Checker {
    fn epoch(&self, dep: Dep) -> Option<Epoch> {
        let lane = self.lanes.get(&dep.queue).filter(|lane| dep.count >= lane.first)?;
        Some(Epoch { line: lane.line, count: dep.count })
    }

    /// Adds what has happened at a place.
    fn add(&self, clock: &mut Clock, dep: Dep) {
        if let (Some(epoch), Some(lane)) = (self.epoch(dep), self.lanes.get(&dep.queue)) {
            clock.join(lane.at(dep.count));
            clock.raise(epoch);
        }
    }

    fn lane(&mut self, state: &State, key: QueueKey, count: u64) {
        if self.lanes.contains_key(&key) {
            return;
        }
        let line = self.next_line;
        self.next_line += 1;
        self.lines.0.insert(line);
        let places = VecDeque::from([(0, Arc::new(self.host.clone()))]);
        let lane = Lane { line, name: name(state, key), first: count, given: count, places, stamp: self.stamp };
        self.lanes.insert(key, lane);
    }

    /// Work is put at the end of a queue, as its `count`-th, after these places.
    fn submit(&mut self, state: &State, key: QueueKey, count: u64, after: &[Dep]) -> Option<Arc<Operation>> {
        self.lane(state, key, count);
        let lane = self.lanes.get(&key)?;
        let last = lane.at(count);
        let mut new: Option<Clock> = None;
        if lane.stamp != self.stamp {
            let mut clock = (**last).clone();
            clock.join(&self.host);
            new = Some(clock);
        }
        for dep in after.iter().filter(|dep| dep.queue != key) {
            let Some(epoch) = self.epoch(*dep) else { continue };
            if !new.as_ref().unwrap_or(last).has(epoch) {
                let mut clock = new.take().unwrap_or_else(|| (**last).clone());
                self.add(&mut clock, *dep);
                new = Some(clock);
            }
        }
        let new = new.map(|mut clock| {
            clock.retain(|line| self.lines.0.contains(&line));
            Arc::new(clock)
        });
        self.serial += 1;
        let (stamp, serial) = (self.stamp, self.serial);
        let lane = self.lanes.get_mut(&key)?;
        lane.stamp = stamp;
        lane.given = count;
        if let Some(new) = new {
            lane.places.push_back((count, new));
            if lane.places.len() > PLACES {
                lane.places.pop_front();
            }
        }
        let epoch = Epoch { line: lane.line, count };
        let before = lane.at(count).clone();
        Some(Arc::new(Operation { epoch, before, serial, place: thread::place(), on: lane.name.clone() }))
    }

    /// The host has learnt that places are reached.
    fn learn(&mut self, deps: &[Dep]) -> bool {
        let news: Vec<Dep> =
            deps.iter().copied().filter(|dep| self.epoch(*dep).is_some_and(|epoch| !self.host.has(epoch))).collect();
        let mut host = std::mem::take(&mut self.host);
        news.iter().for_each(|dep| self.add(&mut host, *dep));
        self.host = host;
        self.learnt(!news.is_empty())
    }

    /// The host has learnt that an operation is next: all before it is done.
    fn learn_before(&mut self, operation: &Operation) -> bool {
        let own = Epoch { line: operation.epoch.line, count: operation.epoch.count.saturating_sub(1) };
        self.host.join(&operation.before);
        self.host.raise(own);
        self.learnt(true)
    }

    fn learnt(&mut self, anything: bool) -> bool {
        if anything {
            self.stamp += 1;
            self.unguard(|checker, guarded| checker.host.has(guarded.operation.epoch));
            for lane in self.lanes.values_mut() {
                let known = self.host.of(lane.line);
                while lane.places.get(1).is_some_and(|(from, _)| *from <= known) {
                    lane.places.pop_front();
                }
            }
        }
        anything
    }

    /// Guards a range that an operation may use, as far as the host sees it.
    fn guard(&mut self, operation: &Arc<Operation>, label: &Arc<str>, range: (u64, u64), writes: bool) {
        let Some((piece, (start, end))) = self.pieces.pages(range.0, range.1) else { return };
        if self.host.has(operation.epoch) {
            return;
        }
        if let Some(guard) = guard::set(start, end, writes) {
            let (operation, label) = (operation.clone(), label.clone());
            self.guards.insert(guard, Guarded { operation, label, piece, writes });
        }
    }

    /// Takes guards away.
    fn unguard(&mut self, which: impl Fn(&Self, &Guarded) -> bool) {
        self.drain();
        let gone: Vec<u64> =
            self.guards.iter().filter(|(_, guarded)| which(self, guarded)).map(|(guard, _)| *guard).collect();
        for guard in gone {
            guard::lift(guard);
            self.guards.remove(&guard);
        }
    }

    /// Takes the guards of an allocation away.
    fn open(&mut self, number: u64) {
        if let Some(key) = self.pieces.key_of(number) {
            self.unguard(|_, guarded| guarded.piece == key);
        }
    }

    /// Reports what the host has touched.
    fn drain(&mut self) {
        for note in guard::fetch() {
            let Some(guarded) = self.guards.get(&note.guard) else { continue };
            let Some(piece) = self.pieces.get(guarded.piece) else { continue };
            let (operation, label) = (guarded.operation.clone(), guarded.label.clone());
            let text = finding::host(piece, &note, &operation, &label, guarded.writes);
            let rule = if note.write { finding::Rule::HostWriteTooEarly } else { finding::Rule::HostReadTooEarly };
            let place = format!("{label}{} on {}", operation.place, operation.on);
            self.pieces.say(rule, guarded.piece, place, operation.place.call, text);
        }
    }

    /// A kernel has run: the host must not touch what it used before having waited for it.
    fn guard_touched(&mut self, operation: &Arc<Operation>, label: &Arc<str>, touched: &mut Touched) {
        for touch in [Touch::Write, Touch::Read] {
            let sees = |range: &(u64, u64)| self.pieces.host_sees(range.0, range.1);
            let ranges: Vec<_> = touched.ranges(touch).iter().copied().filter(sees).take(FEW).collect();
            ranges.into_iter().for_each(|range| self.guard(operation, label, range, touch.writes()));
        }
    }

    /// Stops telling lines apart whose queue is gone and whose work the host knows to be done.
    fn sweep(&mut self, engine: &Engine) {
        if self.lanes.len() < self.sweep_at.max(FEW) {
            return;
        }
        let (host, lines) = (&self.host, &mut self.lines);
        self.lanes.retain(|key, lane| {
            let stays = engine.is_there(*key) || host.of(lane.line) < lane.given;
            if !stays {
                lines.0.remove(&lane.line);
            }
            stays
        });
        self.sweep_at = 2 * self.lanes.len();
        self.host.retain(|line| self.lines.0.contains(&line));
        self.pieces.forget(&self.lines);
    }

    fn enter(&mut self, allocation: &Allocation) {
        if matches!(allocation.origin, Origin::Graph { made: false, .. } | Origin::Heap) {
            return;
        }
        let ready = allocation.since.and_then(|dep| Some((self.epoch(dep)?, self.lanes.get(&dep.queue)?.name.clone())));
        self.serial += 1;
        let mut piece = Piece::new(allocation.start, allocation.len, allocation.made, ready, self.serial);
        piece.host = match allocation.origin {
            Origin::Pinned(_) | Origin::Managed(_) => Host::Pages,
            Origin::Pool(_) if allocation.device.is_none() => Host::Shared,
            _ => Host::Blind,
        };
        self.pieces.add(allocation.id, piece);
    }
}

/// What a report calls a queue.
fn name(state: &State, key: QueueKey) -> Arc<str> {
    match state.streams.iter().find(|(_, stream)| stream.queue == key) {
        Some((handle, stream)) => match stream.kind {
            StreamKind::Created => format!("stream {:#x}", handle.0).into(),
            StreamKind::Legacy => "the legacy default stream".into(),
            StreamKind::PerThread => format!("a thread's default stream ({:#x})", handle.0).into(),
        },
        None => "a branch of a graph".into(),
    }
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
            checker
                .pieces
                .add(made.number(), Piece::new(made.start(), made.len(), operation.place, ready, operation.serial));
        } else if let Some(free) = task.as_any().downcast_ref::<pool::Free>() {
            checker.open(free.id);
            checker.pieces.release(free.id, Release::Stream(operation.clone()), &checker.lines);
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
    with(|checker| checker.sweep(&state.engine));
}

/// A stream ends. Whether its queue stays for now, so that others can still be ordered behind its work.
pub fn departs(context: Handle, queue: QueueKey) -> bool {
    with(|checker| {
        let stays = checker.lanes.get(&queue).is_some_and(|lane| checker.host.of(lane.line) < lane.given);
        if stays {
            checker.departed.push((context, queue));
        }
        stays
    })
    .unwrap_or(false)
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
