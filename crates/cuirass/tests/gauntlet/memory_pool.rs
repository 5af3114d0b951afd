//! Memory pools.

use crate::objects::{Plain, buffer, device, operation, own_pool, pool, stream, taken};
use cuirass::memory::{
    DeviceMemoryResource, DeviceMemoryResourceOptions, MemoryResource, PinnedMemoryResource,
    PinnedMemoryResourceOptions, PoolAttribute,
};
use cuirass::{Device, Result, Stream};
use cuirass_testkit::operation::{Caller, Operation};

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const THRESHOLD: PoolAttribute = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

pub fn operations() -> Vec<Operation> {
    let own = || own_pool().map(Some);
    let mut operations = vec![
        operation!("DeviceMemoryResource::create", || Ok(()), |()| {
            DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default())
        }),
        operation!("DeviceMemoryResource::close", own, |pool| taken(pool).close()),
        operation!("DeviceMemoryResource::close", || Ok(()), |()| pool()?.close()).case("a share").makes_no_call(),
        operation!("DeviceMemoryResource (dropped)", own, |pool| {
            drop(taken(pool));
            Ok(())
        })
        .reports(),
        operation!("MemoryPool::attribute", own_pool, |pool| pool.attribute(THRESHOLD)),
        operation!("MemoryPool::set_attribute", own_pool, |pool| pool.set_attribute(THRESHOLD, 1 << 20)),
        operation!("MemoryPool::trim_to", own_pool, |pool| pool.trim_to(0)),
        operation!("MemoryPool::allocate", || Ok((own_pool()?, stream()?)), |(pool, stream)| {
            pool.allocate(64, stream)
        })
        .called_with(&ALL),
        operation!("MemoryPool::allocate", own_pool, |pool| pool.allocate(64, &Stream::legacy_default()))
            .case("on the legacy default stream")
            .called_with(&ALL),
        operation!("MemoryPool::allocate", own_pool, |pool| pool.allocate(64, &Stream::per_thread_default()))
            .case("on the thread's default stream")
            .called_with(&ALL),
    ];
    let given = || {
        let stream = stream()?;
        Ok((Some(buffer(&stream)?), stream))
    };
    operations.push(operation!("MemoryPool::deallocate", given, |(buffer, stream)| {
        MemoryResource::deallocate(&pool()?, taken(buffer).into_raw(), 64, stream)
    }));
    let on_default = || pool()?.allocate(64, &Stream::legacy_default()).map(Some);
    operations.push(
        operation!("MemoryPool::deallocate", on_default, |buffer| {
            MemoryResource::deallocate(&pool()?, taken(buffer).into_raw(), 64, &Stream::legacy_default())
        })
        .case("on a default stream")
        .called_with(&ALL),
    );
    operations.extend(of_pinned_pools());
    operations.extend(between_devices());
    operations.extend(without_calls());
    operations
}

fn pinned_pool() -> Result<PinnedMemoryResource> {
    PinnedMemoryResource::create(&PinnedMemoryResourceOptions::default())
}

/// The driver's own pool of the host is as the driver makes it.
fn closed_default_pool() -> Result<()> {
    PinnedMemoryResource::current()?.set_access(&[], &Device::all()?)
}

fn of_pinned_pools() -> Vec<Operation> {
    let own = || pinned_pool().map(Some);
    vec![
        operation!("PinnedMemoryResource::current", || Ok(()), |()| PinnedMemoryResource::current())
            .called_with(&ALL)
            .needs(13000),
        operation!("PinnedMemoryResource::current", closed_default_pool, |()| PinnedMemoryResource::current())
            .case("that no device has access to")
            .needs(13000),
        operation!("PinnedMemoryResource::create", || Ok(()), |()| pinned_pool()).called_with(&ALL),
        operation!("PinnedMemoryResource::create", || Ok(()), |()| {
            PinnedMemoryResource::create(&PinnedMemoryResourceOptions { ipc_enabled: true, ..Default::default() })
        })
        .case("for other processes"),
        operation!("PinnedMemoryResource::close", own, |pool| taken(pool).close()),
        operation!("PinnedMemoryResource (dropped)", own, |pool| {
            drop(taken(pool));
            Ok(())
        })
        .reports(),
        operation!("PinnedMemoryResource::numa_id", || pinned_pool().map(Plain), |pool| Ok(pool.0.numa_id()))
            .makes_no_call(),
        operation!("MemoryPool::allocate", || Ok((Plain(pinned_pool()?), stream()?)), |(pool, stream)| {
            pool.0.allocate(64, stream)
        })
        .case("page-locked")
        .called_with(&ALL),
    ]
}

/// A second device, where there is one; else the first.
fn other_device() -> Result<Device> {
    Ok(Device::all()?.pop().unwrap_or_else(device))
}

fn between_devices() -> Vec<Operation> {
    let shared = || {
        let pool = own_pool()?;
        pool.set_access(&[other_device()?], &[])?;
        Ok(Some(pool))
    };
    vec![
        operation!("Device::can_access_peer", || Ok(()), |()| device().can_access_peer(device())),
        operation!("MemoryPool::is_accessible_by", own_pool, |pool| pool.is_accessible_by(other_device()?)),
        operation!("MemoryPool::set_access", own_pool, |pool| pool.set_access(&[other_device()?], &[])),
        operation!("DeviceMemoryResource::close", shared, |pool| taken(pool).close()).case("of several devices"),
        operation!("DeviceMemoryResource (dropped)", shared, |pool| {
            drop(taken(pool));
            Ok(())
        })
        .case("of several devices")
        .reports(),
    ]
}

fn without_calls() -> Vec<Operation> {
    let own = || own_pool().map(Plain);
    vec![
        operation!("MemoryPool::close", own, |pool| cuirass::memory::MemoryPool::clone(&pool.0).close())
            .case("a share")
            .makes_no_call(),
        operation!("MemoryPool::memory", own, |pool| Ok(pool.0.memory())).makes_no_call(),
        operation!("MemoryPool::as_raw", own, |pool| Ok(pool.0.as_raw())).makes_no_call(),
        operation!("MemoryPool::is_owned", own, |pool| Ok(pool.0.is_owned())).makes_no_call(),
        operation!("MemoryPool::is_device_accessible", own, |pool| Ok(pool.0.is_device_accessible())).makes_no_call(),
        operation!("MemoryPool::is_host_accessible", own, |pool| Ok(pool.0.is_host_accessible())).makes_no_call(),
        operation!("MemoryPool::device", own, |pool| Ok(pool.0.device())).makes_no_call(),
        operation!("DeviceMemoryResource::borrow_raw", own, |pool| {
            // SAFETY: [test] the owner is kept.
            unsafe { DeviceMemoryResource::borrow_raw(pool.0.as_raw(), device()) }
        })
        .makes_no_call(),
    ]
}
