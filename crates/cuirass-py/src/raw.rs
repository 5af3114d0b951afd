//! Functions in the interpreter's own calling form, for the few that programs call between any two driver calls.
//!
//! A driver call leaves the caches cold, and each line of code that comes after it is fetched anew: PyO3's glue, with an
//! object made for `*args` and a search for each keyword, costs more than what it leads to. Only the common form of a
//! call is taken here; every other goes on to the function that PyO3 made, with its checks and its messages.
#![allow(unsafe_code)]

use crate::error::panicked;
use crate::fresh::{self, Plain};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyCFunction, PyDict, PyNone, PyTuple, PyType};
use pyo3::{Borrowed, PyTypeInfo};
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

type Object = *mut ffi::PyObject;

/// A function, and the one that PyO3 made, which takes the calls that are not in the common form.
pub struct Raw {
    function: Function,
    general: PyOnceLock<Py<PyAny>>,
}

/// What the interpreter calls.
#[derive(Clone, Copy)]
pub enum Function {
    Call(ffi::PyCFunctionFastWithKeywords),
    Getter(ffi::getter),
    Constructor(Constructor),
}

/// What makes an object of a class, in the form that the interpreter calls without a tuple of arguments.
type Constructor = unsafe extern "C" fn(Object, *const Object, usize, Object) -> Object;

/// A call as the interpreter makes it.
#[derive(Clone, Copy)]
pub struct Call<'a, 'py> {
    pub py: Python<'py>,
    receiver: Object,
    /// Those by position, then those of the keywords.
    arguments: *const Object,
    /// How many there are by position.
    count: usize,
    /// The names of the keywords; null without any.
    keywords: Object,
    /// What all of these are borrowed from.
    caller: PhantomData<&'a Object>,
}

/// A keyword of methods here.
struct Keyword {
    text: &'static CStr,
    /// The one object that the interpreter has for it.
    name: AtomicPtr<ffi::PyObject>,
    /// A tuple of it alone, as a call had it: a place in a program gives the same one each time.
    alone: AtomicPtr<ffi::PyObject>,
}

static STREAM: Keyword = Keyword::new(c"stream");
static STREAM_PTR: Keyword = Keyword::new(c"stream_ptr");
static GRID: Keyword = Keyword::new(c"grid");
static BLOCK: Keyword = Keyword::new(c"block");

impl Keyword {
    const fn new(text: &'static CStr) -> Keyword {
        const NONE: *mut ffi::PyObject = std::ptr::null_mut();
        Keyword { text, name: AtomicPtr::new(NONE), alone: AtomicPtr::new(NONE) }
    }

