//! Virtual address ranges, physical handles, mappings.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation,
};
use std::ffi::{c_int, c_void};

/// `cuMemAddressReserve`: `hint` 0 leaves the place to the driver, `alignment` 0 its alignment.
pub fn address_reserve(bytes: usize, alignment: usize, hint: CUdeviceptr) -> Result<CUdeviceptr> {
    let mut address = 0;
    driver_call!(
        entry!(cuMemAddressReserve),
        (&raw mut address, bytes, alignment, hint, 0),
        "{bytes} bytes, aligned to {alignment}, at {hint:#x} if that is free"
    )?;
    Ok(address)
}

/// `cuMemAddressFree`
pub fn address_free(address: CUdeviceptr, bytes: usize) -> Result<()> {
    driver_call!(entry!(cuMemAddressFree), (address, bytes), "{address:#x}, {bytes} bytes")
}

/// `cuMemCreate`: physical memory, a multiple of its granularity.
pub fn create(bytes: usize, properties: &CUmemAllocationProp) -> Result<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    driver_call!(entry!(cuMemCreate), (&raw mut handle, bytes, properties, 0), "{bytes} bytes")?;
    Ok(handle)
}

/// `cuMemRelease`: the memory goes back once it is mapped nowhere.
pub fn release(handle: CUmemGenericAllocationHandle) -> Result<()> {
    driver_call!(entry!(cuMemRelease), (handle), "{handle:#x}")
}

/// `cuMemMap`: all of the physical memory.
pub fn map(address: CUdeviceptr, bytes: usize, handle: CUmemGenericAllocationHandle) -> Result<()> {
    driver_call!(
        entry!(cuMemMap),
        (address, bytes, 0, handle, 0),
        "{address:#x}, {bytes} bytes, physical memory {handle:#x}"
    )
}

/// `cuMemRetainAllocationHandle`: of the physical memory that is mapped there; it is released as one that was created.
pub fn retain_allocation_handle(address: CUdeviceptr) -> Result<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    // An address is passed as a pointer, which nobody follows.
    let pointer: *mut c_void = std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0));
    driver_call!(entry!(cuMemRetainAllocationHandle), (&raw mut handle, pointer), "{address:#x}")?;
    Ok(handle)
}

/// `cuMemUnmap`
pub fn unmap(address: CUdeviceptr, bytes: usize) -> Result<()> {
    driver_call!(entry!(cuMemUnmap), (address, bytes), "{address:#x}, {bytes} bytes")
}

/// `cuMemSetAccess`
pub fn set_access(address: CUdeviceptr, bytes: usize, access: &[CUmemAccessDesc]) -> Result<()> {
    driver_call!(
        entry!(cuMemSetAccess),
        (address, bytes, access.as_ptr(), access.len()),
        "{address:#x}, {bytes} bytes, {} places",
        access.len()
    )
}

/// `cuMemGetAccess`: the flags of `CUmemAccess_flags`.
pub fn get_access(address: CUdeviceptr, location: &CUmemLocation) -> Result<u64> {
    let mut flags = 0;
    driver_call!(entry!(cuMemGetAccess), (&raw mut flags, location, address), "{address:#x}")?;
    Ok(flags)
}

/// `cuMemGetAllocationGranularity`, in bytes.
pub fn get_allocation_granularity(
    properties: &CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> Result<usize> {
    let mut bytes = 0;
    driver_call!(entry!(cuMemGetAllocationGranularity), (&raw mut bytes, properties, option), "option {}", option.0)?;
    Ok(bytes)
}

/// `cuMemExportToShareableHandle`: a file descriptor, which the caller closes.
pub fn export_to_shareable_handle(handle: CUmemGenericAllocationHandle) -> Result<c_int> {
    let mut file: c_int = -1;
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    driver_call!(
        entry!(cuMemExportToShareableHandle),
        ((&raw mut file).cast(), handle, kind, 0),
        "physical memory {handle:#x}"
    )?;
    Ok(file)
}

/// `cuMemImportFromShareableHandle`: of a file descriptor, which stays the caller's.
pub fn import_from_shareable_handle(file: c_int) -> Result<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    // A file descriptor is passed as a pointer.
    let number: *mut c_void = std::ptr::without_provenance_mut(usize::try_from(file).unwrap_or(usize::MAX));
    driver_call!(entry!(cuMemImportFromShareableHandle), (&raw mut handle, number, kind), "file descriptor {file}")?;
    Ok(handle)
}
