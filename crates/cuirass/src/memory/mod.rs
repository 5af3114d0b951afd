//! Memory: buffers, where they come from, and copies.

mod buffer;
mod copy;
mod pinned;
mod pool;

pub use buffer::{Buffer, MemoryResource, SynchronousMemoryResource};
pub use copy::Transfer;
pub use pinned::{LegacyPinnedMemoryResource, PinnedMemory};
pub use pool::{DeviceMemoryResource, DeviceMemoryResourceOptions, PoolAttribute};
