//! The memory that kernels and copies may touch at this moment.
//!
//! The driver's book ([`super::Memory`]) says what the program has allocated as of its last call; this map says what
//! is there for the work that runs now, which may be older than a free that the program has already asked for. It has
//! its own lock, so that kernels never take the driver's.

use crate::order::{self, Operation};
use crate::{host, thread};
use cuirass_ptx::{DeviceMemory, Region, Touched};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The owner of virtual memory: only its access mask counts.
pub const NO_DEVICE: usize = usize::MAX;

/// A piece of memory that work may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its first device address.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Where the host finds its first byte.
    pub host: usize,
    /// The allocation's number.
    pub id: u64,
    /// The device that it belongs to, or [`NO_DEVICE`]; `None`: the host.
    pub device: Option<usize>,
    /// The devices that may touch it, a bit each.
    pub access: u64,
    /// Whether kernels may write to it.
    pub writable: bool,
}

impl Live {
    fn end(&self) -> u64 {
        self.start + self.len
    }

    fn meets(&self, other: &Live) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

#[derive(Default)]
struct Inner {
    map: BTreeMap<u64, Live>,
    /// Memory that takes the place of memory which pending work still frees, in the order of allocation.
    waiting: Vec<Live>,
}

impl Inner {
    fn taken(&self, piece: &Live) -> bool {
        let before = self.map.range(..piece.end()).next_back();
        before.is_some_and(|(_, live)| live.meets(piece))
    }
}

/// The map.
pub struct LiveMap {
    inner: RwLock<Inner>,
    epoch: AtomicU64,
}

/// The process's map.
pub static LIVE: LiveMap = LiveMap::new();

impl LiveMap {
    /// An empty map.
    pub const fn new() -> Self {
        Self { inner: RwLock::new(Inner { map: BTreeMap::new(), waiting: Vec::new() }), epoch: AtomicU64::new(0) }
    }

    /// From now on, or once what holds its place is gone, work may touch this.
    pub fn add(&self, piece: Live) {
        let mut inner = self.inner.write();
        if inner.taken(&piece) || inner.waiting.iter().any(|other| other.meets(&piece)) {
            inner.waiting.push(piece);
        } else {
            inner.map.insert(piece.start, piece);
            self.epoch.fetch_add(1, Ordering::Release);
        }
    }

    /// From now on nothing may touch this.
    pub fn remove(&self, start: u64, id: u64) {
        let mut inner = self.inner.write();
        if inner.map.get(&start).is_some_and(|live| live.id == id) {
            inner.map.remove(&start);
        } else {
            inner.waiting.retain(|live| live.id != id);
        }
        if !inner.waiting.is_empty() {
            let mut still: Vec<Live> = Vec::new();
            for piece in std::mem::take(&mut inner.waiting) {
                if inner.taken(&piece) || still.iter().any(|other| other.meets(&piece)) {
                    still.push(piece);
                } else {
                    inner.map.insert(piece.start, piece);
                }
            }
            inner.waiting = still;
        }
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Changes which devices may touch a piece.
    pub fn set_access(&self, start: u64, id: u64, access: u64) {
        let mut inner = self.inner.write();
        if let Some(live) = inner.map.get_mut(&start).filter(|live| live.id == id) {
            live.access = access;
        }
        inner.waiting.iter_mut().filter(|live| live.id == id).for_each(|live| live.access = access);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The piece that holds an address. Memory that waits for the free of what was in its place counts where nothing
    /// else is: it is used too early then, but hardware has it mapped.
    pub fn find(&self, address: u64) -> Option<Live> {
        let inner = self.inner.read();
        let holds = |live: &Live| address.wrapping_sub(live.start) < live.len;
        let there = inner.map.range(..=address).next_back().map(|(_, live)| *live).filter(holds);
        there.or_else(|| inner.waiting.iter().copied().find(holds))
    }

    /// Whether a piece is there already, not waiting.
    pub fn is_there(&self, start: u64, id: u64) -> bool {
        self.inner.read().map.get(&start).is_some_and(|live| live.id == id)
    }

    /// Where the host finds a range, if all of it is one piece.
    pub fn host_of(&self, address: u64, len: u64) -> Option<usize> {
        let inner = self.inner.read();
        let (_, live) = inner.map.range(..=address).next_back()?;
        let offset = address.checked_sub(live.start).filter(|offset| *offset < live.len)?;
        let host = live.host + offset as usize;
        // Mappings of virtual memory may be one piece.
        let (mut end, mut behind) = (live.end(), live.host + live.len as usize);
        while end - address < len {
            let next = inner.map.get(&end).filter(|next| next.host == behind && next.device == live.device)?;
            (end, behind) = (next.end(), behind + next.len as usize);
        }
        Some(host)
    }
}

impl Default for LiveMap {
    fn default() -> Self {
        Self::new()
    }
}

/// The map as a kernel on one device sees it.
pub struct View<'a> {
    /// The map.
    pub map: &'a LiveMap,
    /// The kernel's device.
    pub device: usize,
    /// Devices whose memory its context has been given access to, a bit each.
    pub peers: u64,
    /// For the stream-order checker: what the kernel is there, and what it touches.
    pub watch: Option<Watch>,
}

/// What the stream-order checker wants to know of a kernel.
pub struct Watch {
    /// The kernel.
    pub operation: Arc<Operation>,
    /// What it has touched.
    pub touched: Mutex<Touched>,
    /// Whether it has told the host something.
    pub told: AtomicBool,
}

impl DeviceMemory for View<'_> {
    fn region(&self, address: u64) -> Option<Region> {
        let live = self.map.find(address)?;
        let given = live.access >> self.device & 1 == 1;
        let allowed = match live.device {
            None | Some(NO_DEVICE) => given,
            Some(device) => device == self.device || given || self.peers >> device & 1 == 1,
        };
        let region =
            Region { start: live.start, len: live.len, host: host::pointer(live.host), writable: live.writable };
        allowed.then_some(region)
    }

