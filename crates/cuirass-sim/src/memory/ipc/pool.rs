//! Pools and pool memory shared by handle.

use super::super::Origin;
use super::super::pool::Backing;
use super::file::{Pointer, Source};
use super::import;
use crate::c::{In, Out, Untyped};
use crate::handle::Handle;
use crate::state;
use crate::status::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::{report, thread};
use cuirass_sys::cuda::{CUdeviceptr, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool};
use std::ffi::{c_int, c_ulonglong};
use std::os::fd::IntoRawFd;
use std::sync::Arc;

/// The one way of sharing that is simulated.
pub const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

pub fn cuMemPoolExportToShareableHandle(
    out: Untyped,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let out = out.out::<c_int>();
    out.check()?;
    let mut state = state::lock()?;
    state.potentially_unsafe()?;
    let key = state.memory.pools.key(Handle::of(pool))?;
    if flags != 0 || kind != FILE {
        return Err(INVALID_VALUE);
    }
    // An imported pool is its maker's to export.
    let file = state.memory.pools.file(key).ok_or(INVALID_VALUE)?;
    out.write(file.share().ok_or(OUT_OF_MEMORY)?.into_raw_fd())
}

pub fn cuMemPoolImportFromShareableHandle(
    pool: Out<CUmemoryPool>,
    handle: Untyped,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    pool.check()?;
    let file = c_int::try_from(handle.address()).or(Err(INVALID_VALUE))?;
    if flags != 0 || kind != FILE {
        return Err(INVALID_VALUE);
    }
    let (source, shape) = Source::open(file)?;
    let mut state = state::lock()?;
    if shape.device.is_some_and(|device| device >= state.devices.len()) {
        return Err(INVALID_VALUE);
    }
    // Measured: while a pool is imported it is imported again as the same, which ends when each of them was destroyed.
    if let Some(known) = state.memory.pools.imported(source.number) {
        state.memory.pools.imported_again(known);
        return pool.write(known.raw());
    }
    let key = state.memory.pools.add(shape, Backing::Imported(Arc::new(source)), false)?;
    pool.write(state.memory.pools.get(key).ok_or(INVALID_VALUE)?.handle.raw())
}

pub fn cuMemPoolExportPointer(out: Out<CUmemPoolPtrExportData>, dptr: CUdeviceptr) -> Answer {
    out.check()?;
    let mut state = state::lock()?;
    let Some(memory) = state.memory.find(dptr) else { return Err(state.memory.refuse(dptr)) };
    let (start, len, id) = (memory.start, memory.len, memory.id);
    let Origin::Pool(key) = memory.origin else { return Err(INVALID_VALUE) };
    let file = state.memory.pools.file(key).ok_or(INVALID_VALUE)?;
    if !file.is_shared() {
        let place = thread::place();
        report::bug(format!("{place} was given memory of a pool that cuMemPoolExportToShareableHandle never exported"));
        return Err(INVALID_VALUE);
    }
    let pointer = file.export(start, len, id).ok_or(OUT_OF_MEMORY)?;
    out.write(CUmemPoolPtrExportData { reserved: pointer.bytes() })
}

pub fn cuMemPoolImportPointer(dptr: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<CUmemPoolPtrExportData>) -> Answer {
    dptr.check()?;
    let pointer = Pointer::read(data.read()?.reserved)?;
    let mut state = state::lock()?;
    let key = state.memory.pools.key(Handle::of(pool))?;
    let Backing::Imported(source) = &state.memory.pools.get(key).ok_or(INVALID_VALUE)?.backing else {
        return Err(INVALID_VALUE);
    };
    let source = source.clone();
    dptr.write(import::import(&mut state, key, source, pointer)?)
}
