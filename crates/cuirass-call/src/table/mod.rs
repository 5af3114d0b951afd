//! The tables of entry points: one atomic pointer a call.
//!
//! An entry starts as a stub that looks the call up, stores what it found and makes the call: from then on a call
//! costs one load and one jump. Tracing and fault injection put another function in the entry's place, which passes
//! through [`Interceptor::call`]; while there is none, they cost nothing.
//!
//! A call that could not be made answers [`NOT_CALLED`], a status that no library has; the seam then asks why
//! ([`Table::absence`]) and makes the failure that says so.

pub mod driver;
pub mod nvrtc;

pub use cuirass_fault::Library;

use crate::load;
use cuirass_fault::{Absence, lock};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// The status of a call that was not made. No CUDA library returns it.
pub const NOT_CALLED: u32 = 0x6375_6972;

/// What is known of a call at compile time.
#[derive(Debug)]
pub struct CallInfo {
    /// The library.
    pub library: Library,
    /// The name of this version of the call: `cuStreamDestroy_v2`.
    pub name: &'static str,
    /// The name to look it up by: `cuStreamDestroy`.
    pub symbol: &'static str,
    /// The CUDA version that introduced it, 12030 for 12.3; 0 where the library has no versions.
    pub since: u32,
    /// The family whose list it is in.
    pub family: &'static str,
    /// The types of its parameters, as the generated types have them: `CUstream`, `*mut CUevent`.
    pub parameters: &'static [&'static str],
}

/// A function's address, as a constant.
pub struct Stub(pub(crate) *mut ());

// SAFETY: [entry-signature] a function's address; it is only ever compared and stored.
unsafe impl Sync for Stub {}

/// The calls of one library.
pub struct Table<const N: usize> {
    /// Which library.
    pub library: Library,
    /// The calls, in the order of the entries.
    pub info: &'static [CallInfo; N],
    pub(crate) entries: [AtomicPtr<()>; N],
    pub(crate) real: [AtomicPtr<()>; N],
    pub(crate) first_use: [Stub; N],
    pub(crate) intercepted: [Stub; N],
}

impl<const N: usize> Table<N> {
    /// Where a call goes now.
    #[inline(always)]
    pub fn entry(&self, at: usize) -> *mut () {
        self.entries[at].load(Ordering::Acquire)
    }

    /// Why a call could not be made, asked after it answered [`NOT_CALLED`].
    #[cold]
    pub fn absence(&self, at: usize) -> Option<Absence> {
        find(self, at).err()
    }

    /// Sends every call through the interceptor, or straight to the library again.
    fn set_intercepted(&self, on: bool) {
        for at in 0..N {
            let real = self.real[at].load(Ordering::Acquire);
            let direct = if real.is_null() { self.first_use[at].0 } else { real };
            self.entries[at].store(if on { self.intercepted[at].0 } else { direct }, Ordering::Release);
        }
    }

    /// After a fork: back to the stubs, which refuse. Only stores, as a fork handler demands.
    fn forget(&self) {
        for at in 0..N {
            self.real[at].store(std::ptr::null_mut(), Ordering::Release);
            self.entries[at].store(self.first_use[at].0, Ordering::Release);
        }
    }
}

/// Whether this process was forked after the driver was loaded.
#[inline]
pub fn is_forked() -> bool {
    lock::is_forked()
}

/// What a forked child does first: from then on every call is refused.
pub(crate) extern "C" fn in_forked_child() {
    lock::in_forked_child();
    driver::DRIVER.forget();
}

fn find<const N: usize>(table: &Table<N>, at: usize) -> Result<NonNull<()>, Absence> {
    if is_forked() && table.library == Library::Driver {
        return Err(Absence::Forked);
    }
    let known = table.real[at].load(Ordering::Acquire);
    if let Some(known) = NonNull::new(known) {
        return Ok(known);
    }
    let found = load::entry_point(&table.info[at])?;
    table.real[at].store(found.as_ptr(), Ordering::Release);
    Ok(found)
}

