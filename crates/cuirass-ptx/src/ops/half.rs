//! Arithmetic of `f16`, `bf16` and their pairs.

use super::Table;
use super::flags::{ABS, FTZ, NAN, RELU, SAT, XORSIGN};
use super::shape::each_bin;

/// The NaN of half arithmetic, in both formats.
pub(crate) const NAN16: u16 = 0x7fff;

/// An `f16` as a number.
#[inline(always)]
pub(crate) fn h(a: u16) -> f32 {
    let sign = u32::from(a & 0x8000) << 16;
    let magnitude = u32::from(a & 0x7fff);
    // Subnormals come right because the multiplication rescales them exactly.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let bits = if magnitude >= 0x7c00 { 0x7f80_0000 | (magnitude & 0x3ff) << 13 } else { scaled.to_bits() };
    f32::from_bits(sign | bits)
}

/// A number as `f16`, to nearest.
#[inline(always)]
pub(crate) fn to_h(v: f32) -> u16 {
    let bits = v.to_bits();
    let sign = bits >> 16 & 0x8000;
    let a = bits & 0x7fff_ffff;
    // Adding one half moves a subnormal's last place to the last place of the sum.
    let small = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let normal = a.wrapping_add(0xfff + (a >> 13 & 1)).wrapping_sub(0x3800_0000) >> 13;
    let finite = if a < 0x3880_0000 { small } else { normal };
    let number = sign | if a >= 0x477f_f000 { 0x7c00 } else { finite };
    (if a > 0x7f80_0000 { u32::from(NAN16) } else { number }) as u16
}

/// A `bf16` as a number.
#[inline(always)]
pub(crate) fn bf(a: u16) -> f32 {
    f32::from_bits(u32::from(a) << 16)
}

/// A number as `bf16`, to nearest.
#[inline(always)]
pub(crate) fn to_bf(v: f32) -> u16 {
    let bits = v.to_bits();
    let number = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { u32::from(NAN16) } else { number }) as u16
}

/// A subnormal `f16` becomes zero of its sign.
#[inline(always)]
pub(crate) fn fl_h(a: u16) -> u16 {
    if a & 0x7c00 == 0 { a & 0x8000 } else { a }
}

/// `a * b + c` as `f32` such that rounding it once more to half is as if done once: the last bit
/// is set if anything was lost ("round to odd").
#[inline(always)]
pub(crate) fn fma_odd(a: f32, b: f32, c: f32) -> f32 {
    let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let s = p + c;
    let back = s - p;
    let lost = (p - (s - back)) + (c - back);
    odd(s, lost)
}

/// `s + lost` as `f32`, rounded to odd.
#[inline(always)]
pub(crate) fn odd(s: f64, lost: f64) -> f32 {
    let near = s as f32;
    let wide = f64::from(near);
    let exact = wide == s && lost == 0.0;
    let beyond = if wide == s { (lost > 0.0) != (s > 0.0) } else { wide.abs() > s.abs() };
    let bits = near.to_bits();
    let moved = bits.wrapping_sub(u32::from(beyond)) | 1;
    // Infinities and NaN are what they are; what is lost then is no number.
    f32::from_bits(if exact || bits & 0x7f80_0000 == 0x7f80_0000 { bits } else { moved })
}

/// One of the two formats.
pub(crate) trait Half {
    fn widen(a: u16) -> f32;
    fn narrow(v: f32) -> u16;
    fn flush(a: u16) -> u16;
    /// The product, such that narrowing it is as if rounded once.
    fn product(a: u16, b: u16) -> f32;
    /// The product and sum, likewise.
    fn product_sum(a: u16, b: u16, c: u16) -> f32;
    const ONE: u16;
}

/// The format of `f16`.
pub(crate) struct F16;
/// The format of `bf16`.
pub(crate) struct Bf16;

