//! The driver as the sweep itself uses it: past the resources that it tests, and unseen by its own instrument.

use crate::instrument::unseen;
use crate::ledger::{Entry, Handle};
use cuirass_call::load::simulator_symbol;
use cuirass_call::status::code;
use cuirass_call::sys::cuda::CUstreamCaptureMode;
use cuirass_call::{context, driver, event, graph, memory, module, program, stream};
use cuirass_fault::Failure;

/// What is current on this thread.
pub fn current() -> u64 {
    unseen(context::ctx_get_current).map_or_else(
        |failure| {
            failure.answered();
            u64::MAX
        },
        |context| context.addr() as u64,
    )
}

/// Makes a context current on this thread; 0 makes none current.
///
/// # Errors
/// What the driver answers.
pub fn set_current(context: u64) -> Result<(), String> {
    unseen(|| context::ctx_set_current(pointer(context))).map_err(text)
}

/// The contexts below the current one on this thread's stack, from the top; `None` on a real driver, whose calls for
/// it cuirass has no wrappers of.
pub fn stack() -> Option<Vec<u64>> {
    let (pop, push) = (simulator_symbol("cuCtxPopCurrent_v2")?, simulator_symbol("cuCtxPushCurrent_v2")?);
    let mut contexts = Vec::new();
    // SAFETY: [simulator-export] the driver's functions of these names, which take a place for a context, and one.
    unsafe {
        let pop: unsafe extern "C" fn(*mut u64) -> u32 = std::mem::transmute(pop.as_ptr());
        let push: unsafe extern "C" fn(u64) -> u32 = std::mem::transmute(push.as_ptr());
        let mut context = 0;
        while contexts.len() < 100 && current() != 0 && pop(&raw mut context) == 0 {
            contexts.push(context);
        }
        for context in contexts.iter().rev() {
            push(*context);
        }
    }
    Some(contexts.split_off(contexts.len().min(1)))
}

/// This thread's capture mode.
///
/// # Errors
/// What the driver answers.
pub fn capture_mode() -> Result<u32, String> {
    let mode = exchange(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    exchange(mode)?;
    Ok(mode.0)
}

/// Sets this thread's capture mode.
///
/// # Errors
/// What the driver answers.
pub fn set_capture_mode(mode: u32) -> Result<(), String> {
    exchange(CUstreamCaptureMode(mode)).map(|_before| ())
}

fn exchange(mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode, String> {
    unseen(|| driver::thread_exchange_stream_capture_mode(mode)).map_err(text)
}

/// Waits for all work in a context, unless that is lost. A driver loses an imported pool that is destroyed before a call
/// has waited for the frees of its memory.
///
/// # Errors
/// What the driver answers where a context is made current.
pub fn settle(context: u64) -> Result<(), String> {
    let before = current();
    set_current(context)?;
    unseen(context::ctx_synchronize).unwrap_or_else(Failure::answered);
    set_current(before)
}

/// Gives back what a run has rightly left: what the driver refused to take, and what the program could not know of.
///
/// # Errors
/// What the driver answers.
pub fn put_away((kind, value): Handle, entry: &Entry, elsewhere: u64) -> Result<(), String> {
    let put_away = || match kind {
        "stream" => stream::destroy(pointer(value)),
        "event" => event::destroy(pointer(value)),
        "context" => context::ctx_destroy(pointer(value)),
        "primary_context" => context::device_primary_ctx_release(i32::try_from(value).unwrap_or(-1)),
        "pool" => memory::pool::destroy(pointer(value)),
        "memory" => memory::buffer::free(value),
        "pinned_memory" => memory::pinned::free_host(pointer(value)),
        "mapping" => memory::r#virtual::unmap(value, bytes_of(entry)),
        "address_range" => memory::r#virtual::address_free(value, bytes_of(entry)),
        "physical_memory" => memory::r#virtual::release(value),
        "library" => module::library_unload(pointer(value)),
        "program" => program::destroy_program(pointer(value)),
        "graph" => graph::definition::destroy(pointer(value)),
        "capture" => match graph::builder::stream_end_capture(pointer(value)) {
            Ok(graph) if graph.is_null() => Ok(()),
            Ok(graph) => graph::definition::destroy(graph),
            Err(failure) => Err(failure),
        },
        "graph_exec" => graph::exec::destroy(pointer(value)),
        _ => Ok(()),
    };
    if !matches!(kind, "memory" | "pinned_memory" | "library" | "pool" | "graph_exec") {
        return unseen(put_away).map_err(text);
    }
    // Some of them want to be given back where they were made: where that was current, or in the context that the
    // sweep's objects are of. Nothing is given back twice: an error may be an older one.
    let before = current();
    let mut result = Err("no context could be made current".to_owned());
    for context in [entry.context, elsewhere] {
        if set_current(context).is_err() {
            continue;
        }
        result = match unseen(put_away) {
            Err(failure) if failure.status() == Some(code::INVALID_CONTEXT) && context != elsewhere => {
                failure.answered();
                continue;
            }
            result => result.map_err(text),
        };
        break;
    }
    set_current(before)?;
    result
}

/// Memory of `cuMemAllocManaged`, unseen by the instrument; freed when it is dropped.
pub struct ManagedMemory(u64);

impl ManagedMemory {
    /// Memory of this many bytes.
    ///
    /// # Panics
    /// If the driver refuses.
    #[must_use]
    #[allow(clippy::expect_used, clippy::new_without_default)]
    pub fn new(bytes: usize) -> ManagedMemory {
        let made = in_primary(|| memory::managed::alloc_managed(bytes, 1));
        ManagedMemory(made.map_err(text).expect("managed memory"))
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0
    }
}

impl Drop for ManagedMemory {
    fn drop(&mut self) {
        if let Err(failure) = in_primary(|| memory::buffer::free(self.0)) {
            // In a context that is lost it goes with the process.
            failure.answered();
        }
    }
}

/// Runs a call with device 0's primary context current, which somebody else has retained.
fn in_primary<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    unseen(|| {
        let primary = context::device_primary_ctx_retain(0)?;
        let before = context::ctx_get_current()?;
        context::ctx_set_current(primary)?;
        let result = call();
        context::ctx_set_current(before)?;
        context::device_primary_ctx_release(0)?;
        result
    })
}

/// When a kind is put away: what is made in another before that.
pub fn rank(kind: &str) -> u8 {
    match kind {
        "capture" => 0,
        "graph_exec" => 1,
        "graph" => 2,
        "event" | "memory" | "pinned_memory" | "library" | "program" | "mapping" => 3,
        "pool" | "address_range" | "physical_memory" => 4,
        "stream" => 5,
        "context" => 6,
        _ => 7,
    }
}

fn bytes_of(entry: &Entry) -> usize {
    usize::try_from(entry.bytes).unwrap_or(0)
}

fn pointer<T>(value: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::try_from(value).unwrap_or(0))
}

fn text(failure: Failure) -> String {
    failure.raise().to_string()
}
