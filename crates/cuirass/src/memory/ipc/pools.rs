//! Pools imported from other processes: however often one is imported the driver has it once, and ends it when it was
//! destroyed as often; it refuses that while memory is imported from it, whichever import that came through (measured).
//! An end that comes then waits until nothing is imported from it any more, or for the last share. What is known here is
//! how much is imported, how many ends wait, and who was given access.
//!
//! One lock is held across the import and the registration, and across a share's end and the destruction. No report is
//! made and nothing is dropped under it.

use crate::context::{Context, scope};
use crate::deferred;
use crate::device::Device;
use crate::memory::pool::{Peers, destroy};
use crate::{Outcome, driver};
use cuirass_call::memory::ipc as call;
use cuirass_call::sys::cuda::CUmemoryPool;
use cuirass_fault::lock::{Global, Guard};
use std::collections::BTreeMap;
use std::os::fd::RawFd;

#[derive(Default)]
struct Imported {
    shares: usize,
    /// Pieces of memory that are imported from it.
    mapped: usize,
    /// Imports whose share has ended while there were any.
    owed: usize,
    peers: Peers,
}

/// By the driver's handles, which are the same as long as a pool is imported.
static POOLS: Global<BTreeMap<usize, Imported>> = Global::new(BTreeMap::new(), BTreeMap::new());

/// Another process's pool, with one share more, and the devices that were given access to it.
pub(super) fn import(context: &Context, file: RawFd) -> Outcome<(CUmemoryPool, Peers)> {
    // In a forked child the lock may be held for ever.
    driver::initialized()?;
    deferred::before_creating()?;
    let mut pools = POOLS.lock();
    let undo = |pool: CUmemoryPool| match pools.get_mut(&pool.addr()) {
        Some(known) if known.mapped > 0 => {
            known.owed += 1;
            Ok(())
        }
        _ => destroy(pool, &[]),
    };
    let pool = scope::create(context.raw(), || call::pool_import_from_shareable_handle(file), undo)?;
    let imported = pools.entry(pool.addr()).or_default();
    imported.shares += 1;
    Ok((pool, imported.peers.clone()))
}

/// Holds the pools while memory is imported from one.
pub(super) struct Importing(Guard<'static, BTreeMap<usize, Imported>>);

impl Importing {
    pub(super) fn begin() -> Importing {
        Importing(POOLS.lock())
    }

    /// A piece of memory was imported.
    pub(super) fn done(mut self, pool: CUmemoryPool) {
        if let Some(imported) = self.0.get_mut(&pool.addr()) {
            imported.mapped += 1;
        }
    }
}

/// A piece of memory is imported no more. With the last one the imports are given back that wait for it, though there are
/// others of the pool: these may stay for as long as the process does.
pub(super) fn unmapped(pool: CUmemoryPool) -> Outcome<()> {
    let mut pools = POOLS.lock();
    let Some(imported) = pools.get_mut(&pool.addr()) else { return Ok(()) };
    imported.mapped = imported.mapped.saturating_sub(1);
    let owed = if imported.mapped == 0 { std::mem::take(&mut imported.owed) } else { 0 };
    give_back(pool, owed, Ok(()))
}

/// Gives back imports that have waited, after the answer to another one.
fn give_back(pool: CUmemoryPool, owed: usize, mut result: Outcome<()>) -> Outcome<()> {
    for _ in 0..owed {
        result = match (result, destroy(pool, &[])) {
            (Ok(()), destroyed) => destroyed,
            (Err(first), Ok(())) => Err(first),
            (Err(first), Err(again)) => Err(again.attach_to(first, "another import of the pool was not given back")),
        };
    }
    result
}

/// Somebody else has ended what the driver had of a pool by this handle, which may come round again.
pub(crate) fn forget(pool: usize) {
    let known = POOLS.lock().remove(&pool);
    drop(known);
}

/// Gives up a share: an import is given back, or waits while memory is imported from the pool. With the last one come
/// those that wait, and the access that was given goes too.
pub(in crate::memory) fn release(pool: CUmemoryPool) -> Outcome<()> {
    let mut pools = POOLS.lock();
    let last = match pools.get_mut(&pool.addr()) {
        Some(imported) if imported.shares > 1 => {
            imported.shares -= 1;
            if imported.mapped > 0 {
                imported.owed += 1;
                return Ok(());
            }
            Imported::default()
        }
        _ => pools.remove(&pool.addr()).unwrap_or_default(),
    };
    let peers: Vec<Device> = last.peers.lock().clone();
    let result = destroy(pool, &peers);
    give_back(pool, last.owed, result)
}
