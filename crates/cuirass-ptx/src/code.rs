//! The lowered program: what the interpreter reads, once for every warp and instruction.

use crate::frame::Frame;

/// Functions have addresses from here, 16 bytes apart.
pub(crate) const FUNCTION_BASE: u64 = 0x0400_0000_0000_0000;
/// The generic window of shared memory.
pub(crate) const SHARED_BASE: u64 = 0x0100_0000_0000_0000;
/// The generic window of local memory.
pub(crate) const LOCAL_BASE: u64 = 0x0200_0000_0000_0000;
/// The generic window of kernel parameters.
pub(crate) const PARAM_BASE: u64 = 0x0300_0000_0000_0000;
/// Where a cooperative grid's workspace is: above all host addresses, below all windows.
pub(crate) const WORKSPACE: u64 = 0x00ff_0000_0000_0000;
/// How far a window reaches.
pub(crate) const WINDOW: u64 = 1 << 32;
/// The first usable byte of the shared window: hardware keeps the first KiB for itself.
pub(crate) const SHARED_START: u64 = 1024;
/// The first usable byte of the local window, so that 0 is never a good address.
pub(crate) const LOCAL_START: u64 = 16;

/// "No register" in [`Args`] and vectors.
pub(crate) const NONE: u32 = u32::MAX;

/// What an instruction of registers does to the lanes of a mask.
pub(crate) type Handler = fn(&mut Frame, &Args, u32);

/// Register numbers and modifiers of an instruction; which files they index is the handler's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    pub(crate) d: u32,
    /// The second destination.
    pub(crate) e: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) f: u32,
    /// Modifiers, see [`crate::ops::flags`].
    pub(crate) flags: u32,
}

impl Default for Args {
    fn default() -> Self {
        Self { d: NONE, e: NONE, a: NONE, b: NONE, c: NONE, f: NONE, flags: 0 }
    }
}

/// A register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    P,
    R16,
    R32,
    R64,
}

/// A register of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegRef {
    pub(crate) class: Class,
    pub(crate) index: u32,
}

/// How many registers a function has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) p: u32,
    pub(crate) r16: u32,
    pub(crate) r32: u32,
    pub(crate) r64: u32,
}

/// A special register that is the same for the whole life of a warp in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    DynamicSharedSize,
    TotalSharedSize,
    /// An environment register: 1 and 2 hold the upper and the lower word of the address of a
    /// cooperative grid's workspace.
    Env(u8),
    /// The same everywhere: cluster shapes of a cluster of one block, environment registers.
    Fixed(u32),
}

/// A special register that is read when the instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Cycles,
    CyclesHigh,
    TimerNs,
    TimerNsHigh,
}

/// A value that a register holds before a function's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// A variable's address and a constant.
    Global(u32, i64),
    /// The start of dynamic shared memory in the shared window.
    DynamicShared(i64),
    /// An address in the invocation's own local memory, in the local window.
    Frame(i64),
    Special(Special),
}

/// A state space as the interpreter tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemSpace {
    Generic,
    Global,
    Shared,
    Local,
    /// The kernel's parameters.
    Param,
    /// The invocation's own local memory; the offset is from its start.
    Frame,
}

/// Where an access's address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Reg32(u32),
    Reg64(u32),
    Fixed,
}

/// An address operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) space: MemSpace,
    pub(crate) base: Base,
    pub(crate) offset: i64,
}

/// A load or store.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) address: Address,
    /// Bytes of one element.
    pub(crate) bytes: u32,
    pub(crate) signed: bool,
    /// Whether others are expected to use what is read or written now: a loop of such loads waits for them.
    pub(crate) poll: bool,
    /// One register an element; `NONE` as index for a destination nobody wants.
    pub(crate) regs: Vec<RegRef>,
}

/// What an atomic instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    Exch,
    Cas,
    And,
    Or,
    Xor,
}

/// An atomic or reduction.
#[derive(Clone, Debug)]
pub(crate) struct Atom {
    pub(crate) address: Address,
    pub(crate) op: AtomOp,
    pub(crate) ty: crate::ast::Ty,
    /// Whether subnormals are flushed (only `f32` of old code and never on global memory).
    pub(crate) dest: Vec<RegRef>,
    pub(crate) a: Vec<RegRef>,
    pub(crate) b: Vec<RegRef>,
}

/// What lanes of a warp do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncOp {
    /// `bar.warp.sync`
    Barrier,
    VoteAll,
    VoteAny,
    VoteUni,
    Ballot,
    ShflIdx,
    ShflUp,
    ShflDown,
    ShflBfly,
    MatchAny32,
    MatchAny64,
    MatchAll32,
    MatchAll64,
    ReduxAdd,
    ReduxMinU,
    ReduxMaxU,
    ReduxMinS,
    ReduxMaxS,
    ReduxAnd,
    ReduxOr,
    ReduxXor,
    Elect,
}

