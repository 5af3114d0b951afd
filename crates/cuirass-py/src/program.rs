//! `Program`: source, compiled by NVRTC.

use crate::device;
use crate::error::{ask, closed, run};
use crate::late;
use crate::memory::copy::bytes_of;
use crate::module::{ObjectCode, kind_of};
use crate::options;
use crate::report::UnderWay;
use crate::room::{self, Text, Texts};
use crate::slot::{Closed, Slot};
use cuirass_fault::Failure;
use cuirass_fault::room::Short;
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Calls of the compiler that are under way.
static COMPILING: UnderWay = UnderWay::new();
/// The thread that ends the process, as a number that is not 0; the only one that may still compile.
static ENDING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: u8 = const { 0 };
}

/// A number for this thread: where its own variable is.
fn this_thread() -> usize {
    THREAD.with(|variable| std::ptr::from_ref(variable).addr())
}

/// A call of the compiler. When the process ends, the compiler takes itself apart: calls on other threads are waited for,
/// and none may begin.
struct Compiling;

impl Compiling {
    fn start() -> Compiling {
        COMPILING.start();
        // Asked after it is counted, so that the exit hook either waits for it or is seen by it.
        let ending = ENDING.load(Ordering::Acquire);
        if ending != 0 && ending != this_thread() {
            COMPILING.end();
            loop {
                // The process is about to end, and this thread with it.
                std::thread::park();
            }
        }
        Compiling
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        COMPILING.end();
    }
}

/// The exit hook's part: lets no other thread begin a compilation, and waits for those that are under way.
pub fn wait_for_compiling(py: Python<'_>) {
    ENDING.store(this_thread(), Ordering::Release);
    COMPILING.wait_for_none(py, Duration::from_secs(30));
}

/// Source that can be compiled.
///
/// Parameters
/// ----------
/// code : str, bytes or bytearray
///     The source.
/// code_type : SourceCodeType or str
///     ``"c++"``. Other kinds of source are not available yet.
/// options : ProgramOptions, optional
///     How it is compiled. Without an architecture it is the current device's.
///
/// Raises
/// ------
/// RuntimeError
///     If the kind of source is unknown.
/// ValueError
///     If options contradict each other.
/// NVRTCError
///     If the compiler library is not found; the message says what to do.
#[pyclass(frozen, weakref, subclass, module = "cuirass", name = "Program")]
pub struct Program {
    slot: Slot<cuirass::Program>,
    source: String,
    options: cuirass::ProgramOptions,
}

/// The source as text.
fn text_of(code: &Bound<'_, PyAny>) -> PyResult<String> {
    if code.is_instance_of::<PyString>() {
        return room::text(code.as_borrowed());
    }
    let bytes = match (code.cast::<PyBytes>(), code.cast::<PyByteArray>()) {
        (Ok(bytes), _) => room::bytes(code.py(), bytes.as_bytes())?,
        (_, Ok(_)) => bytes_of(code)?,
        _ => {
            let kind = code.get_type().name()?;
            return Err(PyTypeError::new_err(format!("code must be str, bytes or bytearray, not {kind}")));
        }
    };
    String::from_utf8(bytes).map_err(|error| PyValueError::new_err(format!("code must be UTF-8: {error}")))
}

/// The name of a kind of code. A text that is too long to be one is none.
fn lowercase(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = object.cast::<PyString>()?.to_str()?;
    Ok(format!("{}", Short(text)).to_lowercase())
}

/// Looks for the compiler library, once, before its first use.
fn find_compiler(py: Python<'_>) -> PyResult<()> {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() || cuirass::driver::loaded_compiler().is_some() {
        return Ok(());
    }
    // Python code runs before the once is entered, not inside.
    let found: Option<PathBuf> = py.import("cuirass._nvrtc")?.call_method0("find")?.extract()?;
    ONCE.call_once(|| {
        if let Some(path) = found {
            cuirass::driver::set_compiler_path(path);
        }
    });
    Ok(())
}

impl Program {
    fn options_for(&self, py: Python<'_>, name_expressions: Vec<String>) -> PyResult<cuirass::ProgramOptions> {
        let copy = |text: &String| room::granted(py, cuirass_fault::room::text(text, "for a copy of the options"));
        Ok(cuirass::ProgramOptions {
            name: self.options.name.as_ref().map(copy).transpose()?,
            arch: self.options.arch.as_ref().map(copy).transpose()?,
            options: room::list(py, self.options.options.iter().map(copy))?,
            headers: Vec::new(),
            name_expressions,
        })
    }
}

