//! `GraphMemoryResource`: memory that graphs allocate themselves.

use crate::device;
use crate::error::{not_constructed, run};
use crate::memory::buffer::Buffer;
use crate::memory::resource::{MemoryResource, overrides_deallocate, size_of, through_override};
use crate::number::Number;
use crate::slot::Detached;
use crate::stream;
use cuirass::MemoryResource as _;
use cuirass::memory::{GraphMemoryAttribute as Attribute, GraphMemoryResource as Memory};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Memory that a graph allocates each time it runs.
///
/// It is allocated on a graph builder, or on a stream that is being captured. Such memory belongs to the graph:
/// collecting its buffer does nothing, closing it on the builder makes the graph free it.
///
/// Parameters
/// ----------
/// device_id : int or Device
///     The device.
#[pyclass(frozen, weakref, subclass, extends = MemoryResource, module = "cuirass", name = "GraphMemoryResource")]
pub struct GraphMemoryResource {
    memory: Detached<Memory>,
    device: cuirass::Device,
}

#[pymethods]
impl GraphMemoryResource {
    #[new]
    fn new(py: Python<'_>, device_id: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<GraphMemoryResource>> {
        let device = device::argument(py, device_id, "device_id")?;
        let memory = Detached::new(run(py, || Memory::new(device))?);
        Ok(PyClassInitializer::from(MemoryResource).add_subclass(GraphMemoryResource { memory, device }))
    }

    /// Memory of ``size`` bytes, as a node of the graph that the stream is being captured into (``cuMemAllocAsync``).
    ///
    /// Raises
    /// ------
    /// RuntimeError
    ///     If the stream is not being captured, and in the body of a conditional node.
    #[pyo3(signature = (size, *, stream))]
    fn allocate<'py>(
        slf: &Bound<'py, GraphMemoryResource>,
        py: Python<'py>,
        size: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Buffer> {
        let (size, stream) = (size_of(size)?, stream::argument(stream)?);
        let memory = &slf.get().memory;
        let buffer = run(py, || memory.allocate(size, &stream))?;
        let buffer = Buffer::of_resource(buffer, slf.as_any().clone().unbind());
        if slf.is_exact_instance_of::<GraphMemoryResource>()
            || !overrides_deallocate(slf.as_any(), &py.get_type::<GraphMemoryResource>())?
        {
            return Ok(buffer);
        }
        through_override(buffer, slf.as_any(), cuirass::Stream::clone(&stream))
    }

    /// Frees memory of a graph: in the graph, on a stream that is being captured; else what the last launch allocated
    /// (``cuMemFreeAsync``).
    #[pyo3(signature = (ptr, size, *, stream))]
    fn deallocate(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (address, size, stream) = (device::address(ptr)?, size_of(size)?, stream::argument(stream)?);
        run(py, || self.memory.deallocate(address, size, &stream))
    }

    /// Does nothing: the memory belongs to graphs.
    fn close(&self) {
        let _memory = &self.memory;
    }

    /// Gives memory that no graph uses back to the system (``cuDeviceGraphMemTrim``).
    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.memory.trim())
    }

    /// How much memory graphs use on the device.
    #[getter]
    fn attributes(&self) -> GraphMemoryResourceAttributes {
        GraphMemoryResourceAttributes(self.memory.clone())
    }

    /// The ordinal of the device that its memory is on.
    #[getter]
    fn device_id(&self) -> i32 {
        self.device.ordinal()
    }

    /// Kernels can use its memory: true.
    #[getter]
    fn is_device_accessible(&self) -> bool {
        true
    }

    /// The host cannot: false.
    #[getter]
    fn is_host_accessible(&self) -> bool {
        false
    }

    fn __repr__(&self) -> String {
        format!("<GraphMemoryResource device_id={}>", self.device.ordinal())
    }
}

/// How much memory graphs use on a device, in bytes.
#[pyclass(frozen, weakref, module = "cuirass", name = "GraphMemoryResourceAttributes")]
pub struct GraphMemoryResourceAttributes(Memory);

#[pymethods]
impl GraphMemoryResourceAttributes {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<GraphMemoryResourceAttributes> {
        not_constructed("GraphMemoryResourceAttributes", "GraphMemoryResource.attributes")
    }

    /// Bytes that are reserved now.
    #[getter]
    fn reserved_mem_current(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || self.0.attribute(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
    }

    /// The most bytes that were reserved. It can be set to 0; other numbers the driver refuses.
    #[getter]
    fn reserved_mem_high(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || self.0.attribute(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
    }

    #[setter]
    fn set_reserved_mem_high(&self, py: Python<'_>, value: Number<u64>) -> PyResult<()> {
        let value = value.named("reserved_mem_high")?;
        run(py, || self.0.set_attribute(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, value))
    }

    /// Bytes that are used now.
    #[getter]
    fn used_mem_current(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || self.0.attribute(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT))
    }

    /// The most bytes that were used. It can be set to 0; other numbers the driver refuses.
    #[getter]
    fn used_mem_high(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || self.0.attribute(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH))
    }

    #[setter]
    fn set_used_mem_high(&self, py: Python<'_>, value: Number<u64>) -> PyResult<()> {
        let value = value.named("used_mem_high")?;
        run(py, || self.0.set_attribute(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, value))
    }
}
