//! What the tests share: the driver they run on, the reports they expect, and what is left alive.
//!
//! The same tests run on both drivers: `CUIRASS_DRIVER=gpu` runs them on the system's, anything else on the simulated
//! one. A test of what only the simulated driver can tell asks [`is_simulator`].
//!
//! The gauntlet's engine is here too: [`sweep`] runs an [`operation`] with each of its calls failing in turn
//! ([`instrument`]), [`judge`] makes the checks of section 11 of the failure policy, [`ledger`] follows handles, and
//! [`runner`] gives each family a process of its own.

pub mod calls;
pub mod faulted;
pub mod instrument;
pub mod judge;
pub mod ledger;
pub mod operation;
pub mod raw;
pub mod runner;
pub mod simulator;
pub mod sweep;
pub mod told;

pub use simulator::census;

use cuirass_call::load;
use cuirass_fault::{Library, Report, Reporter, set_reporter};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());

/// Holds the process for one test: tests that look at reports, faults or the census see only their own.
#[must_use = "the process is shared again when this is dropped"]
pub struct Alone {
    _guard: MutexGuard<'static, ()>,
    reports: Arc<Mutex<Vec<String>>>,
    previous: Option<Reporter>,
}

/// Chooses the driver, takes the process for this test alone, and collects its reports.
pub fn alone() -> Alone {
    choose();
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let collect = move |report: &Report| sink.lock().unwrap_or_else(PoisonError::into_inner).push(report.to_string());
    let previous = set_reporter(Some(Arc::new(collect)));
    Alone { _guard: guard, reports, previous }
}

impl Alone {
    /// The reports so far, which are taken.
    pub fn reports(&self) -> Vec<String> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        drop(set_reporter(self.previous.take()));
        let left = self.reports();
        if !std::thread::panicking() {
            assert!(left.is_empty(), "reports that the test did not expect: {left:#?}");
        }
    }
}

/// Chooses the simulated driver, unless `CUIRASS_DRIVER` names another.
pub fn choose() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("CUIRASS_DRIVER").is_none() {
            take_new_ptx();
            load::choose_driver(load::Choice::Simulator(None));
        }
    });
}

/// The compiler of the tests is of CUDA 13: an older simulated driver takes its PTX all the same.
fn take_new_ptx() {
    if let Ok(shape) = std::env::var("CUIRASS_SIM")
        && shape.contains("driver=")
        && !shape.contains("ptx=")
    {
        // SAFETY: [test] no driver is loaded yet, and the test programs themselves read the environment by `std::env`.
        unsafe { std::env::set_var("CUIRASS_SIM", format!("{shape},ptx=any")) };
    }
}

/// Whether the driver that is loaded is the simulated one.
pub fn is_simulator() -> bool {
    choose();
    load::driver_version().is_ok() && load::loaded(Library::Driver).is_some_and(|(_, _, simulated)| simulated)
}

/// The driver's CUDA version: 12030 for 12.3.
pub fn driver_version() -> u32 {
    choose();
    load::driver_version().unwrap_or(0)
}
