//! Loads and stores of a warp.

use super::block::Env;
use super::host_memory::Span;
use super::trap::{Trap, TrapCode};
use super::warp::Warp;
use crate::code::{
    Access, Address, Base, Class, LOCAL_BASE, LOCAL_START, MemSpace, NONE, PARAM_BASE, RegRef, SHARED_BASE,
    SHARED_START,
};
use crate::frame::{FULL, Frame, LANES};
use crate::ops::bits::within;
use crate::watch::Touch;

/// Memory that one lane sees, by state space: what a resolved address points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Global(u64),
    /// Offsets from the first byte of the memory.
    Shared(usize),
    Local(usize),
    Param(usize),
}

/// The lanes of a mask.
#[inline(always)]
pub(crate) fn lanes(m: u32) -> impl Iterator<Item = usize> {
    let mut left = m;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(i)
    })
}

/// The lanes' addresses.
#[inline(always)]
pub(crate) fn addresses(frame: &Frame, address: &Address) -> [u64; LANES] {
    let mut out = [0; LANES];
    match address.base {
        Base::Reg64(r) => {
            let base = &frame.r64[r as usize];
            for i in 0..LANES {
                out[i] = base[i].wrapping_add_signed(address.offset);
            }
        }
        Base::Reg32(r) => {
            let base = &frame.r32[r as usize];
            // Windows have 32-bit addresses, and arithmetic on them wraps.
            let wrap = if matches!(address.space, MemSpace::Generic | MemSpace::Global) {
                u64::MAX
            } else {
                u64::from(u32::MAX)
            };
            for i in 0..LANES {
                out[i] = u64::from(base[i]).wrapping_add_signed(address.offset) & wrap;
            }
        }
        Base::Fixed => {
            let base = if address.space == MemSpace::Frame { frame.base.into() } else { 0u64 };
            out = [base.wrapping_add_signed(address.offset); LANES];
        }
    }
    out
}

/// The memory that an address of a space means.
pub(crate) fn place(space: MemSpace, address: u64) -> Place {
    let offset = |base: u64, start: u64| {
        let at = address.wrapping_sub(base).wrapping_sub(start);
        usize::try_from(at).unwrap_or(usize::MAX)
    };
    match space {
        MemSpace::Global => Place::Global(address),
        MemSpace::Shared => Place::Shared(offset(0, SHARED_START)),
        MemSpace::Local | MemSpace::Frame => Place::Local(offset(0, 0)),
        MemSpace::Param => Place::Param(offset(0, 0)),
        MemSpace::Generic => {
            if within(address, SHARED_BASE) {
                Place::Shared(offset(SHARED_BASE, SHARED_START))
            } else if within(address, LOCAL_BASE) {
                Place::Local(offset(LOCAL_BASE, 0))
            } else if within(address, PARAM_BASE) {
                Place::Param(offset(PARAM_BASE, 0))
            } else {
                Place::Global(address)
            }
        }
    }
}

fn read(bytes: &[u8], at: usize, size: u32) -> Option<u64> {
    let slice = bytes.get(at..at.checked_add(size as usize)?)?;
    let mut word = [0; 8];
    match slice.len() {
        4 => word[..4].copy_from_slice(slice),
        8 => word.copy_from_slice(slice),
        n if n < 8 => word[..n].copy_from_slice(slice),
        _ => return None,
    }
    Some(u64::from_le_bytes(word))
}

fn write(bytes: &mut [u8], at: usize, size: u32, value: u64) -> Option<()> {
    let slice = bytes.get_mut(at..at.checked_add(size as usize)?)?;
    slice.copy_from_slice(value.to_le_bytes().get(..slice.len())?);
    Some(())
}

/// A lane's part of the warp's local memory.
fn local_at(warp: &Warp, lane: usize, at: usize, size: u32) -> Option<usize> {
    let end = at.checked_add(size as usize)?;
    let fits = at >= LOCAL_START as usize && end <= warp.local_end as usize;
    fits.then_some(lane * warp.stride as usize + at)
}

/// One lane's read of up to eight bytes.
pub(crate) fn read_lane(env: &mut Env<'_, '_>, warp: &Warp, lane: usize, place: Place, size: u32) -> Option<u64> {
    match place {
        Place::Global(address) => env.view.find(address, size.into())?.load(address, size),
        Place::Shared(at) => read(env.shared, at, size),
        Place::Local(at) => read(&warp.local, local_at(warp, lane, at, size)?, size),
        Place::Param(at) => read(env.machine.launch.params, at, size),
    }
}

