//! The approximate instructions, computed better than hardware does, and their special cases.

use super::Table;
use super::flags::FTZ;
use super::float::{f, finish32, g, in32, out32};
use super::shape::{each_bin, each_un};

#[inline(always)]
pub(crate) fn approx32(a: u32, k: u32, function: impl Fn(f64) -> f64) -> u32 {
    let v = function(f64::from(f(in32(a, k)))) as f32;
    finish32(out32(v), k & FTZ)
}

/// The sine and cosine of an angle, good to more than an `f32` needs, without a branch.
#[inline(always)]
fn sine_and_cosine(v: f64) -> (f64, f64, f64) {
    let turns = (v * std::f64::consts::FRAC_2_PI).round_ties_even();
    let r = (-turns).mul_add(std::f64::consts::FRAC_PI_2, v);
    let r = (-turns).mul_add(6.123_233_995_736_766e-17, r);
    // Keeps the sign of zero.
    let r = if turns == 0.0 { v } else { r };
    let q = r * r;
    let sine = q.mul_add(2.755_731_922e-6, -1.984_126_984e-4);
    let sine = sine.mul_add(q, 8.333_333_333e-3).mul_add(q, -1.666_666_666_67e-1);
    let sine = (sine * q).mul_add(r, r);
    let cosine = q.mul_add(-2.755_731_922e-7, 2.480_158_73e-5);
    let cosine = cosine.mul_add(q, -1.388_888_889e-3).mul_add(q, 4.166_666_666_67e-2);
    let cosine = cosine.mul_add(q, -0.5).mul_add(q, 1.0);
    let quadrant = 4.0f64.mul_add(-(turns * 0.25).floor(), turns);
    (sine, cosine, quadrant)
}

#[inline(always)]
pub(crate) fn sine(v: f64) -> f64 {
    let (s, c, quadrant) = sine_and_cosine(v);
    let odd = quadrant == 1.0 || quadrant == 3.0;
    let r = if odd { c } else { s };
    if quadrant >= 2.0 { -r } else { r }
}

#[inline(always)]
pub(crate) fn cosine(v: f64) -> f64 {
    let (s, c, quadrant) = sine_and_cosine(v);
    let odd = quadrant == 1.0 || quadrant == 3.0;
    let r = if odd { s } else { c };
    if quadrant == 1.0 || quadrant == 2.0 { -r } else { r }
}

/// `2^v` where the result fits an `f32`, zero or huge elsewhere.
#[inline(always)]
pub(crate) fn power_of_two(v: f64) -> f64 {
    let x = if v > 200.0 { 200.0 } else { v };
    let x = if x < -200.0 { -200.0 } else { x };
    let n = x.round_ties_even();
    let t = (x - n) * std::f64::consts::LN_2;
    let p = t.mul_add(1.0 / 40_320.0, 1.0 / 5_040.0).mul_add(t, 1.0 / 720.0).mul_add(t, 1.0 / 120.0);
    let p = p.mul_add(t, 1.0 / 24.0).mul_add(t, 1.0 / 6.0).mul_add(t, 0.5).mul_add(t, 1.0).mul_add(t, 1.0);
    // Adding 2^52 * 1.5 leaves the integer in the low bits.
    let low = (n + 6_755_399_441_055_744.0).to_bits();
    let scale = f64::from_bits(low.wrapping_add(1023) << 52);
    p * scale
}

#[inline(always)]
pub(crate) fn logarithm(v: f64) -> f64 {
    let bits = v.to_bits();
    let low = bits & 0xf_ffff_ffff_ffff;
    let large = low > 0x6_a09e_667f_3bcc;
    let m = f64::from_bits(low | if large { 1022 << 52 } else { 1023 << 52 });
    // The exponent as a number, by the same trick.
    let e = f64::from_bits(0x4330_0000_0000_0000 | (bits >> 52 & 0x7ff)) - 4_503_599_627_370_496.0;
    let e = e - if large { 1022.0 } else { 1023.0 };
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let p = q.mul_add(1.0 / 13.0, 1.0 / 11.0).mul_add(q, 1.0 / 9.0).mul_add(q, 1.0 / 7.0);
    let p = p.mul_add(q, 1.0 / 5.0).mul_add(q, 1.0 / 3.0).mul_add(q, 1.0);
    let r = (s * p).mul_add(2.0 * std::f64::consts::LOG2_E, e);
    let r = if v == 0.0 { f64::NEG_INFINITY } else { r };
    let r = if v == f64::INFINITY { v } else { r };
    if v >= 0.0 { r } else { f64::NAN }
}