#[pymethods]
impl Program {
    #[new]
    #[pyo3(signature = (code, code_type, options=None))]
    fn new(
        py: Python<'_>,
        code: &Bound<'_, PyAny>,
        code_type: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Program> {
        match lowercase(code_type)?.as_str() {
            "c++" => {}
            other @ ("ptx" | "nvvm") => {
                let instead = if other == "ptx" { "; ObjectCode.from_ptx() loads PTX as it is" } else { "" };
                let message = format!("programs of {other} are not available in this version of cuirass{instead}");
                return Err(PyNotImplementedError::new_err(message));
            }
            other => {
                let message = format!("code_type must be 'c++', 'ptx' or 'nvvm', not {other:?}");
                return Err(PyRuntimeError::new_err(message));
            }
        }
        let source = text_of(code)?;
        let given = match options::instance(options, "ProgramOptions")? {
            Some(options) => options,
            None => py.import("cuirass._options")?.getattr("ProgramOptions")?.call0()?,
        };
        let Texts(list) = py.import("cuirass._program_options")?.getattr("nvrtc_texts")?.call1((&given,))?.extract()?;
        let arch = match options::text(&given, "arch")? {
            Some(_in_the_list) => None,
            None => {
                let device =
                    device::current(py).and_then(|device| device::Device::cached(py, device)).inspect_err(|error| {
                        let hint = "or say what to compile for: ProgramOptions(arch='sm_90')";
                        // A note that cannot be added is a MemoryError; the error itself says enough.
                        if error.value(py).call_method1("add_note", (hint,)).is_ok() {}
                    })?;
                Some(format!("sm_{}", device.get().arch(py)?))
            }
        };
        let options = cuirass::ProgramOptions {
            name: given.getattr("name")?.extract::<Option<Text>>()?.map(|name| name.0),
            arch,
            options: list,
            headers: Vec::new(),
            name_expressions: Vec::new(),
        };
        find_compiler(py)?;
        let program = run(py, || {
            let _gate = Compiling::start();
            cuirass::Program::new(&source, &options)
        })?;
        Ok(Program { slot: Slot::new(program), source, options })
    }

    /// Gives the program back to the compiler (``nvrtcDestroyProgram``).
    ///
    /// Raises
    /// ------
    /// NVRTCError
    ///     What the compiler answers.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.slot.close() {
            Closed::Taken(program) => run(py, || program.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    /// Compiles.
    ///
    /// Parameters
    /// ----------
    /// target_type : ObjectCodeFormatType or str
    ///     ``"ptx"``, ``"cubin"`` or ``"ltoir"``.
    /// name_expressions : sequence of str
    ///     Expressions whose names in the code are wanted, such as ``"scale<float>"``: ``get_kernel()`` takes them.
    /// logs : object with ``write()``, optional
    ///     Gets what the compiler has to say: warnings too.
    /// cache : ProgramCacheResource, optional
    ///     Not available yet.
    ///
    /// Raises
    /// ------
    /// NVRTCError
    ///     If it does not compile, with the compiler's whole log.
    /// ValueError
    ///     If the compiler does not make that kind of code.
    #[pyo3(signature = (target_type, name_expressions=None, logs=None, *, cache=None),
           text_signature = "($self, target_type, name_expressions=(), logs=None, *, cache=None)")]
    fn compile(
        &self,
        py: Python<'_>,
        target_type: &Bound<'_, PyAny>,
        name_expressions: Option<Texts>,
        logs: Option<&Bound<'_, PyAny>>,
        cache: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ObjectCode> {
        if cache.is_some() {
            return Err(PyNotImplementedError::new_err("program caches are not available in this version of cuirass"));
        }
        let kind = kind_of(&lowercase(target_type)?)?;
        let expressions = name_expressions.map(|expressions| expressions.0).unwrap_or_default();
        let compiled = if expressions.is_empty() {
            let program = self.slot.enter().ok_or_else(|| closed("program"))?;
            run(py, || {
                let _gate = Compiling::start();
                program.compile(kind)
            })?
        } else {
            // The compiler wants them before it compiles for the first time: a program of its own.
            let _open = self.slot.enter().ok_or_else(|| closed("program"))?;
            let options = self.options_for(py, expressions)?;
            run(py, || {
                let _gate = Compiling::start();
                let program = cuirass::Program::new(&self.source, &options)?;
                match (program.compile(kind), program.close()) {
                    (Ok(compiled), closed) => closed.map(|()| compiled),
                    (Err(error), Ok(())) => Err(error),
                    (Err(error), Err(second)) => {
                        Err(Failure::from(second).attach_to(error.into(), "the program was not released").raise())
                    }
                }
            })?
        };
        if let Some(logs) = logs
            && !compiled.log.is_empty()
        {
            late::call(&logs.getattr("write")?, &PyTuple::new(py, [&compiled.log])?, None)?;
        }
        Ok(ObjectCode::of(compiled.code))
    }

    /// What became of the precompiled header: ``None`` where none was asked for.
    #[getter]
    fn pch_status(&self) -> Option<Py<PyAny>> {
        None
    }

    /// What compiles it.
    #[getter]
    fn backend<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("cuirass.typing")?.getattr("CompilerBackendType")?.getattr("NVRTC")
    }

    /// The compiler's ``nvrtcProgram``, as a ``cuda.bindings.nvrtc`` object where that package is loaded, else a
    /// number.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let program = self.slot.enter().ok_or_else(|| closed("program"))?;
        let raw = ask(py, || Ok(program.as_raw().addr()))?;
        let loaded = py.import("sys")?.getattr("modules")?.get_item("cuda.bindings.nvrtc");
        match loaded.and_then(|nvrtc| nvrtc.getattr("nvrtcProgram")?.call1((raw,))) {
            Ok(object) => Ok(object.unbind()),
            Err(_not_loaded) => Ok(raw.into_pyobject(py)?.into_any().unbind()),
        }
    }

    fn __repr__(&self) -> String {
        let name = self.options.name.as_deref().unwrap_or("default_program");
        let name = Short(name);
        if self.slot.is_closed() { format!("<Program {name} closed>") } else { format!("<Program {name}>") }
    }
}
