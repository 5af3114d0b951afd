//! Graphs that are not executable: what a capture made. Read-only.

use crate::context::Context;
use crate::driver;
use crate::graph::builder::{Body, GraphBuilder, state};
use crate::graph::capture::BROKEN;
use crate::graph::exec::Graph;
use crate::graph::options::{GraphCompleteOptions, GraphDebugPrintOptions};
use crate::graph::recording::{Attachment, Attachments, MOST_SEEN};
use crate::{Outcome, Result, deferred};
use cuirass_call::graph::{builder as capture, definition as call, node as node_call};
use cuirass_call::owner::{Kind, Owned};
use cuirass_call::sys::cuda::{CUgraph, CUgraphNode, CUgraphNodeType};
use cuirass_fault::{Failure, Misuse};
use std::any::Any;
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A graph: nodes, and which of them wait for which. Clones are the same graph.
#[derive(Clone)]
pub struct GraphDefinition(Arc<Inner>);

struct Inner {
    // Dropped in this order: the graph before what it refers to.
    graph: Source,
    attachments: Arc<Attachments>,
}

enum Source {
    Captured(Owned<GraphKind>),
    /// It belongs to a conditional node.
    Body(Body),
}

struct GraphKind;

impl Kind for GraphKind {
    const NAME: &'static str = "a graph";
    type Raw = CUgraph;
    type Parent = Lost;

    fn release(graph: CUgraph, lost: Lost) -> Outcome<()> {
        if lost.0.into_inner() {
            // It is leaked; the failure that cost the graph has said so.
            return Ok(());
        }
        // Measured: it invalidates no capture.
        call::destroy(graph)
    }
}

/// Whether the capture of a conditional body has failed after that of the graph had ended: the graph must be neither
/// used nor destroyed any more.
#[derive(Default)]
struct Lost(AtomicBool);

/// A node's kind: the driver's numbers, by the driver's names.
pub type NodeKind = CUgraphNodeType;

/// A node of a graph: a token that is good as long as the graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// The handle, as a number.
    raw: usize,
    kind: NodeKind,
}

impl GraphNode {
    /// The driver's handle.
    pub fn as_raw(&self) -> CUgraphNode {
        std::ptr::with_exposed_provenance_mut(self.raw)
    }

    /// What it is.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }
}

impl GraphDefinition {
    pub(crate) fn captured(graph: CUgraph, attachments: Arc<Attachments>) -> GraphDefinition {
        let graph = Source::Captured(Owned::new(graph, Lost::default()));
        GraphDefinition(Arc::new(Inner { graph, attachments }))
    }

    pub(crate) fn body(body: Body) -> GraphDefinition {
        let attachments = body.of.attachments.clone();
        GraphDefinition(Arc::new(Inner { graph: Source::Body(body), attachments }))
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUgraph {
        match &self.0.graph {
            Source::Captured(owned) => owned.raw(),
            Source::Body(body) => body.graph.0,
        }
    }

    /// Whether it is there: the body of a conditional node is not once the capture that it was part of has failed, and
    /// no graph is once the capture of a conditional body of it has.
    pub fn is_valid(&self) -> bool {
        match &self.0.graph {
            Source::Captured(owned) => !owned.parent().0.load(Ordering::Acquire),
            Source::Body(body) => body.of.has_graph(),
        }
    }

    /// The capture of a conditional body of it has failed: from now on it is not used, and it is never destroyed. True
    /// for the first.
    pub(crate) fn lose(&self) -> bool {
        match &self.0.graph {
            Source::Captured(owned) => !owned.parent().0.swap(true, Ordering::AcqRel),
            Source::Body(_) => false,
        }
    }

    pub(crate) fn alive(&self) -> Outcome<CUgraph> {
        driver::refuse_in_child()?;
        if self.is_valid() {
            return Ok(self.as_raw());
        }
        Err(state(match &self.0.graph {
            Source::Captured(_) => BROKEN,
            Source::Body(_) => "the capture that this conditional body was part of ended without a graph",
        }))
    }

    /// Whether it is the body of a conditional node.
    pub fn is_body(&self) -> bool {
        matches!(self.0.graph, Source::Body(_))
    }

    pub(crate) fn attachments(&self) -> &Arc<Attachments> {
        &self.0.attachments
    }

    /// For a collector of garbage: shows what the graph was given to keep (what [`keep`](crate::graph::keep) and
    /// callbacks were given), where this share is the only one of the graph, and nobody else keeps it: then whatever is
    /// shown goes with this share, but for launches that are under way. Else nothing is shown, nor for a body of a
    /// conditional node. Nobody may use this share meanwhile. `see` runs with a lock held and must use nothing of cuirass.
    pub fn see_kept(&self, see: &mut dyn FnMut(&(dyn Any + Send + Sync))) {
        if Arc::strong_count(&self.0) == 1 && !self.is_body() {
            self.0.attachments.see(MOST_SEEN, see);
        }
    }

    pub(crate) fn context(&self) -> &Context {
        self.0.attachments.context()
    }

    /// Its nodes.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn nodes(&self) -> Result<Vec<GraphNode>> {
        let graph = self.alive()?;
        Ok(self.attachments().alone(|| nodes_of(graph))?)
    }

