//! Launches of kernels, host functions and occupancy.

pub mod heap;
mod host;
mod kernel;
mod occupancy;
pub mod output;
mod run;

pub use host::*;
pub use kernel::*;
pub use occupancy::*;
pub use run::KernelTask;
