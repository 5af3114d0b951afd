//! Streams: creation, order, waiting, what they belong to; and how work gets into them.

use crate::c::{In, Out, StreamCallback, Untyped};
use crate::engine::{self, Deps, QueueKey};
use crate::graph::Capturing;
use crate::handle::Handle;
use crate::order;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Status};
use crate::task::{Task, Work};
use crate::thread;
use cuirass_sys::cuda::{
    CUcontext, CUdevice, CUevent, CUevent_wait_flags, CUgreenCtx, CUstream, CUstream_flags, CUstreamAttrID,
    CUstreamAttrValue, CUstreamCallback,
};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

/// The least and the greatest priority.
pub const PRIORITIES: (i32, i32) = (0, -5);
/// `CU_STREAM_LEGACY`
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: u64 = 2;

/// Where a stream comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// The program made it.
    Created,
    /// A context's legacy default stream.
    Legacy,
    /// A thread's default stream.
    PerThread,
}

/// One stream.
pub struct Stream {
    /// Its context.
    pub context: Handle,
    /// Where it comes from.
    pub kind: StreamKind,
    /// Its flags.
    pub flags: u32,
    /// Its priority.
    pub priority: i32,
    /// Its number.
    pub id: u64,
    /// Its pending work.
    pub queue: QueueKey,
    /// What it is being captured into.
    pub capture: Option<Capturing>,
}

/// A stream that a call works on.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The stream, also for the default ones.
    pub stream: Handle,
    /// Its context.
    pub context: Handle,
    /// Its queue.
    pub queue: QueueKey,
    /// Where it comes from.
    pub kind: StreamKind,
    /// Whether it and the legacy stream wait for each other.
    pub blocking: bool,
}

/// Where work went.
#[derive(Clone, Copy, Debug)]
pub enum Submitted {
    /// It is pending; done when this place is reached.
    Pending(engine::Dep),
    /// The stream is being captured: it became this node.
    Captured(Handle),
}

/// What a thread that has default streams does when it ends.
mod leave {
    use crate::{state, thread};

    struct Leaving(u64);

    impl Drop for Leaving {
        fn drop(&mut self) {
            if let Ok(mut state) = state::lock() {
                state.end_thread(self.0);
            }
        }
    }

    std::thread_local! {
        static LEAVING: Leaving = Leaving(thread::id());
    }

    /// The thread has a default stream. One that is made while the thread is being torn down stays.
    pub fn note() {
        let _torn_down = LEAVING.try_with(|_leaving| {});
    }
}

impl State {
    /// A new stream.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when there are no handles left.
    pub fn new_stream(&mut self, context: Handle, kind: StreamKind, flags: u32, priority: i32) -> Answer<Handle> {
        let device = self.contexts.get(context, INVALID_HANDLE)?.device;
        let queue = self.engine.open(context, device, priority);
        let id = self.new_id();
        let stream = Stream { context, kind, flags, priority, id, queue, capture: None };
        let handle = self.streams.insert(stream)?;
        let context = self.contexts.get_mut(context, INVALID_HANDLE)?;
        context.queues.push(queue);
        if kind != StreamKind::Legacy && flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0 {
            context.blocking.push(queue);
        }
        Ok(handle)
    }

    /// Ends a stream; its pending work is still done. A later use of its handle answers `later`.
    pub fn end_stream(&mut self, handle: Handle, later: Status) {
        self.leave_capture(handle);
        let Some(stream) = self.streams.end(handle, later) else { return };
        if !order::on() {
            return self.queue_ended(stream.context, stream.queue);
        }
        order::departs(stream.context, stream.queue).into_iter().for_each(|(context, queue)| {
            self.queue_ended(context, queue);
        });
    }

    /// The queue of a stream that is gone may go, too, once its work is done.
    pub fn queue_ended(&mut self, context: Handle, queue: QueueKey) {
        self.engine.close(queue);
        if let Some(context) = self.contexts.peek_mut(context) {
            // Work that is still pending in a stream that is gone is waited for like any other.
            let stays = |queue: &QueueKey| self.engine.is_there(*queue);
            context.queues.retain(stays);
            context.blocking.retain(stays);
        }
    }

