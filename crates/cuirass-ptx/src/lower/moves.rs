//! `mov` and `cvt`: registers of one width into registers of another.

use super::function::Lower;
use crate::ast::{Instr, Operand, Ty};
use crate::check::{bits_of, class_of};
use crate::code::{Args, Class, Clock, Op, RegRef};
use crate::error::{ModuleError, ModuleErrorKind};
use crate::ops::{flags, table};

impl<'s> Lower<'_, 's> {
    pub(super) fn mov(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
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

    pub(super) fn cvt(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
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
