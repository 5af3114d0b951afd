//! A launch of an executable graph: its nodes as work that runs as far in parallel as their dependencies allow.
//!
//! A chain of nodes stands in one queue; a branch gets a queue of its own, which ends with the launch. The stream goes
//! on when all branches are done.

use super::exec::Step;
use crate::engine::{Dep, Deps, QueueKey};
use crate::handle::Handle;
use crate::state::State;
use crate::status::Answer;
use crate::stream::At;
use crate::task::Work;
use std::collections::{HashMap, HashSet};

/// A launch while its nodes are put into queues.
struct Launch<'a> {
    at: &'a At,
    steps: &'a [Step],
    /// Where each queue of this launch ends now.
    tails: HashMap<QueueKey, Dep>,
    /// Queues that end with the launch.
    opened: Vec<QueueKey>,
}

impl State {
    /// Puts steps into queues, in `order`, which satisfies their dependencies; a child graph's steps follow its node.
    /// All come after `start`, the end of the stream. Answers where the launch ends.
    ///
    /// # Errors
    /// What a node's own call would refuse.
    pub(super) fn run_steps(&mut self, at: &At, steps: &[Step], order: &[usize], start: Dep) -> Answer<Dep> {
        let tails = HashMap::from([(at.queue, start)]);
        let mut launch = Launch { at, steps, tails, opened: Vec::new() };
        let ends = self.run_level(&mut launch, order, &Deps::from_slice(&[start]));
        for queue in &launch.opened {
            self.engine.close(*queue);
        }
        let ends = ends?;
        match ends.as_slice() {
            [end] if end.queue == at.queue => Ok(*end),
            ends => self.push(at.queue, ends, Work::Nothing),
        }
    }

    fn run_level(&mut self, launch: &mut Launch<'_>, order: &[usize], start: &Deps) -> Answer<Deps> {
        let mut ends: HashMap<Handle, Deps> = HashMap::new();
        let mut waited_for: HashSet<Handle> = HashSet::new();
        let mut rest = order;
        while let [first, behind @ ..] = rest {
            let Some(step) = launch.steps.get(*first) else { break };
            let inner = behind.iter().take_while(|at| launch.steps.get(**at).is_some_and(|s| s.depth > step.depth));
            let (child, next) = behind.split_at(inner.count());
            rest = next;
            let mut after = Deps::new();
            for node in &step.after {
                waited_for.insert(*node);
                for end in ends.get(node).into_iter().flatten() {
                    if !after.contains(end) {
                        after.push(*end);
                    }
                }
            }
            if step.after.is_empty() {
                after = start.clone();
            }
            let end = match child {
                [] => self.run_step(launch, step, after)?,
                child => self.run_level(launch, child, &after)?,
            };
            ends.insert(step.node, end);
        }
        if ends.is_empty() {
            return Ok(start.clone());
        }
        let mut last = Deps::new();
        for end in ends.iter().filter(|(node, _)| !waited_for.contains(*node)).flat_map(|(_, ends)| ends) {
            if !last.contains(end) {
                last.push(*end);
            }
        }
        Ok(last)
    }

    fn run_step(&mut self, launch: &mut Launch<'_>, step: &Step, mut after: Deps) -> Answer<Deps> {
        let work = match &step.work {
            _ if !step.enabled => return Ok(after),
            Work::Nothing => return Ok(after),
            Work::Record { event, .. } => {
                self.record(launch.at, *event, &after)?;
                let end = self.engine.tail(launch.at.queue);
                launch.tails.insert(launch.at.queue, end);
                return Ok(Deps::from_slice(&[end]));
            }
            Work::Wait { event } => {
                let Some(place) = self.event_place(*event)? else { return Ok(after) };
                after.push(place);
                Work::Nothing
            }
            work => work.clone(),
        };
        // Behind one that it waits for, if nothing else stands there yet.
        let behind = after.iter().find(|dep| launch.tails.get(&dep.queue) == Some(dep)).map(|dep| dep.queue);
        let queue = behind.unwrap_or_else(|| {
            let queue = self.engine.open_like(launch.at.queue);
            launch.opened.push(queue);
            queue
        });
        let end = self.push(queue, &after, work)?;
        launch.tails.insert(queue, end);
        Ok(Deps::from_slice(&[end]))
    }
}
