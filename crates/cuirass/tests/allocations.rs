//! Nothing is allocated on the hot path: launch, record, wait, query, copy, fill, graph launch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::testing::Recording;
use cuirass::{Argument, Buffer, Device, EventOptions, LaunchConfig, Program, ProgramOptions, StreamOptions, launch};
use cuirass_testkit as testkit;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: [test] every request goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        HELD.with(|held| held.set(held.get() + layout.size().cast_signed()));
        // SAFETY: [test] the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get() - layout.size().cast_signed()));
        // SAFETY: [test] the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_hot_path_allocates_nothing() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let stream = device.create_stream(&StreamOptions::default()).unwrap();
    let event = device.create_event(&EventOptions::default()).unwrap();
    let source = "extern \"C\" __global__ void k(float* x, int n) { if (n < 0) x[0] = 1; }";
    let options = ProgramOptions::for_device(device).unwrap();
    let kernel = Program::new(source, &options).unwrap().compile_to_cubin().unwrap().kernel("k").unwrap();
    let pool = device.memory_resource().unwrap();
    let (a, b) = (pool.allocate(256, &stream).unwrap(), pool.allocate(256, &stream).unwrap());
    let config = LaunchConfig::linear(1, 32);
    let builder = device.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    // SAFETY: [test] the graph holds both.
    unsafe { a.copy_from_unordered(&b, builder.stream()).unwrap() };
    builder.end_building().unwrap();
    let graph = builder.complete(&GraphCompleteOptions::default()).unwrap();
    let once = || {
        let n = 5_i32;
        let arguments: [Argument; 2] = [(&a).into(), (&n).into()];
        // SAFETY: [test] the kernel touches nothing for n = 5.
        unsafe { launch(&stream, &config, &kernel, &arguments).unwrap() };
        stream.record(&event).unwrap();
        stream.wait(&event).unwrap();
        event.is_done().unwrap();
        stream.is_done().unwrap();
        a.copy_from(&b, &stream).unwrap();
        a.fill(0, &stream).unwrap();
        graph.launch(&stream).unwrap();
        device.set_current().unwrap();
        assert_eq!(Device::new(0).unwrap(), device);
    };
    once();
    stream.synchronize().unwrap();
    let before = COUNT.with(Cell::get);
    for _ in 0..100 {
        once();
    }
    let allocated = COUNT.with(Cell::get) - before;
    stream.synchronize().unwrap();
    // The simulated driver lives in a shared object with an allocator of its own, so that what it allocates does not
    // count here.
    assert_eq!(allocated, 0);
}

/// What an operation allocates: how often, and how many bytes it still holds afterwards.
fn allocated<T>(operation: impl FnOnce() -> T) -> (u64, isize, T) {
    let before = (COUNT.with(Cell::get), HELD.with(Cell::get));
    let result = operation();
    (COUNT.with(Cell::get) - before.0, HELD.with(Cell::get) - before.1, result)
}

#[test]
fn a_buffer_costs_at_most_96_bytes() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let stream = device.create_stream(&StreamOptions::default()).unwrap();
    let pool = device.memory_resource().unwrap();
    let count = 20_000;
    let mut buffers = Vec::with_capacity(count);
    let make = |buffers: &mut Vec<Buffer>| buffers.extend((0..count).map(|_| pool.allocate(256, &stream).unwrap()));
    // The first round reserves room for releases that have to wait: pages that nobody touches until one does.
    make(&mut buffers);
    buffers.clear();
    let (_, held, ()) = allocated(|| make(&mut buffers));
    // What it is itself, and what it has on the heap.
    let each = size_of::<cuirass::Buffer>().cast_signed() + held / count.cast_signed();
    assert!(each <= 96, "{each} bytes, {} of them its own", size_of::<cuirass::Buffer>());
    let (_, held, ()) = allocated(|| buffers.clear());
    assert!(held <= 0, "{held} bytes more after the release");
    stream.synchronize().unwrap();
}

#[test]
fn allocating_and_releasing_cost_the_same_however_many_are_alive() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let stream = device.create_stream(&StreamOptions::default()).unwrap();
    let pool = device.memory_resource().unwrap();
    let mut alive: Vec<Buffer> = Vec::with_capacity(100_000);
    let once = || pool.allocate(256, &stream).unwrap();
    let recording = Recording::start();
    // What a thousand of each cost: allocations of the host, bytes that stay, calls of the driver.
    let cost = || {
        recording.take();
        let mut batch = Vec::with_capacity(1000);
        let (created, held, ()) = allocated(|| batch.extend((0..1000).map(|_| once())));
        let calls = recording.take().len();
        let (released, given_back, ()) = allocated(|| batch.clear());
        (created, held, calls, released, given_back, recording.take().len())
    };
    alive.extend((0..10).map(|_| once()));
    // The first thousand make room.
    cost();
    let few = cost();
    alive.extend((0..99_990).map(|_| once()));
    cost();
    let many = cost();
    assert_eq!(few, many);
    stream.synchronize().unwrap();
    // The first half of them and the second.
    recording.take();
    let mut halves = [(0, 0, 0); 2];
    for half in &mut halves {
        let rest = alive.len().saturating_sub(50_000);
        let (count, held, ()) = allocated(|| alive.truncate(rest));
        *half = (count, held, recording.take().len());
    }
    assert_eq!(halves[0], halves[1]);
    stream.synchronize().unwrap();
}

#[test]
fn putting_a_release_off_allocates_nothing() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let (stream, other) = (
        device.create_stream(&StreamOptions::default()).unwrap(),
        device.create_stream(&StreamOptions::default()).unwrap(),
    );
    let pool = device.memory_resource().unwrap();
    // More than there is room for at first: it grew when they were made.
    let buffers: Vec<_> = (0..3000).map(|_| pool.allocate(64, &stream).unwrap()).collect();
    let events: Vec<_> = (0..3000).map(|_| device.create_event(&EventOptions::default()).unwrap()).collect();
    let mode = cuirass_call::sys::cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    cuirass_call::graph::builder::stream_begin_capture(stream.as_raw(), mode).unwrap();
    let before = COUNT.with(Cell::get);
    // The driver's answers, a few for each, are made into texts; and however many wait, each costs the same.
    drop(buffers);
    let each = (COUNT.with(Cell::get) - before) as f64 / 3000.0;
    assert!(each < 50.0, "{each} for each buffer");
    assert_eq!(cuirass::pending_releases(), 3000);
    let graph = cuirass_call::graph::builder::stream_end_capture(stream.as_raw()).unwrap();
    cuirass_call::graph::definition::destroy(graph).unwrap();
    assert_eq!(cuirass::drain(), 0);
    // On a thread of the driver nothing is asked: nothing at all is allocated.
    let (send, receive) = std::sync::mpsc::channel();
    let dropped = move || {
        let before = COUNT.with(Cell::get);
        drop(events);
        send.send(COUNT.with(Cell::get) - before).unwrap();
    };
    other.launch_host_function(dropped).unwrap();
    assert_eq!(receive.recv().unwrap(), 0);
    assert_eq!(cuirass::pending_releases(), 3000);
    other.synchronize().unwrap();
    assert_eq!(cuirass::drain(), 0);
}
