//! The engine: queues of pending work, and the threads that do it.
//!
//! Each stream has a queue. Work is pending until a worker has done it; queues advance independently, subject to
//! the order that events and the legacy stream ask for ([`Dep`]). Host functions run on one callback thread.
//!
//! With a seed the schedule is deterministic: one thing runs at a time, which queue advances is drawn from the
//! seed, and work advances only while some call waits for it or asks whether it is done. (A program that waits
//! without calling the driver gets one step every 50 ms, so that it does not hang.)

mod full;
mod remote;

use crate::context;
use crate::handle::Handle;
use crate::order::{self, Operation};
use crate::report;
use crate::state::{self, Guard, State};
use crate::status::{Answer, OUT_OF_MEMORY, SUCCESS, Status};
use crate::task::{Failure, Job, Op, Work};
use crate::{host, thread};
use parking_lot::{Condvar, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use full::{is_full, make_room, wait_for_launches};

/// A place in a queue: reached when the queue has done `count` of its ops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dep {
    /// The queue.
    pub queue: QueueKey,
    /// How many of its ops must be done.
    pub count: u64,
}

/// Names a queue; a key of a queue that is gone counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueKey {
    slot: u32,
    generation: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Nothing is pending.
    Idle,
    /// In `ready`.
    Ready,
    /// In `blocked`: the head waits for another queue.
    Blocked,
    /// A thread does the head.
    Running,
}

/// The pending work of one stream.
struct Queue {
    generation: u32,
    context: Handle,
    device: usize,
    priority: i32,
    ops: VecDeque<Op>,
    pushed: u64,
    done: u64,
    standing: Standing,
    closing: bool,
    live: bool,
}

/// All queues.
pub struct Engine {
    queues: Vec<Queue>,
    free: Vec<u32>,
    ready: Vec<u32>,
    blocked: Vec<u32>,
    callbacks: VecDeque<Callback>,
    workers: usize,
    idle: usize,
    running: usize,
    tasks: u64,
    picked: Instant,
    callback_thread: bool,
    seed: Option<Random>,
    wanted: Vec<(u64, Deps)>,
    allowance: u64,
    waits: u64,
    /// Launches that wait for room.
    waiting_launches: usize,
}

/// What a call waits for.
pub type Deps = SmallVec<[Dep; 4]>;

struct Callback {
    /// The queue whose head it is; none for the destructor of a user object.
    queue: Option<u32>,
    work: Work,
    status: Status,
    order: Option<Arc<Operation>>,
}

static WORK: Condvar = Condvar::new();
static DONE: Condvar = Condvar::new();
static CALLBACK: Condvar = Condvar::new();

/// Workers that are started without being asked twice; more come only when all of them are held up.
const WORKERS: usize = 4;
/// As many kernels as hardware runs at once.
const MOST_WORKERS: usize = 128;
/// How long a waiting call sleeps before it looks whether the workers are held up.
const HELD_UP: Duration = Duration::from_millis(10);
/// How long a seeded schedule rests before it advances without being asked.
const UNASKED: Duration = Duration::from_millis(50);

/// A small deterministic generator (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}

impl Engine {
    /// An engine without queues.
    pub fn new(seed: Option<u64>) -> Self {
        Self {
            queues: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            blocked: Vec::new(),
            callbacks: VecDeque::new(),
            workers: 0,
            idle: 0,
            running: 0,
            tasks: 0,
            picked: Instant::now(),
            callback_thread: false,
            seed: seed.map(Random::new),
            wanted: Vec::new(),
            allowance: 0,
            waits: 0,
            waiting_launches: 0,
        }
    }

    /// Makes the schedule deterministic, or free again.
    pub fn set_seed(&mut self, seed: Option<u64>) {
        self.seed = seed.map(Random::new);
        WORK.notify_all();
    }

    /// The source of chance of a deterministic schedule.
    pub fn random(&mut self) -> Option<&mut Random> {
        self.seed.as_mut()
    }

