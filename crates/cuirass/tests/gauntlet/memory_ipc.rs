//! Pools, memory and events shared between processes. One process imports what it has itself exported, which the driver
//! takes for pools and memory; of an event it takes its own only to refuse it.

use crate::objects::{Plain, Works, device, operation, stream, taken};
use cuirass::memory::{
    DeviceMemoryResource, DeviceMemoryResourceOptions, IpcAllocationHandle, IpcBufferDescriptor, IpcEventDescriptor,
    MemoryPool, PinnedMemoryResource, PinnedMemoryResourceOptions,
};
use cuirass::{Buffer, Event, EventOptions, Result, Stream};
use cuirass_testkit::operation::{Caller, Operation};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];

/// What exports: a pool, memory of it, and the pool as another process would have it.
struct Shared {
    imported: Option<Buffer>,
    descriptor: IpcBufferDescriptor,
    mapped: DeviceMemoryResource,
    stream: Stream,
    other: Option<Stream>,
    exported: Buffer,
    handle: IpcAllocationHandle,
    pool: DeviceMemoryResource,
}

impl Works for Shared {
    fn works(&self) -> Result<()> {
        self.exported.works()?;
        self.imported.works()?;
        let again = Buffer::from_ipc_descriptor(&self.mapped, &self.descriptor, &self.stream)?;
        again.works()?;
        again.close()?;
        self.stream.synchronize()?;
        self.pool.works()
    }
}

fn own_pool() -> Result<DeviceMemoryResource> {
    let options = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
    DeviceMemoryResource::create(device(), &options)
}

fn shared() -> Result<Shared> {
    let (stream, pool) = (stream()?, own_pool()?);
    let exported = pool.allocate(64, &stream)?;
    stream.synchronize()?;
    let handle = pool.allocation_handle()?;
    let mapped = DeviceMemoryResource::from_allocation_handle(device(), &handle)?;
    let descriptor = exported.ipc_descriptor()?;
    Ok(Shared { imported: None, descriptor, mapped, stream, other: None, exported, handle, pool })
}

fn imported() -> Result<Shared> {
    let mut shared = shared()?;
    shared.imported = Some(Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &shared.stream)?);
    Ok(shared)
}

/// Imported, and a share of it given up on another stream.
fn given_up() -> Result<Shared> {
    let (mut shared, other) = (imported()?, stream()?);
    Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &other)?.close()?;
    shared.other = Some(other);
    Ok(shared)
}

fn event() -> Result<Event> {
    device().create_event(&EventOptions { interprocess: true, ..EventOptions::default() })
}

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![
        operation!("MemoryPool::allocation_handle", own_pool, |pool| pool.allocation_handle()).called_with(&ALL),
        operation!("DeviceMemoryResource::from_allocation_handle", shared, |shared| {
            DeviceMemoryResource::from_allocation_handle(device(), &shared.handle)
        })
        .called_with(&ALL),
        operation!("Buffer::ipc_descriptor", shared, |shared| shared.exported.ipc_descriptor()).called_with(&ALL),
        operation!("Buffer::from_ipc_descriptor", shared, |shared| {
            Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &shared.stream)
        })
        .called_with(&ALL),
        operation!("Buffer::from_ipc_descriptor", shared, |shared| {
            Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &Stream::legacy_default())
        })
        .case("on the legacy default stream")
        .called_with(&ALL),
        operation!("Buffer::close", imported, |shared| taken(&mut shared.imported).close()).case("an imported one"),
        operation!("Buffer::close", given_up, |shared| taken(&mut shared.imported).close())
            .case("the last share of an imported one, behind another stream"),
        operation!("Buffer (dropped)", given_up, |shared| {
            drop(taken(&mut shared.imported));
            Ok(())
        })
        .case("the last share of an imported one")
        .reports(),
        operation!("PinnedMemoryResource::from_allocation_handle", pinned, |(handle, _pool)| {
            PinnedMemoryResource::from_allocation_handle(&handle.0)
        })
        .needs(13000)
        .called_with(&ALL),
        operation!("Event::ipc_descriptor", event, |event| event.ipc_descriptor()).called_with(&ALL),
    ];
    operations.extend(without_calls());
    operations
}