    /// The stream that a raw handle names, default streams included (those of the current context).
    ///
    /// # Errors
    /// `INVALID_CONTEXT` for a default stream without a current context, `CONTEXT_IS_DESTROYED`, `INVALID_HANDLE`.
    pub fn stream(&mut self, raw: CUstream) -> Answer<At> {
        let handle = match Handle::of(raw).0 {
            0 | LEGACY => self.context(self.here_even_lost()?)?.legacy,
            PER_THREAD => self.per_thread()?,
            handle => Handle(handle),
        };
        self.stream_at(handle)
    }

    fn per_thread(&mut self) -> Answer<Handle> {
        let here = self.here_even_lost()?;
        let thread = thread::id();
        if let Some(stream) = self.context(here)?.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let stream = self.new_stream(here, StreamKind::PerThread, 0, 0)?;
        self.context_mut(here)?.per_thread.insert(thread, stream);
        leave::note();
        Ok(stream)
    }

    /// The default streams of a thread end with it; their pending work is still done.
    fn end_thread(&mut self, thread: u64) {
        for context in self.contexts.handles(|context| context.per_thread.contains_key(&thread)) {
            let stream = self.contexts.peek_mut(context).and_then(|context| context.per_thread.remove(&thread));
            if let Some(stream) = stream {
                self.end_stream(stream, INVALID_HANDLE);
            }
        }
    }

    /// The stream of a handle that is not a default stream's number.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, `INVALID_HANDLE`
    pub fn stream_at(&self, handle: Handle) -> Answer<At> {
        let stream = self.streams.get(handle, INVALID_HANDLE)?;
        Ok(At {
            stream: handle,
            context: stream.context,
            queue: stream.queue,
            kind: stream.kind,
            blocking: stream.kind == StreamKind::PerThread
                || stream.kind == StreamKind::Created && stream.flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0,
        })
    }

    /// What work put into the stream now has to wait for beside the stream's own order.
    pub fn before(&self, at: &At) -> Deps {
        let Some(context) = self.contexts.peek(at.context) else { return Deps::new() };
        // Who asks what came before what wants to know of what is done, too.
        let all = order::on() || self.memory.pools.unwaited.any();
        if at.kind == StreamKind::Legacy {
            let queues = context.blocking.iter().filter(|queue| all || !self.engine.is_idle(**queue));
            return queues.map(|queue| self.engine.tail(*queue)).collect();
        }
        if at.blocking
            && let Some(legacy) = self.streams.peek(context.legacy)
            && (all || !self.engine.is_idle(legacy.queue))
        {
            return Deps::from_slice(&[self.engine.tail(legacy.queue)]);
        }
        Deps::new()
    }

    /// Where everything that the stream must still do ends.
    pub fn all_of(&self, at: &At) -> Deps {
        let mut deps = self.before(at);
        deps.push(self.engine.tail(at.queue));
        deps
    }

    /// Puts a task into a stream: to be done in order, or as a node if the stream is being captured.
    ///
    /// # Errors
    /// A fault that sticks to the stream's context; what capture refuses.
    pub fn submit(&mut self, at: &At, task: Arc<dyn Task>) -> Answer<Submitted> {
        self.submit_work(at, Work::Task(task))
    }

    /// As [`State::submit`], for any work.
    ///
    /// # Errors
    /// A fault that sticks to the stream's context; what capture refuses.
    pub fn submit_work(&mut self, at: &At, work: Work) -> Answer<Submitted> {
        self.not_lost(at.context)?;
        if let Some(node) = self.capture_work(at, &work)? {
            return Ok(Submitted::Captured(node));
        }
        let after = self.before(at);
        self.push(at.queue, &after, work).map(Submitted::Pending)
    }
}

pub fn cuStreamCreate(stream: Out<CUstream>, flags: c_uint) -> Answer {
    create(stream, flags, 0)
}

pub fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int) -> Answer {
    create(stream, flags, priority)
}

