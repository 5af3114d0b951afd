//! Python objects as kernel arguments, bit for bit.
#![allow(unsafe_code)]

mod numpy;

use crate::graph::condition::GraphCondition;
use crate::memory::Buffer;
use crate::raw::exact;
use crate::room;
use crate::view::{StridedMemoryView, with_bytes};
use cuirass_fault::lock::Mutex;
use pyo3::Borrowed;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyComplexMethods, PyFloat, PyInt, PyString, PyType, PyTypeMethods};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The bytes of an argument that is a number or an address.
#[repr(align(16))]
pub struct Word([u8; 16]);

impl Word {
    pub const ZERO: Word = Word([0; 16]);

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> usize {
        match self.0.first_chunk_mut() {
            Some(room) => {
                *room = bytes;
                N
            }
            None => 0,
        }
    }

    /// The first so many of them.
    #[inline]
    pub fn bytes(&self, length: usize) -> &[u8] {
        self.0.get(..length).unwrap_or(&[])
    }

    /// Takes the bytes that an object is as a parameter of `size` bytes, and returns how many these are: 0 for one that
    /// is not of the common kinds, or does not fit, which [`value_of`] takes, or refuses; and for a buffer that is not
    /// `used`.
    #[inline]
    pub fn take<'a>(
        &mut self,
        object: Borrowed<'a, '_, PyAny>,
        size: usize,
        used: impl FnOnce(&'a Buffer) -> bool,
    ) -> usize {
        if let Some(buffer) = exact::<Buffer>(object) {
            let buffer = buffer.get();
            return match buffer.address() {
                Ok(address) if used(buffer) => self.put(address.to_ne_bytes()),
                _ => 0,
            };
        }
        self.take_number(object, size)
    }

    /// The same, of what is no buffer.
    fn take_number(&mut self, object: Borrowed<'_, '_, PyAny>, size: usize) -> usize {
        let class = object.get_type_ptr();
        if object.is_exact_instance_of::<PyInt>() {
            return match object.extract::<i64>() {
                Ok(value) if fits(value, size) => {
                    self.put(value.to_le_bytes());
                    size
                }
                _ => 0,
            };
        }
        if object.is_exact_instance_of::<PyFloat>() {
            return object.extract().map_or(0, |value| match float(value, Some(size)) {
                Value::Small(bytes, length) => {
                    self.0 = bytes;
                    length
                }
                Value::Large(_) => 0,
            });
        }
        match plain_size(class) {
            Some(length) => {
                let length = length.min(self.0.len());
                // SAFETY: [plain-scalar] as in `plain`.
                unsafe {
                    let value = object.as_ptr().cast::<u8>().add(size_of::<ffi::PyObject>());
                    std::ptr::copy_nonoverlapping(value, self.0.as_mut_ptr(), length);
                }
                length
            }
            None => 0,
        }
    }
}

/// Whether a number fits in a parameter of a number's size, signed or not.
#[inline]
fn fits(value: i64, size: usize) -> bool {
    match size {
        8 => true,
        1 | 2 | 4 => {
            let bits = 8 * size as u32;
            (-(1_i64 << (bits - 1))..1_i64 << bits).contains(&value)
        }
        _ => false,
    }
}

/// An argument's bytes, kept until the launch.
pub enum Value {
    /// What a number or an address takes.
    Small([u8; 16], usize),
    /// A structure.
    Large(Vec<u8>),
}

impl Value {
    #[inline]
    fn small<const N: usize>(bytes: [u8; N]) -> Value {
        let mut all = [0; 16];
        for (to, from) in all.iter_mut().zip(bytes) {
            *to = from;
        }
        Value::Small(all, N)
    }

    fn of_slice(py: Python<'_>, bytes: &[u8]) -> PyResult<Value> {
        let mut all = [0; 16];
        match all.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Ok(Value::Small(all, bytes.len()))
            }
            None => room::bytes(py, bytes).map(Value::Large),
        }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Small(bytes, length) => bytes.get(..*length).unwrap_or(bytes),
            Value::Large(bytes) => bytes,
        }
    }
}

/// Which parameter an argument is for.
#[derive(Clone, Copy)]
pub struct Parameter<'a> {
    pub kernel: &'a cuirass::Kernel,
    pub index: usize,
    /// Its size in bytes, where the driver could tell.
    pub size: Option<usize>,
}

