//! Captures in progress: which streams belong to one, and what their work refers to.
//!
//! While a graph builder captures, its streams are in a register. Who puts work on a stream asks [`of`]; without any
//! capture of ours in the process that is one load. What the work refers to is attached to the capture, and so to the
//! graph that comes of it.

use crate::context::Context;
use crate::event::Event;
use crate::graph::boundary::{self, Crossing};
use crate::graph::capture;
use crate::graph::definition::GraphDefinition;
use crate::graph::known::{self, FEW, address};
use crate::graph::options::CaptureMode;
use crate::launch::LaunchConfig;
use crate::memory::{Buffer, Held};
use crate::module::Kernel;
use crate::stream::Stream;
use cuirass_call::owner::Opaque;
use cuirass_call::status;
use cuirass_call::sys::cuda::{CUevent, CUgraph, CUgraphConditionalNodeType, CUgraphNode};
use cuirass_fault::lock::{self, Global, Mutex};
use smallvec::SmallVec;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

/// Something that captured work refers to.
pub(crate) enum Attachment {
    /// A share of a buffer's memory.
    Memory(#[allow(dead_code)] Arc<Held>),
    Kernel(#[allow(dead_code)] Kernel),
    /// What a child graph's work refers to.
    Child(#[allow(dead_code)] Arc<Attachments>),
    Other(#[allow(dead_code)] Arc<dyn Any + Send + Sync>),
    /// Of which kind a conditional node is, and its bodies, which older drivers do not tell: for pictures.
    Bodies(Box<Conditional>),
}

/// A conditional node: of which kind it is, and its bodies.
pub(crate) struct Conditional {
    pub(crate) node: Opaque<CUgraphNode>,
    pub(crate) kind: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<Opaque<CUgraph>>,
}

/// Everything that the work of a graph refers to. The capture, the definition and what was made executable of it
/// share it; with the last of them it is let go.
pub(crate) struct Attachments {
    list: Mutex<List>,
    /// Held by whoever calls the driver for the graph.
    access: Mutex<()>,
    /// The context that the graph is in. The last to go.
    context: Context,
}

#[derive(Default)]
struct List {
    /// What most graphs refer to needs no memory of its own.
    all: SmallVec<[Attachment; 4]>,
    /// The addresses of a few kernels and memories that are in the list, and so are theirs alone: most launches of a
    /// graph refer to what the ones before it did.
    recent: [usize; FEW],
    /// Where the next of them goes.
    next: usize,
}

/// How many graphs within each other a collector sees: its stack is not ours to fill.
pub(crate) const MOST_SEEN: usize = 32;

impl List {
    /// Whether it is none of the last few; from now on it is.
    #[inline]
    fn is_new(&mut self, address: usize) -> bool {
        if self.recent.contains(&address) {
            return false;
        }
        if let Some(place) = self.recent.get_mut(self.next % FEW) {
            *place = address;
        }
        self.next += 1;
        true
    }

    #[inline]
    fn add_held(&mut self, held: &Arc<Held>) {
        if self.is_new(address(held)) {
            self.all.push(Attachment::Memory(Arc::clone(held)));
        }
    }
}

impl Attachments {
    /// None so far.
    fn new(context: Context) -> Attachments {
        Attachments { list: Mutex::default(), access: Mutex::default(), context }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Calls the driver for the graph, or a body of it, while no other thread does: CUDA says that a graph must not be used
    /// by two threads at once, also where both only read it.
    pub(crate) fn alone<T>(&self, call: impl FnOnce() -> T) -> T {
        // In a forked child the call is refused, and a thread that the child does not have may hold the lock.
        let _alone = (!lock::is_forked()).then(|| self.access.lock());
        call()
    }

    /// The same for two graphs, which may be parts of one.
    pub(crate) fn alone_with<T>(self: &Arc<Attachments>, other: &Arc<Attachments>, call: impl FnOnce() -> T) -> T {
        match Arc::as_ptr(self).cmp(&Arc::as_ptr(other)) {
            std::cmp::Ordering::Equal => self.alone(call),
            // One order for all, so that no two wait for each other.
            std::cmp::Ordering::Less => self.alone(|| other.alone(call)),
            std::cmp::Ordering::Greater => other.alone(|| self.alone(call)),
        }
    }

    pub(crate) fn add(&self, attachment: Attachment) {
        self.list.lock().all.push(attachment);
    }

    /// What another graph refers to.
    pub(crate) fn add_all_of(self: &Arc<Attachments>, other: &Arc<Attachments>) {
        if !Arc::ptr_eq(self, other) {
            self.add(Attachment::Child(Arc::clone(other)));
        }
    }

    /// What a launch, or other work, refers to. Returns the addresses of the last few such things.
    fn add_work<'a>(&self, kernel: Option<&Kernel>, buffers: impl Iterator<Item = &'a Buffer>) -> [usize; FEW] {
        let mut list = self.list.lock();
        if let Some(kernel) = kernel
            && list.is_new(kernel.as_raw().addr())
        {
            list.all.push(Attachment::Kernel(kernel.clone()));
        }
        for buffer in buffers {
            list.add_held(buffer.held());
        }
        list.recent
    }

    /// Shows what it was given to keep and keeps alone: nothing, where anybody else has a share of it. Where `limit`
    /// graphs are within each other, what the innermost ones keep is not shown.
    ///
    /// For the interpreter's collector, which asks several times and must get the same answer or see more: who has
    /// the only share, and does not use it meanwhile, is told of what cannot become anybody else's. So the lock is
    /// waited for, and not only tried: work that is put on a captured stream takes it for a moment, and never waits for
    /// anything else with it. In a forked child a thread that the child does not have may hold it.
    pub(crate) fn see(self: &Arc<Attachments>, limit: usize, see: &mut dyn FnMut(&(dyn Any + Send + Sync))) {
        if limit == 0 || lock::is_forked() || Arc::strong_count(self) != 1 {
            return;
        }
        for attachment in &self.list.lock().all {
            match attachment {
                Attachment::Other(object) if Arc::strong_count(object) == 1 => see(&**object),
                Attachment::Child(child) => child.see(limit - 1, see),
                _ => {}
            }
        }
    }

    /// Whether there is nothing to let go of.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().all.iter().all(|attachment| matches!(attachment, Attachment::Bodies(..)))
    }

    /// Of which kind a conditional node is, and its bodies, where they are known.
    pub(crate) fn bodies_of(&self, node: CUgraphNode) -> Option<(CUgraphConditionalNodeType, Vec<CUgraph>)> {
        let list = self.list.lock();
        list.all.iter().find_map(|attachment| match attachment {
            Attachment::Bodies(known) if known.node.0 == node => {
                Some((known.kind, known.bodies.iter().map(|body| body.0).collect()))
            }
            _ => None,
        })
    }
}

/// How a capture ended.
enum Ending {
    /// With a graph, which the bodies of its conditional nodes keep.
    Graph(GraphDefinition),
    /// Without one.
    Nothing,
}

/// A capture that a graph builder began; its forks share it.
pub(crate) struct Recording {
    pub(crate) origin: Stream,
    pub(crate) mode: CaptureMode,
    /// The one thread that may end it, which is the one that began it; `None` where any may.
    pub(crate) thread: Option<ThreadId>,
    /// The driver's number of it.
    pub(crate) id: u64,
    /// The capture whose conditional node has this one's graph as a body.
    pub(crate) parent: Option<Arc<Recording>>,
    pub(crate) attachments: Arc<Attachments>,
    /// Whether somebody has ended it, or is about to.
    ended: AtomicBool,
    /// Whether the capture of a conditional body of its graph has failed. The driver took the body's graph with it, but
    /// not the node: it crashes when the graph that the body is part of is used or destroyed.
    broken: AtomicBool,
    /// Whether it has, or had, forks or conditional bodies: their builders have shares of it.
    is_in_parts: AtomicBool,
    /// Whether streams have joined it.
    has_joined: AtomicBool,
    /// Whether its graph has, or had, conditional nodes whose bodies were captured.
    has_bodies: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Streams that have joined. They are kept until the capture ends: destroying one would spoil it.
    streams: Vec<Stream>,
    /// Forks that were given up before they were joined.
    lost_forks: usize,
    bodies: Vec<Weak<Recording>>,
    ending: Option<Ending>,
}

/// What identifies a stream: its handle, and for the per-thread default stream the thread.
type Key = (usize, u64);

struct Register {
    /// By their keys.
    streams: Vec<(Key, Arc<Recording>)>,
    events: BTreeMap<usize, Arc<Recording>>,
}

impl Register {
    const fn new() -> Register {
        Register { streams: Vec::new(), events: BTreeMap::new() }
    }

    /// Where a stream is, or else would be.
    #[inline]
    fn place(&self, key: Key) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&key, |(key, _)| *key)
    }

    fn of(&self, key: Key) -> Option<&Arc<Recording>> {
        let at = self.place(key).ok()?;
        self.streams.get(at).map(|(_, recording)| recording)
    }

    /// Puts a stream in; returns the capture that it took part in before.
    fn put(&mut self, key: Key, recording: Arc<Recording>) -> Option<Arc<Recording>> {
        match self.place(key) {
            Ok(at) => self.streams.get_mut(at).map(|(_, known)| std::mem::replace(known, recording)),
            Err(at) => {
                self.streams.insert(at, (key, recording));
                None
            }
        }
    }

    /// Everybody is told that it has changed.
    fn has_changed(&self) {
        COUNT.store(self.streams.len(), Ordering::Release);
        known::changed();
    }
}

static REGISTER: Global<Register> = Global::new(Register::new(), Register::new());
/// How many streams are in the register, for those who only look.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn key(stream: &Stream) -> Key {
    thread_local! {
        static NUMBER: u64 = {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            NEXT.fetch_add(1, Ordering::Relaxed)
        };
    }
    let handle = stream.raw().addr();
    let thread = if handle == 2 { NUMBER.try_with(|number| *number).unwrap_or(0) } else { 0 };
    (handle, thread)
}

