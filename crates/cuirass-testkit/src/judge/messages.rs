//! What the messages of errors and reports have to say: sections 2, 3 and 4 of the policy.

use super::{Fault, Judge, Reported};
use cuirass_call::status::STICKY;
use cuirass_fault::Library;

/// How messages say that something was made and could not be given back.
pub(super) const GAVE_UP: [&str; 8] = [
    "leaked",
    "not undone",
    "not released",
    "not destroyed",
    "not ended",
    "not given back",
    "failed too",
    "has ended is not known",
];

impl Judge<'_> {
    /// What messages say: sections 2 and 3.
    pub(super) fn texts(&mut self, faults: &[Fault]) {
        let mut wrong = Vec::new();
        if let Some(error) = self.raised()
            && let Some(fault) = faults.iter().find(|fault| fault.is(&error.call, error.code))
        {
            let text = error.to_string();
            if !text.starts_with(&format!("{}: ", fault.status)) || !text.contains(&format!("({}", fault.call())) {
                wrong.push((format!("a message that starts with {} and names {}", fault.status, fault.call()), text));
            }
            let sticky = fault.seen.call.library == Library::Driver && STICKY.contains(&fault.seen.status);
            if error.is_sticky != sticky {
                wrong.push((format!("is_sticky = {sticky}"), format!("{error}")));
            }
            let notes = error.notes.join(" | ");
            if fault.restores(self.run.caller) {
                wrong.extend(self.not_restored(fault, &notes));
                if self.operation.submits && !notes.contains("itself was submitted") {
                    wrong.push(("a note that the operation itself was submitted".to_owned(), notes.clone()));
                }
            }
            for later in faults.iter().filter(|later| !later.is(&error.call, error.code)) {
                let note = error.notes.iter().find(|note| later.is_in(note));
                wrong.extend(note.and_then(|note| self.attached_text(later, note)));
            }
        }
        for Reported { report, .. } in &self.run.reports {
            let Some(fault) = faults.iter().find(|fault| fault.is(&report.call, report.code)) else { continue };
            let notes = report.notes.join(" | ");
            if fault.restores(self.run.caller) {
                wrong.extend(self.not_restored(fault, &notes));
            }
            let text = report.to_string();
            if !text.contains("while ") {
                wrong.push(("a report that says what was being done".to_owned(), text));
            }
        }
        for (expected, seen) in wrong {
            self.wrong(1, expected, seen);
        }
    }

    fn not_restored(&self, fault: &Fault, notes: &str) -> Option<(String, String)> {
        let caller = format!("{:#x}", self.run.caller);
        let now = format!("{:#x}", fault.seen.current);
        let complete = notes.contains("could not be restored")
            && notes.contains(&caller)
            && notes.contains(&now)
            && notes.contains("Device.set_current()");
        (!complete).then(|| {
            let expected = format!(
                "the note that the caller's context ({caller}) could not be restored, context ({now}) is now current, \
                 call `Device.set_current()`"
            );
            (expected, if notes.is_empty() { "no note".to_owned() } else { notes.to_owned() })
        })
    }

    fn attached_text(&self, later: &Fault, note: &str) -> Option<(String, String)> {
        let notes = self.raised().map(|error| error.notes.join(" | ")).unwrap_or_default();
        let gave_up = GAVE_UP.iter().any(|words| note.contains(words));
        let expected = if later.restores(self.run.caller) && !notes.contains("could not be restored") {
            "a note that the caller's context could not be restored"
        } else if later.seen.ends && !gave_up {
            "a note that something was not undone, or could not be released"
        } else {
            return None;
        };
        Some((format!("{expected} ({})", later.status), note.to_owned()))
    }
}
