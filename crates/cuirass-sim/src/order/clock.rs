//! Vector clocks: what of each line of work has happened before a place.

/// A line of work: one queue of the engine.
pub type Line = u32;

/// One piece of work: the `count`-th of its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// Its line.
    pub line: Line,
    /// Its number in the line, from 1 on.
    pub count: u64,
}

/// How far each line has come; a line that is not in it has not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<(Line, u64)>);

impl Clock {
    /// How far a line has come.
    pub fn of(&self, line: Line) -> u64 {
        self.0.binary_search_by_key(&line, |(line, _)| *line).map_or(0, |at| self.0[at].1)
    }

    /// Whether a piece of work has happened.
    pub fn has(&self, epoch: Epoch) -> bool {
        self.of(epoch.line) >= epoch.count
    }

    /// From now on a piece of work has happened, and what its line did before.
    pub fn raise(&mut self, epoch: Epoch) {
        match self.0.binary_search_by_key(&epoch.line, |(line, _)| *line) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(epoch.count),
            Err(at) => self.0.insert(at, (epoch.line, epoch.count)),
        }
    }

    /// From now on all that another clock has seen has happened.
    pub fn join(&mut self, other: &Clock) {
        let mine = std::mem::take(&mut self.0);
        let (mut a, mut b) = (mine.into_iter().peekable(), other.0.iter().copied().peekable());
        while let (Some(left), Some(right)) = (a.peek().copied(), b.peek().copied()) {
            self.0.push((left.0.min(right.0), if left.0 < right.0 { left.1 } else { right.1 }));
            if left.0 <= right.0 {
                a.next();
            }
            if right.0 <= left.0 {
                b.next();
            }
            if left.0 == right.0 {
                self.raise(Epoch { line: left.0, count: left.1 });
            }
        }
        self.0.extend(a);
        self.0.extend(b);
    }

    /// Whether it has all that another clock has.
    pub fn covers(&self, other: &Clock) -> bool {
        other.0.iter().all(|(line, count)| self.of(*line) >= *count)
    }

    /// How many lines have begun.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the lines that are not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(Line) -> bool) {
        self.0.retain(|(line, _)| wanted(*line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_join() {
        let mut a = Clock(vec![(1, 5), (3, 1), (9, 2)]);
        let b = Clock(vec![(0, 1), (1, 4), (3, 7), (10, 1)]);
        a.join(&b);
        assert_eq!(a, Clock(vec![(0, 1), (1, 5), (3, 7), (9, 2), (10, 1)]));
        assert!(a.has(Epoch { line: 3, count: 7 }) && !a.has(Epoch { line: 3, count: 8 }));
        assert!(!a.has(Epoch { line: 2, count: 1 }));
        a.raise(Epoch { line: 2, count: 4 });
        a.raise(Epoch { line: 2, count: 3 });
        assert_eq!(a.of(2), 4);
        assert!(a.covers(&b) && !b.covers(&a) && a.covers(&Clock::default()));
        a.retain(|line| line < 2);
        assert_eq!(a, Clock(vec![(0, 1), (1, 5)]));
    }
}
