//! Host memory as the simulated devices' memory: the one file that maps and copies raw memory, and asks the system.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// Half of this machine's memory, in whole GiB, one at least.
pub fn default_memory() -> u64 {
    // SAFETY: [libc] sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let bytes = u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page).unwrap_or(0));
    ((bytes / 2) >> 30).max(1) << 30
}

/// A range of this process's addresses, never given back (kernels may still hold a pointer into it).
#[derive(Debug)]
pub struct Reservation {
    start: usize,
    len: usize,
}

impl Reservation {
    /// Addresses without memory behind them: nothing else in the process is placed there, and touching them from
    /// the host is the segmentation fault that touching device memory is.
    pub fn addresses(len: usize) -> Option<Self> {
        Self::map(len, libc::PROT_NONE)
    }

    /// Memory that is committed page by page as it is touched, and zero at first.
    pub fn memory(len: usize) -> Option<Self> {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map(len: usize, protection: i32) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: [libc] a new anonymous mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED { None } else { Some(Self { start: start as usize, len }) }
    }

    /// The first address.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives the pages of a part back to the system; they are zero when touched again. Whole pages only.
    pub fn discard(&self, offset: usize, len: usize) {
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        // SAFETY: [sim-memory] the part lies in this mapping, which is private and anonymous.
        let done = unsafe { libc::madvise((self.start + offset) as *mut libc::c_void, len, libc::MADV_DONTNEED) };
        debug_assert_eq!(done, 0, "whole pages of a mapping can be discarded");
    }
}

/// A host pointer from a number.
pub fn pointer(address: usize) -> *mut u8 {
    address as *mut u8
}

/// Copies bytes; the ranges may overlap.
///
/// Both are ranges of live simulated memory or, where the caller of the driver gave a host pointer, of the
/// caller's memory, which the call's contract makes valid until the copy is done.
pub fn copy(to: usize, from: usize, len: usize) {
    // SAFETY: [sim-memory] see above: the ranges were checked against the allocation map or are the caller's.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) }
}

/// Fills `count` elements of 1, 2 or 4 bytes with a value.
pub fn fill(to: usize, value: u32, width: usize, count: usize) {
    // SAFETY: [sim-memory] the range was checked against the allocation map; stores of 2 and 4 bytes are unaligned
    // where the address is.
    unsafe {
        match width {
            1 => std::ptr::write_bytes(to as *mut u8, value as u8, count),
            2 => (0..count).for_each(|at| (to as *mut u16).add(at).write_unaligned(value as u16)),
            _ => (0..count).for_each(|at| (to as *mut u32).add(at).write_unaligned(value)),
        }
    }
}

/// Reads bytes of live simulated memory.
pub fn read(from: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    copy(bytes.as_mut_ptr() as usize, from, len);
    bytes
}

/// Writes bytes to live simulated memory.
pub fn write(to: usize, bytes: &[u8]) {
    copy(to, bytes.as_ptr() as usize, bytes.len());
}

/// Keeps signals away from the calling thread: they are for the program's own threads.
pub fn block_signals() {
    // SAFETY: [libc] a set on the stack is filled, then read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// From now on a child of `fork` knows that it is one.
pub fn watch_fork() {
    // SAFETY: [libc] the handler only stores to an atomic.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    debug_assert_eq!(failed, 0, "a fork handler can be registered");
}

/// Whether this process is a fork of one that had initialised the driver.
pub fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
