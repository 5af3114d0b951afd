//! Virtual memory: ranges of addresses that physical memory is mapped to, so that an allocation can grow.

use crate::context::{Context, capture, scope};
use crate::deferred;
use crate::device::Device;
use crate::event::Passing;
use crate::memory::buffer::{Buffer, MemoryResource};
use crate::memory::location::Location;
use crate::memory::pointer;
use crate::stream::Stream;
use crate::{Error, Outcome, Result};
use cuirass_call::later::Attempt;
use cuirass_call::memory::r#virtual as call;
use cuirass_call::sys::cuda::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle,
};
use cuirass_fault::{Failure, Misuse};
use smallvec::SmallVec;

/// What a device may do with virtual memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualMemoryAccess {
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

impl VirtualMemoryAccess {
    fn flags(self) -> CUmemAccess_flags {
        match self {
            VirtualMemoryAccess::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            VirtualMemoryAccess::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }
}

/// How another process can be given physical memory.
pub type VirtualMemoryHandleType = CUmemAllocationHandleType;

/// How virtual memory is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualMemoryResourceOptions {
    /// Where the physical memory is; `None` is the resource's device. Memory of the host that can be exported is on a
    /// node, for [`Location::Host`] the one that is nearest to the device. Drivers make none on
    /// [`Location::HostNumaCurrent`] (measured up to CUDA 13.0).
    pub location: Option<Location>,
    /// How the physical memory can be exported.
    pub handle_type: VirtualMemoryHandleType,
    /// Whether sizes are multiples of the granularity that the driver recommends, or of the least that it takes.
    pub recommended_granularity: bool,
    /// Whether network devices are to reach it directly.
    pub gpu_direct_rdma: bool,
    /// The address that is asked for; 0 leaves it to the driver, which may choose another one anyway.
    pub address_hint: u64,
    /// What addresses are a multiple of; `None` is the granularity.
    pub address_alignment: Option<usize>,
    /// What the resource's device may do with it; `None` is nothing.
    pub self_access: Option<VirtualMemoryAccess>,
    /// Other devices that get access.
    pub peers: Vec<Device>,
    /// What these may do with it; `None` is nothing.
    pub peer_access: Option<VirtualMemoryAccess>,
}

impl Default for VirtualMemoryResourceOptions {
    fn default() -> Self {
        VirtualMemoryResourceOptions {
            location: None,
            handle_type: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            recommended_granularity: true,
            gpu_direct_rdma: false,
            address_hint: 0,
            address_alignment: None,
            self_access: Some(VirtualMemoryAccess::ReadWrite),
            peers: Vec::new(),
            peer_access: Some(VirtualMemoryAccess::ReadWrite),
        }
    }
}

/// Reserved addresses, and the physical memory that is mapped there, in order and without a gap from the start.
pub(super) struct Reservation {
    address: u64,
    bytes: usize,
    mapped: SmallVec<[usize; 1]>,
    /// A mapping that was made could not be undone: the addresses cannot be given back.
    is_stuck: bool,
}

/// The reservations of one buffer: the first, and those that it grew by.
pub(super) type Reservations = SmallVec<[Reservation; 1]>;

/// Memory of reserved addresses that physical memory is mapped to. It is given back once the work that is by then on the
/// stream which orders its release is done.
#[derive(Clone, Debug)]
pub struct VirtualMemoryResource {
    context: Context,
    options: VirtualMemoryResourceOptions,
}

/// What all steps of an allocation need to know.
struct Plan {
    properties: CUmemAllocationProp,
    granularity: usize,
    alignment: usize,
    hint: u64,
    access: SmallVec<[CUmemAccessDesc; 2]>,
    on_current_node: bool,
}

fn round_up(bytes: usize, granularity: usize) -> Outcome<usize> {
    let granularity = granularity.max(1);
    match bytes.checked_next_multiple_of(granularity) {
        Some(0) => Err(Failure::misuse(Misuse::Value, "virtual memory of 0 bytes cannot be mapped")),
        Some(bytes) => Ok(bytes),
        None => Err(Failure::misuse(Misuse::Value, format!("{bytes} bytes are too many"))),
    }
}

