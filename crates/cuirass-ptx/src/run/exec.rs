//! The interpreter's loop: one group of lanes, one instruction after another.

use super::block::{BARRIERS, Env, Located};
use super::memory::{self, lanes};
use super::trap::{Trap, TrapCode};
use super::warp::{Group, Wait, Warp};
use super::{asynchronous, atomic, call, warpwide};
use crate::code::{AtomOp, Bar, BarOp, Clock, MbarOp, NONE, Op, RegRef};

/// Runs a group until it meets another one, splits, waits, ends, or has used up the budget.
pub(crate) fn run_group(env: &mut Env<'_, '_>, warp: &mut Warp, chosen: usize) -> Result<(), Located> {
    let mask = warp.groups[chosen].mask;
    let at = warp.groups[chosen].frame as usize;
    let function = warp.frames[at].func;
    let limit = if warp.groups.len() > 1 { warp.limit(chosen) } else { u32::MAX };
    let width = u64::from(mask.count_ones());
    let machine = env.machine;
    let index = warp.index;
    let located = |trap, pc| Located { trap, warp: index, func: function, pc };
    let Some(func) = machine.program.funcs.get(function as usize) else {
        return Err(located(Trap::new(TrapCode::InvalidPc, mask), 0));
    };
    let mut pc = warp.groups[chosen].pc;
    let mut steps = 0u64;
    // Leaves the loop with the group at `pc`.
    macro_rules! leave {
        ($pc:expr) => {{
            warp.groups[chosen].pc = $pc;
            env.steps += steps * width;
            env.budget = env.budget.saturating_sub(steps);
            return Ok(());
        }};
    }
    loop {
        if pc >= limit {
            leave!(pc);
        }
        let Some(instr) = func.code.get(pc as usize) else {
            return Err(located(Trap::new(TrapCode::InvalidPc, mask), pc));
        };
        steps += 1;
        let frame = &mut warp.frames[at];
        let m = if instr.guard == NONE { mask } else { mask & (frame.p[instr.guard as usize] ^ instr.invert) };
        match &instr.op {
            Op::Alu(handler) => {
                if m != 0 {
                    handler(frame, &instr.args, m);
                }
                pc += 1;
                continue;
            }
            Op::Compare(compare) => {
                if m != 0 {
                    crate::ops::compare::setp(frame, &instr.args, m, *compare);
                }
                pc += 1;
                continue;
            }
            Op::Bra(target) => {
                if m == mask {
                    let back = *target <= pc;
                    pc = *target;
                    if back && (steps >= env.budget || warp.groups.len() > 1) {
                        leave!(pc);
                    }
                } else if m == 0 {
                    pc += 1;
                } else {
                    split(warp, chosen, m, *target);
                    leave!(pc + 1);
                }
                continue;
            }
            _ if m == 0 => {
                pc += 1;
                continue;
            }
            Op::Load(access) => {
                memory::load(env, warp, at, access, m).map_err(|t| located(t, pc))?;
                pc += 1;
                if access.poll && env.poll() {
                    leave!(pc);
                }
            }
            Op::Store(access) => {
                memory::store(env, warp, at, access, m).map_err(|t| located(t, pc))?;
                pc += 1;
            }
            Op::Atom(atom) => {
                atomic::run(env, warp, at, atom, m).map_err(|t| located(t, pc))?;
                pc += 1;
                if atom.op == AtomOp::Cas && env.poll() {
                    leave!(pc);
                }
            }
            Op::Mbar(mbar) => {
                asynchronous::mbarrier(env, warp, at, mbar, m).map_err(|t| located(t, pc))?;
                pc += 1;
                if matches!(mbar.op, MbarOp::Test | MbarOp::TestParity) && env.poll() {
                    leave!(pc);
                }
            }
            Op::CopyAsync(copy) => {
                asynchronous::copy(env, warp, at, copy, m).map_err(|t| located(t, pc))?;
                pc += 1;
            }
            Op::Fence => {
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                pc += 1;
            }
            Op::Clock(clock, reg) => {
                read_clock(env, warp, at, *clock, *reg, m);
                pc += 1;
            }
            Op::ActiveMask => {
                let out = &mut frame.r32[instr.args.d as usize];
                lanes(m).for_each(|i| out[i] = m);
                pc += 1;
            }
            Op::Pause => {
                env.paused = true;
                leave!(pc + 1);
            }
            Op::Sync(sync) => {
                if warpwide::alone(warp, at, sync, m) {
                    warpwide::run_alone(warp, at, sync, m);
                    pc += 1;
                    continue;
                }
                divide(warp, chosen, mask, m, pc);
                // Lanes that name different members wait for different lanes.
                let mut rest = m;
                while rest != 0 {
                    let same = warpwide::alike(&warp.frames[at], sync, rest);
                    rest &= !same;
                    let mut waiting = chosen;
                    if rest != 0 {
                        split(warp, chosen, same, pc);
                        waiting = warp.groups.len() - 1;
                    }
                    warp.groups[waiting].wait = Wait::Sync(warpwide::members(warp, at, sync, same));
                }
                leave!(pc);
            }
            Op::Bar(bar) => {
                let waits = barrier(env, warp, at, bar, m).map_err(|t| located(t, pc))?;
                if let Some(id) = waits {
                    divide(warp, chosen, mask, m, pc);
                    warp.groups[chosen].wait = Wait::Bar(id);
                    leave!(pc);
                }
                pc += 1;
            }
            Op::Brx(table) => {
                let index = frame.r32[instr.args.a as usize];
                let table = func.tables.get(*table as usize).map_or(&[][..], Vec::as_slice);
                divide(warp, chosen, mask, m, pc);
                let mut rest = m;
                while rest != 0 {
                    let lane = rest.trailing_zeros() as usize;
                    let same = lanes(rest).filter(|i| index[*i] == index[lane]);
                    let same = same.fold(0u32, |s, i| s | 1 << i);
                    let Some(&target) = table.get(index[lane] as usize) else {
                        return Err(located(Trap::new(TrapCode::InvalidPc, same), pc));
                    };
                    split(warp, chosen, same, target);
                    rest &= !same;
                }
                leave!(pc);
            }
            Op::Call(it) => {
                divide(warp, chosen, mask, m, pc);
                call::call(env, warp, chosen, it, m, pc).map_err(|t| located(t, pc))?;
                leave!(warp.groups[chosen].pc);
            }
            Op::Ret => {
                divide(warp, chosen, mask, m, pc);
                call::ret(env, warp, chosen, m);
                leave!(warp.groups[chosen].pc);
            }
            Op::Exit => {
                divide(warp, chosen, mask, m, pc);
                warp.exit(at as u32, m);
                warp.groups[chosen].mask = 0;
                leave!(pc);
            }
            Op::Trap => return Err(located(Trap::new(TrapCode::Trap, m), pc)),
            Op::Unsupported => {
                return Err(located(Trap::new(TrapCode::Unsupported, m), pc));
            }
        }
    }
}

