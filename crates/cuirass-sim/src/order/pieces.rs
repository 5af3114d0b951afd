//! Pieces of memory, from where on and up to where each may be used, and which operations have touched it.

use super::clock::{Clock, Epoch};
use super::guard::PAGE;
use super::sets::Sets;
use super::{Operation, finding};
use crate::thread::Place;
use cuirass_ptx::{Touch, Touched};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Pieces whose place has been taken by others and that are remembered all the same.
const REMEMBERED: usize = 4096;
/// The newest of them, whose uses are remembered, too.
const RECENT: usize = 256;
/// Operations remembered for a piece.
const TOUCHES: usize = 256;
/// Ranges remembered for a piece, of all of them together.
const RANGES: usize = 1 << 17;
/// Findings of one rule about one piece; there are no more of them.
const FINDINGS: usize = 64;

/// An allocation, from one coming about to its release.
pub struct Piece {
    /// The allocation's number.
    pub number: u64,
    /// Its first address.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The call that made it.
    pub made: Place,
    /// The stream that it was made in, and from where on it may be used there (none: from its call on).
    pub ready: Option<(Epoch, Arc<str>)>,
    /// Operations with a greater number were put into a stream later.
    pub serial: u64,
    /// Whether the host sees it, and how.
    pub host: Host,
    /// What ended it.
    pub released: Option<Release>,
    touches: Vec<Access>,
}

impl Piece {
    /// A piece that nothing has touched yet: its number, its place, the call and the stream that made it.
    pub fn new(number: u64, place: (u64, u64), made: Place, ready: Option<(Epoch, Arc<str>)>, serial: u64) -> Self {
        let (start, len) = (place.0, place.1.max(1));
        Self { number, start, len, made, ready, serial, host: Host::Blind, released: None, touches: Vec::new() }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// How the host sees a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// Not at all, or nobody knows.
    Blind,
    /// The piece has its pages for itself.
    Pages,
    /// Others may have a part of its pages.
    Shared,
}

/// What an operation did with a piece.
pub struct Access {
    /// The operation.
    pub operation: Arc<Operation>,
    /// What it is, for a report.
    pub label: Arc<str>,
    /// The bytes.
    pub sets: Sets,
}

/// The end of a piece.
pub enum Release {
    /// In a stream's order.
    Stream(Arc<Operation>),
    /// By the host.
    Host {
        /// The call.
        place: Place,
        /// What the host knew to be done.
        clock: Clock,
        /// Operations with a greater number were put into a stream later.
        serial: u64,
    },
}

impl Release {
    fn serial(&self) -> u64 {
        match self {
            Release::Stream(free) => free.serial,
            Release::Host { serial, .. } => *serial,
        }
    }
}

/// The lines that are still told apart. The work of any other line is done, and the host knows it.
#[derive(Default)]
pub struct Lines(pub HashSet<u32>);

impl Lines {
    /// Whether an operation comes after a piece of work, or is the same: what a conditional node runs is one operation.
    pub fn after(&self, operation: &Operation, epoch: Epoch) -> bool {
        operation.before.has(epoch)
            || operation.epoch.line == epoch.line && epoch.count <= operation.epoch.count
            || !self.0.contains(&epoch.line)
    }

    fn known(&self, clock: &Clock, epoch: Epoch) -> bool {
        clock.has(epoch) || !self.0.contains(&epoch.line)
    }

    /// Whether the release of a piece waits for an operation.
    fn waits(&self, release: &Release, operation: &Operation) -> bool {
        match release {
            Release::Stream(free) => self.after(free, operation.epoch),
            Release::Host { clock, .. } => self.known(clock, operation.epoch),
        }
    }
}

/// All pieces.
#[derive(Default)]
pub struct Pieces {
    all: HashMap<u64, Piece>,
    next: u64,
    /// The newest at each place; they do not overlap.
    there: BTreeMap<u64, u64>,
    /// Those whose place others have taken, the oldest first.
    past: VecDeque<u64>,
    /// The newest piece of each allocation number.
    by_number: HashMap<u64, u64>,
    /// What has been reported: each pair of places once for a piece.
    said: HashMap<(finding::Rule, u64), HashSet<String>>,
}

impl Pieces {
    /// A piece comes about; what was in its place is past.
    pub fn add(&mut self, piece: Piece) {
        for key in self.meeting(piece.start, piece.end()) {
            if let Some(old) = self.all.get(&key) {
                self.there.remove(&old.start);
                self.past.push_back(key);
            }
            let known = self.past.len().checked_sub(RECENT + 1).and_then(|at| self.past.get(at));
            if let Some(piece) = known.and_then(|key| self.all.get_mut(key)) {
                piece.touches = Vec::new();
            }
        }
        while self.past.len() > REMEMBERED {
            let oldest = self.past.pop_front();
            if let Some((key, piece)) = oldest.and_then(|key| Some((key, self.all.remove(&key)?)))
                && self.by_number.get(&piece.number) == Some(&key)
            {
                self.by_number.remove(&piece.number);
            }
            if let Some(key) = oldest {
                self.said.retain(|(_, of), _| *of != key);
            }
        }
        self.next += 1;
        self.there.insert(piece.start, self.next);
        self.by_number.insert(piece.number, self.next);
        self.all.insert(self.next, piece);
    }