impl Plan {
    fn of(options: &VirtualMemoryResourceOptions, device: Device) -> Outcome<Plan> {
        // Measured: what the system places cannot be exported.
        let exported = options.handle_type != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        let location = match options.location {
            None => Location::Device(device),
            Some(Location::Host) if exported => Location::nearest_node(device)?,
            Some(location) => location,
        };
        let mut properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: options.handle_type,
            location: location.raw(),
            ..CUmemAllocationProp::default()
        };
        properties.allocFlags.gpuDirectRDMACapable = u8::from(options.gpu_direct_rdma);
        let option = if options.recommended_granularity {
            CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        } else {
            CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM
        };
        let granularity = call::get_allocation_granularity(&properties, option)?;
        let own = options.self_access.map(|access| (device, access));
        let peers = options.peers.iter().filter(|peer| **peer != device);
        let peers = peers.filter_map(|peer| options.peer_access.map(|access| (*peer, access)));
        let access = own.into_iter().chain(peers);
        let mut access: SmallVec<[CUmemAccessDesc; 2]> = access
            .map(|(device, access)| CUmemAccessDesc { location: Location::Device(device).raw(), flags: access.flags() })
            .collect();
        if !matches!(location, Location::Device(_)) {
            let flags = VirtualMemoryAccess::ReadWrite.flags();
            access.push(CUmemAccessDesc { location: location.raw(), flags });
        }
        let alignment = options.address_alignment.unwrap_or(granularity);
        let on_current_node = location == Location::HostNumaCurrent;
        Ok(Plan { properties, granularity, alignment, hint: options.address_hint, access, on_current_node })
    }

    fn set_access(&self, address: u64, bytes: usize) -> Outcome<()> {
        if self.access.is_empty() { Ok(()) } else { call::set_access(address, bytes, &self.access) }
    }

    /// New reserved addresses with memory mapped to them.
    fn make(&self, bytes: usize) -> Outcome<Reservation> {
        let address = call::address_reserve(bytes, self.alignment, self.hint)?;
        let mut made = Reservation::new(address, bytes);
        match self.extend(&mut made, bytes).and_then(|()| self.set_access(address, bytes)) {
            Ok(()) => Ok(made),
            Err(failure) => Err(undo(made, failure)),
        }
    }

    /// Maps new memory behind what is mapped in a reservation already.
    fn extend(&self, reservation: &mut Reservation, bytes: usize) -> Outcome<()> {
        let memory = call::create(bytes, &self.properties).map_err(|failure| {
            if self.on_current_node {
                failure.note(
                    "the location is the current NUMA node, which drivers make no physical memory on: name a node",
                )
            } else {
                failure
            }
        })?;
        reservation.map(bytes, memory)
    }

    /// A reservation right behind `end`; `None` where the addresses are not free.
    fn make_at(&self, end: u64, bytes: usize) -> Outcome<Option<Reservation>> {
        let address = call::address_reserve(bytes, self.granularity, end)?;
        let mut made = Reservation::new(address, bytes);
        if address != end {
            made.free()?;
            return Ok(None);
        }
        match self.extend(&mut made, bytes).and_then(|()| self.set_access(address, bytes)) {
            Ok(()) => Ok(Some(made)),
            Err(failure) => Err(undo(made, failure)),
        }
    }

    /// A longer reservation with the memory of others, which stays mapped there too, and new memory behind it.
    fn make_longer(&self, old: &[Reservation], held: usize, bytes: usize) -> Outcome<Reservation> {
        let address = call::address_reserve(bytes, self.alignment, 0)?;
        let mut made = Reservation::new(address, bytes);
        let mapped = (|| {
            for reservation in old {
                let mut at = reservation.address;
                for part in &reservation.mapped {
                    let handle = call::retain_allocation_handle(at)?;
                    made.map(*part, handle)?;
                    at += *part as u64;
                }
            }
            self.extend(&mut made, bytes - held)?;
            self.set_access(address, bytes)
        })();
        match mapped {
            Ok(()) => Ok(made),
            Err(failure) => Err(undo(made, failure)),
        }
    }
}

/// Takes a reservation back because of a failure that is on its way.
fn undo(mut made: Reservation, failure: Failure) -> Failure {
    match made.free() {
        Ok(()) => failure,
        Err(undoing) => undoing.attach_to(failure, "the reserved addresses were not undone"),
    }
}

impl Reservation {
    fn new(address: u64, bytes: usize) -> Reservation {
        Reservation { address, bytes, mapped: SmallVec::new(), is_stuck: false }
    }

    /// The end of what is mapped.
    fn end(&self) -> u64 {
        self.address + self.mapped.iter().sum::<usize>() as u64
    }

    /// Maps physical memory behind what is mapped already, and lets go of its handle: it goes back when it is mapped
    /// nowhere.
    fn map(&mut self, bytes: usize, handle: CUmemGenericAllocationHandle) -> Outcome<()> {
        let address = self.end();
        if let Err(failure) = call::map(address, bytes, handle) {
            return Err(match call::release(handle) {
                Ok(()) => failure,
                Err(releasing) => releasing.attach_to(failure, "the physical memory was not released, and is leaked"),
            });
        }
        let Err(failure) = call::release(handle) else {
            self.mapped.push(bytes);
            return Ok(());
        };
        let failure = failure.note(format!("the physical memory {handle:#x} was not released, and is leaked"));
        Err(match call::unmap(address, bytes) {
            Ok(()) => failure,
            Err(unmapping) => {
                self.is_stuck = true;
                let doing = format!("the mapping was not undone, and the addresses {:#x} stay reserved", self.address);
                unmapping.attach_to(failure, &doing)
            }
        })
    }

