//! The file that holds the bytes of a pool that can be shared, in the process that made it and in others.
//!
//! It begins with a label, and with a table of the numbers of the allocations that are exported: an import of one that
//! was freed meanwhile is refused. Who imports an allocation claims its part of the file, and the bytes of a part that
//! is claimed are not given back to the system.

use super::super::arena::Ranges;
use super::super::pool::Shape;
use super::{POINTER, pack, status, unique, unpack};
use crate::host::{self, Purpose, SharedMemory};
use crate::status::{Answer, INVALID_VALUE};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Where the bytes of chunks begin.
const HEADER: u64 = 2 << 20;
const MARK: u64 = u64::from_le_bytes(*b"cuirassM");
/// Where the table begins, and how many numbers it has room for.
const TABLE: u64 = 4096;
const SLOTS: u64 = (HEADER - TABLE) / 8;
/// As much as a pool's file can hold.
const MOST: u64 = 1 << 46;
/// The place of the host's memory in a label.
const HOST: u64 = u64::MAX;

/// What an exported pointer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// The number of the file that it is in.
    pub file: u64,
    /// The allocation's number in the process that made it.
    pub id: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its place in the table of exported allocations.
    pub slot: u64,
    /// The process that made it.
    pub process: u32,
}

impl Pointer {
    /// As 64 bytes.
    pub fn bytes(&self) -> [u8; 64] {
        pack(POINTER, [self.file, self.id, self.offset, self.len, self.slot, self.process.into()])
    }

    /// From 64 bytes.
    ///
    /// # Errors
    /// `INVALID_VALUE` for what no simulated driver wrote.
    pub fn read(bytes: [u8; 64]) -> Answer<Self> {
        let [file, id, offset, len, slot, process] = unpack(bytes, POINTER)?;
        Ok(Self { file, id, offset, len, slot, process: process as u32 })
    }
}

/// The file in the process that made the pool.
#[derive(Debug)]
pub struct PoolFile {
    memory: SharedMemory,
    number: u64,
    offsets: Ranges,
    /// Where chunks are in the file, by their first address.
    chunks: BTreeMap<u64, (u64, u64)>,
    /// Parts that the pool has given up and other processes claim.
    held: Vec<(u64, u64)>,
    /// The places in the table of what is exported, by first address.
    exported: BTreeMap<u64, u64>,
    free: Vec<u64>,
    next: u64,
    /// Whether the pool was exported.
    shared: bool,
}

impl PoolFile {
    /// A file for a pool, without chunks.
    pub fn create(shape: &Shape) -> Option<Self> {
        let memory = SharedMemory::create(usize::try_from(HEADER).ok()?, Purpose::Pool)?;
        let number = unique();
        let device = shape.device.map_or(HOST, |device| device as u64);
        let label = [MARK, number, device, shape.handle_types.into(), shape.max, std::process::id().into()];
        label.into_iter().zip(0..).all(|(word, at)| memory.write_word(at * 8, word)).then_some(())?;
        let offsets = Ranges::new(HEADER, MOST);
        let (chunks, exported) = (BTreeMap::new(), BTreeMap::new());
        let (held, free) = (Vec::new(), Vec::new());
        Some(Self { memory, number, offsets, chunks, held, exported, free, next: 0, shared: false })
    }

    /// A descriptor for another process.
    pub fn share(&mut self) -> Option<OwnedFd> {
        let file = self.memory.share()?;
        self.shared = true;
        Some(file)
    }

    /// Whether there ever was such a descriptor.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Puts a new chunk of the file, all zero, at the place in the host's memory that stands for its addresses.
    pub fn show(&mut self, start: u64, host: usize, len: u64) -> bool {
        self.collect();
        let Some(offset) = self.offsets.take(len, 4096) else { return false };
        let end = offset + len;
        let long_enough = end <= self.memory.len() as u64 || self.memory.grow(end);
        if !long_enough || !self.memory.show_part(host, offset, len as usize) {
            self.offsets.give(offset, len);
            return false;
        }
        self.chunks.insert(start, (offset, len));
        true
    }

