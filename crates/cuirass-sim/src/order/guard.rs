//! Pages of host memory that the host must not touch yet: the processor says when it does.
//!
//! While an operation that the host has not waited for may write to page-locked or managed memory, its pages cannot be
//! read; while one may read it, they cannot be written. A touch by the program is a fault; the handler notes it, opens
//! the page, and the program goes on as if nothing had been. A touch by the work itself only opens the page for as long
//! as the work runs.
//!
//! **\[guarded-pages\]** Ranges are whole pages of the arena that host and devices share: it is never unmapped, and can
//! be read and written wherever no guard says otherwise. The handler uses atomics, a system call and a thread's plain
//! cells, and chains to the handler before it for any other fault.
#![allow(unsafe_code)]

use crate::thread::{self, Place};
use libc::{c_int, c_void, sigaction, siginfo_t};
use std::cell::UnsafeCell;
use std::mem::{transmute, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Guards at a time; more are not set.
const SLOTS: usize = 256;
/// Touches that are noted before they are fetched.
const NOTES: usize = 64;
/// The page of the host.
pub const PAGE: u64 = 4096;

struct Slot {
    /// 0: free.
    guard: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    writes: AtomicBool,
}

/// The program touched guarded memory.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The guard.
    pub guard: u64,
    /// The address.
    pub address: u64,
    /// Whether it wrote.
    pub write: bool,
    /// The last call of the thread.
    pub place: Place,
}

struct Room {
    /// 0: free, 1: being written, 2: to be fetched.
    state: AtomicU8,
    note: UnsafeCell<Option<Note>>,
}

// SAFETY: [guarded-pages] the note belongs to whoever moved the state from 0 to 1, or from 2 to 1.
unsafe impl Sync for Room {}

static GUARDS: [Slot; SLOTS] = [const {
    Slot {
        guard: AtomicU64::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        writes: AtomicBool::new(false),
    }
}; SLOTS];
static ROOMS: [Room; NOTES] = [const { Room { state: AtomicU8::new(0), note: UnsafeCell::new(None) } }; NOTES];
/// What was ever guarded lies between these.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Whether work has opened a page.
static OPENED: AtomicBool = AtomicBool::new(false);
static NOTED: AtomicBool = AtomicBool::new(false);
/// The last fault that was not of a guard.
static OTHER: AtomicUsize = AtomicUsize::new(0);

struct Before(UnsafeCell<Option<sigaction>>);

// SAFETY: [guarded-pages] written before the handler is installed, under the checker's lock; read by the handler.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(None));

fn protect(start: usize, end: usize, protection: c_int) {
    // SAFETY: [guarded-pages] whole pages of the shared arena.
    let failed = unsafe { libc::mprotect(start as *mut c_void, end - start, protection) };
    debug_assert_eq!(failed, 0, "pages of the arena can be protected");
}

const OPEN: c_int = libc::PROT_READ | libc::PROT_WRITE;

impl Slot {
    fn holds(&self, address: usize) -> bool {
        self.guard.load(Ordering::Acquire) != 0
            && (self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)).contains(&address)
    }

    fn close(&self) {
        let protection = if self.writes.load(Ordering::Relaxed) { libc::PROT_NONE } else { libc::PROT_READ };
        protect(self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed), protection);
    }
}

fn active() -> impl Iterator<Item = &'static Slot> {
    GUARDS.iter().filter(|slot| slot.guard.load(Ordering::Acquire) != 0)
}

/// Closes the guarded pages: to those that only read first, so that the stricter guard counts.
fn close_all(meets: impl Fn(&Slot) -> bool) {
    for writes in [false, true] {
        active().filter(|slot| slot.writes.load(Ordering::Relaxed) == writes && meets(slot)).for_each(Slot::close);
    }
}

/// Guards whole pages. `writes`: work may write to them, so that the host may not read them. `None`: too many guards.
pub fn set(start: u64, end: u64, writes: bool) -> Option<u64> {
    let slot = GUARDS.iter().find(|slot| slot.guard.load(Ordering::Acquire) == 0)?;
    if !arm() {
        return None;
    }
    let guard = NEXT.fetch_add(1, Ordering::Relaxed);
    slot.start.store(start as usize, Ordering::Relaxed);
    slot.end.store(end as usize, Ordering::Relaxed);
    slot.writes.store(writes, Ordering::Relaxed);
    LOWEST.fetch_min(start as usize, Ordering::Relaxed);
    HIGHEST.fetch_max(end as usize, Ordering::Relaxed);
    slot.guard.store(guard, Ordering::Release);
    let other = |other: &Slot| other.holds_part(start as usize, end as usize);
    close_all(other);
    Some(guard)
}

