//! Where memory is, or is to be.

use crate::Outcome;
use crate::device::{Device, DeviceAttribute};
use cuirass_call::sys::cuda::{CUmemLocation, CUmemLocationType};

/// A device, or the host and a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A device.
    Device(Device),
    /// The host, wherever the system places it.
    Host,
    /// A NUMA node of the host, by its number.
    HostNuma(i32),
    /// The NUMA node that is nearest to the thread that asks.
    HostNumaCurrent,
}

impl Location {
    /// As the driver has it.
    pub(crate) fn raw(self) -> CUmemLocation {
        let (kind, id) = match self {
            Location::Device(device) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device.raw()),
            Location::Host => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Location::HostNuma(node) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node),
            Location::HostNumaCurrent => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0),
        };
        raw(kind, id)
    }

    /// The NUMA node of the host that is nearest to a device; the first where the driver knows none.
    pub(crate) fn nearest_node(device: Device) -> Outcome<Location> {
        let node = device.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)?;
        Ok(Location::HostNuma(node.unwrap_or(0).max(0)))
    }

    /// No place in particular.
    pub(crate) fn raw_none() -> CUmemLocation {
        raw(CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE, 0)
    }
}

fn raw(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    let mut location = CUmemLocation { type_: kind, ..CUmemLocation::default() };
    location.__bindgen_anon_1.id = id;
    location
}
