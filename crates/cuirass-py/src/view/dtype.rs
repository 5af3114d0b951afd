//! Types of elements: DLPack's codes, the array interfaces' texts, and numpy's objects.

use crate::view::dlpack::DataType;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

pub const INT: u8 = 0;
pub const UINT: u8 = 1;
pub const FLOAT: u8 = 2;
pub const BFLOAT: u8 = 4;
pub const COMPLEX: u8 = 5;
pub const BOOL: u8 = 6;

/// What a view knows of the type of its elements.
pub enum Dtype {
    /// Nothing.
    Unknown,
    /// DLPack's code; numpy's object is made when it is asked for.
    Code(DataType),
    /// numpy's object, and DLPack's code if that is known.
    Object(Py<PyAny>, Option<DataType>),
}

impl Dtype {
    pub fn clone_ref(&self, py: Python<'_>) -> Dtype {
        match self {
            Dtype::Unknown => Dtype::Unknown,
            Dtype::Code(code) => Dtype::Code(*code),
            Dtype::Object(object, code) => Dtype::Object(object.clone_ref(py), *code),
        }
    }
}

/// One lane of a type.
pub const fn scalar(code: u8, bits: u8) -> DataType {
    DataType { code, bits, lanes: 1 }
}

/// The types that `ml_dtypes` has, by its names.
const NARROW: [(DataType, &str); 16] = [
    (scalar(BFLOAT, 16), "bfloat16"),
    (scalar(7, 8), "float8_e3m4"),
    (scalar(8, 8), "float8_e4m3"),
    (scalar(9, 8), "float8_e4m3b11fnuz"),
    (scalar(10, 8), "float8_e4m3fn"),
    (scalar(11, 8), "float8_e4m3fnuz"),
    (scalar(12, 8), "float8_e5m2"),
    (scalar(13, 8), "float8_e5m2fnuz"),
    (scalar(14, 8), "float8_e8m0fnu"),
    (scalar(15, 6), "float6_e2m3fn"),
    (scalar(16, 6), "float6_e3m2fn"),
    (scalar(17, 4), "float4_e2m1fn"),
    (scalar(INT, 4), "int4"),
    (scalar(UINT, 4), "uint4"),
    (scalar(INT, 2), "int2"),
    (scalar(UINT, 2), "uint2"),
];

/// numpy's own types, by its names.
const PLAIN: [(DataType, &str); 14] = [
    (scalar(INT, 8), "int8"),
    (scalar(INT, 16), "int16"),
    (scalar(INT, 32), "int32"),
    (scalar(INT, 64), "int64"),
    (scalar(UINT, 8), "uint8"),
    (scalar(UINT, 16), "uint16"),
    (scalar(UINT, 32), "uint32"),
    (scalar(UINT, 64), "uint64"),
    (scalar(FLOAT, 16), "float16"),
    (scalar(FLOAT, 32), "float32"),
    (scalar(FLOAT, 64), "float64"),
    (scalar(COMPLEX, 64), "complex64"),
    (scalar(COMPLEX, 128), "complex128"),
    (scalar(BOOL, 8), "bool"),
];

fn named<'a>(table: &'a [(DataType, &str)], code: DataType) -> Option<&'a str> {
    table.iter().find(|(known, _name)| *known == code).map(|(_known, name)| *name)
}

/// numpy's object of something that it takes for a type. References to Python objects are refused: a copy of their bytes
/// would be counted by nobody.
pub fn object<'py>(py: Python<'py>, of: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "dtype"))?;
    let dtype = if of.is_exact_instance(&class) { of.clone() } else { class.call1((of,))? };
    if dtype.getattr(intern!(py, "hasobject"))?.is_truthy()? {
        let message = format!("elements of type {dtype} refer to Python objects, which have no place in a view");
        return Err(PyTypeError::new_err(message));
    }
    Ok(dtype)
}

/// numpy's object of DLPack's code.
pub fn object_of_code(py: Python<'_>, code: DataType) -> PyResult<Bound<'_, PyAny>> {
    if let Some(name) = named(&PLAIN, code) {
        return object(py, PyString::new(py, name).as_any());
    }
    if code.lanes != 1 {
        let message = format!("a vector of {} elements has no type in numpy", code.lanes);
        return Err(PyNotImplementedError::new_err(message));
    }
    let Some(name) = named(&NARROW, code) else {
        let message = format!("DLPack's type of code {} with {} bits has no type in numpy", code.code, code.bits);
        return Err(PyTypeError::new_err(message));
    };
    let class = py.import("ml_dtypes").and_then(|module| module.getattr(name)).map_err(|missing| {
        let wrong = PyNotImplementedError::new_err(format!(
            "numpy has no {name} of its own: it needs the package ml_dtypes, in a version that has it"
        ));
        wrong.set_cause(py, Some(missing));
        wrong
    })?;
    object(py, &class)
}

/// DLPack's code of numpy's object, if it has one, and the object is of this machine's byte order.
pub fn code_of_object(dtype: &Bound<'_, PyAny>) -> PyResult<Option<DataType>> {
    let py = dtype.py();
    if !dtype.getattr(intern!(py, "isnative"))?.is_truthy()? {
        return Ok(None);
    }
    let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
    let code = PLAIN.iter().chain(&NARROW).find(|(_code, known)| *known == name).map(|(code, _name)| *code);
    Ok(code)
}

/// The size of an element of numpy's object.
pub fn itemsize_of_object(dtype: &Bound<'_, PyAny>) -> PyResult<usize> {
    dtype.getattr(intern!(dtype.py(), "itemsize"))?.extract()
}

/// What an array interface's `typestr` says: the type, and the size of an element. The usual ones are read here; the
/// others numpy is asked about.
pub fn of_typestr(typestr: &Bound<'_, PyString>) -> PyResult<(Dtype, usize)> {
    if let Some(code) = plain_typestr(&typestr.to_cow()?) {
        return Ok((Dtype::Code(code), usize::from(code.bits) / 8));
    }
    let object = object(typestr.py(), typestr.as_any())?;
    let size = itemsize_of_object(&object)?;
    Ok((Dtype::Object(object.unbind(), None), size))
}

fn plain_typestr(text: &str) -> Option<DataType> {
    let [order, kind, size @ ..] = text.as_bytes() else { return None };
    let bits = match size {
        b"1" => 8,
        b"2" => 16,
        b"4" => 32,
        b"8" => 64,
        b"16" => 128,
        _ => return None,
    };
    const NATIVE: u8 = if cfg!(target_endian = "little") { b'<' } else { b'>' };
    if *order != NATIVE && !(*order == b'|' && bits == 8) {
        return None;
    }
    let code = match kind {
        b'i' => INT,
        b'u' => UINT,
        b'f' => FLOAT,
        b'c' => COMPLEX,
        b'b' => BOOL,
        _ => return None,
    };
    let code = scalar(code, bits);
    named(&PLAIN, code).map(|_name| code)
}

/// What a code is called in a message.
pub fn name_of_code(code: DataType) -> String {
    match named(&PLAIN, code).or_else(|| named(&NARROW, code)) {
        Some(name) => name.to_owned(),
        None => format!("DLPack's code {} with {} bits and {} lanes", code.code, code.bits, code.lanes),
    }
}
