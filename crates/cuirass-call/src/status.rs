//! Where failures are made: a status that is not success becomes a [`Failure`] with everything known at the call.

use crate::load;
use crate::table::{NOT_CALLED, Table, driver, nvrtc};
use cuirass_fault::{Absence, Cause, Facts, Failure, Library, Status};
use cuirass_sys::cuda::CUstreamCaptureMode;
use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The statuses after which `cuda.h` says that the process must be terminated to use CUDA again.
pub const STICKY: [u32; 13] = [226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];

/// What the user of a sticky status should know.
pub(crate) const STICKY_NOTE: &str = "this is the fault of an earlier kernel; every call in its context returns it \
                                      from now on, and the process must be restarted to use CUDA again";
/// What the user of a call that a capture forbids should know.
const CAPTURE_NOTE: &str = "a stream capture in progress forbids this call, and is now invalidated";

/// The captures in progress that cuirass began, by mode: global, thread-local, relaxed.
static CAPTURES: [AtomicUsize; 3] = [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)];
const MODES: [&str; 3] = ["global", "thread_local", "relaxed"];

/// Notes that a capture was begun in a mode, for the notes of calls that it forbids. The caller keeps other threads from
/// calling this, or [`capture_ended`], meanwhile.
pub fn capture_begun(mode: CUstreamCaptureMode) {
    count_capture(mode, |count| count.wrapping_add(1));
}

/// Notes that a capture has ended that [`capture_begun`] was told of.
pub fn capture_ended(mode: CUstreamCaptureMode) {
    count_capture(mode, |count| count.saturating_sub(1));
}

fn count_capture(mode: CUstreamCaptureMode, change: impl FnOnce(usize) -> usize) {
    if let Some(count) = usize::try_from(mode.0).ok().and_then(|mode| CAPTURES.get(mode)) {
        count.store(change(count.load(Ordering::Relaxed)), Ordering::Release);
    }
}

fn capture_note() -> String {
    let running = CAPTURES.iter().zip(MODES).filter(|(count, _)| count.load(Ordering::Acquire) > 0);
    match running.map(|(_, mode)| mode).collect::<Vec<_>>().as_slice() {
        [] => CAPTURE_NOTE.to_owned(),
        modes => format!("{CAPTURE_NOTE}; a graph builder began one in {} mode", modes.join(" and in ")),
    }
}

/// Makes the failure of a call.
#[cold]
#[inline(never)]
pub fn failed<const N: usize>(table: &'static Table<N>, at: usize, code: u32, subject: fmt::Arguments<'_>) -> Failure {
    let info = &table.info[at];
    let mut facts = Facts {
        cause: Cause::Status,
        library: Some(info.library),
        call: info.name,
        status: None,
        subject: subject.to_string(),
        log: None,
        notes: Vec::new(),
        leaked: false,
        attached: Vec::new(),
    };
    if code == NOT_CALLED {
        match table.absence(at) {
            Some(absence) => facts.cause = Cause::Absent(absence),
            None => return Failure::internal(format_args!("{} was refused, and is there", info.name)),
        }
    } else {
        let status = describe(info.library, code);
        if status.sticky {
            facts.notes.push(STICKY_NOTE.to_owned());
        } else if info.library == Library::Driver
            && matches!(
                code,
                code::STREAM_CAPTURE_UNSUPPORTED | code::STREAM_CAPTURE_IMPLICIT | code::STREAM_CAPTURE_ISOLATION
            )
        {
            facts.notes.push(capture_note());
        }
        facts.status = Some(status);
    }
    Failure::new(facts)
}

/// The failure of a use that a call has only from a version on: an older driver has the call, and may take the use for
/// another.
#[cold]
pub fn unsupported(call: &'static str, what: &str, needs: u32) -> Failure {
    let cause = match load::driver_version() {
        Ok(found) => Cause::Absent(Absence::EntryPoint { needs, found }),
        Err(absence) => Cause::Absent(absence),
    };
    Failure::new(Facts {
        cause,
        library: Some(Library::Driver),
        call,
        status: None,
        subject: String::new(),
        log: None,
        notes: vec![format!("{call} is there, but not for {what}")],
        leaked: false,
        attached: Vec::new(),
    })
}

/// A status with its name and the library's own description.
pub fn describe(library: Library, code: u32) -> Status {
    let known = match library {
        Library::Driver => driver::status_name(code),
        _ => nvrtc::status_name(code),
    };
    let name = match known {
        Some(name) => Cow::Borrowed(name),
        None if library == Library::Driver => Cow::Owned(format!("CUDA_ERROR_{code}")),
        None => Cow::Owned(format!("NVRTC_ERROR_{code}")),
    };
    let description = match load::description(library, code) {
        // NVRTC describes a status by its name: the words of it say no less.
        Some(text) if text == name => {
            Cow::Owned(text.trim_start_matches("NVRTC_ERROR_").replace('_', " ").to_lowercase())
        }
        Some(text) => Cow::Owned(text),
        None => Cow::Borrowed("no description"),
    };
    Status { code, name, description, sticky: library == Library::Driver && STICKY.contains(&code) }
}

