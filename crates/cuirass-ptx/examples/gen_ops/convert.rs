//! `cvt` of every pair.

use crate::{Cases, Tolerance, letter};

const INTS: [&str; 8] = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];
const ROUNDS: [&str; 4] = ["rn", "rz", "rm", "rp"];
const INTEGRAL: [&str; 4] = ["rni", "rzi", "rmi", "rpi"];

/// Whether every value of `s` is one of `d`: the assembler refuses to saturate then.
fn holds(d: &str, s: &str) -> bool {
    let bits = |t: &str| t[1..].parse::<u32>().unwrap_or(0);
    match (d.as_bytes()[0], s.as_bytes()[0]) {
        (a, b) if a == b => bits(d) >= bits(s),
        (b's', _) => bits(d) > bits(s),
        _ => false,
    }
}

pub fn all(c: &mut Cases) {
    for d in INTS {
        for s in INTS {
            c.op(&format!("cvt.{d}.{s}"), d, &[s]);
            if !holds(d, s) {
                c.op(&format!("cvt.sat.{d}.{s}"), d, &[s]);
            }
        }
    }
    // Registers wider than the type, on both sides.
    for (d, reg) in [("u8", "b32"), ("s8", "b32"), ("u16", "b32"), ("s16", "b64"), ("s8", "b64")] {
        let op = format!("cvt.{d}.u32");
        c.op_as(&format!("{op} into {reg}"), &op, reg, &["u32"], Tolerance::default());
    }
    for (s, reg) in [("u8", "b32"), ("s8", "b64"), ("s16", "b32"), ("u16", "b64")] {
        let op = format!("cvt.s32.{s}");
        c.op_as(&format!("{op} from {reg}"), &op, "s32", &[reg], Tolerance::default());
    }
    for f in ["f16", "bf16", "f32", "f64"] {
        for i in INTS {
            if f == "bf16" && i.ends_with('8') {
                continue;
            }
            for round in INTEGRAL {
                c.op(&format!("cvt.{round}.{i}.{f}"), i, &[f]);
                if f == "f32" {
                    c.op(&format!("cvt.{round}.ftz.{i}.{f}"), i, &[f]);
                }
            }
            for round in ROUNDS {
                c.op(&format!("cvt.{round}.{f}.{i}"), f, &[i]);
            }
            if f == "f32" || f == "f16" || f == "f64" {
                c.op(&format!("cvt.rn.sat.{f}.{i}"), f, &[i]);
            }
        }
    }
    floats(c);
    pairs(c);
}

