//! The stream-order checker against a model that knows every edge, and pools under programs that are in order.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{Driver, alone};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The legacy stream, a blocking one, two that are not.
const STREAMS: usize = 4;
const EVENTS: usize = 3;
const BUFFERS: usize = 3;
const PART: u64 = 64;
const PARTS: u64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Fill { stream: usize, memory: usize, at: u64, parts: u64 },
    Copy { stream: usize, from: usize, to: usize, at: u64, parts: u64 },
    Record { stream: usize, event: usize },
    Wait { stream: usize, event: usize },
    SyncStream { stream: usize },
    QueryStream { stream: usize },
    SyncEvent { event: usize },
    QueryEvent { event: usize },
    SyncAll,
    Allocate { stream: usize },
    Free { which: usize, stream: usize },
    FreeByHost { which: usize },
    NewStream { stream: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let (stream, event) = (0..STREAMS, 0..EVENTS);
    let (at, parts) = (0..PARTS, 1..PARTS);
    prop_oneof![
        8 => (stream.clone(), 0..BUFFERS + 4, at.clone(), parts.clone())
            .prop_map(|(stream, memory, at, parts)| Step::Fill { stream, memory, at, parts }),
        6 => (stream.clone(), 0..BUFFERS + 4, 0..BUFFERS + 4, at, parts)
            .prop_map(|(stream, from, to, at, parts)| Step::Copy { stream, from, to, at, parts }),
        5 => (stream.clone(), event.clone()).prop_map(|(stream, event)| Step::Record { stream, event }),
        5 => (stream.clone(), event.clone()).prop_map(|(stream, event)| Step::Wait { stream, event }),
        1 => stream.clone().prop_map(|stream| Step::SyncStream { stream }),
        1 => stream.clone().prop_map(|stream| Step::QueryStream { stream }),
        1 => event.clone().prop_map(|event| Step::SyncEvent { event }),
        1 => event.prop_map(|event| Step::QueryEvent { event }),
        1 => Just(Step::SyncAll),
        3 => stream.clone().prop_map(|stream| Step::Allocate { stream }),
        2 => (0..4_usize, stream.clone()).prop_map(|(which, stream)| Step::Free { which, stream }),
        1 => (0..4_usize).prop_map(|which| Step::FreeByHost { which }),
        1 => stream.prop_map(|stream| Step::NewStream { stream }),
    ]
}

/// What comes before something: numbers of operations.
type Before = BTreeSet<usize>;

/// A use of bytes by an operation.
struct Use {
    operation: usize,
    range: (u64, u64),
    writes: bool,
}

struct Memory {
    start: u64,
    /// The operation that made it.
    ready: Option<usize>,
    uses: Vec<Use>,
}

/// Every operation with all that comes before it: no clocks, only sets.
#[derive(Default)]
struct Model {
    before: Vec<Before>,
    /// The last operation of each stream.
    last: [Option<usize>; STREAMS],
    /// The last operations of blocking streams that are gone.
    gone: Vec<usize>,
    /// Of all streams that are gone.
    all_gone: Vec<usize>,
    host: Before,
    events: [Option<usize>; EVENTS],
    found: BTreeSet<(&'static str, u64)>,
}

impl Model {
    /// What an operation put into a stream now has to wait for.
    fn waits_for(&self, stream: usize) -> Vec<usize> {
        let blocking = || self.last[1].into_iter().chain(self.gone.iter().copied());
        match stream {
            0 => self.last[0].into_iter().chain(blocking()).collect(),
            1 => self.last[0].into_iter().chain(self.last[1]).collect(),
            other => self.last[other].into_iter().collect(),
        }
    }

    fn add(&mut self, stream: usize, also: Option<usize>) -> usize {
        let mut before = self.host.clone();
        for earlier in self.waits_for(stream).into_iter().chain(also) {
            before.extend(&self.before[earlier]);
            before.insert(earlier);
        }
        self.before.push(before);
        self.last[stream] = Some(self.before.len() - 1);
        self.before.len() - 1
    }

    fn host_knows(&mut self, operations: impl IntoIterator<Item = usize>) {
        for operation in operations {
            self.host.extend(&self.before[operation]);
            self.host.insert(operation);
        }
    }

