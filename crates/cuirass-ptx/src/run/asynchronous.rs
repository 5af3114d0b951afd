//! Barriers that are objects in memory, and copies from global to shared memory.

use super::block::Env;
use super::memory::{addresses, lanes, place, read_lane, watch, write_lane};
use super::trap::{Trap, TrapCode};
use super::warp::Warp;
use crate::code::{CopyAsync, Mbar, MbarOp, NONE};
use crate::ops::bits::{COUNT, EXPECTED_SHIFT, PENDING_TX_SHIFT, PHASE};
use crate::watch::Touch;

/// Bytes that are still expected, as a signed number of 20 bits.
const TX: u64 = 0xf_ffff;

/// A phase ends when nobody and no byte is pending.
fn complete(mut word: u64) -> u64 {
    if word & COUNT == 0 && word >> PENDING_TX_SHIFT & TX == 0 {
        word ^= PHASE;
        word |= word >> EXPECTED_SHIFT & COUNT;
    }
    word
}

fn add_tx(word: u64, bytes: u64) -> u64 {
    let tx = (word >> PENDING_TX_SHIFT).wrapping_add(bytes) & TX;
    (word & !(TX << PENDING_TX_SHIFT)) | tx << PENDING_TX_SHIFT
}

/// An instruction of a barrier object. Its word is this interpreter's own: the arrivals that are
/// pending, those of every phase, the bytes that are pending, and the phase's parity.
pub(crate) fn mbarrier(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, mbar: &Mbar, m: u32) -> Result<(), Trap> {
    let at = addresses(&warp.frames[index], &mbar.address);
    for lane in lanes(m) {
        let refuse = |code| Trap::access(code, lane, at[lane], 8, true);
        if at[lane] & 7 != 0 {
            return Err(refuse(TrapCode::MisalignedAddress));
        }
        let place = place(mbar.address.space, at[lane]);
        let Some(word) = read_lane(env, warp, lane, place, 8) else {
            return Err(refuse(TrapCode::IllegalAddress));
        };
        let frame = &mut warp.frames[index];
        let operand = |reg: u32, other: u64| {
            if reg == NONE { other } else { frame.r32[reg as usize][lane].into() }
        };
        let count = operand(mbar.count, 1);
        let bytes = operand(mbar.bytes, 0);
        let new = match mbar.op {
            MbarOp::Init => {
                if count == 0 || count > COUNT {
                    return Err(Trap::new(TrapCode::IllegalInstruction, 1 << lane));
                }
                count | count << EXPECTED_SHIFT
            }
            MbarOp::Inval => 0,
            MbarOp::ExpectTx => add_tx(word, bytes),
            MbarOp::CompleteTx => complete(add_tx(word, bytes.wrapping_neg())),
            MbarOp::Arrive | MbarOp::ArriveDrop => {
                if count == 0 || count > word & COUNT {
                    // More arrivals than are pending: hardware's state is lost, too.
                    return Err(Trap::new(TrapCode::IllegalInstruction, 1 << lane));
                }
                let mut new = add_tx(word, bytes) - count;
                if mbar.op == MbarOp::ArriveDrop {
                    new -= count << EXPECTED_SHIFT;
                }
                if mbar.dest != NONE {
                    frame.r64[mbar.dest as usize][lane] = word;
                }
                complete(new)
            }
            MbarOp::Test | MbarOp::TestParity => {
                let before = if mbar.op == MbarOp::Test {
                    frame.r64[mbar.state as usize][lane] & PHASE != 0
                } else {
                    frame.r32[mbar.state as usize][lane] & 1 != 0
                };
                let done = (word & PHASE != 0) != before;
                crate::ops::shape::put_p(frame, mbar.dest, 1 << lane, if done { u32::MAX } else { 0 });
                continue;
            }
        };
        if write_lane(env, warp, lane, place, 8, new).is_none() {
            return Err(refuse(TrapCode::IllegalAddress));
        }
    }
    Ok(())
}

/// A copy, done at once; what the source lacks is zero.
pub(crate) fn copy(env: &mut Env<'_, '_>, warp: &mut Warp, index: usize, copy: &CopyAsync, m: u32) -> Result<(), Trap> {
    env.view.refresh();
    let from = addresses(&warp.frames[index], &copy.from);
    let to = addresses(&warp.frames[index], &copy.to);
    watch(env, copy.from.space, &from, m, copy.bytes.into(), Touch::Read, false);
    watch(env, copy.to.space, &to, m, copy.bytes.into(), Touch::Write, false);
    let align = u64::from(copy.bytes) - 1;
    for lane in lanes(m) {
        let refuse = |code, write| {
            let at = if write { to[lane] } else { from[lane] };
            Trap::access(code, lane, at, copy.bytes, write)
        };
        if (from[lane] | to[lane]) & align != 0 {
            return Err(refuse(TrapCode::MisalignedAddress, from[lane] & align == 0));
        }
        let frame = &warp.frames[index];
        let mut have = copy.bytes;
        if copy.have != NONE {
            have = have.min(frame.r32[copy.have as usize][lane]);
        }
        if copy.ignore != NONE && frame.p[copy.ignore as usize] >> lane & 1 != 0 {
            have = 0;
        }
        for offset in 0..copy.bytes {
            let offset64 = u64::from(offset);
            let byte = if offset < have {
                let source = place(copy.from.space, from[lane].wrapping_add(offset64));
                read_lane(env, warp, lane, source, 1)
            } else {
                Some(0)
            };
            let Some(byte) = byte else {
                return Err(refuse(TrapCode::IllegalAddress, false));
            };
            let target = place(copy.to.space, to[lane].wrapping_add(offset64));
            if write_lane(env, warp, lane, target, 1, byte).is_none() {
                return Err(refuse(TrapCode::IllegalAddress, true));
            }
        }
    }
    Ok(())
}
