//! `GraphBuilder`: a stream that is being captured.

use crate::error::{close, closed, leave, run};
use crate::graph::callback;
use crate::graph::condition::{self, GraphCondition};
use crate::graph::definition::GraphDefinition;
use crate::graph::exec::Graph;
use crate::graph::keep;
use crate::graph::options;
use crate::number::Number;
use crate::raw::{given, nothing, object, raw};
use crate::report::python_is_usable;
use crate::slot::{Closed, Detached, Share, Slot, Use, drop_detached};
use crate::stream::Stream;
use cuirass::graph::{CaptureMode, GraphBuilder as Builder, GraphCompleteOptions};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::convert::identity;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

impl Share for Builder {
    fn drop_share(self) {
        if python_is_usable() {
            drop_detached(self);
        } else {
            // The process is ending, and with it a capture that is still going on: that is no news.
            let _left = ManuallyDrop::new(self);
        }
    }
}

/// Captures work into a graph.
///
/// ``Device.create_graph_builder()`` and ``Stream.create_graph_builder()`` make it. Between ``begin_building()`` and
/// ``end_building()`` it is given wherever a stream is: what is put on it becomes part of the graph. Before and after
/// that, and on the builder of a body that has not begun, it is its stream: work runs at once, and is in no graph. Memory
/// of the graph comes from a ``GraphMemoryResource``. Leaving a ``with`` block closes it.
#[pyclass(frozen, weakref, subclass, module = "cuirass.graph", name = "GraphBuilder")]
pub struct GraphBuilder {
    slot: Slot<Builder>,
    is_join_required: bool,
}

impl GraphBuilder {
    pub fn of(builder: Builder) -> GraphBuilder {
        let is_join_required = builder.is_join_required();
        GraphBuilder { slot: Slot::new(builder), is_join_required }
    }

    /// A use of the builder: of its stream, for a call that is given the builder.
    #[inline]
    pub fn enter(&self) -> PyResult<Use<'_, Builder>> {
        self.slot.enter().ok_or_else(|| closed("graph builder"))
    }

    /// The graph that it has built.
    pub fn definition(&self, py: Python<'_>) -> PyResult<cuirass::graph::GraphDefinition> {
        let builder = self.enter()?;
        run(py, || builder.definition())
    }

    fn begin(&self, py: Python<'_>, mode: CaptureMode) -> PyResult<()> {
        let builder = self.enter()?;
        run(py, || builder.begin_building(mode))
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let builder = self.enter()?;
        run(py, || builder.end_building())
    }

    fn all(builders: Vec<Builder>, py: Python<'_>) -> PyResult<Vec<Bound<'_, GraphBuilder>>> {
        builders.into_iter().map(|builder| Bound::new(py, GraphBuilder::of(builder))).collect()
    }
}

#[pymethods]
impl GraphBuilder {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<GraphBuilder> {
        Err(PyNotImplementedError::new_err(
            "GraphBuilder objects are not made by calling the class; use Device.create_graph_builder() or \
             Stream.create_graph_builder()",
        ))
    }

