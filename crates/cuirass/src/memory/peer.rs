//! Access between devices: whose memory a device's kernels may use.

use crate::context::capture;
use crate::device::Device;
use crate::memory::location::Location;
use crate::memory::pool::MemoryPool;
use crate::{Outcome, Result};
use cuirass_call::memory::peer as call;
use cuirass_call::sys::cuda::{CUmemAccess_flags, CUmemAccessDesc, CUmemoryPool};
use cuirass_fault::Failure;
use smallvec::SmallVec;

const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const NONE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;

fn descriptions<'a>(devices: &'a [Device], flags: CUmemAccess_flags) -> impl Iterator<Item = CUmemAccessDesc> + 'a {
    devices.iter().map(move |device| CUmemAccessDesc { location: Location::Device(*device).raw(), flags })
}

impl Device {
    /// Whether this device's kernels can be given access to memory of another one (`cuDeviceCanAccessPeer`).
    ///
    /// # Errors
    /// What the driver answers.
    pub fn can_access_peer(self, peer: Device) -> Result<bool> {
        Ok(call::device_can_access_peer(self.raw(), peer.raw())?)
    }
}

impl MemoryPool {
    /// Whether a device's kernels may read and write its memory, as the driver says now (`cuMemPoolGetAccess`).
    ///
    /// # Errors
    /// What the driver answers.
    pub fn is_accessible_by(&self, device: Device) -> Result<bool> {
        Ok(call::pool_get_access(self.as_raw(), &Location::Device(device).raw())? == READ_WRITE)
    }

    /// Gives some devices access to its memory, what is allocated already included, and takes it from others, in one
    /// `cuMemPoolSetAccess`. Its own device always has it. This can take seconds.
    ///
    /// # Errors
    /// What the driver answers: for a device that cannot have access, or that the pool is on and is to lose it.
    pub fn set_access(&self, granted: &[Device], revoked: &[Device]) -> Result<()> {
        let access: Vec<CUmemAccessDesc> =
            descriptions(granted, READ_WRITE).chain(descriptions(revoked, NONE)).collect();
        if access.is_empty() {
            return Ok(());
        }
        // What was granted is noted first: whatever the call answers, it may have been done.
        self.note_granted(granted);
        call::pool_set_access(self.as_raw(), &access)?;
        self.note_revoked(revoked);
        Ok(())
    }
}

/// Gives all devices access to the memory of a pool of the host. Measured: a driver gives none by itself. The pool is
/// undone where that fails.
pub(super) fn open_to_all(pool: MemoryPool) -> Outcome<MemoryPool> {
    let opened = Device::all().map_err(Failure::from).and_then(|devices| {
        let access: Vec<CUmemAccessDesc> = descriptions(&devices, READ_WRITE).collect();
        call::pool_set_access(pool.as_raw(), &access)
    });
    match (opened, pool) {
        (Ok(()), pool) => Ok(pool),
        (Err(failure), pool) => Err(match pool.close() {
            Ok(()) => failure,
            Err(closing) => Failure::from(closing).attach_to(failure, "the pool was not undone"),
        }),
    }
}

/// Gives access to the memory of the driver's own pool of the host to the devices that have none: its memory is then what
/// that of other pools of the host is. It was so for the process before, or is from now on, so that nothing is undone
/// where a step fails. This disturbs no capture on any thread.
pub(super) fn open_to_the_rest(pool: &MemoryPool) -> Outcome<()> {
    let devices = Device::all()?;
    capture::relaxed(|| {
        let mut access: SmallVec<[CUmemAccessDesc; 8]> = SmallVec::new();
        for description in descriptions(&devices, READ_WRITE) {
            if call::pool_get_access(pool.as_raw(), &description.location)? != READ_WRITE {
                access.push(description);
            }
        }
        if access.is_empty() { Ok(()) } else { call::pool_set_access(pool.as_raw(), &access) }
    })
}

/// Takes access to a pool's memory from devices, as its end does: the memory of a pool that is made later may be the
/// same, and must not come with it.
pub(super) fn revoke(pool: CUmemoryPool, devices: &[Device]) -> Outcome<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let access: Vec<CUmemAccessDesc> = descriptions(devices, NONE).collect();
    call::pool_set_access(pool, &access)
}
