//! The bytes of Python objects, and the layouts of tensors.

mod bytes;
mod index;
pub mod layout;

pub use bytes::with_bytes;

use pyo3::prelude::*;

/// Adds the family's classes.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<layout::StridedLayout>()
}
