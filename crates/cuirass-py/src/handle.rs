//! Raw handles: given out as `cuda.bindings` objects where that package is there, taken as those or as plain numbers.

use crate::number::{Refused, read};
use crate::report::python_is_usable;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt};

static DRIVER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// Asked for once; later only whether somebody else has loaded it.
static ASKED: PyOnceLock<()> = PyOnceLock::new();

/// `cuda.bindings.driver`, if it is loaded or can be.
fn driver(py: Python<'_>) -> Option<&Bound<'_, PyAny>> {
    const NAME: &str = "cuda.bindings.driver";
    if let Some(module) = DRIVER.get(py) {
        return Some(module.bind(py));
    }
    let loaded = py.import("sys").ok()?.getattr("modules").ok()?.get_item(NAME).ok();
    let module = match loaded {
        Some(module) => module,
        None if ASKED.set(py, ()).is_ok() => py.import(NAME).ok()?.into_any(),
        None => return None,
    };
    Some(DRIVER.get_or_init(py, || module.unbind()).bind(py))
}

/// A handle as its `cuda.bindings.driver` object: `CUstream`; a plain number without that package and when the
/// interpreter is ending. It never raises for anything but a lack of memory.
pub fn give(py: Python<'_>, class: &str, raw: u64) -> PyResult<Py<PyAny>> {
    if python_is_usable()
        && let Some(object) = driver(py).and_then(|driver| driver.getattr(class).ok()?.call1((raw,)).ok())
    {
        return Ok(object.unbind());
    }
    Ok(raw.into_pyobject(py)?.into_any().unbind())
}

/// A handle or address: a number, or an object that converts to one, as those of `cuda.bindings` do.
pub fn take(object: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    let number = if object.is_instance_of::<PyInt>() {
        object.clone()
    } else if object.is_instance_of::<PyFloat>() || !object.hasattr("__int__")? {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{what} must be a number or a cuda.bindings object, not {kind}")));
    } else {
        object.call_method0("__int__")?
    };
    read(number.as_borrowed()).map_err(|refused| match refused {
        Refused::Range { shown, .. } => {
            PyValueError::new_err(format!("{what} must fit in 64 bits and not be negative, it is {shown}"))
        }
        refused => refused.error::<u64>(what),
    })
}

/// As [`take`], with `None` as 0.
pub fn take_or_null(object: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    if object.is_none() { Ok(0) } else { take(object, what) }
}

/// What a comparison answers: nothing for an object of another kind, which is then asked in its turn.
pub struct Equal(pub Option<bool>);

impl<'py> IntoPyObject<'py> for Equal {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Self::Error> {
        Ok(match self.0 {
            Some(equal) => PyBool::new(py, equal).to_owned().into_any(),
            None => py.NotImplemented().into_bound(py),
        })
    }
}
