//! Buffers, and the resources that make them.

use crate::objects::{Plain, buffer, device, operation, other_context, own_pool, pool, stream, taken};
use cuirass::memory::{
    Buffer, LegacyPinnedMemoryResource, MemoryResource, PinnedMemory, SynchronousMemoryResource, pointer_info,
};
use cuirass::{Device, Result, Stream, StreamOptions};
use cuirass_testkit::operation::{Allowed, Caller, Operation};
use std::sync::Arc;

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const OTHERS: &str = "the stream, the pool and the context are other objects: close() answers for its own";

/// A user's own resource, over the default pool.
struct Own;

impl MemoryResource for Own {
    fn allocate(&self, bytes: usize, stream: &Stream) -> Result<Buffer> {
        let address = pool()?.allocate(bytes, stream)?.into_raw();
        // SAFETY: [test] pooled memory, freed when it is given back.
        Ok(unsafe { Buffer::from_resource(address, bytes, Arc::new(Own), stream) })
    }

    fn deallocate(&self, address: u64, bytes: usize, stream: &Stream) -> Result<()> {
        MemoryResource::deallocate(&pool()?, address, bytes, stream)
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        false
    }

    fn device(&self) -> Option<Device> {
        Some(device())
    }
}

fn pooled() -> Result<(Option<Buffer>, Stream)> {
    let stream = stream()?;
    Ok((Some(buffer(&stream)?), stream))
}

/// The last share of a stream, of a pool and of a context.
fn last() -> Result<Option<Buffer>> {
    let context = other_context()?;
    let stream = Stream::create(&context, &StreamOptions::default())?;
    own_pool()?.allocate(64, &stream).map(Some)
}

fn synchronous() -> Result<Option<Buffer>> {
    SynchronousMemoryResource::new(device())?.allocate(64, &Stream::legacy_default()).map(Some)
}

fn pinned() -> Result<Option<Buffer>> {
    LegacyPinnedMemoryResource.allocate(64, &Stream::legacy_default()).map(Some)
}

fn on_default() -> Result<Option<Buffer>> {
    pool()?.allocate(64, &Stream::legacy_default()).map(Some)
}

fn of_resource() -> Result<(Option<Buffer>, Stream)> {
    let stream = stream()?;
    Ok((Some(Own.allocate(64, &stream)?), stream))
}

pub fn operations() -> Vec<Operation> {
    let mut operations = closing();
    operations.extend(dropping());
    operations.extend(resources());
    operations.extend(of_buffers());
    operations.extend(page_locked());
    operations
}

fn closing() -> Vec<Operation> {
    vec![
        operation!("Buffer::close", pooled, |(buffer, _)| taken(buffer).close()),
        operation!("Buffer::close", on_default, |buffer| taken(buffer).close())
            .case("on a default stream")
            .called_with(&ALL),
        operation!("Buffer::close", last, |buffer| taken(buffer).close())
            .case("the last of its stream, pool and context")
            .allow(
                Allowed::Reported(&[
                    "cuStreamDestroy_v2",
                    "cuMemPoolDestroy",
                    "cuCtxDestroy_v2",
                    "cuThreadExchangeStreamCaptureMode",
                    "cuStreamIsCapturing",
                ]),
                OTHERS,
            ),
        operation!("Buffer::close", synchronous, |buffer| taken(buffer).close()).case("cuMemAlloc"),
        operation!("Buffer::close", pinned, |buffer| taken(buffer).close()).case("page-locked").called_with(&ALL),
        operation!("Buffer::close", of_resource, |(buffer, _)| taken(buffer).close()).case("of a user's resource"),
        operation!("Buffer::close_on", || Ok((pooled()?, stream()?)), |((buffer, _), stream)| {
            taken(buffer).close_on(stream)
        }),
        operation!("Buffer::close_on", pooled, |(buffer, _)| taken(buffer).close_on(&Stream::legacy_default()))
            .case("a default stream")
            .called_with(&ALL),
        operation!("Buffer::close_on", of_resource, |(buffer, _)| taken(buffer).close_on(&Stream::legacy_default()))
            .case("a default stream, of a user's resource"),
        operation!("Buffer::close_on", || Ok((synchronous()?, stream()?)), |(buffer, stream)| {
            taken(buffer).close_on(stream)
        })
        .case("of memory that no stream orders"),
    ]
}