    /// Pairs of nodes of which the second waits for the first.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn edges(&self) -> Result<Vec<(GraphNode, GraphNode)>> {
        let graph = self.alive()?;
        let (nodes, edges) = self.attachments().alone(|| Outcome::Ok((nodes_of(graph)?, call::get_edges(graph)?)))?;
        let places = Places::of(&nodes);
        let find = |raw| nodes.get(places.find(raw)?).copied();
        Ok(edges.into_iter().filter_map(|(from, to)| Some((find(from)?, find(to)?))).collect())
    }

    /// `cuGraphInstantiateWithParams`: makes it executable.
    ///
    /// # Errors
    /// What the driver answers, with its reason.
    pub fn instantiate(&self, options: &GraphCompleteOptions) -> Result<Graph> {
        self.clone().into_executable(options)
    }

    /// As [`instantiate`](GraphDefinition::instantiate), with this share.
    pub(crate) fn into_executable(self, options: &GraphCompleteOptions) -> Result<Graph> {
        deferred::before_creating()?;
        if self.is_body() {
            return Err(state("the body of a conditional node is completed with the graph that it is part of").raise());
        }
        Ok(Graph::create(self, options)?)
    }

    /// `cuGraphDebugDotPrint`: the driver's own picture of it, written to a file.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a path with NUL in it; what the driver answers.
    pub fn debug_dot_print(&self, path: &Path, options: GraphDebugPrintOptions) -> Result<()> {
        let text = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_nul| Failure::misuse(Misuse::Value, "a path has no NUL in it"))?;
        let graph = self.alive()?;
        Ok(self.attachments().alone(|| call::debug_dot_print(graph, &text, options.flags()))?)
    }

    /// Gives up this share. If it is the last one the graph is destroyed, and the driver's answer returned.
    ///
    /// # Errors
    /// What `cuGraphDestroy` answers.
    pub fn close(self) -> Result<()> {
        Ok(self.close_inner()?)
    }

    pub(crate) fn close_inner(self) -> Outcome<()> {
        match Arc::into_inner(self.0).map(|inner| inner.graph) {
            Some(Source::Captured(owned)) => owned.close(),
            Some(Source::Body(_)) | None => Ok(()),
        }
    }
}

pub(crate) fn nodes_of(graph: CUgraph) -> Outcome<Vec<GraphNode>> {
    let mut nodes = Vec::new();
    for raw in node_call::get_nodes(graph)? {
        nodes.push(GraphNode { raw: raw.expose_provenance(), kind: node_call::get_type(raw)? });
    }
    Ok(nodes)
}

/// Finds nodes by their handles.
pub(crate) struct Places(Vec<(usize, usize)>);

impl Places {
    pub(crate) fn of(nodes: &[GraphNode]) -> Places {
        let mut places: Vec<_> = nodes.iter().enumerate().map(|(at, node)| (node.raw, at)).collect();
        places.sort_unstable();
        Places(places)
    }

    /// Which of the nodes it is.
    pub(crate) fn find(&self, node: CUgraphNode) -> Option<usize> {
        let found = self.0.binary_search_by_key(&node.addr(), |(raw, _)| *raw).ok()?;
        self.0.get(found).map(|(_, at)| *at)
    }
}

impl GraphBuilder {
    /// As [`embed`](GraphBuilder::embed), from a definition.
    pub(crate) fn embed_definition(&self, child: &GraphDefinition) -> Outcome<()> {
        let recording = self.building()?;
        let info = self.capture_info(&recording)?;
        let graph = child.alive()?;
        let node = recording
            .attachments
            .alone_with(child.attachments(), || node_call::add_child_graph(info.graph, &info.dependencies, graph))?;
        // The node refers to it from now on, whatever comes.
        recording.attachments.add(Attachment::Child(child.attachments().clone()));
        capture::stream_set_capture_dependency(self.stream().raw(), node).map_err(|failure| {
            failure.note("the child graph itself was added to the graph, and what comes later does not wait for it")
        })
    }
}

impl PartialEq for GraphDefinition {
    fn eq(&self, other: &GraphDefinition) -> bool {
        self.as_raw() == other.as_raw()
    }
}

impl Eq for GraphDefinition {}

impl std::fmt::Debug for GraphDefinition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphDefinition({:p})", self.as_raw())
    }
}