    /// The piece in which a range lies, if the host sees it, and those pages of it in which there is nothing but the
    /// range.
    pub fn pages(&self, start: u64, end: u64) -> Option<(u64, (u64, u64))> {
        let (_, key) = self.there.range(..=start).next_back()?;
        let piece = self.all.get(key).filter(|piece| piece.released.is_none() && end <= piece.end())?;
        let whole = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        let (first, last) = match piece.host {
            Host::Blind => return None,
            Host::Shared => whole,
            Host::Pages => (
                if start == piece.start { start } else { whole.0 },
                if end == piece.end() { end.next_multiple_of(PAGE) } else { whole.1 },
            ),
        };
        (first < last && first.is_multiple_of(PAGE)).then_some((*key, (first, last)))
    }

    /// Whether a range lies in memory that the host sees.
    pub fn host_sees(&self, start: u64, end: u64) -> bool {
        let piece = self.there.range(..=start).next_back().and_then(|(_, key)| self.all.get(key));
        piece.is_some_and(|piece| end <= piece.end() && piece.host != Host::Blind)
    }

    /// A piece.
    pub fn get(&self, key: u64) -> Option<&Piece> {
        self.all.get(&key)
    }

    /// The piece of an allocation.
    pub fn key_of(&self, number: u64) -> Option<u64> {
        self.by_number.get(&number).copied()
    }

    /// The pieces there that a range meets.
    fn meeting(&self, start: u64, end: u64) -> Vec<u64> {
        let below = self.there.range(..end).rev().map(|(_, key)| *key);
        below.take_while(|key| self.all.get(key).is_some_and(|piece| piece.end() > start)).collect()
    }

    /// An allocation ends. The first end counts.
    pub fn release(&mut self, number: u64, release: Release, lines: &Lines) {
        let Some(key) = self.by_number.get(&number).copied() else { return };
        let Some(piece) = self.all.get_mut(&key).filter(|piece| piece.released.is_none()) else { return };
        let early: Vec<_> =
            piece.touches.iter().filter(|touch| !lines.waits(&release, &touch.operation)).map(Access::again).collect();
        piece.released = Some(release);
        for access in early {
            self.too_early(key, &access);
        }
    }

    fn too_early(&mut self, key: u64, access: &Access) {
        let Some(piece) = self.all.get(&key) else { return };
        let Some(release) = &piece.released else { return };
        let text = finding::too_early(piece, release, access);
        self.say(finding::Rule::ReleaseTooEarly, key, access.place(), access.operation.place.call, text);
    }

    /// Reports, unless the like has been.
    pub fn say(&mut self, rule: finding::Rule, key: u64, places: String, call: &'static str, text: String) {
        let said = self.said.entry((rule, key)).or_default();
        if said.len() < FINDINGS && said.insert(places) {
            finding::report(rule, call, text);
        }
    }

    /// An operation has touched memory, or tries to.
    pub fn touch(&mut self, operation: &Arc<Operation>, label: &Arc<str>, touched: &mut Touched, lines: &Lines) {
        let mut by_piece: BTreeMap<u64, Sets> = BTreeMap::new();
        for touch in Touch::ALL {
            for (start, end) in touched.ranges(touch) {
                self.share_out(operation, touch, (*start, *end), &mut by_piece);
            }
        }
        for (key, sets) in by_piece {
            self.meet(key, Access { operation: operation.clone(), label: label.clone(), sets }, lines);
        }
    }

