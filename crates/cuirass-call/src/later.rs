//! Releases that are made later, in places of a fixed size that are reserved beforehand: putting one off allocates
//! nothing, and so cannot fail.
//!
//! Every owner is counted while it lives, and so is every release that waits. The queue that keeps them has room for as
//! many, and grows when an owner is made, where nothing is lost yet.

use cuirass_fault::Failure;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It is done.
    Done,
    /// It has to wait still.
    Wait,
}

const WORDS: usize = 13;

/// Where a closure lies: every kind of handle with what it needs fits, which the compiler checks.
type Place = [MaybeUninit<u64>; WORDS];

/// A release that is made later, on a thread that may call the driver.
pub struct Later {
    place: Place,
    attempt: unsafe fn(*mut Place) -> Result<Attempt, Failure>,
    discard: unsafe fn(*mut Place),
}

// SAFETY: [later-place] the closure in the place may be sent: `new` asks for that.
unsafe impl Send for Later {}

impl Later {
    /// From what tries the release: called until it is done, or has failed.
    pub fn new<F: FnMut() -> Result<Attempt, Failure> + Send + 'static>(attempt: F) -> Later {
        const { assert!(size_of::<F>() <= size_of::<Place>() && align_of::<F>() <= align_of::<Place>()) };
        let mut place: Place = [const { MaybeUninit::uninit() }; WORDS];
        // SAFETY: [later-place] it fits, by the assertion.
        unsafe { place.as_mut_ptr().cast::<F>().write(attempt) };
        Later {
            place,
            // SAFETY: [later-place] called with the place that `F` was written to, by `attempt` and the one drop.
            attempt: |place| unsafe { (*place.cast::<F>())() },
            // SAFETY: [later-place] as above.
            discard: |place| unsafe { place.cast::<F>().drop_in_place() },
        }
    }

    /// Tries it.
    ///
    /// # Errors
    /// What the release fails with; it is not tried again.
    pub fn attempt(&mut self) -> Result<Attempt, Failure> {
        // SAFETY: [later-place] the closure lies in the place until the drop.
        unsafe { (self.attempt)(&raw mut self.place) }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        // SAFETY: [later-place] the one drop.
        unsafe { (self.discard)(&raw mut self.place) }
    }
}

/// What a release that waits is of, for a report.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// "a buffer".
    pub what: &'static str,
    /// The number of its handle; 0 where it has none.
    pub handle: u64,
}

/// Keeps the queue.
#[derive(Clone, Copy)]
pub struct Deferrer {
    /// Puts a release off.
    pub defer: fn(Named, Later),
    /// Makes room in the queue for as many; returns for how many there is room then.
    pub reserve: fn(usize) -> usize,
}

static DEFERRER: OnceLock<Deferrer> = OnceLock::new();

/// Says what puts releases off. Once.
pub fn set_deferrer(deferrer: Deferrer) {
    DEFERRER.get_or_init(|| deferrer);
}

/// What puts releases off, once there is something.
pub(crate) fn deferrer() -> Option<Deferrer> {
    DEFERRER.get().copied()
}

/// Owners that live, and releases that wait, or at least as many.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// For how many of them there is room.
static ROOM: AtomicUsize = AtomicUsize::new(0);
/// So many more may be made between looking for room and taking it, on as many threads.
const MARGIN: usize = 128;

/// A place in the queue, kept free for the release of one owner.
#[must_use = "the place is given up when this is dropped"]
pub struct Slot(());

impl Slot {
    /// One more. Whether there is room is asked by [`is_there_room`], before anything is made.
    #[inline]
    pub fn take() -> Slot {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Slot(())
    }

    /// One that was taken before, and forgotten.
    #[inline]
    pub(crate) fn taken() -> Slot {
        Slot(())
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Places in the queue for the releases of what belongs to one thing, which knows by other means how many these are: taken
/// many at a time, so that each costs nothing.
#[derive(Default)]
pub struct Places(AtomicU32);

impl Places {
    /// So many are taken together at least.
    const BATCH: usize = 32;
    /// So many threads may find at once that there are enough, each for one more.
    const AT_ONCE: usize = 8;

    /// Takes more where there are not as many. As [`Slot::take`], but before [`is_there_room`] is asked.
    #[inline]
    pub fn cover(&self, count: usize) {
        let count = count.saturating_add(Self::AT_ONCE);
        if count > self.0.load(Ordering::Relaxed) as usize {
            self.take(count);
        }
    }

    #[cold]
    fn take(&self, count: usize) {
        let more = count.saturating_sub(self.0.load(Ordering::Relaxed) as usize) + Self::BATCH;
        // There is no memory for as many handles as do not fit.
        if let Ok(more) = u32::try_from(more) {
            self.0.fetch_add(more, Ordering::Relaxed);
            LIVE.fetch_add(more as usize, Ordering::Relaxed);
        }
    }
}

impl Drop for Places {
    #[inline]
    fn drop(&mut self) {
        let taken = *self.0.get_mut() as usize;
        if taken != 0 {
            LIVE.fetch_sub(taken, Ordering::Relaxed);
        }
    }
}

/// Whether there is room for the release of one owner more. Where not, [`make_room`].
#[inline]
pub fn is_there_room() -> bool {
    LIVE.load(Ordering::Relaxed) + MARGIN < ROOM.load(Ordering::Relaxed)
}

/// Makes room for as many again. Returns whether there is any.
#[cold]
pub fn make_room() -> bool {
    // Before the first use of the driver there is nothing that would have to be put off.
    let Some(Deferrer { reserve, .. }) = deferrer() else { return true };
    let room = reserve(LIVE.load(Ordering::Relaxed).saturating_add(4 * MARGIN).saturating_mul(2));
    ROOM.fetch_max(room, Ordering::Relaxed);
    is_there_room()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn places_are_taken_many_at_a_time_and_given_up_together() {
        let places = Places::default();
        let taken = || places.0.load(Ordering::Relaxed) as usize;
        places.cover(1);
        let first = taken();
        places.cover(first - Places::AT_ONCE);
        assert_eq!(taken(), first);
        places.cover(first + 1000);
        assert!(taken() >= first + 1000);
        assert!(LIVE.load(Ordering::Relaxed) >= taken());
    }

    #[test]
    fn a_closure_lies_in_its_place_and_is_dropped_once() {
        let kept = Arc::new(());
        let (mine, mut times) = (Arc::clone(&kept), 0);
        let mut later = Later::new(move || {
            times += 1;
            assert_eq!(Arc::strong_count(&mine), 2);
            Ok(if times < 3 { Attempt::Wait } else { Attempt::Done })
        });
        assert_eq!(later.attempt().map_err(Failure::answered), Ok(Attempt::Wait));
        let mut moved = Box::new(later);
        assert_eq!(moved.attempt().map_err(Failure::answered), Ok(Attempt::Wait));
        assert_eq!(moved.attempt().map_err(Failure::answered), Ok(Attempt::Done));
        drop(moved);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
