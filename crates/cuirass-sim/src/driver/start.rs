//! Initialisation, versions, status names.

use crate::c::Out;
use crate::status::{Answer, INVALID_VALUE, NOT_INITIALIZED, Status};
use crate::{config, host, profile, report, state, thread};
use cuirass_sys::cuda::CUstreamCaptureMode;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::Once;

/// The configuration; a wrong one is reported once, and every call that needs it is refused.
fn configured() -> Answer<&'static config::Config> {
    static REPORTED: Once = Once::new();
    config::config().map_err(|wrong| {
        REPORTED.call_once(|| report::make(report::Kind::Config, wrong.to_owned()));
        INVALID_VALUE
    })
}

pub fn cuInit(flags: c_uint) -> Answer {
    if host::forked() {
        return Err(NOT_INITIALIZED);
    }
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let config = configured()?;
    report::set_quiet(config.quiet);
    if config.devices == 0 {
        return Err(Status::CUDA_ERROR_NO_DEVICE);
    }
    state::initialise(config);
    Ok(())
}

pub fn cuDriverGetVersion(version: Out<c_int>) -> Answer {
    version.check()?;
    version.write(configured()?.driver as c_int)
}

fn word_of(
    error: Status,
    out: &Out<*const c_char>,
    choose: impl Fn(&(u32, &'static CStr, &'static CStr)) -> &'static CStr,
) -> Answer {
    out.check()?;
    match profile::STATUSES.iter().find(|(code, _, _)| *code == error.0) {
        Some(row) => out.write(choose(row).as_ptr()),
        None => {
            out.write(std::ptr::null())?;
            Err(INVALID_VALUE)
        }
    }
}

pub fn cuGetErrorName(error: Status, out: Out<*const c_char>) -> Answer {
    word_of(error, &out, |row| row.1)
}

pub fn cuGetErrorString(error: Status, out: Out<*const c_char>) -> Answer {
    word_of(error, &out, |row| row.2)
}

pub fn cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>) -> Answer {
    let wanted = mode.read()?;
    if wanted.0 > CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(INVALID_VALUE);
    }
    mode.write(CUstreamCaptureMode(thread::exchange_capture_mode(wanted.0)))
}
