//! `launch()`: runs a kernel on a stream.
#![allow(unsafe_code)]

use crate::argument::{Parameter, Value, Word, value_of};
use crate::config::LaunchConfig;
use crate::error::{ask, run};
use crate::graph::keep;
use crate::kernel::Kernel;
use crate::memory::{Buffer, Memory};
use crate::raw::{Call, nothing, raw};
use crate::slot::Use;
use crate::stream;
use arrayvec::ArrayVec;
use cuirass::Argument;
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// How many arguments a launch may have before it allocates.
const FEW: usize = 16;

/// The buffers among the arguments: none is given back before the launch has been made, whoever closes it meanwhile.
type Held<'a> = SmallVec<[Use<'a, Memory>; FEW]>;

/// The arguments, for the time that the interpreter is released.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a [Argument<'a>]);

// SAFETY: [launch-arguments] they point to bytes that this thread holds until the launch has returned; the closure
// that uses them runs on this very thread.
unsafe impl Send for Arguments<'_> {}

impl<'a> Arguments<'a> {
    /// All of them: a method, so that a closure takes the whole.
    #[inline]
    fn all(self) -> &'a [Argument<'a>] {
        self.0
    }
}

raw!(pub static LAUNCH = |call| {
    let ([stream, config, kernel], arguments) = call.by_position()?;
    common(call, &stream, &config, &kernel, arguments.clone())
        .or_else(|| Some(nothing(call, general(call.py, &stream, &config, &kernel, arguments))))
});

/// A launch on a stream of ours, of a kernel whose parameters are known, with few arguments, all of the common kinds;
/// `None` for any other, of which nothing is done.
#[inline]
fn common<'a, 'py: 'a>(
    call: Call<'_, 'py>,
    stream: &Bound<'py, PyAny>,
    config: &Bound<'py, PyAny>,
    kernel: &Bound<'py, PyAny>,
    objects: impl ExactSizeIterator<Item = Borrowed<'a, 'py, PyAny>> + Clone,
) -> Option<*mut ffi::PyObject> {
    let stream = stream::ours(stream)?;
    let stream: &cuirass::Stream = &stream;
    let config = config.cast::<LaunchConfig>().ok()?.get().get();
    let object = kernel.cast::<Kernel>().ok()?.get();
    let kernel = object.kernel();
    let parameters = kernel.known_parameters()?;
    if parameters.len() != objects.len() || objects.len() > FEW {
        return None;
    }
    let is_captured = cuirass::graph::is_captured(stream);
    if is_captured && object.is_foreign() {
        return None;
    }
    let mut words = [const { MaybeUninit::uninit() }; FEW];
    let mut arguments = ArrayVec::<Argument<'_>, FEW>::new();
    let mut held = ArrayVec::<Use<'_, Memory>, FEW>::new();
    for ((object, parameter), word) in objects.zip(parameters).zip(&mut words) {
        let word = word.write(Word::ZERO);
        let used = |buffer: &'a Buffer| {
            let Ok(memory) = buffer.enter() else { return false };
            // The graph keeps the memory from before the launch, which may be made even where it returns an error.
            let is_kept = !is_captured || memory.keep_own(stream);
            held.try_push(memory).is_ok() && is_kept
        };
        if word.take(object, parameter.size, used) != parameter.size {
            return None;
        }
        arguments.try_push(Argument::bytes(word.bytes(parameter.size))).ok()?;
    }
    let (config, arguments) = (&config, Arguments(&arguments));
    // SAFETY: [launch-arguments] number and sizes are checked; that the memory behind the addresses is there and
    // ordered is what the caller of a kernel promises, in Python too.
    let launch = move || unsafe { cuirass::launch(stream, config, kernel, arguments.all()) };
    let at_once = is_captured && cuirass::graph::launch_returns_at_once(stream, config, kernel);
    Some(if at_once { nothing(call, add_node(call.py, launch)) } else { nothing(call, run(call.py, launch)) })
}

/// A launch that only adds a node to a capture. Not where the others are, whose code it would part.
#[inline(never)]
fn add_node(py: Python<'_>, launch: impl FnOnce() -> cuirass::Result<()>) -> PyResult<()> {
    ask(py, launch)
}