/// The pointer of an entry, as what it is: `entry!(cuStreamQuery)(stream)`.
macro_rules! entry {
    ($name:ident in $table:ident :: $static:ident) => {
        std::mem::transmute::<*mut (), crate::table::$table::pointer::$name>(
            crate::table::$table::$static.entry(crate::table::$table::at::$name),
        )
    };
}

/// One driver call: `driver_call!(entry!(cuCtxSetCurrent), (context), "context {context:p}")`, a `Result<(), Failure>`.
///
/// With `answers NAME` after the arguments, that status is an answer and builds no failure: the call is then a
/// `Result<bool, Failure>`, false where it gave that answer.
macro_rules! driver_call {
    (entry!($name:ident), ($($argument:expr),* $(,)?), answers $answer:ident, $($subject:tt)+) => {{
        // SAFETY: [entry-signature] as below.
        let code = unsafe { crate::status::entry!($name in driver::DRIVER)($($argument),*) }.0;
        match code {
            0 => Ok(true),
            crate::status::code::$answer => Ok(false),
            code => Err(crate::status::failed(
                &crate::table::driver::DRIVER,
                crate::table::driver::at::$name,
                code,
                format_args!($($subject)+),
            )),
        }
    }};
    (entry!($name:ident), ($($argument:expr),* $(,)?), $($subject:tt)+) => {{
        // SAFETY: [entry-signature] the entry holds this call or its stub; the arguments are what the seam's
        // function promises of them.
        let code = unsafe { crate::status::entry!($name in driver::DRIVER)($($argument),*) }.0;
        if code == 0 {
            Ok(())
        } else {
            Err(crate::status::failed(
                &crate::table::driver::DRIVER,
                crate::table::driver::at::$name,
                code,
                format_args!($($subject)+),
            ))
        }
    }};
}

/// One compiler call, as [`driver_call!`].
macro_rules! compiler_call {
    (entry!($name:ident), ($($argument:expr),* $(,)?), $($subject:tt)+) => {{
        // SAFETY: [entry-signature] as for `driver_call!`.
        let code = unsafe { crate::status::entry!($name in nvrtc::NVRTC)($($argument),*) }.0;
        if code == 0 {
            Ok(())
        } else {
            Err(crate::status::failed(
                &crate::table::nvrtc::NVRTC,
                crate::table::nvrtc::at::$name,
                code,
                format_args!($($subject)+),
            ))
        }
    }};
}

pub(crate) use {compiler_call, driver_call, entry};

/// The statuses that the seam tells apart, by CUDA's own names.
pub mod code {
    /// `CUDA_ERROR_INVALID_VALUE`
    pub const INVALID_VALUE: u32 = 1;
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    pub const OUT_OF_MEMORY: u32 = 2;
    /// `CUDA_ERROR_NOT_INITIALIZED`
    pub const NOT_INITIALIZED: u32 = 3;
    /// `CUDA_ERROR_DEINITIALIZED`
    pub const DEINITIALIZED: u32 = 4;
    /// `CUDA_ERROR_NO_DEVICE`
    pub const NO_DEVICE: u32 = 100;
    /// `CUDA_ERROR_INVALID_CONTEXT`
    pub const INVALID_CONTEXT: u32 = 201;
    /// `CUDA_ERROR_NO_BINARY_FOR_GPU`
    pub const NO_BINARY_FOR_GPU: u32 = 209;
    /// `CUDA_ERROR_INVALID_HANDLE`
    pub const INVALID_HANDLE: u32 = 400;
    /// `CUDA_ERROR_NOT_FOUND`
    pub const NOT_FOUND: u32 = 500;
    /// `CUDA_ERROR_NOT_READY`
    pub const NOT_READY: u32 = 600;
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
    pub const CONTEXT_IS_DESTROYED: u32 = 709;
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`
    pub const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    /// `CUDA_ERROR_ILLEGAL_STATE`
    pub const ILLEGAL_STATE: u32 = 401;
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
    pub const STREAM_CAPTURE_INVALIDATED: u32 = 901;
    /// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
    pub const STREAM_CAPTURE_UNJOINED: u32 = 904;
    /// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`
    pub const STREAM_CAPTURE_ISOLATION: u32 = 905;
    /// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`
    pub const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
    /// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`
    pub const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`
    pub const STREAM_CAPTURE_IMPLICIT: u32 = 906;
    /// `CUDA_ERROR_NOT_SUPPORTED`
    pub const NOT_SUPPORTED: u32 = 801;
}