/// A warp-wide instruction. Its registers are in `args`: `d`, `e` (a predicate), `a`, `b`, `c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sync {
    pub(crate) op: SyncOp,
    /// The 32-bit register with the member mask; `NONE` for the forms without `.sync`.
    pub(crate) members: u32,
    pub(crate) args: Args,
}

/// What a block-wide barrier instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarOp {
    Sync,
    Arrive,
    RedPopc,
    RedAnd,
    RedOr,
}

/// A block-wide barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) op: BarOp,
    /// 32-bit registers of the barrier's number and thread count (`NONE`: all).
    pub(crate) id: u32,
    pub(crate) count: u32,
    /// The predicate that is reduced.
    pub(crate) p: u32,
    pub(crate) negate: bool,
    pub(crate) dest: u32,
}

/// What an instruction of a barrier object does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MbarOp {
    Init,
    Inval,
    Arrive,
    ArriveDrop,
    ExpectTx,
    CompleteTx,
    /// Whether the phase of a state, or of a parity, is over.
    Test,
    TestParity,
}

/// An instruction of a barrier object; its operands are register numbers or [`NONE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mbar {
    pub(crate) op: MbarOp,
    pub(crate) address: Address,
    /// A 64-bit register for the state, or a predicate.
    pub(crate) dest: u32,
    /// 32-bit registers: arrivals, and bytes that are expected.
    pub(crate) count: u32,
    pub(crate) bytes: u32,
    /// The 64-bit register of a state, or the 32-bit one of a parity.
    pub(crate) state: u32,
}

impl Mbar {
    pub(crate) fn new(space: MemSpace) -> Self {
        let address = Address { space, base: Base::Fixed, offset: 0 };
        Self { op: MbarOp::Inval, address, dest: NONE, count: NONE, bytes: NONE, state: NONE }
    }
}

/// A copy from global to shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyAsync {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) bytes: u32,
    /// The 32-bit register that says how many bytes the source has, or [`NONE`].
    pub(crate) have: u32,
    /// The predicate that says that it has none, or [`NONE`].
    pub(crate) ignore: u32,
}

/// What a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    Func(u32),
    /// The 64-bit register with the function's address.
    Indirect(u32),
    Printf,
    Malloc,
    Free,
    AssertFail,
    SetCondition,
}

/// A run of bytes in an invocation's local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

/// A call: arguments and results are slots of the caller.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: Callee,
    pub(crate) args: Vec<Slot>,
    pub(crate) results: Vec<Slot>,
}

/// What an instruction is.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Registers only.
    Alu(Handler),
    /// A comparison into predicates.
    Compare(crate::ops::compare::MaskFn),
    Bra(u32),
    /// The 32-bit register `args.a` indexes the function's table of that number.
    Brx(u32),
    Load(Box<Access>),
    Store(Box<Access>),
    Atom(Box<Atom>),
    Mbar(Box<Mbar>),
    CopyAsync(Box<CopyAsync>),
    Sync(Box<Sync>),
    Bar(Box<Bar>),
    Call(Box<Call>),
    /// Reads a clock into the register.
    Clock(Clock, RegRef),
    /// `activemask` into the 32-bit register `args.d`.
    ActiveMask,
    /// A moment for others: `nanosleep`.
    Pause,
    Fence,
    Ret,
    Exit,
    Trap,
    /// An instruction that is not simulated.
    Unsupported,
}

/// An instruction: what it is, on which lanes, with which registers.
#[derive(Clone, Debug)]
pub(crate) struct Instr {
    pub(crate) op: Op,
    /// The predicate that guards it, or [`NONE`].
    pub(crate) guard: u32,
    /// XORed with the predicate: all ones where the guard is negated.
    pub(crate) invert: u32,
    pub(crate) args: Args,
}

/// A lowered function.
#[derive(Debug, Default)]
pub(crate) struct Func {
    pub(crate) name: String,
    pub(crate) code: Vec<Instr>,
    /// Byte range in the source and line of each instruction.
    pub(crate) origin: Vec<(u32, u32, u32)>,
    pub(crate) counts: Counts,
    pub(crate) constants: Vec<(RegRef, Constant)>,
    /// Bytes of local memory of one invocation.
    pub(crate) frame_bytes: u32,
    pub(crate) params: Vec<Slot>,
    pub(crate) results: Vec<Slot>,
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) defined: bool,
}

/// All functions of a module.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) funcs: Vec<Func>,
    /// The text, for reports.
    pub(crate) source: String,
}

impl Program {
    /// An instruction's text and line.
    pub(crate) fn text(&self, func: u32, pc: u32) -> (String, u32) {
        let origin = self.funcs.get(func as usize).and_then(|f| f.origin.get(pc as usize));
        let Some(&(from, to, line)) = origin else {
            return (String::new(), 0);
        };
        let text = self.source.get(from as usize..to as usize).unwrap_or("");
        (text.split_whitespace().collect::<Vec<_>>().join(" "), line)
    }
}
