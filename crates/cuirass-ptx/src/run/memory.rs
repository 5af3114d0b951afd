//! Loads and stores of a warp.

use super::block::Env;
use super::host_memory::Span;
use super::trap::{Trap, TrapCode};
use super::view::View;
use super::warp::Warp;
use crate::code::{
    Access, Address, Base, Class, LOCAL_BASE, LOCAL_START, MemSpace, NONE, PARAM_BASE, RegRef, SHARED_BASE,
    SHARED_START,
};
use crate::frame::{FULL, Frame, LANES};
use crate::ops::bits::within;

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
            for i in 0..LANES {
                out[i] = u64::from(base[i]).wrapping_add_signed(address.offset);
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
pub(crate) fn place(space: MemSpace, address: u64) -> Result<Place, TrapCode> {
    let offset = |base: u64, start: u64| {
        let at = address.wrapping_sub(base).wrapping_sub(start);
        usize::try_from(at).unwrap_or(usize::MAX)
    };
    Ok(match space {
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
    })
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

/// The region that holds every lane's access, if one does, and whether the lanes are side by
/// side.
#[inline(always)]
fn one_region(view: &mut View<'_>, at: &[u64; LANES], m: u32, size: u64) -> Option<(Span, bool)> {
    if m == FULL {
        let first = at[0];
        let mut off = 0;
        for i in 0..LANES {
            off |= at[i] ^ first.wrapping_add(size * i as u64);
        }
        if off == 0 && first & (size - 1) == 0 {
            return Some((view.find(first, size * LANES as u64)?, true));
        }
    }
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    for i in 0..LANES {
        let on = 0u64.wrapping_sub(u64::from(m >> i & 1));
        low = low.min(at[i] | !on);
        high = high.max(at[i] & on);
        bits |= at[i] & on;
    }
    if bits & (size - 1) != 0 || high - low > 1 << 40 {
        return None;
    }
    Some((view.find(low, high - low + size)?, false))
}

/// A load.
pub(crate) fn load(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, access: &Access, m: u32) -> Result<(), Trap> {
    env.view.refresh();
    let at = addresses(&warp.frames[index], &access.address);
    let count = access.regs.len() as u64;
    let size = u64::from(access.bytes) * count;
    let space = access.address.space;
    let global = space == MemSpace::Global || (space == MemSpace::Generic && lanes_below(&at, m, SHARED_BASE));
    if global && let Some((span, run)) = one_region(env.view, &at, m, size) {
        let frame = &mut warp.frames[index];
        if run
            && let [reg] = access.regs.as_slice()
            && reg.index != NONE
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
        if gather(frame, &span, &at, access, m).is_some() {
            return Ok(());
        }
    }
    if space == MemSpace::Shared && gather_shared(env.shared, &mut warp.frames[index], &at, access, m) {
        return Ok(());
    }
    for lane in lanes(m) {
        let refuse = |code| Trap::access(code, lane, at[lane], size as u32, false);
        if at[lane] & (size - 1) != 0 {
            return Err(refuse(TrapCode::MisalignedAddress));
        }
        let mut values = [0u64; 8];
        for (i, slot) in values.iter_mut().enumerate().take(access.regs.len()) {
            let address = at[lane].wrapping_add(u64::from(access.bytes) * i as u64);
            let place = place(space, address).map_err(refuse)?;
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

#[inline(always)]
fn lanes_below(at: &[u64; LANES], m: u32, bound: u64) -> bool {
    let mut high = 0;
    for i in 0..LANES {
        high = high.max(at[i] & 0u64.wrapping_sub(u64::from(m >> i & 1)));
    }
    high < bound
}

/// Lanes' loads from one region.
#[inline(always)]
fn gather(frame: &mut Frame, span: &Span, at: &[u64; LANES], access: &Access, m: u32) -> Option<()> {
    for (i, reg) in access.regs.iter().enumerate() {
        if reg.index == NONE {
            continue;
        }
        let skip = u64::from(access.bytes) * i as u64;
        let r = reg.index as usize;
        match (access.bytes, reg.class) {
            (4, Class::R32) => {
                let out = &mut frame.r32[r];
                for lane in lanes(m) {
                    out[lane] = span.load(at[lane] + skip, 4)? as u32;
                }
            }
            (8, Class::R64) => {
                let out = &mut frame.r64[r];
                for lane in lanes(m) {
                    out[lane] = span.load(at[lane] + skip, 8)?;
                }
            }
            _ => {
                for lane in lanes(m) {
                    let v = span.load(at[lane] + skip, access.bytes)?;
                    set(frame, *reg, lane, widen(v, access.bytes, access.signed));
                }
            }
        }
    }
    Some(())
}

/// Lanes' loads of 32-bit words from shared memory; `false` if the careful way has to be taken.
#[inline(always)]
fn gather_shared(shared: &[u8], frame: &mut Frame, at: &[u64; LANES], access: &Access, m: u32) -> bool {
    let count = access.regs.len() as u64;
    let size = u64::from(access.bytes) * count;
    let (mut high, mut bits) = (0, 0);
    for i in 0..LANES {
        let on = 0u64.wrapping_sub(u64::from(m >> i & 1));
        // Below the start of the window this wraps around and is too high.
        high = high.max(at[i].wrapping_sub(SHARED_START) & on);
        bits |= at[i] & on;
    }
    if access.bytes != 4 || bits & (size - 1) != 0 || high >= shared.len() as u64 {
        return false;
    }
    if shared.len() as u64 - high < size {
        return false;
    }
    for (i, reg) in access.regs.iter().enumerate() {
        if reg.index == NONE || reg.class != Class::R32 {
            return false;
        }
        let skip = 4 * i;
        let out = &mut frame.r32[reg.index as usize];
        let first = (at[0].wrapping_sub(SHARED_START)) as usize + skip;
        let mut apart = 0;
        for k in 0..LANES {
            apart |= at[k] ^ at[0];
        }
        if m == FULL && apart == 0 {
            // All lanes read one word.
            if let Some(v) = read(shared, first, 4) {
                *out = [v as u32; LANES];
                continue;
            }
        }
        for lane in lanes(m) {
            let from = at[lane].wrapping_sub(SHARED_START) as usize + skip;
            let Some(word) = shared.get(from..from + 4) else { return false };
            out[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        }
    }
    true
}

/// A store.
pub(crate) fn store(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, access: &Access, m: u32) -> Result<(), Trap> {
    env.view.refresh();
    let at = addresses(&warp.frames[index], &access.address);
    let count = access.regs.len() as u64;
    let size = u64::from(access.bytes) * count;
    let space = access.address.space;
    let global = space == MemSpace::Global || (space == MemSpace::Generic && lanes_below(&at, m, SHARED_BASE));
    if global
        && let Some((span, run)) = one_region(env.view, &at, m, size)
        && span.writable()
    {
        let frame = &warp.frames[index];
        if run && let [reg] = access.regs.as_slice() {
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
        if scatter(frame, &span, &at, access, m).is_some() {
            return Ok(());
        }
    }
    for lane in lanes(m) {
        let refuse = |code| Trap::access(code, lane, at[lane], size as u32, true);
        if at[lane] & (size - 1) != 0 {
            return Err(refuse(TrapCode::MisalignedAddress));
        }
        for (i, reg) in access.regs.iter().enumerate() {
            let address = at[lane].wrapping_add(u64::from(access.bytes) * i as u64);
            let place = place(space, address).map_err(refuse)?;
            let v = value(&warp.frames[index], *reg, lane);
            if write_lane(env, warp, lane, place, access.bytes, v).is_none() {
                return Err(refuse(TrapCode::IllegalAddress));
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn scatter(frame: &Frame, span: &Span, at: &[u64; LANES], access: &Access, m: u32) -> Option<()> {
    for lane in lanes(m) {
        for (i, reg) in access.regs.iter().enumerate() {
            let skip = u64::from(access.bytes) * i as u64;
            span.store(at[lane] + skip, access.bytes, value(frame, *reg, lane))?;
        }
    }
    Some(())
}
