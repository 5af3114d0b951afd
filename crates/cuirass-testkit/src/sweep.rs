//! The sweep: an operation run again and again, with each of its calls failing in turn.

use crate::calls::status_name;
use crate::instrument::{Instrument, Manner, Planned, Seen};
use crate::judge::{Ended, Finding, Reported, Run, judge, judge_refused};
use crate::ledger::{Entry, Handle, Life, new_in, shown};
use crate::operation::{Caller, Ends, Operation};
use crate::raw::{self, capture_mode, current, set_capture_mode, set_current};
use crate::simulator;
use crate::told::Told;
use cuirass_fault::{Library, Report, set_reporter};
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// What driver calls are made to fail with: out of memory, invalid value, invalid context, context destroyed, not
/// supported, a sticky code, deinitialized, unknown.
pub const DRIVER_STATUSES: [u32; 8] = [2, 1, 201, 709, 801, 700, 4, 999];
/// What compiler calls are made to fail with: out of memory, invalid input, compilation, internal error.
pub const COMPILER_STATUSES: [u32; 4] = [1, 5, 6, 11];
const MANNERS: [Manner; 2] = [Manner::Refused, Manner::Done];
/// What a call answers is what it did: a mapping that nobody knows of could not be undone, and its addresses not be
/// given back, by any program.
const NEVER_IN_DOUBT: [&str; 1] = ["cuMemMap"];

/// How a call is made to fail.
fn manners(call: Option<&Seen>) -> &'static [Manner] {
    match call {
        Some(seen) if NEVER_IN_DOUBT.contains(&seen.call.name) => &[Manner::Refused],
        _ => &MANNERS,
    }
}

/// What the operations of a sweep are run in.
pub struct World {
    /// The handle of the context that a kind of caller has current; 0 for none.
    pub context: Box<dyn Fn(Caller) -> u64>,
    /// Puts everything that is kept for the process into the same state: before the objects of a run are made, and
    /// after they are gone.
    pub rest: Box<dyn Fn() -> Result<(), Told>>,
    /// Told of each imported pool that the sweep itself has given back, since it was leaked: its handle may come round again.
    pub forget_pool: fn(u64),
    /// The reports since it was last asked; where that is `None`, the sweep installs a reporter of its own.
    pub reports: Option<Box<dyn Fn() -> Vec<Reported>>>,
}

/// Something that a check found, with how to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The operation's title.
    pub operation: String,
    /// The run: what the caller had current, which call fails, and how.
    pub run: String,
    /// How many calls of it fail, and the first of them: the fewest and the earliest is the shortest reproducer.
    pub order: (usize, usize),
    /// What was found.
    pub finding: Finding,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations.
    pub operations: u64,
    /// Calls that they make, once for each kind of caller.
    pub calls: u64,
    /// Runs with a call failing.
    pub faults: u64,
    /// Runs whose census and simulator checks could not be made, on a real driver.
    pub without_census: u64,
}

/// How much of it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every call, every status, every pair.
    Full,
    /// A part, chosen by a number; about one run in as many as the second says.
    Slice(u64, u64),
}

/// Runs operations, in one thread of one process.
pub struct Sweep {
    pub(crate) instrument: Arc<Instrument>,
    pub(crate) world: World,
    extent: Extent,
    reports: Box<dyn Fn() -> Vec<Reported>>,
    /// Whether a run has spoilt the process for those after it.
    lost: Cell<bool>,
    /// Told before each run what it is, so that a run that ends the process can be named.
    pub(crate) announce: Box<dyn Fn(&str)>,
    /// What it did.
    pub totals: Totals,
    /// What it found.
    pub violations: Vec<Violation>,
}

impl Sweep {
    /// A sweep over the calls of this thread.
    pub fn new(instrument: Arc<Instrument>, mut world: World, extent: Extent, announce: Box<dyn Fn(&str)>) -> Sweep {
        let reports = world.reports.take().unwrap_or_else(own_reporter);
        let (totals, violations) = (Totals::default(), Vec::new());
        let lost = Cell::new(false);
        Sweep { instrument, world, extent, reports, lost, announce, totals, violations }
    }

    /// Sweeps one operation; none after one that has spoilt the process, which is a violation of that one.
    pub fn operation(&mut self, operation: &Operation) {
        if self.lost.get() {
            return;
        }
        self.totals.operations += 1;
        for caller in &operation.callers {
            if operation.is_lacking() {
                self.refused(operation, *caller);
            } else {
                self.for_caller(operation, *caller);
            }
        }
    }

