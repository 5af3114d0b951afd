//! Conditional nodes: what runs, and what happens when a body's capture goes wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::graph::{CaptureMode, GraphBuilder, GraphCompleteOptions, GraphCondition, GraphDebugPrintOptions};
use cuirass::memory::{GraphMemoryResource, MemoryResource};
use cuirass::{Buffer, CaptureStatus, ErrorKind, Kernel, LaunchConfig, Program, ProgramOptions, Stream, launch};
use cuirass_testkit as testkit;
use graph_support::*;

/// Whether the driver is new enough. Conditional nodes came with CUDA 12.3, bodies beyond the first with 12.8: a driver
/// before the first refuses the condition by name, and the capture goes on.
fn supported(version: u32) -> bool {
    let found = testkit::driver_version();
    if found < 12030 {
        drop(stream());
        let before = census();
        let builder = device().create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        for default in [None, Some(1)] {
            let error = builder.create_condition(default).unwrap_err();
            assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, "cuGraphConditionalHandleCreate"));
            let text = format!("needs a driver of CUDA 12.3, this one is of CUDA 12.{}", found % 1000 / 10);
            assert!(error.to_string().contains(&text), "{error}");
        }
        builder.end_building().unwrap();
        complete(&builder).close().unwrap();
        builder.close().unwrap();
        assert_eq!(census(), before);
    }
    found >= version
}

/// A kernel of these: the function that they call is the driver's.
fn kernel(name: &str) -> Kernel {
    let source = "extern \"C\" __device__ void cudaGraphSetConditional(unsigned long long, unsigned);\n\
                  extern \"C\" __global__ void set(unsigned long long c, unsigned v) { cudaGraphSetConditional(c, v); }\n\
                  extern \"C\" __global__ void down(unsigned long long c, int* x) { cudaGraphSetConditional(c, --*x > 0); }";
    let options = ProgramOptions::for_device(device()).unwrap();
    Program::new(source, &options).unwrap().compile_to_cubin().unwrap().kernel(name).unwrap()
}

fn set(stream: &Stream, kernel: &Kernel, condition: &GraphCondition, value: u32) {
    let config = LaunchConfig::linear(1, 1);
    // SAFETY: [test] the condition is of the graph that the stream captures.
    unsafe { launch(stream, &config, kernel, &[condition.into(), (&value).into()]).unwrap() };
}

/// Builds a body that adds a number.
fn body(builder: &GraphBuilder, mode: CaptureMode, buffer: &Buffer, by: i32) {
    assert!(builder.is_conditional_body());
    assert_eq!(builder.definition().unwrap().nodes().unwrap(), []);
    builder.begin_building(mode).unwrap();
    launch_add(builder.stream(), add(), buffer, by).unwrap();
    builder.end_building().unwrap();
    assert_eq!(builder.complete(&GraphCompleteOptions::default()).unwrap_err().kind(), ErrorKind::State);
}

