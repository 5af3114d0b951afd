//! Memory that graphs refer to: it goes back when its buffer and the last of these graphs are gone.

use crate::memory::buffer::Memory;
use cuirass_call::owner::Owned;
use std::sync::{Arc, OnceLock};

/// A share of a buffer's memory. While the buffer lives it holds the memory; then this does.
pub(crate) struct Held(OnceLock<Owned<Memory>>);

impl Held {
    pub(crate) fn new() -> Arc<Held> {
        Arc::new(Held(OnceLock::new()))
    }

    /// Whether anybody but the buffer has a share.
    pub(crate) fn is_shared(self: &Arc<Held>) -> bool {
        Arc::strong_count(self) > 1
    }

    /// The buffer is gone: the memory stays until the last share is.
    pub(crate) fn take_over(&self, memory: Owned<Memory>) {
        // Only the buffer's end comes here, so that there is none before.
        drop(self.0.set(memory));
    }
}
