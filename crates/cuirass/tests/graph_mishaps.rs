//! Captures that go wrong: each ends in one error or one report, and leaves nothing behind.
//!
//! Each combination of a mode and an illegal call has a process of its own: what an invalidated capture did to the
//! driver's state must not decide about the next.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::graph::{CaptureMode, Graph, GraphBuilder};
use cuirass::memory::{DeviceMemoryResource, DeviceMemoryResourceOptions, MemoryResource, SynchronousMemoryResource};
use cuirass::testing::{Fault, Manner};
use cuirass::{Buffer, CaptureStatus, Error, ErrorKind, Event, EventOptions, Stream, StreamOptions};
use cuirass_call::graph::{builder as raw, exec as raw_exec};
use cuirass_testkit as testkit;
use graph_support::*;
use std::panic::AssertUnwindSafe;

/// What an illegal call may need, made before the capture.
struct Scene {
    captured: Stream,
    other: Stream,
    buffer: Buffer,
    outside: Event,
    inside: Event,
    graph: Graph,
    rival: GraphBuilder,
    rival_event: Event,
    synchronous: SynchronousMemoryResource,
}

impl Scene {
    fn new(blocking: bool) -> Scene {
        let captured = device().create_stream(&StreamOptions { nonblocking: !blocking, priority: None }).unwrap();
        let other = stream();
        let event = || device().create_event(&EventOptions::default()).unwrap();
        let outside = event();
        other.record(&outside).unwrap();
        let empty = device().create_graph_builder().unwrap();
        empty.begin_building(CaptureMode::Relaxed).unwrap();
        empty.end_building().unwrap();
        let graph = complete(&empty);
        empty.close().unwrap();
        let buffer = pool().allocate(256, &captured).unwrap();
        device().synchronize().unwrap();
        Scene {
            captured,
            other,
            buffer,
            outside,
            inside: event(),
            graph,
            rival: device().create_graph_builder().unwrap(),
            rival_event: event(),
            synchronous: SynchronousMemoryResource::new(device()).unwrap(),
        }
    }
}

/// An illegal call: its name, whether relaxed mode forbids it too, and the call.
type Illegal = (&'static str, bool, fn(&Scene) -> Result<(), Error>);

const ILLEGAL: [Illegal; 15] = [
    ("synchronize the context", true, |_| device().synchronize()),
    ("synchronize the stream", true, |scene| scene.captured.synchronize()),
    ("query the stream", true, |scene| scene.captured.is_done().map(drop)),
    ("ask for the stream's id", true, |scene| scene.captured.id().map(drop)),
    ("wait for an event from outside", true, |scene| scene.captured.wait(&scene.outside)),
    ("query a captured event", true, |scene| {
        scene.captured.record(&scene.inside)?;
        scene.inside.is_done().map(drop)
    }),
    ("wait for a captured event", true, |scene| {
        scene.captured.record(&scene.inside)?;
        scene.inside.synchronize()
    }),
    ("launch a graph", true, |scene| {
        raw_exec::launch(scene.graph.as_raw(), scene.captured.as_raw()).map_err(|failure| failure.raise())
    }),
    ("use the legacy default stream", true, |scene| {
        device().set_current()?;
        // SAFETY: [test] nothing else uses the buffer.
        unsafe { scene.buffer.fill_unordered(&[1], &Stream::legacy_default()) }
    }),
    ("merge two captures", true, |scene| {
        scene.rival.begin_building(CaptureMode::Relaxed)?;
        scene.rival.stream().record(&scene.rival_event)?;
        let merged = scene.captured.wait(&scene.rival_event);
        assert_eq!(scene.rival.end_building().unwrap_err().code(), Some(901));
        merged
    }),
    ("end it on a fork", true, |scene| {
        scene.captured.record(&scene.inside)?;
        scene.other.wait(&scene.inside)?;
        raw::stream_end_capture(scene.other.as_raw()).map(drop).map_err(|failure| failure.raise())
    }),
    ("allocate memory", false, |scene| scene.synchronous.allocate(64, &scene.other).map(drop)),
    ("allocate on another stream", false, |scene| pool().allocate(64, &scene.other).map(drop)),
    ("create a pool", false, |_| {
        DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).map(drop)
    }),
    ("synchronize another stream", false, |scene| scene.other.synchronize()),
];

/// What is done with the builder afterwards.
const ORDERS: [&str; 7] =
    ["end close", "close", "drop", "end drop", "end end close", "end end drop", "end begin end close"];

