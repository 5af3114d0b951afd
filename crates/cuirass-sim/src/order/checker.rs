//! What the checker knows: how far each queue and the host have come, the memory, and what is guarded from the host.

use super::clock::{Clock, Epoch, Line};
use super::pieces::{Host, Lines, Piece, Pieces};
use super::{Operation, finding, guard};
use crate::engine::{Dep, Engine, QueueKey};
use crate::handle::Handle;
use crate::memory::{Allocation, Origin};
use crate::state::State;
use crate::stream::StreamKind;
use crate::thread;
use cuirass_ptx::{Touch, Touched};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many places of a line are remembered apart from each other.
const PLACES: usize = 1024;
/// With fewer lines nobody looks which of them are over; of more ranges of a kernel none is guarded.
const FEW: usize = 64;
/// Lines of queues that are gone and whose work the host does not know to be done, that are told apart. What older ones
/// did counts as being before all that comes: a clock has an entry for each.
const ENDED: usize = 64;
/// With fewer uses of memory nobody looks which of them are before all that comes.
const MANY: usize = 1024;

/// What is known of one queue.
pub(super) struct Lane {
    pub(super) line: u32,
    name: Arc<str>,
    /// Work of lower numbers is from before the checker.
    first: u64,
    /// How much it has been given.
    pub(super) given: u64,
    /// What comes before the work from a number on, beside the queue's own.
    places: VecDeque<(u64, Arc<Clock>)>,
    /// Which state of the host's knowledge is in it.
    stamp: u64,
}

impl Lane {
    pub(super) fn at(&self, count: u64) -> &Arc<Clock> {
        let after = self.places.partition_point(|(from, _)| *from <= count);
        &self.places[after.saturating_sub(1)].1
    }
}

/// Memory that the host must not touch before it has waited for an operation.
pub(super) struct Guarded {
    operation: Arc<Operation>,
    label: Arc<str>,
    piece: u64,
    writes: bool,
}

#[derive(Default)]
pub(super) struct Checker {
    pub(super) lanes: HashMap<QueueKey, Lane>,
    pub(super) lines: Lines,
    next_line: u32,
    pub(super) host: Clock,
    /// Changes with `host`.
    stamp: u64,
    pub(super) serial: u64,
    pub(super) pieces: Pieces,
    /// Queues of streams that are gone whose work the host does not know to be done.
    pub(super) departed: Vec<(Handle, QueueKey)>,
    sweep_at: usize,
    prune_at: usize,
    /// What comes before the places of queues that are not remembered any more.
    gone: Clock,
    /// What other processes may wait for: all that comes before the recordings of events that are shared with them.
    shown: Clock,
    /// What the host must not touch yet, by the number of its guard.
    guards: HashMap<u64, Guarded>,
    pub(super) users: usize,
}

impl Checker {
    pub(super) fn epoch(&self, dep: Dep) -> Option<Epoch> {
        let lane = self.lanes.get(&dep.queue).filter(|lane| dep.count >= lane.first)?;
        Some(Epoch { line: lane.line, count: dep.count })
    }

    /// Adds what has happened at a place.
    pub(super) fn add(&self, clock: &mut Clock, dep: Dep) {
        if let (Some(epoch), Some(lane)) = (self.epoch(dep), self.lanes.get(&dep.queue)) {
            clock.join(lane.at(dep.count));
            clock.raise(epoch);
        } else if !self.lanes.contains_key(&dep.queue) {
            clock.join(&self.gone);
        }
    }

    /// Whether a clock has all that [`Checker::add`] would add to it of a place.
    fn has(&self, clock: &Clock, dep: Dep) -> bool {
        match self.epoch(dep) {
            Some(epoch) => clock.has(epoch),
            None => self.lanes.contains_key(&dep.queue) || clock.covers(&self.gone),
        }
    }

    /// Other processes may wait for a place from now on.
    pub(super) fn show(&mut self, dep: Dep) {
        let mut shown = std::mem::take(&mut self.shown);
        self.add(&mut shown, dep);
        self.shown = shown;
    }

    /// A place that another process reaches. What it waits for there is not known: it may be all that was shown.
    pub(super) fn gate(&mut self, state: &State, dep: Dep) {
        self.lane(state, dep.queue, dep.count);
        let mut before = self.shown.clone();
        before.join(&self.host);
        if let Some(lane) = self.lanes.get_mut(&dep.queue) {
            lane.places = VecDeque::from([(0, Arc::new(before))]);
        }
    }

    pub(super) fn lane(&mut self, state: &State, key: QueueKey, count: u64) {
        if self.lanes.contains_key(&key) {
            return;
        }
        self.sweep(&state.engine);
        let line = self.next_line;
        self.next_line += 1;
        self.lines.0.insert(line);
        let places = VecDeque::from([(0, Arc::new(self.host.clone()))]);
        let lane = Lane { line, name: name(state, key), first: count, given: count, places, stamp: self.stamp };
        self.lanes.insert(key, lane);
    }

