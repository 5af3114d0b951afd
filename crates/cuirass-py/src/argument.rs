//! Python objects as kernel arguments, bit for bit.

use crate::memory::Buffer;
use crate::view::with_bytes;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyComplexMethods, PyFloat, PyInt, PyType};
use std::sync::{PoisonError, RwLock};

/// An argument's bytes, kept until the launch.
pub enum Value {
    /// What a number or an address takes.
    Small([u8; 16], usize),
    /// A structure.
    Large(Vec<u8>),
}

impl Value {
    #[inline]
    fn small<const N: usize>(bytes: [u8; N]) -> Value {
        let mut all = [0; 16];
        for (to, from) in all.iter_mut().zip(bytes) {
            *to = from;
        }
        Value::Small(all, N)
    }

    fn of_slice(bytes: &[u8]) -> Value {
        let mut all = [0; 16];
        match all.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Value::Small(all, bytes.len())
            }
            None => Value::Large(bytes.to_vec()),
        }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Small(bytes, length) => bytes.get(..*length).unwrap_or(bytes),
            Value::Large(bytes) => bytes,
        }
    }
}

/// Which parameter an argument is for.
#[derive(Clone, Copy)]
pub struct Parameter<'a> {
    pub kernel: &'a cuirass::Kernel,
    pub index: usize,
    /// Its size in bytes, where the driver could tell.
    pub size: Option<usize>,
}

/// The bytes that an object is as a parameter.
#[inline]
pub fn value_of(object: &Bound<'_, PyAny>, parameter: Parameter<'_>) -> PyResult<Value> {
    if let Ok(buffer) = object.cast_exact::<Buffer>() {
        return Ok(Value::small(buffer.get().address()?.to_ne_bytes()));
    }
    if object.is_exact_instance_of::<PyInt>() {
        return integer(object, parameter);
    }
    if object.is_exact_instance_of::<PyFloat>() {
        return Ok(float(object.extract()?, parameter));
    }
    other(object, parameter)
}

/// An int, in the parameter's own size.
#[inline]
fn integer(object: &Bound<'_, PyAny>, parameter: Parameter<'_>) -> PyResult<Value> {
    let size = parameter.size.filter(|size| matches!(size, 1 | 2 | 4)).unwrap_or(8);
    let Ok(value) = object.extract::<i64>() else { return large_integer(object, size, parameter) };
    let bytes = value.to_le_bytes();
    let bits = 8 * size as u32;
    if bits < 64 && !(-(1_i64 << (bits - 1))..1_i64 << bits).contains(&value) {
        return Err(too_large(object, size, parameter));
    }
    let mut all = [0; 16];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = from;
    }
    Ok(Value::Small(all, size))
}

#[cold]
fn large_integer(object: &Bound<'_, PyAny>, size: usize, parameter: Parameter<'_>) -> PyResult<Value> {
    match object.extract::<u64>() {
        Ok(value) if size == 8 => Ok(Value::small(value.to_ne_bytes())),
        _ => Err(too_large(object, size, parameter)),
    }
}

#[cold]
fn too_large(object: &Bound<'_, PyAny>, size: usize, parameter: Parameter<'_>) -> PyErr {
    let name = parameter.kernel.name().unwrap_or_else(|_unknown| format!("{:p}", parameter.kernel.as_raw()));
    let value = object.repr().map(|text| text.to_string()).unwrap_or_default();
    PyOverflowError::new_err(format!(
        "kernel {name}: parameter {} has {size} bytes, {value} does not fit",
        parameter.index
    ))
}

/// A float: a double, or where the parameter has 4 bytes a float.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "rounding to the parameter's type is what is wanted")]
fn float(value: f64, parameter: Parameter<'_>) -> Value {
    if parameter.size == Some(4) {
        Value::small((value as f32).to_ne_bytes())
    } else {
        Value::small(value.to_ne_bytes())
    }
}

/// How a NumPy scalar's bytes are read without its buffer.
#[derive(Clone, Copy)]
enum Scalar {
    Integer(usize),
    Half,
    Single,
    Double,
    Bool,
    Bytes,
}

/// NumPy's scalar types, by address; they are held, so that no other type gets the address.
static SCALARS: RwLock<Vec<(Py<PyType>, Scalar)>> = RwLock::new(Vec::new());

