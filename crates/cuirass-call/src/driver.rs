//! Initialisation, versions, and the calling thread's capture mode.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUresult, CUstreamCaptureMode};
use std::ffi::{CStr, c_char, c_int};

/// `cuInit`: makes the driver ready. It may be called any number of times.
pub fn init() -> Result<()> {
    driver_call!(entry!(cuInit), (0), "")
}

/// `cuDriverGetVersion`: the newest CUDA version that the driver serves, 12030 for 12.3.
pub fn driver_get_version() -> Result<i32> {
    let mut version: c_int = 0;
    driver_call!(entry!(cuDriverGetVersion), (&raw mut version), "")?;
    Ok(version)
}

/// `cuThreadExchangeStreamCaptureMode`: sets this thread's capture mode and returns the one before.
pub fn thread_exchange_stream_capture_mode(mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    let mut mode = mode;
    driver_call!(entry!(cuThreadExchangeStreamCaptureMode), (&raw mut mode), "mode {}", mode.0)?;
    Ok(mode)
}

/// `cuGetErrorName`: the driver's own name of a status; `None` for one that it does not know.
pub fn get_error_name(code: u32) -> Result<Option<String>> {
    let mut text: *const c_char = std::ptr::null();
    let known = driver_call!(
        entry!(cuGetErrorName),
        (CUresult(code), &raw mut text),
        answers INVALID_VALUE,
        "status {code}"
    )?;
    Ok(if known { owned_text(text) } else { None })
}

/// `cuGetErrorString`: the driver's own description of a status; `None` for one that it does not know.
pub fn get_error_string(code: u32) -> Result<Option<String>> {
    let mut text: *const c_char = std::ptr::null();
    let known = driver_call!(
        entry!(cuGetErrorString),
        (CUresult(code), &raw mut text),
        answers INVALID_VALUE,
        "status {code}"
    )?;
    Ok(if known { owned_text(text) } else { None })
}

/// A text that the driver owns, copied.
pub(crate) fn owned_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: [library-text] the driver's texts end in NUL and live as long as it is loaded.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The beginning of a user's text, for a message.
pub(crate) struct Told<'a>(pub(crate) &'a CStr);

impl std::fmt::Debug for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 300;
        let bytes = self.0.to_bytes();
        match bytes.get(..MOST) {
            Some(beginning) => {
                write!(f, "{:?}… ({} bytes)", String::from_utf8_lossy(beginning), bytes.len())
            }
            None => std::fmt::Debug::fmt(self.0, f),
        }
    }
}
