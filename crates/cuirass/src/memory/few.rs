//! Lists of a batch, which have no limit but memory.

use crate::Outcome;
use cuirass_fault::Failure;
use smallvec::SmallVec;

/// What a batch of a few needs no allocation for.
pub(super) type Few<T> = SmallVec<[T; 4]>;

pub(super) const FOR_A_BATCH: &str = "for a batch";

/// The items, where there is memory for them.
pub(super) fn few<T>(items: impl Iterator<Item = T>) -> Outcome<Few<T>> {
    let mut few = Few::new();
    for item in items {
        if few.len() == few.capacity() && few.try_reserve(1).is_err() {
            return Err(Failure::no_memory(FOR_A_BATCH));
        }
        few.push(item);
    }
    Ok(few)
}