    /// Asks the interpreter for the object, once.
    fn intern(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: [raw-call] a text that ends in NUL; the reference is kept for good.
        let interned = unsafe { ffi::PyUnicode_InternFromString(self.text.as_ptr()) };
        if interned.is_null() {
            return Err(PyErr::fetch(py));
        }
        self.name.store(interned, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the names of a call's keywords are this one alone.
    #[inline]
    fn is_alone(&self, names: Object) -> bool {
        !names.is_null() && (names == self.alone.load(Ordering::Relaxed) || self.is_alone_in(names))
    }

    #[cold]
    #[inline(never)]
    fn is_alone_in(&self, names: Object) -> bool {
        // SAFETY: [raw-call] a tuple.
        let is_alone = unsafe {
            ffi::PyTuple_Size(names) == 1 && ffi::PyTuple_GetItem(names, 0) == self.name.load(Ordering::Relaxed)
        };
        if is_alone {
            // SAFETY: [raw-call] kept, so that no other tuple gets its address; what was kept before is given back.
            unsafe {
                ffi::Py_IncRef(names);
                ffi::Py_DecRef(self.alone.swap(names, Ordering::Relaxed));
            }
        }
        is_alone
    }
}

impl<'a, 'py> Call<'a, 'py> {
    #[inline]
    fn borrowed(self, object: Object) -> Borrowed<'a, 'py, PyAny> {
        // SAFETY: [raw-call] the caller's own reference, which outlives the call.
        unsafe { Borrowed::from_ptr(self.py, object) }
    }

    /// The object whose method is called, of the class that has the method.
    #[inline]
    pub fn receiver<T: PyTypeInfo>(self) -> Borrowed<'a, 'py, T> {
        let receiver = self.borrowed(self.receiver);
        debug_assert!(receiver.is_instance_of::<T>(), "a method of another class");
        // SAFETY: [raw-call] the interpreter asks whether it is one before it calls a method.
        unsafe { receiver.cast_unchecked() }
    }

    /// So many of the arguments, from the first one on, of which there are as many.
    #[inline]
    fn first(self, many: usize) -> &'a [Object] {
        // SAFETY: [raw-call] there are as many; where there is none, there may be no place for them.
        if many == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.arguments, many) } }
    }

    /// Exactly so many arguments by position, and none by keyword.
    #[inline]
    pub fn plain<const N: usize>(self) -> Option<[Borrowed<'a, 'py, PyAny>; N]> {
        self.some_by_position().filter(|_arguments| self.count == N)
    }

    /// The first of the arguments by position, where none is by keyword.
    #[inline]
    fn some_by_position<const N: usize>(self) -> Option<[Borrowed<'a, 'py, PyAny>; N]> {
        if !self.keywords.is_null() || self.count < N {
            return None;
        }
        let arguments: &[Object; N] = self.first(N).try_into().ok()?;
        Some(arguments.map(|argument| self.borrowed(argument)))
    }

    /// The first of the arguments and the rest of them, none by keyword.
    #[inline]
    pub fn by_position<const N: usize>(
        self,
    ) -> Option<([Borrowed<'a, 'py, PyAny>; N], impl ExactSizeIterator<Item = Borrowed<'a, 'py, PyAny>> + Clone)> {
        let first = self.some_by_position()?;
        let rest = self.first(self.count).get(N..)?;
        Some((first, rest.iter().map(move |argument| self.borrowed(*argument))))
    }

    /// One argument by position, and by keyword `stream`, alone.
    #[inline]
    pub fn one_and_stream(self) -> Option<[Borrowed<'a, 'py, PyAny>; 2]> {
        self.one_and(&STREAM)
    }

    /// One argument by position, and a second one, by position or by keyword `stream_ptr`.
    #[inline]
    pub fn one_and_stream_ptr(self) -> Option<[Borrowed<'a, 'py, PyAny>; 2]> {
        self.plain().or_else(|| self.one_and(&STREAM_PTR))
    }

    /// Two arguments by keyword, `grid` and `block`, and no other.
    #[inline]
    pub fn grid_and_block(self) -> Option<[Borrowed<'a, 'py, PyAny>; 2]> {
        if self.count != 0 || self.named() != 2 {
            return None;
        }
        let arguments: &[Object; 2] = self.first(2).try_into().ok()?;
        // SAFETY: [raw-call] a tuple of two names.
        let names = [0, 1].map(|at| unsafe { ffi::PyTuple_GetItem(self.keywords, at) });
        let known = [&GRID, &BLOCK].map(|keyword| keyword.name.load(Ordering::Relaxed));
        let reversed = [known[1], known[0]];
        let [one, other] = arguments.map(|argument| self.borrowed(argument));
        match names {
            names if names == known => Some([one, other]),
            names if names == reversed => Some([other, one]),
            _ => None,
        }
    }

    #[inline]
    fn one_and(self, keyword: &Keyword) -> Option<[Borrowed<'a, 'py, PyAny>; 2]> {
        if self.count != 1 || !keyword.is_alone(self.keywords) {
            return None;
        }
        let arguments: &[Object; 2] = self.first(2).try_into().ok()?;
        Some(arguments.map(|argument| self.borrowed(argument)))
    }

    /// How many arguments are by keyword.
    #[inline]
    fn named(self) -> usize {
        // SAFETY: [raw-call] a tuple, where there is one.
        let named = if self.keywords.is_null() { 0 } else { unsafe { ffi::PyTuple_Size(self.keywords) } };
        named.cast_unsigned()
    }
}

impl Raw {
    pub const fn new(function: Function) -> Raw {
        Raw { function, general: PyOnceLock::new() }
    }