#[test]
fn bodies_run_as_the_condition_says() {
    let _alone = testkit::alone();
    if !supported(12080) {
        return;
    }
    let stream = stream();
    // Loaded by its first use, which must not be behind the census.
    add();
    let kernel = kernel("set");
    for mode in MODES {
        for value in 0..3 {
            let buffer = numbers(16, &stream);
            stream.synchronize().unwrap();
            let before = census();
            let builder = stream.create_graph_builder().unwrap();
            builder.begin_building(mode).unwrap();
            // Each node has a condition of its own.
            let condition = || {
                let condition = builder.create_condition(None).unwrap();
                set(builder.stream(), &kernel, &condition, value);
                condition
            };
            let then = builder.if_then(&condition()).unwrap();
            body(&then, mode, &buffer, 1);
            let (then2, otherwise) = builder.if_else(&condition()).unwrap();
            body(&then2, mode, &buffer, 10);
            body(&otherwise, mode, &buffer, 20);
            let cases = builder.switch(&condition(), 2).unwrap();
            cases.iter().zip([100, 200]).for_each(|(case, by)| body(case, mode, &buffer, by));
            launch_add(builder.stream(), add(), &buffer, 1000).unwrap();
            builder.end_building().unwrap();
            let graph = complete(&builder);
            // Three conditional nodes with five bodies in all: each a kernel, to which a dashed line leads.
            let dot = graph.to_dot().unwrap();
            assert_eq!((dot.matches("subgraph").count(), dot.matches("style=dashed").count()), (5, 5), "{dot}");
            let svg = graph.to_svg().unwrap();
            for (label, count) in [("if", 2), ("switch", 1), ("then", 2), ("else", 1), ("case 0", 1), ("case 1", 1)] {
                assert_eq!(dot.matches(&format!("label=\"{label}\"")).count(), count, "{label}: {dot}");
                assert_eq!(svg.matches(&format!(">{label}</t")).count(), count, "{label}: {svg}");
            }
            drop((then, then2, otherwise, cases));
            builder.close().unwrap();
            graph.launch(&stream).unwrap();
            graph.launch(&stream).unwrap();
            let expected = [1020 + 100, 1011 + 200, 1011][value as usize];
            assert_eq!(read(&buffer, &stream), [2 * expected; 16], "{mode:?}, {value}");
            graph.close().unwrap();
            stream.synchronize().unwrap();
            assert_eq!(census(), before);
        }
    }
}

#[test]
fn a_condition_is_of_one_node() {
    let _alone = testkit::alone();
    if !supported(12030) {
        return;
    }
    drop(stream());
    let before = census();
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let condition = builder.create_condition(Some(1)).unwrap();
    let then = builder.if_then(&condition).unwrap();
    for error in [builder.if_then(&condition).unwrap_err(), builder.while_loop(&condition).unwrap_err()] {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(1)), "{error}");
        assert!(error.notes().iter().any(|note| note.contains("one conditional node")), "{error}");
    }
    // The capture goes on, and the node that is there is good.
    then.begin_building(CaptureMode::Relaxed).unwrap();
    then.end_building().unwrap();
    builder.end_building().unwrap();
    complete(&builder).close().unwrap();
    drop(then);
    builder.close().unwrap();
    assert_eq!(census(), before);
}

#[test]
fn a_loop_runs_until_its_condition_is_zero() {
    let _alone = testkit::alone();
    if !supported(12030) {
        return;
    }
    let stream = stream();
    let (buffer, count) = (numbers(16, &stream), numbers(1, &stream));
    count.copy_from_slice(&[5_i32], &stream).unwrap();
    let down = kernel("down");
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let condition = builder.create_condition(Some(1)).unwrap();
    let looped = builder.while_loop(&condition).unwrap();
    looped.begin_building(CaptureMode::Relaxed).unwrap();
    launch_add(looped.stream(), add(), &buffer, 3).unwrap();
    // SAFETY: [test] the count is a number, and the condition is of this graph.
    unsafe {
        launch(looped.stream(), &LaunchConfig::linear(1, 1), &down, &[(&condition).into(), (&count).into()]).unwrap();
    }
    looped.end_building().unwrap();
    builder.end_building().unwrap();
    let graph = complete(&builder);
    graph.launch(&stream).unwrap();
    assert_eq!((read(&buffer, &stream), read(&count, &stream)), (vec![15; 16], vec![0]));
    // The default is 1 again: the body runs once.
    graph.launch(&stream).unwrap();
    assert_eq!((read(&buffer, &stream), read(&count, &stream)), (vec![18; 16], vec![-1]));
}

#[test]
fn what_a_body_cannot_have_is_refused_when_it_is_recorded() {
    let _alone = testkit::alone();
    if !supported(12030) {
        return;
    }
    let memory = GraphMemoryResource::new(device()).unwrap();
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    let condition = builder.create_condition(Some(1)).unwrap();
    let then = builder.if_then(&condition).unwrap();
    then.begin_building(CaptureMode::Global).unwrap();
    let callback = then.callback(|| {}).unwrap_err();
    let allocation = memory.allocate(64, then.stream()).unwrap_err();
    for error in [callback, allocation] {
        assert!(error.kind() == ErrorKind::State && error.to_string().contains("conditional"), "{error}");
    }
    let early = builder.end_building().unwrap_err();
    assert!(early.kind() == ErrorKind::State && early.to_string().contains("end them first"), "{early}");
    assert!(then.is_building().unwrap() && builder.is_building().unwrap(), "both captures go on");
    then.end_building().unwrap();
    builder.end_building().unwrap();
}

