//! A kernel's end by fault: a plain code, and everything that is known about it.

use std::fmt;

/// Why a kernel was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An address that no live allocation holds, or a write to one that may only be read.
    IllegalAddress,
    /// An address that is not a multiple of the access's size.
    MisalignedAddress,
    /// The `trap` instruction.
    Trap,
    /// An instruction that hardware would not decode.
    IllegalInstruction,
    /// The call stack of a thread outgrew its limit.
    HardwareStackError,
    /// An instruction of one state space met an address of another.
    InvalidAddressSpace,
    /// An indirect call or branch to something that is not code.
    InvalidPc,
    /// A device-side assertion failed.
    Assert,
    /// The launch's step budget is used up.
    OutOfFuel,
    /// The host asked for the end.
    Cancelled,
    /// Every thread of a block waits for another: hardware would hang.
    Deadlock,
    /// The kernel needs an instruction that is not simulated; it is named.
    Unsupported(String),
}

/// A fault: what happened, in which kernel, block, thread and instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why the kernel was stopped.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's index in the block.
    pub thread: [u32; 3],
    /// The instruction's text.
    pub instruction: String,
    /// The instruction's line in the PTX text, 0 if there is none.
    pub line: u32,
    /// The address of the access, if it was one.
    pub address: Option<u64>,
    /// How many bytes the access has.
    pub access_bytes: u32,
    /// Whether the access was a write.
    pub write: bool,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IllegalAddress => "illegal address",
            Self::MisalignedAddress => "misaligned address",
            Self::Trap => "trap",
            Self::IllegalInstruction => "illegal instruction",
            Self::HardwareStackError => "stack overflow",
            Self::InvalidAddressSpace => "invalid address space",
            Self::InvalidPc => "invalid program counter",
            Self::Assert => "failed assertion",
            Self::OutOfFuel => "step budget used up",
            Self::Cancelled => "cancelled",
            Self::Deadlock => "deadlock: every thread of the block waits",
            Self::Unsupported(what) => return write!(f, "not simulated: {what}"),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [tx, ty, tz] = self.thread;
        write!(f, "{} in kernel {}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})", self.kind, self.kernel)?;
        if let Some(address) = self.address {
            let what = if self.write { "write" } else { "read" };
            write!(f, ", {what} of {} bytes at {address:#x}", self.access_bytes)?;
        }
        if !self.instruction.is_empty() {
            write!(f, ", at \"{}\" (PTX line {})", self.instruction, self.line)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
