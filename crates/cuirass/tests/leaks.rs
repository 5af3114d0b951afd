//! What only Rust can create and release leaves nothing behind: bytes of the heap, counted by the allocator, and objects
//! of the driver. `python/tests/leaks.py` does the same for what both languages have.
//!
//! 500 cycles of each kind; 100,000 with `CUIRASS_SOAK`, fewer of what is slow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, Graph, GraphCompleteOptions};
use cuirass::memory::{
    Buffer, DeviceMemoryResource, DeviceMemoryResourceOptions, GraphMemoryResource, MemoryResource, PinnedMemory,
    SynchronousMemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions,
};
use cuirass::testing::{Fault, Recording};
use cuirass::{Device, EventOptions, LaunchConfig, Program, ProgramOptions, Stream, StreamOptions, launch};
use cuirass_testkit as testkit;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex};

struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);

// SAFETY: [test] every request goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: [test] the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: [test] the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

// The simulated driver lives in a shared object with an allocator of its own: what it allocates does not count here.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the cycles use.
struct Place {
    device: Device,
    stream: Stream,
    buffer: Buffer,
}

impl Place {
    fn new() -> Place {
        let device = Device::new(0).unwrap();
        let stream = device.create_stream(&StreamOptions::default()).unwrap();
        let buffer = device.memory_resource().unwrap().allocate(4096, &stream).unwrap();
        buffer.fill(0, &stream).unwrap();
        Place { device, stream, buffer }
    }

    fn graph(&self) -> Graph {
        let builder = self.device.create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        // SAFETY: [test] nothing else uses the buffer meanwhile.
        unsafe { self.buffer.fill_unordered(&[1], builder.stream()).unwrap() };
        builder.end_building().unwrap();
        builder.complete(&GraphCompleteOptions::default()).unwrap()
    }
}

/// What cycles leave: bytes, and what the driver has before and after.
type Left = (isize, Option<String>, Option<String>);

#[track_caller]
fn leaves_nothing(fewer: usize, ways: &[&dyn Fn(&Place)]) {
    assert_eq!(left_by(fewer, ways), None);
}

/// Runs cycles of each of the ways in turn, and compares what is held before and after.
fn left_by(fewer: usize, ways: &[&dyn Fn(&Place)]) -> Option<Left> {
    let alone = testkit::alone();
    let cycles = if std::env::var_os("CUIRASS_SOAK").is_some() { 100_000 } else { 500 };
    let place = Place::new();
    let settled = || {
        place.stream.synchronize().unwrap();
        assert_eq!(cuirass::drain(), 0);
        assert_eq!(alone.reports(), Vec::<String>::new());
        (HELD.load(Ordering::Relaxed), testkit::census())
    };
    let turn = |cycles: usize| (0..cycles).for_each(|cycle| ways[cycle % ways.len()](&place));
    // What is made once, and tables that grow with what is under way.
    turn(64.max(ways.len() * 2));
    // What grew is measured again: a leak is there each time, and what other threads of the test program allocate is
    // not, nor are tables that grow with what is under way.
    let mut left = None;
    for _attempt in 0..4 {
        let before = settled();
        turn((cycles / fewer).max(ways.len() * 8));
        let after = settled();
        let grown = after.0 - before.0;
        // Not one byte in two of 500 cycles.
        if grown < 1024 && after.1 == before.1 {
            return None;
        }
        left = Some((grown, before.1, after.1));
    }
    left
}

