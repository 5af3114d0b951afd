//! Pools imported from other processes: however often one is imported the driver has it once, and ends it when it was
//! destroyed as often (measured). What is known here is who was given access, which goes with the last.
//!
//! One lock is held across the import and the registration, and across a share's end and the destruction. No report is made and nothing is dropped under it.

use crate::context::{Context, scope};
use crate::deferred;
use crate::device::Device;
use crate::memory::pool::{Peers, destroy};
use crate::{Outcome, driver};
use cuirass_call::memory::{ipc as call, pool as pool_call};
use cuirass_call::sys::cuda::CUmemoryPool;
use cuirass_fault::lock::Mutex;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

#[derive(Default)]
struct Imported {
    shares: usize,
    peers: Peers,
}

/// By the driver's handles, which are the same as long as a pool is imported.
static POOLS: Mutex<BTreeMap<usize, Imported>> = Mutex::new(BTreeMap::new());

/// Another process's pool, with one share more, and the devices that were given access to it.
pub(super) fn import(context: &Context, file: RawFd) -> Outcome<(CUmemoryPool, Peers)> {
    // In a forked child the lock may be held for ever.
    driver::initialized()?;
    deferred::before_creating()?;
    let mut pools = POOLS.lock();
    let pool = scope::create(context.raw(), || call::pool_import_from_shareable_handle(file), pool_call::destroy)?;
    let imported = pools.entry(pool.addr()).or_default();
    imported.shares += 1;
    Ok((pool, imported.peers.clone()))
}

/// Gives up a share; with the last one the access that was given goes too.
pub(in crate::memory) fn release(pool: CUmemoryPool) -> Outcome<()> {
    let mut pools = POOLS.lock();
    let last = match pools.get_mut(&pool.addr()) {
        Some(imported) if imported.shares > 1 => {
            imported.shares -= 1;
            None
        }
        _ => pools.remove(&pool.addr()),
    };
    let peers: Vec<Device> = last.map(|last| last.peers.lock().clone()).unwrap_or_default();
    destroy(pool, &peers)
}
