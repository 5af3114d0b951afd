//! Which protocol an object has, and DLPack's in Python and in C.
#![allow(unsafe_code)]

use crate::error::run;
use crate::late;
use crate::number::{Refused, out_of_range, read};
use crate::stream;
use crate::view::cupy;
use crate::view::dlpack::{
    self, Borrow, CPU, CUDA, CUDA_HOST, CUDA_MANAGED, EXCHANGE_API, ExchangeApi, VERSION, refused,
};
use crate::view::export::pair;
use crate::view::import::{self, Seen, Taken};
use crate::view::numpy::{self, As};
use crate::view::parts::{Holds, Parts};
use cuirass_fault::lock::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyTuple, PyType};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What a class offers beside its methods.
#[derive(Clone, Copy)]
pub enum Offers {
    /// It is numpy's own.
    Array,
    /// DLPack's C interface.
    Api(&'static ExchangeApi, Borrowing),
    /// It is CuPy's own, whose attributes say what its methods do.
    Attributes,
    /// Nothing.
    Methods,
}

impl Offers {
    /// What reads a tensor without taking it, where nobody is to order anything.
    #[inline(always)]
    pub fn borrow(self, consumer: i64) -> Option<Borrow> {
        match self {
            Offers::Api(api, Borrowing::Allowed) if consumer == -1 => api.borrow,
            _ => None,
        }
    }
}

/// Whether a tensor may be read without taking it. That says nothing of whether it may be written to, so it is done with
/// those classes only all of whose tensors may.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Borrowing {
    Allowed,
    Refused,
}

struct Known {
    class: AtomicPtr<ffi::PyTypeObject>,
    api: AtomicPtr<ExchangeApi>,
    borrows: AtomicBool,
    attributes: AtomicBool,
}

/// The classes that were looked at. Filled from the front, and never emptied: a class in it is held for good.
static KNOWN: [Known; 32] = [const {
    Known {
        class: AtomicPtr::new(null_mut()),
        api: AtomicPtr::new(null_mut()),
        borrows: AtomicBool::new(false),
        attributes: AtomicBool::new(false),
    }
}; 32];
/// Held by who adds to it.
static ADDING: Mutex<()> = Mutex::new(());

/// What an object's class offers.
#[inline(always)]
pub fn offers(object: &Bound<'_, PyAny>) -> PyResult<Offers> {
    let class = object.get_type_ptr();
    if numpy::is_array(class) {
        return Ok(Offers::Array);
    }
    match find(class) {
        Some(known) => Ok(known),
        None => look(&object.get_type()),
    }
}

#[inline(always)]
fn find(class: *mut ffi::PyTypeObject) -> Option<Offers> {
    for known in &KNOWN {
        let found = known.class.load(Ordering::Acquire);
        if found == class {
            let api = known.api.load(Ordering::Relaxed);
            let borrowing = if known.borrows.load(Ordering::Relaxed) { Borrowing::Allowed } else { Borrowing::Refused };
            if known.attributes.load(Ordering::Relaxed) {
                return Some(Offers::Attributes);
            }
            // SAFETY: [exchange-api] DLPack wants it to live as long as the process.
            return Some(unsafe { api.as_ref() }.map_or(Offers::Methods, |api| Offers::Api(api, borrowing)));
        }
        if found.is_null() {
            return None;
        }
    }
    None
}

#[cold]
fn look(class: &Bound<'_, PyType>) -> PyResult<Offers> {
    let module: String = match class.getattr_opt(intern!(class.py(), "__module__"))? {
        Some(module) => module.extract().unwrap_or_default(),
        None => String::new(),
    };
    if module == "numpy" && class.name()? == "ndarray" {
        numpy::learn(class)?;
        if numpy::is_array(class.as_type_ptr()) {
            return Ok(Offers::Array);
        }
    }
    let api = exchange_api(class)?;
    let borrows = module == "torch" || module.starts_with("torch.");
    let attributes = api.is_none() && module == "cupy" && class.name()? == "ndarray" && cupy::is_array(class)?;
    remember(class, api, borrows, attributes);
    if attributes {
        return Ok(Offers::Attributes);
    }
    let borrowing = if borrows { Borrowing::Allowed } else { Borrowing::Refused };
    Ok(api.map_or(Offers::Methods, |api| Offers::Api(api, borrowing)))
}