    /// Work is put at the end of a queue, as its `count`-th, after these places.
    pub(super) fn submit(&mut self, state: &State, key: QueueKey, count: u64, after: &[Dep]) -> Option<Arc<Operation>> {
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
            if !self.has(new.as_ref().unwrap_or(last), *dep) {
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
    pub(super) fn learn(&mut self, deps: &[Dep]) -> bool {
        let news: Vec<Dep> = deps.iter().copied().filter(|dep| !self.has(&self.host, *dep)).collect();
        let mut host = std::mem::take(&mut self.host);
        news.iter().for_each(|dep| self.add(&mut host, *dep));
        self.host = host;
        self.learnt(!news.is_empty())
    }

    /// The host has learnt that an operation is next: all before it is done.
    pub(super) fn learn_before(&mut self, operation: &Operation) -> bool {
        let own = Epoch { line: operation.epoch.line, count: operation.epoch.count.saturating_sub(1) };
        self.host.join(&operation.before);
        self.host.raise(own);
        self.learnt(true)
    }

    pub(super) fn learnt(&mut self, anything: bool) -> bool {
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
    pub(super) fn guard(&mut self, operation: &Arc<Operation>, label: &Arc<str>, range: (u64, u64), writes: bool) {
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
    pub(super) fn unguard(&mut self, which: impl Fn(&Self, &Guarded) -> bool) {
        self.drain();
        let gone: Vec<u64> =
            self.guards.iter().filter(|(_, guarded)| which(self, guarded)).map(|(guard, _)| *guard).collect();
        for guard in gone {
            guard::lift(guard);
            self.guards.remove(&guard);
        }
    }

    /// Takes the guards of an allocation away.
    pub(super) fn open(&mut self, number: u64) {
        if let Some(key) = self.pieces.key_of(number) {
            self.unguard(|_, guarded| guarded.piece == key);
        }
    }

    /// Reports what the host has touched.
    pub(super) fn drain(&mut self) {
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
    pub(super) fn guard_touched(&mut self, operation: &Arc<Operation>, label: &Arc<str>, touched: &mut Touched) {
        for touch in [Touch::Write, Touch::Read] {
            let sees = |range: &(u64, u64)| self.pieces.host_sees(range.0, range.1);
            let ranges: Vec<_> = touched.ranges(touch).iter().copied().filter(sees).take(FEW).collect();
            ranges.into_iter().for_each(|range| self.guard(operation, label, range, touch.writes()));
        }
    }

    /// Stops telling lines apart whose queue is gone and whose work the host knows to be done, and the oldest of others
    /// whose queue is gone.
    pub(super) fn sweep(&mut self, engine: &Engine) {
        if self.lanes.len() < self.sweep_at.max(FEW) {
            return;
        }
        let over = |(key, lane): (&QueueKey, &Lane)| (!engine.is_open(*key)).then_some((lane.line, *key));
        let mut ended: Vec<(Line, QueueKey)> = self.lanes.iter().filter_map(over).collect();
        ended.sort_unstable_by_key(|(line, _)| std::cmp::Reverse(*line));
        let (mut gone, mut told_apart) = (std::mem::take(&mut self.gone), 0);
        for (line, key) in ended {
            let Some(lane) = self.lanes.get(&key) else { continue };
            if self.host.of(line) < lane.given {
                told_apart += 1;
                if told_apart <= ENDED {
                    continue;
                }
                gone.join(lane.at(lane.given));
            }
            self.lines.0.remove(&line);
            self.lanes.remove(&key);
        }
        for clock in [&mut gone, &mut self.host, &mut self.shown] {
            clock.retain(|line| self.lines.0.contains(&line));
        }
        self.gone = gone;
        self.sweep_at = 2 * self.lanes.len();
        self.pieces.forget(|operation| self.lines.0.contains(&operation.epoch.line));
        self.unguard(|checker, guarded| !checker.lines.0.contains(&guarded.operation.epoch.line));
    }

    /// Forgets uses that the host knows to be over, now that nothing is pending: all that comes is after them.
    pub(super) fn prune(&mut self) {
        if self.pieces.uses() >= self.prune_at.max(MANY) {
            self.pieces.forget(|operation| !self.host.has(operation.epoch));
            self.prune_at = 2 * self.pieces.uses();
        }
    }

    /// The streams that have been gone for the longest while their work is not known to be done; their queues may go.
    pub(super) fn overdue(&mut self) -> Vec<(Handle, QueueKey)> {
        let surplus = self.departed.len().saturating_sub(ENDED);
        if surplus < ENDED { Vec::new() } else { self.departed.drain(..surplus).collect() }
    }

    /// How much is remembered, by what it is.
    pub(super) fn records(&self) -> [(&'static str, usize); 7] {
        let clock_of = |lane: &Lane| lane.places.iter().map(|(_, clock)| clock.len()).sum::<usize>();
        let (pieces, uses, ranges, findings) = self.pieces.records();
        [
            ("lines", self.lanes.len()),
            ("clocks", self.lanes.values().map(clock_of).sum()),
            ("pieces", pieces),
            ("uses", uses),
            ("ranges", ranges),
            ("guards", self.guards.len()),
            ("findings", findings),
        ]
    }

    pub(super) fn enter(&mut self, allocation: &Allocation) {
        if matches!(allocation.origin, Origin::Graph { made: false, .. } | Origin::Heap) {
            return;
        }
        let ready = allocation.since.and_then(|dep| Some((self.epoch(dep)?, self.lanes.get(&dep.queue)?.name.clone())));
        self.serial += 1;
        let place = (allocation.start, allocation.len);
        let mut piece = Piece::new(allocation.id, place, allocation.made, ready, self.serial);
        piece.host = match allocation.origin {
            Origin::Pinned(_) | Origin::Managed(_) => Host::Pages,
            Origin::Pool(_) if allocation.device.is_none() => Host::Shared,
            _ => Host::Blind,
        };
        self.pieces.add(piece);
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