fn mishap(mode: CaptureMode, illegal: &Illegal, order: &str) {
    let alone = testkit::alone();
    let (name, _, call) = illegal;
    let told = format!("{} {name}, {order}", mode.name());
    let scene = Scene::new(*name == "use the legacy default stream");
    let before = census();
    let builder = scene.captured.create_graph_builder().unwrap();
    builder.begin_building(mode).unwrap();
    scene.buffer.fill(1, builder.stream()).unwrap();
    let error = call(&scene).expect_err(&told);
    if error.code() == Some(900) && error.kind() == ErrorKind::Driver {
        let named = |note: &String| note.contains("a graph builder began one") && note.contains(mode.name());
        assert!(error.notes().iter().any(named), "{told}: {error}");
    }
    assert_eq!(scene.captured.capture_status().unwrap(), CaptureStatus::Invalidated, "{told}");
    assert_eq!(builder.is_building().unwrap_err().kind(), ErrorKind::State, "{told}");
    let mut builder = Some(builder);
    let mut raised = Vec::new();
    for step in order.split(' ') {
        let result = match step {
            "end" => builder.as_ref().unwrap().end_building(),
            "begin" => builder.as_ref().unwrap().begin_building(mode),
            "close" => builder.take().unwrap().close(),
            _ => {
                drop(builder.take());
                Ok(())
            }
        };
        if let Err(error) = result {
            match error.kind() {
                ErrorKind::State => {}
                _ => raised.push(error),
            }
        }
    }
    let reports = alone.reports();
    match order {
        "drop" => {
            let [report] = reports.as_slice() else { panic!("{told}: {reports:?}") };
            assert!(report.contains("cuStreamEndCapture") && report.contains("INVALIDATED"), "{told}: {report}");
            assert!(raised.is_empty(), "{told}: {raised:?}");
        }
        _ => {
            let [error] = raised.as_slice() else { panic!("{told}: {raised:?}") };
            assert_eq!((error.code(), error.call()), (Some(901), "cuStreamEndCapture"), "{told}: {error}");
            assert!(reports.is_empty(), "{told}: {reports:?}");
        }
    }
    assert_eq!(scene.captured.capture_status().unwrap(), CaptureStatus::None, "{told}");
    scene.buffer.fill(2, &scene.captured).unwrap();
    scene.captured.synchronize().unwrap();
    assert_eq!(cuirass::pending_releases(), 0, "{told}");
    assert_eq!(census(), before, "{told}");
    // The stream can be captured again.
    let again = scene.captured.create_graph_builder().unwrap();
    again.begin_building(mode).unwrap();
    scene.buffer.fill(3, again.stream()).unwrap();
    again.end_building().unwrap();
    let graph = complete(&again);
    graph.launch(&scene.captured).unwrap();
    assert_eq!(read(&scene.buffer, &scene.captured), [0x0303_0303; 64], "{told}");
}

#[test]
fn an_invalidated_capture_ends_in_one_error_and_leaves_nothing() {
    const TEST: &str = "an_invalidated_capture_ends_in_one_error_and_leaves_nothing";
    if let Some(case) = case() {
        let (mode, illegal) = case.split_once(' ').unwrap();
        let mode = CaptureMode::of_name(mode).unwrap();
        let illegal = ILLEGAL.iter().find(|(name, ..)| *name == illegal).unwrap();
        ORDERS.iter().for_each(|order| mishap(mode, illegal, order));
        return;
    }
    let mut cases = 0;
    for mode in MODES {
        for (name, in_relaxed, _) in ILLEGAL {
            if mode == CaptureMode::Relaxed && !in_relaxed {
                continue;
            }
            in_fresh_process(TEST, &format!("{} {name}", mode.name()));
            cases += ORDERS.len();
        }
    }
    println!("{cases} mishaps, each ended in one error or report");
}

/// A capture, and what is done to it on another thread.
fn on_another_thread<T: Send>(operation: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(operation).join()).unwrap()
}

#[test]
fn only_the_thread_that_began_ends_a_capture_that_is_not_relaxed() {
    let _alone = testkit::alone();
    for mode in MODES {
        let builder = stream().create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        let ended = on_another_thread(|| builder.end_building());
        if mode == CaptureMode::Relaxed {
            ended.unwrap();
        } else {
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::State);
            assert!(builder.is_building().unwrap(), "the capture goes on");
            builder.end_building().unwrap();
        }
        builder.close().unwrap();
    }
}

#[test]
fn a_builder_goes_on_any_thread() {
    let alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let before = census();
        let building = || {
            let builder = stream.create_graph_builder().unwrap();
            builder.begin_building(mode).unwrap();
            builder
        };
        let builder = building();
        on_another_thread(move || builder.close()).unwrap();
        assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None);
        assert_eq!(alone.reports(), Vec::<String>::new());
        let builder = building();
        on_another_thread(move || drop(builder));
        assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None);
        let reports = alone.reports();
        let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
        assert!(report.contains("dropped while it was building"), "{report}");
        stream.synchronize().unwrap();
        assert_eq!(census(), before);
    }
}

