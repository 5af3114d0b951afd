//! Why a lane stopped, as a plain code.

/// The code; faults with names and places are made from it at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrapCode {
    IllegalAddress,
    MisalignedAddress,
    Trap,
    IllegalInstruction,
    StackError,
    AddressSpace,
    InvalidPc,
    Assert,
    OutOfFuel,
    Cancelled,
    Deadlock,
    Unsupported,
}

/// A trap: the code, the lane, and the access if it was one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub(crate) code: TrapCode,
    pub(crate) lane: u32,
    pub(crate) address: Option<u64>,
    pub(crate) bytes: u32,
    pub(crate) write: bool,
}

impl Trap {
    /// A trap of the lowest lane of a mask.
    pub(crate) fn new(code: TrapCode, mask: u32) -> Trap {
        Trap { code, lane: mask.trailing_zeros() & 31, address: None, bytes: 0, write: false }
    }

    /// A refused access.
    pub(crate) fn access(code: TrapCode, lane: usize, address: u64, bytes: u32, write: bool) -> Trap {
        Trap { code, lane: lane as u32, address: Some(address), bytes, write }
    }
}
