//! Memory pools: stream-ordered memory of a device.

use crate::context::{Context, capture, scope};
use crate::deferred;
use crate::device::Device;
use crate::graph::{boundary, recording};
use crate::memory::buffer::{Buffer, MemoryResource};
use crate::memory::ipc::{Sharing, pools};
use crate::memory::location::Location;
use crate::memory::peer;
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::graph::builder;
use cuirass_call::later::Places;
use cuirass_call::memory::pool as call;
use cuirass_call::owner::{Kind, Opaque, Owned};
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUstreamCaptureStatus,
};
use cuirass_fault::lock::Mutex;
use cuirass_fault::{Failure, Misuse};
use std::sync::Arc;

/// An attribute of a pool: the driver's numbers, by the driver's names.
pub type PoolAttribute = CUmemPool_attribute;

/// A pool of the driver's, whatever its memory is. Clones are the same pool.
#[derive(Clone)]
pub struct MemoryPool(Arc<Pool>);

struct Pool {
    raw: Opaque<CUmemoryPool>,
    /// Where allocations on a default stream are made when no context is current.
    context: Context,
    memory: PooledMemory,
    /// The pool, where it is one of our own; destroyed with the last buffer of it.
    owned: Option<Owned<PoolKind>>,
    /// Where it is shared between processes.
    sharing: Option<Sharing>,
    /// For the releases of memory that has a share of it, should they have to wait.
    places: Places,
}

/// What a pool's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledMemory {
    /// Memory of a device.
    Device(Device),
    /// Page-locked memory of the host, placed by the system or on a NUMA node.
    Pinned(Location),
    /// Managed memory, with where it is rather to be.
    Managed(Option<Location>),
}

/// The memory of a device's pool: its current one, or one of its own. Clones are the same resource.
#[derive(Clone)]
pub struct DeviceMemoryResource(MemoryPool);

/// A resource that is a pool: it has the pool's functions, and gives its memory.
macro_rules! pool_resource {
    ($name:ident) => {
        impl std::ops::Deref for $name {
            type Target = $crate::memory::MemoryPool;

            #[inline]
            fn deref(&self) -> &$crate::memory::MemoryPool {
                &self.0
            }
        }

        impl $crate::memory::MemoryResource for $name {
            fn allocate(&self, bytes: usize, stream: &$crate::Stream) -> $crate::Result<$crate::memory::Buffer> {
                self.0.allocate(bytes, stream)
            }

            fn deallocate(&self, address: u64, bytes: usize, stream: &$crate::Stream) -> $crate::Result<()> {
                $crate::memory::MemoryResource::deallocate(&self.0, address, bytes, stream)
            }

            fn is_device_accessible(&self) -> bool {
                $crate::memory::MemoryResource::is_device_accessible(&self.0)
            }

            fn is_host_accessible(&self) -> bool {
                $crate::memory::MemoryResource::is_host_accessible(&self.0)
            }

            fn device(&self) -> Option<$crate::Device> {
                $crate::memory::MemoryResource::device(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0).finish()
            }
        }
    };
}
pub(crate) use pool_resource;

pool_resource!(DeviceMemoryResource);

struct PoolKind;

impl Kind for PoolKind {
    const NAME: &'static str = "a memory pool";
    type Raw = CUmemoryPool;
    type Parent = Ownership;

    fn release(pool: CUmemoryPool, ownership: Ownership) -> Outcome<()> {
        if ownership.imported { pools::release(pool) } else { destroy(pool, &ownership.peers.lock()) }
    }
}

/// The devices that were given access to a pool's memory.
pub(super) type Peers = Arc<Mutex<Vec<Device>>>;

struct Ownership {
    peers: Peers,
    /// Whether it is another process's, which several may share.
    imported: bool,
}