/// Moves lanes of a group into one of their own.
fn split(warp: &mut Warp, chosen: usize, m: u32, pc: u32) {
    let group = &mut warp.groups[chosen];
    group.mask &= !m;
    let new = Group { mask: m, pc, frame: group.frame, wait: Wait::Ready, ran: group.ran };
    warp.groups.push(new);
}

/// Sends the lanes that a guard excludes on to the next instruction.
fn divide(warp: &mut Warp, chosen: usize, mask: u32, m: u32, pc: u32) {
    if m != mask {
        split(warp, chosen, mask & !m, pc + 1);
    }
}

fn read_clock(env: &mut Env<'_, '_>, warp: &mut Warp, at: usize, clock: Clock, reg: RegRef, m: u32) {
    let now = env.machine.host.timer_ns();
    let value = match clock {
        Clock::Cycles => now.wrapping_mul(2),
        Clock::CyclesHigh => now.wrapping_mul(2) >> 32,
        Clock::TimerNs => now,
        Clock::TimerNsHigh => now >> 32,
    };
    for lane in lanes(m) {
        memory::set(&mut warp.frames[at], reg, lane, value);
    }
}

/// Arrives at a block-wide barrier; gives its number if the lanes have to wait.
fn barrier(env: &mut Env<'_, '_>, warp: &Warp, at: usize, bar: &Bar, m: u32) -> Result<Option<u8>, Trap> {
    let frame = &warp.frames[at];
    let lane = m.trailing_zeros() as usize;
    let id = frame.r32[bar.id as usize][lane];
    let Some(state) = env.bars.get_mut(id as usize).filter(|_| (id as usize) < BARRIERS) else {
        return Err(Trap::new(TrapCode::IllegalInstruction, m));
    };
    if bar.count != NONE {
        let count = frame.r32[bar.count as usize][lane];
        if !count.is_multiple_of(32) || count == 0 {
            return Err(Trap::new(TrapCode::IllegalInstruction, m));
        }
        state.count = Some(count);
    }
    if state.warps >> (warp.index & 31) & 1 == 0 {
        state.warps |= 1 << (warp.index & 31);
        state.padding += 32 - warp.live().count_ones();
    }
    state.arrived = state.arrived.saturating_add(m.count_ones());
    if bar.p != NONE {
        let p = frame.p[bar.p as usize];
        let p = if bar.negate { !p } else { p };
        state.popc = state.popc.saturating_add((p & m).count_ones());
        state.all = state.all.saturating_add(m.count_ones());
    }
    Ok((bar.op != BarOp::Arrive).then_some(id as u8))
}
