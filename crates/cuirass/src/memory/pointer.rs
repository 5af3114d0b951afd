//! What the driver knows of an address that somebody else allocated.
#![allow(unsafe_code)]

use crate::{Outcome, Result};
use cuirass_call::memory::buffer as call;
use cuirass_call::sys::cuda::CUpointer_attribute;

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerInfo {
    /// Whether kernels can use it.
    pub is_device_accessible: bool,
    /// Whether the host can.
    pub is_host_accessible: bool,
    /// Whether it is managed memory, which moves between them.
    pub is_managed: bool,
    /// The ordinal of the device that it is on; `None` for host memory.
    pub device: Option<i32>,
}

/// `cuPointerGetAttributes`: what the driver knows of an address. One that it does not know is the host's own.
///
/// # Errors
/// What the driver answers.
pub fn pointer_info(address: u64) -> Result<PointerInfo> {
    Ok(read(address)?)
}

pub(super) fn read(address: u64) -> Outcome<PointerInfo> {
    Ok(read_with_range(address)?.0)
}

/// What the driver knows of the memory around an address: where it begins and how many bytes it has; `None` where it
/// does not tell.
pub(super) struct Around {
    pub start: u64,
    pub bytes: u64,
}

pub(super) fn read_with_range(address: u64) -> Outcome<(PointerInfo, Option<Around>)> {
    const HOST: u32 = 1;
    crate::driver::initialized()?;
    let (mut kind, mut managed, mut ordinal) = (0_u32, 0_u32, -1_i32);
    let (mut start, mut bytes) = (0_u64, 0_u64);
    // SAFETY: [pointer-attributes] the first three attributes are a 32-bit number each, the others of 64 bits.
    unsafe {
        call::pointer_get_attributes(
            &mut [
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            ],
            &mut [
                (&raw mut kind).cast(),
                (&raw mut managed).cast(),
                (&raw mut ordinal).cast(),
                (&raw mut start).cast(),
                (&raw mut bytes).cast(),
            ],
            address,
        )?;
    }
    let is_managed = managed != 0;
    let is_host = kind == HOST || kind == 0;
    let info = PointerInfo {
        is_device_accessible: kind != 0,
        is_host_accessible: is_host || is_managed,
        is_managed,
        device: (!is_host && ordinal >= 0).then_some(ordinal),
    };
    let is_around = bytes > 0 && start <= address && address - start < bytes;
    Ok((info, is_around.then_some(Around { start, bytes })))
}
