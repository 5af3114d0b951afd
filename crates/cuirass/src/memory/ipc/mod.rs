//! Pools, memory and events shared between processes.
//!
//! A pool made for it is exported as a file descriptor ([`IpcAllocationHandle`]), which another process imports: its
//! mapped pool allocates nothing, and imports what [`Buffer::ipc_descriptor`](crate::Buffer::ipc_descriptor) describes.
//! How descriptors travel is the program's business: bytes by any channel, a file descriptor over a socket.

mod descriptor;
mod event;
pub(super) mod imports;
pub(crate) mod pools;

pub use descriptor::{IpcBufferDescriptor, IpcEventDescriptor};

use crate::context::{Context, scope};
use crate::deferred;
use crate::device::Device;
use crate::memory::buffer::Buffer;
use crate::memory::location::Location;
use crate::memory::peer;
use crate::memory::pinned::PinnedMemoryResource;
use crate::memory::pool::{DeviceMemoryResource, MemoryPool, PooledMemory};
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::memory::ipc as call;
use cuirass_call::owner::{Kind, Owned};
use cuirass_fault::{Failure, Misuse};
use std::ffi::c_int;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// What a pool that is shared between processes is known by.
pub(super) struct Sharing {
    /// Of an imported pool only once somebody has said it.
    uuid: OnceLock<[u8; 16]>,
    /// Whether it is another process's pool.
    mapped: bool,
    /// Whether the driver has exported it: before that it exports no pointer of it.
    exported: AtomicBool,
}

impl Sharing {
    /// Of a pool of this process's.
    pub(super) fn exported() -> Sharing {
        Sharing { uuid: OnceLock::from(random_uuid()), mapped: false, exported: AtomicBool::new(false) }
    }

    fn mapped(uuid: Option<[u8; 16]>) -> Sharing {
        let uuid = uuid.map_or_else(OnceLock::new, OnceLock::from);
        Sharing { uuid, mapped: true, exported: AtomicBool::new(false) }
    }
}

/// A random UUID (version 4).
fn random_uuid() -> [u8; 16] {
    // Each state has keys of its own, from the system.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let halves = [0_u8, 1].map(|half| RandomState::new().hash_one((std::process::id(), now, half)));
    let mut uuid = (u128::from(halves[0]) << 64 | u128::from(halves[1])).to_be_bytes();
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// A UUID as it is written.
struct Shown([u8; 16]);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// What another process needs to use a pool's memory: a file descriptor, closed with it, and the pool's UUID.
pub struct IpcAllocationHandle {
    file: Owned<FileKind>,
    /// The number that the caller gave, of which this file descriptor is a copy.
    copy_of: Option<RawFd>,
    uuid: Option<[u8; 16]>,
}

struct FileKind;

impl Kind for FileKind {
    const NAME: &'static str = "an allocation handle";
    type Raw = c_int;
    type Parent = ();

    fn release(file: c_int, (): ()) -> Outcome<()> {
        call::close_file(file)
    }
}

impl IpcAllocationHandle {
    /// Takes charge of a file descriptor that another process has sent, with its pool's UUID where that is known.
    pub fn from_file(file: OwnedFd, uuid: Option<[u8; 16]>) -> IpcAllocationHandle {
        IpcAllocationHandle { file: Owned::new(file.into_raw_fd(), ()), copy_of: None, uuid }
    }

    /// A handle with a file descriptor of its own, of the same file as one that stays the caller's.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State), with what the system says, if the descriptor is not open or there
    /// are too many.
    pub fn duplicate_of(file: RawFd, uuid: Option<[u8; 16]>) -> Result<IpcAllocationHandle> {
        deferred::before_creating()?;
        let copy = call::duplicate_file(file)?;
        Ok(IpcAllocationHandle { file: Owned::new(copy, ()), copy_of: Some(file), uuid })
    }

    /// Says in an error which file descriptor the caller knows.
    fn note_on(&self, failure: Failure) -> Failure {
        match self.copy_of {
            Some(file) if failure.status().is_some() => {
                failure.note(format!("file descriptor {} is a copy of {file}, which was given", self.file.raw()))
            }
            _ => failure,
        }
    }

    /// The UUID of its pool; `None` for a handle that was made of a file descriptor alone.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// Closes the file descriptor. Pools that were imported by it are as they were.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State), with what the system says; the descriptor is spent all the same.
    pub fn close(self) -> Result<()> {
        Ok(self.file.close()?)
    }
}

impl AsRawFd for IpcAllocationHandle {
    fn as_raw_fd(&self) -> RawFd {
        self.file.raw()
    }
}

impl fmt::Debug for IpcAllocationHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpcAllocationHandle({})", self.file.raw())
    }
}

