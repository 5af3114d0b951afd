//! Faults and recordings for the tests of programs: what `cuirass.testing` rests on.

use crate::error::ask;
use crate::number::Number;
use cuirass::testing as rust;
use cuirass_fault::lock::Mutex;
use pyo3::prelude::*;

/// A fault that is in place until ``remove()``, or until it is collected.
#[pyclass(frozen, module = "cuirass._cuirass", name = "_Fault")]
pub struct Fault(Mutex<Option<rust::Injected>>);

#[pymethods]
impl Fault {
    /// How many calls have failed by it, and how many it has seen.
    fn counts(&self) -> (u64, u64) {
        self.0.lock().as_ref().map_or((0, 0), |injected| (injected.count(), injected.seen()))
    }

    /// The first call that has failed by it.
    fn first_call(&self) -> Option<&'static str> {
        self.0.lock().as_ref().and_then(rust::Injected::first_call)
    }

    /// Takes it out.
    fn remove(&self) {
        let injected = self.0.lock().take();
        drop(injected);
    }
}

/// Makes calls of one entry point fail, or of any.
#[pyfunction]
#[pyo3(signature = (call, *, nth, times, status, done, thread))]
pub fn _inject(
    py: Python<'_>,
    call: Option<&str>,
    nth: Number<u64>,
    times: Option<Number<u64>>,
    status: Option<Number<u32>>,
    done: bool,
    thread: Option<Number<u64>>,
) -> PyResult<Fault> {
    let (nth, status) = (nth.named("nth")?, status.map(|status| status.named("status")).transpose()?);
    let times = times.map(|times| times.named("times")).transpose()?;
    let manner = if done { rust::Manner::Done } else { rust::Manner::Refused };
    let fault = call.map_or_else(rust::Fault::in_any_call, rust::Fault::in_call);
    let mut fault = fault.nth(nth).times(times.unwrap_or(u64::MAX)).manner(manner);
    if let Some(status) = status {
        fault = fault.status(status);
    }
    if let Some(thread) = thread {
        fault = fault.on_thread(thread.named("thread")?);
    }
    Ok(Fault(Mutex::new(Some(ask(py, || fault.inject())?))))
}

/// Records calls until ``stop()``, or until it is collected.
#[pyclass(frozen, module = "cuirass._cuirass", name = "_Recording")]
pub struct Recording(Mutex<Option<rust::Recording>>);

#[pymethods]
impl Recording {
    /// The calls since the last time: entry point, status, arguments as numbers.
    fn take(&self) -> Vec<(&'static str, u32, Vec<u64>)> {
        let calls = self.0.lock().as_ref().map(rust::Recording::take).unwrap_or_default();
        calls.into_iter().map(|record| (record.call, record.status, record.arguments)).collect()
    }

    /// Stops.
    fn stop(&self) {
        let recording = self.0.lock().take();
        drop(recording);
    }
}

/// Begins to record calls.
#[pyfunction]
pub fn _record() -> Recording {
    Recording(Mutex::new(Some(rust::Recording::start())))
}

/// Every call that cuirass makes.
#[pyfunction]
pub fn _known_calls() -> Vec<&'static str> {
    rust::known_calls().collect()
}

/// CUDA's name of one of the driver's statuses.
#[pyfunction]
pub fn _status_name(code: Number<u32>) -> PyResult<Option<&'static str>> {
    Ok(cuirass::driver::status_name(code.named("status")?))
}

/// NVRTC's name of one of its statuses.
#[pyfunction]
pub fn _compiler_status_name(code: Number<u32>) -> PyResult<Option<&'static str>> {
    Ok(cuirass::driver::compiler_status_name(code.named("status")?))
}
