//! Which frees of imported memory the host has waited for.
//!
//! Measured: an imported pool that is destroyed before that is lost, with its file descriptor. It counts that a call waits
//! for the free, or for what comes after it, in its stream or another; that it is done, or was seen to be, does not.

use super::PoolKey;
use crate::engine::{Dep, Engine};
use crate::handle::Handle;
use smallvec::SmallVec;

/// The last free in a queue of memory that was imported from a pool.
#[derive(Debug)]
struct Free {
    pool: PoolKey,
    context: Handle,
    /// Places that are reached only after it: its own, and one in each queue that waited for it.
    behind: SmallVec<[Dep; 2]>,
}

/// All such frees. As a rule there is none: nothing here costs anything then.
#[derive(Debug, Default)]
pub struct Unwaited(Vec<Free>);

/// So many places are remembered without looking which queues are gone.
const MANY: usize = 64;

impl Free {
    fn is_before(&self, place: &Dep) -> bool {
        self.behind.iter().any(|behind| behind.queue == place.queue && behind.count <= place.count)
    }
}

impl Unwaited {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether there is one of a pool.
    pub fn has(&self, pool: PoolKey) -> bool {
        self.0.iter().any(|free| free.pool == pool)
    }

    /// Notes a free, by its place in a queue. Who waits for it waits for those before it in that queue.
    pub(in super::super) fn add(&mut self, pool: PoolKey, context: Handle, place: Dep) {
        let is_before = |free: &Free| free.behind.first().is_some_and(|first| first.queue == place.queue);
        self.0.retain(|free| free.pool != pool || !is_before(free));
        self.0.push(Free { pool, context, behind: SmallVec::from_slice(&[place]) });
    }

    /// Notes that a place comes after others.
    pub fn follow(&mut self, after: &[Dep], place: Dep, engine: &Engine) {
        for free in &mut self.0 {
            let known = free.behind.iter().any(|behind| behind.queue == place.queue);
            if known || !after.iter().any(|place| free.is_before(place)) {
                continue;
            }
            if free.behind.len() >= MANY {
                free.behind.retain(|behind| engine.is_there(behind.queue));
            }
            free.behind.push(place);
        }
    }

    /// A call has waited for these places.
    pub fn waited(&mut self, places: &[Dep]) {
        self.0.retain(|free| !places.iter().any(|place| free.is_before(place)));
    }

    /// A call has waited for everything in a context.
    pub fn waited_in(&mut self, context: Handle) {
        self.0.retain(|free| free.context != context);
    }

    /// A pool is gone.
    pub(super) fn forget(&mut self, pool: PoolKey) {
        self.0.retain(|free| free.pool != pool);
    }
}
