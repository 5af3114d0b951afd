//! `Graph`: an executable graph.

use crate::error::{close, closed, leave, not_constructed, run};
use crate::graph::builder::GraphBuilder;
use crate::graph::definition::GraphDefinition;
use crate::graph::keep;
use crate::handle;
use crate::handle::Equal;
use crate::raw::{nothing, raw};
use crate::slot::{Closed, Detached, Share, Slot, Use, drop_detached};
use crate::stream;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

impl Share for cuirass::graph::Graph {
    fn drop_share(self) {
        drop_detached(self);
    }
}

/// A graph that can be launched.
///
/// ``GraphBuilder.complete()`` makes it. What its work refers to (buffers, kernels, the functions of its callbacks) is
/// kept until it is closed and the launches that are under way then are done. A notebook shows a drawing of it.
#[pyclass(frozen, weakref, subclass, module = "cuirass.graph", name = "Graph")]
pub struct Graph {
    slot: Slot<cuirass::graph::Graph>,
    raw: u64,
}

impl Graph {
    pub fn of(graph: cuirass::graph::Graph) -> Graph {
        let raw = graph.as_raw().addr() as u64;
        Graph { slot: Slot::new(graph), raw }
    }

    #[inline]
    fn enter(&self) -> PyResult<Use<'_, cuirass::graph::Graph>> {
        self.slot.enter().ok_or_else(|| closed("graph"))
    }
}

#[pymethods]
impl Graph {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Graph> {
        not_constructed("Graph", "GraphBuilder.complete()")
    }

    /// Gives the graph up (``cuGraphExecDestroy``). Launches that are under way go on.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     If the driver refused; it is spent all the same.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.slot.close() {
            Closed::Taken(graph) => close(py, || graph.close()),
            Closed::InUse | Closed::Before => Ok(()),
        }
    }

    /// Whether ``close()`` was called.
    #[getter]
    fn is_closed(&self) -> bool {
        self.slot.is_closed()
    }

    fn __enter__(slf: Py<Graph>) -> Py<Graph> {
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
        leave(py, exc_val, "the graph could not be released after this failure", self.close(py))
    }

    /// The driver's ``CUgraphExec``, as a ``cuda.bindings.driver`` object where that package is there, else a number; 0
    /// once it is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUgraphExec", if self.slot.is_closed() { 0 } else { self.raw })
    }

    /// Gives it the parameters of a graph of the same shape, for the launches from now on (``cuGraphExecUpdate``).
    ///
    /// Parameters
    /// ----------
    /// source : GraphBuilder or GraphDefinition
    ///     The other graph.
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     ``CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE``, with the driver's reason as a note, when the shapes differ: it is
    ///     then as it was.
    fn update(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let graph = self.enter()?;
        let definition = if let Ok(builder) = source.cast::<GraphBuilder>() {
            Detached::new(builder.get().definition(py)?)
        } else if let Ok(definition) = source.cast::<GraphDefinition>() {
            definition.get().get()?
        } else {
            let kind = source.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "source must be a GraphBuilder or a GraphDefinition, not {kind}"
            )));
        };
        run(py, || graph.update(&definition))
    }

    /// Brings it to the device ahead of its first launch (``cuGraphUpload``).
    fn upload(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let (graph, stream) = (self.enter()?, stream::argument(stream)?);
        run(py, || graph.upload(&stream))
    }

    /// Runs it on a stream (``cuGraphLaunch``). Launches of one graph follow each other.
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     On a stream that a graph builder captures: ``GraphBuilder.embed()`` makes a graph part of another.
    /// CUDAError
    ///     What the driver answers, an earlier kernel's fault among it.
    fn launch(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let (graph, stream) = (self.enter()?, stream::argument(stream)?);
        run(py, || graph.launch(&stream))
    }

    /// The graph in the DOT language: a box for each node, with the names of kernels (CUDA 12.3 and newer) and the shapes
    /// of their grids and blocks; bodies of conditional nodes and child graphs have frames of their own.
    fn to_dot(&self, py: Python<'_>) -> PyResult<String> {
        let graph = self.enter()?;
        run(py, || graph.to_dot())
    }

    /// The graph as a drawing, in SVG, of up to 1000 nodes: dashed lines lead to the bodies of conditional nodes and to
    /// child graphs.
    fn to_svg(&self, py: Python<'_>) -> PyResult<String> {
        let graph = self.enter()?;
        run(py, || graph.to_svg())
    }

    /// What a notebook shows.
    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<String> {
        self.to_svg(py)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        let other = other.cast::<Graph>().ok().map(Bound::get);
        Equal(other.map(|other| crate::context::same(self.raw, &self.slot, other.raw, &other.slot)))
    }

    fn __hash__(&self) -> u64 {
        self.raw
    }

    /// What the collector calls before it takes a cycle apart.
    fn _finalize(&self) {
        self.slot.close_and_drop();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.slot.enter_alone() {
            Some(graph) => keep::traverse(&visit, |see| graph.see_kept(see)),
            None => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        if self.slot.is_closed() { "<Graph closed>".to_owned() } else { format!("<Graph handle={:#x}>", self.raw) }
    }
}

raw!(static LAUNCH = |call| {
    let ([stream], graph) = (call.plain()?, call.receiver::<Graph>());
    Some(nothing(call, graph.get().launch(call.py, &stream)))
});

raw!(static CLOSE = |call| {
    let ([], graph) = (call.plain()?, call.receiver::<Graph>());
    Some(nothing(call, graph.get().close(call.py)))
});

/// Puts the finalizer in, and the methods that are called most.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Graph>();
    keep::set_finalizer(&class)?;
    LAUNCH.replace_method(&class, "launch")?;
    CLOSE.replace_method(&class, "close")
}
