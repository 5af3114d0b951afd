//! Calls and returns, of functions and of what the host provides.

use super::block::Env;
use super::memory::lanes;
use super::trap::{Trap, TrapCode};
use super::warp::{Group, Wait, Warp};
use super::{memory, print};
use crate::code::{Call, Callee, FUNCTION_BASE, Op, Slot};

/// Copies bytes between two places of a lane's local memory.
fn copy(warp: &mut Warp, lane: usize, from: u32, to: u32, size: u32) {
    let start = lane * warp.stride as usize;
    let (from, to, size) = (start + from as usize, start + to as usize, size as usize);
    let end = warp.local.len();
    if from + size <= end && to + size <= end {
        warp.local.copy_within(from..from + size, to);
    }
}

/// A slot's value, up to eight bytes.
pub(super) fn slot_value(env: &mut Env<'_, '_>, warp: &Warp, frame: u32, lane: usize, slot: Option<&Slot>) -> u64 {
    let Some(slot) = slot else { return 0 };
    let base = warp.frames.get(frame as usize).map_or(0, |f| f.base);
    let place = memory::Place::Local((base + slot.offset) as usize);
    memory::read_lane(env, warp, lane, place, slot.size.min(8)).unwrap_or(0)
}

fn set_slot(
    env: &mut Env<'_, '_>,
    warp: &mut Warp,
    frame: u32,
    lane: usize,
    slot: Option<&Slot>,
    value: u64,
) -> Option<()> {
    let slot = slot?;
    let base = warp.frames.get(frame as usize).map_or(0, |f| f.base);
    let place = memory::Place::Local((base + slot.offset) as usize);
    memory::write_lane(env, warp, lane, place, slot.size.min(8), value)
}

/// Calls; afterwards the group is in the callee, or past the call if there is none.
pub(crate) fn call(
    env: &mut Env<'_, '_>,
    warp: &mut Warp,
    chosen: usize,
    call: &Call,
    m: u32,
    pc: u32,
) -> Result<(), Trap> {
    let frame = warp.groups[chosen].frame;
    match call.callee {
        Callee::Func(function) => enter(env, warp, chosen, call, function, m, pc),
        Callee::Indirect(reg) => {
            let targets = warp.frames[frame as usize].r64[reg as usize];
            let mut rest = m;
            let mut group = chosen;
            while rest != 0 {
                let lane = rest.trailing_zeros() as usize;
                let same = lanes(rest).filter(|i| targets[*i] == targets[lane]);
                let same = same.fold(0u32, |s, i| s | 1 << i);
                rest &= !same;
                let offset = targets[lane].wrapping_sub(FUNCTION_BASE);
                let known = offset.is_multiple_of(16) && offset / 16 < env.machine.program.funcs.len() as u64;
                if !known {
                    let mut trap = Trap::new(TrapCode::InvalidPc, same);
                    trap.address = Some(targets[lane]);
                    return Err(trap);
                }
                let function = (offset / 16) as u32;
                if group == usize::MAX {
                    let ran = warp.groups[chosen].ran;
                    warp.groups.push(Group { mask: same, pc, frame, wait: Wait::Ready, ran });
                    group = warp.groups.len() - 1;
                } else {
                    warp.groups[group].mask = same;
                }
                enter(env, warp, group, call, function, same, pc)?;
                group = usize::MAX;
            }
            Ok(())
        }
        Callee::Printf | Callee::AssertFail | Callee::Malloc | Callee::Free | Callee::SetCondition => {
            host_call(env, warp, frame, call, m)?;
            warp.groups[chosen].pc = pc + 1;
            Ok(())
        }
    }
}

fn enter(
    env: &mut Env<'_, '_>,
    warp: &mut Warp,
    group: usize,
    call: &Call,
    function: u32,
    m: u32,
    pc: u32,
) -> Result<(), Trap> {
    let parent = warp.groups[group].frame;
    let new = warp.push_frame(env.machine, env.ctaid, function, parent, pc, m)?;
    let from = warp.frames[parent as usize].base;
    let to = warp.frames[new as usize].base;
    if let Some(func) = env.machine.program.funcs.get(function as usize) {
        for (arg, param) in call.args.iter().zip(&func.params) {
            let size = arg.size.min(param.size);
            for lane in lanes(m) {
                copy(warp, lane, from + arg.offset, to + param.offset, size);
            }
        }
    }
    warp.groups[group].frame = new;
    warp.groups[group].pc = 0;
    Ok(())
}

/// Returns: results are copied, and the lanes go on after the call.
pub(crate) fn ret(env: &mut Env<'_, '_>, warp: &mut Warp, chosen: usize, m: u32) {
    let index = warp.groups[chosen].frame;
    let frame = &warp.frames[index as usize];
    let (parent, call_pc, from, function) = (frame.parent, frame.call_pc, frame.base, frame.func);
    let Some(up) = warp.frames.get(parent as usize) else {
        warp.exit(index, m);
        warp.groups[chosen].mask = 0;
        return;
    };
    let to = up.base;
    let funcs = &env.machine.program.funcs;
    let call = funcs.get(up.func as usize).and_then(|f| f.code.get(call_pc as usize));
    if let (Some(Op::Call(call)), Some(func)) = (call.map(|i| &i.op), funcs.get(function as usize)) {
        for (result, slot) in call.results.iter().zip(&func.results) {
            let size = result.size.min(slot.size);
            for lane in lanes(m) {
                copy(warp, lane, from + slot.offset, to + result.offset, size);
            }
        }
    }
    warp.leave(index, m);
    warp.groups[chosen].frame = parent;
    warp.groups[chosen].pc = call_pc + 1;
}

fn host_call(env: &mut Env<'_, '_>, warp: &mut Warp, frame: u32, call: &Call, m: u32) -> Result<(), Trap> {
    for lane in lanes(m) {
        let mut args = [0u64; 5];
        for (slot, value) in call.args.iter().zip(args.iter_mut()) {
            *value = slot_value(env, warp, frame, lane, Some(slot));
        }
        let result = match call.callee {
            Callee::Printf => {
                let text = print::format(env, warp, lane, args[0], args[1])
                    .map_err(|address| Trap::access(TrapCode::IllegalAddress, lane, address, 1, false))?;
                env.machine.host.print(&text.bytes);
                u64::from(text.values)
            }
            Callee::Malloc => {
                let address = env.machine.host.malloc(args[0]);
                env.view.refresh();
                address
            }
            Callee::Free => {
                env.machine.host.free(args[0]);
                0
            }
            Callee::SetCondition => {
                env.machine.host.set_condition(args[0], args[1] as u32);
                0
            }
            Callee::AssertFail => {
                let text = print::assertion(env, warp, lane, args);
                env.machine.host.print(&text);
                return Err(Trap::new(TrapCode::Assert, 1 << lane));
            }
            Callee::Func(_) | Callee::Indirect(_) => 0,
        };
        if set_slot(env, warp, frame, lane, call.results.first(), result).is_none() && !call.results.is_empty() {
            return Err(Trap::new(TrapCode::StackError, 1 << lane));
        }
    }
    Ok(())
}
