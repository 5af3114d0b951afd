//! `cvt` between integers and the everyday floats.
//!
//! Sources and destinations have the register width of their type, eight bits in a 16-bit
//! register; lowering adds the steps for wider registers.

use super::Table;
use super::flags::{FTZ, INTEGRAL, ROUND, RZ, SAT};
use super::float::{f, finish32, flush32, g, prefer64};
use super::shape::{each_un, un};
use crate::soft::{self, Round};

/// An integer type as a row sees it: kept in `u16`, `u32` or `u64`.
fn clamp(v: i128, low: i128, high: i128) -> i128 {
    v.clamp(low, high)
}

/// A number rounded to an integer in the direction of the flags.
#[inline(always)]
pub(crate) fn integral(v: f64, flags: u32) -> f64 {
    match flags & ROUND {
        RZ => v.trunc(),
        2 => v.floor(),
        3 => v.ceil(),
        _ => v.round_ties_even(),
    }
}

/// What a NaN becomes as an integer: zero for narrow pairs, else the integer's top bit.
#[inline(always)]
fn nan_int(from: u32, to: u32) -> u64 {
    if from == 64 || to == 64 { 1 << (to - 1) } else { 0 }
}

/// A float as an integer of `bits`, saturating.
#[inline(always)]
pub(crate) fn to_int(v: f64, flags: u32, from: u32, bits: u32, signed: bool) -> u64 {
    let whole = integral(v, flags);
    let high = u64::MAX >> (64 - bits + u32::from(signed));
    let number =
        if signed { (whole as i64).clamp(-(high as i64) - 1, high as i64) as u64 } else { (whole as u64).min(high) };
    if v.is_nan() { nan_int(from, bits) } else { number }
}

pub(crate) fn rows(t: &mut Table) {
    ints(t);
    to_float(t);
    floats(t);
}

fn ints(t: &mut Table) {
    macro_rules! pair {
        ($d:literal, $dt:ty, $du:ty, $D:literal, $s:literal, $st:ty, $su:ty, $S:literal) => {
            t.flag_row(
                concat!("cvt.", $d, ".", $s),
                concat!($D, $S),
                SAT,
                |r, x, m| un(r, x, m, |a: $su| (a as $st) as $dt as $du),
                |r, x, m| {
                    each_un(r, x, m, |a: $su, _| {
                        let v = clamp(a as $st as i128, <$dt>::MIN as i128, <$dt>::MAX as i128);
                        v as $dt as $du
                    })
                },
            );
        };
    }
    macro_rules! from {
        ($s:literal, $st:ty, $su:ty, $S:literal) => {
            pair!("u8", u8, u16, "H", $s, $st, $su, $S);
            pair!("s8", i8, u16, "H", $s, $st, $su, $S);
            pair!("u16", u16, u16, "H", $s, $st, $su, $S);
            pair!("s16", i16, u16, "H", $s, $st, $su, $S);
            pair!("u32", u32, u32, "W", $s, $st, $su, $S);
            pair!("s32", i32, u32, "W", $s, $st, $su, $S);
            pair!("u64", u64, u64, "L", $s, $st, $su, $S);
            pair!("s64", i64, u64, "L", $s, $st, $su, $S);
        };
    }
    from!("u8", u8, u16, "h");
    from!("s8", i8, u16, "h");
    from!("u16", u16, u16, "h");
    from!("s16", i16, u16, "h");
    from!("u32", u32, u32, "w");
    from!("s32", i32, u32, "w");
    from!("u64", u64, u64, "l");
    from!("s64", i64, u64, "l");
}