    /// A new queue.
    pub fn open(&mut self, context: Handle, device: usize, priority: i32) -> QueueKey {
        let fresh = |generation| Queue {
            generation,
            context,
            device,
            priority,
            ops: VecDeque::new(),
            pushed: 0,
            done: 0,
            standing: Standing::Idle,
            closing: false,
            live: true,
        };
        match self.free.pop() {
            Some(slot) => {
                let queue = &mut self.queues[slot as usize];
                *queue = fresh(queue.generation.wrapping_add(1));
                QueueKey { slot, generation: queue.generation }
            }
            None => {
                self.queues.push(fresh(0));
                QueueKey { slot: (self.queues.len() - 1) as u32, generation: 0 }
            }
        }
    }

    /// The queue goes away once its work is done.
    pub fn close(&mut self, key: QueueKey) {
        if let Some(queue) = self.find_mut(key) {
            queue.closing = true;
            self.reap(key.slot);
        }
    }

    fn reap(&mut self, slot: u32) {
        let queue = &mut self.queues[slot as usize];
        if queue.live && queue.closing && queue.ops.is_empty() && queue.standing == Standing::Idle {
            queue.live = false;
            self.free.push(slot);
        }
    }

    fn find(&self, key: QueueKey) -> Option<&Queue> {
        self.queues.get(key.slot as usize).filter(|queue| queue.live && queue.generation == key.generation)
    }

    fn find_mut(&mut self, key: QueueKey) -> Option<&mut Queue> {
        self.queues.get_mut(key.slot as usize).filter(|queue| queue.live && queue.generation == key.generation)
    }

    /// The end of a queue as it is now.
    pub fn tail(&self, key: QueueKey) -> Dep {
        Dep { queue: key, count: self.find(key).map_or(0, |queue| queue.pushed) }
    }

    /// Whether a place is reached.
    pub fn reached(&self, dep: Dep) -> bool {
        self.find(dep.queue).is_none_or(|queue| queue.done >= dep.count)
    }

    /// Whether all places are reached.
    pub fn all_reached(&self, deps: &[Dep]) -> bool {
        deps.iter().all(|dep| self.reached(*dep))
    }

    /// A new queue like another one.
    pub fn open_like(&mut self, other: QueueKey) -> QueueKey {
        let (context, device, priority) =
            self.find(other).map_or((Handle::NULL, 0, 0), |queue| (queue.context, queue.device, queue.priority));
        self.open(context, device, priority)
    }

    /// Whether a queue is there: open, or closed with work that is still pending.
    pub fn is_there(&self, key: QueueKey) -> bool {
        self.find(key).is_some()
    }

    /// Whether a queue is there and takes more work.
    pub fn is_open(&self, key: QueueKey) -> bool {
        self.find(key).is_some_and(|queue| !queue.closing)
    }

    /// Whether nothing is pending in a queue.
    pub fn is_idle(&self, key: QueueKey) -> bool {
        self.find(key).is_none_or(|queue| queue.done == queue.pushed)
    }

    /// Where all queues end now.
    pub fn tails(&self) -> Deps {
        let tail = |(slot, queue): (usize, &Queue)| {
            let key = QueueKey { slot: slot as u32, generation: queue.generation };
            queue.live.then_some(Dep { queue: key, count: queue.pushed })
        };
        self.queues.iter().enumerate().filter_map(tail).collect()
    }

    /// How many ops are pending in all queues.
    pub fn pending(&self) -> u64 {
        self.queues.iter().filter(|queue| queue.live).map(|queue| queue.pushed - queue.done).sum()
    }

    /// Wakes the calls that wait if one of them need not wait any more.
    fn tell(&self) {
        if self.wanted.iter().any(|(_, deps)| self.all_reached(deps)) {
            DONE.notify_all();
        }
    }

    /// Whether somebody lets work advance.
    fn may_run(&self) -> bool {
        if self.seed.is_none() {
            return true;
        }
        self.running == 0 && (self.allowance > 0 || self.wanted.iter().any(|(_, deps)| !self.all_reached(deps)))
    }

    /// Takes the queue that advances next out of `ready`.
    fn pick(&mut self) -> Option<u32> {
        if self.ready.is_empty() || !self.may_run() {
            return None;
        }
        let at = match &mut self.seed {
            Some(random) => random.below(self.ready.len()),
            None => {
                let priority = |slot: &u32| self.queues[*slot as usize].priority;
                (0..self.ready.len()).min_by_key(|at| priority(&self.ready[*at]))?
            }
        };
        Some(self.ready.remove(at))
    }