    fn uses(&mut self, memory: &mut Memory, operation: usize, range: (u64, u64), writes: bool) {
        let before = &self.before[operation];
        if memory.ready.is_some_and(|ready| !before.contains(&ready)) {
            self.found.insert(("use before ready", memory.start));
            return;
        }
        for other in &memory.uses {
            let meets = other.range.0 < range.1 && range.0 < other.range.1;
            let ordered = other.operation == operation || before.contains(&other.operation);
            if meets && !ordered && (writes || other.writes) {
                self.found.insert(("race", memory.start));
            }
        }
        memory.uses.push(Use { operation, range, writes });
    }

    fn ends(&mut self, memory: &Memory, before: &Before) {
        if memory.uses.iter().any(|used| !before.contains(&used.operation)) {
            self.found.insert(("release too early", memory.start));
        }
    }
}

struct Run<'a> {
    d: &'a Driver,
    streams: [usize; STREAMS],
    events: [usize; EVENTS],
    plain: Vec<Memory>,
    pooled: Vec<Memory>,
    model: Model,
}

impl Run<'_> {
    /// The memory that a number means; more numbers than there is memory.
    fn memory(&mut self, number: usize) -> &mut Memory {
        let (plain, pooled) = (self.plain.len(), self.pooled.len());
        if number < plain || pooled == 0 { &mut self.plain[number % plain] } else { &mut self.pooled[number % pooled] }
    }

    fn used(&mut self, number: usize, operation: usize, range: (u64, u64), writes: bool) {
        let mut model = std::mem::take(&mut self.model);
        model.uses(self.memory(number), operation, range, writes);
        self.model = model;
    }

    fn step(&mut self, step: &Step) {
        let d = self.d;
        let part = |at: u64, parts: u64| (at * PART, ((at + parts).min(PARTS)) * PART);
        match *step {
            Step::Fill { stream, memory, at, parts } => {
                let range = part(at, parts);
                let start = self.memory(memory).start;
                d.ok("cuMemsetD8Async", (start + range.0, 7u8, (range.1 - range.0) as usize, self.streams[stream]));
                let operation = self.model.add(stream, None);
                self.used(memory, operation, range, true);
            }
            Step::Copy { stream, from, to, at, parts } => {
                let (target, source) = (self.memory(to).start, self.memory(from).start);
                if target == source {
                    return;
                }
                let range = part(at, parts);
                let bytes = (range.1 - range.0) as usize;
                let at = self.streams[stream];
                d.ok("cuMemcpyDtoDAsync_v2", (target + range.0, source + range.0, bytes, at));
                let operation = self.model.add(stream, None);
                self.used(from, operation, range, false);
                self.used(to, operation, range, true);
            }
            Step::Record { stream, event } => {
                d.ok("cuEventRecord", (self.events[event], self.streams[stream]));
                self.model.events[event] = Some(self.model.add(stream, None));
            }
            Step::Wait { stream, event } => {
                d.ok("cuStreamWaitEvent", (self.streams[stream], self.events[event], 0u32));
                if let Some(recorded) = self.model.events[event] {
                    self.model.add(stream, Some(recorded));
                }
            }
            Step::SyncStream { stream } => {
                d.ok("cuStreamSynchronize", (self.streams[stream],));
                self.model.host_knows(self.model.waits_for(stream));
            }
            Step::QueryStream { stream } => {
                if d.call("cuStreamQuery", (self.streams[stream],)) == "SUCCESS" {
                    self.model.host_knows(self.model.waits_for(stream));
                }
            }
            Step::SyncEvent { event } => {
                d.ok("cuEventSynchronize", (self.events[event],));
                self.model.host_knows(self.model.events[event]);
            }
            Step::QueryEvent { event } => {
                if d.call("cuEventQuery", (self.events[event],)) == "SUCCESS" {
                    self.model.host_knows(self.model.events[event]);
                }
            }
            Step::SyncAll => self.sync(),
            Step::Allocate { stream } => {
                let at = self.streams[stream];
                let start = d.get("cuMemAllocAsync", |out| (out, (PARTS * PART) as usize, at)) as u64;
                let overlaps =
                    |memory: &Memory| memory.start < start + PARTS * PART && start < memory.start + PARTS * PART;
                assert!(!self.pooled.iter().chain(&self.plain).any(overlaps), "live allocations overlap");
                let ready = Some(self.model.add(stream, None));
                self.pooled.push(Memory { start, ready, uses: Vec::new() });
            }
            Step::Free { which, stream } => {
                if self.pooled.is_empty() {
                    return;
                }
                let memory = self.pooled.swap_remove(which % self.pooled.len());
                // Freed too early in a way that happens to go well: otherwise the context would be lost.
                idle(d);
                d.ok("cuMemFreeAsync", (memory.start, self.streams[stream]));
                let free = self.model.add(stream, None);
                let before = self.model.before[free].clone();
                self.model.ends(&memory, &before);
            }
            Step::FreeByHost { which } => {
                if self.pooled.is_empty() {
                    return;
                }
                let memory = self.pooled.swap_remove(which % self.pooled.len());
                d.ok("cuMemFree_v2", (memory.start,));
                let before = self.model.host.clone();
                self.model.ends(&memory, &before);
                // It waits for everything, as the real one does in practice.
                self.all_known();
            }
            Step::NewStream { stream } => {
                if stream == 0 {
                    return;
                }
                d.ok("cuStreamDestroy_v2", (self.streams[stream],));
                self.streams[stream] = d.stream(u32::from(stream > 1));
                let last = self.model.last[stream].take();
                self.model.all_gone.extend(last);
                if stream == 1 {
                    self.model.gone.extend(last);
                }
            }
        }
    }

    fn sync(&mut self) {
        self.d.ok("cuCtxSynchronize", ());
        self.all_known();
    }

    fn all_known(&mut self) {
        let all: Vec<usize> = self.model.last.iter().flatten().chain(&self.model.all_gone).copied().collect();
        self.model.host_knows(all);
    }
}

