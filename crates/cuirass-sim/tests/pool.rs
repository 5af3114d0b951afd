//! A pool's blocks against a model: what is taken never overlaps, and is used again only in an allowed order.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use cuirass_sim::engine::{Dep, Engine, QueueKey};
use cuirass_sim::handle::Handle;
use cuirass_sim::memory::arena::Ranges;
use cuirass_sim::memory::pool::blocks::{Blocks, Rules};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Take {
        len: u64,
        queue: usize,
        wait: bool,
    },
    Give {
        which: usize,
        queue: usize,
    },
    /// The queue's work is done up to here.
    Advance {
        queue: usize,
    },
    Settle,
    Shrink,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1..40_u64, 0..3_usize, any::<bool>()).prop_map(|(len, queue, wait)| Step::Take { len: len * 512, queue, wait }),
        4 => (0..64_usize, 0..3_usize).prop_map(|(which, queue)| Step::Give { which, queue }),
        2 => (0..3_usize).prop_map(|queue| Step::Advance { queue }),
        1 => Just(Step::Settle),
        1 => Just(Step::Shrink),
    ]
}

/// What the model knows: where in its queue each grain of 512 bytes was freed, and how far each queue is.
struct Model {
    queues: Vec<QueueKey>,
    pushed: [u64; 3],
    done: [u64; 3],
    freed: std::collections::HashMap<u64, Dep>,
    live: Vec<(u64, u64)>,
}

impl Model {
    fn reached(&self, dep: Dep) -> bool {
        let queue = self.queues.iter().position(|key| *key == dep.queue).unwrap();
        self.done[queue] >= dep.count
    }
}

const CHUNK: u64 = 64 * 512;

proptest! {
    #[test]
    fn ranges_never_overlap_and_join_again(steps in prop::collection::vec((1..5000_u64, 0..8_u32, any::<bool>()), 1..100)) {
        let mut ranges = Ranges::new(1 << 20, 1 << 20);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (len, align, give) in steps {
            if give && !taken.is_empty() {
                let (start, len) = taken.swap_remove(len as usize % taken.len());
                ranges.give(start, len);
            } else if let Some(start) = ranges.take(len, 1 << align) {
                prop_assert_eq!(start % (1 << align), 0);
                prop_assert!(start >= 1 << 20 && start + len <= 2 << 20);
                prop_assert!(taken.iter().all(|(other, size)| start + len <= *other || other + size <= start));
                taken.push((start, len));
            }
        }
        taken.into_iter().for_each(|(start, len)| ranges.give(start, len));
        prop_assert_eq!(ranges.take(1 << 20, 1), Some(1 << 20));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn blocks_are_used_again_in_order_only(
        steps in prop::collection::vec(step(), 1..120),
        opportunistic in any::<bool>(),
        internal in any::<bool>(),
    ) {
        let rules = Rules { opportunistic, internal };
        let mut engine = Engine::new(None);
        let queues: Vec<QueueKey> = (0..3).map(|_| engine.open(Handle::NULL, 0, 0)).collect();
        let mut model = Model { queues, pushed: [0; 3], done: [0; 3], freed: Default::default(), live: Vec::new() };
        let mut blocks = Blocks::new();
        let mut next_chunk = 1 << 20;
        for step in steps {
            match step {
                Step::Take { len, queue, wait } => {
                    let key = model.queues[queue];
                    let mut taken = blocks.take(len, key, rules, wait, |dep| model.reached(dep));
                    if taken.is_none() {
                        blocks.grow(next_chunk, CHUNK);
                        next_chunk += 2 * CHUNK;
                        taken = blocks.take(len, key, rules, wait, |dep| model.reached(dep));
                    }
                    let taken = taken.unwrap();
                    prop_assert_eq!(taken.start % 512, 0);
                    for (start, size) in &model.live {
                        prop_assert!(taken.start + len <= *start || start + size <= taken.start, "two live blocks overlap");
                    }
                    for grain in (taken.start..taken.start + len).step_by(512) {
                        let Some(dep) = model.freed.remove(&grain) else { continue };
                        let own = dep.queue == key;
                        let done = opportunistic && model.reached(dep);
                        let waited = internal && wait && taken.wait.is_some_and(|wait| wait.queue == dep.queue && wait.count >= dep.count);
                        prop_assert!(own || done || waited, "used again before its free allows it");
                    }
                    model.live.push((taken.start, len));
                }
                Step::Give { which, queue } => {
                    if model.live.is_empty() {
                        continue;
                    }
                    let (start, len) = model.live.swap_remove(which % model.live.len());
                    model.pushed[queue] += 1;
                    let dep = Dep { queue: model.queues[queue], count: model.pushed[queue] };
                    blocks.give(start, len, Some(dep));
                    (start..start + len).step_by(512).for_each(|grain| { model.freed.insert(grain, dep); });
                }
                Step::Advance { queue } => model.done[queue] = (model.done[queue] + 1).min(model.pushed[queue]),
                Step::Settle => {
                    blocks.settle(|dep| model.reached(dep));
                    // The host has seen these frees done: any stream comes after them.
                    let settled: Vec<u64> =
                        model.freed.iter().filter(|(_, dep)| model.reached(**dep)).map(|(grain, _)| *grain).collect();
                    settled.into_iter().for_each(|grain| { model.freed.remove(&grain); });
                }
                Step::Shrink => {
                    while let Some((start, len)) = blocks.shrink(u64::MAX) {
                        for (live, size) in &model.live {
                            prop_assert!(live + size <= start || start + len <= *live, "a chunk in use was given back");
                        }
                        for grain in (start..start + len).step_by(512) {
                            prop_assert!(!model.freed.contains_key(&grain), "a chunk whose frees are pending was given back");
                        }
                    }
                }
            }
        }
        // Once all is freed and done, every chunk can be given back.
        for (start, len) in std::mem::take(&mut model.live) {
            model.pushed[0] += 1;
            blocks.give(start, len, Some(Dep { queue: model.queues[0], count: model.pushed[0] }));
        }
        model.done = model.pushed;
        blocks.settle(|dep| model.reached(dep));
        prop_assert!(blocks.unused());
        while blocks.shrink(u64::MAX).is_some() {}
        prop_assert_eq!(blocks.chunks().count(), 0);
    }
}
