//! Arithmetic of `f32` and `f64`.

use super::flags::{ABS, FTZ, NAN, RM, ROUND, RP, SAT, XORSIGN};
use crate::soft::Round;

/// The NaN of `f32` arithmetic.
pub(crate) const NAN32: u32 = 0x7fff_ffff;

/// A result with hardware's NaN.
#[inline(always)]
pub(crate) fn out32(v: f32) -> u32 {
    if v.is_nan() { NAN32 } else { v.to_bits() }
}

#[inline(always)]
pub(crate) fn f(a: u32) -> f32 {
    f32::from_bits(a)
}

#[inline(always)]
pub(crate) fn g(a: u64) -> f64 {
    f64::from_bits(a)
}

/// A subnormal becomes zero of its sign.
#[inline(always)]
pub(crate) fn flush32(a: u32) -> u32 {
    if a & 0x7f80_0000 == 0 { a & 0x8000_0000 } else { a }
}

/// Input and output of an instruction with flags.
#[inline(always)]
pub(crate) fn in32(a: u32, flags: u32) -> u32 {
    if flags & FTZ != 0 { flush32(a) } else { a }
}

/// Flushes and clamps a result.
#[inline(always)]
pub(crate) fn finish32(mut v: u32, flags: u32) -> u32 {
    if flags & FTZ != 0 {
        v = flush32(v);
    }
    if flags & SAT != 0 {
        let x = f(v);
        v = if x > 0.0 { x.min(1.0).to_bits() } else { 0 };
    }
    v
}

/// `s + lost` as `f32` in a direction other than nearest. `lost` has to be right in its sign only,
/// unless `s` is an `f32` it may be anything.
#[inline(always)]
fn directed32(s: f64, lost: f64, flags: u32) -> u32 {
    let near = s as f32;
    let wide = f64::from(near);
    let same = wide == s;
    // Which side of `near` the exact value is on.
    let above = if same { lost > 0.0 } else { s > wide };
    let below = if same { lost < 0.0 } else { s < wide };
    let bits = near.to_bits();
    let negative = bits >> 31 != 0;
    let (up, down) = if negative { (u32::MAX, 1) } else { (1, u32::MAX) };
    let step = match flags & ROUND {
        RM => {
            if below {
                down
            } else {
                0
            }
        }
        RP => {
            if above {
                up
            } else {
                0
            }
        }
        // Towards zero: what lies beyond the exact value comes back by one.
        _ => {
            if (below && !negative) || (above && negative) {
                u32::MAX
            } else {
                0
            }
        }
    };
    if s.is_nan() { NAN32 } else { bits.wrapping_add(step) }
}

/// `p + c`, where a sum of zero may have a sign.
#[inline(always)]
fn directed_sum32(p: f64, c: f64, flags: u32) -> u32 {
    let s = p + c;
    let back = s - p;
    let lost = (p - (s - back)) + (c - back);
    let v = directed32(s, lost, flags);
    let opposite = p.is_sign_negative() != c.is_sign_negative();
    if s == 0.0 && opposite && flags & ROUND == RM { 0x8000_0000 } else { v }
}

/// `a + b` in the direction of the flags.
#[inline(always)]
pub(crate) fn add32(a: u32, b: u32, flags: u32) -> u32 {
    let (a, b) = (f(in32(a, flags)), f(in32(b, flags)));
    let v = if flags & ROUND == 0 { out32(a + b) } else { directed_sum32(a.into(), b.into(), flags) };
    finish32(v, flags)
}

#[inline(always)]
pub(crate) fn mul32(a: u32, b: u32, flags: u32) -> u32 {
    let (a, b) = (f(in32(a, flags)), f(in32(b, flags)));
    let v = if flags & ROUND == 0 { out32(a * b) } else { directed32(f64::from(a) * f64::from(b), 0.0, flags) };
    finish32(v, flags)
}

#[inline(always)]
pub(crate) fn fma32(a: u32, b: u32, c: u32, flags: u32) -> u32 {
    let (a, b, c) = (f(in32(a, flags)), f(in32(b, flags)), f(in32(c, flags)));
    let v = if flags & ROUND == 0 {
        out32(a.mul_add(b, c))
    } else {
        directed_sum32(f64::from(a) * f64::from(b), c.into(), flags)
    };
    finish32(v, flags)
}

#[inline(always)]
pub(crate) fn div32(a: u32, b: u32, flags: u32) -> u32 {
    let (a, b) = (f(in32(a, flags)), f(in32(b, flags)));
    let v = if flags & ROUND == 0 {
        out32(a / b)
    } else {
        let (a, b) = (f64::from(a), f64::from(b));
        let s = a / b;
        // The remainder, with the quotient's side of the exact value as its sign.
        let lost = (-s).mul_add(b, a) * 1f64.copysign(b);
        directed32(s, lost, flags)
    };
    finish32(v, flags)
}

