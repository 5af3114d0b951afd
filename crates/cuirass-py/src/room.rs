//! Memory of a size that an argument decides: `MemoryError` where there is none, and not the process's end.

use crate::error::raised;
use crate::number::kind_of;
use cuirass::view::MAX_DIMS;
use cuirass_fault::{Failure, room};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyString};
use std::collections::HashMap;

const FOR_A_COPY: &str = "for a copy of the argument";

/// What a copy was refused with, as an exception.
pub fn granted<T>(py: Python<'_>, result: Result<T, Failure>) -> PyResult<T> {
    result.map_err(|failure| raised(py, failure.raise()))
}

/// The bytes, copied.
pub fn bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Vec<u8>> {
    granted(py, room::bytes(&[bytes], FOR_A_COPY))
}

/// A `str`, copied.
pub fn text(object: Borrowed<'_, '_, PyAny>) -> PyResult<String> {
    let Ok(text) = object.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!("expected a str, not {}", object.get_type().name()?)));
    };
    granted(object.py(), room::text(text.to_str()?, FOR_A_COPY))
}

/// The items, in a list.
pub fn list<T>(py: Python<'_>, items: impl Iterator<Item = PyResult<T>>) -> PyResult<Vec<T>> {
    let mut wrong = None;
    let right = items.map_while(|item| item.map_err(|error| wrong = Some(error)).ok());
    let list = granted(py, room::list(right, FOR_A_COPY))?;
    wrong.map_or(Ok(list), Err)
}

/// A text as an argument.
pub struct Text(pub String);

impl<'py> FromPyObject<'_, 'py> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Text> {
        text(object).map(Text)
    }
}

/// A sequence of texts as an argument; a text is none.
pub struct Texts(pub Vec<String>);

impl<'py> FromPyObject<'_, 'py> for Texts {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Texts> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("expected a sequence of str, not a str"));
        }
        let texts = object.try_iter()?.map(|item| text(item?.as_borrowed()));
        list(object.py(), texts).map(Texts)
    }
}

/// Names for names, as the argument `symbol_mapping`: a dict of texts.
#[derive(Default)]
pub struct Names(pub HashMap<String, String>);

impl<'py> FromPyObject<'_, 'py> for Names {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Names> {
        let wrong = |found: &Bound<'py, PyAny>, place: &str| {
            Err(PyTypeError::new_err(format!(
                "symbol_mapping must be a dict of str to str, not {place}{}",
                kind_of(found)
            )))
        };
        let Ok(given) = object.cast::<PyDict>() else { return wrong(&object, "") };
        let mut names = HashMap::new();
        if names.try_reserve(given.len()).is_err() {
            return granted(object.py(), Err(Failure::no_memory(FOR_A_COPY)));
        }
        for (name, other) in given.iter() {
            for text in [&name, &other] {
                if !text.is_instance_of::<PyString>() {
                    return wrong(text, "one with ");
                }
            }
            names.insert(text(name.as_borrowed())?, text(other.as_borrowed())?);
        }
        Ok(Names(names))
    }
}

/// A copy of the names of symbols.
pub fn names(py: Python<'_>, names: &HashMap<String, String>) -> PyResult<HashMap<String, String>> {
    let mut copy = HashMap::new();
    if copy.try_reserve(names.len()).is_err() {
        return granted(py, Err(Failure::no_memory(FOR_A_COPY)));
    }
    for (name, other) in names {
        copy.insert(granted(py, room::text(name, FOR_A_COPY))?, granted(py, room::text(other, FOR_A_COPY))?);
    }
    Ok(copy)
}

/// Refuses more axes than a layout can have, before there are as many numbers.
pub fn check_axes(count: usize) -> PyResult<()> {
    if count <= MAX_DIMS {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{count} dimensions are too many: a layout has at most {MAX_DIMS}")))
}