    /// Finds out which pieces an operation means by a range, as addresses are used again: the newest ones that were
    /// there when it was put into its stream.
    fn share_out(&self, operation: &Operation, touch: Touch, range: (u64, u64), into: &mut BTreeMap<u64, Sets>) {
        let known = |key: u64| self.all.get(&key).filter(|piece| piece.serial < operation.serial);
        let mut give = |key: u64, piece: &Piece, (from, to): (u64, u64)| {
            let (from, to) = (from.max(piece.start), to.min(piece.end()));
            if from < to {
                into.entry(key).or_default().push(touch, from, to);
            }
        };
        for key in self.meeting(range.0, range.1).into_iter().rev() {
            let Some(piece) = self.all.get(&key) else { continue };
            if known(key).is_some() {
                give(key, piece, range);
                continue;
            }
            let (from, to) = (range.0.max(piece.start), range.1.min(piece.end()));
            let mut past = self.past.iter().rev().filter_map(|key| Some((*key, known(*key)?)));
            if let Some((key, piece)) = past.find(|(_, piece)| piece.start < to && from < piece.end()) {
                give(key, piece, (from, to));
            }
        }
    }

    fn meet(&mut self, key: u64, access: Access, lines: &Lines) {
        let Some(piece) = self.all.get(&key) else { return };
        let operation = &access.operation;
        let call = operation.place.call;
        let late = piece.released.as_ref().is_some_and(|release| release.serial() < operation.serial);
        if late {
            let text = finding::too_late(piece, &access);
            return self.say(finding::Rule::UseAfterRelease, key, access.place(), call, text);
        }
        if !piece.ready.as_ref().is_none_or(|(epoch, _)| lines.after(operation, *epoch)) {
            let text = finding::unready(piece, &access);
            return self.say(finding::Rule::UseBeforeReady, key, access.place(), call, text);
        }
        let early = piece.released.as_ref().is_some_and(|release| !lines.waits(release, operation));
        let mut found = Vec::new();
        for earlier in &piece.touches {
            if lines.after(operation, earlier.operation.epoch) {
                continue;
            }
            if let Some(conflict) = access.sets.conflict(&earlier.sets) {
                // In the order in which the program asked for them, whichever ran first.
                let own = (&access, conflict.mine);
                let other = (earlier, conflict.theirs);
                let (first, second) =
                    if earlier.operation.serial < operation.serial { (other, own) } else { (own, other) };
                let text = finding::race(piece, first, second, (conflict.start, conflict.end));
                let call = second.0.operation.place.call;
                found.push((format!("{}, {}", first.0.place(), second.0.place()), call, text));
            }
        }
        for (pair, call, text) in found {
            self.say(finding::Rule::Race, key, pair, call, text);
        }
        if early {
            self.too_early(key, &access);
        }
        let Some(piece) = self.all.get_mut(&key) else { return };
        // Whatever is in conflict with an operation that this one follows and covers is in conflict with this one.
        piece.touches.retain(|earlier| {
            !(lines.after(&access.operation, earlier.operation.epoch) && access.sets.covers(&earlier.sets))
        });
        piece.touches.push(access);
        let mut ranges: usize = piece.touches.iter().map(|touch| touch.sets.len()).sum();
        let mut surplus = piece.touches.len().saturating_sub(TOUCHES);
        ranges -= piece.touches.iter().take(surplus).map(|touch| touch.sets.len()).sum::<usize>();
        while ranges > RANGES && surplus + 1 < piece.touches.len() {
            ranges -= piece.touches[surplus].sets.len();
            surplus += 1;
        }
        piece.touches.drain(..surplus);
    }

    /// Forgets the uses by operations that are not wanted any more: everything to come is after them.
    pub fn forget(&mut self, wanted: impl Fn(&Operation) -> bool) {
        for piece in self.all.values_mut() {
            piece.touches.retain(|touch| wanted(&touch.operation));
        }
    }

    /// How many uses are remembered.
    pub fn uses(&self) -> usize {
        self.all.values().map(|piece| piece.touches.len()).sum()
    }

    /// How many pieces, uses of them, ranges of these, and findings are remembered.
    pub fn records(&self) -> (usize, usize, usize, usize) {
        let touches = self.all.values().flat_map(|piece| &piece.touches);
        let ranges = touches.map(|touch| touch.sets.len()).sum();
        (self.all.len(), self.uses(), ranges, self.said.values().map(HashSet::len).sum())
    }
}

impl Access {
    /// What it is and where, for telling findings apart.
    fn place(&self) -> String {
        format!("{}{} on {}", self.label, self.operation.place.call, self.operation.on)
    }

    fn again(&self) -> Self {
        Self { operation: self.operation.clone(), label: self.label.clone(), sets: self.sets.clone() }
    }
}
