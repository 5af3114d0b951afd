//! Memory and events shared between processes.

use crate::Result;
use crate::status::driver_call;
use cuirass_fault::{Failure, Misuse};
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

/// What the system says of a file descriptor that it refuses.
#[cold]
fn refused(doing: &str, file: c_int) -> Failure {
    let error = std::io::Error::last_os_error();
    Failure::misuse(Misuse::State, format!("file descriptor {file} could not be {doing}: {error}"))
}

/// A second descriptor of the same file, which no program that is started inherits.
pub fn duplicate_file(file: c_int) -> Result<c_int> {
    // SAFETY: [file-descriptor] a number that is none is refused.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(refused("duplicated", file)) } else { Ok(copy) }
}

/// Says that no program that is started inherits a file descriptor.
pub fn close_file_on_exec(file: c_int) -> Result<()> {
    // SAFETY: [file-descriptor] a number that is none is refused.
    let set = unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
    if set < 0 { Err(refused("marked", file)) } else { Ok(()) }
}

/// Closes a file descriptor: whatever the answer, it is spent.
pub fn close_file(file: c_int) -> Result<()> {
    // SAFETY: [file-descriptor] a number that is none is refused.
    let closed = unsafe { libc::close(file) };
    if closed < 0 { Err(refused("closed", file)) } else { Ok(()) }
}
