//! What a stream knows of the capture that it takes part in: launches that refer to what the ones before them did find
//! that out by a few loads, from the stream that they touch anyway.

use crate::memory::{Buffer, Held};
use crate::module::Kernel;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many things a stream knows.
pub(crate) const FEW: usize = 8;

/// Counts the changes of the register of captures. What a stream knows is true as long as there was none: the capture
/// goes on, and holds these things.
static GENERATION: AtomicU64 = AtomicU64::new(2);

/// In what a stream notes of it: the capture is a relaxed one. The count itself is even.
const RELAXED: u64 = 1;

/// The register of captures has changed. Called with the register locked, so that nobody else writes.
pub(crate) fn changed() {
    GENERATION.store(GENERATION.load(Ordering::Relaxed) + 2, Ordering::Release);
}

/// The last few things that the capture which a stream takes part in holds: kernels by their handles, memory by the
/// addresses of its shares.
#[derive(Default)]
pub(crate) struct Known {
    /// When that was true, and whether the capture is a relaxed one; 0 for never.
    generation: AtomicU64,
    recent: [AtomicUsize; FEW],
}

impl Known {
    /// Whether the stream takes part in a capture, as far as it knows.
    #[inline]
    pub(crate) fn is_true(&self) -> bool {
        self.generation.load(Ordering::Acquire) & !RELAXED == GENERATION.load(Ordering::Acquire)
    }

    /// Whether that capture is a relaxed one, as far as the stream knows.
    #[inline]
    pub(crate) fn is_relaxed(&self) -> bool {
        self.generation.load(Ordering::Acquire) == GENERATION.load(Ordering::Acquire) | RELAXED
    }

    #[inline]
    fn has(&self, address: usize) -> bool {
        self.recent.iter().any(|recent| recent.load(Ordering::Acquire) == address)
    }

    /// Whether the capture is known to hold all that some work refers to.
    #[inline]
    pub(crate) fn has_all<'a>(&self, kernel: Option<&Kernel>, mut buffers: impl Iterator<Item = &'a Buffer>) -> bool {
        self.is_true()
            && kernel.is_none_or(|kernel| self.has(kernel.as_raw().addr()))
            && buffers.all(|buffer| buffer.held_if_any().is_some_and(|held| self.has(address(held))))
            // Had another capture taken over meanwhile, these might be what that one holds.
            && self.is_true()
    }

    /// What it knows from now on. Called with the register locked.
    pub(crate) fn learn(&self, recent: [usize; FEW], is_relaxed: bool) {
        self.generation.store(0, Ordering::Release);
        for (place, address) in self.recent.iter().zip(recent) {
            place.store(address, Ordering::Release);
        }
        let relaxed = if is_relaxed { RELAXED } else { 0 };
        self.generation.store(GENERATION.load(Ordering::Relaxed) | relaxed, Ordering::Release);
    }
}

/// What a share of memory is known by.
pub(crate) fn address(held: &Arc<Held>) -> usize {
    Arc::as_ptr(held).addr()
}
