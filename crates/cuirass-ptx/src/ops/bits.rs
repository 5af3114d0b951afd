//! Bit operations, carries, packing, predicates, and what else is neither integer nor float.

use super::Table;
use super::flags::IMM_SHIFT;
use super::shape::{bin, carry, each_ter, each_un, pred, quad, ter, test, un};
use crate::code::{LOCAL_BASE, PARAM_BASE, SHARED_BASE, WINDOW};

fn imm(flags: u32) -> u32 {
    flags >> IMM_SHIFT
}

/// The bit field of `a`, which has `width` bits, at `b`, `c` bits long.
#[inline(always)]
fn bfe(a: u64, b: u32, c: u32, width: u32, signed: bool) -> u64 {
    let (pos, len) = (b & 0xff, c & 0xff);
    // The field ends at the top of the value; beyond that there is its sign.
    let end = (pos + len).min(width);
    let last = (pos + len).saturating_sub(1).min(width - 1);
    let sign = 0u64.wrapping_sub(a >> last & 1);
    let have = end.saturating_sub(pos);
    let bits = if pos < 64 { a >> (pos & 63) } else { 0 };
    let ones = |n: u32| if n >= 64 { u64::MAX } else { (1u64 << (n & 63)) - 1 };
    let low = bits & ones(have);
    let fill = if signed && len != 0 { sign & !ones(have) } else { 0 };
    let v = low | fill;
    if width == 32 { v & 0xffff_ffff } else { v }
}

/// `a` put into `b` at `c`, `d` bits long.
#[inline(always)]
fn bfi(a: u64, b: u64, c: u32, d: u32, width: u32) -> u64 {
    let (pos, len) = (c & 0xff, d & 0xff);
    let ones = if len >= 64 { u64::MAX } else { (1u64 << (len & 63)) - 1 };
    let mask = if pos >= width { 0 } else { ones << (pos & 63) };
    let v = (b & !mask) | ((a << (pos & 63)) & mask);
    if width == 32 { v & 0xffff_ffff } else { v }
}

/// The place of the highest bit that is not the sign.
fn bfind(a: u64, width: u32, shift: bool) -> u32 {
    if a == 0 {
        return u32::MAX;
    }
    let at = 63 - a.leading_zeros();
    if shift { width - 1 - at } else { at }
}

/// A value with the sign taken out, for `bfind` of signed types.
fn magnitude(a: u64, width: u32) -> u64 {
    let ones = if width == 64 { u64::MAX } else { 0xffff_ffff };
    if a >> (width - 1) & 1 != 0 { !a & ones } else { a }
}

#[inline(always)]
fn prmt(a: u32, b: u32, selector: impl Fn(usize) -> u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    for i in 0..4 {
        let s = selector(i);
        let byte = (bytes >> (8 * (s & 7))) as u32 & 0xff;
        let sign = (byte >> 7) * 0xff;
        out |= (if s & 8 != 0 { sign } else { byte }) << (8 * i);
    }
    out
}

fn prmt_mode(a: u32, b: u32, c: u32, selectors: [[u8; 4]; 4]) -> u32 {
    let row = selectors[(c & 3) as usize];
    prmt(a, b, |i| u32::from(row[i]))
}

/// The n-th set bit from `base`.
fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    let mut left = i64::from(offset);
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let step = if left > 0 { 1 } else { -1 };
    let mut at = i64::from(base);
    while (0..32).contains(&at) {
        if mask >> at & 1 != 0 {
            left -= step;
            if left == 0 {
                return at as u32;
            }
        }
        at += step;
    }
    u32::MAX
}

fn bmsk(a: u32, b: u32, clamp: bool) -> u32 {
    let (pos, len) = if clamp { (a, b) } else { (a & 31, b & 31) };
    if pos > 31 || len == 0 {
        return 0;
    }
    let ones = if len > 31 { u32::MAX } else { (1 << len) - 1 };
    ones << pos
}