impl Half for F16 {
    #[inline(always)]
    fn widen(a: u16) -> f32 {
        h(a)
    }
    #[inline(always)]
    fn narrow(v: f32) -> u16 {
        to_h(v)
    }
    #[inline(always)]
    fn flush(a: u16) -> u16 {
        fl_h(a)
    }
    #[inline(always)]
    fn product(a: u16, b: u16) -> f32 {
        h(a) * h(b)
    }
    #[inline(always)]
    fn product_sum(a: u16, b: u16, c: u16) -> f32 {
        // The product is exact in `f32`, and so is what the sum loses.
        let (p, c) = (h(a) * h(b), h(c));
        let s = p + c;
        let back = s - p;
        let lost = (p - (s - back)) + (c - back);
        let bits = s.to_bits();
        let beyond = (lost > 0.0) != (s > 0.0);
        let odd = bits.wrapping_sub(u32::from(beyond)) | 1;
        let exact = lost == 0.0 || bits & 0x7f80_0000 == 0x7f80_0000;
        f32::from_bits(if exact { bits } else { odd })
    }
    const ONE: u16 = 0x3c00;
}

impl Half for Bf16 {
    #[inline(always)]
    fn widen(a: u16) -> f32 {
        bf(a)
    }
    #[inline(always)]
    fn narrow(v: f32) -> u16 {
        to_bf(v)
    }
    #[inline(always)]
    fn flush(a: u16) -> u16 {
        if a & 0x7f80 == 0 { a & 0x8000 } else { a }
    }
    #[inline(always)]
    fn product(a: u16, b: u16) -> f32 {
        // Near the bottom of `f32` the product would not be exact there.
        odd(f64::from(bf(a)) * f64::from(bf(b)), 0.0)
    }
    #[inline(always)]
    fn product_sum(a: u16, b: u16, c: u16) -> f32 {
        fma_odd(bf(a), bf(b), bf(c))
    }
    const ONE: u16 = 0x3f80;
}

#[inline(always)]
fn input<H: Half>(a: u16, flags: u32) -> u16 {
    if flags & FTZ != 0 { H::flush(a) } else { a }
}

#[inline(always)]
fn finish<H: Half>(mut v: u16, flags: u32) -> u16 {
    if flags == 0 {
        return v;
    }
    if flags & FTZ != 0 {
        v = H::flush(v);
    }
    if flags & SAT != 0 {
        let x = H::widen(v);
        v = if x > 0.0 { if x > 1.0 { H::ONE } else { v } } else { 0 };
    }
    if flags & RELU != 0 && v & 0x8000 != 0 && v & 0x7fff != 0 {
        v = 0;
    }
    if flags & RELU != 0 && v == 0x8000 {
        v = 0;
    }
    v
}

#[inline(always)]
pub(crate) fn add<H: Half>(a: u16, b: u16, flags: u32) -> u16 {
    let (a, b) = (input::<H>(a, flags), input::<H>(b, flags));
    finish::<H>(H::narrow(H::widen(a) + H::widen(b)), flags)
}

#[inline(always)]
pub(crate) fn sub<H: Half>(a: u16, b: u16, flags: u32) -> u16 {
    let (a, b) = (input::<H>(a, flags), input::<H>(b, flags));
    finish::<H>(H::narrow(H::widen(a) - H::widen(b)), flags)
}

#[inline(always)]
pub(crate) fn mul<H: Half>(a: u16, b: u16, flags: u32) -> u16 {
    let (a, b) = (input::<H>(a, flags), input::<H>(b, flags));
    let v = H::narrow(H::product(a, b));
    finish::<H>(v, flags)
}

#[inline(always)]
pub(crate) fn fma<H: Half>(a: u16, b: u16, c: u16, flags: u32) -> u16 {
    let (a, b, c) = (input::<H>(a, flags), input::<H>(b, flags), input::<H>(c, flags));
    finish::<H>(H::narrow(H::product_sum(a, b, c)), flags)
}

#[inline(always)]
pub(crate) fn pick<H: Half, const MAX: bool>(a: u16, b: u16, flags: u32) -> u16 {
    let (mut a, mut b) = (input::<H>(a, flags), input::<H>(b, flags));
    let sign = (a ^ b) & 0x8000;
    if flags & ABS != 0 {
        a &= 0x7fff;
        b &= 0x7fff;
    }
    let (no_a, no_b) = (H::widen(a).is_nan(), H::widen(b).is_nan());
    let key = |v: u16| (v as i16) ^ (((v as i16) >> 15) as u16 >> 1) as i16;
    let smaller = if (key(a) < key(b)) != MAX { a } else { b };
    let v = if no_a { b } else { smaller };
    let v = if no_b { a } else { v };
    let v = if flags & XORSIGN != 0 { (v & 0x7fff) | sign } else { v };
    let none = if flags & NAN != 0 { no_a | no_b } else { no_a & no_b };
    if none { NAN16 } else { v }
}

