//! Virtual memory: ranges of addresses, physical memory, and mappings of one onto the other.
//!
//! Physical memory is a file in memory. Mapping it puts the file at the place in the host's memory that stands for the
//! addresses, so that neighbouring mappings are one piece, and memory mapped twice is the same memory.

use super::arena::Arena;
use super::live::{LIVE, Live, NO_DEVICE};
use super::managed::node;
use super::{Allocation, Memory, Origin, ipc};
use crate::c::{In, Out, Untyped, location_id};
use crate::handle::{Handle, Kind, Table};
use crate::host::{Purpose, SharedMemory};
use crate::order;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::{report, thread};
use cuirass_sys::cuda::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use std::collections::BTreeMap;
use std::ffi::c_ulonglong;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

/// Every size and address here is a multiple of it.
const PAGE: u64 = 2 << 20;
/// As many addresses as can be reserved at once, if the system has them.
const ADDRESSES: u64 = 1 << 40;

/// Physical memory.
struct Block {
    /// The device that it is of; `None`: the host.
    device: Option<usize>,
    len: u64,
    shareable: u32,
    imported: bool,
    memory: SharedMemory,
}

/// A handle of physical memory.
pub struct Physical {
    block: Arc<Block>,
    references: u32,
}

struct Mapping {
    block: Arc<Block>,
    /// The access of each device that has any.
    access: BTreeMap<usize, u32>,
    /// The host's own.
    host: u32,
}

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;

/// All virtual memory.
pub struct Virtual {
    addresses: Option<Arena>,
    reserved: BTreeMap<u64, u64>,
    physical: Table<Physical>,
    mapped: BTreeMap<u64, Mapping>,
}

impl Virtual {
    /// Whether a range lies in more than one mapping.
    pub fn has_several(&self, start: u64, len: u64) -> bool {
        self.mapped.range(start.saturating_add(1)..start.saturating_add(len)).next().is_some()
            && self.mapped.range(..=start).next_back().is_some_and(|(at, mapping)| start - at < mapping.block.len)
    }

    /// The mappings that a range meets.
    fn meeting(&self, start: u64, len: u64) -> impl Iterator<Item = &Mapping> {
        let end = start.saturating_add(len.max(1));
        let below = self.mapped.range(..end).rev();
        below.take_while(move |(at, mapping)| *at + mapping.block.len > start).map(|(_, mapping)| mapping)
    }

    /// Whether a range lies in more than one mapping, and one of them is of the host's memory.
    pub fn has_several_of_host(&self, start: u64, len: u64) -> bool {
        self.has_several(start, len) && self.meeting(start, len).any(|mapping| mapping.block.device.is_none())
    }

    /// Whether a device may write to all of a range.
    pub fn can_write(&self, device: usize, start: u64, len: u64) -> bool {
        self.meeting(start, len).all(|mapping| mapping.access.get(&device) == Some(&READ_WRITE))
    }

    /// Whether a device, and whether the host, was given access to what is mapped at an address.
    pub fn is_given(&self, address: u64, device: usize) -> (bool, bool) {
        let mapping = self.meeting(address, 1).next();
        let given = mapping.and_then(|mapping| mapping.access.get(&device)).is_some_and(|flags| *flags != 0);
        (given, mapping.is_some_and(|mapping| mapping.host != 0))
    }

    /// Whether all of a range is somebody's to read, or to write.
    pub fn is_shown(&self, start: u64, len: u64, writes: bool) -> bool {
        let least = if writes { READ_WRITE } else { 1 };
        let shown = |mapping: &Mapping| mapping.host >= least || mapping.access.values().any(|flags| *flags >= least);
        self.meeting(start, len).all(shown)
    }

    /// None.
    pub fn new() -> Self {
        Self {
            addresses: None,
            reserved: BTreeMap::new(),
            physical: Table::new(Kind::Physical),
            mapped: BTreeMap::new(),
        }
    }

