//! Arithmetic of `f32` and `f64`.

use super::flags::{ABS, FTZ, NAN, ROUND, SAT, XORSIGN};
use crate::soft::{self, Round};

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

/// `a + b` in the direction of the flags.
pub(crate) fn add32(a: u32, b: u32, flags: u32) -> u32 {
    let (a, b) = (in32(a, flags), in32(b, flags));
    let v = if flags & ROUND == 0 {
        out32(f(a) + f(b))
    } else {
        soft::F32.add(a.into(), b.into(), Round::of(flags)) as u32
    };
    finish32(v, flags)
}

pub(crate) fn mul32(a: u32, b: u32, flags: u32) -> u32 {
    let (a, b) = (in32(a, flags), in32(b, flags));
    let v = if flags & ROUND == 0 {
        out32(f(a) * f(b))
    } else {
        soft::F32.mul(a.into(), b.into(), Round::of(flags)) as u32
    };
    finish32(v, flags)
}

pub(crate) fn fma32(a: u32, b: u32, c: u32, flags: u32) -> u32 {
    let (a, b, c) = (in32(a, flags), in32(b, flags), in32(c, flags));
    let v = if flags & ROUND == 0 {
        out32(f(a).mul_add(f(b), f(c)))
    } else {
        soft::F32.fma(a.into(), b.into(), c.into(), Round::of(flags)) as u32
    };
    finish32(v, flags)
}

pub(crate) fn div32(a: u32, b: u32, flags: u32) -> u32 {
    let (a, b) = (in32(a, flags), in32(b, flags));
    let v = if flags & ROUND == 0 {
        out32(f(a) / f(b))
    } else {
        soft::F32.div(a.into(), b.into(), Round::of(flags)) as u32
    };
    finish32(v, flags)
}

pub(crate) fn sqrt32(a: u32, flags: u32) -> u32 {
    let a = in32(a, flags);
    let v = if flags & ROUND == 0 { out32(f(a).sqrt()) } else { soft::F32.sqrt(a.into(), Round::of(flags)) as u32 };
    finish32(v, flags)
}

/// A NaN operand is the result, quieted; a made NaN is hardware's.
#[inline(always)]
pub(crate) fn out64(v: f64) -> u64 {
    v.to_bits()
}

