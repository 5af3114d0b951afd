//! DLPack's C interface of our views, for consumers that are written in C.
#![allow(unsafe_code)]

use crate::view::dlpack::{self, EXCHANGE_API, ExchangeApi, ManagedVersioned, SetError, Tensor, VERSION};
use crate::view::import::Taken;
use crate::view::strided::StridedMemoryView;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null, null_mut};

static API: ExchangeApi = ExchangeApi {
    version: VERSION,
    previous: null(),
    allocate: Some(allocate),
    export: Some(export),
    import: Some(import),
    borrow: Some(borrow),
    current_stream: Some(current_stream),
};

// SAFETY: [exchange-api] never written to.
unsafe impl Sync for ExchangeApi {}

/// Puts the interface into the class, under both names that it had.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let pointer = (&raw const API).cast_mut().cast();
    // SAFETY: [capsule] attached; the interface and the name live for good.
    let capsule: Bound<'_, PyAny> =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, EXCHANGE_API.as_ptr(), None))? };
    let class = py.get_type::<StridedMemoryView>();
    class.setattr("__dlpack_c_exchange_api__", &capsule)?;
    class.setattr("__c_dlpack_exchange_api__", &capsule)
}

/// Runs what C called, with its error set as Python's; the caller is attached, as DLPack wants it.
fn answer(code: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    let answered = Python::try_attach(|py| match catch_unwind(AssertUnwindSafe(|| code(py))) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            error.restore(py);
            -1
        }
        Err(_panic) => {
            PyRuntimeError::new_err("internal inconsistency in DLPack's C interface; please report this").restore(py);
            -1
        }
    });
    answered.unwrap_or(-1)
}

/// The view that an object is.
///
/// # Safety
/// The pointer is an object's.
unsafe fn view<'py>(py: Python<'py>, object: *mut ffi::PyObject) -> PyResult<Bound<'py, StridedMemoryView>> {
    // SAFETY: [exchange-api] the caller's promise; a null one is an error.
    let object = unsafe { Bound::from_borrowed_ptr_or_err(py, object)? };
    object.cast_into::<StridedMemoryView>().map_err(|_other| {
        PyTypeError::new_err("this C interface of DLPack is that of StridedMemoryView, for its objects alone")
    })
}

unsafe extern "C" fn export(object: *mut ffi::PyObject, out: *mut *mut ManagedVersioned) -> c_int {
    answer(|py| {
        // SAFETY: [exchange-api] the caller's object, and its place for the tensor.
        unsafe {
            let view = view(py, object)?;
            let device = view.get().parts().exported_device(py)?;
            *out = StridedMemoryView::offer(&view, device)?.into_versioned();
        }
        Ok(())
    })
}

unsafe extern "C" fn borrow(object: *mut ffi::PyObject, out: *mut Tensor) -> c_int {
    answer(|py| {
        // SAFETY: [exchange-api] as above; the tensor points into the object, which the caller keeps.
        unsafe { *out = view(py, object)?.get().tensor(py)? };
        Ok(())
    })
}

unsafe extern "C" fn import(tensor: *mut ManagedVersioned, out: *mut *mut ffi::PyObject) -> c_int {
    answer(|py| {
        let Some(tensor) = NonNull::new(tensor) else { return Err(dlpack::refused("there is no tensor")) };
        let view = StridedMemoryView::of_tensor(py, Taken::Versioned(tensor))?;
        // SAFETY: [exchange-api] the caller's place for the object, which is then the caller's.
        unsafe { *out = view.into_ptr() };
        Ok(())
    })
}

/// Views are of memory that is there: nothing is allocated for a consumer.
unsafe extern "C" fn allocate(
    _prototype: *mut Tensor,
    out: *mut *mut ManagedVersioned,
    context: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    // SAFETY: [exchange-api] the caller's places, and its function for errors, which wants two texts that end in NUL.
    unsafe {
        if !out.is_null() {
            *out = null_mut();
        }
        if let Some(set_error) = set_error {
            let message = c"a StridedMemoryView is a view: it allocates no memory";
            set_error(context, c"NotImplementedError".as_ptr(), message.as_ptr());
        }
    }
    -1
}

/// A view is used on the stream that its user chose when it was made, which is not known here: the default stream is
/// what DLPack has for that.
unsafe extern "C" fn current_stream(_device_type: i32, _device: i32, out: *mut *mut c_void) -> c_int {
    if !out.is_null() {
        // SAFETY: [exchange-api] the caller's place for the stream.
        unsafe { *out = null_mut() };
    }
    0
}
