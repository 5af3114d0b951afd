//! Graphs: capture, definitions, executable graphs, their memory.

use crate::objects::{Plain, Works, buffer, device, kernel, operation, stream, taken};
use cuirass::graph::{
    CaptureMode, Graph, GraphBuilder, GraphCompleteOptions, GraphCondition, GraphDebugPrintOptions, GraphDefinition,
    is_captured, keep, keep_memory, launch_returns_at_once,
};
use cuirass::memory::{GraphMemoryAttribute, GraphMemoryResource, MemoryResource};
use cuirass::{Buffer, LaunchConfig, Result, Stream, launch};
use cuirass_testkit::operation::{Allowed, Caller, Operation};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const OTHERS: &str = "the mark behind its launches is another object: close() answers for its own";
const TOGETHER: Allowed = Allowed::LeaksTogether("what the graph refers to is leaked");
const ATTACHMENTS: &str = "a graph refers to things of any kind and number; the report names the graph or the stream";
const USED: GraphMemoryAttribute = GraphMemoryAttribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;

/// A capture in progress. It ends with this, whatever became of it.
struct Capture {
    builder: Option<GraphBuilder>,
    forks: Vec<GraphBuilder>,
    buffer: Buffer,
}

impl Capture {
    fn builder(&self) -> &GraphBuilder {
        self.builder.as_ref().expect("a builder")
    }

    fn stream(&self) -> &Stream {
        self.builder().stream()
    }
}

impl Works for Capture {
    fn works(&self) -> Result<()> {
        if let Some(builder) = &self.builder
            && builder.is_building()?
        {
            self.buffer.fill(2, builder.stream())?;
        }
        Ok(())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        for builder in self.forks.drain(..).chain(self.builder.take()) {
            // What an operation has done to it makes no difference here, but for a fault, which nobody else tells.
            if let Err(error) = builder.close()
                && error.is_sticky()
            {
                cuirass_fault::Failure::from(error).report("closing a graph builder of the gauntlet");
            }
        }
    }
}

/// A capture whose graph is then run, after what it was given has been let go: the graph has to hold that, also where
/// the call that captured it returned an error.
struct Launched<T> {
    capture: Capture,
    given: RefCell<Option<T>>,
}

impl<T> Launched<T> {
    fn new(given: impl FnOnce(&Stream) -> Result<T>) -> Result<Launched<T>> {
        let capture = not_begun()?;
        let given = RefCell::new(Some(given(capture.stream())?));
        capture.builder().begin_building(CaptureMode::Relaxed)?;
        Ok(Launched { capture, given })
    }

    fn with<R>(&self, operation: impl FnOnce(&GraphBuilder, &T) -> R) -> R {
        operation(self.capture.builder(), self.given.borrow().as_ref().expect("it runs once"))
    }
}

impl<T> Works for Launched<T> {
    fn works(&self) -> Result<()> {
        drop(self.given.take());
        let builder = self.capture.builder();
        self.capture.buffer.fill(2, builder.stream())?;
        builder.end_building()?;
        cuirass::drain();
        let (graph, stream) = (builder.complete(&GraphCompleteOptions::default())?, stream()?);
        graph.launch(&stream)?;
        stream.synchronize()?;
        graph.close()?;
        stream.close()
    }
}

impl Works for GraphBuilder {
    fn works(&self) -> Result<()> {
        self.is_building().map(|_building| ())
    }
}

impl Works for GraphDefinition {
    fn works(&self) -> Result<()> {
        self.nodes().map(|_nodes| ())
    }
}

impl Works for Graph {
    fn works(&self) -> Result<()> {
        let stream = stream()?;
        self.launch(&stream)?;
        stream.synchronize()
    }
}

fn fresh() -> Result<GraphBuilder> {
    stream()?.create_graph_builder()
}

/// A capture that has not begun.
fn not_begun() -> Result<Capture> {
    let stream = stream()?;
    Ok(Capture { builder: Some(stream.create_graph_builder()?), forks: Vec::new(), buffer: buffer(&stream)? })
}