fn szext(a: u32, b: u32, signed: bool, clamp: bool) -> u32 {
    let n = if clamp { b.min(32) } else { b & 31 };
    if n == 0 {
        return 0;
    }
    let shift = 32 - n;
    if signed { (((a << shift) as i32) >> shift) as u32 } else { a << shift >> shift }
}

fn bytes_of(v: u32, signed: bool) -> [i32; 4] {
    v.to_le_bytes().map(|b| if signed { i32::from(b as i8) } else { i32::from(b) })
}

fn halves_of(v: u32, signed: bool) -> [i32; 2] {
    [v as u16, (v >> 16) as u16].map(|h| if signed { i32::from(h as i16) } else { i32::from(h) })
}

fn dp4a(a: u32, b: u32, c: u32, sa: bool, sb: bool) -> u32 {
    let (a, b) = (bytes_of(a, sa), bytes_of(b, sb));
    a.iter().zip(b).fold(c, |sum, (x, y)| sum.wrapping_add((x * y) as u32))
}

fn dp2a(a: u32, b: u32, c: u32, sa: bool, sb: bool, high: bool) -> u32 {
    let (a, b) = (halves_of(a, sa), bytes_of(b, sb));
    let from = if high { 2 } else { 0 };
    (0..2).fold(c, |sum, i| sum.wrapping_add(a[i].wrapping_mul(b[from + i]) as u32))
}

fn wide24(a: u32, b: u32, signed: bool) -> i64 {
    if signed {
        i64::from((a << 8) as i32 >> 8) * i64::from((b << 8) as i32 >> 8)
    } else {
        i64::from(a & 0xff_ffff) * i64::from(b & 0xff_ffff)
    }
}

/// A barrier object's word: the arrivals that are pending, those of every phase, the bytes that
/// are pending, and the parity of the phase.
pub(crate) const COUNT: u64 = 0xf_ffff;
pub(crate) const EXPECTED_SHIFT: u32 = 20;
pub(crate) const PENDING_TX_SHIFT: u32 = 40;
pub(crate) const PHASE: u64 = 1 << 63;

pub(crate) fn rows(t: &mut Table) {
    t.row("mbarrier.pending", "Wl", |r, x, m| un(r, x, m, |a: u64| (a & COUNT) as u32));
    counts(t);
    fields(t);
    shifts(t);
    dots(t);
    carries(t);
    packing(t);
    predicates(t);
    addresses(t);
}

fn counts(t: &mut Table) {
    t.row("popc.b32", "Ww", |r, x, m| un(r, x, m, |a: u32| a.count_ones()));
    t.row("popc.b64", "Wl", |r, x, m| un(r, x, m, |a: u64| a.count_ones()));
    t.row("clz.b32", "Ww", |r, x, m| un(r, x, m, |a: u32| a.leading_zeros()));
    t.row("clz.b64", "Wl", |r, x, m| un(r, x, m, |a: u64| a.leading_zeros()));
    t.row("brev.b32", "Ww", |r, x, m| un(r, x, m, |a: u32| a.reverse_bits()));
    t.row("brev.b64", "Ll", |r, x, m| un(r, x, m, |a: u64| a.reverse_bits()));
    t.row("bfind.u32", "Ww", |r, x, m| un(r, x, m, |a: u32| bfind(a.into(), 32, false)));
    t.row("bfind.shiftamt.u32", "Ww", |r, x, m| un(r, x, m, |a: u32| bfind(a.into(), 32, true)));
    t.row("bfind.u64", "Wl", |r, x, m| un(r, x, m, |a: u64| bfind(a, 64, false)));
    t.row("bfind.shiftamt.u64", "Wl", |r, x, m| un(r, x, m, |a: u64| bfind(a, 64, true)));
    t.row("bfind.s32", "Ww", |r, x, m| un(r, x, m, |a: u32| bfind(magnitude(a.into(), 32), 32, false)));
    t.row("bfind.shiftamt.s32", "Ww", |r, x, m| un(r, x, m, |a: u32| bfind(magnitude(a.into(), 32), 32, true)));
    t.row("bfind.s64", "Wl", |r, x, m| un(r, x, m, |a: u64| bfind(magnitude(a, 64), 64, false)));
    t.row("bfind.shiftamt.s64", "Wl", |r, x, m| un(r, x, m, |a: u64| bfind(magnitude(a, 64), 64, true)));
    t.row("fns.b32", "Wwww", |r, x, m| each_ter(r, x, m, |a: u32, b: u32, c: u32, _| fns(a, b, c as i32)));
}

