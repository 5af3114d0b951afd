//! Buffers, and what memory resources have in common.

use crate::context::{Context, capture, scope};
use crate::deferred;
use crate::device::Device;
use crate::graph::{boundary, recording};
use crate::memory::held::Held;
use crate::memory::ipc::{IpcBufferDescriptor, imports};
use crate::memory::pool::MemoryPool;
use crate::memory::r#virtual::{self, Reservation, Reservations, VirtualMemoryResource};
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::graph::builder;
use cuirass_call::later::{self, Attempt};
use cuirass_call::memory::{buffer as call, pinned, pool};
use cuirass_call::owner::{Handle, Kind, Owned};
use cuirass_call::status::code;
use cuirass_call::sys::cuda::CUstreamCaptureStatus;
use cuirass_fault::lock::Mutex;
use cuirass_fault::{Failure, Misuse};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Where memory comes from. Users may bring their own; [`Buffer::from_resource`] makes its buffers.
pub trait MemoryResource: Send + Sync {
    /// Memory of this many bytes, usable in the stream's order.
    ///
    /// # Errors
    /// Whatever it fails with; nothing is then allocated.
    fn allocate(&self, bytes: usize, stream: &Stream) -> Result<Buffer>;

    /// Takes back memory that [`Buffer::from_resource`] was given, in the stream's order.
    ///
    /// # Errors
    /// Whatever it fails with; it is not called again for the same memory.
    fn deallocate(&self, address: u64, bytes: usize, stream: &Stream) -> Result<()>;

    /// Whether kernels can use its memory.
    fn is_device_accessible(&self) -> bool;

    /// Whether the host can.
    fn is_host_accessible(&self) -> bool;

    /// The device that it is on; `None` for host memory.
    fn device(&self) -> Option<Device>;
}

/// A piece of memory: an address, a size, where it comes from, and the stream that orders its release. Dropped or
/// closed, it goes back, once the work that is on that stream by then is done.
pub struct Buffer(Owned<Memory>);

pub(crate) struct Memory;

#[derive(Clone, Copy)]
pub(crate) struct Range {
    address: u64,
    bytes: usize,
}

impl Range {
    /// Memory of unknown size.
    pub(super) fn at(address: u64) -> Range {
        Range { address, bytes: 0 }
    }

    pub(crate) fn address(self) -> u64 {
        self.address
    }
}

impl Handle for Range {
    fn number(self) -> u64 {
        self.address
    }
}

pub(crate) struct Origin {
    source: Source,
    /// What orders the release. A lock, since it can be replaced.
    release_stream: Mutex<Option<Stream>>,
    /// Its handle, for those who only compare; 0 where no stream orders the release.
    release_handle: AtomicUsize,
    /// What graphs hold that refer to the memory, once one does.
    held: OnceLock<Arc<Held>>,
    /// For the release, should it have to wait, where no pool has a place for it.
    _place: Option<later::Slot>,
}

enum Source {
    /// Of this pool; where there is none, of the one that its stream has a share of.
    Pool(OnceLock<MemoryPool>),
    /// Another process's.
    Imported(Box<Imported>),
    /// `cuMemAlloc`.
    Synchronous(Context),
    /// `cuMemAllocHost`.
    Pinned(Context),
    Resource(Arc<dyn MemoryResource>),
    /// Mapped to reserved addresses.
    Virtual(Box<VirtualMemory>),
    /// Allocated by a graph, to which it belongs.
    Graph(Context),
    /// Not ours to free; what keeps it alive is kept.
    Borrowed {
        _owner: Option<Arc<dyn Any + Send + Sync>>,
    },
}

struct VirtualMemory {
    reservations: Reservations,
    resource: VirtualMemoryResource,
}

struct Imported {
    pool: MemoryPool,
    descriptor: IpcBufferDescriptor,
}

impl Kind for Memory {
    const NAME: &'static str = "a buffer";
    type Raw = Range;
    type Parent = Origin;
    const HAS_PLACE: bool = false;

    #[inline]
    fn release(range: Range, mut origin: Origin) -> Outcome<()> {
        if origin.held.get_mut().is_some() {
            return Memory::release_held(range, origin);
        }
        let stream = origin.release_stream.into_inner();
        match origin.source {
            Source::Pool(own) => release_to_pool(range, own.into_inner(), stream),
            source => Memory::release_other(range, source, stream),
        }
    }

    fn waits(origin: &Origin) -> bool {
        matches!(origin.source, Source::Synchronous(_) | Source::Pinned(_) | Source::Virtual(_))
    }
}

