//! Access between devices.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemoryPool};

/// `cuDeviceCanAccessPeer`
pub fn device_can_access_peer(device: CUdevice, peer: CUdevice) -> Result<bool> {
    let mut can = 0;
    driver_call!(entry!(cuDeviceCanAccessPeer), (&raw mut can, device, peer), "device {device}, peer {peer}")?;
    Ok(can != 0)
}

/// `cuMemPoolSetAccess`
pub fn pool_set_access(pool: CUmemoryPool, access: &[CUmemAccessDesc]) -> Result<()> {
    driver_call!(
        entry!(cuMemPoolSetAccess),
        (pool, access.as_ptr(), access.len()),
        "pool {pool:p}, {} places",
        access.len()
    )
}

/// `cuMemPoolGetAccess`
pub fn pool_get_access(pool: CUmemoryPool, location: &CUmemLocation) -> Result<CUmemAccess_flags> {
    let mut flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
    let mut location = *location;
    driver_call!(
        entry!(cuMemPoolGetAccess),
        (&raw mut flags, pool, &raw mut location),
        "pool {pool:p}, location type {}",
        location.type_.0
    )?;
    Ok(flags)
}
