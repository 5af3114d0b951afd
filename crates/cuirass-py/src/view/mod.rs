//! Views of other libraries' arrays, and ours for them: DLPack, the two array interfaces, plain bytes, and layouts.

mod bytes;
mod copy;
mod cupy;
pub mod dlpack;
pub mod dtype;
mod exchange;
mod export;
mod import;
mod index;
mod interface;
pub mod layout;
mod numpy;
mod parts;
mod protocol;
mod strided;

pub use bytes::{has_bytes, with_bytes};
pub use export::buffer as export_buffer;
pub use numpy::{NO_HOST, convert};
pub use strided::StridedMemoryView;

use pyo3::prelude::*;

/// Adds the family's classes.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<layout::StridedLayout>()?;
    module.add_class::<strided::StridedMemoryView>()?;
    strided::install(module.py())?;
    exchange::install(module.py())
}
