//! The functions that are not CUDA's: census, reports, schedule, counts of calls.

use crate::exports::EXPORTS;
use crate::gate;
use cuirass_sim::c::{FromC, Out, Text};
use cuirass_sim::{census, context, order, report, state, thread};
use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering;

/// Hands text out as the module's documentation says.
///
/// # Safety
/// `text` is null or has `room` bytes.
unsafe fn hand_out(text: *mut c_char, room: usize, make: impl FnOnce() -> String) -> usize {
    gate::extra(0, || {
        let made = make();
        // SAFETY: [c-caller] the C caller promises `room` bytes.
        let out: Out<c_char> = unsafe { FromC::from_c(text) };
        if !out.is_null() && room > 0 && out.write_text(&made, room).is_err() {
            return 0;
        }
        made.len()
    })
}

/// Name and version of the simulator.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_version() -> *const c_char {
    concat!("cuirass-sim ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// How many objects of each kind are alive.
///
/// # Safety
/// `text` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_census(text: *mut c_char, room: usize) -> usize {
    // SAFETY: [c-caller] the C caller promises `room` bytes.
    unsafe { hand_out(text, room, census::json) }
}

/// How many objects of one kind are alive.
///
/// # Safety
/// `kind` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_alive(kind: *const c_char) -> i64 {
    gate::extra(-1, || {
        // SAFETY: [c-caller] the C caller promises a closing zero.
        let kind: Text = unsafe { FromC::from_c(kind) };
        let Ok(kind) = kind.read() else { return -1 };
        let found = census::census().into_iter().find(|(name, _)| *name == kind);
        found.map_or(-1, |(_, count)| count as i64)
    })
}

/// Everything that is alive, one a line.
///
/// # Safety
/// `text` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_objects(text: *mut c_char, room: usize) -> usize {
    // SAFETY: [c-caller] the C caller promises `room` bytes.
    unsafe { hand_out(text, room, census::objects) }
}

/// How many ops are pending in all streams.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_pending() -> u64 {
    gate::extra(0, census::pending)
}

/// The number that the next report will have.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_reports_mark() -> u64 {
    gate::extra(0, report::mark)
}

/// The reports from a mark on.
///
/// # Safety
/// `text` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_reports(mark: u64, text: *mut c_char, room: usize) -> usize {
    // SAFETY: [c-caller] the C caller promises `room` bytes.
    unsafe { hand_out(text, room, || report::json_lines(mark)) }
}

fn seed(seed: Option<u64>) -> c_int {
    gate::extra(1, || match state::lock() {
        Ok(mut state) => {
            state.engine.set_seed(seed);
            0
        }
        Err(status) => status.0 as c_int,
    })
}

/// A deterministic schedule from now on. Wants `cuInit`; before it, `CUIRASS_SIM=seed=…` is the way.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_set_seed(number: u64) -> c_int {
    seed(Some(number))
}

/// A free schedule again.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_clear_seed() -> c_int {
    seed(None)
}

/// Turns the stream-order checker on, or off again, once the work that is pending is done (or 10 seconds have passed).
/// It stays on until it has been turned off as often as on. Wants `cuInit`; before it, `CUIRASS_SIM=check=order` is the
/// way.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_check_order(on: c_int) -> c_int {
    gate::extra(1, || match state::lock() {
        Ok(mut state) => {
            thread::enter("cuirass_sim_check_order");
            if on != 0 {
                order::start(&state)
            } else {
                order::stop(&mut state)
            }
            0
        }
        Err(status) => status.0 as c_int,
    })
}

/// Ends everything that is alive, for tests that share a process.
#[unsafe(no_mangle)]
pub extern "C" fn cuirass_sim_reset() -> c_int {
    gate::extra(1, || match state::lock() {
        Ok(mut state) => {
            thread::enter("cuirass_sim_reset");
            context::reset(&mut state);
            0
        }
        Err(status) => status.0 as c_int,
    })
}

/// Configuration, devices and contexts.
///
/// # Safety
/// `text` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_state(text: *mut c_char, room: usize) -> usize {
    // SAFETY: [c-caller] the C caller promises `room` bytes.
    unsafe { hand_out(text, room, census::state) }
}

/// How often each call was made; calls that never were are left out.
///
/// # Safety
/// `text` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_calls(text: *mut c_char, room: usize) -> usize {
    let counts = || {
        let made = EXPORTS.iter().map(|export| (export.name, export.made.load(Ordering::Relaxed)));
        let rows: Vec<String> = made.filter(|row| row.1 > 0).map(|(name, made)| format!("\"{name}\":{made}")).collect();
        format!("{{{}}}", rows.join(","))
    };
    // SAFETY: [c-caller] the C caller promises `room` bytes.
    unsafe { hand_out(text, room, counts) }
}

/// How often one call was made.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuirass_sim_calls_made(name: *const c_char) -> u64 {
    gate::extra(u64::MAX, || {
        // SAFETY: [c-caller] the C caller promises a closing zero.
        let name: Text = unsafe { FromC::from_c(name) };
        let Ok(name) = name.read() else { return u64::MAX };
        let found = EXPORTS.iter().find(|export| export.name == name);
        found.map_or(u64::MAX, |export| export.made.load(Ordering::Relaxed))
    })
}
