//! What lanes of a warp do together: barriers, votes, shuffles, matches, reductions.
//!
//! The lanes of the member mask wait for each other wherever they are; then each takes part with
//! the operands of its own instruction.

use super::block::{Env, Located};
use super::memory::lanes;
use super::trap::{Trap, TrapCode};
use super::warp::{Wait, Warp};
use crate::code::{NONE, Op, Sync, SyncOp};
use crate::frame::{Frame, LANES};
use crate::ops::shape::put_p;

/// The lanes that an instruction wants to take part.
pub(crate) fn members(warp: &Warp, at: usize, sync: &Sync, m: u32) -> u32 {
    if sync.members == NONE {
        return m;
    }
    let lane = m.trailing_zeros() as usize;
    warp.frames[at].r32[sync.members as usize][lane] | m
}

/// The lanes of `m` that name the same members as the first of them: they take part together.
pub(crate) fn alike(frame: &Frame, sync: &Sync, m: u32) -> u32 {
    if sync.members == NONE {
        return m;
    }
    let named = &frame.r32[sync.members as usize];
    let first = named[m.trailing_zeros() as usize & 31];
    m & named.iter().enumerate().fold(0, |same, (i, v)| same | u32::from(*v == first) << i)
}

/// Whether the lanes at hand are all that any of them wants.
pub(crate) fn alone(warp: &Warp, at: usize, sync: &Sync, m: u32) -> bool {
    if sync.members == NONE {
        return true;
    }
    let named = warp.frames[at].r32[sync.members as usize].iter().enumerate();
    let wanted = named.fold(0, |all, (i, v)| if m >> i & 1 != 0 { all | v } else { all });
    wanted & warp.live() & !m == 0
}

/// What the lanes bring.
struct Inputs {
    a: [u64; LANES],
    b: [u32; LANES],
    c: [u32; LANES],
    p: u32,
    mask: u32,
}

impl Inputs {
    const EMPTY: Inputs = Inputs { a: [0; LANES], b: [0; LANES], c: [0; LANES], p: 0, mask: 0 };

    fn gather(&mut self, frame: &Frame, sync: &Sync, m: u32) {
        self.mask |= m;
        let x = &sync.args;
        match sync.op {
            SyncOp::Barrier | SyncOp::Elect => {}
            SyncOp::VoteAll | SyncOp::VoteAny | SyncOp::VoteUni | SyncOp::Ballot => {
                let p = frame.p[x.a as usize];
                self.p |= if x.flags != 0 { !p & m } else { p & m };
            }
            SyncOp::MatchAny64 | SyncOp::MatchAll64 => {
                let a = &frame.r64[x.a as usize];
                lanes(m).for_each(|i| self.a[i] = a[i]);
            }
            _ => {
                let a = &frame.r32[x.a as usize];
                lanes(m).for_each(|i| self.a[i] = a[i].into());
                if x.b != NONE && x.c != NONE {
                    let (b, c) = (&frame.r32[x.b as usize], &frame.r32[x.c as usize]);
                    lanes(m).for_each(|i| (self.b[i], self.c[i]) = (b[i], c[i]));
                }
            }
        }
    }
}

/// What the lanes get.
struct Outputs {
    value: [u32; LANES],
    p: u32,
}

fn all(v: u32) -> [u32; LANES] {
    [v; LANES]
}

fn bit(on: bool) -> u32 {
    if on { u32::MAX } else { 0 }
}

fn compute(op: SyncOp, x: &Inputs) -> Outputs {
    let m = x.mask;
    let mut out = Outputs { value: [0; LANES], p: 0 };
    let reduce = |f: fn(u32, u32) -> u32| all(lanes(m).map(|i| x.a[i] as u32).reduce(f).unwrap_or(0));
    match op {
        SyncOp::Barrier => {}
        SyncOp::VoteAll => out.p = bit(x.p == m),
        SyncOp::VoteAny => out.p = bit(x.p != 0),
        SyncOp::VoteUni => out.p = bit(x.p == m || x.p == 0),
        SyncOp::Ballot => out.value = all(x.p),
        SyncOp::ShflIdx | SyncOp::ShflUp | SyncOp::ShflDown | SyncOp::ShflBfly => {
            shuffle(op, x, &mut out);
        }
        SyncOp::MatchAny32 | SyncOp::MatchAny64 => {
            for i in lanes(m) {
                out.value[i] = lanes(m).fold(0, |v, k| v | u32::from(x.a[k] == x.a[i]) << k);
            }
        }
        SyncOp::MatchAll32 | SyncOp::MatchAll64 => {
            let first = x.a[m.trailing_zeros() as usize & 31];
            let same = lanes(m).all(|i| x.a[i] == first);
            out.value = all(if same { m } else { 0 });
            out.p = bit(same);
        }
        SyncOp::ReduxAdd => out.value = reduce(u32::wrapping_add),
        SyncOp::ReduxMinU => out.value = reduce(u32::min),
        SyncOp::ReduxMaxU => out.value = reduce(u32::max),
        SyncOp::ReduxMinS => out.value = reduce(|a, b| (a as i32).min(b as i32) as u32),
        SyncOp::ReduxMaxS => out.value = reduce(|a, b| (a as i32).max(b as i32) as u32),
        SyncOp::ReduxAnd => out.value = reduce(|a, b| a & b),
        SyncOp::ReduxOr => out.value = reduce(|a, b| a | b),
        SyncOp::ReduxXor => out.value = reduce(|a, b| a ^ b),
        SyncOp::Elect => {
            let leader = m.trailing_zeros();
            out.value = all(leader);
            out.p = 1u32.checked_shl(leader).unwrap_or(0);
        }
    }
    out
}