/// Whether any stream is being captured by a graph builder, or was when this process was forked: then none is, and the
/// register is empty.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// The capture that a stream takes part in, if a graph builder began it.
#[inline]
pub(crate) fn of(stream: &Stream) -> Option<Arc<Recording>> {
    if any() { find(stream) } else { None }
}

#[cold]
fn find(stream: &Stream) -> Option<Arc<Recording>> {
    REGISTER.lock().of(key(stream)).cloned()
}

/// Attaches what a launch, or other work, refers to to the capture that the stream takes part in; false where no graph
/// builder captures it.
#[inline]
pub(crate) fn attach_work<'a>(
    stream: &Stream,
    kernel: Option<&Kernel>,
    buffers: impl Iterator<Item = &'a Buffer> + Clone,
) -> bool {
    any() && (stream.known().has_all(kernel, buffers.clone()) || attach_new(stream, kernel, buffers))
}

#[cold]
#[inline(never)]
fn attach_new<'a>(stream: &Stream, kernel: Option<&Kernel>, buffers: impl Iterator<Item = &'a Buffer>) -> bool {
    let key = key(stream);
    let register = REGISTER.lock();
    let Some(recording) = register.of(key) else { return false };
    let recent = recording.attachments.add_work(kernel, buffers);
    // The per-thread default stream is another one on each thread.
    if key.1 == 0 {
        stream.known().learn(recent, recording.mode == CaptureMode::Relaxed);
    }
    true
}

