//! `Event`: a marker in a stream, for order and for time.

use crate::context::{Context, same};
use crate::device::Device;
use crate::error::{ask, close, closed, not_constructed, raised, run};
use crate::handle;
use crate::handle::Equal;
use crate::memory::ipc::{self, EventDescriptor};
use crate::raw::{nothing, raw, truth};
use crate::slot::{Closed, Slot, Use};
use cuirass::status::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE};
use cuirass_fault::Failure;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A marker in the work of a stream.
///
/// It is made by ``Device.create_event()`` or ``Stream.record()``. The difference of two timed events is the time
/// between them, in milliseconds.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Event")]
pub struct Event {
    slot: Slot<cuirass::Event>,
    raw: u64,
    options: cuirass::EventOptions,
}

impl Event {
    pub fn of(event: cuirass::Event) -> Event {
        let (raw, options) = (event.as_raw().addr() as u64, event.options());
        Event { slot: Slot::new(event), raw, options }
    }

    #[inline]
    pub fn enter(&self) -> PyResult<Use<'_, cuirass::Event>> {
        self.slot.enter().ok_or_else(|| closed("event"))
    }
}

/// An operand that there is none of: the operator is not supported.
pub struct Never;

impl<'py> FromPyObject<'_, 'py> for Never {
    type Error = PyErr;

    fn extract(_object: Borrowed<'_, 'py, PyAny>) -> PyResult<Never> {
        Err(pyo3::exceptions::PyTypeError::new_err("not supported"))
    }
}

#[pymethods]
impl Event {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Event> {
        not_constructed("Event", "Device.create_event() or Stream.record()")
    }

    /// Gives up this object's share. If it is the last one the event is destroyed (``cuEventDestroy``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     If the event was destroyed here and the driver refused; it is spent all the same.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.slot.close() {
            Closed::Taken(event) => close(py, || event.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    #[pyo3(name = "__isub__")]
    fn isub(&self, _other: Never) {}

    fn __rsub__(&self, _other: Never) -> f64 {
        0.0
    }

    /// The time from ``other`` to this event, in milliseconds (``cuEventElapsedTime``).
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If one of them takes no time, was never recorded, or is still to come, or they are of different devices.
    /// CUDAError
    ///     What else the driver answers.
    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, Event>) -> PyResult<f64> {
        let other = other.get();
        let (end, start) = (self.enter()?, other.enter()?);
        for (event, which) in [(self, "the event"), (other, "the event that is subtracted")] {
            if !event.options.timing {
                return Err(PyRuntimeError::new_err(format!(
                    "{which} takes no time: make both with EventOptions(timing_enabled=True)"
                )));
            }
        }
        let (here, there) = (end.device().ordinal(), start.device().ordinal());
        if here != there {
            return Err(PyRuntimeError::new_err(format!(
                "the events are of different devices, {here} and {there}: there is no time between them, subtract events \
                 of one device"
            )));
        }
        match py.detach(|| start.elapsed_until(&end)) {
            Ok(Some(milliseconds)) => Ok(f64::from(milliseconds)),
            Ok(None) => Err(PyRuntimeError::new_err(
                "one of the events is still to come: call sync() on it, or on its stream, before you subtract",
            )),
            Err(error) if error.code() == Some(CUDA_ERROR_INVALID_HANDLE) => {
                let unrecorded = PyRuntimeError::new_err(
                    "one of the events was not recorded: record both, with Stream.record(event), before you subtract",
                );
                unrecorded.set_cause(py, Some(raised(py, error)));
                Err(unrecorded)
            }
            Err(error) if error.code() == Some(CUDA_ERROR_INVALID_VALUE) => {
                let note = "an event that was recorded in a capture has no time, and not until it is recorded anew: record \
                            both, outside of captures, before you subtract";
                Err(raised(py, Failure::from(error).note(note).raise()))
            }
            Err(error) => Err(raised(py, error)),
        }
    }

    fn __hash__(&self) -> u64 {
        self.raw
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<Event>().ok().map(|other| same(self.raw, &self.slot, other.get().raw, &other.get().slot)))
    }

    /// What another process opens this event by (``cuIpcGetEventHandle``). Pickling the event pickles this.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the event is not IPC-enabled.
    /// CUDAError
    ///     What the driver answers.
    #[getter]
    fn ipc_descriptor(&self, py: Python<'_>) -> PyResult<EventDescriptor> {
        let event = self.enter()?;
        if !self.options.interprocess {
            return Err(PyRuntimeError::new_err(
                "this event is of this process alone: make it with EventOptions(ipc_enabled=True)",
            ));
        }
        run(py, || event.ipc_descriptor()).map(EventDescriptor)
    }

    /// Another process's event (``cuIpcOpenEventHandle``), in the current context where that is of the event's device,
    /// else in the device's primary context.
    ///
    /// Parameters
    /// ----------
    /// ipc_descriptor : IPCEventDescriptor
    ///     What the other process's event gave.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If this process does not see the event's device.
    /// CUDAError
    ///     What the driver answers: it refuses an event of this process's own.
    #[classmethod]
    fn from_ipc_descriptor(_cls: &Bound<'_, PyType>, ipc_descriptor: &Bound<'_, PyAny>) -> PyResult<Event> {
        ipc::open_event(ipc_descriptor).map(Event::of)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Event>) -> PyResult<(Bound<'py, PyAny>, (EventDescriptor,))> {
        let descriptor = slf.get().ipc_descriptor(slf.py())?;
        Ok((slf.py().get_type::<Event>().getattr("from_ipc_descriptor")?, (descriptor,)))
    }

    /// Whether other processes can use it.
    #[getter]
    fn is_ipc_enabled(&self) -> bool {
        self.options.interprocess
    }

    /// Whether it takes the time.
    #[getter]
    fn is_timing_enabled(&self) -> bool {
        self.options.timing
    }

    /// Whether ``sync()`` sleeps instead of spinning.
    #[getter]
    fn is_blocking_sync(&self) -> bool {
        self.options.blocking_sync
    }

    /// Waits for the work before the event's last record (``cuEventSynchronize``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, an earlier kernel's fault among it.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let event = self.enter()?;
        run(py, || event.synchronize())
    }

    /// Whether the work before its last record is done (``cuEventQuery``); true for an event never recorded.
    #[getter]
    fn is_done(&self, py: Python<'_>) -> PyResult<bool> {
        let event = self.enter()?;
        ask(py, || event.is_done())
    }

    /// The driver's ``CUevent``, as a ``cuda.bindings.driver`` object where that package is there, else a number; 0
    /// once it is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUevent", if self.slot.is_closed() { 0 } else { self.raw })
    }

    /// The device that it is on.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<Device>> {
        let event = self.enter()?;
        Device::cached(py, event.device())
    }

    /// The context that it belongs to.
    #[getter]
    fn context(&self) -> PyResult<Context> {
        Ok(Context::of(self.enter()?.context()))
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() { "<Event closed>".to_owned() } else { format!("<Event handle={:#x}>", self.raw) }
    }
}

raw!(static CLOSE = |call| {
    let ([], event) = (call.plain()?, call.receiver::<Event>());
    Some(nothing(call, event.get().close(call.py)))
});

raw!(getter static IS_DONE = |call| {
    let event = call.receiver::<Event>();
    Some(truth(call, event.get().is_done(call.py)))
});

/// Puts the methods in that are called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Event>();
    CLOSE.replace_method(&class, "close")?;
    IS_DONE.replace_getter(&class, "is_done")
}
