//! Which driver is used: the system's, or the simulated one.
//!
//! The environment variable `CUIRASS_DRIVER` says it (`gpu`, the default, or `sim`), or [`choose`], before the first
//! call. The simulated driver is never chosen silently: without a driver, [`Device::new`](crate::Device::new) returns
//! an error that names it.

use crate::{Outcome, Result};
pub use cuirass_call::simulator;
use cuirass_call::{device as call, driver as seam, load};
use cuirass_fault::{Cause, Facts, Failure, Library, Misuse};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which driver is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Driver {
    /// The system's driver, `libcuda.so.1`.
    Gpu,
    /// The simulated driver, found by `CUIRASS_SIM_LIBRARY` or beside the program.
    Simulator,
    /// The simulated driver, with the path of its library.
    SimulatorAt(PathBuf),
}

/// A library that has been loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedLibrary {
    /// The path or name it was loaded by.
    pub path: String,
    /// Its CUDA version: 12030 is 12.3.
    pub version: u32,
    /// Whether it is the simulated driver.
    pub is_simulator: bool,
}

/// Chooses the driver, before the first call that needs one.
///
/// # Errors
/// [`ErrorKind::State`](crate::ErrorKind::State) when the other kind of driver is loaded already.
pub fn choose(driver: Driver) -> Result<()> {
    let choice = match driver {
        Driver::Gpu => load::Choice::Gpu,
        Driver::Simulator => load::Choice::Simulator(None),
        Driver::SimulatorAt(path) => load::Choice::Simulator(Some(path)),
    };
    if load::choose_driver(choice) {
        return Ok(());
    }
    Err(Failure::misuse(Misuse::State, "a CUDA driver is loaded already; choose one before the first call").raise())
}

/// The driver that is loaded, if one is. Loads nothing.
pub fn loaded() -> Option<LoadedLibrary> {
    library(Library::Driver)
}

/// The NVRTC that is loaded, if one is. Loads nothing.
pub fn loaded_compiler() -> Option<LoadedLibrary> {
    library(Library::Nvrtc)
}

fn library(library: Library) -> Option<LoadedLibrary> {
    let (path, version, is_simulator) = load::loaded(library)?;
    Some(LoadedLibrary { path, version, is_simulator })
}

/// The CUDA version of the driver, which is loaded if it is not yet: 12030 for 12.3.
///
/// # Errors
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when there is no driver.
pub fn version() -> Result<u32> {
    load::driver_version().map_err(|absence| unavailable(absence).raise())
}

/// Says where NVRTC is, before its first use.
pub fn set_compiler_path(path: PathBuf) {
    load::set_nvrtc_path(path);
}

/// `cuDeviceGetCount`: how many devices the driver has.
///
/// # Errors
/// What the driver answers, or that there is none.
pub fn device_count() -> Result<i32> {
    Ok(initialized().and_then(|()| call::get_count())?)
}

/// A function that only the simulated driver has, by its name, `cuirass_sim_census`; `None` with another driver. The
/// driver is loaded if it is not yet.
pub fn simulator_symbol(name: &str) -> Option<std::ptr::NonNull<std::ffi::c_void>> {
    load::simulator_symbol(name)
}

/// CUDA's own name of one of the driver's statuses; `None` for a number that it does not have. Loads nothing.
pub fn status_name(code: u32) -> Option<&'static str> {
    cuirass_call::table::driver::status_name(code)
}

/// NVRTC's own name of one of its statuses; `None` for a number that it does not have. Loads nothing.
pub fn compiler_status_name(code: u32) -> Option<&'static str> {
    cuirass_call::table::nvrtc::status_name(code)
}

/// Whether this process was forked after the driver had been loaded: CUDA cannot be used in it.
pub fn is_forked() -> bool {
    cuirass_call::table::is_forked()
}

/// Refuses in a forked child, as every call does: before a lock of something inherited is waited for, which a thread may hold
/// that the child does not have.
#[inline]
pub(crate) fn refuse_in_child() -> Outcome<()> {
    if is_forked() { refused() } else { Ok(()) }
}

#[cold]
fn refused() -> Outcome<()> {
    cuirass_call::context::ctx_get_current().map(|_none| ())
}

/// `cuInit`, once it has worked. Every operation that may be the first comes through here.
pub(crate) fn initialized() -> Outcome<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) && !is_forked() {
        return Ok(());
    }
    seam::init()?;
    crate::deferred::install();
    DONE.store(true, Ordering::Release);
    Ok(())
}

fn unavailable(absence: cuirass_fault::Absence) -> Failure {
    Failure::new(Facts {
        cause: Cause::Absent(absence),
        library: Some(Library::Driver),
        call: "cuDriverGetVersion",
        status: None,
        subject: String::new(),
        log: None,
        notes: Vec::new(),
        leaked: false,
        attached: Vec::new(),
    })
}