/// Waits until nothing is pending, without the driver's knowing that the program knows.
fn idle(d: &Driver) {
    // SAFETY: [test] the documented signature.
    let pending: unsafe extern "C" fn() -> u64 = unsafe { std::mem::transmute(d.address("cuirass_sim_pending")) };
    // SAFETY: [test] as above.
    while unsafe { pending() } > 0 {
        std::thread::yield_now();
    }
}

fn mark(d: &Driver) -> u64 {
    // SAFETY: [test] the documented signature.
    let mark: unsafe extern "C" fn() -> u64 = unsafe { std::mem::transmute(d.address("cuirass_sim_reports_mark")) };
    // SAFETY: [test] as above.
    unsafe { mark() }
}

/// The findings from a mark on: the rule, and where the memory is.
fn findings(d: &Driver, mark: u64) -> (BTreeSet<(String, u64)>, String) {
    let mut found = BTreeSet::new();
    let mut texts = String::new();
    for line in d.reports_since(mark).lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = report["text"].as_str().unwrap();
        assert_eq!(report["kind"], "order", "{text}");
        let address = text.split(" bytes at 0x").nth(1).unwrap().split(' ').next().unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        found.insert((text.split(':').next().unwrap().to_owned(), address));
        texts.push_str(text);
        texts.push('\n');
    }
    (found, texts)
}

