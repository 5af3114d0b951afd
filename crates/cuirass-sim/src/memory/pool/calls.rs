//! The calls on pools themselves.

use super::super::ipc::{FILE, PoolFile};
use super::super::managed;
use super::{Backing, LIVE, Origin, Owner, PoolKey, Shape, trim, trim_one};
use crate::c::{In, Out, Untyped, location_id};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::{report, thread};
use cuirass_sys::cuda::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};
use std::ffi::c_int;

pub fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, dev: CUdevice) -> Answer {
    pool.check()?;
    let mut state = state::lock()?;
    let ordinal = state.device(dev)?.ordinal;
    pool.write(state.memory.pools.default_of(Owner::Device(ordinal))?.raw())
}

pub fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, dev: CUdevice) -> Answer {
    pool.check()?;
    let mut state = state::lock()?;
    let ordinal = state.device(dev)?.ordinal;
    pool.write(state.memory.pools.current_of(Owner::Device(ordinal))?.raw())
}

pub fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> Answer {
    let mut state = state::lock()?;
    let ordinal = state.device(dev)?.ordinal;
    let handle = Handle::of(pool);
    state.memory.pools.key(handle)?;
    state.potentially_unsafe()?;
    state.memory.pools.set_current(Owner::Device(ordinal), handle)
}

fn shape(state: &State, props: &CUmemPoolProps) -> Answer<Shape> {
    let managed = match props.allocType {
        CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED => false,
        CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED => true,
        _ => return Err(INVALID_VALUE),
    };
    let types = props.handleTypes.0;
    let known = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0
        | CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0;
    if types & !known != 0 {
        return Err(INVALID_VALUE);
    }
    let host_total = crate::host::default_memory() * 2;
    let (device, total) = match props.location.type_ {
        // Where managed memory is preferred to be makes no difference here.
        CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE | CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE if managed => {
            if types != 0 {
                return Err(INVALID_VALUE);
            }
            (None, host_total)
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            let device = state.device(location_id(&props.location)).or(Err(INVALID_VALUE))?;
            (Some(device.ordinal), device.memory)
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if location_id(&props.location) != managed::node(state)? => {
            return Err(INVALID_VALUE);
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => (None, host_total),
        _ => return Err(INVALID_VALUE),
    };
    let max = props.maxSize as u64;
    if max > total {
        return Err(OUT_OF_MEMORY);
    }
    let node = !managed
        && matches!(
            props.location.type_,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
                | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT
        );
    Ok(Shape { device, handle_types: types, max, imported: false, managed, node })
}

pub fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> Answer {
    pool.check()?;
    let props = props.read()?;
    let mut state = state::lock()?;
    state.potentially_unsafe()?;
    let shape = shape(&state, &props)?;
    let preferred = managed::preferred(&state, &props)?;
    let backing = if shape.handle_types & FILE.0 != 0 {
        Backing::File(Box::new(PoolFile::create(&shape).ok_or(OUT_OF_MEMORY)?))
    } else {
        Backing::Own
    };
    let key = state.memory.pools.add(shape, backing, false)?;
    state.memory.advice.pool_made(key, preferred);
    pool.write(state.memory.pools.get(key).ok_or(INVALID_VALUE)?.handle.raw())
}

pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(pool);
    let key = state.memory.pools.key(handle)?;
    if state.memory.pools.get(key).is_some_and(|pool| pool.default) {
        return Err(INVALID_VALUE);
    }
    state.potentially_unsafe()?;
    // Measured: not while memory is imported from it, however often the pool was imported.
    if state.memory.pools.get(key).is_some_and(|pool| pool.shape.imported && pool.has_imports()) {
        return Err(INVALID_VALUE);
    }
    if state.memory.pools.unwaited.has(key) {
        report::bug(format!(
            "{}: no call has waited for the free of memory of this imported pool: a real driver says that it has destroyed \
             it, and keeps it for good, with its file descriptor",
            thread::place()
        ));
        return Ok(());
    }
    if let Some(pool) = state.memory.pools.get_mut(key).filter(|pool| pool.again > 0) {
        pool.again -= 1;
        return Ok(());
    }
    state.memory.pools.handles.remove(handle, INVALID_VALUE, INVALID_VALUE)?;
    if let Some(pool) = state.memory.pools.get_mut(key) {
        pool.closed = true;
        state.memory.pools.surplus = true;
    }
    trim(&mut state);
    Ok(())
}

pub fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Answer {
    let mut state = state::lock()?;
    let key = state.memory.pools.key(Handle::of(pool))?;
    trim_one(&mut state, key, keep as u64, keep as u64);
    Ok(())
}

fn key_of(state: &mut State, pool: CUmemoryPool) -> Answer<PoolKey> {
    let key = state.memory.pools.key(Handle::of(pool))?;
    state.potentially_unsafe()?;
    Ok(key)
}

pub fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Untyped) -> Answer {
    let mut state = state::lock()?;
    let key = key_of(&mut state, pool)?;
    let pool = state.memory.pools.get(key).ok_or(INVALID_VALUE)?;
    let (flag, size) = (value.out::<c_int>(), value.out::<u64>());
    match attribute {
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => flag.write(pool.follow_events.into()),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => flag.write(pool.rules.opportunistic.into()),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            flag.write(pool.rules.internal.into())
        }
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => size.write(pool.threshold),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => size.write(pool.reserved[0]),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => size.write(pool.reserved[1]),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => size.write(pool.used[0]),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => size.write(pool.used[1]),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Untyped) -> Answer {
    let mut state = state::lock()?;
    let key = key_of(&mut state, pool)?;
    let pool = state.memory.pools.get_mut(key).ok_or(INVALID_VALUE)?;
    let flag = || value.of::<c_int>().read().map(|flag| flag != 0);
    let size = || value.of::<u64>().read();
    match attribute {
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => pool.follow_events = flag()?,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => pool.rules.opportunistic = flag()?,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => pool.rules.internal = flag()?,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
            pool.threshold = size()?;
            state.memory.pools.surplus = true;
        }
        // High marks can only be set back to what is current.
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if size()? == 0 => pool.reserved[1] = pool.reserved[0],
        CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH if size()? == 0 => pool.used[1] = pool.used[0],
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// The device that an access description is about; `None`: the host.
fn accessor(state: &State, location: &CUmemLocation) -> Answer<Option<usize>> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            state.device(location_id(location)).map(|device| Some(device.ordinal)).or(Err(INVALID_DEVICE))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(None),
        _ => Err(INVALID_VALUE),
    }
}