/// An event was recorded on a stream: whoever waits for it joins the stream's capture.
#[inline]
pub(crate) fn recorded(event: &Event, stream: &Stream) {
    if any() {
        note_record(event, stream);
    }
}

#[cold]
fn note_record(event: &Event, stream: &Stream) {
    let at = event.as_raw().addr();
    let before = {
        let mut register = REGISTER.lock();
        match register.of(key(stream)).cloned() {
            Some(recording) => register.events.insert(at, recording),
            None => register.events.remove(&at),
        }
    };
    drop(before);
}

/// An event is about to be destroyed: its handle may come round again.
#[inline]
pub(crate) fn forgotten(event: CUevent) {
    if any() {
        let known = REGISTER.lock().events.remove(&event.addr());
        drop(known);
    }
}

/// A stream is about to wait for an event: whether it will join a capture by that.
pub(crate) fn joins_by(event: &Event) -> bool {
    REGISTER.lock().events.contains_key(&event.as_raw().addr())
}

/// A stream waits for an event: it joins the capture that the event was recorded in.
pub(crate) fn waited(stream: &Stream, event: &Event) {
    let recording = REGISTER.lock().events.get(&event.as_raw().addr()).cloned();
    if let Some(recording) = recording {
        recording.join(stream);
    }
}

