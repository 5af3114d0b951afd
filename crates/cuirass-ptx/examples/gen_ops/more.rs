//! A second round: numbers of every size, every sort of NaN, ties, carries in odd orders, and
//! warp-wide instructions of a part of the warp.

use crate::{Cases, Tolerance, letter, store};

const NONE: Tolerance = Tolerance { ulp: 0, abs: 0.0, float: "" };
const ROUNDS: [&str; 4] = ["rn", "rz", "rm", "rp"];

pub fn all(c: &mut Cases) {
    for mood in ["any", "nan"] {
        arithmetic(c, mood);
    }
    conversions(c);
    carries(c);
    warps(c);
    bytes(c);
}

/// An instruction whose inputs are of a kind like `f32.any`, which only this round has.
fn op(c: &mut Cases, opcode: &str, dest: &str, sources: &[&str], kind: &str) {
    let kinds: Vec<String> = sources.iter().map(|_| kind.to_owned()).collect();
    c.op_kinds(&format!("{opcode} {kind}"), opcode, dest, sources, &kinds, NONE);
}

fn arithmetic(c: &mut Cases, mood: &str) {
    for f in ["f32", "f64"] {
        let kind = format!("{f}{mood}");
        for round in ROUNDS {
            for name in ["add", "sub", "mul", "div"] {
                op(c, &format!("{name}.{round}.{f}"), f, &[f, f], &kind);
            }
            op(c, &format!("fma.{round}.{f}"), f, &[f, f, f], &kind);
            op(c, &format!("sqrt.{round}.{f}"), f, &[f], &kind);
            op(c, &format!("rcp.{round}.{f}"), f, &[f], &kind);
        }
        for name in ["neg", "abs"] {
            op(c, &format!("{name}.{f}"), f, &[f], &kind);
        }
        for name in ["min", "max", "copysign"] {
            op(c, &format!("{name}.{f}"), f, &[f, f], &kind);
        }
        for what in ["finite", "notanumber", "normal", "subnormal"] {
            op(c, &format!("testp.{what}.{f}"), "pred", &[f], &kind);
        }
        for compare in ["ltu", "neu", "nan"] {
            op(c, &format!("setp.{compare}.{f}"), "pred", &[f, f], &kind);
        }
    }
    for name in ["add", "mul"] {
        op(c, &format!("{name}.rn.ftz.f32"), "f32", &["f32", "f32"], &format!("f32{mood}"));
    }
    op(c, "fma.rn.ftz.f32", "f32", &["f32", "f32", "f32"], &format!("f32{mood}"));
    op(c, "max.NaN.f32", "f32", &["f32", "f32"], &format!("f32{mood}"));
    for f in ["f16", "bf16"] {
        let kind = format!("{f}{mood}");
        for name in ["add", "sub", "mul"] {
            op(c, &format!("{name}.rn.{f}"), f, &[f, f], &kind);
        }
        op(c, &format!("fma.rn.{f}"), f, &[f, f, f], &kind);
        op(c, &format!("fma.rn.relu.{f}"), f, &[f, f, f], &kind);
        for name in ["neg", "abs"] {
            op(c, &format!("{name}.{f}"), f, &[f], &kind);
        }
        for name in ["min", "max", "min.NaN", "max.xorsign.abs"] {
            op(c, &format!("{name}.{f}"), f, &[f, f], &kind);
        }
    }
}

fn conversions(c: &mut Cases) {
    const PAIRS: [(&str, &str, &[&str]); 12] = [
        ("f32", "f64", &ROUNDS),
        ("f64", "f32", &[""]),
        ("f16", "f32", &ROUNDS),
        ("f32", "f16", &[""]),
        ("f16", "f64", &ROUNDS),
        ("f64", "f16", &[""]),
        ("bf16", "f32", &["rn", "rz"]),
        ("f32", "bf16", &[""]),
        ("bf16", "f64", &ROUNDS),
        ("bf16", "f16", &["rn"]),
        ("f16", "bf16", &["rn"]),
        ("tf32", "f32", &["rn", "rna"]),
    ];
    for (d, s, rounds) in PAIRS {
        for round in rounds {
            let dot = if round.is_empty() { "" } else { "." };
            for mood in ["any", "nan", "tie"] {
                if mood == "tie" && s != "f32" {
                    continue;
                }
                let to = if d == "tf32" { "b32" } else { d };
                op(c, &format!("cvt{dot}{round}.{d}.{s}"), to, &[s], &format!("{s}{mood}"));
            }
        }
    }
    for i in ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"] {
        for f in ["f32", "f64", "f16"] {
            for round in ["rni", "rzi"] {
                for mood in ["any", "nan"] {
                    op(c, &format!("cvt.{round}.{i}.{f}"), i, &[f], &format!("{f}{mood}"));
                }
            }
        }
    }
    for f in ["f32", "f64", "f16", "bf16"] {
        for round in ["rni", "rzi", "rmi", "rpi"] {
            for mood in ["any", "nan"] {
                op(c, &format!("cvt.{round}.{f}.{f}"), f, &[f], &format!("{f}{mood}"));
            }
        }
    }
    for pair in ["f16x2", "bf16x2"] {
        op(c, &format!("cvt.rn.{pair}.f32"), pair, &["f32", "f32"], "f32tie");
    }
    for eight in ["e4m3x2", "e5m2x2"] {
        op(c, &format!("cvt.rn.satfinite.{eight}.f32"), eight, &["f32", "f32"], "f32tie");
        op(c, &format!("cvt.rn.satfinite.{eight}.f32"), eight, &["f32", "f32"], "f32nan");
    }
}

