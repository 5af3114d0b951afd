//! Calls that are about the driver itself and have nothing to do in a simulated one.

use crate::state;
use crate::status::Answer;
use cuirass_sys::cuda::{CUflushGPUDirectRDMAWritesScope, CUflushGPUDirectRDMAWritesTarget};

pub fn cuFlushGPUDirectRDMAWrites(
    _target: CUflushGPUDirectRDMAWritesTarget,
    _scope: CUflushGPUDirectRDMAWritesScope,
) -> Answer {
    // Writes of other devices are seen at once.
    state::lock()?.here().map(drop)
}