/// What a first-use stub does: looks the call up and puts it in the entry, unless that is intercepted.
#[cold]
pub(crate) fn resolve<const N: usize>(table: &Table<N>, at: usize) -> Result<NonNull<()>, u32> {
    let found = find(table, at).map_err(|_absence| NOT_CALLED)?;
    let stub = table.first_use[at].0;
    // Refused where somebody stored the same pointer before, or intercepts the call: both stand.
    let _stored = table.entries[at].compare_exchange(stub, found.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
    Ok(found)
}

/// An argument's bits, as an interceptor sees them: handles, sizes and addresses as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// The first eight bytes of an argument.
    pub fn of<T>(argument: &T) -> Word {
        let mut bytes = [0_u8; 8];
        let length = size_of::<T>().min(8);
        // SAFETY: [argument-words] `length` is at most the size of either side.
        unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(argument).cast(), bytes.as_mut_ptr(), length) };
        Word(u64::from_le_bytes(bytes))
    }
}

/// Sees every call and decides what becomes of it.
pub trait Interceptor: Send + Sync {
    /// `real` makes the call and returns its status; what this returns is what the caller sees.
    fn call(&self, call: &'static CallInfo, arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32;
}

type Interceptors = Vec<Arc<dyn Interceptor>>;

static INTERCEPTORS: RwLock<Interceptors> = RwLock::new(Vec::new());

/// What a lock gives; in a forked child `None` where a thread that the child does not have may hold it for ever.
fn locked<G>(
    lock: impl FnOnce() -> Result<G, PoisonError<G>>,
    try_lock: impl Fn() -> Result<G, TryLockError<G>>,
) -> Option<G> {
    if !is_forked() {
        return Some(lock().unwrap_or_else(PoisonError::into_inner));
    }
    for _ in 0..100 {
        match try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

fn interceptors() -> Interceptors {
    locked(|| INTERCEPTORS.read(), || INTERCEPTORS.try_read()).map(|list| list.clone()).unwrap_or_default()
}

fn interceptors_to_change() -> Option<RwLockWriteGuard<'static, Interceptors>> {
    locked(|| INTERCEPTORS.write(), || INTERCEPTORS.try_write())
}

/// Adds an interceptor; it sees calls before those added earlier. [`remove_interceptor`] takes it out again.
pub fn add_interceptor(interceptor: Arc<dyn Interceptor>) {
    let Some(mut list) = interceptors_to_change() else { return };
    list.push(interceptor);
    driver::DRIVER.set_intercepted(true);
    nvrtc::NVRTC.set_intercepted(true);
}

/// Takes an interceptor out; without any, calls go straight to the libraries again.
pub fn remove_interceptor(interceptor: &Arc<dyn Interceptor>) {
    let Some(mut list) = interceptors_to_change() else { return };
    list.retain(|other| !Arc::ptr_eq(other, interceptor));
    if list.is_empty() {
        driver::DRIVER.set_intercepted(false);
        nvrtc::NVRTC.set_intercepted(false);
    }
}

/// What an intercepted entry does.
#[cold]
pub(crate) fn intercepted<const N: usize>(
    table: &Table<N>,
    at: usize,
    arguments: &[Word],
    real: &mut dyn FnMut(NonNull<()>) -> u32,
) -> u32 {
    let list = interceptors();
    let mut last = || match find(table, at) {
        Ok(found) => real(found),
        Err(_absence) => NOT_CALLED,
    };
    through(&list, &table.info[at], arguments, &mut last)
}

fn through(
    list: &[Arc<dyn Interceptor>],
    call: &'static CallInfo,
    arguments: &[Word],
    real: &mut dyn FnMut() -> u32,
) -> u32 {
    match list.split_last() {
        None => real(),
        Some((first, rest)) => first.call(call, arguments, &mut || through(rest, call, arguments, real)),
    }
}