pub(crate) fn directed64(flags: u32, near: f64, soft: impl Fn(Round) -> u64) -> u64 {
    if flags & ROUND == 0 || near.is_nan() { out64(near) } else { soft(Round::of(flags)) }
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

/// As [`pick32`] for `f64`.
#[inline(always)]
pub(crate) fn pick64<const MAX: bool>(a: u64, b: u64) -> u64 {
    let (x, y) = (g(a), g(b));
    if x.is_nan() || y.is_nan() {
        if x.is_nan() && y.is_nan() {
            return 0x7fff_ffff_ffff_ffff;
        }
        return if x.is_nan() { b } else { a };
    }
    let key = |v: u64| (v as i64) ^ (((v as i64) >> 63) as u64 >> 1) as i64;
    if (key(a) < key(b)) != MAX { a } else { b }
}

macro_rules! float_rows {
    ($table:ident) => {{
        use $crate::ops::flags as fl;
        use $crate::ops::float::{
            add32, directed64, div32, f, finish32, fma32, g, in32, mul32, out32, out64, pick32, pick64, sqrt32,
        };
        use $crate::ops::shape::{bin, ter, un};
        use $crate::ops::shape::{each_bin, each_ter, each_un};
        use $crate::soft::F64;
        let t: &mut Table = $table;
        const ALL: u32 = fl::ROUND | fl::FTZ | fl::SAT;
        t.flag_row(
            "add.f32",
            "Www",
            ALL,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) + f(b))),
            |r, x, m| {
                if x.flags & fl::ROUND == 0 {
                    let k = x.flags;
                    return bin(r, x, m, |a: u32, b: u32| finish32(out32(f(in32(a, k)) + f(in32(b, k))), k));
                }
                each_bin(r, x, m, add32)
            },
        );
        t.flag_row(
            "sub.f32",
            "Www",
            ALL,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) - f(b))),
            |r, x, m| {
                if x.flags & fl::ROUND == 0 {
                    let k = x.flags;
                    return bin(r, x, m, |a: u32, b: u32| finish32(out32(f(in32(a, k)) - f(in32(b, k))), k));
                }
                each_bin(r, x, m, |a: u32, b: u32, k| add32(a, b ^ 0x8000_0000, k))
            },
        );
        t.flag_row(
            "mul.f32",
            "Www",
            ALL,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) * f(b))),
            |r, x, m| {
                if x.flags & fl::ROUND == 0 {
                    let k = x.flags;
                    return bin(r, x, m, |a: u32, b: u32| finish32(out32(f(in32(a, k)) * f(in32(b, k))), k));
                }
                each_bin(r, x, m, mul32)
            },
        );
        t.flag_row(
            "fma.f32 mad.f32",
            "Wwww",
            ALL,
            |r, x, m| ter(r, x, m, |a: u32, b: u32, c: u32| out32(f(a).mul_add(f(b), f(c)))),
            |r, x, m| {
                if x.flags & fl::ROUND == 0 {
                    let k = x.flags;
                    return ter(r, x, m, |a: u32, b: u32, c: u32| {
                        let v = f(in32(a, k)).mul_add(f(in32(b, k)), f(in32(c, k)));
                        finish32(out32(v), k)
                    });
                }
                each_ter(r, x, m, fma32)
            },
        );
        t.flag_row(
            "div.f32",
            "Www",
            fl::ROUND | fl::FTZ,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| out32(f(a) / f(b))),
            |r, x, m| each_bin(r, x, m, div32),
        );
        t.flag_row(
            "rcp.f32",
            "Ww",
            fl::ROUND | fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| out32(1.0 / f(a))),
            |r, x, m| each_un(r, x, m, |a: u32, k| div32(0x3f80_0000, a, k)),
        );
        t.flag_row(
            "sqrt.f32",
            "Ww",
            fl::ROUND | fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| out32(f(a).sqrt())),
            |r, x, m| each_un(r, x, m, sqrt32),
        );
        t.flag_row(
            "neg.f32",
            "Ww",
            fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| a ^ 0x8000_0000),
            |r, x, m| un(r, x, m, |a: u32| in32(a, fl::FTZ) ^ 0x8000_0000),
        );
        t.flag_row(
            "abs.f32",
            "Ww",
            fl::FTZ,
            |r, x, m| un(r, x, m, |a: u32| a & 0x7fff_ffff),
            |r, x, m| un(r, x, m, |a: u32| in32(a, fl::FTZ) & 0x7fff_ffff),
        );
        const PICK: u32 = fl::FTZ | fl::NAN | fl::XORSIGN | fl::ABS;
        t.flag_row(
            "min.f32",
            "Www",
            PICK,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| pick32::<false>(a, b, 0)),
            |r, x, m| each_bin(r, x, m, pick32::<false>),
        );
        t.flag_row(
            "max.f32",
            "Www",
            PICK,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| pick32::<true>(a, b, 0)),
            |r, x, m| each_bin(r, x, m, pick32::<true>),
        );
        t.row("min.f64", "Lll", |r, x, m| bin(r, x, m, |a: u64, b: u64| pick64::<false>(a, b)));
        t.row("max.f64", "Lll", |r, x, m| bin(r, x, m, |a: u64, b: u64| pick64::<true>(a, b)));
        t.row("neg.f64", "Ll", |r, x, m| un(r, x, m, |a: u64| a ^ (1 << 63)));
        t.row("abs.f64", "Ll", |r, x, m| un(r, x, m, |a: u64| a & !(1 << 63)));
        t.flag_row(
            "add.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| out64(g(a) + g(b))),
            |r, x, m| each_bin(r, x, m, |a: u64, b: u64, k| directed64(k, g(a) + g(b), |d| F64.add(a, b, d))),
        );
        t.flag_row(
            "sub.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| out64(g(a) - g(b))),
            |r, x, m| each_bin(r, x, m, |a: u64, b: u64, k| directed64(k, g(a) - g(b), |d| F64.add(a, b ^ 1 << 63, d))),
        );
        t.flag_row(
            "mul.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| out64(g(a) * g(b))),
            |r, x, m| each_bin(r, x, m, |a: u64, b: u64, k| directed64(k, g(a) * g(b), |d| F64.mul(a, b, d))),
        );
        t.flag_row(
            "fma.f64 mad.f64",
            "Llll",
            fl::ROUND,
            |r, x, m| ter(r, x, m, |a: u64, b: u64, c: u64| out64(g(a).mul_add(g(b), g(c)))),
            |r, x, m| {
                each_ter(r, x, m, |a: u64, b: u64, c: u64, k| {
                    directed64(k, g(a).mul_add(g(b), g(c)), |d| F64.fma(a, b, c, d))
                })
            },
        );
        t.flag_row(
            "div.f64",
            "Lll",
            fl::ROUND,
            |r, x, m| bin(r, x, m, |a: u64, b: u64| out64(g(a) / g(b))),
            |r, x, m| each_bin(r, x, m, |a: u64, b: u64, k| directed64(k, g(a) / g(b), |d| F64.div(a, b, d))),
        );
        t.flag_row(
            "rcp.f64",
            "Ll",
            fl::ROUND,
            |r, x, m| un(r, x, m, |a: u64| out64(1.0 / g(a))),
            |r, x, m| each_un(r, x, m, |a: u64, k| directed64(k, 1.0 / g(a), |d| F64.div(1f64.to_bits(), a, d))),
        );
        t.flag_row(
            "sqrt.f64",
            "Ll",
            fl::ROUND,
            |r, x, m| un(r, x, m, |a: u64| out64(g(a).sqrt())),
            |r, x, m| each_un(r, x, m, |a: u64, k| directed64(k, g(a).sqrt(), |d| F64.sqrt(a, d))),
        );
    }};
}
pub(crate) use float_rows;
