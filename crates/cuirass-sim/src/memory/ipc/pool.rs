//! Pools and pool memory shared by handle. Only within this process: what another one exported is not simulated.

use super::super::pool::{PoolKey, Shape};
use super::super::{Allocation, GRAIN, Origin};
use crate::c::{In, Out, Untyped};
use crate::handle::Handle;
use crate::host;
use crate::status::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::{report, state, thread};
use cuirass_sys::cuda::{CUdeviceptr, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool};
use std::ffi::{c_int, c_ulonglong};

/// What an exported pool or pointer begins with.
const MARK: u64 = u64::from_le_bytes(*b"cuirass\0");

/// Which process exported something, and its number there.
struct Exported {
    process: u64,
    number: u64,
    start: u64,
}

impl Exported {
    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [MARK, self.process, self.number, self.start];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// # Errors
    /// `INVALID_VALUE` for what this driver did not export, `NOT_SUPPORTED` for another process's.
    fn read(bytes: &[u8]) -> Answer<Self> {
        let word = |at: usize| bytes.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
        let words = (|| Some([word(0)?, word(1)?, word(2)?, word(3)?]))();
        let Some([MARK, process, number, start]) = words else { return Err(INVALID_VALUE) };
        if process != u64::from(std::process::id()) {
            report::unsupported(format!("{}: memory shared between processes is not simulated", thread::place()));
            return Err(NOT_SUPPORTED);
        }
        Ok(Self { process, number, start })
    }
}

const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

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
    let shape = state.memory.pools.get(key).ok_or(INVALID_VALUE)?.shape;
    if flags != 0 || kind != FILE || shape.handle_types & FILE.0 == 0 || shape.imported {
        return Err(INVALID_VALUE);
    }
    let number = state.memory.number();
    state.memory.pools.share(number, key);
    let exported = Exported { process: std::process::id().into(), number, start: 0 };
    out.write(host::memory_file(&exported.bytes()).ok_or(OUT_OF_MEMORY)?)
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
    let exported = Exported::read(&host::read_file(file, 32).ok_or(INVALID_VALUE)?)?;
    let mut state = state::lock()?;
    let source = state.memory.pools.shared(exported.number).ok_or(INVALID_VALUE)?;
    let shape = state.memory.pools.get(source).ok_or(INVALID_VALUE)?.shape;
    let key = state.memory.pools.add(Shape { imported: true, ..shape }, false)?;
    pool.write(state.memory.pools.get(key).ok_or(INVALID_VALUE)?.handle.raw())
}

pub fn cuMemPoolExportPointer(out: Out<CUmemPoolPtrExportData>, dptr: CUdeviceptr) -> Answer {
    out.check()?;
    let state = state::lock()?;
    let Some(memory) = state.memory.find(dptr) else { return Err(state.memory.refuse(dptr)) };
    let Origin::Pool(key) = memory.origin else { return Err(INVALID_VALUE) };
    if state.memory.pools.get(key).ok_or(INVALID_VALUE)?.shape.handle_types & FILE.0 == 0 {
        return Err(INVALID_VALUE);
    }
    let exported = Exported { process: std::process::id().into(), number: memory.id, start: memory.start };
    let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
    data.reserved[..32].copy_from_slice(&exported.bytes());
    out.write(data)
}

pub fn cuMemPoolImportPointer(dptr: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<CUmemPoolPtrExportData>) -> Answer {
    dptr.check()?;
    let exported = Exported::read(&data.read()?.reserved)?;
    let mut state = state::lock()?;
    let key: PoolKey = state.memory.pools.key(Handle::of(pool))?;
    if !state.memory.pools.get(key).ok_or(INVALID_VALUE)?.shape.imported {
        return Err(INVALID_VALUE);
    }
    let source =
        state.memory.at(exported.start).filter(|memory| memory.id == exported.number).ok_or(INVALID_VALUE)?.clone();
    let device = source.device.ok_or(INVALID_VALUE)?;
    let arena = state.arena(device)?;
    let host = arena.host_of(source.start);
    // Another address for the same bytes.
    let start = arena.take(source.span + GRAIN, GRAIN).ok_or(OUT_OF_MEMORY)?;
    let id = state.memory.number();
    let access = state.memory.pools.get(key).map_or(0, |pool| pool.access);
    let allocation =
        Allocation { start, id, origin: Origin::Imported(key), made: thread::place(), since: None, ..source };
    state.memory.enter(allocation, host, access, true);
    dptr.write(start)
}
