//! Views of memory that others own, and the layouts that say where their elements are.

mod copy;
mod layout;
mod overlap;
mod repack;
mod reshape;
mod slice;

pub use copy::{Strided, StridedCopy};
pub use layout::{Dims, MAX_DIMS, StrideOrder, StridedLayout};
pub use slice::Index;