/// One lane's write of up to eight bytes.
pub(crate) fn write_lane(
    env: &mut Env<'_, '_>,
    warp: &mut Warp,
    lane: usize,
    place: Place,
    size: u32,
    value: u64,
) -> Option<()> {
    match place {
        Place::Global(address) => env.view.find(address, size.into())?.store(address, size, value),
        Place::Shared(at) => write(env.shared, at, size, value),
        Place::Local(at) => {
            let at = local_at(warp, lane, at, size)?;
            write(&mut warp.local, at, size, value)
        }
        Place::Param(_) => None,
    }
}

/// A loaded element, widened to its register.
#[inline(always)]
fn widen(value: u64, bytes: u32, signed: bool) -> u64 {
    if !signed || bytes == 8 {
        return value;
    }
    let shift = 64 - 8 * bytes;
    ((value << shift) as i64 >> shift) as u64
}

pub(crate) fn set(frame: &mut Frame, reg: RegRef, lane: usize, value: u64) {
    if reg.index == NONE {
        return;
    }
    let index = reg.index as usize;
    match reg.class {
        Class::P => {}
        Class::R16 => frame.r16[index][lane] = value as u16,
        Class::R32 => frame.r32[index][lane] = value as u32,
        Class::R64 => frame.r64[index][lane] = value,
    }
}

pub(crate) fn value(frame: &Frame, reg: RegRef, lane: usize) -> u64 {
    let index = reg.index as usize;
    match reg.class {
        Class::P => (frame.p[index] >> lane & 1).into(),
        Class::R16 => frame.r16[index][lane].into(),
        Class::R32 => frame.r32[index][lane].into(),
        Class::R64 => frame.r64[index][lane],
    }
}

/// Whether all lanes are on and side by side, `size` bytes apart and aligned to that.
#[inline(always)]
fn is_run(at: &[u64; LANES], m: u32, size: u64) -> bool {
    if m != FULL || at[0] & (size - 1) != 0 {
        return false;
    }
    let mut off = 0;
    for i in 0..LANES {
        off |= at[i] ^ at[0].wrapping_add(size * i as u64);
    }
    off == 0
}

/// Whether an access is of global memory only, as far as can be told at a glance.
#[inline(always)]
fn is_global(space: MemSpace, at: &[u64; LANES], m: u32) -> bool {
    match space {
        MemSpace::Global => true,
        MemSpace::Generic => {
            // Windows begin above every address of the host.
            let all = at.iter().fold(0, |all, v| all | v);
            all < SHARED_BASE || lanes(m).all(|i| at[i] < SHARED_BASE)
        }
        _ => false,
    }
}

/// Notes the lanes' accesses of global memory, if somebody wants to know.
#[inline(always)]
pub(crate) fn watch(
    env: &mut Env<'_, '_>,
    space: MemSpace,
    at: &[u64; LANES],
    m: u32,
    size: u64,
    plain: Touch,
    strong: bool,
) {
    if env.view.is_watched() {
        note(env, space, at, m, size, if strong { strengthened(plain) } else { plain });
    }
}

fn strengthened(touch: Touch) -> Touch {
    if touch.writes() { Touch::StrongWrite } else { Touch::StrongRead }
}

#[cold]
fn note(env: &mut Env<'_, '_>, space: MemSpace, at: &[u64; LANES], m: u32, size: u64, touch: Touch) {
    for lane in lanes(m) {
        if let Place::Global(address) = place(space, at[lane]) {
            env.view.note(touch, address, size);
        }
    }
}