#[test]
fn what_is_found_is_what_the_model_finds() {
    alone("what_is_found_is_what_the_model_finds", "", || {
        let (d, _context) = Driver::ready();
        let config = Config { cases: cases(400), failure_persistence: None, ..Config::default() };
        let totals: RefCell<BTreeMap<&str, usize>> = RefCell::default();
        let result = TestRunner::new(config).run(&proptest::collection::vec(step(), 1..40), |steps| {
            let mark = mark(&d);
            assert_eq!(d.code("cuirass_sim_check_order", (1i32,)), 0);
            let streams = [0, d.stream(0), d.stream(1), d.stream(1)];
            let events = [d.event(2), d.event(2), d.event(2)];
            let new = |_| Memory { start: d.memory((PARTS * PART) as usize) as u64, ready: None, uses: Vec::new() };
            let plain = (0..BUFFERS).map(new).collect();
            let mut run = Run { d: &d, streams, events, plain, pooled: Vec::new(), model: Model::default() };
            steps.iter().for_each(|step| run.step(step));
            run.sync();
            for memory in run.plain.iter().chain(&run.pooled) {
                d.ok("cuMemFree_v2", (memory.start,));
            }
            run.events.iter().for_each(|event| d.ok("cuEventDestroy_v2", (*event,)));
            run.streams[1..].iter().for_each(|stream| d.ok("cuStreamDestroy_v2", (*stream,)));
            assert_eq!(d.code("cuirass_sim_check_order", (0i32,)), 0);
            let (found, texts) = findings(&d, mark);
            let wanted: BTreeSet<_> = run.model.found.iter().map(|(rule, at)| ((*rule).to_owned(), *at)).collect();
            run.model.found.iter().for_each(|(rule, _)| *totals.borrow_mut().entry(rule).or_default() += 1);
            prop_assert_eq!(found, wanted, "{}", texts);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
        let totals = totals.into_inner();
        eprintln!("found: {totals:?}");
        assert!(totals.len() == 3 && totals.values().all(|count| *count > 20), "too few mistakes: {totals:?}");
    });
}

/// More of them on request.
fn cases(few: u32) -> u32 {
    if std::env::var_os("CUIRASS_SOAK").is_some() { few * 50 } else { few }
}

#[derive(Clone, Debug)]
enum InOrder {
    Allocate { stream: usize, pages: usize },
    Move { which: usize, stream: usize },
    Check { which: usize },
    Free { which: usize },
    FreeElsewhere { which: usize, stream: usize },
    Work { stream: usize },
    Sync { stream: usize },
    Trim,
}

fn in_order() -> impl Strategy<Value = InOrder> {
    let (stream, which) = (0..3_usize, 0..16_usize);
    prop_oneof![
        6 => (stream.clone(), 1..2000_usize).prop_map(|(stream, pages)| InOrder::Allocate { stream, pages }),
        3 => (which.clone(), stream.clone()).prop_map(|(which, stream)| InOrder::Move { which, stream }),
        1 => which.clone().prop_map(|which| InOrder::Check { which }),
        4 => which.clone().prop_map(|which| InOrder::Free { which }),
        2 => (which, stream.clone()).prop_map(|(which, stream)| InOrder::FreeElsewhere { which, stream }),
        2 => stream.clone().prop_map(|stream| InOrder::Work { stream }),
        1 => stream.prop_map(|stream| InOrder::Sync { stream }),
        1 => Just(InOrder::Trim),
    ]
}

/// Memory that a stream has filled with a value, and uses.
struct Block {
    start: usize,
    bytes: usize,
    stream: usize,
    value: u8,
}

struct Pooled<'a> {
    d: &'a Driver,
    pool: usize,
    streams: [usize; 3],
    event: usize,
    scratch: usize,
    live: Vec<Block>,
    next: u8,
}

impl Pooled<'_> {
    fn fill(&mut self, block: &mut Block) {
        self.next = self.next.wrapping_add(1);
        block.value = self.next;
        self.d.ok("cuMemsetD8Async", (block.start, block.value, block.bytes, self.streams[block.stream]));
    }

    fn hand_over(&self, from: usize, to: usize) {
        self.d.ok("cuEventRecord", (self.event, self.streams[from]));
        self.d.ok("cuStreamWaitEvent", (self.streams[to], self.event, 0u32));
    }

    fn check(&self, block: &Block) {
        let mut bytes = vec![0u8; block.bytes];
        let at = self.streams[block.stream];
        self.d.ok("cuMemcpyDtoHAsync_v2", (bytes.as_mut_ptr(), block.start, block.bytes, at));
        self.d.ok("cuStreamSynchronize", (at,));
        assert!(bytes.iter().all(|byte| *byte == block.value), "memory was used again before its free allowed it");
    }

    fn step(&mut self, step: &InOrder) {
        let d = self.d;
        let pick = |which: usize, live: &Vec<Block>| which.checked_rem(live.len());
        match *step {
            InOrder::Allocate { stream, pages } => {
                let bytes = pages * 4096;
                let mut start = 0usize;
                let at = self.streams[stream];
                if d.call("cuMemAllocFromPoolAsync", (&raw mut start, bytes, self.pool, at)) == "OUT_OF_MEMORY" {
                    return;
                }
                assert!(start != 0, "the allocation works or is refused for want of memory");
                let apart = |other: &Block| start + bytes <= other.start || other.start + other.bytes <= start;
                assert!(self.live.iter().all(apart), "live allocations overlap");
                let mut block = Block { start, bytes, stream, value: 0 };
                self.fill(&mut block);
                self.live.push(block);
            }
            InOrder::Move { which, stream } => {
                let Some(at) = pick(which, &self.live) else { return };
                let mut block = self.live.swap_remove(at);
                self.hand_over(block.stream, stream);
                block.stream = stream;
                self.fill(&mut block);
                self.live.push(block);
            }
            InOrder::Check { which } => {
                let Some(at) = pick(which, &self.live) else { return };
                self.check(&self.live[at]);
            }
            InOrder::Free { which } => {
                let Some(at) = pick(which, &self.live) else { return };
                let block = self.live.swap_remove(at);
                d.ok("cuMemFreeAsync", (block.start, self.streams[block.stream]));
            }
            InOrder::FreeElsewhere { which, stream } => {
                let Some(at) = pick(which, &self.live) else { return };
                let block = self.live.swap_remove(at);
                self.hand_over(block.stream, stream);
                d.ok("cuMemFreeAsync", (block.start, self.streams[stream]));
            }
            InOrder::Work { stream } => {
                // Something that takes a while, so that what stands behind it is pending.
                let part = self.scratch + stream * SCRATCH;
                d.ok("cuMemsetD8Async", (part, 1u8, SCRATCH, self.streams[stream]));
            }
            InOrder::Sync { stream } => d.ok("cuStreamSynchronize", (self.streams[stream],)),
            InOrder::Trim => d.ok("cuMemPoolTrimTo", (self.pool, 0usize)),
        }
    }
}

