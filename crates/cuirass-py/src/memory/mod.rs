//! Memory: buffers, where they come from, and copies.

pub mod batch;
pub mod buffer;
pub mod copy;
pub mod graph;
pub mod ipc;
pub mod location;
pub mod managed;
pub mod pinned;
pub mod pool;
pub mod pool_attributes;
pub mod resource;
pub mod share;
pub mod user;
pub mod r#virtual;

pub use buffer::Buffer;
pub use copy::bytes_of;
pub use share::Memory;