fn floats(c: &mut Cases) {
    for round in ROUNDS {
        for ftz in ["", ".ftz"] {
            for sat in ["", ".sat"] {
                c.op(&format!("cvt.{round}{ftz}{sat}.f32.f64"), "f32", &["f64"]);
            }
            c.op(&format!("cvt.{round}{ftz}.f16.f32"), "f16", &["f32"]);
        }
        c.op(&format!("cvt.{round}.sat.f16.f32"), "f16", &["f32"]);
        c.op(&format!("cvt.{round}.f16.f64"), "f16", &["f64"]);
        c.op(&format!("cvt.{round}.bf16.f64"), "bf16", &["f64"]);
    }
    for (op, d, s) in [
        ("cvt.f64.f32", "f64", "f32"),
        ("cvt.ftz.f64.f32", "f64", "f32"),
        ("cvt.sat.f64.f32", "f64", "f32"),
        ("cvt.f32.f16", "f32", "f16"),
        ("cvt.ftz.f32.f16", "f32", "f16"),
        ("cvt.sat.f32.f16", "f32", "f16"),
        ("cvt.f32.bf16", "f32", "bf16"),
        ("cvt.f64.f16", "f64", "f16"),
        ("cvt.f64.bf16", "f64", "bf16"),
        ("cvt.rn.bf16.f32", "bf16", "f32"),
        ("cvt.rz.bf16.f32", "bf16", "f32"),
        ("cvt.rn.relu.bf16.f32", "bf16", "f32"),
        ("cvt.rz.relu.bf16.f32", "bf16", "f32"),
        ("cvt.rn.relu.f16.f32", "f16", "f32"),
        ("cvt.rz.relu.f16.f32", "f16", "f32"),
        ("cvt.rn.bf16.f16", "bf16", "f16"),
        ("cvt.rn.f16.bf16", "f16", "bf16"),
        ("cvt.rz.f16.bf16", "f16", "bf16"),
        ("cvt.rna.tf32.f32", "b32", "f32"),
        ("cvt.rn.tf32.f32", "b32", "f32"),
        ("cvt.rz.tf32.f32", "b32", "f32"),
        ("cvt.rn.relu.tf32.f32", "b32", "f32"),
        ("cvt.sat.f32.f32", "f32", "f32"),
        ("cvt.ftz.f32.f32", "f32", "f32"),
        ("cvt.sat.f64.f64", "f64", "f64"),
    ] {
        c.op(op, d, &[s]);
    }
    for f in ["f16", "bf16", "f32", "f64"] {
        for round in INTEGRAL {
            c.op(&format!("cvt.{round}.{f}.{f}"), f, &[f]);
            if f == "f32" {
                c.op(&format!("cvt.{round}.ftz.{f}.{f}"), f, &[f]);
                c.op(&format!("cvt.{round}.sat.{f}.{f}"), f, &[f]);
            }
        }
    }
}

fn pairs(c: &mut Cases) {
    for pair in ["f16x2", "bf16x2"] {
        for round in ["rn", "rz"] {
            for relu in ["", ".relu"] {
                c.op(&format!("cvt.{round}{relu}.{pair}.f32"), pair, &["f32", "f32"]);
            }
        }
    }
    for eight in ["e4m3x2", "e5m2x2"] {
        for relu in ["", ".relu"] {
            c.op(&format!("cvt.rn.satfinite{relu}.{eight}.f32"), eight, &["f32", "f32"]);
            c.op(&format!("cvt.rn.satfinite{relu}.{eight}.f16x2"), eight, &["f16x2"]);
            c.op(&format!("cvt.rn{relu}.f16x2.{eight}"), "f16x2", &[eight]);
        }
    }
    moves(c);
}

/// `mov` that takes registers apart and puts them together.
fn moves(c: &mut Cases) {
    let (_, w) = crate::store('w', 8, 0);
    let (_, l) = crate::store('l', 8, 0);
    let mut body = |name: &str, ins: &[&str], outs: &[u32], text: String| {
        c.body(name, ins, outs, &text, Tolerance::default());
    };
    body("mov.b32 {h,h}", &["u16", "u16"], &[4], format!("mov.b32 %w8, {{%h1, %h2}};\n{w}"));
    body("mov.b64 {w,w}", &["u32", "u32"], &[8], format!("mov.b64 %l8, {{%w1, %w2}};\n{l}"));
    body("mov.b64 {h,h,h,h}", &["u16"; 4], &[8], format!("mov.b64 %l8, {{%h1, %h2, %h3, %h4}};\n{l}"));
    let (h, w0, w1) = (letter("b16"), crate::store('w', 8, 0).1, crate::store('w', 9, 1).1);
    let h0 = crate::store(h, 8, 0).1;
    let h1 = crate::store(h, 9, 1).1;
    body("mov.b32 apart", &["u32"], &[2, 2], format!("mov.b32 {{%h8, %h9}}, %w1;\n{h0}{h1}"));
    body("mov.b64 apart", &["u64"], &[4, 4], format!("mov.b64 {{%w8, %w9}}, %l1;\n{w0}{w1}"));
    body("mov.b64 apart in four", &["u64"], &[2, 2], format!("mov.b64 {{%h10, %h8, %h11, %h9}}, %l1;\n{h0}{h1}"));
}