fn fields(t: &mut Table) {
    t.row("bfe.u32", "Wwww", |r, x, m| ter(r, x, m, |a: u32, b: u32, c: u32| bfe(a.into(), b, c, 32, false) as u32));
    t.row("bfe.s32", "Wwww", |r, x, m| ter(r, x, m, |a: u32, b: u32, c: u32| bfe(a.into(), b, c, 32, true) as u32));
    t.row("bfe.u64", "Llww", |r, x, m| ter(r, x, m, |a: u64, b: u32, c: u32| bfe(a, b, c, 64, false)));
    t.row("bfe.s64", "Llww", |r, x, m| ter(r, x, m, |a: u64, b: u32, c: u32| bfe(a, b, c, 64, true)));
    t.row("bfi.b32", "Wwwww", |r, x, m| {
        quad(r, x, m, |a: u32, b: u32, c: u32, d: u32| bfi(a.into(), b.into(), c, d, 32) as u32)
    });
    t.row("bfi.b64", "Lllww", |r, x, m| quad(r, x, m, |a: u64, b: u64, c: u32, d: u32| bfi(a, b, c, d, 64)));
    t.row("bmsk.clamp.b32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| bmsk(a, b, true)));
    t.row("bmsk.wrap.b32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| bmsk(a, b, false)));
    t.row("szext.clamp.u32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| szext(a, b, false, true)));
    t.row("szext.clamp.s32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| szext(a, b, true, true)));
    t.row("szext.wrap.u32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| szext(a, b, false, false)));
    t.row("szext.wrap.s32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| szext(a, b, true, false)));
    t.row("lop3.b32", "Wwwwi", |r, x, m| {
        let lut = imm(x.flags);
        ter(r, x, m, |a: u32, b: u32, c: u32| {
            let mut v = 0;
            for i in 0..8u32 {
                let on = 0u32.wrapping_sub(lut >> i & 1);
                let pick = |v: u32, bit: u32| if i & bit != 0 { v } else { !v };
                v |= pick(a, 4) & pick(b, 2) & pick(c, 1) & on;
            }
            v
        })
    });
    t.row("prmt.b32", "Wwww", |r, x, m| ter(r, x, m, |a: u32, b: u32, c: u32| prmt(a, b, |i| c >> (4 * i) & 15)));
    t.row("prmt.b32.f4e", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| {
            prmt_mode(a, b, c, [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]])
        })
    });
    t.row("prmt.b32.b4e", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| {
            prmt_mode(a, b, c, [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]])
        })
    });
    t.row("prmt.b32.rc8", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| prmt_mode(a, b, c, [[0; 4], [1; 4], [2; 4], [3; 4]]))
    });
    t.row("prmt.b32.ecl", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| {
            prmt_mode(a, b, c, [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]])
        })
    });
    t.row("prmt.b32.ecr", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| {
            prmt_mode(a, b, c, [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]])
        })
    });
    t.row("prmt.b32.rc16", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| {
            prmt_mode(a, b, c, [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]])
        })
    });
}

fn shifts(t: &mut Table) {
    t.row("shf.l.wrap.b32", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32)
    });
    t.row("shf.l.clamp.b32", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| ((u64::from(b) << 32 | u64::from(a)) << c.min(32) >> 32) as u32)
    });
    t.row("shf.r.wrap.b32", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| ((u64::from(b) << 32 | u64::from(a)) >> (c & 31)) as u32)
    });
    t.row("shf.r.clamp.b32", "Wwww", |r, x, m| {
        ter(r, x, m, |a: u32, b: u32, c: u32| ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32)
    });
}