    /// Sees to it that a worker looks at `ready`.
    fn wake(&mut self) {
        if self.idle > 0 {
            WORK.notify_one();
        } else if self.workers < WORKERS || self.held_up() {
            self.hire();
        }
    }

    /// Whether all workers are busy with work that does not end: kernels may wait for work that has no worker yet.
    fn held_up(&self) -> bool {
        self.seed.is_none()
            && !self.ready.is_empty()
            && self.idle == 0
            && self.workers < MOST_WORKERS
            && self.picked.elapsed() >= HELD_UP
    }

    fn hire(&mut self) {
        let hired = std::thread::Builder::new().name("cuirass-sim".into()).stack_size(4 << 20).spawn(worker);
        match hired {
            Ok(_detached) => self.workers += 1,
            Err(error) => report::make(report::Kind::Panic, format!("no worker thread can be started: {error}")),
        }
    }
}

impl State {
    /// Puts work at the end of a queue, to be done after `after`.
    pub fn push(&mut self, key: QueueKey, after: &[Dep], work: Work) -> Answer<Dep> {
        let order = if order::on() {
            let Some(queue) = self.engine.find(key) else { return Err(OUT_OF_MEMORY) };
            order::submitted(self, key, queue.pushed + 1, after, &work)
        } else {
            None
        };
        self.enqueue(key, after, work, order)
    }

    /// Puts a wait at the end of a queue that is the driver's own doing: no program can rely on it.
    pub fn hold_back(&mut self, key: QueueKey, after: Dep) -> Answer<Dep> {
        self.enqueue(key, &[after], Work::Nothing, None)
    }

    /// A place of its own at the end of a queue, which no program sees.
    pub fn mark(&mut self, key: QueueKey) -> Answer<Dep> {
        self.enqueue(key, &[], Work::Nothing, None)
    }

    fn enqueue(&mut self, key: QueueKey, after: &[Dep], work: Work, order: Option<Arc<Operation>>) -> Answer<Dep> {
        let Some(queue) = self.engine.find(key) else { return Err(OUT_OF_MEMORY) };
        let dep = Dep { queue: key, count: queue.pushed + 1 };
        self.memory.pools.unwaited.follow(after, dep, &self.engine);
        let after = after.iter().copied().filter(|dep| !self.engine.reached(*dep)).collect();
        let Some(queue) = self.engine.find_mut(key) else { return Err(OUT_OF_MEMORY) };
        queue.ops.push_back(Op { after, work, order });
        queue.pushed = dep.count;
        if queue.standing == Standing::Idle {
            self.advance(key.slot);
        }
        Ok(dep)
    }

    /// Does what needs no thread at the head of a queue, and says where the queue stands then.
    fn advance(&mut self, slot: u32) {
        let mut progress = self.advance_one(slot);
        while progress {
            progress = false;
            self.engine.tell();
            for slot in std::mem::take(&mut self.engine.blocked) {
                self.engine.queues[slot as usize].standing = Standing::Idle;
                progress |= self.advance_one(slot);
            }
        }
    }

    fn advance_one(&mut self, slot: u32) -> bool {
        let mut progress = false;
        loop {
            let engine = &self.engine;
            let queue = &engine.queues[slot as usize];
            let Some(head) = queue.ops.front() else {
                self.engine.reap(slot);
                return progress;
            };
            if !engine.all_reached(&head.after) {
                self.engine.queues[slot as usize].standing = Standing::Blocked;
                self.engine.blocked.push(slot);
                return progress;
            }
            if engine.seed.is_some() || !matches!(head.work, Work::Nothing | Work::Record { .. }) {
                self.engine.queues[slot as usize].standing = Standing::Ready;
                self.engine.ready.push(slot);
                self.engine.wake();
                return progress;
            }
            let queue = &mut self.engine.queues[slot as usize];
            let head = queue.ops.pop_front();
            queue.done += 1;
            progress = true;
            if let Some(Op { work: Work::Record { event, serial }, .. }) = head {
                self.happened(event, serial);
            }
        }
    }

