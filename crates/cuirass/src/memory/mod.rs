//! Memory: buffers, where they come from, and copies.

mod buffer;
mod copy;
mod graph;
mod held;
mod pinned;
mod pointer;
mod pool;

pub use buffer::{Buffer, MemoryResource, SynchronousMemoryResource};
pub use copy::Transfer;
pub use graph::{GraphMemoryAttribute, GraphMemoryResource};
pub(crate) use held::Held;
pub use pinned::{LegacyPinnedMemoryResource, PinnedMemory};
pub use pointer::{PointerInfo, pointer_info};
pub use pool::{DeviceMemoryResource, DeviceMemoryResourceOptions, PoolAttribute};
