//! Users' Python code that is run from here, on a thread that the interpreter's end may find in it.
//!
//! Until Python 3.14 a thread that comes back to an interpreter that is ending is ended by `pthread_exit()`, which unwinds
//! its stack: Rust's frames end the process then, and guards on the way use the interpreter without being attached. So
//! the innermost frame of ours below which such code runs does not let it past: the thread stays where it is.
#![allow(unsafe_code)]

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::{CStr, c_char, c_int};
use std::mem::{ManuallyDrop, transmute};

// What the interpreter's functions are: they may unwind. Their declarations say otherwise, and the compiler must not see
// at a call that it is one of them which is called.
type Call = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type Take = unsafe extern "C-unwind" fn(*mut PyObject);
type Warn = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const c_char,
    *const c_char,
    c_int,
    *const c_char,
    *mut PyObject,
) -> c_int;

fn unwinding<F>(function: F) -> F {
    std::hint::black_box(function)
}

fn taking(function: unsafe extern "C" fn(*mut PyObject)) -> Take {
    // SAFETY: [interpreter] its own type, but that it may unwind.
    unwinding(unsafe { transmute::<unsafe extern "C" fn(*mut PyObject), Take>(function) })
}

/// Dropped by nothing but such an unwinding.
struct Stay;

impl Stay {
    /// The call has returned.
    fn end(self) {
        let _over = ManuallyDrop::new(self);
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls a function.
pub fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = keywords.map_or(std::ptr::null_mut(), |keywords| keywords.as_ptr());
    // SAFETY: [interpreter] its own type, but that it may unwind.
    let call = unwinding(unsafe {
        transmute::<unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject, Call>(
            ffi::PyObject_Call,
        )
    });
    let stay = Stay;
    // SAFETY: [interpreter] attached; the objects are borrowed for the call, whose result is a new reference.
    let result = unsafe { call(function.as_ptr(), arguments.as_ptr(), keywords) };
    stay.end();
    // SAFETY: [interpreter] as above; null says that an exception is set.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// Calls a function without arguments.
pub fn call0<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    call(function, &PyTuple::empty(function.py()), None)
}

/// Gives a warning that has no registry.
pub fn warn_explicit(
    category: &Bound<'_, PyAny>,
    message: &CStr,
    file: &CStr,
    line: c_int,
    module: &CStr,
) -> PyResult<()> {
    let (message, file, module) = (message.as_ptr(), file.as_ptr(), module.as_ptr());
    // SAFETY: [interpreter] its own type, but that it may unwind.
    let warn = unwinding(unsafe {
        transmute::<
            unsafe extern "C" fn(
                *mut PyObject,
                *const c_char,
                *const c_char,
                c_int,
                *const c_char,
                *mut PyObject,
            ) -> c_int,
            Warn,
        >(ffi::PyErr_WarnExplicit)
    });
    let stay = Stay;
    // SAFETY: [interpreter] attached; the texts and the class live until the call returns.
    let answer = unsafe { warn(category.as_ptr(), message, file, line, module, std::ptr::null_mut()) };
    stay.end();
    if answer == 0 { Ok(()) } else { Err(PyErr::fetch(category.py())) }
}

/// Gives an exception to `sys.unraisablehook`.
pub fn write_unraisable(py: Python<'_>, error: PyErr) {
    error.restore(py);
    let write = taking(ffi::PyErr_WriteUnraisable);
    let stay = Stay;
    // SAFETY: [interpreter] attached, with the exception set; it names no object.
    unsafe { write(std::ptr::null_mut()) };
    stay.end();
}

/// An object whose end may run a user's code.
pub struct Held(ManuallyDrop<Py<PyAny>>);

impl Held {
    pub fn new(object: Py<PyAny>) -> Held {
        Held(ManuallyDrop::new(object))
    }

    pub fn object(&self) -> &Py<PyAny> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: [slot-taken] its own drop, after which nobody has it.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut object = Some(object);
        if crate::report::attached(|py| object.take().into_iter().for_each(|object| drop_object(py, object))).is_none()
        {
            // The interpreter is gone: what needs it is left to the process's end.
            let _leaked = ManuallyDrop::new(object);
        }
    }
}

/// Gives up a reference, whose object's end may run a user's code.
pub fn drop_object(_py: Python<'_>, object: Py<PyAny>) {
    let object: *mut PyObject = object.into_ptr();
    let give_up = taking(ffi::Py_DecRef);
    let stay = Stay;
    // SAFETY: [interpreter] attached; the reference was the caller's.
    unsafe { give_up(object) };
    stay.end();
}