    /// What is alive, by kind.
    pub fn census(&self) -> [(&'static str, u64); 3] {
        [
            ("address_range", self.reserved.len() as u64),
            ("physical_memory", self.physical.len() as u64),
            ("mapping", self.mapped.len() as u64),
        ]
    }

    /// Whether an address is one that could be reserved.
    pub fn holds(&self, address: u64) -> bool {
        self.addresses.as_ref().is_some_and(|arena| arena.holds(address))
    }

    fn addresses(&mut self) -> Answer<&mut Arena> {
        if self.addresses.is_none() {
            self.addresses = Arena::device(ADDRESSES, 1 << 30);
        }
        self.addresses.as_mut().ok_or(OUT_OF_MEMORY)
    }

    /// Whether a range lies in one reservation.
    fn is_reserved(&self, start: u64, len: u64) -> bool {
        let found = self.reserved.range(..=start).next_back();
        found.is_some_and(|(first, whole)| len > 0 && start - first + len <= *whole)
    }

    /// The mappings that make up a range, without a gap.
    fn mappings(&self, start: u64, len: u64) -> Answer<Vec<u64>> {
        let (mut at, mut found) = (start, Vec::new());
        let end = start.checked_add(len).ok_or(INVALID_VALUE)?;
        while at < end {
            found.push(at);
            at += self.mapped.get(&at).ok_or(INVALID_VALUE)?.block.len;
        }
        if at == end && len > 0 { Ok(found) } else { Err(INVALID_VALUE) }
    }
}

impl Default for Virtual {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// How many bytes from an address on are allocated, over neighbouring mappings too.
    pub fn room(&self, address: u64) -> u64 {
        let Some(first) = self.find(address) else { return 0 };
        let mut end = first.start + first.len;
        if first.origin == Origin::Virtual {
            while let Some(next) = self.at(end).filter(|next| next.origin == Origin::Virtual) {
                end += next.len;
            }
        }
        end - address
    }

    /// Gives physical memory back if this was its last share.
    fn drop_block(&mut self, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block)
            && let Some(used) = block.device.and_then(|device| self.used.get_mut(device))
        {
            *used -= block.len;
        }
    }
}

pub fn cuMemAddressReserve(
    out: Out<CUdeviceptr>,
    size: usize,
    alignment: usize,
    wish: CUdeviceptr,
    flags: c_ulonglong,
) -> Answer {
    out.check()?;
    let (size, alignment) = (size as u64, alignment as u64);
    let aligned = alignment == 0 || alignment.is_power_of_two();
    if size == 0 || !size.is_multiple_of(PAGE) || !aligned || flags != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let alignment = alignment.max(PAGE);
    let addresses = state.memory.virtuals.addresses()?;
    let wished = if wish != 0 && wish.is_multiple_of(alignment) { addresses.take_at(wish, size) } else { None };
    let start = wished.or_else(|| addresses.take(size, alignment)).ok_or(OUT_OF_MEMORY)?;
    state.memory.virtuals.reserved.insert(start, size);
    out.write(start)
}

pub fn cuMemAddressFree(start: CUdeviceptr, size: usize) -> Answer {
    let mut state = state::lock()?;
    let virtuals = &mut state.memory.virtuals;
    let size = size as u64;
    let mapped = virtuals.mapped.range(start..start.saturating_add(size)).next().is_some();
    if virtuals.reserved.get(&start) != Some(&size) || mapped {
        report::bug(format!("{}: {start:#x} is no reserved range of {size} bytes without mappings", thread::place()));
        return Err(INVALID_VALUE);
    }
    virtuals.reserved.remove(&start);
    virtuals.addresses()?.give(start, size);
    Ok(())
}

/// The device of physical memory; `None`: the host.
fn device_of(state: &State, prop: &CUmemAllocationProp) -> Answer<Option<usize>> {
    if prop.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(INVALID_VALUE);
    }
    match prop.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            state.device(location_id(&prop.location)).map(|device| Some(device.ordinal))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(None),
        _ => Err(INVALID_VALUE),
    }
}

