//! What is wrong with a module's text, and where.

use std::fmt;

/// What sort of mistake a [`ModuleError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleErrorKind {
    /// The text does not follow the grammar.
    Syntax,
    /// The `.version` is newer than the target understands, or absent.
    UnsupportedVersion,
    /// The `.target` is not one that this architecture runs.
    UnsupportedTarget,
    /// An `.extern` variable or function has no definition.
    UnresolvedExtern,
    /// A name is defined twice.
    Duplicate,
    /// A name is used that is not defined.
    Undefined,
    /// An operand does not fit the instruction's type.
    Type,
    /// A size or count in the text is beyond what the interpreter accepts.
    TooLarge,
}

/// A module that cannot be used: what, where and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleError {
    /// The sort of mistake.
    pub kind: ModuleErrorKind,
    /// Line in the text, from 1; 0 where the mistake has no place.
    pub line: u32,
    /// Column in the line, from 1; 0 where the mistake has no place.
    pub column: u32,
    /// One sentence for a person.
    pub message: String,
}

impl ModuleError {
    pub(crate) fn new(kind: ModuleErrorKind, at: Place, message: impl Into<String>) -> Self {
        Self { kind, line: at.line, column: at.column, message: message.into() }
    }
}

/// A place in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.message);
        }
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ModuleError {}
