//! The classes that arguments are asked for, side by side: PyO3 has each in a line of its own, and behind a driver call
//! each line is fetched anew.
#![allow(unsafe_code)]

use crate::config::LaunchConfig;
use crate::graph::builder::GraphBuilder;
use crate::kernel::Kernel;
use crate::memory::Buffer;
use crate::memory::pool::DeviceMemoryResource;
use crate::stream::Stream;
use pyo3::prelude::*;
use pyo3::{Borrowed, PyTypeInfo, ffi};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A class that is known here.
pub trait Known: PyTypeInfo {
    /// Where it is known; null before the module is there.
    fn place() -> &'static AtomicPtr<ffi::PyTypeObject>;
}

macro_rules! classes {
    ($($name:ident: $class:ty,)*) => {
        #[repr(align(64))]
        struct Classes {
            $($name: AtomicPtr<ffi::PyTypeObject>,)*
        }

        static CLASSES: Classes = Classes { $($name: AtomicPtr::new(std::ptr::null_mut()),)* };

        $(impl Known for $class {
            #[inline]
            fn place() -> &'static AtomicPtr<ffi::PyTypeObject> {
                &CLASSES.$name
            }
        })*

        /// Makes them known.
        pub fn install(py: Python<'_>) {
            $(CLASSES.$name.store(<$class>::type_object_raw(py), Ordering::Relaxed);)*
        }
    };
}

classes! {
    buffer: Buffer,
    builder: GraphBuilder,
    config: LaunchConfig,
    kernel: Kernel,
    resource: DeviceMemoryResource,
    stream: Stream,
}

/// An object whose class is exactly this one, as an object of it. A cast that fails would make an error.
#[inline]
pub fn exact<'a, 'py, T: Known>(object: Borrowed<'a, 'py, PyAny>) -> Option<Borrowed<'a, 'py, T>> {
    let is_exact = object.get_type_ptr() == T::place().load(Ordering::Relaxed);
    // SAFETY: [exact-class] asked just now.
    is_exact.then(|| unsafe { object.cast_unchecked() })
}