/// Destroys a pool, once access to its memory was taken from these devices.
pub(super) fn destroy(pool: CUmemoryPool, peers: &[Device]) -> Outcome<()> {
    capture::release(format_args!("memory pool {pool:p}"), || {
        let revoked = peer::revoke(pool, peers);
        let destroyed = {
            let _captures_wait = boundary::destroying_pool();
            call::destroy(pool)
        };
        match (revoked, destroyed) {
            (Ok(()), destroyed) => destroyed,
            (Err(revoking), Ok(())) => Err(revoking.note("the pool itself was destroyed")),
            (Err(revoking), Err(destroying)) => Err(destroying.attach_to(revoking, "destroying the pool failed too")),
        }
    })
}

/// How a pool is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemoryResourceOptions {
    /// The most memory that it may take, in bytes; 0 leaves that to the driver.
    pub max_size: usize,
    /// Whether other processes can use its memory.
    pub ipc_enabled: bool,
}

impl DeviceMemoryResource {
    pub(super) fn of(pool: MemoryPool) -> DeviceMemoryResource {
        DeviceMemoryResource(pool)
    }

    /// A device's current pool, which is its default one unless somebody has set another.
    pub(crate) fn current_of(device: Device) -> Outcome<DeviceMemoryResource> {
        let context = device.primary()?;
        let raw = call::device_get_mem_pool(device.raw())?;
        Ok(DeviceMemoryResource(MemoryPool::of_driver(raw, context, PooledMemory::Device(device))?))
    }

