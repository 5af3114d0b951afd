//! Taking what other libraries offer by DLPack: capsules, and tensors by the C interface.
#![allow(unsafe_code)]

use crate::number::kind_of;
use crate::view::dlpack::{
    self, CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Dims, Managed, ManagedVersioned, READ_ONLY, Tensor, UNVERSIONED,
    USED_UNVERSIONED, USED_VERSIONED, VERSION, VERSIONED, refused,
};
use crate::view::dtype::Dtype;
use crate::view::parts::Parts;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::slice;

/// A tensor that was taken: its deleter is called once, by the drop.
pub enum Taken {
    Versioned(NonNull<ManagedVersioned>),
    Unversioned(NonNull<Managed>),
}

// SAFETY: [dlpack-tensor] DLPack allows a tensor to be used and deleted on any thread.
unsafe impl Send for Taken {}
// SAFETY: [dlpack-tensor] shared, it is only kept.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: [dlpack-tensor] taken and not deleted yet; the deleter deletes the tensor too.
        unsafe {
            match self {
                Taken::Versioned(tensor) => {
                    if let Some(deleter) = tensor.as_ref().deleter {
                        deleter(tensor.as_ptr());
                    }
                }
                Taken::Unversioned(tensor) => {
                    if let Some(deleter) = tensor.as_ref().deleter {
                        deleter(tensor.as_ptr());
                    }
                }
            }
        }
    }
}

impl Taken {
    fn tensor(&self) -> (&Tensor, u64) {
        // SAFETY: [dlpack-tensor] it lives until the drop.
        unsafe {
            match self {
                Taken::Versioned(tensor) => (&tensor.as_ref().tensor, tensor.as_ref().flags),
                Taken::Unversioned(tensor) => (&tensor.as_ref().tensor, 0),
            }
        }
    }

    /// The view of it, which keeps it.
    pub fn into_parts(self, exporter: Option<Py<PyAny>>) -> PyResult<Parts> {
        let (tensor, flags) = self.tensor();
        // SAFETY: [dlpack-tensor] its shape and strides live as long as it.
        let parts = unsafe { describe(tensor, flags)? };
        Ok(Parts { exporter, tensor: Some(self), ..parts })
    }
}

/// Takes the tensor out of a capsule, which is then a used one. Where it is refused the capsule still has it.
pub fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Taken> {
    if is_capsule(capsule, VERSIONED) {
        let tensor = pointer::<ManagedVersioned>(capsule, VERSIONED)?;
        // SAFETY: [dlpack-tensor] a capsule of this name has one, which starts with its version in all versions.
        let version = unsafe { tensor.as_ref().version };
        if version.major != VERSION.major {
            let message = format!(
                "the DLPack tensor is of version {}.{}; only version {} is known",
                version.major, version.minor, VERSION.major
            );
            return Err(refused(message));
        }
        rename(capsule, USED_VERSIONED)?;
        return Ok(Taken::Versioned(tensor));
    }
    if is_capsule(capsule, UNVERSIONED) {
        let tensor = pointer::<Managed>(capsule, UNVERSIONED)?;
        rename(capsule, USED_UNVERSIONED)?;
        return Ok(Taken::Unversioned(tensor));
    }
    Err(not_a_tensor(capsule))
}

#[cold]
fn not_a_tensor(object: &Bound<'_, PyAny>) -> PyErr {
    if is_capsule(object, USED_VERSIONED) || is_capsule(object, USED_UNVERSIONED) {
        return refused("the DLPack capsule was used before: each is taken once");
    }
    let found = kind_of(object);
    refused(format!("__dlpack__() must return a capsule with a DLPack tensor, it returned an object of type {found}"))
}

fn is_capsule(object: &Bound<'_, PyAny>, name: &CStr) -> bool {
    // SAFETY: [capsule] attached; any object may be asked, and the name ends in NUL.
    unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), name.as_ptr()) != 0 }
}

fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<NonNull<T>> {
    // SAFETY: [capsule] as above.
    let found = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    NonNull::new(found.cast()).ok_or_else(|| PyErr::fetch(capsule.py()))
}

fn rename(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: [capsule] a capsule; the name lives for good.
    match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(capsule.py())),
    }
}

/// What a tensor says of itself, checked as far as it can be.
///
/// # Safety
/// The tensor's shape and strides, where they are not null, have as many numbers as it has dimensions.
pub unsafe fn describe(tensor: &Tensor, flags: u64) -> PyResult<Parts> {
    if !matches!(tensor.device.kind, CPU | CUDA | CUDA_HOST | CUDA_MANAGED) {
        let message = format!("memory of DLPack's device type {} is neither the host's nor CUDA's", tensor.device.kind);
        return Err(refused(message));
    }
    if tensor.device.id < 0 {
        return Err(refused(format!("the DLPack tensor is on device {}", tensor.device.id)));
    }
    let itemsize = dlpack::itemsize(tensor.dtype, flags)?;
    // SAFETY: [dlpack-tensor] the caller's promise.
    let (shape, strides) = unsafe { (numbers(tensor.shape, tensor.ndim)?, numbers(tensor.strides, tensor.ndim)?) };
    let Some(shape) = shape else { return Err(refused("the DLPack tensor has dimensions and no shape")) };
    let volume = dlpack::volume(&shape, itemsize)
        .ok_or_else(|| refused("the DLPack tensor's shape is negative, or does not fit in the address space"))?;
    // Before version 1.2 none means that the array is in C order.
    let has_strides = strides.is_some() && !tensor.strides.is_null();
    let strides = strides.unwrap_or_else(|| dlpack::compact_strides(&shape));
    if volume > 0 && tensor.data.is_null() {
        return Err(refused("the DLPack tensor has elements and no memory: its data is null"));
    }
    let address = tensor.data.addr() as u64;
    let pointer = address.checked_add(tensor.byte_offset).ok_or_else(out_of_range)?;
    let (low, high) = dlpack::span(&shape, &strides, itemsize).ok_or_else(out_of_range)?;
    if pointer.checked_add_signed(low).is_none() || pointer.checked_add_signed(high).is_none() {
        return Err(out_of_range());
    }
    Ok(Parts {
        pointer,
        device: tensor.device,
        ask_driver: false,
        shape,
        strides,
        has_strides,
        itemsize,
        dtype: Dtype::Code(tensor.dtype),
        readonly: flags & READ_ONLY != 0,
        exporter: None,
        tensor: None,
        buffer: None,
        parent: None,
    })
}

#[cold]
fn out_of_range() -> PyErr {
    refused("the DLPack tensor's elements do not all fit in the address space")
}

/// The numbers of a shape or of strides; `None` where there are none and should be.
///
/// # Safety
/// As of [`describe`].
unsafe fn numbers(at: *const i64, ndim: i32) -> PyResult<Option<Dims>> {
    const MOST: usize = 1 << 10;
    let count = usize::try_from(ndim).ok().filter(|count| *count <= MOST);
    let Some(count) = count else { return Err(refused(format!("the DLPack tensor has {ndim} dimensions"))) };
    if count == 0 {
        return Ok(Some(Dims::new()));
    }
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: [dlpack-tensor] the caller's promise.
    Ok(Some(Dims::from_slice(unsafe { slice::from_raw_parts(at, count) })))
}