    /// Takes a chunk away from this process; whether its addresses are free.
    pub fn hide(&mut self, start: u64, host: usize) -> bool {
        let Some((offset, len)) = self.chunks.remove(&start) else { return false };
        let free = host::hide(host, len as usize);
        self.held.push((offset, len));
        self.collect();
        free
    }

    /// Gives the bytes back that nobody claims any more.
    fn collect(&mut self) {
        for (offset, len) in std::mem::take(&mut self.held) {
            if self.memory.is_claimed(offset, len) || !self.memory.discard(offset, len) {
                self.held.push((offset, len));
            } else {
                self.offsets.give(offset, len);
            }
        }
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let (start, (offset, len)) = self.chunks.range(..=address).next_back()?;
        let into = address - start;
        (into < *len).then_some(offset + into)
    }

    /// What another process needs to know of an allocation. `None`: too many are exported.
    pub fn export(&mut self, start: u64, len: u64, id: u64) -> Option<Pointer> {
        let offset = self.offset_of(start)?;
        let slot = match self.exported.get(&start) {
            Some(slot) => *slot,
            None => {
                let slot = self.free.pop().or_else(|| (self.next < SLOTS).then_some(self.next))?;
                self.next = self.next.max(slot + 1);
                self.exported.insert(start, slot);
                slot
            }
        };
        self.memory.write_word(TABLE + slot * 8, id).then_some(())?;
        Some(Pointer { file: self.number, id, offset, len, slot, process: std::process::id() })
    }

    /// An allocation was freed; whether somebody still has it imported.
    pub fn freed(&mut self, start: u64, len: u64) -> bool {
        let Some(slot) = self.exported.remove(&start) else { return false };
        if self.memory.write_word(TABLE + slot * 8, 0) {
            self.free.push(slot);
        }
        self.offset_of(start).is_some_and(|offset| self.memory.is_claimed(offset, len))
    }
}

/// A pool's file in a process that imported the pool.
#[derive(Debug)]
pub struct Source {
    memory: SharedMemory,
    /// Which file it is, in whichever process.
    pub number: u64,
    /// The process that made the pool.
    pub process: u32,
    claims: Mutex<Vec<(u64, u64)>>,
}

impl Source {
    /// The file behind a descriptor, and the shape of its pool.
    ///
    /// # Errors
    /// `INVALID_VALUE` if it is none of a simulated driver's, `OUT_OF_MEMORY`.
    pub fn open(descriptor: i32) -> Answer<(Self, Shape)> {
        let memory = SharedMemory::adopt(descriptor, Purpose::Pool).map_err(|error| status(&error, INVALID_VALUE))?;
        Self::read(memory).ok_or(INVALID_VALUE)
    }

    fn read(memory: SharedMemory) -> Option<(Self, Shape)> {
        let word = |at: u64| memory.read_word(at * 8);
        (word(0)? == MARK).then_some(())?;
        let (number, device, handle_types, max) = (word(1)?, word(2)?, word(3)?, word(4)?);
        let process = u32::try_from(word(5)?).ok()?;
        let device = if device == HOST { None } else { Some(usize::try_from(device).ok()?) };
        let handle_types = u32::try_from(handle_types).ok()?;
        let shape = Shape { device, handle_types, max, imported: true, managed: false, node: false };
        Some((Self { memory, number, process, claims: Mutex::default() }, shape))
    }

    /// Whether a pointer is in this file.
    pub fn holds(&self, pointer: &Pointer) -> bool {
        let end = pointer.offset.checked_add(pointer.len).and_then(|end| end.checked_next_multiple_of(4096));
        let fits = end.is_some_and(|end| end <= self.memory.size());
        pointer.file == self.number && pointer.offset >= HEADER && pointer.len > 0 && pointer.slot < SLOTS && fits
    }

    /// Claims an allocation, unless it was freed.
    pub fn claim(&self, pointer: &Pointer) -> bool {
        let part = (pointer.offset, pointer.len);
        let mut claims = self.claims.lock();
        if !self.memory.claim(part.0, part.1) {
            return false;
        }
        claims.push(part);
        // Only now: who frees it looks for claims after having changed the table.
        if self.memory.read_word(TABLE + pointer.slot * 8) == Some(pointer.id) {
            return true;
        }
        self.unclaim(&mut claims, part);
        false
    }

