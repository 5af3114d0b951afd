//! Arithmetic, comparisons, selection and bits.

use crate::{Cases, Tolerance, letter, store};

const INTS: [&str; 6] = ["u16", "s16", "u32", "s32", "u64", "s64"];
const ROUNDS: [&str; 4] = ["rn", "rz", "rm", "rp"];

pub fn all(c: &mut Cases) {
    ints(c);
    bits(c);
    carries(c);
    floats(c);
    doubles(c);
    halves(c);
    approximate(c);
    compare(c);
    select(c);
}

fn ints(c: &mut Cases) {
    for t in INTS {
        for op in ["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"] {
            c.op(&format!("{op}.{t}"), t, &[t, t]);
        }
        for op in ["mad.lo", "mad.hi", "sad"] {
            c.op(&format!("{op}.{t}"), t, &[t, t, t]);
        }
        if t.starts_with('s') {
            c.op(&format!("neg.{t}"), t, &[t]);
            c.op(&format!("abs.{t}"), t, &[t]);
        }
        let wide = match t {
            "u16" => "u32",
            "s16" => "s32",
            "u32" => "u64",
            "s32" => "s64",
            _ => continue,
        };
        c.op(&format!("mul.wide.{t}"), wide, &[t, t]);
        c.op(&format!("mad.wide.{t}"), wide, &[t, t, wide]);
    }
    for op in ["add.sat.s32", "sub.sat.s32", "min.relu.s32", "max.relu.s32"] {
        c.op(op, "s32", &["s32", "s32"]);
    }
    c.op("mad.hi.sat.s32", "s32", &["s32", "s32", "s32"]);
    for t in ["u32", "s32"] {
        for half in ["lo", "hi"] {
            c.op(&format!("mul24.{half}.{t}"), t, &[t, t]);
            c.op(&format!("mad24.{half}.{t}"), t, &[t, t, t]);
        }
        for u in ["u32", "s32"] {
            let out = if t == "u32" && u == "u32" { "u32" } else { "s32" };
            c.op(&format!("dp4a.{t}.{u}"), out, &[t, u, out]);
            c.op(&format!("dp2a.lo.{t}.{u}"), out, &[t, u, out]);
            c.op(&format!("dp2a.hi.{t}.{u}"), out, &[t, u, out]);
        }
    }
    c.op("mad24.hi.sat.s32", "s32", &["s32", "s32", "s32"]);
    for t in ["u16x2", "s16x2"] {
        for op in ["add", "min", "max"] {
            c.op(&format!("{op}.{t}"), t, &[t, t]);
        }
    }
    c.op("min.relu.s16x2", "s16x2", &["s16x2", "s16x2"]);
    c.op("max.relu.s16x2", "s16x2", &["s16x2", "s16x2"]);
}

