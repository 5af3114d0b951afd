//! Memory of every kind, behind one book of addresses.
//!
//! An allocation is written in the book by the call that makes it and struck out by the call that frees it. What work
//! that still runs may touch stands in [`live`].

mod access;
pub mod arena;
pub mod buffer;
pub mod ipc;
pub mod live;
pub mod managed;
pub mod peer;
pub mod pinned;
pub mod pool;
pub mod r#virtual;

use crate::config::Config;
use crate::engine::{Dep, Deps};
use crate::handle::Handle;
use crate::order;
use crate::report;
use crate::state::State;
use crate::status::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::stream::At;
use crate::task::{NodeKind, Work};
use crate::thread::{self, Place};
use arena::Arena;
use cuirass_sys::cuda::CUgraphInstantiate_flags;
use live::{LIVE, Live};
use pool::PoolKey;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// What every address and every size counted against a device is a multiple of.
pub const GRAIN: u64 = 512;
/// How many freed allocations are remembered for reports.
const REMEMBERED: usize = 4096;

/// How an allocation came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// `cuMemAlloc`, `cuMemAllocPitch`
    Plain,
    /// A memory pool.
    Pool(PoolKey),
    /// Pool memory that was imported: another address for bytes that are counted where they were exported.
    Imported(PoolKey),
    /// An allocation node of a graph.
    Graph {
        /// The capture that is still adding to the graph.
        capture: Handle,
        /// Whether a launch has made it, and no free has ended it yet.
        made: bool,
        /// Whether the node still exists.
        node: bool,
    },
    /// `cuMemAllocHost`, `cuMemHostAlloc`, with its flags.
    Pinned(u32),
    /// `cuMemHostRegister`, with its flags.
    Registered(u32),
    /// `cuMemAllocManaged`, with its flags.
    Managed(u32),
    /// A mapping of physical memory.
    Virtual,
    /// A variable of a module.
    Variable,
    /// A device-side `malloc` heap.
    Heap,
}