impl Memory {
    /// Of memory that is not one of our pools'.
    #[inline(never)]
    fn release_other(range: Range, source: Source, stream: Option<Stream>) -> Outcome<()> {
        match source {
            Source::Pool(own) => release_to_pool(range, own.into_inner(), stream),
            Source::Imported(imported) => {
                imports::release(range, imported.pool, stream.unwrap_or_else(Stream::legacy_default))
            }
            Source::Synchronous(_context) if range.address == 0 => Ok(()),
            // Measured: no context has to be current.
            Source::Synchronous(context) => {
                let result = release_synchronous(range.address, &context);
                scope::ended(context, result)
            }
            Source::Pinned(context) => {
                let address = std::ptr::with_exposed_provenance_mut(usize::try_from(range.address).unwrap_or(0));
                let what = format_args!("page-locked memory {address:p}");
                let free = || capture::release(what, || pinned::free_host(address));
                let result = scope::release(context.raw(), what, free);
                scope::ended(context, result)
            }
            Source::Resource(resource) => {
                let stream = stream.unwrap_or_else(Stream::legacy_default);
                resource.deallocate(range.address, range.bytes, &stream).map_err(Failure::from)
            }
            Source::Virtual(memory) => r#virtual::release(memory.reservations, memory.resource.into_context(), stream),
            Source::Borrowed { .. } | Source::Graph(_) => Ok(()),
        }
    }

    /// Of memory that graphs have held.
    #[cold]
    fn release_held(range: Range, mut origin: Origin) -> Outcome<()> {
        match origin.held.take().filter(Held::is_shared) {
            Some(held) => {
                held.take_over(Owned::new(range, origin));
                Ok(())
            }
            None => <Memory as Kind>::release(range, origin),
        }
    }
}

/// `cuMemFree_v2` wants a context to be current.
fn release_synchronous(address: u64, context: &Context) -> Outcome<()> {
    let what = format_args!("memory {address:#x}");
    scope::release(context.raw(), what, || capture::release(what, || call::free(address)))
}

#[inline(always)]
fn release_to_pool(range: Range, own: Option<MemoryPool>, stream: Option<Stream>) -> Outcome<()> {
    deferred::drain_if_any();
    let stream = stream.unwrap_or_else(Stream::legacy_default);
    let Some(resource) = own.as_ref().or_else(|| stream.pool()) else {
        return Err(
            Failure::internal("pooled memory without a pool").leaking(format_args!("memory {:#x}", range.address))
        );
    };
    match free_or_leak(range, resource, &stream)? {
        Attempt::Done => {
            // Each may be the last share of its own: a pool ends before the context does that its memory was freed in.
            drop(own);
            drop(stream);
            Ok(())
        }
        Attempt::Wait => {
            let resource = resource.clone();
            deferred::defer(Memory::NAME, range, move || try_release_to_pool(range, &resource, &stream));
            Ok(())
        }
    }
}

/// As a release that had to wait tries again.
#[inline(never)]
pub(super) fn try_release_to_pool(range: Range, resource: &MemoryPool, stream: &Stream) -> Outcome<Attempt> {
    free_or_leak(range, resource, stream)
}

#[inline(always)]
fn free_or_leak(range: Range, resource: &MemoryPool, stream: &Stream) -> Outcome<Attempt> {
    free_in_pool(range, resource, stream).map_err(|failure| not_freed(resource, stream, failure))
}

#[cold]
fn not_freed(resource: &MemoryPool, stream: &Stream, failure: Failure) -> Failure {
    scope::keep_if_leaked((resource.clone(), stream.clone()), failure)
}

/// Pooled memory on its way back, as a report names it.
#[derive(Clone, Copy)]
struct Freed<'a> {
    range: Range,
    stream: &'a Stream,
    pool: &'a MemoryPool,
}

impl fmt::Display for Freed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Freed { range, stream, pool } = self;
        write!(f, "memory {:#x} (stream {:p}, pool {:p})", range.address, stream.raw(), pool.as_raw())
    }
}

impl Freed<'_> {
    #[inline]
    fn free(self) -> Outcome<()> {
        capture::release(self, || pool::free_async(self.range.address, self.stream.raw()))
    }
}

