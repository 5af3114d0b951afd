//! Devices by ordinal: names, attributes, memory size.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUdevice, CUdevice_attribute, CUuuid};
use std::ffi::{c_char, c_int};

/// `cuDeviceGet`: the device of an ordinal.
pub fn get(ordinal: i32) -> Result<CUdevice> {
    let mut device = 0;
    driver_call!(entry!(cuDeviceGet), (&raw mut device, ordinal), "ordinal {ordinal}")?;
    Ok(device)
}

/// `cuDeviceGetCount`
pub fn get_count() -> Result<i32> {
    let mut count: c_int = 0;
    driver_call!(entry!(cuDeviceGetCount), (&raw mut count), "")?;
    Ok(count)
}

/// `cuDeviceGetName`
pub fn get_name(device: CUdevice) -> Result<String> {
    let mut bytes: [c_char; 256] = [0; 256];
    driver_call!(entry!(cuDeviceGetName), (bytes.as_mut_ptr(), 255, device), "device {device}")?;
    Ok(text_of(&bytes))
}

/// `cuDeviceGetUuid_v2`: the sixteen bytes that identify a device.
pub fn get_uuid(device: CUdevice) -> Result<[u8; 16]> {
    let mut uuid = CUuuid::default();
    driver_call!(entry!(cuDeviceGetUuid_v2), (&raw mut uuid, device), "device {device}")?;
    Ok(uuid.bytes.map(c_char::cast_unsigned))
}

/// `cuDeviceTotalMem_v2`: in bytes.
pub fn total_mem(device: CUdevice) -> Result<usize> {
    let mut bytes = 0;
    driver_call!(entry!(cuDeviceTotalMem_v2), (&raw mut bytes, device), "device {device}")?;
    Ok(bytes)
}

/// `cuDeviceGetAttribute`; `None` for an attribute that this driver does not know.
pub fn get_attribute(device: CUdevice, attribute: CUdevice_attribute) -> Result<Option<i32>> {
    let mut value: c_int = 0;
    let known = driver_call!(
        entry!(cuDeviceGetAttribute),
        (&raw mut value, attribute, device),
        answers INVALID_VALUE,
        "attribute {}, device {device}", attribute.0
    )?;
    Ok(known.then_some(value))
}

/// `cuDeviceGetPCIBusId`: `0000:06:00.0`
pub fn get_pci_bus_id(device: CUdevice) -> Result<String> {
    let mut bytes: [c_char; 32] = [0; 32];
    driver_call!(entry!(cuDeviceGetPCIBusId), (bytes.as_mut_ptr(), 31, device), "device {device}")?;
    Ok(text_of(&bytes))
}

fn text_of(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