fn bits(c: &mut Cases) {
    for t in ["b16", "b32", "b64"] {
        for op in ["and", "or", "xor"] {
            c.op(&format!("{op}.{t}"), t, &[t, t]);
        }
        c.op(&format!("not.{t}"), t, &[t]);
        c.op(&format!("cnot.{t}"), t, &[t]);
        c.op(&format!("mov.{t}"), t, &[t]);
    }
    for op in ["and", "or", "xor"] {
        c.op(&format!("{op}.pred"), "pred", &["pred", "pred"]);
    }
    c.op("not.pred", "pred", &["pred"]);
    let shift = |c: &mut Cases, op: &str, t: &str| {
        let kinds = [t.to_owned(), "shift".to_owned()];
        c.op_kinds(op, op, t, &[t, "u32"], &kinds, Tolerance::default());
    };
    for w in ["16", "32", "64"] {
        shift(c, &format!("shl.b{w}"), &format!("b{w}"));
        for sign in ["b", "u", "s"] {
            shift(c, &format!("shr.{sign}{w}"), &format!("b{w}"));
        }
    }
    let three = |c: &mut Cases, op: &str, d: &str, s: [&str; 3], k: [&str; 3]| {
        let kinds = k.map(str::to_owned);
        c.op_kinds(op, op, d, &s, &kinds, Tolerance::default());
    };
    for dir in ["l", "r"] {
        for mode in ["clamp", "wrap"] {
            let op = format!("shf.{dir}.{mode}.b32");
            three(c, &op, "b32", ["b32", "b32", "u32"], ["u32", "u32", "shift"]);
        }
    }
    for op in ["popc", "clz"] {
        c.op(&format!("{op}.b32"), "u32", &["b32"]);
        c.op(&format!("{op}.b64"), "u32", &["b64"]);
    }
    c.op("brev.b32", "b32", &["b32"]);
    c.op("brev.b64", "b64", &["b64"]);
    for t in ["u32", "s32", "u64", "s64"] {
        c.op(&format!("bfind.{t}"), "u32", &[t]);
        c.op(&format!("bfind.shiftamt.{t}"), "u32", &[t]);
        three(c, &format!("bfe.{t}"), t, [t, "u32", "u32"], [t, "shift", "shift"]);
    }
    for t in ["b32", "b64"] {
        let kinds = [t, t, "shift", "shift"].map(str::to_owned);
        let op = format!("bfi.{t}");
        c.op_kinds(&op, &op, t, &[t, t, "u32", "u32"], &kinds, Tolerance::default());
    }
    let shifts = ["shift".to_owned(), "shift".to_owned()];
    for mode in ["clamp", "wrap"] {
        let op = format!("bmsk.{mode}.b32");
        c.op_kinds(&op, &op, "b32", &["u32", "u32"], &shifts, Tolerance::default());
        for t in ["u32", "s32"] {
            shift(c, &format!("szext.{mode}.{t}"), t);
        }
    }
    three(c, "fns.b32", "b32", ["b32", "u32", "s32"], ["u32", "few", "few"]);
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        c.op(&format!("prmt.b32{mode}"), "b32", &["b32", "b32", "b32"]);
    }
    for lut in [0x00u32, 0xe8, 0x96, 0xca, 0xfe, 0x1b] {
        let sources = ["b32", "b32", "b32", &format!("#{lut}")];
        c.op_as(&format!("lop3.b32 {lut:#x}"), "lop3.b32", "b32", &sources, Tolerance::default());
    }
    c.op("copysign.f32", "f32", &["f32", "f32"]);
    c.op("copysign.f64", "f64", &["f64", "f64"]);
    for t in ["f32", "f64"] {
        for what in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
            c.op(&format!("testp.{what}.{t}"), "pred", &[t]);
        }
    }
}

fn carries(c: &mut Cases) {
    for (t, r) in [("u32", 'w'), ("s32", 'w'), ("u64", 'l'), ("s64", 'l')] {
        let bytes = if r == 'w' { 4 } else { 8 };
        let finish = format!("{}{}", store(r, 8, 0).1, store(r, 9, 1).1);
        let mut chain = |name: &str, first: &str, second: &str| {
            let body = format!("{first}\n{second}\n{finish}");
            c.body(&format!("{name}.{t}"), &[crate::kind(t); 4], &[bytes, bytes], &body, Tolerance::default());
        };
        chain("add.cc+addc", &format!("add.cc.{t} %{r}8, %{r}1, %{r}2;"), &format!("addc.{t} %{r}9, %{r}3, %{r}4;"));
        chain("sub.cc+subc", &format!("sub.cc.{t} %{r}8, %{r}1, %{r}2;"), &format!("subc.{t} %{r}9, %{r}3, %{r}4;"));
        chain(
            "addc.cc",
            &format!("add.cc.{t} %{r}8, %{r}1, %{r}2;\naddc.cc.{t} %{r}8, %{r}3, %{r}4;"),
            &format!("addc.{t} %{r}9, 0, 0;"),
        );
        chain(
            "subc.cc",
            &format!("sub.cc.{t} %{r}8, %{r}1, %{r}2;\nsubc.cc.{t} %{r}8, %{r}3, %{r}4;"),
            &format!("subc.{t} %{r}9, 0, 0;"),
        );
        chain(
            "mad.lo.cc+madc.hi",
            &format!("mad.lo.cc.{t} %{r}8, %{r}1, %{r}2, %{r}3;"),
            &format!("madc.hi.{t} %{r}9, %{r}1, %{r}2, %{r}4;"),
        );
        chain(
            "mad.hi.cc+madc.lo",
            &format!("mad.hi.cc.{t} %{r}8, %{r}1, %{r}2, %{r}3;"),
            &format!("madc.lo.{t} %{r}9, %{r}1, %{r}2, %{r}4;"),
        );
    }
}