/// The rows from floats, compiled like the other hot ones.
macro_rules! from_float_rows {
    ($table:ident) => {{
        use $crate::ops::convert::to_int;
        use $crate::ops::flags::{FTZ, INTEGRAL, ROUND, ROUNDED, RZ, SAT};
        use $crate::ops::float::{f, flush32, g};
        use $crate::ops::half::{bf, h};
        use $crate::ops::shape::{un, un_k};
        let t: &mut Table = $table;
        const FLAGS: u32 = ROUND | INTEGRAL | FTZ | SAT;
        // rustfmt moves the second line of the matcher further at every run.
        #[rustfmt::skip]
        macro_rules! pair {
            ($d:literal, $dt:ty, $du:ty, $D:literal, $signed:literal,
             $s:literal, $su:ty, $S:literal, $from:literal, $v:expr) => {
                t.flag_row(
                    concat!("cvt.", $d, ".", $s),
                    concat!($D, $S),
                    FLAGS,
                    |r, x, m| un_k(r, x, m, |a: $su, k| to_int($v(a, k), k, $from, <$dt>::BITS, $signed) as $dt as $du),
                    |r, x, m| un_k(r, x, m, |a: $su, k| to_int($v(a, k), k, $from, <$dt>::BITS, $signed) as $dt as $du),
                );
            };
        }
        macro_rules! from {
            ($s:literal, $su:ty, $S:literal, $from:literal, $v:expr) => {
                pair!("u8", u8, u16, "H", false, $s, $su, $S, $from, $v);
                pair!("s8", i8, u16, "H", true, $s, $su, $S, $from, $v);
                pair!("u16", u16, u16, "H", false, $s, $su, $S, $from, $v);
                pair!("s16", i16, u16, "H", true, $s, $su, $S, $from, $v);
                pair!("u32", u32, u32, "W", false, $s, $su, $S, $from, $v);
                pair!("s32", i32, u32, "W", true, $s, $su, $S, $from, $v);
                pair!("u64", u64, u64, "L", false, $s, $su, $S, $from, $v);
                pair!("s64", i64, u64, "L", true, $s, $su, $S, $from, $v);
            };
        }
        from!("f16", u16, "h", 16, |a, _| f64::from(h(a)));
        from!("bf16", u16, "h", 16, |a, _| f64::from(bf(a)));
        from!("f32", u32, "w", 32, |a: u32, k| f64::from(f(if k & FTZ != 0 { flush32(a) } else { a })));
        from!("f64", u64, "l", 64, |a, _| g(a));
        // The casts of C, which vectorise.
        t.flag_row(
            "cvt.s32.f32",
            "Ww",
            FLAGS,
            |r, x, m| un(r, x, m, |a: u32| f(a) as i32 as u32),
            |r, x, m| {
                if x.flags & !(ROUNDED | FTZ) == RZ | INTEGRAL {
                    return un(r, x, m, |a: u32| f(a) as i32 as u32);
                }
                un_k(r, x, m, |a: u32, k| {
                    let a = if k & FTZ != 0 { flush32(a) } else { a };
                    to_int(f(a).into(), k, 32, 32, true) as u32
                })
            },
        );
    }};
}
pub(crate) use from_float_rows;

