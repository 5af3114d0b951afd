//! `Context`: which one is current is the driver's to say; this is a share of one.

use crate::error::{ask, close, closed, not_constructed, run};
use crate::handle;
use crate::handle::Equal;
use crate::options;
use crate::slot::{Closed, Share, Slot, Use};
use crate::stream::Stream;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A CUDA context of a device.
///
/// Objects made in a context keep it alive. ``close()`` gives up this object's own share; the context ends with the
/// last share.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Context")]
pub struct Context {
    slot: Slot<cuirass::Context>,
    raw: u64,
}

impl Context {
    pub fn of(context: cuirass::Context) -> Context {
        let raw = context.as_raw().addr() as u64;
        Context { slot: Slot::new(context), raw }
    }

    pub fn enter(&self) -> PyResult<Use<'_, cuirass::Context>> {
        self.slot.enter().ok_or_else(|| closed("context"))
    }
}

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Context> {
        not_constructed("Context", "Device.context or Device.create_context()")
    }

    /// The driver's ``CUcontext``, as a ``cuda.bindings.driver`` object where that package is there, else a number.
    /// ``None`` once it is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.slot.is_closed() { Ok(None) } else { handle::give(py, "CUcontext", self.raw).map(Some) }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    /// Whether it is a green context, which has only a part of its device.
    #[getter]
    fn is_green(&self) -> bool {
        false
    }

    /// A new stream in this context (``cuStreamCreateWithPriority``).
    ///
    /// Parameters
    /// ----------
    /// options : StreamOptions, optional
    ///     How it is made; non-blocking with the default priority without them.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If the priority is out of the device's range.
    /// CUDAError
    ///     If the driver refuses; nothing is left created.
    #[pyo3(signature = (options=None))]
    fn create_stream(&self, py: Python<'_>, options: Option<&Bound<'_, PyAny>>) -> PyResult<Stream> {
        let context = self.enter()?;
        let options = options::stream(options)?;
        Ok(Stream::of(run(py, || cuirass::Stream::create(&context, &options))?))
    }

    /// Gives up this object's share. The context ends with the last share: if this is it, what the driver answers to
    /// that is raised.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If it is a created context, and current on this thread.
    /// CUDAError
    ///     If the context ended here and the driver refused.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(context) = self.slot.enter()
            && !context.is_primary()
            && !cuirass::driver::is_forked()
            && ask(py, cuirass::Context::current)?.is_some_and(|current| current == *context)
        {
            return Err(PyRuntimeError::new_err("this context is current on this thread: make another current first"));
        }
        match self.slot.close() {
            Closed::Taken(context) => close(py, || context.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<Context>().ok().map(|other| same(self.raw, &self.slot, other.get().raw, &other.get().slot)))
    }

    fn __hash__(&self) -> u64 {
        self.raw
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Some(context) = self.slot.enter() else { return Ok("<Context closed>".to_owned()) };
        let device = ask(py, || Ok(context.device().ordinal()))?;
        Ok(format!("<Context handle={:#x} device={device}>", self.raw))
    }
}

/// Whether two handles are the same thing. A handle that was closed may have come round again: it is only itself.
pub fn same<A: Share, B: Share>(one: u64, slot: &Slot<A>, other: u64, other_slot: &Slot<B>) -> bool {
    std::ptr::eq(std::ptr::from_ref(slot).cast::<()>(), std::ptr::from_ref(other_slot).cast())
        || (one == other && !slot.is_closed() && !other_slot.is_closed())
}

/// The context that an argument is.
pub fn argument<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a Context> {
    match object.cast::<Context>() {
        Ok(context) => Ok(context.get()),
        Err(_other) => {
            let kind = object.get_type().name()?;
            Err(pyo3::exceptions::PyTypeError::new_err(format!("ctx must be a Context, not {kind}")))
        }
    }
}

/// What a class that is not there yet answers.
pub fn not_yet(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{what} is not available in this version of cuirass"))
}
