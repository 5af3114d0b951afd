//! Managed memory: host and devices use it at one address, and the driver moves it to where it is used.
//!
//! What a program knows of this use it can say (advice), and ask for memory to be moved before it is used (prefetch) or
//! not to be moved at all since its contents are no longer of interest (discard). All of this is for memory of a
//! [`ManagedMemoryResource`] or of `cuMemAllocManaged`; the driver answers `CUDA_ERROR_INVALID_VALUE` for other memory.
#![allow(unsafe_code)]

use crate::context::{Context, scope};
use crate::device::Device;
use crate::graph::recording;
use crate::memory::buffer::Buffer;
use crate::memory::few::{Few, few};
use crate::memory::location::Location;
use crate::memory::pool::{MemoryPool, PooledMemory, pool_resource};
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::memory::{managed as call, pool};
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{
    CUmem_advise, CUmem_range_attribute, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};
use cuirass_call::{load, status};
use cuirass_fault::{Failure, Misuse};

/// Managed memory of a pool: allocated and freed in the order of a stream. Clones are the same resource.
#[derive(Clone)]
pub struct ManagedMemoryResource(MemoryPool);

pool_resource!(ManagedMemoryResource);

/// How a pool of managed memory is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedMemoryResourceOptions {
    /// Where its memory is rather to be; `None` leaves that to the driver.
    pub preferred_location: Option<Location>,
}

/// The version that introduced pools of managed memory.
const POOLS: u32 = 13000;
/// The version that introduced places of other kinds than devices and the host.
const LOCATIONS: u32 = 12020;

fn is_older_than(version: u32) -> Outcome<bool> {
    crate::driver::initialized()?;
    Ok(load::driver_version().is_ok_and(|found| found < version))
}

impl ManagedMemoryResource {
    /// The driver's current pool of managed memory without a preferred place.
    ///
    /// # Errors
    /// What the driver answers; [`Unsupported`](crate::ErrorKind::Unsupported) before CUDA 13.0.
    pub fn current() -> Result<ManagedMemoryResource> {
        let context = Context::current_or_primary()?;
        let raw = pool::get_mem_pool(&Location::raw_none(), CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED)?;
        Ok(ManagedMemoryResource(MemoryPool::of_driver(raw, context, PooledMemory::Managed(None))?))
    }

    /// `cuMemPoolCreate`: a pool of its own.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for a place that is not there, and for
    /// [`Location::HostNumaCurrent`], which a pool cannot have. [`Unsupported`](crate::ErrorKind::Unsupported) before
    /// CUDA 13.0.
    pub fn create(options: &ManagedMemoryResourceOptions) -> Result<ManagedMemoryResource> {
        if is_older_than(POOLS)? {
            return Err(status::unsupported("cuMemPoolCreate", "managed memory", POOLS).raise());
        }
        let context = Context::current_or_primary()?;
        let memory = PooledMemory::Managed(options.preferred_location);
        Ok(ManagedMemoryResource(MemoryPool::create(memory, 0, false, context)?))
    }