    /// Answers a call: by `common`, or where that says `None` by the function that PyO3 made.
    ///
    /// # Safety
    /// What the interpreter calls a function of the form `METH_FASTCALL | METH_KEYWORDS` with.
    #[inline]
    pub unsafe fn answer(
        &self,
        receiver: Object,
        arguments: *const Object,
        count: ffi::Py_ssize_t,
        keywords: Object,
        common: impl FnOnce(Call<'_, '_>) -> Option<Object>,
    ) -> Object {
        // SAFETY: [raw-call] the interpreter calls with the thread attached.
        let py = unsafe { Python::assume_attached() };
        let call = Call { py, receiver, arguments, count: count.cast_unsigned(), keywords, caller: PhantomData };
        let answered = catch_unwind(AssertUnwindSafe(|| common(call).unwrap_or_else(|| self.generally(call))));
        answered.unwrap_or_else(|panic| raise(|| panicked(panic.as_ref())))
    }

    #[cold]
    #[inline(never)]
    fn generally(&self, call: Call<'_, '_>) -> Object {
        // PyO3 has to know that the thread is attached.
        given(Python::attach(|py| self.call_general(py, call).map(Py::into_ptr)))
    }

    fn call_general(&self, py: Python<'_>, call: Call<'_, '_>) -> PyResult<Py<PyAny>> {
        let missing = || PyRuntimeError::new_err("internal inconsistency: a function without its general form");
        let general = self.general.get(py).ok_or_else(missing)?.bind(py);
        let named = call.named();
        let names = if named == 0 { None } else { Some(call.borrowed(call.keywords).cast::<PyTuple>()?) };
        let (by_position, by_name) = call.first(call.count + named).split_at(call.count);
        let receiver = (!call.receiver.is_null()).then(|| call.borrowed(call.receiver));
        let by_position = by_position.iter().map(|argument| call.borrowed(*argument));
        let arguments = PyTuple::new(py, receiver.into_iter().chain(by_position).collect::<Vec<_>>())?;
        let keywords = PyDict::new(py);
        if let Some(names) = names {
            for (name, argument) in names.iter().zip(by_name) {
                keywords.set_item(name, call.borrowed(*argument))?;
            }
        }
        Ok(general.call(arguments, Some(&keywords))?.unbind())
    }

    /// What the interpreter wants to know of it. It is never given back: functions are there as long as the process.
    fn definition(&'static self, general: &Bound<'_, PyAny>, name: &str) -> PyResult<*mut ffi::PyMethodDef> {
        let py = general.py();
        let signature: String = general.getattr("__text_signature__")?.extract()?;
        let doc: String = general.getattr("__doc__")?.extract()?;
        self.general.get_or_init(py, || general.clone().unbind());
        let Function::Call(function) = self.function else {
            return Err(PyRuntimeError::new_err("internal inconsistency: a getter is no method"));
        };
        for keyword in [&STREAM, &STREAM_PTR, &GRID, &BLOCK] {
            keyword.intern(py)?;
        }
        Ok(Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(name)?.into_raw(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: CString::new(format!("{name}{signature}\n--\n\n{doc}"))?.into_raw(),
        })))
    }

    /// Takes the place of a function of a module, once.
    pub fn replace_function(
        &'static self,
        module: &Bound<'_, PyModule>,
        general: &Bound<'_, PyCFunction>,
    ) -> PyResult<()> {
        let name: String = general.getattr("__name__")?.extract()?;
        let definition = self.definition(general.as_any(), &name)?;
        // SAFETY: [raw-call] the definition is never given back.
        let function = unsafe {
            let made = ffi::PyCFunction_NewEx(definition, std::ptr::null_mut(), module.name()?.as_ptr());
            Bound::from_owned_ptr_or_err(module.py(), made)?
        };
        module.add(&name, function)
    }

    /// Takes the place of a method of a class, once.
    pub fn replace_method(&'static self, class: &Bound<'_, PyType>, name: &str) -> PyResult<()> {
        let definition = self.definition(&class.getattr(name)?, name)?;
        // SAFETY: [raw-call] the definition is never given back.
        let method = unsafe {
            Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))?
        };
        class.setattr(name, method)
    }

    /// Takes the place of a class method of a class, once. Its receiver is the class that it is called on.
    pub fn replace_class_method(&'static self, class: &Bound<'_, PyType>, name: &str) -> PyResult<()> {
        // As the class has it: what looking it up would give knows its class already.
        let definition = self.definition(&class.getattr("__dict__")?.get_item(name)?, name)?;
        // SAFETY: [raw-call] the definition is never given back.
        let method = unsafe {
            Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewClassMethod(class.as_type_ptr(), definition))?
        };
        class.setattr(name, method)
    }

    /// Takes the place of what makes objects of a class, where the interpreter has one. The receiver is the class; its
    /// subclasses are made as ever.
    pub fn replace_constructor(&'static self, class: &Bound<'_, PyType>) -> PyResult<()> {
        let py = class.py();
        let Function::Constructor(function) = self.function else {
            return Err(PyRuntimeError::new_err("internal inconsistency: a method is no constructor"));
        };
        if let Some(place) = constructor_place(class) {
            // What types are called by, whichever it is.
            let general = py.get_type::<PyType>().getattr("__dict__")?.get_item("__call__")?;
            self.general.get_or_init(py, || general.unbind());
            // SAFETY: [raw-call] the class's own word, in a place that is known; nobody calls the class yet.
            unsafe { place.write(Some(function)) };
        }
        Ok(())
    }

    /// Takes the place of a property that is only read, once.
    pub fn replace_getter(&'static self, class: &Bound<'_, PyType>, name: &str) -> PyResult<()> {
        let py = class.py();
        let Function::Getter(function) = self.function else {
            return Err(PyRuntimeError::new_err("internal inconsistency: a method is no getter"));
        };
        let general = class.getattr(name)?;
        let doc: String = general.getattr("__doc__")?.extract()?;
        let get = general.getattr("__get__")?;
        self.general.get_or_init(py, || get.unbind());
        let definition = Box::leak(Box::new(ffi::PyGetSetDef {
            name: CString::new(name)?.into_raw(),
            get: Some(function),
            set: None,
            doc: CString::new(doc)?.into_raw(),
            closure: std::ptr::null_mut(),
        }));
        // SAFETY: [raw-call] the definition is never given back.
        let property =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewGetSet(class.as_type_ptr(), definition))? };
        class.setattr(name, property)
    }
}

