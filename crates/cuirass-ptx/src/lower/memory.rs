//! Loads, stores, atomics, and addresses.

use super::function::Lower;
use crate::ast::{Instr, Operand, Ty};
use crate::check::class_of;
use crate::code::{Access, Args, Atom, AtomOp, Class, MemSpace, Op, RegRef};
use crate::error::{ModuleError, ModuleErrorKind};

/// What the modifiers of a memory instruction say.
struct Modifiers<'t> {
    space: MemSpace,
    lanes: usize,
    ty: Option<Ty>,
    /// A trailing cache policy operand is present.
    policy: bool,
    acquire: bool,
    release: bool,
    poll: bool,
    /// What is neither: the operation of an atomic.
    rest: Vec<&'t str>,
    strange: bool,
}

fn modifiers(opcode: &str) -> Modifiers<'_> {
    let mut out = Modifiers {
        space: MemSpace::Generic,
        lanes: 1,
        ty: None,
        policy: false,
        acquire: false,
        release: false,
        poll: false,
        rest: Vec::new(),
        strange: false,
    };
    for part in opcode.split('.').skip(1) {
        match part {
            "global" | "const" => out.space = MemSpace::Global,
            "shared" | "shared::cta" => out.space = MemSpace::Shared,
            "local" => out.space = MemSpace::Local,
            "param" | "param::entry" | "param::func" => out.space = MemSpace::Param,
            // A cluster is one block, so its shared memory is the block's own.
            "shared::cluster" => out.space = MemSpace::Shared,
            "v2" => out.lanes = 2,
            "v4" => out.lanes = 4,
            "v8" => out.lanes = 8,
            "acquire" => {
                out.acquire = true;
                out.poll = true;
            }
            "volatile" | "relaxed" | "mmio" => out.poll = true,
            "release" => out.release = true,
            "acq_rel" | "sc" => {
                out.acquire = true;
                out.release = true;
            }
            "weak" | "cta" | "cluster" | "gpu" | "sys" | "nc" | "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt"
            | "noftz" | "unified" => {}
            "L2::cache_hint" => out.policy = true,
            _ if part.starts_with("L1::") || part.starts_with("L2::") => {}
            _ => match Ty::from_name(part) {
                Some(ty) => out.ty = Some(ty),
                None => out.rest.push(part),
            },
        }
    }
    out.strange = out.rest.iter().any(|r| r.contains("::") || *r == "async" || *r == "bulk");
    out
}

