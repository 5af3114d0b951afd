//! What the simulated driver has beside CUDA's own functions. On another driver each of these returns `None`.

use crate::load::simulator_symbol;
use std::ffi::{CStr, c_char, c_int};

/// The number that its next report will have.
pub fn reports_mark() -> Option<u64> {
    let symbol = simulator_symbol("cuirass_sim_reports_mark")?;
    // SAFETY: [simulator-export] it takes nothing and returns a number.
    unsafe {
        let mark: unsafe extern "C" fn() -> u64 = std::mem::transmute(symbol.as_ptr());
        Some(mark())
    }
}

/// Its reports from a mark on, one JSON object a line.
pub fn reports_since(mark: u64) -> Option<String> {
    let symbol = simulator_symbol("cuirass_sim_reports")?;
    // SAFETY: [simulator-export] it writes at most so many bytes, with a NUL, and returns how many the whole text has.
    unsafe {
        let reports: unsafe extern "C" fn(u64, *mut c_char, usize) -> usize = std::mem::transmute(symbol.as_ptr());
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let length = reports(mark, bytes.as_mut_ptr().cast(), bytes.len());
            if length < bytes.len() {
                return CStr::from_bytes_until_nul(&bytes).ok().map(|text| text.to_string_lossy().into_owned());
            }
            // Another thread may add one meanwhile.
            bytes.resize(length + 1, 0);
        }
    }
}

/// Turns its checker of the order between streams on, or off once the work that is pending is done. Returns 0, or what it
/// answered instead.
pub fn check_order(on: bool) -> Option<c_int> {
    let symbol = simulator_symbol("cuirass_sim_check_order")?;
    // SAFETY: [simulator-export] it takes a number and returns one.
    unsafe {
        let check: unsafe extern "C" fn(c_int) -> c_int = std::mem::transmute(symbol.as_ptr());
        Some(check(c_int::from(on)))
    }
}
