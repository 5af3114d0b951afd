//! Executable graphs.

use crate::context::{capture as relaxed_scope, scope};
use crate::driver;
use crate::graph::builder::state;
use crate::graph::definition::GraphDefinition;
use crate::graph::launched::{self, Launched};
use crate::graph::options::GraphCompleteOptions;
use crate::graph::recording::{self, Attachment};
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::graph::exec as call;
use cuirass_call::owner::{Kind, Opaque, Owned};
use cuirass_call::sys::cuda::{CUctx_st, CUgraphExec, CUgraphExecUpdateResult};
use cuirass_fault::lock::Mutex;
use cuirass_fault::{Cause, Facts, Failure, Library};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// A graph that can be launched. Clones are the same graph. What its work refers to is kept until the launches that
/// are under way when it is closed are done.
#[derive(Clone)]
pub struct Graph(Arc<Owned<ExecKind>>);

struct ExecKind;

/// What an executable graph needs.
struct Needs {
    /// The context that it was made in. What its work refers to has a share of it.
    context: Opaque<NonNull<CUctx_st>>,
    launched: Launched,
    /// What it was made of, with what its work refers to. A lock, since an update replaces it.
    definition: Mutex<GraphDefinition>,
    /// Held by an update, so that what was given to the driver last is what is kept.
    updating: Mutex<()>,
}

impl Needs {
    fn alone<T>(&self, update: impl FnOnce() -> T) -> T {
        let _alone = self.updating.lock();
        update()
    }
}

impl Kind for ExecKind {
    const NAME: &'static str = "an executable graph";
    type Raw = CUgraphExec;
    type Parent = Needs;

    fn release(exec: CUgraphExec, needs: Needs) -> Outcome<()> {
        // Launches that are under way go on. Measured: it needs no context to be current, but invalidates captures.
        let destroyed = relaxed_scope::release(format_args!("executable graph {exec:p}"), || call::destroy(exec));
        let definition = needs.definition.into_inner();
        let destroyed = destroyed.map_err(|failure| scope::keep_if_leaked(definition.context().clone(), failure));
        let released = launched::release_after(needs.launched.into_places(), definition.attachments());
        let released = match (released, definition.close_inner()) {
            (Ok(()), closed) => closed,
            (Err(first), Ok(())) => Err(first),
            (Err(first), Err(second)) => {
                Err(second.attach_to(first, "the graph that it was made of was not destroyed"))
            }
        };
        match (destroyed, released) {
            (Ok(()), released) => released,
            (Err(first), Ok(())) => Err(first),
            (Err(first), Err(second)) => Err(second.attach_to(first, "releasing what the graph refers to failed too")),
        }
    }
}

impl Graph {
    pub(crate) fn create(definition: GraphDefinition, options: &GraphCompleteOptions) -> Outcome<Graph> {
        crate::deferred::before_creating()?;
        let graph = definition.alive()?;
        let context = NonNull::new(definition.context().as_raw())
            .ok_or_else(|| Failure::internal("a graph is in a context, and that is null"))?;
        let stream = options.upload_stream.as_ref().map_or(std::ptr::null_mut(), Stream::raw);
        let exec = scope::create(
            context.as_ptr(),
            || definition.attachments().alone(|| call::instantiate(graph, options.flags(), stream)),
            |exec| relaxed_scope::release(format_args!("executable graph {exec:p}"), || call::destroy(exec)),
        )?;
        let needs = Needs {
            context: Opaque(context),
            launched: Launched::default(),
            definition: Mutex::new(definition),
            updating: Mutex::new(()),
        };
        Ok(Graph(Arc::new(Owned::new(exec, needs))))
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUgraphExec {
        self.0.raw()
    }

    /// `cuGraphLaunch`: runs it on a stream. Launches of one graph follow each other.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it. [`ErrorKind::State`](crate::ErrorKind::State) on a
    /// stream that a graph builder captures, which the driver does not allow: [`embed`](crate::graph::GraphBuilder::embed)
    /// makes a graph part of another.
    #[inline]
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        if recording::any() {
            refuse_in_capture(stream, "launched")?;
        }
        if !self.0.parent().launched.knows(stream) {
            return Ok(self.launch_elsewhere(stream)?);
        }
        Ok(call::launch(self.0.raw(), stream.raw())?)
    }

    /// The first launch on a stream, and each on a thread's default stream.
    #[cold]
    #[inline(never)]
    fn launch_elsewhere(&self, stream: &Stream) -> Outcome<()> {
        driver::refuse_in_child()?;
        let needs = self.0.parent();
        let launch = || call::launch(self.0.raw(), stream.raw());
        let context = self.definition().context().clone();
        match needs.launched.note(stream, &context)? {
            Some(followed) => followed.launch(stream, launch),
            None => launch(),
        }
    }