    /// Where its memory is rather to be; `None` where the driver decides.
    pub fn preferred_location(&self) -> Option<Location> {
        match self.memory() {
            PooledMemory::Managed(preferred) => preferred,
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

/// Advice and attributes want some context to be current; it does not matter which.
fn in_some_context<T>(operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let context = Context::current_or_primary()?;
    scope::submit(context.raw(), "the advice", operation)
}

/// A place that two attributes tell, or one of older drivers'.
struct Told {
    number: CUmem_range_attribute,
    kind: CUmem_range_attribute,
    id: CUmem_range_attribute,
}

const PREFERRED: Told = Told {
    number: CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
    kind: CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
    id: CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
};
const PREFETCHED: Told = Told {
    number: CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
    kind: CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
    id: CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
};

/// A place as `cuMemRangeGetAttribute` numbers it: a device, -1 for the host, -2 for none.
fn of_number(number: i32) -> Outcome<Option<Location>> {
    match number {
        -1 => Ok(Some(Location::Host)),
        device if device >= 0 => Ok(Some(Location::Device(Device::of_raw(device)?))),
        _none => Ok(None),
    }
}

impl Buffer {
    fn advise(&self, advice: CUmem_advise, location: Location) -> Outcome<()> {
        in_some_context(|| call::advise(self.as_raw(), self.len(), advice, &location.raw())).map_err(|failure| {
            // Measured, on CUDA 13.0.
            if failure.status() == Some(code::NOT_SUPPORTED) && self.pool().is_some() {
                failure.note("drivers take advice for memory of cuMemAllocManaged, and not for memory of managed pools")
            } else {
                failure
            }
        })
    }

    fn range_attribute(&self, attribute: CUmem_range_attribute) -> Outcome<i32> {
        let mut value = [0];
        call::range_get_attribute(self.as_raw(), self.len(), attribute, &mut value)?;
        Ok(value[0])
    }

    fn told(&self, told: &Told) -> Outcome<Option<Location>> {
        let by_number = is_older_than(LOCATIONS)?;
        let context = Context::current_or_primary()?;
        scope::read(context.raw(), || {
            if by_number {
                return of_number(self.range_attribute(told.number)?);
            }
            let kind = CUmemLocationType(self.range_attribute(told.kind)?.unsigned_abs());
            Ok(match kind {
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => of_number(self.range_attribute(told.id)?)?,
                CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Some(Location::Host),
                CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                    Some(Location::HostNuma(self.range_attribute(told.id)?))
                }
                CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Some(Location::HostNumaCurrent),
                _none => None,
            })
        })
    }

    /// Says whether the memory is mostly read, so that each processor that reads it has a copy of its own
    /// (`cuMemAdvise` with `CU_MEM_ADVISE_SET_READ_MOSTLY` or `UNSET`).
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed.
    pub fn set_read_mostly(&self, is_read_mostly: bool) -> Result<()> {
        let advice = if is_read_mostly {
            CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY
        } else {
            CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY
        };
        Ok(self.advise(advice, Location::Host)?)
    }

    /// Whether all of the memory is said to be mostly read (`cuMemRangeGetAttribute`).
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed.
    pub fn is_read_mostly(&self) -> Result<bool> {
        let context = Context::current_or_primary()?;
        let attribute = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        Ok(scope::read(context.raw(), || self.range_attribute(attribute))? != 0)
    }

    /// Says where the memory is rather to be, or that this is left to the driver (`cuMemAdvise` with
    /// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION` or `UNSET`). Nothing is moved by it.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed, or a place that is not
    /// there. [`Unsupported`](crate::ErrorKind::Unsupported) for a NUMA node before CUDA 12.2.
    pub fn set_preferred_location(&self, location: Option<Location>) -> Result<()> {
        Ok(match location {
            Some(location) => self.advise(CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location),
            None => self.advise(CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, Location::Host),
        }?)
    }

    /// Where all of the memory is rather to be (`cuMemRangeGetAttribute`); `None` where nothing, or not the same, is
    /// said of all of it. Drivers before CUDA 12.2 tell devices and the host alone.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed.
    pub fn preferred_location(&self) -> Result<Option<Location>> {
        Ok(self.told(&PREFERRED)?)
    }

    /// Says whether a processor uses the memory, so that it is mapped for it wherever it is (`cuMemAdvise` with
    /// `CU_MEM_ADVISE_SET_ACCESSED_BY` or `UNSET`).
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed, and for NUMA nodes: the
    /// processors are the devices and the host.
    pub fn set_accessed_by(&self, location: Location, is_accessed: bool) -> Result<()> {
        let advice = if is_accessed {
            CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY
        } else {
            CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY
        };
        Ok(self.advise(advice, location)?)
    }

    /// The processors that all of the memory is said to be used by (`cuMemRangeGetAttribute`).
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed.
    pub fn accessed_by(&self) -> Result<Vec<Location>> {
        // Each device, and the host.
        let mut numbers = vec![-2; Device::all()?.len() + 1];
        let context = Context::current_or_primary()?;
        let attribute = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
        scope::read(context.raw(), || call::range_get_attribute(self.as_raw(), self.len(), attribute, &mut numbers))?;
        let told = numbers.into_iter().filter_map(|number| of_number(number).transpose());
        Ok(told.collect::<Outcome<_>>()?)
    }

    /// Where all of the memory was last asked to be moved to (`cuMemRangeGetAttribute`), whether or not it has been by
    /// now; `None` where it was not, or not to the same place.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed.
    pub fn last_prefetch_location(&self) -> Result<Option<Location>> {
        Ok(self.told(&PREFETCHED)?)
    }

    /// Moves the memory, in the order of the stream that orders its release (`cuMemPrefetchAsync`).
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for another stream, and while a graph builder captures it: a
    /// graph cannot do that. What the driver answers: `CUDA_ERROR_INVALID_VALUE` for memory that is not managed.
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a NUMA node before CUDA 12.2.
    pub fn prefetch(&self, location: Location, stream: &Stream) -> Result<()> {
        self.check_ordered(stream)?;
        // SAFETY: [stream-ordered-copy] the release comes after it on this stream.
        unsafe { self.prefetch_unordered(location, stream) }
    }

    /// As [`prefetch`](Buffer::prefetch), on any stream.
    ///
    /// # Errors
    /// As there, but for the other stream.
    ///
    /// # Safety
    /// The memory is not released before the stream has passed this.
    pub unsafe fn prefetch_unordered(&self, location: Location, stream: &Stream) -> Result<()> {
        refuse_in_capture(stream, "a prefetch")?;
        Ok(call::prefetch_async(self.as_raw(), self.len(), &location.raw(), stream.raw())?)
    }

    /// Gives up the contents of the memory, in the order of the stream that orders its release: what is read before
    /// it is prefetched and written again is anything (`cuMemDiscardBatchAsync`). Measured: what is written before a
    /// prefetch may be lost too.
    ///
    /// # Errors
    /// As [`discard_batch`].
    pub fn discard(&self, stream: &Stream) -> Result<()> {
        discard_batch(&[self], stream)
    }

    /// As [`discard`](Buffer::discard), on any stream.
    ///
    /// # Errors
    /// As [`discard_batch`], but for the other stream.
    ///
    /// # Safety
    /// As [`discard_batch_unordered`].
    pub unsafe fn discard_unordered(&self, stream: &Stream) -> Result<()> {
        // SAFETY: [stream-ordered-copy] the caller's promise.
        unsafe { discard_batch_unordered(&[self], stream) }
    }

    /// Gives up the contents of the memory and moves it, in the order of the stream that orders its release: what is
    /// read before it is written again is anything (`cuMemDiscardAndPrefetchBatchAsync`).
    ///
    /// # Errors
    /// As [`discard_prefetch_batch`].
    pub fn discard_prefetch(&self, location: Location, stream: &Stream) -> Result<()> {
        discard_prefetch_batch(&[(self, location)], stream)
    }

    /// As [`discard_prefetch`](Buffer::discard_prefetch), on any stream.
    ///
    /// # Errors
    /// As [`discard_prefetch_batch`], but for the other stream.
    ///
    /// # Safety
    /// As [`discard_prefetch_batch_unordered`].
    pub unsafe fn discard_prefetch_unordered(&self, location: Location, stream: &Stream) -> Result<()> {
        // SAFETY: [stream-ordered-copy] the caller's promise.
        unsafe { discard_prefetch_batch_unordered(&[(self, location)], stream) }
    }
}

/// A graph has no node for what is done to managed memory; trying would invalidate the capture.
fn refuse_in_capture(stream: &Stream, what: &str) -> Outcome<()> {
    if recording::of(stream).is_none() {
        return Ok(());
    }
    Err(Failure::misuse(
        Misuse::State,
        format!("the stream is being captured by a graph builder, and a graph cannot have {what}: use another stream"),
    ))
}

/// The ranges of a batch, as the driver takes them.
struct Ranges {
    addresses: Few<u64>,
    sizes: Few<usize>,
    locations: Few<CUmemLocation>,
}

impl Ranges {
    fn of<'a>(buffers: impl Iterator<Item = &'a Buffer> + Clone) -> Outcome<Ranges> {
        let (addresses, sizes) = (few(buffers.clone().map(Buffer::as_raw))?, few(buffers.map(Buffer::len))?);
        Ok(Ranges { addresses, sizes, locations: Few::new() })
    }

    fn to(buffers: &[(&Buffer, Location)]) -> Outcome<Ranges> {
        let alike = buffers.windows(2).all(|pair| matches!(pair, [(_, one), (_, other)] if one == other));
        let entries = if alike { 1 } else { buffers.len() };
        let locations = few(buffers.iter().take(entries).map(|(_, location)| location.raw()))?;
        Ok(Ranges { locations, ..Ranges::of(buffers.iter().map(|(buffer, _)| *buffer))? })
    }
}

/// Moves the memory of many buffers, in the order of the stream that orders the release of each, and in no order among
/// one another (`cuMemPrefetchBatchAsync`).
///
/// # Errors
/// [`ErrorKind::State`](crate::ErrorKind::State) for another stream, and while a graph builder captures it. What the
/// driver answers: `CUDA_ERROR_INVALID_VALUE` for no buffer at all, for memory that is not managed and for the legacy
/// default stream. [`Unsupported`](crate::ErrorKind::Unsupported) before CUDA 13.0. Buffers that come before a refused one may have been moved.
pub fn prefetch_batch(buffers: &[(&Buffer, Location)], stream: &Stream) -> Result<()> {
    buffers.iter().try_for_each(|(buffer, _)| buffer.check_ordered(stream))?;
    // SAFETY: [stream-ordered-copy] the releases come after it on this stream.
    unsafe { prefetch_batch_unordered(buffers, stream) }
}

/// As [`prefetch_batch`], on any stream.
///
/// # Errors
/// As there, but for the other stream.
///
/// # Safety
/// No buffer is released before the stream has passed this.
pub unsafe fn prefetch_batch_unordered(buffers: &[(&Buffer, Location)], stream: &Stream) -> Result<()> {
    refuse_in_capture(stream, "a prefetch")?;
    let mut ranges = Ranges::to(buffers)?;
    // SAFETY: [stream-ordered-copy] one address and one size a buffer, and one place for all of them or for each.
    Ok(unsafe {
        call::prefetch_batch_async(&mut ranges.addresses, &mut ranges.sizes, &mut ranges.locations, stream.raw())
    }?)
}

/// Gives up the contents of many buffers, in the order of the stream that orders the release of each, and in no order
/// among one another: what is read before it is written again is anything (`cuMemDiscardBatchAsync`).
///
/// # Errors
/// [`ErrorKind::State`](crate::ErrorKind::State) for another stream, and while a graph builder captures it. What the
/// driver answers: `CUDA_ERROR_INVALID_VALUE` for no buffer at all, for memory that is not managed and for the legacy
/// default stream. [`Unsupported`](crate::ErrorKind::Unsupported) before CUDA 13.0. Buffers that come before a refused one may have been given up.
pub fn discard_batch(buffers: &[&Buffer], stream: &Stream) -> Result<()> {
    buffers.iter().try_for_each(|buffer| buffer.check_ordered(stream))?;
    // SAFETY: [stream-ordered-copy] the releases come after it on this stream.
    unsafe { discard_batch_unordered(buffers, stream) }
}

/// As [`discard_batch`], on any stream.
///
/// # Errors
/// As there, but for the other stream.
///
/// # Safety
/// No buffer is released before the stream has passed this, and nothing unordered with it touches one.
pub unsafe fn discard_batch_unordered(buffers: &[&Buffer], stream: &Stream) -> Result<()> {
    refuse_in_capture(stream, "a discard")?;
    let mut ranges = Ranges::of(buffers.iter().copied())?;
    // SAFETY: [stream-ordered-copy] one address and one size a buffer.
    Ok(unsafe { call::discard_batch_async(&mut ranges.addresses, &mut ranges.sizes, stream.raw()) }?)
}

/// Gives up the contents of many buffers and moves them, in the order of the stream that orders the release of each,
/// and in no order among one another (`cuMemDiscardAndPrefetchBatchAsync`).
///
/// # Errors
/// As [`discard_batch`].
pub fn discard_prefetch_batch(buffers: &[(&Buffer, Location)], stream: &Stream) -> Result<()> {
    buffers.iter().try_for_each(|(buffer, _)| buffer.check_ordered(stream))?;
    // SAFETY: [stream-ordered-copy] the releases come after it on this stream.
    unsafe { discard_prefetch_batch_unordered(buffers, stream) }
}

/// As [`discard_prefetch_batch`], on any stream.
///
/// # Errors
/// As there, but for the other stream.
///
/// # Safety
/// No buffer is released before the stream has passed this, and nothing unordered with it touches one.
pub unsafe fn discard_prefetch_batch_unordered(buffers: &[(&Buffer, Location)], stream: &Stream) -> Result<()> {
    refuse_in_capture(stream, "a discard")?;
    let mut ranges = Ranges::to(buffers)?;
    // SAFETY: [stream-ordered-copy] one address and one size a buffer, and one place for all of them or for each.
    Ok(unsafe {
        call::discard_and_prefetch_batch_async(
            &mut ranges.addresses,
            &mut ranges.sizes,
            &mut ranges.locations,
            stream.raw(),
        )
    }?)
}