/// A load.
pub(crate) fn load(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, access: &Access, m: u32) -> Result<(), Trap> {
    env.view.refresh();
    let at = addresses(&warp.frames[index], &access.address);
    let count = access.regs.len() as u64;
    let size = u64::from(access.bytes) * count;
    let space = access.address.space;
    watch(env, space, &at, m, size, Touch::Read, access.poll);
    let first = at[m.trailing_zeros() as usize & 31];
    if is_global(space, &at, m) {
        let frame = &mut warp.frames[index];
        if is_run(&at, m, size)
            && let [reg] = access.regs.as_slice()
            && reg.index != NONE
            && let Some(span) = env.view.find(at[0], size * LANES as u64)
        {
            let r = reg.index as usize;
            let done = match (access.bytes, reg.class) {
                (4, Class::R32) => span.load_run32(at[0], &mut frame.r32[r]),
                (8, Class::R64) => span.load_run64(at[0], &mut frame.r64[r]),
                _ => None,
            };
            if done.is_some() {
                return Ok(());
            }
        }
        if let Some(span) = env.view.find(first, size)
            && gather(frame, &span, &at, access, m).is_some()
        {
            return Ok(());
        }
    } else if space == MemSpace::Shared {
        if gather_shared(env.shared, &mut warp.frames[index], &at, access, m).is_some() {
            return Ok(());
        }
    } else if space == MemSpace::Param && access.address.base == Base::Fixed {
        let frame = &mut warp.frames[index];
        if broadcast(frame, env.machine.launch.params, first, access, m).is_some() {
            return Ok(());
        }
    }
    for lane in lanes(m) {
        let refuse = |code| Trap::access(code, lane, at[lane], size as u32, false);
        if at[lane] & (size - 1) != 0 {
            return Err(refuse(TrapCode::MisalignedAddress));
        }
        let mut values = [0u64; 8];
        for (i, slot) in values.iter_mut().enumerate().take(access.regs.len()) {
            let address = at[lane].wrapping_add(u64::from(access.bytes) * i as u64);
            let place = place(space, address);
            let Some(v) = read_lane(env, warp, lane, place, access.bytes) else {
                return Err(refuse(TrapCode::IllegalAddress));
            };
            *slot = widen(v, access.bytes, access.signed);
        }
        let frame = &mut warp.frames[index];
        for (reg, v) in access.regs.iter().zip(values) {
            set(frame, *reg, lane, v);
        }
    }
    Ok(())
}

/// Puts one value per register into all lanes of a mask: parameters are the same for everybody.
fn broadcast(frame: &mut Frame, params: &[u8], at: u64, access: &Access, m: u32) -> Option<()> {
    for (i, reg) in access.regs.iter().enumerate() {
        let from = usize::try_from(at).ok()?.checked_add(access.bytes as usize * i)?;
        if from % access.bytes as usize != 0 {
            return None;
        }
        let v = widen(read(params, from, access.bytes)?, access.bytes, access.signed);
        let r = reg.index as usize;
        match reg.class {
            Class::R32 if m == FULL && reg.index != NONE => frame.r32[r] = [v as u32; LANES],
            Class::R64 if m == FULL && reg.index != NONE => frame.r64[r] = [v; LANES],
            _ => lanes(m).for_each(|lane| set(frame, *reg, lane, v)),
        }
    }
    Some(())
}

/// Calls `f` for every lane of a mask until one fails.
#[inline(always)]
fn each(m: u32, mut f: impl FnMut(usize) -> Option<()>) -> Option<()> {
    if m == FULL {
        for lane in 0..LANES {
            f(lane)?;
        }
        return Some(());
    }
    for lane in lanes(m) {
        f(lane)?;
    }
    Some(())
}

/// Whether every lane's address is a multiple of `size`.
#[inline(always)]
fn aligned(at: &[u64; LANES], m: u32, size: u64) -> bool {
    let all = at.iter().fold(0, |all, v| all | v);
    all & (size - 1) == 0 || lanes(m).all(|i| at[i] & (size - 1) == 0)
}

/// Lanes' loads from one region; `None` if any is not in it.
#[inline(always)]
fn gather(frame: &mut Frame, span: &Span, at: &[u64; LANES], access: &Access, m: u32) -> Option<()> {
    if !aligned(at, m, u64::from(access.bytes) * access.regs.len() as u64) {
        return None;
    }
    for (i, reg) in access.regs.iter().enumerate() {
        if reg.index == NONE {
            continue;
        }
        let skip = u64::from(access.bytes) * i as u64;
        let r = reg.index as usize;
        match (access.bytes, reg.class) {
            (4, Class::R32) => {
                let out = &mut frame.r32[r];
                each(m, |lane| {
                    out[lane] = span.load(at[lane].wrapping_add(skip), 4)? as u32;
                    Some(())
                })?;
            }
            (8, Class::R64) => {
                let out = &mut frame.r64[r];
                each(m, |lane| {
                    out[lane] = span.load(at[lane].wrapping_add(skip), 8)?;
                    Some(())
                })?;
            }
            _ => each(m, |lane| {
                let v = span.load(at[lane].wrapping_add(skip), access.bytes)?;
                set(frame, *reg, lane, widen(v, access.bytes, access.signed));
                Some(())
            })?,
        }
    }
    Some(())
}

