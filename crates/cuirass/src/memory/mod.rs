//! Memory: buffers, where they come from, and copies.

mod buffer;
mod copy;
mod graph;
mod held;
mod ipc;
mod location;
mod peer;
mod pinned;
mod pointer;
mod pool;
mod r#virtual;

pub use buffer::{Buffer, MemoryResource, SynchronousMemoryResource};
pub use copy::Transfer;
pub use graph::{GraphMemoryAttribute, GraphMemoryResource};
pub(crate) use held::Held;
pub use ipc::{IpcAllocationHandle, IpcBufferDescriptor, IpcEventDescriptor};
pub use location::Location;
pub use pinned::{LegacyPinnedMemoryResource, PinnedMemory, PinnedMemoryResource, PinnedMemoryResourceOptions};
pub use pointer::{PointerInfo, pointer_info};
pub use pool::{DeviceMemoryResource, DeviceMemoryResourceOptions, MemoryPool, PoolAttribute, PooledMemory};
pub use r#virtual::{
    VirtualMemoryAccess, VirtualMemoryHandleType, VirtualMemoryResource, VirtualMemoryResourceOptions,
};