/// The bytes that an object is as a parameter.
#[inline]
pub fn value_of(object: &Bound<'_, PyAny>, parameter: Parameter<'_>) -> PyResult<Value> {
    if let Ok(buffer) = object.cast_exact::<Buffer>() {
        return Ok(Value::small(buffer.get().address()?.to_ne_bytes()));
    }
    if object.is_exact_instance_of::<PyInt>() {
        return integer(object, parameter);
    }
    if object.is_exact_instance_of::<PyFloat>() {
        return Ok(float(object.extract()?, parameter.size));
    }
    if let Some(size) = plain_size(object.get_type_ptr()) {
        return Ok(plain(object, size));
    }
    other(object, parameter)
}

/// An int, in the parameter's own size.
#[inline]
fn integer(object: &Bound<'_, PyAny>, parameter: Parameter<'_>) -> PyResult<Value> {
    let size = parameter.size.filter(|size| matches!(size, 1 | 2 | 4)).unwrap_or(8);
    let Ok(value) = object.extract::<i64>() else { return large_integer(object, size, parameter) };
    let bytes = value.to_le_bytes();
    if !fits(value, size) {
        return Err(too_large(object, size, parameter));
    }
    let mut all = [0; 16];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = from;
    }
    Ok(Value::Small(all, size))
}

#[cold]
fn large_integer(object: &Bound<'_, PyAny>, size: usize, parameter: Parameter<'_>) -> PyResult<Value> {
    match object.extract::<u64>() {
        Ok(value) if size == 8 => Ok(Value::small(value.to_ne_bytes())),
        _ => Err(too_large(object, size, parameter)),
    }
}

#[cold]
fn too_large(object: &Bound<'_, PyAny>, size: usize, parameter: Parameter<'_>) -> PyErr {
    let name = parameter.kernel.name().unwrap_or_else(|_unknown| format!("{:p}", parameter.kernel.as_raw()));
    let value = crate::number::shown(object);
    PyOverflowError::new_err(format!(
        "kernel {name}: parameter {} has {size} bytes, {value} does not fit",
        parameter.index
    ))
}

/// A float: a double, or where the parameter has 4 bytes a float.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "rounding to the parameter's type is what is wanted")]
fn float(value: f64, size: Option<usize>) -> Value {
    if size == Some(4) { Value::small((value as f32).to_ne_bytes()) } else { Value::small(value.to_ne_bytes()) }
}

/// NumPy's plain scalar types, and how many bytes a value has. Where a value is, is public (`arrayscalars.h`): right
/// behind the object's header. A type gets here only after that has been held against its `tobytes()`.
struct Plain {
    class: AtomicPtr<ffi::PyTypeObject>,
    bytes: AtomicUsize,
}

/// More than there are such types. Filled from the front, and never emptied: a type in it is held for good.
static PLAIN: [Plain; 32] =
    [const { Plain { class: AtomicPtr::new(std::ptr::null_mut()), bytes: AtomicUsize::new(0) } }; 32];
/// Held by who adds to it.
static ADDING: Mutex<()> = Mutex::new(());

#[inline]
fn plain_size(class: *mut ffi::PyTypeObject) -> Option<usize> {
    for plain in &PLAIN {
        let known = plain.class.load(Ordering::Acquire);
        if known == class {
            return Some(plain.bytes.load(Ordering::Relaxed));
        }
        if known.is_null() {
            return None;
        }
    }
    None
}

/// The bytes of a value behind the object's header.
#[inline]
fn plain(object: &Bound<'_, PyAny>, size: usize) -> Value {
    let mut all = [0; 16];
    let size = size.min(all.len());
    // SAFETY: [plain-scalar] an instance of a class whose instances are at least `size` bytes larger than the header.
    unsafe {
        let value = object.as_ptr().cast::<u8>().add(size_of::<ffi::PyObject>());
        std::ptr::copy_nonoverlapping(value, all.as_mut_ptr(), size);
    }
    Value::Small(all, size)
}

