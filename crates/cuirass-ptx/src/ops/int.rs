//! Integer arithmetic.

/// The rows; the body is compiled once for any processor and once for those with AVX2.
macro_rules! int_rows {
    ($table:ident) => {{
        use $crate::ops::shape::{bin, each_bin, ter, un};
        let t: &mut Table = $table;
        t.row("add.s16 add.u16", "Hhh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| a.wrapping_add(b))
        });
        t.row("add.u32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| a.wrapping_add(b)));
        t.flag_row(
            "add.s32",
            "Www",
            $crate::ops::flags::SAT,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| a.wrapping_add(b)),
            |r, x, m| bin(r, x, m, |a: u32, b: u32| (a as i32).saturating_add(b as i32) as u32),
        );
        t.row("add.s64 add.u64", "Lll", |r, x, m| {
            bin(r, x, m, |a: u64, b: u64| a.wrapping_add(b))
        });
        t.row("sub.s16 sub.u16", "Hhh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| a.wrapping_sub(b))
        });
        t.row("sub.u32", "Www", |r, x, m| bin(r, x, m, |a: u32, b: u32| a.wrapping_sub(b)));
        t.flag_row(
            "sub.s32",
            "Www",
            $crate::ops::flags::SAT,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| a.wrapping_sub(b)),
            |r, x, m| bin(r, x, m, |a: u32, b: u32| (a as i32).saturating_sub(b as i32) as u32),
        );
        t.row("sub.s64 sub.u64", "Lll", |r, x, m| {
            bin(r, x, m, |a: u64, b: u64| a.wrapping_sub(b))
        });
        t.row("mul.lo.s16 mul.lo.u16", "Hhh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| a.wrapping_mul(b))
        });
        t.row("mul.lo.s32 mul.lo.u32", "Www", |r, x, m| {
            bin(r, x, m, |a: u32, b: u32| a.wrapping_mul(b))
        });
        t.row("mul.lo.s64 mul.lo.u64", "Lll", |r, x, m| {
            bin(r, x, m, |a: u64, b: u64| a.wrapping_mul(b))
        });
        t.row("mul.hi.s16", "Hhh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| ((a as i16 as i32 * b as i16 as i32) >> 16) as u16)
        });
        t.row("mul.hi.u16", "Hhh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| ((a as u32 * b as u32) >> 16) as u16)
        });
        t.row("mul.hi.s32", "Www", |r, x, m| {
            bin(r, x, m, |a: u32, b: u32| ((a as i32 as i64 * b as i32 as i64) >> 32) as u32)
        });
        t.row("mul.hi.u32", "Www", |r, x, m| {
            bin(r, x, m, |a: u32, b: u32| ((a as u64 * b as u64) >> 32) as u32)
        });
        t.row("mul.hi.s64", "Lll", |r, x, m| {
            bin(r, x, m, |a: u64, b: u64| ((a as i64 as i128 * b as i64 as i128) >> 64) as u64)
        });
        t.row("mul.hi.u64", "Lll", |r, x, m| {
            bin(r, x, m, |a: u64, b: u64| ((a as u128 * b as u128) >> 64) as u64)
        });
        t.row("mul.wide.s16", "Whh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| (a as i16 as i32 * b as i16 as i32) as u32)
        });
        t.row("mul.wide.u16", "Whh", |r, x, m| {
            bin(r, x, m, |a: u16, b: u16| a as u32 * b as u32)
        });
        t.row("mul.wide.s32", "Lww", |r, x, m| {
            bin(r, x, m, |a: u32, b: u32| (a as i32 as i64 * b as i32 as i64) as u64)
        });
        t.row("mul.wide.u32", "Lww", |r, x, m| {
            bin(r, x, m, |a: u32, b: u32| a as u64 * b as u64)
        });
        t.row("mad.lo.s16 mad.lo.u16", "Hhhh", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u16| a.wrapping_mul(b).wrapping_add(c))
        });
        t.row("mad.lo.s32 mad.lo.u32", "Wwww", |r, x, m| {
            ter(r, x, m, |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c))
        });
        t.row("mad.lo.s64 mad.lo.u64", "Llll", |r, x, m| {
            ter(r, x, m, |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c))
        });
        t.row("mad.hi.s16", "Hhhh", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u16| {
                (((a as i16 as i32 * b as i16 as i32) >> 16) as u16).wrapping_add(c)
            })
        });
        t.row("mad.hi.u16", "Hhhh", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u16| {
                (((a as u32 * b as u32) >> 16) as u16).wrapping_add(c)
            })
        });
        t.flag_row(
            "mad.hi.s32",
            "Wwww",
            $crate::ops::flags::SAT,
            |r, x, m| {
                ter(r, x, m, |a: u32, b: u32, c: u32| {
                    (((a as i32 as i64 * b as i32 as i64) >> 32) as u32).wrapping_add(c)
                })
            },
            |r, x, m| {
                ter(r, x, m, |a: u32, b: u32, c: u32| {
                    let high = ((a as i32 as i64 * b as i32 as i64) >> 32) as i32;
                    high.saturating_add(c as i32) as u32
                })
            },
        );
        t.row("mad.hi.u32", "Wwww", |r, x, m| {
            ter(r, x, m, |a: u32, b: u32, c: u32| {
                (((a as u64 * b as u64) >> 32) as u32).wrapping_add(c)
            })
        });
        t.row("mad.hi.s64", "Llll", |r, x, m| {
            ter(r, x, m, |a: u64, b: u64, c: u64| {
                (((a as i64 as i128 * b as i64 as i128) >> 64) as u64).wrapping_add(c)
            })
        });
        t.row("mad.hi.u64", "Llll", |r, x, m| {
            ter(r, x, m, |a: u64, b: u64, c: u64| {
                (((a as u128 * b as u128) >> 64) as u64).wrapping_add(c)
            })
        });
        t.row("mad.wide.s16", "Whhw", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u32| {
                ((a as i16 as i32 * b as i16 as i32) as u32).wrapping_add(c)
            })
        });
        t.row("mad.wide.u16", "Whhw", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u32| (a as u32 * b as u32).wrapping_add(c))
        });
        t.row("mad.wide.s32", "Lwwl", |r, x, m| {
            ter(r, x, m, |a: u32, b: u32, c: u64| {
                ((a as i32 as i64 * b as i32 as i64) as u64).wrapping_add(c)
            })
        });
        t.row("mad.wide.u32", "Lwwl", |r, x, m| {
            ter(r, x, m, |a: u32, b: u32, c: u64| (a as u64 * b as u64).wrapping_add(c))
        });
        t.row("neg.s16", "Hh", |r, x, m| un(r, x, m, |a: u16| a.wrapping_neg()));
        t.row("neg.s32", "Ww", |r, x, m| un(r, x, m, |a: u32| a.wrapping_neg()));
        t.row("neg.s64", "Ll", |r, x, m| un(r, x, m, |a: u64| a.wrapping_neg()));
        t.row("abs.s16", "Hh", |r, x, m| un(r, x, m, |a: u16| (a as i16).wrapping_abs() as u16));
        t.row("abs.s32", "Ww", |r, x, m| un(r, x, m, |a: u32| (a as i32).wrapping_abs() as u32));
        t.row("abs.s64", "Ll", |r, x, m| un(r, x, m, |a: u64| (a as i64).wrapping_abs() as u64));
        int_rows!(@minmax t, "u16", "Hhh", u16, u16);
        int_rows!(@minmax t, "u32", "Www", u32, u32);
        int_rows!(@minmax t, "u64", "Lll", u64, u64);
        int_rows!(@minmax t, "s16", "Hhh", u16, i16);
        int_rows!(@minmax t, "s64", "Lll", u64, i64);
        t.flag_row(
            "min.s32",
            "Www",
            $crate::ops::flags::RELU,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| (a as i32).min(b as i32) as u32),
            |r, x, m| bin(r, x, m, |a: u32, b: u32| (a as i32).min(b as i32).max(0) as u32),
        );
        t.flag_row(
            "max.s32",
            "Www",
            $crate::ops::flags::RELU,
            |r, x, m| bin(r, x, m, |a: u32, b: u32| (a as i32).max(b as i32) as u32),
            |r, x, m| bin(r, x, m, |a: u32, b: u32| (a as i32).max(b as i32).max(0) as u32),
        );
        int_rows!(@divrem t, "u16", "Hhh", u16, u16);
        int_rows!(@divrem t, "u32", "Www", u32, u32);
        int_rows!(@divrem t, "u64", "Lll", u64, u64);
        int_rows!(@divrem t, "s16", "Hhh", u16, i16);
        int_rows!(@divrem t, "s32", "Www", u32, i32);
        int_rows!(@divrem t, "s64", "Lll", u64, i64);
        int_rows!(@logic t, "16", "Hhh", "Hh", u16);
        int_rows!(@logic t, "32", "Www", "Ww", u32);
        int_rows!(@logic t, "64", "Lll", "Ll", u64);
        int_rows!(@shift t, "16", "Hhw", u16, i16);
        int_rows!(@shift t, "32", "Www", u32, i32);
        int_rows!(@shift t, "64", "Llw", u64, i64);
        t.row("sad.u16", "Hhhh", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u16| a.abs_diff(b).wrapping_add(c))
        });
        t.row("sad.s16", "Hhhh", |r, x, m| {
            ter(r, x, m, |a: u16, b: u16, c: u16| (a as i16).abs_diff(b as i16).wrapping_add(c))
        });
        t.row("sad.u32", "Wwww", |r, x, m| {
            ter(r, x, m, |a: u32, b: u32, c: u32| a.abs_diff(b).wrapping_add(c))
        });
        t.row("sad.s32", "Wwww", |r, x, m| {
            ter(r, x, m, |a: u32, b: u32, c: u32| (a as i32).abs_diff(b as i32).wrapping_add(c))
        });
        t.row("sad.u64", "Llll", |r, x, m| {
            ter(r, x, m, |a: u64, b: u64, c: u64| a.abs_diff(b).wrapping_add(c))
        });
        t.row("sad.s64", "Llll", |r, x, m| {
            ter(r, x, m, |a: u64, b: u64, c: u64| (a as i64).abs_diff(b as i64).wrapping_add(c))
        });
    }};
    (@minmax $t:ident, $ty:literal, $shape:literal, $u:ty, $s:ty) => {
        $t.row(concat!("min.", $ty), $shape, |r, x, m| {
            bin(r, x, m, |a: $u, b: $u| (a as $s).min(b as $s) as $u)
        });
        $t.row(concat!("max.", $ty), $shape, |r, x, m| {
            bin(r, x, m, |a: $u, b: $u| (a as $s).max(b as $s) as $u)
        });
    };
    // Division by zero has a result that hardware happens to give: all ones.
    (@divrem $t:ident, $ty:literal, $shape:literal, $u:ty, $s:ty) => {
        $t.row(concat!("div.", $ty), $shape, |r, x, m| {
            each_bin(r, x, m, |a: $u, b: $u, _| {
                if b == 0 { <$u>::MAX } else { (a as $s).wrapping_div(b as $s) as $u }
            })
        });
        $t.row(concat!("rem.", $ty), $shape, |r, x, m| {
            each_bin(r, x, m, |a: $u, b: $u, _| {
                if b == 0 { <$u>::MAX } else { (a as $s).wrapping_rem(b as $s) as $u }
            })
        });
    };
    (@logic $t:ident, $w:literal, $shape:literal, $one:literal, $u:ty) => {
        $t.row(concat!("and.b", $w), $shape, |r, x, m| bin(r, x, m, |a: $u, b: $u| a & b));
        $t.row(concat!("or.b", $w), $shape, |r, x, m| bin(r, x, m, |a: $u, b: $u| a | b));
        $t.row(concat!("xor.b", $w), $shape, |r, x, m| bin(r, x, m, |a: $u, b: $u| a ^ b));
        $t.row(concat!("not.b", $w), $one, |r, x, m| un(r, x, m, |a: $u| !a));
        $t.row(concat!("cnot.b", $w), $one, |r, x, m| un(r, x, m, |a: $u| (a == 0) as $u));
        $t.row(
            concat!("mov.b", $w, " mov.u", $w, " mov.s", $w, " mov.f", $w),
            $one,
            |r, x, m| un(r, x, m, |a: $u| a),
        );
    };
    (@shift $t:ident, $w:literal, $shape:literal, $u:ty, $s:ty) => {
        $t.row(concat!("shl.b", $w), $shape, |r, x, m| {
            bin(r, x, m, |a: $u, b: u32| if b >= <$u>::BITS { 0 } else { a << b })
        });
        $t.row(concat!("shr.b", $w, " shr.u", $w), $shape, |r, x, m| {
            bin(r, x, m, |a: $u, b: u32| if b >= <$u>::BITS { 0 } else { a >> b })
        });
        $t.row(concat!("shr.s", $w), $shape, |r, x, m| {
            bin(r, x, m, |a: $u, b: u32| ((a as $s) >> b.min(<$u>::BITS - 1)) as $u)
        });
    };
}
pub(crate) use int_rows;