    /// The head of a queue is done.
    fn complete(&mut self, slot: u32, outcome: Result<(), Failure>) {
        let queue = &mut self.engine.queues[slot as usize];
        queue.done += 1;
        queue.standing = Standing::Idle;
        let context = queue.context;
        self.engine.running -= 1;
        if let Err(failure) = outcome {
            context::lose(self, context, &failure);
        }
        self.engine.tell();
        self.advance(slot);
        if !self.engine.blocked.is_empty() {
            // Others may have waited for this very op.
            for slot in std::mem::take(&mut self.engine.blocked) {
                self.engine.queues[slot as usize].standing = Standing::Idle;
                self.advance(slot);
            }
        }
        if self.engine.seed.is_some() {
            WORK.notify_all();
            DONE.notify_all();
        }
    }

    /// Which op a worker does next.
    fn next(&mut self) -> Option<(u32, Job, Work)> {
        let slot = self.engine.pick()?;
        Some(self.begin(slot))
    }

    /// An op that a call waits for and that its own thread can do, so that nobody has to be woken.
    fn next_of(&mut self, deps: &[Dep]) -> Option<(u32, Job, Work)> {
        if self.engine.seed.is_some() {
            return None;
        }
        let wanted = |slot: &u32| {
            let queue = &self.engine.queues[*slot as usize];
            let key = QueueKey { slot: *slot, generation: queue.generation };
            let is_task = queue.ops.front().is_some_and(|op| matches!(op.work, Work::Task(_)));
            is_task && deps.iter().any(|dep| dep.queue == key && queue.done < dep.count)
        };
        let at = self.engine.ready.iter().position(wanted)?;
        let slot = self.engine.ready.remove(at);
        Some(self.begin(slot))
    }

    fn begin(&mut self, slot: u32) -> (u32, Job, Work) {
        self.engine.tasks += 1;
        self.engine.picked = Instant::now();
        self.engine.allowance = self.engine.allowance.saturating_sub(1);
        self.engine.running += 1;
        let number = self.engine.tasks;
        let queue = &mut self.engine.queues[slot as usize];
        queue.standing = Standing::Running;
        let (work, order) = queue.ops.pop_front().map_or((Work::Nothing, None), |op| (op.work, op.order));
        let job = Job { context: queue.context, device: queue.device, number, order };
        (slot, job, work)
    }

    fn hand_over(&mut self, slot: u32, job: Job, work: Work) {
        let status = context::lost(self, job.context).unwrap_or(SUCCESS);
        self.call_back(Callback { queue: Some(slot), work, status, order: job.order });
    }

    /// Has the callback thread run a function that belongs to no stream.
    pub fn run_destructor(&mut self, function: crate::c::HostFunction) {
        self.call_back(Callback { queue: None, work: Work::Host(function), status: SUCCESS, order: None });
    }

    fn call_back(&mut self, callback: Callback) {
        self.engine.callbacks.push_back(callback);
        if !self.engine.callback_thread {
            let started = std::thread::Builder::new().name("cuirass-sim-host".into()).spawn(callbacks);
            match started {
                Ok(_detached) => self.engine.callback_thread = true,
                Err(error) => report::make(report::Kind::Panic, format!("no callback thread can be started: {error}")),
            }
        }
        CALLBACK.notify_one();
    }

    /// An event's recording happened now.
    fn happened(&mut self, event: Handle, serial: u64) {
        let now = state::now();
        if let Some(event) = self.events.peek_mut(event) {
            event.happened(serial, now);
        }
    }
}

fn worker() {
    host::block_signals();
    thread::enter("a worker");
    let Ok(mut state) = state::lock() else { return };
    loop {
        let Some((slot, job, work)) = state.next() else {
            state.engine.idle += 1;
            if state.engine.seed.is_some() && !state.engine.ready.is_empty() && state.engine.running == 0 {
                if WORK.wait_for(&mut state, UNASKED).timed_out() {
                    state.engine.allowance = state.engine.allowance.max(1);
                }
            } else {
                WORK.wait(&mut state);
            }
            state.engine.idle -= 1;
            continue;
        };
        perform(&mut state, slot, job, work);
    }
}