fn dropping() -> Vec<Operation> {
    vec![
        operation!("Buffer (dropped)", pooled, |(buffer, _)| {
            drop(taken(buffer));
            Ok(())
        })
        .reports(),
        operation!("Buffer (dropped)", on_default, |buffer| {
            drop(taken(buffer));
            Ok(())
        })
        .case("on a default stream")
        .called_with(&ALL)
        .reports(),
        operation!("Buffer (dropped)", last, |buffer| {
            drop(taken(buffer));
            Ok(())
        })
        .case("the last of its stream, pool and context")
        .reports(),
        operation!("Buffer (dropped)", synchronous, |buffer| {
            drop(taken(buffer));
            Ok(())
        })
        .case("cuMemAlloc")
        .reports(),
        operation!("Buffer (dropped)", pinned, |buffer| {
            drop(taken(buffer));
            Ok(())
        })
        .case("page-locked")
        .called_with(&ALL)
        .reports(),
        operation!("Buffer (dropped)", of_resource, |(buffer, _)| {
            drop(taken(buffer));
            Ok(())
        })
        .case("of a user's resource")
        .reports(),
    ]
}

fn resources() -> Vec<Operation> {
    let synchronous_resource = || SynchronousMemoryResource::new(device()).map(Plain);
    vec![
        operation!("SynchronousMemoryResource::new", || Ok(()), |()| SynchronousMemoryResource::new(device()))
            .makes_no_call(),
        operation!("SynchronousMemoryResource::allocate", synchronous_resource, |resource| {
            resource.0.allocate(64, &Stream::legacy_default())
        })
        .called_with(&ALL),
        operation!("SynchronousMemoryResource::deallocate", synchronous, |buffer| {
            let (resource, buffer) = (SynchronousMemoryResource::new(device())?, taken(buffer));
            let bytes = buffer.len();
            resource.deallocate(buffer.into_raw(), bytes, &Stream::legacy_default())
        }),
        operation!("SynchronousMemoryResource::is_device_accessible", synchronous_resource, |resource| {
            Ok(resource.0.is_device_accessible())
        })
        .makes_no_call(),
        operation!("SynchronousMemoryResource::is_host_accessible", synchronous_resource, |resource| {
            Ok(resource.0.is_host_accessible())
        })
        .makes_no_call(),
        operation!("SynchronousMemoryResource::device", synchronous_resource, |resource| Ok(resource.0.device()))
            .makes_no_call(),
        operation!("LegacyPinnedMemoryResource::allocate", || Ok(()), |()| {
            LegacyPinnedMemoryResource.allocate(64, &Stream::legacy_default())
        })
        .called_with(&ALL),
        operation!("LegacyPinnedMemoryResource::deallocate", pinned, |buffer| {
            let buffer = taken(buffer);
            let bytes = buffer.len();
            LegacyPinnedMemoryResource.deallocate(buffer.into_raw(), bytes, &Stream::legacy_default())
        })
        .called_with(&ALL),
        operation!("LegacyPinnedMemoryResource::is_device_accessible", || Ok(()), |()| {
            Ok(LegacyPinnedMemoryResource.is_device_accessible())
        })
        .makes_no_call(),
        operation!("LegacyPinnedMemoryResource::is_host_accessible", || Ok(()), |()| {
            Ok(LegacyPinnedMemoryResource.is_host_accessible())
        })
        .makes_no_call(),
        operation!("LegacyPinnedMemoryResource::device", || Ok(()), |()| Ok(LegacyPinnedMemoryResource.device()))
            .makes_no_call(),
    ]
}