fn shuffle(op: SyncOp, x: &Inputs, out: &mut Outputs) {
    for i in 0..LANES {
        let lane = i as i32;
        let b = (x.b[i] & 31) as i32;
        let clamp = (x.c[i] & 31) as i32;
        let segment = (x.c[i] >> 8 & 31) as i32;
        let high = (lane & segment) | (clamp & !segment);
        let low = lane & segment;
        let (from, inside) = match op {
            SyncOp::ShflUp => (lane - b, lane - b >= high),
            SyncOp::ShflDown => (lane + b, lane + b <= high),
            SyncOp::ShflBfly => (lane ^ b, lane ^ b <= high),
            _ => {
                let from = low | (b & !segment);
                (from, from <= high)
            }
        };
        let from = if inside { from as usize & 31 } else { i };
        out.value[i] = x.a[from] as u32;
        out.p |= u32::from(inside) << i;
    }
}

fn scatter(frame: &mut Frame, sync: &Sync, m: u32, out: &Outputs) {
    let x = &sync.args;
    match sync.op {
        SyncOp::Barrier => {}
        SyncOp::VoteAll | SyncOp::VoteAny | SyncOp::VoteUni => put_p(frame, x.d, m, out.p),
        _ => {
            if x.d != NONE {
                let d = &mut frame.r32[x.d as usize];
                lanes(m).for_each(|i| d[i] = out.value[i]);
            }
            put_p(frame, x.e, m, out.p);
        }
    }
}

/// Whether what a lane gets depends on who else takes part.
fn counts_members(op: SyncOp) -> bool {
    use SyncOp::{Barrier, ShflBfly, ShflDown, ShflIdx, ShflUp};
    !matches!(op, Barrier | ShflIdx | ShflUp | ShflDown | ShflBfly)
}

/// Runs the instruction for lanes that need no others, those with the same members at a time.
pub(crate) fn run_alone(warp: &mut Warp, at: usize, sync: &Sync, m: u32) {
    let frame = &mut warp.frames[at];
    let mut rest = m;
    while rest != 0 {
        let now = if counts_members(sync.op) { alike(frame, sync, rest) } else { rest };
        rest &= !now;
        let mut inputs = Inputs::EMPTY;
        inputs.gather(frame, sync, now);
        let out = compute(sync.op, &inputs);
        scatter(frame, sync, now, &out);
    }
}

/// The instruction that a group waits at.
fn waiting<'m>(env: &Env<'_, 'm>, warp: &Warp, group: usize) -> Option<&'m Sync> {
    let group = warp.groups.get(group)?;
    let frame = warp.frames.get(group.frame as usize)?;
    let func = env.machine.program.funcs.get(frame.func as usize)?;
    match &func.code.get(group.pc as usize)?.op {
        Op::Sync(sync) => Some(sync),
        _ => None,
    }
}

/// Lets groups go on whose lanes have all come; tells whether any did.
pub(crate) fn resolve(env: &mut Env<'_, '_>, warp: &mut Warp) -> Result<bool, Located> {
    let live = warp.live();
    for first in 0..warp.groups.len() {
        let Wait::Sync(members) = warp.groups[first].wait else { continue };
        let Some(sync) = waiting(env, warp, first) else {
            let group = warp.groups[first];
            return Err(Located {
                trap: Trap::new(TrapCode::InvalidPc, group.mask),
                warp: warp.index,
                func: warp.frames[group.frame as usize].func,
                pc: group.pc,
            });
        };
        let op = sync.op;
        let mut together = Vec::new();
        let mut come = 0;
        for other in 0..warp.groups.len() {
            let same =
                warp.groups[other].wait == Wait::Sync(members) && waiting(env, warp, other).is_some_and(|s| s.op == op);
            if same {
                together.push(other);
                come |= warp.groups[other].mask;
            }
        }
        if members & live & !come != 0 {
            continue;
        }
        let mut inputs = Inputs::EMPTY;
        for &g in &together {
            if let Some(sync) = waiting(env, warp, g) {
                let group = warp.groups[g];
                inputs.gather(&warp.frames[group.frame as usize], sync, group.mask);
            }
        }
        let out = compute(op, &inputs);
        for &g in &together {
            if let Some(sync) = waiting(env, warp, g) {
                let group = warp.groups[g];
                scatter(&mut warp.frames[group.frame as usize], sync, group.mask, &out);
            }
            warp.groups[g].pc += 1;
            warp.groups[g].wait = Wait::Ready;
        }
        return Ok(true);
    }
    Ok(false)
}
