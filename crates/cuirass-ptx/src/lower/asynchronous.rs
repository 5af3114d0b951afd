//! Barriers that are objects in memory, and copies from global to shared memory.
//!
//! A copy is done at once: programs wait for it anyway, and an early end is one they must expect.

use super::function::Lower;
use crate::ast::{Instr, Operand};
use crate::check::same;
use crate::code::{Args, Class, CopyAsync, Mbar, MbarOp, MemSpace, NONE, Op};
use crate::error::{ModuleError, ModuleErrorKind};

fn space_of(parts: &[&str]) -> MemSpace {
    let shared = |p: &str| matches!(p, "shared" | "shared::cta" | "shared::cluster");
    if parts.iter().any(|p| shared(p)) { MemSpace::Shared } else { MemSpace::Generic }
}

impl<'s> Lower<'_, 's> {
    /// `mbarrier.…`
    pub(super) fn mbarrier(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let parts: Vec<&str> = instr.opcode.split('.').skip(1).collect();
        let has = |name: &str| parts.contains(&name);
        let operands = instr.operands.as_slice();
        let mut mbar = Mbar::new(space_of(&parts));
        let rest = match (parts.first().copied().unwrap_or(""), operands) {
            ("init", [address, count]) => {
                mbar.op = MbarOp::Init;
                mbar.count = self.source(count, Class::R32)?;
                address
            }
            ("inval", [address]) => {
                mbar.op = MbarOp::Inval;
                address
            }
            ("expect_tx" | "complete_tx", [address, bytes]) => {
                mbar.op = if has("expect_tx") { MbarOp::ExpectTx } else { MbarOp::CompleteTx };
                mbar.bytes = self.source(bytes, Class::R32)?;
                address
            }
            ("arrive" | "arrive_drop", [state, address, rest @ ..]) => {
                mbar.op = if has("arrive_drop") { MbarOp::ArriveDrop } else { MbarOp::Arrive };
                if *state != Operand::Name("_") {
                    mbar.dest = self.dest(state, Class::R64)?;
                }
                self.arrival(&mut mbar, has("expect_tx"), rest)?;
                address
            }
            ("test_wait" | "try_wait", [done, address, state, ..]) => {
                let parity = has("parity");
                mbar.op = if parity { MbarOp::TestParity } else { MbarOp::Test };
                mbar.dest = self.dest(done, Class::P)?;
                mbar.state = self.source(state, if parity { Class::R32 } else { Class::R64 })?;
                address
            }
            ("pending_count", [count, state]) => {
                let a = self.source(state, Class::R64)?;
                let d = self.dest(count, Class::R32)?;
                self.raw("mbarrier.pending", 0, d, &[a]);
                return Ok(());
            }
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        mbar.address = self.address(rest, mbar.address.space)?;
        self.emit(Op::Mbar(Box::new(mbar)), Args::default());
        Ok(())
    }

    fn arrival(&mut self, mbar: &mut Mbar, expect: bool, rest: &[Operand<'s>]) -> Result<(), ModuleError> {
        let Some(operand) = rest.first() else { return Ok(()) };
        let reg = self.source(operand, Class::R32)?;
        if expect {
            mbar.bytes = reg;
        } else {
            mbar.count = reg;
        }
        Ok(())
    }

    /// `cp.async.…`, the forms without bulk and tensors.
    pub(super) fn copy_async(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let parts: Vec<&str> = instr.opcode.split('.').skip(1).collect();
        match parts.as_slice() {
            ["async", "commit_group" | "wait_group" | "wait_all"] => return Ok(()),
            ["async", "ca" | "cg", rest @ ..] if rest.contains(&"global") => {}
            _ => {
                self.not_supported();
                return Ok(());
            }
        }
        let (to, from, bytes, rest) = match instr.operands.as_slice() {
            [to, from, Operand::Int(bytes @ (4 | 8 | 16)), rest @ ..] => (to, from, *bytes, rest),
            _ => return self.fail(ModuleErrorKind::Type, "cp.async copies 4, 8 or 16 bytes"),
        };
        let policy = usize::from(parts.contains(&"L2::cache_hint"));
        let mut copy = CopyAsync {
            to: self.address(to, MemSpace::Shared)?,
            from: self.address(from, MemSpace::Global)?,
            bytes: bytes as u32,
            have: NONE,
            ignore: NONE,
        };
        if rest.len() > policy {
            let predicate = match rest[0] {
                Operand::Name(name) => self.find_reg(name)?.filter(|r| r.class == Class::P).map(|r| (r, name)),
                _ => None,
            };
            match predicate {
                Some((reg, name)) => copy.ignore = same(reg, Class::P, name, self.place)?,
                None => copy.have = self.source(&rest[0], Class::R32)?,
            }
        }
        self.emit(Op::CopyAsync(Box::new(copy)), Args::default());
        Ok(())
    }
}