fn capture() -> Result<Capture> {
    let capture = not_begun()?;
    capture.builder().begin_building(CaptureMode::Relaxed)?;
    capture.buffer.fill(1, capture.stream())?;
    Ok(capture)
}

fn forked() -> Result<Capture> {
    let mut capture = capture()?;
    capture.forks = capture.builder().split(3)?;
    Ok(capture)
}

/// With what it refers to, which is kept: an operation then answers for the graph alone.
type Kept<T> = (T, Capture);

fn ended() -> Result<Kept<GraphBuilder>> {
    let mut capture = capture()?;
    capture.builder().end_building()?;
    let builder = capture.builder.take().expect("a builder");
    Ok((builder, capture))
}

fn definition() -> Result<Kept<GraphDefinition>> {
    let (builder, capture) = ended()?;
    let definition = builder.definition()?;
    builder.close()?;
    Ok((definition, capture))
}

fn graph() -> Result<Kept<Graph>> {
    let (definition, capture) = definition()?;
    Ok((definition.instantiate(&GraphCompleteOptions::default())?, capture))
}

/// A graph that has been launched, so that what it refers to waits for the stream.
fn launched() -> Result<(Option<Graph>, Capture, Stream)> {
    let ((graph, capture), stream) = (graph()?, stream()?);
    graph.launch(&stream)?;
    stream.synchronize()?;
    Ok((Some(graph), capture, stream))
}

/// An object that its operation consumes.
fn consumed<T>((object, capture): Kept<T>) -> Kept<Option<T>> {
    (Some(object), capture)
}

fn conditional() -> Result<(Capture, Plain<GraphCondition>)> {
    let capture = capture()?;
    let condition = capture.builder().create_condition(Some(0))?;
    Ok((capture, Plain(condition)))
}

fn memory() -> Result<Plain<GraphMemoryResource>> {
    GraphMemoryResource::new(device()).map(Plain)
}

pub fn operations() -> Vec<Operation> {
    let mut operations = building();
    operations.extend(captured_work());
    operations.extend(conditions());
    operations.extend(definitions());
    operations.extend(executable());
    operations.extend(graph_memory());
    operations
}

