//! What a program was told of a failure: an error or a report, in whichever language it was told.

use crate::calls::status_name;
use cuirass_fault::{Error, Library, Report};
use std::fmt;

/// An error that was raised, or a report that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The entry point that failed; empty where none was called.
    pub call: String,
    /// What it returned, if a library was called.
    pub code: Option<u32>,
    /// What it says, without its notes.
    pub text: String,
    /// Its notes.
    pub notes: Vec<String>,
    /// Whether it says that the process can make no further use of CUDA.
    pub is_sticky: bool,
}

impl Told {
    /// Something that is no failure of a call.
    pub fn of(text: impl Into<String>) -> Told {
        Told { text: text.into(), ..Told::default() }
    }

    /// Whether it is about this call and this status.
    pub fn is(&self, call: &str, code: Option<u32>) -> bool {
        self.call == call && self.code == code
    }
}

impl From<Error> for Told {
    fn from(error: Error) -> Told {
        Told {
            call: error.call().to_owned(),
            code: error.code(),
            text: error.facts().to_string(),
            notes: error.notes().to_vec(),
            is_sticky: error.is_sticky(),
        }
    }
}

impl From<&Report> for Told {
    fn from(report: &Report) -> Told {
        let status = report.status();
        Told {
            call: report.call().to_owned(),
            code: status.map(|status| status.code),
            // It is one line, with the notes in it.
            text: report.to_string(),
            notes: report.facts().notes.clone(),
            is_sticky: status.is_some_and(|status| status.sticky),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let unsaid = self.notes.iter().filter(|note| !self.text.contains(*note));
        for note in unsaid {
            write!(f, "\n  note: {note}")?;
        }
        Ok(())
    }
}

/// The status that a name is of, in any library.
pub fn status_of_name(name: &str) -> Option<u32> {
    let libraries = [Library::Driver, Library::Nvrtc];
    let named = |number: &u32| libraries.iter().any(|library| status_name(*library, *number) == name);
    (0..1000).find(named)
}