fn of_buffers() -> Vec<Operation> {
    let kept = || {
        let stream = stream()?;
        Ok((buffer(&stream)?, stream))
    };
    vec![
        operation!("Buffer::set_deallocation_stream", move || Ok((kept()?, stream()?)), |((buffer, _), stream)| {
            buffer.set_deallocation_stream(stream)
        })
        .makes_no_call(),
        operation!("Buffer::set_deallocation_stream", kept, |(buffer, _)| {
            buffer.set_deallocation_stream(&Stream::legacy_default())
        })
        .case("a default stream")
        .called_with(&ALL),
        operation!("Buffer::ready_on", move || Ok((kept()?, stream()?)), |((buffer, _), stream)| buffer
            .ready_on(stream))
        .called_with(&ALL),
        operation!("Buffer::ready_on", kept, |(buffer, _)| buffer.ready_on(&Stream::legacy_default()))
            .case("the legacy default stream")
            .called_with(&ALL),
        operation!("Buffer::into_raw", pooled, |(buffer, stream)| {
            let buffer = taken(buffer);
            let (bytes, resource) = (buffer.len(), pool()?);
            let address = buffer.into_raw();
            // SAFETY: [test] nobody else frees it.
            Ok(unsafe { Buffer::from_raw(address, bytes, &resource, stream) })
        })
        .makes_no_call(),
        operation!("Buffer::from_raw", pooled, |(buffer, stream)| {
            let (address, resource) = (taken(buffer).into_raw(), pool()?);
            // SAFETY: [test] nobody else frees it.
            Ok(unsafe { Buffer::from_raw(address, 64, &resource, stream) })
        })
        .makes_no_call(),
        operation!("Buffer::borrow_raw", kept, |(buffer, _)| {
            // SAFETY: [test] the owner is kept.
            Ok(unsafe { Buffer::borrow_raw(buffer.as_raw(), buffer.len(), None) })
        })
        .makes_no_call(),
        operation!("Buffer::from_resource", pooled, |(buffer, stream)| {
            // SAFETY: [test] pooled memory, freed when it is given back.
            Ok(unsafe { Buffer::from_resource(taken(buffer).into_raw(), 64, Arc::new(Own), stream) })
        })
        .makes_no_call(),
        operation!("pointer_info", kept, |(buffer, _)| pointer_info(buffer.as_raw())),
        operation!("Buffer::as_raw", kept, |(buffer, _)| Ok(buffer.as_raw())).makes_no_call(),
        operation!("Buffer::len", kept, |(buffer, _)| Ok(buffer.len())).makes_no_call(),
        operation!("Buffer::is_empty", kept, |(buffer, _)| Ok(buffer.is_empty())).makes_no_call(),
        operation!("Buffer::deallocation_stream", kept, |(buffer, _)| Ok(buffer.deallocation_stream())).makes_no_call(),
        operation!("Buffer::pool", kept, |(buffer, _)| Ok(buffer.pool())).makes_no_call(),
        operation!("Buffer::is_device_accessible", kept, |(buffer, _)| Ok(buffer.is_device_accessible()))
            .makes_no_call(),
        operation!("Buffer::is_host_accessible", kept, |(buffer, _)| Ok(buffer.is_host_accessible())).makes_no_call(),
        operation!("Buffer::device", kept, |(buffer, _)| Ok(buffer.device())).makes_no_call(),
    ]
}

fn page_locked() -> Vec<Operation> {
    let memory = || PinnedMemory::<u32>::from_slice(&[7; 16]);
    vec![
        operation!("PinnedMemory::zeroed", || Ok(()), |()| PinnedMemory::<u32>::zeroed(16)).called_with(&ALL),
        operation!("PinnedMemory::from_slice", || Ok(()), |()| PinnedMemory::from_slice(&[7_u32; 16])),
        operation!("PinnedMemory::close", move || memory().map(Some), |memory| taken(memory).close()).called_with(&ALL),
        operation!("PinnedMemory (dropped)", move || memory().map(Some), |memory| {
            drop(taken(memory));
            Ok(())
        })
        .called_with(&ALL)
        .reports(),
        operation!("PinnedMemory::as_slice", memory, |memory| Ok(memory.as_slice().len())).makes_no_call(),
        operation!("PinnedMemory::as_mut_slice", memory, |memory| Ok(memory.as_mut_slice().len())).makes_no_call(),
    ]
}