fn remember(class: &Bound<'_, PyType>, api: Option<&'static ExchangeApi>, borrows: bool, attributes: bool) {
    let _adding = ADDING.lock();
    if find(class.as_type_ptr()).is_none()
        && let Some(free) = KNOWN.iter().find(|known| known.class.load(Ordering::Relaxed).is_null())
    {
        free.api.store(api.map_or(null(), std::ptr::from_ref).cast_mut(), Ordering::Relaxed);
        free.borrows.store(borrows, Ordering::Relaxed);
        free.attributes.store(attributes, Ordering::Relaxed);
        // The reference is kept for good, so that no other class gets the address.
        free.class.store(class.clone().into_ptr().cast(), Ordering::Release);
    }
}

/// The C interface that a class has, in a version that is known here. One that is not as DLPack says is none: the
/// methods say what is wrong.
fn exchange_api(class: &Bound<'_, PyType>) -> PyResult<Option<&'static ExchangeApi>> {
    let py = class.py();
    let mut found = class.getattr_opt(intern!(py, "__dlpack_c_exchange_api__"))?;
    if found.is_none() {
        found = class.getattr_opt(intern!(py, "__c_dlpack_exchange_api__"))?;
    }
    let Some(capsule) = found else { return Ok(None) };
    // SAFETY: [capsule] attached; any object may be asked.
    let mut api = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), EXCHANGE_API.as_ptr()) == 0 {
            return Ok(None);
        }
        ffi::PyCapsule_GetPointer(capsule.as_ptr(), EXCHANGE_API.as_ptr()).cast_const().cast::<ExchangeApi>()
    };
    // SAFETY: [exchange-api] a capsule of this name has one, with older ones behind it, all for good.
    while let Some(offered) = unsafe { api.as_ref() } {
        if offered.version.major == VERSION.major {
            return Ok(offered.export.is_some().then_some(offered));
        }
        api = offered.previous;
    }
    Ok(None)
}

/// -1, of which the interpreter has one object: an int that it is converts without a call.
static NOBODY: PyOnceLock<Py<PyInt>> = PyOnceLock::new();

/// The stream that a view will be used on; -1 where nobody is to order anything.
#[inline(always)]
pub fn consumer(stream_ptr: Option<&Bound<'_, PyAny>>) -> PyResult<i64> {
    let Some(stream) = stream_ptr else {
        return Err(refused(
            "stream_ptr=None is ambiguous: give the consumer's stream (a Stream or its handle), or -1 for no ordering",
        ));
    };
    let py = stream.py();
    if stream.is(NOBODY.get_or_init(py, || PyInt::new(py, -1).unbind())) {
        return Ok(-1);
    }
    read_consumer(stream)
}

#[inline(never)]
fn read_consumer(stream: &Bound<'_, PyAny>) -> PyResult<i64> {
    let number = match read(stream.as_borrowed()) {
        Ok(number) => number,
        Err(Refused::Kind(_)) => {
            let handle = handle_of(stream)?;
            i64::try_from(handle).map_err(|_range| out_of_range("stream_ptr", &-1, &i64::MAX, &handle.to_string()))?
        }
        Err(refused) => return Err(refused.error_of("stream_ptr", "a stream", &-1, &i64::MAX)),
    };
    if number < -1 {
        return Err(PyValueError::new_err(format!("stream_ptr={number} is no stream")));
    }
    Ok(number)
}

/// The handle of a stream that is no int: of one with `__cuda_stream__`, else what converts to one.
#[cold]
fn handle_of(stream: &Bound<'_, PyAny>) -> PyResult<u64> {
    if stream.hasattr(intern!(stream.py(), "__cuda_stream__"))? {
        return Ok(stream::argument(stream)?.as_raw().addr() as u64);
    }
    crate::handle::take(stream, "stream_ptr")
}

/// Has the consumer's stream wait for what is on the producer's now, unless they are the same.
pub fn order(py: Python<'_>, device: i32, producer: u64, consumer: i64) -> PyResult<()> {
    let Ok(consumer) = u64::try_from(consumer) else { return Ok(()) };
    // 0 and 1 are the legacy default stream.
    if producer.max(1) == consumer.max(1) {
        return Ok(());
    }
    crate::sim::prepare(py)?;
    let (producer, consumer) = (stream::borrowed(producer), stream::borrowed(consumer));
    run(py, || consumer.wait_for_stream_of(&producer, cuirass::Device::new(device)?))
}

/// The view of an object with `__dlpack__`.
pub fn from_dlpack(object: &Bound<'_, PyAny>, consumer: i64) -> PyResult<Parts> {
    from_offers(object, offers(object)?, consumer)
}