/// Measured: the host's physical memory is on a node, none is made on the current one, and what is placed by the system
/// cannot be shared.
fn check_host(state: &State, prop: &CUmemAllocationProp) -> Answer {
    match prop.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST if prop.requestedHandleTypes.0 != 0 => Err(INVALID_VALUE),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Ok(()),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if location_id(&prop.location) == node(state)? => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the one way of sharing that is simulated.
const DESCRIPTOR: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

pub fn cuMemCreate(
    out: Out<CUmemGenericAllocationHandle>,
    size: usize,
    prop: In<CUmemAllocationProp>,
    flags: c_ulonglong,
) -> Answer {
    out.check()?;
    let prop = prop.read()?;
    let len = size as u64;
    let mut state = state::lock()?;
    let device = device_of(&state, &prop)?;
    if len == 0 || !len.is_multiple_of(PAGE) || flags != 0 {
        return Err(INVALID_VALUE);
    }
    let shareable = prop.requestedHandleTypes.0;
    if shareable & !DESCRIPTOR != 0 {
        return Err(NOT_SUPPORTED);
    }
    let memory = match device {
        Some(device) => {
            let total = state.devices.get(device).ok_or(INVALID_DEVICE)?.memory;
            if state.memory.used(device).checked_add(len).is_none_or(|used| used > total) {
                return Err(OUT_OF_MEMORY);
            }
            let memory = SharedMemory::create(size, Purpose::Physical).ok_or(OUT_OF_MEMORY)?;
            state.memory.used[device] += len;
            memory
        }
        None => {
            check_host(&state, &prop)?;
            if len > crate::host::default_memory().saturating_mul(2) {
                return Err(OUT_OF_MEMORY);
            }
            SharedMemory::create(size, Purpose::PhysicalHost).ok_or(OUT_OF_MEMORY)?
        }
    };
    let block = Arc::new(Block { device, len, shareable, imported: false, memory });
    out.write(state.memory.virtuals.physical.insert(Physical { block, references: 1 })?.0)
}

pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Answer {
    let mut state = state::lock()?;
    let memory = &mut state.memory;
    let physical = memory.virtuals.physical.get_mut(Handle(handle), INVALID_VALUE)?;
    physical.references -= 1;
    if physical.references == 0
        && let Some(physical) = memory.virtuals.physical.end(Handle(handle), INVALID_VALUE)
    {
        memory.drop_block(physical.block);
    }
    Ok(())
}

pub fn cuMemRetainAllocationHandle(out: Out<CUmemGenericAllocationHandle>, address: Untyped) -> Answer {
    out.check()?;
    let mut state = state::lock()?;
    let virtuals = &mut state.memory.virtuals;
    let at = address.address() as u64;
    let (start, mapping) = virtuals.mapped.range(..=at).next_back().ok_or(INVALID_VALUE)?;
    if at - start >= mapping.block.len {
        return Err(INVALID_VALUE);
    }
    let block = mapping.block.clone();
    let known = virtuals.physical.handles(|physical| Arc::ptr_eq(&physical.block, &block)).first().copied();
    let handle = match known {
        Some(handle) => {
            virtuals.physical.get_mut(handle, INVALID_VALUE)?.references += 1;
            handle
        }
        None => virtuals.physical.insert(Physical { block, references: 1 })?,
    };
    out.write(handle.0)
}

pub fn cuMemMap(
    start: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Answer {
    let mut state = state::lock()?;
    let memory = &mut state.memory;
    let block = memory.virtuals.physical.get(Handle(handle), INVALID_HANDLE)?.block.clone();
    let len = size as u64;
    let taken = memory.virtuals.mapped.range(start..start.saturating_add(len)).next().is_some();
    let fits = len == block.len && offset == 0 && start.is_multiple_of(PAGE);
    if flags != 0 || !fits || taken || !memory.virtuals.is_reserved(start, len) {
        return Err(INVALID_VALUE);
    }
    let host = memory.virtuals.addresses()?.host_of(start);
    if !block.memory.show(host) {
        return Err(OUT_OF_MEMORY);
    }
    let id = memory.number();
    let allocation = Allocation {
        start,
        len,
        span: len,
        device: block.device,
        context: Handle::NULL,
        origin: Origin::Virtual,
        id,
        made: thread::place(),
        since: None,
        sync_memops: false,
    };
    if order::on() {
        order::allocated(&allocation);
    }
    memory.book.insert(start, allocation);
    memory.virtuals.mapped.insert(start, Mapping { block, access: BTreeMap::new(), host: 0 });
    Ok(())
}

pub fn cuMemUnmap(start: CUdeviceptr, size: usize) -> Answer {
    let mut state = state::lock()?;
    let memory = &mut state.memory;
    for at in memory.virtuals.mappings(start, size as u64)? {
        if let Some(allocation) = memory.strike(at) {
            LIVE.remove(at, allocation.id);
        }
        let Some(mapping) = memory.virtuals.mapped.remove(&at) else { continue };
        let host = memory.virtuals.addresses()?.host_of(at);
        let closed = mapping.host == 0 || mapping.block.memory.close_to_program(at as usize);
        if !closed || !mapping.block.memory.hide(host) {
            return Err(OUT_OF_MEMORY);
        }
        memory.drop_block(mapping.block);
    }
    Ok(())
}

pub fn cuMemSetAccess(start: CUdeviceptr, size: usize, wanted: In<CUmemAccessDesc>, count: usize) -> Answer {
    let wanted = wanted.read_many(count)?;
    let mut state = state::lock()?;
    let (mut devices, mut host) = (Vec::new(), None);
    for wish in &wanted {
        let known = [
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        ];
        if !known.contains(&wish.flags) {
            return Err(INVALID_VALUE);
        }
        match wish.location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                devices.push((state.device(location_id(&wish.location))?.ordinal, wish.flags.0));
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                host = Some(wish.flags.0);
            }
            _ => return Err(INVALID_VALUE),
        }
    }
    let memory = &mut state.memory;
    let places = memory.virtuals.mappings(start, size as u64)?;
    let of_device = |at: &u64| memory.virtuals.mapped.get(at).is_some_and(|mapping| mapping.block.device.is_some());
    if host.is_some_and(|flags| flags != 0) && places.iter().any(of_device) {
        return Err(NOT_SUPPORTED);
    }
    for at in places {
        let place = memory.virtuals.addresses()?.host_of(at);
        let id = memory.at(at).ok_or(INVALID_VALUE)?.id;
        let mapping = memory.virtuals.mapped.get_mut(&at).ok_or(INVALID_VALUE)?;
        mapping.access.extend(devices.iter().copied());
        if let Some(flags) = host.filter(|flags| *flags != mapping.host) {
            let bytes = &mapping.block.memory;
            let writable = flags == READ_WRITE;
            let done = if flags == 0 {
                bytes.close_to_program(at as usize)
            } else {
                bytes.open_to_program(at as usize, writable)
            };
            if !done {
                return Err(OUT_OF_MEMORY);
            }
            mapping.host = flags;
        }
        let mask = |least: u32| {
            let all = mapping.access.iter().filter(|(_, flags)| **flags >= least);
            all.fold(0u64, |mask, (device, _)| mask | 1 << device)
        };
        let (readable, writable) = (mask(1), mask(READ_WRITE) != 0);
        LIVE.remove(at, id);
        if readable != 0 || mapping.host != 0 {
            let len = mapping.block.len;
            LIVE.add(Live { start: at, len, host: place, id, device: Some(NO_DEVICE), access: readable, writable });
        }
    }
    Ok(())
}