    /// Gives a claim up.
    pub fn give_up(&self, pointer: &Pointer) {
        self.unclaim(&mut self.claims.lock(), (pointer.offset, pointer.len));
    }

    fn unclaim(&self, claims: &mut Vec<(u64, u64)>, part: (u64, u64)) {
        if let Some(at) = claims.iter().position(|claim| *claim == part) {
            claims.swap_remove(at);
        }
        self.memory.give_up(part.0, part.1);
        // The system knows no more than whether a byte is claimed.
        let meets = |claim: &&(u64, u64)| claim.0 < part.0 + part.1 && part.0 < claim.0 + claim.1;
        for (offset, len) in claims.iter().filter(meets) {
            self.memory.claim(*offset, *len);
        }
    }

    /// Puts whole pages of the file at a place in the host's memory.
    pub fn show(&self, host: usize, offset: u64, len: u64) -> bool {
        self.memory.show_part(host, offset, len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::arena::Arena;
    use super::*;
    use std::os::fd::AsRawFd;

    const SHAPE: Shape =
        Shape { device: Some(0), handle_types: 1, max: 0, imported: false, managed: false, node: false };

    fn opened(file: &mut PoolFile) -> Source {
        let descriptor = file.share().unwrap();
        let (source, shape) = Source::open(descriptor.as_raw_fd()).unwrap();
        assert_eq!((shape.device, shape.handle_types, shape.imported), (Some(0), 1, true));
        source
    }

    #[test]
    fn what_is_claimed_keeps_its_bytes_and_comes_back_zero_later() {
        let mut arena = Arena::host(16 << 20).unwrap();
        let (start, len) = (arena.take(2 << 20, 4096).unwrap(), 2 << 20);
        let mut file = PoolFile::create(&SHAPE).unwrap();
        assert!(file.show(start, start as usize, len));
        host::fill(start as usize + 512, 7, 1, 100);
        let pointer = file.export(start + 512, 100, 44).unwrap();
        assert_eq!(Pointer::read(pointer.bytes()), Ok(pointer));
        let source = opened(&mut file);
        assert!(source.holds(&pointer) && source.claim(&pointer) && source.claim(&pointer));
        assert!(file.freed(start + 512, 100), "it is claimed");
        assert!(!source.claim(&pointer), "it was freed");
        assert!(file.hide(start, start as usize));
        let place = arena.take(4096, 4096).unwrap();
        assert!(source.show(place as usize, pointer.offset / 4096 * 4096, 4096));
        assert_eq!(host::read(place as usize + 512, 100), [7; 100]);
        source.give_up(&pointer);
        assert!(file.show(start, start as usize, len), "one claim is left: other bytes");
        assert_eq!(host::read(start as usize + 512, 100), [0; 100]);
        assert_eq!(host::read(place as usize + 512, 100), [7; 100]);
        source.give_up(&pointer);
        file.collect();
        assert!(file.held.is_empty());
        assert_eq!(host::read(place as usize + 512, 100), [0; 100]);
        assert!(host::hide(place as usize, 4096));
    }

    #[test]
    fn a_pointer_must_lie_in_the_file() {
        let mut arena = Arena::host(16 << 20).unwrap();
        let start = arena.take(2 << 20, 4096).unwrap();
        let mut file = PoolFile::create(&SHAPE).unwrap();
        assert!(file.show(start, start as usize, 2 << 20));
        let good = file.export(start, 4096, 1).unwrap();
        let source = opened(&mut file);
        assert!(source.holds(&good));
        let bad = [
            Pointer { file: good.file ^ 1, ..good },
            Pointer { offset: 0, ..good },
            Pointer { len: 0, ..good },
            Pointer { len: (2 << 20) + 1, ..good },
            Pointer { offset: u64::MAX - 10, ..good },
            Pointer { slot: SLOTS, ..good },
        ];
        assert!(!bad.iter().any(|bad| source.holds(bad)), "{good:?}");
        assert!(!source.claim(&Pointer { id: 2, ..good }));
    }
}