const SCRATCH: usize = 4 << 20;

/// Programs that are in order, on a pool that is nearly always too small: what they wrote stays, whichever way the pool
/// hands memory from one stream to another; and the checker has nothing to say.
#[test]
fn pools_use_memory_again_in_order_only() {
    alone("pools_use_memory_again_in_order_only", "", || {
        let (d, _context) = Driver::ready();
        let config = Config { cases: cases(40), failure_persistence: None, ..Config::default() };
        let reuse = (any::<bool>(), any::<bool>(), any::<bool>());
        let steps = (proptest::collection::vec(in_order(), 1..80), reuse);
        let result = TestRunner::new(config).run(&steps, |(steps, (opportunistic, internal, checked))| {
            let mark = mark(&d);
            if checked {
                assert_eq!(d.code("cuirass_sim_check_order", (1i32,)), 0);
            }
            // SAFETY: [test] plain numbers and pointers, all of which may be zero.
            let mut props: cuirass_sys::cuda::CUmemPoolProps = unsafe { std::mem::zeroed() };
            props.allocType = cuirass_sys::cuda::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
            props.location.type_ = cuirass_sys::cuda::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
            props.maxSize = 32 << 20;
            let pool = d.get("cuMemPoolCreate", |out| (out, &raw const props));
            for (attribute, value) in [(2u32, opportunistic), (3u32, internal)] {
                let value = i32::from(value);
                d.ok("cuMemPoolSetAttribute", (pool, attribute, &raw const value));
            }
            let streams = [d.stream(1), d.stream(1), d.stream(0)];
            let (event, scratch) = (d.event(2), d.memory(3 * SCRATCH));
            let mut run = Pooled { d: &d, pool, streams, event, scratch, live: Vec::new(), next: 0 };
            steps.iter().for_each(|step| run.step(step));
            for block in std::mem::take(&mut run.live) {
                run.check(&block);
                d.ok("cuMemFreeAsync", (block.start, streams[block.stream]));
            }
            d.ok("cuCtxSynchronize", ());
            d.ok("cuMemPoolDestroy", (pool,));
            d.ok("cuMemFree_v2", (scratch,));
            d.ok("cuEventDestroy_v2", (event,));
            streams.iter().for_each(|stream| d.ok("cuStreamDestroy_v2", (*stream,)));
            if checked {
                assert_eq!(d.code("cuirass_sim_check_order", (0i32,)), 0);
            }
            let (found, texts) = findings(&d, mark);
            prop_assert!(found.is_empty(), "{}", texts);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
        assert_eq!(d.census()["pooled_memory"], 0);
    });
}
