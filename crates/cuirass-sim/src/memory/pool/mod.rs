//! Memory pools: what they hold, and stream-ordered allocation from them. The calls are in the files beside this one.

pub mod blocks;
mod calls;
mod graph;
mod graph_calls;
mod order;
mod unwaited;

pub use calls::*;
pub(super) use calls::{get_access, set_access};
pub use graph::{Allocate, free_graph_memory, launched, still_made, sweep};
pub use graph_calls::*;
pub use order::*;
pub use unwaited::Unwaited;

use super::ipc::{PoolFile, Source};
use super::live::LIVE;
use super::{Allocation, GRAIN, Origin};
use crate::handle::{Handle, Kind, Table};
use crate::state::State;
use crate::status::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::stream::At;
use crate::{report, thread};
use blocks::{Blocks, Rules, Taken};
use std::sync::Arc;

/// What a pool takes from its device at a time.
pub const CHUNK: u64 = 32 << 20;
/// What a chunk larger or smaller than [`CHUNK`] is a multiple of.
const LARGE_PAGE: u64 = 2 << 20;

/// Names a pool, also one that was destroyed while memory of it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolKey(u32);

/// What a pool is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The device that its memory is of; `None`: the host.
    pub device: Option<usize>,
    /// `CUmemAllocationHandleType` bits.
    pub handle_types: u32,
    /// The most that it may hold; 0: as much as there is.
    pub max: u64,
    /// Whether it came from another process.
    pub imported: bool,
    /// Whether its memory is managed.
    pub managed: bool,
    /// Whether its memory is that of a NUMA node of the host.
    pub node: bool,
}

/// Whose pools a call about default and current pools means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A device.
    Device(usize),
    /// The host.
    Host,
    /// The NUMA node of the host.
    Node,
    /// Managed memory, wherever it is.
    Managed,
}

/// Owners that are no device.
const OTHERS: usize = 3;

impl Owner {
    /// Its place in the tables of defaults.
    fn place(self, devices: usize) -> usize {
        match self {
            Owner::Device(device) => device,
            Owner::Host => devices,
            Owner::Node => devices + 1,
            Owner::Managed => devices + 2,
        }
    }

    fn shape(self) -> Shape {
        let device = if let Owner::Device(device) = self { Some(device) } else { None };
        let (managed, node) = (self == Owner::Managed, self == Owner::Node);
        Shape { device, handle_types: 0, max: 0, imported: false, managed, node }
    }
}

/// Where a pool's memory is.
pub enum Backing {
    /// This process's own memory.
    Own,
    /// A file that other processes may have too.
    File(Box<PoolFile>),
    /// Another pool's file.
    Imported(Arc<Source>),
}

/// One pool.
pub struct Pool {
    /// What it is made of.
    pub shape: Shape,
    /// Where its memory is.
    pub backing: Backing,
    /// How many allocations are imported from it.
    imports: u64,
    /// How often an imported pool was imported again, and not yet destroyed as often.
    pub(in super::super) again: u64,
    /// Its handle.
    pub handle: Handle,
    /// The devices that may touch its memory, a bit each.
    pub access: u64,
    blocks: Blocks,
    rules: Rules,
    follow_events: bool,
    threshold: u64,
    reserved: [u64; 2],
    used: [u64; 2],
    closed: bool,
    default: bool,
}

impl Pool {
    /// Whether an allocation of it is imported and not freed.
    pub fn has_imports(&self) -> bool {
        self.imports != 0
    }
}

/// All pools.
pub struct Pools {
    all: Vec<Option<Pool>>,
    handles: Table<PoolKey>,
    default_of: Vec<Option<Handle>>,
    current_of: Vec<Option<Handle>>,
    /// Whether some pool holds more than its threshold.
    pub surplus: bool,
    /// The frees of imported allocations that no call has waited for.
    pub unwaited: Unwaited,
}

impl Pools {
    /// None yet; default pools are made when they are asked for.
    pub fn new(devices: usize) -> Self {
        Self {
            all: Vec::new(),
            handles: Table::new(Kind::Pool),
            default_of: vec![None; devices + OTHERS],
            current_of: vec![None; devices + OTHERS],
            surplus: false,
            unwaited: Unwaited::default(),
        }
    }

