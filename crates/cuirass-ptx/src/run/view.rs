//! Device memory as one worker sees it: the last regions are kept, so that most accesses find
//! theirs with two comparisons.

use super::host_memory::Span;
use crate::launch::{DeviceMemory, Region};
use crate::watch::{Touch, Touched};

const KEPT: usize = 4;

/// The memory and the last regions found in it.
pub(crate) struct View<'a> {
    memory: &'a dyn DeviceMemory,
    /// Memory of the launch's own.
    workspace: Span,
    epoch: u64,
    kept: [Span; KEPT],
    next: usize,
    /// What is touched, if somebody wants to know.
    watched: Option<Box<Touched>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(memory: &'a dyn DeviceMemory, workspace: Region) -> Self {
        Self {
            memory,
            workspace: Span::new(workspace),
            epoch: memory.epoch(),
            kept: [Span::EMPTY; KEPT],
            next: 0,
            watched: memory.watches().then(Box::default),
        }
    }

    /// Whether somebody wants to know what is touched.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// Notes that bytes of global memory are touched.
    pub(crate) fn note(&mut self, touch: Touch, address: u64, bytes: u64) {
        if let Some(watched) = &mut self.watched {
            watched.add(touch, address, bytes);
            if touch == Touch::StrongWrite {
                self.memory.signals(address);
            }
        }
    }

    /// Drops kept regions if allocations have changed. Called once for every memory instruction.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        let epoch = self.memory.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.kept = [Span::EMPTY; KEPT];
        }
    }

    /// The region that holds all of `bytes` bytes from `address`.
    #[inline(always)]
    pub(crate) fn find(&mut self, address: u64, bytes: u64) -> Option<Span> {
        for span in &self.kept {
            if span.holds(address, bytes) {
                return Some(*span);
            }
        }
        self.look_up(address, bytes)
    }

    #[cold]
    fn look_up(&mut self, address: u64, bytes: u64) -> Option<Span> {
        if self.workspace.holds(address, bytes) {
            return Some(self.workspace);
        }
        let span = Span::new(self.memory.region(address)?);
        if !span.holds(address, bytes) {
            return None;
        }
        self.kept[self.next] = span;
        self.next = (self.next + 1) % KEPT;
        Some(span)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        if let Some(watched) = self.watched.take() {
            self.memory.touched(*watched);
        }
    }
}