/// A stream waits for another one, by an event that nobody else sees.
#[inline]
pub(crate) fn waited_for_stream(stream: &Stream, other: &Stream) {
    if let Some(recording) = of(other) {
        recording.join(stream);
    }
}

/// Whether a stream takes part in a capture that a graph builder began. Costs one load while there is none.
#[inline]
pub fn is_captured(stream: &Stream) -> bool {
    any() && !lock::is_forked() && (stream.known().is_true() || find(stream).is_some())
}

/// Whether a launch on a stream only adds a node to a capture, and so returns at once whatever other threads wait for in
/// the driver: measured in relaxed mode, of a kernel whose function in the stream's context is known.
#[inline]
pub fn launch_returns_at_once(stream: &Stream, config: &LaunchConfig, kernel: &Kernel) -> bool {
    stream.known().is_relaxed() && config.is_by_function() && kernel.has_function_for(stream)
}

/// Keeps something alive as long as the graph that a stream is being captured into; false where no graph builder
/// captures the stream, and nothing is kept.
pub fn keep(stream: &Stream, object: Arc<dyn Any + Send + Sync>) -> bool {
    of(stream).map(|recording| recording.attachments.add(Attachment::Other(object))).is_some()
}

/// Keeps a buffer's memory as [`keep`] does: for work that was given its address alone. Captured launches, copies and
/// fills that are given the buffer do so by themselves.
pub fn keep_memory(stream: &Stream, buffer: &Buffer) -> bool {
    attach_work(stream, None, std::iter::once(buffer))
}

impl Recording {
    /// A capture that has just begun: its stream is in the register from now on.
    pub(crate) fn begin(
        origin: Stream,
        context: Context,
        mode: CaptureMode,
        id: u64,
        parent: Option<Arc<Recording>>,
    ) -> Arc<Recording> {
        // What a body's work refers to belongs to the graph that the body is part of.
        let attachments = match &parent {
            Some(parent) => parent.attachments.clone(),
            None => Arc::new(Attachments::new(context)),
        };
        let recording = Arc::new(Recording {
            origin,
            mode,
            thread: (mode != CaptureMode::Relaxed).then(|| thread::current().id()),
            id,
            parent,
            attachments,
            ended: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            is_in_parts: AtomicBool::new(false),
            has_joined: AtomicBool::new(false),
            has_bodies: AtomicBool::new(false),
            state: Mutex::default(),
        });
        if let Some(parent) = &recording.parent {
            let mut state = parent.state.lock();
            state.bodies.retain(|body| body.strong_count() > 0);
            state.bodies.push(Arc::downgrade(&recording));
            parent.has_bodies.store(true, Ordering::Release);
        }
        register(&recording.origin, &recording, || status::capture_begun(mode.raw()));
        recording
    }

