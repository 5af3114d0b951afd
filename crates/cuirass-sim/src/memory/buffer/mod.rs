//! Plain device memory, copies, fills, and what a pointer is. The calls are in the files beside this one.

mod alloc;
mod batch;
mod copy;
mod fill;
mod pointer;
mod shaped;

pub use alloc::*;
pub use batch::*;
pub use copy::*;
pub use fill::*;
pub use pointer::*;
pub use shaped::*;

use super::Origin;
use super::live::LIVE;
use crate::host;
use crate::report;
use crate::state::State;
use crate::status::{Answer, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::stream::At;
use crate::stream::Submitted;
use crate::task::{Failure, Task};
use crate::thread;
use std::sync::Arc;

/// Work of so few bytes is done by the calling thread if nothing stands before it.
const SMALL: u64 = 64 << 10;

/// What a call says of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// A device address.
    Device,
    /// The same, and not of a pool of the host.
    OnDevice,
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

/// Memory of a copy or fill is not there when it is done.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    address: u64,
    extent: u64,
}

impl Missing {
    fn failure(&self, state: &State) -> Failure {
        let about = state.memory.about(self.address);
        let text =
            format!("a copy or fill of {} bytes met memory that is not there when it is done: {about}", self.extent);
        Failure { status: ILLEGAL_ADDRESS, text }
    }

    /// For a worker, which does not hold the state.
    fn locked(&self) -> Failure {
        match crate::state::lock() {
            Ok(state) => self.failure(&state),
            Err(status) => Failure { status, text: "the driver is gone".to_owned() },
        }
    }
}

/// A task that moves bytes and needs nothing of the state.
trait Bytes: Task {
    /// Does it.
    fn attempt(&self) -> Result<(), Missing>;
}

impl Side {
    /// Where the host finds it now.
    fn host(&self, extent: u64) -> Result<usize, Missing> {
        if !self.known {
            return Ok(self.address as usize);
        }
        LIVE.host_of(self.address, extent).ok_or(Missing { address: self.address, extent })
    }
}

impl State {
    /// Looks an address up that a copy or fill is to touch `extent` bytes at.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn side(&self, address: u64, extent: u64, expect: Expect) -> Answer<Side> {
        if let Some(found) = self.memory.find(address) {
            if found.origin == Origin::Heap {
                // What kernels allocate for themselves is not the host's to copy.
                return Err(INVALID_VALUE);
            }
            let of_host = |key| expect == Expect::OnDevice && self.memory.pools.is_of_host(key);
            let fits = extent <= self.memory.room(address)
                && !matches!(found.origin, Origin::Pool(key) | Origin::Imported(key) if of_host(key));
            return if fits { Ok(Side { address, known: true, pageable: false }) } else { Err(INVALID_VALUE) };
        }
        if expect != Expect::Any || address == 0 || self.memory.ours(address) {
            return Err(self.memory.refuse(address));
        }
        // The real driver refuses it, or crashes.
        if !host::is_mapped(
            usize::try_from(address).unwrap_or(usize::MAX),
            usize::try_from(extent).unwrap_or(usize::MAX),
        ) {
            report::bug(format!(
                "{} was given {address:#x}: {extent} bytes there are no memory of this process",
                thread::place()
            ));
            return Err(INVALID_VALUE);
        }
        Ok(Side { address, known: false, pageable: true })
    }

    /// Puts a copy or fill into a stream.
    ///
    /// # Errors
    /// As [`State::submit`].
    fn submit_bytes<T: Bytes>(&mut self, at: &At, bytes: u64, task: T) -> Answer<Submitted> {
        self.not_lost(at.context)?;
        let free = bytes <= SMALL && self.graphs.captures.is_empty() && self.is_clear(at);
        if !free {
            return self.submit(at, Arc::new(task));
        }
        if let Err(missing) = task.attempt() {
            let failure = missing.failure(self);
            crate::context::lose(self, at.context, &failure);
            return Err(failure.status);
        }
        Ok(Submitted::Pending(self.engine.tail(at.queue)))
    }
}

/// A call has waited for its own work.
fn finished(state: &State, at: &At) -> Answer {
    // As on hardware, it fetches what kernels printed; pools give memory back only when the program synchronises.
    crate::launch::output::fetch();
    state.not_lost(at.context)
}