    /// On a driver that an operation is too new for: it, or the making of what it needs, is refused by name, and leaves
    /// nothing.
    fn refused(&mut self, operation: &Operation, caller: Caller) {
        let described = describe(operation, caller, &[], &[]);
        (self.announce)(&described);
        // What is set up once for the process is no part of the operation.
        drop(self.observe(operation, caller, &[]));
        let unrest = set_current(0).err().or_else(|| self.rest().err());
        let census = simulator::census();
        let (told, mut findings) = match self.observe(operation, caller, &[]) {
            Ok(run) => (run.ended.told(), judge_refused(operation, &run)),
            Err(text) => (text, Vec::new()),
        };
        let mut wrong = |check, expected: String, seen| findings.push(Finding { check, expected, seen });
        let version = |version: u32| format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        let found = format!(", this one is of {}", version(crate::driver_version()));
        if !(told.contains(" needs a driver of CUDA ") && told.contains(&found)) {
            wrong(1, format!("a call named that needs a driver of {} or less{found}", version(operation.needs)), told);
        }
        let ended = unrest.or_else(|| set_current(0).err()).or_else(|| self.rest().err()).or_else(|| {
            let reports = self.late_reports();
            (!reports.is_empty()).then(|| format!("reported {}", reports.join("; ")))
        });
        if let Some(seen) = ended {
            wrong(5, "nothing but the refusal".to_owned(), seen);
        }
        if let Some((before, after)) = census.zip(simulator::census())
            && before != after
        {
            wrong(3, before, after);
        }
        for finding in findings {
            self.found(operation, &described, (0, 0), finding);
        }
    }

    fn for_caller(&mut self, operation: &Operation, caller: Caller) {
        // What is set up once for the process is no part of the operation.
        if self.run(operation, caller, &[], &[]).is_none() {
            return;
        }
        let Some(calls) = self.run(operation, caller, &[], &[]) else { return };
        self.totals.calls += calls.len() as u64;
        if operation.ends == Ends::MakesNoCall {
            if let Some(first) = calls.first() {
                let seen = format!("it makes {} calls, {} first", calls.len(), first.call.name);
                self.found(
                    operation,
                    "nothing made to fail",
                    (0, 0),
                    Finding { check: 1, expected: "no call".into(), seen },
                );
            }
            return;
        }
        if calls.is_empty() {
            let finding = Finding { check: 1, expected: "it makes calls".into(), seen: "it makes none".into() };
            self.found(operation, &describe(operation, caller, &[], &[]), (0, 0), finding);
        }
        for at in 0..calls.len() {
            let library = calls.get(at).map(|seen| seen.call.library);
            let statuses: &[u32] = if library == Some(Library::Driver) { &DRIVER_STATUSES } else { &COMPILER_STATUSES };
            for &status in statuses {
                for &manner in manners(calls.get(at)) {
                    let planned = Planned { at, status, manner, for_ever: false };
                    if self.is_chosen(operation, at, status, manner, 0) {
                        self.run(operation, caller, &[planned], &calls);
                    }
                }
            }
            let (Some(&first), Some(&last)) = (statuses.first(), statuses.last()) else { continue };
            if self.is_chosen(operation, at, last, Manner::Refused, 1) {
                let planned = Planned { at, status: last, manner: Manner::Refused, for_ever: true };
                self.run(operation, caller, &[planned], &calls);
            }
            for &manner in manners(calls.get(at)) {
                if self.is_chosen(operation, at, first, manner, 2) {
                    self.pairs(operation, caller, Planned { at, status: first, manner, for_ever: false }, &calls);
                }
            }
        }
    }

    /// The run with one call failing, again with each later call of it failing too.
    fn pairs(&mut self, operation: &Operation, caller: Caller, first: Planned, calls: &[Seen]) {
        let Some(failing) = self.run(operation, caller, &[first], calls) else { return };
        for (at, seen) in failing.iter().enumerate().skip(first.at + 1) {
            let status = if seen.call.library == Library::Driver { 999 } else { 11 };
            for &manner in manners(Some(seen)) {
                let second = Planned { at, status, manner, for_ever: false };
                self.run(operation, caller, &[first, second], calls);
            }
        }
    }

    fn is_chosen(&self, operation: &Operation, at: usize, status: u32, manner: Manner, what: u64) -> bool {
        let Extent::Slice(seed, one_in) = self.extent else { return true };
        // FNV-1a over what names the run: the same seed chooses the same part.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let numbers = [seed, at as u64, u64::from(status), u64::from(manner == Manner::Done), what];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(operation.title().into_bytes());
        for byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        (hash >> 17).is_multiple_of(one_in)
    }