fn building() -> Vec<Operation> {
    vec![
        operation!("Device::create_graph_builder", || Ok(()), |()| device().create_graph_builder()),
        operation!("Device::create_graph_builder", || ended_alone()?.close(), |()| device().create_graph_builder())
            .case("with the stream of the last one"),
        operation!("Stream::create_graph_builder", stream, |stream| stream.create_graph_builder()).makes_no_call(),
        operation!("GraphBuilder::begin_building", not_begun, |capture| {
            capture.builder().begin_building(CaptureMode::Relaxed)
        }),
        operation!("GraphBuilder::is_building", capture, |capture| capture.builder().is_building()),
        operation!("GraphBuilder::end_building", capture, |capture| capture.builder().end_building()),
        operation!("GraphBuilder::split", capture, |capture| capture.builder().split(3))
            .allow(Allowed::Stays(&["stream"]), "a stream that may have joined the capture is kept until that ends"),
        operation!("GraphBuilder::check_joinable", forked, |capture| {
            let fork = capture.forks.first().expect("a fork");
            capture.builder().check_joinable(fork)
        })
        .makes_no_call(),
        operation!("GraphBuilder::join", forked, |capture| {
            let forks = std::mem::take(&mut capture.forks);
            capture.builder().join(forks)
        }),
        operation!("GraphBuilder::definition", ended, |(builder, _)| builder.definition()).makes_no_call(),
        operation!("GraphBuilder::complete", ended, |(builder, _)| builder.complete(&GraphCompleteOptions::default()))
            .called_with(&ALL),
        operation!("GraphBuilder::debug_dot_print", ended, |(builder, _)| {
            builder.debug_dot_print(&picture(), GraphDebugPrintOptions::default())
        }),
        operation!("GraphBuilder::keep", capture, |capture| capture.builder().keep(Arc::new(1))).makes_no_call(),
        operation!("GraphBuilder::see_kept", capture, |capture| {
            capture.builder().see_kept(&mut |_| ());
            Ok(())
        })
        .makes_no_call(),
        operation!("is_captured", capture, |capture| Ok(is_captured(capture.stream()))).makes_no_call(),
        operation!("keep", capture, |capture| Ok(keep(capture.stream(), Arc::new(1)))).makes_no_call(),
        operation!("keep_memory", capture, |capture| Ok(keep_memory(capture.stream(), &capture.buffer)))
            .makes_no_call(),
        operation!("GraphBuilder::close", fresh_one, |(builder, _)| taken(builder).close()).makes_no_call(),
        operation!("GraphBuilder::close", capture, |capture| taken(&mut capture.builder).close()).case("building"),
        operation!("GraphBuilder::close", || ended().map(consumed), |(builder, _)| taken(builder).close())
            .case("ended"),
        operation!("GraphBuilder::close", || Ok(Some(ended_alone()?)), |builder| taken(builder).close())
            .case("its stream is kept for the next one"),
        operation!("GraphBuilder::stream", fresh, |builder| Ok(builder.stream().as_raw())).makes_no_call(),
        operation!("GraphBuilder::is_join_required", fresh, |builder| Ok(builder.is_join_required())).makes_no_call(),
        operation!("GraphBuilder::is_conditional_body", fresh, |builder| Ok(builder.is_conditional_body()))
            .makes_no_call(),
        operation!("CaptureMode::name", || Ok(()), |()| Ok(CaptureMode::Relaxed.name())).makes_no_call(),
        operation!("CaptureMode::of_name", || Ok(()), |()| Ok(CaptureMode::of_name("relaxed"))).makes_no_call(),
    ]
}

/// A builder with a stream of its own, on which nothing was captured.
fn ended_alone() -> Result<GraphBuilder> {
    let builder = device().create_graph_builder()?;
    builder.begin_building(CaptureMode::Relaxed)?;
    builder.end_building()?;
    Ok(builder)
}

/// A builder whose stream somebody else keeps.
fn fresh_one() -> Result<(Option<GraphBuilder>, Stream)> {
    let stream = stream()?;
    Ok((Some(stream.create_graph_builder()?), stream))
}

fn picture() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("cuirass-gauntlet-{}.dot", std::process::id()))
}

fn captured_work() -> Vec<Operation> {
    let counted = || Launched::new(|_stream| Ok(Arc::new(AtomicU32::new(0))));
    let memory = || Launched::new(buffer);
    let both = || Launched::new(|stream| Ok((kernel()?, buffer(stream)?)));
    vec![
        operation!("GraphBuilder::callback", counted, |launched| {
            launched.with(|builder, count| {
                let count = Arc::clone(count);
                builder.callback(move || {
                    count.fetch_add(1, Ordering::SeqCst);
                })
            })
        }),
        operation!("GraphBuilder::callback_raw", counted, |launched| {
            unsafe extern "C" fn count_one(count: *mut std::ffi::c_void) {
                // SAFETY: [test] the owner that it was given with is kept.
                unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
            }
            launched.with(|builder, count| {
                let data = Arc::as_ptr(count).cast_mut().cast();
                // SAFETY: [test] the owner keeps the number.
                unsafe { builder.callback_raw(count_one, data, Arc::clone(count) as Arc<_>) }
            })
        }),
        operation!("GraphBuilder::embed", || Ok((capture()?, ended()?)), |(capture, (child, _))| {
            capture.builder().embed(child)
        }),
        operation!("launch_returns_at_once", both, |launched| {
            launched.with(|builder, (kernel, _)| {
                Ok(launch_returns_at_once(builder.stream(), &LaunchConfig::linear(1, 8), kernel))
            })
        })
        .makes_no_call(),
        operation!("launch", both, |launched| {
            launched.with(|builder, (kernel, buffer)| {
                let arguments = [buffer.into(), (&8_i32).into()];
                // SAFETY: [test] the kernel writes 8 of the buffer's 16 ints.
                unsafe { launch(builder.stream(), &LaunchConfig::linear(1, 8), kernel, &arguments) }
            })
        })
        .case("captured")
        .allow(
            Allowed::KeepsAnswers,
            "INVALID_VALUE is how the driver says that a kernel has no more parameters; how many it has is kept",
        ),
        operation!("Buffer::fill", memory, |launched| {
            launched.with(|builder, buffer| buffer.fill(3, builder.stream()))
        })
        .case("captured"),
        operation!("Buffer::copy_from", memory, |launched| {
            launched.with(|builder, buffer| launched.capture.buffer.copy_from(buffer, builder.stream()))
        })
        .case("captured"),
        operation!("Buffer (dropped)", || capture().map(Plain), |capture| {
            let buffer = std::mem::replace(&mut capture.0.buffer, nothing());
            drop(buffer);
            Ok(())
        })
        .case("of a capture in progress")
        .makes_no_call(),
    ]
}

