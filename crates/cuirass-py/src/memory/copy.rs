//! Copies and fills between buffers, in the order of any stream.
#![allow(unsafe_code)]

use crate::error::run;
use crate::memory::location;
use crate::number::kind_of;
use crate::room;
use crate::view::{has_bytes, with_bytes};
use cuirass::CaptureStatus;
use cuirass::memory::{CopyOptions, MemcpyOverlapMode, MemcpySrcAccessOrder};
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// Copies all of one buffer into another of the same size.
#[inline]
pub fn copy(
    py: Python<'_>,
    to: &cuirass::Buffer,
    from: &cuirass::Buffer,
    stream: &cuirass::Stream,
    options: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    if to.len() != from.len() {
        let message = format!(
            "both buffers must have the same size: the source has {} bytes, the target {}",
            from.len(),
            to.len()
        );
        return Err(PyValueError::new_err(message));
    }
    if let Some(options) = options {
        let options = copy_options(options)?;
        refuse_stream(py, stream, "copies with options")?;
        // SAFETY: [stream-ordered-copy] as below.
        return run(py, || unsafe { to.copy_from_with_unordered(from, &options, stream) });
    }
    // SAFETY: [stream-ordered-copy] both buffers are held until it is submitted; whoever releases one of them on
    // another stream orders the two, as the documentation of `close()` says.
    run(py, || unsafe { to.copy_from_unordered(from, stream) })
}

/// Refuses the streams that the driver makes no batches on, before trying would invalidate a capture.
#[cold]
pub fn refuse_stream(py: Python<'_>, stream: &cuirass::Stream, what: &str) -> PyResult<()> {
    if stream.as_raw() == cuirass::Stream::legacy_default().as_raw() || stream.as_raw().is_null() {
        let message = format!(
            "the driver makes no {what} on the legacy default stream: use another one, PER_THREAD_DEFAULT_STREAM among them"
        );
        return Err(PyTypeError::new_err(message));
    }
    if run(py, || stream.capture_status())? == CaptureStatus::None {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("the stream is being captured, and a graph cannot have {what}: copy without")))
}

/// What an argument `options` says of a copy.
pub fn copy_options(options: &Bound<'_, PyAny>) -> PyResult<CopyOptions> {
    let wanted = options.py().import("cuirass.utils")?.getattr("CopyOptions")?;
    if !options.is_instance(&wanted)? {
        let kind = options.get_type().name()?;
        return Err(PyTypeError::new_err(format!("options must be CopyOptions, not {kind}")));
    }
    let word = |name: &str| -> PyResult<String> { options.getattr(name)?.extract() };
    Ok(CopyOptions {
        src_access_order: match word("src_access_order")?.as_str() {
            "during_api_call" => MemcpySrcAccessOrder::DuringApiCall,
            "any" => MemcpySrcAccessOrder::Any,
            _stream => MemcpySrcAccessOrder::Stream,
        },
        src_location_hint: location::optional(&options.getattr("src_location_hint")?, "src_location_hint")?,
        dst_location_hint: location::optional(&options.getattr("dst_location_hint")?, "dst_location_hint")?,
        overlap_mode: match word("overlap_mode")?.as_str() {
            "prefer_overlap_with_compute" => MemcpyOverlapMode::PreferOverlapWithCompute,
            _default => MemcpyOverlapMode::Default,
        },
    })
}

/// Fills a buffer with a byte.
#[inline]
pub fn fill_byte(py: Python<'_>, buffer: &cuirass::Buffer, byte: u8, stream: &cuirass::Stream) -> PyResult<()> {
    // SAFETY: [stream-ordered-copy] as above.
    run(py, || unsafe { buffer.fill_unordered(&[byte], stream) })
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
        let py = value.py();
        // What has bytes, but not in one piece, answers one of these two.
        let is_in_pieces = error.is_instance_of::<PyBufferError>(py) || error.is_instance_of::<PyValueError>(py);
        if has_bytes(value) && !is_in_pieces {
            return Err(error);
        }
        let kind = kind_of(value);
        let message = format!("value must be an int or have bytes in one piece, as numpy.float32(1) has, not {kind}");
        let wrong = match has_bytes(value) {
            true => PyValueError::new_err(message),
            false => PyTypeError::new_err(message),
        };
        wrong.set_cause(py, Some(error));
        Err(wrong)
    })
}

/// The bytes of an object with the buffer protocol.
pub fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    with_bytes(object, |bytes| room::bytes(object.py(), bytes))?
}