/// Frees pooled memory in the order of a stream; not while that stream is being captured, nor on the legacy default
/// stream while a capture involves it, where the driver refuses and the second would invalidate the capture.
#[inline(always)]
fn free_in_pool(range: Range, resource: &MemoryPool, stream: &Stream) -> Outcome<Attempt> {
    let freed = Freed { range, stream, pool: resource };
    if stream.is_default() {
        return free_on_default_stream(freed);
    }
    // While this release is on its way no graph builder begins or ends a capture of the stream.
    let Some(_releasing) = boundary::releasing(stream.raw()) else { return Ok(Attempt::Wait) };
    if (recording::any() || !stream.is_created()) && is_captured(stream, freed)? {
        return Ok(Attempt::Wait);
    }
    match freed.free() {
        Ok(()) => Ok(Attempt::Done),
        Err(failure) => refused(stream, failure),
    }
}

/// The driver has refused to free: perhaps because somebody captures the stream.
#[cold]
fn refused(stream: &Stream, failure: Failure) -> Outcome<Attempt> {
    let by_a_capture = matches!(failure.status(), Some(code::INVALID_VALUE | code::STREAM_CAPTURE_INVALIDATED));
    if !by_a_capture {
        return Err(failure);
    }
    match builder::stream_is_capturing(stream.raw()) {
        Ok(status) if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => {
            failure.answered();
            Ok(Attempt::Wait)
        }
        // It was when it was refused, and its capture by somebody else has ended since.
        Ok(_not_captured) if failure.status() == Some(code::STREAM_CAPTURE_INVALIDATED) => {
            failure.answered();
            Ok(Attempt::Wait)
        }
        Ok(_not_captured) => Err(failure),
        Err(asking) => Err(asking.attach_to(failure, "whether the stream is being captured is not known")),
    }
}

/// A default stream is the current context's: the one it was allocated in, if that was noted.
#[cold]
fn free_on_default_stream(freed: Freed<'_>) -> Outcome<Attempt> {
    let stream = freed.stream;
    let context = stream.bound_context().unwrap_or_else(|| freed.pool.context());
    let mut attempt = Attempt::Done;
    scope::release(context.raw(), format_args!("{freed}"), || {
        // Asking disturbs no capture; freeing would.
        match builder::stream_is_capturing(stream.raw()) {
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) => freed.free(),
            Ok(_captured) => {
                attempt = Attempt::Wait;
                Ok(())
            }
            Err(failure) if failure.status() == Some(code::STREAM_CAPTURE_IMPLICIT) => {
                failure.answered();
                attempt = Attempt::Wait;
                Ok(())
            }
            Err(failure) => Err(failure.leaking(freed)),
        }
    })?;
    Ok(attempt)
}

/// Another library may be capturing its own stream.
#[cold]
fn is_captured(stream: &Stream, what: impl fmt::Display) -> Outcome<bool> {
    if recording::is_captured(stream) {
        return Ok(true);
    }
    if stream.is_created() { Ok(false) } else { stream.is_in_a_capture().map_err(|failure| failure.leaking(what)) }
}

/// The legacy default stream waits for no work that is being captured, and asking disturbs no capture.
fn refuse_during_capture(producer: &Stream, legacy: &Stream) -> Outcome<()> {
    if builder::stream_is_capturing(producer.raw())? == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return builder::stream_is_capturing(legacy.raw()).map(|_not_captured| ());
    }
    let message = "the memory's stream is being captured: the legacy default stream cannot wait for it; name another \
                   stream, or none to be ordered";
    Err(Failure::misuse(Misuse::State, message))
}

impl Buffer {
    fn new(address: u64, bytes: usize, source: Source, release_stream: Option<Stream>) -> Buffer {
        let release_handle = AtomicUsize::new(release_stream.as_ref().map_or(0, |stream| stream.raw().addr()));
        let release_stream = Mutex::new(release_stream);
        let _place = (!matches!(source, Source::Pool(_))).then(later::Slot::take);
        let origin = Origin { source, release_stream, release_handle, held: OnceLock::new(), _place };
        Buffer(Owned::new(Range { address, bytes }, origin))
    }

    /// Of a pool, or of the one that the stream has.
    #[inline]
    pub(crate) fn pooled(address: u64, bytes: usize, pool: Option<MemoryPool>, stream: Stream) -> Buffer {
        let own = pool.map_or_else(OnceLock::new, OnceLock::from);
        Buffer::new(address, bytes, Source::Pool(own), Some(stream))
    }

    /// Another process's memory, of which this is a share.
    pub(super) fn imported(address: u64, pool: MemoryPool, descriptor: IpcBufferDescriptor, stream: Stream) -> Buffer {
        let bytes = descriptor.size();
        Buffer::new(address, bytes, Source::Imported(Box::new(Imported { pool, descriptor })), Some(stream))
    }

