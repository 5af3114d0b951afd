//! Many buffers at once: copies, prefetches, discards; and copies of rows.
#![allow(unsafe_code)]

use crate::error::run;
use crate::graph::builder::GraphBuilder;
use crate::graph::keep;
use crate::memory::buffer::{Buffer, argument};
use crate::memory::copy::{copy_options, refuse_stream};
use crate::memory::location;
use crate::memory::managed::check_managed;
use crate::memory::share::Memory;
use crate::number;
use crate::room;
use crate::slot::Use;
use crate::stream;
use cuirass::memory::{self, BatchedCopy, CopyExtent, CopyOptions, Location, Pitched};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySequence;

/// The items of an argument that is a sequence.
fn items<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let wrong = || -> PyResult<PyErr> {
        let kind = object.get_type().name()?;
        Ok(PyTypeError::new_err(format!("{name} must be a sequence, not {kind}")))
    };
    let Ok(sequence) = object.cast::<PySequence>() else { return Err(wrong()?) };
    room::list(object.py(), sequence.try_iter()?)
}

/// The buffers of a sequence: none at all is a mistake.
fn buffers<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<Bound<'py, Buffer>>> {
    if object.is_instance_of::<Buffer>() {
        return Err(PyTypeError::new_err(format!(
            "{name} must be a sequence of Buffer: a single one has methods for it"
        )));
    }
    let all = items(object, name)?;
    if all.is_empty() {
        return Err(PyValueError::new_err(format!("{name} must have a Buffer at least")));
    }
    let name = format!("each of {name}");
    room::list(object.py(), all.iter().map(|item| argument(item, &name).cloned()))
}

fn entered<'a>(py: Python<'_>, buffers: &'a [Bound<'_, Buffer>]) -> PyResult<Vec<Use<'a, Memory>>> {
    room::list(py, buffers.iter().map(|buffer| buffer.get().enter()))
}

fn managed<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Buffer>>> {
    let buffers = buffers(object, "buffers")?;
    for buffer in &buffers {
        let _open = buffer.get().enter()?;
        check_managed(py, buffer.get())?;
    }
    Ok(buffers)
}

/// One place for each of `count` buffers.
fn places(object: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<Location>> {
    if object.cast::<PySequence>().is_err() {
        return repeated(object.py(), location::argument(object, "locations")?, count);
    }
    let all = items(object, "locations")?;
    if all.len() != count {
        let message = format!("locations has {} places for {count} buffers", all.len());
        return Err(PyValueError::new_err(message));
    }
    room::list(object.py(), all.iter().map(|item| location::argument(item, "each of locations")))
}

/// The same for each of `count`.
fn repeated<T: Copy>(py: Python<'_>, one: T, count: usize) -> PyResult<Vec<T>> {
    room::list(py, std::iter::repeat_n(one, count).map(Ok))
}

fn with_places<'a>(
    py: Python<'_>,
    uses: &'a [Use<'_, Memory>],
    places: &[Location],
) -> PyResult<Vec<(&'a cuirass::Buffer, Location)>> {
    room::list(py, uses.iter().map(|memory| memory.buffer()).zip(places.iter().copied()).map(Ok))
}

/// Moves the memory of many buffers of managed memory, in the stream's order, and in no order among one another
/// (``cuMemPrefetchBatchAsync``).
///
/// Parameters
/// ----------
/// stream : Stream
///     The stream; not the legacy default stream, nor one that is being captured.
/// buffers : sequence of Buffer
///     What is moved.
/// locations : Device, Host, or a sequence of them
///     Where to: one place for all, or one each.
///
/// Raises
/// ------
/// ValueError
///     If there is no buffer, memory is not managed, or the numbers of buffers and places differ.
/// RuntimeError
///     If a graph builder captures the stream.
/// CUDAError
///     What the driver answers; it has to be of CUDA 13.0. Buffers that come before a refused one may have been moved.
#[pyfunction]
#[pyo3(signature = (stream, buffers, locations))]
pub fn prefetch_batch(
    py: Python<'_>,
    stream: &Bound<'_, PyAny>,
    buffers: &Bound<'_, PyAny>,
    locations: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (stream, buffers) = (stream::argument(stream)?, managed(py, buffers)?);
    let places = places(locations, buffers.len())?;
    let uses = entered(py, &buffers)?;
    let ranges = with_places(py, &uses, &places)?;
    // SAFETY: [stream-ordered-copy] the buffers are held until it is submitted; whoever releases one of them on another
    // stream orders the two, as the documentation of `close()` says.
    run(py, || unsafe { memory::prefetch_batch_unordered(&ranges, &stream) })
}

