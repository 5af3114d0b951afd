//! `ObjectCode`: compiled code.

use crate::error::{not_constructed, run};
use crate::handle;
use crate::handle::Equal;
use crate::kernel::Kernel;
use crate::memory::copy::bytes_of;
use crate::room::{self, Names};
use crate::slot::Detached;
use cuirass::CodeKind;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Compiled code.
///
/// It is made by ``Program.compile()``, or by the ``from_…()`` functions from bytes or from the path of a file, which is
/// read when the code is first needed. It is loaded when a kernel of it is first asked for; every kernel keeps it
/// loaded. It pickles without a driver.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "ObjectCode")]
pub struct ObjectCode {
    source: Source,
    kind: CodeKind,
    name: String,
    symbols: HashMap<String, String>,
    code: OnceLock<Detached<cuirass::ObjectCode>>,
}

enum Source {
    Code,
    Path(String),
}

const KINDS: [CodeKind; 6] =
    [CodeKind::Ptx, CodeKind::Cubin, CodeKind::LtoIr, CodeKind::Fatbin, CodeKind::Object, CodeKind::Library];

/// A kind of code by its name.
pub fn kind_of(name: &str) -> PyResult<CodeKind> {
    KINDS.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        PyValueError::new_err(format!("{name:?} is no kind of code; ptx, cubin, ltoir, fatbin, object and library are"))
    })
}

impl ObjectCode {
    pub fn of(code: cuirass::ObjectCode) -> ObjectCode {
        let (kind, name, symbols) = (code.kind(), code.name().to_owned(), code.symbols().clone());
        ObjectCode { source: Source::Code, kind, name, symbols, code: OnceLock::from(Detached::new(code)) }
    }

    /// The code; its file is read if it has not been.
    fn code(&self, py: Python<'_>) -> PyResult<&cuirass::ObjectCode> {
        if let (None, Source::Path(path)) = (self.code.get(), &self.source) {
            let bytes = std::fs::read(path).map_err(|error| not_read(py, &error, path))?;
            let symbols = room::names(py, &self.symbols)?;
            let code = cuirass::ObjectCode::with_symbols(self.kind, bytes, &self.name, symbols);
            return Ok(self.code.get_or_init(|| Detached::new(code)));
        }
        self.code
            .get()
            .map(|code| &**code)
            .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("object code without code"))
    }
}

fn from_module(
    module: &Bound<'_, PyAny>,
    kind: CodeKind,
    name: &str,
    symbol_mapping: Option<Names>,
) -> PyResult<ObjectCode> {
    let symbols = symbol_mapping.unwrap_or_default().0;
    if module.hasattr("__fspath__")? || module.is_instance_of::<PyString>() {
        let path = module.py().import("os")?.call_method1("fspath", (module,))?;
        if !path.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("the path of object code must be text"));
        }
        let path = room::text(path.as_borrowed())?;
        let name = room::granted(module.py(), cuirass_fault::room::text(name, "for a copy of the name"))?;
        return Ok(ObjectCode { source: Source::Path(path), kind, name, symbols, code: OnceLock::new() });
    }
    let bytes = match bytes_of(module) {
        Err(error) if !error.is_instance_of::<PyMemoryError>(module.py()) => {
            let given = module.get_type().name()?;
            return Err(PyTypeError::new_err(format!("module must be bytes or a path, not {given}")));
        }
        bytes => bytes?,
    };
    Ok(ObjectCode::of(cuirass::ObjectCode::with_symbols(kind, bytes, name, symbols)))
}

/// What Python itself raises where a file cannot be read: it has the number and the path.
#[cold]
fn not_read(py: Python<'_>, error: &std::io::Error, path: &str) -> PyErr {
    let Some(number) = error.raw_os_error() else { return PyOSError::new_err(format!("{error}: {path:?}")) };
    let text = py.import("os").and_then(|os| os.call_method1("strerror", (number,)));
    text.map_or_else(|failed| failed, |text| PyOSError::new_err((number, text.unbind(), path.to_owned())))
}