#[inline(always)]
pub(crate) fn sqrt32(a: u32, flags: u32) -> u32 {
    let a = f(in32(a, flags));
    let v = if flags & ROUND == 0 {
        out32(a.sqrt())
    } else {
        let a = f64::from(a);
        let s = a.sqrt();
        directed32(s, (-s).mul_add(s, a), flags)
    };
    finish32(v, flags)
}

/// A NaN operand is the result, quieted; a made NaN is hardware's. Which of several NaNs it is
/// has to be said with [`prefer64`].
#[inline(always)]
pub(crate) fn out64(v: f64) -> u64 {
    v.to_bits()
}

/// The result `v` unless the operand `b` is a NaN, which goes before the others: sums, products,
/// minimum and maximum look at the second operand first, `fma` at the second, the third, the first.
#[inline(always)]
pub(crate) fn prefer64(b: u64, v: u64) -> u64 {
    if g(b).is_nan() { b | QUIET64 } else { v }
}

/// A result in the direction of the flags, from the nearest one and what that lost; `soft` where
/// the loss may not be exact.
#[inline(always)]
pub(crate) fn directed64(flags: u32, near: f64, lost: f64, safe: bool, soft: impl Fn(Round) -> u64) -> u64 {
    if flags & ROUND == 0 || near.is_nan() {
        return out64(near);
    }
    if !(safe && tame(near)) {
        return soft(Round::of(flags));
    }
    let (up, down) = if near < 0.0 { (u64::MAX, 1) } else { (1, u64::MAX) };
    let step = match flags & ROUND {
        RM => {
            if lost < 0.0 {
                down
            } else {
                0
            }
        }
        RP => {
            if lost > 0.0 {
                up
            } else {
                0
            }
        }
        _ => {
            if (lost < 0.0 && near > 0.0) || (lost > 0.0 && near < 0.0) {
                u64::MAX
            } else {
                0
            }
        }
    };
    near.to_bits().wrapping_add(step)
}

/// Neither so small nor so large that remainders leave the format.
#[inline(always)]
pub(crate) fn tame(v: f64) -> bool {
    let a = v.abs();
    a > 1e-250 && a < 1e250
}

/// On which side of the exact quotient the nearest one is.
#[inline(always)]
pub(crate) fn rest(a: f64, b: f64) -> f64 {
    (-(a / b)).mul_add(b, a) * 1f64.copysign(b)
}

/// On which side of the exact root the nearest one is.
#[inline(always)]
pub(crate) fn rest_sqrt(a: f64) -> f64 {
    let s = a.sqrt();
    (-s).mul_add(s, a)
}

/// What `a + b` loses.
#[inline(always)]
pub(crate) fn lost_sum(a: f64, b: f64) -> f64 {
    let s = a + b;
    let back = s - a;
    (a - (s - back)) + (b - back)
}

/// The smaller of two; `MAX` the larger.
#[inline(always)]
pub(crate) fn pick32<const MAX: bool>(a: u32, b: u32, flags: u32) -> u32 {
    let (mut a, mut b) = (in32(a, flags), in32(b, flags));
    let sign = (a ^ b) & 0x8000_0000;
    if flags & ABS != 0 {
        a &= 0x7fff_ffff;
        b &= 0x7fff_ffff;
    }
    let (x, y) = (f(a), f(b));
    let v = if x.is_nan() || y.is_nan() {
        if flags & NAN != 0 || (x.is_nan() && y.is_nan()) {
            return NAN32;
        }
        if x.is_nan() { b } else { a }
    } else {
        // Signed magnitude to an order in which -0 is below +0.
        let key = |v: u32| (v as i32) ^ (((v as i32) >> 31) as u32 >> 1) as i32;
        if (key(a) < key(b)) != MAX { a } else { b }
    };
    if flags & XORSIGN != 0 { (v & 0x7fff_ffff) | sign } else { v }
}

/// The bit that makes a NaN of `f64` quiet.
const QUIET64: u64 = 1 << 51;

/// `-a`; the sign of a NaN stays.
#[inline(always)]
pub(crate) fn neg64(a: u64) -> u64 {
    prefer64(a, a ^ 1 << 63)
}

/// The magnitude of `a`; the sign of a NaN stays.
#[inline(always)]
pub(crate) fn abs64(a: u64) -> u64 {
    prefer64(a, a & !(1 << 63))
}