pub(in super::super) fn set_access(pool: CUmemoryPool, map: In<CUmemAccessDesc>, count: usize) -> Answer {
    let map = map.read_many(count)?;
    let mut state = state::lock()?;
    let key = key_of(&mut state, pool)?;
    let own = state.memory.pools.get(key).ok_or(INVALID_VALUE)?.shape.device;
    let (mut set, mut clear) = (0_u64, 0_u64);
    for entry in map {
        let device = accessor(&state, &entry.location)?;
        let all = match entry.flags {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => true,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => false,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_VALUE),
        };
        match device {
            // The device that holds the memory always has access to it, the host never to a device's.
            Some(device) if own == Some(device) && !all => return Err(INVALID_DEVICE),
            Some(device) if all => set |= 1 << device,
            Some(device) => clear |= 1 << device,
            None if own.is_some() => return Err(INVALID_VALUE),
            None if !all => return Err(NOT_SUPPORTED),
            None => {}
        }
    }
    let pool = state.memory.pools.get_mut(key).ok_or(INVALID_VALUE)?;
    pool.access = pool.access & !clear | set;
    let access = pool.access;
    state
        .memory
        .allocations()
        .filter(|memory| [Origin::Pool(key), Origin::Imported(key)].contains(&memory.origin))
        .for_each(|memory| {
            LIVE.set_access(memory.start, memory.id, access);
        });
    Ok(())
}

pub(in super::super) fn get_access(
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: In<CUmemLocation>,
) -> Answer {
    flags.check()?;
    let location = location.read()?;
    let mut state = state::lock()?;
    let key = key_of(&mut state, pool)?;
    let device = accessor(&state, &location)?;
    let pool = state.memory.pools.get(key).ok_or(INVALID_VALUE)?;
    let allowed = match device {
        Some(device) => pool.shape.device == Some(device) || pool.access >> device & 1 == 1,
        None => pool.shape.device.is_none(),
    };
    flags.write(if allowed {
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    } else {
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
    })
}

/// Whose pools a location and a type of memory stand for.
fn owner(state: &State, location: &CUmemLocation, kind: CUmemAllocationType) -> Answer<Owner> {
    match (kind, location.type_) {
        (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED, _) => Ok(Owner::Managed),
        (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE) => {
            state.device(location_id(location)).map(|device| Owner::Device(device.ordinal))
        }
        (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST) => {
            Ok(Owner::Host)
        }
        (
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
            | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
        ) => Ok(Owner::Node),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuMemGetDefaultMemPool(
    pool: Out<CUmemoryPool>,
    location: In<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Answer {
    pool.check()?;
    let location = location.read()?;
    let mut state = state::lock()?;
    let owner = owner(&state, &location, kind)?;
    pool.write(state.memory.pools.default_of(owner)?.raw())
}

pub fn cuMemGetMemPool(pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: CUmemAllocationType) -> Answer {
    pool.check()?;
    let location = location.read()?;
    let mut state = state::lock()?;
    let owner = owner(&state, &location, kind)?;
    pool.write(state.memory.pools.current_of(owner)?.raw())
}

pub fn cuMemSetMemPool(location: In<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool) -> Answer {
    let location = location.read()?;
    let mut state = state::lock()?;
    let owner = owner(&state, &location, kind)?;
    state.memory.pools.key(Handle::of(pool))?;
    state.potentially_unsafe()?;
    state.memory.pools.set_current(owner, Handle::of(pool))
}