/// Bytes as Python's, of which there may be too many.
fn given<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        Ok(())
    })
}

/// A text of bytes; what is not UTF-8 is replaced.
fn lossy(py: Python<'_>, bytes: &[u8]) -> PyResult<String> {
    let bytes = room::bytes(py, bytes)?;
    String::from_utf8(bytes).or_else(|error| Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[pymethods]
impl ObjectCode {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<ObjectCode> {
        not_constructed("ObjectCode", "Program.compile() or ObjectCode.from_cubin() and its like")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let rebuild = py.import("cuirass._cuirass")?.getattr("_rebuild_object_code")?;
        let ptx = match self.code.get() {
            Some(code) => code.companion_ptx().map(|ptx| given(py, ptx)).transpose()?,
            None => None,
        };
        let state = (self.kind.name(), self.code_as_given(py)?, ptx, self.name.as_str(), self.symbols.clone());
        Ok((rebuild, state.into_pyobject(py)?))
    }

    /// Native code of a device.
    ///
    /// Parameters
    /// ----------
    /// module : bytes-like or path
    ///     The code; or its file, which is read when the code is first needed.
    /// name : str, optional
    ///     What the object is called.
    /// symbol_mapping : dict, optional
    ///     Names in the source to names in the code.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If it is neither bytes nor a path. Whether it is such code the driver says, when it is loaded.
    #[staticmethod]
    #[pyo3(signature = (module, *, name="", symbol_mapping=None))]
    fn from_cubin(module: &Bound<'_, PyAny>, name: &str, symbol_mapping: Option<Names>) -> PyResult<ObjectCode> {
        from_module(module, CodeKind::Cubin, name, symbol_mapping)
    }

    /// PTX, the virtual machine's text.
    ///
    /// Parameters and errors are those of ``from_cubin()``.
    #[staticmethod]
    #[pyo3(signature = (module, *, name="", symbol_mapping=None))]
    fn from_ptx(module: &Bound<'_, PyAny>, name: &str, symbol_mapping: Option<Names>) -> PyResult<ObjectCode> {
        from_module(module, CodeKind::Ptx, name, symbol_mapping)
    }

    /// Code for the linker's optimiser. It is linked before it can be loaded.
    ///
    /// Parameters and errors are those of ``from_cubin()``.
    #[staticmethod]
    #[pyo3(signature = (module, *, name="", symbol_mapping=None))]
    fn from_ltoir(module: &Bound<'_, PyAny>, name: &str, symbol_mapping: Option<Names>) -> PyResult<ObjectCode> {
        from_module(module, CodeKind::LtoIr, name, symbol_mapping)
    }

    /// Several kinds of code in one.
    ///
    /// Parameters and errors are those of ``from_cubin()``.
    #[staticmethod]
    #[pyo3(signature = (module, *, name="", symbol_mapping=None))]
    fn from_fatbin(module: &Bound<'_, PyAny>, name: &str, symbol_mapping: Option<Names>) -> PyResult<ObjectCode> {
        from_module(module, CodeKind::Fatbin, name, symbol_mapping)
    }

    /// An object file. It is linked before it can be loaded.
    ///
    /// Parameters and errors are those of ``from_cubin()``.
    #[staticmethod]
    #[pyo3(signature = (module, *, name="", symbol_mapping=None))]
    fn from_object(module: &Bound<'_, PyAny>, name: &str, symbol_mapping: Option<Names>) -> PyResult<ObjectCode> {
        from_module(module, CodeKind::Object, name, symbol_mapping)
    }

    /// An archive of object files. It is linked before it can be loaded.
    ///
    /// Parameters and errors are those of ``from_cubin()``.
    #[staticmethod]
    #[pyo3(signature = (module, *, name="", symbol_mapping=None))]
    fn from_library(module: &Bound<'_, PyAny>, name: &str, symbol_mapping: Option<Names>) -> PyResult<ObjectCode> {
        from_module(module, CodeKind::Library, name, symbol_mapping)
    }

    /// A kernel, by its name. The first one loads the code (``cuLibraryLoadData``).
    ///
    /// Parameters
    /// ----------
    /// name : str or bytes
    ///     The name in the code, which is that in the source for what is declared ``extern "C"``; for other kernels a name
    ///     expression that was given to ``Program.compile()``.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     ``CUDA_ERROR_NOT_FOUND`` if there is none of that name; what the driver answers to loading.
    /// RuntimeError
    ///     If this kind of code cannot be loaded.
    /// OSError
    ///     If the code is a path whose file cannot be read.
    fn get_kernel(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Kernel> {
        crate::sim::prepare(py)?;
        let name = match name.cast::<PyBytes>() {
            Ok(bytes) => lossy(py, bytes.as_bytes())?,
            Err(_text) => room::text(name.as_borrowed())?,
        };
        let code = self.code(py)?;
        Ok(Kernel::of(run(py, || code.kernel(&name))?, None))
    }

    /// The driver's ``CUmodule`` of this code in the current context (``cuLibraryGetModule``), as a
    /// ``cuda.bindings.driver`` object where that package is there, else a number.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, to loading too.
    /// RuntimeError, OSError
    ///     As of ``get_kernel()``.
    fn get_module(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let code = self.code(py)?;
        let raw = run(py, || code.module_raw().map(|module| module.addr()))?;
        handle::give(py, "CUmodule", raw as u64)
    }

    /// The code: bytes, or the path that was given.
    #[getter(code)]
    fn code_as_given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match (&self.source, self.code.get()) {
            (Source::Path(path), _) => Ok(PyString::new(py, path).into_any()),
            (Source::Code, Some(code)) => Ok(given(py, code.bytes())?.into_any()),
            (Source::Code, None) => Ok(PyBytes::new(py, b"").into_any()),
        }
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What it is: ``ptx``, ``cubin``, ``ltoir``, ``fatbin``, ``object`` or ``library``.
    #[getter]
    fn code_type(&self) -> &'static str {
        self.kind.name()
    }

    /// Names in the source to names in the code.
    #[getter]
    fn symbol_mapping(&self) -> HashMap<String, String> {
        self.symbols.clone()
    }

    /// The driver's ``CUlibrary``, as a ``cuda.bindings.driver`` object where that package is there, else a number.
    /// Reading it loads the code, with the errors of ``get_kernel()``.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        crate::sim::prepare(py)?;
        let code = self.code(py)?;
        let raw = run(py, || code.as_raw().map(|library| library.addr()))?;
        handle::give(py, "CUlibrary", raw as u64)
    }

    fn __eq__(slf: &Bound<'_, ObjectCode>, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<ObjectCode>().ok().map(|other| slf.is(other)))
    }

    fn __hash__(slf: &Bound<'_, ObjectCode>) -> u64 {
        slf.as_ptr().addr() as u64 >> 4
    }

    fn __repr__(&self) -> String {
        format!("<ObjectCode name={:?} code_type={:?}>", self.name, self.kind.name())
    }
}

/// What pickle calls.
#[pyfunction]
pub fn _rebuild_object_code(
    kind: &str,
    module: &Bound<'_, PyAny>,
    ptx: Option<&Bound<'_, PyAny>>,
    name: &str,
    symbols: HashMap<String, String>,
) -> PyResult<ObjectCode> {
    let made = from_module(module, kind_of(kind)?, name, Some(Names(symbols)))?;
    let ptx = ptx.map(bytes_of).transpose()?;
    match (ptx, made.code.into_inner()) {
        (ptx @ Some(_), Some(code)) => Ok(ObjectCode::of(code.into_inner().with_companion_ptx(ptx))),
        (_, code) => Ok(ObjectCode { code: code.map_or_else(OnceLock::new, OnceLock::from), ..made }),
    }
}
