//! Objects of a class of ours, asked of the interpreter's allocator. PyO3 goes through `object.__new__()`, with a search for
//! it and a tuple of no arguments, which costs as much again.
#![allow(unsafe_code)]

use pyo3::impl_::pycell::PyStaticClassObject;
use pyo3::impl_::pyclass::{PyClassDummySlot, PyClassImpl};
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{PyClass, ffi};

/// A class whose objects have a value, weak references or none, and nothing else, and whose base is `object`.
pub trait Plain:
    PyClass<Frozen = True>
    + Sync
    + PyClassImpl<BaseType = PyAny, Layout = PyStaticClassObject<Self>, Dict = PyClassDummySlot>
{
}

impl<T> Plain for T where
    T: PyClass<Frozen = True>
        + Sync
        + PyClassImpl<BaseType = PyAny, Layout = PyStaticClassObject<T>, Dict = PyClassDummySlot>
{
}

/// What an object of such a class is.
#[repr(C)]
struct Layout<T: Plain> {
    header: ffi::PyObject,
    value: T,
    /// The list of its weak references, where it has one: none, where its memory is zero.
    weak: T::WeakRef,
}

/// A new object, as `Bound::new()` makes it.
#[inline(always)]
pub fn make<T: Plain>(py: Python<'_>, value: T) -> PyResult<Bound<'_, T>> {
    const { assert!(size_of::<Layout<T>>() == size_of::<PyStaticClassObject<T>>(), "PyO3's objects have something else") };
    // SAFETY: [fresh-object] attached, and a class of this layout.
    let object = unsafe { ffi::PyType_GenericAlloc(T::type_object_raw(py), 0) };
    if object.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: [fresh-object] inside the object, and nobody else has that yet.
    let place = unsafe { &raw mut (*object.cast::<Layout<T>>()).value };
    // SAFETY: [fresh-object] as above; from then on it is a whole object.
    let object = unsafe {
        place.write(value);
        Bound::from_owned_ptr(py, object).cast_into_unchecked::<T>()
    };
    debug_assert!(std::ptr::eq(place, object.get()), "PyO3 has the value elsewhere");
    Ok(object)
}
