//! Graphs.

use crate::Result;
use crate::status::driver_call;
use cuirass_sys::cuda::CUgraph;

/// `cuGraphDestroy`
pub fn destroy(graph: CUgraph) -> Result<()> {
    driver_call!(entry!(cuGraphDestroy), (graph), "{graph:p}")
}