    /// A pool.
    pub fn get(&self, key: PoolKey) -> Option<&Pool> {
        self.all.get(key.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, key: PoolKey) -> Option<&mut Pool> {
        self.all.get_mut(key.0 as usize)?.as_mut()
    }

    /// The pool of a handle.
    ///
    /// # Errors
    /// `INVALID_VALUE`
    pub fn key(&self, handle: Handle) -> Answer<PoolKey> {
        self.handles.get(handle, INVALID_VALUE).copied()
    }

    /// The file of a pool that can be exported.
    pub fn file(&mut self, key: PoolKey) -> Option<&mut PoolFile> {
        match &mut self.get_mut(key)?.backing {
            Backing::File(file) => Some(file),
            Backing::Own | Backing::Imported(_) => None,
        }
    }

    /// Whether a device has access to a pool's memory.
    pub fn is_accessible(&self, key: PoolKey, device: usize) -> bool {
        self.get(key).is_none_or(|pool| pool.shape.device == Some(device) || pool.access >> device & 1 == 1)
    }

    /// Whether a pool's memory is page-locked memory of the host.
    pub fn is_of_host(&self, key: PoolKey) -> bool {
        self.get(key).is_some_and(|pool| pool.shape.device.is_none() && !pool.shape.managed)
    }

    /// The imported pool that is made of a file of this number.
    pub fn imported(&self, number: u64) -> Option<Handle> {
        let is_it = |pool: &&Pool| {
            !pool.closed && matches!(&pool.backing, Backing::Imported(source) if source.number == number)
        };
        self.all.iter().flatten().find(is_it).map(|pool| pool.handle)
    }

    /// Notes that a pool was imported once more.
    pub fn imported_again(&mut self, handle: Handle) {
        if let Ok(key) = self.key(handle)
            && let Some(pool) = self.get_mut(key)
        {
            pool.again += 1;
        }
    }

    /// Counts an allocation that is imported from a pool, or no longer; the devices that may touch it.
    pub fn imports(&mut self, key: PoolKey, more: bool) -> u64 {
        let Some(pool) = self.get_mut(key) else { return 0 };
        pool.imports = if more { pool.imports + 1 } else { pool.imports.saturating_sub(1) };
        let access = pool.access;
        self.reap(key);
        access
    }

    /// Forgets a pool that was destroyed once nothing of it is left.
    fn reap(&mut self, key: PoolKey) {
        if self.get(key).is_some_and(|pool| pool.closed && pool.reserved[0] == 0 && pool.imports == 0) {
            self.all[key.0 as usize] = None;
            self.unwaited.forget(key);
        }
    }

    /// The pools that the program made and has not destroyed.
    pub fn created(&self) -> impl Iterator<Item = Handle> {
        let created =
            |(handle, key): (Handle, &PoolKey)| self.get(*key).is_some_and(|pool| !pool.default).then_some(handle);
        self.handles.iter().filter_map(created)
    }

    pub(super) fn add(&mut self, shape: Shape, backing: Backing, default: bool) -> Answer<PoolKey> {
        let slot = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        let key = PoolKey(u32::try_from(slot).or(Err(OUT_OF_MEMORY))?);
        let handle = self.handles.insert(key)?;
        let pool = Pool {
            shape,
            backing,
            imports: 0,
            again: 0,
            handle,
            // Measured: no device has access to the memory of the host's pools until it is given it.
            access: if shape.managed { u64::MAX } else { 0 },
            blocks: Blocks::new(),
            rules: Rules { opportunistic: true, internal: true },
            follow_events: true,
            threshold: 0,
            reserved: [0; 2],
            used: [0; 2],
            closed: false,
            default,
        };
        if slot == self.all.len() {
            self.all.push(Some(pool));
        } else {
            self.all[slot] = Some(pool);
        }
        Ok(key)
    }

    /// The default pool.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when there are no handles left.
    pub fn default_of(&mut self, owner: Owner) -> Answer<Handle> {
        let place = owner.place(self.default_of.len() - OTHERS);
        if let Some(handle) = self.default_of[place] {
            return Ok(handle);
        }
        let key = self.add(owner.shape(), Backing::Own, true)?;
        let handle = self.get(key).ok_or(INVALID_VALUE)?.handle;
        self.default_of[place] = Some(handle);
        Ok(handle)
    }

    /// The pool that `cuMemAllocAsync` takes from on a device, and what is its like elsewhere.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when there are no handles left.
    pub fn current_of(&mut self, owner: Owner) -> Answer<Handle> {
        let place = owner.place(self.default_of.len() - OTHERS);
        match self.current_of[place].filter(|handle| self.handles.peek(*handle).is_some()) {
            Some(handle) => Ok(handle),
            None => self.default_of(owner),
        }
    }

    /// Changes what [`Pools::current_of`] answers.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a pool of other memory.
    pub fn set_current(&mut self, owner: Owner, handle: Handle) -> Answer {
        let shape = self.get(self.key(handle)?).ok_or(INVALID_VALUE)?.shape;
        let wanted = owner.shape();
        if shape.imported || (shape.device, shape.managed, shape.node) != (wanted.device, wanted.managed, wanted.node) {
            return Err(INVALID_VALUE);
        }
        let place = owner.place(self.default_of.len() - OTHERS);
        self.current_of[place] = Some(handle);
        Ok(())
    }
}

fn raise(mark: &mut [u64; 2], by: u64) {
    mark[0] += by;
    mark[1] = mark[1].max(mark[0]);
}

/// Makes a pool hold more: `len` bytes in one piece, usually out of a larger one.
fn grow(state: &mut State, key: PoolKey, len: u64) -> Answer {
    let pool = state.memory.pools.get(key).ok_or(INVALID_VALUE)?;
    let (device, reserved) = (pool.shape.device, pool.reserved[0]);
    let most = if pool.shape.max == 0 { u64::MAX } else { pool.shape.max.next_multiple_of(CHUNK) };
    let wanted = len.checked_next_multiple_of(CHUNK).ok_or(OUT_OF_MEMORY)?;
    let exact = len.checked_next_multiple_of(LARGE_PAGE).ok_or(OUT_OF_MEMORY)?;
    for span in [wanted, exact] {
        if reserved.checked_add(span).is_none_or(|total| total > most) {
            continue;
        }
        let taken = match device {
            Some(device) => state.take_device(device, span, LARGE_PAGE).map(|(start, _)| start),
            None => state.memory.shared()?.take(span, LARGE_PAGE).ok_or(OUT_OF_MEMORY),
        };
        let Ok(start) = taken else { continue };
        let host = host_of(state, device, start)?;
        if state.memory.pools.file(key).is_some_and(|file| !file.show(start, host, span)) {
            give_chunk(state, device, start, span);
            continue;
        }
        let pool = state.memory.pools.get_mut(key).ok_or(INVALID_VALUE)?;
        pool.blocks.grow(start, span);
        raise(&mut pool.reserved, span);
        return Ok(());
    }
    Err(OUT_OF_MEMORY)
}

/// Where the host finds an address of a pool's.
fn host_of(state: &mut State, device: Option<usize>, start: u64) -> Answer<usize> {
    match device {
        Some(device) => Ok(state.arena(device)?.host_of(start)),
        None => Ok(start as usize),
    }
}

fn give_chunk(state: &mut State, device: Option<usize>, start: u64, len: u64) {
    match device {
        Some(device) => state.give_device(device, start, len),
        None => {
            if let Ok(arena) = state.memory.shared() {
                arena.give(start, len);
            }
        }
    }
}

fn take(state: &mut State, key: PoolKey, span: u64, at: &At, wait: bool) -> Option<Taken> {
    let (pools, engine) = (&mut state.memory.pools, &state.engine);
    let pool = pools.get_mut(key)?;
    pool.blocks.take(span, at.queue, pool.rules, wait, |dep| engine.reached(dep))
}

/// Allocates from a pool, for use in a stream's order.
fn allocate(state: &mut State, key: PoolKey, len: u64, at: &At) -> Answer<u64> {
    let span = len.checked_next_multiple_of(GRAIN).ok_or(OUT_OF_MEMORY)?;
    let taken = match take(state, key, span, at, false) {
        Some(taken) => taken,
        None => match grow(state, key, span) {
            Ok(()) => take(state, key, span, at, false).ok_or(OUT_OF_MEMORY)?,
            // The last ways out: memory that the stream must wait for, then what other pools hold without need.
            Err(refused) => match take(state, key, span, at, true) {
                Some(taken) => taken,
                None => {
                    trim_all(state);
                    grow(state, key, span).or(Err(refused))?;
                    take(state, key, span, at, false).ok_or(refused)?
                }
            },
        },
    };
    if let Some(dep) = taken.wait {
        state.hold_back(at.queue, dep)?;
    }
    if crate::order::on() {
        // A place of its own in the stream.
        let before = state.before(at);
        state.push(at.queue, &before, crate::task::Work::Nothing)?;
    }
    let pool = state.memory.pools.get_mut(key).ok_or(INVALID_VALUE)?;
    raise(&mut pool.used, span);
    let (device, access, start) = (pool.shape.device, pool.access, taken.start);
    let host = host_of(state, device, start)?;
    let allocation = Allocation {
        start,
        len,
        span,
        device,
        context: at.context,
        origin: Origin::Pool(key),
        id: state.memory.number(),
        made: thread::place(),
        since: Some(state.engine.tail(at.queue)),
        sync_memops: false,
    };
    state.memory.enter(allocation, host, access, true);
    Ok(start)
}

/// Gives memory back to its pool, free from a place in a stream on (none: now).
fn give(state: &mut State, key: PoolKey, allocation: &Allocation, after: Option<crate::engine::Dep>) {
    let Some(pool) = state.memory.pools.get_mut(key) else { return };
    let imported = match &mut pool.backing {
        Backing::File(file) => file.freed(allocation.start, allocation.len),
        Backing::Own | Backing::Imported(_) => false,
    };
    // A free that is still to come may come after the importers'.
    if imported && after.is_none_or(|dep| state.engine.reached(dep)) {
        report::bug(format!(
            "{} freed {:#x}, {} bytes allocated by {}, which another process has imported and not freed",
            thread::place(),
            allocation.start,
            allocation.len,
            allocation.made
        ));
    }
    pool.blocks.give(allocation.start, allocation.span, after);
    pool.used[0] -= allocation.span;
    if pool.reserved[0] > pool.threshold || pool.closed {
        state.memory.pools.surplus = true;
    }
}

/// The context that pool memory was allocated in has ended.
pub fn ended(state: &mut State, key: PoolKey, start: u64) {
    let Some(allocation) = state.memory.strike(start) else { return };
    LIVE.remove(start, allocation.id);
    give(state, key, &allocation, None);
}

/// Makes every pool give back what it holds above its threshold.
pub fn trim(state: &mut State) {
    graph::sweep(state);
    for slot in 0..state.memory.pools.all.len() {
        let key = PoolKey(slot as u32);
        let keep = state.memory.pools.get(key).map_or(0, |pool| if pool.closed { 0 } else { pool.threshold });
        trim_one(state, key, keep, 0);
    }
    let surplus = |pool: &Pool| pool.closed && pool.imports == 0 || pool.reserved[0] > pool.threshold;
    let pools = &mut state.memory.pools;
    // What is still in use is looked at again once it is freed.
    pools.surplus = pools.all.iter().flatten().any(|pool| surplus(pool) && pool.blocks.unused());
}

/// Makes every pool give back all that it holds without need: memory is short.
pub fn trim_all(state: &mut State) {
    for slot in 0..state.memory.pools.all.len() {
        trim_one(state, PoolKey(slot as u32), 0, 0);
    }
}

/// Makes a pool give back free memory until it holds no more than `keep`, and never less than `least`.
fn trim_one(state: &mut State, key: PoolKey, keep: u64, least: u64) {
    let (pools, engine) = (&mut state.memory.pools, &state.engine);
    let Some(pool) = pools.get_mut(key) else { return };
    if pool.reserved[0] <= keep && !pool.closed {
        return;
    }
    pool.blocks.settle(|dep| engine.reached(dep));
    let mut given = Vec::new();
    while pool.reserved[0] > keep {
        let spare = pool.reserved[0].saturating_sub(least);
        let Some((start, len)) = pool.blocks.shrink(spare) else { break };
        pool.reserved[0] -= len;
        given.push((start, len));
    }
    let device = pool.shape.device;
    for (start, len) in given {
        let Ok(host) = host_of(state, device, start) else { continue };
        if state.memory.pools.file(key).is_none_or(|file| file.hide(start, host)) {
            give_chunk(state, device, start, len);
        }
    }
    state.memory.pools.reap(key);
}
