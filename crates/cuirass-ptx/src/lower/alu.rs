//! Instructions of registers: the table, and the few that are written differently.

use super::function::Lower;
use crate::ast::{Instr, Operand, Ty};
use crate::check::{class_of, class_of_letter};
use crate::code::{Args, Class, NONE, Op};
use crate::error::{ModuleError, ModuleErrorKind};
use crate::ops::{flags, table};

/// Opcodes of the language that are not simulated at all.
const KNOWN: &[&str] = &[
    "tex",
    "tld4",
    "txq",
    "suld",
    "sust",
    "sured",
    "suq",
    "istypep",
    "mma",
    "wmma",
    "wgmma",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "cp",
    "tensormap",
    "mbarrier",
    "mapa",
    "getctarank",
    "multimem",
    "setmaxnreg",
    "tcgen05",
    "discard",
    "applypriority",
    "createpolicy",
    "st",
    "red",
    "clusterlaunchcontrol",
    "alloca",
    "stacksave",
    "stackrestore",
    "vadd",
    "vsub",
    "vabsdiff",
    "vmin",
    "vmax",
    "vshl",
    "vshr",
    "vmad",
    "vset",
    "vadd2",
    "vsub2",
    "vavrg2",
    "vabsdiff2",
    "vmin2",
    "vmax2",
    "vset2",
    "vadd4",
    "vsub4",
    "vavrg4",
    "vabsdiff4",
    "vmin4",
    "vmax4",
    "vset4",
    "barrier",
    "fence",
    "ldu",
    "cvt",
    "set",
    "setp",
    "atom",
    "ld",
    "bar",
    "shfl",
    "vote",
    "match",
    "redux",
    "elect",
    "brx",
    "mov",
    "cvta",
    "prefetch",
    "prefetchu",
];

fn letter_is_dest(letter: char) -> bool {
    letter.is_ascii_uppercase()
}

