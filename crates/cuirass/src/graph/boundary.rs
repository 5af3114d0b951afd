//! Keeps releases away from a stream while a capture of it begins or ends. Measured: a driver (580) ends the process when
//! another thread makes nearly any call on the stream at that moment (`facts/README.md`); calls on a stream that is captured
//! already did no harm.
//!
//! A release passes the boundary with a count, and has to wait in the deferred queue where a capture is crossing it; a
//! capture that crosses it waits until no release is on its way. Streams share a few boundaries by their handles, so that
//! all that name one stream meet at one of them.

use crate::stream::Stream;
use cuirass_call::sys::cuda::CUstream;
use cuirass_fault::lock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// On a cache line of its own: threads that work on different streams do not meet.
#[repr(align(64))]
struct Boundary(AtomicUsize);

/// The releases that are on their way are counted below this, the captures that cross from it on.
const CROSSING: usize = 1 << (usize::BITS / 2);

const COUNT: usize = 64;

static BOUNDARIES: [Boundary; COUNT] = [const { Boundary(AtomicUsize::new(0)) }; COUNT];

#[inline]
fn of(stream: CUstream) -> &'static AtomicUsize {
    // Streams are objects of some hundred bytes: the bits above tell them apart.
    let address = stream.addr();
    let at = (address >> 7 ^ address >> 13) % COUNT;
    &BOUNDARIES[at].0
}

/// A release that is on its way.
pub(crate) struct Releasing(&'static AtomicUsize);

/// Before a release calls the driver for a stream. `None` while a capture of it begins or ends: the release has to wait.
#[inline]
pub(crate) fn releasing(stream: CUstream) -> Option<Releasing> {
    let boundary = of(stream);
    let releasing = Releasing(boundary);
    (boundary.fetch_add(1, Ordering::AcqRel) < CROSSING).then_some(releasing)
}

impl Drop for Releasing {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A capture that begins or ends, or that a stream joins.
pub(crate) struct Crossing(&'static AtomicUsize);

/// Before a capture of a stream begins or ends, or the stream joins one: waits until no release of it is on its way.
#[inline]
pub(crate) fn crossing(stream: &Stream) -> Crossing {
    let boundary = of(stream.as_raw());
    if !boundary.fetch_add(CROSSING, Ordering::AcqRel).is_multiple_of(CROSSING) {
        wait_for_releases(boundary);
    }
    Crossing(boundary)
}

#[cold]
fn wait_for_releases(boundary: &AtomicUsize) {
    let mut looked = 0;
    // In a forked child nobody is left who would take a count back.
    while !boundary.load(Ordering::Acquire).is_multiple_of(CROSSING) && !lock::is_forked() {
        looked += 1;
        if looked < 64 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

impl Drop for Crossing {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(CROSSING, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_release_waits_where_a_capture_crosses_and_a_capture_waits_for_releases() {
        let stream = Stream::legacy_default();
        let on_its_way = releasing(stream.as_raw());
        assert!(on_its_way.is_some());
        let across = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let capture = scope.spawn(|| {
                let crossing = crossing(&stream);
                across.store(true, Ordering::Release);
                crossing
            });
            while of(stream.as_raw()).load(Ordering::Acquire) < CROSSING {
                std::thread::yield_now();
            }
            // It is announced: none starts any more, and it waits for the one that has.
            assert!(releasing(stream.as_raw()).is_none());
            assert!(!across.load(Ordering::Acquire));
            drop(on_its_way);
            let crossing = capture.join().ok();
            assert!(across.load(Ordering::Acquire));
            assert!(releasing(stream.as_raw()).is_none());
            drop(crossing);
        });
        assert!(releasing(stream.as_raw()).is_some());
        assert_eq!(of(stream.as_raw()).load(Ordering::Acquire), 0);
    }
}
