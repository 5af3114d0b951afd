//! Operations in a context that is lost: after a kernel's fault every call of it fails, and an operation has to say so
//! for each, use nothing twice, and leave the process alive. Each runs in a process of its own, since nothing brings
//! such a context back.

use crate::judge::{Ended, Reported, Run, judge_faulted};
use crate::ledger::new_in;
use crate::operation::{Caller, Ends, Operation};
use crate::raw::{current, set_current};
use crate::simulator;
use crate::sweep::{Sweep, panic_text};
use crate::told::Told;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Sweep {
    /// Makes what an operation needs, loses its context by `fault`, and then runs it, and drops everything.
    pub fn faulted(&mut self, operation: &Operation, fault: impl FnOnce() -> Result<(), Told>) {
        if operation.is_lacking() {
            return self.operation(operation);
        }
        let described = format!("{}; after a kernel's fault", operation.title());
        (self.announce)(&described);
        self.totals.operations += 1;
        let mut found = Vec::new();
        match self.observe_faulted(operation, fault) {
            Ok((run, dropped)) => {
                self.totals.calls += run.seen.len() as u64;
                self.totals.faults +=
                    (run.seen.iter().chain(&dropped.seen)).filter(|seen| seen.status != 0).count() as u64;
                found.extend(judge_faulted(operation, operation.ends, &run));
                found.extend(judge_faulted(operation, Ends::Reports, &dropped));
            }
            Err(seen) => {
                let expected = "a context can be lost".to_owned();
                found.push(crate::judge::Finding { check: 5, expected, seen });
            }
        }
        for finding in found {
            self.found(operation, &described, (1, 0), finding);
        }
    }

    fn observe_faulted(
        &mut self,
        operation: &Operation,
        fault: impl FnOnce() -> Result<(), Told>,
    ) -> Result<(Run, Run), String> {
        (self.world.rest)().map_err(|error| error.to_string())?;
        let caller = (self.world.context)(operation.callers.first().copied().unwrap_or(Caller::Nothing));
        set_current(caller)?;
        let mut prepared = operation.prepare().map_err(|error| format!("the set-up failed: {error}"))?;
        match fault() {
            Err(error) if error.is_sticky => {}
            other => return Err(format!("a kernel's fault was answered with {other:?}")),
        }
        set_current(caller)?;
        self.instrument.ledger(|ledger| ledger.set_current(caller));
        drop(self.take_reports());
        drop(self.instrument.take_held());
        let mark = simulator::mark();
        self.instrument.open(&[]);
        let result = catch_unwind(AssertUnwindSafe(|| prepared.operate()));
        let (run_ended, made) = match result {
            Ok(Ok(made)) => (Ended::Worked, Some(made)),
            Ok(Err(error)) => (Ended::Raised(error), None),
            Err(panic) => (Ended::Panicked(panic_text(&*panic)), None),
        };
        let run = self.seen_since(caller, run_ended, mark);
        self.instrument.open(&[]);
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            drop(made);
            drop(prepared);
        }));
        let ended = dropped.map_or_else(|panic| Ended::Panicked(panic_text(&*panic)), |()| Ended::Worked);
        Ok((run, self.seen_since(caller, ended, mark)))
    }

    fn seen_since(&mut self, caller: u64, ended: Ended, mark: Option<u64>) -> Run {
        let seen = self.instrument.close();
        let reports: Vec<Reported> = self.take_reports();
        let mut misused = self.instrument.take_wrong();
        misused.extend(simulator::bugs_since(mark));
        let nothing = BTreeMap::new();
        Run {
            caller,
            seen,
            ended,
            reports,
            current: current(),
            stacks: (None, None),
            modes: (0, 0),
            misused,
            held: self.instrument.take_held(),
            new: new_in(&nothing, &nothing),
            left: nothing,
            follow_up: None,
            late: Vec::new(),
            census: None,
            remarks: Vec::new(),
            kept: Vec::new(),
        }
    }
}
