//! Barriers of blocks and warps, votes, shuffles, matches and reductions.

use super::function::Lower;
use crate::ast::{Instr, Operand};
use crate::code::{Args, Bar, BarOp, Class, NONE, Op, Sync, SyncOp};
use crate::error::{ModuleError, ModuleErrorKind};

impl<'s> Lower<'_, 's> {
    pub(super) fn sync(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let parts: Vec<&str> = instr.opcode.split('.').filter(|p| !matches!(*p, "aligned" | "cta" | "noinc")).collect();
        let operands = instr.operands.as_slice();
        match parts.as_slice() {
            ["bar", "warp", "sync"] => {
                let [members] = operands else { return self.count() };
                self.warp(SyncOp::Barrier, Some(members), Args::default())
            }
            ["bar" | "barrier", rest @ ..] => self.bar(rest, operands),
            ["vote", rest @ ..] => self.vote(rest, operands),
            ["shfl", rest @ ..] => self.shfl(rest, operands),
            ["match", rest @ ..] => self.matching(rest, operands),
            ["redux", "sync", op, ty] => self.redux(op, ty, operands),
            ["elect", "sync"] => {
                let [dest, members] = operands else { return self.count() };
                let mut args = Args::default();
                self.value_and_predicate(dest, &mut args)?;
                self.warp(SyncOp::Elect, Some(members), args)
            }
            ["activemask", "b32"] => {
                let [dest] = operands else { return self.count() };
                let d = self.dest(dest, Class::R32)?;
                self.emit(Op::ActiveMask, Args { d, ..Args::default() });
                Ok(())
            }
            _ => {
                self.not_supported();
                Ok(())
            }
        }
    }

    fn count(&self) -> Result<(), ModuleError> {
        self.fail(ModuleErrorKind::Type, format!("{} has the wrong number of operands", self.text))
    }

    fn warp(&mut self, op: SyncOp, members: Option<&Operand<'s>>, args: Args) -> Result<(), ModuleError> {
        let members = match members {
            Some(operand) => self.source(operand, Class::R32)?,
            None => NONE,
        };
        self.emit(Op::Sync(Box::new(Sync { op, members, args })), Args::default());
        Ok(())
    }

    /// `d` or `d|p`, where either may be `_`.
    fn value_and_predicate(&mut self, operand: &Operand<'s>, args: &mut Args) -> Result<(), ModuleError> {
        let (value, predicate) = match *operand {
            Operand::Pair(d, p) => (d, Some(p)),
            Operand::Name(d) => (d, None),
            _ => return self.fail(ModuleErrorKind::Type, "a register is needed as destination"),
        };
        if value != "_" {
            args.d = self.dest_name(value, Class::R32)?;
        }
        if let Some(p) = predicate.filter(|p| *p != "_") {
            args.e = self.dest_name(p, Class::P)?;
        }
        Ok(())
    }

    fn bar(&mut self, rest: &[&str], operands: &[Operand<'s>]) -> Result<(), ModuleError> {
        let op = match rest {
            ["sync"] => BarOp::Sync,
            ["arrive"] => BarOp::Arrive,
            ["red", "popc", "u32"] => BarOp::RedPopc,
            ["red", "and", "pred"] => BarOp::RedAnd,
            ["red", "or", "pred"] => BarOp::RedOr,
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let mut bar = Bar { op, id: NONE, count: NONE, p: NONE, negate: false, dest: NONE };
        let mut operands = operands;
        if matches!(op, BarOp::RedPopc | BarOp::RedAnd | BarOp::RedOr) {
            let [dest, middle @ .., p] = operands else { return self.count() };
            let class = if op == BarOp::RedPopc { Class::R32 } else { Class::P };
            (bar.p, bar.negate) = self.predicate(p)?;
            bar.dest = self.dest(dest, class)?;
            operands = middle;
        }
        match operands {
            [id] if op != BarOp::Arrive => bar.id = self.source(id, Class::R32)?,
            [id, count] => {
                bar.id = self.source(id, Class::R32)?;
                bar.count = self.source(count, Class::R32)?;
            }
            _ => return self.count(),
        }
        self.emit(Op::Bar(Box::new(bar)), Args::default());
        Ok(())
    }

    fn vote(&mut self, rest: &[&str], operands: &[Operand<'s>]) -> Result<(), ModuleError> {
        let (synced, rest) = match rest {
            ["sync", rest @ ..] => (true, rest),
            other => (false, other),
        };
        let (op, class) = match rest {
            ["all", "pred"] => (SyncOp::VoteAll, Class::P),
            ["any", "pred"] => (SyncOp::VoteAny, Class::P),
            ["uni", "pred"] => (SyncOp::VoteUni, Class::P),
            ["ballot", "b32"] => (SyncOp::Ballot, Class::R32),
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let (dest, p, members) = match operands {
            [dest, p, members] if synced => (dest, p, Some(members)),
            [dest, p] if !synced => (dest, p, None),
            _ => return self.count(),
        };
        let (a, negated) = self.predicate(p)?;
        let d = self.dest(dest, class)?;
        let flags = u32::from(negated);
        self.warp(op, members, Args { d, a, flags, ..Args::default() })
    }

    fn shfl(&mut self, rest: &[&str], operands: &[Operand<'s>]) -> Result<(), ModuleError> {
        let (synced, rest) = match rest {
            ["sync", rest @ ..] => (true, rest),
            other => (false, other),
        };
        let op = match rest {
            ["idx", "b32"] => SyncOp::ShflIdx,
            ["up", "b32"] => SyncOp::ShflUp,
            ["down", "b32"] => SyncOp::ShflDown,
            ["bfly", "b32"] => SyncOp::ShflBfly,
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let (dest, a, b, c, members) = match operands {
            [dest, a, b, c, members] if synced => (dest, a, b, c, Some(members)),
            [dest, a, b, c] if !synced => (dest, a, b, c, None),
            _ => return self.count(),
        };
        let mut args = Args {
            a: self.source(a, Class::R32)?,
            b: self.source(b, Class::R32)?,
            c: self.source(c, Class::R32)?,
            ..Args::default()
        };
        self.value_and_predicate(dest, &mut args)?;
        self.warp(op, members, args)
    }

    fn matching(&mut self, rest: &[&str], operands: &[Operand<'s>]) -> Result<(), ModuleError> {
        let (op, class) = match rest {
            ["any", "sync", "b32"] => (SyncOp::MatchAny32, Class::R32),
            ["any", "sync", "b64"] => (SyncOp::MatchAny64, Class::R64),
            ["all", "sync", "b32"] => (SyncOp::MatchAll32, Class::R32),
            ["all", "sync", "b64"] => (SyncOp::MatchAll64, Class::R64),
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let [dest, a, members] = operands else { return self.count() };
        let mut args = Args { a: self.source(a, class)?, ..Args::default() };
        self.value_and_predicate(dest, &mut args)?;
        self.warp(op, Some(members), args)
    }

    fn redux(&mut self, op: &str, ty: &str, operands: &[Operand<'s>]) -> Result<(), ModuleError> {
        let op = match (op, ty) {
            ("add", "u32" | "s32") => SyncOp::ReduxAdd,
            ("min", "u32") => SyncOp::ReduxMinU,
            ("max", "u32") => SyncOp::ReduxMaxU,
            ("min", "s32") => SyncOp::ReduxMinS,
            ("max", "s32") => SyncOp::ReduxMaxS,
            ("and", "b32") => SyncOp::ReduxAnd,
            ("or", "b32") => SyncOp::ReduxOr,
            ("xor", "b32") => SyncOp::ReduxXor,
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let [dest, a, members] = operands else { return self.count() };
        let a = self.source(a, Class::R32)?;
        let d = self.dest(dest, Class::R32)?;
        self.warp(op, Some(members), Args { d, a, ..Args::default() })
    }
}
