//! Calls beside the begin or the end of a capture. Measured: where one thread begins or ends the capture of a stream, the
//! real driver crashes over nearly every call that another thread makes on that stream at the same time. Here such calls
//! are only reported, from whichever of the two comes second.

use crate::{report, thread};
use parking_lot::Mutex;

/// What a call does to a capture of its stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Begins or ends one.
    Boundary,
    Other,
}

struct Present {
    stream: usize,
    thread: u64,
    call: &'static str,
    kind: Kind,
}

/// Calls that threads are in, in a few lists, so that threads on different streams seldom wait for each other.
static PRESENT: [Mutex<Vec<Present>>; 64] = [const { Mutex::new(Vec::new()) }; 64];

/// Calls that were made beside the begin and the end of captures, millions of times, without harm.
const HARMLESS: [&str; 3] = ["cuStreamIsCapturing", "cuStreamIsCapturing_ptsz", "cuStreamWaitEvent"];

/// The default streams are not captured, or by their own thread alone.
const DEFAULT_STREAMS: usize = 2;

/// A call that a thread is in.
pub struct Here {
    at: usize,
    stream: usize,
    thread: u64,
}

/// Notes that the thread is in a call on a stream, until the value is dropped.
pub fn enter(call: &'static str, stream: usize) -> Option<Here> {
    if stream <= DEFAULT_STREAMS || HARMLESS.contains(&call) {
        return None;
    }
    let kind = match call.starts_with("cuStreamBeginCapture") || call.starts_with("cuStreamEndCapture") {
        true => Kind::Boundary,
        false => Kind::Other,
    };
    let here = Here { at: (stream ^ stream >> 8) % PRESENT.len(), stream, thread: thread::id() };
    let beside = {
        let mut present = PRESENT.get(here.at)?.lock();
        let meets = |other: &&Present| {
            other.stream == stream && other.thread != here.thread && (kind, other.kind) != (Kind::Other, Kind::Other)
        };
        let beside = present.iter().find(meets).map(|other| (other.call, other.thread));
        present.push(Present { stream, thread: here.thread, call, kind });
        beside
    };
    if let Some((other, its_thread)) = beside {
        report::bug(format!(
            "{call} on stream {stream:#x} while thread {its_thread} is in {other} on the same stream: the real driver \
             crashes where a capture begins or ends beside another call on its stream"
        ));
    }
    Some(here)
}

impl Drop for Here {
    fn drop(&mut self) {
        let Some(present) = PRESENT.get(self.at) else { return };
        let mut present = present.lock();
        if let Some(at) = present.iter().rposition(|call| call.stream == self.stream && call.thread == self.thread) {
            present.swap_remove(at);
        }
    }
}
