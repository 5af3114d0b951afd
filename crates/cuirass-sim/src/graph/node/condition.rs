//! Conditions of graphs, and the nodes that run their bodies as a condition says while the graph is running.
//!
//! A conditional node is one task: it asks the condition and runs the nodes of a body one after another, in an order
//! that satisfies their dependencies.

use crate::c::Out;
use crate::graph::Graph;
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use crate::task::{Failure, Job, NodeKind, Task, Work};
use crate::{config, report, thread};
use cuirass_sys::cuda::{CUcontext, CUgraph, CUgraphConditionalHandle, CUgraphConditionalNodeType};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A number that kernels set and conditional nodes read.
pub struct Condition {
    handle: u64,
    /// What every launch sets it to first.
    default: Option<u32>,
    value: AtomicU32,
    /// Whether a conditional node asks it: there is one at most.
    taken: AtomicBool,
}

/// All conditions, by handle, as kernels name them.
static CONDITIONS: Mutex<BTreeMap<u64, Weak<Condition>>> = Mutex::new(BTreeMap::new());

impl Drop for Condition {
    fn drop(&mut self) {
        CONDITIONS.lock().remove(&self.handle);
    }
}

/// A kernel sets a condition.
pub fn set(handle: u64, value: u32) {
    let known = CONDITIONS.lock().get(&handle).and_then(Weak::upgrade);
    match known {
        Some(condition) => condition.value.store(value, Ordering::Release),
        None => report::bug(format!("a kernel set the condition {handle:#x}, which is none")),
    }
}

/// What a conditional node has.
#[derive(Clone)]
pub struct Conditional {
    /// What it asks.
    pub condition: Arc<Condition>,
    /// `CU_GRAPH_COND_TYPE_IF` and its like.
    pub kind: CUgraphConditionalNodeType,
    /// Its bodies.
    pub bodies: Vec<Handle>,
    /// Their handles where the program reads them.
    list: Arc<[usize]>,
}

impl Conditional {
    /// Where the program reads the bodies' handles.
    pub fn list(&self) -> *mut CUgraph {
        self.list.as_ptr().cast_mut().cast()
    }

    /// The node is there: no other one asks its condition.
    pub fn take(&self) {
        self.condition.taken.store(true, Ordering::Release);
    }

    /// The same with other bodies, for a copy of the graph.
    pub fn with_bodies(&self, bodies: Vec<Handle>) -> Self {
        let list = bodies.iter().map(|body| body.raw::<cuirass_sys::cuda::CUgraph_st>().addr()).collect();
        Self { condition: self.condition.clone(), kind: self.kind, bodies, list }
    }
}

/// `cuGraphConditionalHandleCreate`: `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: c_uint = 1;

pub fn cuGraphConditionalHandleCreate(
    out: Out<CUgraphConditionalHandle>,
    graph: CUgraph,
    context: CUcontext,
    default: c_uint,
    flags: c_uint,
) -> Answer {
    static NEXT: AtomicU64 = AtomicU64::new(0xc0de_0001);
    out.check()?;
    if flags & !ASSIGN_DEFAULT != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    if !context.is_null() {
        state.context(Handle::of(context))?;
    }
    let graph = state.graphs.graphs.get_mut(Handle::of(graph), INVALID_VALUE)?;
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    let assigned = flags & ASSIGN_DEFAULT != 0;
    let condition = Arc::new(Condition {
        handle,
        default: assigned.then_some(default),
        value: AtomicU32::new(default),
        taken: AtomicBool::new(false),
    });
    CONDITIONS.lock().insert(handle, Arc::downgrade(&condition));
    graph.conditions.push(condition);
    out.write(handle)
}

/// The condition of a handle, and new bodies for a node of `graph` that asks it.
///
/// # Errors
/// `INVALID_VALUE` for a condition that is none or that another node asks already, and for a number of bodies that the kind does not have.
pub fn new_conditional(
    state: &mut State,
    graph: Handle,
    handle: u64,
    kind: CUgraphConditionalNodeType,
    count: usize,
) -> Answer<Conditional> {
    use CUgraphConditionalNodeType as Kind;
    // Several bodies, and the choice among them, came with CUDA 12.8.
    let several = config::config().is_ok_and(|config| config.driver >= 12080);
    let fits = match kind {
        Kind::CU_GRAPH_COND_TYPE_IF => count == 1 || several && count == 2,
        Kind::CU_GRAPH_COND_TYPE_WHILE => count == 1,
        Kind::CU_GRAPH_COND_TYPE_SWITCH => several && count >= 1,
        _ => false,
    };
    let condition = CONDITIONS.lock().get(&handle).and_then(Weak::upgrade);
    let free = |condition: &Arc<Condition>| fits && !condition.taken.load(Ordering::Acquire);
    let Some(condition) = condition.filter(free) else { return Err(INVALID_VALUE) };
    let mut bodies = Vec::new();
    for _ in 0..count {
        bodies.push(state.graphs.graphs.insert(Graph { parent: Some(graph), ..Graph::default() })?);
    }
    Ok(Conditional { condition, kind, bodies: Vec::new(), list: Arc::new([]) }.with_bodies(bodies))
}

