//! Errors on their way to Python, and the one way in which the glue calls cuirass.

use crate::report;
use cuirass::{Error, ErrorKind};
use cuirass_fault::{Absence, Cause};
use pyo3::exceptions::{PyGeneratorExit, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls cuirass with the interpreter released: for whatever enqueues, waits or compiles.
#[inline]
pub fn run<T: Send>(py: Python<'_>, operation: impl FnOnce() -> cuirass::Result<T> + Send) -> PyResult<T> {
    finish(py, py.detach(|| catch_unwind(AssertUnwindSafe(operation))))
}

/// Calls cuirass without releasing the interpreter: for what only reads, and returns at once. It must make no call that
/// waits while another thread's launch waits on a full queue (measured: facts/README.md), which a Python callback may
/// keep full.
#[inline]
pub fn ask<T>(py: Python<'_>, operation: impl FnOnce() -> cuirass::Result<T>) -> PyResult<T> {
    finish(py, catch_unwind(AssertUnwindSafe(operation)))
}

/// Closes something, with the interpreter released. In a forked child there is nothing to close: the handle is the
/// parent's.
pub fn close(py: Python<'_>, operation: impl FnOnce() -> cuirass::Result<()> + Send) -> PyResult<()> {
    run(py, || match operation() {
        Err(error) if error.kind() == ErrorKind::Forked => Ok(()),
        result => result,
    })
}

#[inline]
fn finish<T>(py: Python<'_>, result: std::thread::Result<cuirass::Result<T>>) -> PyResult<T> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(raised(py, error)),
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}

/// What PyO3 panics with where the interpreter could not make an object.
const NO_OBJECT: [&str; 2] = ["Python API call failed", "PyObject pointer is null"];

/// A panic of ours is an ordinary error in Python.
#[cold]
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned());
    if NO_OBJECT.contains(&text.as_str()) {
        return PyMemoryError::new_err("the interpreter had no memory for an object");
    }
    PyRuntimeError::new_err(format!("internal inconsistency: {text}; please report this"))
}

/// An error as Python's exception, with its notes.
#[cold]
pub fn raised(py: Python<'_>, error: Error) -> PyErr {
    let message = error.facts().to_string();
    let exception = match error.kind() {
        ErrorKind::Type => PyTypeError::new_err(message),
        ErrorKind::Value => PyValueError::new_err(message),
        ErrorKind::Memory => PyMemoryError::new_err(message),
        ErrorKind::State | ErrorKind::Internal => PyRuntimeError::new_err(message),
        kind => cuda_error(py, &error, kind, message),
    };
    with_notes(py, exception, error.notes())
}

/// `cuirass._error.make(...)`, which knows the classes.
fn cuda_error(py: Python<'_>, error: &Error, kind: ErrorKind, message: String) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let facts = PyDict::new(py);
        if let Some(status) = error.status() {
            facts.set_item("status", (status.code, status.name.as_ref()))?;
        }
        facts.set_item("call", error.call())?;
        if let Some(log) = error.log() {
            facts.set_item("log", log)?;
        }
        if let Cause::Absent(Absence::EntryPoint { needs, found }) = &error.facts().cause {
            facts.set_item("needs", version(*needs))?;
            facts.set_item("found", version(*found))?;
        }
        let kind = match kind {
            ErrorKind::Sticky => "sticky",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Forked => "forked",
            _ if error.facts().library == Some(cuirass_fault::Library::Nvrtc) => "compiler",
            _ => "driver",
        };
        let exception = py.import("cuirass._error")?.getattr("make")?.call1((kind, &message, facts))?;
        Ok(PyErr::from_value(exception))
    };
    // At the interpreter's end the module may be gone: the message must not be.
    made().unwrap_or_else(|_gone| PyRuntimeError::new_err(message.clone()))
}

fn version(number: u32) -> (u32, u32) {
    (number / 1000, number % 1000 / 10)
}

fn with_notes(py: Python<'_>, exception: PyErr, notes: &[String]) -> PyErr {
    for note in notes {
        if let Err(lost) = exception.value(py).call_method1("add_note", (note,)) {
            // Only a MemoryError can get here; it is better than an error that says too little.
            return lost;
        }
    }
    exception
}

/// Leaves a `with` block: a failure on the way out is raised, or noted on the exception that is passing.
pub fn leave(py: Python<'_>, passing: &Bound<'_, PyAny>, doing: &str, left: PyResult<()>) -> PyResult<()> {
    match left {
        Err(failure) if !passing.is_none() => attach_note(py, passing, doing, &failure),
        left => left,
    }
}

/// Adds a second error to the one that is already on its way.
fn attach_note(py: Python<'_>, exception: &Bound<'_, PyAny>, doing: &str, second: &PyErr) -> PyResult<()> {
    let kind = second.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let text = format!("{doing} ({kind}: {}{})", second.value(py), notes_of(py, second));
    // A generator that is closed swallows its exception, and some exceptions take no notes: nothing may be lost there.
    let swallowed = exception.is_instance_of::<PyGeneratorExit>();
    if swallowed || exception.call_method1("add_note", (&text,)).is_err() {
        report::warn(py, &text);
    }
    Ok(())
}

/// The notes of an exception, each behind a semicolon, for a text that takes it in: what they tell must not be lost.
pub fn notes_of(py: Python<'_>, exception: &PyErr) -> String {
    let notes = exception.value(py).getattr("__notes__").and_then(|notes| notes.extract::<Vec<String>>());
    notes.unwrap_or_default().iter().map(|note| format!("; {note}")).collect()
}

/// The misuse of something that was closed.
#[cold]
pub fn closed(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("this {what} is closed"))
}

/// The misuse of a class that is not called.
#[cold]
pub fn not_constructed<T>(class: &str, instead: &str) -> PyResult<T> {
    Err(PyRuntimeError::new_err(format!("{class} objects are not made by calling the class; use {instead}")))
}
