//! Taking what other libraries offer by DLPack: capsules, and tensors by the C interface.
#![allow(unsafe_code)]

use crate::number::kind_of;
use crate::view::dlpack::{
    self, CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DataType, Device, Managed, ManagedVersioned, READ_ONLY, Tensor,
    UNVERSIONED, USED_UNVERSIONED, USED_VERSIONED, VERSION, VERSIONED, refused,
};
use crate::view::dtype::Dtype;
use crate::view::parts::{Holds, Parts};
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
        let seen = unsafe { describe(tensor, flags)? };
        Ok(seen.into_parts(exporter, Holds::Tensor(self)))
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

/// What was read of a tensor, and checked. Its numbers are where the exporter has them.
pub struct Seen<'a> {
    pointer: u64,
    device: Device,
    shape: &'a [i64],
    /// Before version 1.2 none means that the array is in C order.
    strides: Option<&'a [i64]>,
    itemsize: usize,
    dtype: DataType,
    readonly: bool,
}

impl Seen<'_> {
    /// Whether a view of it has no further memory of its own.
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        self.shape.len() <= dlpack::FEW && self.strides.is_some()
    }

    /// The view of it, with what keeps its memory.
    #[inline(always)]
    pub fn into_parts(self, exporter: Option<Py<PyAny>>, holds: Holds) -> Parts {
        Parts {
            pointer: self.pointer,
            device: self.device,
            ask_driver: false,
            shape: dlpack::dims(self.shape),
            strides: self.strides.map_or_else(|| dlpack::compact_strides(self.shape), dlpack::dims),
            has_strides: self.strides.is_some(),
            itemsize: self.itemsize,
            dtype: Dtype::Code(self.dtype),
            readonly: self.readonly,
            exporter,
            holds,
        }
    }
}

/// What a tensor says of itself, checked as far as it can be.
///
/// # Safety
/// The tensor's shape and strides, where they are not null, have as many numbers as it has dimensions, for as long as
/// what is returned is used.
#[inline(always)]
pub unsafe fn describe<'a>(tensor: &Tensor, flags: u64) -> PyResult<Seen<'a>> {
    if !matches!(tensor.device.kind, CPU | CUDA | CUDA_HOST | CUDA_MANAGED) {
        let message = format!("memory of DLPack's device type {} is neither the host's nor CUDA's", tensor.device.kind);
        return Err(refused(message));
    }
    if tensor.device.id < 0 {
        return Err(refused(format!("the DLPack tensor is on device {}", tensor.device.id)));
    }
    let itemsize = dlpack::itemsize(tensor.dtype, flags)?;
    let count = count_axes(tensor.ndim)?;
    // SAFETY: [dlpack-tensor] the caller's promise.
    let (shape, strides) = unsafe { (numbers(tensor.shape, count), numbers(tensor.strides, count)) };
    let shape = match shape {
        Some(shape) => shape,
        None if count == 0 => &[],
        None => return Err(refused("the DLPack tensor has dimensions and no shape")),
    };
    let volume = dlpack::volume(shape, itemsize)
        .ok_or_else(|| refused("the DLPack tensor's shape is negative, or does not fit in the address space"))?;
    if volume > 0 && tensor.data.is_null() {
        return Err(refused("the DLPack tensor has elements and no memory: its data is null"));
    }
    let address = tensor.data.addr() as u64;
    let pointer = address.checked_add(tensor.byte_offset).ok_or_else(out_of_range)?;
    let span = match strides {
        Some(strides) => dlpack::span(shape, strides, itemsize),
        // In C order they lie behind each other.
        None => dlpack::span(&[volume.cast_signed()], &[1], itemsize),
    };
    let (low, high) = span.ok_or_else(out_of_range)?;
    if pointer.checked_add_signed(low).is_none() || pointer.checked_add_signed(high).is_none() {
        return Err(out_of_range());
    }
    Ok(Seen {
        pointer,
        device: tensor.device,
        shape,
        strides,
        itemsize,
        dtype: tensor.dtype,
        readonly: flags & READ_ONLY != 0,
    })
}

#[cold]
fn out_of_range() -> PyErr {
    refused("the DLPack tensor's elements do not all fit in the address space")
}

/// How many dimensions there are.
#[inline]
fn count_axes(ndim: i32) -> PyResult<usize> {
    const MOST: usize = 1 << 10;
    let count = usize::try_from(ndim).ok().filter(|count| *count <= MOST);
    count.ok_or_else(|| refused(format!("the DLPack tensor has {ndim} dimensions")))
}

/// The numbers of a shape or of strides; `None` where there are none.
///
/// # Safety
/// As of [`describe`].
#[inline]
unsafe fn numbers<'a>(at: *const i64, count: usize) -> Option<&'a [i64]> {
    match count {
        _ if at.is_null() => None,
        // Where there are none, nothing is said of where they are.
        0 => Some(&[]),
        // SAFETY: [dlpack-tensor] the caller's promise.
        _ => Some(unsafe { slice::from_raw_parts(at, count) }),
    }
}
