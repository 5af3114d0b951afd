//! Where memory comes from: ranges of addresses, and the host memory behind them.

use crate::host::{self, Reservation};
use std::collections::BTreeMap;

/// The page of the host, and the least that is given back to it.
pub const PAGE: u64 = 4096;

/// Free ranges of addresses; neighbours are joined.
#[derive(Debug, Default)]
pub struct Ranges {
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// One free range.
    pub fn new(start: u64, len: u64) -> Self {
        Self { free: BTreeMap::from([(start, len)]) }
    }

    /// Takes a range, the lowest that fits. `align` is a power of two.
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let fits = |(start, free): (&u64, &u64)| {
            let at = start.checked_next_multiple_of(align)?;
            let end = at.checked_add(len)?;
            (end <= start + free).then_some((*start, *free, at))
        };
        let (start, free, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + len < start + free {
            self.free.insert(at + len, start + free - at - len);
        }
        Some(at)
    }

    /// Takes this very range, if it is free.
    pub fn take_at(&mut self, at: u64, len: u64) -> Option<u64> {
        let (start, free) = self.free.range(..=at).next_back().map(|(start, free)| (*start, *free))?;
        let end = at.checked_add(len)?;
        if end > start + free {
            return None;
        }
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if end < start + free {
            self.free.insert(end, start + free - end);
        }
        Some(at)
    }

    /// Gives a range back.
    pub fn give(&mut self, start: u64, len: u64) {
        let (mut start, mut len) = (start, len);
        if let Some((before, free)) = self.free.range(..start).next_back()
            && before + free == start
        {
            (start, len) = (*before, free + len);
        }
        if let Some(free) = self.free.remove(&(start + len)) {
            len += free;
        }
        self.free.insert(start, len);
    }
}

/// A device's memory: its addresses, which the host cannot touch, and the host memory that holds its bytes.
#[derive(Debug)]
pub struct Arena {
    addresses: Option<Reservation>,
    data: Reservation,
    ranges: Ranges,
}

impl Arena {
    /// Addresses for a device, `len` bytes of them if the system has as many, `least` at least.
    pub fn device(len: u64, least: u64) -> Option<Self> {
        let mut len = usize::try_from(len).ok()?;
        loop {
            let made = Reservation::addresses(len).zip(Reservation::memory(len));
            if let Some((addresses, data)) = made {
                let ranges = Ranges::new(addresses.start() as u64, len as u64);
                return Some(Self { addresses: Some(addresses), data, ranges });
            }
            len /= 2;
            if (len as u64) < least {
                return None;
            }
        }
    }

    /// Memory that host and device see at the same addresses.
    pub fn host(len: u64) -> Option<Self> {
        let mut len = usize::try_from(len).ok()?;
        while len >= 1 << 20 {
            if let Some(data) = Reservation::memory(len) {
                let ranges = Ranges::new(data.start() as u64, len as u64);
                return Some(Self { addresses: None, data, ranges });
            }
            len /= 2;
        }
        None
    }

    fn first(&self) -> u64 {
        self.addresses.as_ref().unwrap_or(&self.data).start() as u64
    }

    /// Whether an address is one of this arena's.
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.first()) < self.data.len() as u64
    }

    /// Where the host finds the byte of an address of this arena.
    pub fn host_of(&self, address: u64) -> usize {
        self.data.start() + (address - self.first()) as usize
    }

    /// Takes a range of addresses.
    pub fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        self.ranges.take(len, align)
    }

    /// Takes this very range of addresses, if it is free.
    pub fn take_at(&mut self, at: u64, len: u64) -> Option<u64> {
        self.ranges.take_at(at, len)
    }

    /// Gives a range back, with its memory where it covers whole pages.
    pub fn give(&mut self, start: u64, len: u64) {
        self.discard(start, len);
        self.ranges.give(start, len);
    }

    /// Makes the bytes of a range zero.
    pub fn zero(&self, start: u64, len: u64) {
        let (first, end) = (start.next_multiple_of(PAGE), (start + len) / PAGE * PAGE);
        if first >= end {
            return host::fill(self.host_of(start), 0, 1, len as usize);
        }
        self.discard(first, end - first);
        host::fill(self.host_of(start), 0, 1, (first - start) as usize);
        host::fill(self.host_of(end), 0, 1, (start + len - end) as usize);
    }

    /// Gives the memory of the whole pages of a range back; the addresses stay taken.
    pub fn discard(&self, start: u64, len: u64) {
        let (first, end) = (start.next_multiple_of(PAGE), (start + len) / PAGE * PAGE);
        if first < end {
            self.data.discard((first - self.first()) as usize, (end - first) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_zero_to_its_last_byte_and_no_further() {
        let mut arena = Arena::host(1 << 20).unwrap();
        let start = arena.take(1 << 16, 4096).unwrap();
        for (offset, len) in [(10, 100), (0, 4096), (5, 9000), (4095, 2), (4000, 8192)] {
            let host = arena.host_of(start);
            host::fill(host, 1, 1, 1 << 16);
            arena.zero(start + offset, len);
            let bytes = host::read(host, 1 << 16);
            let range = offset as usize..(offset + len) as usize;
            assert!(bytes.iter().enumerate().all(|(at, byte)| (*byte == 0) == range.contains(&at)), "{offset} {len}");
        }
    }

    #[test]
    fn ranges_are_taken_low_and_joined_again() {
        let mut ranges = Ranges::new(4096, 1 << 20);
        let a = ranges.take(100, 512).unwrap();
        let b = ranges.take(512, 512).unwrap();
        let c = ranges.take(1 << 19, 4096).unwrap();
        assert_eq!((a, b, c), (4096, 4608, 8192));
        assert_eq!(ranges.take(1 << 20, 1), None);
        let end = 8192 + (1 << 19);
        assert_eq!(ranges.take_at(end - 1, 2), None);
        assert_eq!(ranges.take_at(end + 512, 512), Some(end + 512));
        assert_eq!(ranges.take_at(end + 1000, 512), None);
        assert_eq!(ranges.take_at(end, 512), Some(end));
        ranges.give(end, 1024);
        ranges.give(b, 512);
        ranges.give(a, 100);
        ranges.give(c, 1 << 19);
        assert_eq!(ranges.free, BTreeMap::from([(4096, 1 << 20)]));
    }
}
