//! Host memory as the simulated devices' memory: the one file that maps and copies raw memory, and asks the system.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// Memory that is a file of no folder: it can be mapped at several places and by several processes. It never shrinks.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    len: usize,
}

/// What shared memory is for; it is not taken for memory that is for something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Physical memory of the virtual memory calls, of a device.
    Physical,
    /// The same, of the host.
    PhysicalHost,
    /// The bytes of a pool.
    Pool,
    /// Events.
    Events,
}

impl Purpose {
    fn name(self) -> &'static CStr {
        match self {
            Purpose::Physical => c"cuirass-sim-physical",
            Purpose::PhysicalHost => c"cuirass-sim-physical-host",
            Purpose::Pool => c"cuirass-sim-pool",
            Purpose::Events => c"cuirass-sim-events",
        }
    }
}

impl SharedMemory {
    /// Some, all zero.
    pub fn create(len: usize, purpose: Purpose) -> Option<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: [libc] the name is text with a closing zero.
        let file = unsafe { libc::memfd_create(purpose.name().as_ptr(), flags) };
        if file < 0 {
            return None;
        }
        // SAFETY: [libc] a descriptor that was made just now, and that nobody else owns.
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(u64::try_from(len).ok()?).ok()?;
        // SAFETY: [libc] an open descriptor and a number.
        let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
        (failed == 0).then_some(Self { file, len })
    }

    /// What another process, or this one, has made of [`SharedMemory::share`]; the descriptor stays the caller's. It is
    /// opened anew: its claims are its own.
    ///
    /// # Errors
    /// `InvalidInput` for a descriptor that is not open, or of anything else; what the system lacks.
    pub fn adopt(descriptor: i32, purpose: Purpose) -> io::Result<Self> {
        // The number may be closed and used again by another thread: the name is that of what is opened.
        Self::open(&format!("/proc/self/fd/{descriptor}"), purpose)
    }

    /// The memory that a process has under a descriptor, as long as it has.
    ///
    /// # Errors
    /// As [`SharedMemory::adopt`].
    pub fn of_process(process: u32, descriptor: i32, purpose: Purpose) -> io::Result<Self> {
        Self::open(&format!("/proc/{process}/fd/{descriptor}"), purpose)
    }

    fn open(path: &str, purpose: Purpose) -> io::Result<Self> {
        let refused = || io::Error::from(io::ErrorKind::InvalidInput);
        // Opening something else could wait, or do something.
        if !Self::is_for(path, purpose) {
            return Err(refused());
        }
        let file = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open(path)?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let len = usize::try_from(file.metadata()?.len()).map_err(|_too_long| refused())?;
        if Self::is_for(&own, purpose) && is_sealed(&file) { Ok(Self { file, len }) } else { Err(refused()) }
    }

    fn is_for(path: &str, purpose: Purpose) -> bool {
        let Ok(target) = std::fs::read_link(path) else { return false };
        let name = target.to_str().and_then(|target| target.strip_prefix("/memfd:"));
        name.and_then(|name| name.strip_suffix(" (deleted)")).is_some_and(|name| purpose.name().to_str() == Ok(name))
    }

    /// A descriptor for another process.
    pub fn share(&self) -> Option<OwnedFd> {
        self.file.try_clone().ok().map(OwnedFd::from)
    }

    /// The number of the descriptor, for [`SharedMemory::of_process`].
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The length in bytes, as this process last knew it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The length in bytes, which another process may have increased.
    pub fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len())
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes it longer.
    pub fn grow(&mut self, len: u64) -> bool {
        let grown = usize::try_from(len).ok().filter(|_| self.file.set_len(len).is_ok());
        self.len = grown.unwrap_or(self.len);
        grown.is_some()
    }

    /// Puts it at a place in a [`Reservation`]; what was there is gone.
    pub fn show(&self, at: usize) -> bool {
        self.show_part(at, 0, self.len)
    }

    /// As [`SharedMemory::show`], a part of it. Whole pages only.
    pub fn show_part(&self, at: usize, offset: u64, len: usize) -> bool {
        let Ok(offset) = libc::off_t::try_from(offset) else { return false };
        place(at, len, OPEN, libc::MAP_SHARED, self.file.as_raw_fd(), offset)
    }

    /// Puts it where the program finds it too, at the addresses of a [`Reservation`]; what was there is gone.
    pub fn open_to_program(&self, at: usize, writable: bool) -> bool {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        place(at, self.len, protection, libc::MAP_SHARED, self.file.as_raw_fd(), 0)
    }

    /// Takes it from the program's addresses again: nobody can touch what is there.
    pub fn close_to_program(&self, at: usize) -> bool {
        place(at, self.len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
    }

    /// Puts memory of nobody at that place again.
    pub fn hide(&self, at: usize) -> bool {
        hide(at, self.len)
    }

    /// A part of it as words that several processes change, somewhere in this process. Whole pages only.
    pub fn words(&self, offset: u64, len: usize) -> Option<SharedWords> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (file, offset) = (self.file.as_raw_fd(), libc::off_t::try_from(offset).ok()?);
        // SAFETY: [libc] a new mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file, offset) };
        (start != libc::MAP_FAILED).then_some(SharedWords { start: start as usize, len })
    }

    /// The word at an offset.
    pub fn read_word(&self, offset: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Sets the word at an offset.
    pub fn write_word(&self, offset: u64, word: u64) -> bool {
        self.file.write_all_at(&word.to_le_bytes(), offset).is_ok()
    }

    /// Gives the memory of a part back to the system, for every process: it is zero from now on. Whole pages only.
    pub fn discard(&self, offset: u64, len: u64) -> bool {
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (Ok(offset), Ok(len)) = (libc::off_t::try_from(offset), libc::off_t::try_from(len)) else { return false };
        // SAFETY: [libc] an open descriptor and numbers.
        unsafe { libc::fallocate(self.file.as_raw_fd(), flags, offset, len) == 0 }
    }

    /// Claims a part: other openings of the memory see it, until it is given up, or the last descriptor of this one is
    /// closed, which the system does for a process that dies.
    pub fn claim(&self, offset: u64, len: u64) -> bool {
        self.lock(libc::F_OFD_SETLK, libc::F_RDLCK, offset, len).is_some()
    }

    /// Gives a claim up.
    pub fn give_up(&self, offset: u64, len: u64) -> bool {
        self.lock(libc::F_OFD_SETLK, libc::F_UNLCK, offset, len).is_some()
    }

    /// Whether another opening of the memory claims something of a part.
    pub fn is_claimed(&self, offset: u64, len: u64) -> bool {
        self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, offset, len).is_some_and(|lock| lock != libc::F_UNLCK)
    }

    fn lock(&self, command: i32, kind: i32, offset: u64, len: u64) -> Option<i32> {
        // SAFETY: [libc] every bit pattern is such a structure; unused members must be zero.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
        lock.l_start = libc::off_t::try_from(offset).ok()?;
        lock.l_len = libc::off_t::try_from(len).ok()?;
        // SAFETY: [libc] an open descriptor, and a structure that outlives the call.
        let failed = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) };
        (failed == 0).then_some(lock.l_type.into())
    }
}