#[test]
fn a_body_of_a_capture_that_failed_is_refused() {
    let alone = testkit::alone();
    if !supported(12030) {
        return;
    }
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let condition = || builder.create_condition(Some(1)).unwrap();
    let (then, later) = (builder.if_then(&condition()).unwrap(), builder.if_then(&condition()).unwrap());
    then.begin_building(CaptureMode::Relaxed).unwrap();
    then.end_building().unwrap();
    let definition = then.definition().unwrap();
    builder.close().unwrap();
    assert_eq!(later.begin_building(CaptureMode::Relaxed).unwrap_err().kind(), ErrorKind::State);
    assert!(!definition.is_valid());
    assert_eq!(definition.nodes().unwrap_err().kind(), ErrorKind::State);
    drop((then, later, definition));
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// What is done with a body (`b`) and its parent (`p`) after one or both of them were invalidated.
const ORDERS: [&str; 8] = [
    "end-b end-p",
    "end-p end-b",
    "close-b close-p",
    "close-p close-b",
    "drop-b drop-p",
    "drop-p drop-b",
    "end-b drop-p",
    "drop-b end-p",
];

fn invalidated(which: &str, order: &str) {
    let alone = testkit::alone();
    let told = format!("{which}, {order}");
    drop(stream());
    let before = census();
    let parent = device().create_graph_builder().unwrap();
    parent.begin_building(CaptureMode::Relaxed).unwrap();
    let condition = parent.create_condition(Some(1)).unwrap();
    let body = parent.if_then(&condition).unwrap();
    body.begin_building(CaptureMode::Relaxed).unwrap();
    let (parent_stream, body_stream) = (parent.stream().clone(), body.stream().clone());
    if which != "parent" {
        assert_eq!(body.stream().synchronize().unwrap_err().code(), Some(900));
    }
    if which != "body" {
        assert_eq!(parent.stream().synchronize().unwrap_err().code(), Some(900));
    }
    let mark = testkit::simulator::mark();
    let (mut parent, mut body) = (Some(parent), Some(body));
    let mut errors = Vec::new();
    for step in order.split(' ') {
        let (what, whose) = step.split_once('-').unwrap();
        let builder = if whose == "b" { &mut body } else { &mut parent };
        match what {
            "end" => errors.extend(builder.as_ref().unwrap().end_building().err()),
            "close" => errors.extend(builder.take().unwrap().close().err()),
            _ => drop(builder.take()),
        }
    }
    drop((parent, body));
    let reports = alone.reports();
    let bugs = testkit::simulator::reports_since(mark);
    assert!(bugs.is_empty(), "{told}: {bugs:?}");
    let driver = errors.iter().filter(|error| error.kind() == ErrorKind::Driver).count();
    if which == "both" {
        // Only the body is ended, once; the rest is left alone for good.
        assert_eq!(driver + reports.len(), 1, "{told}: {errors:?} {reports:?}");
        let all = format!("{errors:?}{reports:?}");
        assert!(all.contains("leaked") && all.contains("cuStreamEndCapture"), "{told}: {all}");
        assert_eq!(parent_stream.capture_status().unwrap(), CaptureStatus::Invalidated, "{told}");
    } else {
        assert!(driver + reports.len() >= 1, "{told}: {errors:?} {reports:?}");
        for stream in [parent_stream, body_stream] {
            assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None, "{told}");
            stream.synchronize().unwrap();
            drop(stream);
        }
        cuirass::drain();
        if which == "body" {
            // The graph went with its body's capture only in part: whoever destroyed it would crash the driver.
            let all = format!("{errors:?}{reports:?}");
            assert!(all.contains("leaked") && all.contains("cuStreamEndCapture"), "{told}: {all}");
        } else {
            assert_eq!(census(), before, "{told}");
        }
    }
}