fn floats(c: &mut Cases) {
    let f = "f32";
    for round in ROUNDS {
        for ftz in ["", ".ftz"] {
            for sat in ["", ".sat"] {
                for op in ["add", "sub", "mul"] {
                    c.op(&format!("{op}.{round}{ftz}{sat}.f32"), f, &[f, f]);
                }
                c.op(&format!("fma.{round}{ftz}{sat}.f32"), f, &[f, f, f]);
            }
            c.op(&format!("div.{round}{ftz}.f32"), f, &[f, f]);
            c.op(&format!("rcp.{round}{ftz}.f32"), f, &[f]);
            c.op(&format!("sqrt.{round}{ftz}.f32"), f, &[f]);
        }
    }
    for op in ["add", "mul"] {
        c.op(&format!("{op}.f32"), f, &[f, f]);
    }
    for ftz in ["", ".ftz"] {
        c.op(&format!("neg{ftz}.f32"), f, &[f]);
        c.op(&format!("abs{ftz}.f32"), f, &[f]);
        for op in ["min", "max"] {
            for nan in ["", ".NaN"] {
                for sign in ["", ".xorsign.abs"] {
                    c.op(&format!("{op}{ftz}{nan}{sign}.f32"), f, &[f, f]);
                }
            }
        }
    }
}

fn doubles(c: &mut Cases) {
    let f = "f64";
    for round in ROUNDS {
        for op in ["add", "sub", "mul", "div"] {
            c.op(&format!("{op}.{round}.f64"), f, &[f, f]);
        }
        c.op(&format!("fma.{round}.f64"), f, &[f, f, f]);
        c.op(&format!("rcp.{round}.f64"), f, &[f]);
        c.op(&format!("sqrt.{round}.f64"), f, &[f]);
    }
    for op in ["min", "max"] {
        c.op(&format!("{op}.f64"), f, &[f, f]);
    }
    c.op("neg.f64", f, &[f]);
    c.op("abs.f64", f, &[f]);
}

fn halves(c: &mut Cases) {
    for f in ["f16", "f16x2"] {
        for ftz in ["", ".ftz"] {
            for sat in ["", ".sat"] {
                for op in ["add", "sub", "mul"] {
                    c.op(&format!("{op}.rn{ftz}{sat}.{f}"), f, &[f, f]);
                }
                c.op(&format!("fma.rn{ftz}{sat}.{f}"), f, &[f, f, f]);
            }
            c.op(&format!("fma.rn{ftz}.relu.{f}"), f, &[f, f, f]);
            c.op(&format!("neg{ftz}.{f}"), f, &[f]);
            c.op(&format!("abs{ftz}.{f}"), f, &[f]);
        }
    }
    for f in ["bf16", "bf16x2"] {
        for op in ["add", "sub", "mul"] {
            c.op(&format!("{op}.rn.{f}"), f, &[f, f]);
        }
        c.op(&format!("fma.rn.{f}"), f, &[f, f, f]);
        c.op(&format!("fma.rn.relu.{f}"), f, &[f, f, f]);
        c.op(&format!("neg.{f}"), f, &[f]);
        c.op(&format!("abs.{f}"), f, &[f]);
    }
    for f in ["f16", "f16x2", "bf16", "bf16x2"] {
        for op in ["min", "max"] {
            for ftz in if f.starts_with('b') { &[""][..] } else { &["", ".ftz"] } {
                for nan in ["", ".NaN"] {
                    for sign in ["", ".xorsign.abs"] {
                        c.op(&format!("{op}{ftz}{nan}{sign}.{f}"), f, &[f, f]);
                    }
                }
            }
        }
    }
}

/// A tolerance in units of the last place, and absolutely.
fn near(float: &'static str, ulp: u64, abs: f64) -> Tolerance {
    Tolerance { ulp, abs, float }
}

fn approximate(c: &mut Cases) {
    for ftz in ["", ".ftz"] {
        let mut one = |op: &str, kind: &str, t: Tolerance| {
            let name = format!("{op}.approx{ftz}.f32");
            c.op_kinds(&name, &name, "f32", &["f32"], &[kind.to_owned()], t);
        };
        // The bounds are those of the PTX manual.
        one("sin", "angle", near("f32", 2, 7e-7));
        one("cos", "angle", near("f32", 2, 7e-7));
        one("lg2", "f32", near("f32", 4, 3e-7));
        one("ex2", "f32", near("f32", 4, 0.0));
        one("rcp", "f32", near("f32", 1, 0.0));
        one("rsqrt", "f32", near("f32", 2, 0.0));
        one("sqrt", "f32", near("f32", 2, 0.0));
        for kind in ["approx", "full"] {
            let name = format!("div.{kind}{ftz}.f32");
            c.op_as(&name, &name, "f32", &["f32", "f32"], near("f32", 2, 0.0));
        }
    }
    c.op_as("tanh.approx.f32", "tanh.approx.f32", "f32", &["f32"], near("f32", 8192, 0.0));
    for (op, ulp) in [("rcp.approx.ftz.f64", 1 << 33), ("rsqrt.approx.f64", 2)] {
        c.op_as(op, op, "f64", &["f64"], near("f64", ulp, 0.0));
    }
    let op = "rsqrt.approx.ftz.f64";
    c.op_as(op, op, "f64", &["f64"], near("f64", 1 << 33, 0.0));
    for f in ["f16", "f16x2"] {
        let (ex2, tanh) = (format!("ex2.approx.{f}"), format!("tanh.approx.{f}"));
        let float = if f == "f16" { "f16" } else { "f16x2" };
        c.op_as(&ex2, &ex2, f, &[f], near(float, 1, 0.0));
        c.op_as(&tanh, &tanh, f, &[f], near(float, 2, 1e-3));
    }
    for f in ["bf16", "bf16x2"] {
        let (ex2, tanh) = (format!("ex2.approx.ftz.{f}"), format!("tanh.approx.{f}"));
        let float = if f == "bf16" { "bf16" } else { "bf16x2" };
        c.op_as(&ex2, &ex2, f, &[f], near(float, 1, 0.0));
        c.op_as(&tanh, &tanh, f, &[f], near(float, 1, 0.0));
    }
}

