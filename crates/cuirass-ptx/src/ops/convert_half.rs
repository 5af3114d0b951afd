//! `cvt` with halves, pairs of halves, `tf32` and the eight-bit floats.

use super::Table;
use super::flags::{FTZ, INTEGRAL, RELU, RNA, ROUND, SAT, SATFINITE};
use super::float::{finish32, out32};
use super::half::{bf, h, to_bf, to_h};
use super::shape::{each_bin, each_un, un};
use crate::soft::{self, Format, Num, Round};

/// Converts, then clamps as the flags say.
fn narrow(from: Format, to: Format, a: u64, k: u32) -> u64 {
    let n = from.unpack(a);
    let v = if k & SATFINITE != 0 { to.pack_finite(n, Round::of(k)) } else { to.pack(n, Round::of(k)) };
    let sign = 1u64 << (to.exp + to.man);
    let negative = v & sign != 0;
    if matches!(n, Num::Nan) {
        if k & SAT != 0 {
            return 0;
        }
        // From `f64` a NaN keeps its sign and the upper bits of its payload.
        if from.man == 52 && to.man < 52 {
            let payload = (a >> (52 - to.man)) & ((1 << to.man) - 1);
            let sign = if a >> 63 != 0 { sign } else { 0 };
            return sign | to.infinity() | payload | 1 << (to.man - 1);
        }
        return v;
    }
    if k & SAT != 0 {
        let one = ((1u64 << (to.exp - 1)) - 1) << to.man;
        return if negative { 0 } else { v.min(one) };
    }
    if k & RELU != 0 && negative { 0 } else { v }
}

fn from32(to: Format, a: u32, k: u32) -> u16 {
    // `.ftz` changes nothing here: subnormals are rounded like any other number.
    narrow(soft::F32, to, a.into(), k) as u16
}

fn round_half(format: Format, widen: fn(u16) -> f32, a: u16, k: u32) -> u16 {
    if k & INTEGRAL == 0 {
        return narrow(format, format, a.into(), k & (SAT | RELU)) as u16;
    }
    let v = super::convert::integral(widen(a).into(), k) as f32;
    narrow(soft::F32, format, v.to_bits().into(), k & SAT) as u16
}

/// Two `f32` into two eight-bit floats, the first operand in the upper half.
fn eight(to: Format, a: u32, b: u32, k: u32) -> u16 {
    let k = k | SATFINITE;
    (narrow(soft::F32, to, a.into(), k) as u16) << 8 | narrow(soft::F32, to, b.into(), k) as u16
}

fn eight_from_pair(to: Format, a: u32, k: u32) -> u16 {
    let k = k | SATFINITE;
    let part = |v: u32| narrow(soft::F16, to, v.into(), k) as u16;
    part(a >> 16) << 8 | part(a & 0xffff)
}

fn pair_from_eight(from: Format, a: u16, k: u32) -> u32 {
    let part = |v: u16| narrow(from, soft::F16, v.into(), k & RELU) as u32;
    part(a >> 8) << 16 | part(a & 0xff)
}

pub(crate) fn rows(t: &mut Table) {
    halves(t);
    pairs(t);
}

