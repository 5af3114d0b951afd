//! The array interfaces: `__cuda_array_interface__` and `__array_interface__`.

use crate::error::raised;
use crate::number;
use crate::view::dlpack::{self, CPU, CUDA, Device, Dims, refused};
use crate::view::dtype;
use crate::view::parts::{Holds, Parts};
use crate::view::protocol::order;
use cuirass::memory::pointer_info;
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// The version from which on a CUDA array has a stream, and both say what they must of masks.
const OLDEST: i64 = 3;

/// The view of an object with `__cuda_array_interface__`.
pub fn from_cuda(object: &Bound<'_, PyAny>, consumer: i64) -> PyResult<Parts> {
    let py = object.py();
    let found = needed(object, intern!(py, "__cuda_array_interface__"))?;
    let interface =
        found.cast::<PyDict>().map_err(|_other| wrong_type("__cuda_array_interface__", "a dict", &found))?;
    let parts = read(interface, object)?;
    let device = if parts.pointer == 0 { 0 } else { device_of(py, parts.pointer)? };
    if consumer >= 0
        && let Some(stream) = interface.get_item(intern!(py, "stream"))?.filter(|stream| !stream.is_none())
    {
        let producer = crate::handle::take(&stream, "the stream of __cuda_array_interface__")?;
        if producer == 0 {
            return Err(refused(
                "the stream of __cuda_array_interface__ is 0, which is ambiguous: 1 is the legacy default stream",
            ));
        }
        order(py, device, producer, consumer)?;
    }
    Ok(Parts { device: Device { kind: CUDA, id: device }, ..parts })
}

/// The device of memory; that of the current context for memory that the driver did not allocate.
fn device_of(py: Python<'_>, address: u64) -> PyResult<i32> {
    crate::sim::prepare(py)?;
    let info = crate::error::run(py, || pointer_info(address))?;
    match info.device {
        Some(device) => Ok(device),
        None => Ok(crate::device::current(py)?.ordinal()),
    }
}

/// An attribute of an object that is of the wrong type without it.
pub fn needed<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    object.getattr(name).map_err(|error| {
        if !error.is_instance_of::<PyAttributeError>(py) {
            return error;
        }
        let kind = object.get_type().name().map(|kind| kind.to_string()).unwrap_or_default();
        let wrong = PyTypeError::new_err(format!("obj must have {name}, {kind} has not"));
        wrong.set_cause(py, Some(error));
        wrong
    })
}

/// The view of an object with `__array_interface__`.
pub fn from_host(object: &Bound<'_, PyAny>) -> PyResult<Parts> {
    let found = needed(object, intern!(object.py(), "__array_interface__"))?;
    let interface = found.cast::<PyDict>().map_err(|_other| wrong_type("__array_interface__", "a dict", &found))?;
    let parts = read(interface, object)?;
    Ok(Parts { ask_driver: true, ..parts })
}

/// Whether the device can use memory of the host's, as far as the driver knows. Without a driver it cannot.
pub fn is_known_to_driver(py: Python<'_>, address: u64) -> PyResult<bool> {
    crate::sim::prepare(py)?;
    match py.detach(|| pointer_info(address)) {
        Ok(info) => Ok(info.is_device_accessible),
        Err(error) if error.kind() == cuirass::ErrorKind::Unavailable => Ok(false),
        Err(error) => Err(raised(py, error)),
    }
}

#[cold]
fn wrong_type(what: &str, wanted: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let kind = found.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!("{what} must be {wanted}, not {kind}"))
}

/// An entry, if it is there and not `None`.
fn given<'py>(interface: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(interface.get_item(name)?.filter(|value| !value.is_none()))
}

fn must<'py>(interface: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    given(interface, name)?.ok_or_else(|| refused(format!("the array interface has no {name}")))
}