const FLOAT_COMPARES: [&str; 14] =
    ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

fn compares(t: &str) -> &'static [&'static str] {
    match t.as_bytes()[0] {
        b'f' => &FLOAT_COMPARES,
        b'b' if t.starts_with("bf") => &FLOAT_COMPARES,
        b'b' => &["eq", "ne"],
        b's' => &["eq", "ne", "lt", "le", "gt", "ge"],
        _ => &["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"],
    }
}

fn compare(c: &mut Cases) {
    for t in ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16"] {
        for op in compares(t) {
            c.op(&format!("setp.{op}.{t}"), "pred", &[t, t]);
        }
    }
    for op in FLOAT_COMPARES {
        c.op(&format!("setp.{op}.ftz.f32"), "pred", &["f32", "f32"]);
        c.op(&format!("setp.{op}.ftz.f16"), "pred", &["f16", "f16"]);
    }
    for (t, not) in [("s32", ""), ("f32", "!"), ("u64", "")] {
        for combine in ["and", "or", "xor"] {
            let r = letter(t);
            let (_, p) = store('p', 8, 0);
            let (_, q) = store('p', 9, 1);
            let body = format!("setp.lt.{combine}.{t} %p8|%p9, %{r}1, %{r}2, {not}%p3;\n{p}{q}");
            let ins = [crate::kind(t), crate::kind(t), "pred"];
            c.body(&format!("setp.lt.{combine}.{t} p|q"), &ins, &[4, 4], &body, Tolerance::default());
        }
    }
    for t in ["f16x2", "bf16x2"] {
        for op in ["eq", "lt", "geu", "nan"] {
            let (_, p) = store('p', 8, 0);
            let (_, q) = store('p', 9, 1);
            let body = format!("setp.{op}.{t} %p8|%p9, %w1, %w2;\n{p}{q}");
            c.body(&format!("setp.{op}.{t}"), &[t, t], &[4, 4], &body, Tolerance::default());
        }
    }
    for t in ["b32", "u32", "s32", "u16", "s16", "u64", "s64", "f32", "f64"] {
        for d in ["u32", "s32", "f32"] {
            let op = if t.starts_with('b') { "eq" } else { "lt" };
            c.op(&format!("set.{op}.{d}.{t}"), d, &[t, t]);
        }
    }
    c.op("set.gtu.ftz.f32.f32", "f32", &["f32", "f32"]);
    c.op("set.lt.and.u32.s32", "u32", &["s32", "s32", "pred"]);
    c.op("set.lt.f16.f16", "f16", &["f16", "f16"]);
    c.op("set.lt.u16.f16", "u16", &["f16", "f16"]);
    c.op("set.lt.u32.f16", "u32", &["f16", "f16"]);
    c.op("set.lt.f16x2.f16x2", "f16x2", &["f16x2", "f16x2"]);
    c.op("set.geu.bf16x2.bf16x2", "bf16x2", &["bf16x2", "bf16x2"]);
    c.op("set.lt.bf16.bf16", "bf16", &["bf16", "bf16"]);
}

fn select(c: &mut Cases) {
    for t in ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"] {
        c.op(&format!("selp.{t}"), t, &[t, t, "pred"]);
        c.op(&format!("slct.{t}.s32"), t, &[t, t, "s32"]);
        c.op(&format!("slct.{t}.f32"), t, &[t, t, "f32"]);
        c.op(&format!("slct.ftz.{t}.f32"), t, &[t, t, "f32"]);
    }
}
