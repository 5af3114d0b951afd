//! The bytes of a Python object that has the buffer protocol.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;

/// Whether an object has bytes. What reading them raises where it has is its own, or that they are not in one piece.
pub fn has_bytes(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: [buffer-view] attached; any object may be asked.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// The bytes of an object, in one piece, for the time of a function: `BufferError` or `TypeError` where it has none.
pub fn with_bytes<T>(object: &Bound<'_, PyAny>, function: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    let mut view = View(ffi::Py_buffer::new());
    // SAFETY: [buffer-view] attached; the view is given back by its drop.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut view.0, ffi::PyBUF_SIMPLE) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    let length = usize::try_from(view.0.len).unwrap_or(0);
    if length == 0 {
        return Ok(function(&[]));
    }
    // SAFETY: [buffer-view] a simple view is in one piece of `len` bytes, which stay until it is given back; nothing
    // here runs Python code that could write them meanwhile.
    Ok(function(unsafe { std::slice::from_raw_parts(view.0.buf.cast::<u8>(), length) }))
}

struct View(ffi::Py_buffer);

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: [buffer-view] a view that was got, or one with a null object, for which it does nothing.
        unsafe { ffi::PyBuffer_Release(&raw mut self.0) };
    }
}
