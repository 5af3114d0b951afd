//! Work of a stream.

use crate::c::{HostFunction, StreamCallback};
use crate::engine::Dep;
use crate::handle::Handle;
use crate::order::Operation;
use crate::status::Status;
use std::any::Any;
use std::sync::Arc;

/// Where a task runs.
#[derive(Clone)]
pub struct Job {
    /// The context of its stream.
    pub context: Handle,
    /// The ordinal of the context's device.
    pub device: usize,
    /// Counted from 1 over all tasks of the process.
    pub number: u64,
    /// What the stream-order checker knows it as, if it is on.
    pub order: Option<Arc<Operation>>,
}

/// A task failed while it ran: the context is lost to this status.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What every later call in the context answers.
    pub status: Status,
    /// A sentence for the report.
    pub text: String,
}

/// What a graph node made of the task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// `CU_GRAPH_NODE_TYPE_KERNEL`
    Kernel,
    /// `CU_GRAPH_NODE_TYPE_MEMCPY`
    Copy,
    /// `CU_GRAPH_NODE_TYPE_MEMSET`
    Fill,
    /// `CU_GRAPH_NODE_TYPE_HOST`
    Host,
    /// `CU_GRAPH_NODE_TYPE_GRAPH`
    Graph,
    /// `CU_GRAPH_NODE_TYPE_EMPTY`
    Empty,
    /// `CU_GRAPH_NODE_TYPE_WAIT_EVENT`
    WaitEvent,
    /// `CU_GRAPH_NODE_TYPE_EVENT_RECORD`
    RecordEvent,
    /// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`
    Alloc,
    /// `CU_GRAPH_NODE_TYPE_MEM_FREE`
    Free,
    /// `CU_GRAPH_NODE_TYPE_CONDITIONAL`
    Conditional,
}

/// Something that a worker does, once for a stream, or once each time a graph is launched.
///
/// Its last owner may be a graph that ends while the state is locked: dropping a task must not lock it.
pub trait Task: Send + Sync + 'static {
    /// Does it. No lock is held; a task that needs the state locks it itself.
    ///
    /// # Errors
    /// The context is lost: the status sticks to it.
    fn run(&self, job: &Job) -> Result<(), Failure>;
    /// What kind of node it is in a graph.
    fn node(&self) -> NodeKind;
    /// For reading and changing a node's parameters.
    fn as_any(&self) -> &dyn Any;
}

/// What stands in a stream's queue.
#[derive(Clone)]
pub enum Work {
    /// Nothing: a place to wait at.
    Nothing,
    /// Note that an event has happened; `serial` tells this recording from later ones.
    Record {
        /// The event.
        event: Handle,
        /// Which recording of it.
        serial: u64,
    },
    /// Only in graphs: wait for what the event stands for when the graph is launched.
    Wait {
        /// The event.
        event: Handle,
    },
    /// A task for a worker.
    Task(Arc<dyn Task>),
    /// A function for the callback thread; left out once the context is lost.
    Host(HostFunction),
    /// A callback for the callback thread; called with the context's error if it is lost.
    Callback(StreamCallback),
}

/// A place in a stream's queue: what must be done first, then what is to do.
pub struct Op {
    /// Done when all of these are.
    pub after: smallvec::SmallVec<[Dep; 2]>,
    /// The work.
    pub work: Work,
    /// What the stream-order checker knows it as, if it is on.
    pub order: Option<Arc<Operation>>,
}
