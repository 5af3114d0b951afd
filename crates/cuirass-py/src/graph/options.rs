//! Options of graphs: data classes of the Python package, read here.

use crate::options::{flag, instance};
use crate::stream;
use cuirass::graph::{CaptureMode, GraphCompleteOptions, GraphDebugPrintOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A capture mode by its name; `None` is relaxed.
pub fn mode(name: Option<&str>) -> PyResult<CaptureMode> {
    match name {
        None => Ok(CaptureMode::Relaxed),
        Some(name) => CaptureMode::of_name(name).ok_or_else(|| {
            PyValueError::new_err(format!("mode must be 'global', 'thread_local' or 'relaxed', not {name:?}"))
        }),
    }
}

/// How a graph is made executable.
pub fn complete(options: Option<&Bound<'_, PyAny>>) -> PyResult<GraphCompleteOptions> {
    let Some(options) = instance(options, "GraphCompleteOptions")? else { return Ok(GraphCompleteOptions::default()) };
    let upload = options.getattr("upload_stream")?;
    let upload_stream =
        if upload.is_none() { None } else { Some(cuirass::Stream::clone(&*stream::argument(&upload)?)) };
    Ok(GraphCompleteOptions {
        auto_free_on_launch: flag(&options, "auto_free_on_launch")?,
        upload_stream,
        device_launch: flag(&options, "device_launch")?,
        use_node_priority: flag(&options, "use_node_priority")?,
    })
}

/// What the driver's picture of a graph shows.
pub fn print(options: Option<&Bound<'_, PyAny>>) -> PyResult<GraphDebugPrintOptions> {
    let Some(options) = instance(options, "GraphDebugPrintOptions")? else {
        return Ok(GraphDebugPrintOptions::default());
    };
    let on = |name: &str| flag(&options, name);
    Ok(GraphDebugPrintOptions {
        verbose: on("verbose")?,
        runtime_types: on("runtime_types")?,
        kernel_node_params: on("kernel_node_params")?,
        memcpy_node_params: on("memcpy_node_params")?,
        memset_node_params: on("memset_node_params")?,
        host_node_params: on("host_node_params")?,
        event_node_params: on("event_node_params")?,
        ext_semas_signal_node_params: on("ext_semas_signal_node_params")?,
        ext_semas_wait_node_params: on("ext_semas_wait_node_params")?,
        kernel_node_attributes: on("kernel_node_attributes")?,
        handles: on("handles")?,
        mem_alloc_node_params: on("mem_alloc_node_params")?,
        mem_free_node_params: on("mem_free_node_params")?,
        batch_mem_op_node_params: on("batch_mem_op_node_params")?,
        extra_topo_info: on("extra_topo_info")?,
        conditional_node_params: on("conditional_node_params")?,
    })
}
