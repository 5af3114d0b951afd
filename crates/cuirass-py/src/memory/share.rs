//! What a buffer holds a share of, and how it goes back.
#![allow(unsafe_code)]

use crate::error::{closed, raised, run};
use crate::late::Held;
use crate::memory::Buffer;
use crate::memory::pinned::LegacyPinnedMemoryResource;
use crate::memory::pool::MemPool;
use crate::memory::resource::{is_resource, overrides_deallocate};
use crate::memory::user::UserMemory;
use crate::number::{self, kind_of};
use crate::slot::{Closed, Detached, Share, Slot, Use, drop_detached};
use crate::stream;
use crate::view::dlpack;
use cuirass::ErrorKind;
use cuirass::memory::{LegacyPinnedMemoryResource as Pinned, PointerInfo, pointer_info};
use cuirass_fault::Failure;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// What a buffer gives back.
pub enum Memory {
    /// What the Rust buffer knows how to give back.
    Ours(cuirass::Buffer),
    /// What another object keeps alive.
    Owners(cuirass::Buffer, Owner),
    /// What a user's resource gives back; the Rust buffer only borrows it.
    Users(cuirass::Buffer, Box<UserMemory>),
}

/// What keeps memory alive. Of a buffer of ours the memory stays, too, should that be closed before.
pub struct Owner(Held);

impl Owner {
    fn new(owner: &Bound<'_, PyAny>) -> PyResult<Owner> {
        if let Ok(buffer) = owner.cast::<Buffer>()
            && !buffer.get().slot.enter_until_left()
        {
            return Err(PyRuntimeError::new_err("owner is a closed buffer, which keeps no memory alive"));
        }
        Ok(Owner(Held::new(owner.clone().unbind())))
    }

    pub fn object(&self) -> &Py<PyAny> {
        self.0.object()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _attached = crate::report::attached(|py| {
            if let Ok(buffer) = self.object().bind(py).cast::<Buffer>() {
                buffer.get().leave();
            }
        });
    }
}

impl Memory {
    /// Has the graph that a stream is being captured into keep memory that the Rust buffer gives back; false for memory
    /// that only the Python object keeps.
    pub fn keep_own(&self, stream: &cuirass::Stream) -> bool {
        match self {
            Memory::Ours(buffer) => cuirass::graph::keep_memory(stream, buffer),
            Memory::Owners(..) | Memory::Users(..) => false,
        }
    }

    #[inline]
    pub(super) fn buffer(&self) -> &cuirass::Buffer {
        match self {
            Memory::Ours(buffer) | Memory::Owners(buffer, _) | Memory::Users(buffer, _) => buffer,
        }
    }
}

impl Memory {
    /// The buffer, where it gives the memory back itself.
    #[inline]
    pub fn ours(&self) -> Option<&cuirass::Buffer> {
        match self {
            Memory::Ours(buffer) => Some(buffer),
            Memory::Owners(..) | Memory::Users(..) => None,
        }
    }
}

impl Share for Memory {
    fn drop_share(self) {
        match self {
            Memory::Ours(buffer) => drop_detached(buffer),
            Memory::Owners(borrowed, owner) => {
                // It may have the last share of a stream.
                drop_detached(borrowed);
                crate::nested::let_go(owner);
            }
            Memory::Users(_borrowed, users) => users.drop_share(),
        }
    }
}

impl Buffer {
    fn new_of(memory: Memory, resource: Option<Py<PyAny>>) -> Buffer {
        let (address, bytes) = (memory.buffer().as_raw(), memory.buffer().len());
        Buffer { slot: Slot::new(memory), address, bytes, resource }
    }

    /// A buffer that a resource of ours has allocated.
    #[inline]
    pub fn of_resource(buffer: cuirass::Buffer, resource: Py<PyAny>) -> Buffer {
        Buffer::new_of(Memory::Ours(buffer), Some(resource))
    }

    /// The same memory, given back by a resource's `deallocate()`.
    pub fn freed_by(self, resource: &Bound<'_, PyAny>, stream: cuirass::Stream) -> PyResult<Buffer> {
        if let Closed::Taken(Memory::Ours(buffer)) = self.slot.close() {
            let _address = buffer.into_raw();
        }
        Ok(Buffer::of_user(resource, self.address, self.bytes, stream))
    }

    fn of_user(resource: &Bound<'_, PyAny>, address: u64, bytes: usize, stream: cuirass::Stream) -> Buffer {
        // SAFETY: [user-memory] the resource's memory, which `deallocate()` takes back after the last use.
        let borrowed = unsafe { cuirass::Buffer::borrow_raw(address, bytes, None) };
        let users = UserMemory::new(resource.clone().unbind(), address, bytes, stream);
        Buffer::new_of(Memory::Users(borrowed, Box::new(users)), Some(resource.clone().unbind()))
    }