#[test]
fn transfers_and_page_locked_memory() {
    let copy_in = |place: &Place| {
        let memory = Arc::new(PinnedMemory::<u32>::from_slice(&[7; 64]).unwrap());
        place.buffer.copy_from_pinned(memory, &place.stream).unwrap()
    };
    let copy_out = |place: &Place| {
        let memory = PinnedMemory::<u32>::zeroed(64).unwrap();
        place.buffer.copy_to_pinned(memory, &place.stream).unwrap()
    };
    leaves_nothing(
        4,
        &[
            &|place| drop(copy_in(place).wait().unwrap()),
            &|place| drop(copy_in(place)),
            &|place| assert_eq!(copy_out(place).wait().unwrap().as_slice().len(), 64),
            &|place| drop(copy_out(place)),
            &|place| {
                let refused = place.buffer.copy_to_pinned(PinnedMemory::<u32>::zeroed(4096).unwrap(), &place.stream);
                assert!(refused.is_err());
            },
            &|_place| PinnedMemory::<u64>::zeroed(8).unwrap().close().unwrap(),
        ],
    );
}

#[test]
fn slices_and_host_functions() {
    leaves_nothing(
        4,
        &[
            &|place| place.buffer.copy_from_slice(&[1_u32; 16], &place.stream).unwrap(),
            &|place| place.buffer.copy_to_slice(&mut [0_u32; 16], &place.stream).unwrap(),
            &|place| {
                let held = Box::new([1_u8; 100]);
                place.stream.launch_host_function(move || assert_eq!(held.len(), 100)).unwrap();
            },
            &|place| {
                // What a closure drops on the driver's thread is put off.
                let event = place.device.create_event(&EventOptions::default()).unwrap();
                place.stream.launch_host_function(move || drop(event)).unwrap();
                place.stream.synchronize().unwrap();
            },
        ],
    );
}

/// A resource of a user's, over a pool.
struct Mine {
    pool: DeviceMemoryResource,
    held: Mutex<BTreeMap<u64, Buffer>>,
}

struct Shared(Arc<Mine>);

impl MemoryResource for Shared {
    fn allocate(&self, bytes: usize, stream: &Stream) -> cuirass::Result<Buffer> {
        let inner = self.0.pool.allocate(bytes, stream)?;
        let address = inner.as_raw();
        self.0.held.lock().unwrap().insert(address, inner);
        // SAFETY: [test] the memory is kept until it is given back.
        Ok(unsafe { Buffer::from_resource(address, bytes, Arc::new(Shared(Arc::clone(&self.0))), stream) })
    }

    fn deallocate(&self, address: u64, _bytes: usize, stream: &Stream) -> cuirass::Result<()> {
        let inner = self.0.held.lock().unwrap().remove(&address).unwrap();
        inner.close_on(stream)
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        false
    }

    fn device(&self) -> Option<Device> {
        self.0.pool.device()
    }
}

#[test]
fn buffers_of_every_resource() {
    let own = |place: &Place| {
        let options = DeviceMemoryResourceOptions::default();
        DeviceMemoryResource::create(place.device, &options).unwrap()
    };
    leaves_nothing(
        10,
        &[
            &|place| place.device.memory_resource().unwrap().allocate(256, &place.stream).unwrap().close().unwrap(),
            &|place| drop(SynchronousMemoryResource::new(place.device).unwrap().allocate(256, &place.stream).unwrap()),
            &|place| drop(own(place).allocate(64, &place.stream).unwrap()),
            &|place| {
                let resource = Shared(Arc::new(Mine { pool: own(place), held: Mutex::default() }));
                drop(resource.allocate(64, &place.stream).unwrap());
            },
            &|place| {
                let options = VirtualMemoryResourceOptions::default();
                let resource = VirtualMemoryResource::new(place.device, options).unwrap();
                drop(resource.allocate(1, &place.stream).unwrap());
            },
            // SAFETY: [test] the memory outlives the buffer.
            &|place| drop(unsafe { Buffer::borrow_raw(place.buffer.as_raw(), 64, Some(Arc::new(vec![1_u8; 64]))) }),
        ],
    );
}

