//! Memory: plain allocations and copies (`buffer`), pools (`pool`), page-locked host memory (`pinned`), managed memory
//! (`managed`), virtual address ranges (`virtual`), access between devices (`peer`) and between processes (`ipc`).

pub mod buffer;
pub mod ipc;
pub mod managed;
pub mod peer;
pub mod pinned;
pub mod pool;
pub mod r#virtual;