#[inline(always)]
pub(crate) fn tangent(v: f64) -> f64 {
    let a = v.abs();
    let e = power_of_two(a * (2.0 * std::f64::consts::LOG2_E));
    let big = 1.0 - 2.0 / (e + 1.0);
    let small = (v * v * a).mul_add(-1.0 / 3.0, a);
    let r = if a < 1e-3 { small } else { big };
    if v.is_nan() { v } else { r.copysign(v) }
}

/// A quotient from a reciprocal that hardware flushes when the divisor is huge.
fn div_approx(a: u32, b: u32, k: u32) -> u32 {
    let (a, b) = (in32(a, k), in32(b, k));
    let (x, y) = (f64::from(f(a)), f64::from(f(b)));
    let huge = y.abs() > 2f64.powi(126);
    let v = if huge && y.is_finite() { x * (0.0 * y) } else { x / y };
    finish32(out32(v as f32), k & FTZ)
}

fn div_full(a: u32, b: u32, k: u32) -> u32 {
    let (a, b) = (in32(a, k), in32(b, k));
    finish32(out32((f64::from(f(a)) / f64::from(f(b))) as f32), k & FTZ)
}

/// A coarse `f64` result: the lower word is zero, subnormals are flushed.
fn coarse64(a: u64, function: impl Fn(f64) -> f64) -> u64 {
    let flush = |v: u64| if v & 0x7ff0_0000_0000_0000 == 0 { v & 1 << 63 } else { v };
    let v = function(g(flush(a)));
    if v.is_nan() {
        return 0x7fff_ffff_0000_0000;
    }
    flush(v.to_bits()) & 0xffff_ffff_0000_0000
}

/// The form without `.ftz` is as good as the rounded one.
fn rsqrt64(a: u64) -> u64 {
    (1.0 / g(a).sqrt()).to_bits()
}

pub(crate) fn rows(t: &mut Table) {
    t.flag_row(
        "div.approx.f32",
        "Www",
        FTZ,
        |r, x, m| each_bin(r, x, m, div_approx),
        |r, x, m| each_bin(r, x, m, div_approx),
    );
    t.flag_row(
        "div.full.f32",
        "Www",
        FTZ,
        |r, x, m| each_bin(r, x, m, div_full),
        |r, x, m| each_bin(r, x, m, div_full),
    );
    t.flag_row(
        "rcp.approx.f64",
        "Ll",
        FTZ,
        |r, x, m| each_un(r, x, m, |a, _| coarse64(a, |v| 1.0 / v)),
        |r, x, m| each_un(r, x, m, |a, _| coarse64(a, |v| 1.0 / v)),
    );
    t.flag_row(
        "rsqrt.approx.f64",
        "Ll",
        FTZ,
        |r, x, m| each_un(r, x, m, |a, _| rsqrt64(a)),
        |r, x, m| each_un(r, x, m, |a, _| coarse64(a, |v| 1.0 / v.sqrt())),
    );
}

/// The rows of one `f32`, compiled like the other hot ones.
macro_rules! approximate_rows {
    ($table:ident) => {{
        use $crate::ops::flags::FTZ;
        use $crate::ops::math::*;
        use $crate::ops::shape::un;
        let t: &mut Table = $table;
        macro_rules! approx {
            ($key:literal, $f:expr) => {
                t.flag_row(
                    $key,
                    "Ww",
                    FTZ,
                    |r, x, m| un(r, x, m, |a| approx32(a, 0, $f)),
                    |r, x, m| un(r, x, m, |a| approx32(a, FTZ, $f)),
                );
            };
        }
        approx!("sin.approx.f32", sine);
        approx!("cos.approx.f32", cosine);
        approx!("lg2.approx.f32", logarithm);
        approx!("ex2.approx.f32", power_of_two);
        approx!("tanh.approx.f32", tangent);
        approx!("rcp.approx.f32", |v: f64| 1.0 / v);
        approx!("rsqrt.approx.f32", |v: f64| 1.0 / v.sqrt());
        approx!("sqrt.approx.f32", |v: f64| v.sqrt());
    }};
}
pub(crate) use approximate_rows;
