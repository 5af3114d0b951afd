//! Numbers, tuples and slices as arguments of layouts.

use crate::number::{Number, out_of_range, shown};
use crate::room::check_axes;
use cuirass::view::{Dims, Index, StrideOrder};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString, PyTuple};

/// A tuple (or list) of numbers, of an argument that is named once the function knows it.
pub struct Numbers(Result<Dims, String>);

impl Numbers {
    pub fn named(self, name: &str) -> PyResult<Dims> {
        self.0.map_err(|shown| out_of_range(&format!("each number of {name}"), &i64::MIN, &i64::MAX, &shown))
    }
}

/// The numbers, or the first that is too large, as it is shown.
fn numbers<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<Numbers> {
    let mut numbers = Dims::new();
    for item in items {
        match item.extract::<i64>() {
            Ok(number) => numbers.push(number),
            Err(error) if error.is_instance_of::<PyTypeError>(item.py()) => {
                return Err(PyTypeError::new_err(format!("expected ints, got {}", item.get_type().name()?)));
            }
            Err(_range) => return Ok(Numbers(Err(shown(&item)))),
        }
    }
    Ok(Numbers(Ok(numbers)))
}

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Numbers> {
        if let Ok(tuple) = object.cast::<PyTuple>() {
            check_axes(tuple.len())?;
            return numbers(tuple.iter());
        }
        if let Ok(list) = object.cast::<PyList>() {
            check_axes(list.len())?;
            return numbers(list.iter());
        }
        Err(PyTypeError::new_err(format!("expected a tuple of ints, got {}", object.get_type().name()?)))
    }
}

/// A number, or a tuple of them.
pub struct OneOrMore(Numbers);

impl OneOrMore {
    pub fn named(self, name: &str) -> PyResult<Dims> {
        self.0.named(name)
    }
}

impl<'py> FromPyObject<'_, 'py> for OneOrMore {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<OneOrMore> {
        if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
            return Ok(OneOrMore(object.extract::<Numbers>()?));
        }
        Ok(OneOrMore(numbers(std::iter::once(object.to_owned()))?))
    }
}

/// The order of strides, by its letter or as a permutation.
pub enum Order {
    Letter(StrideOrder<'static>),
    Axes(Dims),
}

impl Order {
    pub const C: Order = Order::Letter(StrideOrder::C);
    pub const K: Order = Order::Letter(StrideOrder::Keep);

    pub fn get(&self) -> StrideOrder<'_> {
        match self {
            Order::Letter(order) => *order,
            Order::Axes(axes) => StrideOrder::Axes(axes),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Order {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Order> {
        if let Ok(letter) = object.cast::<PyString>() {
            return match letter.to_cow()?.as_ref() {
                "C" => Ok(Order::C),
                "F" => Ok(Order::Letter(StrideOrder::F)),
                "K" => Ok(Order::K),
                other => Err(PyValueError::new_err(format!(
                    "a stride order is 'C', 'F', 'K' (that of another layout) or a permutation of the axes, not {other:?}"
                ))),
            };
        }
        Ok(Order::Axes(object.extract::<Numbers>()?.named("stride_order")?))
    }
}

/// What is in the brackets: an index, a slice, or a tuple of them.
pub struct Indices(pub Dims<Index>);

impl<'py> FromPyObject<'_, 'py> for Indices {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Indices> {
        match object.cast::<PyTuple>() {
            Ok(tuple) => {
                check_axes(tuple.len())?;
                Ok(Indices(tuple.iter().map(|item| index(&item)).collect::<PyResult<Dims<Index>>>()?))
            }
            Err(_one) => Ok(Indices(Dims::from_elem(index(&object)?, 1))),
        }
    }
}

fn index(object: &Bound<'_, PyAny>) -> PyResult<Index> {
    let py = object.py();
    if object.is_instance_of::<PySlice>() {
        let step = place(&object.getattr(intern!(py, "step"))?)?.unwrap_or(1);
        let start = place(&object.getattr(intern!(py, "start"))?)?;
        return Ok(Index::Slice { start, stop: place(&object.getattr(intern!(py, "stop"))?)?, step });
    }
    match object.extract::<Number<i64>>().and_then(|index| index.named("an index")) {
        Ok(index) => Ok(Index::At(index)),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(PyTypeError::new_err(format!(
            "layouts are indexed by ints, slices and tuples of them, not by {}",
            object.get_type().name()?
        ))),
        Err(error) => Err(error),
    }
}

/// A bound of a slice. What is beyond 64 bits is beyond every axis.
fn place(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() {
        return Ok(None);
    }
    match object.extract::<i64>() {
        Ok(place) => Ok(Some(place)),
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
            let number = object.call_method0(intern!(object.py(), "__index__"))?;
            Ok(Some(if number.lt(0)? { i64::MIN } else { i64::MAX }))
        }
        Err(error) => Err(error),
    }
}