#[inline(always)]
pub(crate) fn negate<H: Half>(a: u16, flags: u32) -> u16 {
    if H::widen(a).is_nan() { NAN16 } else { input::<H>(a, flags) ^ 0x8000 }
}

#[inline(always)]
pub(crate) fn absolute<H: Half>(a: u16, flags: u32) -> u16 {
    if H::widen(a).is_nan() { NAN16 } else { input::<H>(a, flags) & 0x7fff }
}

#[inline(always)]
pub(crate) fn exp2<H: Half>(a: u16, flags: u32) -> u16 {
    let a = input::<H>(a, flags);
    finish::<H>(H::narrow(H::widen(a).exp2()), flags)
}

#[inline(always)]
pub(crate) fn tanh<H: Half>(a: u16, _: u32) -> u16 {
    H::narrow(H::widen(a).tanh())
}

#[inline(always)]
pub(crate) fn one(a: u32, flags: u32, f: impl Fn(u16, u32) -> u16) -> u32 {
    u32::from(f(a as u16, flags)) | u32::from(f((a >> 16) as u16, flags)) << 16
}

#[inline(always)]
pub(crate) fn two(a: u32, b: u32, flags: u32, f: impl Fn(u16, u16, u32) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16, flags)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16, flags)) << 16
}

#[inline(always)]
pub(crate) fn three(a: u32, b: u32, c: u32, flags: u32, f: impl Fn(u16, u16, u16, u32) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16, c as u16, flags))
        | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16, flags)) << 16
}

/// Atomic addition of halves and pairs, also used by reductions.
pub(crate) fn atomic_add(pair: bool, bfloat: bool, a: u32, b: u32) -> u32 {
    match (pair, bfloat) {
        (true, true) => two(a, b, 0, add::<Bf16>),
        (true, false) => two(a, b, 0, add::<F16>),
        (false, true) => add::<Bf16>(a as u16, b as u16, 0).into(),
        (false, false) => add::<F16>(a as u16, b as u16, 0).into(),
    }
}

/// Atomic minimum or maximum of halves and pairs.
pub(crate) fn atomic_pick(pair: bool, bfloat: bool, max: bool, a: u32, b: u32) -> u32 {
    let f = match (bfloat, max) {
        (true, true) => pick::<Bf16, true>,
        (true, false) => pick::<Bf16, false>,
        (false, true) => pick::<F16, true>,
        (false, false) => pick::<F16, false>,
    };
    if pair { two(a, b, 0, f) } else { f(a as u16, b as u16, 0).into() }
}

