//! Memory and events shared between processes.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool,
};
use std::ffi::{c_int, c_void};

const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// `cuMemPoolExportToShareableHandle`: a file descriptor, which the caller closes.
pub fn pool_export_to_shareable_handle(pool: CUmemoryPool) -> Result<c_int> {
    let mut file: c_int = -1;
    driver_call!(entry!(cuMemPoolExportToShareableHandle), ((&raw mut file).cast(), pool, FILE, 0), "pool {pool:p}")?;
    Ok(file)
}

/// `cuMemPoolImportFromShareableHandle`: of a file descriptor, which stays the caller's.
pub fn pool_import_from_shareable_handle(file: c_int) -> Result<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    // A file descriptor is passed as a pointer.
    let number: *mut c_void = std::ptr::without_provenance_mut(usize::try_from(file).unwrap_or(usize::MAX));
    driver_call!(
        entry!(cuMemPoolImportFromShareableHandle),
        (&raw mut pool, number, FILE, 0),
        "file descriptor {file}"
    )?;
    Ok(pool)
}

/// `cuMemPoolExportPointer`
pub fn pool_export_pointer(address: CUdeviceptr) -> Result<CUmemPoolPtrExportData> {
    let mut data = CUmemPoolPtrExportData::default();
    driver_call!(entry!(cuMemPoolExportPointer), (&raw mut data, address), "{address:#x}")?;
    Ok(data)
}

/// `cuMemPoolImportPointer`
pub fn pool_import_pointer(pool: CUmemoryPool, data: &CUmemPoolPtrExportData) -> Result<CUdeviceptr> {
    let (mut address, mut data) = (0, *data);
    driver_call!(entry!(cuMemPoolImportPointer), (&raw mut address, pool, &raw mut data), "pool {pool:p}")?;
    Ok(address)
}

/// `cuIpcGetEventHandle`
pub fn get_event_handle(event: CUevent) -> Result<CUipcEventHandle> {
    let mut handle = CUipcEventHandle::default();
    driver_call!(entry!(cuIpcGetEventHandle), (&raw mut handle, event), "{event:p}")?;
    Ok(handle)
}

/// `cuIpcOpenEventHandle`
pub fn open_event_handle(handle: &CUipcEventHandle) -> Result<CUevent> {
    let mut event = std::ptr::null_mut();
    driver_call!(entry!(cuIpcOpenEventHandle), (&raw mut event, *handle), "")?;
    Ok(event)
}