/// What the two have in common.
fn read(interface: &Bound<'_, PyDict>, exporter: &Bound<'_, PyAny>) -> PyResult<Parts> {
    let py = exporter.py();
    let version = match given(interface, intern!(py, "version"))? {
        Some(version) => number::of::<i64>(&version, "the array interface's version")?,
        None => 0,
    };
    if version < OLDEST {
        return Err(refused(format!("the array interface is of version {version}; it must be 3 or later")));
    }
    if given(interface, intern!(py, "mask"))?.is_some() {
        return Err(refused("the array is masked, which a view cannot be"));
    }
    let (address, readonly) = {
        let data = must(interface, intern!(py, "data"))?;
        let pair =
            data.cast::<PyTuple>().map_err(|_other| wrong_type("the array interface's data", "a pair", &data))?;
        if pair.len() != 2 {
            return Err(PyValueError::new_err("the array interface's data must be a pair: an address, and a bool"));
        }
        let address = crate::handle::take_or_null(&pair.get_item(0)?, "the array interface's address")?;
        (address, pair.get_item(1)?.is_truthy()?)
    };
    let typestr = must(interface, intern!(py, "typestr"))?;
    let typestr =
        typestr.cast::<PyString>().map_err(|_other| wrong_type("the array interface's typestr", "a str", &typestr))?;
    let (dtype, itemsize) = dtype::of_typestr(typestr)?;
    let shape = must(interface, intern!(py, "shape"))?;
    let shape =
        shape.cast::<PyTuple>().map_err(|_other| wrong_type("the array interface's shape", "a tuple", &shape))?;
    let shape = numbers(shape, "the shape")?;
    let strides = match given(interface, intern!(py, "strides"))? {
        None => None,
        Some(strides) => {
            let strides = strides
                .cast::<PyTuple>()
                .map_err(|_other| wrong_type("the array interface's strides", "a tuple", &strides))?;
            Some(numbers(strides, "the strides")?)
        }
    };
    let (strides, has_strides) = layout(&shape, strides, itemsize)?;
    check_range(address, &shape, &strides, itemsize)?;
    if address == 0 && !shape.contains(&0) {
        return Err(refused("the array has elements and no memory: its address is null"));
    }
    Ok(Parts {
        pointer: address,
        device: Device { kind: CPU, id: 0 },
        ask_driver: false,
        shape,
        strides,
        has_strides,
        itemsize,
        dtype,
        readonly,
        exporter: Some(exporter.clone().unbind()),
        holds: Holds::Nothing,
    })
}

/// The numbers of a tuple, which has this name.
pub fn numbers(tuple: &Bound<'_, PyTuple>, name: &str) -> PyResult<Dims> {
    crate::room::check_axes(tuple.len())?;
    let mut numbers = Dims::new();
    for item in tuple.iter_borrowed() {
        let number = number::read::<i64>(item);
        numbers.push(number.map_err(|refused| refused.error::<i64>(&format!("each number of {name}")))?);
    }
    Ok(numbers)
}

/// Strides in elements, of strides in bytes.
fn layout(shape: &[i64], strides: Option<Dims>, itemsize: usize) -> PyResult<(Dims, bool)> {
    if itemsize == 0 {
        return Err(PyValueError::new_err("the elements of the array have no bytes"));
    }
    let Some(mut strides) = strides else { return Ok((dlpack::compact_strides(shape), false)) };
    if strides.len() != shape.len() {
        return Err(PyValueError::new_err(format!(
            "the array has {} dimensions and {} strides",
            shape.len(),
            strides.len()
        )));
    }
    let step = i64::try_from(itemsize).unwrap_or(i64::MAX);
    for stride in &mut strides {
        *stride = dlpack::in_elements(*stride, step).ok_or_else(|| {
            PyValueError::new_err(format!("a stride of {stride} bytes is no multiple of an element's {itemsize}"))
        })?;
    }
    Ok((strides, !shape.is_empty()))
}

/// Refuses what would be outside the address space.
pub fn check_range(address: u64, shape: &[i64], strides: &[i64], itemsize: usize) -> PyResult<()> {
    let outside = || PyValueError::new_err("the shape is negative, or its elements do not fit in the address space");
    dlpack::volume(shape, itemsize).ok_or_else(outside)?;
    let (low, high) = dlpack::span(shape, strides, itemsize).ok_or_else(outside)?;
    match (address.checked_add_signed(low), address.checked_add_signed(high)) {
        (Some(_low), Some(_high)) => Ok(()),
        _ => Err(outside()),
    }
}