fn dots(t: &mut Table) {
    t.row("dp4a.u32.u32", "Wwww", |r, x, m| ter(r, x, m, |a, b, c| dp4a(a, b, c, false, false)));
    t.row("dp4a.u32.s32", "Wwww", |r, x, m| ter(r, x, m, |a, b, c| dp4a(a, b, c, false, true)));
    t.row("dp4a.s32.u32", "Wwww", |r, x, m| ter(r, x, m, |a, b, c| dp4a(a, b, c, true, false)));
    t.row("dp4a.s32.s32", "Wwww", |r, x, m| ter(r, x, m, |a, b, c| dp4a(a, b, c, true, true)));
    macro_rules! dp2a {
        ($key:literal, $sa:literal, $sb:literal, $high:literal) => {
            t.row($key, "Wwww", |r, x, m| ter(r, x, m, |a, b, c| dp2a(a, b, c, $sa, $sb, $high)));
        };
    }
    dp2a!("dp2a.lo.u32.u32", false, false, false);
    dp2a!("dp2a.lo.u32.s32", false, true, false);
    dp2a!("dp2a.lo.s32.u32", true, false, false);
    dp2a!("dp2a.lo.s32.s32", true, true, false);
    dp2a!("dp2a.hi.u32.u32", false, false, true);
    dp2a!("dp2a.hi.u32.s32", false, true, true);
    dp2a!("dp2a.hi.s32.u32", true, false, true);
    dp2a!("dp2a.hi.s32.s32", true, true, true);
    t.row("mul24.lo.u32", "Www", |r, x, m| bin(r, x, m, |a, b| wide24(a, b, false) as u32));
    t.row("mul24.lo.s32", "Www", |r, x, m| bin(r, x, m, |a, b| wide24(a, b, true) as u32));
    t.row("mul24.hi.u32", "Www", |r, x, m| bin(r, x, m, |a, b| (wide24(a, b, false) >> 16) as u32));
    t.row("mul24.hi.s32", "Www", |r, x, m| bin(r, x, m, |a, b| (wide24(a, b, true) >> 16) as u32));
    t.row("mad24.lo.u32", "Wwww", |r, x, m| ter(r, x, m, |a, b, c: u32| (wide24(a, b, false) as u32).wrapping_add(c)));
    t.row("mad24.lo.s32", "Wwww", |r, x, m| ter(r, x, m, |a, b, c: u32| (wide24(a, b, true) as u32).wrapping_add(c)));
    t.row("mad24.hi.u32", "Wwww", |r, x, m| {
        ter(r, x, m, |a, b, c: u32| ((wide24(a, b, false) >> 16) as u32).wrapping_add(c))
    });
    t.flag_row(
        "mad24.hi.s32",
        "Wwww",
        super::flags::SAT,
        |r, x, m| ter(r, x, m, |a, b, c: u32| ((wide24(a, b, true) >> 16) as u32).wrapping_add(c)),
        |r, x, m| ter(r, x, m, |a, b, c: u32| ((wide24(a, b, true) >> 16) as i32).saturating_add(c as i32) as u32),
    );
}

