//! Making driver calls fail, to test how a program behaves when they do; recording them; and, on the simulated driver,
//! finding uses of memory on different streams that nothing puts in order ([`OrderCheck`]).
//!
//! A fault lives in cuirass's own table of entry points, so that it works over a real driver and the simulated one
//! alike, and costs nothing while there is none. It affects the calls that cuirass makes, not those of other
//! libraries in the process.
//!
//! ```no_run
//! use cuirass::{status, testing::Fault};
//! # fn main() -> cuirass::Result<()> {
//! # let device = cuirass::Device::new(0)?;
//! # let stream = device.create_stream(&cuirass::StreamOptions::default())?;
//! # let pool = device.memory_resource()?;
//! let fault = Fault::in_call("cuMemAllocFromPoolAsync").nth(2).status(status::CUDA_ERROR_OUT_OF_MEMORY).inject()?;
//! let first = pool.allocate(256, &stream)?;
//! let second = pool.allocate(256, &stream);
//! assert_eq!(second.unwrap_err().code(), Some(status::CUDA_ERROR_OUT_OF_MEMORY));
//! assert_eq!(fault.count(), 1);
//! # Ok(())
//! # }
//! ```

mod order;

pub use order::{OrderCheck, OrderFinding};

use crate::{Result, status};
use cuirass_call::load::thread_number;
use cuirass_call::table::{self, CallInfo, Interceptor, Library, Word, driver::DRIVER, nvrtc::NVRTC};
use cuirass_fault::lock::Global;
use cuirass_fault::{Failure, Misuse};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};

/// The releases that wait: what each is of, and the number of its handle (0 where it has none).
/// [`drain`](crate::drain) tries them.
pub fn waiting_releases() -> Vec<(&'static str, u64)> {
    crate::deferred::waiting()
}

/// For a program that has given back an imported pool by calls of its own, as the gauntlet does with what was leaked and
/// told: nothing is known of that handle any more, which the driver may give again.
pub fn forget_imported_pool(handle: u64) {
    crate::memory::ipc::pools::forget(usize::try_from(handle).unwrap_or(0));
}

/// Whether the failing call is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Manner {
    /// It is not made: the library refused it.
    #[default]
    Refused,
    /// It is made, and returns an error all the same, as a destroy with an older asynchronous error does.
    Done,
}

/// A fault that is to be injected.
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing before inject()"]
pub struct Fault {
    call: Option<String>,
    nth: u64,
    times: u64,
    /// `None`: what says least, of the library whose call it is in.
    status: Option<u32>,
    manner: Manner,
    thread: Option<u64>,
}

/// An injected fault. Dropped, it is gone.
#[must_use = "the fault is gone when this is dropped"]
pub struct Injected {
    interceptor: Arc<dyn Interceptor>,
    state: Arc<State>,
}

struct State {
    fault: Fault,
    seen: AtomicU64,
    failed: AtomicU64,
    first: OnceLock<&'static str>,
}

impl Fault {
    /// A fault in one call, by the name of its entry point: `cuStreamDestroy_v2`; or without the version,
    /// `cuStreamDestroy`, in the version that this driver has. By default its first call fails, and every later one
    /// works.
    pub fn in_call(call: &str) -> Fault {
        Fault { call: Some(call.to_owned()), ..Fault::in_any_call() }
    }

    /// A fault in whatever call comes, of the driver or of the compiler: with [`nth`](Fault::nth), each call of an
    /// operation fails in turn.
    pub fn in_any_call() -> Fault {
        Fault { call: None, nth: 1, times: 1, status: None, manner: Manner::Refused, thread: None }
    }

    fn is_in(&self, call: &CallInfo) -> bool {
        self.call.as_ref().is_none_or(|name| call.name == name || call.symbol == name)
    }

    /// The first call that fails, counted from 1.
    pub fn nth(mut self, nth: u64) -> Fault {
        self.nth = nth;
        self
    }

    /// How many calls fail from there on; `u64::MAX` for every one.
    pub fn times(mut self, times: u64) -> Fault {
        self.times = times;
        self
    }

    /// The status that it fails with, one of [`status`](mod@crate::status): `status::CUDA_ERROR_OUT_OF_MEMORY`. Without
    /// it, calls of the driver fail with `CUDA_ERROR_UNKNOWN`, and those of the compiler with
    /// `NVRTC_ERROR_INTERNAL_ERROR`.
    pub fn status(mut self, status: u32) -> Fault {
        self.status = Some(status);
        self
    }

    /// Whether the failing call is made.
    pub fn manner(mut self, manner: Manner) -> Fault {
        self.manner = manner;
        self
    }

    /// Only calls of the current thread are counted and fail.
    pub fn on_this_thread(self) -> Fault {
        self.on_thread(thread_number())
    }

    /// Only calls of the thread of this number are counted and fail: what `pthread_self` says of it.
    pub fn on_thread(mut self, number: u64) -> Fault {
        self.thread = Some(number);
        self
    }