/// A buffer of nobody's.
fn nothing() -> Buffer {
    // SAFETY: [test] it has no bytes.
    unsafe { Buffer::borrow_raw(0, 0, None) }
}

/// Conditional nodes came with CUDA 12.3.
fn conditions() -> Vec<Operation> {
    [
        operation!("GraphBuilder::create_condition", capture, |capture| capture.builder().create_condition(Some(1))),
        operation!("GraphCondition::as_raw", conditional, |(_, condition)| Ok(condition.0.as_raw())).makes_no_call(),
        operation!("GraphBuilder::if_then", conditional, |(capture, condition)| {
            capture.builder().if_then(&condition.0)
        }),
        operation!("GraphBuilder::if_else", conditional, |(capture, condition)| {
            capture.builder().if_else(&condition.0)
        })
        .needs(12080),
        operation!("GraphBuilder::switch", conditional, |(capture, condition)| {
            capture.builder().switch(&condition.0, 3)
        })
        .needs(12080),
        operation!("GraphBuilder::while_loop", conditional, |(capture, condition)| {
            capture.builder().while_loop(&condition.0)
        }),
    ]
    .map(|operation| if operation.needs == 0 { operation.needs(12030) } else { operation })
    .into()
}

fn definitions() -> Vec<Operation> {
    vec![
        operation!("GraphDefinition::nodes", definition, |(definition, _)| definition.nodes()),
        operation!("GraphDefinition::edges", definition, |(definition, _)| definition.edges()),
        operation!("GraphDefinition::instantiate", definition, |(definition, _)| {
            definition.instantiate(&GraphCompleteOptions::default())
        })
        .called_with(&ALL),
        operation!("GraphDefinition::debug_dot_print", definition, |(definition, _)| {
            definition.debug_dot_print(&picture(), GraphDebugPrintOptions::default())
        }),
        operation!("GraphDefinition::to_dot", definition, |(definition, _)| definition.to_dot()),
        operation!("GraphDefinition::to_svg", definition, |(definition, _)| definition.to_svg()),
        operation!("GraphDefinition::close", || definition().map(consumed), |(definition, _)| taken(definition)
            .close()),
        operation!("GraphDefinition (dropped)", || definition().map(consumed), |(definition, _)| {
            drop(taken(definition));
            Ok(())
        })
        .reports(),
        operation!("GraphDefinition::as_raw", definition, |(definition, _)| Ok(definition.as_raw())).makes_no_call(),
        operation!("GraphDefinition::see_kept", definition, |(definition, _)| {
            definition.see_kept(&mut |_| ());
            Ok(())
        })
        .makes_no_call(),
        operation!("GraphDefinition::is_valid", definition, |(definition, _)| Ok(definition.is_valid()))
            .makes_no_call(),
        operation!("GraphDefinition::is_body", definition, |(definition, _)| Ok(definition.is_body())).makes_no_call(),
        operation!("GraphNode::as_raw", || definition()?.0.nodes().map(Plain), |nodes| {
            Ok(nodes.0.first().map(cuirass::graph::GraphNode::as_raw))
        })
        .makes_no_call(),
        operation!("GraphNode::kind", || definition()?.0.nodes().map(Plain), |nodes| {
            Ok(nodes.0.first().map(cuirass::graph::GraphNode::kind))
        })
        .makes_no_call(),
    ]
}

