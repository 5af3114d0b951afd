//! Memory and events shared between processes.
//!
//! Everything that is shared lies in files of no folder ([`crate::host::SharedMemory`]): the system takes them away
//! with the last process that has one open or mapped, however that ends. A pool's file travels as a descriptor; events
//! and single allocations are found by the process and the descriptor under which it has them.

mod event;
mod file;
mod import;
mod pool;
mod process;
mod watch;

pub use event::*;
pub use file::{PoolFile, Source};
pub use import::{Imports, Unmap, ended, free_in_order};
pub use pool::*;

use crate::status::{Answer, INVALID_VALUE, OUT_OF_MEMORY, Status};
use std::io;

/// What other processes are given begins with one of these, by what it is.
const POINTER: u64 = u64::from_le_bytes(*b"cuirassP");
const EVENT: u64 = u64::from_le_bytes(*b"cuirassE");

/// Words as the 64 bytes that CUDA passes between processes: a mark, six words, and a sum of them.
fn pack(mark: u64, words: [u64; 6]) -> [u8; 64] {
    let mut bytes = [0; 64];
    let all = [mark].into_iter().chain(words).chain([sum(words)]);
    bytes.chunks_exact_mut(8).zip(all).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    bytes
}

/// The words behind the mark.
///
/// # Errors
/// `INVALID_VALUE` for what [`pack`] did not make with this mark.
fn unpack(bytes: [u8; 64], mark: u64) -> Answer<[u64; 6]> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let mut all = bytes.chunks_exact(8).map(word);
    let first = all.next();
    let words = std::array::from_fn(|_| all.next().unwrap_or(0));
    if first == Some(mark) && all.next() == Some(sum(words)) { Ok(words) } else { Err(INVALID_VALUE) }
}

fn sum(words: [u64; 6]) -> u64 {
    words.into_iter().fold(1, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// What a failure to open something answers.
pub fn status(error: &io::Error, otherwise: Status) -> Status {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => OUT_OF_MEMORY,
        _ => otherwise,
    }
}

/// A number that no other object has, in whichever process it was made.
fn unique() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    RandomState::new().hash_one((std::process::id(), count, std::time::SystemTime::now()))
}
