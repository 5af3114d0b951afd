//! Memory whose release is a `deallocate()` written in Python.

use crate::error::notes_of;
use crate::late;
use crate::report::{python_is_usable, with_exception_aside};
use crate::slot::drop_detached;
use crate::stream::Stream;
use cuirass_fault::lock::Mutex;
use cuirass_fault::{Failure, Misuse};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The driver is shutting down.
const DEINITIALIZED: u32 = 4;

/// Memory that goes back to a user's resource, once.
pub struct UserMemory {
    resource: Py<PyAny>,
    address: u64,
    bytes: usize,
    stream: Mutex<cuirass::Stream>,
}

impl UserMemory {
    pub fn new(resource: Py<PyAny>, address: u64, bytes: usize, stream: cuirass::Stream) -> UserMemory {
        UserMemory { resource, address, bytes, stream: Mutex::new(stream) }
    }

    /// Replaces the stream that orders the release.
    pub fn set_stream(&self, stream: cuirass::Stream) {
        let previous = std::mem::replace(&mut *self.stream.lock(), stream);
        drop_detached(previous);
    }

    /// The stream that orders the release.
    pub fn stream(&self) -> cuirass::Stream {
        self.stream.lock().clone()
    }

    /// For the collector.
    pub fn resource(&self) -> &Py<PyAny> {
        &self.resource
    }

    /// Calls the resource's `deallocate()`; what it raises is the closer's. Runs user code.
    pub fn close(self, py: Python<'_>) -> PyResult<()> {
        let keywords = PyDict::new(py);
        keywords.set_item("stream", Bound::new(py, Stream::of(self.stream.into_inner()))?)?;
        let arguments = (self.address, self.bytes).into_pyobject(py)?;
        late::call(&self.resource.bind(py).getattr("deallocate")?, &arguments, Some(&keywords)).map(drop)
    }

    /// As [`close`](UserMemory::close), where nobody can be told: what it raises is reported.
    pub fn drop_share(self) {
        if !python_is_usable() {
            // The interpreter is ending: what needs it is left to the process's end.
            return;
        }
        let (address, bytes) = (self.address, self.bytes);
        let answer = crate::report::attached(|py| {
            with_exception_aside(py, || {
                let class = self.resource.bind(py).get_type().name().map(|name| name.to_string());
                match self.close(py) {
                    // The driver is shutting down, and has said so to the user's code: that is an answer.
                    Err(error) if is_deinitialized(py, &error) => Ok(()),
                    Err(error) => Err((class.unwrap_or_else(|_unnamed| "a resource".to_owned()), describe(py, &error))),
                    Ok(()) => Ok(()),
                }
            })
        });
        if let Some(Err((class, error))) = answer {
            Failure::misuse(Misuse::State, format!("{class}.deallocate({address:#x}, {bytes}) raised {error}"))
                .report("releasing a buffer");
        }
    }
}

/// Whether an exception is the driver's `CUDA_ERROR_DEINITIALIZED`, and nothing else went wrong.
fn is_deinitialized(py: Python<'_>, error: &PyErr) -> bool {
    let value = error.value(py);
    let call = value.getattr("call").and_then(|call| call.extract::<String>());
    let status = value.getattr("status").and_then(|status| status.extract::<u32>());
    let is_alone = !notes_of(py, error).contains("_ERROR_");
    call.is_ok_and(|call| call.starts_with("cu")) && status.is_ok_and(|status| status == DEINITIALIZED) && is_alone
}

/// The exception with its notes and where it was raised, in one line.
fn describe(py: Python<'_>, error: &PyErr) -> String {
    let line = error.traceback(py).and_then(|traceback| {
        let mut last = traceback.into_any();
        while let Ok(next) = last.getattr("tb_next") {
            if next.is_none() {
                break;
            }
            last = next;
        }
        let file: String =
            last.getattr("tb_frame").ok()?.getattr("f_code").ok()?.getattr("co_filename").ok()?.extract().ok()?;
        let line: i64 = last.getattr("tb_lineno").ok()?.extract().ok()?;
        Some(format!(" at {file}:{line}"))
    });
    format!("{error}{}{}", line.unwrap_or_default(), notes_of(py, error))
}
