//! Places that other processes reach.

use super::{DONE, Dep, QueueKey, Standing, WORK};
use crate::handle::Handle;
use crate::state::State;

impl State {
    /// A place that is reached by [`State::pass`], and by no work of this process.
    pub fn gate(&mut self, context: Handle, device: usize) -> Dep {
        let key = self.engine.open(context, device, 0);
        if let Some(queue) = self.engine.find_mut(key) {
            queue.pushed = 1;
        }
        Dep { queue: key, count: 1 }
    }

    /// A place from [`State::gate`] is reached. More than once is as good as once.
    pub fn pass(&mut self, key: QueueKey) {
        let Some(queue) = self.engine.find_mut(key) else { return };
        queue.done = queue.pushed;
        self.engine.close(key);
        self.engine.tell();
        for slot in std::mem::take(&mut self.engine.blocked) {
            self.engine.queues[slot as usize].standing = Standing::Idle;
            self.advance(slot);
        }
        if self.engine.seed.is_some() {
            WORK.notify_all();
            DONE.notify_all();
        }
    }
}
