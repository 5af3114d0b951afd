//! Launches of kernels, host functions and occupancy.

mod host;

pub use host::*;
