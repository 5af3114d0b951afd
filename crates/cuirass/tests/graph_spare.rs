//! The stream of a builder that was closed, which the next one gets: when it does, when not, and that nothing is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::graph::{CaptureMode, GraphBuilder};
use cuirass::testing::Recording;
use cuirass::{CaptureStatus, Stream};
use cuirass_testkit as testkit;
use graph_support::*;

/// How many streams were made and destroyed.
fn streams(recording: &Recording) -> (usize, usize) {
    let calls = recording.take();
    let count = |name: &str| calls.iter().filter(|made| made.call.starts_with(name)).count();
    (count("cuStreamCreate"), count("cuStreamDestroy"))
}

fn census_in_a_context() -> Option<String> {
    device().memory_resource().unwrap();
    census()
}

/// A builder that has captured the record of an event.
fn ended() -> GraphBuilder {
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    record_an_event(builder.stream());
    builder.end_building().unwrap();
    builder
}

fn record_an_event(stream: &Stream) {
    let event = device().create_event(&cuirass::EventOptions::default()).unwrap();
    stream.record(&event).unwrap();
}

#[test]
fn the_next_builder_has_the_stream_of_the_last() {
    let _alone = testkit::alone();
    add();
    let before = census_in_a_context();
    let recording = Recording::start();
    for (round, mode) in MODES.into_iter().enumerate() {
        let stream = stream();
        let buffer = numbers(16, &stream);
        stream.synchronize().unwrap();
        recording.take();
        let builder = device().create_graph_builder().unwrap();
        assert_eq!(builder.stream().capture_status().unwrap(), CaptureStatus::None);
        builder.begin_building(mode).unwrap();
        launch_add(builder.stream(), add(), &buffer, 3).unwrap();
        builder.end_building().unwrap();
        let graph = complete(&builder);
        builder.close().unwrap();
        assert_eq!(streams(&recording), (usize::from(round == 0), 0), "round {round}");
        graph.launch(&stream).unwrap();
        assert_eq!(read(&buffer, &stream), [3; 16]);
        graph.close().unwrap();
    }
    cuirass::drain();
    // The last round's own stream, and the one that was kept.
    assert_eq!(streams(&recording), (0, 2));
    assert_eq!(census(), before);
}

#[test]
fn one_is_kept() {
    let _alone = testkit::alone();
    let before = census_in_a_context();
    let recording = Recording::start();
    let (one, two) = (ended(), ended());
    one.close().unwrap();
    two.close().unwrap();
    assert_eq!(streams(&recording), (2, 1));
    cuirass::drain();
    assert_eq!(streams(&recording), (0, 1));
    cuirass::drain();
    assert_eq!(streams(&recording), (0, 0));
    assert_eq!(census(), before);
}

#[test]
fn a_stream_that_anybody_else_can_know_is_not_handed_on() {
    let _alone = testkit::alone();
    let before = census_in_a_context();
    let recording = Recording::start();
    let closed = |what: &str, builder: GraphBuilder| {
        recording.take();
        builder.close().unwrap();
        assert_eq!(streams(&recording), (0, 1), "{what}");
        let next = device().create_graph_builder().unwrap();
        assert_eq!(streams(&recording), (1, 0), "{what}");
        next.close().unwrap();
    };
    let builder = ended();
    assert!(!builder.stream().as_raw().is_null());
    closed("its handle was given out", builder);
    let builder = ended();
    builder.stream().id().unwrap();
    closed("its number was given out", builder);
    closed("it never built", device().create_graph_builder().unwrap());
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    closed("it was still building", builder);

    // A share of the stream, whoever has it, keeps it as it is.
    let builder = ended();
    let share = builder.stream().clone();
    builder.close().unwrap();
    let next = device().create_graph_builder().unwrap();
    assert_ne!(next.stream(), &share);
    share.close().unwrap();
    next.close().unwrap();
    recording.take();
    assert_eq!(census(), before);
}

#[test]
fn a_spoilt_capture_gives_its_stream_back() {
    let _alone = testkit::alone();
    let before = census_in_a_context();
    let recording = Recording::start();
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    assert!(builder.stream().synchronize().is_err());
    assert!(builder.end_building().is_err());
    recording.take();
    builder.close().unwrap();
    assert_eq!(streams(&recording), (0, 1));
    assert_eq!(census(), before);
}

#[test]
fn it_goes_with_the_devices_share_of_the_context() {
    let _alone = testkit::alone();
    let recording = Recording::start();
    ended().close().unwrap();
    recording.take();
    device().release_primary_context().unwrap();
    assert_eq!(streams(&recording), (0, 1));
    // A builder that outlives that share keeps nothing for those that come after.
    let builder = ended();
    device().release_primary_context().unwrap();
    recording.take();
    builder.close().unwrap();
    assert_eq!(streams(&recording), (0, 1));
    assert!(!device().has_primary_context());
}

#[test]
fn many_threads_build_at_once() {
    let _alone = testkit::alone();
    let before = census_in_a_context();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let builder = ended();
                    complete(&builder).close().unwrap();
                    builder.close().unwrap();
                }
            });
        }
    });
    assert_eq!(census(), before);
}