#[cold]
#[inline(never)]
fn other(object: &Bound<'_, PyAny>, parameter: Parameter<'_>) -> PyResult<Value> {
    let py = object.py();
    if object.is_instance_of::<PyBool>() {
        return Ok(Value::small([u8::from(object.is_truthy()?)]));
    }
    let class = object.get_type();
    if let Some(generic) = loaded(py, "numpy", "generic")?
        && object.is_instance(&generic)?
    {
        let dtype = object.getattr("dtype")?;
        let value = numpy::bytes(object, &dtype, parameter.index)?;
        remember_plain(object, &class, &dtype, &value)?;
        return Ok(value);
    }
    if let Some(base) = ctypes_base(py)?
        && object.is_instance(&base)?
    {
        return view(object);
    }
    if object.is_instance_of::<PyInt>() {
        return integer(object, parameter);
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(float(object.extract()?, parameter.size));
    }
    if let Ok(number) = object.cast::<PyComplex>() {
        return Ok(complex(number.real(), number.imag(), parameter));
    }
    if object.is_none() {
        return Ok(Value::small(0_u64.to_ne_bytes()));
    }
    if let Ok(buffer) = object.cast::<Buffer>() {
        return Ok(Value::small(buffer.get().address()?.to_ne_bytes()));
    }
    let module: String = class.getattr("__module__")?.extract().unwrap_or_default();
    if module.starts_with("cuda.bindings") {
        return Ok(Value::small(crate::handle::take(object, "the argument")?.to_ne_bytes()));
    }
    if !is_another_of_ours(&class)?
        && let Some(handle) = object.getattr_opt("handle")?
    {
        return Ok(Value::small(crate::handle::take(&handle, "the argument's handle")?.to_ne_bytes()));
    }
    let advice = if object.is_instance_of::<StridedMemoryView>() {
        "; pass view.ptr, and keep the view until the kernel is done"
    } else if object.hasattr("__array_interface__")? {
        "; copy it to a Buffer, and pass that"
    } else if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        "; copy its bytes to a Buffer, and pass that"
    } else {
        ""
    };
    Err(PyTypeError::new_err(format!(
        "argument {} is of type {}, which cannot be passed to a kernel; buffers, numbers, numpy and ctypes scalars, \
         structures and objects with a handle can{advice}",
        parameter.index,
        class.name()?
    )))
}

/// Whether it is a class of cuirass whose handle means nothing on the device, or is derived from one: a stream among the
/// arguments is a mistake.
fn is_another_of_ours(class: &Bound<'_, PyType>) -> PyResult<bool> {
    for base in class.mro().iter() {
        if base.is(class.py().get_type::<GraphCondition>()) {
            return Ok(false);
        }
        let module = base.getattr("__module__")?.extract::<String>().unwrap_or_default();
        if module == "cuirass" || module.starts_with("cuirass.") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A complex number: of doubles, or where the parameter has 8 bytes of floats.
#[expect(clippy::cast_possible_truncation, reason = "rounding to the parameter's type is what is wanted")]
fn complex(real: f64, imaginary: f64, parameter: Parameter<'_>) -> Value {
    let mut all = [0; 16];
    let (low, high) = all.split_at_mut(8);
    if parameter.size == Some(8) {
        let (first, second) = low.split_at_mut(4);
        first.copy_from_slice(&(real as f32).to_ne_bytes());
        second.copy_from_slice(&(imaginary as f32).to_ne_bytes());
        return Value::Small(all, 8);
    }
    low.copy_from_slice(&real.to_ne_bytes());
    high.copy_from_slice(&imaginary.to_ne_bytes());
    Value::Small(all, 16)
}

/// Something of a module that is loaded; `None` while it is not. Imports nothing.
fn loaded<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    match py.import("sys")?.getattr("modules")?.get_item(module) {
        Ok(module) => module.getattr_opt(name),
        Err(_not_loaded) => Ok(None),
    }
}

/// What all of ctypes' data types have in common, which has no public name.
fn ctypes_base(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    match loaded(py, "ctypes", "Structure")? {
        Some(structure) => structure.getattr("__base__").map(Some),
        None => Ok(None),
    }
}

/// Notes that a class is one of NumPy's plain scalar types, if it is.
fn remember_plain(
    object: &Bound<'_, PyAny>,
    class: &Bound<'_, PyType>,
    dtype: &Bound<'_, PyAny>,
    value: &Value,
) -> PyResult<()> {
    let kind: String = dtype.getattr("kind")?.extract()?;
    let size = value.bytes().len();
    let is_plain = matches!((kind.as_str(), size), ("i" | "u" | "f" | "b" | "m" | "M", 1 | 2 | 4 | 8) | ("c", 8 | 16));
    let instance: usize = class.getattr("__basicsize__")?.extract()?;
    let module: String = class.getattr("__module__")?.extract()?;
    if !is_plain || module != "numpy" || instance < size_of::<ffi::PyObject>() + size {
        return Ok(());
    }
    if plain(object, size).bytes() != value.bytes() {
        return Ok(());
    }
    let _adding = ADDING.lock();
    if plain_size(class.as_type_ptr()).is_none()
        && let Some(free) = PLAIN.iter().find(|plain| plain.class.load(Ordering::Relaxed).is_null())
    {
        free.bytes.store(size, Ordering::Relaxed);
        // The reference is kept for good, so that no other type gets the address.
        free.class.store(class.clone().into_ptr().cast(), Ordering::Release);
    }
    Ok(())
}

/// The memory of a ctypes object.
fn view(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    with_bytes(object, |bytes| Value::of_slice(object.py(), bytes))?
}
