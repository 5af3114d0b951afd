//! Managed memory: advice, prefetch, ranges.

use super::Indices;
use crate::Result;
use crate::load;
use crate::status::driver_call;
use cuirass_sys::cuda::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUmemLocationType, CUstream,
};
use std::ffi::{c_int, c_uint};

/// `cuMemAllocManaged`; flags of `CUmemAttach_flags`.
pub fn alloc_managed(bytes: usize, flags: c_uint) -> Result<CUdeviceptr> {
    let mut address = 0;
    driver_call!(entry!(cuMemAllocManaged), (&raw mut address, bytes, flags), "{bytes} bytes, flags {flags}")?;
    Ok(address)
}

fn takes_locations() -> bool {
    load::is_since(12020)
}

/// A location as drivers before CUDA 12.2 have it, which know devices and the host: -1. `None` for what they cannot say.
fn device_of(location: &CUmemLocation) -> Option<CUdevice> {
    match location.type_ {
        // SAFETY: [plain-union] both members of the union are an int.
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(unsafe { location.__bindgen_anon_1.id }),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Some(-1),
        _ => None,
    }
}

/// `cuMemAdvise_v2` (before CUDA 12.2 `cuMemAdvise`, which knows devices and the host alone).
pub fn advise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: &CUmemLocation) -> Result<()> {
    if !takes_locations()
        && let Some(device) = device_of(location)
    {
        return driver_call!(
            entry!(cuMemAdvise),
            (address, bytes, advice, device),
            "{address:#x}, {bytes} bytes, advice {}, device {device}",
            advice.0
        );
    }
    driver_call!(
        entry!(cuMemAdvise_v2),
        (address, bytes, advice, *location),
        "{address:#x}, {bytes} bytes, advice {}",
        advice.0
    )
}

/// `cuMemPrefetchAsync_v2` (before CUDA 12.2 `cuMemPrefetchAsync`, which knows devices and the host alone).
pub fn prefetch_async(address: CUdeviceptr, bytes: usize, location: &CUmemLocation, stream: CUstream) -> Result<()> {
    if !takes_locations()
        && let Some(device) = device_of(location)
    {
        return driver_call!(
            entry!(cuMemPrefetchAsync),
            (address, bytes, device, stream),
            "{address:#x}, {bytes} bytes, device {device}, stream {stream:p}"
        );
    }
    driver_call!(
        entry!(cuMemPrefetchAsync_v2),
        (address, bytes, *location, 0, stream),
        "{address:#x}, {bytes} bytes, stream {stream:p}"
    )
}

/// `cuMemPrefetchBatchAsync`: one location for all ranges, or one each.
///
/// # Safety
/// `addresses` and `sizes` are of one length, and `locations` has one entry or as many.
pub unsafe fn prefetch_batch_async(
    addresses: &mut [CUdeviceptr],
    sizes: &mut [usize],
    locations: &mut [CUmemLocation],
    stream: CUstream,
) -> Result<()> {
    let mut indices = Indices::of(locations.len())?;
    driver_call!(
        entry!(cuMemPrefetchBatchAsync),
        (
            addresses.as_mut_ptr(),
            sizes.as_mut_ptr(),
            addresses.len(),
            locations.as_mut_ptr(),
            indices.as_mut_ptr(),
            locations.len(),
            0,
            stream
        ),
        "{} ranges, stream {stream:p}",
        addresses.len()
    )
}

/// `cuMemDiscardBatchAsync`
///
/// # Safety
/// `addresses` and `sizes` are of one length.
pub unsafe fn discard_batch_async(addresses: &mut [CUdeviceptr], sizes: &mut [usize], stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemDiscardBatchAsync),
        (addresses.as_mut_ptr(), sizes.as_mut_ptr(), addresses.len(), 0, stream),
        "{} ranges, stream {stream:p}",
        addresses.len()
    )
}

/// `cuMemDiscardAndPrefetchBatchAsync`: one location for all ranges, or one each.
///
/// # Safety
/// As [`prefetch_batch_async`].
pub unsafe fn discard_and_prefetch_batch_async(
    addresses: &mut [CUdeviceptr],
    sizes: &mut [usize],
    locations: &mut [CUmemLocation],
    stream: CUstream,
) -> Result<()> {
    let mut indices = Indices::of(locations.len())?;
    driver_call!(
        entry!(cuMemDiscardAndPrefetchBatchAsync),
        (
            addresses.as_mut_ptr(),
            sizes.as_mut_ptr(),
            addresses.len(),
            locations.as_mut_ptr(),
            indices.as_mut_ptr(),
            locations.len(),
            0,
            stream
        ),
        "{} ranges, stream {stream:p}",
        addresses.len()
    )
}

/// `cuMemRangeGetAttribute` of an attribute that is one int, or a list of devices: as many as `values` has room for, -2
/// where there are no more.
pub fn range_get_attribute(
    address: CUdeviceptr,
    bytes: usize,
    attribute: CUmem_range_attribute,
    values: &mut [c_int],
) -> Result<()> {
    driver_call!(
        entry!(cuMemRangeGetAttribute),
        (values.as_mut_ptr().cast(), size_of_val(values), attribute, address, bytes),
        "{address:#x}, {bytes} bytes, attribute {}",
        attribute.0
    )
}
