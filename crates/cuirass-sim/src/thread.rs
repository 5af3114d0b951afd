//! What the driver knows of each thread: its stack of contexts, its capture mode, the call that it is in.
//!
//! Nothing here has a destructor, so that a call made while a thread is being torn down still finds its state.

use crate::handle::Handle;
use crate::status::{Answer, OUT_OF_MEMORY};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How deep a thread's stack of contexts may become.
const DEPTH: usize = 256;

struct Thread {
    id: Cell<u64>,
    call: Cell<&'static str>,
    number: Cell<u64>,
    mode: Cell<u32>,
    in_callback: Cell<bool>,
    working: Cell<bool>,
    depth: Cell<usize>,
    stack: [Cell<u64>; DEPTH],
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            id: Cell::new(0),
            call: Cell::new("no call"),
            number: Cell::new(0),
            mode: Cell::new(0),
            in_callback: Cell::new(false),
            working: Cell::new(false),
            depth: Cell::new(0),
            stack: [const { Cell::new(0) }; DEPTH],
        }
    };
}

static THREADS: AtomicU64 = AtomicU64::new(0);

/// Where in a program's run something happened: which call, the how-manieth of which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The call's name.
    pub call: &'static str,
    /// How many calls the thread had made, this one included.
    pub number: u64,
    /// The thread, counted from 1 in the order of their first calls.
    pub thread: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {} of thread {})", self.call, self.number, self.thread)
    }
}

/// Notes that the thread is now in this call.
pub fn enter(call: &'static str) {
    THREAD.with(|thread| {
        if thread.id.get() == 0 {
            id();
        }
        thread.call.set(call);
        thread.number.set(thread.number.get() + 1);
    });
}

/// The call that the thread is in.
pub fn place() -> Place {
    THREAD.with(|thread| Place { call: thread.call.get(), number: thread.number.get(), thread: id() })
}

/// The thread's number.
pub fn id() -> u64 {
    THREAD.with(|thread| {
        if thread.id.get() == 0 {
            thread.id.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        thread.id.get()
    })
}

/// The thread's own stream capture mode, as a number of `CUstreamCaptureMode`.
pub fn capture_mode() -> u32 {
    THREAD.with(|thread| thread.mode.get())
}

/// Sets the mode; answers the one before.
pub fn exchange_capture_mode(mode: u32) -> u32 {
    THREAD.with(|thread| thread.mode.replace(mode))
}

/// Whether the thread runs a host function now.
pub fn in_callback() -> bool {
    THREAD.with(|thread| thread.in_callback.get())
}

/// Says whether the thread runs a host function.
pub fn set_in_callback(inside: bool) {
    THREAD.with(|thread| thread.in_callback.set(inside));
}

/// Whether the thread does a stream's work now.
pub fn is_working() -> bool {
    THREAD.with(|thread| thread.working.get())
}

/// Says whether the thread does a stream's work.
pub fn set_working(working: bool) {
    THREAD.with(|thread| thread.working.set(working));
}

/// The current context: the top of the stack, the null handle if there is none.
pub fn current() -> Handle {
    THREAD.with(|thread| match thread.depth.get() {
        0 => Handle::NULL,
        depth => Handle(thread.stack[depth - 1].get()),
    })
}

/// Puts a context on top.
pub fn push(context: Handle) -> Answer {
    THREAD.with(|thread| {
        let depth = thread.depth.get();
        let place = thread.stack.get(depth).ok_or(OUT_OF_MEMORY)?;
        place.set(context.0);
        thread.depth.set(depth + 1);
        Ok(())
    })
}

/// Takes the top context; null if there is none.
pub fn pop() -> Handle {
    let top = current();
    THREAD.with(|thread| thread.depth.set(thread.depth.get().saturating_sub(1)));
    top
}

/// Replaces the top; null takes it away.
pub fn set_current(context: Handle) -> Answer {
    if context.is_null() {
        pop();
        return Ok(());
    }
    THREAD.with(|thread| match thread.depth.get() {
        0 => push(context),
        depth => {
            thread.stack[depth - 1].set(context.0);
            Ok(())
        }
    })
}
