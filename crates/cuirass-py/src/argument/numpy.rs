//! NumPy's scalars as kernel arguments: their own bytes, where a kernel can make something of them.

use super::Value;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyBytes};

/// A scalar's own bytes: numbers, dates (the number of their unit), records, bytes of no type.
pub fn bytes(object: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>, index: usize) -> PyResult<Value> {
    if let Some(why) = unfit(dtype, false)? {
        let class = object.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!(
            "argument {index} is of type {class}, which cannot be passed to a kernel: {why}"
        )));
    }
    let bytes = object.call_method0("tobytes")?;
    Value::of_slice(object.py(), bytes.cast::<PyBytes>()?.as_bytes())
}

/// Why a kernel can make nothing of the bytes of this dtype, if it can make nothing.
fn unfit(dtype: &Bound<'_, PyAny>, is_member: bool) -> PyResult<Option<&'static str>> {
    // What an array in a record has in it, which alone tells the order of its bytes.
    let dtype = dtype.getattr("base")?;
    let fields = dtype.getattr("fields")?;
    if !fields.is_none() {
        for field in fields.call_method0("values")?.try_iter()? {
            let unfit = unfit(&field?.get_item(0)?, true)?;
            if unfit.is_some() {
                return Ok(unfit);
            }
        }
    }
    let (kind, size): (char, usize) = (dtype.getattr("kind")?.extract()?, dtype.getattr("itemsize")?.extract()?);
    let is_native: bool = dtype.getattr("isnative")?.extract()?;
    Ok(match (kind, size) {
        ('O', _) => Some("it refers to objects of Python, which a kernel cannot see"),
        // A member is an array of characters in C++, too.
        ('S' | 'U', _) if !is_member => Some("it is a text; copy its bytes to a Buffer, and pass that"),
        ('f', 9..) => Some("a kernel has no floating-point numbers of that size; convert it to numpy.float64"),
        ('c', 17..) => Some("a kernel has no complex numbers of that size; convert it to numpy.complex128"),
        (_, 0) if !is_member => Some("it has no bytes"),
        _ if !is_native => {
            Some("its bytes are not in this machine's order; value.astype(value.dtype.newbyteorder('=')) has them so")
        }
        _ => None,
    })
}
