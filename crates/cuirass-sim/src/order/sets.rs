//! The bytes that one operation touched of one piece of memory, and whether two operations' meet.

use cuirass_ptx::Touch;

/// Ranges in order, by the way of touching them.
#[derive(Clone, Debug, Default)]
pub struct Sets([Vec<(u64, u64)>; 4]);

impl Sets {
    /// Adds a range that lies behind all that were touched in the same way.
    pub fn push(&mut self, touch: Touch, start: u64, end: u64) {
        let ranges = &mut self.0[touch as usize];
        match ranges.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => ranges.push((start, end)),
        }
    }

    fn of(&self, touch: Touch) -> &[(u64, u64)] {
        &self.0[touch as usize]
    }

    /// The first bytes that both touch and at least one writes, and how each does. What is meant to meet others does
    /// not count against its like.
    pub fn conflict(&self, other: &Sets) -> Option<Conflict> {
        let pairs = Touch::ALL.into_iter().flat_map(|mine| Touch::ALL.into_iter().map(move |theirs| (mine, theirs)));
        pairs
            .filter(|(mine, theirs)| mine.writes() || theirs.writes())
            .filter(|(mine, theirs)| !(mine.is_strong() && theirs.is_strong()))
            .find_map(|(mine, theirs)| {
                let (start, end) = first_meeting(self.of(mine), other.of(theirs))?;
                Some(Conflict { start, end, mine, theirs })
            })
    }

    /// Whether whatever meets `other` meets this, too.
    pub fn covers(&self, other: &Sets) -> bool {
        let by = |touch: Touch| -> &[Touch] {
            match touch {
                Touch::Read => &[Touch::Read, Touch::Write],
                Touch::Write => &[Touch::Write],
                Touch::StrongRead => &[Touch::StrongRead, Touch::Read, Touch::StrongWrite, Touch::Write],
                Touch::StrongWrite => &[Touch::StrongWrite, Touch::Write],
            }
        };
        Touch::ALL.into_iter().all(|touch| {
            let theirs = other.of(touch);
            theirs.is_empty() || by(touch).iter().any(|touch| contains(self.of(*touch), theirs))
        })
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// The first and the last byte touched in any way, as a range.
    pub fn hull(&self) -> (u64, u64) {
        let start = self.0.iter().filter_map(|ranges| ranges.first()).map(|range| range.0).min();
        let end = self.0.iter().filter_map(|ranges| ranges.last()).map(|range| range.1).max();
        (start.unwrap_or(0), end.unwrap_or(0))
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        Touch::ALL.into_iter().any(|touch| touch.writes() && !self.of(touch).is_empty())
    }
}

/// Where two operations' accesses meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The first byte.
    pub start: u64,
    /// Behind the last byte of the first range.
    pub end: u64,
    /// How the one touches them.
    pub mine: Touch,
    /// How the other does.
    pub theirs: Touch,
}

/// The first bytes that are in both lists of ranges.
fn first_meeting(a: &[(u64, u64)], b: &[(u64, u64)]) -> Option<(u64, u64)> {
    let (mut a, mut b) = (a, b);
    while let (Some(left), Some(right)) = (a.first(), b.first()) {
        if left.1 <= right.0 {
            a = &a[a.partition_point(|range| range.1 <= right.0)..];
        } else if right.1 <= left.0 {
            b = &b[b.partition_point(|range| range.1 <= left.0)..];
        } else {
            return Some((left.0.max(right.0), left.1.min(right.1)));
        }
    }
    None
}

/// Whether all of `inner` lies in `outer`.
fn contains(outer: &[(u64, u64)], inner: &[(u64, u64)]) -> bool {
    let mut rest = outer;
    inner.iter().all(|(start, end)| {
        rest = &rest[rest.partition_point(|range| range.1 < *end)..];
        rest.first().is_some_and(|range| range.0 <= *start && *end <= range.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(touch: Touch, ranges: &[(u64, u64)]) -> Sets {
        let mut sets = Sets::default();
        ranges.iter().for_each(|(start, end)| sets.push(touch, *start, *end));
        sets
    }

    #[test]
    fn ranges_meet_where_one_is_written() {
        let evens: Vec<_> = (0..100).map(|at| (at * 8, at * 8 + 4)).collect();
        let odds: Vec<_> = (0..100).map(|at| (at * 8 + 4, at * 8 + 8)).collect();
        let write = sets(Touch::Write, &evens);
        assert_eq!(write.conflict(&sets(Touch::Write, &odds)), None);
        let meets = write.conflict(&sets(Touch::Read, &[(340, 346)])).unwrap();
        assert_eq!((meets.start, meets.end, meets.mine, meets.theirs), (344, 346, Touch::Write, Touch::Read));
        assert_eq!(sets(Touch::Read, &evens).conflict(&sets(Touch::Read, &evens)), None);
        let atomic = sets(Touch::StrongWrite, &evens);
        assert_eq!(atomic.conflict(&atomic), None);
        assert_eq!(atomic.conflict(&sets(Touch::StrongRead, &evens)), None);
        assert!(atomic.conflict(&sets(Touch::Read, &evens)).is_some());
    }

    #[test]
    fn covering_means_meeting_all_that_the_other_meets() {
        let all = sets(Touch::Write, &[(0, 100)]);
        assert!(all.covers(&sets(Touch::Read, &[(0, 10), (90, 100)])));
        assert!(all.covers(&sets(Touch::StrongWrite, &[(0, 10)])));
        assert!(!all.covers(&sets(Touch::Read, &[(0, 10), (90, 101)])));
        assert!(!sets(Touch::Read, &[(0, 100)]).covers(&sets(Touch::Write, &[(5, 6)])));
        assert!(!sets(Touch::StrongWrite, &[(0, 100)]).covers(&sets(Touch::Read, &[(5, 6)])));
        assert!(sets(Touch::Read, &[(0, 4), (8, 12)]).covers(&sets(Touch::Read, &[(8, 12)])));
        assert!(!sets(Touch::Read, &[(0, 4), (8, 12)]).covers(&sets(Touch::Read, &[(2, 9)])));
    }
}
