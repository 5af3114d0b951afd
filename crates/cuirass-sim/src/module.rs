//! Loaded code: modules, libraries, kernels, functions and their attributes.

use crate::handle::Handle;
use crate::state::State;

/// All loaded code.
pub struct Modules {}

impl Modules {
    /// Nothing loaded.
    pub fn new() -> Self {
        Self {}
    }

    /// What is alive, by kind.
    pub fn census(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Names everything that is alive: kind, handle, context.
    pub fn objects(&self, _line: &mut impl FnMut(&str, Handle, Handle)) {}
}

impl Default for Modules {
    fn default() -> Self {
        Self::new()
    }
}

/// A context ends, with its modules. Its work is done, and nothing of it runs.
pub fn context_ended(_state: &mut State, _context: Handle) {}
