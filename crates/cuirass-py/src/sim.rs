//! The simulated driver: choosing it, and what it says of itself.
#![allow(unsafe_code)]

use crate::error::run;
use crate::number::Number;
use cuirass::driver::{self, Driver};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells cuirass where this package's simulator is, if the environment asks for it and says no place itself. Cheap
/// once a driver is loaded.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    if driver::loaded().is_some() {
        DONE.store(true, Ordering::Release);
        return Ok(());
    }
    let asked = std::env::var_os("CUIRASS_DRIVER").is_some_and(|driver| driver == "sim");
    if asked
        && std::env::var_os("CUIRASS_SIM_LIBRARY").is_none()
        && let Some(path) = library(py)?
    {
        run(py, || driver::choose(Driver::SimulatorAt(path)))?;
    }
    Ok(())
}

/// The simulator in this package, if it is there.
fn library(py: Python<'_>) -> PyResult<Option<PathBuf>> {
    let package: PathBuf = py.import("cuirass")?.getattr("__file__")?.extract()?;
    let path = package.with_file_name("_sim").join("libcuda.so.1");
    Ok(path.exists().then_some(path))
}

/// The path of this package's simulator; `None` where it is not there.
#[pyfunction]
pub fn _sim_library(py: Python<'_>) -> PyResult<Option<String>> {
    Ok(library(py)?.map(|path| path.display().to_string()))
}

/// Chooses the simulator at a path.
#[pyfunction]
pub fn _sim_use(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    run(py, || driver::choose(Driver::SimulatorAt(path)))
}

/// The driver that is loaded: its path, version, and whether it is the simulator.
#[pyfunction]
pub fn _loaded_driver() -> Option<(String, u32, bool)> {
    driver::loaded().map(|library| (library.path, library.version, library.is_simulator))
}

/// The compiler that is loaded: its path and version.
#[pyfunction]
pub fn _loaded_compiler() -> Option<(String, u32)> {
    driver::loaded_compiler().map(|library| (library.path, library.version))
}

/// Loads the driver, and returns its version.
#[pyfunction]
pub fn _driver_version(py: Python<'_>) -> PyResult<u32> {
    prepare(py)?;
    run(py, driver::version)
}

/// Loads the compiler, and returns its version.
#[pyfunction]
pub fn _compiler_version(py: Python<'_>) -> PyResult<(i32, i32)> {
    run(py, cuirass::compiler_version)
}

/// Tries the releases that wait for a capture to end, and returns how many still do. Reports what callbacks have raised.
#[pyfunction]
pub fn drain(py: Python<'_>) -> usize {
    crate::report::report_those();
    py.detach(cuirass::drain)
}

fn symbol(py: Python<'_>, name: &str) -> PyResult<*mut std::ffi::c_void> {
    prepare(py)?;
    match driver::simulator_symbol(name) {
        Some(found) => Ok(found.as_ptr()),
        None => Err(PyRuntimeError::new_err(
            "the simulated driver is not in use: set CUIRASS_DRIVER=sim, or call cuirass.sim.use() before the first call",
        )),
    }
}