    /// Unmaps the memory, the last first, and gives the addresses back. What cannot be unmapped is leaked, and the
    /// addresses with it.
    fn free(&mut self) -> Outcome<()> {
        let mut end = self.end();
        let mut wrong: Option<Failure> = None;
        while let Some(bytes) = self.mapped.pop() {
            end -= bytes as u64;
            if let Err(failure) = call::unmap(end, bytes) {
                let failure = failure.leaking(format_args!("memory {end:#x}"));
                wrong = Some(match wrong {
                    None => failure,
                    Some(first) => failure.attach_to(first, "more of it was not unmapped"),
                });
            }
        }
        if let Some(failure) = wrong {
            return Err(failure.note(format!("the addresses {:#x} stay reserved", self.address)));
        }
        if self.is_stuck {
            return Ok(());
        }
        let what = format_args!("the reserved addresses {:#x}", self.address);
        call::address_free(self.address, self.bytes).map_err(|failure| failure.leaking(what))
    }
}

fn free_all(mut reservations: Reservations) -> Outcome<()> {
    let mut result = Ok(());
    while let Some(mut last) = reservations.pop() {
        result = match (result, last.free()) {
            (Ok(()), freed) => freed,
            (Err(first), Ok(())) => Err(first),
            (Err(first), Err(failure)) => Err(failure.attach_to(first, "another part of it was not released")),
        };
    }
    result
}

/// Gives the memory of a buffer back once its stream has passed the work that uses it.
pub(super) fn release(reservations: Reservations, context: Context, stream: Option<Stream>) -> Outcome<()> {
    deferred::drain_if_any();
    let address = reservations.first().map_or(0, Reservation::address);
    let mut waiting = Some(Waiting { reservations, context, passing: stream.map(Passing::Unmarked) });
    match try_release(&mut waiting)? {
        Attempt::Done => Ok(()),
        Attempt::Wait => {
            deferred::defer("a buffer", address, move || try_release(&mut waiting));
            Ok(())
        }
    }
}

/// Memory that is to be given back, and the stream that has to pass what uses it.
struct Waiting {
    reservations: Reservations,
    context: Context,
    passing: Option<Passing>,
}

fn try_release(waiting: &mut Option<Waiting>) -> Outcome<Attempt> {
    let Some(Waiting { reservations, context, mut passing }) = waiting.take() else { return Ok(Attempt::Done) };
    let address = reservations.first().map_or(0, Reservation::address);
    let what = format_args!("memory {address:#x}");
    let result = match passing.as_mut().map_or(Ok(Attempt::Done), Passing::step) {
        Ok(Attempt::Done) => scope::release(context.raw(), what, || capture::release(what, || free_all(reservations))),
        Ok(Attempt::Wait) => {
            *waiting = Some(Waiting { reservations, context, passing });
            return Ok(Attempt::Wait);
        }
        Err(failure) => Err(failure.leaking(what)),
    };
    let result = match (scope::ended(context, result), passing.map_or(Ok(()), Passing::close)) {
        (Ok(()), closed) => closed.map_err(|failure| failure.note("the memory itself was given back")),
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(closing)) => {
            Err(closing.attach_to(failure, "the event that was made for it was not undone"))
        }
    };
    result.map(|()| Attempt::Done)
}

impl VirtualMemoryResource {
    /// Memory of a device, or of the host for it.
    ///
    /// # Errors
    /// What the driver answers when its primary context is retained.
    pub fn new(device: Device, options: VirtualMemoryResourceOptions) -> Result<VirtualMemoryResource> {
        Ok(VirtualMemoryResource { context: device.context()?, options })
    }

    /// How its memory is made.
    pub fn options(&self) -> &VirtualMemoryResourceOptions {
        &self.options
    }

    pub(super) fn into_context(self) -> Context {
        self.context
    }

    pub(super) fn bound(&self, stream: &Stream) -> Outcome<Stream> {
        stream.bound(&self.context)
    }

    /// What sizes are rounded up to a multiple of, in bytes (`cuMemGetAllocationGranularity`).
    ///
    /// # Errors
    /// What the driver answers.
    pub fn granularity(&self) -> Result<usize> {
        Ok(scope::read(self.context.raw(), || Ok(Plan::of(&self.options, self.context.device())?.granularity))?)
    }

    fn allocate_inner(&self, bytes: usize, stream: Option<&Stream>) -> Outcome<Buffer> {
        deferred::before_creating()?;
        let stream = stream.map(|stream| self.bound(stream)).transpose()?;
        let made = scope::create(
            self.context.raw(),
            || {
                let plan = Plan::of(&self.options, self.context.device())?;
                plan.make(round_up(bytes, plan.granularity)?)
            },
            |mut made| made.free(),
        )?;
        Ok(Buffer::of_reservations(SmallVec::from_iter([made]), self, stream))
    }