/// One allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Its first device address.
    pub start: u64,
    /// The bytes that the program asked for; the program may touch no more.
    pub len: u64,
    /// The bytes that it takes up.
    pub span: u64,
    /// The device that it counts for; `None`: the host.
    pub device: Option<usize>,
    /// The context that it was made in.
    pub context: Handle,
    /// How it came about.
    pub origin: Origin,
    /// A number that no other allocation has.
    pub id: u64,
    /// The call that made it.
    pub made: Place,
    /// The place in a stream from which on it may be used (none: from its call on).
    pub since: Option<Dep>,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`
    pub sync_memops: bool,
}

/// How an allocation came to this process.
#[derive(Clone, Copy, Debug)]
struct Made {
    by: Place,
    /// The process that it was imported from.
    from: Option<u32>,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Some(process) => write!(f, "imported from process {process} by {}", self.by),
            None => write!(f, "made by {}", self.by),
        }
    }
}

/// What is remembered of an allocation that was freed.
#[derive(Clone, Copy, Debug)]
struct Grave {
    start: u64,
    len: u64,
    made: Made,
    freed: Place,
}

/// All memory.
pub struct Memory {
    book: BTreeMap<u64, Allocation>,
    graves: VecDeque<Grave>,
    /// Each device's memory, once something was allocated.
    arenas: Vec<Option<Arena>>,
    /// What host and device share.
    shared: Option<Arena>,
    /// Bytes in use of each device.
    used: Vec<u64>,
    next: u64,
    /// Virtual memory.
    pub virtuals: r#virtual::Virtual,
    /// Pools.
    pub pools: pool::Pools,
    /// What was said of managed memory.
    pub advice: managed::Advice,
    /// Which contexts have been given access to which devices.
    pub peers: BTreeMap<(Handle, usize), Handle>,
    /// The most that graphs' memory has been on each device: in use, and held.
    graph_marks: Vec<[u64; 2]>,
    /// What other processes have shared with this one.
    pub imports: ipc::Imports,
    /// How many allocations there are: plain, pooled, pinned, and imports.
    counts: [u64; 4],
}

impl Memory {
    /// None allocated.
    pub fn new(config: &Config) -> Self {
        Self {
            book: BTreeMap::new(),
            graves: VecDeque::new(),
            arenas: (0..config.devices).map(|_| None).collect(),
            shared: None,
            used: vec![0; config.devices],
            next: 1,
            virtuals: r#virtual::Virtual::new(),
            pools: pool::Pools::new(config.devices),
            advice: managed::Advice::default(),
            peers: BTreeMap::new(),
            graph_marks: vec![[0; 2]; config.devices],
            imports: ipc::Imports::new(),
            counts: [0; 4],
        }
    }

    /// What is alive, by kind.
    pub fn census(&self) -> Vec<(&'static str, u64)> {
        let [plain, pooled, pinned, imported] = self.counts;
        let pools = self.pools.created().count() as u64;
        let mut rows = vec![
            (KINDS[0], plain),
            (KINDS[1], pooled),
            (KINDS[2], pinned),
            (KINDS[IMPORTED], imported),
            ("pool", pools),
        ];
        rows.extend(self.virtuals.census());
        rows
    }

    /// Names everything that is alive: kind, handle or address, context.
    pub fn objects(&self, line: &mut impl FnMut(&str, Handle, Handle)) {
        for allocation in self.book.values() {
            let Some(kind) = kind(allocation.origin) else { continue };
            line(KINDS[kind], Handle(allocation.start), allocation.context);
        }
        self.pools.created().for_each(|handle| line("pool", handle, Handle::NULL));
    }

    /// Bytes of a device in use.
    pub fn used(&self, device: usize) -> u64 {
        self.used.get(device).copied().unwrap_or(0)
    }

    /// The allocation that holds an address.
    pub fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.book.range(..=address).next_back()?;
        (address - allocation.start < allocation.len.max(1)).then_some(allocation)
    }

    /// The allocation that begins at an address.
    pub fn at(&self, start: u64) -> Option<&Allocation> {
        self.book.get(&start)
    }

    /// As [`Memory::at`], to change it.
    pub fn at_mut(&mut self, start: u64) -> Option<&mut Allocation> {
        self.book.get_mut(&start)
    }

    /// All allocations.
    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.book.values()
    }

    /// Whether an address is one that a device could have memory at, or lies in memory that the driver handed out:
    /// the host must not touch it unchecked.
    pub fn ours(&self, address: u64) -> bool {
        self.arenas.iter().flatten().chain(&self.shared).any(|arena| arena.holds(address))
            || self.virtuals.holds(address)
    }

    /// Writes an allocation in the book; work may touch it.
    pub fn enter(&mut self, allocation: Allocation, host: usize, access: u64, writable: bool) {
        let Allocation { start, len, id, device, origin, .. } = allocation;
        if let Some(kind) = kind(origin) {
            self.counts[kind] += 1;
        }
        if order::on() {
            order::allocated(&allocation);
        }
        let hidden = matches!(origin, Origin::Graph { made: false, .. } | Origin::Heap);
        self.book.insert(start, allocation);
        if !hidden {
            LIVE.add(Live { start, len: len.max(1), host, id, device, access, writable });
        }
    }

    /// Strikes an allocation out. Work may touch it until [`live::LiveMap::remove`].
    pub fn strike(&mut self, start: u64) -> Option<Allocation> {
        let allocation = self.book.remove(&start)?;
        if order::on() {
            order::freed(allocation.id);
        }
        self.advice.forget(allocation.id);
        if let Some(kind) = kind(allocation.origin) {
            self.counts[kind] -= 1;
        }
        if self.graves.len() == REMEMBERED {
            self.graves.pop_front();
        }
        let (made, freed) = (self.made(&allocation), thread::place());
        self.graves.push_back(Grave { start, len: allocation.len, made, freed });
        Some(allocation)
    }

    /// Graphs' memory on a device: bytes in use and held, now; high marks follow.
    pub fn graph_bytes(&mut self, device: usize) -> [u64; 2] {
        let mut now = [0; 2];
        for memory in self.book.values().filter(|memory| memory.device == Some(device)) {
            if let Origin::Graph { made, .. } = memory.origin {
                now[0] += if made { memory.span } else { 0 };
                now[1] += memory.span;
            }
        }
        if let Some(marks) = self.graph_marks.get_mut(device) {
            marks.iter_mut().zip(now).for_each(|(mark, now)| *mark = (*mark).max(now));
        }
        now
    }

    /// The high marks that [`Memory::graph_bytes`] keeps.
    pub fn graph_marks(&mut self, device: usize) -> Option<&mut [u64; 2]> {
        self.graph_marks.get_mut(device)
    }

    /// A number for a new allocation.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn made(&self, allocation: &Allocation) -> Made {
        Made { by: allocation.made, from: self.imports.process(allocation.start) }
    }

    /// What is known about an address that a report is about.
    pub fn about(&self, address: u64) -> String {
        if let Some(allocation) = self.find(address) {
            let (Allocation { start, len, .. }, made) = (allocation, self.made(allocation));
            return format!(
                "{address:#x} is byte {} of the allocation of {len} bytes at {start:#x} {made}",
                address - start
            );
        }
        let holds = |grave: &&Grave| address.wrapping_sub(grave.start) < grave.len.max(1);
        if let Some(Grave { start, len, made, freed }) = self.graves.iter().rev().find(holds) {
            return format!(
                "{address:#x} is in the allocation of {len} bytes at {start:#x} {made}, which was freed by {freed}"
            );
        }
        let below = self
            .book
            .range(..=address)
            .next_back()
            .map(|(_, near)| (address - near.start - near.len, near, "past the end"));
        let above = self.book.range(address..).next().map(|(_, near)| (near.start - address, near, "before the start"));
        let near = below.into_iter().chain(above).min_by_key(|(distance, ..)| *distance);
        match near {
            Some((distance, near, side)) if distance < 1 << 30 => {
                let (Allocation { start, len, .. }, made) = (near, self.made(near));
                format!("{address:#x} is {distance} bytes {side} of the allocation of {len} bytes at {start:#x} {made}")
            }
            _ if address < 1 << 16 => format!("{address:#x} is a null pointer, or an offset from one"),
            _ => format!("{address:#x} is near no memory that this driver knows"),
        }
    }

    /// Whether an address is in memory that was freed.
    pub fn was_freed(&self, address: u64) -> bool {
        self.find(address).is_none()
            && self.graves.iter().any(|grave| address.wrapping_sub(grave.start) < grave.len.max(1))
    }

    /// Reports the use of an address that nothing is allocated at, and says what that answers.
    pub fn refuse(&self, address: u64) -> crate::status::Status {
        if self.was_freed(address) {
            report::bug(format!("{} used {address:#x}: {}", thread::place(), self.about(address)));
        }
        INVALID_VALUE
    }

    /// Bytes that the host and devices share, by their arena.
    pub fn shared(&mut self) -> Answer<&mut Arena> {
        if self.shared.is_none() {
            self.shared = Arena::host(crate::host::default_memory().saturating_mul(2));
        }
        self.shared.as_mut().ok_or(OUT_OF_MEMORY)
    }
}

/// Which count of the census an allocation belongs to.
fn kind(origin: Origin) -> Option<usize> {
    match origin {
        Origin::Plain | Origin::Managed(_) => Some(0),
        Origin::Pool(_) => Some(1),
        Origin::Pinned(_) => Some(2),
        Origin::Imported(_) => Some(IMPORTED),
        // Graphs and modules hold theirs; registered memory is the program's own.
        Origin::Graph { .. } | Origin::Virtual | Origin::Registered(_) | Origin::Variable | Origin::Heap => None,
    }
}

const KINDS: [&str; 4] = ["memory", "pooled_memory", "pinned_memory", "imported_memory"];
/// The place of imports among them.
const IMPORTED: usize = 3;

impl State {
    /// A device's arena.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the system has no addresses for it.
    pub fn arena(&mut self, device: usize) -> Answer<&mut Arena> {
        let memory = self.devices.get(device).ok_or(INVALID_VALUE)?.memory;
        let arena = self.memory.arenas.get_mut(device).ok_or(INVALID_VALUE)?;
        if arena.is_none() {
            // Twice the memory, so that scattered allocations still leave room for one large one.
            *arena = Arena::device(2 * memory + (1 << 30), memory.min(1 << 30));
        }
        arena.as_mut().ok_or(OUT_OF_MEMORY)
    }

    /// Takes bytes of a device's memory: their first address, and where the host finds them.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`
    pub fn take_device(&mut self, device: usize, span: u64, align: u64) -> Answer<(u64, usize)> {
        let total = self.devices.get(device).ok_or(INVALID_VALUE)?.memory;
        let used = self.memory.used(device);
        if used.checked_add(span).is_none_or(|used| used > total) {
            return Err(OUT_OF_MEMORY);
        }
        let arena = self.arena(device)?;
        // A gap behind it, so that what runs past its end meets nothing.
        let start = arena.take(span + GRAIN, align.max(GRAIN)).ok_or(OUT_OF_MEMORY)?;
        let host = arena.host_of(start);
        self.memory.used[device] += span;
        Ok((start, host))
    }

    /// Gives bytes from [`State::take_device`] back.
    pub fn give_device(&mut self, device: usize, start: u64, span: u64) {
        if let Ok(arena) = self.arena(device) {
            arena.give(start, span + GRAIN);
            self.memory.used[device] -= span;
        }
    }

    /// Allocates device memory in a context.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`
    pub fn allocate(&mut self, context: Handle, len: u64, origin: Origin, writable: bool) -> Answer<u64> {
        let device = self.context(context)?.device;
        let span = len.max(1).checked_next_multiple_of(GRAIN).ok_or(OUT_OF_MEMORY)?;
        let (start, host) = self.take_device(device, span, GRAIN)?;
        let id = self.memory.number();
        let made = thread::place();
        let device = Some(device);
        let allocation =
            Allocation { start, len, span, device, context, origin, id, made, since: None, sync_memops: false };
        self.memory.enter(allocation, host, 0, writable);
        Ok(start)
    }

    /// Allocates memory that host and devices share.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`
    pub fn allocate_shared(&mut self, context: Handle, len: u64, origin: Origin, device: Option<usize>) -> Answer<u64> {
        let span = len.max(1).checked_next_multiple_of(arena::PAGE).ok_or(OUT_OF_MEMORY)?;
        let start = self.memory.shared()?.take(span, arena::PAGE).ok_or(OUT_OF_MEMORY)?;
        let id = self.memory.number();
        let made = thread::place();
        let allocation =
            Allocation { start, len, span, device, context, origin, id, made, since: None, sync_memops: false };
        self.memory.enter(allocation, start as usize, u64::MAX, true);
        Ok(start)
    }

    /// Frees what [`State::allocate`] or [`State::allocate_shared`] made; no work uses it any more.
    pub fn release(&mut self, start: u64) {
        if self.memory.imports.holds(start) {
            return ipc::ended(self, start);
        }
        let Some(allocation) = self.memory.strike(start) else { return };
        LIVE.remove(start, allocation.id);
        match (allocation.origin, allocation.device) {
            (Origin::Registered(_), _) => {}
            (Origin::Pinned(_) | Origin::Managed(_), _) | (_, None) => {
                if let Ok(arena) = self.memory.shared() {
                    arena.give(start, allocation.span);
                }
            }
            (_, Some(device)) => self.give_device(device, start, allocation.span),
        }
    }

    /// Everything that the streams of a context must still do, and what an allocation's own context must.
    pub fn tails(&self, contexts: &[Handle]) -> Deps {
        let contexts = contexts.iter().filter_map(|context| self.contexts.peek(*context));
        let queues = contexts.flat_map(|context| &context.queues);
        let queues = queues.filter(|queue| order::on() || !self.engine.is_idle(**queue));
        queues.map(|queue| self.engine.tail(*queue)).collect()
    }

    /// Whether nothing at all stands before work put into a stream now.
    pub fn is_clear(&self, at: &At) -> bool {
        // The checker wants to know everything in its order.
        !order::on() && self.engine.is_idle(at.queue) && self.before(at).is_empty()
    }
}

