//! Branches, calls and ends.

use super::Symbol;
use super::function::{Local, Lower, Pending};
use crate::ast::{Instr, Operand, Ty};
use crate::check::{bits_of, class_of};
use crate::code::{Access, Address, Args, Base, Call, Callee, Class, MemSpace, NONE, Op, Slot};
use crate::error::{ModuleError, ModuleErrorKind};

impl<'s> Lower<'_, 's> {
    pub(super) fn control(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let base = instr.opcode.split('.').next().unwrap_or("");
        let op = match base {
            "bra" => return self.bra(instr),
            "brx" => return self.brx(instr),
            "call" => return self.call(instr),
            "ret" if self.func.entry => Op::Exit,
            "ret" => Op::Ret,
            "exit" => Op::Exit,
            "trap" | "brkpt" => Op::Trap,
            "nanosleep" => Op::Pause,
            // Dependent launches are ordered by the stream here, and nobody counts events.
            _ => return Ok(()),
        };
        self.emit(op, Args::default());
        Ok(())
    }

    fn bra(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let [Operand::Name(label)] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "bra takes a label");
        };
        let at = self.emit(Op::Bra(NONE), Args::default());
        self.pending.push((Pending::Branch(at), self.scope_id(), label, self.place));
        Ok(())
    }

    fn brx(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let [index, Operand::Name(list)] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "brx.idx takes an index and a list");
        };
        let a = self.source(index, Class::R32)?;
        let Some(&targets) = self.targets.get(list) else {
            return self.undefined(list);
        };
        let table = self.code.tables.len();
        self.code.tables.push(vec![NONE; targets.len()]);
        for (i, label) in targets.iter().enumerate() {
            self.pending.push((Pending::Table(table, i), self.scope_id(), label, self.place));
        }
        self.emit(Op::Brx(table as u32), Args { a, ..Args::default() });
        Ok(())
    }

    fn call(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let mut operands = instr.operands.as_slice();
        let results: &[Operand<'s>] = match operands {
            [Operand::List(list), rest @ ..] => {
                operands = rest;
                list
            }
            _ => &[],
        };
        let [target, rest @ ..] = operands else {
            return self.fail(ModuleErrorKind::Type, "call needs a function");
        };
        let args: &[Operand<'s>] = match rest {
            [Operand::List(list), ..] => list,
            _ => &[],
        };
        let Operand::Name(name) = *target else {
            return self.fail(ModuleErrorKind::Type, "call needs a function's name or a register");
        };
        let callee = self.callee(name)?;
        if let Callee::Func(f) = callee
            && let Some((wants, gives)) = self.scope.signatures.get(f as usize)
            && (wants.len() != args.len() || gives.len() != results.len())
        {
            let text = format!("{name} takes {} arguments, not {}", wants.len(), args.len());
            return self.fail(ModuleErrorKind::Type, text);
        }
        let mut call = Call { callee, args: Vec::new(), results: Vec::new() };
        for arg in args {
            let slot = self.argument(arg)?;
            call.args.push(slot);
        }
        let mut loads = Vec::new();
        for result in results {
            let slot = self.result(result, &mut loads)?;
            call.results.push(slot);
        }
        self.emit(Op::Call(Box::new(call)), Args::default());
        for access in loads {
            self.emit(Op::Load(Box::new(access)), Args::default());
        }
        Ok(())
    }

    fn callee(&mut self, name: &'s str) -> Result<Callee, ModuleError> {
        if let Some(reg) = self.find_reg(name)? {
            let index = crate::check::same(reg, Class::R64, name, self.place)?;
            return Ok(Callee::Indirect(index));
        }
        let Some(&Symbol::Func(index)) = self.scope.symbols.get(name) else {
            return self.undefined(name);
        };
        if let Some(&callee) = self.scope.builtins.get(&index) {
            return Ok(callee);
        }
        Ok(Callee::Func(index))
    }

    fn frame_access(&mut self, slot: Slot, reg: crate::code::RegRef) -> Access {
        Access {
            address: Address { space: MemSpace::Frame, base: Base::Fixed, offset: slot.offset.into() },
            bytes: slot.size,
            signed: false,
            poll: false,
            regs: vec![reg],
        }
    }

    /// An argument: a parameter variable, or a value that is stored into a slot made for it.
    fn argument(&mut self, operand: &Operand<'s>) -> Result<Slot, ModuleError> {
        if let Operand::Name(name) = *operand
            && self.find_reg(name)?.is_none()
            && let Some(Local::Frame(slot)) = self.find_var(name)
        {
            return Ok(slot);
        }
        let class = match self.any_reg(operand)? {
            Some((reg, _)) => reg.class,
            None => class_of(Ty::B32).unwrap_or(Class::R32),
        };
        if class == Class::P {
            return self.fail(ModuleErrorKind::Type, "a predicate cannot be an argument");
        }
        let index = self.source(operand, class)?;
        let bytes = u64::from(bits_of(class) / 8);
        let slot = self.frame_slot(bytes, bytes)?;
        let access = self.frame_access(slot, crate::code::RegRef { class, index });
        self.emit(Op::Store(Box::new(access)), Args::default());
        Ok(slot)
    }

    fn result(&mut self, operand: &Operand<'s>, loads: &mut Vec<Access>) -> Result<Slot, ModuleError> {
        if let Some((reg, _)) = self.any_reg(operand)? {
            let bytes = u64::from(bits_of(reg.class) / 8).max(1);
            let slot = self.frame_slot(bytes, bytes)?;
            let access = self.frame_access(slot, reg);
            loads.push(access);
            return Ok(slot);
        }
        if let Operand::Name(name) = *operand {
            if name == "_" {
                return Ok(Slot { offset: 0, size: 0 });
            }
            if let Some(Local::Frame(slot)) = self.find_var(name) {
                return Ok(slot);
            }
            return self.undefined(name);
        }
        self.fail(ModuleErrorKind::Type, "a result is a parameter variable or a register")
    }
}
