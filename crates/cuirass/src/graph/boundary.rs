//! Keeps releases away from a stream while a capture of it begins or ends. Measured: a driver (580) ends the process when
//! another thread makes nearly any call on the stream at that moment (`facts/README.md`); calls on a stream that is captured
//! already did no harm.
//!
//! A release passes the boundary with a count, and has to wait in the deferred queue where a capture is crossing it; a
//! capture that crosses it waits until no release is on its way. Streams share a few boundaries by their handles, so that
//! all that name one stream meet at one of them.
//!
//! The destruction of a memory pool names no stream, and yet may look at any on which memory of it was freed. A driver ended a
//! process in it where other threads used captures; that this was why has not been measured. It passes all boundaries.

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

/// A pool that is being destroyed: a release that is on its way at every boundary.
pub(crate) struct DestroyingPool(#[allow(dead_code)] [Releasing; COUNT]);

/// Before a pool is destroyed: waits until no capture begins or ends. Not for a thread that crosses a boundary itself.
pub(crate) fn destroying_pool() -> DestroyingPool {
    loop {
        let mut crossed = None;
        let all = std::array::from_fn(|at| {
            let boundary = &BOUNDARIES[at].0;
            if boundary.fetch_add(1, Ordering::AcqRel) >= CROSSING {
                crossed = Some(boundary);
            }
            Releasing(boundary)
        });
        match crossed {
            Some(boundary) if !lock::is_forked() => {
                // A capture that crosses now would wait for these counts.
                drop(all);
                wait_while(boundary, |count| count >= CROSSING);
            }
            _ => return DestroyingPool(all),
        }
    }
}

/// A capture that begins or ends, or that a stream joins.
pub(crate) struct Crossing(&'static AtomicUsize);

/// Before a capture of a stream begins or ends, or the stream joins one: waits until no release of it is on its way, and
/// no pool is being destroyed.
#[inline]
pub(crate) fn crossing(stream: &Stream) -> Crossing {
    let boundary = of(stream.raw());
    if !boundary.fetch_add(CROSSING, Ordering::AcqRel).is_multiple_of(CROSSING) {
        wait_while(boundary, |count| !count.is_multiple_of(CROSSING));
    }
    Crossing(boundary)
}

#[cold]
fn wait_while(boundary: &AtomicUsize, is_in_the_way: impl Fn(usize) -> bool) {
    let mut looked = 0;
    // In a forked child nobody is left who would take a count back.
    while is_in_the_way(boundary.load(Ordering::Acquire)) && !lock::is_forked() {
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
    use cuirass_fault::lock::Mutex;
    use std::sync::atomic::AtomicBool;

    /// The boundaries are the process's.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_pool_is_destroyed_when_no_capture_crosses_and_a_capture_waits_for_it() {
        let _alone = ALONE.lock();
        let stream = Stream::legacy_default();
        let crossing_first = crossing(&stream);
        let (destroying, across) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let destruction = scope.spawn(|| {
                let pool = destroying_pool();
                destroying.store(true, Ordering::Release);
                pool
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!destroying.load(Ordering::Acquire));
            drop(crossing_first);
            let pool = destruction.join().ok();
            assert!(pool.is_some());
            let capture = scope.spawn(|| {
                let crossing = crossing(&stream);
                across.store(true, Ordering::Release);
                crossing
            });
            while of(stream.as_raw()).load(Ordering::Acquire) < CROSSING {
                std::thread::yield_now();
            }
            assert!(!across.load(Ordering::Acquire));
            drop(pool);
            drop(capture.join());
        });
        assert!(across.load(Ordering::Acquire));
        assert_eq!(of(stream.as_raw()).load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_release_waits_where_a_capture_crosses_and_a_capture_waits_for_releases() {
        let _alone = ALONE.lock();
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
