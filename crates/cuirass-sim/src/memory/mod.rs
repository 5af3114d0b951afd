//! Memory of every kind, behind one map of addresses.

pub mod ipc;

use crate::config::Config;
use crate::handle::Handle;
use crate::state::State;
use crate::status::Answer;

/// All memory.
pub struct Memory {}

impl Memory {
    /// None allocated.
    pub fn new(_config: &Config) -> Self {
        Self {}
    }

    /// What is alive, by kind.
    pub fn census(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Names everything that is alive: kind, handle or address, context.
    pub fn objects(&self, _line: &mut impl FnMut(&str, Handle, Handle)) {}
}

/// A context ends, with its memory. Its work is done, and nothing of it runs.
pub fn context_ended(_state: &mut State, _context: Handle) {}

/// An executable graph is about to be launched: memory that its last launch allocated must be free again.
pub fn graph_launch(_state: &mut State, _exec: Handle, _flags: u64) -> Answer {
    Ok(())
}

/// An executable graph ended.
pub fn graph_exec_ended(_state: &mut State, _exec: Handle) {}
