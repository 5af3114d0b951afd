//! Handles: kind, slot and generation in the shape of a pointer that is never dereferenced.
//!
//! A handle that ended, or that never was one, is an answer and a report that names both places.

use crate::report;
use crate::status::{Answer, OUT_OF_MEMORY, Status};
use crate::thread::{self, Place};
use std::collections::VecDeque;
use std::fmt;

/// A handle as the caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Handle(pub u64);

impl Handle {
    /// No handle.
    pub const NULL: Handle = Handle(0);

    /// From a raw handle of any kind.
    pub fn of<T>(raw: *mut T) -> Handle {
        Handle(raw as usize as u64)
    }

    /// As a raw handle.
    pub fn raw<T>(self) -> *mut T {
        self.0 as usize as *mut T
    }

    /// Whether it has the shape of a handle of that kind.
    pub fn is(self, kind: Kind) -> bool {
        self.0 >> 40 == MARK >> 40 | kind as u64
    }

    /// Whether it is null.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What a handle is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// `CUcontext`
    Context = 1,
    /// `CUstream`
    Stream,
    /// `CUevent`
    Event,
    /// `CUmemoryPool`
    Pool,
    /// `CUmodule`
    Module,
    /// `CUlibrary`
    Library,
    /// `CUkernel`
    Kernel,
    /// `CUfunction`
    Function,
    /// `CUgraph`
    Graph,
    /// `CUgraphNode`
    GraphNode,
    /// `CUgraphExec`
    GraphExec,
    /// `CUuserObject`
    UserObject,
    /// A capture in progress (its number is what `cuStreamGetCaptureInfo` gives).
    Capture,
    /// `CUgreenCtx`
    GreenContext,
    /// `CUdevResourceDesc`
    ResourceDescription,
    /// `CUlinkState`
    Linker,
    /// `CUmemGenericAllocationHandle`
    Physical,
    /// `CUarray`
    Array,
    /// `CUmipmappedArray`
    Mipmap,
    /// `CUtexObject`
    Texture,
    /// `CUsurfObject`
    Surface,
}

impl Kind {
    /// The kind's name in the census and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Context => "context",
            Kind::Stream => "stream",
            Kind::Event => "event",
            Kind::Pool => "pool",
            Kind::Module => "module",
            Kind::Library => "library",
            Kind::Kernel => "kernel",
            Kind::Function => "function",
            Kind::Graph => "graph",
            Kind::GraphNode => "graph_node",
            Kind::GraphExec => "graph_exec",
            Kind::UserObject => "user_object",
            Kind::Capture => "capture",
            Kind::GreenContext => "green_context",
            Kind::ResourceDescription => "resource_description",
            Kind::Linker => "linker",
            Kind::Physical => "physical_memory",
            Kind::Array => "array",
            Kind::Mipmap => "mipmap",
            Kind::Texture => "texture",
            Kind::Surface => "surface",
        }
    }
}

// marker bit 46 | kind 40..46 | generation 26..40 | slot 4..26, so that handles look like aligned user addresses.
const MARK: u64 = 1 << 46;
const SLOTS: usize = 1 << 22;
const GENERATIONS: u16 = 1 << 14;
/// Ended slots rest so long before they are used again, so that a stale handle can name what ended it.
const REST: usize = 1024;

struct Slot<T> {
    generation: u16,
    value: Option<T>,
    /// What ended the last value, and what using it now answers.
    ended: Option<(Place, Status)>,
}

/// Why a handle names nothing.
#[derive(Clone, Copy, Debug)]
pub enum Stale {
    /// It ended there; a use answers this status.
    Ended(Place, Status),
    /// It is null, of another kind, or was never given out.
    Foreign,
}

/// The objects of one kind.
pub struct Table<T> {
    kind: Kind,
    slots: Vec<Slot<T>>,
    resting: VecDeque<u32>,
    live: usize,
}

impl<T> Table<T> {
    /// An empty table.
    pub fn new(kind: Kind) -> Self {
        Self { kind, slots: Vec::new(), resting: VecDeque::new(), live: 0 }
    }

