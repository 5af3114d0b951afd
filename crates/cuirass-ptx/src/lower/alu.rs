//! Instructions of registers: the table, and the few that are written differently.

use super::function::Lower;
use crate::ast::{Instr, Operand, Ty};
use crate::check::{bits_of, class_of, class_of_letter};
use crate::code::{Args, Class, Clock, NONE, Op, RegRef};
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
    fn key(opcode: &str) -> (String, u32) {
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

    fn unknown(&mut self, key: &str) -> Result<(), ModuleError> {
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

    fn mov(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let [dest, source] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "mov takes two operands");
        };
        let ty = instr.opcode.strip_prefix("mov.").and_then(Ty::from_name);
        let Some(ty) = ty else { return self.unknown(instr.opcode) };
        match (dest, source) {
            (Operand::Vector(parts), _) => return self.unpack(ty, parts, source),
            (_, Operand::Vector(parts)) => return self.pack(ty, dest, parts),
            _ => {}
        }
        if let Operand::Name(name) = source
            && let Some(clock) = clock(name)
        {
            let Some((reg, _)) = self.any_reg(dest)? else {
                return self.fail(ModuleErrorKind::Type, "a register is needed as destination");
            };
            self.emit(Op::Clock(clock, reg), Args::default());
            return Ok(());
        }
        let Some(class) = class_of(ty) else { return self.unknown(instr.opcode) };
        let source = self.source(source, class)?;
        let d = self.dest(dest, class)?;
        let key = match class {
            Class::P => "mov.pred",
            Class::R16 => "mov.b16",
            Class::R32 => "mov.b32",
            Class::R64 => "mov.b64",
        };
        self.raw(key, 0, d, &[source]);
        Ok(())
    }

    /// `mov.b64 {a, b}, c`
    fn unpack(&mut self, ty: Ty, parts: &[Operand<'s>], source: &Operand<'s>) -> Result<(), ModuleError> {
        let (Some(class), count) = (class_of(ty), parts.len() as u32) else {
            self.not_supported();
            return Ok(());
        };
        let (part, key) = match (ty.bits(), count) {
            (16, 2) => (Class::R16, "part.8.16"),
            (32, 4) => (Class::R16, "part.8.32"),
            (32, 2) => (Class::R16, "part.16.32"),
            (64, 4) => (Class::R16, "part.16.64"),
            (64, 2) => (Class::R32, "part.32.64"),
            _ => return self.fail(ModuleErrorKind::Type, "a vector of the wrong length"),
        };
        let from = self.source(source, class)?;
        for (i, operand) in (0u32..).zip(parts) {
            if *operand == Operand::Name("_") {
                continue;
            }
            let d = self.dest(operand, part)?;
            let shift = i * ty.bits() / count;
            self.raw(key, shift << flags::IMM_SHIFT, d, &[from]);
        }
        Ok(())
    }

    /// `mov.b64 c, {a, b}`
    fn pack(&mut self, ty: Ty, dest: &Operand<'s>, parts: &[Operand<'s>]) -> Result<(), ModuleError> {
        let Some(class) = class_of(ty) else {
            self.not_supported();
            return Ok(());
        };
        let (part, key) = match (ty.bits(), parts.len()) {
            (16, 2) => (Class::R16, "pack.2x8"),
            (32, 4) => (Class::R16, "pack.4x8"),
            (32, 2) => (Class::R16, "pack.2x16"),
            (64, 4) => (Class::R16, "pack.4x16"),
            (64, 2) => (Class::R32, "pack.2x32"),
            _ => return self.fail(ModuleErrorKind::Type, "a vector of the wrong length"),
        };
        let mut sources = Vec::with_capacity(4);
        for operand in parts {
            sources.push(self.source(operand, part)?);
        }
        let d = self.dest(dest, class)?;
        self.raw(key, 0, d, &sources);
        Ok(())
    }

    fn cvt(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let (key, all) = Self::key(instr.opcode);
        let mut types = key.split('.').skip(1).map(Ty::from_name);
        let (Some(Some(to)), Some(Some(from)), None) = (types.next(), types.next(), types.next()) else {
            // `cvt.pack.sat…` and stochastic rounding.
            return self.unknown(&key);
        };
        let Some(row) = table().rows.get(&key) else {
            self.not_supported();
            return Ok(());
        };
        let [dest, sources @ ..] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "cvt takes operands");
        };
        if all & !row.allowed != 0 {
            self.not_supported();
            return Ok(());
        }
        if row.shape.len() != sources.len() + 1 {
            return self.fail(ModuleErrorKind::Type, "the wrong number of operands");
        }
        let (Some(from_class), Some(to_class)) = (class_of(from), class_of(to)) else {
            self.not_supported();
            return Ok(());
        };
        let mut regs = Vec::with_capacity(2);
        for operand in sources {
            regs.push(self.cvt_source(operand, from_class)?);
        }
        let Some((reg, name)) = self.any_reg(dest)? else {
            let d = self.dest(dest, to_class)?;
            self.raw(&key, all, d, &regs);
            return Ok(());
        };
        crate::check::holds(reg, to, name, self.place)?;
        if reg.class == to_class {
            self.raw(&key, all, reg.index, &regs);
            return Ok(());
        }
        // A wider destination: the result is widened by the type's sign.
        let t = self.temp(to_class);
        self.raw(&key, all, t.index, &regs);
        let sign = if to.is_signed() { 's' } else { 'u' };
        let (wide, narrow) = (bits_of(reg.class), bits_of(to_class));
        self.raw(&format!("cvt.{sign}{wide}.{sign}{narrow}"), 0, reg.index, &[t.index]);
        Ok(())
    }

    /// A source of `cvt`, whose register may be wider than the type.
    fn cvt_source(&mut self, operand: &Operand<'s>, class: Class) -> Result<u32, ModuleError> {
        let wide: Option<(RegRef, &str)> = self.any_reg(operand)?;
        let Some((reg, _)) = wide.filter(|(reg, _)| bits_of(reg.class) > bits_of(class)) else {
            return self.source(operand, class);
        };
        let t = self.temp(class);
        let key = match (class, reg.class) {
            (Class::R16, Class::R32) => "part.16.32",
            (Class::R16, Class::R64) => "part.16.64",
            _ => "part.32.64",
        };
        self.raw(key, 0, t.index, &[reg.index]);
        Ok(t.index)
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

fn clock(name: &str) -> Option<Clock> {
    Some(match name {
        "%clock" | "%clock64" => Clock::Cycles,
        "%clock_hi" => Clock::CyclesHigh,
        "%globaltimer" | "%globaltimer_lo" => Clock::TimerNs,
        "%globaltimer_hi" => Clock::TimerNsHigh,
        _ => return None,
    })
}
