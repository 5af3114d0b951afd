//! Stream capture.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUgraph, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};

/// `cuStreamBeginCapture_v2`
pub fn stream_begin_capture(stream: CUstream, mode: CUstreamCaptureMode) -> Result<()> {
    driver_call!(entry!(cuStreamBeginCapture_v2), (stream, mode), "stream {stream:p}, mode {}", mode.0)
}

/// `cuStreamEndCapture`: the captured graph, which the caller then owns.
pub fn stream_end_capture(stream: CUstream) -> Result<CUgraph> {
    let mut graph = std::ptr::null_mut();
    driver_call!(entry!(cuStreamEndCapture), (stream, &raw mut graph), "stream {stream:p}")?;
    Ok(graph)
}

/// `cuStreamIsCapturing`
pub fn stream_is_capturing(stream: CUstream) -> Result<CUstreamCaptureStatus> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    driver_call!(entry!(cuStreamIsCapturing), (stream, &raw mut status), "stream {stream:p}")?;
    Ok(status)
}

/// `cuStreamGetCaptureInfo_v2`: the status, and the number of the capture, which no other capture ever has.
pub fn stream_get_capture_info(stream: CUstream) -> Result<(CUstreamCaptureStatus, u64)> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let mut id = 0;
    let none = std::ptr::null_mut();
    driver_call!(
        entry!(cuStreamGetCaptureInfo_v2),
        (stream, &raw mut status, &raw mut id, none, none.cast(), none.cast()),
        "stream {stream:p}"
    )?;
    Ok((status, id))
}