    /// Injects it.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a call that cuirass does not make (the message has the nearest
    /// ones; [`known_calls`] are all), for the status 0, where the calls are counted from 0, and where none is to fail.
    pub fn inject(self) -> Result<Injected> {
        if !calls().any(|info| self.is_in(info)) {
            let name = self.call.unwrap_or_default();
            let near = nearest(&name);
            let message = match near.is_empty() {
                true => format!("cuirass makes no call {name}"),
                false => format!("cuirass makes no call {name}; the nearest: {}", near.join(", ")),
            };
            return Err(Failure::misuse(Misuse::Value, message).raise());
        }
        if self.status == Some(status::CUDA_SUCCESS) || self.nth == 0 || self.times == 0 {
            let message = "a fault has a status other than 0, nth from 1 and times from 1";
            return Err(Failure::misuse(Misuse::Value, message).raise());
        }
        let state =
            Arc::new(State { fault: self, seen: AtomicU64::new(0), failed: AtomicU64::new(0), first: OnceLock::new() });
        let interceptor: Arc<dyn Interceptor> = Arc::new(Injector(Arc::clone(&state)));
        table::add_interceptor(Arc::clone(&interceptor));
        Ok(Injected { interceptor, state })
    }
}

impl Injected {
    /// How many calls have failed by it. A call that is made and fails of itself has not.
    pub fn count(&self) -> u64 {
        self.state.failed.load(Ordering::Acquire)
    }

    /// The first call that has failed by it: which one it was, where it is in any call.
    pub fn first_call(&self) -> Option<&'static str> {
        self.state.first.get().copied()
    }

    /// How many calls it has seen, failed or not.
    pub fn seen(&self) -> u64 {
        self.state.seen.load(Ordering::Acquire)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        table::remove_interceptor(&self.interceptor);
    }
}

struct Injector(Arc<State>);

impl Interceptor for Injector {
    fn call(&self, call: &'static CallInfo, _arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32 {
        let State { fault, seen, failed, first } = &*self.0;
        if !fault.is_in(call) || fault.thread.is_some_and(|thread| thread != thread_number()) {
            return real();
        }
        let number = seen.fetch_add(1, Ordering::AcqRel) + 1;
        if number < fault.nth || number - fault.nth >= fault.times {
            return real();
        }
        let own = if fault.manner == Manner::Done { real() } else { 0 };
        if own != 0 {
            // An error of its own is the older one, and stands; it is none of this fault's.
            return own;
        }
        failed.fetch_add(1, Ordering::AcqRel);
        first.get_or_init(|| call.name);
        fault.status.unwrap_or(match call.library {
            Library::Nvrtc => status::NVRTC_ERROR_INTERNAL_ERROR,
            _ => status::CUDA_ERROR_UNKNOWN,
        })
    }
}

/// One call that was made while calls were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// The entry point.
    pub call: &'static str,
    /// What it returned.
    pub status: u32,
    /// Its arguments' bits: handles, sizes and addresses as numbers.
    pub arguments: Vec<u64>,
    /// The thread that made it.
    pub thread: ThreadId,
}

/// Records the calls that cuirass makes, until it is dropped.
pub struct Recording {
    interceptor: Arc<dyn Interceptor>,
    calls: Arc<Recorder>,
}

struct Recorder(Global<Vec<CallRecord>>);

impl Interceptor for Recorder {
    fn call(&self, call: &'static CallInfo, arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32 {
        let status = real();
        let arguments = arguments.iter().map(|word| word.0).collect();
        self.0.lock().push(CallRecord { call: call.name, status, arguments, thread: thread::current().id() });
        status
    }
}

impl Recording {
    /// Starts recording, on all threads.
    #[must_use]
    pub fn start() -> Recording {
        let calls = Arc::new(Recorder(Global::new(Vec::new(), Vec::new())));
        let interceptor: Arc<dyn Interceptor> = Arc::clone(&calls) as Arc<dyn Interceptor>;
        table::add_interceptor(Arc::clone(&interceptor));
        Recording { interceptor, calls }
    }

    /// The calls so far, which are taken out of the record.
    pub fn take(&self) -> Vec<CallRecord> {
        std::mem::take(&mut *self.calls.0.lock())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        table::remove_interceptor(&self.interceptor);
    }
}

/// Every call that cuirass makes, of every library: its entry point's name.
pub fn known_calls() -> impl Iterator<Item = &'static str> {
    calls().map(|info| info.name)
}

/// The calls whose names are nearest to one that is none, at most three: those that it is a part of first.
fn nearest(name: &str) -> Vec<&'static str> {
    let sought = name.to_ascii_lowercase();
    let distance = |info: &CallInfo| match info.name.to_ascii_lowercase().contains(&sought) {
        true => 0,
        false => {
            let ((whole, start), (symbol, symbols_start)) = (steps(name, info.name), steps(name, info.symbol));
            // A name that breaks off, without the ending (`Async`, a version), has its mistakes counted twice.
            whole.min(symbol).min(2 * start.min(symbols_start))
        }
    };
    let mut near: Vec<(usize, &'static str)> = calls()
        .map(|info| (distance(info), info.name))
        // Further off it is another word.
        .filter(|(distance, _)| distance * 3 <= name.len())
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// How many letters have to be put in, left out or replaced to make one word of the other; and as many to make what it
/// begins with, for the beginning that is nearest. Small or large is the same.
fn steps(from: &str, to: &str) -> (usize, usize) {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.bytes().enumerate() {
        let mut previous = [at + 1].to_vec();
        for (number, other) in to.bytes().enumerate() {
            let (above, left, before) = (row[number + 1], previous[number], row[number]);
            let changed = usize::from(!letter.eq_ignore_ascii_case(&other));
            previous.push((before + changed).min(above + 1).min(left + 1));
        }
        row = previous;
    }
    (row[to.len()], row.iter().copied().min().unwrap_or(0))
}

fn calls() -> impl Iterator<Item = &'static CallInfo> {
    DRIVER.info.iter().chain(NVRTC.info.iter())
}