    fn epoch(&self) -> u64 {
        self.map.epoch.load(Ordering::Acquire)
    }

    fn watches(&self) -> bool {
        // Asked by every thread that works for the kernel.
        thread::set_working(true);
        self.watch.is_some()
    }

    fn signals(&self, address: u64) {
        let Some(watch) = self.watch.as_ref().filter(|watch| !watch.told.load(Ordering::Relaxed)) else { return };
        // The host sees memory that it finds at the device's address.
        if self.map.find(address).is_some_and(|live| live.host as u64 == live.start) {
            order::host_is_told(&watch.operation);
            watch.told.store(true, Ordering::Relaxed);
        }
    }

    fn touched(&self, touched: Touched) {
        if let Some(watch) = &self.watch {
            watch.touched.lock().extend(&touched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, len: u64, id: u64) -> Live {
        Live { start, len, host: start as usize, id, device: Some(0), access: 0, writable: true }
    }

    #[test]
    fn memory_in_the_place_of_memory_that_is_still_freed_waits() {
        let map = LiveMap::new();
        map.add(piece(0, 100, 1));
        map.add(piece(0, 50, 2));
        map.add(piece(20, 80, 3));
        assert_eq!(map.find(60).map(|live| live.id), Some(1));
        map.remove(0, 1);
        assert_eq!(map.find(30).map(|live| live.id), Some(2));
        assert!(map.is_there(0, 2) && !map.is_there(20, 3));
        // Too early, but mapped.
        assert_eq!(map.find(60).map(|live| live.id), Some(3));
        map.remove(0, 2);
        assert!(map.is_there(20, 3));
        assert_eq!(map.host_of(20, 80), Some(20));
        assert_eq!(map.host_of(20, 81), None);
    }

    #[test]
    fn a_peer_needs_leave() {
        let map = LiveMap::new();
        map.add(piece(0, 16, 1));
        let view = |device, peers| View { map: &map, device, peers, watch: None };
        assert!(view(0, 0).region(3).is_some());
        assert!(view(1, 0).region(3).is_none());
        assert!(view(1, 1).region(3).is_some());
        map.set_access(0, 1, 0b10);
        assert!(view(1, 0).region(3).is_some());
    }

    #[test]
    fn so_do_all_devices_to_memory_of_the_host_and_of_reserved_addresses() {
        for owner in [None, Some(NO_DEVICE)] {
            let map = LiveMap::new();
            map.add(Live { device: owner, access: 0b10, ..piece(0, 16, 1) });
            let view = |device| View { map: &map, device, peers: u64::MAX, watch: None };
            assert!(view(0).region(3).is_none());
            assert!(view(1).region(3).is_some());
        }
    }
}