    /// `cuMemPoolCreate`: a pool of its own, on a device.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn create(device: Device, options: &DeviceMemoryResourceOptions) -> Result<DeviceMemoryResource> {
        let context = device.context()?;
        let memory = PooledMemory::Device(device);
        Ok(DeviceMemoryResource(MemoryPool::create(memory, options.max_size, options.ipc_enabled, context)?))
    }

    /// A pool of another library's, which is never destroyed here.
    ///
    /// # Errors
    /// What the driver answers when the device's primary context is retained.
    ///
    /// # Safety
    /// The handle is a live pool of `device`, and stays so as long as this and its buffers live.
    #[allow(unsafe_code)]
    pub unsafe fn borrow_raw(raw: CUmemoryPool, device: Device) -> Result<DeviceMemoryResource> {
        let context = device.context()?;
        Ok(DeviceMemoryResource(MemoryPool::of(raw, context, PooledMemory::Device(device), None, None)))
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

impl MemoryPool {
    fn of(
        raw: CUmemoryPool,
        context: Context,
        memory: PooledMemory,
        owned: Option<Owned<PoolKind>>,
        sharing: Option<Sharing>,
    ) -> MemoryPool {
        let (raw, places) = (Opaque(raw), Places::default());
        MemoryPool(Arc::new(Pool { raw, context, memory, owned, sharing, places }))
    }

    /// A pool of the driver's own. Where its release threshold is 0, as the driver makes it, it is raised so that freed
    /// memory is kept for reuse instead of going back to the system at every synchronisation. This disturbs no
    /// capture on any thread.
    pub(super) fn of_driver(raw: CUmemoryPool, context: Context, memory: PooledMemory) -> Outcome<MemoryPool> {
        capture::relaxed(|| {
            let threshold = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            if call::get_attribute(raw, threshold)? == 0 {
                call::set_attribute(raw, threshold, u64::MAX)
            } else {
                Ok(())
            }
        })?;
        Ok(MemoryPool::of(raw, context, memory, None, None))
    }

    /// `cuMemPoolCreate`: a pool of its own.
    pub(super) fn create(
        memory: PooledMemory,
        max_size: usize,
        ipc_enabled: bool,
        context: Context,
    ) -> Outcome<MemoryPool> {
        deferred::before_creating()?;
        let (kind, location) = match memory {
            PooledMemory::Device(device) => {
                (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, Location::Device(device).raw())
            }
            PooledMemory::Pinned(location) => (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, location.raw()),
            PooledMemory::Managed(preferred) => (
                CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED,
                preferred.map_or_else(Location::raw_none, Location::raw),
            ),
        };
        let handle_types = if ipc_enabled {
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        } else {
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        };
        let properties = CUmemPoolProps {
            allocType: kind,
            handleTypes: handle_types,
            location,
            maxSize: max_size,
            ..CUmemPoolProps::default()
        };
        let raw = call::create(&properties)?;
        let owned = Some(Owned::new(raw, Ownership { peers: Peers::default(), imported: false }));
        let sharing = ipc_enabled.then(Sharing::exported);
        Ok(MemoryPool::of(raw, context, memory, owned, sharing))
    }

    /// A share of another process's pool.
    pub(super) fn mapped(
        raw: CUmemoryPool,
        peers: Peers,
        context: Context,
        memory: PooledMemory,
        sharing: Sharing,
    ) -> MemoryPool {
        let owned = Some(Owned::new(raw, Ownership { peers, imported: true }));
        MemoryPool::of(raw, context, memory, owned, Some(sharing))
    }

    pub(super) fn sharing(&self) -> Option<&Sharing> {
        self.0.sharing.as_ref()
    }

    /// The devices that its end takes access from again.
    fn peers(&self) -> Option<&Mutex<Vec<Device>>> {
        self.0.owned.as_ref().map(|owned| &*owned.parent().peers)
    }

    pub(super) fn note_granted(&self, devices: &[Device]) {
        if let Some(peers) = self.peers() {
            let mut peers = peers.lock();
            for device in devices {
                // Its own device has access for good.
                if Some(*device) != self.device_inner() && !peers.contains(device) {
                    peers.push(*device);
                }
            }
        }
    }

    pub(super) fn note_revoked(&self, devices: &[Device]) {
        if let Some(peers) = self.peers() {
            peers.lock().retain(|peer| !devices.contains(peer));
        }
    }

    /// What its memory is.
    pub fn memory(&self) -> PooledMemory {
        self.0.memory
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUmemoryPool {
        self.0.raw.0
    }

    /// Whether the pool is one of its own, destroyed with it.
    pub fn is_owned(&self) -> bool {
        self.0.owned.is_some()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn device_inner(&self) -> Option<Device> {
        match self.memory() {
            PooledMemory::Device(device) | PooledMemory::Managed(Some(Location::Device(device))) => Some(device),
            PooledMemory::Pinned(_) | PooledMemory::Managed(_) => None,
        }
    }

    /// An attribute's value; flags are 0 or 1, the rest bytes.
    ///
    /// # Errors
    /// What the driver answers. During a capture that is not relaxed it refuses, and the capture is invalidated.
    pub fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        Ok(call::get_attribute(self.as_raw(), attribute)?)
    }

    /// Sets an attribute. A high-water mark can only be set to 0.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for an attribute that can only be read.
    pub fn set_attribute(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        Ok(call::set_attribute(self.as_raw(), attribute, value)?)
    }

    /// `cuMemPoolTrimTo`: gives unused memory back to the system, but for `keep` bytes.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        Ok(call::trim_to(self.as_raw(), keep)?)
    }

    /// `cuMemAllocFromPoolAsync`: memory of this many bytes, usable in the stream's order, and given back in it.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, and what else the driver answers; [`ErrorKind::Type`](crate::ErrorKind::Type) for
    /// another process's pool.
    #[inline]
    pub fn allocate(&self, bytes: usize, stream: &Stream) -> Result<Buffer> {
        if stream.is_default() {
            return Ok(self.allocate_on_default(bytes, stream)?);
        }
        if recording::any() || !stream.is_owned() {
            match refuse_in_capture(stream)? {
                Captured::No => {}
                Captured::BySomebody => {
                    let address = call::alloc_from_pool_async(bytes, self.as_raw(), stream.raw())?;
                    return Ok(Buffer::of_graph(address, bytes, self.context().clone(), stream.clone()));
                }
            }
        }
        let is_streams = stream.has_pool(self);
        if is_streams {
            stream.take_place();
        } else {
            self.take_place();
        }
        deferred::before_creating()?;
        let address = match call::alloc_from_pool_async(bytes, self.as_raw(), stream.raw()) {
            Err(failure) if failure.status() == Some(code::OUT_OF_MEMORY) && deferred::pending() > 0 => {
                // Memory whose release waits may be what is missing.
                failure.answered();
                deferred::drain();
                call::alloc_from_pool_async(bytes, self.as_raw(), stream.raw())
            }
            result => result,
        };
        let address = address.map_err(|failure| self.refuses(failure))?;
        let pool = if is_streams { None } else { Some(self.clone()) };
        Ok(Buffer::pooled(address, bytes, pool, stream.clone()))
    }

    /// Whether both are shares of one.
    #[inline]
    pub(crate) fn is_same(&self, other: &MemoryPool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Before a buffer is made that has a share of it: a place for its release, should that have to wait.
    #[inline]
    pub(super) fn take_place(&self) {
        self.0.places.cover(Arc::strong_count(&self.0) + 1);
    }

    /// On a default stream, which is the current context's, or without one the device's primary context's.
    #[cold]
    fn allocate_on_default(&self, bytes: usize, stream: &Stream) -> Outcome<Buffer> {
        self.take_place();
        deferred::before_creating()?;
        let stream = self.bound(stream)?;
        let context = stream.bound_context().unwrap_or(self.context());
        let raw = stream.raw();
        let address = scope::create(
            context.raw(),
            || call::alloc_from_pool_async(bytes, self.as_raw(), raw),
            |address| call::free_async(address, raw),
        )
        .map_err(|failure| self.refuses(failure))?;
        Ok(Buffer::pooled(address, bytes, Some(self.clone()), stream))
    }

    /// A stream as it can order a release later: a default stream together with the context whose it is now.
    pub(crate) fn bound(&self, stream: &Stream) -> Outcome<Stream> {
        stream.bound(self.context())
    }

    /// Gives up this share. If no other share and no buffer is left, a pool of its own is destroyed, and the
    /// driver's answer returned.
    ///
    /// # Errors
    /// What `cuMemPoolDestroy` answers.
    pub fn close(self) -> Result<()> {
        match Arc::into_inner(self.0).and_then(|pool| pool.owned) {
            Some(owned) => Ok(owned.close()?),
            None => Ok(()),
        }
    }
}

/// Whether a stream that cuirass did not begin to capture is being captured.
enum Captured {
    No,
    BySomebody,
}

/// Memory of a pool does not belong in a graph: nothing would order its release after the graph's launches.
#[cold]
fn refuse_in_capture(stream: &Stream) -> Outcome<Captured> {
    if recording::of(stream).is_some() {
        return Err(Failure::misuse(
            Misuse::State,
            "the stream is being captured by a graph builder: memory of a graph comes from a GraphMemoryResource",
        ));
    }
    // Another library's stream may be captured by it: the memory then belongs to its graph.
    if stream.is_owned()
        || builder::stream_is_capturing(stream.raw())? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
    {
        return Ok(Captured::No);
    }
    Ok(Captured::BySomebody)
}

impl MemoryResource for MemoryPool {
    fn allocate(&self, bytes: usize, stream: &Stream) -> Result<Buffer> {
        MemoryPool::allocate(self, bytes, stream)
    }

    fn deallocate(&self, address: u64, _bytes: usize, stream: &Stream) -> Result<()> {
        if self.is_mapped() {
            // The shares of the mapping are counted: it would go with buffers that have it still.
            let text = "cannot free memory of a mapped memory resource by its address: close the buffers that have it";
            return Err(Failure::misuse(Misuse::Type, text).raise());
        }
        let what = format_args!("memory {address:#x} (stream {:p})", stream.raw());
        let stream = match self.bound(stream) {
            Ok(stream) => stream,
            Err(failure) => return Ok(scope::ended((self.clone(), stream.clone()), Err(failure.leaking(what)))?),
        };
        let free = || capture::release(what, || call::free_async(address, stream.raw()));
        let result = match stream.bound_context() {
            Some(context) => scope::release(context.raw(), what, free),
            None => free(),
        };
        Ok(scope::ended((self.clone(), stream), result)?)
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        !matches!(self.memory(), PooledMemory::Device(_))
    }

    fn device(&self) -> Option<Device> {
        self.device_inner()
    }
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryPool({:p}, {:?})", self.as_raw(), self.memory())
    }
}