/// Gives up the contents of many buffers of managed memory, in the stream's order, and in no order among one another
/// (``cuMemDiscardBatchAsync``): what is read before it is written again is anything.
///
/// Parameters
/// ----------
/// stream : Stream
///     The stream; not the legacy default stream, nor one that is being captured.
/// buffers : sequence of Buffer
///     What is given up.
///
/// Raises
/// ------
/// ValueError
///     If there is no buffer, or memory is not managed.
/// RuntimeError
///     If a graph builder captures the stream.
/// CUDAError
///     What the driver answers; it has to be of CUDA 13.0. Buffers that come before a refused one may have been given up.
#[pyfunction]
#[pyo3(signature = (stream, buffers))]
pub fn discard_batch(py: Python<'_>, stream: &Bound<'_, PyAny>, buffers: &Bound<'_, PyAny>) -> PyResult<()> {
    let (stream, buffers) = (stream::argument(stream)?, managed(py, buffers)?);
    let uses = entered(py, &buffers)?;
    let ranges = room::list(py, uses.iter().map(|memory| Ok(memory.buffer())))?;
    // SAFETY: [stream-ordered-copy] as above.
    run(py, || unsafe { memory::discard_batch_unordered(&ranges, &stream) })
}

/// Gives up the contents of many buffers of managed memory and moves them, in the stream's order, and in no order among
/// one another (``cuMemDiscardAndPrefetchBatchAsync``).
///
/// Parameters
/// ----------
/// stream : Stream
///     The stream; not the legacy default stream, nor one that is being captured.
/// buffers : sequence of Buffer
///     What is given up and moved.
/// locations : Device, Host, or a sequence of them
///     Where to: one place for all, or one each.
///
/// Raises
/// ------
/// ValueError
///     If there is no buffer, memory is not managed, or the numbers of buffers and places differ.
/// RuntimeError
///     If a graph builder captures the stream.
/// CUDAError
///     What the driver answers; it has to be of CUDA 13.0. Buffers that come before a refused one may have been given up.
#[pyfunction]
#[pyo3(signature = (stream, buffers, locations))]
pub fn discard_prefetch_batch(
    py: Python<'_>,
    stream: &Bound<'_, PyAny>,
    buffers: &Bound<'_, PyAny>,
    locations: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (stream, buffers) = (stream::argument(stream)?, managed(py, buffers)?);
    let places = places(locations, buffers.len())?;
    let uses = entered(py, &buffers)?;
    let ranges = with_places(py, &uses, &places)?;
    // SAFETY: [stream-ordered-copy] as above.
    run(py, || unsafe { memory::discard_prefetch_batch_unordered(&ranges, &stream) })
}

/// One set of options for each of `count` copies.
fn all_options(py: Python<'_>, options: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<Vec<CopyOptions>> {
    let Some(options) = options else { return repeated(py, CopyOptions::default(), count) };
    if options.cast::<PySequence>().is_err() {
        return repeated(py, copy_options(options)?, count);
    }
    let all = items(options, "options")?;
    if all.len() != count {
        return Err(PyValueError::new_err(format!("options has {} entries for {count} copies", all.len())));
    }
    room::list(py, all.iter().map(copy_options))
}

