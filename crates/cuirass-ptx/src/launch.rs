//! What a launch is made of, and what the caller lends it.

use crate::module::{Kernel, Loaded};
use crate::watch::Touched;

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its first device address.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The host address of its first byte.
    ///
    /// It must be aligned to 16 bytes wherever `start` is, and stay valid for `len` bytes until
    /// [`DeviceMemory::epoch`] changes *and* no launch that began before the change is running.
    pub host: *mut u8,
    /// Whether kernels may write to it.
    pub writable: bool,
}

/// The device's memory, as kernels see it.
pub trait DeviceMemory: Sync {
    /// The live allocation that holds `address`. `None`: not mapped.
    fn region(&self, address: u64) -> Option<Region>;
    /// A number that changes whenever an allocation is made or released.
    fn epoch(&self) -> u64;
    /// Whether the caller wants to know what the launch touches. Asked once by every thread that works on it.
    fn watches(&self) -> bool {
        false
    }
    /// A thread of the kernel is about to write there in a way that others may be waiting for: an atomic, or a store that
    /// is `volatile`, `relaxed` or `release`. Said if the caller wants to know what is touched.
    fn signals(&self, _address: u64) {}
    /// What one of the launch's threads has touched, if that was wanted. Said before the launch ends.
    fn touched(&self, _touched: Touched) {}
}

/// What kernels ask of the host.
pub trait Host: Sync {
    /// Text that a kernel printed.
    fn print(&self, text: &[u8]);
    /// The device's timer in nanoseconds.
    fn timer_ns(&self) -> u64;
    /// Memory for a kernel's `malloc`; 0 if there is none.
    fn malloc(&self, bytes: u64) -> u64;
    /// The end of memory from [`Host::malloc`].
    fn free(&self, address: u64);
    /// A condition of the graph that the kernel is part of gets a value (`cudaGraphSetConditional`).
    fn set_condition(&self, _handle: u64, _value: u32) {}
    /// Whether the launch should end early.
    fn cancelled(&self) -> bool;
}

/// One launch of a kernel.
pub struct Launch<'a> {
    /// The kernel, of the module that `loaded` holds.
    pub kernel: &'a Kernel,
    /// The module with its globals placed.
    pub loaded: &'a Loaded,
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameters, laid out by [`Kernel::params`].
    pub params: &'a [u8],
    /// How many threads of the host may work on it, the calling one included.
    pub workers: usize,
    /// How many thread-instructions may be executed before the launch is stopped.
    pub fuel: Option<u64>,
    /// The value of `%gridid`.
    pub grid_id: u64,
    /// The value of `%nsmid`.
    pub multiprocessors: u32,
}

/// Limits of a launch that have everyday defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of stack (local memory and call frames) that a thread may use.
    pub stack_bytes: u32,
    /// How many calls may be nested.
    pub call_depth: u32,
    /// Whether the launch is cooperative: `%envreg1` and `%envreg2` then hold the address of a
    /// workspace for grid-wide barriers, which the interpreter provides.
    pub cooperative: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { stack_bytes: 512 << 10, call_depth: 1 << 12, cooperative: false }
    }
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions executed, counted once for every thread.
    pub instructions: u64,
    /// Blocks executed.
    pub blocks: u64,
}