fn carries(t: &mut Table) {
    macro_rules! chain {
        ($w:literal, $u:ty, $d:ty, $s:ty, $two:literal, $three:literal) => {
            let keys = |op: &str| format!("{op}.u{} {op}.s{}", $w, $w);
            t.row(&keys("add.cc"), $two, |r, x, m| carry(r, x, m, true, |a: $u, b, _, _| a.overflowing_add(b)));
            t.row(&keys("addc"), $two, |r, x, m| carry(r, x, m, false, |a: $u, b, _, k| a.carrying_sum(b, k)));
            t.row(&keys("addc.cc"), $two, |r, x, m| carry(r, x, m, true, |a: $u, b, _, k| a.carrying_sum(b, k)));
            // A subtraction adds the complement and one, so that the flag means "no borrow":
            // code of the compiler reads it with `addc` after `subc.cc`.
            t.row(&keys("sub.cc"), $two, |r, x, m| carry(r, x, m, true, |a: $u, b, _, _| a.carrying_sum(!b, true)));
            t.row(&keys("subc"), $two, |r, x, m| carry(r, x, m, false, |a: $u, b, _, k| a.carrying_sum(!b, k)));
            t.row(&keys("subc.cc"), $two, |r, x, m| carry(r, x, m, true, |a: $u, b, _, k| a.carrying_sum(!b, k)));
            t.row(&keys("mad.lo.cc"), $three, |r, x, m| {
                carry(r, x, m, true, |a: $u, b, c, _| a.wrapping_mul(b).overflowing_add(c))
            });
            t.row(&keys("madc.lo"), $three, |r, x, m| {
                carry(r, x, m, false, |a: $u, b, c, k| a.wrapping_mul(b).carrying_sum(c, k))
            });
            t.row(&keys("madc.lo.cc"), $three, |r, x, m| {
                carry(r, x, m, true, |a: $u, b, c, k| a.wrapping_mul(b).carrying_sum(c, k))
            });
            macro_rules! high {
                ($sign:literal, $h:expr) => {
                    t.row(concat!("mad.hi.cc.", $sign, $w), $three, |r, x, m| {
                        carry(r, x, m, true, |a: $u, b, c, _| $h(a, b).overflowing_add(c))
                    });
                    t.row(concat!("madc.hi.", $sign, $w), $three, |r, x, m| {
                        carry(r, x, m, false, |a: $u, b, c, k| $h(a, b).carrying_sum(c, k))
                    });
                    t.row(concat!("madc.hi.cc.", $sign, $w), $three, |r, x, m| {
                        carry(r, x, m, true, |a: $u, b, c, k| $h(a, b).carrying_sum(c, k))
                    });
                };
            }
            high!("u", |a: $u, b: $u| ((a as $d * b as $d) >> <$u>::BITS) as $u);
            high!("s", |a: $u, b: $u| { ((a as $s as i128 * b as $s as i128) >> <$u>::BITS) as $u });
        };
    }
    chain!("32", u32, u64, i32, "Www", "Wwww");
    chain!("64", u64, u128, i64, "Lll", "Llll");
}

/// Sums of three with carry; the standard library's are not stable.
trait Chain: Sized {
    fn carrying_sum(self, b: Self, carry: bool) -> (Self, bool);
}

macro_rules! chain_impl {
    ($u:ty) => {
        impl Chain for $u {
            fn carrying_sum(self, b: Self, carry: bool) -> (Self, bool) {
                let (v, c) = self.overflowing_add(b);
                let (v, d) = v.overflowing_add(carry.into());
                (v, c || d)
            }
        }
    };
}
chain_impl!(u32);
chain_impl!(u64);

