//! Graphs and user objects.

use super::Graphs;
use crate::handle::Handle;
use crate::state;
use crate::status::{Answer, INVALID_VALUE};
use cuirass_sys::cuda::CUgraph;

/// Something of the program's that graphs keep alive.
pub struct UserObject {
    /// How many references there are.
    pub references: u32,
}

impl Graphs {
    /// Gives references to a user object up.
    pub fn release_object(&mut self, object: Handle, count: u32) {
        if let Some(known) = self.user_objects.peek_mut(object) {
            known.references = known.references.saturating_sub(count);
        }
    }
}

pub fn cuGraphDestroy(graph: CUgraph) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(graph);
    let known = state.graphs.graphs.get(handle, INVALID_VALUE)?;
    if known.parent.is_some() || known.capturing {
        return Err(INVALID_VALUE);
    }
    state.graphs.destroy(handle)
}