macro_rules! half_rows {
    ($table:ident) => {{
        use $crate::ops::flags::{ABS, FTZ, NAN, RELU, SAT, XORSIGN};
        use $crate::ops::half::*;
        use $crate::ops::shape::{bin_k, ter_k, un_k};
        let t: &mut Table = $table;
        half_rows!(@all t, F16, "f16", "f16x2");
        half_rows!(@all t, Bf16, "bf16", "bf16x2");
    }};
    (@all $t:ident, $H:ty, $one:literal, $pair:literal) => {
        half_rows!(@two $t, $H, concat!("add.", $one), concat!("add.", $pair), FTZ | SAT, add);
        half_rows!(@two $t, $H, concat!("sub.", $one), concat!("sub.", $pair), FTZ | SAT, sub);
        half_rows!(@two $t, $H, concat!("mul.", $one), concat!("mul.", $pair), FTZ | SAT, mul);
        $t.flag_row(
            concat!("fma.", $one),
            "Hhhh",
            FTZ | SAT | RELU,
            |r, x, m| ter_k(r, x, m, |a, b, c, _| fma::<$H>(a, b, c, 0)),
            |r, x, m| ter_k(r, x, m, fma::<$H>),
        );
        $t.flag_row(
            concat!("fma.", $pair),
            "Wwww",
            FTZ | SAT | RELU,
            |r, x, m| ter_k(r, x, m, |a, b, c, _| three(a, b, c, 0, fma::<$H>)),
            |r, x, m| ter_k(r, x, m, |a, b, c, k| three(a, b, c, k, fma::<$H>)),
        );
        let flags = FTZ | NAN | XORSIGN | ABS;
        $t.flag_row(
            concat!("min.", $one),
            "Hhh",
            flags,
            |r, x, m| bin_k(r, x, m, pick::<$H, false>),
            |r, x, m| bin_k(r, x, m, pick::<$H, false>),
        );
        $t.flag_row(
            concat!("max.", $one),
            "Hhh",
            flags,
            |r, x, m| bin_k(r, x, m, pick::<$H, true>),
            |r, x, m| bin_k(r, x, m, pick::<$H, true>),
        );
        $t.flag_row(
            concat!("min.", $pair),
            "Www",
            flags,
            |r, x, m| bin_k(r, x, m, |a, b, k| two(a, b, k, pick::<$H, false>)),
            |r, x, m| bin_k(r, x, m, |a, b, k| two(a, b, k, pick::<$H, false>)),
        );
        $t.flag_row(
            concat!("max.", $pair),
            "Www",
            flags,
            |r, x, m| bin_k(r, x, m, |a, b, k| two(a, b, k, pick::<$H, true>)),
            |r, x, m| bin_k(r, x, m, |a, b, k| two(a, b, k, pick::<$H, true>)),
        );
        half_rows!(@one $t, concat!("neg.", $one), concat!("neg.", $pair), negate::<$H>);
        half_rows!(@one $t, concat!("abs.", $one), concat!("abs.", $pair), absolute::<$H>);
        half_rows!(@one $t, concat!("ex2.approx.", $one), concat!("ex2.approx.", $pair), exp2::<$H>);
        half_rows!(@one $t, concat!("tanh.approx.", $one), concat!("tanh.approx.", $pair), tanh::<$H>);
    };
    (@two $t:ident, $H:ty, $one:expr, $pair:expr, $flags:expr, $f:ident) => {
        $t.flag_row(
            $one,
            "Hhh",
            $flags,
            |r, x, m| bin_k(r, x, m, |a, b, _| $f::<$H>(a, b, 0)),
            |r, x, m| bin_k(r, x, m, $f::<$H>),
        );
        $t.flag_row(
            $pair,
            "Www",
            $flags,
            |r, x, m| bin_k(r, x, m, |a, b, _| two(a, b, 0, $f::<$H>)),
            |r, x, m| bin_k(r, x, m, |a, b, k| two(a, b, k, $f::<$H>)),
        );
    };
    (@one $t:ident, $one:expr, $pair:expr, $f:expr) => {
        $t.flag_row(
            $one,
            "Hh",
            FTZ,
            |r, x, m| un_k(r, x, m, $f),
            |r, x, m| un_k(r, x, m, $f),
        );
        $t.flag_row(
            $pair,
            "Ww",
            FTZ,
            |r, x, m| un_k(r, x, m, |a, k| one(a, k, $f)),
            |r, x, m| un_k(r, x, m, |a, k| one(a, k, $f)),
        );
    };
}

pub(crate) use half_rows;

pub(crate) fn rows(t: &mut Table) {
    packed_ints(t);
}

/// Pairs of 16-bit integers.
fn packed_ints(t: &mut Table) {
    t.row("add.u16x2 add.s16x2", "Www", |r, x, m| {
        each_bin(r, x, m, |a, b, _| two(a, b, 0, |a, b, _| a.wrapping_add(b)))
    });
    t.row("min.u16x2", "Www", |r, x, m| each_bin(r, x, m, |a, b, _| two(a, b, 0, |a, b, _| a.min(b))));
    t.row("max.u16x2", "Www", |r, x, m| each_bin(r, x, m, |a, b, _| two(a, b, 0, |a, b, _| a.max(b))));
    fn low(k: u32) -> i16 {
        if k & RELU != 0 { 0 } else { i16::MIN }
    }
    t.flag_row(
        "min.s16x2",
        "Www",
        RELU,
        |r, x, m| each_bin(r, x, m, |a, b, _| two(a, b, 0, |a, b, _| (a as i16).min(b as i16) as u16)),
        |r, x, m| each_bin(r, x, m, |a, b, k| two(a, b, k, |a, b, k| (a as i16).min(b as i16).max(low(k)) as u16)),
    );
    t.flag_row(
        "max.s16x2",
        "Www",
        RELU,
        |r, x, m| each_bin(r, x, m, |a, b, _| two(a, b, 0, |a, b, _| (a as i16).max(b as i16) as u16)),
        |r, x, m| each_bin(r, x, m, |a, b, k| two(a, b, k, |a, b, k| (a as i16).max(b as i16).max(low(k)) as u16)),
    );
}
