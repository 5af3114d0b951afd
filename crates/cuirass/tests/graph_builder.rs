//! Graphs by capture: what can be captured, and what comes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::graph::{CaptureMode, GraphCompleteOptions, GraphDebugPrintOptions, NodeKind};
use cuirass::memory::{GraphMemoryResource, LegacyPinnedMemoryResource, MemoryResource};
use cuirass::{
    Buffer, CaptureStatus, Context, ErrorKind, EventOptions, LaunchConfig, Program, ProgramOptions, Stream,
    StreamOptions, launch,
};
use cuirass_call::graph::builder as raw;
use cuirass_testkit as testkit;
use graph_support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn launches_copies_and_fills_are_captured_and_run() {
    let _alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let (a, b) = (numbers(100, &stream), numbers(100, &stream));
        stream.synchronize().unwrap();
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        assert!(builder.is_building().unwrap());
        launch_add(builder.stream(), add(), &a, 3).unwrap();
        launch_add(builder.as_ref(), add(), &a, 4).unwrap();
        b.copy_from(&a, builder.stream()).unwrap();
        a.fill(0, builder.stream()).unwrap();
        builder.end_building().unwrap();
        assert!(!builder.is_building().unwrap());
        assert_eq!(read(&a, &stream), [0; 100], "nothing has run yet");
        let graph = complete(&builder);
        for _ in 0..3 {
            graph.launch(&stream).unwrap();
            assert_eq!((read(&a, &stream), read(&b, &stream)), (vec![0; 100], vec![7; 100]));
        }
        graph.upload(&stream).unwrap();
        graph.close().unwrap();
        builder.close().unwrap();
    }
}

#[test]
fn a_builder_of_a_device_has_its_own_stream() {
    let _alone = testkit::alone();
    drop(device().memory_resource().unwrap());
    let before = census();
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let again = builder.begin_building(CaptureMode::Relaxed).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::State);
    builder.end_building().unwrap();
    assert_eq!(builder.end_building().unwrap_err().kind(), ErrorKind::State);
    assert_eq!(builder.begin_building(CaptureMode::Relaxed).unwrap_err().kind(), ErrorKind::State);
    let definition = builder.definition().unwrap();
    assert_eq!(definition.nodes().unwrap(), []);
    builder.close().unwrap();
    assert_eq!(definition.nodes().unwrap(), [], "it outlives the builder");
    definition.close().unwrap();
    assert_eq!(census(), before);
}

