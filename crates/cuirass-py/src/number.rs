//! Integers as arguments: one that is out of range is a `ValueError` that names the argument and its range, what is none
//! a `TypeError`. What an object's own `__index__` raises is neither: it is passed on as it is.
#![allow(unsafe_code)]

use cuirass_fault::room::Short;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// A kind of integer that an argument is.
pub trait Integer: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr> + TryFrom<i64> {
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

integers!(u8 i32 u32 i64 u64 isize usize);

/// Why an object is not read as an integer of a kind.
pub enum Refused {
    /// It is no integer at all: the name of its class.
    Kind(String),
    /// It is out of range: the number, as a message has it, and whether it is negative.
    Range { shown: String, is_negative: bool },
    /// What its `__index__` has raised.
    Raised(PyErr),
}

impl Refused {
    /// The error, where the argument of this name must be an integer of a kind.
    #[cold]
    pub fn error<T: Integer>(self, name: &str) -> PyErr {
        self.error_of(name, "an int", &T::LEAST, &T::MOST)
    }

    /// The same of an argument that must be something else, or has another range.
    #[cold]
    pub fn error_of(
        self,
        name: &str,
        wanted: &str,
        least: &dyn std::fmt::Display,
        most: &dyn std::fmt::Display,
    ) -> PyErr {
        match self {
            Refused::Kind(kind) => PyTypeError::new_err(format!("{name} must be {wanted}, not {kind}")),
            Refused::Range { shown, .. } => out_of_range(name, least, most, &shown),
            Refused::Raised(error) => error,
        }
    }
}

/// The integer that an object is: an int, or what its `__index__` returns.
#[inline]
pub fn read<T: Integer>(object: Borrowed<'_, '_, PyAny>) -> Result<T, Refused> {
    match small(object) {
        Some(number) => Ok(number),
        None => read_other(object),
    }
}

/// An int, of no subclass, that is within what most are within; `None` for any other object, which [`read`] looks at again.
#[inline]
pub fn small<T: TryFrom<i64>>(object: Borrowed<'_, '_, PyAny>) -> Option<T> {
    if !object.is_exact_instance_of::<PyInt>() {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: [interpreter] attached; of an int this runs no user code, and raises nothing.
    let number = unsafe { ffi::PyLong_AsLongLongAndOverflow(object.as_ptr(), &raw mut overflow) };
    if overflow == 0 { T::try_from(number).ok() } else { None }
}

#[cold]
fn read_other<T: Integer>(object: Borrowed<'_, '_, PyAny>) -> Result<T, Refused> {
    if object.is_exact_instance_of::<PyInt>() {
        return object.extract::<T>().map_err(|error| beyond(object, error));
    }
    // SAFETY: [interpreter] attached; any object may be asked.
    if unsafe { ffi::PyIndex_Check(object.as_ptr()) } == 0 {
        return Err(Refused::Kind(kind_of(&object)));
    }
    // Asked once and apart from the conversion, whose errors are not its own.
    // SAFETY: [interpreter] attached; a new reference, or null with an exception set.
    let number = unsafe { Bound::from_owned_ptr_or_err(object.py(), ffi::PyNumber_Index(object.as_ptr())) };
    let number = number.map_err(Refused::Raised)?;
    number.extract::<T>().map_err(|error| beyond(number.as_borrowed(), error))
}

/// Why an int was not converted.
#[cold]
fn beyond(number: Borrowed<'_, '_, PyAny>, error: PyErr) -> Refused {
    if !error.is_instance_of::<PyOverflowError>(number.py()) {
        return Refused::Raised(error);
    }
    let mut overflow = 0;
    // SAFETY: [interpreter] attached; of an int this runs no user code, and raises nothing.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &raw mut overflow) };
    Refused::Range { shown: shown(&number), is_negative: overflow < 0 || (overflow == 0 && value < 0) }
}

/// An integer as an argument, which is named once the function knows it: [`named`](Number::named).
pub struct Number<T>(Result<T, Refused>);

impl<T: Integer> Number<T> {
    /// What an argument is by default.
    pub const fn new(number: T) -> Number<T> {
        Number(Ok(number))
    }

    /// The number, of the argument of this name.
    pub fn named(self, name: &str) -> PyResult<T> {
        self.0.map_err(|refused| refused.error::<T>(name))
    }
}

impl<'a, 'py, T: Integer> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Number<T>> {
        match read(object) {
            Err(Refused::Kind(kind)) => Err(PyTypeError::new_err(format!("expected an int, not {kind}"))),
            // An error that is raised here may be given the argument's name, which is not for those of the object's own.
            number => Ok(Number(number)),
        }
    }
}

/// The number that an object is, of the argument of this name.
#[inline]
pub fn of<T: Integer>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    read(object.as_borrowed()).map_err(|refused| refused.error::<T>(name))
}

/// As [`of`], where there may be none.
pub fn of_optional<T: Integer>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { of(object, name).map(Some) }
}

/// The name of an object's class, for a message.
#[cold]
pub fn kind_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map(|name| name.to_string()).unwrap_or_default()
}

/// An int as a message has it: its digits, without a `__repr__` of a class of the user's. Python writes none of more than
/// some thousand digits.
#[cold]
pub fn shown(number: &Bound<'_, PyAny>) -> String {
    // SAFETY: [interpreter] attached; a new reference, or null with an exception set.
    let text = unsafe { Bound::from_owned_ptr_or_err(number.py(), ffi::PyNumber_ToBase(number.as_ptr(), 10)) };
    match text.as_ref().map(|text| text.extract::<&str>()) {
        Ok(Ok(digits)) => Short(digits).to_string(),
        _ => "a number of thousands of digits".to_owned(),
    }
}

/// What an argument out of its range is refused with.
#[cold]
pub fn out_of_range(name: &str, least: &dyn std::fmt::Display, most: &dyn std::fmt::Display, shown: &str) -> PyErr {
    PyValueError::new_err(format!("{name} must be from {least} to {most}, it is {shown}"))
}
