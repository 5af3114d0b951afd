//! Initialisation, versions, status names, entry points, and the calling thread's capture mode.

mod entry_points;
mod logs;
mod start;

pub use entry_points::*;
pub use logs::*;
pub use start::*;
