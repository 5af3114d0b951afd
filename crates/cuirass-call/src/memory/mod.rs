//! Memory: plain allocations and copies (`buffer`), pools (`pool`), page-locked host memory (`pinned`).

pub mod buffer;
pub mod pinned;
pub mod pool;
