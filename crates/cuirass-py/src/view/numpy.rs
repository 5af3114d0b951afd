//! numpy's arrays, read where they are. Where an array has what, and its type, is public (`ndarraytypes.h`) and is part
//! of numpy's binary interface; nothing is read that way before it has been held against what Python says.
#![allow(unsafe_code)]

use crate::view::dlpack::{self, CPU, DataType, Device};
use crate::view::dtype::{BOOL, COMPLEX, Dtype, FLOAT, INT, UINT, code_of_object, scalar};
use crate::view::parts::{Holds, Parts};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyType};
use std::ffi::{c_int, c_long};
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `PyArrayObject_fields`, as far as it is read.
#[repr(C)]
struct Array {
    head: ffi::PyObject,
    data: *mut u8,
    ndim: c_int,
    shape: *mut isize,
    strides: *mut isize,
    base: *mut ffi::PyObject,
    dtype: *mut Descriptor,
    flags: c_int,
}

/// The part of `PyArray_Descr` that numpy 1 and 2 share.
#[repr(C)]
struct Descriptor {
    head: ffi::PyObject,
    scalar: *mut ffi::PyTypeObject,
    kind: u8,
    letter: u8,
    byteorder: u8,
    flags: u8,
    number: c_int,
}

const C_CONTIGUOUS: c_int = 0x1;
const WRITEABLE: c_int = 0x400;
/// The first type number that other packages get.
const FIRST_REGISTERED: c_int = 256;

/// numpy's class of arrays, once what its arrays have has been checked; it is held for good.
static CLASS: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

/// Whether a class is numpy's own class of arrays, not a subclass, and its arrays can be read.
#[inline]
pub fn is_array(class: *mut ffi::PyTypeObject) -> bool {
    CLASS.load(Ordering::Acquire) == class
}

/// Checks a class that calls itself numpy's.
#[cold]
pub fn learn(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    if class.is(&numpy.getattr("ndarray")?) && reads_as_python(&numpy).unwrap_or(false) {
        CLASS.store(class.clone().into_ptr().cast(), Ordering::Release);
    }
    Ok(())
}

/// Whether what is read is what Python says, of arrays that differ in all of it.
fn reads_as_python(numpy: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = numpy.py();
    let make = |shape: (usize, usize, usize), kind: &str| numpy.getattr("zeros")?.call1((shape, kind));
    let whole = make((3, 4, 10), "i2")?;
    let part = whole.get_item((
        PySlice::new(py, isize::MAX, isize::MIN, -1),
        PySlice::new(py, 1, isize::MAX, 1),
        PySlice::new(py, 0, isize::MAX, 3),
    ))?;
    let frozen = make((2, 1, 5), "c16")?;
    frozen.getattr("flags")?.setattr("writeable", false)?;
    for array in [whole, part, frozen] {
        // SAFETY: [numpy-array] an array of numpy, at least as large as its public header says; checked by its size.
        let read = unsafe { &*array.as_ptr().cast::<Array>() };
        let interface = array.getattr("__array_interface__")?;
        let (address, is_frozen): (usize, bool) = interface.get_item("data")?.extract()?;
        let dtype = array.getattr("dtype")?;
        let has_room = array.get_type().getattr("__basicsize__")?.extract::<usize>()? >= size_of::<Array>()
            && dtype.get_type().getattr("__basicsize__")?.extract::<usize>()? >= size_of::<Descriptor>();
        if !has_room || read.ndim != 3 || read.data.addr() != address || !std::ptr::addr_eq(read.dtype, dtype.as_ptr())
        {
            return Ok(false);
        }
        // SAFETY: [numpy-array] three dimensions, and the array's own type, which were just checked.
        let (shape, strides, read_dtype) =
            unsafe { (slice::from_raw_parts(read.shape, 3), slice::from_raw_parts(read.strides, 3), &*read.dtype) };
        let kind: String = dtype.getattr("kind")?.extract()?;
        let is_contiguous: bool = array.getattr("flags")?.getattr("c_contiguous")?.extract()?;
        if shape != array.getattr("shape")?.extract::<[isize; 3]>()?
            || strides != array.getattr("strides")?.extract::<[isize; 3]>()?
            || kind.as_bytes() != [read_dtype.kind]
            || read_dtype.byteorder != b'='
            || read_dtype.number != dtype.getattr("num")?.extract::<c_int>()?
            || (read.flags & WRITEABLE == 0) != is_frozen
            || (read.flags & C_CONTIGUOUS != 0) != is_contiguous
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// DLPack's code of numpy's type numbers.
#[inline]
fn code(number: c_int) -> Option<DataType> {
    const LONG: u8 = 8 * size_of::<c_long>() as u8;
    Some(match number {
        0 => scalar(BOOL, 8),
        1 => scalar(INT, 8),
        2 => scalar(UINT, 8),
        3 => scalar(INT, 16),
        4 => scalar(UINT, 16),
        5 => scalar(INT, 32),
        6 => scalar(UINT, 32),
        7 => scalar(INT, LONG),
        8 => scalar(UINT, LONG),
        9 => scalar(INT, 64),
        10 => scalar(UINT, 64),
        11 => scalar(FLOAT, 32),
        12 => scalar(FLOAT, 64),
        14 => scalar(COMPLEX, 64),
        15 => scalar(COMPLEX, 128),
        23 => scalar(FLOAT, 16),
        _ => return None,
    })
}

/// Which protocol a view is made by, where they differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As {
    DlPack,
    ArrayInterface,
}

/// What was read of an array. Its numbers are where numpy has them.
pub struct Seen<'a> {
    array: &'a Array,
    protocol: As,
    code: Option<DataType>,
    itemsize: i64,
    shape: &'a [isize],
    /// The strides, in bytes.
    steps: &'a [isize],
}

