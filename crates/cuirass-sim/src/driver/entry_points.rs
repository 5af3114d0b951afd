//! `cuGetProcAddress`: entry points by name and version; and the export tables that are not there.

use crate::c::{In, Out, Text};
use crate::entry::Export;
use crate::status::{Answer, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED};
use crate::{config, report, thread};
use cuirass_sys::cuda::{CUdriverProcAddressQueryResult, CUuuid, cuuint64_t};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`, which is also the default.
const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD_STREAM: u64 = 2;

/// What asking for an entry point finds.
enum Found {
    Export(&'static Export),
    /// The driver has it, but not in the version that was asked for.
    Newer,
    Unknown,
}

/// The newest version of a call that neither the driver nor the wish excludes. `exports` is in order of `base`,
/// then of version.
fn find(exports: &'static [Export], name: &str, wanted: u32, driver: u32) -> Found {
    let start = exports.partition_point(|export| export.base < name);
    let versions = || exports.iter().skip(start).take_while(|export| export.base == name);
    let here = || versions().filter(|export| export.since <= driver);
    match here().filter(|export| export.since <= wanted).max_by_key(|export| export.since) {
        Some(export) => Found::Export(export),
        None if here().next().is_some() => Found::Newer,
        None => Found::Unknown,
    }
}

fn look(
    exports: &'static [Export],
    symbol: Text,
    pfn: &Out<*mut c_void>,
    version: c_int,
    flags: cuuint64_t,
) -> Answer<CUdriverProcAddressQueryResult> {
    pfn.check()?;
    let symbol = symbol.read()?;
    if flags > (LEGACY_STREAM | PER_THREAD_STREAM) {
        return Err(INVALID_VALUE);
    }
    if flags & PER_THREAD_STREAM != 0 {
        report::unsupported(format!(
            "{}: entry points for the per-thread default stream are not simulated",
            thread::place()
        ));
        return Err(NOT_SUPPORTED);
    }
    let driver = config::config().map_or(0, |config| config.driver);
    let (found, result) = match find(exports, &symbol, u32::try_from(version).unwrap_or(0), driver) {
        Found::Export(export) => {
            (export.address.0.cast_mut(), CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS)
        }
        Found::Newer => {
            (std::ptr::null_mut(), CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
        }
        Found::Unknown => (std::ptr::null_mut(), CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
    };
    pfn.write(found)?;
    Ok(result)
}

pub fn cuGetProcAddress(
    symbol: Text,
    pfn: Out<*mut c_void>,
    version: c_int,
    flags: cuuint64_t,
    exports: &'static [Export],
) -> Answer {
    match look(exports, symbol, &pfn, version, flags)? {
        CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS => Ok(()),
        _ => Err(NOT_FOUND),
    }
}

/// With a place for the query's result the call itself succeeds, as the programming guide describes; without one
/// the status must tell.
pub fn cuGetProcAddress_v2(
    symbol: Text,
    pfn: Out<*mut c_void>,
    version: c_int,
    flags: cuuint64_t,
    result: Out<CUdriverProcAddressQueryResult>,
    exports: &'static [Export],
) -> Answer {
    let found = look(exports, symbol, &pfn, version, flags)?;
    if result.is_null() && found != CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS {
        return Err(NOT_FOUND);
    }
    result.write_if_wanted(found);
    Ok(())
}

/// The table that NVRTC asks for, and does without.
const NVRTC_ASKS: [c_char; 16] = [-38, -111, 81, -45, 58, -26, -52, 65, -91, -64, 79, 38, -43, 51, -29, 40];

/// Private tables of the real driver. NVRTC asks for one and does without it; programs of the CUDA runtime cannot.
pub fn cuGetExportTable(table: Out<*const c_void>, id: In<CUuuid>) -> Answer {
    static TOLD: AtomicBool = AtomicBool::new(false);
    table.check()?;
    let id = id.read()?.bytes;
    table.write(std::ptr::null())?;
    if id != NVRTC_ASKS && !TOLD.swap(true, Ordering::Relaxed) {
        report::unsupported(format!(
            "{} asked for a private table of the real driver: programs of the CUDA runtime are not served",
            thread::place()
        ));
    }
    Err(NOT_FOUND)
}