    /// Gives everything up: a capture in progress is ended and what it captured is lost.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     The driver's error when the capture was invalidated: no graph is left, and the stream is usable again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.slot.close() {
            Closed::Taken(builder) => close(py, || builder.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    fn __enter__(slf: Py<GraphBuilder>) -> Py<GraphBuilder> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_val, exc_tb))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_val: &Bound<'_, PyAny>,
        exc_tb: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _unused = (exc_type, exc_tb);
        leave(py, exc_val, "the capture ended with an error after this failure", self.close(py))
    }

    /// The stream that it captures.
    #[getter]
    fn stream(&self) -> PyResult<Stream> {
        Ok(Stream::of(self.enter()?.stream().clone()))
    }

    /// Whether it is a fork, which has to be joined.
    #[getter]
    fn is_join_required(&self) -> bool {
        self.is_join_required
    }

    /// The graph, once building has ended; of a conditional body also before building begins. It outlives the builder.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     Otherwise.
    #[getter]
    fn graph_definition(&self, py: Python<'_>) -> PyResult<GraphDefinition> {
        Ok(GraphDefinition::of(self.definition(py)?))
    }

    /// Starts the capture (``cuStreamBeginCapture``).
    ///
    /// Parameters
    /// ----------
    /// mode : str, optional
    ///     Which calls the capture forbids while it goes on: ``"global"``: potentially unsafe ones, on every thread;
    ///     ``"thread_local"``: those on the capturing thread; ``"relaxed"``: none of these.
    ///
    /// Returns
    /// -------
    /// GraphBuilder
    ///     This builder.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If there is no such mode.
    /// RuntimeError
    ///     If it is building, or has ended.
    /// CUDAError
    ///     What the driver answers, for a stream that is being captured already for instance. The stream is then as it
    ///     was.
    #[pyo3(signature = (mode=Some("relaxed")), text_signature = "($self, mode='relaxed')")]
    fn begin_building(slf: Py<GraphBuilder>, py: Python<'_>, mode: Option<&str>) -> PyResult<Py<GraphBuilder>> {
        slf.get().begin(py, options::mode(mode)?)?;
        Ok(slf)
    }

    /// Whether a capture is in progress, as the driver says (``cuStreamIsCapturing``).
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the capture has been invalidated and has to be ended; if the builder is closed.
    /// CUDAError
    ///     What the driver answers.
    #[getter]
    fn is_building(&self, py: Python<'_>) -> PyResult<bool> {
        let builder = self.enter()?;
        run(py, || builder.is_building())
    }

    /// Ends the capture (``cuStreamEndCapture``).
    ///
    /// Returns
    /// -------
    /// GraphBuilder
    ///     This builder.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     The driver's error when the capture was invalidated or a fork was not joined: the capture is over then, no
    ///     graph is left, and the stream is usable again.
    /// RuntimeError
    ///     On a fork, and from another thread than the one that began a capture that is not relaxed; the capture goes
    ///     on.
    fn end_building(slf: Py<GraphBuilder>, py: Python<'_>) -> PyResult<Py<GraphBuilder>> {
        slf.get().end(py)?;
        Ok(slf)
    }

    /// Makes the graph executable (``cuGraphInstantiate``).
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     Before building has ended.
    /// CUDAError
    ///     What the driver answers, with its reason.
    #[pyo3(signature = (options=None))]
    fn complete(&self, py: Python<'_>, options: Option<&Bound<'_, PyAny>>) -> PyResult<Graph> {
        let builder = self.enter()?;
        let Some(options) = options else {
            return Ok(Graph::of(run(py, || builder.complete(&GraphCompleteOptions::default()))?));
        };
        // It may have the last share of a stream.
        let options = Detached::new(options::complete(Some(options))?);
        Ok(Graph::of(run(py, || builder.complete(&options))?))
    }

    /// Writes the driver's own picture of the graph to a file, in the DOT language (``cuGraphDebugDotPrint``).
    /// ``to_dot()`` and ``to_svg()`` of the executable graph and of ``graph_definition`` have the names of kernels, and the
    /// bodies of conditional nodes.
    ///
    /// Parameters
    /// ----------
    /// path : str or path-like
    ///     The file; its folder has to be there.
    /// options : GraphDebugPrintOptions, optional
    ///     What it shows.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     Before building has ended.
    /// CUDAError
    ///     What the driver answers, where the file cannot be written for instance.
    #[pyo3(signature = (path, options=None))]
    fn debug_dot_print(&self, py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (builder, options) = (self.enter()?, options::print(options)?);
        run(py, || builder.debug_dot_print(&path, options))
    }

    /// Splits the capture into ``count`` branches that run in parallel.
    ///
    /// Parameters
    /// ----------
    /// count : int
    ///     How many, two at least.
    ///
    /// Returns
    /// -------
    /// tuple of GraphBuilder
    ///     This builder, and ``count - 1`` new ones that have to be joined.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For fewer than two.
    /// RuntimeError
    ///     If it is not building.
    /// CUDAError
    ///     What the driver answers.
    fn split<'py>(
        slf: &Bound<'py, GraphBuilder>,
        py: Python<'py>,
        count: Number<isize>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let count = count.named("count")?;
        let count = usize::try_from(count).map_err(|_negative| {
            PyValueError::new_err(format!("a capture is split into at least 2 branches, not {count}"))
        })?;
        let builder = slf.get().enter()?;
        let forks = run(py, || builder.split(count))?;
        let mut all = vec![slf.clone()];
        all.extend(GraphBuilder::all(forks, py)?);
        PyTuple::new(py, all)
    }

    /// Joins branches of a capture: what comes later on the first that is no fork waits for the others, which are
    /// closed.
    ///
    /// Returns
    /// -------
    /// GraphBuilder
    ///     The one that the others were joined to.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For fewer than two, and for one that is given twice.
    /// RuntimeError
    ///     If they are no branches of one capture; nothing is joined.
    /// CUDAError
    ///     What the driver answers. The forks that were not joined are then closed, and the capture cannot be completed.
    #[staticmethod]
    #[pyo3(signature = (*graph_builders))]
    fn join<'py>(py: Python<'py>, graph_builders: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, GraphBuilder>> {
        let mut builders = Vec::new();
        for object in graph_builders.iter() {
            match object.cast_into::<GraphBuilder>() {
                Ok(builder) => builders.push(builder),
                Err(other) => {
                    let kind = other.into_inner().get_type().name()?;
                    return Err(PyTypeError::new_err(format!("only graph builders are joined, not {kind}")));
                }
            }
        }
        if builders.len() < 2 {
            return Err(PyValueError::new_err("at least two graph builders are joined"));
        }
        let at = builders.iter().position(|builder| !builder.get().is_join_required).unwrap_or(0);
        let root = builders.remove(at);
        let builder = root.get().enter()?;
        for (at, fork) in builders.iter().enumerate() {
            let twice = builders.iter().take(at).any(|other| other.is(fork)) || root.is(fork);
            if twice {
                return Err(PyValueError::new_err("a graph builder is joined once"));
            }
            let fork = fork.get().enter()?;
            run(py, || builder.check_joinable(&fork))?;
        }
        let mut forks = Vec::new();
        for fork in &builders {
            match fork.get().slot.close() {
                Closed::Taken(fork) => forks.push(fork),
                // It ends with its last user, who gives the fork up; the end of the capture says so.
                Closed::InUse | Closed::Before => {
                    drop_detached(forks);
                    return Err(PyRuntimeError::new_err("another thread is using a graph builder that is joined"));
                }
            }
        }
        run(py, || builder.join(forks))?;
        drop(builder);
        Ok(root)
    }

    /// The stream for other libraries: the protocol's version, 0, and the handle as a number.
    fn __cuda_stream__(&self) -> PyResult<(u32, u64)> {
        Ok((0, self.enter()?.stream().as_raw().addr() as u64))
    }

    /// A condition of the graph (``cuGraphConditionalHandleCreate``).
    ///
    /// Parameters
    /// ----------
    /// default_value : int, optional
    ///     What it is at the start of every launch; without it, what it was.
    ///
    /// Returns
    /// -------
    /// GraphCondition
    ///     The condition: for one conditional node, and an argument of the kernels that set it.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If it is not building.
    /// CUDAError
    ///     What the driver answers; it has to be of CUDA 12.3.
    #[pyo3(signature = (default_value=None))]
    fn create_condition(&self, py: Python<'_>, default_value: Option<Number<u32>>) -> PyResult<GraphCondition> {
        let default_value = default_value.map(|value| value.named("default_value")).transpose()?;
        let builder = self.enter()?;
        Ok(GraphCondition(run(py, || builder.create_condition(default_value))?))
    }

    /// A node whose body runs if the condition is not 0.
    ///
    /// Parameters
    /// ----------
    /// condition : GraphCondition
    ///     What ``create_condition()`` of this builder gave; each node needs one of its own.
    ///
    /// Returns
    /// -------
    /// GraphBuilder
    ///     The builder of the body. It begins (``begin_building()``) and ends like any other one, before this one ends.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If this one is not building.
    /// CUDAError
    ///     What the driver answers; it has to be of CUDA 12.3. The same is raised for the other conditional nodes.
    fn if_then(&self, py: Python<'_>, condition: &Bound<'_, PyAny>) -> PyResult<GraphBuilder> {
        let (builder, condition) = (self.enter()?, condition::argument(condition)?);
        Ok(GraphBuilder::of(run(py, || builder.if_then(&condition))?))
    }

    /// A node whose first body runs if the condition is not 0, and whose second one if it is. CUDA 12.8 or newer.
    ///
    /// Parameters
    /// ----------
    /// condition : GraphCondition
    ///     As of ``if_then()``.
    ///
    /// Returns
    /// -------
    /// tuple of GraphBuilder
    ///     The builders of the two bodies, as of ``if_then()``.
    fn if_else<'py>(&self, py: Python<'py>, condition: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let (builder, condition) = (self.enter()?, condition::argument(condition)?);
        let (then, otherwise) = run(py, || builder.if_else(&condition))?;
        PyTuple::new(py, GraphBuilder::all(vec![then, otherwise], py)?)
    }

    /// A node of which the body runs whose number, from 0, the condition is; none for a larger one. CUDA 12.8 or newer.
    ///
    /// Parameters
    /// ----------
    /// condition : GraphCondition
    ///     As of ``if_then()``.
    /// count : int
    ///     How many bodies.
    ///
    /// Returns
    /// -------
    /// tuple of GraphBuilder
    ///     The builders of the ``count`` bodies, as of ``if_then()``.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If ``count`` is not from 1 to 65536. What else is raised, ``if_then()`` says.
    fn switch<'py>(
        &self,
        py: Python<'py>,
        condition: &Bound<'py, PyAny>,
        count: Number<isize>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let count = count.named("count")?;
        let count = usize::try_from(count).map_err(|_negative| {
            PyValueError::new_err(format!("a conditional node has from 1 to 65536 bodies, not {count}"))
        })?;
        let (builder, condition) = (self.enter()?, condition::argument(condition)?);
        PyTuple::new(py, GraphBuilder::all(run(py, || builder.switch(&condition, count))?, py)?)
    }

    /// A node whose body runs again and again while the condition is not 0.
    ///
    /// Parameters
    /// ----------
    /// condition : GraphCondition
    ///     As of ``if_then()``.
    ///
    /// Returns
    /// -------
    /// GraphBuilder
    ///     The builder of the body, as of ``if_then()``.
    fn while_loop(&self, py: Python<'_>, condition: &Bound<'_, PyAny>) -> PyResult<GraphBuilder> {
        let (builder, condition) = (self.enter()?, condition::argument(condition)?);
        Ok(GraphBuilder::of(run(py, || builder.while_loop(&condition))?))
    }

    /// Adds another builder's graph as one node (``cuGraphAddChildGraphNode``). The child may be closed afterwards.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If this one is not building, or the child has not ended.
    /// CUDAError
    ///     What the driver answers.
    fn embed(&self, py: Python<'_>, child: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(child) = child.cast::<GraphBuilder>() else {
            let kind = child.get_type().name()?;
            return Err(PyTypeError::new_err(format!("child must be a GraphBuilder, not {kind}")));
        };
        let (builder, child) = (self.enter()?, child.get().enter()?);
        run(py, || builder.embed(&child))
    }

    /// Calls a function on the host each time the graph runs, once what comes before it is done; what comes later waits
    /// for it. It must make no CUDA call. An exception in it is reported.
    ///
    /// Parameters
    /// ----------
    /// fn : callable or ctypes function
    ///     A Python function without parameters, or a C function ``void (*)(void *)``. The graph keeps it.
    /// user_data : int or bytes-like, optional
    ///     For a C function: an address, or bytes that are copied, and of which it gets the address.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     If ``fn`` is not callable, or a C function of another prototype.
    /// RuntimeError
    ///     If it is not building, and in the body of a conditional node.
    /// CUDAError
    ///     What the driver answers.
    ///
    /// Notes
    /// -----
    /// A function may refer to the graph itself, as a method of an object that has the graph does: both are collected
    /// together. The collector sees that only where one object has the graph: where a builder, or a ``graph_definition``,
    /// is kept beside the ``Graph``, the cycle stays until all but one of them are closed. A weak reference in the
    /// function (``weakref.WeakMethod``) makes no cycle.
    #[pyo3(signature = (r#fn, *, user_data=None))]
    fn callback(&self, py: Python<'_>, r#fn: &Bound<'_, PyAny>, user_data: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let builder = self.enter()?;
        callback::add(py, &builder, r#fn, user_data)
    }

    /// What the collector calls before it takes a cycle apart.
    fn _finalize(&self) {
        self.slot.close_and_drop();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.slot.enter_alone() {
            Some(builder) => keep::traverse(&visit, |see| builder.see_kept(see)),
            None => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        match self.slot.enter() {
            Some(builder) => format!("<GraphBuilder stream={:#x}>", builder.stream().as_raw().addr()),
            None => "<GraphBuilder closed>".to_owned(),
        }
    }
}

raw!(static BEGIN_BUILDING = |call| {
    let ([], builder) = (call.plain()?, call.receiver::<GraphBuilder>());
    Some(given(builder.get().begin(call.py, CaptureMode::Relaxed).map(|()| builder.to_owned().into_ptr())))
});

raw!(static END_BUILDING = |call| {
    let ([], builder) = (call.plain()?, call.receiver::<GraphBuilder>());
    Some(given(builder.get().end(call.py).map(|()| builder.to_owned().into_ptr())))
});

raw!(static COMPLETE = |call| {
    let ([], builder) = (call.plain()?, call.receiver::<GraphBuilder>());
    Some(object(call, builder.get().complete(call.py, None), identity))
});

raw!(static CLOSE = |call| {
    let ([], builder) = (call.plain()?, call.receiver::<GraphBuilder>());
    Some(nothing(call, builder.get().close(call.py)))
});

/// Puts the finalizer in, and the methods that a capture calls.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<GraphBuilder>();
    keep::set_finalizer(&class)?;
    BEGIN_BUILDING.replace_method(&class, "begin_building")?;
    END_BUILDING.replace_method(&class, "end_building")?;
    COMPLETE.replace_method(&class, "complete")?;
    CLOSE.replace_method(&class, "close")
}
