//! Reports as Python's warnings: what could not be raised to anybody.
#![allow(unsafe_code)]

use crate::late;
use cuirass::Report;
use cuirass_fault::lock::Global;
use cuirass_fault::{Absence, Cause, Failure};
use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyModule, PyTuple};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Write as _;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Closed by the exit hook: from then on destructors touch no Python object.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether Python may still be used by a destructor or a callback.
pub fn python_is_usable() -> bool {
    !CLOSED.load(Ordering::Acquire)
}

/// Runs code with the interpreter attached, where it still can be. The interpreter's lock is the outermost one: none of
/// cuirass's is held here, which debug builds check.
pub fn attached<T>(code: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    cuirass_fault::lock::assert_none_held("taking the interpreter's lock");
    Python::try_attach(code)
}

/// What says whether a thread is attached to the interpreter: a function of its own that is not in the stable interface.
#[cfg(feature = "gauntlet")]
pub fn attachment(py: Python<'_>) -> PyResult<impl Fn() -> bool + Send + Sync + 'static> {
    let ctypes = py.import("ctypes")?;
    let check = ctypes.getattr("pythonapi")?.getattr("PyGILState_Check")?;
    let address: usize =
        ctypes.getattr("cast")?.call1((check, ctypes.getattr("c_void_p")?))?.getattr("value")?.extract()?;
    let check = std::ptr::with_exposed_provenance::<()>(address);
    // SAFETY: [interpreter] it has this type, and any thread may call it, attached or not.
    let check: unsafe extern "C" fn() -> std::ffi::c_int = unsafe { std::mem::transmute(check) };
    // SAFETY: [interpreter] as above.
    Ok(move || unsafe { check() } == 1)
}

/// Refuses to be imported in a second interpreter: classes, reporter and exit hook are one for the process.
pub fn only_in_the_main_interpreter() -> PyResult<()> {
    // SAFETY: [interpreter] the thread is attached.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err("cuirass cannot be imported in a subinterpreter, only in the main interpreter"))
}

/// Runs when the interpreter begins to end. What still waits to be released is reported first.
#[pyfunction]
pub fn _at_exit(py: Python<'_>) {
    if !python_is_usable() {
        // The package was imported twice, and so is the hook there twice.
        return;
    }
    py.detach(cuirass::report_left_at_exit);
    report_those();
    CLOSED.store(true, Ordering::Release);
    cuirass::leave_what_waits();
    crate::graph::callback::tell_skipped_at_exit();
    crate::graph::callback::wait_for_running(py);
    report_those();
    crate::program::wait_for_compiling(py);
}

/// Runs a function when the process ends, after the interpreter has.
pub fn when_the_process_ends(function: extern "C" fn()) {
    if !cuirass::when_the_process_ends(function) {
        to_stderr("the C library has no room for an exit function");
    }
}

/// How many things of a kind are under way in this process: what was when it was forked is the parent's.
pub struct UnderWay(AtomicU64);

impl UnderWay {
    pub const fn new() -> UnderWay {
        UnderWay(AtomicU64::new(0))
    }

    /// One more.
    pub fn start(&self) {
        self.change(|count| count + 1);
    }

    /// One less.
    pub fn end(&self) {
        self.change(|count| count.saturating_sub(1));
    }

    /// The process and the count, in one number.
    fn change(&self, count: impl Fn(u32) -> u32) {
        let change = |known| Some(u64::from(std::process::id()) << 32 | u64::from(count(here(known))));
        let _before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// Waits, with the interpreter released, until there is none; not longer than this.
    pub fn wait_for_none(&'static self, py: Python<'_>, longest: Duration) {
        py.detach(|| {
            let start = Instant::now();
            while here(self.0.load(Ordering::Acquire)) > 0 && start.elapsed() < longest {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

/// The count, if it is this process's.
fn here(known: u64) -> u32 {
    match known >> 32 == u64::from(std::process::id()) {
        true => u32::try_from(known & u64::from(u32::MAX)).unwrap_or(0),
        false => 0,
    }
}

/// Failures of a thread of the driver, with what was being done.
static LATER: Global<VecDeque<(Failure, &'static str)>> = Global::new(VecDeque::new(), VecDeque::new());
/// Whether the interpreter has been asked to have them reported.
static ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether reports are made for another thread: the line of Python that is running has nothing to do with them.
    static FOR_ANOTHER: Cell<bool> = const { Cell::new(false) };
}

/// Reports a failure on the main thread, between two instructions: for a thread of the driver, which others wait for, so
/// that it must not run what may wait for them.
pub fn report_later(failure: Failure, doing: &'static str) {
    LATER.lock().push_back((failure, doing));
    if !python_is_usable() {
        // The exit hook may have looked already: this runs no Python any more.
        report_those();
    } else if !ASKED.swap(true, Ordering::AcqRel) {
        // SAFETY: [interpreter] any thread may ask; the function is the program's own.
        let has_room = unsafe { ffi::Py_AddPendingCall(Some(pending), std::ptr::null_mut()) } == 0;
        // Where the interpreter has no room for it the next failure asks again, or `drain()` and the exit hook report.
        ASKED.store(has_room, Ordering::Release);
    }
}

/// What the interpreter calls, attached, on the main thread.
extern "C" fn pending(_nothing: *mut c_void) -> c_int {
    // Before they are taken, so that one that comes now asks again.
    ASKED.store(false, Ordering::Release);
    if catch_unwind(report_those).is_err() {
        to_stderr("a report of what a callback has raised panicked");
    }
    0
}

/// Makes the reports that threads of the driver have left.
pub fn report_those() {
    let before = FOR_ANOTHER.replace(true);
    // Not those that come meanwhile, which reports may themselves lead to: they have asked to be reported, too.
    let many = LATER.lock().len();
    for _ in 0..many {
        let next = LATER.lock().pop_front();
        let Some((failure, doing)) = next else { break };
        failure.report(doing);
    }
    FOR_ANOTHER.set(before);
}

/// Installs the reporter and the exit hook.
pub fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    cuirass::set_reporter(Some(Arc::new(report)));
    let hook = pyo3::wrap_pyfunction!(_at_exit, module)?;
    module.py().import("atexit")?.call_method1("register", (hook,))?;
    Ok(())
}

/// How many reports of a thread may be made within each other.
const DEEP: usize = 16;

thread_local! {
    /// How many reports this thread is making: user code that one runs may fail in turn.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// May run user code: warning filters, `showwarning`, `sys.unraisablehook`. User code that has each report make another
/// one is not run without end: the stack may be small.
fn report(report: &Report) {
    // In a forked child a release has nothing to give back: the handle is the parent's.
    if matches!(report.facts().cause, Cause::Absent(Absence::Forked)) {
        return;
    }
    let text = report.to_string();
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    let is_warned = depth < DEEP && python_is_usable() && attached(|py| warn(py, &text)).is_some();
    DEPTH.set(depth);
    if !is_warned {
        to_stderr(&text);
    }
}

/// One line on stderr, past Python, flushed. A stderr that cannot be written to leaves nowhere to turn.
pub fn to_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    if writeln!(stderr, "CUDAWarning: {text}").is_ok() && stderr.flush().is_ok() {}
}

/// Runs code with the exception that is on its way, if one is, put aside.
pub fn with_exception_aside<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    let _py = py;
    let (mut class, mut value, mut traceback) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: [interpreter] attached; the three are given back below, or are all null.
    unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
    let result = code();
    // SAFETY: [interpreter] as above.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
    result
}

/// One `CUDAWarning`. It has no registry: a second failure from the same line is a second warning.
pub fn warn(py: Python<'_>, text: &str) {
    with_exception_aside(py, || {
        let lent = Lent::stderr(py);
        if let Err(escalated) = warn_explicit(py, text) {
            let ours = escalated.get_type(py).name().is_ok_and(|name| name == "CUDAWarning");
            let told = give_to_hook(py, &escalated);
            if !ours || told.is_err() {
                // What the warning machinery raised of its own does not say what was to be reported.
                to_stderr(text);
            }
            if let Err(error) = told {
                let given = if ours { "this report".to_owned() } else { escalated.to_string() };
                to_stderr(&format!("sys.unraisablehook raised {error}, when it was given {given}"));
            }
        }
        if let Some(lent) = lent {
            lent.take_back(py);
        }
    });
}

/// What the module `sys` has of this name.
fn of_sys<'py>(py: Python<'py>, name: &CStr) -> Option<Bound<'py, PyAny>> {
    // SAFETY: [interpreter] attached; the answer is borrowed, or null, which sets no exception.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PySys_GetObject(name.as_ptr())) }
}

/// Gives the module `sys` an object of this name; `None` takes the name away.
fn set_in_sys(py: Python<'_>, name: &CStr, object: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let object = object.map_or(std::ptr::null_mut(), |object| object.as_ptr());
    // SAFETY: [interpreter] attached; the object is borrowed.
    match unsafe { ffi::PySys_SetObject(name.as_ptr(), object) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

/// Gives an exception to `sys.unraisablehook`, and says whether that has worked, which the interpreter, where it calls the
/// hook, does not.
fn give_to_hook(py: Python<'_>, error: &PyErr) -> PyResult<()> {
    let hook = of_sys(py, c"unraisablehook").or_else(|| of_sys(py, c"__unraisablehook__"));
    let hook = hook.ok_or_else(|| PyRuntimeError::new_err("it is not there"))?;
    let fields = (error.get_type(py), error.value(py), error.traceback(py), py.None(), py.None());
    let arguments = class_of_arguments(py)?.call1((fields,))?;
    late::call(&hook, &PyTuple::new(py, [arguments])?, None).map(drop)
}

/// The class of what a hook is given, which the interpreter's own hook takes no other object for. It has no name: it is that
/// of what a hook has been given.
fn class_of_arguments(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    const NAME: &CStr = c"unraisablehook";
    let class = CLASS.get_or_try_init(py, || {
        let (hook, given) = (of_sys(py, NAME), PyList::empty(py));
        set_in_sys(py, NAME, Some(&given.getattr("append")?))?;
        // No other thread runs until the hook is back: nothing here runs Python code.
        late::write_unraisable(py, PyRuntimeError::new_err("to see what a hook is given"));
        set_in_sys(py, NAME, hook.as_ref())?;
        PyResult::Ok(given.get_item(0)?.get_type().into_any().unbind())
    })?;
    Ok(class.bind(py))
}

/// A `sys.stderr` where the program has none, for the time of a report: the file descriptor may be open all the same, and
/// only the warning machinery knows whether the report is to be shown.
struct Lent;

/// What is lent.
struct Loan {
    file: Py<PyAny>,
    /// Whether `sys.stderr` was `None`; else it was not there at all.
    was_none: bool,
    /// How many reports have it.
    count: usize,
}

/// Held for moments in which no Python code runs.
static LENT: Global<Option<Loan>> = Global::new(None, None);
const STDERR: &CStr = c"stderr";

impl Lent {
    fn stderr(py: Python<'_>) -> Option<Lent> {
        let is_none = |stderr: &Option<Bound<'_, PyAny>>| stderr.as_ref().is_none_or(|stderr| stderr.is_none());
        let file = if is_none(&of_sys(py, STDERR)) { open_stderr(py).ok() } else { None };
        // Asked again: the opening may have run another thread.
        let stderr = of_sys(py, STDERR);
        let mut lent = LENT.lock();
        match (&mut *lent, file) {
            (Some(loan), _) if stderr.as_ref().is_some_and(|stderr| stderr.is(&loan.file)) => loan.count += 1,
            (_, Some(file)) if is_none(&stderr) => {
                set_in_sys(py, STDERR, Some(&file)).ok()?;
                *lent = Some(Loan { file: file.unbind(), was_none: stderr.is_some(), count: 1 });
            }
            _ => return None,
        }
        Some(Lent)
    }

    fn take_back(self, py: Python<'_>) {
        let mut lent = LENT.lock();
        if let Some(loan @ Loan { count: 2.., .. }) = &mut *lent {
            loan.count -= 1;
            return;
        }
        let last = lent.take();
        drop(lent);
        let none = py.None().into_bound(py);
        // A report's code may have put another one there.
        if let Some(loan) = last
            && of_sys(py, STDERR).is_some_and(|stderr| stderr.is(&loan.file))
            && let Err(error) = set_in_sys(py, STDERR, Some(&none).filter(|_none| loan.was_none))
        {
            to_stderr(&format!("sys.stderr was lent for a report, and is not None again: {error}"));
        }
    }
}

/// A file for what is written to the file descriptor, line by line.
fn open_stderr(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item("buffering", 1)?;
    keywords.set_item("errors", "backslashreplace")?;
    keywords.set_item("closefd", false)?;
    py.import("io")?.getattr("open")?.call((2, "w"), Some(&keywords))
}

fn warn_explicit(py: Python<'_>, text: &str) -> PyResult<()> {
    let category = py.import("cuirass._error")?.getattr("CUDAWarning")?;
    let message = CString::new(text.replace('\0', "\u{fffd}"))?;
    let (file, line) = place(py);
    late::warn_explicit(&category, &message, &file, line, c"cuirass")
}

/// The line of Python that is running; where none is, a name that says so.
fn place(py: Python<'_>) -> (CString, i32) {
    let nowhere = || (CString::from(c"<cuirass>"), 0);
    if FOR_ANOTHER.get() {
        return nowhere();
    }
    // SAFETY: [interpreter] attached; the frame is borrowed, the code object is a new reference.
    let (code, line) = unsafe {
        let frame = ffi::PyEval_GetFrame();
        if frame.is_null() {
            return nowhere();
        }
        let line = ffi::PyFrame_GetLineNumber(frame);
        (Bound::from_owned_ptr_or_opt(py, ffi::PyFrame_GetCode(frame).cast()), line)
    };
    let file = code.and_then(|code| code.getattr("co_filename").ok()?.extract::<String>().ok());
    match file.and_then(|file| CString::new(file).ok()) {
        Some(file) => (file, line),
        None => nowhere(),
    }
}

/// Lets a test make a report.
#[pyfunction]
pub fn _report(py: Python<'_>, text: &str, doing: &str) {
    let failure = Failure::misuse(cuirass_fault::Misuse::State, text);
    py.detach(|| failure.report(doing));
}
