//! Graphs that several threads use at once: what was given to the driver is kept while it may run, and no two threads are
//! in the driver with one graph.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::Stream;
use cuirass::graph::{CaptureMode, Graph, GraphBuilder, GraphDebugPrintOptions};
use cuirass_call::table::{self, CallInfo, Interceptor, Word};
use cuirass_testkit as testkit;
use graph_support::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Holds a thread right behind a call that it has made, until it is told to go on.
struct Behind {
    call: &'static str,
    thread: Mutex<Option<ThreadId>>,
    made: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Interceptor for Behind {
    fn call(&self, call: &'static CallInfo, _arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32 {
        let status = real();
        let held = *self.thread.lock().unwrap() == Some(thread::current().id());
        if held && call.name == self.call {
            self.made.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
        status
    }
}

/// Makes `work` on another thread, which is held behind that call while `meanwhile` runs.
fn held_behind(call: &'static str, work: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    let ((made, is_made), (go_on, told)) = (channel(), channel());
    let behind = Arc::new(Behind { call, thread: Mutex::new(None), made, go_on: Mutex::new(told) });
    let interceptor: Arc<dyn Interceptor> = behind.clone();
    table::add_interceptor(interceptor.clone());
    thread::scope(|scope| {
        scope.spawn(|| {
            device().set_current().unwrap();
            *behind.thread.lock().unwrap() = Some(thread::current().id());
            work();
        });
        is_made.recv_timeout(Duration::from_secs(20)).unwrap();
        meanwhile();
        go_on.send(()).unwrap();
    });
    table::remove_interceptor(&interceptor);
}

/// A builder that has captured a callback, and what says whether that is kept.
fn counting(count: &Arc<AtomicUsize>) -> (GraphBuilder, Weak<()>) {
    let kept = Arc::new(());
    let (weak, count) = (Arc::downgrade(&kept), Arc::clone(count));
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let run = move || {
        let _kept = &kept;
        count.fetch_add(1, Ordering::SeqCst);
    };
    builder.callback(run).unwrap();
    builder.end_building().unwrap();
    (builder, weak)
}

/// Keeps a stream busy until it is opened.
fn gate(stream: &Stream) -> Sender<()> {
    let (open, opened) = channel::<()>();
    let opened = Mutex::new(opened);
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    builder.callback(move || assert!(opened.lock().unwrap().recv_timeout(Duration::from_secs(20)).is_ok())).unwrap();
    builder.end_building().unwrap();
    complete(&builder).launch(stream).unwrap();
    open
}

fn made(builder: GraphBuilder) -> Graph {
    let graph = complete(&builder);
    builder.close().unwrap();
    graph
}

fn an_update_beside_a_launch(make: fn() -> Stream) {
    device().set_current().unwrap();
    let before = census();
    let launched_on = make();
    let (old, new) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ((builder, kept), (other, _)) = (counting(&old), counting(&new));
    let (graph, source) = (made(builder), other.definition().unwrap());
    other.close().unwrap();
    let busy = stream();
    let open = gate(&busy);
    let launch = || {
        launched_on.wait_for_stream(&busy).unwrap();
        graph.launch(&launched_on).unwrap();
        launched_on.synchronize().unwrap();
    };
    held_behind("cuGraphLaunch", launch, || {
        graph.update(&source).unwrap();
        cuirass::drain();
        assert!(kept.upgrade().is_some(), "the launch has not run yet");
        open.send(()).unwrap();
    });
    assert_eq!(old.load(Ordering::SeqCst), 1);
    cuirass::drain();
    assert!(kept.upgrade().is_none(), "nobody needs it any more");
    graph.launch(&busy).unwrap();
    busy.synchronize().unwrap();
    assert_eq!(new.load(Ordering::SeqCst), 1);
    drop((graph, source, busy, launched_on));
    assert_eq!(census(), before);
}

#[test]
fn an_update_knows_of_a_launch_that_another_thread_is_making() {
    let _alone = testkit::alone();
    an_update_beside_a_launch(stream);
}

#[test]
fn an_update_knows_of_a_launch_on_another_threads_default_stream() {
    let _alone = testkit::alone();
    an_update_beside_a_launch(Stream::per_thread_default);
}

#[test]
fn of_two_updates_at_once_the_one_that_the_driver_made_last_is_kept() {
    let _alone = testkit::alone();
    let counts = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let [(builder, _), (first, first_kept), (second, second_kept)] = [0, 1, 2].map(|at: usize| counting(&counts[at]));
    let graph = made(builder);
    let (first, second) = (Mutex::new(Some(first)), Mutex::new(Some(second)));
    let update = |source: &Mutex<Option<GraphBuilder>>| {
        let source = source.lock().unwrap().take().unwrap();
        graph.update(&source.definition().unwrap()).unwrap();
        source.close().unwrap();
    };
    thread::scope(|scope| {
        held_behind(
            "cuGraphExecUpdate_v2",
            || update(&first),
            || {
                let later = scope.spawn(|| {
                    device().set_current().unwrap();
                    update(&second);
                });
                // It may wait for the first one.
                for _ in 0..50 {
                    if later.is_finished() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            },
        );
    });
    cuirass::drain();
    assert!(second_kept.upgrade().is_some() && first_kept.upgrade().is_none());
    let stream = stream();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(counts.map(|count| count.load(Ordering::SeqCst)), [0, 0, 1]);
}

/// Sees whether two threads are in the driver with one of the graphs.
struct Together {
    graphs: [usize; 2],
    inside: [AtomicUsize; 2],
    calls: AtomicUsize,
    met: AtomicUsize,
}

impl Interceptor for Together {
    fn call(&self, call: &'static CallInfo, arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32 {
        // A launch names no graph; what its number is otherwise may be any.
        let names =
            |graph: usize| call.name.starts_with("cuGraph") && arguments.iter().any(|word| word.0 == graph as u64);
        let used = self.graphs.map(names);
        for (used, inside) in used.iter().zip(&self.inside).filter(|(used, _)| **used) {
            self.calls.fetch_add(usize::from(*used), Ordering::SeqCst);
            self.met.fetch_add(usize::from(inside.fetch_add(1, Ordering::SeqCst) > 0), Ordering::SeqCst);
        }
        if used.contains(&true) {
            thread::yield_now();
        }
        let status = real();
        for (_, inside) in used.iter().zip(&self.inside).filter(|(used, _)| **used) {
            inside.fetch_sub(1, Ordering::SeqCst);
        }
        status
    }
}

/// "Graph objects are not threadsafe", says CUDA of each of these calls.
#[test]
fn no_two_threads_are_in_the_driver_with_one_graph() {
    let _alone = testkit::alone();
    let stream = stream();
    let numbers = numbers(16, &stream);
    let capture = || {
        let builder = device().create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        for by in 0..5 {
            launch_add(builder.stream(), add(), &numbers, by).unwrap();
        }
        builder.end_building().unwrap();
        builder
    };
    let (child, parent) = (capture(), device().create_graph_builder().unwrap());
    parent.begin_building(CaptureMode::Relaxed).unwrap();
    let graph = complete(&child);
    let definition = child.definition().unwrap();
    let captured = cuirass_call::graph::builder::stream_get_capture_info(parent.stream().as_raw()).unwrap().graph;
    let together = Arc::new(Together {
        graphs: [definition.as_raw().addr(), captured.addr()],
        inside: [const { AtomicUsize::new(0) }; 2],
        calls: AtomicUsize::new(0),
        met: AtomicUsize::new(0),
    });
    let interceptor: Arc<dyn Interceptor> = together.clone();
    table::add_interceptor(interceptor.clone());
    let path = std::env::temp_dir().join(format!("cuirass-graph-threads-{}.dot", std::process::id()));
    let uses: [&(dyn Fn() + Sync); 8] = [
        &|| assert_eq!(definition.nodes().unwrap().len(), 5),
        &|| assert_eq!(definition.edges().unwrap().len(), 4),
        &|| assert_eq!(definition.to_dot().unwrap().matches(" -> ").count(), 4),
        &|| drop(complete(&child)),
        &|| graph.update(&definition).unwrap(),
        &|| definition.debug_dot_print(&path, GraphDebugPrintOptions::default()).unwrap(),
        &|| parent.embed(&child).unwrap(),
        &|| drop(parent.create_condition(None)),
    ];
    thread::scope(|scope| {
        for user in uses {
            scope.spawn(move || {
                device().set_current().unwrap();
                for _ in 0..50 {
                    user();
                }
            });
        }
    });
    table::remove_interceptor(&interceptor);
    parent.end_building().unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(together.calls.load(Ordering::SeqCst) > 8 * 50);
    assert_eq!(together.met.load(Ordering::SeqCst), 0);
    stream.synchronize().unwrap();
}

/// The time that this takes goes with the number of nodes, not with its square.
#[test]
fn a_large_graph_is_read_at_once() {
    let _alone = testkit::alone();
    let stream = stream();
    let numbers = numbers(16, &stream);
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    for _ in 0..20_000 {
        launch_add(builder.stream(), add(), &numbers, 1).unwrap();
    }
    builder.end_building().unwrap();
    let definition = builder.definition().unwrap();
    let (nodes, start) = (definition.nodes().unwrap(), std::time::Instant::now());
    let edges = definition.edges().unwrap();
    assert_eq!((nodes.len(), edges.len()), (20_000, 19_999));
    let text = definition.to_dot().unwrap();
    assert_eq!(text.matches(" -> ").count(), 19_999);
    assert!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
    stream.synchronize().unwrap();
}