    pub(crate) fn context(&self) -> &Context {
        self.attachments.context()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// It is about to have forks or conditional bodies.
    pub(crate) fn set_in_parts(&self) {
        self.is_in_parts.store(true, Ordering::Release);
    }

    /// Shows what the capture keeps, as [`Attachments::see`], if it is one builder's alone. The register's shares, and
    /// those that work on its streams takes for a moment, do not count: nobody else can end up with the capture.
    pub(crate) fn see(&self, see: &mut dyn FnMut(&(dyn Any + Send + Sync))) {
        if !self.is_body() && !self.is_in_parts.load(Ordering::Acquire) {
            self.attachments.see(MOST_SEEN, see);
        }
    }

    /// True for the one who ends it.
    pub(crate) fn claim(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_body(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether its graph has, or had, conditional nodes whose bodies were captured.
    pub(crate) fn has_bodies(&self) -> bool {
        self.has_bodies.load(Ordering::Acquire)
    }

    /// The bodies of its conditional nodes that are being captured now.
    #[cold]
    pub(crate) fn live_bodies(&self) -> Vec<Arc<Recording>> {
        let bodies: Vec<Arc<Recording>> = self.state.lock().bodies.iter().filter_map(Weak::upgrade).collect();
        // One that another thread is ending has not ended yet: it may fail still.
        bodies.into_iter().filter(|body| body.state.lock().ending.is_none()).collect()
    }

    /// The capture of a body of its graph has failed: neither this graph nor one that it is part of may be used or
    /// destroyed any more. True where that costs a graph whose own capture had ended well: it is leaked from now on.
    pub(crate) fn break_graph(&self) -> bool {
        self.broken.store(true, Ordering::Release);
        let lost = match &self.state.lock().ending {
            Some(Ending::Graph(graph)) => graph.lose(),
            _ => false,
        };
        if lost {
            capture::keep_for_good(self.context().clone());
        }
        match &self.parent {
            Some(parent) => parent.break_graph() || lost,
            None => lost,
        }
    }

    /// Whether its graph must be neither used nor destroyed, because of a body.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether this thread may end it, as far as the mode says.
    pub(crate) fn may_end_here(&self) -> bool {
        self.thread.is_none_or(|thread| thread == thread::current().id())
    }

    /// Whether the driver will end it well, if it is good: nothing of it is elsewhere.
    pub(crate) fn ends_well(&self) -> bool {
        self.may_end_here() && !self.has_joined.load(Ordering::Acquire)
    }

    /// Adds a stream that has joined, and keeps it until the capture ends.
    fn join(self: &Arc<Recording>, stream: &Stream) {
        if self.has_ended() || stream == &self.origin {
            return;
        }
        // Said first: who ends the capture meanwhile looks for it.
        self.has_joined.store(true, Ordering::Release);
        if register(stream, self, || ()) {
            self.state.lock().streams.push(stream.clone());
        }
    }

    /// Adds a stream to those that are kept until the capture ends.
    pub(crate) fn keep(self: &Arc<Recording>, stream: &Stream) {
        self.join(stream);
    }

    /// Before it ends: waits until no release is on its way on the streams that have joined.
    pub(crate) fn cross_joined(&self) -> SmallVec<[Crossing; 2]> {
        if !self.has_joined.load(Ordering::Acquire) {
            return SmallVec::new();
        }
        let streams = self.state.lock().streams.clone();
        streams.iter().map(boundary::crossing).collect()
    }

    /// A fork was given up before it was joined.
    pub(crate) fn lose_fork(&self) {
        self.state.lock().lost_forks += 1;
    }

    pub(crate) fn lost_forks(&self) -> usize {
        self.state.lock().lost_forks
    }

    /// Takes its streams and events out of the register; they are returned to be let go, now that it has ended.
    pub(crate) fn leave(self: &Arc<Recording>) -> Vec<Stream> {
        let has_joined = self.has_joined.load(Ordering::Acquire);
        let streams = if has_joined { std::mem::take(&mut self.state.lock().streams) } else { Vec::new() };
        let mine = |other: &Arc<Recording>| Arc::ptr_eq(other, self);
        let mut register = REGISTER.lock();
        // What is taken out is not the last share: this is one.
        register.streams.retain(|(_, other)| !mine(other));
        if !register.events.is_empty() {
            register.events.retain(|_, other| !mine(other));
        }
        register.has_changed();
        status::capture_ended(self.mode.raw());
        streams
    }

    /// Says how it ended, to those that may ask: bodies of conditional nodes, which keep the graph that they are part of.
    pub(crate) fn set_ending(&self, graph: Option<&GraphDefinition>) {
        if !self.is_body() && !self.is_in_parts.load(Ordering::Acquire) {
            return;
        }
        let ending = graph.map_or(Ending::Nothing, |graph| Ending::Graph(graph.clone()));
        let before = self.state.lock().ending.replace(ending);
        drop(before);
    }

    /// Whether its graph is there: it is being captured still, or was captured whole; so is what it is part of.
    pub(crate) fn has_graph(&self) -> bool {
        let whole = match &self.state.lock().ending {
            None => !self.has_ended(),
            Some(Ending::Graph(_)) => true,
            Some(Ending::Nothing) => false,
        };
        whole && !self.is_broken() && self.parent.as_ref().is_none_or(|parent| parent.has_graph())
    }
}

/// Whether the stream is new in the register. `with_it` is called with the register locked.
fn register(stream: &Stream, recording: &Arc<Recording>, with_it: impl FnOnce()) -> bool {
    let (key, share) = (key(stream), recording.clone());
    let before = {
        let mut register = REGISTER.lock();
        let before = register.put(key, share);
        register.has_changed();
        with_it();
        before
    };
    !before.is_some_and(|before| Arc::ptr_eq(&before, recording))
}
