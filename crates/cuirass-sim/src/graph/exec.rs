//! Executable graphs.

/// An executable graph.
pub struct Exec {}