#[test]
fn what_a_graph_refers_to_lives_as_long_as_it_and_its_launches() {
    let alone = testkit::alone();
    let stream = stream();
    let out = numbers(64, &stream);
    stream.synchronize().unwrap();
    let before = census();
    let (graph, other) = {
        let kernel = fresh_add();
        let buffer = numbers(64, &stream);
        stream.synchronize().unwrap();
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        launch_add(builder.stream(), &kernel, &buffer, 5).unwrap();
        out.copy_from(&buffer, builder.stream()).unwrap();
        builder.end_building().unwrap();
        (complete(&builder), complete(&builder))
        // The kernel, its code, the buffer, the builder and the definition go here.
    };
    // Memory of the same size would come from the same place.
    let decoys: Vec<Buffer> = (0..8).map(|_| pool().allocate(256, &stream).unwrap()).collect();
    decoys.iter().for_each(|decoy| decoy.fill(0xff, &stream).unwrap());
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    other.launch(&stream).unwrap();
    assert_eq!(read(&out, &stream), [15; 64]);
    graph.close().unwrap();
    other.launch(&stream).unwrap();
    assert_eq!(read(&out, &stream), [20; 64], "the other one holds it still");
    other.launch(&stream).unwrap();
    other.close().unwrap();
    drop(decoys);
    stream.synchronize().unwrap();
    assert_eq!(read(&out, &stream), [25; 64]);
    assert_eq!(census(), before);
    assert_eq!(cuirass::pending_releases(), 0);
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// Launches that refer to the same things into one capture and another, and into a later one of the same stream.
#[test]
fn each_graph_holds_what_its_own_launches_refer_to() {
    let alone = testkit::alone();
    let [stream, first, second] = [stream(), stream(), stream()];
    let streams = [first, second];
    let before = census();
    let (shared, late) = (numbers(64, &stream), numbers(64, &stream));
    let held = [shared.as_raw(), late.as_raw()];
    let builders: Vec<_> = streams.iter().map(|stream| stream.create_graph_builder().unwrap()).collect();
    builders.iter().for_each(|builder| builder.begin_building(CaptureMode::Relaxed).unwrap());
    for what in 0..4 {
        builders.iter().for_each(|builder| launch_add(builder.stream(), add(), &shared, what).unwrap());
    }
    launch_add(builders[1].stream(), add(), &late, 1).unwrap();
    builders.iter().for_each(|builder| builder.end_building().unwrap());
    let again = streams[0].create_graph_builder().unwrap();
    again.begin_building(CaptureMode::Relaxed).unwrap();
    launch_add(again.stream(), add(), &shared, 1).unwrap();
    launch_add(again.stream(), add(), &late, 1).unwrap();
    again.end_building().unwrap();
    let mut graphs = vec![complete(&again), complete(&builders[1]), complete(&builders[0])];
    builders.into_iter().chain([again]).for_each(|builder| builder.close().unwrap());
    drop((shared, late));
    stream.synchronize().unwrap();
    // Memory of the same size would come from the same place.
    let taken = |count: usize| -> Vec<bool> {
        let decoys: Vec<Buffer> = (0..count).map(|_| pool().allocate(256, &stream).unwrap()).collect();
        held.iter().map(|address| decoys.iter().any(|decoy| decoy.as_raw() == *address)).collect()
    };
    while let Some(graph) = graphs.pop() {
        assert_eq!(taken(64), [false, false], "{} graphs hold the memory still", graphs.len() + 1);
        graph.close().unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(census(), before);
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn what_a_graph_refers_to_waits_for_its_launches() {
    let _alone = testkit::alone();
    let (stream, gate) = (stream(), Arc::new(std::sync::Barrier::new(2)));
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::ThreadLocal).unwrap();
    let (held, opened) = (Counted(dropped.clone()), gate.clone());
    builder
        .callback(move || {
            let _held = &held;
            opened.wait();
        })
        .unwrap();
    builder.end_building().unwrap();
    let graph = complete(&builder);
    builder.close().unwrap();
    graph.launch(&stream).unwrap();
    graph.close().unwrap();
    assert_eq!((dropped.load(Ordering::SeqCst), cuirass::pending_releases()), (0, 1));
    cuirass::drain();
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "the launch is under way");
    gate.wait();
    stream.synchronize().unwrap();
    while cuirass::drain() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

/// A collector takes what it is shown for this share's alone.
#[test]
fn what_a_graph_keeps_is_seen_through_the_only_share_of_it() {
    type See<'a> = &'a mut dyn FnMut(&(dyn std::any::Any + Send + Sync));
    fn seen(look: impl FnOnce(See<'_>)) -> Vec<i32> {
        let mut all = Vec::new();
        look(&mut |object| all.extend(object.downcast_ref::<i32>()));
        all
    }
    let _alone = testkit::alone();
    let stream = stream();
    let inner = stream.create_graph_builder().unwrap();
    assert_eq!(seen(|see| inner.see_kept(see)), [], "it has not begun");
    inner.begin_building(CaptureMode::Relaxed).unwrap();
    let shared = Arc::new(2);
    inner.keep(Arc::new(1)).unwrap();
    inner.keep(shared.clone()).unwrap();
    assert_eq!(seen(|see| inner.see_kept(see)), [1], "the other one is somebody else's, too");
    drop(shared);
    assert_eq!(seen(|see| inner.see_kept(see)), [1, 2]);
    inner.end_building().unwrap();
    assert_eq!(seen(|see| inner.see_kept(see)), [1, 2]);
    let definition = inner.definition().unwrap();
    assert_eq!((seen(|see| inner.see_kept(see)), seen(|see| definition.see_kept(see))), (vec![], vec![]));
    let graph = complete(&inner);
    let outer = device().create_graph_builder().unwrap();
    outer.begin_building(CaptureMode::Relaxed).unwrap();
    outer.keep(Arc::new(3)).unwrap();
    outer.embed(&inner).unwrap();
    inner.close().unwrap();
    definition.close().unwrap();
    assert_eq!((seen(|see| graph.see_kept(see)), seen(|see| outer.see_kept(see))), (vec![], vec![3]));
    let clone = graph.clone();
    graph.close().unwrap();
    clone.close().unwrap();
    assert_eq!(seen(|see| outer.see_kept(see)), [3, 1, 2]);
    let fork = outer.split(2).unwrap();
    assert_eq!(seen(|see| outer.see_kept(see)), [], "the fork has a share of the capture");
    outer.join(fork).unwrap();
    outer.end_building().unwrap();
    let (graph, other) = (complete(&outer), complete(&outer));
    outer.close().unwrap();
    assert_eq!(seen(|see| graph.see_kept(see)), []);
    other.close().unwrap();
    assert_eq!(seen(|see| graph.see_kept(see)), [3, 1, 2]);
    let clone = graph.clone();
    assert_eq!(seen(|see| graph.see_kept(see)), []);
    clone.close().unwrap();
    graph.close().unwrap();
}

#[test]
fn launches_on_default_streams_are_waited_for_too() {
    let _alone = testkit::alone();
    device().set_current().unwrap();
    let before = census();
    let gate = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(());
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let (opened, held) = (gate.clone(), dropped.clone());
    builder
        .callback(move || {
            let _held = &held;
            while opened.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        })
        .unwrap();
    builder.end_building().unwrap();
    let graph = complete(&builder);
    builder.close().unwrap();
    // The default stream of a thread that is gone when the graph is.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device().set_current().unwrap();
            for _ in 0..3 {
                graph.launch(&Stream::per_thread_default()).unwrap();
            }
        });
    });
    graph.launch(&Stream::legacy_default()).unwrap();
    graph.close().unwrap();
    cuirass::drain();
    assert_eq!((Arc::strong_count(&dropped), cuirass::pending_releases()), (2, 1));
    gate.store(1, Ordering::SeqCst);
    device().synchronize().unwrap();
    assert_eq!((cuirass::drain(), Arc::strong_count(&dropped)), (0, 1));
    assert_eq!(census(), before);
}