#[test]
fn the_stream_is_not_closed_while_it_is_captured() {
    let _alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let before = census();
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        assert_eq!(stream.clone().close().unwrap_err().kind(), ErrorKind::State);
        assert!(builder.is_building().unwrap());
        builder.end_building().unwrap();
        builder.close().unwrap();
        assert_eq!(census(), before);
        // The last share but the builder's own.
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        drop(stream);
        builder.end_building().unwrap();
        builder.close().unwrap();
    }
    assert_eq!(cuirass::pending_releases(), 0);
}

/// Forks with work of their own that are never joined: what is dropped, in which order; `o` is the origin.
#[test]
fn forks_that_are_left_fail_the_capture_once() {
    let alone = testkit::alone();
    for mode in MODES {
        for order in ["a b end", "a end b", "end a b", "a b o", "o a b", "a o b", "a b close", "close a b", "b end a"] {
            let told = format!("{}, {order}", mode.name());
            let origin = stream();
            let buffers: Vec<Buffer> = (0..3).map(|_| numbers(16, &origin)).collect();
            origin.synchronize().unwrap();
            let before = census();
            let builder = origin.create_graph_builder().unwrap();
            builder.begin_building(mode).unwrap();
            let mut forks = builder.split(3).unwrap();
            for (fork, buffer) in forks.iter().zip(&buffers) {
                // SAFETY: [test] nothing else uses the buffer.
                unsafe { buffer.fill_unordered(&[7], fork.stream()).unwrap() };
            }
            let (mut b, mut a, mut builder) = (forks.pop(), forks.pop(), Some(builder));
            let mut errors = Vec::new();
            for step in order.split(' ') {
                match step {
                    "a" => drop(a.take()),
                    "b" => drop(b.take()),
                    "o" => drop(builder.take()),
                    "close" => errors.extend(builder.take().unwrap().close().err()),
                    _ => errors.extend(builder.as_ref().unwrap().end_building().err()),
                }
            }
            drop((a, b));
            let reports = alone.reports();
            if order.contains("end") {
                let [error] = errors.as_slice() else { panic!("{told}: {errors:?}") };
                assert_eq!(error.code(), Some(904), "{told}: {error}");
                assert_eq!(error.notes().is_empty(), order.starts_with("end"), "{told}: {error}");
                assert!(reports.is_empty(), "{told}: {reports:?}");
                builder.take().unwrap().close().unwrap();
            } else if order.contains("close") {
                assert!(errors.is_empty() && reports.is_empty(), "{told}: {errors:?} {reports:?}");
            } else {
                assert_eq!(reports.len(), 1, "{told}: {reports:?}");
            }
            assert_eq!(origin.capture_status().unwrap(), CaptureStatus::None, "{told}");
            origin.synchronize().unwrap();
            assert_eq!(census(), before, "{told}");
        }
    }
}

