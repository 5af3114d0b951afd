//! What is refused of copies and fills, because a device was given no access to the memory.

use super::Origin;
use super::pool::PoolKey;
use crate::state::State;
use crate::status::{Answer, INVALID_VALUE};
use crate::{report, thread};

impl State {
    /// Refuses a fill of memory that the device cannot write to.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn can_fill(&self, device: usize, address: u64, extent: u64) -> Answer {
        match self.memory.find(address).map(|memory| memory.origin) {
            Some(Origin::Pool(key) | Origin::Imported(key)) => self.is_given(key, device, address),
            Some(Origin::Virtual) if !self.memory.virtuals.can_write(device, address, extent) => {
                self.lacks(address, &format!("which device {device} was given no access to that writes"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a fill of the host's memory that goes from one mapping to the next. Measured: it is captured all the same,
    /// and the graph is not made executable.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn is_in_one_mapping(&self, address: u64, extent: u64) -> Answer {
        if self.memory.virtuals.has_several_of_host(address, extent) { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// Refuses a copy of memory that it needs access to. Measured: of the pools of the host it needs none.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn can_copy(&self, device: usize, (address, extent): (u64, u64), writes: bool) -> Answer {
        match self.memory.find(address).map(|memory| memory.origin) {
            Some(Origin::Pool(key) | Origin::Imported(key)) if !self.memory.pools.is_of_host(key) => {
                self.is_given(key, device, address)
            }
            // Measured: with memory of the host the real driver crashes.
            Some(Origin::Virtual) if !self.memory.virtuals.is_shown(address, extent, writes) => self.lacks(
                address,
                &format!("which nobody was given access to{}", if writes { " that writes" } else { "" }),
            ),
            _ => Ok(()),
        }
    }

    fn is_given(&self, key: PoolKey, device: usize, address: u64) -> Answer {
        if self.memory.pools.is_accessible(key, device) {
            return Ok(());
        }
        self.lacks(address, &format!("of a pool that device {device} was given no access to"))
    }

    fn lacks(&self, address: u64, what: &str) -> Answer {
        report::bug(format!("{}: {}, {what}", thread::place(), self.memory.about(address)));
        Err(INVALID_VALUE)
    }
}
