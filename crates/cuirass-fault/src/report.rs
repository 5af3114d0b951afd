//! Reports: failures where nothing can propagate.

use crate::failure::{Facts, Status};
use crate::lock;
use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, RwLock};

/// A failure that could not be returned to anybody.
#[derive(Clone, Debug)]
pub struct Report {
    facts: Box<Facts>,
    doing: String,
}

/// What receives reports. It may run user code; it is called with no cuirass lock held.
pub type Reporter = Arc<dyn Fn(&Report) + Send + Sync>;

static REPORTER: RwLock<Option<Reporter>> = RwLock::new(None);

/// Installs what receives reports from now on, and returns what did before. `None` is the default: with the feature
/// `tracing` and a subscriber in place, an event of level WARN; else one line on stderr, flushed.
pub fn set_reporter(reporter: Option<Reporter>) -> Option<Reporter> {
    let mut slot = REPORTER.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::mem::replace(&mut *slot, reporter)
}

impl Report {
    pub(crate) fn of(facts: Box<Facts>, doing: &str) -> Report {
        Report { facts, doing: format!("while {doing}") }
    }

    pub(crate) fn discarded(facts: Box<Facts>) -> Report {
        Report { facts, doing: "and the failure was discarded".to_owned() }
    }

    /// The entry point that failed.
    pub fn call(&self) -> &'static str {
        self.facts.call
    }

    /// The status that it returned.
    pub fn status(&self) -> Option<&Status> {
        self.facts.status.as_ref()
    }

    /// Everything that is known.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.facts.status {
            Some(status) => {
                let Facts { call, subject, .. } = &*self.facts;
                write!(f, "{call}({subject}) failed {}: {}: {}", self.doing, status.name, status.description)?;
            }
            None => write!(f, "{} ({})", self.facts, self.doing)?,
        }
        for note in &self.facts.notes {
            write!(f, "; {note}")?;
        }
        Ok(())
    }
}

/// Hands a report to the reporter; a reporter that panics is itself reported on stderr.
pub(crate) fn make(report: Report) {
    lock::assert_none_held("a report");
    let reporter = REPORTER.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    match reporter {
        #[cfg(feature = "tracing")]
        None if tracing::dispatcher::has_been_set() => to_tracing(&report),
        None => to_stderr(&report),
        Some(reporter) => {
            if catch_unwind(AssertUnwindSafe(|| reporter(&report))).is_err() {
                to_stderr(&report);
            }
        }
    }
}

/// One event of level WARN; a subscriber that panics is no reason to lose the report.
#[cfg(feature = "tracing")]
fn to_tracing(report: &Report) {
    let event = || tracing::warn!(target: "cuirass", call = report.call(), "{report}");
    if catch_unwind(AssertUnwindSafe(event)).is_err() {
        to_stderr(report);
    }
}

/// One line on stderr, flushed. A stderr that cannot be written to leaves nowhere to turn.
fn to_stderr(report: &Report) {
    let mut stderr = std::io::stderr().lock();
    if writeln!(stderr, "cuirass: {report}").is_ok() && stderr.flush().is_ok() {}
}
