//! Devices by ordinal: names, attributes, memory size.

use crate::c::{Out, Text};
use crate::config::Config;
use crate::handle::Handle;
use crate::profile;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_DEVICE, INVALID_VALUE};
use cuirass_sys::cuda::{CUdevice, CUdevice_attribute, CUdevprop, CUexecAffinityType, CUuuid};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint};

/// One device.
pub struct Device {
    /// Its ordinal.
    pub ordinal: usize,
    /// Its memory in bytes.
    pub memory: u64,
    /// Its primary context, once it was retained; the handle stays.
    pub primary: Option<Handle>,
    /// How often the primary context is retained.
    pub retained: u32,
    /// The flags that the primary context is made with.
    pub primary_flags: u32,
    attributes: HashMap<u32, i32>,
}

/// The bus on which the devices sit, one slot each.
const BUS: i32 = 6;

impl Device {
    /// The device of an ordinal: the profile with what the configuration changes.
    pub fn new(ordinal: usize, config: &Config) -> Self {
        let mut attributes: HashMap<u32, i32> = profile::ATTRIBUTES.iter().copied().collect();
        attributes.insert(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID.0, BUS + ordinal as i32);
        if let Some(arch) = config.arch {
            attributes.insert(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.0, (arch / 10) as i32);
            attributes.insert(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.0, (arch % 10) as i32);
        }
        Self { ordinal, memory: config.memory, primary: None, retained: 0, primary_flags: 0, attributes }
    }

    /// An attribute, 0 if the profile has none.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> i32 {
        self.attributes.get(&attribute.0).copied().unwrap_or(0)
    }

    /// The compute capability: 90 for 9.0.
    pub fn arch(&self) -> u32 {
        let major = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        let minor = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        (major * 10 + minor) as u32
    }

    /// The bus address as text.
    fn bus_address(&self) -> String {
        format!("0000:00:{:02X}.0", BUS as usize + self.ordinal)
    }

    /// A name of the device that no other one has.
    fn uuid(&self) -> CUuuid {
        let mut bytes = *b"cuirass-sim-dev\0";
        bytes[15] = self.ordinal as u8;
        CUuuid { bytes: bytes.map(|byte| byte as c_char) }
    }
}

impl State {
    /// The device of an ordinal.
    ///
    /// # Errors
    /// `INVALID_DEVICE`
    pub fn device(&self, device: CUdevice) -> Answer<&Device> {
        usize::try_from(device).ok().and_then(|ordinal| self.devices.get(ordinal)).ok_or(INVALID_DEVICE)
    }

    /// As [`State::device`], to change it.
    ///
    /// # Errors
    /// `INVALID_DEVICE`
    pub fn device_mut(&mut self, device: CUdevice) -> Answer<&mut Device> {
        usize::try_from(device).ok().and_then(|ordinal| self.devices.get_mut(ordinal)).ok_or(INVALID_DEVICE)
    }
}

pub fn cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) -> Answer {
    device.check()?;
    state::lock()?.device(ordinal)?;
    device.write(ordinal)
}

pub fn cuDeviceGetCount(count: Out<c_int>) -> Answer {
    count.write(state::lock()?.devices.len() as c_int)
}

pub fn cuDeviceGetName(name: Out<c_char>, len: c_int, dev: CUdevice) -> Answer {
    state::lock()?.device(dev)?;
    name.write_text(profile::NAME, usize::try_from(len).unwrap_or(0))
}

pub fn cuDeviceGetUuid(uuid: Out<CUuuid>, dev: CUdevice) -> Answer {
    uuid.write(state::lock()?.device(dev)?.uuid())
}

pub fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, dev: CUdevice) -> Answer {
    uuid.write(state::lock()?.device(dev)?.uuid())
}

pub fn cuDeviceGetLuid(luid: Out<c_char>, mask: Out<c_uint>, dev: CUdevice) -> Answer {
    // Only Windows has them.
    state::lock()?.device(dev)?;
    luid.check()?;
    mask.check()?;
    Err(crate::status::NOT_SUPPORTED)
}

pub fn cuDeviceTotalMem_v2(bytes: Out<usize>, dev: CUdevice) -> Answer {
    bytes.write(state::lock()?.device(dev)?.memory as usize)
}

pub fn cuDeviceGetAttribute(value: Out<c_int>, attribute: CUdevice_attribute, dev: CUdevice) -> Answer {
    value.check()?;
    let state = state::lock()?;
    let found = state.device(dev)?.attributes.get(&attribute.0).copied();
    value.write(found.ok_or(INVALID_VALUE)?)
}

pub fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, dev: CUdevice) -> Answer {
    let arch = state::lock()?.device(dev)?.arch() as c_int;
    major.write(arch / 10)?;
    minor.write(arch % 10)
}

pub fn cuDeviceGetPCIBusId(text: Out<c_char>, len: c_int, dev: CUdevice) -> Answer {
    let address = state::lock()?.device(dev)?.bus_address();
    text.write_text(&address, usize::try_from(len).unwrap_or(0))
}

pub fn cuDeviceGetByPCIBusId(device: Out<CUdevice>, text: Text) -> Answer {
    let wanted = text.read()?.to_ascii_uppercase();
    let state = state::lock()?;
    let matches = |address: String| {
        let short = address.strip_prefix("0000:").unwrap_or(&address).to_owned();
        let bare = short.strip_suffix(".0").unwrap_or(&short).to_owned();
        [address, short, bare].contains(&wanted)
    };
    let found = state.devices.iter().find(|device| matches(device.bus_address()));
    device.write(found.ok_or(INVALID_DEVICE)?.ordinal as CUdevice)
}

pub fn cuDeviceGetExecAffinitySupport(supported: Out<c_int>, kind: CUexecAffinityType, dev: CUdevice) -> Answer {
    state::lock()?.device(dev)?;
    if kind != CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT {
        return Err(INVALID_VALUE);
    }
    // Only under the multi-process service.
    supported.write(0)
}

pub fn cuDeviceGetProperties(properties: Out<CUdevprop>, dev: CUdevice) -> Answer {
    use CUdevice_attribute as A;
    let state = state::lock()?;
    let device = state.device(dev)?;
    let get = |attribute| device.attribute(attribute);
    properties.write(CUdevprop {
        maxThreadsPerBlock: get(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        maxThreadsDim: [
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
        ],
        maxGridSize: [
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
        ],
        sharedMemPerBlock: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        totalConstantMemory: get(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        SIMDWidth: get(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        memPitch: get(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        regsPerBlock: get(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        clockRate: get(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        textureAlign: get(A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    })
}
