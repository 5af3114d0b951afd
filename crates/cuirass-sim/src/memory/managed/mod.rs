//! Managed memory: host and devices see it at one address, and nothing moves. What the program says of it is kept and
//! can be asked for.

mod advice;
mod batch;

pub use advice::{Advice, Place};
pub use batch::*;

use super::Origin;
use crate::c::{In, Out, Untyped, location_id};
use crate::state::{self, State};
use crate::status::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::task::Work;
use advice::{Page, Range, common};
use cuirass_sys::cuda::{
    CUdevice, CUdevice_attribute, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemAllocationType,
    CUmemAttach_flags, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUstream,
};
use std::ffi::{c_int, c_uint, c_void};

/// `CU_DEVICE_CPU`
const HOST: CUdevice = -1;
/// `CU_DEVICE_INVALID`
const NOWHERE: CUdevice = -2;

pub fn cuMemAllocManaged(dptr: Out<CUdeviceptr>, bytes: usize, flags: c_uint) -> Answer {
    dptr.check()?;
    let mut state = state::lock()?;
    let here = state.here()?;
    state.potentially_unsafe()?;
    let known = [CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0, CUmemAttach_flags::CU_MEM_ATTACH_HOST.0];
    if bytes == 0 || !known.contains(&flags) {
        return Err(INVALID_VALUE);
    }
    let device = state.context(here)?.device;
    if bytes as u64 > crate::host::default_memory().saturating_mul(2) {
        return Err(OUT_OF_MEMORY);
    }
    dptr.write(state.allocate_shared(here, bytes as u64, Origin::Managed(flags), Some(device))?)
}

/// A range that is managed memory: of `cuMemAllocManaged`, or of a managed pool. The device's profile says that kernels
/// cannot use pageable memory, so that the program's own is refused.
fn managed(state: &State, address: u64, bytes: usize) -> Answer<Range> {
    let Some(memory) = state.memory.find(address) else { return Err(state.memory.refuse(address)) };
    let bytes = bytes as u64;
    if bytes == 0 || bytes > memory.len - (address - memory.start) {
        return Err(INVALID_VALUE);
    }
    let pool = match memory.origin {
        Origin::Managed(_) => None,
        Origin::Pool(key) if state.memory.pools.get(key).is_some_and(|pool| pool.shape.managed) => Some(key),
        _ => return Err(INVALID_VALUE),
    };
    Ok(Range { address, bytes, id: memory.id, pool })
}

fn device(state: &State, device: CUdevice) -> Answer<Place> {
    let known = state.device(device).or(Err(INVALID_DEVICE))?;
    if known.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) == 0 {
        return Err(NOT_SUPPORTED);
    }
    Ok(Place::Device(device))
}

fn driver_before(version: u32) -> bool {
    crate::config::config().is_ok_and(|config| config.driver < version)
}

fn device_or_host(state: &State, number: CUdevice) -> Answer<Place> {
    if number == HOST { Ok(Place::Host) } else { device(state, number) }
}

/// The node that the devices sit at, which is the only one of the simulated machine.
pub(super) fn node(state: &State) -> Answer<i32> {
    Ok(state.device(0)?.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID))
}

fn location(state: &State, location: &CUmemLocation) -> Answer<Place> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => device(state, location_id(location)),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Ok(Place::Host),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if location_id(location) == node(state)? => {
            Ok(Place::Node(location_id(location)))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(Place::Node(node(state)?)),
        _ => Err(INVALID_VALUE),
    }
}

/// Where the memory of a pool that is to be made is rather to be.
///
/// # Errors
/// `INVALID_VALUE` for what a pool of managed memory cannot be; `NOT_SUPPORTED`
pub fn preferred(state: &State, properties: &CUmemPoolProps) -> Answer<Option<Place>> {
    if properties.allocType != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED {
        return Ok(None);
    }
    // Older drivers do not know the type.
    if properties.maxSize != 0 || driver_before(13000) {
        return Err(INVALID_VALUE);
    }
    match properties.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE => Ok(None),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Err(INVALID_VALUE),
        _ => match location(state, &properties.location) {
            Err(INVALID_DEVICE) => Err(INVALID_VALUE),
            place => place.map(Some),
        },
    }
}

fn advise(
    address: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    place: impl FnOnce(&State) -> Answer<Place>,
) -> Answer {
    let mut state = state::lock()?;
    state.here()?;
    let is_set = match advice {
        CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY
        | CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION
        | CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY => true,
        CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY
        | CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION
        | CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY => false,
        _ => return Err(INVALID_VALUE),
    };
    let range = managed(&state, address, count)?;
    // Measured: not for memory of a pool.
    if range.pool.is_some() {
        return Err(NOT_SUPPORTED);
    }
    match advice {
        CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY | CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY => {
            state.memory.advice.say(&range, |page| page.read_mostly = is_set);
        }
        CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let place = place(&state)?;
            state.memory.advice.say(&range, |page| page.preferred = Some(place));
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
            state.memory.advice.say(&range, |page| page.preferred = None);
        }
        _ => match place(&state)? {
            Place::Device(device) => {
                let bit = 1_u64.checked_shl(device.unsigned_abs()).ok_or(INVALID_DEVICE)?;
                let change = |page: &mut Page| page.devices = page.devices & !bit | if is_set { bit } else { 0 };
                state.memory.advice.say(&range, change);
            }
            Place::Host => state.memory.advice.say(&range, |page| page.host = is_set),
            Place::Node(_) => return Err(INVALID_VALUE),
        },
    }
    Ok(())
}

