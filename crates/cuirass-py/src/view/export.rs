//! Offering memory by DLPack: a tensor that keeps what it is of until its deleter is called, and the capsule around it.
#![allow(unsafe_code)]

use crate::memory::Buffer;
use crate::number::{self, Refused};
use crate::report::{python_is_usable, with_exception_aside};
use crate::stream;
use crate::view::dlpack::{
    CPU, CUDA_HOST, DataType, Device, Dims, Managed, ManagedVersioned, READ_ONLY, SUBBYTE_PADDED, Tensor, UNVERSIONED,
    VERSION, VERSIONED, refused,
};
use crate::view::dtype::{INT, scalar};
use crate::view::strided::StridedMemoryView;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a tensor keeps.
pub enum Kept {
    /// A buffer, in which a use is counted: its memory stays, whoever closes it.
    Buffer(Py<Buffer>),
    /// A view, and what that keeps.
    View(Py<StridedMemoryView>),
}

impl Kept {
    /// Lets go, on any thread. Once the interpreter is ending no Python object is touched: the object is leaked, which
    /// is freed with the process; a use of memory ends all the same.
    fn let_go(self) {
        let mut kept = Some(self);
        if python_is_usable() {
            Python::try_attach(|py| {
                with_exception_aside(py, || {
                    if let Some(Kept::Buffer(buffer)) = &kept {
                        buffer.get().leave();
                    }
                    kept = None;
                });
            });
        }
        match kept.map(ManuallyDrop::new).as_deref() {
            Some(Kept::Buffer(buffer)) => buffer.get().leave(),
            Some(Kept::View(..)) | None => {}
        }
    }
}

/// What is offered.
pub struct Offer {
    pub pointer: u64,
    pub device: Device,
    pub dtype: DataType,
    pub shape: Dims,
    pub strides: Dims,
    pub readonly: bool,
    pub kept: Kept,
}

/// A tensor of ours, with what it points to. `T` is what C sees.
struct Exported<T> {
    head: T,
    shape: Dims,
    strides: Dims,
    kept: Kept,
}

impl Offer {
    fn tensor(&self) -> Tensor {
        let address = if self.shape.contains(&0) { 0 } else { usize::try_from(self.pointer).unwrap_or(0) };
        Tensor {
            data: std::ptr::with_exposed_provenance_mut(address),
            device: self.device,
            ndim: i32::try_from(self.shape.len()).unwrap_or(0),
            dtype: self.dtype,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        }
    }

    fn flags(&self) -> u64 {
        let readonly = if self.readonly { READ_ONLY } else { 0 };
        readonly | if self.dtype.bits < 8 { SUBBYTE_PADDED } else { 0 }
    }

    /// A tensor on the heap, which its deleter frees.
    pub fn into_versioned(self) -> *mut ManagedVersioned {
        let head = ManagedVersioned {
            version: VERSION,
            context: std::ptr::null_mut(),
            deleter: Some(delete_versioned),
            flags: self.flags(),
            tensor: self.tensor(),
        };
        let made =
            Box::into_raw(Box::new(Exported { head, shape: self.shape, strides: self.strides, kept: self.kept }));
        // SAFETY: [dlpack-tensor] made here, and not given to anybody yet.
        unsafe {
            (*made).head.context = made.cast();
            (*made).head.tensor.shape = (*made).shape.as_mut_ptr();
            (*made).head.tensor.strides = (*made).strides.as_mut_ptr();
            &raw mut (*made).head
        }
    }

    fn into_unversioned(self) -> *mut Managed {
        let head = Managed { tensor: self.tensor(), context: std::ptr::null_mut(), deleter: Some(delete_unversioned) };
        let made =
            Box::into_raw(Box::new(Exported { head, shape: self.shape, strides: self.strides, kept: self.kept }));
        // SAFETY: [dlpack-tensor] as above.
        unsafe {
            (*made).head.context = made.cast();
            (*made).head.tensor.shape = (*made).shape.as_mut_ptr();
            (*made).head.tensor.strides = (*made).strides.as_mut_ptr();
            &raw mut (*made).head
        }
    }

    /// A capsule of the newest kind that the consumer knows.
    pub fn into_capsule<'py>(self, py: Python<'py>, asked: &Asked) -> PyResult<Bound<'py, PyAny>> {
        if asked.versioned {
            let tensor = self.into_versioned();
            return capsule(py, tensor.cast(), VERSIONED, destroy_versioned).inspect_err(|_failed| {
                // SAFETY: [dlpack-tensor] nobody got it.
                unsafe { delete_versioned(tensor) };
            });
        }
        if self.readonly || self.dtype.bits < 8 {
            // The name of an unversioned tensor says nothing of either: the consumer would write to it, or misread it.
            let kind = if self.readonly { "read-only memory" } else { "a type of less than a byte" };
            self.kept.let_go();
            return Err(refused(format!(
                "a consumer that does not ask for max_version=(1, 0) or more takes no {kind}"
            )));
        }
        let tensor = self.into_unversioned();
        capsule(py, tensor.cast(), UNVERSIONED, destroy_unversioned).inspect_err(|_failed| {
            // SAFETY: [dlpack-tensor] nobody got it.
            unsafe { delete_unversioned(tensor) };
        })
    }
}

fn capsule<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destroy: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: [capsule] attached; the pointer is not null, and the name lives for good.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy))) }
}

