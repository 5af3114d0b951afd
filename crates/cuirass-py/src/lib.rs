//! The Python package's library: classes and functions that convert, release the interpreter and call `cuirass`.
//!
//! One file a family. A class holds its share of the Rust object in a [`slot::Slot`], so that `close()` is safe while
//! another thread uses it, or in a [`slot::Detached`]; both drop it with the interpreter released. Calls go through
//! [`error::run`] (interpreter released) or [`error::ask`] (what returns at once; FAILURES.md says which).
#![deny(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod argument;
mod config;
mod context;
mod device;
mod error;
mod event;
mod fresh;
#[cfg(feature = "gauntlet")]
mod gauntlet;
mod graph;
mod handle;
mod kernel;
mod late;
mod launch;
mod memory;
mod module;
mod nested;
mod number;
mod options;
mod program;
mod properties;
mod raw;
mod report;
mod room;
mod sim;
mod slot;
mod stream;
mod testing;
mod view;

use pyo3::prelude::*;

/// The classes and functions that `cuirass` exports.
#[pymodule(gil_used = false)]
fn _cuirass(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    report::only_in_the_main_interpreter()?;
    module.add_class::<context::Context>()?;
    module.add_class::<device::Device>()?;
    raw::install(py);
    device::install(py)?;
    config::install(py)?;
    module.add_class::<properties::DeviceProperties>()?;
    module.add_class::<event::Event>()?;
    event::install(py)?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<kernel::KernelAttributes>()?;
    module.add_class::<kernel::KernelOccupancy>()?;
    module.add_class::<config::LaunchConfig>()?;
    module.add_class::<memory::buffer::Buffer>()?;
    memory::buffer::install(py)?;
    module.add_class::<memory::graph::GraphMemoryResource>()?;
    module.add_class::<memory::graph::GraphMemoryResourceAttributes>()?;
    module.add_class::<memory::ipc::AllocationHandle>()?;
    module.add_class::<memory::ipc::BufferDescriptor>()?;
    module.add_class::<memory::ipc::EventDescriptor>()?;
    graph::add(module)?;
    module.add_class::<memory::location::Host>()?;
    module.add_class::<memory::managed::ManagedBuffer>()?;
    module.add_class::<memory::managed::ManagedMemoryResource>()?;
    module.add_class::<memory::pinned::LegacyPinnedMemoryResource>()?;
    module.add_class::<memory::pinned::PinnedMemoryResource>()?;
    module.add_class::<memory::pool::DeviceMemoryResource>()?;
    memory::pool::add(module)?;
    module.add_class::<memory::pool_attributes::MemPoolAttributes>()?;
    module.add_class::<memory::resource::MemoryResource>()?;
    module.add_class::<memory::r#virtual::VirtualMemoryResource>()?;
    module.add_class::<module::ObjectCode>()?;
    module.add_class::<program::Program>()?;
    module.add_class::<stream::Stream>()?;
    stream::install(py)?;
    view::add(module)?;
    module.add("LEGACY_DEFAULT_STREAM", Py::new(py, stream::Stream::of(cuirass::Stream::legacy_default()))?)?;
    module.add("PER_THREAD_DEFAULT_STREAM", Py::new(py, stream::Stream::of(cuirass::Stream::per_thread_default()))?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    launch::LAUNCH.replace_function(module, &wrap_pyfunction!(launch::launch, module)?)?;
    module.add_function(wrap_pyfunction!(memory::batch::copy_batch, module)?)?;
    module.add_function(wrap_pyfunction!(memory::batch::discard_batch, module)?)?;
    module.add_function(wrap_pyfunction!(memory::batch::discard_prefetch_batch, module)?)?;
    module.add_function(wrap_pyfunction!(memory::batch::prefetch_batch, module)?)?;
    module.add_function(wrap_pyfunction!(memory::batch::_copy_pitched, module)?)?;
    module.add_function(wrap_pyfunction!(module::_rebuild_object_code, module)?)?;
    module.add_function(wrap_pyfunction!(report::_report, module)?)?;
    module.add_function(wrap_pyfunction!(sim::drain, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_compiler_version, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_driver_version, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_loaded_compiler, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_loaded_driver, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_calls_made, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_library, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_number, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_check_order, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_reports, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_seed, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_text, module)?)?;
    module.add_function(wrap_pyfunction!(sim::_sim_use, module)?)?;
    module.add_class::<testing::Fault>()?;
    module.add_class::<testing::Recording>()?;
    module.add_function(wrap_pyfunction!(testing::_inject, module)?)?;
    module.add_function(wrap_pyfunction!(testing::_known_calls, module)?)?;
    module.add_function(wrap_pyfunction!(testing::_record, module)?)?;
    module.add_function(wrap_pyfunction!(testing::_status_name, module)?)?;
    module.add_function(wrap_pyfunction!(testing::_compiler_status_name, module)?)?;
    #[cfg(feature = "gauntlet")]
    gauntlet::add(module)?;
    report::install(module)
}