    /// What another process's memory was imported by.
    pub(super) fn imported_by(&self) -> Option<&IpcBufferDescriptor> {
        match &self.0.parent().source {
            Source::Imported(imported) => Some(&imported.descriptor),
            _ => None,
        }
    }

    /// Whether it is another process's memory.
    pub fn is_mapped(&self) -> bool {
        self.imported_by().is_some()
    }

    /// Memory that belongs to a graph: only an explicit close gives it back.
    pub(crate) fn of_graph(address: u64, bytes: usize, context: Context, stream: Stream) -> Buffer {
        Buffer::new(address, bytes, Source::Graph(context), Some(stream))
    }

    /// Memory that is mapped to reserved addresses.
    pub(super) fn of_reservations(
        reservations: Reservations,
        resource: &VirtualMemoryResource,
        stream: Option<Stream>,
    ) -> Buffer {
        let address = reservations.first().map_or(0, Reservation::address);
        let bytes = reservations.iter().map(Reservation::len).sum();
        let memory = VirtualMemory { reservations, resource: resource.clone() };
        Buffer::new(address, bytes, Source::Virtual(Box::new(memory)), stream)
    }

    pub(super) fn reservations(&self) -> Option<(&[Reservation], &VirtualMemoryResource)> {
        match &self.0.parent().source {
            Source::Virtual(memory) => Some((&memory.reservations, &memory.resource)),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn is_virtual(&self) -> bool {
        matches!(self.0.parent().source, Source::Virtual(_))
    }

    /// Whether its memory is virtual, and has been mapped in several parts.
    #[inline]
    pub(super) fn has_several_mappings(&self) -> bool {
        match &self.0.parent().source {
            Source::Virtual(memory) => memory.reservations.iter().flat_map(Reservation::mappings).nth(1).is_some(),
            _ => false,
        }
    }

    /// The same with one more reservation, right behind its memory.
    pub(super) fn grown_by(self, more: Reservation) -> Buffer {
        let (mut range, mut origin) = self.0.into_raw();
        range.bytes += more.len();
        if let Source::Virtual(memory) = &mut origin.source {
            memory.reservations.push(more);
        }
        Buffer(Owned::new(range, origin))
    }

    /// A share of its memory, for graphs that refer to it.
    pub(crate) fn held(&self) -> &Arc<Held> {
        self.0.parent().held.get_or_init(Held::new)
    }

    /// The same, where graphs have had one already.
    #[inline]
    pub(crate) fn held_if_any(&self) -> Option<&Arc<Held>> {
        self.0.parent().held.get()
    }

    pub(crate) fn pinned(address: u64, bytes: usize, context: Context) -> Buffer {
        Buffer::new(address, bytes, Source::Pinned(context), None)
    }

    /// Memory that goes back to a user's resource: [`MemoryResource::deallocate`] is called once.
    ///
    /// # Safety
    /// There is memory of this size at the address, until it is given back to the resource.
    #[allow(unsafe_code)]
    pub unsafe fn from_resource(
        address: u64,
        bytes: usize,
        resource: Arc<dyn MemoryResource>,
        stream: &Stream,
    ) -> Buffer {
        Buffer::new(address, bytes, Source::Resource(resource), Some(stream.clone()))
    }

    /// Memory that belongs to somebody else: it is not freed here, and `owner` is kept as long as the buffer.
    ///
    /// # Safety
    /// The memory is there as long as `owner` lives, and is what the buffer is used for.
    #[allow(unsafe_code)]
    pub unsafe fn borrow_raw(address: u64, bytes: usize, owner: Option<Arc<dyn Any + Send + Sync>>) -> Buffer {
        Buffer::new(address, bytes, Source::Borrowed { _owner: owner }, None)
    }

    /// Takes charge of stream-ordered memory of a pool: it is freed in the stream's order.
    ///
    /// # Safety
    /// The memory was allocated from `resource`'s pool, and nobody else frees it.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(address: u64, bytes: usize, resource: &MemoryPool, stream: &Stream) -> Buffer {
        resource.take_place();
        Buffer::pooled(address, bytes, Some(resource.clone()), stream.clone())
    }

    /// Its address: the driver's handle.
    #[inline]
    pub fn as_raw(&self) -> u64 {
        self.0.raw_ref().address
    }

    #[inline]
    pub(crate) fn address_ref(&self) -> &u64 {
        &self.0.raw_ref().address
    }

    /// Its size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.raw_ref().bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stream that orders its release, if one does.
    pub fn deallocation_stream(&self) -> Option<Stream> {
        self.0.parent().release_stream.lock().clone()
    }

    /// The handle of that stream; 0 where no stream orders the release.
    #[inline]
    pub(crate) fn release_handle(&self) -> usize {
        self.0.parent().release_handle.load(Ordering::Acquire)
    }

    /// What comes later on a stream waits for the work that is by now on the stream that orders the release
    /// (`cuStreamWaitEvent`): how memory is handed on to another stream. Default streams are those of the buffer's
    /// context. Memory whose release no stream orders is ready.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) if the legacy default stream is to wait for a stream that is being
    /// captured, which would invalidate the capture; what the driver answers:
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` if a capture involves the legacy default stream.
    pub fn ready_on(&self, stream: &Stream) -> Result<()> {
        let Some(producer) = self.deallocation_stream() else { return Ok(()) };
        if producer.raw() == stream.raw() {
            return Ok(());
        }
        let context = producer.context_inner()?;
        if stream.is_legacy_default() {
            scope::read(context.raw(), || refuse_during_capture(&producer, stream))?;
        }
        Ok(stream.wait_in(&producer, &context)?)
    }

    fn replace_release_stream(&self, stream: Stream) {
        let origin = self.0.parent();
        let mut release_stream = origin.release_stream.lock();
        // Under the lock: threads that replace it at once leave the handle of the stream that stays.
        origin.release_handle.store(stream.raw().addr(), Ordering::Release);
        let replaced = release_stream.replace(stream);
        // The one before is let go after the lock: it may be the last share of its stream.
        drop(release_stream);
        drop(replaced);
    }

    /// Replaces the stream that orders its release: the memory goes back once what is on this stream by then is done.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for memory whose release no stream orders.
    pub fn set_deallocation_stream(&self, stream: &Stream) -> Result<()> {
        match &self.0.parent().source {
            Source::Pool(own) => {
                let pool = self.pool_of(own).ok_or_else(|| Failure::internal("pooled memory without a pool"))?;
                let stream = pool.bound(stream)?;
                // The stream that it had has the pool, and the next one may have another.
                pool.take_place();
                own.get_or_init(|| pool);
                self.replace_release_stream(stream);
                Ok(())
            }
            Source::Virtual(memory) if self.deallocation_stream().is_some() => {
                self.replace_release_stream(memory.resource.bound(stream)?);
                Ok(())
            }
            Source::Imported(imported) => {
                self.replace_release_stream(imported.pool.bound(stream)?);
                Ok(())
            }
            Source::Resource(_) | Source::Graph(_) => {
                self.replace_release_stream(stream.clone());
                Ok(())
            }
            _ => Err(Failure::misuse(Misuse::State, "the release of this buffer is ordered by no stream").raise()),
        }
    }

    /// The pool that it comes from, if it comes from one.
    pub fn pool(&self) -> Option<MemoryPool> {
        match &self.0.parent().source {
            Source::Pool(own) => self.pool_of(own),
            Source::Imported(imported) => Some(imported.pool.clone()),
            _ => None,
        }
    }

    /// The pool of pooled memory that has `own`, or the one of its stream.
    fn pool_of(&self, own: &OnceLock<MemoryPool>) -> Option<MemoryPool> {
        let asked_of_stream = || {
            let of_stream = self.deallocation_stream().and_then(|stream| stream.pool().cloned());
            // Asked again: who replaces the stream, perhaps by one without a pool, has set it before.
            own.get().cloned().or(of_stream)
        };
        own.get().cloned().or_else(asked_of_stream)
    }

    /// Whether kernels can use it, as far as its resource says.
    pub fn is_device_accessible(&self) -> bool {
        match &self.0.parent().source {
            Source::Resource(resource) => resource.is_device_accessible(),
            Source::Virtual(memory) => memory.resource.is_device_accessible(),
            _ => true,
        }
    }

    /// Whether the host can use it, as far as its resource says.
    pub fn is_host_accessible(&self) -> bool {
        match &self.0.parent().source {
            Source::Pinned(_) => true,
            Source::Pool(own) => self.pool_of(own).is_some_and(|pool| pool.is_host_accessible()),
            Source::Imported(imported) => imported.pool.is_host_accessible(),
            Source::Resource(resource) => resource.is_host_accessible(),
            Source::Virtual(memory) => memory.resource.is_host_accessible(),
            _ => false,
        }
    }

    /// The device that it is on, as far as its resource says; `None` for host memory.
    pub fn device(&self) -> Option<Device> {
        match &self.0.parent().source {
            Source::Pool(own) => self.pool_of(own).and_then(|pool| pool.device_inner()),
            Source::Imported(imported) => imported.pool.device_inner(),
            Source::Synchronous(context) | Source::Graph(context) => Some(context.device()),
            Source::Resource(resource) => resource.device(),
            Source::Virtual(memory) => memory.resource.device(),
            Source::Pinned(_) | Source::Borrowed { .. } => None,
        }
    }

    /// Gives the memory back in the order of its release stream, and returns the answer. Memory that a graph refers to
    /// stays until the graph is gone. Memory that a graph allocated belongs to it, and goes back only by this: in the
    /// graph while the stream is captured, once per launch afterwards.
    ///
    /// # Errors
    /// What the driver answers to the release; the memory is spent all the same.
    pub fn close(self) -> Result<()> {
        if let Source::Graph(context) = &self.0.parent().source {
            let stream = self.deallocation_stream().unwrap_or_else(Stream::legacy_default);
            let free = || capture::relaxed(|| pool::free_async(self.as_raw(), stream.raw()));
            return Ok(scope::release(context.raw(), format_args!("memory {:#x}", self.as_raw()), free)?);
        }
        Ok(self.0.close()?)
    }

    /// As [`close`](Buffer::close), in the order of this stream; memory whose release no stream orders goes back once the
    /// stream has been waited for. A stream that is being captured is not waited for, which would spoil the capture: the
    /// memory goes back when that has ended.
    ///
    /// # Errors
    /// As [`close`](Buffer::close). What the driver answers where the stream cannot order the release, or cannot be waited
    /// for: the work on it may use the memory, which is leaked, as a note says.
    pub fn close_on(self, stream: &Stream) -> Result<()> {
        let own = self.release_handle();
        if own == stream.raw().addr() && !stream.is_default() {
            return self.close();
        }
        let ordered = match own {
            0 => stream.wait_for_release().map_err(Failure::raise),
            _ => self.set_deallocation_stream(stream).map(|()| None),
        };
        match ordered {
            Ok(None) => self.close(),
            Ok(Some(captured)) => {
                let address = self.as_raw();
                captured.release_behind(Memory::NAME, address, self, |buffer| buffer.0.close());
                Ok(())
            }
            Err(error) => Err(self.leaked_behind(stream, error)),
        }
    }

    /// It is not certain that the device is done with it.
    #[cold]
    fn leaked_behind(self, stream: &Stream, error: crate::Error) -> crate::Error {
        let raw = stream.raw();
        let failure = Failure::from(error).leaking(format_args!(
            "memory {:#x}, which was to go back behind the work on stream {raw:p},",
            self.as_raw()
        ));
        scope::keep_if_leaked(self, failure).raise()
    }

    /// Leaves the memory to the caller, who frees it. Another process's stays mapped as long as this process lives.
    pub fn into_raw(self) -> u64 {
        self.0.into_raw().0.address
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.as_raw(), self.len())
    }
}

/// Device memory by `cuMemAlloc`: for devices without memory pools, and for memory that no stream orders.
#[derive(Clone)]
pub struct SynchronousMemoryResource(Context);

impl SynchronousMemoryResource {
    /// Memory of a device.
    ///
    /// # Errors
    /// What the driver answers when its primary context is retained.
    pub fn new(device: Device) -> Result<SynchronousMemoryResource> {
        Ok(SynchronousMemoryResource(device.context()?))
    }
}

impl MemoryResource for SynchronousMemoryResource {
    /// `cuMemAlloc_v2`; the stream plays no part. Memory of 0 bytes has no address.
    fn allocate(&self, bytes: usize, _stream: &Stream) -> Result<Buffer> {
        deferred::before_creating()?;
        let address = match bytes {
            0 => 0,
            bytes => scope::create(self.0.raw(), || call::alloc(bytes), call::free)?,
        };
        Ok(Buffer::new(address, bytes, Source::Synchronous(self.0.clone()), None))
    }

    fn deallocate(&self, address: u64, _bytes: usize, _stream: &Stream) -> Result<()> {
        Ok(release_synchronous(address, &self.0)?)
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        false
    }

    fn device(&self) -> Option<Device> {
        Some(self.0.device())
    }
}
