//! Nothing that cuirass does on its own disturbs a capture, whoever started it; here raw driver calls did.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions, GraphDefinition};
use cuirass::memory::{
    DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource, MemoryResource,
    SynchronousMemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions,
};
use cuirass::raw::CUstreamCaptureMode;
use cuirass::{
    Buffer, CaptureStatus, Device, ErrorKind, EventOptions, Program, ProgramOptions, Stream, StreamOptions, drain,
    pending_releases,
};
use cuirass_call::graph::{builder, definition, exec};
use cuirass_call::table::{CallInfo, Interceptor, Word, add_interceptor, remove_interceptor};
use cuirass_testkit as testkit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

const MODES: [CUstreamCaptureMode; 3] = [
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

/// Runs `body` while a stream is being captured in each mode, on the same thread or another; the capture must end
/// well.
fn during_captures(body: impl Fn(&Stream) + Sync) {
    for mode in MODES {
        for other_thread in [false, true] {
            let stream = stream();
            builder::stream_begin_capture(stream.as_raw(), mode).unwrap();
            if other_thread {
                std::thread::scope(|scope| scope.spawn(|| body(&stream)).join()).unwrap();
            } else {
                body(&stream);
            }
            assert_eq!(stream.capture_status().unwrap(), CaptureStatus::Active, "mode {}, {other_thread}", mode.0);
            let graph = builder::stream_end_capture(stream.as_raw()).unwrap();
            assert!(!graph.is_null());
            definition::destroy(graph).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(pending_releases(), 0);
        }
    }
}

#[test]
fn releases_of_every_kind_leave_a_capture_alone() {
    let alone = testkit::alone();
    let source = "extern \"C\" __global__ void k() {}";
    during_captures(|captured| {
        let other = stream();
        // What is released is made in a relaxed scope, as the user's own calls in a capture have to be.
        let things = relaxed(|| {
            let pool = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
            let pooled = pool.allocate(256, &other).unwrap();
            let synchronous = SynchronousMemoryResource::new(device()).unwrap().allocate(256, &other).unwrap();
            let pinned = LegacyPinnedMemoryResource.allocate(256, &other).unwrap();
            let code = Program::new(source, &ProgramOptions::for_device(device()).unwrap()).unwrap();
            let kernel = code.compile_to_cubin().unwrap().kernel("k").unwrap();
            let graph = captured_callback(&other);
            let executable = graph.instantiate(&GraphCompleteOptions::default()).unwrap();
            executable.launch(&other).unwrap();
            (pool, pooled, synchronous, pinned, kernel, graph, executable)
        });
        let event = device().create_event(&EventOptions::default()).unwrap();
        drop(things);
        drop(event);
        drop(other);
        assert_eq!(captured.capture_status().unwrap(), CaptureStatus::Active);
    });
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// A graph of one host function.
fn captured_callback(stream: &Stream) -> GraphDefinition {
    let builder = stream.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    builder.callback(|| ()).unwrap();
    builder.end_building().unwrap();
    builder.definition().unwrap()
}

#[test]
fn the_driver_itself_lets_no_executable_graph_end_in_a_capture() {
    let _alone = testkit::alone();
    device().set_current().unwrap();
    for mode in MODES {
        let stream = stream();
        let definition = captured_callback(&stream);
        let executable = exec::instantiate(definition.as_raw(), 0, std::ptr::null_mut()).unwrap();
        builder::stream_begin_capture(stream.as_raw(), mode).unwrap();
        let destroyed = exec::destroy(executable);
        let was = stream.capture_status().unwrap();
        let ended = builder::stream_end_capture(stream.as_raw());
        if mode == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED {
            destroyed.unwrap();
            assert_eq!(was, CaptureStatus::Active);
            definition::destroy(ended.unwrap()).unwrap();
        } else {
            // Whether it is destroyed is not known: it is not tried again.
            assert_eq!(destroyed.map_err(|failure| failure.raise().code()), Err(Some(900)));
            assert_eq!(was, CaptureStatus::Invalidated);
            assert_eq!(ended.map_err(|failure| failure.raise().code()), Err(Some(901)));
        }
        stream.synchronize().unwrap();
    }
}

fn relaxed<T>(body: impl FnOnce() -> T) -> T {
    use cuirass_call::driver::thread_exchange_stream_capture_mode as exchange;
    let previous = exchange(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let result = body();
    exchange(previous).unwrap();
    result
}

#[test]
fn the_default_pool_is_found_without_disturbing_a_capture() {
    let _alone = testkit::alone();
    during_captures(|_captured| {
        device().release_primary_context().unwrap();
        device().memory_resource().unwrap();
    });
}

#[test]
fn memory_of_the_captured_stream_waits_until_the_capture_has_ended() {
    let alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let buffer = device().memory_resource().unwrap().allocate(256, &stream).unwrap();
        builder::stream_begin_capture(stream.as_raw(), mode).unwrap();
        drop(buffer);
        assert_eq!(pending_releases(), 1);
        assert_eq!(drain(), 1, "it waits as long as the capture goes on");
        assert_eq!(stream.capture_status().unwrap(), CaptureStatus::Active);
        definition::destroy(builder::stream_end_capture(stream.as_raw()).unwrap()).unwrap();
        // Any creation, release or synchronisation tries again.
        stream.synchronize().unwrap();
        assert_eq!(pending_releases(), 0);
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn memory_of_the_legacy_stream_waits_while_a_capture_involves_it() {
    let alone = testkit::alone();
    for mode in MODES {
        let blocking = device().create_stream(&StreamOptions { nonblocking: false, priority: None }).unwrap();
        device().set_current().unwrap();
        let buffer = device().memory_resource().unwrap().allocate(256, &Stream::legacy_default()).unwrap();
        builder::stream_begin_capture(blocking.as_raw(), mode).unwrap();
        buffer.close().unwrap();
        assert_eq!(pending_releases(), 1);
        assert_eq!(blocking.capture_status().unwrap(), CaptureStatus::Active);
        definition::destroy(builder::stream_end_capture(blocking.as_raw()).unwrap()).unwrap();
        assert_eq!(drain(), 0);
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// Has another thread begin a capture of a stream in front of one of this thread's calls.
struct Meddler {
    before: usize,
    mine: ThreadId,
    seen: AtomicUsize,
    begin: Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
}

impl Interceptor for Meddler {
    fn call(&self, _call: &'static CallInfo, _arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32 {
        if thread::current().id() == self.mine && self.seen.fetch_add(1, Ordering::Relaxed) == self.before {
            let (begin, begun) = &*self.begin.lock().unwrap();
            begin.send(()).unwrap();
            begun.recv().unwrap();
        }
        real()
    }
}

struct Installed(Arc<dyn Interceptor>);

impl Installed {
    fn new(interceptor: Arc<dyn Interceptor>) -> Installed {
        add_interceptor(interceptor.clone());
        Installed(interceptor)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        remove_interceptor(&self.0);
    }
}

/// Releases something, with a capture of the stream beginning in front of each call in turn.
fn with_a_capture_in_between<T>(what: &str, make: impl Fn(&Stream) -> T, release: impl Fn(T)) {
    for before in 0.. {
        let stream = stream();
        let thing = make(&stream);
        let meddled = thread::scope(|scope| {
            let (begin, to_begin) = mpsc::channel::<()>();
            let (say_begun, begun) = mpsc::channel::<()>();
            let (end, to_end) = mpsc::channel::<()>();
            let captured = &stream;
            let captures = scope.spawn(move || {
                if to_begin.recv().is_err() {
                    return;
                }
                builder::stream_begin_capture(captured.as_raw(), MODES[0]).unwrap();
                say_begun.send(()).unwrap();
                let _ended = to_end.recv();
                assert_eq!(captured.capture_status().unwrap(), CaptureStatus::Active, "{what}, call {before}");
                let graph = builder::stream_end_capture(captured.as_raw()).unwrap();
                assert!(!graph.is_null());
                definition::destroy(graph).unwrap();
            });
            let (mine, seen) = (thread::current().id(), AtomicUsize::new(0));
            let meddler = Arc::new(Meddler { before, mine, seen, begin: Mutex::new((begin, begun)) });
            let installed = Installed::new(meddler.clone());
            release(thing);
            drain();
            let meddled = meddler.seen.load(Ordering::Relaxed) > before;
            drop((installed, meddler));
            if meddled {
                drain();
                end.send(()).unwrap();
            }
            captures.join().unwrap();
            meddled
        });
        stream.synchronize().unwrap();
        // What is freed only now is waited for in turn.
        let soon = Instant::now() + Duration::from_secs(10);
        while drain() > 0 {
            assert!(Instant::now() < soon, "{what}, call {before}");
        }
        if !meddled {
            return;
        }
    }
}

/// Between the question whether a stream is being captured and what is done then, another thread may begin a capture.
#[test]
fn a_capture_that_begins_in_the_middle_of_a_release_goes_well() {
    let alone = testkit::alone();
    let close = |buffer: Buffer| buffer.close().unwrap();
    let pool = device().memory_resource().unwrap();
    with_a_capture_in_between("pooled", |stream| pool.allocate(256, stream).unwrap(), close);
    let resource = VirtualMemoryResource::new(device(), VirtualMemoryResourceOptions::default()).unwrap();
    with_a_capture_in_between("virtual", |stream| resource.allocate(1, stream).unwrap(), close);
    let options = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
    let (shared, own) = (DeviceMemoryResource::create(device(), &options).unwrap(), stream());
    let exported = shared.allocate(64, &own).unwrap();
    own.synchronize().unwrap();
    let (handle, descriptor) = (shared.allocation_handle().unwrap(), exported.ipc_descriptor().unwrap());
    let import = |stream: &Stream| {
        let mapped = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap();
        Buffer::from_ipc_descriptor(&mapped, &descriptor, stream).unwrap()
    };
    with_a_capture_in_between("imported", import, close);
    let launch = |stream: &Stream| {
        let graph = device().create_graph_builder().unwrap();
        graph.begin_building(CaptureMode::Relaxed).unwrap();
        let buffer = pool.allocate(64, &own).unwrap();
        // SAFETY: [test] nothing else uses the buffer.
        unsafe { buffer.fill_unordered(&[1], graph.stream()).unwrap() };
        graph.end_building().unwrap();
        let graph = graph.complete(&GraphCompleteOptions::default()).unwrap();
        graph.launch(stream).unwrap();
        graph
    };
    with_a_capture_in_between("a graph", launch, |graph| graph.close().unwrap());
    drop(exported);
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn a_stream_that_is_being_captured_is_kept_until_the_capture_has_ended() {
    let alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let raw = stream.as_raw();
        builder::stream_begin_capture(raw, mode).unwrap();
        drop(stream);
        let reports = alone.reports();
        let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
        assert!(report.contains("is being captured") && report.contains("releasing a stream"), "{report}");
        assert_eq!(pending_releases(), 1);
        definition::destroy(builder::stream_end_capture(raw).unwrap()).unwrap();
        assert_eq!(drain(), 0);
    }
    let stream = stream();
    let raw = stream.as_raw();
    builder::stream_begin_capture(raw, MODES[0]).unwrap();
    assert_eq!(stream.close().unwrap_err().kind(), ErrorKind::State);
    definition::destroy(builder::stream_end_capture(raw).unwrap()).unwrap();
    assert_eq!(drain(), 0);
}

#[test]
fn what_a_capture_forbids_says_so() {
    let _alone = testkit::alone();
    let (captured, other) = (stream(), stream());
    let pool = device().memory_resource().unwrap();
    builder::stream_begin_capture(captured.as_raw(), MODES[0]).unwrap();
    let error = pool.allocate(256, &other).unwrap_err();
    assert_eq!((error.code(), error.call()), (Some(900), "cuMemAllocFromPoolAsync"));
    assert!(error.notes().iter().any(|note| note.contains("capture in progress forbids this call")), "{error}");
    assert_eq!(captured.capture_status().unwrap(), CaptureStatus::Invalidated);
    assert_eq!(builder::stream_end_capture(captured.as_raw()).unwrap_err().raise().code(), Some(901));
    captured.synchronize().unwrap();
}

#[test]
fn memory_waits_for_an_invalidated_capture_too() {
    let alone = testkit::alone();
    for mode in MODES {
        let stream = stream();
        let pool = device().memory_resource().unwrap();
        let (first, second) = (pool.allocate(256, &stream).unwrap(), pool.allocate(256, &stream).unwrap());
        builder::stream_begin_capture(stream.as_raw(), mode).unwrap();
        drop(first);
        assert!(stream.synchronize().is_err(), "it invalidates the capture");
        second.close().unwrap();
        assert_eq!(drain(), 2);
        assert_eq!(builder::stream_end_capture(stream.as_raw()).unwrap_err().raise().code(), Some(901));
        assert_eq!(drain(), 0);
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}