fn is_sealed(file: &File) -> bool {
    // SAFETY: [libc] an open descriptor; the answer for a file that has no seals is an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Puts memory of nobody, zero when it is touched, at a place in a [`Reservation`]. Whole pages only.
pub fn hide(at: usize, len: usize) -> bool {
    place(at, len, OPEN, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
}

const OPEN: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn place(at: usize, len: usize, protection: i32, flags: i32, file: i32, offset: libc::off_t) -> bool {
    let place = at as *mut libc::c_void;
    // SAFETY: [sim-memory] the place lies in a reservation of the driver, which only holds simulated memory.
    unsafe { libc::mmap(place, len, protection, flags | libc::MAP_FIXED, file, offset) == place }
}

/// Words that several processes read and change.
#[derive(Debug)]
pub struct SharedWords {
    start: usize,
    len: usize,
}

impl SharedWords {
    /// All of them.
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: [shared-words] the mapping is of this length, aligned to pages, and there as long as the value; the
        // file cannot be made shorter, and everybody changes it as atomic words only.
        unsafe { std::slice::from_raw_parts(self.start as *const AtomicU64, self.len / 8) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: [shared-words] this value's own mapping, of which nobody has a reference any more.
        let done = unsafe { libc::munmap(self.start as *mut libc::c_void, self.len) };
        debug_assert_eq!(done, 0, "a mapping can be taken away");
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