impl Seen<'_> {
    /// Whether a view of it has no further memory of its own.
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        self.shape.len() <= dlpack::FEW
    }

    /// The view of it, which keeps the array; `None` where a stride is no whole number of elements.
    #[inline(always)]
    pub fn into_parts(self, object: &Bound<'_, PyAny>) -> Option<Parts> {
        let count = self.shape.len();
        let is_implied = self.protocol == As::ArrayInterface && self.array.flags & C_CONTIGUOUS != 0;
        let shape = dlpack::dims_by(count, |axis| self.shape.get(axis).map(|extent| *extent as i64))?;
        let mut strides =
            dlpack::dims_by(count, |axis| dlpack::in_elements(*self.steps.get(axis)? as i64, self.itemsize))?;
        if is_implied {
            strides = dlpack::compact_strides(&shape);
        }
        // SAFETY: [numpy-array] an object of Python's, which the array holds.
        let dtype = unsafe { Bound::from_borrowed_ptr(object.py(), self.array.dtype.cast()) };
        Some(Parts {
            pointer: self.array.data.addr() as u64,
            device: Device { kind: CPU, id: 0 },
            ask_driver: self.protocol == As::ArrayInterface,
            shape,
            strides,
            has_strides: count > 0 && !is_implied,
            itemsize: self.itemsize.unsigned_abs() as usize,
            dtype: Dtype::Object(dtype.unbind(), self.code),
            readonly: self.array.flags & WRITEABLE == 0,
            exporter: Some(object.clone().unbind()),
            holds: Holds::Nothing,
        })
    }
}

/// The view of an array of [`is_array`]; `None` where only the protocol can say what it is, or what is wrong.
pub fn read(object: &Bound<'_, PyAny>, protocol: As) -> PyResult<Option<Parts>> {
    Ok(see(object, protocol)?.and_then(|seen| seen.into_parts(object)))
}

/// The same, before it is made. The numbers are there until the array is changed.
#[inline(always)]
pub fn see<'a>(object: &'a Bound<'_, PyAny>, protocol: As) -> PyResult<Option<Seen<'a>>> {
    // SAFETY: [numpy-array] an instance of numpy's own class of arrays, whose fields were checked.
    let (array, dtype) = unsafe {
        let array = &*object.as_ptr().cast::<Array>();
        (array, &*array.dtype)
    };
    if !matches!(dtype.byteorder, b'=' | b'|') {
        return Ok(None);
    }
    let (code, itemsize) = match code(dtype.number) {
        Some(code) => (Some(code), i64::from(code.bits / 8)),
        None if dtype.number >= FIRST_REGISTERED => match registered(object, protocol)? {
            Some((code, itemsize)) => (code, itemsize),
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    if itemsize < 1 {
        return Ok(None);
    }
    let count = usize::try_from(array.ndim)
        .map_err(|_negative| PyRuntimeError::new_err("numpy's array has a negative number of dimensions"))?;
    let (shape, steps): (&[isize], &[isize]) = match count {
        0 => (&[], &[]),
        // SAFETY: [numpy-array] as many numbers as it has dimensions.
        _ => unsafe { (slice::from_raw_parts(array.shape, count), slice::from_raw_parts(array.strides, count)) },
    };
    Ok(Some(Seen { array, protocol, code, itemsize, shape, steps }))
}

/// A type that another package has registered, which numpy's protocols cannot name, and the size of an element.
#[cold]
#[inline(never)]
fn registered(object: &Bound<'_, PyAny>, protocol: As) -> PyResult<Option<(Option<DataType>, i64)>> {
    let dtype = object.getattr(intern!(object.py(), "dtype"))?;
    let code = code_of_object(&dtype)?;
    if code.is_none() && protocol == As::DlPack {
        return Ok(None);
    }
    Ok(Some((code, dtype.getattr(intern!(object.py(), "itemsize"))?.extract()?)))
}

/// What is said of memory that numpy cannot have.
pub const NO_HOST: &str = "the host cannot use this memory: copy it to host memory first";

/// What `__array__` makes of an array, or of bytes.
pub fn convert<'py>(
    array: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let keywords = PyDict::new(py);
    if let Some(dtype) = dtype {
        keywords.set_item("dtype", dtype)?;
    }
    if let Some(copy) = copy {
        keywords.set_item("copy", copy)?;
    }
    // numpy 1 takes copy=False for "if need be", and has none for asarray().
    let function = if copy.is_some() { "array" } else { "asarray" };
    py.import("numpy")?.call_method(function, (array,), Some(&keywords))
}
