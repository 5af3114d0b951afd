//! Numbers, tuples and slices as arguments of layouts.

use crate::number::{Refused, read};
use crate::room::check_axes;
use cuirass::view::{Dims, Index, StrideOrder};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString, PyTuple};

/// A tuple (or list) of numbers, of an argument that is named once the function knows it.
pub struct Numbers(Result<Dims, Refused>);

impl Numbers {
    pub fn named(self, name: &str) -> PyResult<Dims> {
        self.0.map_err(|refused| refused.error::<i64>(&format!("each number of {name}")))
    }
}

/// The numbers, or why one is none.
fn numbers<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<Numbers> {
    let mut numbers = Dims::new();
    for item in items {
        match read(item.as_borrowed()) {
            Ok(number) => numbers.push(number),
            Err(Refused::Kind(kind)) => return Err(PyTypeError::new_err(format!("expected ints, got {kind}"))),
            // It is raised where it is not taken for an argument of another kind.
            Err(refused) => return Ok(Numbers(Err(refused))),
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
    match read::<i64>(object.as_borrowed()) {
        Ok(index) => Ok(Index::At(index)),
        Err(Refused::Kind(kind)) => {
            Err(PyTypeError::new_err(format!("layouts are indexed by ints, slices and tuples of them, not by {kind}")))
        }
        Err(refused) => Err(refused.error::<i64>("an index")),
    }
}

/// A bound of a slice. What is beyond 64 bits is beyond every axis.
fn place(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() {
        return Ok(None);
    }
    match read(object.as_borrowed()) {
        Ok(place) => Ok(Some(place)),
        Err(Refused::Range { is_negative, .. }) => Ok(Some(if is_negative { i64::MIN } else { i64::MAX })),
        Err(refused) => Err(refused.error::<i64>("a bound of a slice")),
    }
}
