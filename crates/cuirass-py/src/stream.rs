//! `Stream`: a queue of work on a device.
#![allow(unsafe_code)]

use crate::context::{Context, same};
use crate::device::Device;
use crate::error::{ask, close, closed, not_constructed, run};
use crate::event::Event;
use crate::graph::builder::GraphBuilder;
use crate::handle;
use crate::handle::Equal;
use crate::late;
use crate::options;
use crate::raw::{exact, given, nothing, raw};
use crate::slot::{Closed, Slot, Use};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A queue of work on a device.
///
/// It is made by ``Device.create_stream()``. It ends with its last share: buffers that are freed in its order keep it.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Stream")]
pub struct Stream {
    slot: Slot<cuirass::Stream>,
    raw: u64,
    /// Another library's object that the stream keeps alive, for the collector.
    owner: Option<Weak<Owner>>,
}

impl Stream {
    pub fn of(stream: cuirass::Stream) -> Stream {
        let raw = stream.as_raw().addr() as u64;
        Stream { slot: Slot::new(stream), raw, owner: None }
    }

    /// Another library's stream.
    fn of_foreign(foreign: Foreign) -> Stream {
        Stream { owner: Some(Arc::downgrade(&foreign.owner)), ..Stream::of(foreign.stream) }
    }

    /// What `Device.create_stream(obj)` makes of an object.
    pub fn of_object(object: &Bound<'_, PyAny>) -> PyResult<Stream> {
        match object.cast::<Stream>() {
            Ok(stream) => Ok(Stream::of(cuirass::Stream::clone(&*stream.get().enter()?))),
            Err(_other) => foreign(object).map(Stream::of_foreign),
        }
    }

    #[inline]
    pub fn enter(&self) -> PyResult<Use<'_, cuirass::Stream>> {
        self.slot.enter().ok_or_else(|| closed("stream"))
    }
}

/// A stream that is an argument: one of ours, used where it is, or another library's, wrapped for the call.
pub enum Argument<'a> {
    Ours(Use<'a, cuirass::Stream>),
    /// That of a graph builder.
    Builders(Use<'a, cuirass::graph::GraphBuilder>),
    Foreign(cuirass::Stream),
}

impl Deref for Argument<'_> {
    type Target = cuirass::Stream;

    #[inline]
    fn deref(&self) -> &cuirass::Stream {
        match self {
            Argument::Ours(stream) => stream,
            Argument::Builders(builder) => builder.stream(),
            Argument::Foreign(stream) => stream,
        }
    }
}

/// What an argument named `stream` may be: a `Stream`, or anything with `__cuda_stream__`.
#[inline]
pub fn argument<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Argument<'a>> {
    match exact::<Stream>(object.as_borrowed()) {
        Some(stream) => stream.get().enter().map(Argument::Ours),
        None => other_argument(object),
    }
}

#[inline(never)]
fn other_argument<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Argument<'a>> {
    match object.cast::<Stream>() {
        Ok(stream) => Ok(Argument::Ours(stream.get().enter()?)),
        Err(_other) => match object.cast::<GraphBuilder>() {
            Ok(builder) => Ok(Argument::Builders(builder.get().enter()?)),
            Err(_other) => foreign(object).map(|foreign| Argument::Foreign(foreign.stream)),
        },
    }
}

/// A stream of ours, or a graph builder's; `None` for anything else.
#[inline]
pub fn ours<'a>(object: &'a Bound<'_, PyAny>) -> Option<Argument<'a>> {
    match exact::<Stream>(object.as_borrowed()) {
        Some(stream) => stream.get().slot.enter().map(Argument::Ours),
        None => other_of_ours(object),
    }
}

#[inline(never)]
fn other_of_ours<'a>(object: &'a Bound<'_, PyAny>) -> Option<Argument<'a>> {
    match exact::<GraphBuilder>(object.as_borrowed()) {
        Some(builder) => builder.get().enter().ok().map(Argument::Builders),
        None => object.cast::<Stream>().ok()?.get().slot.enter().map(Argument::Ours),
    }
}

/// Another library's object, kept alive by the shares of its stream.
struct Owner(Py<PyAny>);

/// Another library's stream, and what it keeps alive.
struct Foreign {
    stream: cuirass::Stream,
    owner: Arc<Owner>,
}

