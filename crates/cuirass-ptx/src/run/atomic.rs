//! Atomics and reductions, one lane after another.

use super::block::Env;
use super::memory::{Place, addresses, lanes, place, read_lane, set, value, watch, write_lane};
use super::trap::{Trap, TrapCode};
use super::warp::Warp;
use crate::ast::Ty;
use crate::code::{Atom, AtomOp, MemSpace, SHARED_BASE, SHARED_START};
use crate::frame::{Frame, LANES};
use crate::ops::float::{add32, g, out32, out64, prefer64};
use crate::ops::half::{atomic_add, atomic_pick};
use crate::watch::Touch;

/// What an operation makes of the old value.
fn apply(op: AtomOp, ty: Ty, old: u64, a: u64, b: u64) -> u64 {
    match op {
        AtomOp::Add => add(ty, old, a),
        AtomOp::Min => pick(ty, old, a, false),
        AtomOp::Max => pick(ty, old, a, true),
        AtomOp::Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        AtomOp::Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        AtomOp::Exch => a,
        AtomOp::Cas => {
            if old == a {
                b
            } else {
                old
            }
        }
        AtomOp::And => old & a,
        AtomOp::Or => old | a,
        AtomOp::Xor => old ^ a,
    }
}

fn add(ty: Ty, old: u64, a: u64) -> u64 {
    match ty {
        Ty::F32 => {
            let v = f32::from_bits(old as u32) + f32::from_bits(a as u32);
            out32(v).into()
        }
        Ty::F64 => prefer64(old, out64(g(old) + g(a))),
        Ty::F16 => atomic_add(false, false, old as u32, a as u32).into(),
        Ty::F16x2 => atomic_add(true, false, old as u32, a as u32).into(),
        Ty::Bf16 => atomic_add(false, true, old as u32, a as u32).into(),
        Ty::Bf16x2 => atomic_add(true, true, old as u32, a as u32).into(),
        Ty::U64 | Ty::S64 => old.wrapping_add(a),
        _ => (old as u32).wrapping_add(a as u32).into(),
    }
}

fn pick(ty: Ty, old: u64, a: u64, max: bool) -> u64 {
    let choose = |less: bool| if less != max { old } else { a };
    match ty {
        Ty::S32 => choose((old as i32) < (a as i32)),
        Ty::S64 => choose((old as i64) < (a as i64)),
        Ty::F16 => atomic_pick(false, false, max, old as u32, a as u32).into(),
        Ty::F16x2 => atomic_pick(true, false, max, old as u32, a as u32).into(),
        Ty::Bf16 => atomic_pick(false, true, max, old as u32, a as u32).into(),
        Ty::Bf16x2 => atomic_pick(true, true, max, old as u32, a as u32).into(),
        _ => choose(old < a),
    }
}

/// What an operation on global memory makes of the old value: there, and only there, the addition
/// of `f32` flushes subnormals, and that of `f64` hands on a NaN as it is, the added one first.
fn apply_global(op: AtomOp, ty: Ty, old: u64, a: u64, b: u64) -> u64 {
    match (op, ty) {
        (AtomOp::Add, Ty::F32) => add32(old as u32, a as u32, crate::ops::flags::FTZ).into(),
        (AtomOp::Add, Ty::F64) if g(a).is_nan() => a,
        (AtomOp::Add, Ty::F64) if g(old).is_nan() => old,
        _ => apply(op, ty, old, a, b),
    }
}

