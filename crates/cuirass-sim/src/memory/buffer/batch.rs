//! Batches of copies: in stream order as a whole, in no order among one another.

use super::super::managed::spread;
use super::shaped::Layout;
use super::{Copy, Expect, finished};
use crate::c::{In, Out, location_id};
use crate::engine;
use crate::report;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::stream::{StreamKind, Submitted};
use crate::task::{Failure, Job, NodeKind, Task};
use crate::thread;
use cuirass_sys::cuda::{
    CUdeviceptr, CUmemLocation, CUmemLocationType, CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder, CUstream,
};
use std::any::Any;
use std::sync::Arc;

/// A source of so many bytes is read when the call is made, if it is to be read during the call; for a larger one the
/// call waits.
const STAGED: u64 = 1 << 20;

/// The copies of a batch.
struct Batch(Vec<Copy>);

impl Task for Batch {
    fn run(&self, job: &Job) -> Result<(), Failure> {
        // From the last to the first: a program that relies on their order is to notice.
        self.0.iter().rev().try_for_each(|copy| copy.run(job))
    }

    fn node(&self) -> NodeKind {
        NodeKind::Copy
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Refuses attributes that are none.
fn check(state: &State, attributes: &CUmemcpyAttributes) -> Answer {
    let known = [
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    ];
    let flags = CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.0;
    if !known.contains(&attributes.srcAccessOrder) || attributes.flags & !flags != 0 {
        return Err(INVALID_VALUE);
    }
    [attributes.srcLocHint, attributes.dstLocHint].iter().try_for_each(|hint| check_hint(state, hint))
}

/// Where a side of a copy is supposed to be makes no difference, but has to be a place, or none.
fn check_hint(state: &State, hint: &CUmemLocation) -> Answer {
    match hint.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            state.device(location_id(hint)).map(drop).or(Err(INVALID_VALUE))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

/// Two copies, by their numbers, of which one writes what the other reads or writes.
fn dependent(copies: &[Copy]) -> Option<(usize, usize)> {
    let range = |address: u64, copy: &Copy| (address, address + copy.layout.width);
    let mut written: Vec<_> = copies.iter().enumerate().map(|(at, copy)| (range(copy.to.address, copy), at)).collect();
    written.sort_unstable();
    if let Some(pair) = written.windows(2).find(|pair| pair[1].0.0 < pair[0].0.1) {
        return Some((pair[0].1, pair[1].1));
    }
    // What is written lies apart by now, so that the ends rise with the starts.
    copies.iter().enumerate().find_map(|(reader, copy)| {
        let (start, end) = range(copy.from.address, copy);
        let before = written.partition_point(|((first, _), _)| *first < end);
        let meeting = written.iter().take(before).rev().take_while(|((_, last), _)| *last > start);
        meeting.map(|(_, writer)| *writer).find(|writer| *writer != reader).map(|writer| (writer, reader))
    })
}

/// What the caller gives for each copy.
struct Given {
    to: In<CUdeviceptr>,
    from: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    attributes: In<CUmemcpyAttributes>,
    indices: In<usize>,
    number: usize,
}

fn batch(given: &Given, stream: CUstream, failed: &mut usize) -> Answer {
    if given.count == 0 {
        return Err(INVALID_VALUE);
    }
    let (to, from) = (given.to.read_many(given.count)?, given.from.read_many(given.count)?);
    let sizes = given.sizes.read_many(given.count)?;
    let attributes = given.attributes.read_many(given.number)?;
    let attributes = spread(&attributes, &given.indices.read_many(given.number)?, given.count)?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.not_lost(at.context)?;
    // Measured: unlike a plain copy, a batch wants a context to be current.
    if at.kind == StreamKind::Legacy || state.here().is_err() {
        return Err(INVALID_VALUE);
    }
    let (mut copies, mut numbers) = (Vec::new(), Vec::new());
    let (mut wait, mut held) = (false, false);
    for (number, attributes) in attributes.iter().enumerate() {
        *failed = number;
        check(&state, attributes)?;
        if sizes[number] == 0 {
            continue;
        }
        let layout = Layout::linear(sizes[number] as u64);
        let mut copy = Copy::new(&state, (to[number], Expect::Any), (from[number], Expect::Any), layout)?;
        copy.reaches(&state, &at)?;
        wait |= copy.to.pageable;
        let order = attributes.srcAccessOrder;
        let now = order == CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
            || copy.from.pageable && order == CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        if now {
            held |= copy.layout.bytes() > STAGED || !copy.stage();
        }
        copies.push(copy);
        numbers.push(number);
    }
    *failed = usize::MAX;
    // A graph has no node for it.
    state.asked_in_capture(&at)?;
    if let Some((writer, reader)) = dependent(&copies) {
        report::bug(format!(
            "{}: copy {} of the batch writes memory that copy {} uses: the copies of a batch are in no order",
            thread::place(),
            numbers[writer],
            numbers[reader]
        ));
    }
    match state.submit(&at, Arc::new(Batch(copies)))? {
        Submitted::Pending(dep) if wait => {
            engine::wait(&mut state, &[dep]);
            finished(&state, &at)
        }
        Submitted::Pending(dep) if held => {
            engine::reach(&mut state, &[dep], None);
            finished(&state, &at)
        }
        _ => Ok(()),
    }
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuMemcpyBatchAsync(
    to: In<CUdeviceptr>,
    from: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    attributes: In<CUmemcpyAttributes>,
    indices: In<usize>,
    number: usize,
    failed: Out<usize>,
    stream: CUstream,
) -> Answer {
    let mut at = usize::MAX;
    let answer = batch(&Given { to, from, sizes, count, attributes, indices, number }, stream, &mut at);
    if answer.is_err() {
        failed.write_if_wanted(at);
    }
    answer
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuMemcpyBatchAsync_v2(
    to: In<CUdeviceptr>,
    from: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    attributes: In<CUmemcpyAttributes>,
    indices: In<usize>,
    number: usize,
    stream: CUstream,
) -> Answer {
    let given = Given { to, from, sizes, count, attributes, indices, number };
    let mut unused = usize::MAX;
    batch(&given, stream, &mut unused)
}