#[test]
fn captures_and_graphs() {
    let memory = |place: &Place| {
        let resource = GraphMemoryResource::new(place.device).unwrap();
        let builder = place.device.create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::ThreadLocal).unwrap();
        let buffer = resource.allocate(256, builder.stream()).unwrap();
        buffer.fill(1, builder.stream()).unwrap();
        buffer.close_on(builder.stream()).unwrap();
        builder.end_building().unwrap();
        builder
    };
    leaves_nothing(
        10,
        &[
            &|place| place.graph().launch(&place.stream).unwrap(),
            &|place| {
                let builder = memory(place);
                let graph = builder.complete(&GraphCompleteOptions::default()).unwrap();
                graph.launch(&place.stream).unwrap();
                builder.close().unwrap();
                graph.close().unwrap();
            },
            &|place| {
                let builder = place.device.create_graph_builder().unwrap();
                builder.begin_building(CaptureMode::Relaxed).unwrap();
                let held = Box::new([1_u8; 100]);
                builder.callback(move || assert_eq!(held.len(), 100)).unwrap();
                let forks = builder.split(3).unwrap();
                builder.join(forks).unwrap();
                builder.end_building().unwrap();
                builder.complete(&GraphCompleteOptions::default()).unwrap().launch(&place.stream).unwrap();
            },
            &|place| {
                let builder = place.device.create_graph_builder().unwrap();
                builder.begin_building(CaptureMode::Relaxed).unwrap();
                assert!(builder.stream().synchronize().is_err());
                assert!(builder.end_building().is_err());
            },
            &|place| {
                let builder = place.device.create_graph_builder().unwrap();
                builder.begin_building(CaptureMode::Relaxed).unwrap();
                builder.close().unwrap();
            },
        ],
    );
}

#[test]
fn code_and_kernels() {
    testkit::choose();
    let device = Device::new(0).unwrap();
    let source = "extern \"C\" __global__ void k(int n) {}";
    let code = Program::new(source, &ProgramOptions::for_device(device).unwrap()).unwrap().compile_to_cubin().unwrap();
    leaves_nothing(
        10,
        &[
            &|place| {
                let kernel = code.kernel("k").unwrap();
                // SAFETY: [test] the kernel does nothing.
                unsafe { launch(&place.stream, &LaunchConfig::linear(1, 1), &kernel, &[(&1_i32).into()]).unwrap() };
            },
            &|_place| assert!(code.kernel("nothing like it").is_err()),
        ],
    );
}

#[test]
fn what_leaks_is_found() {
    let eight_bytes = |_place: &Place| _ = Box::leak(Box::new(1_u64));
    let (bytes, before, after) = left_by(1, &[&eight_bytes]).unwrap();
    assert!(bytes >= 4000 && before == after, "{bytes}");
    let event = |place: &Place| _ = Box::leak(Box::new(place.device.create_event(&EventOptions::default()).unwrap()));
    let (_, before, after) = left_by(1, &[&event, &|_place| {}]).unwrap();
    assert_eq!(before != after, testkit::is_simulator());
}

/// How often a call was made.
fn made(recording: &Recording, call: &str) -> usize {
    recording.take().iter().filter(|record| record.call == call).count()
}

#[test]
fn a_graph_lets_go_of_streams_that_it_was_launched_on() {
    let _alone = testkit::alone();
    let place = Place::new();
    let graph = place.graph();
    let recording = Recording::start();
    for _ in 0..100 {
        let stream = place.device.create_stream(&StreamOptions::default()).unwrap();
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        stream.close().unwrap();
    }
    // It keeps a few, and looks when there are eight.
    let ended = made(&recording, "cuStreamDestroy_v2");
    assert!((90..=100).contains(&ended), "{ended}");
    // One that somebody has is no matter of the graph's.
    let held: Vec<Stream> = (0..40).map(|_| place.device.create_stream(&StreamOptions::default()).unwrap()).collect();
    held.iter().for_each(|stream| graph.launch(stream).unwrap());
    held.iter().for_each(|stream| stream.synchronize().unwrap());
    assert!(made(&recording, "cuStreamDestroy_v2") <= 10);
    drop(held);
    graph.close().unwrap();
    assert!(made(&recording, "cuStreamDestroy_v2") >= 40);
}