/// Asks for a text's length, then for the text, until it fits.
fn text(mut read: impl FnMut(*mut c_char, usize) -> usize) -> String {
    let mut room = read(std::ptr::null_mut(), 0);
    loop {
        let mut bytes = vec![0_u8; room + 1];
        let length = read(bytes.as_mut_ptr().cast(), bytes.len());
        if length <= room {
            bytes.truncate(length);
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        room = length;
    }
}

/// One of the simulator's texts: ``census``, ``objects``, ``state``, ``calls``.
#[pyfunction]
pub fn _sim_text(py: Python<'_>, name: &str) -> PyResult<String> {
    if !matches!(name, "census" | "objects" | "state" | "calls") {
        return Err(PyRuntimeError::new_err("no such text"));
    }
    let symbol = symbol(py, &format!("cuirass_sim_{name}"))?;
    // SAFETY: [simulator-export] the export's documented signature.
    let read: unsafe extern "C" fn(*mut c_char, usize) -> usize = unsafe { std::mem::transmute(symbol) };
    // SAFETY: [simulator-export] as documented: it writes no more than there is room.
    Ok(text(|bytes, room| unsafe { read(bytes, room) }))
}

/// The simulator's reports from a mark on, one JSON object a line.
#[pyfunction]
pub fn _sim_reports(py: Python<'_>, mark: u64) -> PyResult<String> {
    let symbol = symbol(py, "cuirass_sim_reports")?;
    // SAFETY: [simulator-export] the export's documented signature.
    let read: unsafe extern "C" fn(u64, *mut c_char, usize) -> usize = unsafe { std::mem::transmute(symbol) };
    // SAFETY: [simulator-export] as documented.
    Ok(text(|bytes, room| unsafe { read(mark, bytes, room) }))
}

/// One of the simulator's numbers: ``reports_mark``, ``pending``.
#[pyfunction]
pub fn _sim_number(py: Python<'_>, name: &str) -> PyResult<u64> {
    if !matches!(name, "reports_mark" | "pending") {
        return Err(PyRuntimeError::new_err("no such number"));
    }
    let symbol = symbol(py, &format!("cuirass_sim_{name}"))?;
    // SAFETY: [simulator-export] the export's documented signature.
    let read: unsafe extern "C" fn() -> u64 = unsafe { std::mem::transmute(symbol) };
    // SAFETY: [simulator-export] as documented.
    Ok(unsafe { read() })
}

/// How often the program made a call; `None` for a call that the simulator does not have.
#[pyfunction]
pub fn _sim_calls_made(py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
    let symbol = symbol(py, "cuirass_sim_calls_made")?;
    let name = CString::new(name)?;
    // SAFETY: [simulator-export] the export's documented signature.
    let read: unsafe extern "C" fn(*const c_char) -> u64 = unsafe { std::mem::transmute(symbol) };
    // SAFETY: [simulator-export] as documented.
    let made = unsafe { read(name.as_ptr()) };
    Ok((made != u64::MAX).then_some(made))
}

/// Turns the stream-order checker on or off; it is on until it was turned off as often.
#[pyfunction]
pub fn _sim_check_order(py: Python<'_>, on: bool) -> PyResult<()> {
    // The simulator has nothing to check before it is initialised.
    prepare(py)?;
    run(py, || cuirass::Device::all().map(drop))?;
    let symbol = symbol(py, "cuirass_sim_check_order")?;
    // SAFETY: [simulator-export] the export's documented signature.
    let set: unsafe extern "C" fn(c_int) -> c_int = unsafe { std::mem::transmute(symbol) };
    // SAFETY: [simulator-export] as documented.
    let answer = py.detach(|| unsafe { set(c_int::from(on)) });
    if answer == 0 { Ok(()) } else { Err(PyRuntimeError::new_err(format!("the simulator answered {answer}"))) }
}

/// A deterministic schedule with a seed; a free one without.
#[pyfunction]
#[pyo3(signature = (seed=None))]
pub fn _sim_seed(py: Python<'_>, seed: Option<Number<u64>>) -> PyResult<()> {
    let seed = seed.map(|seed| seed.named("seed")).transpose()?;
    let answer: c_int = match seed {
        Some(seed) => {
            let symbol = symbol(py, "cuirass_sim_set_seed")?;
            // SAFETY: [simulator-export] the export's documented signature.
            let set: unsafe extern "C" fn(u64) -> c_int = unsafe { std::mem::transmute(symbol) };
            // SAFETY: [simulator-export] as documented.
            py.detach(|| unsafe { set(seed) })
        }
        None => {
            let symbol = symbol(py, "cuirass_sim_clear_seed")?;
            // SAFETY: [simulator-export] the export's documented signature.
            let clear: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol) };
            // SAFETY: [simulator-export] as documented.
            py.detach(|| unsafe { clear() })
        }
    };
    if answer == 0 { Ok(()) } else { Err(PyRuntimeError::new_err(format!("the simulator answered {answer}"))) }
}
