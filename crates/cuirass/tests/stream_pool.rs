//! Memory whose stream has its pool: the pool that it names, and where it goes back, whatever becomes of the two.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::memory::{DeviceMemoryResource, DeviceMemoryResourceOptions, PinnedMemoryResource};
use cuirass::testing::Recording;
use cuirass::{Buffer, Context, Device, ErrorKind, MemoryResource, Stream, StreamOptions};
use cuirass_testkit as testkit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn default_pool() -> DeviceMemoryResource {
    device().memory_resource().unwrap()
}

/// A second pool of the driver's own, where it has one.
fn host_pool() -> Option<PinnedMemoryResource> {
    match PinnedMemoryResource::current() {
        Ok(pool) => Some(pool),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            None
        }
    }
}

fn census() -> Option<String> {
    cuirass::drain();
    testkit::census()
}

/// The stream that the one free which is recorded was made on, and that of the memory itself.
fn freed_on(recording: &Recording) -> Vec<(u64, u64)> {
    let calls = recording.take().into_iter().filter(|made| made.call == "cuMemFreeAsync");
    calls.map(|made| (made.arguments[0], made.arguments[1])).collect()
}

fn pool_of(buffer: &Buffer) -> u64 {
    buffer.pool().unwrap().as_raw().addr() as u64
}

#[test]
fn each_buffer_names_its_own_pool() {
    let _alone = testkit::alone();
    let own = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
    let (stream, default) = (stream(), default_pool());
    for _ in 0..3 {
        // The first one's is the stream's.
        let buffers = [default.allocate(64, &stream).unwrap(), own.allocate(64, &stream).unwrap()];
        assert_eq!(buffers.each_ref().map(pool_of), [&default, &own].map(|pool| pool.as_raw().addr() as u64));
        assert_eq!(buffers.each_ref().map(Buffer::device), [Some(device()); 2]);
    }
    let Some(host) = host_pool() else { return };
    for first in [true, false] {
        let stream = device().create_stream(&StreamOptions::default()).unwrap();
        let _first: Box<dyn std::any::Any> = match first {
            true => Box::new(host.allocate(64, &stream).unwrap()),
            false => Box::new(default.allocate(64, &stream).unwrap()),
        };
        let buffers = [host.allocate(64, &stream).unwrap(), default.allocate(64, &stream).unwrap()];
        assert_eq!(buffers.each_ref().map(pool_of), [host.as_raw(), default.as_raw()].map(|pool| pool.addr() as u64));
        assert_eq!(buffers.each_ref().map(Buffer::is_host_accessible), [true, false]);
        assert_eq!(buffers.each_ref().map(Buffer::device), [None, Some(device())]);
    }
}

#[test]
fn memory_that_changes_its_stream_keeps_its_pool() {
    let _alone = testkit::alone();
    let default = default_pool();
    let before = census();
    let recording = Recording::start();
    let (one, two) = (stream(), stream());
    // The second stream has another pool.
    let host = host_pool();
    drop(host.as_ref().map(|host| host.allocate(64, &two).unwrap()));
    let buffer = default.allocate(64, &one).unwrap();
    let address = buffer.as_raw();
    for target in [&two, &one, &two] {
        buffer.set_deallocation_stream(target).unwrap();
        assert_eq!(pool_of(&buffer), default.as_raw().addr() as u64);
        assert!(!buffer.is_host_accessible());
    }
    drop(one);
    assert_eq!(pool_of(&buffer), default.as_raw().addr() as u64);
    recording.take();
    buffer.close().unwrap();
    assert_eq!(freed_on(&recording), [(address, two.as_raw().addr() as u64)]);

    let closed_on = default.allocate(64, &two).unwrap();
    let (address, one) = (closed_on.as_raw(), stream());
    closed_on.close_on(&one).unwrap();
    assert_eq!(freed_on(&recording), [(address, one.as_raw().addr() as u64)]);
    let on_default = default.allocate(64, &one).unwrap();
    on_default.set_deallocation_stream(&Stream::legacy_default()).unwrap();
    assert_eq!(pool_of(&on_default), default.as_raw().addr() as u64);
    on_default.close().unwrap();
    drop((one, two));
    assert_eq!(census(), before);
}

#[test]
fn memory_outlives_the_stream_and_the_resource_that_it_was_asked_of() {
    let _alone = testkit::alone();
    let default = default_pool();
    let before = census();
    let stream = stream();
    let buffers: Vec<Buffer> = (0..300).map(|_| default.allocate(64, &stream).unwrap()).collect();
    drop((stream, default));
    for (at, buffer) in buffers.into_iter().enumerate() {
        if at % 2 == 0 { buffer.close().unwrap() } else { drop(buffer) }
    }
    assert_eq!(census(), before);
}

