//! A failure on its way to one of its three ends.

use crate::error::Error;
use crate::report::{self, Report};
use std::borrow::Cow;
use std::fmt;

/// The library that a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Library {
    /// The CUDA driver, `libcuda.so.1`.
    Driver,
    /// The CUDA C++ compiler, `libnvrtc`.
    Nvrtc,
}

/// A status that a library returned, with its name and the library's own description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The number; any number is legal, a newer driver knows more than we do.
    pub code: u32,
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the number in words for a status without a known name.
    pub name: Cow<'static, str>,
    /// The library's own text, read when the call failed.
    pub description: Cow<'static, str>,
    /// Whether the process can make no further use of CUDA after this status.
    pub sticky: bool,
}

/// Why a call could not be made at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// The library could not be loaded; the text says what was tried and how to mend it.
    Library(String),
    /// The library has no such entry point; versions as CUDA writes them, 12030 for 12.3.
    EntryPoint {
        /// The version that introduced the call.
        needs: u32,
        /// The version that was found.
        found: u32,
    },
    /// The process was forked after CUDA was initialised.
    Forked,
}

/// What the caller did wrong, where the mistake was seen before any call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// An argument of the wrong kind (Python: `TypeError`).
    Type,
    /// An argument out of its range (Python: `ValueError`).
    Value,
    /// An operation that the object's state does not allow (Python: `RuntimeError`).
    State,
}

/// What kind of failure it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A call returned a status.
    Status,
    /// A call could not be made.
    Absent(Absence),
    /// The caller's mistake; no call was made.
    Misuse(Misuse),
    /// The host has no memory for what was asked for; no call was made.
    NoMemory,
    /// An inconsistency of our own; please report it.
    Internal,
}

/// Everything that is known about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What kind of failure it is.
    pub cause: Cause,
    /// The library that was called, if one was.
    pub library: Option<Library>,
    /// The entry point; empty where none was called.
    pub call: &'static str,
    /// What the library answered.
    pub status: Option<Status>,
    /// What the call was about: handles, sizes; or, for misuse, the whole message.
    pub subject: String,
    /// A compiler's or linker's whole log.
    pub log: Option<String>,
    /// What else went wrong on the way, and what the user should know.
    pub notes: Vec<String>,
    /// Whether something that was to be released was not, and stays for good. What it needs has to stay too.
    pub leaked: bool,
    /// The statuses of the failures that were attached to it, which its notes tell of; `None` for one without.
    pub attached: Vec<Option<u32>>,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.cause, &self.status) {
            (Cause::Absent(Absence::EntryPoint { needs, found }), _) => write!(
                f,
                "CUDA_ERROR_NOT_SUPPORTED: {} needs a driver of CUDA {}, this one is of CUDA {}",
                self.call,
                Version(*needs),
                Version(*found)
            )?,
            (Cause::Absent(Absence::Library(tried)), _) => f.write_str(tried)?,
            (Cause::Absent(Absence::Forked), _) => write!(
                f,
                "CUDA_ERROR_NOT_INITIALIZED: {} after a fork: this process was forked after CUDA was initialised, \
                 and CUDA cannot be used in it; start processes with the 'spawn' method",
                self.call
            )?,
            (_, Some(status)) => {
                write!(f, "{}: {} ({}", status.name, status.description, self.call)?;
                if !self.subject.is_empty() {
                    write!(f, ", {}", self.subject)?;
                }
                f.write_str(")")?;
            }
            _ => f.write_str(&self.subject)?,
        }
        if let Some(log) = self.log.as_deref().filter(|log| !log.is_empty()) {
            write!(f, "\n{log}")?;
        }
        Ok(())
    }
}

