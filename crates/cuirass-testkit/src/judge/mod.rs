//! The checks over one run of one operation: the six of FAILURE_POLICY.md, section 11, and that the interpreter's lock is
//! not held where a call may wait.

mod messages;

use crate::calls::{is_answer, status_name};
use crate::instrument::{Manner, Seen};
use crate::ledger::{self, Entry, Handle, Life};
use crate::operation::{Ends, Operation};
use crate::told::Told;
use cuirass_fault::Library;
use messages::GAVE_UP;
use std::collections::{BTreeMap, BTreeSet};

/// What became of the operation.
pub enum Ended {
    /// It worked.
    Worked,
    /// It returned this.
    Raised(Told),
    /// It panicked.
    Panicked(String),
}

impl Ended {
    /// It in words.
    pub fn told(&self) -> String {
        match self {
            Ended::Worked => "it returned success".to_owned(),
            Ended::Raised(error) => format!("raised {error}"),
            Ended::Panicked(text) => format!("it panicked: {text}"),
        }
    }
}

/// A report, and what was current while it was made.
pub struct Reported {
    /// It.
    pub report: Told,
    /// The handle of the context that the reporter saw.
    pub current: u64,
}

/// Everything that was seen of a run.
pub struct Run {
    /// What the caller had current.
    pub caller: u64,
    /// The calls of the operation.
    pub seen: Vec<Seen>,
    /// How it ended.
    pub ended: Ended,
    /// What was reported meanwhile.
    pub reports: Vec<Reported>,
    /// What was current afterwards.
    pub current: u64,
    /// The thread's stack of contexts below the current one, before and afterwards; none on a real driver.
    pub stacks: (Option<Vec<u64>>, Option<Vec<u64>>),
    /// The thread's capture mode before and afterwards.
    pub modes: (u32, u32),
    /// Spent handles that were used, and bugs that the simulated driver saw.
    pub misused: Vec<String>,
    /// Calls that may wait and were made with the interpreter's lock held.
    pub held: Vec<&'static str>,
    /// What was alive right afterwards and not right before.
    pub new: BTreeMap<Handle, Entry>,
    /// What was alive once everything had been dropped, and not before the objects were made.
    pub left: BTreeMap<Handle, Entry>,
    /// What an object that existed before answered to its follow-up, if that failed.
    pub follow_up: Option<String>,
    /// Reports that were made outside the operation, with nothing made to fail.
    pub late: Vec<String>,
    /// The census before the objects were made, and after everything had been dropped and put away.
    pub census: Option<(String, String)>,
    /// What was wrong that only the language knows.
    pub remarks: Vec<String>,
    /// What could not be put away: with a context, what was made in it goes too.
    pub kept: Vec<String>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which of the seven.
    pub check: u8,
    /// What the policy says.
    pub expected: String,
    /// What was seen.
    pub seen: String,
}

/// A call that failed, with a status that is no answer: by injection, or of itself where two others had failed.
struct Fault<'a> {
    seen: &'a Seen,
    manner: Manner,
    status: String,
}

impl Fault<'_> {
    fn call(&self) -> &'static str {
        self.seen.call.name
    }

    fn is(&self, call: &str, status: Option<u32>) -> bool {
        self.call() == call && Some(self.seen.status) == status
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(self.call()) && text.contains(&self.status)
    }

    /// Whether it is the switch back to the caller's context; none current takes one that was made off the stack.
    fn restores(&self, caller: u64) -> bool {
        self.call() == "cuCtxSetCurrent"
            && self.seen.arguments.first().is_some_and(|context| *context == caller || *context == 0)
            && self.seen.current != caller
    }

    fn is_deinitialized(&self) -> bool {
        self.seen.call.library == Library::Driver && self.seen.status == 4
    }
}

/// Makes all checks.
pub fn judge(operation: &Operation, run: &Run) -> Vec<Finding> {
    // With one call failing every other has to work. After a second one, on the way back, some cannot.
    let injected = run.seen.iter().filter(|seen| seen.failed.is_some()).count();
    let mut judge = Judge::new(operation, operation.ends, run, injected > 1);
    judge.process_lives();
    judge.one_end_each();
    judge.current_context();
    judge.nothing_leaked();
    judge.no_remarks();
    judge.no_spent_handle();
    judge.objects_work();
    judge.interpreter_released();
    judge.found
}

/// Makes the checks that hold in a context that is lost to a kernel's fault, where every call fails: 1, 4, 6 and 7.
pub fn judge_faulted(operation: &Operation, ends: Ends, run: &Run) -> Vec<Finding> {
    let mut judge = Judge::new(operation, ends, run, true);
    judge.process_lives();
    judge.one_end_each();
    judge.no_spent_handle();
    judge.interpreter_released();
    judge.found
}

