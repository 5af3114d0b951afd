//! The way into the simulated driver: what is the same for every exported function.

use crate::c::Address;
use crate::status::{Answer, NOT_INITIALIZED, NOT_PERMITTED, NOT_SUPPORTED, Status};
use crate::{config, engine, host, report, state, thread};
use std::sync::atomic::{AtomicU64, Ordering};

/// One exported function.
pub struct Export {
    /// Its name.
    pub name: &'static str,
    /// Its name without the version of the call, as `cuGetProcAddress` is asked for it.
    pub base: &'static str,
    /// Its family.
    pub family: &'static str,
    /// The CUDA version that introduced it.
    pub since: u32,
    /// Its address.
    pub address: Address,
    /// Whether it is simulated.
    pub simulated: bool,
    /// Whether it works before `cuInit`.
    pub early: bool,
    /// How often it was called.
    pub made: AtomicU64,
}

/// Notes the call, and refuses what is refused for every call alike.
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit` and in a forked child, `NOT_PERMITTED` in a host function, `NOT_SUPPORTED` for
/// a function that the configured driver does not have.
pub fn enter(export: &'static Export) -> Answer {
    export.made.fetch_add(1, Ordering::Relaxed);
    thread::enter(export.name);
    if !export.early {
        if !state::initialised() || host::forked() {
            return Err(NOT_INITIALIZED);
        }
        if thread::in_callback() {
            report::bug(format!(
                "{} was called from a host function, where no CUDA call is permitted",
                thread::place()
            ));
            return Err(NOT_PERMITTED);
        }
        engine::wait_for_launches(export.name)?;
    }
    if let Ok(config) = config::config()
        && export.since > config.driver
    {
        report::bug(format!(
            "{} came with CUDA {}.{}, and the simulated driver is of CUDA {}.{}: cuGetProcAddress would not have given it",
            thread::place(),
            export.since / 1000,
            export.since % 1000 / 10,
            config.driver / 1000,
            config.driver % 1000 / 10
        ));
        return Err(NOT_SUPPORTED);
    }
    Ok(())
}

/// The answer of a function that is exported and not simulated.
pub fn not_simulated(export: &'static Export) -> Status {
    match enter(export) {
        Ok(()) => {
            report::unsupported(format!("{} is not simulated", thread::place()));
            NOT_SUPPORTED
        }
        Err(status) => status,
    }
}