fn to_float(t: &mut Table) {
    fn parts(v: i128) -> soft::Num {
        soft::from_int(v < 0, v.unsigned_abs() as u64)
    }
    macro_rules! pair {
        ($s:literal, $st:ty, $su:ty, $S:literal) => {
            t.flag_row(
                concat!("cvt.f32.", $s),
                concat!("W", $S),
                ROUND | SAT | FTZ,
                |r, x, m| un(r, x, m, |a: $su| (a as $st as f32).to_bits()),
                |r, x, m| {
                    each_un(r, x, m, |a: $su, k| {
                        let v = soft::F32.pack(parts(a as $st as i128), Round::of(k)) as u32;
                        finish32(v, k)
                    })
                },
            );
            t.flag_row(
                concat!("cvt.f64.", $s),
                concat!("L", $S),
                ROUND | SAT,
                |r, x, m| un(r, x, m, |a: $su| (a as $st as f64).to_bits()),
                |r, x, m| {
                    each_un(r, x, m, |a: $su, k| {
                        let v = soft::F64.pack(parts(a as $st as i128), Round::of(k));
                        if k & SAT != 0 { saturate64(v) } else { v }
                    })
                },
            );
            t.flag_row(
                concat!("cvt.f16.", $s),
                concat!("H", $S),
                ROUND | SAT,
                |r, x, m| each_un(r, x, m, |a: $su, k| soft::F16.pack(parts(a as $st as i128), Round::of(k)) as u16),
                |r, x, m| {
                    each_un(r, x, m, |a: $su, k| {
                        let v = soft::F16.pack(parts(a as $st as i128), Round::of(k)) as u16;
                        if k & SAT == 0 {
                            v
                        } else if v & 0x8000 != 0 {
                            0
                        } else {
                            v.min(0x3c00)
                        }
                    })
                },
            );
            t.flag_row(
                concat!("cvt.bf16.", $s),
                concat!("H", $S),
                ROUND,
                |r, x, m| each_un(r, x, m, |a: $su, k| soft::BF16.pack(parts(a as $st as i128), Round::of(k)) as u16),
                |r, x, m| each_un(r, x, m, |a: $su, k| soft::BF16.pack(parts(a as $st as i128), Round::of(k)) as u16),
            );
        };
    }
    pair!("u8", u8, u16, "h");
    pair!("s8", i8, u16, "h");
    pair!("u16", u16, u16, "h");
    pair!("s16", i16, u16, "h");
    pair!("u32", u32, u32, "w");
    pair!("s32", i32, u32, "w");
    pair!("u64", u64, u64, "l");
    pair!("s64", i64, u64, "l");
}

fn saturate64(v: u64) -> u64 {
    let x = g(v);
    if x > 0.0 { x.min(1.0).to_bits() } else { 0 }
}

fn narrow(a: u64, k: u32) -> u32 {
    // A NaN keeps the upper bits of its payload, as the host's conversion does.
    let v = if k & ROUND == 0 || g(a).is_nan() {
        (g(a) as f32).to_bits()
    } else {
        soft::convert(soft::F64, soft::F32, a, Round::of(k)) as u32
    };
    finish32(v, k)
}

fn same32(a: u32, k: u32) -> u32 {
    let a = if k & FTZ != 0 { flush32(a) } else { a };
    let v = match k & (INTEGRAL | FTZ) {
        0 => a,
        FTZ => super::float::out32(f(a)),
        _ => super::float::out32(integral(f(a).into(), k) as f32),
    };
    finish32(v, k)
}

fn same64(a: u64, k: u32) -> u64 {
    let v = if k & INTEGRAL != 0 { prefer64(a, integral(g(a), k).to_bits()) } else { a };
    if k & SAT != 0 { saturate64(v) } else { v }
}

fn floats(t: &mut Table) {
    t.flag_row(
        "cvt.f32.f64",
        "Wl",
        ROUND | FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u64| (g(a) as f32).to_bits()),
        |r, x, m| each_un(r, x, m, narrow),
    );
    t.flag_row(
        "cvt.f64.f32",
        "Lw",
        FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u32| f64::from(f(a)).to_bits()),
        |r, x, m| {
            each_un(r, x, m, |a: u32, k| {
                let a = if k & FTZ != 0 { super::float::out32(f(flush32(a))) } else { a };
                let v = f64::from(f(a)).to_bits();
                if k & SAT != 0 { saturate64(v) } else { v }
            })
        },
    );
    t.flag_row(
        "cvt.f32.f32",
        "Ww",
        ROUND | INTEGRAL | FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u32| a),
        |r, x, m| each_un(r, x, m, same32),
    );
    t.flag_row(
        "cvt.f64.f64",
        "Ll",
        ROUND | INTEGRAL | SAT,
        |r, x, m| un(r, x, m, |a: u64| a),
        |r, x, m| each_un(r, x, m, same64),
    );
}