/// Rows that only lowering names: the parts of vector moves.
fn packing(t: &mut Table) {
    t.row("pack.2x8", "Hhh", |r, x, m| bin(r, x, m, |a: u16, b: u16| (a & 0xff) | b << 8));
    t.row("pack.2x16", "Whh", |r, x, m| bin(r, x, m, |a: u16, b: u16| u32::from(a) | u32::from(b) << 16));
    t.row("pack.4x8", "Whhhh", |r, x, m| {
        quad(r, x, m, |a: u16, b: u16, c: u16, d: u16| u32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]))
    });
    t.row("pack.2x32", "Lww", |r, x, m| bin(r, x, m, |a: u32, b: u32| u64::from(a) | u64::from(b) << 32));
    t.row("pack.4x16", "Lhhhh", |r, x, m| {
        quad(r, x, m, |a: u16, b: u16, c: u16, d: u16| {
            u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
        })
    });
    t.row("part.8.16", "Hhi", |r, x, m| {
        let k = imm(x.flags);
        un(r, x, m, |a: u16| a >> k & 0xff)
    });
    t.row("part.8.32", "Hwi", |r, x, m| {
        let k = imm(x.flags);
        un(r, x, m, |a: u32| (a >> k) as u16 & 0xff)
    });
    t.row("part.16.32", "Hwi", |r, x, m| {
        let k = imm(x.flags);
        un(r, x, m, |a: u32| (a >> k) as u16)
    });
    t.row("part.16.64", "Hli", |r, x, m| {
        let k = imm(x.flags);
        un(r, x, m, |a: u64| (a >> k) as u16)
    });
    t.row("part.32.64", "Wli", |r, x, m| {
        let k = imm(x.flags);
        un(r, x, m, |a: u64| (a >> k) as u32)
    });
    t.row("copysign.f32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| (a & 1 << 31) | (b & !(1 << 31))));
    t.row("copysign.f64", "Lll", |r, x, m| bin(r, x, m, |a: u64, b: u64| (a & 1 << 63) | (b & !(1 << 63))));
    macro_rules! slct {
        ($keys:literal, $shape:literal, $u:ty) => {
            t.row($keys, concat!($shape, "w"), |r, x, m| {
                ter(r, x, m, |a: $u, b: $u, c: u32| if (c as i32) >= 0 { a } else { b })
            });
        };
        (@f $keys:literal, $shape:literal, $u:ty) => {
            t.flag_row(
                $keys,
                concat!($shape, "w"),
                super::flags::FTZ,
                |r, x, m| ter(r, x, m, |a: $u, b: $u, c: u32| if f32::from_bits(c) >= 0.0 { a } else { b }),
                |r, x, m| {
                    ter(
                        r,
                        x,
                        m,
                        |a: $u, b: $u, c: u32| {
                            if f32::from_bits(super::float::flush32(c)) >= 0.0 { a } else { b }
                        },
                    )
                },
            );
        };
    }
    slct!("slct.b16.s32 slct.u16.s32 slct.s16.s32", "Hhh", u16);
    slct!("slct.b32.s32 slct.u32.s32 slct.s32.s32 slct.f32.s32", "Www", u32);
    slct!("slct.b64.s32 slct.u64.s32 slct.s64.s32 slct.f64.s32", "Lll", u64);
    slct!(@f "slct.b16.f32 slct.u16.f32 slct.s16.f32", "Hhh", u16);
    slct!(@f "slct.b32.f32 slct.u32.f32 slct.s32.f32 slct.f32.f32", "Www", u32);
    slct!(@f "slct.b64.f32 slct.u64.f32 slct.s64.f32 slct.f64.f32", "Lll", u64);
}

fn predicates(t: &mut Table) {
    t.row("mov.pred", "Pp", |r, x, m| pred(r, x, m, |a, _| a));
    t.row("not.pred", "Pp", |r, x, m| pred(r, x, m, |a, _| !a));
    t.row("and.pred", "Ppp", |r, x, m| pred(r, x, m, |a, b| a & b));
    t.row("or.pred", "Ppp", |r, x, m| pred(r, x, m, |a, b| a | b));
    t.row("xor.pred", "Ppp", |r, x, m| pred(r, x, m, |a, b| a ^ b));
    t.row("testp.finite.f32", "Pw", |r, x, m| test(r, x, m, |a: u32| f32::from_bits(a).is_finite()));
    t.row("testp.infinite.f32", "Pw", |r, x, m| test(r, x, m, |a: u32| f32::from_bits(a).is_infinite()));
    t.row("testp.number.f32", "Pw", |r, x, m| test(r, x, m, |a: u32| !f32::from_bits(a).is_nan()));
    t.row("testp.notanumber.f32", "Pw", |r, x, m| test(r, x, m, |a: u32| f32::from_bits(a).is_nan()));
    t.row("testp.normal.f32", "Pw", |r, x, m| test(r, x, m, |a: u32| f32::from_bits(a).is_normal() || a << 1 == 0));
    t.row("testp.subnormal.f32", "Pw", |r, x, m| test(r, x, m, |a: u32| f32::from_bits(a).is_subnormal()));
    t.row("testp.finite.f64", "Pl", |r, x, m| test(r, x, m, |a: u64| f64::from_bits(a).is_finite()));
    t.row("testp.infinite.f64", "Pl", |r, x, m| test(r, x, m, |a: u64| f64::from_bits(a).is_infinite()));
    t.row("testp.number.f64", "Pl", |r, x, m| test(r, x, m, |a: u64| !f64::from_bits(a).is_nan()));
    t.row("testp.notanumber.f64", "Pl", |r, x, m| test(r, x, m, |a: u64| f64::from_bits(a).is_nan()));
    t.row("testp.normal.f64", "Pl", |r, x, m| test(r, x, m, |a: u64| f64::from_bits(a).is_normal() || a << 1 == 0));
    t.row("testp.subnormal.f64", "Pl", |r, x, m| test(r, x, m, |a: u64| f64::from_bits(a).is_subnormal()));
}

