//! PTX without a GPU: parse, check, lower and run the code that NVRTC produces.
//!
//! The crate knows nothing of the driver. A [`Module`] is made from text; [`Loaded`] places its
//! globals at device addresses that the caller chose; [`run()`] executes a grid over memory that the
//! caller owns ([`DeviceMemory`]) and reports a [`Fault`] when the program does what hardware
//! would refuse. A warp is executed at a time, lane loops over arrays of 32 values, so an
//! interpreted instruction costs little more than its arithmetic.
//!
//! The passes are separate modules: `parse` turns text into a tree, `check` holds the rules of
//! registers and types, `lower` turns the tree into warp instructions, `ops` is the table of what
//! each opcode and type does to registers, and `run` is everything that has memory or time.

#![deny(unsafe_code)]

mod ast;
mod check;
mod code;
mod error;
mod fault;
mod frame;
mod launch;
mod lower;
mod module;
mod ops;
mod parse;
mod run;
mod soft;
mod watch;

pub use error::{ModuleError, ModuleErrorKind};
pub use fault::{Fault, FaultKind};
pub use launch::{DeviceMemory, Host, Launch, Limits, Region, Stats};
pub use module::{Global, Kernel, Loaded, Module, Param, Relocation, Space, Target};
pub use run::{run, run_with};
pub use watch::{Ranges, Touch, Touched};
