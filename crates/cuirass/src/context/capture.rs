//! Keeping housekeeping and releases from disturbing a capture, whoever started it.

use crate::Outcome;
use cuirass_call::driver as call;
use cuirass_call::sys::cuda::CUstreamCaptureMode;
use cuirass_fault::Failure;
use std::fmt;

/// Runs `operation` with this thread's capture mode exchanged to relaxed, in which it invalidates no capture.
pub(crate) fn relaxed<T>(operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let previous = call::thread_exchange_stream_capture_mode(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    relaxed_from(previous, operation)
}

/// The same for an operation that gives `what` back: where the mode cannot be exchanged nothing was given back, it is
/// leaked.
#[inline(always)]
pub(crate) fn release(what: impl fmt::Display, operation: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    match call::thread_exchange_stream_capture_mode(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) {
        Ok(previous) => relaxed_from(previous, operation),
        Err(failure) => Err(failure.leaking(what)),
    }
}

#[inline(always)]
fn relaxed_from<T>(previous: CUstreamCaptureMode, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let result = operation();
    match call::thread_exchange_stream_capture_mode(previous) {
        Ok(_relaxed) => result,
        Err(restoring) => not_restored(result, restoring),
    }
}

#[cold]
fn not_restored<T>(result: Outcome<T>, restoring: Failure) -> Outcome<T> {
    match result {
        Ok(_done) => Err(restoring
            .note("this thread's capture mode could not be restored and is now relaxed")
            .note("the operation itself was done")),
        Err(failure) => Err(restoring.attach_to(
            failure,
            "this thread's capture mode could not be restored after this failure and is now relaxed",
        )),
    }
}
