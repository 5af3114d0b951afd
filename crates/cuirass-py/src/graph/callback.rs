//! Python functions as host callbacks of graphs: they run on a thread of the driver, which takes the GIL for them.

use crate::error::{notes_of, run};
use crate::graph::keep::Kept;
use crate::late;
use crate::number;
use crate::report::{UnderWay, python_is_usable, report_later};
use cuirass::graph::{GraphBuilder, HostFunction};
use cuirass_fault::{Failure, Misuse};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Callbacks that are running Python code.
static RUNNING: UnderWay = UnderWay::new();
/// Callbacks that came after the interpreter had begun to end.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Adds a callback to a graph that is being built: a Python function, or a C function of ctypes.
pub fn add(
    py: Python<'_>,
    builder: &GraphBuilder,
    function: &Bound<'_, PyAny>,
    user_data: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let user_data = user_data.filter(|data| !data.is_none());
    if let Some(address) = c_function(function)? {
        return add_c(py, builder, function, address, user_data);
    }
    if !function.is_callable() {
        let kind = function.get_type().name()?;
        return Err(PyTypeError::new_err(format!("fn must be callable, {kind} is not")));
    }
    if user_data.is_some() {
        return Err(PyValueError::new_err("user_data is for C functions; a Python function has what it closes over"));
    }
    let function = Function(Kept::new(function.clone().unbind()));
    run(py, || builder.callback(function))
}

/// What the graph keeps of a Python function.
struct Function(Kept);

impl HostFunction for Function {
    fn call(&self) {
        call(&self.0);
    }
}

/// The object that a callback keeps, for the collector.
pub fn kept(callback: &(dyn Any + Send + Sync)) -> Option<&Kept> {
    match callback.downcast_ref::<Function>() {
        Some(function) => Some(&function.0),
        None => callback.downcast_ref::<CFunction>().map(|callback| &callback.function),
    }
}

/// Counts itself as running.
struct Running;

impl Running {
    fn start() -> Running {
        RUNNING.start();
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.end();
    }
}

/// Runs on a thread of the driver.
fn call(function: &Kept) {
    let running = Running::start();
    // Asked after it is counted, so that the exit hook either waits for it or is seen by it.
    if !python_is_usable() {
        SKIPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let raised = crate::report::attached(|py| {
        let error = late::call0(function.get()?.bind(py)).err()?;
        let name =
            function.get()?.bind(py).repr().map_or_else(|_unnamed| "a function".to_owned(), |name| name.to_string());
        let kind = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        Some(format!("the host callback {name} raised {kind}: {}{}", error.value(py), notes_of(py, &error)))
    });
    if let Some(Some(text)) = raised {
        report_later(Failure::misuse(Misuse::State, text), "running a host callback of a graph");
    }
    drop(running);
}

/// The exit hook's part: has the process tell, when it ends, how many callbacks came too late.
pub fn tell_skipped_at_exit() {
    crate::report::when_the_process_ends(tell_skipped);
}

extern "C" fn tell_skipped() {
    let text = match SKIPPED.load(Ordering::Relaxed) {
        0 => return,
        1 => "a host callback of a graph came after the interpreter had begun to end, and was skipped".to_owned(),
        skipped => {
            format!("{skipped} host callbacks of graphs came after the interpreter had begun to end, and were skipped")
        }
    };
    crate::report::to_stderr(&text);
}

/// The exit hook's part: waits for callbacks that are running, with the interpreter released.
pub fn wait_for_running(py: Python<'_>) {
    RUNNING.wait_for_none(py, Duration::from_secs(2));
}

/// The address of a ctypes function; `None` for what is none. One of another prototype than `void (*)(void *)` is
/// refused.
fn c_function(function: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let py = function.py();
    // Whoever has such a function has loaded the module.
    let Ok(ctypes) = py.import("sys")?.getattr("modules")?.get_item("ctypes") else { return Ok(None) };
    if !function.is_instance(&ctypes.getattr("_CFuncPtr")?)? {
        return Ok(None);
    }
    let pointer = ctypes.getattr("c_void_p")?;
    let result = function.getattr("restype")?;
    let arguments = function.getattr("argtypes")?;
    let fits = result.is_none()
        && arguments.cast::<PyTuple>().is_ok_and(|arguments| {
            arguments.len() == 1 && arguments.get_item(0).is_ok_and(|argument| argument.is(&pointer))
        });
    if !fits {
        return Err(PyTypeError::new_err(
            "a C function that a graph calls takes one c_void_p and returns nothing: ctypes.CFUNCTYPE(None, \
             ctypes.c_void_p), or restype = None and argtypes = (ctypes.c_void_p,)",
        ));
    }
    let address = ctypes.getattr("cast")?.call1((function, &pointer))?.getattr("value")?;
    let address: Option<usize> = address.extract()?;
    address.filter(|address| *address != 0).map(Some).ok_or_else(|| PyValueError::new_err("fn is a null pointer"))
}

/// What the graph keeps of a C function: the ctypes object, and a copy of the bytes that it is given.
struct CFunction {
    function: Kept,
    data: Vec<u8>,
}

fn add_c(
    py: Python<'_>,
    builder: &GraphBuilder,
    function: &Bound<'_, PyAny>,
    address: usize,
    user_data: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let mut kept = CFunction { function: Kept::new(function.clone().unbind()), data: Vec::new() };
    let mut data: usize = 0;
    match user_data {
        None => {}
        Some(number) if number.is_instance_of::<PyInt>() => {
            data = number::of(number, "user_data")?;
        }
        Some(object) => {
            if !crate::view::has_bytes(object) {
                let text =
                    "user_data must be an int, an address, or have bytes, which are copied: bytes, a ctypes structure";
                return Err(PyTypeError::new_err(format!("{text}; not {}", number::kind_of(object))));
            }
            kept.data = crate::memory::bytes_of(object)?;
            data = kept.data.as_mut_ptr().addr();
        }
    }
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(kept);
    run(py, || add_c_function(builder, address, data, owner))
}

#[allow(unsafe_code)]
fn add_c_function(
    builder: &GraphBuilder,
    address: usize,
    data: usize,
    owner: Arc<dyn Any + Send + Sync>,
) -> cuirass::Result<()> {
    let data = std::ptr::with_exposed_provenance_mut::<c_void>(data);
    // SAFETY: [c-callback] ctypes says that it is a function of this prototype, and the graph keeps the ctypes object; what
    // it does is the caller's promise.
    unsafe {
        let function = std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(address);
        builder.callback_raw(function, data, owner)
    }
}
