//! What a launch touches, for callers that want to know.

use std::mem::take;

/// Ranges that are kept beside the sorted ones before they are sorted in.
const FRESH: usize = 4096;
/// Sorted ranges that are kept; what does not join one of them after that is left out.
const KEPT: usize = 1 << 16;

/// Ranges of bytes. Those that touch are one. It never holds a byte that was not added; of very many scattered ranges
/// it leaves some out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    sorted: Vec<(u64, u64)>,
    fresh: Vec<(u64, u64)>,
}

impl Ranges {
    /// Adds `bytes` bytes from `start`.
    #[inline]
    pub fn add(&mut self, start: u64, bytes: u64) {
        let Some(end) = start.checked_add(bytes).filter(|end| *end > start) else { return };
        if let Some((from, to)) = self.fresh.last_mut()
            && (*from..=*to).contains(&start)
        {
            *to = end.max(*to);
            return;
        }
        if self.fresh.len() >= FRESH {
            self.settle();
        }
        self.fresh.push((start, end));
    }

    /// Adds all of another's.
    pub fn extend(&mut self, other: &Ranges) {
        other.sorted.iter().chain(&other.fresh).for_each(|(start, end)| self.add(*start, end - start));
    }

    fn settle(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let full = self.sorted.len() >= KEPT;
        let old = take(&mut self.sorted);
        let mut all = old.clone();
        all.append(&mut self.fresh);
        all.sort_unstable();
        for (start, end) in all {
            match self.sorted.last_mut() {
                Some((_, to)) if start <= *to => *to = end.max(*to),
                _ => self.sorted.push((start, end)),
            }
        }
        if full && self.sorted.len() > old.len() {
            // More precise than anything that has to be guessed: what is known stays known.
            self.sorted = old;
        }
    }

    /// The ranges in order, each with the address behind its last byte.
    pub fn get(&mut self) -> &[(u64, u64)] {
        self.settle();
        &self.sorted
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.fresh.is_empty()
    }
}

/// How memory is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Read.
    Read,
    /// Written.
    Write,
    /// Read as something that others may be writing: `volatile`, `relaxed`, `acquire`.
    StrongRead,
    /// Written as something that others may be using: an atomic, or a store that is `volatile`, `relaxed` or `release`.
    StrongWrite,
}

impl Touch {
    /// All of them, in the order of their numbers.
    pub const ALL: [Touch; 4] = [Touch::Read, Touch::Write, Touch::StrongRead, Touch::StrongWrite];

    /// Whether it changes what is there.
    pub fn writes(self) -> bool {
        matches!(self, Touch::Write | Touch::StrongWrite)
    }

    /// Whether it is meant to meet others.
    pub fn is_strong(self) -> bool {
        matches!(self, Touch::StrongRead | Touch::StrongWrite)
    }
}

/// The global memory that something touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched([Ranges; 4]);

impl Touched {
    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, touch: Touch, start: u64, bytes: u64) {
        self.0[touch as usize].add(start, bytes);
    }

    /// Adds all of another's.
    pub fn extend(&mut self, other: &Touched) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.extend(theirs));
    }

    /// The ranges touched in a way.
    pub fn ranges(&mut self, touch: Touch) -> &[(u64, u64)] {
        self.0[touch as usize].get()
    }

    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Ranges::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join() {
        let mut ranges = Ranges::default();
        for at in (0..100).rev() {
            ranges.add(at * 8, 4);
        }
        ranges.add(2, 30);
        assert_eq!(ranges.get()[0], (0, 32 + 4));
        assert_eq!(ranges.get().len(), 96);
        for at in 0..100 {
            ranges.add(at * 8 + 4, 4);
        }
        assert_eq!(ranges.get(), [(0, 800)]);
        ranges.add(u64::MAX, 10);
        ranges.add(7, 0);
        assert_eq!(ranges.get(), [(0, 800)]);
    }

    #[test]
    fn too_many_ranges_are_left_out_and_none_is_made_up() {
        let mut ranges = Ranges::default();
        let many = 3 * KEPT as u64;
        (0..many).for_each(|at| ranges.add(at * 8, 4));
        let kept = ranges.get();
        assert!(kept.len() >= KEPT && kept.len() <= KEPT + FRESH);
        assert!(kept.iter().all(|(start, end)| start % 8 == 0 && end - start == 4));
    }
}
