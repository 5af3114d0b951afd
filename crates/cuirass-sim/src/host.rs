//! Host memory as the simulated devices' memory: the one file that maps and copies raw memory, and asks the system.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
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

/// Memory that is a file of no folder: it can be mapped at several places and by several processes.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    len: usize,
}

impl SharedMemory {
    /// Some, all zero.
    pub fn create(len: usize) -> Option<Self> {
        // SAFETY: [libc] the name is text with a closing zero.
        let file = unsafe { libc::memfd_create(c"cuirass-sim".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: [libc] a descriptor that was made just now, and that nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = libc::off_t::try_from(len).ok()?;
        // SAFETY: [libc] an open descriptor.
        let failed = unsafe { libc::ftruncate(file.as_raw_fd(), size) };
        (failed == 0).then_some(Self { file, len })
    }

    /// What another process, or this one, has made of [`SharedMemory::share`]; the descriptor stays the caller's.
    pub fn adopt(descriptor: i32) -> Option<Self> {
        // SAFETY: [libc] any number may be asked for; the answer to one that is not open is an error.
        let file = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        if file < 0 {
            return None;
        }
        // SAFETY: [libc] a descriptor that was made just now, and that nobody else owns.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(file) });
        let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
        Some(Self { file: file.into(), len })
    }

    /// A descriptor for another process; it is the caller's to close.
    pub fn share(&self) -> Option<i32> {
        self.file.try_clone().ok().map(IntoRawFd::into_raw_fd)
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts it at a place in a [`Reservation`]; what was there is gone.
    pub fn show(&self, at: usize) -> bool {
        self.place(at, libc::MAP_SHARED, self.file.as_raw_fd())
    }

    /// Puts memory of nobody at that place again.
    pub fn hide(&self, at: usize) -> bool {
        self.place(at, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    fn place(&self, at: usize, flags: i32, file: i32) -> bool {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let place = at as *mut libc::c_void;
        // SAFETY: [sim-memory] the place lies in a reservation of the driver, which only holds simulated memory.
        unsafe { libc::mmap(place, self.len, protection, flags | libc::MAP_FIXED, file, 0) == place }
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

/// Whether all pages of a range are memory of this process.
pub fn is_mapped(start: usize, len: usize) -> bool {
    const PAGE: usize = 4096;
    const STEP: usize = 1024;
    let mut resident = [0_u8; STEP];
    let Some(end) = start.checked_add(len) else { return false };
    let mut at = start / PAGE * PAGE;
    while at < end {
        let pages = (end - at).div_ceil(PAGE).min(STEP);
        // SAFETY: [libc] mincore reads no memory of the range, and writes one byte a page, at most STEP, to the array.
        if unsafe { libc::mincore(at as *mut libc::c_void, pages * PAGE, resident.as_mut_ptr()) } != 0 {
            return false;
        }
        let Some(next) = at.checked_add(pages * PAGE) else { return false };
        at = next;
    }
    true
}

/// A file that has no name, with these contents; the caller closes it.
pub fn memory_file(contents: &[u8]) -> Option<i32> {
    // SAFETY: [libc] the name ends with a zero, the contents are a slice's, and a file that cannot be filled is closed.
    unsafe {
        let file = libc::memfd_create(c"cuirass-sim".as_ptr(), libc::MFD_CLOEXEC);
        if file >= 0 && libc::write(file, contents.as_ptr().cast(), contents.len()) != contents.len() as isize {
            libc::close(file);
            return None;
        }
        (file >= 0).then_some(file)
    }
}

/// The first bytes of a file, as many as there are up to `len`.
pub fn read_file(file: i32, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; len];
    // SAFETY: [libc] at most `len` bytes are written to the vector; a number that is no file is refused.
    let got = unsafe { libc::pread(file, bytes.as_mut_ptr().cast(), len, 0) };
    bytes.truncate(usize::try_from(got).ok()?);
    Some(bytes)
}

/// Keeps signals away from the calling thread: they are for the program's own threads. Not those of its own faults.
pub fn block_signals() {
    // SAFETY: [libc] a set on the stack is filled, then read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&raw mut all, own);
        }
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
