//! Views of memory that others own, and the layouts that say where their elements are.

mod layout;

pub use layout::{Dims, MAX_DIMS, StrideOrder, StridedLayout};