/// Makes the checks of an operation that the driver is too old for, which is refused by name: all but the first, which
/// is about calls that were made.
pub fn judge_refused(operation: &Operation, run: &Run) -> Vec<Finding> {
    let mut judge = Judge::new(operation, operation.ends, run, true);
    judge.process_lives();
    judge.current_context();
    judge.nothing_leaked();
    judge.no_spent_handle();
    judge.objects_work();
    judge.found
}

struct Judge<'a> {
    operation: &'a Operation,
    ends: Ends,
    run: &'a Run,
    faults: Vec<Fault<'a>>,
    found: Vec<Finding>,
}

impl<'a> Judge<'a> {
    /// `others`: whether calls may fail that were not made to.
    fn new(operation: &'a Operation, ends: Ends, run: &'a Run, others: bool) -> Judge<'a> {
        let failed = run.seen.iter().filter(|seen| seen.status != 0);
        let fault = |seen: &'a Seen| {
            let manner = seen.failed.or(others.then_some(Manner::Refused))?;
            let status = status_name(seen.call.library, seen.status);
            let answer = is_answer(seen.call.library, seen.call.name, seen.status);
            (!answer).then_some(Fault { seen, manner, status })
        };
        Judge { operation, ends, run, faults: failed.filter_map(fault).collect(), found: Vec::new() }
    }

    fn wrong(&mut self, check: u8, expected: impl Into<String>, seen: impl Into<String>) {
        self.found.push(Finding { check, expected: expected.into(), seen: seen.into() });
    }

    fn raised(&self) -> Option<&Told> {
        match &self.run.ended {
            Ended::Raised(error) => Some(error),
            _ => None,
        }
    }

    /// Everything that was said, as it was said.
    fn said(&self) -> Vec<String> {
        let mut all: Vec<String> = self.raised().map(|error| format!("raised {error}")).into_iter().collect();
        all.extend(self.run.reports.iter().map(|reported| format!("reported {}", reported.report)));
        all
    }

    fn saw(&self) -> String {
        let mut ends = self.said();
        if matches!(self.run.ended, Ended::Worked) {
            ends.insert(0, "it returned success".to_owned());
        }
        ends.join("; ")
    }

    /// Check 6, as far as the process itself can tell.
    fn process_lives(&mut self) {
        if let Ended::Panicked(text) = &self.run.ended {
            self.wrong(6, "no panic", format!("it panicked: {text}"));
        }
    }

    /// Check 1.
    fn one_end_each(&mut self) {
        if matches!(self.run.ended, Ended::Panicked(_)) {
            return;
        }
        self.first_failure();
        let faults = std::mem::take(&mut self.faults);
        for (number, fault) in faults.iter().enumerate() {
            // The same call with the same status, several times: one end for each.
            if faults.iter().take(number).any(|other| other.is(fault.call(), Some(fault.seen.status))) {
                continue;
            }
            let times = faults.iter().filter(|other| other.is(fault.call(), Some(fault.seen.status))).count();
            self.ends_of(fault, times, number > 0);
        }
        self.nothing_else(&faults);
        self.texts(&faults);
        self.faults = faults;
    }

    /// The operation's own error is the first failure, or its first report is.
    fn first_failure(&mut self) {
        let first = self.faults.iter().find(|fault| !self.operation.may_report(fault.call()));
        let finding = match (self.ends, &self.run.ended, first) {
            (_, Ended::Raised(error), None) if error.code.is_none() && self.follows_an_answer() => None,
            (Ends::Reports, Ended::Raised(_), _) => Some("a report, and nothing raised".to_owned()),
            (Ends::Raises, Ended::Worked, Some(fault)) => Some(format!("{} of {} raised", fault.status, fault.call())),
            (Ends::Raises, Ended::Raised(error), Some(fault)) if !fault.is(&error.call, error.code) => {
                let known = self.faults.iter().any(|fault| fault.is(&error.call, error.code));
                let earlier = known && self.operation.may_report(&error.call);
                (!earlier).then(|| format!("{} of {} raised, the first failure", fault.status, fault.call()))
            }
            (_, Ended::Raised(error), None) if !self.faults.iter().any(|fault| fault.is(&error.call, error.code)) => {
                Some("success: nothing failed, or only with an answer".to_owned())
            }
            _ => None,
        };
        if let Some(expected) = finding {
            self.wrong(1, expected, self.saw());
        }
    }

    /// A failure ends in one place: raised, attached to what is on its way, or reported.
    fn ends_of(&mut self, fault: &Fault, times: usize, later: bool) {
        let raised = self.raised();
        let primary = usize::from(raised.is_some_and(|error| fault.is(&error.call, error.code)));
        let attached = raised.map_or(0, |error| error.notes.iter().filter(|note| fault.is_in(note)).count());
        let mut reported = 0;
        for Reported { report, .. } in &self.run.reports {
            reported += usize::from(fault.is(&report.call, report.code));
            reported += report.notes.iter().filter(|note| fault.is_in(note)).count();
        }
        let total = primary + attached + reported;
        // The driver is shutting down: in a release that is an answer.
        let silent = fault.is_deinitialized() && (self.ends == Ends::Reports || reported + primary == 0);
        if silent && total == 0 && (self.ends == Ends::Reports || self.operation.may_report(fault.call())) {
            return;
        }
        let (name, call) = (&fault.status, fault.call());
        if fault.is_deinitialized() && self.ends == Ends::Reports {
            let expected = format!("no word of {name} of {call} in a release: the driver is shutting down");
            self.wrong(1, expected, self.saw());
        } else if total != times {
            let expected = format!("{name} of {call} ends in {times} place, once");
            self.wrong(1, expected, format!("{total} places: {}", self.saw()));
        } else if self.ends == Ends::Raises && reported > 0 && !self.operation.may_report(call) {
            let how = if later { "attached to the error that is on its way" } else { "raised" };
            self.wrong(1, format!("{name} of {call} {how}, not reported"), self.saw());
        }
    }

    /// Nothing is raised, attached or reported that did not happen.
    fn nothing_else(&mut self, faults: &[Fault]) {
        let known = |call: &str, status| faults.iter().any(|fault| fault.is(call, status));
        let mut wrong = Vec::new();
        if let Some(error) = self.raised() {
            let follows = error.code.is_none() && self.follows_an_answer();
            if !known(&error.call, error.code) && !follows {
                wrong.push(format!("raised {error}"));
            }
            let strange = |note: &&String| is_about_a_failure(note) && !faults.iter().any(|fault| fault.is_in(note));
            wrong.extend(error.notes.iter().filter(strange).map(|note| format!("the note: {note}")));
        }
        for Reported { report, .. } in &self.run.reports {
            let says = report.code.is_none() && self.operation.says(&report.text);
            if !known(&report.call, report.code) && !says {
                wrong.push(format!("reported {report}"));
            }
        }
        if !wrong.is_empty() {
            self.wrong(1, "nothing but the failures that were injected", wrong.join("; "));
        }
        if !self.run.late.is_empty() {
            self.wrong(1, "no report outside the operation", self.run.late.join("; "));
        }
    }

    /// Whether an answer was injected that the operation's objects keep.
    fn follows_an_answer(&self) -> bool {
        let injected = |seen: &&Seen| seen.failed.is_some();
        let answer = |seen: &Seen| is_answer(seen.call.library, seen.call.name, seen.status);
        self.operation.keeps_answers() && self.run.seen.iter().filter(injected).any(answer)
    }

    /// Check 2: the caller's context, unless going back to it was refused, which a note says.
    fn current_context(&mut self) {
        let caller = self.run.caller;
        let stuck = self
            .faults
            .iter()
            .filter(|fault| fault.restores(caller) && fault.manner == Manner::Refused)
            .map(|fault| fault.seen.current)
            .next_back();
        let expected = stuck.unwrap_or(caller);
        // A created context that is destroyed while it is current leaves what was current before it.
        let gone = stuck.is_some() && self.run.current == caller;
        let set = self.operation.sets_current()
            && (matches!(self.run.ended, Ended::Worked)
                || self.faults.iter().any(|fault| fault.manner == Manner::Done && fault.call() == "cuCtxSetCurrent"));
        if self.run.current != expected && !gone && !set {
            let seen = format!("context {:#x}", self.run.current);
            self.wrong(2, format!("context {expected:#x} current"), seen);
        }
        let early: Vec<String> = self
            .run
            .reports
            .iter()
            .filter(|reported| reported.current != caller && reported.current != expected)
            .map(|reported| {
                format!("context {:#x} was current while it was reported: {}", reported.current, reported.report)
            })
            .collect();
        if !early.is_empty() {
            self.wrong(2, format!("reports after the caller's context ({caller:#x}) is restored"), early.join("; "));
        }
        let (below, after) = &self.run.stacks;
        // A context that was made and answered with an error is on it, and nobody can know.
        let orphan = |(handle, entry): (&Handle, &Entry)| handle.0 == "context" && entry.life == Life::Orphan;
        // Where the new one could neither be taken off nor undone, it lies on the caller's.
        let lies_on_it = stuck.is_some() && self.run.current != caller;
        if below != after && !lies_on_it && !self.run.new.iter().any(orphan) {
            self.wrong(2, format!("the stack of contexts below the current one: {below:x?}"), format!("{after:x?}"));
        }
        let exchange = |fault: &&Fault| fault.call() == "cuThreadExchangeStreamCaptureMode";
        let (before, after) = self.run.modes;
        if before != after && !self.faults.iter().any(|fault| exchange(&fault)) {
            self.wrong(2, format!("the thread's capture mode {before}"), format!("{after}"));
        }
    }

    /// Check 3.
    fn nothing_leaked(&mut self) {
        let texts = self.said().join("\n");
        let shutting_down = self.faults.iter().any(Fault::is_deinitialized);
        let told = |handle: &Handle, entry: &Entry| match entry.life {
            _ if self.operation.leaks_together(&texts) => true,
            // Its start was answered with an error: nobody can know it.
            Life::Orphan => true,
            _ if shutting_down => true,
            Life::Alive if handle.0 != "primary_context" && entry.strays < entry.count => {
                texts.contains(&ledger::name_in_messages(*handle)) && GAVE_UP.iter().any(|words| texts.contains(words))
            }
            _ => texts.contains(&ledger::name_in_messages(*handle)) || entry.strays > 0,
        };
        let untold = |left: &BTreeMap<Handle, Entry>| -> Vec<String> {
            // What was leaked keeps what it needs.
            let mut kept: BTreeSet<Handle> = BTreeSet::new();
            for (_, entry) in left.iter().filter(|(handle, entry)| told(handle, entry)) {
                kept.extend(&entry.parents);
                kept.insert(("context", entry.context));
                let streams = entry.parents.iter().filter_map(|parent| left.get(parent));
                kept.extend(streams.map(|stream| ("context", stream.context)));
            }
            let untold = left.iter().filter(|(handle, entry)| !told(handle, entry) && !kept.contains(*handle));
            untold.map(|(handle, _)| ledger::shown(*handle)).collect()
        };
        let failed = self.raised().is_some();
        let new: BTreeMap<Handle, Entry> = self.run.new.clone();
        let new = new.into_iter().filter(|(handle, _)| !self.operation.may_leave(handle.0)).collect();
        let (at_once, left) = (untold(&new), untold(&self.run.left));
        if failed && !at_once.is_empty() {
            self.wrong(3, "a failed operation leaves nothing created", format!("still alive: {}", at_once.join(", ")));
        }
        if !left.is_empty() {
            let seen = format!("alive after everything was dropped: {}; {}", left.join(", "), self.saw());
            self.wrong(3, "what is leaked is named in a report", seen);
        }
        if let Some((before, after)) = &self.run.census
            && before != after
        {
            self.wrong(3, format!("the census {before}"), format!("{after} {}", self.run.kept.join("; ")));
        }
    }

    /// What only the language knows: of Python, the exception's own facts, and who refers to the objects.
    fn no_remarks(&mut self) {
        if !self.run.remarks.is_empty() {
            self.wrong(3, "nothing odd in the language's own terms", self.run.remarks.join("; "));
        }
    }

    /// Check 4.
    fn no_spent_handle(&mut self) {
        if !self.run.misused.is_empty() {
            self.wrong(4, "no handle used after its end, none released twice", self.run.misused.join("; "));
        }
    }

    /// Check 5.
    fn objects_work(&mut self) {
        if self.follows_an_answer() {
            return;
        }
        if let Some(text) = &self.run.follow_up {
            self.wrong(5, "the objects that existed before still work", text.clone());
        }
    }

    /// Check 7.
    fn interpreter_released(&mut self) {
        let calls: BTreeSet<&str> = self.run.held.iter().copied().collect();
        if !calls.is_empty() {
            let calls: Vec<&str> = calls.into_iter().collect();
            let expected = "no call that may wait is made with the interpreter held";
            self.wrong(7, expected, format!("made with it held: {}", calls.join(", ")));
        }
    }
}

/// Whether a note tells of a failed call.
fn is_about_a_failure(note: &str) -> bool {
    (note.contains("CUDA_ERROR_") || note.contains("NVRTC_ERROR_")) && (note.contains("(cu") || note.contains("(nvrtc"))
}
