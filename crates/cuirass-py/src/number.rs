//! Integers as arguments: one that is out of range is a `ValueError` that names the argument and its range.

use cuirass_fault::room::Short;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A kind of integer that an argument is.
pub trait Integer: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr> {
    const LEAST: i128;
    const MOST: i128;
}

macro_rules! integers {
    ($($kind:ty)*) => {$(
        impl Integer for $kind {
            const LEAST: i128 = <$kind>::MIN as i128;
            const MOST: i128 = <$kind>::MAX as i128;
        }
    )*};
}

integers!(i32 u32 i64 u64 isize usize);

/// An integer as an argument, which is named once the function knows it: [`named`](Number::named).
pub struct Number<T>(Result<T, String>);

impl<T: Integer> Number<T> {
    /// What an argument is by default.
    pub const fn new(number: T) -> Number<T> {
        Number(Ok(number))
    }

    /// The number, of the argument of this name.
    pub fn named(self, name: &str) -> PyResult<T> {
        self.0.map_err(|shown| out_of_range(name, &T::LEAST, &T::MOST, &shown))
    }
}

impl<'a, 'py, T: Integer> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Number<T>> {
        match object.extract::<T>() {
            Ok(number) => Ok(Number(Ok(number))),
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                Err(PyTypeError::new_err(format!("expected an int, not {}", object.get_type().name()?)))
            }
            Err(_range) => Ok(Number(Err(shown(&object)))),
        }
    }
}

/// The number that an object is, of the argument of this name.
pub fn of<T: Integer>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    match object.extract::<Number<T>>() {
        Ok(number) => number.named(name),
        Err(_type) => Err(PyTypeError::new_err(format!("{name} must be an int, not {}", object.get_type().name()?))),
    }
}

/// As [`of`], where there may be none.
pub fn of_optional<T: Integer>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { of(object, name).map(Some) }
}

/// The integer as a message has it. Python writes none of more than some thousand digits.
pub fn shown(object: &Bound<'_, PyAny>) -> String {
    match object.repr() {
        Ok(text) => Short(text.to_str().unwrap_or_default()).to_string(),
        Err(_too_long) => "a number of thousands of digits".to_owned(),
    }
}

/// What an argument out of its range is refused with.
#[cold]
pub fn out_of_range(name: &str, least: &dyn std::fmt::Display, most: &dyn std::fmt::Display, shown: &str) -> PyErr {
    PyValueError::new_err(format!("{name} must be from {least} to {most}, it is {shown}"))
}