/// A context ends, with its memory. Its work is done, and nothing of it runs.
pub fn context_ended(state: &mut State, context: Handle) {
    let ours: Vec<u64> =
        state.memory.book.values().filter(|memory| memory.context == context).map(|memory| memory.start).collect();
    for start in ours {
        match state.memory.at(start).map(|memory| memory.origin) {
            Some(Origin::Pool(key)) => pool::ended(state, key, start),
            Some(Origin::Imported(_)) => ipc::ended(state, start),
            _ => state.release(start),
        }
    }
    state.memory.peers.retain(|_, by| *by != context);
    state.memory.peers.retain(|(of, _), _| *of != context);
    let device = state.contexts.peek(context).map(|ended| ended.device);
    let alone = !state
        .contexts
        .iter()
        .any(|(other, known)| other != context && Some(known.device) == device && known.ended.is_none());
    // What a device's pools hold does not outlive its last context.
    if alone { pool::trim_all(state) } else { pool::trim(state) }
}

/// A call has waited for work: pools may give back what they hold without need.
pub fn synchronised(state: &mut State) {
    if state.memory.pools.surplus {
        pool::trim(state);
    }
}

/// An executable graph is launched: its allocations are made anew.
///
/// # Errors
/// `INVALID_VALUE` if memory of an earlier launch has not been freed, unless the flags say that a launch frees it.
pub fn graph_launch(state: &mut State, exec: Handle, flags: u64) -> Answer {
    let Some(exec) = state.graphs.execs.peek(exec) else { return Ok(()) };
    let memory = |work: &Work| match work {
        Work::Task(task) if matches!(task.node(), NodeKind::Alloc | NodeKind::Free) => Some(task.clone()),
        _ => None,
    };
    let tasks: Vec<_> = exec.steps.iter().filter(|step| step.enabled).filter_map(|step| memory(&step.work)).collect();
    let frees = flags & u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0) != 0;
    if !frees && tasks.iter().any(|task| pool::still_made(state, &**task)) {
        return Err(INVALID_VALUE);
    }
    tasks.iter().for_each(|task| pool::launched(state, &**task));
    Ok(())
}

/// An executable graph has ended: addresses of its allocations may be free now.
pub fn graph_exec_ended(state: &mut State, _exec: Handle) {
    pool::sweep(state);
}
