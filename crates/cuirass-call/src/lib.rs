//! The seam: the only code that calls the CUDA libraries. One function a call, in the file of its family.
//!
//! It checks nothing that the driver checks. Every function returns what the driver answered: its result, or a
//! [`Failure`](cuirass_fault::Failure) made here, with everything that is known here. Calls go through
//! [`table`], whose entries are filled on first use; nothing is loaded before.
//!
//! Functions that take a handle are safe under one condition, which the crate `cuirass` keeps by structure: the
//! handle is alive, or came from the driver in this very call. Functions that take host memory or kernel arguments
//! are `unsafe`.
// Handles are tokens of pointer type that nobody dereferences.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod context;
pub mod device;
pub mod driver;
pub mod event;
pub mod graph;
pub mod later;
pub mod launch;
pub mod load;
pub mod memory;
pub mod module;
pub mod owner;
pub mod program;
pub mod simulator;
pub mod status;
pub mod stream;
pub mod table;

pub use cuirass_sys as sys;

/// What a call of the seam returns.
pub type Result<T> = std::result::Result<T, cuirass_fault::Failure>;
