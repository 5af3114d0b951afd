//! Options: data classes of the Python package, read here.

use crate::number;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

/// Options as the data class they should be: an instance, or a mapping of its fields. `None` where there are none.
pub fn instance<'py>(options: Option<&Bound<'py, PyAny>>, class: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    instance_named("options", options, class)
}

/// The same of an argument of another name.
pub fn instance_named<'py>(
    name: &str,
    options: Option<&Bound<'py, PyAny>>,
    class: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(options) = options.filter(|options| !options.is_none()) else { return Ok(None) };
    let wanted = options.py().import("cuirass._options")?.getattr(class)?;
    if options.is_instance(&wanted)? {
        return Ok(Some(options.clone()));
    }
    if let Ok(fields) = options.cast::<PyDict>() {
        return Ok(Some(wanted.call((), Some(fields))?));
    }
    Err(PyTypeError::new_err(format!("{name} must be {class}, not {}", options.get_type().name()?)))
}

/// A flag that may be `None`, which is false.
pub fn flag(options: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    truth(&options.getattr(name)?, name)
}

/// A value that is true or false. Text is neither: "no" would be true.
pub fn truth(value: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!("{name} must be a bool, not {}", value.get_type().name()?)));
    }
    value.is_truthy()
}

/// A text that may be `None`.
pub fn text(options: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<String>> {
    let value = options.getattr(name)?;
    value.extract().map_err(|_not_text| match value.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("{name} must be a str, not {kind}")),
        Err(error) => error,
    })
}

/// How a stream is made.
pub fn stream(options: Option<&Bound<'_, PyAny>>) -> PyResult<cuirass::StreamOptions> {
    match instance(options, "StreamOptions")? {
        None => Ok(cuirass::StreamOptions::default()),
        Some(options) => Ok(cuirass::StreamOptions {
            nonblocking: flag(&options, "nonblocking")?,
            priority: number::of_optional(&options.getattr("priority")?, "priority")?,
        }),
    }
}

/// How an event is made.
pub fn event(options: Option<&Bound<'_, PyAny>>) -> PyResult<cuirass::EventOptions> {
    match instance(options, "EventOptions")? {
        None => Ok(cuirass::EventOptions::default()),
        Some(options) => {
            let options = cuirass::EventOptions {
                timing: flag(&options, "timing_enabled")?,
                blocking_sync: flag(&options, "blocking_sync")?,
                interprocess: flag(&options, "ipc_enabled")?,
            };
            if options.timing && options.interprocess {
                let text = "an IPC-enabled event takes no time: timing_enabled must be False with ipc_enabled";
                return Err(PyValueError::new_err(text));
            }
            Ok(options)
        }
    }
}