impl<'s> Lower<'_, 's> {
    /// Finds whose instruction this is.
    pub(super) fn dispatch(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let mut parts = instr.opcode.split('.');
        let base = parts.next().unwrap_or("");
        match base {
            "mov" => self.mov(instr),
            "cvt" => self.cvt(instr),
            "setp" => self.setp(instr),
            "set" => self.set(instr),
            "mbarrier" => self.mbarrier(instr),
            "cp" => self.copy_async(instr),
            "ld" | "ldu" | "st" | "atom" | "red" | "prefetch" | "prefetchu" | "fence" | "membar" | "cvta"
            | "isspacep" | "discard" | "applypriority" => self.memory(instr),
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "nanosleep" | "griddepcontrol" | "pmevent" => {
                self.control(instr)
            }
            "bar" | "barrier" | "vote" | "shfl" | "match" | "redux" | "elect" | "activemask" => self.sync(instr),
            _ => self.row(instr),
        }
    }

    /// Splits an opcode into the key of the table and its flags.
    pub(super) fn key(opcode: &str) -> (String, u32) {
        let mut key = String::with_capacity(opcode.len());
        let mut all = 0;
        for (i, part) in opcode.split('.').enumerate() {
            // `abs` is an opcode first and a modifier afterwards.
            match flags::of(part) {
                Some(flag) if i > 0 => all |= flag,
                _ => {
                    if i > 0 {
                        key.push('.');
                    }
                    key.push_str(part);
                }
            }
        }
        (key, all)
    }

    /// An instruction that the table describes.
    fn row(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let (key, all) = Self::key(instr.opcode);
        self.by_key(&key, all, &instr.operands)
    }

    pub(super) fn unknown(&mut self, key: &str) -> Result<(), ModuleError> {
        let base = key.split('.').next().unwrap_or("");
        let prefix = format!("{base}.");
        if KNOWN.contains(&base) || table().rows.keys().any(|k| k.starts_with(&prefix)) {
            self.not_supported();
            return Ok(());
        }
        self.fail(ModuleErrorKind::Syntax, format!("there is no instruction {}", self.text))
    }

    /// Emits a row of the table on operands of the text.
    pub(super) fn by_key(&mut self, key: &str, all: u32, operands: &[Operand<'s>]) -> Result<(), ModuleError> {
        let Some(&row) = table().rows.get(key) else {
            return self.unknown(key);
        };
        if all & !row.allowed != 0 {
            self.not_supported();
            return Ok(());
        }
        if row.shape.len() != operands.len() {
            let text = format!("{} takes {} operands, not {}", self.text, row.shape.len(), operands.len());
            return self.fail(ModuleErrorKind::Type, text);
        }
        let mut args = Args { flags: all, ..Args::default() };
        let mut sources = 0;
        for (letter, operand) in row.shape.chars().zip(operands) {
            if letter == 'i' {
                let Operand::Int(v) = operand else {
                    return self.fail(ModuleErrorKind::Type, "an immediate is needed");
                };
                args.flags |= ((*v & 0xff) as u32) << flags::IMM_SHIFT;
                continue;
            }
            let Some(class) = class_of_letter(letter) else { continue };
            if letter_is_dest(letter) {
                args.d = self.dest(operand, class)?;
                continue;
            }
            let reg = self.source(operand, class)?;
            match sources {
                0 => args.a = reg,
                1 => args.b = reg,
                2 => args.c = reg,
                _ => args.f = reg,
            }
            sources += 1;
        }
        self.emit_row(row, args);
        Ok(())
    }

    fn emit_row(&mut self, row: crate::ops::Row, args: Args) {
        let has_flags = args.flags & !flags::ROUNDED & ((1 << flags::IMM_SHIFT) - 1) != 0;
        let handler = if has_flags { row.flagged.unwrap_or(row.plain) } else { row.plain };
        self.emit(Op::Alu(handler), args);
    }

    /// Emits a row on registers: the destination, then up to four sources.
    pub(super) fn raw(&mut self, key: &str, flags: u32, d: u32, sources: &[u32]) {
        let Some(&row) = table().rows.get(key) else {
            return self.not_supported();
        };
        let at = |i: usize| sources.get(i).copied().unwrap_or(NONE);
        let args = Args { d, a: at(0), b: at(1), c: at(2), f: at(3), flags, ..Args::default() };
        self.emit_row(row, args);
    }

    /// The comparison of `setp` and `set`, and the flag that says how it is combined.
    fn comparison(parts: &[&str], ty: Ty, all: u32) -> Option<(crate::ops::compare::MaskFn, u32)> {
        let (operator, combine) = match parts {
            [operator] => (*operator, 0),
            [operator, "and"] => (*operator, flags::WITH_AND),
            [operator, "or"] => (*operator, flags::WITH_OR),
            [operator, "xor"] => (*operator, flags::WITH_XOR),
            _ => return None,
        };
        let name = match ty {
            Ty::B16 => "b16",
            Ty::B32 => "b32",
            Ty::B64 => "b64",
            Ty::U16 => "u16",
            Ty::U32 => "u32",
            Ty::U64 => "u64",
            Ty::S16 => "s16",
            Ty::S32 => "s32",
            Ty::S64 => "s64",
            Ty::F16 => "f16",
            Ty::Bf16 => "bf16",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
            _ => return None,
        };
        let ftz = if all & flags::FTZ != 0 { "ftz." } else { "" };
        let compare = table().compares.get(&format!("{operator}.{ftz}{name}")).copied()?;
        Some((compare, combine))
    }

    fn setp(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let (key, all) = Self::key(instr.opcode);
        let parts: Vec<&str> = key.split('.').skip(1).collect();
        let Some((name, parts)) = parts.split_last() else { return self.unknown(&key) };
        let ty = Ty::from_name(name);
        if let Some(pair @ (Ty::F16x2 | Ty::Bf16x2)) = ty {
            return self.setp_pair(instr, parts, all, pair);
        }
        let found = ty.and_then(|ty| Some((ty, Self::comparison(parts, ty, all)?)));
        let Some((ty, (compare, combine))) = found else {
            self.not_supported();
            return Ok(());
        };
        let Some(class) = class_of(ty) else { return self.unknown(&key) };
        let operands = instr.operands.as_slice();
        if operands.len() != 3 + usize::from(combine != 0) {
            return self.fail(ModuleErrorKind::Type, "setp has the wrong number of operands");
        }
        let mut args = Args { flags: combine, ..Args::default() };
        args.a = self.source(&operands[1], class)?;
        args.b = self.source(&operands[2], class)?;
        if let Some(with) = operands.get(3) {
            self.with(with, &mut args)?;
        }
        (args.d, args.e) = self.pair_dest(&operands[0])?;
        self.emit(Op::Compare(compare), args);
        Ok(())
    }

    fn with(&mut self, operand: &Operand<'s>, args: &mut Args) -> Result<(), ModuleError> {
        let (p, negated) = self.predicate(operand)?;
        args.c = p;
        if negated {
            args.flags |= flags::WITH_NOT;
        }
        Ok(())
    }

    /// `p` or `p|q`; a sink is [`NONE`].
    pub(super) fn pair_dest(&mut self, operand: &Operand<'s>) -> Result<(u32, u32), ModuleError> {
        let mut one = |name: &'s str| {
            if name == "_" { Ok(NONE) } else { self.dest_name(name, Class::P) }
        };
        match *operand {
            Operand::Pair(p, q) => Ok((one(p)?, one(q)?)),
            Operand::Name(p) => Ok((one(p)?, NONE)),
            _ => self.fail(ModuleErrorKind::Type, "a predicate is needed as destination"),
        }
    }

    /// `setp` of pairs: the first predicate is of the lower halves.
    fn setp_pair(&mut self, instr: &Instr<'s>, parts: &[&str], all: u32, pair: Ty) -> Result<(), ModuleError> {
        let half = if pair == Ty::F16x2 { Ty::F16 } else { Ty::Bf16 };
        let Some((compare, combine)) = Self::comparison(parts, half, all) else {
            self.not_supported();
            return Ok(());
        };
        let operands = instr.operands.as_slice();
        if operands.len() != 3 + usize::from(combine != 0) {
            return self.fail(ModuleErrorKind::Type, "setp has the wrong number of operands");
        }
        let a = self.source(&operands[1], Class::R32)?;
        let b = self.source(&operands[2], Class::R32)?;
        let (p, q) = self.pair_dest(&operands[0])?;
        for (d, shift) in [(p, 0u32), (q, 16)] {
            if d == NONE {
                continue;
            }
            let (x, y) = (self.temp(Class::R16).index, self.temp(Class::R16).index);
            self.raw("part.16.32", shift << flags::IMM_SHIFT, x, &[a]);
            self.raw("part.16.32", shift << flags::IMM_SHIFT, y, &[b]);
            let mut args = Args { d, a: x, b: y, flags: combine, ..Args::default() };
            if let Some(with) = operands.get(3) {
                self.with(with, &mut args)?;
            }
            self.emit(Op::Compare(compare), args);
        }
        Ok(())
    }

    /// `set`: a comparison whose result is all ones, or 1.0.
    fn set(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let (key, all) = Self::key(instr.opcode);
        let parts: Vec<&str> = key.split('.').skip(1).collect();
        let [parts @ .., to, from] = parts.as_slice() else { return self.unknown(&key) };
        let (Some(to), Some(from)) = (Ty::from_name(to), Ty::from_name(from)) else {
            return self.unknown(&key);
        };
        let (half, pair) = match from {
            Ty::F16x2 => (Ty::F16, true),
            Ty::Bf16x2 => (Ty::Bf16, true),
            other => (other, false),
        };
        let found = Self::comparison(parts, half, all);
        let (Some((compare, combine)), Some(class), Some(to_class)) = (found, class_of(half), class_of(to)) else {
            self.not_supported();
            return Ok(());
        };
        let operands = instr.operands.as_slice();
        if operands.len() != 3 + usize::from(combine != 0) {
            return self.fail(ModuleErrorKind::Type, "set has the wrong number of operands");
        }
        let yes: u64 = match to {
            Ty::F32 => 0x3f80_0000,
            Ty::F16 | Ty::F16x2 => 0x3c00,
            Ty::Bf16 | Ty::Bf16x2 => 0x3f80,
            Ty::U16 | Ty::S16 => 0xffff,
            _ if pair => 0xffff,
            _ => 0xffff_ffff,
        };
        let wide = if pair { Class::R32 } else { class };
        let a = self.source(&operands[1], wide)?;
        let b = self.source(&operands[2], wide)?;
        let d = self.dest(&operands[0], to_class)?;
        let mut halves = Vec::new();
        for shift in if pair { [0u32, 16].as_slice() } else { [0].as_slice() } {
            let (mut x, mut y) = (a, b);
            if pair {
                (x, y) = (self.temp(Class::R16).index, self.temp(Class::R16).index);
                self.raw("part.16.32", shift << flags::IMM_SHIFT, x, &[a]);
                self.raw("part.16.32", shift << flags::IMM_SHIFT, y, &[b]);
            }
            let p = self.temp(Class::P).index;
            let mut args = Args { d: p, a: x, b: y, flags: combine, ..Args::default() };
            if let Some(with) = operands.get(3) {
                self.with(with, &mut args)?;
            }
            self.emit(Op::Compare(compare), args);
            let part = if pair { Class::R16 } else { to_class };
            let one = self.constant(part, crate::code::Constant::Bits(yes)).index;
            let zero = self.constant(part, crate::code::Constant::Bits(0)).index;
            let out = if pair { self.temp(part).index } else { d };
            let key = match part {
                Class::R16 => "selp.b16",
                Class::R32 => "selp.b32",
                _ => "selp.b64",
            };
            self.raw(key, 0, out, &[one, zero, p]);
            halves.push(out);
        }
        if pair {
            self.raw("pack.2x16", 0, d, &halves);
        }
        Ok(())
    }
}
