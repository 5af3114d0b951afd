//! Views of other libraries' arrays, and ours for them: DLPack, the two array interfaces, and plain bytes.

mod bytes;
mod copy;
pub mod dlpack;
pub mod dtype;
mod exchange;
mod export;
mod import;
mod interface;
mod numpy;
mod protocol;
mod strided;

pub use bytes::with_bytes;
pub use export::buffer as export_buffer;

use pyo3::prelude::*;

/// Adds the family's classes.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<strided::StridedMemoryView>()?;
    exchange::install(module.py())
}