/// Where a type has its constructor in the form [`Constructor`], which the stable interface names from Python 3.14 on
/// alone. `None` where types are not as they have been since Python 3.9, as far as the stable interface tells.
fn constructor_place(class: &Bound<'_, PyType>) -> Option<*mut Option<Constructor>> {
    const WORD: usize = size_of::<usize>();
    // The words of `PyTypeObject` that the stable interface tells: what they hold is held against that.
    const KNOWN: [(usize, i32); 7] = [
        (6, ffi::Py_tp_dealloc),
        (16, ffi::Py_tp_call),
        (25, ffi::Py_tp_richcompare),
        (37, ffi::Py_tp_init),
        (38, ffi::Py_tp_alloc),
        (39, ffi::Py_tp_new),
        (40, ffi::Py_tp_free),
    ];
    /// The word that says where instances have it; the instances of `type` are the types.
    const PLACE: usize = 7;
    let all = class.py().get_type::<PyType>();
    let (all, class) = (all.as_type_ptr(), class.as_type_ptr());
    // SAFETY: [raw-call] types are much larger than this.
    let word = |of: *mut ffi::PyTypeObject, at: usize| unsafe { of.cast::<usize>().add(at).read() };
    // SAFETY: [raw-call] attached, and these are types.
    let slot = |of: *mut ffi::PyTypeObject, slot: i32| unsafe { ffi::PyType_GetSlot(of, slot) }.addr();
    if !KNOWN.iter().all(|(at, kind)| [all, class].iter().all(|of| word(*of, *at) == slot(*of, *kind))) {
        return None;
    }
    let place = word(all, PLACE);
    // Behind all of these, the destructor, the version and the finalizer.
    let is_there = place % WORD == 0 && (48 * WORD..=52 * WORD).contains(&place) && word(class, place / WORD) == 0;
    // SAFETY: [raw-call] inside the type.
    is_there.then(|| unsafe { class.cast::<u8>().add(place) }.cast())
}

/// An object whose class is exactly this one, as an object of it. A cast that fails would make an error.
#[inline]
pub fn exact<'a, 'py, T: PyTypeInfo>(object: Borrowed<'a, 'py, PyAny>) -> Option<Borrowed<'a, 'py, T>> {
    // SAFETY: [exact-class] asked just now.
    object.is_exact_instance_of::<T>().then(|| unsafe { object.cast_unchecked() })
}

#[cold]
#[inline(never)]
fn raise(error: impl FnOnce() -> PyErr) -> Object {
    // Making the exception may need memory that the interpreter does not have.
    if catch_unwind(AssertUnwindSafe(|| Python::attach(|py| error().restore(py)))).is_err() {
        // SAFETY: [raw-call] attached; this needs no memory.
        unsafe { ffi::PyErr_NoMemory() };
    }
    std::ptr::null_mut()
}

