//! Many ranges of managed memory at once, and memory whose contents are given up.

use super::super::buffer::Fill;
use super::advice::Range;
use super::{Place, location, managed};
use crate::c::In;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::stream::StreamKind;
use crate::task::{Failure, Job, NodeKind, Task, Work};
use cuirass_sys::cuda::{CUdeviceptr, CUmemLocation, CUstream};
use std::any::Any;
use std::ffi::c_ulonglong;
use std::sync::Arc;

/// What memory holds whose contents were given up: whoever relies on them is to notice.
const DISCARDED: u32 = 0xDD;

/// The contents of ranges are given up.
struct Discard(Vec<Fill>);

impl Discard {
    fn of(state: &State, ranges: &[Range]) -> Answer<Work> {
        let fill = |range: &Range| Fill::new(state, range.address, 0, DISCARDED, 1, (range.bytes, 1));
        Ok(Work::Task(Arc::new(Discard(ranges.iter().map(fill).collect::<Answer<_>>()?))))
    }
}

impl Task for Discard {
    fn run(&self, job: &Job) -> Result<(), Failure> {
        self.0.iter().try_for_each(|fill| fill.run(job))
    }

    fn node(&self) -> NodeKind {
        NodeKind::Fill
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The places of a batch as its caller gives them: an entry holds from its index on.
pub struct Places {
    locations: In<CUmemLocation>,
    indices: In<usize>,
    number: usize,
}

impl Places {
    fn read(&self, state: &State, count: usize) -> Answer<Vec<Place>> {
        let locations = self.locations.read_many(self.number)?;
        let places = locations.iter().map(|place| location(state, place)).collect::<Answer<Vec<_>>>()?;
        spread(&places, &self.indices.read_many(self.number)?, count)
    }
}

/// One entry for each of `count` things, of entries that hold from their index on: the first from 0, each from a later
/// one than the one before.
pub fn spread<T: Copy>(entries: &[T], indices: &[usize], count: usize) -> Answer<Vec<T>> {
    let rises = indices.windows(2).all(|pair| pair[0] < pair[1]);
    if indices.first() != Some(&0) || !rises || indices.last().is_none_or(|last| *last >= count) {
        return Err(INVALID_VALUE);
    }
    let ends = indices.iter().skip(1).copied().chain([count]);
    let runs = entries.iter().zip(indices.iter().zip(ends));
    Ok(runs.flat_map(|(entry, (from, to))| std::iter::repeat_n(*entry, to - from)).collect())
}

fn batch(
    (addresses, sizes, count): (In<CUdeviceptr>, In<usize>, usize),
    flags: c_ulonglong,
    stream: CUstream,
    discards: bool,
    places: Option<&Places>,
) -> Answer {
    if count == 0 || flags != 0 {
        return Err(INVALID_VALUE);
    }
    let (addresses, sizes) = (addresses.read_many(count)?, sizes.read_many(count)?);
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    if at.kind == StreamKind::Legacy {
        return Err(INVALID_VALUE);
    }
    // Measured: what comes before an entry that is refused is taken.
    let (mut ranges, mut refused) = (Vec::with_capacity(count), None);
    for (address, bytes) in addresses.iter().zip(sizes) {
        match managed(&state, *address, bytes) {
            Ok(range) => ranges.push(range),
            Err(status) => {
                refused = Some(status);
                break;
            }
        }
    }
    let places = places.map(|places| places.read(&state, count)).transpose()?;
    state.asked_in_capture(&at)?;
    let work = if discards && refused.is_none() { Discard::of(&state, &ranges)? } else { Work::Nothing };
    state.submit_work(&at, work)?;
    for (range, place) in ranges.iter().zip(places.into_iter().flatten()) {
        state.memory.advice.say(range, |page| page.prefetched = Some(place));
    }
    refused.map_or(Ok(()), Err)
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuMemPrefetchBatchAsync(
    dptrs: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    locations: In<CUmemLocation>,
    indices: In<usize>,
    number: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    batch((dptrs, sizes, count), flags, stream, false, Some(&Places { locations, indices, number }))
}

pub fn cuMemDiscardBatchAsync(
    dptrs: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    batch((dptrs, sizes, count), flags, stream, true, None)
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuMemDiscardAndPrefetchBatchAsync(
    dptrs: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    locations: In<CUmemLocation>,
    indices: In<usize>,
    number: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    batch((dptrs, sizes, count), flags, stream, true, Some(&Places { locations, indices, number }))
}
