//! Writes `tests/ops/cases.jsonl`: one line a case, for the interpreter and for hardware alike.
//!
//! `cargo run -p cuirass-ptx --example gen_ops > crates/cuirass-ptx/tests/ops/cases.jsonl`, and
//! with the argument `more` the second round, `more.jsonl`.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

mod convert;
mod inputs;
mod memory;
mod more;
mod numbers;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The kernel around a body. Slots of eight bytes: four inputs, two outputs and one of scratch
/// memory a row. `%h`, `%w`, `%l` and `%p` 1 to 4 hold the inputs by width.
const TEMPLATE: &str = "\
.version 8.4
.target sm_90
.address_size 64
.global .align 16 .b8 gm[64];
.const .align 8 .b8 cm[16] = {1,2,3,4,5,6,7,8,0x81,0x82,0x83,0x84,0x85,0x86,0x87,0x88};
.visible .entry k(.param .u64 pin, .param .u64 pout, .param .u64 ptmp)
{
.reg .pred %p<16>;
.reg .b16 %h<16>;
.reg .b32 %w<24>;
.reg .b64 %l<24>;
.reg .b32 %row;
.reg .b64 %i, %o, %t, %x, %all;
.shared .align 16 .b8 sm[4096];
.local .align 16 .b8 lm[64];
ld.param.u64 %i, [pin];
ld.param.u64 %o, [pout];
ld.param.u64 %all, [ptmp];
mov.u32 %row, %tid.x;
mul.wide.u32 %x, %row, 32;
add.s64 %i, %i, %x;
mul.wide.u32 %x, %row, 16;
add.s64 %o, %o, %x;
add.s64 %t, %all, %x;
ld.global.b64 %l1, [%i];
ld.global.b64 %l2, [%i+8];
ld.global.b64 %l3, [%i+16];
ld.global.b64 %l4, [%i+24];
cvt.u32.u64 %w1, %l1;
cvt.u32.u64 %w2, %l2;
cvt.u32.u64 %w3, %l3;
cvt.u32.u64 %w4, %l4;
cvt.u16.u64 %h1, %l1;
cvt.u16.u64 %h2, %l2;
cvt.u16.u64 %h3, %l3;
cvt.u16.u64 %h4, %l4;
setp.ne.b16 %p1, %h1, 0;
setp.ne.b16 %p2, %h2, 0;
setp.ne.b16 %p3, %h3, 0;
setp.ne.b16 %p4, %h4, 0;
@BODY@
ret;
}
";

/// A register letter: `h` 16, `w` 32, `l` 64 bits, `p` a predicate.
pub fn letter(ty: &str) -> char {
    match ty {
        "pred" => 'p',
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => 'h',
        "b64" | "u64" | "s64" | "f64" => 'l',
        _ => 'w',
    }
}

/// The kind of inputs for an operand of a type.
pub fn kind(ty: &str) -> &str {
    match ty {
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "e4m3x2" | "e5m2x2" => "u16",
        "b32" | "u32" | "s32" | "u16x2" | "s16x2" => "u32",
        "b64" | "u64" | "s64" => "u64",
        other => other,
    }
}

/// The cases so far.
#[derive(Default)]
pub struct Cases {
    lines: Vec<Value>,
    kinds: BTreeSet<String>,
    names: BTreeSet<String>,
}

/// How far a result may be from hardware's.
#[derive(Clone, Copy, Default)]
pub struct Tolerance {
    pub ulp: u64,
    pub abs: f64,
    pub float: &'static str,
}

impl Cases {
    /// A case of any body. `outs` gives the bytes of the outputs that it stores.
    pub fn body(&mut self, name: &str, ins: &[&str], outs: &[u32], body: &str, t: Tolerance) {
        assert!(self.names.insert(name.to_owned()), "{name} is there twice");
        let sets: Vec<String> = ins.iter().enumerate().map(|(slot, kind)| format!("{kind}.{slot}")).collect();
        self.kinds.extend(sets.iter().cloned());
        let mut line = json!({ "name": name, "in": sets, "out": outs, "body": body });
        if t.ulp > 0 {
            line["tolerance_ulp"] = t.ulp.into();
            line["tolerance_abs"] = t.abs.into();
            line["float"] = t.float.into();
        }
        self.lines.push(line);
    }

    /// A case of one instruction: a destination type, and source types or immediates.
    pub fn op(&mut self, opcode: &str, dest: &str, sources: &[&str]) {
        self.op_as(opcode, opcode, dest, sources, Tolerance::default());
    }

    pub fn op_as(&mut self, name: &str, opcode: &str, dest: &str, sources: &[&str], t: Tolerance) {
        let kinds: Vec<String> = sources.iter().map(|s| (*s).to_owned()).collect();
        self.op_kinds(name, opcode, dest, sources, &kinds, t);
    }

    /// As [`Cases::op_as`] with other kinds of inputs than the types suggest.
    pub fn op_kinds(&mut self, name: &str, opcode: &str, dest: &str, sources: &[&str], kinds: &[String], t: Tolerance) {
        let mut operands = Vec::new();
        let mut ins = Vec::new();
        for (source, kind_of) in sources.iter().zip(kinds) {
            if let Some(immediate) = source.strip_prefix('#') {
                operands.push(immediate.to_owned());
                continue;
            }
            ins.push(kind(kind_of));
            operands.push(format!("%{}{}", letter(source), ins.len()));
        }
        let d = letter(dest);
        let (bytes, store) = store(d, 8, 0);
        let body = format!("{opcode} %{d}8, {};\n{store}", operands.join(", "));
        self.body(name, &ins, &[bytes], &body, t);
    }

    fn print(&self) {
        let mut sets = Map::new();
        for key in &self.kinds {
            let (kind, slot) = key.rsplit_once('.').expect("a kind and a slot");
            let values = inputs::set(kind, slot.parse().expect("a number"));
            let text: Vec<String> = values.iter().map(|v| format!("{v:x}")).collect();
            sets.insert(key.clone(), text.join(" ").into());
        }
        println!("{}", json!({ "template": TEMPLATE, "rows": inputs::ROWS, "sets": sets }));
        for line in &self.lines {
            println!("{line}");
        }
    }
}

/// The text that stores register `n` of a letter into an output slot, and its bytes.
pub fn store(letter: char, n: u32, slot: u32) -> (u32, String) {
    let at = if slot == 0 { "[%o]".to_owned() } else { format!("[%o+{}]", 8 * slot) };
    match letter {
        'h' => (2, format!("st.global.b16 {at}, %h{n};\n")),
        'w' => (4, format!("st.global.b32 {at}, %w{n};\n")),
        'l' => (8, format!("st.global.b64 {at}, %l{n};\n")),
        _ => {
            let w = 16 + slot;
            (4, format!("selp.b32 %w{w}, 1, 0, %p{n};\nst.global.b32 {at}, %w{w};\n"))
        }
    }
}

fn main() {
    let mut cases = Cases::default();
    if std::env::args().nth(1).as_deref() == Some("more") {
        more::all(&mut cases);
        return cases.print();
    }
    numbers::all(&mut cases);
    convert::all(&mut cases);
    memory::all(&mut cases);
    cases.print();
}
