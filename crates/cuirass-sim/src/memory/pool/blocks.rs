//! The blocks of a pool: which are free, since when, and who may have them next. Knows no driver.

use crate::engine::{Dep, QueueKey};
use std::collections::{BTreeMap, BTreeSet};

/// When a free block may be used by a stream other than the one that freed it.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Once the free has been done.
    pub opportunistic: bool,
    /// At once, if the other stream is made to wait for the free.
    pub internal: bool,
}

/// A block that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Its first address.
    pub start: u64,
    /// What the stream has to wait for before it uses it.
    pub wait: Option<Dep>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    len: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug)]
struct Free {
    len: u64,
    chunk: u64,
    /// The place in a stream at which it was freed.
    after: Option<Dep>,
}

/// All blocks of a pool.
#[derive(Default, Debug)]
pub struct Blocks {
    chunks: BTreeMap<u64, Chunk>,
    free: BTreeMap<u64, Free>,
    sizes: BTreeSet<(u64, u64)>,
}

impl Blocks {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a chunk of memory, all of it free.
    pub fn grow(&mut self, start: u64, len: u64) {
        self.chunks.insert(start, Chunk { len, used: 0 });
        self.put(start, Free { len, chunk: start, after: None });
    }

    fn put(&mut self, start: u64, free: Free) {
        self.free.insert(start, free);
        self.sizes.insert((free.len, start));
    }

    fn pull(&mut self, start: u64) -> Option<Free> {
        let free = self.free.remove(&start)?;
        self.sizes.remove(&(free.len, start));
        Some(free)
    }

    /// Takes a block for a stream: the smallest that fits, and that the stream may have. `wait` allows blocks that the
    /// stream must be made to wait for.
    pub fn take(
        &mut self,
        len: u64,
        queue: QueueKey,
        rules: Rules,
        wait: bool,
        reached: impl Fn(Dep) -> bool,
    ) -> Option<Taken> {
        let mut found = None;
        for (_, start) in self.sizes.range((len, 0)..) {
            let Some(free) = self.free.get(start) else { continue };
            match free.after {
                Some(dep) if dep.queue != queue && !(rules.opportunistic && reached(dep)) => {
                    if wait && rules.internal && found.is_none() {
                        found = Some((*start, Some(dep)));
                    }
                }
                _ => {
                    found = Some((*start, None));
                    break;
                }
            }
        }
        let (start, wait) = found?;
        let free = self.pull(start)?;
        if free.len > len {
            self.put(start + len, Free { len: free.len - len, ..free });
        }
        if let Some(chunk) = self.chunks.get_mut(&free.chunk) {
            chunk.used += len;
        }
        Some(Taken { start, wait })
    }

    /// Gives a block back, free from a place in a stream on.
    pub fn give(&mut self, start: u64, len: u64, after: Option<Dep>) {
        let Some((chunk, _)) = self.chunks.range(..=start).next_back() else { return };
        let chunk = *chunk;
        if let Some(chunk) = self.chunks.get_mut(&chunk) {
            chunk.used -= len;
        }
        let (mut start, mut block) = (start, Free { len, chunk, after });
        if let Some((before, free)) = self.free.range(..start).next_back().map(|(at, free)| (*at, *free))
            && before + free.len == start
            && free.chunk == chunk
            && let Some(after) = joined(free.after, block.after)
        {
            self.pull(before);
            (start, block) = (before, Free { len: free.len + block.len, chunk, after });
        }
        if let Some(free) = self.free.get(&(start + block.len)).copied()
            && free.chunk == chunk
            && let Some(after) = joined(block.after, free.after)
        {
            self.pull(start + block.len);
            block = Free { len: block.len + free.len, chunk, after };
        }
        self.put(start, block);
    }

    /// The host has waited: blocks whose free has been done are free for every stream.
    pub fn settle(&mut self, reached: impl Fn(Dep) -> bool) {
        let done = |free: &Free| free.after.is_some_and(&reached);
        let settled: Vec<u64> = self.free.iter().filter(|(_, free)| done(free)).map(|(start, _)| *start).collect();
        for start in settled {
            let Some(free) = self.pull(start) else { continue };
            if let Some(chunk) = self.chunks.get_mut(&free.chunk) {
                // Counted as used for the moment that `give` takes it away again.
                chunk.used += free.len;
                self.give(start, free.len, None);
            }
        }
    }

    /// Takes away a chunk of at most so many bytes that is free as a whole, if there is one.
    pub fn shrink(&mut self, most: u64) -> Option<(u64, u64)> {
        let whole = |(start, chunk): (&u64, &Chunk)| {
            let free = self.free.get(start)?;
            (chunk.used == 0 && chunk.len <= most && free.len == chunk.len && free.after.is_none())
                .then_some((*start, chunk.len))
        };
        let (start, len) = self.chunks.iter().rev().find_map(whole)?;
        self.pull(start);
        self.chunks.remove(&start);
        Some((start, len))
    }

    /// All chunks.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.chunks.iter().map(|(start, chunk)| (*start, chunk.len))
    }

    /// Whether no block is taken.
    pub fn unused(&self) -> bool {
        self.chunks.values().all(|chunk| chunk.used == 0)
    }
}

/// From when on two neighbours are free as one; `None`: they stay two.
fn joined(a: Option<Dep>, b: Option<Dep>) -> Option<Option<Dep>> {
    match (a, b) {
        (None, None) => Some(None),
        (Some(a), Some(b)) if a.queue == b.queue => Some(Some(if a.count > b.count { a } else { b })),
        _ => None,
    }
}