/// Lanes' loads of words from shared memory; `None` if the careful way has to be taken.
#[inline(always)]
fn gather_shared(shared: &[u8], frame: &mut Frame, at: &[u64; LANES], access: &Access, m: u32) -> Option<()> {
    let size = u64::from(access.bytes) * access.regs.len() as u64;
    if access.bytes != 4 || !aligned(at, m, size) {
        return None;
    }
    let run = is_run(at, m, 4);
    for (i, reg) in access.regs.iter().enumerate() {
        if reg.index == NONE || reg.class != Class::R32 {
            return None;
        }
        let base = SHARED_START.wrapping_sub(4 * i as u64);
        let out = &mut frame.r32[reg.index as usize];
        if run {
            let from = at[0].wrapping_sub(base) as usize;
            let words = shared.get(from..from.checked_add(4 * LANES)?)?;
            for (lane, word) in words.chunks_exact(4).enumerate() {
                out[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
            continue;
        }
        each(m, |lane| {
            let from = at[lane].wrapping_sub(base) as usize;
            let word = shared.get(from..from.checked_add(4)?)?;
            out[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            Some(())
        })?;
    }
    Some(())
}

/// A store.
pub(crate) fn store(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, access: &Access, m: u32) -> Result<(), Trap> {
    env.view.refresh();
    let at = addresses(&warp.frames[index], &access.address);
    let count = access.regs.len() as u64;
    let size = u64::from(access.bytes) * count;
    let space = access.address.space;
    watch(env, space, &at, m, size, Touch::Write, access.poll);
    let first = at[m.trailing_zeros() as usize & 31];
    if is_global(space, &at, m) {
        let frame = &warp.frames[index];
        if is_run(&at, m, size)
            && let [reg] = access.regs.as_slice()
            && let Some(span) = env.view.find(at[0], size * LANES as u64)
        {
            let r = reg.index as usize;
            let done = match (access.bytes, reg.class) {
                (4, Class::R32) => span.store_run32(at[0], &frame.r32[r]),
                (8, Class::R64) => span.store_run64(at[0], &frame.r64[r]),
                _ => None,
            };
            if done.is_some() {
                return Ok(());
            }
        }
        if let Some(span) = env.view.find(first, size)
            && scatter(frame, &span, &at, access, m).is_some()
        {
            return Ok(());
        }
    } else if space == MemSpace::Shared && scatter_shared(env.shared, &warp.frames[index], &at, access, m).is_some() {
        return Ok(());
    }
    for lane in lanes(m) {
        let refuse = |code| Trap::access(code, lane, at[lane], size as u32, true);
        if at[lane] & (size - 1) != 0 {
            return Err(refuse(TrapCode::MisalignedAddress));
        }
        for (i, reg) in access.regs.iter().enumerate() {
            let address = at[lane].wrapping_add(u64::from(access.bytes) * i as u64);
            let place = place(space, address);
            let v = value(&warp.frames[index], *reg, lane);
            if write_lane(env, warp, lane, place, access.bytes, v).is_none() {
                return Err(refuse(TrapCode::IllegalAddress));
            }
        }
    }
    Ok(())
}

/// Lanes' stores into one region. A lane outside stops it; those before it are then stored
/// again by the careful way, which changes nothing.
#[inline(always)]
fn scatter(frame: &Frame, span: &Span, at: &[u64; LANES], access: &Access, m: u32) -> Option<()> {
    if !aligned(at, m, u64::from(access.bytes) * access.regs.len() as u64) {
        return None;
    }
    for (i, reg) in access.regs.iter().enumerate() {
        let skip = u64::from(access.bytes) * i as u64;
        let r = reg.index as usize;
        match (access.bytes, reg.class) {
            (4, Class::R32) => {
                let from = &frame.r32[r];
                each(m, |lane| span.store(at[lane].wrapping_add(skip), 4, from[lane].into()))?;
            }
            (8, Class::R64) => {
                let from = &frame.r64[r];
                each(m, |lane| span.store(at[lane].wrapping_add(skip), 8, from[lane]))?;
            }
            _ => each(m, |lane| {
                let v = value(frame, *reg, lane);
                span.store(at[lane].wrapping_add(skip), access.bytes, v)
            })?,
        }
    }
    Some(())
}

/// Lanes' stores of one word to shared memory.
#[inline(always)]
fn scatter_shared(shared: &mut [u8], frame: &Frame, at: &[u64; LANES], access: &Access, m: u32) -> Option<()> {
    let [reg] = access.regs.as_slice() else { return None };
    if access.bytes != 4 || reg.class != Class::R32 || !aligned(at, m, 4) {
        return None;
    }
    let from = &frame.r32[reg.index as usize];
    each(m, |lane| {
        let to = at[lane].wrapping_sub(SHARED_START) as usize;
        let word = shared.get_mut(to..to.checked_add(4)?)?;
        word.copy_from_slice(&from[lane].to_le_bytes());
        Some(())
    })
}