fn pinned() -> Result<(Plain<IpcAllocationHandle>, PinnedMemoryResource)> {
    let options = PinnedMemoryResourceOptions { ipc_enabled: true, ..PinnedMemoryResourceOptions::default() };
    let pool = PinnedMemoryResource::create(&options)?;
    Ok((Plain(pool.allocation_handle()?), pool))
}

fn without_calls() -> Vec<Operation> {
    let handle = || own_pool()?.allocation_handle().map(|handle| Plain(Some(handle)));
    let own = || own_pool().map(Plain);
    let raw = || Ok(Plain(IpcEventDescriptor::from_raw([7; 64], true)));
    vec![
        operation!("MemoryPool::is_ipc_enabled", own, |pool| Ok(pool.0.is_ipc_enabled())).makes_no_call(),
        operation!("MemoryPool::is_mapped", own, |pool| Ok(pool.0.is_mapped())).makes_no_call(),
        operation!("MemoryPool::uuid", own, |pool| Ok(pool.0.uuid())).makes_no_call(),
        operation!("MemoryPool::identify", own, |pool| {
            let pool: &MemoryPool = &pool.0;
            pool.identify(pool.uuid().unwrap_or_default())
        })
        .makes_no_call(),
        operation!("Buffer::is_mapped", shared, |shared| Ok(shared.exported.is_mapped())).makes_no_call(),
        operation!("Buffer::ipc_descriptor", imported, |shared| {
            shared.imported.as_ref().map(Buffer::ipc_descriptor).transpose()
        })
        .case("of an imported one")
        .makes_no_call(),
        operation!("Buffer::close", imported, |shared| {
            let again = Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &shared.stream)?;
            again.close()
        })
        .case("a share of an imported one")
        .makes_no_call(),
        operation!("IpcAllocationHandle::close", handle, |handle| taken(&mut handle.0).close()).makes_no_call(),
        operation!("IpcAllocationHandle::uuid", handle, |handle| Ok(handle.0.as_ref().and_then(|it| it.uuid())))
            .makes_no_call(),
        operation!("IpcAllocationHandle::duplicate_of", handle, |handle| {
            let handle = taken(&mut handle.0);
            IpcAllocationHandle::duplicate_of(handle.as_raw_fd(), handle.uuid())
        })
        .makes_no_call(),
        operation!("IpcAllocationHandle::from_file", handle, |handle| {
            let handle = taken(&mut handle.0);
            let copy = std::mem::ManuallyDrop::new(IpcAllocationHandle::duplicate_of(handle.as_raw_fd(), None)?);
            // SAFETY: [test] its owner, which is not dropped, gives it up here.
            let file = unsafe { OwnedFd::from_raw_fd(copy.as_raw_fd()) };
            Ok(IpcAllocationHandle::from_file(file, handle.uuid()))
        })
        .makes_no_call(),
        operation!("IpcBufferDescriptor::from_raw", || Ok(()), |()| Ok(IpcBufferDescriptor::from_raw([0; 64], 4)))
            .makes_no_call(),
        operation!("IpcBufferDescriptor::size", shared, |shared| Ok(shared.descriptor.size())).makes_no_call(),
        operation!("IpcBufferDescriptor::pool", shared, |shared| Ok(shared.descriptor.pool())).makes_no_call(),
        operation!("IpcBufferDescriptor::to_bytes", shared, |shared| Ok(shared.descriptor.to_bytes())).makes_no_call(),
        operation!("IpcBufferDescriptor::from_bytes", shared, |shared| {
            IpcBufferDescriptor::from_bytes(&shared.descriptor.to_bytes())
        })
        .makes_no_call(),
        operation!("IpcEventDescriptor::from_raw", raw, |descriptor| Ok(descriptor.0.clone())).makes_no_call(),
        operation!("IpcEventDescriptor::blocking_sync", raw, |descriptor| Ok(descriptor.0.blocking_sync()))
            .makes_no_call(),
        operation!("IpcEventDescriptor::to_bytes", raw, |descriptor| Ok(descriptor.0.to_bytes())).makes_no_call(),
        operation!("IpcEventDescriptor::from_bytes", raw, |descriptor| {
            IpcEventDescriptor::from_bytes(&descriptor.0.to_bytes())
        })
        .makes_no_call(),
    ]
}