#[test]
fn host_callbacks_run_each_time_and_their_panics_are_reported() {
    let alone = testkit::alone();
    let stream = stream();
    let count = Arc::new(AtomicUsize::new(0));
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let counter = count.clone();
    builder
        .callback(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    builder.callback(|| panic!("on purpose")).unwrap();
    // One that runs once is none for a graph.
    let once = stream.launch_host_function(|| {}).unwrap_err();
    assert_eq!(once.kind(), ErrorKind::State);
    builder.end_building().unwrap();
    let graph = complete(&builder);
    for _ in 0..3 {
        graph.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    let reports = alone.reports();
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert!(reports.iter().all(|report| report.contains("on purpose")), "{reports:?}");
}

#[test]
fn split_branches_run_and_are_joined() {
    let _alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let buffers: Vec<Buffer> = (0..3).map(|_| numbers(64, &stream)).collect();
        let sum = numbers(64, &stream);
        stream.synchronize().unwrap();
        let before = census();
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        launch_add(builder.stream(), add(), &sum, 1).unwrap();
        let forks = builder.split(3).unwrap();
        assert!(forks.iter().all(|fork| fork.is_join_required()) && !builder.is_join_required());
        for (index, fork) in forks.iter().enumerate() {
            assert!(fork.is_building().unwrap());
            launch_add(fork.stream(), add(), &buffers[index + 1], 10 * (index as i32 + 1)).unwrap();
            assert_eq!(fork.end_building().unwrap_err().kind(), ErrorKind::State);
            assert_eq!(fork.complete(&GraphCompleteOptions::default()).unwrap_err().kind(), ErrorKind::State);
        }
        launch_add(builder.stream(), add(), &buffers[0], 5).unwrap();
        builder.join(forks).unwrap();
        // Safety of another stream's buffers is the join's.
        launch_add(builder.stream(), add(), &sum, 1).unwrap();
        builder.end_building().unwrap();
        let definition = builder.definition().unwrap();
        assert_eq!(definition.nodes().unwrap().len(), 5);
        assert_eq!(definition.edges().unwrap().len(), 6);
        let graph = complete(&builder);
        builder.close().unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!(read(&sum, &stream), [2; 64]);
        assert_eq!(buffers.iter().map(|buffer| read(buffer, &stream)[0]).collect::<Vec<_>>(), [5, 10, 20]);
        definition.close().unwrap();
        graph.close().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(census(), before);
    }
}

#[test]
fn branches_run_at_the_same_time() {
    let _alone = testkit::alone();
    let source = "extern \"C\" __global__ void meet(volatile int* seats, int me) { seats[me] = 1; \
                  for (int i = 0; i < 20000000 && !seats[1 - me]; ++i) {} seats[2 + me] = seats[1 - me]; }";
    let options = ProgramOptions::for_device(device()).unwrap();
    let meet = Program::new(source, &options).unwrap().compile_to_cubin().unwrap().kernel("meet").unwrap();
    let stream = stream();
    let seats = numbers(4, &stream);
    stream.synchronize().unwrap();
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let forks = builder.split(2).unwrap();
    for (me, stream) in [builder.stream(), forks[0].stream()].into_iter().enumerate() {
        let me = me as i32;
        // SAFETY: [test] the kernel uses the four seats.
        unsafe { launch(stream, &LaunchConfig::linear(1, 1), &meet, &[(&seats).into(), (&me).into()]).unwrap() };
    }
    builder.join(forks).unwrap();
    builder.end_building().unwrap();
    let graph = complete(&builder);
    graph.launch(&stream).unwrap();
    let met = read(&seats, &stream);
    // The first to come waits for the other one; one after the other it would wait in vain.
    if testkit::is_simulator() {
        assert_eq!(met, [1; 4]);
    }
}

#[test]
fn a_fork_can_be_split_and_joined_in_turn() {
    let _alone = testkit::alone();
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    assert_eq!(builder.split(1).unwrap_err().kind(), ErrorKind::Value);
    let fork = builder.split(2).unwrap().pop().unwrap();
    let inner = fork.split(2).unwrap();
    fork.join(inner).unwrap();
    builder.join(vec![fork]).unwrap();
    builder.end_building().unwrap();
    builder.close().unwrap();
}

#[test]
fn streams_join_a_capture_by_events_too() {
    let _alone = testkit::alone();
    let (stream, other) = (stream(), stream());
    let (a, b) = (numbers(16, &stream), numbers(16, &other));
    device().synchronize().unwrap();
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    launch_add(builder.stream(), add(), &a, 1).unwrap();
    let forked = stream.record_new(&EventOptions::default()).unwrap();
    other.wait(&forked).unwrap();
    assert_eq!(other.capture_status().unwrap(), CaptureStatus::Active);
    launch_add(&other, add(), &b, 2).unwrap();
    assert_eq!(other.clone().close().unwrap_err().kind(), ErrorKind::State, "it is being captured");
    builder.stream().wait_for_stream(&other).unwrap();
    drop(forked);
    drop(b);
    assert_eq!(cuirass::pending_releases(), 0, "the graph holds it");
    builder.end_building().unwrap();
    let graph = complete(&builder);
    graph.launch(&stream).unwrap();
    assert_eq!(read(&a, &stream), [1; 16]);
}

#[test]
fn memory_of_a_graph_comes_from_a_graph_memory_resource() {
    let _alone = testkit::alone();
    let stream = stream();
    let out = numbers(64, &stream);
    let (pool, memory) = (pool(), GraphMemoryResource::new(device()).unwrap());
    assert_eq!(memory.allocate(64, &stream).unwrap_err().kind(), ErrorKind::State, "it is not being captured");
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    let error = pool.allocate(64, builder.stream()).unwrap_err();
    assert!(error.kind() == ErrorKind::State && error.to_string().contains("GraphMemoryResource"), "{error}");
    let kept = memory.allocate(256, builder.stream()).unwrap();
    let freed = memory.allocate(256, builder.stream()).unwrap();
    let dropped = memory.allocate(256, builder.stream()).unwrap();
    for buffer in [&kept, &freed, &dropped] {
        buffer.fill(1, builder.stream()).unwrap();
    }
    out.copy_from(&kept, builder.stream()).unwrap();
    freed.close().unwrap();
    drop(dropped);
    builder.end_building().unwrap();
    let nodes = builder.definition().unwrap().nodes().unwrap();
    let count = |kind| nodes.iter().filter(|node| node.kind() == kind).count();
    assert_eq!(count(NodeKind::CU_GRAPH_NODE_TYPE_MEM_ALLOC), 3);
    assert_eq!(count(NodeKind::CU_GRAPH_NODE_TYPE_MEM_FREE), 1);
    let graph = builder.complete(&GraphCompleteOptions { auto_free_on_launch: true, ..Default::default() }).unwrap();
    for _ in 0..2 {
        graph.launch(&stream).unwrap();
        assert_eq!(read(&out, &stream), [0x0101_0101; 64]);
    }
    kept.close_on(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn memory_in_another_librarys_capture_belongs_to_its_graph() {
    let alone = testkit::alone();
    let (theirs, pool) = (stream(), pool());
    let before = census();
    raw::stream_begin_capture(theirs.as_raw(), cuirass::raw::CUstreamCaptureMode(0)).unwrap();
    // SAFETY: [test] the stream lives on.
    let borrowed = unsafe { Stream::borrow_raw(theirs.as_raw(), None) };
    let buffer = pool.allocate(64, &borrowed).unwrap();
    buffer.fill(1, &borrowed).unwrap();
    let calls = cuirass::testing::Recording::start();
    drop(buffer);
    assert_eq!(calls.take(), [], "dropping it calls nothing");
    drop(calls);
    let graph = raw::stream_end_capture(theirs.as_raw()).unwrap();
    assert_eq!(cuirass_call::graph::node::get_nodes(graph).unwrap().len(), 2);
    cuirass_call::graph::definition::destroy(graph).unwrap();
    assert_eq!(cuirass::drain(), 0);
    // Outside of the capture it is ordinary memory again.
    pool.allocate(64, &borrowed).unwrap().close().unwrap();
    theirs.synchronize().unwrap();
    assert_eq!(census(), before);
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn a_graph_is_embedded_in_another() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = numbers(64, &stream);
    stream.synchronize().unwrap();
    let child = device().create_graph_builder().unwrap();
    let parent = stream.create_graph_builder().unwrap();
    child.begin_building(CaptureMode::Relaxed).unwrap();
    parent.begin_building(CaptureMode::Relaxed).unwrap();
    launch_add(child.stream(), add(), &buffer, 10).unwrap();
    assert_eq!(parent.embed(&child).unwrap_err().kind(), ErrorKind::State);
    child.end_building().unwrap();
    launch_add(parent.stream(), add(), &buffer, 1).unwrap();
    parent.embed(&child).unwrap();
    launch_add(parent.stream(), add(), &buffer, 1).unwrap();
    child.close().unwrap();
    parent.end_building().unwrap();
    let definition = parent.definition().unwrap();
    assert_eq!((definition.nodes().unwrap().len(), definition.edges().unwrap().len()), (3, 2));
    let graph = complete(&parent);
    graph.launch(&stream).unwrap();
    assert_eq!(read(&buffer, &stream), [12; 64]);
}

#[test]
fn an_executable_graph_is_updated() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = numbers(64, &stream);
    stream.synchronize().unwrap();
    let capture = |by: &[i32]| {
        let builder = device().create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        by.iter().for_each(|by| launch_add(builder.stream(), add(), &buffer, *by).unwrap());
        builder.end_building().unwrap();
        builder
    };
    let first = capture(&[1]);
    let graph = complete(&first);
    graph.launch(&stream).unwrap();
    graph.update(&capture(&[10]).definition().unwrap()).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(read(&buffer, &stream), [11; 64]);
    let error = graph.update(&capture(&[1, 2]).definition().unwrap()).unwrap_err();
    assert_eq!(error.code(), Some(910));
    assert!(error.notes().iter().any(|note| note.contains("CU_GRAPH_EXEC_UPDATE_ERROR_")), "{error}");
    graph.launch(&stream).unwrap();
    assert_eq!(read(&buffer, &stream), [21; 64], "it is as it was");
}

#[test]
fn a_graph_keeps_its_context_and_so_does_one_that_was_updated_from_another() {
    let _alone = testkit::alone();
    drop(device().memory_resource().unwrap());
    let before = census();
    let of = |context: &Context| {
        let stream = Stream::create(context, &StreamOptions::default()).unwrap();
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        builder.callback(|| ()).unwrap();
        builder.end_building().unwrap();
        let definition = builder.definition().unwrap();
        builder.close().unwrap();
        definition
    };
    let (context, other) = (Context::create(device()).unwrap(), Context::create(device()).unwrap());
    let (definition, another) = (of(&context), of(&other));
    let graph = definition.instantiate(&GraphCompleteOptions::default()).unwrap();
    drop((definition, context));
    // Some drivers allow it and some do not: neither may cost the graph its context.
    let updated = graph.update(&another);
    drop((another, other));
    if let Err(error) = updated {
        assert!(error.code().is_some(), "{error}");
    }
    let definition = graph.definition();
    drop(graph);
    assert_eq!(definition.nodes().unwrap().len(), 1);
    drop(definition);
    assert_eq!(census(), before, "and both contexts are gone");
}

#[test]
fn graphs_are_not_launched_into_captures() {
    let _alone = testkit::alone();
    let (stream, inner) = (stream(), device().create_graph_builder().unwrap());
    inner.begin_building(CaptureMode::Relaxed).unwrap();
    inner.end_building().unwrap();
    let graph = complete(&inner);
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let error = graph.launch(builder.stream()).unwrap_err();
    assert!(error.kind() == ErrorKind::State && error.to_string().contains("embed"), "{error}");
    builder.end_building().unwrap();
    builder.close().unwrap();
}

#[test]
fn copies_with_the_host_are_captured_from_page_locked_buffers_only() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = numbers(16, &stream);
    let host = LegacyPinnedMemoryResource.allocate(64, &stream).unwrap();
    stream.synchronize().unwrap();
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    assert_eq!(buffer.copy_from_slice(&[1_i32; 16], &stream).unwrap_err().kind(), ErrorKind::State);
    assert_eq!(buffer.copy_to_slice(&mut [1_i32; 16], &stream).unwrap_err().kind(), ErrorKind::State);
    launch_add(builder.stream(), add(), &buffer, 9).unwrap();
    // SAFETY: [test] the graph holds both, and nothing else uses them.
    unsafe { host.copy_from_unordered(&buffer, builder.stream()).unwrap() };
    builder.end_building().unwrap();
    let graph = complete(&builder);
    drop((buffer, host));
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn pictures() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = numbers(64, &stream);
    stream.synchronize().unwrap();
    let child = device().create_graph_builder().unwrap();
    child.begin_building(CaptureMode::Relaxed).unwrap();
    buffer_fill(&buffer, child.stream());
    child.end_building().unwrap();
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    launch_add(builder.stream(), add(), &buffer, 1).unwrap();
    let forks = builder.split(3).unwrap();
    forks.iter().for_each(|fork| launch_add(fork.stream(), add(), &buffer, 2).unwrap());
    builder.callback(|| {}).unwrap();
    builder.join(forks).unwrap();
    builder.embed(&child).unwrap();
    builder.end_building().unwrap();
    let definition = builder.definition().unwrap();
    let dot = definition.to_dot().unwrap();
    // Drivers before CUDA 12.3 do not tell a kernel's name.
    let kernel = if testkit::driver_version() < 12030 { "label=\"kernel\\n1 x 64\"" } else { "label=\"add\\n1 x 64\"" };
    assert!(
        dot.starts_with("digraph") && dot.contains(kernel) && dot.contains("->") && dot.contains("cluster"),
        "{dot}"
    );
    let svg = definition.to_svg().unwrap();
    assert!(svg.contains("<svg") && svg.contains("host callback"), "{svg}");
    if let Some(path) = std::env::var_os("CUIRASS_TEST_PICTURE") {
        std::fs::write(path, &svg).unwrap();
    }
    let path = std::env::temp_dir().join(format!("cuirass-dot-{}", std::process::id()));
    definition.debug_dot_print(&path, GraphDebugPrintOptions { verbose: true, ..Default::default() }).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("digraph"));
    std::fs::remove_file(path).unwrap();
}

fn buffer_fill(buffer: &Buffer, stream: &Stream) {
    // SAFETY: [test] the graph holds it, and its nodes come one after another.
    unsafe { buffer.fill_unordered(&[1], stream).unwrap() };
}