    /// Memory that is there already: `Buffer.from_handle()`.
    pub(super) fn adopt(
        address: u64,
        bytes: usize,
        mr: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Buffer> {
        let Some(resource) = mr else {
            if stream.is_some() {
                let message = "stream orders the release by mr; without mr nothing is released: close(stream) waits for \
                               a stream before the owner is let go";
                return Err(PyValueError::new_err(message));
            }
            // SAFETY: [foreign-memory] the caller's promise; the owner is kept.
            let borrowed = unsafe { cuirass::Buffer::borrow_raw(address, bytes, None) };
            return Ok(match owner {
                None => Buffer::new_of(Memory::Ours(borrowed), None),
                Some(owner) => Buffer::new_of(Memory::Owners(borrowed, Owner::new(owner)?), None),
            });
        };
        if owner.is_some() {
            return Err(PyValueError::new_err("owner and mr cannot both be given"));
        }
        let stream = Detached::new(match stream {
            Some(stream) => cuirass::Stream::clone(&*stream::argument(stream)?),
            None => cuirass::Stream::legacy_default(),
        });
        if let Ok(pool) = resource.cast::<MemPool>()
            && !overrides_deallocate(resource, &resource.py().get_type::<MemPool>())?
        {
            // SAFETY: [foreign-memory] the caller's promise: memory of this pool that nobody else frees.
            let buffer = unsafe { cuirass::Buffer::from_raw(address, bytes, &*pool.get().pool()?, &stream) };
            return Ok(Buffer::of_resource(buffer, resource.clone().unbind()));
        }
        if resource.is_exact_instance_of::<LegacyPinnedMemoryResource>() {
            // SAFETY: [foreign-memory] the caller's promise: page-locked memory that nobody else frees.
            let buffer = unsafe { cuirass::Buffer::from_resource(address, bytes, Arc::new(Pinned), &stream) };
            return Ok(Buffer::of_resource(buffer, resource.clone().unbind()));
        }
        if !is_resource(resource) {
            let kind = resource.get_type().name()?;
            return Err(PyTypeError::new_err(format!("mr must be a MemoryResource, not {kind}")));
        }
        Ok(Buffer::of_user(resource, address, bytes, cuirass::Stream::clone(&stream)))
    }

    /// Another buffer in the place of this one, which is closed; this one where it will do, and where `make` fails and
    /// gives its memory back.
    pub fn replaced<'py>(
        &self,
        slf: &Bound<'py, Buffer>,
        will_do: impl FnOnce(&cuirass::Buffer) -> bool,
        make: impl FnOnce(cuirass::Buffer) -> Result<cuirass::Buffer, Box<(Option<cuirass::Buffer>, PyErr)>>,
    ) -> PyResult<Bound<'py, Buffer>> {
        let Some(memory) = self.slot.take() else {
            let message = "the buffer is in use: no view of it and no other thread may use it meanwhile";
            return Err(if self.slot.is_closed() { closed("buffer") } else { PyRuntimeError::new_err(message) });
        };
        let buffer = match memory {
            Memory::Ours(buffer) if !will_do(&buffer) => buffer,
            memory => {
                let ours = matches!(memory, Memory::Ours(_));
                self.slot.put_back(memory);
                let message = "the buffer's memory is another library's or a user's resource's: it cannot grow";
                return if ours { Ok(slf.clone()) } else { Err(PyValueError::new_err(message)) };
            }
        };
        match make(buffer) {
            Ok(made) => {
                let resource = self.resource.as_ref().map(|resource| resource.clone_ref(slf.py()));
                Bound::new(slf.py(), Buffer::new_of(Memory::Ours(made), resource))
            }
            Err(failed) => {
                let (same, error) = *failed;
                if let Some(same) = same {
                    self.slot.put_back(Memory::Ours(same));
                }
                Err(error)
            }
        }
    }

    /// The address, for a launch: whoever closes the buffer while a kernel is being launched on it orders the two.
    #[inline]
    pub fn address(&self) -> PyResult<&u64> {
        if self.slot.is_closed() { Err(closed("buffer")) } else { Ok(&self.address) }
    }

    /// A use of the memory that ends with [`leave`](Buffer::leave).
    pub fn enter_until_left(&self) -> PyResult<()> {
        if self.slot.enter_until_left() { Ok(()) } else { Err(closed("buffer")) }
    }

    /// Ends such a use.
    pub fn leave(&self) {
        self.slot.leave();
    }

    #[inline]
    pub fn enter(&self) -> PyResult<Use<'_, Memory>> {
        self.slot.enter().ok_or_else(|| closed("buffer"))
    }

    /// What the driver knows of memory that no resource describes. Without a driver it is the host's.
    fn info(&self, py: Python<'_>) -> PyResult<PointerInfo> {
        crate::sim::prepare(py)?;
        match py.detach(|| pointer_info(self.address)) {
            Ok(info) => Ok(info),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(PointerInfo {
                is_device_accessible: false,
                is_host_accessible: true,
                is_managed: false,
                device: None,
            }),
            Err(error) => Err(raised(py, error)),
        }
    }

    /// The address and the size.
    pub fn range(&self) -> (u64, usize) {
        (self.address, self.bytes)
    }

    /// Refuses memory that has a size and a null address: whoever is shown it would read there.
    pub fn not_null(&self) -> PyResult<()> {
        if self.address == 0 && self.bytes > 0 {
            return Err(PyBufferError::new_err("the buffer has a size and no memory: its address is null"));
        }
        Ok(())
    }

    /// What DLPack calls the place of the memory.
    pub fn dlpack_device(&self, py: Python<'_>) -> PyResult<dlpack::Device> {
        let info = match &self.resource {
            None => self.info(py)?,
            Some(_resource) => PointerInfo {
                is_device_accessible: self.asked(py, "is_device_accessible", |info| info.is_device_accessible)?,
                is_host_accessible: self.asked(py, "is_host_accessible", |info| info.is_host_accessible)?,
                is_managed: self.asked(py, "is_managed", |info| info.is_managed)?,
                device: Some(self.asked(py, "device_id", |info| info.device.unwrap_or(-1))?),
            },
        };
        let device = info.device.unwrap_or(0).max(0);
        match (info.is_device_accessible, info.is_host_accessible) {
            _ if info.is_managed => Ok(dlpack::Device { kind: dlpack::CUDA_MANAGED, id: device }),
            (true, true) => Ok(dlpack::Device { kind: dlpack::CUDA_HOST, id: 0 }),
            (true, false) => Ok(dlpack::Device { kind: dlpack::CUDA, id: device }),
            (false, true) => Ok(dlpack::Device { kind: dlpack::CPU, id: 0 }),
            (false, false) => Err(dlpack::refused("neither the host nor a device can use this memory")),
        }
    }

    /// What comes later on a stream waits for what is by now on the stream that orders the release.
    pub fn ready_on(&self, py: Python<'_>, consumer: &cuirass::Stream) -> PyResult<()> {
        let memory = self.enter()?;
        match &*memory {
            Memory::Ours(buffer) | Memory::Owners(buffer, _) => run(py, || buffer.ready_on(consumer)),
            Memory::Users(_borrowed, users) => {
                // Whose default stream it is, is known by the device alone.
                let (producer, device) = (users.stream(), self.dlpack_device(py)?.id);
                run(py, move || consumer.wait_for_stream_of(&producer, cuirass::Device::new(device)?))
            }
        }
    }

    /// What its resource says, which may be a user's, else what the driver does.
    pub(super) fn asked<T: Told>(&self, py: Python<'_>, name: &str, of: impl FnOnce(PointerInfo) -> T) -> PyResult<T> {
        let _open = self.enter()?;
        match &self.resource {
            Some(resource) => {
                let resource = resource.bind(py);
                T::told(&resource.getattr(name)?, &format!("{}.{name}", resource.get_type().name()?))
            }
            None => self.info(py).map(of),
        }
    }
}

/// What a memory resource says of itself.
pub(super) trait Told: Sized {
    /// An attribute of this name as what it has to be.
    fn told(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Self>;
}

impl Told for bool {
    fn told(value: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
        // NumPy's are taken, too.
        value.extract().map_err(|_other| PyTypeError::new_err(format!("{name} must be a bool, not {}", kind_of(value))))
    }
}

impl Told for i32 {
    fn told(value: &Bound<'_, PyAny>, name: &str) -> PyResult<i32> {
        number::of(value, name)
    }
}

/// Lets the owner of memory go behind a stream. Where that cannot be waited for the owner is leaked.
pub fn let_owner_go(py: Python<'_>, stream: &cuirass::Stream, address: u64, owner: Owner) -> PyResult<()> {
    let behind = || match stream.let_go_behind(owner) {
        Ok(()) => Ok(()),
        Err(failed) => {
            let (owner, error) = *failed;
            let _leaked = ManuallyDrop::new(owner);
            let note =
                format!("the owner of the memory ({address:#x}) is leaked, since the device may not be done with it");
            Err(Failure::from(error).note(note).raise())
        }
    };
    run(py, behind)
}