/// What happens to a good capture after that of a body of it has failed and been ended. Each has a process of its own.
const LATER: [&str; 6] = ["spoilt", "split", "elsewhere", "sibling", "inner", "unjoined"];

fn after_a_body(later: &str) {
    let alone = testkit::alone();
    let mark = testkit::simulator::mark();
    let mode = if later == "elsewhere" { CaptureMode::ThreadLocal } else { CaptureMode::Relaxed };
    let begun = |builder: GraphBuilder| {
        builder.begin_building(mode).unwrap();
        builder
    };
    let parent = begun(device().create_graph_builder().unwrap());
    let inner = |of: &GraphBuilder| of.if_then(&of.create_condition(Some(1)).unwrap()).unwrap();
    let sibling = inner(&parent);
    let middle = (later == "inner").then(|| begun(inner(&parent)));
    let body = begun(inner(middle.as_ref().unwrap_or(&parent)));
    let _forks = (later == "split").then(|| parent.split(2).unwrap());
    if later == "unjoined" {
        let buffer = numbers(16, &stream());
        let forks = body.split(2).unwrap();
        // SAFETY: [test] nothing else uses the buffer.
        unsafe { buffer.fill_unordered(&[7], forks[0].stream()).unwrap() };
        assert_eq!(body.end_building().unwrap_err().code(), Some(904));
    } else {
        assert_eq!(body.stream().synchronize().unwrap_err().code(), Some(900));
        assert_eq!(body.end_building().unwrap_err().code(), Some(901));
    }
    assert!(parent.is_building().unwrap(), "{later}");
    assert_eq!(sibling.begin_building(mode).unwrap_err().kind(), ErrorKind::State);
    assert!(!sibling.definition().unwrap().is_valid());
    if let Some(middle) = middle {
        // Its graph is its node's: the end of its own capture is a good one.
        middle.end_building().unwrap();
        assert!(!middle.definition().unwrap().is_valid());
    }
    let stream = parent.stream().clone();
    let (error, status) = match later {
        "spoilt" => {
            assert_eq!(stream.synchronize().unwrap_err().code(), Some(900));
            (parent.end_building().unwrap_err(), CaptureStatus::Invalidated)
        }
        "split" => (parent.end_building().unwrap_err(), CaptureStatus::Active),
        "elsewhere" => {
            let closed = std::thread::scope(|scope| scope.spawn(|| parent.close()).join()).unwrap();
            (closed.unwrap_err(), CaptureStatus::Active)
        }
        _ => (parent.end_building().unwrap_err(), CaptureStatus::None),
    };
    assert_eq!(error.kind(), ErrorKind::State, "{later}: {error}");
    let text = format!("{error:?}");
    assert!(text.contains("conditional body") && text.contains("leaked"), "{later}: {text}");
    assert_eq!(text.contains("not ended"), status != CaptureStatus::None, "{later}: {text}");
    assert_eq!(stream.capture_status().unwrap(), status, "{later}");
    drop((body, sibling));
    let bugs = testkit::simulator::reports_since(mark);
    assert!(bugs.is_empty() && alone.reports().is_empty(), "{later}: {bugs:?}");
}

#[test]
fn a_capture_whose_body_failed_ends_without_a_graph() {
    const TEST: &str = "a_capture_whose_body_failed_ends_without_a_graph";
    if let Some(case) = case() {
        return after_a_body(&case);
    }
    let _alone = testkit::alone();
    if supported(12030) {
        LATER.iter().for_each(|later| in_fresh_process(TEST, later));
    }
}

#[test]
fn invalidated_bodies_and_parents_end_without_a_crash() {
    const TEST: &str = "invalidated_bodies_and_parents_end_without_a_crash";
    if let Some(case) = case() {
        let (which, order) = case.split_once(' ').unwrap();
        invalidated(which, order);
        return;
    }
    let _alone = testkit::alone();
    if !supported(12030) {
        return;
    }
    for which in ["body", "parent", "both"] {
        for order in ORDERS {
            in_fresh_process(TEST, &format!("{which} {order}"));
        }
    }
}