    /// `cuGraphUpload`: brings it to the device ahead of its first launch.
    ///
    /// # Errors
    /// As [`launch`](Graph::launch).
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        if recording::any() {
            refuse_in_capture(stream, "uploaded")?;
        }
        Ok(call::upload(self.0.raw(), stream.raw())?)
    }

    /// `cuGraphExecUpdate`: gives it the parameters of a graph of the same shape, for the launches from now on.
    ///
    /// # Errors
    /// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`, with the driver's reason as a note, when the shapes differ: it is then
    /// as it was; what else the driver answers.
    pub fn update(&self, source: &GraphDefinition) -> Result<()> {
        driver::refuse_in_child()?;
        let needs = self.0.parent();
        let before = needs.alone(|| {
            let graph = source.alive()?;
            let update = || source.attachments().alone(|| call::update(self.0.raw(), graph));
            match scope::submit(needs.context.0.as_ptr(), "the update", update) {
                Ok(Ok(())) => {
                    let before = std::mem::replace(&mut *needs.definition.lock(), source.clone());
                    if source.context() != before.context() {
                        // This graph stays in its own context, which must not end before it.
                        source.attachments().add(Attachment::Other(Arc::new(before.context().clone())));
                    }
                    Ok(before)
                }
                Ok(Err(reason)) => Err(not_updated(self.0.raw(), reason)),
                Err(failure) => {
                    // It may have been made all the same: launches to come then need what the source refers to.
                    needs.definition.lock().attachments().add_all_of(source.attachments());
                    Err(failure)
                }
            }
        })?;
        // Launches from before the update may be under way.
        let released = launched::release_after(needs.launched.places(), before.attachments());
        match (released, before.close_inner()) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(failure), Ok(())) | (Ok(()), Err(failure)) => Err(failure.note(UPDATED).raise()),
            (Err(first), Err(second)) => {
                Err(second.attach_to(first, "the graph from before was not destroyed").note(UPDATED).raise())
            }
        }
    }

    /// What it was made of, or last updated from.
    pub fn definition(&self) -> GraphDefinition {
        self.0.parent().definition.lock().clone()
    }

    /// As [`GraphDefinition::see_kept`], of what it was made of or last updated from.
    pub fn see_kept(&self, see: &mut dyn FnMut(&(dyn Any + Send + Sync))) {
        // Of the only share, which nobody uses, the lock is free; in a forked child it may be held for ever.
        if Arc::strong_count(&self.0) == 1
            && let Some(definition) = self.0.parent().definition.try_lock()
        {
            definition.see_kept(see);
        }
    }

    /// As [`GraphDefinition::to_dot`].
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_dot(&self) -> Result<String> {
        driver::refuse_in_child()?;
        self.definition().to_dot()
    }

    /// As [`GraphDefinition::to_svg`].
    ///
    /// # Errors
    /// What the driver answers.
    pub fn to_svg(&self) -> Result<String> {
        driver::refuse_in_child()?;
        self.definition().to_svg()
    }

    /// Gives up this share. If it is the last one the graph is destroyed, and the driver's answer returned. Launches
    /// that are under way go on.
    ///
    /// # Errors
    /// What the driver answers to the destruction; the handle is spent all the same.
    pub fn close(self) -> Result<()> {
        match Arc::into_inner(self.0) {
            Some(owned) => Ok(owned.close()?),
            None => Ok(()),
        }
    }
}

const UPDATED: &str = "the update itself was done";

#[cold]
fn refuse_in_capture(stream: &Stream, what: &str) -> Outcome<()> {
    if recording::of(stream).is_none() {
        return Ok(());
    }
    Err(state(format!(
        "a graph cannot be {what} on a stream that is being captured; GraphBuilder.embed() makes it part of another"
    )))
}

fn not_updated(exec: CUgraphExec, reason: CUgraphExecUpdateResult) -> Failure {
    use CUgraphExecUpdateResult as Reason;
    let name = match reason {
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED => "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED",
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED => "CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED",
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED => "CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED",
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED => "CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED",
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED => "CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED",
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE => {
            "CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE"
        }
        Reason::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED => "CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED",
        _ => "CU_GRAPH_EXEC_UPDATE_ERROR",
    };
    let code = cuirass_call::status::code::GRAPH_EXEC_UPDATE_FAILURE;
    Failure::new(Facts {
        cause: Cause::Status,
        library: Some(Library::Driver),
        call: "cuGraphExecUpdate_v2",
        status: Some(cuirass_call::status::describe(Library::Driver, code)),
        subject: format!("graph {exec:p}"),
        log: None,
        notes: vec![format!("the driver's reason: {name}; the graph is as it was")],
        leaked: false,
        attached: Vec::new(),
    })
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.as_raw() == other.as_raw()
    }
}

impl Eq for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({:p})", self.as_raw())
    }
}