pub fn cuMemAdvise(dptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) -> Answer {
    advise(dptr, count, advice, |state| device_or_host(state, device))
}

pub fn cuMemAdvise_v2(dptr: CUdeviceptr, count: usize, advice: CUmem_advise, place: CUmemLocation) -> Answer {
    advise(dptr, count, advice, |state| location(state, &place))
}

fn prefetch(
    address: CUdeviceptr,
    count: usize,
    stream: CUstream,
    place: impl FnOnce(&State) -> Answer<Place>,
) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let range = managed(&state, address, count)?;
    let place = place(&state)?;
    // No node of a graph is a prefetch.
    state.asked_in_capture(&at)?;
    // Nothing moves, but the stream has one more thing in its order.
    state.submit_work(&at, Work::Nothing)?;
    // The attribute tells what was asked for, whether or not the stream has come there.
    state.memory.advice.say(&range, |page| page.prefetched = Some(place));
    Ok(())
}

pub fn cuMemPrefetchAsync(dptr: CUdeviceptr, count: usize, device: CUdevice, stream: CUstream) -> Answer {
    prefetch(dptr, count, stream, |state| device_or_host(state, device))
}

pub fn cuMemPrefetchAsync_v2(
    dptr: CUdeviceptr,
    count: usize,
    place: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Answer {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    prefetch(dptr, count, stream, |state| location(state, &place))
}

/// A place as drivers before CUDA 12.2 tell it.
fn number(place: Option<Place>) -> c_int {
    match place {
        None => NOWHERE,
        Some(Place::Device(device)) => device,
        Some(Place::Host | Place::Node(_)) => HOST,
    }
}

fn type_of(place: Option<Place>) -> c_int {
    let kind = match place {
        None => CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
        Some(Place::Device(_)) => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        Some(Place::Host) => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        Some(Place::Node(_)) => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA,
    };
    kind.0 as c_int
}

fn id_of(place: Option<Place>) -> c_int {
    match place {
        None => NOWHERE,
        Some(Place::Host) => 0,
        Some(Place::Device(id) | Place::Node(id)) => id,
    }
}

/// The devices that all pages are said to be used by, and the host.
fn accessed_by(state: &State, pages: &[Page]) -> Vec<c_int> {
    let everywhere = pages.iter().fold(u64::MAX, |devices, page| devices & page.devices);
    let devices = (0..state.devices.len()).filter(|device| everywhere >> device & 1 == 1).map(|device| device as c_int);
    devices.chain(pages.iter().all(|page| page.host).then_some(HOST)).collect()
}

/// One attribute, which has a place of so many bytes.
fn tell(state: &State, pages: &[Page], attribute: CUmem_range_attribute, to: Untyped, bytes: usize) -> Answer {
    use CUmem_range_attribute as A;
    const WORD: usize = size_of::<c_int>();
    if to.is_null() || bytes == 0 || !bytes.is_multiple_of(WORD) {
        return Err(INVALID_VALUE);
    }
    if attribute == A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY {
        let all = accessed_by(state, pages).into_iter().chain(std::iter::repeat(NOWHERE));
        let out = to.out::<c_int>();
        return all.take(bytes / WORD).enumerate().try_for_each(|(at, device)| out.write_at(at, device));
    }
    if bytes != WORD {
        return Err(INVALID_VALUE);
    }
    let by_type = attribute.0 >= A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE.0;
    if by_type && driver_before(12020) {
        return Err(INVALID_VALUE);
    }
    let preferred = common(pages, |page| page.preferred);
    let prefetched = common(pages, |page| page.prefetched);
    to.out::<c_int>().write(match attribute {
        A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => c_int::from(pages.iter().all(|page| page.read_mostly)),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => number(preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => number(prefetched),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => type_of(preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => id_of(preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => type_of(prefetched),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => id_of(prefetched),
        _ => return Err(INVALID_VALUE),
    })
}

fn tell_all(
    address: CUdeviceptr,
    count: usize,
    wanted: impl IntoIterator<Item = (CUmem_range_attribute, Untyped, usize)>,
) -> Answer {
    let state = state::lock()?;
    state.here()?;
    let range = managed(&state, address, count)?;
    let pages = state.memory.advice.pages(&range);
    wanted.into_iter().try_for_each(|(attribute, to, bytes)| tell(&state, &pages, attribute, to, bytes))
}

pub fn cuMemRangeGetAttribute(
    data: Untyped,
    bytes: usize,
    attribute: CUmem_range_attribute,
    dptr: CUdeviceptr,
    count: usize,
) -> Answer {
    tell_all(dptr, count, [(attribute, data, bytes)])
}

pub fn cuMemRangeGetAttributes(
    data: In<*mut c_void>,
    sizes: In<usize>,
    attributes: In<CUmem_range_attribute>,
    number: usize,
    dptr: CUdeviceptr,
    count: usize,
) -> Answer {
    if number == 0 {
        return Err(INVALID_VALUE);
    }
    let (attributes, data) = (attributes.read_many(number)?, data.places(number)?);
    let sizes = sizes.read_many(number)?;
    let wanted = attributes.into_iter().zip(data).zip(sizes);
    tell_all(dptr, count, wanted.map(|((attribute, to), bytes)| (attribute, to, bytes)))
}