    pub(crate) fn found(&mut self, operation: &Operation, run: &str, order: (usize, usize), finding: Finding) {
        let violation = Violation { operation: operation.title(), run: run.to_owned(), order, finding };
        self.violations.push(violation);
    }

    /// One run, judged. `None`: the objects that it needs could not be made.
    fn run(&mut self, operation: &Operation, caller: Caller, plan: &[Planned], calls: &[Seen]) -> Option<Vec<Seen>> {
        if self.lost.get() {
            return None;
        }
        let described = describe(operation, caller, plan, calls);
        (self.announce)(&described);
        let order = (plan.len(), plan.first().map_or(0, |planned| planned.at));
        let run = match self.observe(operation, caller, plan) {
            Ok(run) => run,
            Err(text) => {
                let expected = "what the operation needs can be made".to_owned();
                self.found(operation, &described, order, Finding { check: 5, expected, seen: text });
                return None;
            }
        };
        if !plan.is_empty() {
            self.totals.faults += 1;
        }
        if run.census.is_none() {
            self.totals.without_census += 1;
        }
        let mut findings = judge(operation, &run);
        if let Some(missed) =
            plan.iter().find(|planned| run.seen.get(planned.at).is_none_or(|seen| seen.failed.is_none()))
        {
            let expected = format!("call {} made again, as it was without a failure", missed.at + 1);
            let seen = format!("{} calls", run.seen.len());
            findings.push(Finding { check: 1, expected, seen });
        }
        for finding in findings {
            self.found(operation, &described, order, finding);
        }
        Some(run.seen)
    }

    pub(crate) fn take_reports(&self) -> Vec<Reported> {
        (self.reports)()
    }

    fn late_reports(&self) -> Vec<String> {
        self.take_reports().into_iter().map(|reported| reported.report.to_string()).collect()
    }

    fn rest(&self) -> Result<(), String> {
        (self.world.rest)().map_err(|error| format!("putting the process to rest: {error}"))
    }

    fn left_since(&self, before: &BTreeMap<Handle, Entry>) -> BTreeMap<Handle, Entry> {
        new_in(&self.instrument.ledger(|ledger| ledger.alive()), before)
    }

    /// Gives back what a run has left, so that the next one finds the process as it was: what was made in something
    /// before that, and nothing whose context, or pool, has ended. A real driver crashes on such a handle.
    fn put_away(&self, left: &BTreeMap<Handle, Entry>, kept: &mut Vec<String>) {
        let primary = (self.world.context)(Caller::Primary);
        let mut left: Vec<_> = left.iter().collect();
        left.sort_by_key(|((kind, _), _)| raw::rank(kind));
        if left.iter().any(|((kind, _), _)| *kind == "pool") {
            let waited = [Caller::Other, Caller::Primary].map(|caller| raw::settle((self.world.context)(caller)));
            kept.extend(waited.into_iter().filter_map(Result::err));
        }
        for (handle, entry) in left {
            for _ in 0..entry.count {
                if let Some(with) = self.went_with(*handle, entry) {
                    kept.push(format!("{} went with {}", shown(*handle), shown(with)));
                } else if let Err(error) = raw::put_away(*handle, entry, primary) {
                    kept.push(format!("putting away {}: {error}", shown(*handle)));
                }
                if handle.0 == "pool" {
                    (self.world.forget_pool)(handle.1);
                }
                self.instrument.ledger(|ledger| ledger.put_away(*handle));
            }
        }
    }

    /// What has ended, and a handle with it.
    fn went_with(&self, (kind, _): Handle, entry: &Entry) -> Option<Handle> {
        let is_ended = |handle: &Handle| self.instrument.ledger(|ledger| ledger.is_ended(*handle));
        let context = Some(("context", entry.context)).filter(|context| kind != "context" && is_ended(context));
        // Memory outlives its pool, until it is freed; a real driver has been seen to crash after that.
        let real = simulator::census().is_none();
        context.or_else(|| entry.parents.iter().copied().find(|parent| real && parent.0 == "pool" && is_ended(parent)))
    }

    /// Gives back what was made and answered with an error: nobody can know it, and what it was made of is still there.
    fn put_orphans_away(&self, at_rest: &BTreeMap<Handle, Entry>, kept: &mut Vec<String>) {
        let mut orphans = self.left_since(at_rest);
        orphans.retain(|(kind, _), entry| entry.life == Life::Orphan && *kind != "capture");
        self.put_away(&orphans, kept);
    }

