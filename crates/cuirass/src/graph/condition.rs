//! Conditional nodes: parts of a graph that run, or run again, as a condition says while the graph is running.

use crate::graph::builder::{Body, GraphBuilder, Phase, Role, state};
use crate::graph::recording::{Attachment, Conditional, Recording};
use crate::launch::Argument;
use crate::stream::{Stream, StreamOptions};
use crate::{Outcome, Result};
use cuirass_call::graph::{builder as capture, node as call};
use cuirass_call::owner::Opaque;
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{CUgraph, CUgraphConditionalNodeType, CUstreamCaptureStatus};
use cuirass_fault::{Absence, Cause, Facts, Failure, Library, Misuse};
use std::sync::Arc;

/// A condition of a graph: a number that kernels set (`cudaGraphSetConditional`) and one conditional node reads. It is an
/// argument of such a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphCondition(u64);

impl GraphCondition {
    /// The driver's handle.
    pub fn as_raw(&self) -> u64 {
        self.0
    }
}

impl<'a> From<&'a GraphCondition> for Argument<'a> {
    fn from(condition: &'a GraphCondition) -> Argument<'a> {
        Argument::from(&condition.0)
    }
}

/// The driver's kinds of conditional nodes.
type Kind = CUgraphConditionalNodeType;

impl GraphBuilder {
    /// `cuGraphConditionalHandleCreate`: a condition of the graph that is being built. With a default it has that value
    /// at the start of every launch. CUDA 12.3 or newer.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when it is not building; what the driver answers.
    pub fn create_condition(&self, default: Option<u32>) -> Result<GraphCondition> {
        let recording = self.building()?;
        let info = self.capture_info(&recording)?;
        let context = recording.context().as_raw();
        let create = || call::conditional_handle_create(info.graph, context, default);
        Ok(GraphCondition(recording.attachments.alone(create)?))
    }

    /// A node whose body runs if the condition is not 0. The builder of the body, which begins and ends like any other
    /// one, before this one ends.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when it is not building; what the driver answers: a condition is
    /// of one node, and a second one is refused.
    pub fn if_then(&self, condition: &GraphCondition) -> Result<GraphBuilder> {
        self.single(condition, Kind::CU_GRAPH_COND_TYPE_IF)
    }

    /// A node whose first body runs if the condition is not 0, and whose second one if it is. CUDA 12.8 or newer.
    ///
    /// # Errors
    /// As [`if_then`](GraphBuilder::if_then).
    pub fn if_else(&self, condition: &GraphCondition) -> Result<(GraphBuilder, GraphBuilder)> {
        let mut bodies = self.conditional(condition, Kind::CU_GRAPH_COND_TYPE_IF, 2)?.into_iter();
        match (bodies.next(), bodies.next()) {
            (Some(then), Some(otherwise)) => Ok((then, otherwise)),
            _ => Err(missing().raise()),
        }
    }

    /// A node of which the body runs whose number the condition is; none for a larger one. CUDA 12.8 or newer.
    ///
    /// # Errors
    /// As [`if_then`](GraphBuilder::if_then); [`ErrorKind::Value`](crate::ErrorKind::Value) for no bodies or too many.
    pub fn switch(&self, condition: &GraphCondition, count: usize) -> Result<Vec<GraphBuilder>> {
        Ok(self.conditional(condition, Kind::CU_GRAPH_COND_TYPE_SWITCH, count)?)
    }

    /// A node whose body runs again and again while the condition is not 0.
    ///
    /// # Errors
    /// As [`if_then`](GraphBuilder::if_then).
    pub fn while_loop(&self, condition: &GraphCondition) -> Result<GraphBuilder> {
        self.single(condition, Kind::CU_GRAPH_COND_TYPE_WHILE)
    }

    fn single(&self, condition: &GraphCondition, kind: Kind) -> Result<GraphBuilder> {
        Ok(self.conditional(condition, kind, 1)?.pop().ok_or_else(missing)?)
    }