#[test]
fn a_join_that_fails_partway_closes_the_forks_that_it_did_not_join() {
    let _alone = testkit::alone();
    for mode in MODES {
        for (call, steps) in
            [("cuEventCreate", 3), ("cuEventRecord", 3), ("cuStreamWaitEvent", 3), ("cuEventDestroy", 3)]
        {
            for step in 1..=steps {
                for manner in [Manner::Refused, Manner::Done] {
                    let told = format!("{}, {call} {step} {manner:?}", mode.name());
                    let origin = stream();
                    let buffers: Vec<Buffer> = (0..3).map(|_| numbers(16, &origin)).collect();
                    origin.synchronize().unwrap();
                    let before = census();
                    let builder = origin.create_graph_builder().unwrap();
                    builder.begin_building(mode).unwrap();
                    let forks = builder.split(4).unwrap();
                    for (fork, buffer) in forks.iter().zip(&buffers) {
                        // SAFETY: [test] nothing else uses the buffer.
                        unsafe { buffer.fill_unordered(&[7], fork.stream()).unwrap() };
                    }
                    let fault = Fault::in_call(call).nth(step).manner(manner).inject().unwrap();
                    let error = builder.join(forks).expect_err(&told);
                    assert_eq!((error.code(), fault.count()), (Some(999), 1), "{told}: {error}");
                    drop(fault);
                    assert!(builder.is_building().unwrap(), "{told}: the capture goes on");
                    // Where all were joined after all, the graph is whole.
                    match builder.end_building() {
                        Ok(()) => {}
                        Err(error) => assert_eq!(error.code(), Some(904), "{told}: {error}"),
                    }
                    builder.close().unwrap();
                    origin.synchronize().unwrap();
                    // An event whose making or destruction was answered with an error is nobody's.
                    if !(call == "cuEventDestroy" && manner == Manner::Refused
                        || call == "cuEventCreate" && manner == Manner::Done)
                    {
                        assert_eq!(census(), before, "{told}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_begin_that_fails_leaves_the_stream_as_it_was() {
    let _alone = testkit::alone();
    for mode in MODES {
        for (call, manner) in [
            ("cuStreamBeginCapture", Manner::Refused),
            ("cuStreamBeginCapture", Manner::Done),
            ("cuStreamGetCaptureInfo", Manner::Refused),
            ("cuStreamGetCaptureInfo", Manner::Done),
        ] {
            let stream = stream();
            let before = census();
            let builder = stream.create_graph_builder().unwrap();
            let fault = Fault::in_call(call).manner(manner).inject().unwrap();
            let error = builder.begin_building(mode).unwrap_err();
            assert_eq!((error.code(), fault.count()), (Some(999), 1), "{call} {manner:?}");
            drop(fault);
            assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None, "{call} {manner:?}");
            builder.begin_building(mode).unwrap();
            builder.end_building().unwrap();
            builder.close().unwrap();
            assert_eq!(census(), before, "{call} {manner:?}");
        }
        // Somebody else's capture is left alone.
        let stream = stream();
        raw::stream_begin_capture(stream.as_raw(), cuirass::raw::CUstreamCaptureMode(0)).unwrap();
        let builder = stream.create_graph_builder().unwrap();
        assert_eq!(builder.begin_building(mode).unwrap_err().code(), Some(401));
        assert_eq!(stream.capture_status().unwrap(), CaptureStatus::Active);
        let graph = raw::stream_end_capture(stream.as_raw()).unwrap();
        cuirass_call::graph::definition::destroy(graph).unwrap();
        builder.close().unwrap();
    }
}

#[test]
fn an_end_that_is_refused_ends_the_capture_all_the_same() {
    let _alone = testkit::alone();
    for mode in MODES {
        for call in ["cuStreamEndCapture", "cuStreamGetCaptureInfo"] {
            let stream = stream();
            let before = census();
            let builder = stream.create_graph_builder().unwrap();
            builder.begin_building(mode).unwrap();
            let fault = Fault::in_call(call).inject().unwrap();
            assert_eq!(builder.end_building().unwrap_err().code(), Some(999));
            drop(fault);
            assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None);
            assert_eq!(builder.end_building().unwrap_err().kind(), ErrorKind::State);
            builder.close().unwrap();
            assert_eq!(census(), before);
        }
    }
}

#[test]
fn a_panic_while_building_leaves_the_stream_usable() {
    let alone = testkit::alone();
    let stream = stream();
    let before = census();
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Global).unwrap();
        let _forks = builder.split(2).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(alone.reports().len(), 1);
    assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None);
    stream.synchronize().unwrap();
    assert_eq!(census(), before);
}

#[test]
fn look_ups_and_releases_leave_the_captures_of_builders_alone() {
    const TEST: &str = "look_ups_and_releases_leave_the_captures_of_builders_alone";
    let Some(case) = case() else {
        for mode in MODES {
            for thread in ["same", "other"] {
                in_fresh_process(TEST, &format!("{} {thread}", mode.name()));
            }
        }
        return;
    };
    let alone = testkit::alone();
    let (mode, thread) = case.split_once(' ').unwrap();
    let mode = CaptureMode::of_name(mode).unwrap();
    let (captured, other) = (stream(), stream());
    let doomed = {
        // A pool of its own, so that the default one has not been asked for yet.
        let pool = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
        let (here, there) = (pool.allocate(64, &captured).unwrap(), pool.allocate(64, &other).unwrap());
        let event = device().create_event(&EventOptions::default()).unwrap();
        (here, there, pool, event, stream(), add().clone())
    };
    let builder = captured.create_graph_builder().unwrap();
    builder.begin_building(mode).unwrap();
    let work = move || {
        let pool = device().memory_resource().unwrap();
        assert!(!pool.is_owned());
        drop(doomed);
        cuirass::drain();
    };
    if thread == "other" {
        on_another_thread(work)
    } else {
        work()
    }
    assert!(builder.is_building().unwrap());
    // Explicit actions get the driver's answer, and the note names the mode.
    if mode != CaptureMode::Relaxed {
        let error = pool().allocate(64, &other).unwrap_err();
        assert!(error.notes().iter().any(|note| note.contains(mode.name())), "{error}");
        assert_eq!(builder.end_building().unwrap_err().code(), Some(901));
    } else {
        builder.end_building().unwrap();
    }
    builder.close().unwrap();
    captured.synchronize().unwrap();
    assert_eq!(cuirass::pending_releases(), 0);
    assert_eq!(alone.reports(), Vec::<String>::new());
}
