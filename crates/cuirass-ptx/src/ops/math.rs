//! The approximate instructions, computed better than hardware does, and their special cases.

use super::Table;
use super::flags::FTZ;
use super::float::{f, finish32, g, in32, out32};
use super::shape::{each_bin, each_un};

fn approx32(a: u32, k: u32, function: impl Fn(f64) -> f64) -> u32 {
    let v = function(f64::from(f(in32(a, k)))) as f32;
    finish32(out32(v), k & FTZ)
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
    macro_rules! approx {
        ($key:literal, $f:expr) => {
            t.flag_row(
                $key,
                "Ww",
                FTZ,
                |r, x, m| each_un(r, x, m, |a, _| approx32(a, 0, $f)),
                |r, x, m| each_un(r, x, m, |a, k| approx32(a, k, $f)),
            );
        };
    }
    approx!("sin.approx.f32", |v: f64| v.sin());
    approx!("cos.approx.f32", |v: f64| v.cos());
    approx!("lg2.approx.f32", |v: f64| v.log2());
    approx!("ex2.approx.f32", |v: f64| v.exp2());
    approx!("tanh.approx.f32", |v: f64| v.tanh());
    approx!("rcp.approx.f32", |v: f64| 1.0 / v);
    approx!("rsqrt.approx.f32", |v: f64| 1.0 / v.sqrt());
    approx!("sqrt.approx.f32", |v: f64| v.sqrt());
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