#[test]
fn a_stream_keeps_no_context_alive_that_is_not_its_own() {
    let _alone = testkit::alone();
    let context = Context::create(device()).unwrap();
    let stream = Stream::create(&context, &StreamOptions::default()).unwrap();
    let buffer = default_pool().allocate(64, &stream).unwrap();
    assert_eq!(pool_of(&buffer), default_pool().as_raw().addr() as u64);
    buffer.close().unwrap();
    device().release_primary_context().unwrap();
    if let Some(census) = testkit::census() {
        assert!(census.contains("\"primary_context\":0"), "{census}");
    }
    stream.close().unwrap();
    context.close().unwrap();
}

#[test]
fn a_stream_of_the_primary_context_keeps_it_and_the_memory_goes_back() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = default_pool().allocate(64, &stream).unwrap();
    device().release_primary_context().unwrap();
    // Retained anew, it is the same context, and the pool another share of the same pool.
    let again = default_pool().allocate(64, &stream).unwrap();
    assert_eq!(pool_of(&again), pool_of(&buffer));
    buffer.close().unwrap();
    again.close().unwrap();
    stream.close().unwrap();
    device().release_primary_context().unwrap();
    if let Some(census) = testkit::census() {
        assert!(census.contains("\"primary_context\":0"), "{census}");
    }
}

#[test]
fn threads_change_streams_while_others_ask_for_the_pool() {
    let _alone = testkit::alone();
    let default = default_pool();
    let before = census();
    let (streams, host) = ([stream(), stream()], host_pool());
    let others = streams.each_ref().map(|stream| host.as_ref().map(|host| host.allocate(64, stream).unwrap()));
    // Its own stream has the pool; the others have one of the host.
    let own = stream();
    for _ in 0..50 {
        let buffer = default.allocate(64, &own).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| streams.iter().for_each(|stream| buffer.set_deallocation_stream(stream).unwrap()));
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(pool_of(&buffer), default.as_raw().addr() as u64)));
        });
    }
    drop((others, streams, host, own));
    assert_eq!(census(), before);
}

/// Streams that have no pool: a fresh one, another library's and the default ones.
fn streams_without_a_pool(fresh: &Stream) -> [Stream; 4] {
    // SAFETY: [test] the stream is kept as long.
    #[allow(unsafe_code)]
    let foreign = unsafe { Stream::borrow_raw(fresh.as_raw(), None) };
    [fresh.clone(), foreign, Stream::legacy_default(), Stream::per_thread_default()]
}

#[test]
fn memory_names_its_pool_while_it_comes_to_a_stream_that_has_none() {
    let _alone = testkit::alone();
    let (default, host) = (default_pool(), host_pool());
    let before = census();
    for of_host in [false, true] {
        let pool: &dyn MemoryResource = match (of_host, &host) {
            (false, _) => &default,
            (true, Some(host)) => host,
            (true, None) => continue,
        };
        let fresh = stream();
        for target in streams_without_a_pool(&fresh) {
            for _ in 0..500 {
                let buffer = pool.allocate(64, &stream()).unwrap();
                let started = Barrier::new(3);
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            started.wait();
                            buffer.set_deallocation_stream(&target).unwrap();
                        });
                    }
                    started.wait();
                    for _ in 0..20 {
                        assert!(buffer.pool().is_some());
                        assert_eq!(buffer.is_host_accessible(), of_host);
                        assert_eq!(buffer.device(), (!of_host).then(device));
                    }
                });
            }
        }
    }
    assert_eq!(census(), before);
}

#[test]
fn memory_whose_stream_two_threads_change_goes_back_on_the_one_that_it_names() {
    let _alone = testkit::alone();
    let default = default_pool();
    let streams = [stream(), stream()];
    let recording = Recording::start();
    for _ in 0..1000 {
        let buffer = default.allocate(64, &streams[0]).unwrap();
        let changing = AtomicUsize::new(2);
        std::thread::scope(|scope| {
            for (target, other) in [(&streams[0], &streams[1]), (&streams[1], &streams[0])] {
                let (changing, buffer) = (&changing, &buffer);
                scope.spawn(move || {
                    for stream in [target, other, target, other, target] {
                        buffer.set_deallocation_stream(stream).unwrap();
                    }
                    changing.fetch_sub(1, Ordering::Release);
                });
            }
            // Whoever asks makes the others wait.
            for _ in 0..1_000_000 {
                if changing.load(Ordering::Acquire) == 0 {
                    break;
                }
                buffer.deallocation_stream().unwrap();
            }
        });
        // The other one than that which orders the release now.
        let now = buffer.deallocation_stream().unwrap();
        let other = streams.iter().find(|stream| **stream != now).unwrap();
        let address = buffer.as_raw();
        recording.take();
        buffer.close_on(other).unwrap();
        assert_eq!(freed_on(&recording), [(address, other.as_raw().addr() as u64)]);
    }
}