/// The same of an object whose class has been looked at.
#[inline(always)]
pub fn from_offers(object: &Bound<'_, PyAny>, offers: Offers, consumer: i64) -> PyResult<Parts> {
    match offers {
        Offers::Array => match numpy::read(object, As::DlPack)? {
            Some(parts) => Ok(parts),
            None => by_methods(object, consumer),
        },
        Offers::Api(api, borrowing) => by_api(object, api, borrowing, consumer),
        Offers::Attributes if consumer == -1 => match cupy::read(object)? {
            Some(parts) => Ok(parts),
            None => by_methods(object, consumer),
        },
        Offers::Attributes | Offers::Methods => by_methods(object, consumer),
    }
}

/// The view of an object, by the C interface of its class.
#[inline(always)]
fn by_api(object: &Bound<'_, PyAny>, api: &ExchangeApi, borrowing: Borrowing, consumer: i64) -> PyResult<Parts> {
    let py = object.py();
    let exporter = || Some(object.clone().unbind());
    let parts = match (borrowing, api.borrow, api.export) {
        (Borrowing::Allowed, Some(borrow), _) => {
            borrowed(object, borrow, |seen| Ok(seen.into_parts(exporter(), Holds::Nothing)))?
        }
        (_, _, Some(export)) => {
            let mut tensor = null_mut();
            // SAFETY: [exchange-api] as above.
            if unsafe { export(object.as_ptr(), &raw mut tensor) } != 0 {
                return Err(raised(py));
            }
            let Some(tensor) = NonNull::new(tensor) else { return Err(raised(py)) };
            Taken::Versioned(tensor).into_parts(exporter())?
        }
        (_, _, None) => return by_methods(object, consumer),
    };
    if consumer >= 0
        && parts.device.kind != CPU
        && let Some(current_stream) = api.current_stream
    {
        let mut producer = null_mut();
        // SAFETY: [exchange-api] as above.
        if unsafe { current_stream(parts.device.kind, parts.device.id, &raw mut producer) } != 0 {
            return Err(raised(py));
        }
        order(py, parts.device.id, producer.addr() as u64, consumer)?;
    }
    Ok(parts)
}

/// What is made of a tensor, whose shape and strides are there meanwhile, if nobody changes the object.
#[inline(always)]
pub fn borrowed<R>(
    object: &Bound<'_, PyAny>,
    borrow: Borrow,
    make: impl FnOnce(Seen<'_>) -> PyResult<R>,
) -> PyResult<R> {
    let mut tensor = MaybeUninit::<dlpack::Tensor>::uninit();
    // SAFETY: [exchange-api] attached, with an object of the class; what it fills in is read at once.
    let seen = unsafe {
        if borrow(object.as_ptr(), tensor.as_mut_ptr()) != 0 {
            return Err(raised(object.py()));
        }
        import::describe(tensor.assume_init_ref(), 0)?
    };
    make(seen)
}

/// What a function of an interface has raised.
#[cold]
fn raised(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| refused("the exporter's __dlpack_c_exchange_api__ failed, and does not say why"))
}

/// The newest version that a producer may use.
static NEWEST: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();

/// The view of an object, by its methods.
#[inline(never)]
pub fn by_methods(object: &Bound<'_, PyAny>, consumer: i64) -> PyResult<Parts> {
    let py = object.py();
    let device = late::call0(&super::interface::needed(object, intern!(py, "__dlpack_device__"))?)?;
    // The kind is an enum of some libraries, which converts to an int.
    let (kind, id) = pair(&device, "what __dlpack_device__() returns")?;
    if !matches!(kind, CPU | CUDA | CUDA_HOST | CUDA_MANAGED) {
        let message = format!("memory of DLPack's device type {kind} is neither the host's nor CUDA's (device {id})");
        return Err(refused(message));
    }
    let keywords = PyDict::new(py);
    // The host has no streams. 0 is ambiguous to a producer; None is the legacy default stream.
    if kind != CPU && consumer != 0 {
        keywords.set_item(intern!(py, "stream"), consumer)?;
    } else {
        keywords.set_item(intern!(py, "stream"), py.None())?;
    }
    let version = NEWEST.get_or_try_init(py, || (VERSION.major, VERSION.minor).into_pyobject(py).map(Bound::unbind))?;
    keywords.set_item(intern!(py, "max_version"), version)?;
    let method = super::interface::needed(object, intern!(py, "__dlpack__"))?;
    let capsule = match late::call(&method, &PyTuple::empty(py), Some(&keywords)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            // A producer from before version 1.0.
            keywords.del_item(intern!(py, "max_version"))?;
            late::call(&method, &PyTuple::empty(py), Some(&keywords)).inspect_err(|second| {
                second.set_context(py, Some(error));
            })?
        }
        result => result?,
    };
    import::take(&capsule)?.into_parts(Some(object.clone().unbind()))
}