/// A tensor's end. A panic must not reach the C code that called.
fn delete<T>(made: *mut Exported<T>) {
    if made.is_null() {
        return;
    }
    let deleted = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: [dlpack-tensor] made by `Box::into_raw`, and deleted once, as DLPack wants it.
        let made = unsafe { Box::from_raw(made) };
        made.kept.let_go();
    }));
    if deleted.is_err() {
        crate::report::to_stderr("internal inconsistency while a DLPack tensor was deleted; please report this");
    }
}

unsafe extern "C" fn delete_versioned(tensor: *mut ManagedVersioned) {
    if !tensor.is_null() {
        // SAFETY: [dlpack-tensor] one of ours: its context is what it is a part of.
        delete(unsafe { (*tensor).context }.cast::<Exported<ManagedVersioned>>());
    }
}

unsafe extern "C" fn delete_unversioned(tensor: *mut Managed) {
    if !tensor.is_null() {
        // SAFETY: [dlpack-tensor] as above.
        delete(unsafe { (*tensor).context }.cast::<Exported<Managed>>());
    }
}

/// The end of a capsule: what nobody took is deleted. A used one has another name.
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: [capsule] the interpreter's call, with the capsule; a valid one has a tensor of ours.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn destroy_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: [capsule] as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) != 0 {
            delete_unversioned(ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast());
        }
    }
}

/// `Buffer.__dlpack__()`.
pub fn buffer<'py>(
    buffer: &Bound<'py, Buffer>,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<&Bound<'py, PyAny>>,
    dl_device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = buffer.py();
    let memory = buffer.get();
    memory.not_null()?;
    let (asked, device) = asked(memory.dlpack_device(py)?.exported(), stream, max_version, dl_device, copy)?;
    if let Some(consumer) = &asked.consumer {
        memory.ready_on(py, consumer)?;
    }
    memory.enter_until_left()?;
    let (pointer, bytes) = memory.range();
    let offer = Offer {
        pointer,
        device,
        dtype: scalar(INT, 8),
        shape: Dims::from_elem(i64::try_from(bytes).unwrap_or(i64::MAX), 1),
        strides: Dims::from_elem(1, 1),
        readonly: false,
        kept: Kept::Buffer(buffer.clone().unbind()),
    };
    offer.into_capsule(py, &asked)
}

/// The keyword arguments of `__dlpack__`.
pub struct Asked {
    versioned: bool,
    /// The stream that the consumer will use the memory on; `None` if the producer is to leave the order alone.
    pub consumer: Option<cuirass::Stream>,
}

/// Reads the keyword arguments of `__dlpack__`, for memory of a device.
pub fn asked(
    device: Device,
    stream: Option<&Bound<'_, PyAny>>,
    max_version: Option<&Bound<'_, PyAny>>,
    dl_device: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<(Asked, Device)> {
    if copy == Some(true) {
        return Err(refused("copy=True: a copy is made by copy_to() of a buffer or a view, on a stream of yours"));
    }
    let versioned = match max_version {
        None => false,
        Some(version) => pair(version, "max_version")?.0 >= 1,
    };
    let device = match dl_device {
        None => device,
        Some(wanted) => {
            let (kind, id) = pair(wanted, "dl_device")?;
            let wanted = Device { kind, id };
            // The host can use page-locked memory as it is.
            let is_host = device.kind == CUDA_HOST && wanted == (Device { kind: CPU, id: 0 });
            if wanted != device && !is_host {
                return Err(refused(format!(
                    "dl_device=({kind}, {id}): this memory is on ({}, {}), and is not moved by DLPack; copy it",
                    device.kind, device.id
                )));
            }
            wanted
        }
    };
    Ok((Asked { versioned, consumer: consumer(device, stream)? }, device))
}

fn consumer(device: Device, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<cuirass::Stream>> {
    let number =
        match given {
            None => None,
            Some(given) => Some(number::read::<i64>(given.as_borrowed()).map_err(|refused| {
                refused.error_of("stream", "None or the number of a stream", &i64::MIN, &i64::MAX)
            })?),
        };
    match number {
        Some(-1) => Ok(None),
        Some(number) if number < -1 => Err(PyValueError::new_err(format!("stream={number} is no stream"))),
        _ if device.kind == CPU => Ok(None),
        Some(0) => Err(PyValueError::new_err(
            "stream=0 is ambiguous: 1 is the legacy default stream, 2 the per-thread default stream",
        )),
        Some(number) => Ok(Some(stream::borrowed(number.unsigned_abs()))),
        // Who takes host memory without a stream uses it on the host, which no stream waits for.
        None if device.kind == CUDA_HOST => Ok(None),
        None => Ok(Some(cuirass::Stream::legacy_default())),
    }
}

/// A pair of numbers.
pub fn pair(object: &Bound<'_, PyAny>, name: &str) -> PyResult<(i32, i32)> {
    let Ok(tuple) = object.cast::<PyTuple>() else {
        let kind = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{name} must be a tuple of two numbers, not {kind}")));
    };
    if tuple.len() != 2 {
        return Err(PyValueError::new_err(format!("{name} must be a tuple of two numbers, it has {}", tuple.len())));
    }
    let number = |item: Bound<'_, PyAny>| {
        number::read(item.as_borrowed()).map_err(|refused| match refused {
            Refused::Kind(kind) => {
                PyTypeError::new_err(format!("{name} must be a tuple of two numbers, not one with {kind}"))
            }
            refused => refused.error::<i32>(&format!("each number of {name}")),
        })
    };
    Ok((number(tuple.get_item(0)?)?, number(tuple.get_item(1)?)?))
}
