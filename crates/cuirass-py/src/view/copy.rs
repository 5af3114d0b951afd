//! Copies between views.
#![allow(unsafe_code)]

use crate::error::{ask, leave, notes_of, run};
use crate::graph::keep;
use crate::memory::Buffer;
use crate::memory::resource::{allocate, is_resource};
use crate::stream;
use crate::view::dlpack::CPU;
use crate::view::dtype::{self, Dtype};
use crate::view::parts::Parts;
use crate::view::strided::StridedMemoryView;
use cuirass::view::{Strided, StridedCopy};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;

/// Copies all elements of one view into another.
pub fn copy(
    to: &Bound<'_, StridedMemoryView>,
    from: &Bound<'_, StridedMemoryView>,
    stream: &Bound<'_, PyAny>,
    allocator: Option<&Bound<'_, PyAny>>,
    blocking: Option<bool>,
) -> PyResult<()> {
    let py = to.py();
    let (target, source) = (to.get().laid_out()?, from.get().laid_out()?);
    if target.readonly {
        return Err(PyValueError::new_err("the target is read-only"));
    }
    check_types(py, target, source)?;
    if let Some(allocator) = allocator.filter(|allocator| !is_resource(allocator)) {
        let kind = allocator.get_type().name()?;
        return Err(PyTypeError::new_err(format!("allocator must be a MemoryResource, not {kind}")));
    }
    let queue = stream::argument(stream)?;
    let blocking = blocking.unwrap_or(target.device.kind == CPU || source.device.kind == CPU);
    let (target, source) = (strided(py, target)?, strided(py, source)?);
    let plan = run(py, || StridedCopy::new(&target, &source))?;
    let staging = match allocator {
        // On a stream that is being captured it is refused below: nothing is allocated for it, which might spoil that.
        Some(allocator)
            if plan.staging() > 0 && run(py, || queue.capture_status())? == cuirass::CaptureStatus::None =>
        {
            Some(Staging::new(py, &plan, allocator, stream)?)
        }
        _ => None,
    };
    // Beforehand: a call that returns an error may have been made all the same, and is in the graph then.
    keep::object(&queue, to.as_any());
    keep::object(&queue, from.as_any());
    let address = staging.as_ref().map(|staging| staging.address);
    // SAFETY: [strided-views] both views are held; so is the staging buffer.
    let submitted = run(py, || unsafe { plan.submit(&queue, address, blocking) });
    match staging {
        Some(staging) => staging.give_back(py, &queue, submitted),
        None => submitted,
    }
}

fn strided(py: Python<'_>, parts: &Parts) -> PyResult<Strided> {
    let layout = ask(py, || parts.layout())?;
    Ok(Strided { address: parts.pointer, layout, is_host: parts.device.kind == CPU })
}

/// A copy converts nothing: types that are known must be the same.
fn check_types(py: Python<'_>, to: &Parts, from: &Parts) -> PyResult<()> {
    let same = match (&to.dtype, &from.dtype) {
        (Dtype::Unknown, _) | (_, Dtype::Unknown) => true,
        (Dtype::Object(to, None), Dtype::Object(from, None)) => to.bind(py).eq(from)?,
        (Dtype::Object(to, None), Dtype::Code(code) | Dtype::Object(_, Some(code))) => {
            dtype::code_of_object(to.bind(py))? == Some(*code)
        }
        (Dtype::Code(code) | Dtype::Object(_, Some(code)), Dtype::Object(from, None)) => {
            dtype::code_of_object(from.bind(py))? == Some(*code)
        }
        (Dtype::Code(to) | Dtype::Object(_, Some(to)), Dtype::Code(from) | Dtype::Object(_, Some(from))) => to == from,
    };
    if same {
        return Ok(());
    }
    let name = |parts: &Parts| -> PyResult<String> {
        match &parts.dtype {
            Dtype::Object(object, _) => Ok(object.bind(py).str()?.to_string()),
            Dtype::Code(code) => Ok(dtype::name_of_code(*code)),
            Dtype::Unknown => Ok("unknown".to_owned()),
        }
    };
    let message = format!(
        "the source's type is {}, the target's {}: a copy converts nothing; view() gives the same bytes another type",
        name(from)?,
        name(to)?
    );
    Err(PyValueError::new_err(message))
}

/// Host memory of a user's resource, for the time of a copy.
struct Staging<'py> {
    buffer: Bound<'py, Buffer>,
    address: u64,
}

impl<'py> Staging<'py> {
    fn new(
        py: Python<'py>,
        plan: &StridedCopy,
        allocator: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Staging<'py>> {
        let made = allocate(py, allocator, plan.staging().into_pyobject(py)?.as_any(), stream)?;
        let Ok(buffer) = made.cast_into::<Buffer>() else {
            return Err(PyTypeError::new_err("the allocator must return a Buffer"));
        };
        let is_host: bool = buffer.getattr("is_host_accessible")?.extract()?;
        if !is_host || buffer.get().range().1 < plan.staging() {
            let message = "the allocator must return host memory of the size that it was asked for: the host rearranges \
                           the elements there";
            let error = PyValueError::new_err(message);
            let closed = buffer.call_method0("close").map(|_none| ());
            leave(py, error.value(py), "its buffer was not released", closed)?;
            return Err(error);
        }
        let address = buffer.get().range().0;
        Ok(Staging { buffer, address })
    }

    /// Gives it back, unless it is not certain that the copy is done with it.
    fn give_back(self, py: Python<'py>, stream: &cuirass::Stream, copied: PyResult<()>) -> PyResult<()> {
        let Err(error) = copied else { return self.buffer.call_method0("close").map(|_none| ()) };
        let note = match run(py, || stream.synchronize()) {
            Ok(()) => match self.buffer.call_method0("close") {
                Ok(_none) => None,
                Err(closing) => {
                    let told = notes_of(py, &closing);
                    Some(format!("the staging buffer was not released ({}{told})", closing.value(py)))
                }
            },
            Err(waiting) => {
                let address = self.address;
                let _leaked = ManuallyDrop::new(self.buffer);
                Some(format!(
                    "the staging buffer {address:#x} is leaked, since it is not certain that the copy is done ({}{})",
                    waiting.value(py),
                    notes_of(py, &waiting)
                ))
            }
        };
        if let Some(note) = note {
            error.value(py).call_method1("add_note", (note,))?;
        }
        Err(error)
    }
}