    fn conditional(&self, condition: &GraphCondition, kind: Kind, count: usize) -> Outcome<Vec<GraphBuilder>> {
        let bodies = u32::try_from(count).ok().filter(|count| (1..=MOST_BODIES).contains(count)).ok_or_else(|| {
            Failure::misuse(
                Misuse::Value,
                format!("a conditional node has from 1 to {MOST_BODIES} bodies, not {count}"),
            )
        })?;
        if bodies > 1 || kind == Kind::CU_GRAPH_COND_TYPE_SWITCH {
            needs_cuda_12_8()?;
        }
        let recording = self.building()?;
        recording.set_in_parts();
        let mut streams = Vec::new();
        let graphs = match self.add_conditional(&recording, condition, kind, bodies, &mut streams) {
            Ok(graphs) if graphs.len() == count => graphs,
            added => return Err(undone(streams, added.err().unwrap_or_else(missing))),
        };
        let build = |(stream, graph)| {
            let body = Body { graph: Opaque(graph), of: recording.clone() };
            GraphBuilder::new(stream, self.context().clone(), Role::Body(body), Phase::Fresh)
        };
        Ok(streams.into_iter().zip(graphs).map(build).collect())
    }

    /// Adds the node, after a stream for each body.
    fn add_conditional(
        &self,
        recording: &Arc<Recording>,
        condition: &GraphCondition,
        kind: Kind,
        bodies: u32,
        streams: &mut Vec<Stream>,
    ) -> Outcome<Vec<CUgraph>> {
        let info = self.capture_info(recording)?;
        // Streams first: they can be given back, the node cannot.
        for _ in 0..bodies {
            streams.push(Stream::create(self.context(), &StreamOptions::default())?);
        }
        let context = recording.context().as_raw();
        let add =
            || call::add_conditional(info.graph, &info.dependencies, &info.edges, condition.0, kind, bodies, context);
        let (node, graphs) = recording.attachments.alone(add).map_err(|failure| match failure.status() {
            Some(code::INVALID_VALUE) => failure.note(ONE_NODE),
            _ => failure,
        })?;
        let bodies = graphs.iter().map(|graph| Opaque(*graph)).collect();
        let known = Conditional { node: Opaque(node), kind, bodies };
        recording.attachments.add(Attachment::Bodies(Box::new(known)));
        capture::stream_set_capture_dependency(self.stream().raw(), node).map_err(|failure| {
            failure
                .note("the conditional node itself was added to the graph, and what comes later does not wait for it")
        })?;
        Ok(graphs)
    }

    /// The graph that is being built and where in it the stream stands.
    pub(crate) fn capture_info(&self, _recording: &Arc<Recording>) -> Outcome<capture::CaptureInfo> {
        let info = capture::stream_get_capture_info(self.stream().raw())?;
        match info.status {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => Ok(info),
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => {
                Err(state("the capture has been ended by somebody else"))
            }
            _ => Err(state("the capture has been invalidated; end_building() or close() ends it")),
        }
    }

    /// Adds another builder's graph as one node. The child may be closed afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when this one is not building or the child has not ended; what
    /// the driver answers: it takes no graph that allocates memory.
    pub fn embed(&self, child: &GraphBuilder) -> Result<()> {
        if child.is_conditional_body() {
            return Err(state("the body of a conditional node is part of its own graph, and of no other").raise());
        }
        let definition = child.definition()?;
        Ok(self.embed_definition(&definition)?)
    }
}

/// The most bodies of a conditional node: a guard against a mistaken number, not the driver's limit.
const MOST_BODIES: u32 = 1 << 16;

const ONE_NODE: &str = "a condition is of the graph that it was made for, and of one conditional node: each node needs a \
                        condition of its own (create_condition)";

/// Gives back streams that were made for bodies, because of a failure that is on its way.
fn undone(streams: Vec<Stream>, failure: Failure) -> Failure {
    streams.into_iter().fold(failure, |failure, stream| match stream.close() {
        Ok(()) => failure,
        Err(error) => Failure::from(error).attach_to(failure, "a stream that was made for a body was not undone"),
    })
}

fn missing() -> Failure {
    Failure::internal("the driver made a conditional node without its bodies")
}

/// Nodes of several bodies: an older driver has the call, and says that a value is invalid.
fn needs_cuda_12_8() -> Outcome<()> {
    const NEEDS: u32 = 12080;
    let found = crate::driver::version()?;
    if found >= NEEDS {
        return Ok(());
    }
    Err(Failure::new(Facts {
        cause: Cause::Absent(Absence::EntryPoint { needs: NEEDS, found }),
        library: Some(Library::Driver),
        call: "cuGraphAddNode",
        status: None,
        subject: String::new(),
        log: None,
        notes: vec!["before CUDA 12.8 a conditional node has one body: if_then() and while_loop()".to_owned()],
        leaked: false,
        attached: Vec::new(),
    }))
}
