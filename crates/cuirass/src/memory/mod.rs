//! Memory: buffers, where they come from, and copies.

mod buffer;
mod copy;
mod few;
mod graph;
mod held;
pub(crate) mod ipc;
mod location;
mod managed;
mod peer;
mod pinned;
mod pointer;
mod pool;
mod r#virtual;

pub use buffer::{Buffer, MemoryResource, SynchronousMemoryResource};
pub use copy::{
    BatchedCopy, CopyExtent, CopyOptions, MemcpyOverlapMode, MemcpySrcAccessOrder, Pitched, Transfer, copy_batch,
    copy_batch_unordered,
};
pub use graph::{GraphMemoryAttribute, GraphMemoryResource};
pub(crate) use held::Held;
pub use ipc::{IpcAllocationHandle, IpcBufferDescriptor, IpcEventDescriptor};
pub use location::Location;
pub use managed::{
    ManagedMemoryResource, ManagedMemoryResourceOptions, discard_batch, discard_batch_unordered,
    discard_prefetch_batch, discard_prefetch_batch_unordered, prefetch_batch, prefetch_batch_unordered,
};
pub use pinned::{LegacyPinnedMemoryResource, PinnedMemory, PinnedMemoryResource, PinnedMemoryResourceOptions};
pub use pointer::{PointerInfo, pointer_info};
pub use pool::{DeviceMemoryResource, DeviceMemoryResourceOptions, MemoryPool, PoolAttribute, PooledMemory};
pub use r#virtual::{
    VirtualMemoryAccess, VirtualMemoryHandleType, VirtualMemoryResource, VirtualMemoryResourceOptions,
};