/// How the capture of a body fails that began after the one that it is part of had ended, and how it is then ended. Each
/// has a process of its own: the graph is leaked.
const LATE: [&str; 8] = [
    "spoilt end",
    "spoilt close",
    "spoilt drop",
    "unjoined end",
    "unjoined close",
    "unjoined drop",
    "elsewhere close",
    "inner end",
];

fn late_body(case: &str) {
    let alone = testkit::alone();
    let (why, how) = case.split_once(' ').unwrap();
    let mark = testkit::simulator::mark();
    let mode = if why == "elsewhere" { CaptureMode::ThreadLocal } else { CaptureMode::Relaxed };
    let parent = device().create_graph_builder().unwrap();
    parent.begin_building(mode).unwrap();
    let inner = |of: &GraphBuilder| of.if_then(&of.create_condition(Some(1)).unwrap()).unwrap();
    let (body, good, sibling) = (inner(&parent), inner(&parent), inner(&parent));
    parent.end_building().unwrap();
    // What was made executable before is another graph of the driver's.
    let early = complete(&parent);
    let numbers = numbers(16, &stream());
    good.begin_building(mode).unwrap();
    launch_add(good.stream(), add(), &numbers, 1).unwrap();
    good.end_building().unwrap();
    let middle = (why == "inner").then(|| {
        body.begin_building(mode).unwrap();
        let within = inner(&body);
        body.end_building().unwrap();
        within
    });
    let body = middle.unwrap_or(body);
    body.begin_building(mode).unwrap();
    let _forks = (why == "unjoined").then(|| {
        let forks = body.split(2).unwrap();
        launch_add(forks[0].stream(), add(), &numbers, 1).unwrap();
        forks
    });
    if why == "spoilt" || why == "inner" {
        assert_eq!(body.stream().synchronize().unwrap_err().code(), Some(900));
    }
    let told = match how {
        "end" => format!("{:?}", body.end_building().unwrap_err()),
        "drop" => {
            drop(body);
            alone.reports().join("; ")
        }
        _ if why == "elsewhere" => {
            let closed = std::thread::scope(|scope| scope.spawn(|| body.close()).join()).unwrap();
            format!("{:?}", closed.unwrap_err())
        }
        _ => format!("{:?}", body.close().unwrap_err()),
    };
    assert!(told.contains("cuStreamEndCapture") && told.contains("leaked"), "{case}: {told}");
    // The graph is there for nobody any more, and nobody destroys it.
    let definition = parent.definition().unwrap();
    assert!(!definition.is_valid() && !good.definition().unwrap().is_valid(), "{case}");
    let other = device().create_graph_builder().unwrap();
    other.begin_building(mode).unwrap();
    let refused = [
        sibling.begin_building(mode).unwrap_err(),
        definition.nodes().unwrap_err(),
        definition.edges().unwrap_err(),
        definition.to_dot().unwrap_err(),
        definition.debug_dot_print("/dev/null".as_ref(), GraphDebugPrintOptions::default()).unwrap_err(),
        parent.complete(&GraphCompleteOptions::default()).unwrap_err(),
        other.embed(&parent).unwrap_err(),
        early.update(&definition).unwrap_err(),
    ];
    for error in refused {
        assert!(error.kind() == ErrorKind::State && error.to_string().contains("conditional body"), "{case}: {error}");
    }
    other.close().unwrap();
    early.launch(&stream()).unwrap();
    stream().synchronize().unwrap();
    early.close().unwrap();
    parent.close().unwrap();
    drop((definition, good, sibling));
    let bugs = testkit::simulator::reports_since(mark);
    assert!(bugs.is_empty() && alone.reports().is_empty(), "{case}: {bugs:?}");
}

#[test]
fn a_body_that_fails_after_the_end_of_its_graph_costs_the_graph() {
    const TEST: &str = "a_body_that_fails_after_the_end_of_its_graph_costs_the_graph";
    if let Some(case) = case() {
        return late_body(&case);
    }
    let _alone = testkit::alone();
    if supported(12030) {
        LATE.iter().for_each(|late| in_fresh_process(TEST, late));
    }
}