pub fn cuMemGetAccess(out: Out<c_ulonglong>, location: In<CUmemLocation>, address: CUdeviceptr) -> Answer {
    let location = location.read()?;
    let state = state::lock()?;
    let virtuals = &state.memory.virtuals;
    let (start, mapping) = virtuals.mapped.range(..=address).next_back().ok_or(INVALID_VALUE)?;
    if address - start >= mapping.block.len {
        return Err(INVALID_VALUE);
    }
    let flags = match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            mapping.access.get(&state.device(location_id(&location))?.ordinal).copied().unwrap_or(0)
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
            mapping.host
        }
        _ => return Err(INVALID_DEVICE),
    };
    out.write(flags.into())
}

pub fn cuMemGetAllocationGranularity(
    out: Out<usize>,
    prop: In<CUmemAllocationProp>,
    option: CUmemAllocationGranularity_flags,
) -> Answer {
    device_of(&*state::lock()?, &prop.read()?)?;
    if option.0 > CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED.0 {
        return Err(INVALID_VALUE);
    }
    out.write(PAGE as usize)
}

pub fn cuMemGetAllocationPropertiesFromHandle(
    out: Out<CUmemAllocationProp>,
    handle: CUmemGenericAllocationHandle,
) -> Answer {
    let state = state::lock()?;
    let block = &state.memory.virtuals.physical.get(Handle(handle), INVALID_VALUE)?.block;
    let node = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, ..CUmemLocation::default() };
    out.write(CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        // Measured: an import does not say how it can be shared.
        requestedHandleTypes: CUmemAllocationHandleType(if block.imported { 0 } else { block.shareable }),
        location: block.device.map_or(node, crate::c::device_location),
        ..CUmemAllocationProp::default()
    })
}

pub fn cuMemExportToShareableHandle(
    out: Untyped,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let state = state::lock()?;
    let block = &state.memory.virtuals.physical.get(Handle(handle), INVALID_VALUE)?.block;
    if flags != 0 || kind.0 != DESCRIPTOR || block.shareable & DESCRIPTOR == 0 {
        return Err(INVALID_VALUE);
    }
    let out = out.out::<i32>();
    out.check()?;
    out.write(block.memory.share().ok_or(OUT_OF_MEMORY)?.into_raw_fd())
}

pub fn cuMemImportFromShareableHandle(
    out: Out<CUmemGenericAllocationHandle>,
    shared: Untyped,
    kind: CUmemAllocationHandleType,
) -> Answer {
    out.check()?;
    if kind.0 != DESCRIPTOR {
        return Err(NOT_SUPPORTED);
    }
    let mut state = state::lock()?;
    let device = match state.here_even_lost() {
        Ok(context) => state.context(context)?.device,
        Err(_) => 0,
    };
    let descriptor = i32::try_from(shared.address()).or(Err(INVALID_VALUE))?;
    let adopt = |purpose| SharedMemory::adopt(descriptor, purpose);
    let (memory, device) = match adopt(Purpose::PhysicalHost) {
        Ok(memory) => (memory, None),
        Err(_another) => (adopt(Purpose::Physical).map_err(|error| ipc::status(&error, INVALID_VALUE))?, Some(device)),
    };
    let len = memory.len() as u64;
    if len == 0 || !len.is_multiple_of(PAGE) {
        return Err(INVALID_VALUE);
    }
    if let Some(used) = device.and_then(|device| state.memory.used.get_mut(device)) {
        *used += len;
    }
    let block = Arc::new(Block { device, len, shareable: DESCRIPTOR, imported: true, memory });
    out.write(state.memory.virtuals.physical.insert(Physical { block, references: 1 })?.0)
}
