//! A block: its warps, shared memory and barriers, run in turns by one worker.

use super::machine::Machine;
use super::trap::{Trap, TrapCode};
use super::view::View;
use super::warp::{Wait, Warp};
use super::{exec, warpwide};
use crate::code::{BarOp, Op};

/// How many barriers a block has.
pub(crate) const BARRIERS: usize = 16;

/// A block-wide barrier that some threads have reached.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barrier {
    pub(crate) arrived: u32,
    /// How many have to come, where the instruction says so.
    pub(crate) count: Option<u32>,
    /// Warps that came, to count the lanes that a last warp lacks.
    pub(crate) padding: u32,
    pub(crate) warps: u32,
    pub(crate) popc: u32,
    pub(crate) all: u32,
}

/// What an instruction can reach besides its warp.
pub(crate) struct Env<'b, 'm> {
    pub(crate) machine: &'b Machine<'m>,
    pub(crate) view: &'b mut View<'m>,
    pub(crate) shared: &'b mut [u8],
    pub(crate) bars: &'b mut [Barrier; BARRIERS],
    pub(crate) ctaid: [u32; 3],
    /// Instructions since the last charge, counted once for every thread.
    pub(crate) steps: u64,
    /// Warp instructions until the warp has to give way.
    pub(crate) budget: u64,
    /// A `nanosleep` was met, or a loop that waits: others should get a turn.
    pub(crate) paused: bool,
    /// Polling loads in this turn of the warp.
    polls: u32,
}

/// How a turn of a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Done,
    /// It could go on; others may want to.
    More,
}

/// A block being run. Kept between blocks, so that its memory is made once.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) ctaid: [u32; 3],
    shared: Vec<u8>,
    bars: [Barrier; BARRIERS],
    pub(crate) warps: Vec<Warp>,
}

/// A trap and where it happened.
pub(crate) struct Located {
    pub(crate) trap: Trap,
    pub(crate) warp: u32,
    pub(crate) func: u32,
    pub(crate) pc: u32,
}

/// Warp instructions that a warp may run before the next has its turn.
const WARP_TURN: u64 = 20_000;
/// Polling loads of a warp after which it is taken to wait for somebody else.
const POLLS: u32 = 32;
/// Turns of a block's warps before another block may have its turn.
const BLOCK_TURNS: u32 = 200;

impl Block {
    /// Begins the block of that number.
    pub(crate) fn start(&mut self, machine: &Machine<'_>, number: u64) -> Result<(), Located> {
        let [gx, gy, _] = machine.launch.grid.map(|d| u64::from(d.max(1)));
        self.ctaid = [(number % gx) as u32, (number / gx % gy) as u32, (number / gx / gy) as u32];
        // Shared memory begins undefined; zeros make runs repeatable.
        self.shared.clear();
        self.shared.resize(machine.shared_bytes, 0);
        self.bars = [Barrier::default(); BARRIERS];
        let threads = machine.launch.block.iter().product::<u32>();
        let warps = threads.div_ceil(32);
        self.warps.resize_with(warps as usize, Warp::default);
        for (i, warp) in self.warps.iter_mut().enumerate() {
            let left = threads - i as u32 * 32;
            if let Err(trap) = warp.start(machine, i as u32, left, self.ctaid) {
                let func = machine.launch.kernel.function;
                return Err(Located { trap, warp: i as u32, func, pc: 0 });
            }
        }
        Ok(())
    }

    /// Runs until the block is done, or has had its share for now.
    pub(crate) fn turn<'m>(&mut self, machine: &Machine<'m>, view: &mut View<'m>) -> Result<Turn, Located> {
        let Block { ctaid, shared, bars, warps } = self;
        let mut env = Env { machine, view, shared, bars, ctaid: *ctaid, steps: 0, budget: 0, paused: false, polls: 0 };
        for _ in 0..BLOCK_TURNS {
            let mut progress = false;
            let mut alive = false;
            // Whether nothing but waiting happened.
            let mut idle = true;
            for warp in warps.iter_mut() {
                if warp.finished() {
                    continue;
                }
                alive = true;
                env.budget = WARP_TURN;
                env.paused = false;
                env.polls = 0;
                let ran = run_warp(&mut env, warp)?;
                progress |= ran;
                idle &= !ran || env.paused;
            }
            env.settle(warps)?;
            if !alive {
                return Ok(Turn::Done);
            }
            let released = release(&mut env, warps);
            if !progress && !released {
                return Err(deadlock(warps));
            }
            if idle && !released {
                break;
            }
        }
        Ok(Turn::More)
    }
}