    /// How many are alive.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether none is alive.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The kind of its objects.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn handle(&self, slot: usize, generation: u16) -> Handle {
        Handle(MARK | (self.kind as u64) << 40 | u64::from(generation) << 26 | (slot as u64) << 4)
    }

    fn slot_of(&self, handle: Handle) -> Option<(usize, u16)> {
        let kind = self.kind as u64;
        if handle.0 >> 40 != MARK >> 40 | kind || handle.0 & 0xf != 0 {
            return None;
        }
        Some(((handle.0 >> 4) as usize & (SLOTS - 1), (handle.0 >> 26) as u16 & (GENERATIONS - 1)))
    }

    /// Adds an object.
    pub fn insert(&mut self, value: T) -> Answer<Handle> {
        let slot = if self.resting.len() > REST { self.resting.pop_front() } else { None };
        let slot = match slot {
            Some(slot) => slot as usize,
            None if self.slots.len() < SLOTS => {
                self.slots.push(Slot { generation: 0, value: None, ended: None });
                self.slots.len() - 1
            }
            None => self.resting.pop_front().ok_or(OUT_OF_MEMORY)? as usize,
        };
        let entry = &mut self.slots[slot];
        entry.generation = (entry.generation + 1) % GENERATIONS;
        entry.value = Some(value);
        entry.ended = None;
        let generation = entry.generation;
        self.live += 1;
        Ok(self.handle(slot, generation))
    }

    /// Looks a handle up, without a report.
    pub fn look(&self, handle: Handle) -> Result<&T, Stale> {
        let (slot, generation) = self.slot_of(handle).ok_or(Stale::Foreign)?;
        let entry = self.slots.get(slot).ok_or(Stale::Foreign)?;
        match (&entry.value, entry.ended) {
            (Some(value), _) if entry.generation == generation => Ok(value),
            (None, Some((place, status))) if entry.generation == generation => Err(Stale::Ended(place, status)),
            _ => Err(Stale::Foreign),
        }
    }

    /// Looks a handle up; a stale or foreign one is reported and answers its status, `otherwise` if it has none.
    pub fn get(&self, handle: Handle, otherwise: Status) -> Answer<&T> {
        self.look(handle).map_err(|stale| self.refuse(handle, stale, otherwise))
    }

    /// As [`Table::get`], to change the object.
    pub fn get_mut(&mut self, handle: Handle, otherwise: Status) -> Answer<&mut T> {
        match self.look(handle) {
            Ok(_) => {}
            Err(stale) => return Err(self.refuse(handle, stale, otherwise)),
        }
        self.peek_mut(handle).ok_or(otherwise)
    }

    /// The object if the handle is alive.
    pub fn peek(&self, handle: Handle) -> Option<&T> {
        self.look(handle).ok()
    }

    /// As [`Table::peek`], to change the object.
    pub fn peek_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let (slot, generation) = self.slot_of(handle)?;
        let entry = self.slots.get_mut(slot)?;
        if entry.generation == generation { entry.value.as_mut() } else { None }
    }

    /// Ends an object; a later use of its handle answers `later`.
    pub fn remove(&mut self, handle: Handle, otherwise: Status, later: Status) -> Answer<T> {
        if let Err(stale) = self.look(handle) {
            return Err(self.refuse(handle, stale, otherwise));
        }
        self.end(handle, later).ok_or(otherwise)
    }

    /// As [`Table::remove`], for handles that the driver itself kept: nothing is reported.
    pub fn end(&mut self, handle: Handle, later: Status) -> Option<T> {
        let (slot, generation) = self.slot_of(handle)?;
        let entry = self.slots.get_mut(slot).filter(|entry| entry.generation == generation)?;
        let value = entry.value.take()?;
        entry.ended = Some((thread::place(), later));
        self.live -= 1;
        self.resting.push_back(slot as u32);
        Some(value)
    }

    /// All objects that are alive.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let value = entry.value.as_ref()?;
            Some((self.handle(slot, entry.generation), value))
        })
    }

    /// The handles of the objects that satisfy a condition.
    pub fn handles(&self, wanted: impl Fn(&T) -> bool) -> Vec<Handle> {
        self.iter().filter(|(_, value)| wanted(value)).map(|(handle, _)| handle).collect()
    }

    /// Whether the handle is alive or once was.
    pub fn knows(&self, handle: Handle) -> bool {
        !matches!(self.look(handle), Err(Stale::Foreign))
    }

    /// Reports the use of a handle that names nothing, and says what it answers.
    fn refuse(&self, handle: Handle, stale: Stale, otherwise: Status) -> Status {
        let kind = self.kind.name();
        match stale {
            Stale::Ended(by, status) => {
                report::bug(format!("{} used {kind} {handle}, which {by} had ended", thread::place()));
                status
            }
            Stale::Foreign if handle.is_null() => otherwise,
            Stale::Foreign => {
                report::bug(format!(
                    "{} was given {handle}, which is no {kind} that this driver made",
                    thread::place()
                ));
                otherwise
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{INVALID_HANDLE, INVALID_VALUE};

    #[test]
    fn a_handle_names_its_object_until_it_ends() {
        let mut table = Table::new(Kind::Stream);
        let (a, b) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert_eq!((table.get(a, INVALID_HANDLE), table.get(b, INVALID_HANDLE)), (Ok(&1), Ok(&2)));
        assert_eq!(table.remove(a, INVALID_HANDLE, INVALID_VALUE), Ok(1));
        assert_eq!(table.get(a, INVALID_HANDLE), Err(INVALID_VALUE));
        assert_eq!(table.remove(a, INVALID_HANDLE, INVALID_VALUE), Err(INVALID_VALUE));
        assert_eq!((table.len(), table.knows(a), table.peek(b)), (1, true, Some(&2)));
    }

    #[test]
    fn a_foreign_handle_is_an_answer() {
        let (mut streams, mut events) = (Table::new(Kind::Stream), Table::new(Kind::Event));
        let (stream, event) = (streams.insert(()).unwrap(), events.insert(()).unwrap());
        assert_ne!(stream, event);
        let foreign = [0, 1, 2, 7, event.0, stream.0 + 1, stream.0 + 16, stream.0 ^ 1 << 30, u64::MAX];
        for handle in foreign.map(Handle) {
            assert_eq!(streams.get(handle, INVALID_HANDLE), Err(INVALID_HANDLE), "{handle}");
            assert_eq!(streams.end(handle, INVALID_HANDLE), None, "{handle}");
        }
        assert_eq!(streams.len(), 1);
    }

    #[test]
    fn a_slot_rests_before_it_is_used_again() {
        let mut table = Table::new(Kind::Event);
        let old = table.insert(0).unwrap();
        table.end(old, INVALID_HANDLE);
        for round in 0..3 * REST {
            let handle = table.insert(round).unwrap();
            assert_ne!(handle, old);
            table.end(handle, INVALID_HANDLE);
        }
        assert!(table.slots.len() <= REST + 2, "slots are used again");
        assert_eq!(table.get(old, INVALID_HANDLE), Err(INVALID_HANDLE));
    }
}