impl MemoryPool {
    /// Whether its memory can be used by other processes, or is another process's.
    pub fn is_ipc_enabled(&self) -> bool {
        self.sharing().is_some()
    }

    /// Whether it is another process's pool: it allocates nothing, and imports memory.
    pub fn is_mapped(&self) -> bool {
        self.sharing().is_some_and(|sharing| sharing.mapped)
    }

    /// What names it between processes; `None` for a pool of this process alone, and for an imported one whose UUID
    /// nobody has said.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.sharing()?.uuid.get().copied()
    }

    /// Says which pool an imported one is, where its handle did not.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for a pool of this process alone;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) if it is known to be another.
    pub fn identify(&self, uuid: [u8; 16]) -> Result<()> {
        let known = *self.shared()?.uuid.get_or_init(|| uuid);
        if known == uuid {
            return Ok(());
        }
        let text = format!("this memory resource is {}, and not {}", Shown(known), Shown(uuid));
        Err(Failure::misuse(Misuse::Value, text).raise())
    }

    fn shared(&self) -> Outcome<&Sharing> {
        self.sharing().ok_or_else(|| {
            let text = "this memory resource is not IPC-enabled: its memory is for this process alone. Make it with \
                        ipc_enabled in its options";
            Failure::misuse(Misuse::State, text)
        })
    }

    /// `cuMemPoolExportToShareableHandle`: what another process imports this pool by. Each has a file descriptor of its
    /// own.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for a pool that is not IPC-enabled, or is another process's; what
    /// the driver answers.
    pub fn allocation_handle(&self) -> Result<IpcAllocationHandle> {
        let sharing = self.shared()?;
        if sharing.mapped {
            let text = "this memory resource is another process's: only that can export it, or the handle that it was \
                        imported by be passed on";
            return Err(Failure::misuse(Misuse::State, text).raise());
        }
        let file = self.export(sharing)?;
        Ok(IpcAllocationHandle { file, copy_of: None, uuid: sharing.uuid.get().copied() })
    }

    fn export(&self, sharing: &Sharing) -> Outcome<Owned<FileKind>> {
        deferred::before_creating()?;
        let export = || {
            let file = Owned::<FileKind>::new(call::pool_export_to_shareable_handle(self.as_raw())?, ());
            match call::close_file_on_exec(file.raw()) {
                Ok(()) => Ok(file),
                Err(failure) => Err(undone(failure, file.close())),
            }
        };
        let file = scope::create(self.context().raw(), export, Owned::close)?;
        sharing.exported.store(true, Ordering::Release);
        Ok(file)
    }

    /// Has the driver export the pool, unless it has: the file descriptor is not needed for that to last.
    fn be_exported(&self, sharing: &Sharing) -> Outcome<()> {
        if sharing.exported.load(Ordering::Acquire) { Ok(()) } else { self.export(sharing)?.close() }
    }

    fn imported(memory: PooledMemory, context: Context, handle: &IpcAllocationHandle) -> Outcome<MemoryPool> {
        let imported = pools::import(&context, handle.as_raw_fd());
        let (raw, peers) = imported.map_err(|failure| handle.note_on(failure))?;
        Ok(MemoryPool::mapped(raw, peers, context, memory, Sharing::mapped(handle.uuid)))
    }

    /// Why a mapped pool gave no memory.
    #[cold]
    pub(super) fn refuses(&self, failure: Failure) -> Failure {
        if !self.is_mapped() || failure.status() != Some(cuirass_call::status::code::INVALID_VALUE) {
            return failure;
        }
        failure.answered();
        let text = "cannot allocate from a mapped memory resource: it is another process's, which allocates";
        Failure::misuse(Misuse::Type, text)
    }
}

