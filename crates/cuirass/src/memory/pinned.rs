//! Page-locked host memory.
#![allow(unsafe_code)]

use crate::context::{Context, scope};
use crate::deferred;
use crate::device::Device;
use crate::memory::buffer::{Buffer, MemoryResource};
use crate::memory::location::Location;
use crate::memory::peer;
use crate::memory::pool::{MemoryPool, PooledMemory, pool_resource};
use crate::stream::Stream;
use crate::{Outcome, Result};
use bytemuck::Pod;
use cuirass_call::memory::{pinned as call, pool};
use cuirass_call::sys::cuda::CUmemAllocationType;
use cuirass_fault::{Failure, Misuse};
use std::sync::Arc;

/// Page-locked host memory of a pool: allocated and freed in the order of a stream. Clones are the same resource.
#[derive(Clone)]
pub struct PinnedMemoryResource(MemoryPool);

pool_resource!(PinnedMemoryResource);

/// How a pool of page-locked memory is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedMemoryResourceOptions {
    /// The most memory that it may take, in bytes; 0 leaves that to the driver.
    pub max_size: usize,
    /// Whether other processes can use its memory.
    pub ipc_enabled: bool,
    /// The NUMA node that its memory is on. Without one the system places it; for other processes, which need a node,
    /// it is the one that is nearest to the current context's device.
    pub numa_id: Option<i32>,
}

impl PinnedMemoryResource {
    pub(super) fn of(pool: MemoryPool) -> PinnedMemoryResource {
        PinnedMemoryResource(pool)
    }

    /// The driver's current pool of page-locked memory, with access to its memory for all devices, as it is for pools of
    /// one's own. This disturbs no capture on any thread.
    ///
    /// # Errors
    /// What the driver answers; [`Unsupported`](crate::ErrorKind::Unsupported) before CUDA 13.0.
    pub fn current() -> Result<PinnedMemoryResource> {
        let context = Context::current_or_primary()?;
        let kind = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        let raw = pool::get_mem_pool(&Location::Host.raw(), kind)?;
        let memory = PooledMemory::Pinned(Location::Host);
        let pool = MemoryPool::of_driver(raw, context, memory)?;
        peer::open_to_the_rest(&pool)?;
        Ok(PinnedMemoryResource(pool))
    }

    /// `cuMemPoolCreate`: a pool of its own, to whose memory all devices are given access.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a negative NUMA node; what the driver answers.
    pub fn create(options: &PinnedMemoryResourceOptions) -> Result<PinnedMemoryResource> {
        let context = Context::current_or_primary()?;
        let location = match options.numa_id {
            Some(node) if node < 0 => {
                return Err(
                    Failure::misuse(Misuse::Value, format!("a NUMA node has a number from 0, not {node}")).raise()
                );
            }
            Some(node) => Location::HostNuma(node),
            None if options.ipc_enabled => Location::nearest_node(context.device())?,
            None => Location::Host,
        };
        let memory = PooledMemory::Pinned(location);
        let pool = MemoryPool::create(memory, options.max_size, options.ipc_enabled, context)?;
        Ok(PinnedMemoryResource(peer::open_to_all(pool)?))
    }

    /// The NUMA node that its memory is on; `None` where the system places it.
    pub fn numa_id(&self) -> Option<i32> {
        match self.memory() {
            PooledMemory::Pinned(Location::HostNuma(node)) => Some(node),
            _ => None,
        }
    }

    /// Gives up this share. If no other share and no buffer is left, a pool of its own is destroyed, and the
    /// driver's answer returned.
    ///
    /// # Errors
    /// What `cuMemPoolDestroy` answers.
    pub fn close(self) -> Result<()> {
        self.0.close()
    }
}

/// Page-locked host memory by `cuMemAllocHost`, which both the host and every device can use.
#[derive(Clone, Copy, Debug, Default)]
pub struct LegacyPinnedMemoryResource;

impl LegacyPinnedMemoryResource {
    fn allocate_inner(bytes: usize) -> Outcome<Buffer> {
        deferred::before_creating()?;
        // The driver wants some context to be current; it does not matter which.
        let context = Context::current_or_primary()?;
        let address = scope::create(context.raw(), || call::alloc_host(bytes), call::free_host)?;
        Ok(Buffer::pinned(address.expose_provenance() as u64, bytes, context))
    }
}

impl MemoryResource for LegacyPinnedMemoryResource {
    /// `cuMemAllocHost_v2`; the stream plays no part.
    fn allocate(&self, bytes: usize, _stream: &Stream) -> Result<Buffer> {
        Ok(LegacyPinnedMemoryResource::allocate_inner(bytes)?)
    }

    fn deallocate(&self, address: u64, bytes: usize, _stream: &Stream) -> Result<()> {
        match Context::current_or_primary() {
            Ok(context) => Buffer::pinned(address, bytes, context).close(),
            Err(failure) => Err(failure.leaking(format_args!("page-locked memory {address:#x}")).raise()),
        }
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        true
    }

    fn device(&self) -> Option<Device> {
        None
    }
}

/// Page-locked memory that the host has for itself: readable and writable as a slice. To be copied asynchronously it
/// is given away, shared or whole, until the copy is done.
pub struct PinnedMemory<T: Pod> {
    buffer: Arc<Buffer>,
    count: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Pod> PinnedMemory<T> {
    /// Memory for `count` elements, all zero.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for more elements than fit in the address space; what
    /// `cuMemAllocHost` answers.
    pub fn zeroed(count: usize) -> Result<PinnedMemory<T>> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or_else(|| {
            Failure::misuse(Misuse::Value, format!("{count} elements of {} bytes are too many", size_of::<T>()))
        })?;
        let buffer = LegacyPinnedMemoryResource::allocate_inner(bytes)?;
        let memory: PinnedMemory<T> =
            PinnedMemory { buffer: Arc::new(buffer), count, element: std::marker::PhantomData };
        if bytes > 0 {
            // SAFETY: [pinned-slice] the memory is ours, has `bytes` bytes, and no copy uses it yet.
            unsafe { memory.pointer().cast::<u8>().write_bytes(0, bytes) };
        }
        Ok(memory)
    }

    /// A copy of a slice.
    ///
    /// # Errors
    /// As [`zeroed`](PinnedMemory::zeroed).
    pub fn from_slice(values: &[T]) -> Result<PinnedMemory<T>> {
        let mut memory = PinnedMemory::zeroed(values.len())?;
        memory.as_mut_slice().copy_from_slice(values);
        Ok(memory)
    }

    /// Gives the memory back, and returns the driver's answer.
    ///
    /// # Errors
    /// What the driver answers to the release; the memory is spent all the same.
    pub fn close(self) -> Result<()> {
        Ok(self.close_inner()?)
    }

    pub(crate) fn close_inner(self) -> Outcome<()> {
        match Arc::into_inner(self.buffer) {
            Some(buffer) => buffer.close().map_err(Failure::from),
            None => Ok(()),
        }
    }

    fn pointer(&self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(usize::try_from(self.buffer.as_raw()).unwrap_or(0))
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: [pinned-slice] page-locked memory of `count` elements, aligned to pages; a copy that writes it holds
        // the whole `PinnedMemory`, so that none is under way.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.count) }
    }

    /// The elements, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        if self.count == 0 {
            return &mut [];
        }
        // SAFETY: [pinned-slice] as above; a copy that reads it borrows or holds it, so that none is under way.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.count) }
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}