fn create(out: Out<CUstream>, flags: c_uint, priority: c_int) -> Answer {
    out.check()?;
    if flags & !CUstream_flags::CU_STREAM_NON_BLOCKING.0 != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let here = state.here()?;
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let handle = state.new_stream(here, StreamKind::Created, flags, priority)?;
    out.write(handle.raw())
}

fn destroy(stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream_at(Handle::of(stream))?;
    state.context(at.context)?;
    if at.kind != StreamKind::Created {
        return Err(INVALID_HANDLE);
    }
    state.end_stream(at.stream, INVALID_HANDLE);
    state.not_lost(at.context)
}

pub fn cuStreamDestroy(stream: CUstream) -> Answer {
    destroy(stream)
}

pub fn cuStreamDestroy_v2(stream: CUstream) -> Answer {
    destroy(stream)
}

pub fn cuStreamQuery(stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.waited_in_capture(&at)?;
    let deps = state.all_of(&at);
    let done = engine::ask(&mut state, &deps);
    state.not_lost(at.context)?;
    if done { Ok(()) } else { Err(NOT_READY) }
}

pub fn cuStreamSynchronize(stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.waited_in_capture(&at)?;
    let deps = state.all_of(&at);
    engine::wait(&mut state, &deps);
    state.synchronised();
    state.not_lost(at.context)
}

pub fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
    if flags & !CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0 != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.not_lost(at.context)?;
    state.wait_event(&at, Handle::of(event), flags)
}

pub fn cuStreamGetPriority(stream: CUstream, priority: Out<c_int>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    priority.write(state.streams.get(at.stream, INVALID_HANDLE)?.priority)
}

pub fn cuStreamGetFlags(stream: CUstream, flags: Out<c_uint>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.asked_in_capture(&at)?;
    flags.write(state.streams.get(at.stream, INVALID_HANDLE)?.flags)
}

pub fn cuStreamGetId(stream: CUstream, id: Out<c_ulonglong>) -> Answer {
    id.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.asked_in_capture(&at)?;
    id.write(state.streams.get(at.stream, INVALID_HANDLE)?.id)
}

pub fn cuStreamGetCtx(stream: CUstream, context: Out<CUcontext>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.context(at.context)?;
    context.write(at.context.raw())
}

pub fn cuStreamGetCtx_v2(stream: CUstream, context: Out<CUcontext>, green: Out<CUgreenCtx>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.context(at.context)?;
    green.write_if_wanted(state.context(at.context)?.green.unwrap_or(Handle::NULL).raw());
    context.write(at.context.raw())
}

pub fn cuStreamGetDevice(stream: CUstream, device: Out<CUdevice>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    device.write(state.context(at.context)?.device as CUdevice)
}

pub fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: Untyped, flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let callback = StreamCallback::new(stream, callback, data)?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.asked_in_capture(&at)?;
    state.submit_work(&at, Work::Callback(callback)).map(drop)
}

pub fn cuStreamCopyAttributes(to: CUstream, from: CUstream) -> Answer {
    let mut state = state::lock()?;
    let (to, from) = (state.stream(to)?, state.stream(from)?);
    if to.context != from.context { Err(INVALID_VALUE) } else { Ok(()) }
}

pub fn cuStreamGetAttribute(stream: CUstream, attribute: CUstreamAttrID, value: Out<CUstreamAttrValue>) -> Answer {
    value.check()?;
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    let priority = state.streams.get(at.stream, INVALID_HANDLE)?.priority;
    match attribute {
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY => value.write(CUstreamAttrValue { priority }),
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => value
            .write(CUstreamAttrValue { syncPolicy: cuirass_sys::cuda::CUsynchronizationPolicy::CU_SYNC_POLICY_AUTO }),
        _ => Err(INVALID_VALUE),
    }
}

pub fn cuStreamSetAttribute(stream: CUstream, attribute: CUstreamAttrID, value: In<CUstreamAttrValue>) -> Answer {
    if value.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    state.stream(stream)?;
    match attribute {
        // They change speed, and how a waiting thread waits; neither shows here.
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        | CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        | CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY
        | CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        | CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}