/// As [`pick32`] for `f64`.
#[inline(always)]
pub(crate) fn pick64<const MAX: bool>(a: u64, b: u64) -> u64 {
    let (x, y) = (g(a), g(b));
    if x.is_nan() || y.is_nan() {
        if x.is_nan() && y.is_nan() {
            return b | QUIET64;
        }
        return if x.is_nan() { b } else { a };
    }
    let key = |v: u64| (v as i64) ^ (((v as i64) >> 63) as u64 >> 1) as i64;
    if (key(a) < key(b)) != MAX { a } else { b }
}

macro_rules! float_rows {
    ($table:ident) => {{
        use $crate::ops::flags as fl;
        use $crate::ops::float::*;
        use $crate::ops::shape::{bin, bin_k, bin_round, each_bin, each_ter, each_un, ter, ter_round, un, un_k};
        use $crate::soft::F64;
        let t: &mut Table = $table;
        const ALL: u32 = fl::ROUND | fl::FTZ | fl::SAT;
        t.flag_row(
            "add.f32",
            "Www",
            ALL,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) + f(b))),
            |r, x, m| bin_round(r, x, m, add32),
        );
        t.flag_row(
            "sub.f32",
            "Www",
            ALL,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) - f(b))),
            |r, x, m| bin_round(r, x, m, |a: u32, b: u32, k| add32(a, b ^ 0x8000_0000, k)),
        );
        t.flag_row(
            "mul.f32",
            "Www",
            ALL,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) * f(b))),
            |r, x, m| bin_round(r, x, m, mul32),
        );
        t.flag_row(
            "fma.f32 mad.f32",
            "Wwww",
            ALL,
            |r, x, m| ter(r, x, m, |a: u32, b: u32, c: u32| out32(f(a).mul_add(f(b), f(c)))),
            |r, x, m| ter_round(r, x, m, fma32),
        );
        t.flag_row(
            "div.f32",
            "Www",
            fl::ROUND | fl::FTZ,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) / f(b))),
            |r, x, m| bin_k(r, x, m, div32),
        );
        t.flag_row(
            "rcp.f32",
            "Ww",
            fl::ROUND | fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| out32(1.0 / f(a))),
            |r, x, m| un_k(r, x, m, |a: u32, k| div32(0x3f80_0000, a, k)),
        );
        t.flag_row(
            "sqrt.f32",
            "Ww",
            fl::ROUND | fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| out32(f(a).sqrt())),
            |r, x, m| un_k(r, x, m, sqrt32),
        );
        t.flag_row(
            "neg.f32",
            "Ww",
            fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| out32(-f(a))),
            |r, x, m| un(r, x, m, |a: u32| out32(-f(in32(a, fl::FTZ)))),
        );
        t.flag_row(
            "abs.f32",
            "Ww",
            fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| out32(f(a).abs())),
            |r, x, m| un(r, x, m, |a: u32| out32(f(in32(a, fl::FTZ)).abs())),
        );
        const PICK: u32 = fl::FTZ | fl::NAN | fl::XORSIGN | fl::ABS;
        t.flag_row(
            "min.f32",
            "Www",
            PICK,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| pick32::<false>(a, b, 0)),
            |r, x, m| bin_k(r, x, m, pick32::<false>),
        );
        t.flag_row(
            "max.f32",
            "Www",
            PICK,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| pick32::<true>(a, b, 0)),
            |r, x, m| bin_k(r, x, m, pick32::<true>),
        );
        t.row("min.f64", "Lll", |r, x, m| bin(r, x, m, |a: u64, b: u64| pick64::<false>(a, b)));
        t.row("max.f64", "Lll", |r, x, m| bin(r, x, m, |a: u64, b: u64| pick64::<true>(a, b)));
        t.row("neg.f64", "Ll", |r, x, m| un(r, x, m, |a: u64| neg64(a)));
        t.row("abs.f64", "Ll", |r, x, m| un(r, x, m, |a: u64| abs64(a)));
        t.flag_row(
            "add.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| prefer64(b, out64(g(a) + g(b)))),
            |r, x, m| {
                each_bin(r, x, m, |a: u64, b: u64, k| {
                    let calm = tame(g(a)) && tame(g(b));
                    prefer64(b, directed64(k, g(a) + g(b), lost_sum(g(a), g(b)), calm, |d| F64.add(a, b, d)))
                })
            },
        );
        t.flag_row(
            "sub.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| prefer64(b, out64(g(a) - g(b)))),
            |r, x, m| {
                each_bin(r, x, m, |a: u64, b: u64, k| {
                    let calm = tame(g(a)) && tame(g(b));
                    let soft = |d| F64.add(a, b ^ 1 << 63, d);
                    prefer64(b, directed64(k, g(a) - g(b), lost_sum(g(a), -g(b)), calm, soft))
                })
            },
        );
        t.flag_row(
            "mul.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| prefer64(b, out64(g(a) * g(b)))),
            |r, x, m| {
                each_bin(r, x, m, |a: u64, b: u64, k| {
                    let lost = g(a).mul_add(g(b), -(g(a) * g(b)));
                    prefer64(b, directed64(k, g(a) * g(b), lost, true, |d| F64.mul(a, b, d)))
                })
            },
        );
        t.flag_row(
            "fma.f64 mad.f64",
            "Llll",
            fl::ROUND,
            |r, x, m| ter(r, x, m, |a: u64, b: u64, c: u64| prefer64(b, prefer64(c, out64(g(a).mul_add(g(b), g(c)))))),
            |r, x, m| {
                each_ter(r, x, m, |a: u64, b: u64, c: u64, k| {
                    let v = directed64(k, g(a).mul_add(g(b), g(c)), 0.0, false, |d| F64.fma(a, b, c, d));
                    prefer64(b, prefer64(c, v))
                })
            },
        );
        t.flag_row(
            "div.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| out64(g(a) / g(b))),
            |r, x, m| {
                each_bin(r, x, m, |a: u64, b: u64, k| {
                    directed64(k, g(a) / g(b), rest(g(a), g(b)), tame(g(a)) && tame(g(b)), |d| F64.div(a, b, d))
                })
            },
        );
        t.flag_row(
            "rcp.f64",
            "Ll",
            fl::ROUND,
            |r, x, m| un(r, x, m, |a: u64| out64(1.0 / g(a))),
            |r, x, m| {
                each_un(r, x, m, |a: u64, k| {
                    directed64(k, 1.0 / g(a), rest(1.0, g(a)), tame(g(a)), |d| F64.div(1f64.to_bits(), a, d))
                })
            },
        );
        t.flag_row(
            "sqrt.f64",
            "Ll",
            fl::ROUND,
            |r, x, m| un(r, x, m, |a: u64| out64(g(a).sqrt())),
            |r, x, m| {
                each_un(r, x, m, |a: u64, k| {
                    directed64(k, g(a).sqrt(), rest_sqrt(g(a)), tame(g(a)), |d| F64.sqrt(a, d))
                })
            },
        );
    }};
}
pub(crate) use float_rows;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::{F32, F64};

    #[test]
    fn directed_rounding_agrees_with_the_integers() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..300_000u32 {
            let (x, y, z) = (next(), next(), next());
            let (mut a, mut b, mut c) = (x as u32, y as u32, z as u32);
            match round % 4 {
                0 => b = a ^ 0x8000_0000 ^ (b & 3),
                1 => (a, b) = (a & 0x80ff_ffff | 0x3f00_0000, b & 0x80ff_ffff | 0x3f00_0000),
                2 => c &= 0x8000_0fff,
                _ => {}
            }
            let flags = 1 + round % 3;
            let direction = Round::of(flags);
            let wide = |v: u32| u64::from(v);
            let same = |got: u32, want: u64, what: &str| {
                let nan = f(got).is_nan() && f(want as u32).is_nan();
                assert!(nan || u64::from(got) == want, "{what} {a:x} {b:x} {c:x} {flags}: {got:x} {want:x}");
            };
            same(add32(a, b, flags), F32.add(wide(a), wide(b), direction), "add");
            same(mul32(a, b, flags), F32.mul(wide(a), wide(b), direction), "mul");
            same(div32(a, b, flags), F32.div(wide(a), wide(b), direction), "div");
            same(sqrt32(a, flags), F32.sqrt(wide(a), direction), "sqrt");
            same(fma32(a, b, c, flags), F32.fma(wide(a), wide(b), wide(c), direction), "fma");
            let (p, q) = (g(x), g(if round % 2 == 0 { y } else { x ^ (y & 0x8000_0000_0000_00ff) }));
            let same = |got: u64, want: u64, what: &str| {
                let nan = g(got).is_nan() && g(want).is_nan();
                assert!(nan || got == want, "{what} {p:e} {q:e} {flags}: {got:x} {want:x}");
            };
            let (u, v) = (p.to_bits(), q.to_bits());
            let calm = tame(p) && tame(q);
            let sum = directed64(flags, p + q, lost_sum(p, q), calm, |d| F64.add(u, v, d));
            same(sum, F64.add(u, v, direction), "add");
            let product = directed64(flags, p * q, p.mul_add(q, -(p * q)), true, |d| F64.mul(u, v, d));
            same(product, F64.mul(u, v, direction), "mul");
            let quotient = directed64(flags, p / q, rest(p, q), calm, |d| F64.div(u, v, d));
            same(quotient, F64.div(u, v, direction), "div");
            let root = directed64(flags, p.sqrt(), rest_sqrt(p), tame(p), |d| F64.sqrt(u, d));
            same(root, F64.sqrt(u, direction), "sqrt");
        }
    }
}
