//! `GraphCondition`: a number that kernels set and conditional nodes read.

use crate::error::not_constructed;
use crate::handle;
use crate::handle::Equal;
use cuirass::graph::GraphCondition as Condition;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A condition of a graph: a number that kernels set (``cudaGraphSetConditional``) and conditional nodes read.
///
/// It is made by ``GraphBuilder.create_condition()``, and is an argument of the kernels that set it.
#[pyclass(frozen, weakref, subclass, module = "cuirass.graph", name = "GraphCondition")]
pub struct GraphCondition(pub Condition);

#[pymethods]
impl GraphCondition {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<GraphCondition> {
        not_constructed("GraphCondition", "GraphBuilder.create_condition()")
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<GraphCondition>().ok().map(|other| self.0 == other.get().0))
    }

    fn __hash__(&self) -> u64 {
        self.0.as_raw()
    }

    /// The driver's ``CUgraphConditionalHandle``, as a ``cuda.bindings.driver`` object where that package is there, else
    /// a number.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        handle::give(py, "CUgraphConditionalHandle", self.0.as_raw())
    }

    fn __repr__(&self) -> String {
        format!("<GraphCondition handle={:#x}>", self.0.as_raw())
    }
}

/// What an argument named `condition` may be.
pub fn argument(object: &Bound<'_, PyAny>) -> PyResult<Condition> {
    match object.cast::<GraphCondition>() {
        Ok(condition) => Ok(condition.get().0),
        Err(_other) => {
            let kind = object.get_type().name()?;
            Err(PyTypeError::new_err(format!("condition must be a GraphCondition, not {kind}")))
        }
    }
}