/// The most frequent atomic: integer addition on global memory. Lanes that add to one word do it
/// together, since the order among them is nobody's to know. `None`, with nothing done: it is
/// another one, or has to be done carefully.
fn add_integers(
    env: &mut Env<'_, '_>,
    warp: &mut Warp,
    index: usize,
    atom: &Atom,
    m: u32,
    at: &[u64; LANES],
) -> Option<()> {
    let integer = matches!(atom.ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64);
    let [a] = atom.a.as_slice() else { return None };
    let bytes = atom.ty.bytes();
    let first = at[m.trailing_zeros() as usize & 31];
    let windows = atom.address.space != MemSpace::Global && first >= SHARED_BASE;
    if atom.op != AtomOp::Add || !integer || windows || atom.address.space == MemSpace::Shared {
        return None;
    }
    let span = env.view.find(first, bytes.into())?;
    // All or none: a lane that is refused has to be the first thing that happens.
    let fits = |i: usize| span.holds(at[i], bytes.into()) && at[i] & u64::from(bytes - 1) == 0;
    if !span.is_writable() || !lanes(m).all(fits) {
        return None;
    }
    let frame = &mut warp.frames[index];
    if lanes(m).all(|i| at[i] == first) {
        let sum = lanes(m).fold(0u64, |s, i| s.wrapping_add(value(frame, *a, i)));
        let mut old = span.add(first, bytes, sum)?;
        for lane in lanes(m) {
            let v = value(frame, *a, lane);
            if let Some(dest) = atom.dest.first() {
                set(frame, *dest, lane, if bytes == 4 { old & 0xffff_ffff } else { old });
            }
            old = old.wrapping_add(v);
        }
        return Some(());
    }
    for lane in lanes(m) {
        let old = span.add(at[lane], bytes, value(frame, *a, lane))?;
        if let Some(dest) = atom.dest.first() {
            set(frame, *dest, lane, old);
        }
    }
    Some(())
}

/// The same for 32-bit words of shared memory, which only this worker sees.
fn add_shared(shared: &mut [u8], frame: &mut Frame, atom: &Atom, m: u32, at: &[u64; LANES]) -> Option<()> {
    let [a] = atom.a.as_slice() else { return None };
    let integer = matches!(atom.ty, Ty::U32 | Ty::S32);
    if atom.op != AtomOp::Add || !integer || atom.address.space != MemSpace::Shared {
        return None;
    }
    let offset = |i: usize| at[i].wrapping_sub(SHARED_START) as usize;
    let fits = |i: usize| at[i] & 3 == 0 && offset(i).checked_add(4).is_some_and(|end| end <= shared.len());
    if !lanes(m).all(fits) {
        return None;
    }
    for lane in lanes(m) {
        let word = shared.get_mut(offset(lane)..offset(lane) + 4)?;
        let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let new = old.wrapping_add(value(frame, *a, lane) as u32);
        word.copy_from_slice(&new.to_le_bytes());
        if let Some(dest) = atom.dest.first() {
            set(frame, *dest, lane, old.into());
        }
    }
    Some(())
}

/// An atomic or reduction of a warp.
pub(crate) fn run(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, atom: &Atom, m: u32) -> Result<(), Trap> {
    env.view.refresh();
    let at = addresses(&warp.frames[index], &atom.address);
    let bytes = atom.ty.bytes();
    let size = u64::from(bytes) * atom.a.len() as u64;
    watch(env, atom.address.space, &at, m, size, Touch::Write, true);
    let done = add_integers(env, warp, index, atom, m, &at).is_some()
        || add_shared(env.shared, &mut warp.frames[index], atom, m, &at).is_some();
    if done {
        return Ok(());
    }
    for lane in lanes(m) {
        let refuse = |code| Trap::access(code, lane, at[lane], size as u32, true);
        if at[lane] & (size - 1) != 0 {
            return Err(refuse(TrapCode::MisalignedAddress));
        }
        for (i, a) in atom.a.iter().enumerate() {
            let address = at[lane].wrapping_add(u64::from(bytes) * i as u64);
            let frame = &warp.frames[index];
            let a = value(frame, *a, lane);
            let b = atom.b.get(i).map_or(0, |b| value(frame, *b, lane));
            let place = place(atom.address.space, address);
            // Atomics have no form for local memory.
            if matches!(place, Place::Local(_) | Place::Param(_)) {
                return Err(refuse(TrapCode::AddressSpace));
            }
            let (op, ty) = (atom.op, atom.ty);
            let old = match place {
                Place::Global(address) => env
                    .view
                    .find(address, bytes.into())
                    .and_then(|s| s.update(address, bytes, |old| apply_global(op, ty, old, a, b))),
                // Only this worker sees the block's shared memory.
                _ => read_lane(env, warp, lane, place, bytes).and_then(|old| {
                    let new = apply(op, ty, old, a, b);
                    write_lane(env, warp, lane, place, bytes, new).map(|()| old)
                }),
            };
            let Some(old) = old else {
                return Err(refuse(TrapCode::IllegalAddress));
            };
            if let Some(dest) = atom.dest.get(i) {
                set(&mut warp.frames[index], *dest, lane, old);
            }
        }
    }
    Ok(())
}