/// Any launch.
fn general<'a, 'py: 'a>(
    py: Python<'py>,
    stream: &Bound<'py, PyAny>,
    config: &Bound<'py, PyAny>,
    kernel: &Bound<'py, PyAny>,
    objects: impl Iterator<Item = Borrowed<'a, 'py, PyAny>> + Clone,
) -> PyResult<()> {
    let stream = stream::argument(stream)?;
    let config = match config.cast::<LaunchConfig>() {
        Ok(config) => config.get().get(),
        Err(_other) => return Err(not_a("config", "LaunchConfig", config)),
    };
    let Ok(kernel) = kernel.cast::<Kernel>() else { return Err(not_a("kernel", "Kernel", kernel)) };
    let object = kernel;
    let kernel = object.get().kernel();
    let sizes = match kernel.known_parameters() {
        // The first time, the driver is asked.
        None => run(py, || kernel.parameters_on(&stream))?,
        known => known,
    };
    let mut values: SmallVec<[Value; FEW]> = SmallVec::new();
    let mut held = Held::new();
    for (index, object) in objects.clone().enumerate() {
        // What comes after it may be a user's code, which may close it.
        if object.is_instance_of::<Buffer>() {
            // SAFETY: [exact-class] asked just now.
            held.push(unsafe { object.cast_unchecked::<Buffer>() }.get().enter()?);
        }
        let size = sizes.and_then(|sizes| sizes.get(index)).map(|parameter| parameter.size);
        values.push(value_of(&object, Parameter { kernel, index, size })?);
    }
    let arguments: SmallVec<[Argument; FEW]> = values.iter().map(|value| Argument::bytes(value.bytes())).collect();
    let (stream, config, arguments): (&cuirass::Stream, _, _) = (&stream, &config, Arguments(&arguments));
    // From before the launch, whatever its answer: the node may be there even where the call returns an error.
    let is_captured = keep::launched(stream, object, objects.clone())?;
    // SAFETY: [launch-arguments] as above.
    let launched = run(py, move || unsafe { cuirass::launch(stream, config, kernel, arguments.all()) });
    // Another thread may have begun a capture of the stream meanwhile.
    let kept = if is_captured { Ok(true) } else { keep::launched(stream, object, objects) };
    launched.and(kept.map(drop))
}

/// Runs a kernel on a stream (``cuLaunchKernelEx``).
///
/// Parameters
/// ----------
/// stream : Stream or object with ``__cuda_stream__``
///     The stream.
/// config : LaunchConfig
///     The shape of the grid.
/// kernel : Kernel
///     The kernel.
/// *kernel_args
///     What it takes. A ``Buffer``, or an object with a ``handle``, is its address. An ``int`` has the size of the
///     kernel's parameter, and must fit. A ``float`` is a double, or a float where the parameter has 4 bytes. A
///     ``bool`` has 1 byte, a ``complex`` 16 (8 where the parameter has 8), ``None`` is a null pointer. NumPy scalars
///     and records, and ctypes scalars and structures, are passed bit for bit; of NumPy's a date is the 64-bit number
///     of its unit, and texts, ``longdouble``, and records with objects or in another byte order are refused.
///
/// Raises
/// ------
/// ValueError
///     If the number of the arguments or the size of one is not the kernel's: nothing is launched.
/// OverflowError
///     If an ``int`` does not fit in its parameter: nothing is launched.
/// TypeError
///     If an argument is of a type that a kernel cannot be given.
/// RuntimeError
///     If the stream or a buffer is closed.
/// CUDAError
///     What the driver answers, an earlier kernel's fault among it.
///
/// Notes
/// -----
/// With a driver older than CUDA 12.4, which does not tell the parameters' sizes, nothing is checked: an ``int`` is
/// then passed in 8 bytes and a ``float`` as a double.
#[pyfunction]
#[pyo3(signature = (stream, config, kernel, *kernel_args))]
pub fn launch(
    py: Python<'_>,
    stream: &Bound<'_, PyAny>,
    config: &Bound<'_, PyAny>,
    kernel: &Bound<'_, PyAny>,
    kernel_args: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let objects: SmallVec<[Borrowed<'_, '_, PyAny>; FEW]> = kernel_args.iter_borrowed().collect();
    general(py, stream, config, kernel, objects.iter().copied())
}

#[cold]
fn not_a(name: &str, class: &str, object: &Bound<'_, PyAny>) -> PyErr {
    match object.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("{name} must be a {class}, not {kind}")),
        Err(error) => error,
    }
}
