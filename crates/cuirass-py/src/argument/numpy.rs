//! NumPy's scalars as kernel arguments: their own bytes, where a kernel can make something of them.

use super::Value;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A scalar's own bytes: numbers, dates (the number of their unit), records, bytes of no type.
pub fn bytes(object: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>, index: usize) -> PyResult<Value> {
    if let Some(why) = unfit(dtype, false)? {
        let class = object.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!(
            "argument {index} is of type {class}, which cannot be passed to a kernel: {why}"
        )));
    }
    let bytes = object.call_method0(intern!(object.py(), "tobytes"))?;
    Value::of_slice(object.py(), bytes.cast::<PyBytes>()?.as_bytes())
}

/// Why a kernel can make nothing of the bytes of this dtype, if it can make nothing.
fn unfit(dtype: &Bound<'_, PyAny>, is_member: bool) -> PyResult<Option<&'static str>> {
    let py = dtype.py();
    let kind: char = dtype.getattr(intern!(py, "kind"))?.extract()?;
    if kind == 'V' {
        return unfit_record(dtype, is_member);
    }
    let size: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
    Ok(match (kind, size) {
        ('O', _) => Some("it refers to objects of Python, which a kernel cannot see"),
        // A member is an array of characters in C++, too.
        ('S' | 'U', _) if !is_member => Some("it is a text; copy its bytes to a Buffer, and pass that"),
        ('f', 9..) => Some("a kernel has no floating-point numbers of that size; convert it to numpy.float64"),
        ('c', 17..) => Some("a kernel has no complex numbers of that size; convert it to numpy.complex128"),
        // A scalar is of this machine's order, whatever its array was.
        _ if is_member && !dtype.getattr(intern!(py, "isnative"))?.is_truthy()? => {
            Some("its bytes are not in this machine's order; value.astype(value.dtype.newbyteorder('=')) has them so")
        }
        _ => None,
    })
}

/// The same of a record, an array in one, or bytes of no type.
fn unfit_record(dtype: &Bound<'_, PyAny>, is_member: bool) -> PyResult<Option<&'static str>> {
    let py = dtype.py();
    let fields = dtype.getattr(intern!(py, "fields"))?;
    if !fields.is_none() {
        for field in fields.call_method0(intern!(py, "values"))?.try_iter()? {
            let unfit = unfit(&field?.get_item(0)?, true)?;
            if unfit.is_some() {
                return Ok(unfit);
            }
        }
    } else if is_member {
        let items = dtype.getattr(intern!(py, "base"))?;
        if !items.is(dtype) {
            return unfit(&items, true);
        }
    }
    let is_empty = !is_member && dtype.getattr(intern!(py, "itemsize"))?.extract::<usize>()? == 0;
    Ok(is_empty.then_some("it has no bytes"))
}
