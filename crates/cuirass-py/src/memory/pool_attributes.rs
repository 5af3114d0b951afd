//! The attributes of a pool.

use crate::error::{ask, not_constructed};
use crate::slot::Detached;
use cuirass::memory::{MemoryPool, PoolAttribute};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The attributes of a pool, each read from the driver (``cuMemPoolGetAttribute``) when it is asked for.
#[pyclass(frozen, subclass, module = "cuirass._cuirass", name = "_MemPoolAttributes")]
pub struct MemPoolAttributes {
    pub(super) pool: Detached<MemoryPool>,
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident: $kind:ident = $attribute:ident;)*) => {
        #[pymethods]
        impl MemPoolAttributes {
            #[new]
            #[pyo3(signature = (*_args, **_kwargs))]
            fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<MemPoolAttributes> {
                not_constructed("_MemPoolAttributes", "DeviceMemoryResource.attributes")
            }

            $(
                $(#[$doc])*
                #[getter]
                fn $name(&self, py: Python<'_>) -> PyResult<attributes!(@ $kind)> {
                    let value = ask(py, || self.pool.attribute(PoolAttribute::$attribute))?;
                    Ok(attributes!(@ $kind value))
                }
            )*

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let mut text = String::from("_MemPoolAttributes(");
                $(
                    text.push_str(concat!(stringify!($name), "="));
                    text.push_str(&attributes!(@ $kind text self.$name(py)?));
                    text.push_str(", ");
                )*
                text.truncate(text.len() - 2);
                text.push(')');
                Ok(text)
            }
        }
    };
    (@ bool) => { bool };
    (@ int) => { u64 };
    (@ bool $value:ident) => { $value != 0 };
    (@ int $value:ident) => { $value };
    (@ bool text $value:expr) => { if $value { "True" } else { "False" } };
    (@ int text $value:expr) => { $value.to_string() };
}

attributes! {
    /// Whether memory is reused along event dependencies.
    reuse_follow_event_dependencies: bool = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
    /// Whether memory is reused when its free happens to be done.
    reuse_allow_opportunistic: bool = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC;
    /// Whether the driver may add dependencies of its own to reuse memory.
    reuse_allow_internal_dependencies: bool = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
    /// How many bytes are kept before memory goes back to the system.
    release_threshold: int = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    /// Bytes that the pool has of the system now.
    reserved_mem_current: int = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    /// The most bytes that it has had of the system.
    reserved_mem_high: int = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    /// Bytes of the pool that are allocated now.
    used_mem_current: int = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    /// The most bytes of the pool that have been allocated.
    used_mem_high: int = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}
