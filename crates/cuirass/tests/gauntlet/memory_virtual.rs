//! Virtual memory.

use crate::objects::{Plain, device, operation, stream, taken};
use cuirass::memory::{Location, MemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions};
use cuirass::{Buffer, Result, Stream};
use cuirass_testkit::operation::{Allowed, Caller, Operation};

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];

/// What gives the old addresses back.
const OLD_ADDRESSES: [&str; 10] = [
    "cuCtxSetCurrent",
    "cuCtxGetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventDestroy_v2",
    "cuMemUnmap",
    "cuMemAddressFree",
];

fn resource() -> Result<Plain<VirtualMemoryResource>> {
    VirtualMemoryResource::new(device(), VirtualMemoryResourceOptions::default()).map(Plain)
}

fn buffer() -> Result<(Option<Buffer>, Stream, Plain<VirtualMemoryResource>)> {
    let (resource, stream) = (resource()?, stream()?);
    Ok((Some(resource.0.allocate(1, &stream)?), stream, resource))
}

/// Twice as long.
fn grow(resource: &VirtualMemoryResource, buffer: &mut Option<Buffer>) -> Result<()> {
    let old = taken(buffer);
    let wanted = old.len() * 2;
    match resource.grow(old, wanted) {
        Ok(grown) => {
            *buffer = Some(grown);
            Ok(())
        }
        Err((same, error)) => {
            *buffer = Some(same);
            Err(error)
        }
    }
}

pub fn operations() -> Vec<Operation> {
    let unordered = || resource()?.0.allocate_unordered(1).map(Some);
    // The addresses behind it are taken, so that it has to move.
    let crowded = || {
        let (first, stream, resource) = buffer()?;
        let hint = first.as_ref().map_or(0, |first| first.as_raw() + first.len() as u64);
        let options = VirtualMemoryResourceOptions { address_hint: hint, ..Default::default() };
        let neighbour = VirtualMemoryResource::new(device(), options)?.allocate(1, &stream)?;
        Ok((first, neighbour, stream, resource))
    };
    let of_host = || {
        let options = VirtualMemoryResourceOptions { location: Some(Location::Host), ..Default::default() };
        let (resource, stream) = (VirtualMemoryResource::new(device(), options).map(Plain)?, stream()?);
        let mut buffer = Some(resource.0.allocate(1, &stream)?);
        grow(&resource.0, &mut buffer)?;
        Ok((buffer, stream, resource))
    };
    vec![
        operation!("VirtualMemoryResource::new", || Ok(()), |()| resource()).makes_no_call(),
        operation!("VirtualMemoryResource::options", resource, |resource| Ok(resource.0.options().clone()))
            .makes_no_call(),
        operation!("VirtualMemoryResource::granularity", resource, |resource| resource.0.granularity())
            .called_with(&ALL),
        operation!("VirtualMemoryResource::allocate", || Ok((resource()?, stream()?)), |(resource, stream)| {
            resource.0.allocate(1, stream)
        })
        .called_with(&ALL),
        operation!("VirtualMemoryResource::allocate", resource, |resource| {
            resource.0.allocate(1, &Stream::legacy_default())
        })
        .case("on the legacy default stream")
        .called_with(&ALL),
        operation!("VirtualMemoryResource::allocate_unordered", resource, |resource| {
            resource.0.allocate_unordered(1)
        })
        .called_with(&ALL),
        operation!("VirtualMemoryResource::grow", buffer, |(buffer, _, resource)| grow(&resource.0, buffer))
            .called_with(&ALL),
        operation!("VirtualMemoryResource::grow", crowded, |(buffer, _, _, resource)| grow(&resource.0, buffer))
            .case("elsewhere")
            .allow(Allowed::Reported(&OLD_ADDRESSES), "it has grown: what is left of the old addresses is reported")
            .called_with(&ALL),
        operation!("VirtualMemoryResource::deallocate", buffer, |(buffer, stream, resource)| {
            let buffer = taken(buffer);
            let bytes = buffer.len();
            resource.0.deallocate(buffer.into_raw(), bytes, stream)
        })
        .called_with(&ALL),
        operation!("VirtualMemoryResource::is_device_accessible", resource, |resource| {
            Ok(resource.0.is_device_accessible())
        })
        .makes_no_call(),
        operation!("VirtualMemoryResource::is_host_accessible", resource, |resource| {
            Ok(resource.0.is_host_accessible())
        })
        .makes_no_call(),
        operation!("VirtualMemoryResource::device", resource, |resource| Ok(resource.0.device())).makes_no_call(),
        operation!("Buffer::fill", of_host, |(buffer, stream, _)| {
            buffer.as_ref().map(|buffer| buffer.fill(1, stream)).transpose()
        })
        .case("memory of the host, in several mappings")
        .called_with(&ALL),
        operation!("Buffer::close", buffer, |(buffer, _, _)| taken(buffer).close()).case("virtual").called_with(&ALL),
        operation!("Buffer::close", unordered, |buffer| taken(buffer).close())
            .case("virtual, of no stream")
            .called_with(&ALL),
        operation!("Buffer (dropped)", buffer, |(buffer, _, _)| {
            drop(taken(buffer));
            Ok(())
        })
        .case("virtual")
        .reports()
        .called_with(&ALL),
    ]
}
