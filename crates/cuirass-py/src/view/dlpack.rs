//! The C types of DLPack 1.3, as its header has them, and what is read from a tensor.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::ffi::{CStr, c_char, c_int, c_void};

/// The version that is spoken here.
pub const VERSION: Version = Version { major: 1, minor: 3 };

pub const VERSIONED: &CStr = c"dltensor_versioned";
pub const UNVERSIONED: &CStr = c"dltensor";
pub const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
pub const USED_UNVERSIONED: &CStr = c"used_dltensor";
/// The name of the capsule with an [`ExchangeApi`].
pub const EXCHANGE_API: &CStr = c"dlpack_exchange_api";

pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
pub const CUDA_HOST: i32 = 3;
pub const CUDA_MANAGED: i32 = 13;

pub const READ_ONLY: u64 = 1;
pub const SUBBYTE_PADDED: u64 = 4;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    pub kind: i32,
    pub id: i32,
}

impl Device {
    /// As it is exported: only memory of one device has an ordinal.
    pub fn exported(self) -> Device {
        if self.kind == CUDA { self } else { Device { id: 0, ..self } }
    }
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub struct Managed {
    pub tensor: Tensor,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
pub struct ManagedVersioned {
    pub version: Version,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    pub flags: u64,
    pub tensor: Tensor,
}

pub type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// Says what the tensor of an object is, which is not taken.
pub type Borrow = unsafe extern "C" fn(*mut PyObject, *mut Tensor) -> c_int;

/// `DLPackExchangeAPI`: what a type offers to C for its objects. "No sync": whoever calls orders the streams.
#[repr(C)]
pub struct ExchangeApi {
    pub version: Version,
    pub previous: *const ExchangeApi,
    pub allocate:
        Option<unsafe extern "C" fn(*mut Tensor, *mut *mut ManagedVersioned, *mut c_void, Option<SetError>) -> c_int>,
    pub export: Option<unsafe extern "C" fn(*mut PyObject, *mut *mut ManagedVersioned) -> c_int>,
    pub import: Option<unsafe extern "C" fn(*mut ManagedVersioned, *mut *mut PyObject) -> c_int>,
    pub borrow: Option<Borrow>,
    pub current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

/// A shape, or strides; without an allocation up to [`FEW`] dimensions.
pub type Dims = SmallVec<[i64; FEW]>;

/// The dimensions that need none.
pub const FEW: usize = 4;

/// The numbers as a shape, or as strides.
#[inline(always)]
pub fn dims(numbers: &[i64]) -> Dims {
    dims_by(numbers.len(), |axis| numbers.get(axis).copied()).unwrap_or_default()
}

/// A shape, or strides, of which each number is made; `None` where one is.
#[inline(always)]
pub fn dims_by(count: usize, number: impl Fn(usize) -> Option<i64>) -> Option<Dims> {
    if count > FEW {
        return (0..count).map(number).collect();
    }
    // One by one: a loop is a call of memcpy() at best, which costs more than these.
    let at = |axis: usize| if axis < count { number(axis) } else { Some(0) };
    Some(Dims::from_buf_and_len([at(0)?, at(1)?, at(2)?, at(3)?], count))
}

/// A stride of so many bytes in elements; `None` where it is no whole number of them.
#[inline]
pub fn in_elements(bytes: i64, itemsize: i64) -> Option<i64> {
    // Nearly every size is a power of two, and a division takes longer than all that is done for an array beside it.
    if itemsize & (itemsize - 1) == 0 {
        return (bytes & (itemsize - 1) == 0).then(|| bytes >> itemsize.trailing_zeros());
    }
    (bytes % itemsize == 0).then(|| bytes / itemsize)
}

/// The strides, in elements, of an array in C order.
pub fn compact_strides(shape: &[i64]) -> Dims {
    let mut strides = Dims::from_elem(1, shape.len());
    let mut step = 1_i64;
    for (stride, extent) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.wrapping_mul((*extent).max(1));
    }
    strides
}

/// How many elements a shape has; `None` where it has no number, or where they do not fit in the address space.
#[inline(always)]
pub fn volume(shape: &[i64], itemsize: usize) -> Option<u64> {
    let mut elements = 1_u64;
    let mut is_empty = false;
    for extent in shape {
        match u64::try_from(*extent).ok()? {
            0 => is_empty = true,
            extent => elements = elements.checked_mul(extent)?,
        }
    }
    if is_empty {
        return Some(0);
    }
    elements.checked_mul(itemsize as u64).filter(|bytes| i64::try_from(*bytes).is_ok())?;
    Some(elements)
}

/// The first and the last byte past all elements, relative to the address of the first element; `None` where that is out
/// of range. Without elements both are 0.
#[inline(always)]
pub fn span(shape: &[i64], strides: &[i64], itemsize: usize) -> Option<(i64, i64)> {
    let itemsize = i64::try_from(itemsize).ok()?;
    let (mut low, mut high) = (0_i64, 0_i64);
    for (extent, stride) in shape.iter().zip(strides) {
        if *extent == 0 {
            return Some((0, 0));
        }
        let reach = extent.checked_sub(1)?.checked_mul(*stride)?;
        if reach < 0 {
            low = low.checked_add(reach)?;
        } else {
            high = high.checked_add(reach)?;
        }
    }
    Some((low.checked_mul(itemsize)?, high.checked_add(1)?.checked_mul(itemsize)?))
}

/// Refuses something that another library offers.
#[cold]
pub fn refused(message: impl Into<String>) -> PyErr {
    PyBufferError::new_err(message.into())
}

/// The bytes of an element.
#[inline]
pub fn itemsize(dtype: DataType, flags: u64) -> PyResult<usize> {
    let bits = usize::from(dtype.bits) * usize::from(dtype.lanes);
    if bits == 0 {
        return Err(refused("the DLPack tensor's type has no bits"));
    }
    if flags & SUBBYTE_PADDED != 0 && dtype.bits < 8 {
        return Ok(usize::from(dtype.lanes));
    }
    if !bits.is_multiple_of(8) {
        let message = format!("elements of {bits} bits are packed into bytes here; only whole bytes have an address");
        return Err(refused(message));
    }
    Ok(bits / 8)
}
