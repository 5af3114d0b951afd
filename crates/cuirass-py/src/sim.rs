//! The simulated driver: choosing it, and what it says of itself.

use crate::error::run;
use crate::number::Number;
use cuirass::driver::simulator::{self, Text};
use cuirass::driver::{self, Driver};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
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
/// The streams that are kept for the next graph builders are destroyed too.
#[pyfunction]
pub fn drain(py: Python<'_>) -> usize {
    crate::report::report_those();
    py.detach(cuirass::drain)
}

/// What the simulator answers; an exception where another driver is in use.
fn ask<T: Send>(py: Python<'_>, question: impl FnOnce() -> Option<T> + Send) -> PyResult<T> {
    prepare(py)?;
    py.detach(question).ok_or_else(|| {
        PyRuntimeError::new_err(
            "the simulated driver is not in use: set CUIRASS_DRIVER=sim, or call cuirass.sim.use() before the first call",
        )
    })
}

/// The same of what it answers 0 to, if it does it.
fn tell(py: Python<'_>, order: impl FnOnce() -> Option<i32> + Send) -> PyResult<()> {
    match ask(py, order)? {
        0 => Ok(()),
        answer => Err(PyRuntimeError::new_err(format!("the simulator answered {answer}"))),
    }
}

/// The simulator has nothing to order or to check before it is initialised.
fn initialise(py: Python<'_>) -> PyResult<()> {
    prepare(py)?;
    run(py, || cuirass::Device::all().map(drop))
}

/// One of the simulator's texts: ``census``, ``objects``, ``state``, ``calls``.
#[pyfunction]
pub fn _sim_text(py: Python<'_>, name: &str) -> PyResult<String> {
    let which = match name {
        "census" => Text::Census,
        "objects" => Text::Objects,
        "state" => Text::State,
        "calls" => Text::Calls,
        _ => return Err(PyRuntimeError::new_err("no such text")),
    };
    ask(py, || simulator::text(which))
}

/// The simulator's reports from a mark on, one JSON object a line.
#[pyfunction]
pub fn _sim_reports(py: Python<'_>, mark: Number<u64>) -> PyResult<String> {
    let mark = mark.named("since")?;
    ask(py, || simulator::reports_since(mark))
}

/// One of the simulator's numbers: ``reports_mark``, ``pending``.
#[pyfunction]
pub fn _sim_number(py: Python<'_>, name: &str) -> PyResult<u64> {
    match name {
        "reports_mark" => ask(py, simulator::reports_mark),
        "pending" => ask(py, simulator::pending),
        _ => Err(PyRuntimeError::new_err("no such number")),
    }
}

/// How often the program made a call; `None` for a call that the simulator does not have.
#[pyfunction]
pub fn _sim_calls_made(py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
    ask(py, || simulator::calls_made(name))
}

/// Turns the stream-order checker on or off; it is on until it was turned off as often.
#[pyfunction]
pub fn _sim_check_order(py: Python<'_>, on: bool) -> PyResult<()> {
    initialise(py)?;
    tell(py, || simulator::check_order(on))
}

/// A deterministic schedule with a seed; a free one without.
#[pyfunction]
#[pyo3(signature = (seed=None))]
pub fn _sim_seed(py: Python<'_>, seed: Option<Number<u64>>) -> PyResult<()> {
    let seed = seed.map(|seed| seed.named("seed")).transpose()?;
    initialise(py)?;
    tell(py, || simulator::set_seed(seed))
}