impl<'s> Lower<'_, 's> {
    pub(super) fn memory(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let base = instr.opcode.split('.').next().unwrap_or("");
        match base {
            "ld" | "ldu" => self.load(instr),
            "st" => self.store(instr),
            "atom" => self.atomic(instr, true),
            "red" => self.atomic(instr, false),
            "cvta" => self.cvta(instr),
            "isspacep" => self.isspacep(instr),
            "fence" if instr.opcode.contains("proxy") && instr.operands.len() > 1 => {
                self.not_supported();
                Ok(())
            }
            "fence" | "membar" => {
                self.emit(Op::Fence, Args::default());
                Ok(())
            }
            // Hints about caches, which there are none of.
            "prefetch" | "prefetchu" if !instr.opcode.contains("tensormap") => Ok(()),
            "applypriority" => Ok(()),
            _ => {
                self.not_supported();
                Ok(())
            }
        }
    }

    fn elements<'o>(&self, operand: &'o Operand<'s>) -> Vec<&'o Operand<'s>> {
        match operand {
            Operand::Vector(list) => list.iter().collect(),
            other => vec![other],
        }
    }

    fn load(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let m = modifiers(instr.opcode);
        let Some(ty) = m.ty.filter(|ty| m.rest.is_empty() && class_of(*ty).is_some()) else {
            self.not_supported();
            return Ok(());
        };
        let [dest, address, ..] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "ld takes a register and an address");
        };
        if instr.operands.len() > 2 + usize::from(m.policy) {
            return self.fail(ModuleErrorKind::Type, "ld has too many operands");
        }
        let address = self.address(address, m.space)?;
        let list = self.elements(dest);
        if list.len() != m.lanes || ty == Ty::Pred {
            return self.fail(ModuleErrorKind::Type, "a vector of the wrong length");
        }
        let mut regs = Vec::with_capacity(list.len());
        for operand in list {
            regs.push(self.load_dest(operand, ty)?);
        }
        let access = Access { address, bytes: ty.bytes(), signed: ty.is_signed(), poll: m.poll, regs };
        self.emit(Op::Load(Box::new(access)), Args::default());
        if m.acquire {
            self.emit(Op::Fence, Args::default());
        }
        Ok(())
    }

    fn store(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let m = modifiers(instr.opcode);
        let Some(ty) = m.ty.filter(|ty| m.rest.is_empty() && class_of(*ty).is_some()) else {
            self.not_supported();
            return Ok(());
        };
        let [address, source, ..] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "st takes an address and a register");
        };
        if instr.operands.len() > 2 + usize::from(m.policy) {
            return self.fail(ModuleErrorKind::Type, "st has too many operands");
        }
        let address = self.address(address, m.space)?;
        let list = self.elements(source);
        if list.len() != m.lanes || ty == Ty::Pred {
            return self.fail(ModuleErrorKind::Type, "a vector of the wrong length");
        }
        let mut regs = Vec::with_capacity(list.len());
        for operand in list {
            regs.push(self.store_source(operand, ty)?);
        }
        if m.release {
            self.emit(Op::Fence, Args::default());
        }
        let access = Access { address, bytes: ty.bytes(), signed: false, poll: m.poll || m.release, regs };
        self.emit(Op::Store(Box::new(access)), Args::default());
        Ok(())
    }

    fn atomic(&mut self, instr: &Instr<'s>, returns: bool) -> Result<(), ModuleError> {
        let m = modifiers(instr.opcode);
        let op = match m.rest.as_slice() {
            ["add"] => AtomOp::Add,
            ["min"] => AtomOp::Min,
            ["max"] => AtomOp::Max,
            ["inc"] => AtomOp::Inc,
            ["dec"] => AtomOp::Dec,
            ["exch"] => AtomOp::Exch,
            ["cas"] => AtomOp::Cas,
            ["and"] => AtomOp::And,
            ["or"] => AtomOp::Or,
            ["xor"] => AtomOp::Xor,
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let Some((ty, class)) = m.ty.and_then(|ty| Some((ty, class_of(ty)?))) else {
            self.not_supported();
            return Ok(());
        };
        if m.strange || !atomic_exists(op, ty) || m.space == MemSpace::Param {
            self.not_supported();
            return Ok(());
        }
        let mut operands = instr.operands.as_slice();
        let mut dest = Vec::new();
        if returns {
            let [first, rest @ ..] = operands else {
                return self.fail(ModuleErrorKind::Type, "atom takes a destination");
            };
            for operand in self.elements(first) {
                dest.push(self.load_dest(operand, ty)?);
            }
            operands = rest;
        }
        if m.policy {
            operands = operands.split_last().map_or(operands, |(_, rest)| rest);
        }
        let (address, a, b) = match operands {
            [address, a] if op != AtomOp::Cas => (address, a, None),
            [address, a, b] if op == AtomOp::Cas => (address, a, Some(b)),
            _ => {
                return self.fail(ModuleErrorKind::Type, "an atomic of the wrong operand count");
            }
        };
        let address = self.address(address, m.space)?;
        let mut sources = |operand: &Operand<'s>| -> Result<Vec<RegRef>, ModuleError> {
            let list = self.elements(operand);
            let mut regs = Vec::with_capacity(list.len());
            for operand in list {
                regs.push(RegRef { class, index: self.source(operand, class)? });
            }
            Ok(regs)
        };
        let a = sources(a)?;
        let b = b.map(sources).transpose()?.unwrap_or_default();
        let dest_fits = !returns || dest.len() == m.lanes;
        if a.len() != m.lanes || !dest_fits || (!b.is_empty() && b.len() != a.len()) {
            return self.fail(ModuleErrorKind::Type, "a vector of the wrong length");
        }
        if m.release {
            self.emit(Op::Fence, Args::default());
        }
        let atom = Atom { address, op, ty, dest, a, b };
        self.emit(Op::Atom(Box::new(atom)), Args::default());
        if m.acquire {
            self.emit(Op::Fence, Args::default());
        }
        Ok(())
    }

    fn cvta(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let parts: Vec<&str> = instr.opcode.split('.').skip(1).collect();
        let (to, space, ty) = match parts.as_slice() {
            ["to", space, ty] => (true, *space, *ty),
            [space, ty] => (false, *space, *ty),
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let [dest, source] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "cvta takes two operands");
        };
        let wide = match ty {
            "u64" => true,
            "u32" => false,
            _ => return self.fail(ModuleErrorKind::Type, "cvta is of u32 or u64"),
        };
        let window = match space {
            "shared" | "shared::cta" | "shared::cluster" => "shared",
            "local" => "local",
            // Function parameters are local memory.
            "param" | "param::entry" if self.func.entry => "param",
            "param" | "param::entry" => "local",
            "global" | "const" => "",
            _ => {
                self.not_supported();
                return Ok(());
            }
        };
        let class = if wide { Class::R64 } else { Class::R32 };
        let from = self.source(source, class)?;
        let d = self.dest(dest, class)?;
        if window.is_empty() || !wide {
            self.raw(if wide { "mov.b64" } else { "mov.b32" }, 0, d, &[from]);
            return Ok(());
        }
        let key = if to { format!("unwindow.{window}") } else { format!("window.{window}") };
        self.raw(&key, 0, d, &[from]);
        Ok(())
    }

    fn isspacep(&mut self, instr: &Instr<'s>) -> Result<(), ModuleError> {
        let [dest, source] = instr.operands.as_slice() else {
            return self.fail(ModuleErrorKind::Type, "isspacep takes two operands");
        };
        let a = self.source(source, Class::R64)?;
        let d = self.dest(dest, Class::P)?;
        self.raw(instr.opcode, 0, d, &[a]);
        Ok(())
    }
}

/// Whether an atomic operation has a type.
fn atomic_exists(op: AtomOp, ty: Ty) -> bool {
    use AtomOp::{Add, And, Cas, Dec, Exch, Inc, Max, Min, Or, Xor};
    match op {
        Add => matches!(
            ty,
            Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64 | Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 | Ty::F32 | Ty::F64
        ),
        Min | Max => matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64 | Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2),
        Inc | Dec => ty == Ty::U32,
        Exch => matches!(ty, Ty::B32 | Ty::B64 | Ty::U32 | Ty::U64 | Ty::S32 | Ty::F32 | Ty::F64),
        Cas => matches!(ty, Ty::B16 | Ty::B32 | Ty::B64 | Ty::U32 | Ty::U64 | Ty::S32),
        And | Or | Xor => matches!(ty, Ty::B32 | Ty::B64 | Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64),
    }
}