fn undone(failure: Failure, undoing: Outcome<()>) -> Failure {
    match undoing {
        Ok(()) => failure,
        Err(undoing) => undoing.attach_to(failure, "what was created was not undone"),
    }
}

impl DeviceMemoryResource {
    /// `cuMemPoolImportFromShareableHandle`: another process's pool, which is of this device. The handle stays the
    /// caller's, and is not needed any more. Imported several times it is one pool of the driver's, which ends with the
    /// last.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn from_allocation_handle(device: Device, handle: &IpcAllocationHandle) -> Result<DeviceMemoryResource> {
        let pool = MemoryPool::imported(PooledMemory::Device(device), device.context()?, handle)?;
        Ok(DeviceMemoryResource::of(pool))
    }
}

impl PinnedMemoryResource {
    /// `cuMemPoolImportFromShareableHandle`: another process's pool of page-locked memory. The handle stays the
    /// caller's, and is not needed any more. Imported several times it is one pool of the driver's, which ends with the
    /// last.
    ///
    /// All devices of this process are given access to its memory.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn from_allocation_handle(handle: &IpcAllocationHandle) -> Result<PinnedMemoryResource> {
        let context = Context::current_or_primary()?;
        let pool = MemoryPool::imported(PooledMemory::Pinned(Location::Host), context, handle)?;
        Ok(PinnedMemoryResource::of(peer::open_to_all(pool)?))
    }
}

impl Buffer {
    /// `cuMemPoolExportPointer`: what another process imports this memory by. Of imported memory, what it was imported
    /// by. The driver wants the pool to have been exported before, which is done here where it was not.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for memory that is not of an IPC-enabled pool; what the driver
    /// answers.
    pub fn ipc_descriptor(&self) -> Result<IpcBufferDescriptor> {
        if let Some(descriptor) = self.imported_by() {
            return Ok(descriptor.clone());
        }
        let Some(pool) = self.pool() else {
            let text = "only memory of an IPC-enabled pool is shared between processes, and this is of no pool";
            return Err(Failure::misuse(Misuse::State, text).raise());
        };
        let sharing = pool.shared()?;
        pool.be_exported(sharing)?;
        let uuid = sharing.uuid.get().copied();
        let data = scope::read(pool.context().raw(), || call::pool_export_pointer(self.as_raw()))?;
        Ok(IpcBufferDescriptor::of(data, self.len(), uuid))
    }

    /// `cuMemPoolImportPointer`: another process's memory, of a pool that was imported. It is unmapped in the order of
    /// the stream. Imported several times it is mapped once, and unmapped after the last of these buffers, behind the
    /// work that by then is on the streams of all of them. The other process must keep it until then.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for a pool that is not another process's;
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for memory of another pool, of another place than the pool was
    /// imported as one of, or of fewer bytes than the descriptor says, where the driver tells; what the driver answers.
    pub fn from_ipc_descriptor(pool: &MemoryPool, descriptor: &IpcBufferDescriptor, stream: &Stream) -> Result<Buffer> {
        let sharing = pool.shared()?;
        if !sharing.mapped {
            let text = "this memory resource is this process's own: memory is imported by one that was made by \
                        from_allocation_handle()";
            return Err(Failure::misuse(Misuse::State, text).raise());
        }
        if let (Some(mine), Some(wanted)) = (sharing.uuid.get(), descriptor.pool())
            && *mine != wanted
        {
            let (mine, wanted) = (Shown(*mine), Shown(wanted));
            let text = format!("the descriptor is of memory of {wanted}, and this memory resource is {mine}");
            return Err(Failure::misuse(Misuse::Value, text).raise());
        }
        let stream = pool.bound(stream)?;
        let address = imports::import(pool, descriptor, &stream).map_err(|failure| descriptor.note_on(failure))?;
        Ok(Buffer::imported(address, pool.clone(), descriptor.clone(), stream))
    }
}
