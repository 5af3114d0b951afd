//! The tree that the parser makes: names are still text, nothing is checked but the grammar.

use crate::error::Place;

/// A type name of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    U16x2,
    S16x2,
    Tf32,
    E4m3x2,
    E5m2x2,
}

impl Ty {
    /// The type of that name, without its dot.
    pub(crate) fn from_name(name: &str) -> Option<Ty> {
        Some(match name {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "b128" => Ty::B128,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::Bf16,
            "bf16x2" => Ty::Bf16x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "u16x2" => Ty::U16x2,
            "s16x2" => Ty::S16x2,
            "tf32" => Ty::Tf32,
            "e4m3x2" => Ty::E4m3x2,
            "e5m2x2" => Ty::E5m2x2,
            _ => return None,
        })
    }

    /// Its width; predicates have none.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Ty::Pred => 0,
            Ty::B8 | Ty::U8 | Ty::S8 => 8,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 | Ty::E4m3x2 | Ty::E5m2x2 => 16,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 => 32,
            Ty::F16x2 | Ty::Bf16x2 | Ty::U16x2 | Ty::S16x2 | Ty::Tf32 => 32,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 64,
            Ty::B128 => 128,
        }
    }

    /// Its size in memory.
    pub(crate) fn bytes(self) -> u32 {
        self.bits() / 8
    }

    /// Whether widening repeats the sign.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }
}

/// A state space that a variable can be declared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarSpace {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// An element of an initialiser.
#[derive(Clone, Debug)]
pub(crate) enum Init<'s> {
    Int(u64),
    F32(u32),
    F64(u64),
    Symbol { name: &'s str, addend: i64, generic: bool, mask: u64 },
}

/// How a name is linked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linkage {
    pub(crate) external: bool,
    pub(crate) visible: bool,
    pub(crate) weak: bool,
    /// `.attribute(.managed)`, which stands behind the state space.
    pub(crate) managed: bool,
}

/// A variable, at module or function scope, or a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Var<'s> {
    pub(crate) place: Place,
    pub(crate) linkage: Linkage,
    pub(crate) space: VarSpace,
    pub(crate) align: u64,
    pub(crate) ty: Ty,
    /// Elements of a vector type, else 1.
    pub(crate) lanes: u32,
    pub(crate) name: &'s str,
    /// How many elements; `None` for `[]`.
    pub(crate) count: Option<u64>,
    pub(crate) init: Vec<Init<'s>>,
}

impl Var<'_> {
    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        u64::from(self.ty.bytes()).saturating_mul(u64::from(self.lanes)).saturating_mul(self.count.unwrap_or(0))
    }
}

/// A function or kernel.
#[derive(Debug)]
pub(crate) struct Func<'s> {
    pub(crate) place: Place,
    pub(crate) entry: bool,
    pub(crate) name: &'s str,
    pub(crate) returns: Vec<Var<'s>>,
    pub(crate) params: Vec<Var<'s>>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) body: Option<Vec<Stmt<'s>>>,
}

/// What a body is made of. Scopes are marks, not trees, so depth costs no stack.
#[derive(Debug)]
pub(crate) enum Stmt<'s> {
    Open,
    Close,
    Reg {
        place: Place,
        ty: Ty,
        lanes: u32,
        name: &'s str,
        count: Option<u32>,
    },
    Var(Var<'s>),
    Label(Place, &'s str),
    Instr(Instr<'s>),
    /// `.branchtargets` or `.calltargets`.
    Targets {
        name: &'s str,
        list: Vec<&'s str>,
    },
    /// `.callprototype`: calls go by their arguments, so nothing of it is kept.
    Prototype,
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct Instr<'s> {
    pub(crate) place: Place,
    /// Byte range in the source, the semicolon left out.
    pub(crate) span: (u32, u32),
    /// The guard: whether it is negated, and its predicate.
    pub(crate) guard: Option<(bool, &'s str)>,
    /// The whole opcode with its modifiers.
    pub(crate) opcode: &'s str,
    pub(crate) operands: Vec<Operand<'s>>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'s> {
    /// A register, a special register, a variable, a function or a label.
    Name(&'s str),
    /// `!%p`
    Not(&'s str),
    /// `%p|%q`
    Pair(&'s str, &'s str),
    /// A variable and a constant.
    Offset(&'s str, i64),
    Int(u64),
    F32(u32),
    F64(u64),
    Vector(Vec<Operand<'s>>),
    /// `[base + offset]`; without a base it is an absolute address.
    Address(Option<&'s str>, i64),
    /// `[t, {a, b}]` of textures and tensors, which are not simulated.
    Other,
    /// `(a, b)` of a call.
    List(Vec<Operand<'s>>),
}

/// A module.
#[derive(Debug)]
pub(crate) struct Tree<'s> {
    pub(crate) version: (u32, u32),
    pub(crate) arch: u32,
    pub(crate) vars: Vec<Var<'s>>,
    pub(crate) funcs: Vec<Func<'s>>,
    /// `.alias name, of;`
    pub(crate) aliases: Vec<(Place, &'s str, &'s str)>,
}
