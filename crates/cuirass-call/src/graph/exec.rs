//! Executable graphs.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo,
    CUgraphInstantiateResult, CUstream,
};

/// `cuGraphInstantiateWithParams`, in the current context. A failure has the driver's reason as a note.
pub fn instantiate(graph: CUgraph, flags: u64, upload_stream: CUstream) -> Result<CUgraphExec> {
    let mut exec = std::ptr::null_mut();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags, hUploadStream: upload_stream, ..Default::default() };
    let result = driver_call!(
        entry!(cuGraphInstantiateWithParams),
        (&raw mut exec, graph, &raw mut params),
        "graph {graph:p}, flags {flags:#x}"
    );
    match result {
        Ok(()) => Ok(exec),
        Err(failure) => match reason(params.result_out) {
            Some(reason) => Err(failure.note(reason)),
            None => Err(failure),
        },
    }
}

fn reason(result: CUgraphInstantiateResult) -> Option<String> {
    use CUgraphInstantiateResult as Result;
    let text = match result {
        Result::CUDA_GRAPH_INSTANTIATE_SUCCESS | Result::CUDA_GRAPH_INSTANTIATE_ERROR => return None,
        Result::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE => {
            "INVALID_STRUCTURE: the graph's structure is invalid, it has a cycle for instance"
        }
        Result::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED => {
            "NODE_OPERATION_NOT_SUPPORTED: a node does what a graph that is launched from the device cannot do"
        }
        Result::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED => {
            "MULTIPLE_CTXS_NOT_SUPPORTED: nodes belong to different contexts"
        }
        Result::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED => {
            "CONDITIONAL_HANDLE_UNUSED: a condition was created that no node uses"
        }
        other => return Some(format!("the driver's reason is number {}", other.0)),
    };
    Some(text.to_owned())
}

/// `cuGraphExecDestroy`: launches that are under way go on.
pub fn destroy(exec: CUgraphExec) -> Result<()> {
    driver_call!(entry!(cuGraphExecDestroy), (exec), "{exec:p}")
}

/// `cuGraphLaunch`
#[inline]
pub fn launch(exec: CUgraphExec, stream: CUstream) -> Result<()> {
    driver_call!(entry!(cuGraphLaunch), (exec, stream), "graph {exec:p}, stream {stream:p}")
}

/// `cuGraphUpload`
pub fn upload(exec: CUgraphExec, stream: CUstream) -> Result<()> {
    driver_call!(entry!(cuGraphUpload), (exec, stream), "graph {exec:p}, stream {stream:p}")
}

/// `cuGraphExecUpdate_v2`: gives it the parameters of a graph of the same shape. `Err` inside is the driver's reason
/// for which it cannot; the executable graph is then as it was.
pub fn update(exec: CUgraphExec, graph: CUgraph) -> Result<std::result::Result<(), CUgraphExecUpdateResult>> {
    let mut info = CUgraphExecUpdateResultInfo::default();
    let done = driver_call!(
        entry!(cuGraphExecUpdate_v2),
        (exec, graph, &raw mut info),
        answers GRAPH_EXEC_UPDATE_FAILURE,
        "graph {exec:p}, from {graph:p}"
    )?;
    Ok(if done { Ok(()) } else { Err(info.result) })
}
