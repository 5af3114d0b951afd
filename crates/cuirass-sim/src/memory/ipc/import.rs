//! What this process has imported, and where it is mapped.

use super::super::live::LIVE;
use super::super::pool::PoolKey;
use super::super::{Allocation, Origin, arena};
use super::file::{Pointer, Source};
use crate::host;
use crate::state::{self, State};
use crate::status::{ALREADY_MAPPED, Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::stream::At;
use crate::task::{Failure, Job, NodeKind, Task, Work};
use crate::{report, thread};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mapping of another process's memory.
struct Mapping {
    source: Arc<Source>,
    pointer: Pointer,
    device: Option<usize>,
    /// Whole pages: the first address, where the host finds it, how many bytes are mapped, how many addresses taken.
    first: u64,
    host: usize,
    len: u64,
    taken: u64,
    ended: AtomicBool,
}

impl Mapping {
    /// Takes it away; the addresses stay taken. Whether there is nothing at them.
    fn end(&self) -> bool {
        if self.ended.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.source.give_up(&self.pointer);
        host::hide(self.host, self.len as usize)
    }

    fn give_addresses(&self, state: &mut State) {
        let arena = match self.device {
            Some(device) => state.arena(device),
            None => state.memory.shared(),
        };
        if let Ok(arena) = arena {
            arena.give(self.first, self.taken);
        }
    }
}

struct Import {
    pool: PoolKey,
    mapping: Arc<Mapping>,
}

/// Everything that is imported.
#[derive(Default)]
pub struct Imports {
    all: BTreeMap<u64, Import>,
    /// Their addresses by file and number.
    known: BTreeMap<(u64, u64), u64>,
}

impl Imports {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process that the memory at an address is of.
    pub fn process(&self, start: u64) -> Option<u32> {
        self.all.get(&start).map(|import| import.mapping.pointer.process)
    }

    /// Whether the memory at an address is imported.
    pub fn holds(&self, start: u64) -> bool {
        self.all.contains_key(&start)
    }
}

/// Imports a pointer: the address that the memory has here.
///
/// # Errors
/// `INVALID_VALUE` if it is not in the pool, or was freed; `ALREADY_MAPPED` for the host's memory that is imported;
/// `OUT_OF_MEMORY`.
pub(super) fn import(state: &mut State, key: PoolKey, source: Arc<Source>, pointer: Pointer) -> Answer<u64> {
    if !source.holds(&pointer) {
        return Err(INVALID_VALUE);
    }
    let name = (pointer.file, pointer.id);
    // A device's memory that is imported is where it is, and freed once for all; the host's is refused.
    if let Some(start) = state.memory.imports.known.get(&name).copied()
        && let Some(import) = state.memory.imports.all.get(&start)
    {
        return if import.mapping.device.is_some() { Ok(start) } else { Err(ALREADY_MAPPED) };
    }
    let context = if thread::current().is_null() { thread::current() } else { state.here()? };
    if !source.claim(&pointer) {
        let process = pointer.process;
        report::bug(format!("{} was given memory that process {process} has freed, or never had", thread::place()));
        return Err(INVALID_VALUE);
    }
    let mapping = match map(state, key, &source, pointer) {
        Ok(mapping) => mapping,
        Err(status) => {
            source.give_up(&pointer);
            return Err(status);
        }
    };
    let start = mapping.first + pointer.offset % arena::PAGE;
    let host = mapping.host + (start - mapping.first) as usize;
    let id = state.memory.number();
    let allocation = Allocation {
        start,
        len: pointer.len,
        span: mapping.len,
        device: mapping.device,
        context,
        origin: Origin::Imported(key),
        id,
        made: thread::place(),
        since: None,
        sync_memops: false,
    };
    state.memory.imports.known.insert(name, start);
    state.memory.imports.all.insert(start, Import { pool: key, mapping: Arc::new(mapping) });
    let access = state.memory.pools.imports(key, true);
    state.memory.enter(allocation, host, access, true);
    Ok(start)
}

fn map(state: &mut State, key: PoolKey, source: &Arc<Source>, pointer: Pointer) -> Answer<Mapping> {
    let device = state.memory.pools.get(key).ok_or(INVALID_VALUE)?.shape.device;
    let offset = pointer.offset / arena::PAGE * arena::PAGE;
    let len = (pointer.offset + pointer.len - offset).next_multiple_of(arena::PAGE);
    // A gap behind it, so that what runs past its end meets nothing.
    let taken = len + arena::PAGE;
    let arena = match device {
        Some(device) => state.arena(device)?,
        None => state.memory.shared()?,
    };
    let first = arena.take(taken, arena::PAGE).ok_or(OUT_OF_MEMORY)?;
    let host = arena.host_of(first);
    if !source.show(host, offset, len) {
        arena.give(first, taken);
        return Err(OUT_OF_MEMORY);
    }
    let ended = AtomicBool::new(false);
    Ok(Mapping { source: source.clone(), pointer, device, first, host, len, taken, ended })
}

/// The end of an import in a stream's order.
pub struct Unmap {
    start: u64,
    /// The allocation's number.
    pub id: u64,
    mapping: Arc<Mapping>,
}

impl Task for Unmap {
    fn run(&self, _job: &Job) -> Result<(), Failure> {
        LIVE.remove(self.start, self.id);
        if self.mapping.end()
            && let Ok(mut state) = state::lock()
        {
            self.mapping.give_addresses(&mut state);
        }
        Ok(())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Free
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Unmap {
    /// The work of a lost context is not done, but what it had claimed is free for the others.
    fn drop(&mut self) {
        LIVE.remove(self.start, self.id);
        self.mapping.end();
    }
}

/// Forgets an import; work may still use it.
fn forget(state: &mut State, start: u64) -> Option<(u64, Arc<Mapping>)> {
    let allocation = state.memory.strike(start)?;
    let import = state.memory.imports.all.remove(&start)?;
    let pointer = &import.mapping.pointer;
    state.memory.imports.known.remove(&(pointer.file, pointer.id));
    state.memory.pools.imports(import.pool, false);
    Some((allocation.id, import.mapping))
}

/// Frees imported memory in a stream's order; at once, if nothing stands before it.
///
/// # Errors
/// `OUT_OF_MEMORY`
pub fn free_in_order(state: &mut State, start: u64, at: &At) -> Answer {
    if state.not_lost(at.context).is_err() {
        ended(state, start);
        return Ok(());
    }
    let import = state.memory.imports.all.get(&start).ok_or(INVALID_VALUE)?;
    let (pool, mapping) = (import.pool, import.mapping.clone());
    let freed = if state.is_clear(at) {
        ended(state, start);
        state.mark(at.queue)
    } else {
        let before = state.before(at);
        let id = state.memory.at(start).ok_or(INVALID_VALUE)?.id;
        let pushed = state.push(at.queue, &before, Work::Task(Arc::new(Unmap { start, id, mapping })));
        forget(state, start);
        pushed
    };
    state.memory.pools.unwaited.add(pool, at.context, freed?);
    Ok(())
}

/// Frees imported memory; no work uses it any more.
pub fn ended(state: &mut State, start: u64) {
    let Some((id, mapping)) = forget(state, start) else { return };
    LIVE.remove(start, id);
    if mapping.end() {
        mapping.give_addresses(state);
    }
}