impl Slot {
    fn holds_part(&self, start: usize, end: usize) -> bool {
        self.start.load(Ordering::Relaxed) < end && start < self.end.load(Ordering::Relaxed)
    }
}

/// Takes a guard away; other guards of its pages stay.
pub fn lift(guard: u64) {
    let Some(slot) = GUARDS.iter().find(|slot| slot.guard.load(Ordering::Acquire) == guard) else { return };
    let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
    slot.guard.store(0, Ordering::Release);
    protect(start, end, OPEN);
    close_all(|other| other.holds_part(start, end));
}

/// Work has run: what it opened is closed again.
pub fn restore() {
    if OPENED.swap(false, Ordering::AcqRel) {
        close_all(|_| true);
    }
}

/// The touches since the last time.
pub fn fetch() -> Vec<Note> {
    if !NOTED.swap(false, Ordering::AcqRel) {
        return Vec::new();
    }
    let ready = |room: &&Room| room.state.compare_exchange(2, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let take = |room: &Room| {
        // SAFETY: [guarded-pages] the state is 1, set by this thread.
        let note = unsafe { (*room.note.get()).take() };
        room.state.store(0, Ordering::Release);
        note
    };
    ROOMS.iter().filter(ready).filter_map(take).collect()
}

fn note(note: Note) {
    let free = |room: &&Room| room.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(room) = ROOMS.iter().find(free) {
        // SAFETY: [guarded-pages] the state is 1, set by this thread.
        unsafe { *room.note.get() = Some(note) };
        room.state.store(2, Ordering::Release);
        NOTED.store(true, Ordering::Release);
    }
}

/// Installs the handler, on top of whichever is there. Whether it is installed.
fn arm() -> bool {
    // SAFETY: [libc] actions on the stack; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut now: sigaction = zeroed();
        if libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut now) != 0 {
            return false;
        }
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
        if now.sa_sigaction == handler as usize {
            return true;
        }
        *BEFORE.0.get() = Some(now);
        let mut ours: sigaction = zeroed();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &raw const ours, null_mut()) == 0
    }
}

/// Whether the access was a write; `None` where the processor's report is not understood.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn wrote(context: *mut c_void) -> Option<bool> {
    // SAFETY: [libc] the context that the system hands to the handler.
    let error = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
    Some(error & 2 != 0)
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn wrote(_context: *mut c_void) -> Option<bool> {
    None
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: [libc] the system's report of the fault.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    let guarded = LOWEST.load(Ordering::Relaxed)..HIGHEST.load(Ordering::Relaxed);
    if code <= 0 || !guarded.contains(&address) {
        return chain(signal, info, context, address);
    }
    let write = wrote(context);
    if thread::is_working() {
        OPENED.store(true, Ordering::Release);
    } else if !crate::host::forked() {
        for slot in GUARDS.iter().filter(|slot| slot.holds(address)) {
            // A read does no harm to work that only reads.
            if slot.writes.load(Ordering::Relaxed) || write != Some(false) {
                let guard = slot.guard.load(Ordering::Relaxed);
                let place = thread::place();
                note(Note { guard, address: address as u64, write: write == Some(true), place });
            }
        }
    }
    let page = address & !(PAGE as usize - 1);
    protect(page, page + PAGE as usize, OPEN);
}

/// A fault that is none of a guard's.
fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void, address: usize) {
    // SAFETY: [libc] the handler before this one is called as its flags say; the default action ends the process when
    // the instruction is tried again.
    unsafe {
        let before = (*BEFORE.0.get()).filter(|_| OTHER.swap(address, Ordering::Relaxed) != address);
        match before.map(|before| (before.sa_sigaction, before.sa_flags)) {
            Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
                if flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = transmute(handler);
                    handler(signal);
                }
            }
            _ => {
                let mut default: sigaction = zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}
