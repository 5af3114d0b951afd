//! Occupancy: how many blocks of a kernel a multiprocessor holds at once.

use crate::c::{DynamicShared, Out};
use crate::device;
use crate::handle::Handle;
use crate::module::{Found, most_threads};
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use cuirass_ptx::Kernel;
use cuirass_sys::cuda::{CUdevice_attribute as Attribute, CUfunction, CUoccupancy_flags};
use std::ffi::{c_int, c_uint};

/// What of a device decides about launches and occupancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The largest grid.
    pub most_grid: [u32; 3],
    /// The largest block, direction by direction.
    pub most_block: [u32; 3],
    /// The most threads of a block.
    pub most_threads: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The most threads on a multiprocessor.
    pub threads: u32,
    /// The most blocks on a multiprocessor.
    pub blocks: u32,
    /// Registers of a multiprocessor.
    pub registers: u32,
    /// Shared memory of a multiprocessor.
    pub shared: u32,
    /// Shared memory that the system takes of each block.
    pub reserved_shared: u32,
    /// The most shared memory of a block that asks for it.
    pub most_shared: u32,
}

/// Registers are given to a warp this many at a time.
const REGISTER_UNIT: u32 = 256;
/// Shared memory is given to a block this many bytes at a time.
const SHARED_UNIT: u32 = 128;
/// A multiprocessor's registers are in this many equal parts, and a warp has all of its in one.
const PARTS: u32 = 4;
/// Threads of a warp.
const WARP: u32 = 32;

impl Device {
    /// Of a device.
    pub fn of(device: &device::Device) -> Self {
        let value = |attribute| u32::try_from(device.attribute(attribute)).unwrap_or(0);
        Self {
            most_grid: [
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            most_block: [
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            most_threads: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            multiprocessors: value(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            threads: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
            blocks: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
            registers: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
            shared: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            reserved_shared: value(Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
            most_shared: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        }
    }

    /// How many blocks fit on a multiprocessor: `threads` each, with so many registers a thread and bytes of shared
    /// memory.
    pub fn fitting(&self, threads: u32, registers: u32, shared: u64) -> u32 {
        if threads == 0 || threads > self.most_threads {
            return 0;
        }
        let warps = threads.div_ceil(WARP);
        let by_threads = self.threads / WARP / warps;
        let per_warp = (registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
        let by_registers = if per_warp * warps.next_multiple_of(PARTS) > self.registers {
            0
        } else {
            self.registers / PARTS / per_warp * PARTS / warps
        };
        let taken = (shared + u64::from(self.reserved_shared)).next_multiple_of(SHARED_UNIT.into());
        let by_shared = if shared > self.most_shared.into() { 0 } else { (u64::from(self.shared) / taken) as u32 };
        self.blocks.min(by_threads).min(by_registers).min(by_shared)
    }
}

/// How many blocks of a kernel fit on a multiprocessor.
pub fn blocks(kernel: &Kernel, device: &Device, threads: u32, dynamic_shared: u64) -> u32 {
    device.fitting(threads, kernel.registers(), u64::from(kernel.static_shared_bytes()) + dynamic_shared)
}

/// The kernel that a call is about, in the current context.
fn about(state: &mut State, function: CUfunction) -> Answer<(Found, Device, u32)> {
    let here = state.here()?;
    let found = state.callable(Handle::of(function), here)?;
    let ordinal = state.context(found.context)?.device;
    let device = state.devices.get(ordinal).ok_or(INVALID_VALUE)?;
    let most = most_threads(&found.callable.kernel, device);
    Ok((found, Device::of(device), most))
}

fn check_flags(flags: c_uint) -> Answer {
    if flags > CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

fn active(count: Out<c_int>, function: CUfunction, threads: c_int, shared: usize) -> Answer {
    count.check()?;
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(INVALID_VALUE)?;
    let (found, device, most) = about(&mut *state::lock()?, function)?;
    let blocks = if threads > most { 0 } else { blocks(&found.callable.kernel, &device, threads, shared as u64) };
    count.write(blocks as c_int)
}

pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    count: Out<c_int>,
    function: CUfunction,
    threads: c_int,
    shared: usize,
) -> Answer {
    active(count, function, threads, shared)
}

pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    count: Out<c_int>,
    function: CUfunction,
    threads: c_int,
    shared: usize,
    flags: c_uint,
) -> Answer {
    check_flags(flags)?;
    active(count, function, threads, shared)
}

/// The block size with which most threads fit, and how many blocks fill the device.
fn potential(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared_of: Option<DynamicShared>,
    shared: usize,
    limit: c_int,
) -> Answer {
    grid.check()?;
    block.check()?;
    if limit < 0 {
        return Err(INVALID_VALUE);
    }
    let (found, device, most) = about(&mut *state::lock()?, function)?;
    let most = if limit == 0 { most } else { most.min(limit as u32) };
    let (mut best, mut best_threads, mut best_blocks) = (0, 0, 0);
    // From the largest block down, whole warps but for the first.
    let mut wanted = most.next_multiple_of(WARP);
    while wanted > 0 && best < device.threads {
        let threads = wanted.min(most);
        let shared = shared_of.map_or(shared, |shared_of| shared_of.of(threads as c_int));
        let blocks = blocks(&found.callable.kernel, &device, threads, shared as u64);
        if blocks * threads > best {
            (best, best_threads, best_blocks) = (blocks * threads, threads, blocks);
        }
        wanted -= WARP;
    }
    grid.write((best_blocks * device.multiprocessors) as c_int)?;
    block.write(best_threads as c_int)
}

pub fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared_of: Option<DynamicShared>,
    shared: usize,
    limit: c_int,
) -> Answer {
    potential(grid, block, function, shared_of, shared, limit)
}

pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared_of: Option<DynamicShared>,
    shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Answer {
    check_flags(flags)?;
    potential(grid, block, function, shared_of, shared, limit)
}

pub fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<usize>,
    function: CUfunction,
    blocks: c_int,
    threads: c_int,
) -> Answer {
    bytes.check()?;
    let positive = |value: c_int| u32::try_from(value).ok().filter(|value| *value > 0).ok_or(INVALID_VALUE);
    let (wanted, threads) = (positive(blocks)?, positive(threads)?);
    let (found, device, most) = about(&mut *state::lock()?, function)?;
    let kernel = &found.callable.kernel;
    if threads > most || self::blocks(kernel, &device, threads, 0) < wanted {
        return Err(INVALID_VALUE);
    }
    let share = device.shared / wanted / SHARED_UNIT * SHARED_UNIT;
    let usable = share.saturating_sub(device.reserved_shared).min(device.most_shared);
    bytes.write(usable.saturating_sub(kernel.static_shared_bytes()) as usize)
}
