//! The host side of CUDA: devices, contexts, streams, events, memory pools, programs, kernels and launches.
//!
//! One promise sets it apart: no failure is silent, none is blamed on the wrong call, none corrupts what you already
//! hold, and none ends your process. Every operation returns [`Error`] with the status, the entry point and what it
//! was about; what cannot be returned (a failed release while a handle is dropped) becomes one [`Report`].
//!
//! No CUDA toolkit is needed to build. The driver and the compiler are loaded when first used. Without a GPU, the
//! simulated driver serves (see [`driver`]), which really runs kernels.
//!
//! ```no_run
//! use cuirass::{Device, LaunchConfig, Program, ProgramOptions, StreamOptions, launch};
//!
//! # fn main() -> cuirass::Result<()> {
//! let device = Device::new(0)?;
//! let stream = device.create_stream(&StreamOptions::default())?;
//! let code = Program::new(
//!     "extern \"C\" __global__ void twice(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; \
//!      if (i < n) x[i] *= 2; }",
//!     &ProgramOptions::for_device(device)?,
//! )?
//! .compile_to_cubin()?;
//! let kernel = code.kernel("twice")?;
//!
//! let pool = device.memory_resource()?;
//! let buffer = pool.allocate(4 * 1024, &stream)?;
//! buffer.copy_from_slice(&[1.0_f32; 1024], &stream)?;
//! // SAFETY: the kernel writes 1024 floats, which is what the buffer holds.
//! unsafe { launch(&stream, &LaunchConfig::linear(4, 256), &kernel, &[(&buffer).into(), (&1024_i32).into()])? };
//! let mut result = [0.0_f32; 1024];
//! buffer.copy_to_slice(&mut result, &stream)?;
//! assert_eq!(result, [2.0; 1024]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

pub mod context;
mod deferred;
mod device;
pub mod driver;
mod event;
pub mod graph;
mod host_function;
mod launch;
pub mod memory;
mod module;
mod program;
mod stream;
pub mod testing;
pub mod view;

pub use context::Context;
pub use cuirass_call::owner::{leave_what_waits, when_the_process_ends};
pub use cuirass_fault::{Error, ErrorKind, Report, Reporter, Status, set_reporter};
pub use deferred::{drain, pending as pending_releases, report_left_at_exit};
pub use device::{Device, DeviceAttribute};
pub use event::{Event, EventOptions};
pub use launch::{Argument, KernelParameter, LaunchConfig, launch};
pub use memory::{Buffer, MemoryResource};
pub use module::{CodeKind, Kernel, KernelAttribute, ObjectCode, ParameterInfo};
pub use program::{Compiled, Program, ProgramOptions, compiler_version};
pub use stream::{CaptureStatus, Stream, StreamOptions};

/// What an operation returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The numbers of the driver's and of the compiler's statuses, by their names: what [`Error::code`] is compared with.
///
/// ```no_run
/// # use cuirass::{Buffer, Result, Stream, memory::MemoryPool, status};
/// # fn half(pool: &MemoryPool, bytes: usize, stream: &Stream) -> Result<Buffer> {
/// match pool.allocate(bytes, stream) {
///     Err(error) if error.code() == Some(status::CUDA_ERROR_OUT_OF_MEMORY) => pool.allocate(bytes / 2, stream),
///     other => other,
/// }
/// # }
/// ```
pub mod status {
    pub use cuirass_call::table::driver::status::*;
    pub use cuirass_call::table::nvrtc::status::*;
}

/// The driver's own types, for code that shares handles with other libraries.
pub use cuirass_call::sys::cuda as raw;

/// Results on the way to the outermost public function, where a failure becomes an [`Error`].
type Outcome<T> = std::result::Result<T, cuirass_fault::Failure>;