/// Whether a generic address lies in a window.
pub(crate) fn within(address: u64, base: u64) -> bool {
    address.wrapping_sub(base) < WINDOW
}

fn addresses(t: &mut Table) {
    t.row("isspacep.shared isspacep.shared::cta isspacep.shared::cluster", "Pl", |r, x, m| {
        test(r, x, m, |a: u64| within(a, SHARED_BASE))
    });
    t.row("isspacep.local", "Pl", |r, x, m| test(r, x, m, |a: u64| within(a, LOCAL_BASE)));
    t.row("isspacep.param isspacep.param::entry", "Pl", |r, x, m| test(r, x, m, |a: u64| within(a, PARAM_BASE)));
    t.row("isspacep.global", "Pl", |r, x, m| {
        test(r, x, m, |a: u64| !within(a, SHARED_BASE) && !within(a, LOCAL_BASE) && !within(a, PARAM_BASE))
    });
    // Constant variables live in global memory here, and no address says which it was.
    t.row("isspacep.const", "Pl", |r, x, m| test(r, x, m, |_: u64| false));
    t.row("window.shared", "Ll", |r, x, m| each_un(r, x, m, |a: u64, _| a.wrapping_add(SHARED_BASE)));
    t.row("window.local", "Ll", |r, x, m| each_un(r, x, m, |a: u64, _| a.wrapping_add(LOCAL_BASE)));
    t.row("window.param", "Ll", |r, x, m| each_un(r, x, m, |a: u64, _| a.wrapping_add(PARAM_BASE)));
    t.row("unwindow.shared", "Ll", |r, x, m| each_un(r, x, m, |a: u64, _| a.wrapping_sub(SHARED_BASE)));
    t.row("unwindow.local", "Ll", |r, x, m| each_un(r, x, m, |a: u64, _| a.wrapping_sub(LOCAL_BASE)));
    t.row("unwindow.param", "Ll", |r, x, m| each_un(r, x, m, |a: u64, _| a.wrapping_sub(PARAM_BASE)));
    // A 32-bit address of a window, widened.
    t.row("widen.32", "Lw", |r, x, m| un(r, x, m, |a: u32| u64::from(a)));
    t.row("narrow.32", "Wl", |r, x, m| un(r, x, m, |a: u64| a as u32));
    t.row("vabsdiff4.u32.u32.u32", "Wwww", |r, x, m| {
        each_ter(r, x, m, |a: u32, b: u32, _c: u32, _| {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            u32::from_le_bytes([0, 1, 2, 3].map(|i: usize| a[i].abs_diff(b[i])))
        })
    });
    t.row("vabsdiff4.u32.u32.u32.add", "Wwww", |r, x, m| {
        each_ter(r, x, m, |a: u32, b: u32, c: u32, _| {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            (0..4).fold(c, |s: u32, i: usize| s.wrapping_add(a[i].abs_diff(b[i]).into()))
        })
    });
}
