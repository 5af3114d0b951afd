//! `Host`, and locations: a device, or the host and a part of it.

use crate::device::{self, Device};
use crate::handle::Equal;
use crate::number::{Refused, out_of_range, read};
use cuirass::memory::Location;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyTuple, PyType};

/// The host as a place of managed memory, as :class:`Device` is one.
///
/// ``Host()`` is the host wherever the system places memory, ``Host(n)`` a NUMA node of it, ``Host.numa_current()`` the
/// node that is nearest to the thread that asks. The same arguments give the same object.
///
/// Parameters
/// ----------
/// numa_id : int, optional
///     The number of a NUMA node.
/// is_numa_current : bool, optional
///     Whether it is the node that is nearest to the thread that asks; not together with ``numa_id``.
///
/// Raises
/// ------
/// ValueError
///     If ``numa_id`` is no number from 0, or both are given.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Host")]
pub struct Host {
    numa_id: Option<i32>,
    is_numa_current: bool,
}

impl Host {
    fn of(py: Python<'_>, numa_id: Option<i32>, is_numa_current: bool) -> PyResult<Py<Host>> {
        static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
        let new = Py::new(py, Host { numa_id, is_numa_current })?;
        let kept = known.call_method1("setdefault", ((numa_id, is_numa_current), new))?;
        Ok(kept.cast_into::<Host>()?.unbind())
    }

    fn location(&self) -> Location {
        match self.numa_id {
            _ if self.is_numa_current => Location::HostNumaCurrent,
            Some(node) => Location::HostNuma(node),
            None => Location::Host,
        }
    }
}

/// The number of a NUMA node, which no bool is.
fn numa_node(node: &Bound<'_, PyAny>) -> PyResult<i32> {
    let number = match node.is_instance_of::<PyBool>() {
        true => Err(Refused::Kind("bool".to_owned())),
        false => read::<i32>(node.as_borrowed()),
    };
    match number {
        Ok(number @ 0..) => Ok(number),
        Ok(negative) => Err(out_of_range("numa_id", &0, &i32::MAX, &negative.to_string())),
        Err(Refused::Kind(kind)) => {
            Err(PyValueError::new_err(format!("numa_id must be an int from 0 to {}, not {kind}", i32::MAX)))
        }
        Err(refused) => Err(refused.error_of("numa_id", "an int", &0, &i32::MAX)),
    }
}

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (numa_id=None, *, is_numa_current=None), text_signature = "(numa_id=None, *, is_numa_current=False)")]
    fn new(
        py: Python<'_>,
        numa_id: Option<&Bound<'_, PyAny>>,
        is_numa_current: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Host>> {
        let is_numa_current = is_numa_current.map_or(Ok(false), |value| value.is_truthy())?;
        let node = numa_id.map(numa_node).transpose()?;
        if node.is_some() && is_numa_current {
            return Err(PyValueError::new_err("numa_id and is_numa_current cannot both be given"));
        }
        Host::of(py, node, is_numa_current)
    }

    /// The NUMA node that is nearest to the thread that asks.
    #[classmethod]
    fn numa_current(_cls: &Bound<'_, PyType>, py: Python<'_>) -> PyResult<Py<Host>> {
        Host::of(py, None, true)
    }

    /// The number of its NUMA node; ``None`` where it is no node in particular.
    #[getter]
    fn numa_id(&self) -> Option<i32> {
        self.numa_id
    }

    /// Whether it is the node that is nearest to the thread that asks.
    #[getter]
    fn is_numa_current(&self) -> bool {
        self.is_numa_current
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<Host>().ok().map(|other| self.location() == other.get().location()))
    }

    fn __hash__(&self) -> u64 {
        match self.numa_id {
            _ if self.is_numa_current => 0x686f_7374_0001,
            Some(node) => 0x686f_7374_0002 + u64::from(node.unsigned_abs()),
            None => 0x686f_7374_0000,
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Host>, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let class = slf.get_type();
        if slf.get().is_numa_current {
            return (class.getattr("numa_current")?, PyTuple::empty(py)).into_pyobject(py);
        }
        (class, (slf.get().numa_id,)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        match self.numa_id {
            _ if self.is_numa_current => "Host.numa_current()".to_owned(),
            Some(node) => format!("Host(numa_id={node})"),
            None => "Host()".to_owned(),
        }
    }
}

/// The place that an argument is: a `Device` or a `Host`.
pub fn argument(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Location> {
    if let Ok(host) = object.cast::<Host>() {
        return Ok(host.get().location());
    }
    if object.is_instance_of::<Device>() {
        return device::argument(object.py(), object, name).map(Location::Device);
    }
    if object.is_none() {
        return Err(PyValueError::new_err(format!("{name} must be given: a Device or a Host")));
    }
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("{name} must be a Device or a Host, not {kind}")))
}

/// As [`argument`]; `None` for `None`.
pub fn optional(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Location>> {
    if object.is_none() { Ok(None) } else { argument(object, name).map(Some) }
}

/// A place as Python has it.
pub fn object(py: Python<'_>, location: Location) -> PyResult<Py<PyAny>> {
    Ok(match location {
        Location::Device(device) => Device::cached(py, device)?.into_any(),
        Location::Host => Host::of(py, None, false)?.into_any(),
        Location::HostNuma(node) => Host::of(py, Some(node), false)?.into_any(),
        Location::HostNumaCurrent => Host::of(py, None, true)?.into_any(),
    })
}
