//! What the simulated driver has beside CUDA's own functions. On another driver each of these returns `None`.

use crate::load::simulator_symbol;
use std::ffi::{CStr, CString, c_char, c_int};

/// One of its texts about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Text {
    /// How many objects of each kind are alive: `{"stream":1,"event":0,…}`.
    Census,
    /// Everything that is alive, one JSON object a line.
    Objects,
    /// Its configuration, devices and contexts, as JSON.
    State,
    /// How often each call was made: `{"cuInit":1,…}`.
    Calls,
}

/// What it says of itself.
pub fn text(which: Text) -> Option<String> {
    let symbol = simulator_symbol(match which {
        Text::Census => "cuirass_sim_census",
        Text::Objects => "cuirass_sim_objects",
        Text::State => "cuirass_sim_state",
        Text::Calls => "cuirass_sim_calls",
    })?;
    // SAFETY: [simulator-export] it writes at most so many bytes, with a NUL, and returns how many the whole text has.
    unsafe {
        let write: unsafe extern "C" fn(*mut c_char, usize) -> usize = std::mem::transmute(symbol.as_ptr());
        whole(|bytes, room| write(bytes, room))
    }
}

/// The number that its next report will have.
pub fn reports_mark() -> Option<u64> {
    number("cuirass_sim_reports_mark")
}

/// How much work is on all streams that is not done.
pub fn pending() -> Option<u64> {
    number("cuirass_sim_pending")
}

fn number(name: &str) -> Option<u64> {
    let symbol = simulator_symbol(name)?;
    // SAFETY: [simulator-export] those that are named here take nothing and return a number.
    unsafe {
        let read: unsafe extern "C" fn() -> u64 = std::mem::transmute(symbol.as_ptr());
        Some(read())
    }
}

/// Its reports from a mark on, one JSON object a line.
pub fn reports_since(mark: u64) -> Option<String> {
    let symbol = simulator_symbol("cuirass_sim_reports")?;
    // SAFETY: [simulator-export] it writes at most so many bytes, with a NUL, and returns how many the whole text has.
    unsafe {
        let write: unsafe extern "C" fn(u64, *mut c_char, usize) -> usize = std::mem::transmute(symbol.as_ptr());
        whole(|bytes, room| write(mark, bytes, room))
    }
}

/// Asks for a text with more room until it fits: another thread may make it longer meanwhile.
fn whole(write: impl Fn(*mut c_char, usize) -> usize) -> Option<String> {
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let length = write(bytes.as_mut_ptr().cast(), bytes.len());
        if length < bytes.len() {
            return CStr::from_bytes_until_nul(&bytes).ok().map(|text| text.to_string_lossy().into_owned());
        }
        bytes.resize(length + 1, 0);
    }
}

/// How often the program made a call; the inner `None` is for a call that it does not have.
pub fn calls_made(call: &str) -> Option<Option<u64>> {
    let symbol = simulator_symbol("cuirass_sim_calls_made")?;
    let Ok(call) = CString::new(call) else { return Some(None) };
    // SAFETY: [simulator-export] it takes a text that ends in NUL and returns a number.
    unsafe {
        let read: unsafe extern "C" fn(*const c_char) -> u64 = std::mem::transmute(symbol.as_ptr());
        let made = read(call.as_ptr());
        Some((made != u64::MAX).then_some(made))
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

/// Makes the order of work on different streams deterministic, by a seed, or free again. Returns 0, or what it answered
/// instead.
pub fn set_seed(seed: Option<u64>) -> Option<c_int> {
    let Some(seed) = seed else {
        let symbol = simulator_symbol("cuirass_sim_clear_seed")?;
        // SAFETY: [simulator-export] it takes nothing and returns a number.
        return unsafe {
            let clear: unsafe extern "C" fn() -> c_int = std::mem::transmute(symbol.as_ptr());
            Some(clear())
        };
    };
    let symbol = simulator_symbol("cuirass_sim_set_seed")?;
    // SAFETY: [simulator-export] it takes a number and returns one.
    unsafe {
        let set: unsafe extern "C" fn(u64) -> c_int = std::mem::transmute(symbol.as_ptr());
        Some(set(seed))
    }
}
