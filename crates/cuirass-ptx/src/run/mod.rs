//! Running a grid: workers take blocks, blocks run their warps.

mod asynchronous;
mod atomic;
mod block;
mod call;
mod exec;
pub(crate) mod host_memory;
mod machine;
mod memory;
mod print;
mod trap;
mod view;
mod warp;
mod warpwide;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::fault::{Fault, FaultKind};
use crate::launch::{DeviceMemory, Host, Launch, Limits, Stats};
use block::{Block, Located, Turn};
use machine::Machine;
use view::View;

// A fault ends a launch and is made once: its size does not matter.
#[allow(clippy::result_large_err)]
/// Runs a grid to its end, with the everyday limits.
///
/// # Errors
/// The first fault of any block.
pub fn run(launch: &Launch<'_>, memory: &dyn DeviceMemory, host: &dyn Host) -> Result<Stats, Fault> {
    run_with(launch, memory, host, &Limits::default())
}

/// A launch that cannot begin.
fn refused(launch: &Launch<'_>, kind: FaultKind) -> Fault {
    Fault {
        kind,
        kernel: launch.kernel.name.clone(),
        block: [0; 3],
        thread: [0; 3],
        instruction: String::new(),
        line: 0,
        address: None,
        access_bytes: 0,
        write: false,
    }
}

/// How long the calling thread works alone before it asks for help: making threads costs more
/// than small grids do.
const ALONE: Duration = Duration::from_micros(60);

/// Blocks that a multiprocessor may have begun and not finished, like hardware's; the workers
/// share the multiprocessors.
const RESIDENT: u64 = 32;

#[allow(clippy::result_large_err)]
/// Runs a grid to its end.
///
/// # Errors
/// The first fault of any block.
pub fn run_with(
    launch: &Launch<'_>,
    memory: &dyn DeviceMemory,
    host: &dyn Host,
    limits: &Limits,
) -> Result<Stats, Fault> {
    if let Some(text) = launch.kernel.unsupported() {
        return Err(refused(launch, FaultKind::Unsupported(text.to_owned())));
    }
    let threads = launch.block.iter().fold(1u64, |n, &d| n.saturating_mul(d.into()));
    let short = launch.params.len() < launch.kernel.param_bytes as usize;
    if threads == 0 || threads > 1024 || short || launch.dynamic_shared > 1 << 20 {
        return Err(refused(launch, FaultKind::IllegalInstruction));
    }
    let Some(machine) = Machine::new(launch, memory, host, *limits) else {
        return Err(refused(launch, FaultKind::InvalidPc));
    };
    let workers = launch.workers.clamp(1, 1024);
    let per_multiprocessor = (2048 / threads).clamp(1, RESIDENT);
    let resident = (per_multiprocessor * u64::from(launch.multiprocessors.max(1))).div_ceil(workers as u64);
    let mut first = Worker::new(&machine, resident);
    let alone = if workers == 1 || machine.blocks == 1 { None } else { Some(ALONE) };
    first.work(alone);
    if !first.finished() {
        let helpers = (workers as u64 - 1).min(machine.left());
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| Worker::new(&machine, resident).work(None));
            }
            first.work(None);
        });
    }
    let fault = match machine.fault.lock() {
        Ok(mut slot) => slot.take(),
        Err(poisoned) => poisoned.into_inner().take(),
    };
    match fault {
        Some(fault) => Err(fault),
        None => Ok(Stats {
            instructions: machine.instructions.load(Ordering::Relaxed),
            blocks: machine.done.load(Ordering::Relaxed),
        }),
    }
}

impl Machine<'_> {
    /// Blocks that nobody has begun.
    fn left(&self) -> u64 {
        self.blocks.saturating_sub(self.next_block.load(Ordering::Relaxed))
    }

    fn take_block(&self) -> Option<u64> {
        let number = self.next_block.fetch_add(1, Ordering::Relaxed);
        (number < self.blocks).then_some(number)
    }
}

/// A thread's share of the work: the blocks it has begun, in turns.
struct Worker<'b, 'm> {
    machine: &'b Machine<'m>,
    view: View<'m>,
    running: VecDeque<Block>,
    spare: Vec<Block>,
    resident: u64,
    empty: bool,
}

impl<'b, 'm> Worker<'b, 'm> {
    fn new(machine: &'b Machine<'m>, resident: u64) -> Self {
        Self {
            machine,
            view: View::new(machine.memory, machine.workspace()),
            running: VecDeque::new(),
            spare: Vec::new(),
            resident,
            empty: false,
        }
    }

    fn finished(&self) -> bool {
        (self.empty && self.running.is_empty()) || self.machine.stop.load(Ordering::Relaxed)
    }

    /// Works until nothing is left, or for that long.
    fn work(&mut self, limit: Option<Duration>) {
        let begin = Instant::now();
        while !self.finished() {
            if limit.is_some_and(|limit| begin.elapsed() > limit) {
                return;
            }
            self.step();
        }
    }

    /// One turn of one block.
    fn step(&mut self) {
        // A block that cannot finish in its turn may wait for one that has not begun.
        let room = (self.running.len() as u64) < self.resident;
        let fresh = if room && !self.empty { self.machine.take_block() } else { None };
        let mut block = match fresh {
            Some(number) => {
                let mut block = self.spare.pop().unwrap_or_default();
                if let Err(located) = block.start(self.machine, number) {
                    return self.report(&located, &block);
                }
                block
            }
            None => {
                self.empty |= room;
                match self.running.pop_front() {
                    Some(block) => block,
                    None => return,
                }
            }
        };
        match block.turn(self.machine, &mut self.view) {
            Ok(Turn::Done) => {
                self.machine.done.fetch_add(1, Ordering::Relaxed);
                self.spare.push(block);
            }
            Ok(Turn::More) => self.running.push_back(block),
            Err(located) => self.report(&located, &block),
        }
    }

    fn report(&self, at: &Located, block: &Block) {
        self.machine.report(at.trap, block.ctaid, at.warp, at.func, at.pc);
    }
}