impl Env<'_, '_> {
    /// Counts a polling load; tells whether the warp should give way.
    pub(crate) fn poll(&mut self) -> bool {
        self.polls += 1;
        self.paused |= self.polls >= POLLS;
        self.paused
    }

    /// Accounts for the steps so far.
    fn settle(&mut self, warps: &[Warp]) -> Result<(), Located> {
        let steps = std::mem::take(&mut self.steps);
        self.machine.charge(steps).map_err(|code| {
            let warp = warps.iter().find(|w| !w.finished());
            let group = warp.and_then(|w| w.groups.first());
            let mask = group.map_or(1, |g| g.mask);
            let func = warp.zip(group).map_or(0, |(w, g)| w.frames[g.frame as usize].func);
            Located {
                trap: Trap::new(code, mask),
                warp: warp.map_or(0, |w| w.index),
                func,
                pc: group.map_or(0, |g| g.pc),
            }
        })
    }
}

/// Runs a warp until all its groups wait or its budget is spent; tells whether anything ran.
fn run_warp(env: &mut Env<'_, '_>, warp: &mut Warp) -> Result<bool, Located> {
    let mut progress = false;
    // A group that gave way because it waits must not be the first to run again.
    let mut fair = std::mem::take(&mut warp.gave_way);
    let mut since = 0u64;
    loop {
        if warp.groups.len() > 1 {
            warp.merge();
        }
        let Some(chosen) = warp.choose(fair) else {
            if warpwide::resolve(env, warp)? {
                progress = true;
                continue;
            }
            return Ok(progress);
        };
        progress = true;
        warp.now += 1;
        warp.groups[chosen].ran = warp.now;
        let before = env.budget;
        exec::run_group(env, warp, chosen)?;
        if warp.groups.iter().any(|g| g.mask == 0) {
            warp.groups.retain(|g| g.mask != 0);
        }
        if env.budget == 0 || env.paused {
            warp.gave_way = warp.groups.len() > 1;
            return Ok(true);
        }
        // A group that runs and runs may be waiting for one that does not.
        since += before - env.budget;
        fair = since > 4_000 && warp.groups.len() > 1;
        if fair {
            since = 0;
        }
    }
}

/// Opens the barriers that everybody has reached.
fn release(env: &mut Env<'_, '_>, warps: &mut [Warp]) -> bool {
    let live: u32 = warps.iter().map(|w| w.live().count_ones()).sum();
    let mut any = false;
    for id in 0..BARRIERS {
        let bar = env.bars[id];
        if bar.arrived == 0 {
            continue;
        }
        let complete = match bar.count {
            Some(count) => bar.arrived.saturating_add(bar.padding) >= count,
            None => bar.arrived >= live,
        };
        if !complete {
            continue;
        }
        any = true;
        for warp in warps.iter_mut() {
            open(env.machine, warp, id as u8, bar);
        }
        env.bars[id] = Barrier::default();
    }
    any
}

fn open(machine: &Machine<'_>, warp: &mut Warp, id: u8, bar: Barrier) {
    for group in &mut warp.groups {
        if group.wait != Wait::Bar(id) {
            continue;
        }
        let frame = &mut warp.frames[group.frame as usize];
        let func = machine.program.funcs.get(frame.func as usize);
        if let Some(Op::Bar(op)) = func.and_then(|f| f.code.get(group.pc as usize)).map(|i| &i.op) {
            let d = op.dest;
            let m = group.mask;
            match op.op {
                BarOp::RedPopc => {
                    for lane in super::memory::lanes(m) {
                        frame.r32[d as usize][lane] = bar.popc;
                    }
                }
                BarOp::RedAnd => {
                    let v = if bar.popc == bar.all { u32::MAX } else { 0 };
                    crate::ops::shape::put_p(frame, d, m, v);
                }
                BarOp::RedOr => {
                    let v = if bar.popc > 0 { u32::MAX } else { 0 };
                    crate::ops::shape::put_p(frame, d, m, v);
                }
                BarOp::Sync | BarOp::Arrive => {}
            }
        }
        group.pc += 1;
        group.wait = Wait::Ready;
    }
}

fn deadlock(warps: &[Warp]) -> Located {
    let stuck = warps.iter().find_map(|w| w.groups.first().map(|g| (w, g)));
    let Some((warp, group)) = stuck else {
        return Located { trap: Trap::new(TrapCode::Deadlock, 1), warp: 0, func: 0, pc: 0 };
    };
    Located {
        trap: Trap::new(TrapCode::Deadlock, group.mask),
        warp: warp.index,
        func: warp.frames.get(group.frame as usize).map_or(0, |f| f.func),
        pc: group.pc,
    }
}
