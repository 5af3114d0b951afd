//! Python objects that a graph keeps: what its callbacks call, and what its launches were given.

use crate::error::{raised, run};
use crate::graph::callback;
use crate::kernel::Kernel;
use crate::late;
use crate::memory::Buffer;
use crate::report::python_is_usable;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{Borrowed, PyTraverseError};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// An object that is let go on whichever thread the graph ends, with the interpreter attached; never, once the
/// interpreter is ending.
pub struct Kept(ManuallyDrop<Option<Py<PyAny>>>);

impl Kept {
    pub fn new(object: Py<PyAny>) -> Kept {
        Kept(ManuallyDrop::new(Some(object)))
    }

    /// The object.
    pub fn get(&self) -> Option<&Py<PyAny>> {
        self.0.as_ref()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !python_is_usable() {
            return;
        }
        let mut object = self.0.take();
        if crate::report::attached(|py| object.take().into_iter().for_each(|object| late::drop_object(py, object)))
            .is_none()
        {
            // The interpreter is gone: what needs it is left to the process's end.
            let _leaked = ManuallyDrop::new(object);
        }
    }
}

/// A use of a buffer's memory: closing the buffer meanwhile does not give it back.
struct BufferUse(Kept);

impl Drop for BufferUse {
    fn drop(&mut self) {
        if !python_is_usable() {
            return;
        }
        // Where the interpreter is gone the memory is left to the process's end.
        let _attached = crate::report::attached(|py| {
            if let Some(buffer) = self.0.get().and_then(|object| object.bind(py).cast::<Buffer>().ok()) {
                buffer.get().leave();
            }
        });
    }
}

/// What a graph, a definition or a builder shows the collector: the objects that it keeps alone. `kept` is its
/// `see_kept`, called while nobody uses it.
pub fn traverse(
    visit: &PyVisit<'_>,
    kept: impl FnOnce(&mut dyn FnMut(&(dyn Any + Send + Sync))),
) -> Result<(), PyTraverseError> {
    let mut result = Ok(());
    kept(&mut |object| {
        let object = match object.downcast_ref::<BufferUse>() {
            Some(used) => Some(&used.0),
            None => object.downcast_ref::<Kept>().or_else(|| callback::kept(object)),
        };
        if result.is_ok()
            && let Some(object) = object.and_then(Kept::get)
        {
            result = visit.call(object);
        }
    });
    result
}

/// The collector's finalizer of a class whose objects hold what a graph keeps: it closes the object before anything of
/// the cycle is taken apart. So the functions of launches that are under way, which keep all of it, find it whole.
pub fn set_finalizer(class: &Bound<'_, PyType>) -> PyResult<()> {
    if !class.hasattr("_finalize")? {
        // The package is imported once more; the class is the same.
        return Ok(());
    }
    class.setattr("__del__", class.getattr("_finalize")?)?;
    class.delattr("_finalize")
}

/// Keeps what a launch was given as long as the graph that the stream is being captured into; whether it is.
pub fn launched<'a, 'py: 'a>(
    stream: &cuirass::Stream,
    kernel: &Bound<'py, Kernel>,
    arguments: impl Iterator<Item = Borrowed<'a, 'py, PyAny>>,
) -> PyResult<bool> {
    if !cuirass::graph::is_captured(stream) {
        return Ok(false);
    }
    // The Rust kernel keeps its own code.
    if kernel.get().is_foreign() {
        cuirass::graph::keep(stream, Arc::new(Kept::new(kernel.clone().into_any().unbind())));
    }
    for argument in arguments {
        if let Ok(buffer) = argument.cast::<Buffer>() {
            keep_buffer(stream, &buffer)?;
        }
    }
    Ok(true)
}

/// Keeps a buffer's memory as long as the graph that the stream is being captured into, if it is. Before the work is put
/// on the stream: a call that returns an error may have been made all the same, and is in the graph then.
#[inline]
pub fn buffer(stream: &cuirass::Stream, buffer: &Bound<'_, Buffer>) -> PyResult<()> {
    if cuirass::graph::is_captured(stream) { keep_buffer(stream, buffer) } else { Ok(()) }
}

/// Has a buffer's memory stay until a stream has passed what is on it now, for which it waits; while that is being captured
/// it does not wait. Where it cannot, the buffer is as it was.
pub fn until_done(stream: &cuirass::Stream, buffer: &Bound<'_, Buffer>) -> PyResult<()> {
    let py = buffer.py();
    buffer.get().enter_until_left()?;
    let used = BufferUse(Kept::new(buffer.clone().into_any().unbind()));
    run(py, || Ok(stream.let_go_behind(used)))?.map_err(|failed| {
        let (_used, error) = *failed;
        raised(py, error)
    })
}

fn keep_buffer(stream: &cuirass::Stream, buffer: &Bound<'_, Buffer>) -> PyResult<()> {
    if buffer.get().enter()?.keep_own(stream) || buffer.get().is_of_a_graph(buffer.py()) {
        return Ok(());
    }
    // What another object keeps alive, or takes back: the buffer itself is kept.
    buffer.get().enter_until_left()?;
    let used = BufferUse(Kept::new(buffer.clone().into_any().unbind()));
    cuirass::graph::keep(stream, Arc::new(used));
    Ok(())
}

/// Keeps an object as long as the graph that the stream is being captured into, if it is.
#[inline]
pub fn object(stream: &cuirass::Stream, object: &Bound<'_, PyAny>) {
    if cuirass::graph::is_captured(stream) {
        cuirass::graph::keep(stream, Arc::new(Kept::new(object.clone().unbind())));
    }
}
