//! The simulated CUDA driver, as plain Rust: one file a family, functions named as in `cuda.h`.
//!
//! `sim-libs` exports these functions as `libcuda.so.1`. What is shared lives in the modules that are not families:
//! [`state`] (everything behind one lock), [`engine`] (pending work and who does it), [`handle`], [`task`],
//! [`thread`], [`report`], [`config`], [`order`] (a checker of its use), [`c`] (C's pointers) and [`host`] (raw memory).

#![deny(unsafe_code)]
#![allow(non_snake_case, missing_docs, reason = "the functions named cu… are cuda.h's, and described there")]

pub mod c;
pub mod census;
pub mod config;
pub mod context;
pub mod device;
pub mod driver;
pub mod engine;
pub mod entry;
pub mod event;
pub mod graph;
pub mod green;
pub mod handle;
pub mod host;
pub mod launch;
pub mod memory;
pub mod module;
pub mod order;
pub mod profile;
pub mod report;
pub mod state;
pub mod status;
pub mod stream;
pub mod task;
pub mod thread;
