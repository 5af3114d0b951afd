//! Host functions: closures that run in stream order, on a thread of the driver.
#![allow(unsafe_code)]

use crate::Result;
use crate::stream::Stream;
use cuirass_call::graph::builder;
use cuirass_call::launch as call;
use cuirass_call::owner::CallbackThread;
use cuirass_call::sys::cuda::CUstreamCaptureStatus;
use cuirass_fault::lock::Global;
use cuirass_fault::{Failure, Misuse};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The closures that wait for their turn, by the number that the driver was given for each. A call that returned an
/// error may have been accepted all the same, and run later: a number that is not here any more runs nothing, where a
/// pointer would dangle.
static WAITING: Global<Waiting> = Global::new(Waiting::new(), Waiting::new());

struct Waiting {
    last: usize,
    calls: BTreeMap<usize, Call>,
}

impl Waiting {
    const fn new() -> Waiting {
        Waiting { last: 0, calls: BTreeMap::new() }
    }
}

/// A closure, and whom a panic is to name.
struct Call {
    function: Box<dyn FnOnce() + Send>,
    stream: usize,
}

impl Stream {
    /// `cuLaunchHostFunc`: runs a closure once the work that is on the stream now is done. What comes later on the
    /// stream waits for it. It must make no CUDA call. A panic in it is reported.
    ///
    /// # Errors
    /// What the driver answers; the closure is then dropped without having run, unless a note says that it ran. [`ErrorKind::State`](crate::ErrorKind::State)
    /// on a stream that is being captured.
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let stream = self.raw();
        if builder::stream_is_capturing(stream)? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            let message = "the stream is being captured, and a graph may run a host function any number of times: \
                           GraphBuilder.callback() records one that can be called again";
            return Err(Failure::misuse(Misuse::State, message).raise());
        }
        let call = Call { function: Box::new(function), stream: stream.addr() };
        let number = {
            let mut waiting = WAITING.lock();
            waiting.last += 1;
            let number = waiting.last;
            waiting.calls.insert(number, call);
            number
        };
        // SAFETY: [host-function] `run` takes the number as what it is, and catches panics.
        let result = unsafe { call::host_func(stream, run, std::ptr::without_provenance_mut(number)) };
        let Err(failure) = result else { return Ok(()) };
        // Dropped with no lock held: it is the user's.
        let refused = WAITING.lock().calls.remove(&number);
        Err(match refused {
            Some(_call) => failure,
            None => failure.note("the driver ran the function all the same"),
        }
        .raise())
    }
}

unsafe extern "C" fn run(data: *mut c_void) {
    // What the closure drops is queued: no CUDA call may be made here.
    let _here = CallbackThread::enter();
    let Some(Call { function, stream }) = WAITING.lock().calls.remove(&data.addr()) else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(function)) {
        let text = text_of(&*panic);
        Failure::misuse(Misuse::State, format!("a host function panicked: {text}"))
            .report(&format!("running a host function on stream {stream:#x}"));
    }
}

/// What a panic said.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
