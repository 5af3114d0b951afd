//! A raised failure: what an operation returns.

use crate::failure::{Absence, Cause, Facts, Library, Misuse, Status};
use std::fmt;

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The driver returned a status.
    Driver,
    /// The driver returned a status after which the process cannot use CUDA any more.
    Sticky,
    /// The compiler returned a status.
    Compiler,
    /// This driver is older than the call.
    Unsupported,
    /// The library could not be loaded.
    Unavailable,
    /// The process was forked after CUDA was initialised.
    Forked,
    /// An argument of the wrong kind.
    Type,
    /// An argument out of its range.
    Value,
    /// The object's state does not allow the operation.
    State,
    /// The host has no memory for what was asked for.
    Memory,
    /// An inconsistency of cuirass itself.
    Internal,
}

/// The error of an operation: what failed, with everything that was known when it failed. It is inert: what is done
/// with it is the caller's right.
#[must_use = "an error says that the operation did not happen"]
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Facts>);

impl Error {
    pub(crate) fn of(facts: Box<Facts>) -> Error {
        Error(facts)
    }

    /// Everything that is known.
    pub fn facts(&self) -> &Facts {
        &self.0
    }

    pub(crate) fn into_facts(self) -> Box<Facts> {
        self.0
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match (&self.0.cause, &self.0.status) {
            (Cause::Status, Some(status)) if status.sticky => ErrorKind::Sticky,
            (Cause::Status, _) if self.0.library == Some(Library::Nvrtc) => ErrorKind::Compiler,
            (Cause::Status, _) => ErrorKind::Driver,
            (Cause::Absent(Absence::Library(_)), _) => ErrorKind::Unavailable,
            (Cause::Absent(Absence::EntryPoint { .. }), _) => ErrorKind::Unsupported,
            (Cause::Absent(Absence::Forked), _) => ErrorKind::Forked,
            (Cause::Misuse(Misuse::Type), _) => ErrorKind::Type,
            (Cause::Misuse(Misuse::Value), _) => ErrorKind::Value,
            (Cause::Misuse(Misuse::State), _) => ErrorKind::State,
            (Cause::NoMemory, _) => ErrorKind::Memory,
            (Cause::Internal, _) => ErrorKind::Internal,
        }
    }

    /// The status that the library returned, if it was called.
    pub fn status(&self) -> Option<&Status> {
        self.0.status.as_ref()
    }

    /// The number of that status.
    pub fn code(&self) -> Option<u32> {
        self.status().map(|status| status.code)
    }

    /// The entry point that failed; empty where none was called.
    pub fn call(&self) -> &'static str {
        self.0.call
    }

    /// Whether the process can make no further use of CUDA.
    pub fn is_sticky(&self) -> bool {
        self.status().is_some_and(|status| status.sticky)
    }

    /// What else went wrong on the way, and what to do.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// A compiler's or linker's whole log.
    pub fn log(&self) -> Option<&str> {
        self.0.log.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        for note in &self.0.notes {
            write!(f, "\n  note: {note}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}
