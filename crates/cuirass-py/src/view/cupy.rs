//! CuPy's arrays, by their attributes: what its protocols give is the same, and costs a call of the CUDA runtime and a
//! stream that nobody asked for.

use crate::error::run;
use crate::view::dlpack::{self, CUDA, CUDA_MANAGED, DataType, Device, Dims};
use crate::view::dtype::{self, Dtype};
use crate::view::parts::{Holds, Parts};
use cuirass::memory::pointer_info;
use cuirass_fault::lock::Mutex;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Whether a class that calls itself CuPy's is its class of arrays.
pub fn is_array(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Ok(cupy) = modules.get_item(intern!(py, "cupy")) else { return Ok(false) };
    Ok(cupy.getattr_opt(intern!(py, "ndarray"))?.is_some_and(|known| known.is(class)))
}

/// The view of an array, where nobody is to order anything; `None` where only the protocol can say what it is, or what
/// is wrong.
pub fn read(object: &Bound<'_, PyAny>) -> PyResult<Option<Parts>> {
    let py = object.py();
    let Some(code) = code_of(&object.getattr(intern!(py, "dtype"))?)? else { return Ok(None) };
    let itemsize = code.bits / 8;
    let memory = object.getattr(intern!(py, "data"))?;
    let pointer: u64 = memory.getattr(intern!(py, "ptr"))?.extract()?;
    let id: i32 = memory.getattr(intern!(py, "device_id"))?.extract()?;
    let Some(shape) = numbers(&object.getattr(intern!(py, "shape"))?)? else { return Ok(None) };
    let Some(mut strides) = numbers(&object.getattr(intern!(py, "strides"))?)? else { return Ok(None) };
    let item = i64::from(itemsize);
    if pointer == 0 || id < 0 || shape.len() != strides.len() {
        return Ok(None);
    }
    for stride in &mut strides {
        let Some(elements) = dlpack::in_elements(*stride, item) else { return Ok(None) };
        *stride = elements;
    }
    let itemsize = usize::from(itemsize);
    let range = dlpack::volume(&shape, itemsize).and_then(|_bytes| dlpack::span(&shape, &strides, itemsize));
    let fits = |(low, high)| pointer.checked_add_signed(low).is_some() && pointer.checked_add_signed(high).is_some();
    if !range.is_some_and(fits) {
        return Ok(None);
    }
    Ok(Some(Parts {
        pointer,
        device: Device { kind: CUDA, id },
        ask_driver: true,
        shape,
        strides,
        // CuPy's own tensors have them, those without dimensions too.
        has_strides: true,
        itemsize,
        dtype: Dtype::Code(code),
        readonly: false,
        exporter: Some(object.clone().unbind()),
        holds: Holds::Nothing,
    }))
}

/// What DLPack calls the device of an array's memory, which may be managed: only the driver knows.
pub fn exported(py: Python<'_>, address: u64, device: Device) -> PyResult<Device> {
    crate::sim::prepare(py)?;
    let info = run(py, || pointer_info(address))?;
    Ok(Device { kind: if info.is_managed { CUDA_MANAGED } else { device.kind }, ..device }.exported())
}

fn numbers(object: &Bound<'_, PyAny>) -> PyResult<Option<Dims>> {
    let Ok(tuple) = object.cast::<PyTuple>() else { return Ok(None) };
    crate::room::check_axes(tuple.len())?;
    tuple.iter_borrowed().map(|number| number.extract::<i64>()).collect::<PyResult<Dims>>().map(Some)
}

/// A type whose code is known.
struct Known {
    object: AtomicPtr<ffi::PyObject>,
    code: AtomicU32,
}

/// numpy's types are single objects. Filled from the front, and never emptied: one that is in it is held for good.
static KNOWN: [Known; 16] = [const { Known { object: AtomicPtr::new(null_mut()), code: AtomicU32::new(0) } }; 16];
/// Held by who adds to it.
static ADDING: Mutex<()> = Mutex::new(());

/// DLPack's code of a type with whole bytes.
fn code_of(dtype: &Bound<'_, PyAny>) -> PyResult<Option<DataType>> {
    match find(dtype) {
        Some(code) => Ok(Some(code)),
        None => look(dtype),
    }
}

fn find(dtype: &Bound<'_, PyAny>) -> Option<DataType> {
    for known in &KNOWN {
        let object = known.object.load(Ordering::Acquire);
        if object == dtype.as_ptr() {
            let [code, bits, ..] = known.code.load(Ordering::Relaxed).to_ne_bytes();
            return Some(dtype::scalar(code, bits));
        }
        if object.is_null() {
            return None;
        }
    }
    None
}

#[cold]
fn look(dtype: &Bound<'_, PyAny>) -> PyResult<Option<DataType>> {
    let Some(code) = dtype::code_of_object(dtype)?.filter(|code| code.bits % 8 == 0 && code.lanes == 1) else {
        return Ok(None);
    };
    let _adding = ADDING.lock();
    if find(dtype).is_none()
        && let Some(free) = KNOWN.iter().find(|known| known.object.load(Ordering::Relaxed).is_null())
    {
        free.code.store(u32::from_ne_bytes([code.code, code.bits, 0, 0]), Ordering::Relaxed);
        // The reference is kept for good, so that no other type gets the address.
        free.object.store(dtype.clone().into_ptr(), Ordering::Release);
    }
    Ok(Some(code))
}