#[cold]
fn foreign(object: &Bound<'_, PyAny>) -> PyResult<Foreign> {
    let Some(protocol) = object.getattr_opt("__cuda_stream__")? else {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("stream must be a Stream or have __cuda_stream__(), {kind} has not")));
    };
    // Early implementers made it an attribute.
    let answer = if protocol.is_callable() { late::call0(&protocol)? } else { protocol };
    let pair = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().map_err(|error| {
        let wrong =
            PyRuntimeError::new_err("__cuda_stream__() must return a pair: the protocol's version and the handle");
        wrong.set_cause(object.py(), Some(error));
        wrong
    })?;
    let version = handle::take(&pair.0, "the version of __cuda_stream__")?;
    if version != 0 {
        return Err(PyRuntimeError::new_err(format!("__cuda_stream__() is of version {version}; only 0 is known")));
    }
    let raw = handle::take(&pair.1, "the handle of __cuda_stream__")?;
    let owner = Arc::new(Owner(object.clone().unbind()));
    let kept: Arc<dyn Any + Send + Sync> = owner.clone();
    // SAFETY: [foreign-stream] the object says that this is its stream, which lives as long as the object, which is
    // kept.
    let stream = unsafe { cuirass::Stream::borrow_raw(pointer(raw), Some(kept)) };
    Ok(Foreign { stream, owner })
}

/// A stream that another library names by its number in a protocol, which it keeps for the time of the call.
pub fn borrowed(raw: u64) -> cuirass::Stream {
    // SAFETY: [foreign-stream] the protocols' promise.
    unsafe { cuirass::Stream::borrow_raw(pointer(raw), None) }
}