fn executable() -> Vec<Operation> {
    vec![
        operation!("Graph::definition", graph, |(graph, _)| Ok(graph.definition())).makes_no_call(),
        operation!("Graph::see_kept", graph, |(graph, _)| {
            graph.see_kept(&mut |_| ());
            Ok(())
        })
        .makes_no_call(),
        operation!("Graph::to_dot", graph, |(graph, _)| graph.to_dot()),
        operation!("Graph::to_svg", graph, |(graph, _)| graph.to_svg()),
        operation!("Graph::as_raw", graph, |(graph, _)| Ok(graph.as_raw())).makes_no_call(),
        operation!("Graph::launch", || Ok((graph()?, stream()?)), |((graph, _), stream)| graph.launch(stream))
            .called_with(&ALL),
        operation!("Graph::upload", || Ok((graph()?, stream()?)), |((graph, _), stream)| graph.upload(stream)),
        operation!("Graph::update", || Ok((graph()?, definition()?)), |((graph, _), (definition, _))| graph
            .update(definition))
        .submits(),
        operation!("Graph::close", || graph().map(consumed), |(graph, _)| taken(graph).close()),
        operation!("Graph::close", launched, |(graph, ..)| taken(graph).close())
            .case("launched")
            .allow(TOGETHER, ATTACHMENTS)
            .allow(Allowed::Reported(&["cuEventDestroy_v2"]), OTHERS),
        operation!("Graph (dropped)", || graph().map(consumed), |(graph, _)| {
            drop(taken(graph));
            Ok(())
        })
        .called_with(&ALL)
        .reports(),
        operation!("Graph (dropped)", launched, |(graph, ..)| {
            drop(taken(graph));
            Ok(())
        })
        .case("launched")
        .allow(TOGETHER, ATTACHMENTS)
        .reports(),
        operation!("Graph (dropped)", || launched().map(|(graph, ..)| graph), |graph| {
            drop(taken(graph));
            Ok(())
        })
        .case("launched, the last share of everything")
        .allow(TOGETHER, ATTACHMENTS)
        .reports(),
    ]
}

fn graph_memory() -> Vec<Operation> {
    vec![
        operation!("GraphMemoryResource::new", || Ok(()), |()| GraphMemoryResource::new(device())).makes_no_call(),
        operation!("GraphMemoryResource::allocate", || Ok((capture()?, memory()?)), |(capture, resource)| {
            resource.0.allocate(64, capture.stream())
        }),
        operation!("GraphMemoryResource::deallocate", || Ok((capture()?, memory()?)), |(capture, resource)| {
            let memory = resource.0.allocate(64, capture.stream())?;
            resource.0.deallocate(memory.into_raw(), 64, capture.stream())
        }),
        operation!("GraphMemoryResource::attribute", memory, |resource| resource.0.attribute(USED)),
        operation!("GraphMemoryResource::set_attribute", memory, |resource| resource.0.set_attribute(USED, 0)),
        operation!("GraphMemoryResource::trim", memory, |resource| resource.0.trim()),
        operation!("GraphMemoryResource::device", memory, |resource| Ok(resource.0.device())).makes_no_call(),
        operation!("GraphMemoryResource::is_device_accessible", memory, |resource| {
            Ok(resource.0.is_device_accessible())
        })
        .makes_no_call(),
        operation!("GraphMemoryResource::is_host_accessible", memory, |resource| {
            Ok(resource.0.is_host_accessible())
        })
        .makes_no_call(),
    ]
}
