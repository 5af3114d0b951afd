//! Managed memory: pools, advice, prefetches and discards.

use crate::objects::{Plain, device, operation, stream, taken};
use cuirass::memory::{
    Location, ManagedMemoryResource, ManagedMemoryResourceOptions, discard_batch, discard_batch_unordered,
    discard_prefetch_batch, discard_prefetch_batch_unordered, prefetch_batch, prefetch_batch_unordered,
};
use cuirass::{Buffer, Result, Stream};
use cuirass_testkit::operation::{Caller, Operation};
use cuirass_testkit::raw::ManagedMemory;
use std::sync::Arc;

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const POOLS: u32 = 13000;

fn own_pool() -> Result<ManagedMemoryResource> {
    ManagedMemoryResource::create(&ManagedMemoryResourceOptions::default())
}

fn one() -> Result<(Buffer, Stream)> {
    let stream = stream()?;
    Ok((own_pool()?.allocate(4096, &stream)?, stream))
}

/// Memory of `cuMemAllocManaged`: a real driver takes no advice for that of a pool.
fn advised() -> Result<(Buffer, Stream)> {
    let owner = Arc::new(ManagedMemory::new(4096));
    // SAFETY: [test] the owner keeps the memory.
    Ok((unsafe { Buffer::borrow_raw(owner.address(), 4096, Some(owner)) }, stream()?))
}

fn two() -> Result<(Buffer, Buffer, Stream)> {
    let (buffer, stream) = one()?;
    Ok((buffer, own_pool()?.allocate(4096, &stream)?, stream))
}

fn here() -> Location {
    Location::Device(device())
}

pub fn operations() -> Vec<Operation> {
    let of_pools = pools().into_iter().chain(work()).chain(batches());
    of_pools.map(|operation| operation.needs(POOLS)).chain(advice()).collect()
}

fn pools() -> Vec<Operation> {
    let own = || own_pool().map(Some);
    vec![
        operation!("ManagedMemoryResource::current", || Ok(()), |()| ManagedMemoryResource::current())
            .called_with(&ALL),
        operation!("ManagedMemoryResource::create", || Ok(()), |()| own_pool()).called_with(&ALL),
        operation!("ManagedMemoryResource::create", || Ok(()), |()| {
            ManagedMemoryResource::create(&ManagedMemoryResourceOptions { preferred_location: Some(here()) })
        })
        .case("on a device"),
        operation!("ManagedMemoryResource::close", own, |pool| taken(pool).close()),
        operation!("ManagedMemoryResource (dropped)", own, |pool| {
            drop(taken(pool));
            Ok(())
        })
        .reports(),
        operation!("ManagedMemoryResource::preferred_location", || own_pool().map(Plain), |pool| {
            Ok(pool.0.preferred_location())
        })
        .makes_no_call(),
        operation!("MemoryPool::allocate", || Ok((Plain(own_pool()?), stream()?)), |(pool, stream)| {
            pool.0.allocate(64, stream)
        })
        .case("managed")
        .called_with(&ALL),
    ]
}

fn advice() -> Vec<Operation> {
    vec![
        operation!("Buffer::set_read_mostly", advised, |(buffer, _)| buffer.set_read_mostly(true))
            .called_with(&ALL)
            .submits(),
        operation!("Buffer::is_read_mostly", advised, |(buffer, _)| buffer.is_read_mostly()).called_with(&ALL),
        operation!("Buffer::set_preferred_location", advised, |(buffer, _)| buffer
            .set_preferred_location(Some(here())))
        .called_with(&ALL)
        .submits(),
        operation!("Buffer::set_preferred_location", advised, |(buffer, _)| buffer.set_preferred_location(None))
            .case("none")
            .submits(),
        operation!("Buffer::preferred_location", advised, |(buffer, _)| buffer.preferred_location()).called_with(&ALL),
        operation!("Buffer::set_accessed_by", advised, |(buffer, _)| buffer.set_accessed_by(here(), true))
            .called_with(&ALL)
            .submits(),
        operation!("Buffer::accessed_by", advised, |(buffer, _)| buffer.accessed_by()).called_with(&ALL),
        operation!("Buffer::last_prefetch_location", advised, |(buffer, stream)| {
            buffer.prefetch(here(), stream)?;
            buffer.last_prefetch_location()
        })
        .called_with(&ALL),
    ]
}

fn work() -> Vec<Operation> {
    vec![
        operation!("Buffer::prefetch", one, |(buffer, stream)| buffer.prefetch(here(), stream)),
        operation!("Buffer::prefetch_unordered", one, |(buffer, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { buffer.prefetch_unordered(Location::Host, stream) }
        }),
        operation!("Buffer::discard", one, |(buffer, stream)| buffer.discard(stream)),
        operation!("Buffer::discard_unordered", one, |(buffer, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { buffer.discard_unordered(stream) }
        }),
        operation!("Buffer::discard_prefetch", one, |(buffer, stream)| buffer.discard_prefetch(here(), stream)),
        operation!("Buffer::discard_prefetch_unordered", one, |(buffer, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { buffer.discard_prefetch_unordered(Location::Host, stream) }
        }),
    ]
}

fn batches() -> Vec<Operation> {
    vec![
        operation!("prefetch_batch", two, |(one, other, stream)| {
            prefetch_batch(&[(one, here()), (other, Location::Host)], stream)
        }),
        operation!("prefetch_batch_unordered", two, |(one, other, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { prefetch_batch_unordered(&[(one, here()), (other, here())], stream) }
        }),
        operation!("discard_batch", two, |(one, other, stream)| discard_batch(&[one, other], stream)),
        operation!("discard_batch_unordered", two, |(one, other, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { discard_batch_unordered(&[one, other], stream) }
        }),
        operation!("discard_prefetch_batch", two, |(one, other, stream)| {
            discard_prefetch_batch(&[(one, here()), (other, Location::Host)], stream)
        }),
        operation!("discard_prefetch_batch_unordered", two, |(one, other, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { discard_prefetch_batch_unordered(&[(one, here()), (other, here())], stream) }
        }),
    ]
}
