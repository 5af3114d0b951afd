//! Objects of a class of ours, made by the interpreter's own function for that. PyO3 goes through `object.__new__()`,
//! with a search for it and a tuple of no arguments, which costs as much again.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{PyClass, PyClassInitializer, ffi};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Makes the objects of a class, which extends none of ours.
pub struct Fresh<T> {
    /// Where an object has its value; [`UNKNOWN`], or [`OTHERWISE`].
    place: AtomicUsize,
    class: PhantomData<fn(T)>,
}

/// None was made yet.
const UNKNOWN: usize = 0;
/// PyO3 has more to do than what is done here.
const OTHERWISE: usize = 1;

impl<T: PyClass<Frozen = True> + Sync + Into<PyClassInitializer<T>>> Fresh<T> {
    pub const fn new() -> Fresh<T> {
        Fresh { place: AtomicUsize::new(UNKNOWN), class: PhantomData }
    }

    /// A new object.
    #[inline(always)]
    pub fn make<'py>(&self, py: Python<'py>, value: T) -> PyResult<Bound<'py, T>> {
        let place = self.place.load(Ordering::Relaxed);
        if place <= OTHERWISE {
            return self.make_otherwise(py, value);
        }
        // SAFETY: [fresh-object] attached; the class's objects are made by this function, and have their value, and
        // nothing else, in that place.
        unsafe {
            let object = ffi::PyType_GenericAlloc(T::type_object_raw(py), 0);
            if object.is_null() {
                return Err(PyErr::fetch(py));
            }
            object.byte_add(place).cast::<T>().write(value);
            Ok(Bound::from_owned_ptr(py, object).cast_into_unchecked())
        }
    }

    #[cold]
    #[inline(never)]
    fn make_otherwise<'py>(&self, py: Python<'py>, value: T) -> PyResult<Bound<'py, T>> {
        let object = Bound::new(py, value)?;
        if self.place.load(Ordering::Relaxed) == UNKNOWN {
            self.place.store(place_in(&object)?.unwrap_or(OTHERWISE), Ordering::Relaxed);
        }
        Ok(object)
    }
}

/// Where an object has its value; `None` where it has anything besides.
fn place_in<T: PyClass<Frozen = True> + Sync>(object: &Bound<'_, T>) -> PyResult<Option<usize>> {
    let class = object.as_any().get_type();
    let place = std::ptr::from_ref(object.get()).addr().wrapping_sub(object.as_ptr().addr());
    let size: usize = class.getattr("__basicsize__")?.extract()?;
    // SAFETY: [fresh-object] attached, with a type.
    let allocate = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_alloc) };
    let is_plain = place == size_of::<ffi::PyObject>()
        && size == place + size_of::<T>()
        && std::ptr::addr_eq(allocate, ffi::PyType_GenericAlloc as *const ())
        && class.getattr("__base__")?.is(object.py().get_type::<PyAny>());
    Ok(is_plain.then_some(place))
}