/// A conditional node of an executable graph.
pub struct Run {
    condition: Arc<Condition>,
    kind: CUgraphConditionalNodeType,
    bodies: Vec<Vec<Arc<dyn Task>>>,
}

impl State {
    /// What a conditional node does when the graph runs.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a body that a capture still adds to, or with nodes that a body cannot have.
    pub fn conditional_work(&self, conditional: &Conditional) -> Answer<Work> {
        let mut bodies = Vec::new();
        for body in &conditional.bodies {
            let mut tasks = Vec::new();
            self.body_tasks(*body, &mut tasks)?;
            bodies.push(tasks);
        }
        let run = Run { condition: conditional.condition.clone(), kind: conditional.kind, bodies };
        Ok(Work::Task(Arc::new(run)))
    }

    fn body_tasks(&self, graph: Handle, into: &mut Vec<Arc<dyn Task>>) -> Answer {
        let known = self.graphs.graphs.get(graph, INVALID_VALUE)?;
        if known.broken {
            broken("a graph was made executable");
        }
        if known.capturing || known.broken {
            return Err(INVALID_VALUE);
        }
        for handle in self.graphs.order(graph).ok_or(INVALID_VALUE)? {
            let node = self.graphs.nodes.get(handle, INVALID_VALUE)?;
            let work = match &node.conditional {
                Some(conditional) => self.conditional_work(conditional)?,
                None => node.work.clone(),
            };
            match (node.kind, work) {
                (NodeKind::Alloc | NodeKind::Free | NodeKind::Host, _) => return Err(INVALID_VALUE),
                (_, Work::Task(task)) => into.push(task),
                (_, Work::Nothing) => {}
                _ => return Err(INVALID_VALUE),
            }
            if let Some(child) = node.child {
                self.body_tasks(child, into)?;
            }
        }
        Ok(())
    }

    /// The conditions of a graph and of the graphs in it.
    pub fn conditions(&self, graph: Handle, into: &mut Vec<Arc<Condition>>) {
        let Some(known) = self.graphs.graphs.peek(graph) else { return };
        into.extend(known.conditions.iter().cloned());
        for node in known.nodes.iter().filter_map(|node| self.graphs.nodes.peek(*node)) {
            let bodies = node.conditional.iter().flat_map(|conditional| conditional.bodies.iter());
            node.child.iter().chain(bodies).for_each(|inner| self.conditions(*inner, into));
        }
    }
}

impl Run {
    fn run_body(&self, at: usize, job: &Job) -> Result<(), Failure> {
        let Some(tasks) = self.bodies.get(at) else { return Ok(()) };
        tasks.iter().try_for_each(|task| task.run(job))
    }
}

impl Task for Run {
    fn run(&self, job: &Job) -> Result<(), Failure> {
        use CUgraphConditionalNodeType as Kind;
        let value = || self.condition.value.load(Ordering::Acquire) as usize;
        match self.kind {
            Kind::CU_GRAPH_COND_TYPE_IF => self.run_body(usize::from(value() == 0), job),
            Kind::CU_GRAPH_COND_TYPE_SWITCH => self.run_body(value(), job),
            _ => {
                while value() != 0 {
                    self.run_body(0, job)?;
                }
                Ok(())
            }
        }
    }

    fn node(&self) -> NodeKind {
        NodeKind::Conditional
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The start of a launch: conditions with a default have it.
pub struct Reset(pub Vec<Arc<Condition>>);

impl Task for Reset {
    fn run(&self, _job: &Job) -> Result<(), Failure> {
        for condition in &self.0 {
            if let Some(default) = condition.default {
                condition.value.store(default, Ordering::Release);
            }
        }
        Ok(())
    }

    fn node(&self) -> NodeKind {
        NodeKind::Empty
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Two captures, one of a body of the other's graph, have both been spoilt, and one of them has been ended. Touching the
/// other crashes the real driver.
pub fn poisoned(what: &str) {
    report::bug(format!(
        "{}: {what}: its conditional body (or what it is a body of) was invalidated too and has been ended, after which \
         the real driver crashes here",
        thread::place()
    ));
}

/// The capture of a conditional body has failed. The body's graph went with it, as that of any failed capture does, but
/// its node still refers to it: whatever then uses or destroys the graph that it is part of crashes the real driver.
pub fn broken(what: &str) {
    report::bug(format!(
        "{}: {what} with a conditional body whose capture had failed, at which the real driver crashes",
        thread::place()
    ));
}
