//! The registers of one function's invocation by one warp: 32 lanes of a register side by side.

use crate::code::Func;

/// The lanes of a warp.
pub(crate) const LANES: usize = 32;

/// The mask of all lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// Registers by width; predicates are one bit a lane.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) r16: Vec<[u16; LANES]>,
    pub(crate) r32: Vec<[u32; LANES]>,
    pub(crate) r64: Vec<[u64; LANES]>,
    pub(crate) p: Vec<u32>,
    /// The carry flag.
    pub(crate) cc: u32,
    /// Which function it is for.
    pub(crate) func: u32,
    /// Where its local memory begins, the same for every lane.
    pub(crate) base: u32,
    /// The frame of the caller, and where the call is.
    pub(crate) parent: u32,
    pub(crate) call_pc: u32,
    /// The lanes that are in it or in a frame below it.
    pub(crate) live: u32,
    /// How deep it is in the call stack.
    pub(crate) depth: u32,
}

impl Frame {
    /// Room for the registers of `func`.
    pub(crate) fn shape(&mut self, func: &Func) {
        self.r16.resize(func.counts.r16 as usize, [0; LANES]);
        self.r32.resize(func.counts.r32 as usize, [0; LANES]);
        self.r64.resize(func.counts.r64 as usize, [0; LANES]);
        self.p.resize(func.counts.p as usize, 0);
    }
}

/// A value that a register of some width holds.
pub(crate) trait Reg: Copy + Default + 'static {
    fn file(frame: &Frame) -> &[[Self; LANES]];
    fn file_mut(frame: &mut Frame) -> &mut [[Self; LANES]];
}

macro_rules! reg {
    ($t:ty, $field:ident) => {
        impl Reg for $t {
            #[inline(always)]
            fn file(frame: &Frame) -> &[[Self; LANES]] {
                &frame.$field
            }
            #[inline(always)]
            fn file_mut(frame: &mut Frame) -> &mut [[Self; LANES]] {
                &mut frame.$field
            }
        }
    };
}

reg!(u16, r16);
reg!(u32, r32);
reg!(u64, r64);
