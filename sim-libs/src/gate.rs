//! The gate that every exported function goes through: what is refused before a call is looked at, and a panic in
//! the simulator as a status instead of the end of the process.

use cuirass_sim::entry::{self, Export};
use cuirass_sim::graph::beside;
use cuirass_sim::report;
use cuirass_sim::status::{Answer, SUCCESS, UNKNOWN};
use cuirass_sim::thread;
use cuirass_sys::cuda::{CUresult, CUstream};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a simulated call.
#[inline]
pub fn call(export: &'static Export, body: impl FnOnce() -> Answer) -> CUresult {
    let made = catch_unwind(AssertUnwindSafe(|| entry::enter(export).and_then(|()| body())));
    match made {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        Err(payload) => panicked(&*payload),
    }
}

/// Makes a simulated call on a stream.
#[inline]
pub fn call_on(export: &'static Export, stream: CUstream, body: impl FnOnce() -> Answer) -> CUresult {
    call(export, || {
        let _here = beside::enter(export.name, stream.addr());
        body()
    })
}

/// Answers a call that is not simulated.
pub fn not_simulated(export: &'static Export) -> CUresult {
    catch_unwind(AssertUnwindSafe(|| entry::not_simulated(export))).unwrap_or_else(|payload| panicked(&*payload))
}

/// Keeps a panic of the functions that are not CUDA's from crossing into C.
pub fn extra<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        panicked(&*payload);
        otherwise
    })
}

#[cold]
fn panicked(payload: &(dyn std::any::Any + Send)) -> CUresult {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    report::make(
        report::Kind::Panic,
        format!("{}: the simulator itself panicked: {}", thread::place(), text.unwrap_or("no message")),
    );
    UNKNOWN
}
