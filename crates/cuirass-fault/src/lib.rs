//! What happens when something fails: [`Failure`], [`Error`], [`report`](Failure::report).
//!
//! A status that a CUDA library returns ends in exactly one of three places: it is *raised* (it becomes the
//! [`Error`] that an operation returns), *attached* (it becomes a note on an error that is already on its way), or
//! *reported* (where nothing can propagate). A [`Failure`] is armed until it reaches one of them: dropped before, it
//! reports itself. There is no last-error slot anywhere, so that no failure can be blamed on a later call.
//!
//! This crate knows neither CUDA nor Python.
#![deny(unsafe_code)]

mod error;
mod failure;
pub mod lock;
mod report;
pub mod room;

pub use error::{Error, ErrorKind};
pub use failure::{Absence, Cause, Facts, Failure, Library, Misuse, Status};
pub use report::{Report, Reporter, set_reporter};
