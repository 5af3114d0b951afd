//! The stream of a builder that was closed, which the next one gets: when it does, when not, and that nothing is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::graph::{CaptureMode, GraphBuilder};
use cuirass::testing::{Fault, Recording};
use cuirass::{CaptureStatus, ErrorKind, Stream};
use cuirass_call::graph::builder as raw;
use cuirass_call::owner::CallbackThread;
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

/// Another library's capture takes in whoever waits for an event in it, without a handle from anybody.
#[test]
fn a_stream_in_another_librarys_capture_is_not_handed_on() {
    let _alone = testkit::alone();
    let before = census_in_a_context();
    for mode in 0..3 {
        let theirs = stream();
        raw::stream_begin_capture(theirs.as_raw(), cuirass::raw::CUstreamCaptureMode(mode)).unwrap();
        let event = device().create_event(&cuirass::EventOptions::default()).unwrap();
        let builder = ended();
        theirs.record(&event).unwrap();
        builder.stream().wait(&event).unwrap();
        assert_eq!(builder.stream().capture_status().unwrap(), CaptureStatus::Active);
        let error = builder.close().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(error.to_string().contains("is destroyed once the capture has ended"), "{error}");
        let next = device().create_graph_builder().unwrap();
        assert_eq!(next.stream().capture_status().unwrap(), CaptureStatus::None);
        next.begin_building(CaptureMode::Relaxed).unwrap();
        next.end_building().unwrap();
        next.close().unwrap();
        // Its branch was not joined, which only whoever captures can do.
        let end = raw::stream_end_capture(theirs.as_raw());
        match end {
            Ok(graph) => cuirass_call::graph::definition::destroy(graph).unwrap(),
            Err(failure) => drop(failure.raise()),
        }
        assert_eq!(cuirass::drain(), 0);
    }
    assert_eq!(census(), before);
}

/// What is on it still would come before the next one's, which might never end.
#[test]
fn a_stream_with_work_left_is_not_handed_on() {
    let _alone = testkit::alone();
    let before = census_in_a_context();
    for when in ["before", "after"] {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let builder = device().create_graph_builder().unwrap();
        let work = |builder: &GraphBuilder| {
            builder.stream().launch_host_function(move || assert!(wait.recv().is_ok())).unwrap();
        };
        let mut work = Some(work);
        if when == "before" {
            work.take().unwrap()(&builder);
        }
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        builder.end_building().unwrap();
        if let Some(work) = work {
            work(&builder);
        }
        // Another capture on this thread is left alone.
        let other = stream();
        raw::stream_begin_capture(other.as_raw(), cuirass::raw::CUstreamCaptureMode(0)).unwrap();
        builder.close().unwrap();
        let graph = raw::stream_end_capture(other.as_raw()).unwrap();
        cuirass_call::graph::definition::destroy(graph).unwrap();
        let next = device().create_graph_builder().unwrap();
        next.stream().synchronize().unwrap();
        go.send(()).unwrap();
        next.close().unwrap();
        device().context().unwrap().synchronize().unwrap();
    }
    assert_eq!(census(), before);
}

/// The error is about the stream of whoever closes, and not about that of a builder that was closed before.
#[test]
fn who_closes_a_builder_answers_for_its_stream_alone() {
    let alone = testkit::alone();
    for call in ["cuStreamIsCapturing", "cuStreamQuery", "cuStreamDestroy_v2"] {
        let (one, two) = (ended(), ended());
        let (kept, closed) = (format!("{:?}", one.stream()), format!("{:?}", two.stream()));
        let handle = |shown: &str| shown.trim_start_matches("Stream(").trim_end_matches(')').to_owned();
        let (kept, closed) = (handle(&kept), handle(&closed));
        one.close().unwrap();
        let fault = Fault::in_call(call).inject().unwrap();
        let error = two.close().unwrap_err().to_string();
        drop(fault);
        assert!(error.contains(&closed) && !error.contains(&kept), "{error}");
        assert_eq!(cuirass::drain(), 0);
        assert_eq!(alone.reports(), Vec::<String>::new());
    }
}

#[test]
fn nothing_is_asked_where_no_call_may_be_made() {
    let _alone = testkit::alone();
    device().release_primary_context().unwrap();
    let before = census();
    let (kept, closed) = (ended(), ended());
    kept.close().unwrap();
    let recording = Recording::start();
    {
        let _callback = CallbackThread::enter();
        closed.close().unwrap();
        device().release_primary_context().unwrap();
    }
    assert_eq!(recording.take(), []);
    drop(recording);
    cuirass::drain();
    assert!(!device().has_primary_context());
    assert_eq!(census(), before);
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// In a process of its own, which has no other threads.
#[test]
fn a_forked_child_gives_up_what_the_parent_keeps() {
    const NAME: &str = "a_forked_child_gives_up_what_the_parent_keeps";
    if case().is_none() {
        return in_fresh_process(NAME, "forks");
    }
    let alone = testkit::alone();
    let (kept, late) = (ended(), ended());
    kept.close().unwrap();
    let device = device();
    // SAFETY: [test] the child makes no driver call, and ends here.
    let child = unsafe { fork() };
    if child == 0 {
        let closed = [late.close(), device.release_primary_context(), device.release_primary_context()];
        let well = closed.iter().all(Result::is_ok) && cuirass::drain() == 0 && alone.reports().is_empty();
        // SAFETY: [test] ends the child.
        unsafe { _exit(i32::from(!well)) }
    }
    let mut status = 0;
    // SAFETY: [test] a place of our own for the child's end.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "what the child gave up failed, or was reported");
    late.close().unwrap();
    device.release_primary_context().unwrap();
}

/// As any release: the driver that shuts down is an answer, what else fails is a release's report.
#[test]
fn what_giving_it_back_meets_is_a_releases_failure() {
    let alone = testkit::alone();
    // A stream that could not be asked about is leaked.
    for call in ["cuCtxGetId", "cuStreamIsCapturing", "cuStreamDestroy_v2"] {
        ended().close().unwrap();
        let fault = Fault::in_call(call).status(4).inject().unwrap();
        cuirass::drain();
        assert_eq!(fault.count(), 1, "{call}");
        assert_eq!(alone.reports(), Vec::<String>::new(), "{call}");
        drop(fault);
        ended().close().unwrap();
        let fault = Fault::in_call(call).status(1).inject().unwrap();
        cuirass::drain();
        drop(fault);
        let reports = alone.reports();
        assert_eq!(reports.len(), 1, "{call}: {reports:?}");
        assert!(
            reports[0].contains("while releasing a stream, which was kept for the next graph builder"),
            "{reports:?}"
        );
    }
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