fn carries(c: &mut Cases) {
    let mut chain = |name: &str, lines: &str| {
        let body = format!("{lines}\n{}{}", store('w', 8, 0).1, store('w', 9, 1).1);
        c.body(name, &["u32", "u32", "u32", "u32"], &[4, 4], &body, NONE);
    };
    chain("sub.cc, addc", "sub.cc.u32 %w8, %w1, %w2;\naddc.u32 %w9, %w3, %w4;");
    chain("add.cc, subc", "add.cc.u32 %w8, %w1, %w2;\nsubc.u32 %w9, %w3, %w4;");
    chain("subc.cc, addc", "sub.cc.u32 %w8, %w1, %w2;\nsubc.cc.u32 %w8, %w3, %w4;\naddc.u32 %w9, 0, 0;");
    chain(
        "mad.lo.cc, madc.hi.cc, addc",
        "mad.lo.cc.u32 %w8, %w1, %w2, %w3;\nmadc.hi.cc.u32 %w8, %w1, %w2, %w4;\naddc.u32 %w9, 0, 0;",
    );
    chain(
        "mad.hi.cc, madc.lo.cc, addc",
        "mad.hi.cc.s32 %w8, %w1, %w2, %w3;\nmadc.lo.cc.s32 %w8, %w1, %w2, %w4;\naddc.u32 %w9, 0, 0;",
    );
}

/// The lanes of a mask, each half of the warp on its own.
fn warps(c: &mut Cases) {
    let half = "and.b32 %w10, %row, 16;\nsetp.ne.u32 %p8, %w10, 0;\nselp.b32 %w11, 0xffff0000, 0x0000ffff, %p8;\n";
    let mut part = |name: &str, ins: &[&str], line: &str| {
        let body = format!("mov.u32 %w9, 0;\n{half}{line}\n{}{}", store('w', 8, 0).1, store('w', 9, 1).1);
        c.body(&format!("{name} of halves"), ins, &[4, 4], &body, NONE);
    };
    let taken = "selp.b32 %w9, 1, 0, %p9;";
    part("vote.sync.ballot.b32", &["pred"], "vote.sync.ballot.b32 %w8, %p1, %w11;");
    part("vote.sync.any.pred", &["pred"], &format!("vote.sync.any.pred %p9, %p1, %w11;\n{taken}\nmov.u32 %w8, 0;"));
    part("match.any.sync.b32", &["few"], "match.any.sync.b32 %w8, %w1, %w11;");
    part("match.all.sync.b32", &["few"], &format!("match.all.sync.b32 %w8|%p9, %w10, %w11;\n{taken}"));
    for (name, ty) in [("add", "u32"), ("max", "s32"), ("xor", "b32")] {
        let line = format!("redux.sync.{name}.{ty} %w8, %w1, %w11;");
        part(&format!("redux.sync.{name}.{ty}"), &["u32"], &line);
    }
    part("elect.sync", &["u32"], &format!("elect.sync %w8|%p9, %w11;\n{taken}"));
    for mode in ["up", "down", "bfly", "idx"] {
        let clamp = if mode == "up" { "0x1000" } else { "0x100f" };
        let line = format!("shfl.sync.{mode}.b32 %w8|%p9, %w1, 3, {clamp}, %w11;\n{taken}");
        part(&format!("shfl.sync.{mode}.b32"), &["u32"], &line);
    }
    let line = "mov.u32 %w8, 0;\n@%p8 bra upper;\nredux.sync.add.u32 %w8, %w1, 0xffff;\nbra.uni both;\nupper:\nredux.sync.min.u32 %w8, %w1, 0xffff0000;\nboth:\nbar.warp.sync 0xffffffff;\nactivemask.b32 %w9;";
    part("divergent redux", &["u32"], line);
}

fn bytes(c: &mut Cases) {
    for add in ["", ".add"] {
        let opcode = format!("vabsdiff4.u32.u32.u32{add}");
        c.op(&opcode, "u32", &["u32", "u32", "u32"]);
    }
    for (name, t) in [("add", "f32"), ("add", "f64")] {
        let r = letter(t);
        let bytes = if r == 'w' { 4 } else { 8 };
        for space in ["global", "shared"] {
            let address = if space == "global" {
                "mov.b64 %l10, %t;".to_owned()
            } else {
                "mul.wide.u32 %l11, %row, 16;\nmov.u64 %l10, sm;\nadd.s64 %l10, %l10, %l11;".to_owned()
            };
            let n = 8 * bytes;
            let body = format!(
                "{address}\nst.{space}.b{n} [%l10], %{r}1;\natom.{space}.{name}.{t} %{r}8, [%l10], %{r}2;\nld.{space}.b{n} %{r}9, [%l10];\n{}{}",
                store(r, 8, 0).1,
                store(r, 9, 1).1
            );
            for mood in ["any", "nan"] {
                let kind = format!("{t}{mood}");
                c.body(&format!("atom.{space}.{name}.{t} {kind}"), &[&kind, &kind], &[bytes, bytes], &body, NONE);
            }
        }
    }
}
