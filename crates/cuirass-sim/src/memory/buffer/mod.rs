//! Plain device memory, copies, fills, and what a pointer is. The calls are in the files beside this one.

mod alloc;
mod copy;
mod fill;
mod pointer;
mod shaped;

pub use alloc::*;
pub use copy::*;
pub use fill::*;
pub use pointer::*;
pub use shaped::*;

use super::live::LIVE;
use crate::engine;
use crate::state::{Guard, State};
use crate::status::{Answer, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::stream::At;
use crate::stream::Submitted;
use crate::task::{Failure, Job, Task};
use std::sync::Arc;

/// Work of so few bytes is done by the calling thread if nothing stands before it.
const SMALL: u64 = 64 << 10;

/// What a call says of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// A device address.
    Device,
    /// A host address; device addresses are taken too, there is one address space.
    Any,
}

/// One side of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Its first address.
    pub address: u64,
    /// Whether it is memory of the driver; otherwise it is the program's own.
    pub known: bool,
    /// Whether it is host memory that devices do not see.
    pub pageable: bool,
}

impl Side {
    /// Where the host finds it now.
    fn host(&self, extent: u64) -> Result<usize, Failure> {
        if !self.known {
            return Ok(self.address as usize);
        }
        LIVE.host_of(self.address, extent).ok_or_else(|| {
            let about = crate::state::lock().map_or(String::new(), |state| state.memory.about(self.address));
            Failure {
                status: ILLEGAL_ADDRESS,
                text: format!("a copy or fill of {extent} bytes met memory that is not there when it is done: {about}"),
            }
        })
    }
}

impl State {
    /// Looks an address up that a copy or fill is to touch `extent` bytes at.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn side(&self, address: u64, extent: u64, expect: Expect) -> Answer<Side> {
        if let Some(found) = self.memory.find(address) {
            let fits = extent <= found.len.saturating_sub(address - found.start);
            return if fits { Ok(Side { address, known: true, pageable: false }) } else { Err(INVALID_VALUE) };
        }
        if expect == Expect::Device || address == 0 || self.memory.ours(address) {
            return Err(self.memory.refuse(address));
        }
        Ok(Side { address, known: false, pageable: true })
    }

    /// Puts a copy or fill into a stream.
    ///
    /// # Errors
    /// As [`State::submit`].
    fn submit_bytes<T: Task>(&mut self, at: &At, bytes: u64, task: T) -> Answer<Submitted> {
        self.not_lost(at.context)?;
        let free = bytes <= SMALL && self.graphs.captures.is_empty() && self.is_clear(at);
        if !free {
            return self.submit(at, Arc::new(task));
        }
        let device = self.context(at.context)?.device;
        if let Err(failure) = task.run(&Job { context: at.context, device, number: 0 }) {
            crate::context::lose(self, at.context, &failure);
            return Err(failure.status);
        }
        Ok(Submitted::Pending(self.engine.tail(at.queue)))
    }
}

/// Waits for work that a call only returns after.
fn finish(state: &mut Guard, at: &At, sent: Submitted) -> Answer {
    if let Submitted::Pending(dep) = sent {
        engine::wait(state, &[dep]);
        super::synchronised(state);
        return state.not_lost(at.context);
    }
    Ok(())
}