fn pointer(raw: u64) -> cuirass::raw::CUstream {
    std::ptr::without_provenance_mut(usize::try_from(raw).unwrap_or(0))
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Stream> {
        not_constructed("Stream", "Device.create_stream() or Stream.from_handle()")
    }

    /// Gives up this object's share. If it is the last one the stream is destroyed (``cuStreamDestroy``); work that is
    /// on it goes on. The two default streams are not closed.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the stream is being captured.
    /// CUDAError
    ///     If the stream was destroyed here and the driver refused; it is spent all the same.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.raw <= 2 {
            return Ok(());
        }
        if let Some(stream) = self.slot.enter() {
            if cuirass::graph::is_captured(&stream) {
                return Err(PyRuntimeError::new_err(
                    "the stream is being captured by a graph builder: end or close that first",
                ));
            }
            if stream.is_owned()
                && !cuirass::driver::is_forked()
                && ask(py, || stream.capture_status())? != cuirass::CaptureStatus::None
            {
                return Err(PyRuntimeError::new_err(
                    "the stream is being captured: end the capture first, which closing the stream would drop",
                ));
            }
        }
        match self.slot.close() {
            Closed::Taken(stream) => close(py, || stream.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    /// The stream for other libraries: the protocol's version, 0, and the handle as a number.
    fn __cuda_stream__(&self) -> PyResult<(u32, u64)> {
        let stream = self.enter()?;
        Ok((0, stream.as_raw().addr() as u64))
    }

    fn __hash__(&self) -> u64 {
        self.raw
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<Stream>().ok().map(|other| same(self.raw, &self.slot, other.get().raw, &other.get().slot)))
    }

    /// The driver's ``CUstream``, as a ``cuda.bindings.driver`` object where that package is there, else a number; 0
    /// once it is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUstream", if self.slot.is_closed() { 0 } else { self.raw })
    }

    /// Whether it takes no part in the implicit order of the legacy default stream (``cuStreamGetFlags``).
    #[getter]
    fn is_nonblocking(&self, py: Python<'_>) -> PyResult<bool> {
        let stream = self.enter()?;
        ask(py, || stream.is_nonblocking())
    }

    /// Its priority (``cuStreamGetPriority``): a lower number goes first.
    #[getter]
    fn priority(&self, py: Python<'_>) -> PyResult<i32> {
        let stream = self.enter()?;
        ask(py, || stream.priority())
    }

    /// Waits for all its work (``cuStreamSynchronize``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, an earlier kernel's fault among it.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.enter()?;
        run(py, || stream.synchronize())
    }

    /// Puts an event behind the work that is on the stream now (``cuEventRecord``).
    ///
    /// Parameters
    /// ----------
    /// event : Event, optional
    ///     The event; without it, a new one of this stream's context.
    /// options : EventOptions, optional
    ///     How the new event is made.
    ///
    /// Returns
    /// -------
    /// Event
    ///     The event that was recorded.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers: ``CUDA_ERROR_INVALID_HANDLE`` when the event is of another context.
    #[pyo3(signature = (event=None, options=None))]
    fn record<'py>(
        &self,
        py: Python<'py>,
        event: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let stream = self.enter()?;
        match event {
            Some(object) => {
                let event = event_of(object)?.enter()?;
                run(py, || stream.record(&event))?;
                Ok(object.clone())
            }
            None => {
                let options = options::event(options)?;
                let made = Event::of(run(py, || stream.record_new(&options))?);
                Ok(Bound::new(py, made)?.into_any())
            }
        }
    }

    /// What comes later on this stream waits for an event's last record, or for the work that is on another stream
    /// now (``cuStreamWaitEvent``). The host does not wait.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If it is neither an event nor a stream.
    /// CUDAError
    ///     What the driver answers.
    fn wait(&self, py: Python<'_>, event_or_stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = self.enter()?;
        if let Ok(event) = event_or_stream.cast::<Event>() {
            let event = event.get().enter()?;
            return run(py, || stream.wait(&event));
        }
        if !event_or_stream.is_instance_of::<Stream>() && event_or_stream.getattr_opt("__cuda_stream__")?.is_none() {
            let kind = event_or_stream.get_type().name()?;
            let message =
                format!("only an Event, a Stream or an object with __cuda_stream__() is waited for, not {kind}");
            return Err(PyValueError::new_err(message));
        }
        let other = argument(event_or_stream)?;
        run(py, || stream.wait_for_stream(&other))
    }

    /// The device that it is on.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<Device>> {
        let stream = self.enter()?;
        let device = ask(py, || stream.device())?;
        Device::cached(py, device)
    }

    /// The context that it belongs to; for a default stream, the current one.
    #[getter]
    fn context(&self, py: Python<'_>) -> PyResult<Context> {
        let stream = self.enter()?;
        Ok(Context::of(ask(py, || stream.context())?))
    }

    /// A graph builder that captures this stream.
    fn create_graph_builder(&self, py: Python<'_>) -> PyResult<GraphBuilder> {
        let stream = self.enter()?;
        Ok(GraphBuilder::of(run(py, || stream.create_graph_builder())?))
    }

    /// A stream of another library's, by its handle. It is not destroyed here, and must outlive this object.
    ///
    /// Parameters
    /// ----------
    /// handle : int or CUstream
    ///     The handle.
    #[staticmethod]
    fn from_handle(handle: &Bound<'_, PyAny>) -> PyResult<Stream> {
        let raw = handle::take_or_null(handle, "handle")?;
        // SAFETY: [foreign-stream] the caller's promise.
        Ok(Stream::of(unsafe { cuirass::Stream::borrow_raw(pointer(raw), None) }))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The object is this one's alone only as long as nothing else has a share of the stream, and nobody is using this
        // one, and so could take another.
        if let (Some(stream), Some(owner)) = (self.slot.enter_alone(), self.owner.as_ref().and_then(Weak::upgrade))
            && !stream.is_shared()
        {
            visit.call(&owner.0)?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() { "<Stream closed>".to_owned() } else { format!("<Stream handle={:#x}>", self.raw) }
    }
}

fn event_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a Event> {
    match object.cast::<Event>() {
        Ok(event) => Ok(event.get()),
        Err(_other) => {
            let kind = object.get_type().name()?;
            Err(PyTypeError::new_err(format!("event must be an Event, not {kind}")))
        }
    }
}

raw!(static RECORD = |call| {
    let ([event], stream) = (call.plain()?, call.receiver::<Stream>());
    let event = Some(&*event).filter(|event| !event.is_none());
    Some(given(stream.get().record(call.py, event, None).map(Bound::into_ptr)))
});

raw!(static SYNC = |call| {
    let ([], stream) = (call.plain()?, call.receiver::<Stream>());
    Some(nothing(call, stream.get().sync(call.py)))
});

raw!(static CLOSE = |call| {
    let ([], stream) = (call.plain()?, call.receiver::<Stream>());
    Some(nothing(call, stream.get().close(call.py)))
});

raw!(static WAIT = |call| {
    let ([other], stream) = (call.plain()?, call.receiver::<Stream>());
    Some(nothing(call, stream.get().wait(call.py, &other)))
});

/// Puts the methods in that are called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Stream>();
    RECORD.replace_method(&class, "record")?;
    SYNC.replace_method(&class, "sync")?;
    CLOSE.replace_method(&class, "close")?;
    WAIT.replace_method(&class, "wait")
}
