//! Comparisons and selection.

use super::flags::{WITH_NOT, WITH_XOR};
use super::shape::put_p;
use crate::code::{Args, NONE};
use crate::frame::Frame;

/// The lanes for which a comparison of `args.a` with `args.b` holds.
pub(crate) type MaskFn = fn(&Frame, &Args) -> u32;

/// `setp`: the comparison, combined with a predicate where asked, into one or two predicates.
#[inline(always)]
pub(crate) fn setp(fr: &mut Frame, x: &Args, m: u32, compare: MaskFn) {
    let v = compare(fr, x);
    if x.c == NONE && x.e == NONE {
        return put_p(fr, x.d, m, v);
    }
    let (mut p, mut q) = (v, !v);
    if x.c != NONE {
        let mut with = fr.p[x.c as usize];
        if x.flags & WITH_NOT != 0 {
            with = !with;
        }
        let combine = |v: u32| match (x.flags & WITH_XOR) >> 11 {
            1 => v & with,
            2 => v | with,
            3 => v ^ with,
            _ => v,
        };
        (p, q) = (combine(p), combine(q));
    }
    put_p(fr, x.d, m, p);
    put_p(fr, x.e, m, q);
}

macro_rules! compare_rows {
    ($table:ident) => {{
        use $crate::ops::compare::MaskFn;
        use $crate::ops::float::{f, flush32, g};
        use $crate::ops::half::{bf, fl_h, h};
        use $crate::ops::shape::{mask_of, select};
        let t: &mut Table = $table;
        fn add(t: &mut Table, keys: &[&str], compare: MaskFn) {
            for key in keys {
                t.compares.insert((*key).into(), compare);
            }
        }
        macro_rules! ints {
            ($name:literal, $u:ty, $s:ty) => {
                add(t, &[concat!("lt.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| (a as $s) < (b as $s)));
                add(t, &[concat!("le.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| (a as $s) <= (b as $s)));
                add(t, &[concat!("gt.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| (a as $s) > (b as $s)));
                add(t, &[concat!("ge.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| (a as $s) >= (b as $s)));
            };
            ($w:literal, $u:ty, $s:ty, $lo:literal, $ls:literal) => {
                add(t, &[concat!("eq.b", $w), concat!("eq.u", $w), concat!("eq.s", $w)], |r, x| {
                    mask_of(r, x, |a: $u, b: $u| a == b)
                });
                add(t, &[concat!("ne.b", $w), concat!("ne.u", $w), concat!("ne.s", $w)], |r, x| {
                    mask_of(r, x, |a: $u, b: $u| a != b)
                });
                ints!($lo, $u, $u);
                ints!($ls, $u, $s);
                let unsigned = [("lo.", "lt."), ("ls.", "le."), ("hi.", "gt."), ("hs.", "ge.")];
                for (new, old) in unsigned {
                    if let Some(&row) = t.compares.get(&format!("{old}{}", $lo)) {
                        t.compares.insert(format!("{new}{}", $lo), row);
                    }
                }
            };
        }
        ints!("16", u16, i16, "u16", "s16");
        ints!("32", u32, i32, "u32", "s32");
        ints!("64", u64, i64, "u64", "s64");
        // `$v` makes a number of the bits; both orders of NaN are spelled out.
        macro_rules! floats {
            ($name:literal, $u:ty, $v:expr) => {
                add(t, &[concat!("eq.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) == $v(b)));
                add(t, &[concat!("ne.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) < $v(b) || $v(a) > $v(b)));
                add(t, &[concat!("lt.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) < $v(b)));
                add(t, &[concat!("le.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) <= $v(b)));
                add(t, &[concat!("gt.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) > $v(b)));
                add(t, &[concat!("ge.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) >= $v(b)));
                add(t, &[concat!("equ.", $name)], |r, x| {
                    mask_of(r, x, |a: $u, b: $u| !($v(a) < $v(b) || $v(a) > $v(b)))
                });
                add(t, &[concat!("neu.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| $v(a) != $v(b)));
                add(t, &[concat!("ltu.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| !($v(a) >= $v(b))));
                add(t, &[concat!("leu.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| !($v(a) > $v(b))));
                add(t, &[concat!("gtu.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| !($v(a) <= $v(b))));
                add(t, &[concat!("geu.", $name)], |r, x| mask_of(r, x, |a: $u, b: $u| !($v(a) < $v(b))));
                add(t, &[concat!("num.", $name)], |r, x| {
                    mask_of(r, x, |a: $u, b: $u| !$v(a).is_nan() && !$v(b).is_nan())
                });
                add(t, &[concat!("nan.", $name)], |r, x| {
                    mask_of(r, x, |a: $u, b: $u| $v(a).is_nan() || $v(b).is_nan())
                });
            };
        }
        floats!("f32", u32, f);
        floats!("ftz.f32", u32, |v| f(flush32(v)));
        floats!("f64", u64, g);
        floats!("f16", u16, h);
        floats!("ftz.f16", u16, |v| h(fl_h(v)));
        floats!("bf16", u16, bf);
        t.row("selp.b16 selp.u16 selp.s16 selp.f16", "Hhhp", |r, x, m| select::<u16>(r, x, m));
        t.row("selp.b32 selp.u32 selp.s32 selp.f32", "Wwwp", |r, x, m| select::<u32>(r, x, m));
        t.row("selp.b64 selp.u64 selp.s64 selp.f64", "Lllp", |r, x, m| select::<u64>(r, x, m));
    }};
}
pub(crate) use compare_rows;