/// Copies all of each buffer into another one of the same size, in the stream's order, and in no order among one another
/// (``cuMemcpyBatchAsync``). No copy may write memory that another one reads or writes.
///
/// Parameters
/// ----------
/// stream : Stream
///     The stream; not the legacy default stream, nor one that is being captured.
/// srcs : sequence of Buffer
///     The sources.
/// dsts : sequence of Buffer
///     The targets, as many.
/// options : CopyOptions, or a sequence of them, optional
///     How the copies are made: one for all, or one each.
///
/// Raises
/// ------
/// TypeError
///     For the legacy default stream, and a stream that is being captured.
/// ValueError
///     If there is no buffer, numbers or sizes differ, or a copy writes memory that another one uses.
/// CUDAError
///     What the driver answers; it has to be of CUDA 12.8. Nothing was then copied.
#[pyfunction]
#[pyo3(signature = (stream, srcs, dsts, *, options=None))]
pub fn copy_batch(
    py: Python<'_>,
    stream: &Bound<'_, PyAny>,
    srcs: &Bound<'_, PyAny>,
    dsts: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    if stream.is_instance_of::<GraphBuilder>() {
        return Err(PyTypeError::new_err("copy_batch() wants a Stream: a graph cannot have copies in batches"));
    }
    let stream = stream::argument(stream)?;
    refuse_stream(py, &stream, "copies in batches")?;
    let (srcs, dsts) = (buffers(srcs, "srcs")?, buffers(dsts, "dsts")?);
    if srcs.len() != dsts.len() {
        let message = format!("srcs has {} buffers, dsts {}", srcs.len(), dsts.len());
        return Err(PyValueError::new_err(message));
    }
    let options = all_options(py, options, srcs.len())?;
    let (sources, targets) = (entered(py, &srcs)?, entered(py, &dsts)?);
    let pairs = sources.iter().zip(&targets).zip(options);
    let pairs = pairs.map(|((from, to), options)| BatchedCopy { to: to.buffer(), from: from.buffer(), options });
    let copies = room::list(py, pairs.map(Ok))?;
    if let Some((at, copy)) = copies.iter().enumerate().find(|(_, copy)| copy.to.len() != copy.from.len()) {
        let (from, to) = (copy.from.len(), copy.to.len());
        let message = format!("copy {at}: the source has {from} bytes, the target {to}");
        return Err(PyValueError::new_err(message));
    }
    // SAFETY: [stream-ordered-copy] as above.
    run(py, || unsafe { memory::copy_batch_unordered(&copies, &stream) })
}

/// Copies rows of bytes from one buffer to another, in the stream's order (``cuMemcpy2DAsync``, and ``cuMemcpy3DAsync``
/// for several slices).
#[pyfunction]
#[pyo3(signature = (dst, src, extent, to, from_, *, stream))]
pub fn _copy_pitched(
    py: Python<'_>,
    dst: &Bound<'_, PyAny>,
    src: &Bound<'_, PyAny>,
    extent: [Bound<'_, PyAny>; 3],
    to: [Bound<'_, PyAny>; 3],
    from_: [Bound<'_, PyAny>; 3],
    stream: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (dst, src, stream) = (argument(dst, "dst")?, argument(src, "src")?, stream::argument(stream)?);
    let [width, height, depth] = numbers(&extent, ["width", "height", "depth"])?;
    let extent = CopyExtent { width, height, depth };
    let lies = |[offset, pitch, rows]: [usize; 3]| Pitched { offset, pitch, rows };
    let to = lies(numbers(&to, ["dst_offset", "dst_pitch", "dst_rows"])?);
    let from_ = lies(numbers(&from_, ["src_offset", "src_pitch", "src_rows"])?);
    let (target, source) = (dst.get().enter()?, src.get().enter()?);
    keep::buffer(&stream, dst)?;
    keep::buffer(&stream, src)?;
    // SAFETY: [stream-ordered-copy] as above.
    run(py, || unsafe { target.buffer().copy_pitched_from_unordered(to, source.buffer(), from_, extent, &stream) })
}

fn numbers(given: &[Bound<'_, PyAny>; 3], names: [&str; 3]) -> PyResult<[usize; 3]> {
    let ([one, two, three], [first, second, third]) = (given, names);
    Ok([number::of(one, first)?, number::of(two, second)?, number::of(three, third)?])
}
