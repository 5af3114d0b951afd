//! Which Python object a device is on a thread, and what was current before a `with` block.

use crate::device::Device;
use crate::error::{ask, run};
use crate::handle;
use crate::memory::pool::DeviceMemoryResource;
use crate::number::{Refused, out_of_range, read};
use crate::slot::{Detached, drop_detached};
use cuirass_fault::lock::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// This thread's objects, by ordinal. Dropping them needs no interpreter: their references wait for one.
    static CACHED: RefCell<Vec<Option<Py<Device>>>> = const { RefCell::new(Vec::new()) };
    /// What was current at each `with` block that this thread is in, with its device.
    static ENTERED: RefCell<Vec<(i32, cuirass::context::Previous)>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// This thread's object of a device.
    pub fn cached(py: Python<'_>, device: cuirass::Device) -> PyResult<Py<Device>> {
        if let Some(known) = Device::known(py, device.ordinal()) {
            return Ok(known);
        }
        let made = Py::new(
            py,
            Device {
                device,
                has_chosen: AtomicBool::new(false),
                chosen: Mutex::new(None),
                is_retained: AtomicBool::new(false),
                resource: Mutex::new(None),
            },
        )?;
        let index = usize::try_from(device.ordinal()).unwrap_or(0);
        let kept = CACHED.try_with(|cached| {
            let mut cached = cached.try_borrow_mut().ok()?;
            if cached.len() <= index {
                cached.resize_with(index + 1, || None);
            }
            cached.get_mut(index)?.replace(made.clone_ref(py))
        });
        // Nothing was kept before, or the thread is ending and keeps nothing any more.
        drop(kept);
        Ok(made)
    }

    #[inline]
    pub(super) fn known(py: Python<'_>, ordinal: i32) -> Option<Py<Device>> {
        let index = usize::try_from(ordinal).ok()?;
        // A thread that is ending may have let go of its objects already.
        let known = CACHED.try_with(|cached| {
            let cached = cached.try_borrow().ok()?;
            cached.get(index)?.as_ref().map(|device| device.clone_ref(py))
        });
        known.ok().flatten()
    }

    /// The device.
    pub fn get(&self) -> cuirass::Device {
        self.device
    }

    /// The context that its methods work in: what `set_current(ctx)` chose, else the primary one.
    pub(super) fn working_context(&self, py: Python<'_>) -> PyResult<cuirass::Context> {
        if self.has_chosen.load(Ordering::Acquire) {
            let chosen = self.chosen.lock().as_deref().cloned();
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
        if self.is_retained.load(Ordering::Acquire) {
            return ask(py, || self.device.context());
        }
        self.retained_context(py)
    }

    /// The device, where its methods work in its primary context, which has been retained.
    #[inline]
    pub(super) fn in_primary_context(&self) -> Option<cuirass::Device> {
        let is_so = self.is_retained.load(Ordering::Acquire) && !self.has_chosen.load(Ordering::Acquire);
        is_so.then_some(self.device)
    }

    /// Its primary context, retained for the first time with the interpreter released.
    #[cold]
    pub(super) fn retained_context(&self, py: Python<'_>) -> PyResult<cuirass::Context> {
        let context = run(py, || self.device.context())?;
        self.is_retained.store(true, Ordering::Release);
        Ok(context)
    }

    pub(super) fn choose(&self, context: Option<cuirass::Context>) {
        self.has_chosen.store(context.is_some(), Ordering::Release);
        let previous = std::mem::replace(&mut *self.chosen.lock(), context.map(Detached::new));
        drop(previous);
    }

    /// Makes its context current, and notes what was current before.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<()> {
        let context = self.working_context(py)?;
        let entered = ask(py, || context.enter());
        if self.has_chosen.load(Ordering::Acquire) {
            // Another thread may have let go of it meanwhile.
            drop_detached(context);
        }
        let previous = entered?;
        ENTERED.with_borrow_mut(|entered| entered.push((self.device.ordinal(), previous)));
        Ok(())
    }

    /// Restores what was current when this thread last entered it.
    pub(super) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let ordinal = self.device.ordinal();
        let previous = ENTERED.with_borrow_mut(|entered| {
            let at = entered.iter().rposition(|(device, _)| *device == ordinal)?;
            Some(entered.remove(at).1)
        });
        match previous {
            Some(previous) => ask(py, || previous.restore()),
            None => Err(PyRuntimeError::new_err("this device was not entered on this thread")),
        }
    }

    /// Its memory resource: what was set, else that of its default pool.
    pub fn resource<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.resource.lock().as_ref().map(|resource| resource.clone_ref(py));
        if let Some(known) = known {
            return Ok(known.into_bound(py));
        }
        let pool = Detached::new(run(py, || self.device.memory_resource())?);
        let made = DeviceMemoryResource::object(py, &pool)?.into_any();
        let kept = self.resource.lock().get_or_insert_with(|| made.clone_ref(py)).clone_ref(py);
        Ok(kept.into_bound(py))
    }
}

/// The device that an argument is: a `Device`, or an ordinal.
pub fn argument(py: Python<'_>, object: &Bound<'_, PyAny>, name: &str) -> PyResult<cuirass::Device> {
    if let Ok(device) = object.cast::<Device>() {
        return Ok(device.get().device);
    }
    let ordinal = ordinal(py, object, name)?;
    crate::sim::prepare(py)?;
    of_ordinal(py, ordinal, name)
}

/// The device of the current context; 0 where none is current.
pub fn current(py: Python<'_>) -> PyResult<cuirass::Device> {
    crate::sim::prepare(py)?;
    match run(py, cuirass::Device::current)? {
        Some(device) => Ok(device),
        None => ask(py, || cuirass::Device::new(0)),
    }
}

/// A number that may be a device's.
pub(super) fn ordinal(py: Python<'_>, object: &Bound<'_, PyAny>, name: &str) -> PyResult<i32> {
    match read(object.as_borrowed()) {
        Ok(ordinal) => Ok(ordinal),
        Err(Refused::Range { shown, .. }) => Err(no_device(py, name, &shown)?),
        Err(refused) => Err(refused.error_of(name, "an int or a Device", &0, &i32::MAX)),
    }
}

/// The device of a number.
pub fn of_ordinal(py: Python<'_>, ordinal: i32, name: &str) -> PyResult<cuirass::Device> {
    match run(py, || cuirass::Device::new(ordinal)) {
        Err(error) if error.is_instance_of::<PyValueError>(py) => Err(no_device(py, name, &ordinal.to_string())?),
        device => device,
    }
}

/// The error for a number that no device has; that of the driver, where there is none.
#[cold]
fn no_device(py: Python<'_>, name: &str, shown: &str) -> PyResult<PyErr> {
    crate::sim::prepare(py)?;
    let count = run(py, cuirass::Device::all)?.len();
    Ok(match count.checked_sub(1) {
        Some(last) => out_of_range(name, &0, &last, shown),
        None => PyValueError::new_err(format!("{name} is {shown}, and there is no device")),
    })
}

/// The number of an address that was given as a handle.
pub fn address(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    handle::take_or_null(object, "ptr")
}
