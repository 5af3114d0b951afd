//! `GraphDefinition` and `GraphNode`: what a capture made, to be looked at.

use crate::context::not_yet;
use crate::error::{ask, run};
use crate::graph::exec::Graph;
use crate::graph::keep;
use crate::graph::options;
use crate::handle;
use crate::handle::Equal;
use crate::slot::{Detached, Share, Slot, drop_detached};
use cuirass::graph::{GraphDefinition as Definition, GraphNode as Node};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet, PyTuple};
use std::path::PathBuf;

/// A graph: nodes, and which of them wait for which.
///
/// ``GraphBuilder.graph_definition`` gives it. It is there as long as this object is, also once the builder is closed.
#[pyclass(frozen, weakref, subclass, module = "cuirass.graph", name = "GraphDefinition")]
pub struct GraphDefinition(Slot<Definition>, u64);

impl Share for Definition {
    fn drop_share(self) {
        drop_detached(self);
    }
}

impl GraphDefinition {
    pub fn of(definition: Definition) -> GraphDefinition {
        let raw = definition.as_raw().addr() as u64;
        GraphDefinition(Slot::new(definition), raw)
    }

    /// The graph, shared.
    pub fn get(&self) -> PyResult<Detached<Definition>> {
        match self.0.enter() {
            Some(definition) => Ok(Detached::new(definition.clone())),
            None => Err(crate::error::closed("graph definition")),
        }
    }
}

#[pymethods]
impl GraphDefinition {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<GraphDefinition> {
        Err(not_yet("building a GraphDefinition node by node"))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<GraphDefinition>().ok().map(|other| self.1 == other.get().1))
    }

    fn __hash__(&self) -> u64 {
        self.1
    }

    /// Whether the graph is there: the body of a conditional node is not once the capture that it was part of has
    /// failed, and no graph is once the capture of a conditional body of it has.
    #[getter]
    fn is_valid(&self) -> PyResult<bool> {
        Ok(self.get()?.is_valid())
    }

    /// The driver's ``CUgraph``, as a ``cuda.bindings.driver`` object where that package is there, else a number.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUgraph", self.1)
    }

    /// Its nodes.
    fn nodes<'py>(slf: &Bound<'py, GraphDefinition>, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        let definition = slf.get().get()?;
        let nodes = run(py, || definition.nodes())?;
        let nodes = nodes.into_iter().map(|node| Bound::new(py, GraphNode::of(node, slf)));
        PySet::new(py, nodes.collect::<PyResult<Vec<_>>>()?)
    }

    /// Pairs of nodes of which the second waits for the first.
    fn edges<'py>(slf: &Bound<'py, GraphDefinition>, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        let definition = slf.get().get()?;
        let edges = run(py, || definition.edges())?;
        let set = PySet::empty(py)?;
        for (from, to) in edges {
            set.add((GraphNode::of(from, slf), GraphNode::of(to, slf)))?;
        }
        Ok(set)
    }

    /// Makes it executable (``cuGraphInstantiate``).
    ///
    /// Raises
    /// ------
    /// CUDAError
    ///     What the driver answers, with its reason.
    #[pyo3(signature = (options=None))]
    fn instantiate(&self, py: Python<'_>, options: Option<&Bound<'_, PyAny>>) -> PyResult<Graph> {
        let (definition, options) = (self.get()?, options::complete(options)?);
        Ok(Graph::of(run(py, || definition.instantiate(&options))?))
    }

    /// Writes the driver's own picture of it to a file, in the DOT language (``cuGraphDebugDotPrint``).
    #[pyo3(signature = (path, options=None))]
    fn debug_dot_print(&self, py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (definition, options) = (self.get()?, options::print(options)?);
        run(py, || definition.debug_dot_print(&path, options))
    }

    /// The graph in the DOT language, as ``Graph.to_dot()``.
    fn to_dot(&self, py: Python<'_>) -> PyResult<String> {
        let definition = self.get()?;
        run(py, || definition.to_dot())
    }

    /// The graph as a drawing, in SVG, of up to 1000 nodes: dashed lines lead to the bodies of conditional nodes and to
    /// child graphs.
    fn to_svg(&self, py: Python<'_>) -> PyResult<String> {
        let definition = self.get()?;
        run(py, || definition.to_svg())
    }

    /// What a notebook shows.
    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<String> {
        self.to_svg(py)
    }

    /// What the collector calls before it takes a cycle apart.
    fn _finalize(&self) {
        self.0.close_and_drop();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.enter_alone() {
            Some(definition) => keep::traverse(&visit, |see| definition.see_kept(see)),
            None => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<GraphDefinition handle={:#x}>", self.1)
    }
}

/// Sets the finalizer.
pub fn install(py: Python<'_>) -> PyResult<()> {
    keep::set_finalizer(&py.get_type::<GraphDefinition>())
}

/// A node of a graph.
#[pyclass(frozen, weakref, subclass, module = "cuirass.graph", name = "GraphNode")]
pub struct GraphNode {
    node: Node,
    graph: Py<GraphDefinition>,
}

impl GraphNode {
    fn of(node: Node, graph: &Bound<'_, GraphDefinition>) -> GraphNode {
        GraphNode { node, graph: graph.clone().unbind() }
    }
}

#[pymethods]
impl GraphNode {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<GraphNode> {
        crate::error::not_constructed("GraphNode", "GraphDefinition.nodes()")
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<GraphNode>().ok().map(|other| self.node.as_raw() == other.get().node.as_raw()))
    }

    fn __hash__(&self) -> u64 {
        self.node.as_raw().addr() as u64
    }

    /// What it is: the driver's ``CUgraphNodeType``, as a ``cuda.bindings.driver`` member where that package is there,
    /// else a number.
    #[getter]
    fn r#type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUgraphNodeType", u64::from(self.node.kind().0))
    }

    /// The graph that it is of.
    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<GraphDefinition> {
        self.graph.clone_ref(py)
    }

    /// The driver's ``CUgraphNode``, as a ``cuda.bindings.driver`` object where that package is there, else a number.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUgraphNode", self.node.as_raw().addr() as u64)
    }

    /// Whether its graph is there.
    #[getter]
    fn is_valid(&self, py: Python<'_>) -> PyResult<bool> {
        let graph = self.graph.get().get()?;
        ask(py, || Ok(graph.is_valid()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)
    }

    fn __repr__(&self) -> String {
        format!("<GraphNode handle={:p} type={}>", self.node.as_raw(), self.node.kind().0)
    }
}