fn halves(t: &mut Table) {
    t.flag_row(
        "cvt.f32.f16",
        "Wh",
        FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u16| out32(h(a))),
        |r, x, m| each_un(r, x, m, |a: u16, k| finish32(out32(h(a)), k)),
    );
    t.flag_row(
        "cvt.f32.bf16",
        "Wh",
        FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u16| bf(a).to_bits()),
        |r, x, m| each_un(r, x, m, |a: u16, k| finish32(bf(a).to_bits(), k)),
    );
    t.flag_row(
        "cvt.f64.f16",
        "Lh",
        SAT,
        |r, x, m| un(r, x, m, |a: u16| f64::from(h(a)).to_bits()),
        |r, x, m| each_un(r, x, m, |a: u16, k| narrow(soft::F16, soft::F64, a.into(), k)),
    );
    t.flag_row(
        "cvt.f64.bf16",
        "Lh",
        SAT,
        |r, x, m| un(r, x, m, |a: u16| f64::from(bf(a)).to_bits()),
        |r, x, m| each_un(r, x, m, |a: u16, k| narrow(soft::BF16, soft::F64, a.into(), k)),
    );
    t.flag_row(
        "cvt.f16.f32",
        "Hw",
        ROUND | FTZ | SAT | RELU | SATFINITE,
        |r, x, m| un(r, x, m, |a: u32| to_h(f32::from_bits(a))),
        |r, x, m| each_un(r, x, m, |a: u32, k| from32(soft::F16, a, k)),
    );
    t.flag_row(
        "cvt.bf16.f32",
        "Hw",
        ROUND | FTZ | SAT | RELU | SATFINITE,
        |r, x, m| un(r, x, m, |a: u32| to_bf(f32::from_bits(a))),
        |r, x, m| each_un(r, x, m, |a: u32, k| from32(soft::BF16, a, k)),
    );
    t.flag_row(
        "cvt.f16.f64",
        "Hl",
        ROUND | SAT,
        |r, x, m| each_un(r, x, m, |a: u64, k| narrow(soft::F64, soft::F16, a, k) as u16),
        |r, x, m| each_un(r, x, m, |a: u64, k| narrow(soft::F64, soft::F16, a, k) as u16),
    );
    t.flag_row(
        "cvt.bf16.f64",
        "Hl",
        ROUND | SAT,
        |r, x, m| each_un(r, x, m, |a: u64, k| narrow(soft::F64, soft::BF16, a, k) as u16),
        |r, x, m| each_un(r, x, m, |a: u64, k| narrow(soft::F64, soft::BF16, a, k) as u16),
    );
    t.flag_row(
        "cvt.f16.bf16",
        "Hh",
        ROUND | SAT | RELU | SATFINITE,
        |r, x, m| each_un(r, x, m, |a: u16, k| narrow(soft::BF16, soft::F16, a.into(), k) as u16),
        |r, x, m| each_un(r, x, m, |a: u16, k| narrow(soft::BF16, soft::F16, a.into(), k) as u16),
    );
    t.flag_row(
        "cvt.bf16.f16",
        "Hh",
        ROUND | SAT | RELU | SATFINITE,
        |r, x, m| each_un(r, x, m, |a: u16, k| narrow(soft::F16, soft::BF16, a.into(), k) as u16),
        |r, x, m| each_un(r, x, m, |a: u16, k| narrow(soft::F16, soft::BF16, a.into(), k) as u16),
    );
    t.flag_row(
        "cvt.f16.f16",
        "Hh",
        ROUND | INTEGRAL | FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u16| a),
        |r, x, m| each_un(r, x, m, |a: u16, k| round_half(soft::F16, h, a, k)),
    );
    t.flag_row(
        "cvt.bf16.bf16",
        "Hh",
        ROUND | INTEGRAL | FTZ | SAT,
        |r, x, m| un(r, x, m, |a: u16| a),
        |r, x, m| each_un(r, x, m, |a: u16, k| round_half(soft::BF16, bf, a, k)),
    );
}

fn pairs(t: &mut Table) {
    t.flag_row(
        "cvt.f16x2.f32",
        "Www",
        ROUND | RELU | SATFINITE,
        |r, x, m| {
            each_bin(r, x, m, |a: u32, b: u32, _| {
                let part = |v: u32| u32::from(to_h(f32::from_bits(v)));
                part(a) << 16 | part(b)
            })
        },
        |r, x, m| {
            each_bin(r, x, m, |a: u32, b: u32, k| {
                u32::from(from32(soft::F16, a, k)) << 16 | u32::from(from32(soft::F16, b, k))
            })
        },
    );
    t.flag_row(
        "cvt.bf16x2.f32",
        "Www",
        ROUND | RELU | SATFINITE,
        |r, x, m| {
            each_bin(r, x, m, |a: u32, b: u32, _| {
                let part = |v: u32| u32::from(to_bf(f32::from_bits(v)));
                part(a) << 16 | part(b)
            })
        },
        |r, x, m| {
            each_bin(r, x, m, |a: u32, b: u32, k| {
                u32::from(from32(soft::BF16, a, k)) << 16 | u32::from(from32(soft::BF16, b, k))
            })
        },
    );
    fn tf32(a: u32, k: u32) -> u32 {
        if k & RNA != 0 && f32::from_bits(a).is_nan() {
            return a & !0x1fff;
        }
        (narrow(soft::F32, soft::TF32, a.into(), k) << 13) as u32
    }
    t.flag_row(
        "cvt.tf32.f32",
        "Ww",
        ROUND | RNA | RELU | SATFINITE,
        |r, x, m| each_un(r, x, m, tf32),
        |r, x, m| each_un(r, x, m, tf32),
    );
    macro_rules! eight_rows {
        ($name:literal, $f:expr) => {
            t.flag_row(
                concat!("cvt.", $name, ".f32"),
                "Hww",
                SATFINITE | RELU,
                |r, x, m| each_bin(r, x, m, |a, b, k| eight($f, a, b, k)),
                |r, x, m| each_bin(r, x, m, |a, b, k| eight($f, a, b, k)),
            );
            t.flag_row(
                concat!("cvt.", $name, ".f16x2"),
                "Hw",
                SATFINITE | RELU,
                |r, x, m| each_un(r, x, m, |a, k| eight_from_pair($f, a, k)),
                |r, x, m| each_un(r, x, m, |a, k| eight_from_pair($f, a, k)),
            );
            t.flag_row(
                concat!("cvt.f16x2.", $name),
                "Wh",
                RELU,
                |r, x, m| each_un(r, x, m, |a, k| pair_from_eight($f, a, k)),
                |r, x, m| each_un(r, x, m, |a, k| pair_from_eight($f, a, k)),
            );
        };
    }
    eight_rows!("e4m3x2", soft::E4M3);
    eight_rows!("e5m2x2", soft::E5M2);
}
