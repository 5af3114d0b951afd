//! A driver's footprint: so many lines of code run through and lines of data read and written in each call.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many lines of 64 bytes a whole share touches, of code and of data.
#[derive(Clone, Copy)]
pub struct Lines {
    code: u32,
    data: usize,
}

const LINE: u32 = 64;
/// As many lines as there are, of either.
const ALL: u32 = 16 * 1024;

static DATA: [AtomicU64; 8 * ALL as usize] = [const { AtomicU64::new(0) }; 8 * ALL as usize];

// ALL lines of code. A line counts `edi` down and goes on to the one 37 further on, so that no prefetcher is ahead of it.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".balign 64",
    "null_driver_lines:",
    ".set null_driver_line, 0",
    ".rept 16384",
    ".balign 64",
    "dec edi",
    "je null_driver_end",
    "jmp null_driver_lines + ((null_driver_line + 37) % 16384) * 64",
    ".set null_driver_line, null_driver_line + 1",
    ".endr",
    ".balign 64",
    "null_driver_end:",
    "ret",
);

#[cfg(target_arch = "x86_64")]
fn code(lines: u32) {
    unsafe extern "C" {
        #[link_name = "null_driver_lines"]
        fn run(lines: u32);
    }
    // SAFETY: [c-caller] it uses `edi` alone, and returns once that is 0.
    unsafe { run(lines.max(1)) };
}

#[cfg(not(target_arch = "x86_64"))]
fn code(_lines: u32) {}

fn data(lines: usize) {
    for line in 0..lines {
        let at = (line * 37 % ALL as usize) * 8;
        if let Some(word) = DATA.get(at) {
            word.store(word.load(Ordering::Relaxed) ^ 1, Ordering::Relaxed);
        }
    }
}

/// What `NULL_DRIVER_THRASH` says; `None` without it.
pub fn lines() -> Option<Lines> {
    static LINES: OnceLock<Option<Lines>> = OnceLock::new();
    *LINES.get_or_init(|| {
        let text = std::env::var("NULL_DRIVER_THRASH").ok()?;
        let (code, data) = text.split_once(',')?;
        let (code, data): (u32, u32) = (code.trim().parse().ok()?, data.trim().parse().ok()?);
        let lines = |kib: u32| (kib.saturating_mul(1024) / LINE).min(ALL);
        Some(Lines { code: lines(code), data: lines(data) as usize })
    })
}

/// Touches this many percent of it.
pub fn touch(percent: u32) {
    if let Some(lines) = lines() {
        code(lines.code * percent / 100);
        data(lines.data * percent as usize / 100);
    }
}
