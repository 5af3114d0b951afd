//! Copies and fills between buffers, in the order of any stream.
#![allow(unsafe_code)]

use crate::error::run;
use crate::view::with_bytes;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// Copies all of one buffer into another of the same size.
#[inline]
pub fn copy(py: Python<'_>, to: &cuirass::Buffer, from: &cuirass::Buffer, stream: &cuirass::Stream) -> PyResult<()> {
    if to.len() != from.len() {
        let message = format!(
            "both buffers must have the same size: the source has {} bytes, the target {}",
            from.len(),
            to.len()
        );
        return Err(PyValueError::new_err(message));
    }
    // SAFETY: [stream-ordered-copy] both buffers are held until it is submitted; whoever releases one of them on
    // another stream orders the two, as the documentation of `close()` says.
    run(py, || unsafe { to.copy_from_unordered(from, stream) })
}

/// Fills a buffer with a pattern of 1, 2 or 4 bytes.
#[inline]
pub fn fill(
    py: Python<'_>,
    buffer: &cuirass::Buffer,
    value: &Bound<'_, PyAny>,
    stream: &cuirass::Stream,
) -> PyResult<()> {
    let (pattern, length) = pattern(value)?;
    let pattern = pattern.get(..length).unwrap_or(&[]);
    // SAFETY: [stream-ordered-copy] as above.
    run(py, || unsafe { buffer.fill_unordered(pattern, stream) })
}

fn pattern(value: &Bound<'_, PyAny>) -> PyResult<([u8; 4], usize)> {
    if value.is_instance_of::<PyInt>() {
        return match value.extract::<u8>() {
            Ok(byte) => Ok(([byte, 0, 0, 0], 1)),
            Err(_range) => Err(PyOverflowError::new_err("an int that fills a buffer is a byte, from 0 to 255")),
        };
    }
    let pattern = with_bytes(value, |given| {
        let mut bytes = [0; 4];
        if matches!(given.len(), 1 | 2 | 4)
            && let Some(room) = bytes.get_mut(..given.len())
        {
            room.copy_from_slice(given);
            return Ok((bytes, given.len()));
        }
        let message = format!("a pattern has 1, 2 or 4 bytes, this one has {}", given.len());
        Err(PyValueError::new_err(message))
    });
    pattern.unwrap_or_else(|error| {
        let kind = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        let wrong = PyTypeError::new_err(format!("value must be an int or have bytes in one piece, not {kind}"));
        wrong.set_cause(value.py(), Some(error));
        Err(wrong)
    })
}

/// The bytes of an object with the buffer protocol.
pub fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    with_bytes(object, <[u8]>::to_vec)
}
