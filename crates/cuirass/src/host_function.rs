//! Host functions: closures that run in stream order, on a thread of the driver.
#![allow(unsafe_code)]

use crate::Result;
use crate::stream::Stream;
use cuirass_call::launch as call;
use cuirass_fault::Failure;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the driver is given: the closure, and whom a panic is to name.
struct Call {
    function: Box<dyn FnOnce() + Send>,
    stream: usize,
}

impl Stream {
    /// `cuLaunchHostFunc`: runs a closure once the work that is on the stream now is done. What comes later on the
    /// stream waits for it. It must make no CUDA call. A panic in it is reported.
    ///
    /// # Errors
    /// What the driver answers; the closure is then dropped without having run.
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let stream = self.as_raw();
        let data = Box::into_raw(Box::new(Call { function: Box::new(function), stream: stream.addr() }));
        // SAFETY: [host-function] `run` takes the box back, once; it catches panics.
        let result = unsafe { call::host_func(stream, run, data.cast()) };
        if result.is_err() {
            // SAFETY: [host-function] the driver refused it, so that the box is still ours.
            drop(unsafe { Box::from_raw(data) });
        }
        Ok(result?)
    }
}

unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: [host-function] the box that `launch_host_function` gave away; the driver calls this once.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    let Call { function, stream } = *call;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(function)) {
        let text = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no text".to_owned());
        Failure::misuse(cuirass_fault::Misuse::State, format!("a host function panicked: {text}"))
            .report(&format!("running a host function on stream {stream:#x}"));
    }
}