#[cold]
#[inline(never)]
fn other(object: &Bound<'_, PyAny>, parameter: Parameter<'_>) -> PyResult<Value> {
    let py = object.py();
    if object.is_instance_of::<PyBool>() {
        return Ok(Value::small([u8::from(object.is_truthy()?)]));
    }
    let class = object.get_type();
    let known = {
        let scalars = SCALARS.read().unwrap_or_else(PoisonError::into_inner);
        scalars.iter().find(|(scalar, _)| scalar.is(&class)).map(|(_, kind)| *kind)
    };
    if let Some(kind) = known {
        return scalar(object, kind);
    }
    if let Some(generic) = loaded(py, "numpy", "generic")?
        && object.is_instance(&generic)?
    {
        let kind = classify(object)?;
        SCALARS.write().unwrap_or_else(PoisonError::into_inner).push((class.unbind(), kind));
        return scalar(object, kind);
    }
    if let Some(base) = ctypes_base(py)?
        && object.is_instance(&base)?
    {
        return view(object);
    }
    if object.is_instance_of::<PyInt>() {
        return integer(object, parameter);
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(float(object.extract()?, parameter));
    }
    if let Ok(number) = object.cast::<PyComplex>() {
        return Ok(complex(number.real(), number.imag(), parameter));
    }
    if object.is_none() {
        return Ok(Value::small(0_u64.to_ne_bytes()));
    }
    if let Ok(buffer) = object.cast::<Buffer>() {
        return Ok(Value::small(buffer.get().address()?.to_ne_bytes()));
    }
    let module: String = class.getattr("__module__")?.extract().unwrap_or_default();
    if module.starts_with("cuda.bindings") {
        return Ok(Value::small(crate::handle::take(object, "the argument")?.to_ne_bytes()));
    }
    if let Some(handle) = object.getattr_opt("handle")? {
        return Ok(Value::small(crate::handle::take(&handle, "the argument's handle")?.to_ne_bytes()));
    }
    Err(PyTypeError::new_err(format!(
        "argument {} is of type {}, which cannot be passed to a kernel; buffers, numbers, numpy and ctypes scalars, \
         structures and objects with a handle can",
        parameter.index,
        class.name()?
    )))
}

/// A complex number: of doubles, or where the parameter has 8 bytes of floats.
#[expect(clippy::cast_possible_truncation, reason = "rounding to the parameter's type is what is wanted")]
fn complex(real: f64, imaginary: f64, parameter: Parameter<'_>) -> Value {
    let mut all = [0; 16];
    let (low, high) = all.split_at_mut(8);
    if parameter.size == Some(8) {
        let (first, second) = low.split_at_mut(4);
        first.copy_from_slice(&(real as f32).to_ne_bytes());
        second.copy_from_slice(&(imaginary as f32).to_ne_bytes());
        return Value::Small(all, 8);
    }
    low.copy_from_slice(&real.to_ne_bytes());
    high.copy_from_slice(&imaginary.to_ne_bytes());
    Value::Small(all, 16)
}

/// Something of a module that is loaded; `None` while it is not. Imports nothing.
fn loaded<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    match py.import("sys")?.getattr("modules")?.get_item(module) {
        Ok(module) => module.getattr_opt(name),
        Err(_not_loaded) => Ok(None),
    }
}

/// What all of ctypes' data types have in common, which has no public name.
fn ctypes_base(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    match loaded(py, "ctypes", "Structure")? {
        Some(structure) => structure.getattr("__base__").map(Some),
        None => Ok(None),
    }
}

fn classify(object: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    let dtype = object.getattr("dtype")?;
    let (kind, size): (String, usize) = (dtype.getattr("kind")?.extract()?, dtype.getattr("itemsize")?.extract()?);
    Ok(match (kind.as_str(), size) {
        ("i" | "u", size @ (1 | 2 | 4 | 8)) => Scalar::Integer(size),
        ("f", 2) => Scalar::Half,
        ("f", 4) => Scalar::Single,
        ("f", 8) => Scalar::Double,
        ("b", _) => Scalar::Bool,
        _ => Scalar::Bytes,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the number came from the smaller type")]
fn scalar(object: &Bound<'_, PyAny>, kind: Scalar) -> PyResult<Value> {
    Ok(match kind {
        Scalar::Integer(size) => {
            let value = match object.extract::<i64>() {
                Ok(value) => value.to_le_bytes(),
                Err(_large) => object.extract::<u64>()?.to_le_bytes(),
            };
            let mut all = [0; 16];
            for (to, from) in all.iter_mut().zip(value) {
                *to = from;
            }
            Value::Small(all, size)
        }
        Scalar::Half => {
            // By its bits: a conversion would lose what a NaN carries.
            return bytes(object);
        }
        Scalar::Single => Value::small((object.extract::<f64>()? as f32).to_ne_bytes()),
        Scalar::Double => Value::small(object.extract::<f64>()?.to_ne_bytes()),
        Scalar::Bool => Value::small([u8::from(object.is_truthy()?)]),
        Scalar::Bytes => return bytes(object),
    })
}

/// A NumPy scalar's own bytes: complex numbers, dates, records.
fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let bytes = object.call_method0("tobytes")?;
    Ok(Value::of_slice(bytes.cast::<PyBytes>()?.as_bytes()))
}

/// The memory of a ctypes object.
fn view(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    with_bytes(object, Value::of_slice)
}
