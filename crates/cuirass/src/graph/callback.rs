//! Host callbacks in graphs: closures that run each time a graph does, on a thread of the driver.
#![allow(unsafe_code)]

use crate::graph::builder::{GraphBuilder, state};
use crate::graph::recording::{Attachment, Recording};
use crate::{Outcome, Result};
use cuirass_call::launch as call;
use cuirass_call::owner::CallbackThread;
use cuirass_fault::{Failure, Misuse};
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a graph can call each time it runs.
pub trait HostFunction: Send + Sync + 'static {
    /// Makes no CUDA call. A panic is reported.
    fn call(&self);
}

impl<F: Fn() + Send + Sync + 'static> HostFunction for F {
    fn call(&self) {
        self();
    }
}

impl GraphBuilder {
    /// Runs a closure each time the graph runs, once what comes before it is done; what comes later waits for it. It
    /// must make no CUDA call. A panic in it is reported. It is dropped with the graph and what was made executable
    /// of it.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when it is not building, and in the body of a conditional node;
    /// what the driver answers.
    pub fn callback<F: HostFunction>(&self, function: F) -> Result<()> {
        let recording = self.callback_allowed()?;
        let function = Arc::new(function);
        let data = Arc::as_ptr(&function).cast_mut().cast();
        // Kept first: the node may be there even where the call returns an error.
        recording.attachments.add(Attachment::Other(function));
        // SAFETY: [graph-callback] the graph keeps the closure as long as it can run; `run` catches panics.
        Ok(unsafe { call::host_func(self.stream().raw(), run::<F>, data) }?)
    }

    /// As [`callback`](GraphBuilder::callback), with a C function. `owner` is kept as long as the graph.
    ///
    /// # Errors
    /// As [`callback`](GraphBuilder::callback).
    ///
    /// # Safety
    /// The function may be called with `data`, on any thread, any number of times, as long as `owner` lives; it does
    /// not unwind and makes no CUDA call.
    pub unsafe fn callback_raw(
        &self,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<()> {
        let recording = self.callback_allowed()?;
        recording.attachments.add(Attachment::Other(owner));
        // SAFETY: [graph-callback] the caller's promise; the graph keeps the owner.
        Ok(unsafe { call::host_func(self.stream().raw(), function, data) }?)
    }

    fn callback_allowed(&self) -> Outcome<Arc<Recording>> {
        let recording = self.building()?;
        if recording.is_body() {
            return Err(state(
                "the body of a conditional node cannot have host callbacks: only kernels, copies, fills, child graphs and \
                 conditional nodes",
            ));
        }
        Ok(recording)
    }
}

unsafe extern "C" fn run<F: HostFunction>(data: *mut c_void) {
    // What the closure drops is queued: no CUDA call may be made here.
    let _here = CallbackThread::enter();
    // SAFETY: [graph-callback] the closure that `callback` gave the graph, which keeps it.
    let function = unsafe { &*data.cast::<F>() };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| function.call())) {
        let text = crate::host_function::text_of(&*panic);
        Failure::misuse(Misuse::State, format!("a host callback of a graph panicked: {text}"))
            .report("running a host callback of a graph");
    }
}
