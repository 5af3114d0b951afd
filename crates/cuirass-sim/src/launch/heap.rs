//! The heap of device-side `malloc`, one a context.

use crate::handle::Handle;
use crate::memory::Origin;
use crate::memory::arena::Ranges;
use crate::memory::live::{LIVE, Live};
use crate::profile;
use crate::report;
use crate::state::{self, State};
use cuirass_sys::cuda::CUlimit;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Every block is a multiple of this.
const GRAIN: u64 = 16;

struct Heap {
    device: usize,
    start: u64,
    host: usize,
    free: Ranges,
    blocks: BTreeMap<u64, (u64, u64)>,
    next: u64,
}

static HEAPS: Mutex<BTreeMap<Handle, Option<Heap>>> = Mutex::new(BTreeMap::new());

/// A context's limit of a kind.
pub fn limit(state: &State, context: Handle, limit: CUlimit) -> u64 {
    let set = state.contexts.peek(context).and_then(|context| context.limits.get(&limit.0).copied());
    let known = profile::LIMITS.iter().find(|(known, _)| *known == limit.0);
    set.or_else(|| known.and_then(|(_, answer)| answer.ok())).unwrap_or(0)
}

fn open(context: Handle, device: usize) -> Option<Heap> {
    let mut state = state::lock().ok()?;
    let len = limit(&state, context, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE);
    let start = state.allocate(context, len, Origin::Heap, true).ok()?;
    let host = state.arena(device).ok()?.host_of(start);
    Some(Heap { device, start, host, free: Ranges::new(start, len), blocks: BTreeMap::new(), next: 1 << 48 })
}

/// Memory for a kernel's `malloc`; 0 if the heap is used up.
pub fn malloc(context: Handle, device: usize, bytes: u64) -> u64 {
    if !HEAPS.lock().contains_key(&context) {
        // Not with the heaps locked: the state's lock comes first.
        let opened = open(context, device);
        HEAPS.lock().entry(context).or_insert(opened);
    }
    let mut heaps = HEAPS.lock();
    let Some(Some(heap)) = heaps.get_mut(&context) else { return 0 };
    let Some(span) = bytes.max(1).checked_next_multiple_of(GRAIN) else { return 0 };
    let Some(start) = heap.free.take(span, GRAIN) else { return 0 };
    heap.next += 1;
    let id = heap.next;
    heap.blocks.insert(start, (span, id));
    let host = heap.host + (start - heap.start) as usize;
    let len = bytes.max(1);
    LIVE.add(Live { start, len, host, id, device: Some(heap.device), access: 0, writable: true });
    start
}

/// The end of memory from [`malloc`].
pub fn free(context: Handle, address: u64) {
    if address == 0 {
        return;
    }
    let mut heaps = HEAPS.lock();
    let block = heaps.get_mut(&context).and_then(Option::as_mut).and_then(|heap| {
        let (span, id) = heap.blocks.remove(&address)?;
        heap.free.give(address, span);
        Some(id)
    });
    match block {
        Some(id) => LIVE.remove(address, id),
        None => report::bug(format!("a kernel freed {address:#x}, which its malloc has not given out")),
    }
}

/// A context ends, with its heap.
pub fn context_ended(context: Handle) {
    if let Some(Some(heap)) = HEAPS.lock().remove(&context) {
        heap.blocks.iter().for_each(|(start, (_, id))| LIVE.remove(*start, *id));
    }
}