/// `12030` as `12.3`.
struct Version(u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// A failure that has not reached its end yet. It is armed: dropped without being raised, attached, reported or taken
/// as an answer, it reports itself as discarded.
#[must_use = "a failure is raised, attached, reported or taken as an answer"]
pub struct Failure(Option<Box<Facts>>);

impl Failure {
    /// A failure, armed.
    #[cold]
    pub fn new(facts: Facts) -> Failure {
        Failure(Some(Box::new(facts)))
    }

    /// The caller's mistake, seen before any call was made.
    #[cold]
    pub fn misuse(misuse: Misuse, message: impl Into<String>) -> Failure {
        Failure::of_our_own(Cause::Misuse(misuse), message.into())
    }

    /// The host has no memory: "for a copy of the code".
    #[cold]
    pub fn no_memory(what_for: impl fmt::Display) -> Failure {
        Failure::of_our_own(Cause::NoMemory, format!("there is no memory {what_for}"))
    }

    /// An inconsistency of our own.
    #[cold]
    pub fn internal(message: impl fmt::Display) -> Failure {
        let subject = format!("internal inconsistency: {message}; please report this");
        Failure::of_our_own(Cause::Internal, subject)
    }

    #[cold]
    #[inline(never)]
    fn of_our_own(cause: Cause, subject: String) -> Failure {
        let (library, status, log) = (None, None, None);
        let (notes, attached) = (Vec::new(), Vec::new());
        Failure::new(Facts { cause, library, call: "", status, subject, log, notes, leaked: false, attached })
    }

    /// What is known about it.
    pub fn facts(&self) -> Option<&Facts> {
        self.0.as_deref()
    }

    /// The status, where a library returned one.
    pub fn status(&self) -> Option<u32> {
        self.facts().and_then(|facts| facts.status.as_ref()).map(|status| status.code)
    }

    /// Adds what the user should know.
    pub fn note(mut self, note: impl Into<String>) -> Failure {
        if let Some(facts) = &mut self.0 {
            facts.notes.push(note.into());
        }
        self
    }

    /// `what` was not released, for this reason, and stays for good: so must what it needs.
    pub fn leaking(self, what: impl fmt::Display) -> Failure {
        let mut this = self.note(format!("{what} was not released, and is leaked with what it needs"));
        if let Some(facts) = &mut this.0 {
            facts.leaked = true;
        }
        this
    }

    /// Without one of its notes, which has been said already.
    pub fn without_note(mut self, note: &str) -> Failure {
        if let Some(facts) = &mut self.0 {
            facts.notes.retain(|known| known != note);
        }
        self
    }

    /// Adds a library's log.
    pub fn log(mut self, log: String) -> Failure {
        if let Some(facts) = &mut self.0 {
            facts.log = Some(log);
        }
        self
    }

    /// First end: the error that the operation returns.
    pub fn raise(mut self) -> Error {
        Error::of(self.disarm())
    }

    /// Second end: this failure becomes a note on `first`, which is already on its way. `doing` says what failed:
    /// "not undone", "the caller's context could not be restored after this failure".
    pub fn attach_to(mut self, first: Failure, doing: &str) -> Failure {
        let facts = self.disarm();
        let mut first = first.note(format!("{doing} ({facts})"));
        if let Some(first) = &mut first.0 {
            first.notes.extend(facts.notes);
            first.leaked |= facts.leaked;
            first.attached.push(facts.status.map(|status| status.code));
            first.attached.extend(facts.attached);
        }
        first
    }

    /// Third end: one report, where nothing can propagate. `doing` says what was being done: "releasing a buffer".
    /// Runs user code (the installed reporter): call it with no lock held.
    pub fn report(mut self, doing: &str) {
        report::make(Report::of(self.disarm(), doing));
    }

    /// The status was an answer, not a failure: nothing is left to say.
    pub fn answered(mut self) {
        drop(self.0.take());
    }

    fn disarm(&mut self) -> Box<Facts> {
        self.0.take().unwrap_or_else(|| {
            Box::new(Facts {
                cause: Cause::Internal,
                library: None,
                call: "",
                status: None,
                subject: "a failure that had ended already".to_owned(),
                log: None,
                notes: Vec::new(),
                leaked: false,
                attached: Vec::new(),
            })
        })
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failure").field(&self.0).finish()
    }
}

impl Drop for Failure {
    fn drop(&mut self) {
        if let Some(facts) = self.0.take() {
            report::make(Report::discarded(facts));
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        failure.raise()
    }
}

/// An error on its way again, where one operation is made of others: armed anew.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(Some(error.into_facts()))
    }
}