    /// Memory of at least this many bytes, rounded up to the granularity, which no stream orders: it is given back at
    /// once when the buffer is dropped or closed. Whoever does that sees to it that no work uses it any more.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for no bytes; what the driver answers. Nothing is left of it.
    pub fn allocate_unordered(&self, bytes: usize) -> Result<Buffer> {
        Ok(self.allocate_inner(bytes, None)?)
    }

    /// The buffer with more memory: what is in it stays. Where the addresses behind it are free the address stays too;
    /// else all its memory is mapped to other addresses, and the old ones are given back once the stream that orders
    /// the release has passed the work that uses them. A buffer that is long enough is returned as it is.
    ///
    /// # Errors
    /// The buffer as it was, with [`ErrorKind::Value`](crate::ErrorKind::Value) for one that is not virtual memory, or
    /// with what the driver answers.
    pub fn grow(&self, buffer: Buffer, bytes: usize) -> std::result::Result<Buffer, (Buffer, Error)> {
        if bytes <= buffer.len() {
            return Ok(buffer);
        }
        let grown = match buffer.reservations() {
            Some((_, of)) if of.context.device() != self.context.device() => {
                let (its, ours) = (of.context.device().ordinal(), self.context.device().ordinal());
                let text = format!("the buffer is of a resource of device {its}, this one is of device {ours}");
                Err(Failure::misuse(Misuse::Value, text))
            }
            Some((old, _)) => self.make_room(old, buffer.as_raw(), buffer.len(), bytes),
            None => Err(Failure::misuse(Misuse::Value, "the buffer is no virtual memory: it cannot grow")),
        };
        match grown {
            Ok(Grown::Behind(more)) => Ok(buffer.grown_by(more)),
            Ok(Grown::Elsewhere(all)) => {
                let stream = buffer.deallocation_stream();
                Ok(Buffer::of_reservations(SmallVec::from_iter([all]), self, stream))
            }
            Err(failure) => Err((buffer, failure.raise())),
        }
    }

    fn make_room(&self, old: &[Reservation], address: u64, held: usize, bytes: usize) -> Outcome<Grown> {
        deferred::before_creating()?;
        scope::create(
            self.context.raw(),
            || {
                let plan = Plan::of(&self.options, self.context.device())?;
                let bytes = round_up(bytes, plan.granularity)?;
                match plan.make_at(address + held as u64, bytes - held)? {
                    Some(more) => Ok(Grown::Behind(more)),
                    None => plan.make_longer(old, held, bytes).map(Grown::Elsewhere),
                }
            },
            |grown| match grown {
                Grown::Behind(mut made) | Grown::Elsewhere(mut made) => made.free(),
            },
        )
    }
}

enum Grown {
    Behind(Reservation),
    Elsewhere(Reservation),
}

impl Reservation {
    /// The sizes of what is mapped, in order.
    pub(super) fn mappings(&self) -> &[usize] {
        &self.mapped
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }
}

impl MemoryResource for VirtualMemoryResource {
    /// Memory of at least this many bytes, rounded up to the granularity. It is given back once the work that is on the
    /// stream when the buffer is dropped or closed is done.
    fn allocate(&self, bytes: usize, stream: &Stream) -> Result<Buffer> {
        Ok(self.allocate_inner(bytes, Some(stream))?)
    }

    /// For memory of one allocation that never grew, of the size that its buffer had.
    fn deallocate(&self, address: u64, bytes: usize, stream: &Stream) -> Result<()> {
        let leaking = |failure: Failure| failure.leaking(format_args!("memory {address:#x}"));
        let is_there = address.checked_add(bytes as u64).is_some()
            && pointer::read(address).map_err(leaking)?.is_device_accessible;
        if !is_there {
            let text =
                format!("no virtual memory of {bytes} bytes begins at {address:#x}: there is nothing to release");
            return Err(Failure::misuse(Misuse::Value, text).raise());
        }
        let reservation = Reservation { address, bytes, mapped: SmallVec::from_iter([bytes]), is_stuck: false };
        let stream = match self.bound(stream) {
            Ok(stream) => stream,
            Err(failure) => return Err(leaking(failure).raise()),
        };
        Ok(release(SmallVec::from_iter([reservation]), self.context.clone(), Some(stream))?)
    }

    fn is_device_accessible(&self) -> bool {
        self.options.self_access.is_some()
    }

    fn is_host_accessible(&self) -> bool {
        self.options.location.is_some_and(|location| !matches!(location, Location::Device(_)))
    }

    fn device(&self) -> Option<Device> {
        if self.is_host_accessible() { None } else { Some(self.context.device()) }
    }
}
