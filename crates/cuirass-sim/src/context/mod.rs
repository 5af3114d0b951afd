//! Contexts: what they are, and what becomes of them. The calls are in the files beside this one.

mod calls;
mod primary;

pub use calls::*;
pub use primary::*;

use crate::engine::{self, Deps, QueueKey};
use crate::handle::Handle;
use crate::order;
use crate::report;
use crate::state::{Guard, State};
use crate::status::{Answer, CONTEXT_IS_DESTROYED, INVALID_CONTEXT, Status};
use crate::stream::{Stream, StreamKind};
use crate::task::Failure;
use crate::thread::{self, Place};
use std::collections::{BTreeMap, HashMap};

/// One context.
pub struct Context {
    /// The ordinal of its device.
    pub device: usize,
    /// Whether it is its device's primary context.
    pub primary: bool,
    /// Its flags.
    pub flags: u32,
    /// Its number.
    pub id: u64,
    /// The status that every call in it answers after a kernel's fault.
    pub lost: Option<Status>,
    /// Its legacy default stream.
    pub legacy: Handle,
    /// The default streams of threads.
    pub per_thread: HashMap<u64, Handle>,
    /// The queues that the legacy stream waits for, and which wait for it.
    pub blocking: Vec<QueueKey>,
    /// The queues of all its streams.
    pub queues: Vec<QueueKey>,
    /// Limits that were changed.
    pub limits: BTreeMap<u32, u64>,
    /// `CUfunc_cache`
    pub cache_config: u32,
    /// The green context that it is.
    pub green: Option<Handle>,
    /// What ended it, for a primary context, whose handle stays.
    pub ended: Option<Place>,
}

impl State {
    /// A new context with its legacy stream.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when there are no handles left.
    pub fn new_context(&mut self, device: usize, primary: bool, flags: u32) -> Answer<Handle> {
        let context = Context {
            device,
            primary,
            flags,
            id: self.new_id(),
            lost: None,
            legacy: Handle::NULL,
            per_thread: HashMap::new(),
            blocking: Vec::new(),
            queues: Vec::new(),
            limits: BTreeMap::new(),
            cache_config: 0,
            green: None,
            ended: None,
        };
        let handle = self.contexts.insert(context)?;
        self.open_legacy(handle)?;
        Ok(handle)
    }

    fn open_legacy(&mut self, context: Handle) -> Answer {
        let legacy = self.new_stream(context, StreamKind::Legacy, 0, 0)?;
        if let Some(context) = self.contexts.peek_mut(context) {
            context.legacy = legacy;
        }
        Ok(())
    }

    /// A context that is alive.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, `INVALID_CONTEXT`
    pub fn context(&self, handle: Handle) -> Answer<&Context> {
        let context = self.contexts.get(handle, INVALID_CONTEXT)?;
        if let Some(by) = context.ended {
            report::bug(format!("{} used primary context {handle}, which {by} had ended", thread::place()));
            return Err(CONTEXT_IS_DESTROYED);
        }
        Ok(context)
    }

    /// As [`State::context`], to change it.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, `INVALID_CONTEXT`
    pub fn context_mut(&mut self, handle: Handle) -> Answer<&mut Context> {
        self.context(handle)?;
        self.contexts.get_mut(handle, INVALID_CONTEXT)
    }

    /// The calling thread's context, alive and not lost.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if none is current, `CONTEXT_IS_DESTROYED`, or the fault that sticks to it.
    pub fn here(&self) -> Answer<Handle> {
        let handle = self.here_even_lost()?;
        self.not_lost(handle)?;
        Ok(handle)
    }

    /// The calling thread's context, alive.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if none is current, `CONTEXT_IS_DESTROYED`.
    pub fn here_even_lost(&self) -> Answer<Handle> {
        let handle = thread::current();
        if handle.is_null() {
            return Err(INVALID_CONTEXT);
        }
        self.context(handle)?;
        Ok(handle)
    }

    /// Refuses a context that a fault sticks to.
    ///
    /// # Errors
    /// The fault's status.
    pub fn not_lost(&self, handle: Handle) -> Answer {
        lost(self, handle).map_or(Ok(()), Err)
    }
}

/// The status that sticks to a context.
pub fn lost(state: &State, context: Handle) -> Option<Status> {
    state.contexts.peek(context)?.lost
}

/// A kernel faulted: from now on every call in the context answers its status.
pub fn lose(state: &mut State, context: Handle, failure: &Failure) {
    report::make(report::Kind::Fault, failure.text.clone());
    if let Some(context) = state.contexts.peek_mut(context)
        && context.lost.is_none()
    {
        context.lost = Some(failure.status);
    }
}

/// Waits for a context's work, then ends everything in it. The context itself is left to the caller.
fn empty(state: &mut Guard, handle: Handle) {
    loop {
        let Some(context) = state.contexts.peek(handle) else { return };
        let tails: Deps = context.queues.iter().map(|queue| state.engine.tail(*queue)).collect();
        let reached = state.engine.all_reached(&tails);
        engine::wait(state, &tails);
        if reached {
            break;
        }
    }
    state.memory.pools.unwaited.waited_in(handle);
    state.synchronised();
    crate::graph::context_ended(state, handle);
    crate::module::context_ended(state, handle);
    crate::memory::context_ended(state, handle);
    for event in state.events.handles(|event| event.context == handle) {
        state.events.end(event, CONTEXT_IS_DESTROYED);
    }
    for stream in state.streams.handles(|stream: &Stream| stream.context == handle) {
        state.end_stream(stream, CONTEXT_IS_DESTROYED);
    }
    if let Some(context) = state.contexts.peek_mut(handle) {
        context.blocking.clear();
        context.queues.clear();
        context.per_thread.clear();
        context.legacy = Handle::NULL;
    }
    for queue in order::context_ended(handle) {
        state.engine.close(queue);
    }
}

/// Ends a context that the program made.
pub fn end_created(state: &mut Guard, handle: Handle) {
    empty(state, handle);
    state.contexts.end(handle, CONTEXT_IS_DESTROYED);
    if thread::current() == handle {
        thread::pop();
    }
}

/// Ends everything, as if the program had given all of it back: for tests that share a process. Destructors of user
/// objects do not run. The calling thread has no context afterwards; other threads keep the (ended) ones they had.
pub fn reset(state: &mut Guard) {
    for capture in state.graphs.captures.handles(|_| true) {
        state.end_capture(capture, CONTEXT_IS_DESTROYED);
    }
    for exec in state.graphs.execs.handles(|_| true) {
        state.graphs.execs.end(exec, CONTEXT_IS_DESTROYED);
        crate::memory::graph_exec_ended(state, exec);
    }
    for graph in state.graphs.graphs.handles(|_| true) {
        state.graphs.graphs.end(graph, CONTEXT_IS_DESTROYED);
    }
    for node in state.graphs.nodes.handles(|_| true) {
        state.graphs.nodes.end(node, CONTEXT_IS_DESTROYED);
    }
    for object in state.graphs.user_objects.handles(|_| true) {
        state.graphs.user_objects.end(object, CONTEXT_IS_DESTROYED);
    }
    for handle in state.contexts.handles(|context| context.ended.is_none()) {
        if state.contexts.peek(handle).is_some_and(|context| context.primary) {
            primary::end(state, handle);
        } else {
            end_created(state, handle);
        }
    }
    for green in state.green.handles(|_| true) {
        state.green.end(green, CONTEXT_IS_DESTROYED);
    }
    for device in &mut state.devices {
        (device.retained, device.primary_flags) = (0, 0);
    }
    while !thread::pop().is_null() {}
    thread::exchange_capture_mode(0);
}