#[test]
fn a_graph_lets_go_of_threads_that_it_was_launched_by() {
    let _alone = testkit::alone();
    let place = Place::new();
    let graph = place.graph();
    let recording = Recording::start();
    for _ in 0..50 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                place.device.set_current().unwrap();
                graph.launch(&Stream::per_thread_default()).unwrap();
                Stream::per_thread_default().synchronize().unwrap();
            });
        });
    }
    let ended = made(&recording, "cuEventDestroy_v2");
    assert!((40..=50).contains(&ended), "{ended}");
    graph.close().unwrap();
    assert_eq!(made(&recording, "cuEventDestroy_v2"), 50 - ended);
}

#[test]
fn what_is_under_way_is_not_let_go_of() {
    let alone = testkit::alone();
    let place = Place::new();
    let graph = place.graph();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let waits = place.device.create_stream(&StreamOptions::default()).unwrap();
    waits.launch_host_function(move || receive.recv().unwrap()).unwrap();
    graph.launch(&waits).unwrap();
    let recording = Recording::start();
    // Nobody but the graph has it now.
    waits.close().unwrap();
    let launched_elsewhere = |count: usize| {
        for _ in 0..count {
            let stream = place.device.create_stream(&StreamOptions::default()).unwrap();
            stream.wait(&place.stream.record_new(&EventOptions::default()).unwrap()).unwrap();
            graph.launch(&stream).unwrap();
        }
    };
    launched_elsewhere(20);
    // Launches of one graph follow each other: none of them is done.
    assert_eq!(made(&recording, "cuStreamDestroy_v2"), 0);
    send.send(()).unwrap();
    place.device.synchronize().unwrap();
    // Where it cannot be told whether they are done, the launch has worked all the same, and they stay.
    let fault = Fault::in_call("cuStreamQuery").times(u64::MAX).status(999).inject().unwrap();
    launched_elsewhere(11);
    assert_eq!((fault.count(), made(&recording, "cuStreamDestroy_v2")), (1, 0));
    drop(fault);
    let reports = alone.reports();
    assert!(
        reports.len() == 1 && reports[0].contains("cuStreamQuery") && reports[0].contains("is done"),
        "{reports:?}"
    );
    place.device.synchronize().unwrap();
    launched_elsewhere(40);
    assert!(made(&recording, "cuStreamDestroy_v2") > 30);
    place.device.synchronize().unwrap();
}

#[test]
fn many_releases_that_waited_need_no_more_stack_than_one() {
    let _alone = testkit::alone();
    let place = Place::new();
    let pool = place.device.memory_resource().unwrap();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    place.stream.launch_host_function(move || receive.recv().unwrap()).unwrap();
    // A real driver's queue is full at 1,024, and the next launch would wait for ever.
    let waiting = 900;
    for _ in 0..waiting {
        let mine = pool.allocate(64, &place.stream).unwrap();
        let builder = place.device.create_graph_builder().unwrap();
        builder.begin_building(CaptureMode::Relaxed).unwrap();
        // SAFETY: [test] nothing else uses the buffer.
        unsafe { mine.fill_unordered(&[1], builder.stream()).unwrap() };
        builder.end_building().unwrap();
        // What the graph refers to is its own then: it waits for the launch, and its release tries what else waits.
        builder.complete(&GraphCompleteOptions::default()).unwrap().launch(&place.stream).unwrap();
    }
    assert_eq!(cuirass::pending_releases(), waiting);
    send.send(()).unwrap();
    place.stream.synchronize().unwrap();
    let drained = std::thread::Builder::new().stack_size(512 << 10).spawn(cuirass::drain).unwrap();
    assert_eq!(drained.join().unwrap(), 0);
}
