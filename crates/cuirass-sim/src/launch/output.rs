//! What kernels print: kept until the program waits for something, as on hardware.

use parking_lot::Mutex;
use std::io::Write as _;

/// How much is kept: `CU_LIMIT_PRINTF_FIFO_SIZE` as it is at first, whatever a program makes of it.
const MOST: usize = 8 << 20;

static PRINTED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Keeps what one launch printed, behind what earlier ones did.
pub fn keep(text: &[u8]) {
    if text.is_empty() {
        return;
    }
    let mut printed = PRINTED.lock();
    printed.extend_from_slice(text);
    // The device's buffer is a ring: what is not fetched in time is overwritten.
    let surplus = printed.len().saturating_sub(MOST);
    if surplus > 0 {
        printed.drain(..surplus);
    }
}

/// Writes what was printed to stdout.
pub fn fetch() {
    let printed = std::mem::take(&mut *PRINTED.lock());
    if printed.is_empty() {
        return;
    }
    let mut out = std::io::stdout().lock();
    // Nobody is left to tell if stdout is closed.
    drop(out.write_all(&printed).and_then(|()| out.flush()));
}