    fn observe(&self, operation: &Operation, caller: Caller, plan: &[Planned]) -> Result<Run, String> {
        self.rest()?;
        let caller = (self.world.context)(caller);
        let census = simulator::census();
        let mark = simulator::mark();
        drop(self.instrument.take_held());
        self.instrument.ledger(|ledger| ledger.forget_spent());
        let at_rest = self.instrument.ledger(|ledger| ledger.alive());
        set_current(caller)?;
        let mut prepared = operation.prepare().map_err(|error| format!("the set-up failed: {error}"))?;
        set_current(caller)?;
        let before = self.instrument.ledger(|ledger| {
            ledger.set_current(caller);
            ledger.alive()
        });
        let mut late = self.late_reports();
        let (mode, below) = (capture_mode()?, raw::stack());
        self.instrument.open(plan);
        let result = catch_unwind(AssertUnwindSafe(|| prepared.operate()));
        let seen = self.instrument.close();
        let reports = self.take_reports();
        let now = current();
        let (modes, stacks) = ((mode, capture_mode()?), (below, raw::stack()));
        set_capture_mode(mode)?;
        set_current(caller)?;
        let after = self.instrument.ledger(|ledger| {
            ledger.set_current(caller);
            ledger.alive()
        });
        let (ended, made) = match result {
            Ok(Ok(made)) => (Ended::Worked, Some(made)),
            Ok(Err(error)) => (Ended::Raised(error), None),
            Err(panic) => (Ended::Panicked(panic_text(&*panic)), None),
        };
        let follow_up = match catch_unwind(AssertUnwindSafe(|| prepared.follow_up())) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(format!("panicked: {}", panic_text(&*panic))),
        };
        let (mut kept, mut misused) = (Vec::new(), self.instrument.take_wrong());
        self.put_orphans_away(&at_rest, &mut kept);
        set_current(caller)?;
        let mut remarks = Vec::new();
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            drop(made);
            remarks = prepared.remarks();
            drop(prepared);
        }));
        misused.extend(self.instrument.take_wrong());
        late.extend(dropped.err().map(|panic| format!("dropping what is left panicked: {}", panic_text(&*panic))));
        late.extend(self.late_reports());
        set_current(0)?;
        // Nothing comes to rest while a capture goes on.
        let mut captures = self.left_since(&at_rest);
        captures.retain(|(kind, _), _| *kind == "capture");
        self.put_away(&captures, &mut kept);
        let unrest = self.rest().err();
        let mut left = self.left_since(&at_rest);
        self.put_away(&left, &mut kept);
        left.extend(captures);
        let unrest = unrest.or(self.rest().err());
        // The sweep itself must be as careful as a real driver demands.
        misused.extend(simulator::bugs_since(mark));
        self.lost.set(unrest.is_some());
        let follow_up = follow_up.or(unrest);
        let census = census.zip(simulator::census());
        let new = new_in(&after, &before);
        let current = now;
        Ok(Run {
            caller,
            seen,
            ended,
            reports,
            current,
            stacks,
            modes,
            misused,
            held: self.instrument.take_held(),
            new,
            left,
            follow_up,
            late,
            census,
            remarks,
            kept,
        })
    }
}

/// Installs a reporter, and returns what takes its reports.
fn own_reporter() -> Box<dyn Fn() -> Vec<Reported>> {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let collect = move |report: &Report| {
        let reported = Reported { report: report.into(), current: current() };
        sink.lock().unwrap_or_else(PoisonError::into_inner).push(reported);
    };
    drop(set_reporter(Some(Arc::new(collect))));
    Box::new(move || std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// `caller has another context; call 3 (cuEventCreate) fails with CUDA_ERROR_UNKNOWN, refused`
fn describe(operation: &Operation, caller: Caller, plan: &[Planned], calls: &[Seen]) -> String {
    let caller = match caller {
        Caller::Nothing => "nothing is current",
        Caller::Other => "another context is current",
        Caller::Primary => "the primary context is current",
    };
    let mut text = format!("{}; {caller}", operation.title());
    for planned in plan {
        let seen = calls.get(planned.at);
        let library = seen.map_or(Library::Driver, |seen| seen.call.library);
        let name = seen.map_or("of the way back", |seen| seen.call.name);
        let manner = match planned.manner {
            Manner::Refused => "not made",
            Manner::Done => "made",
        };
        let for_ever = if planned.for_ever { ", and every later one" } else { "" };
        let status = status_name(library, planned.status);
        text.push_str(&format!("; call {} ({name}) returns {status}, {manner}{for_ever}", planned.at + 1));
    }
    text
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned())
}