/// Does the head of a queue, or hands it to the callback thread.
fn perform(state: &mut Guard, slot: u32, job: Job, work: Work) {
    match work {
        Work::Nothing | Work::Wait { .. } => state.complete(slot, Ok(())),
        Work::Record { event, serial } => {
            state.happened(event, serial);
            state.complete(slot, Ok(()));
        }
        Work::Task(task) => {
            let skipped = context::lost(state, job.context).is_some();
            let outcome = MutexGuard::unlocked(state, || {
                thread::set_working(true);
                let outcome = if skipped { Ok(()) } else { attempt(|| task.run(&job)) };
                thread::set_working(false);
                if job.order.is_some() {
                    order::ran();
                }
                drop(task);
                outcome
            });
            state.complete(slot, outcome);
        }
        Work::Host(_) | Work::Callback(_) => state.hand_over(slot, job, work),
    }
}

/// A panic in the simulator's own code ends the context, not the process.
fn attempt(run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|_payload| {
        let text = "the simulator itself panicked while it did a stream's work".to_owned();
        report::make(report::Kind::Panic, text.clone());
        Err(Failure { status: crate::status::UNKNOWN, text })
    })
}

/// Runs host functions, in the order in which their streams reach them.
fn callbacks() {
    host::block_signals();
    thread::enter("a host function");
    thread::set_in_callback(true);
    let Ok(mut state) = state::lock() else { return };
    loop {
        let Some(Callback { queue, work, status, order }) = state.engine.callbacks.pop_front() else {
            CALLBACK.wait(&mut state);
            continue;
        };
        if let Some(order) = order {
            order::host_function(&mut state, &order);
        }
        MutexGuard::unlocked(&mut state, || match &work {
            Work::Host(function) if status == SUCCESS => function.call(),
            Work::Callback(callback) => callback.call(status),
            _ => {}
        });
        if let Some(queue) = queue {
            state.complete(queue, Ok(()));
        }
    }
}

/// Waits until every place is reached, as the program asked for. The lock is given up meanwhile.
pub fn wait(state: &mut Guard, deps: &[Dep]) {
    reach(state, deps, None);
    state.memory.pools.unwaited.waited(deps);
    if order::on() {
        order::host_knows(state, deps);
    }
}

/// As [`wait`], where the program cannot rely on it; until a time at most.
pub fn reach(state: &mut Guard, deps: &[Dep], until: Option<Instant>) {
    if state.engine.all_reached(deps) {
        return;
    }
    let ticket = state.engine.waits;
    state.engine.waits += 1;
    state.engine.wanted.push((ticket, deps.iter().copied().collect()));
    if state.engine.seed.is_some() {
        state.engine.wake();
    }
    while !state.engine.all_reached(deps) && until.is_none_or(|until| Instant::now() < until) {
        if let Some((slot, job, work)) = state.next_of(deps) {
            perform(state, slot, job, work);
            continue;
        }
        if DONE.wait_for(state, HELD_UP).timed_out() && state.engine.held_up() {
            state.engine.hire();
        }
    }
    state.engine.wanted.retain(|(other, _)| *other != ticket);
}

/// Whether every place is reached; under a seeded schedule asking lets some work advance first.
pub fn ask(state: &mut Guard, deps: &[Dep]) -> bool {
    let reached = look(state, deps);
    if reached && order::on() {
        order::host_knows(state, deps);
    }
    reached
}

fn look(state: &mut Guard, deps: &[Dep]) -> bool {
    if state.engine.all_reached(deps) {
        return true;
    }
    if state.engine.held_up() {
        state.engine.hire();
    }
    if let Some(random) = &mut state.engine.seed {
        let steps = random.below(3) as u64;
        state.engine.allowance += steps;
        state.engine.wake();
        let until = Instant::now() + 4 * UNASKED;
        while state.engine.allowance > 0 && !state.engine.ready.is_empty() || state.engine.running > 0 && steps > 0 {
            if DONE.wait_until(state, until).timed_out() {
                break;
            }
        }
        state.engine.allowance = 0;
    }
    state.engine.all_reached(deps)
}