/// What a function returns: a pointer alone. An error is larger than all the rest, which would be moved with it.
#[inline]
pub fn given(result: PyResult<Object>) -> Object {
    result.unwrap_or_else(|error| raise(|| error))
}

/// Whether the interpreter counts the references to `None` and to the bools, as it did before Python 3.12.
static COUNTS_CONSTANTS: AtomicBool = AtomicBool::new(true);

/// Asks what the functions here rely on, before there are any.
pub fn install(py: Python<'_>) {
    COUNTS_CONSTANTS.store(py.version_info() < (3, 12), Ordering::Relaxed);
}

/// A reference to `None` or a bool.
#[inline]
fn constant(object: Borrowed<'_, '_, PyAny>) -> Object {
    if COUNTS_CONSTANTS.load(Ordering::Relaxed) { object.to_owned().into_ptr() } else { object.as_ptr() }
}

/// What a function returns that returns nothing.
#[inline]
pub fn nothing(call: Call<'_, '_>, result: PyResult<()>) -> Object {
    given(result.map(|()| constant(PyNone::get(call.py).as_any().as_borrowed())))
}

/// What a function returns that makes an object of a class of ours.
#[inline]
pub fn object<V, T: Plain>(call: Call<'_, '_>, made: PyResult<V>, of: impl FnOnce(V) -> T) -> Object {
    given(made.and_then(|value| fresh::make(call.py, of(value)).map(Bound::into_ptr)))
}

/// What a function returns that returns a bool.
#[inline]
pub fn truth(call: Call<'_, '_>, result: PyResult<bool>) -> Object {
    given(result.map(|value| constant(PyBool::new(call.py, value).as_any().as_borrowed())))
}

/// A [`Raw`] function: `raw!(pub static CLOSE = |call| …)`, where the common form gives `Some`; of a property that is
/// read, `raw!(getter static IS_DONE = |call| …)`; of what makes objects of a class,
/// `raw!(constructor static NEW = |call| …)`.
macro_rules! raw {
    (constructor static $name:ident = |$call:ident| $common:expr) => {
        #[allow(unsafe_code)]
        static $name: crate::raw::Raw = {
            unsafe extern "C" fn function(
                class: *mut pyo3::ffi::PyObject,
                arguments: *const *mut pyo3::ffi::PyObject,
                count: usize,
                keywords: *mut pyo3::ffi::PyObject,
            ) -> *mut pyo3::ffi::PyObject {
                // The greatest bit says something else.
                let count = (count & (usize::MAX >> 1)).cast_signed();
                // SAFETY: [raw-call] this is what the interpreter calls.
                unsafe { $name.answer(class, arguments, count, keywords, |$call| $common) }
            }
            crate::raw::Raw::new(crate::raw::Function::Constructor(function))
        };
    };
    (getter static $name:ident = |$call:ident| $common:expr) => {
        #[allow(unsafe_code)]
        static $name: crate::raw::Raw = {
            unsafe extern "C" fn function(
                receiver: *mut pyo3::ffi::PyObject,
                _closure: *mut std::ffi::c_void,
            ) -> *mut pyo3::ffi::PyObject {
                // SAFETY: [raw-call] this is what the interpreter calls; there are no arguments.
                unsafe { $name.answer(receiver, std::ptr::null(), 0, std::ptr::null_mut(), |$call| $common) }
            }
            crate::raw::Raw::new(crate::raw::Function::Getter(function))
        };
    };
    ($visible:vis static $name:ident = |$call:ident| $common:expr) => {
        #[allow(unsafe_code)]
        $visible static $name: crate::raw::Raw = {
            unsafe extern "C" fn function(
                receiver: *mut pyo3::ffi::PyObject,
                arguments: *const *mut pyo3::ffi::PyObject,
                count: pyo3::ffi::Py_ssize_t,
                keywords: *mut pyo3::ffi::PyObject,
            ) -> *mut pyo3::ffi::PyObject {
                // SAFETY: [raw-call] this is what the interpreter calls.
                unsafe { $name.answer(receiver, arguments, count, keywords, |$call| $common) }
            }
            crate::raw::Raw::new(crate::raw::Function::Call(function))
        };
    };
}
pub(crate) use raw;
