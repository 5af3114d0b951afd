//! Pools, memory and events between processes, as far as one process can show it: a process may import what it has
//! itself exported. What takes several is in `python/tests/test_ipc.py`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::memory::{
    DeviceMemoryResource, DeviceMemoryResourceOptions, IpcAllocationHandle, IpcBufferDescriptor, IpcEventDescriptor,
    LegacyPinnedMemoryResource, MemoryResource,
};
use cuirass::testing::{Fault, Manner, Recording};
use cuirass::{Buffer, Device, ErrorKind, Event, EventOptions, Stream, StreamOptions};
use cuirass_call::graph::{builder, definition};
use cuirass_testkit as testkit;
use std::os::fd::AsRawFd;

struct Shared {
    stream: Stream,
    pool: DeviceMemoryResource,
    mapped: DeviceMemoryResource,
}

impl Shared {
    fn new() -> Shared {
        let pool = pool();
        let mapped =
            DeviceMemoryResource::from_allocation_handle(device(), &pool.allocation_handle().unwrap()).unwrap();
        Shared { stream: stream(), pool, mapped }
    }

    /// Memory with a pattern, and what it is imported by.
    fn export(&self, bytes: usize, pattern: u8) -> (Buffer, IpcBufferDescriptor) {
        let buffer = self.pool.allocate(bytes, &self.stream).unwrap();
        buffer.fill(pattern, &self.stream).unwrap();
        self.stream.synchronize().unwrap();
        let descriptor = buffer.ipc_descriptor().unwrap();
        (buffer, descriptor)
    }

    fn import(&self, descriptor: &IpcBufferDescriptor, stream: &Stream) -> Buffer {
        Buffer::from_ipc_descriptor(&self.mapped, descriptor, stream).unwrap()
    }
}

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn pool() -> DeviceMemoryResource {
    let options = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
    DeviceMemoryResource::create(device(), &options).unwrap()
}

fn bytes_of(buffer: &Buffer, stream: &Stream) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.copy_to_slice(&mut bytes, stream).unwrap();
    bytes
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn count(recording: &Recording, call: &str) -> usize {
    recording.take().iter().filter(|record| record.call == call).count()
}

#[test]
fn imported_memory_is_the_same_memory() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let (exported, descriptor) = shared.export(1000, 7);
    assert_eq!((descriptor.size(), descriptor.pool()), (1000, shared.pool.uuid()));
    let imported = shared.import(&descriptor, &shared.stream);
    assert!(imported.is_mapped() && !exported.is_mapped());
    assert_eq!((imported.len(), imported.device()), (1000, Some(device())));
    assert_eq!(bytes_of(&imported, &shared.stream), [7; 1000]);
    imported.fill(9, &shared.stream).unwrap();
    assert_eq!(bytes_of(&exported, &shared.stream), [9; 1000]);
    // It is passed on as it came.
    assert_eq!(imported.ipc_descriptor().unwrap(), descriptor);
    assert_eq!(imported.pool().unwrap().as_raw(), shared.mapped.as_raw());
    imported.close().unwrap();
    shared.stream.synchronize().unwrap();
}

#[test]
fn what_a_mapped_pool_says_of_itself() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let uuid = shared.pool.uuid().unwrap();
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2), "a random UUID");
    assert_ne!(pool().uuid(), Some(uuid));
    assert!(shared.pool.is_ipc_enabled() && !shared.pool.is_mapped());
    assert!(shared.mapped.is_ipc_enabled() && shared.mapped.is_mapped() && shared.mapped.is_owned());
    assert_eq!(shared.mapped.uuid(), Some(uuid));
    for stream in [&shared.stream, &Stream::legacy_default()] {
        let error = shared.mapped.allocate(64, stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Type, "{error}");
        assert!(error.to_string().contains("mapped memory resource"), "{error}");
    }
    let error = shared.mapped.allocation_handle().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
    // Made of a file descriptor alone, it is told which it is.
    let file = shared.pool.allocation_handle().unwrap();
    let unnamed = IpcAllocationHandle::duplicate_of(file.as_raw_fd(), None).unwrap();
    let unnamed = DeviceMemoryResource::from_allocation_handle(device(), &unnamed).unwrap();
    assert_eq!(unnamed.uuid(), None);
    unnamed.identify(uuid).unwrap();
    unnamed.identify(uuid).unwrap();
    assert_eq!(unnamed.uuid(), Some(uuid));
    assert_eq!(unnamed.identify([1; 16]).unwrap_err().kind(), ErrorKind::Value);
}

#[test]
fn an_import_is_made_once_and_unmapped_once() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let (_exported, descriptor) = shared.export(64, 1);
    let recording = Recording::start();
    let first = shared.import(&descriptor, &shared.stream);
    let second = shared.import(&descriptor, &shared.stream);
    assert_eq!(first.as_raw(), second.as_raw());
    assert_eq!(count(&recording, "cuMemPoolImportPointer"), 1);
    first.close().unwrap();
    assert_eq!(count(&recording, "cuMemFreeAsync"), 0);
    assert_eq!(bytes_of(&second, &shared.stream), [1; 64]);
    let third = shared.import(&descriptor, &shared.stream);
    drop(second);
    drop(third);
    assert_eq!(count(&recording, "cuMemFreeAsync"), 1);
    // Once it is gone it is mapped anew.
    shared.stream.synchronize().unwrap();
    let again = shared.import(&descriptor, &shared.stream);
    assert_eq!(count(&recording, "cuMemPoolImportPointer"), 1);
    assert_eq!(bytes_of(&again, &shared.stream), [1; 64]);
}

/// The driver's data alone does not say how much memory it is of: who imports it says that.
#[test]
fn a_size_that_is_not_there_is_refused() {
    let alone = testkit::alone();
    let shared = Shared::new();
    let (exported, descriptor) = shared.export(1000, 3);
    let data = cuirass_call::memory::ipc::pool_export_pointer(exported.as_raw()).unwrap().reserved;
    let import = |bytes: usize| {
        let described = IpcBufferDescriptor::from_raw(data, bytes);
        Buffer::from_ipc_descriptor(&shared.mapped, &described, &shared.stream)
    };
    let recording = Recording::start();
    let refused = |bytes: usize, first: bool| {
        let error = import(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
        let text = format!("the descriptor says that the memory has {bytes} bytes, and it has ");
        assert!(error.to_string().starts_with(&text), "{error}");
        let calls: Vec<_> = recording.take().iter().map(|record| record.call).collect();
        assert_eq!(calls.contains(&"cuMemPoolImportPointer"), first, "{calls:?}");
        assert_eq!(calls.contains(&"cuMemFreeAsync"), first, "what was mapped for it is unmapped: {calls:?}");
    };
    // How much more than what was asked for a real driver tells is its own business.
    let wrong = if testkit::is_simulator() { vec![1001, 1 << 40, usize::MAX] } else { vec![1 << 40, usize::MAX] };
    for &bytes in &wrong {
        refused(bytes, true);
    }
    let right = import(1000).unwrap();
    let less = import(10).unwrap();
    recording.take();
    for &bytes in &wrong {
        refused(bytes, false);
    }
    assert_eq!(bytes_of(&right, &shared.stream), [3; 1000]);
    assert_eq!(bytes_of(&less, &shared.stream), [3; 10]);
    drop((right, less));
    let whole = shared.import(&descriptor, &shared.stream);
    assert_eq!(bytes_of(&whole, &shared.stream), [3; 1000]);
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// The driver exports a pointer only of a pool that it has exported.
#[test]
fn the_first_descriptor_exports_the_pool() {
    let _alone = testkit::alone();
    let (stream, pool) = (stream(), pool());
    let (first, second) = (pool.allocate(64, &stream).unwrap(), pool.allocate(64, &stream).unwrap());
    stream.synchronize().unwrap();
    let files = open_files();
    let recording = Recording::start();
    let fault = Fault::in_call("cuMemPoolExportToShareableHandle").status(2).manner(Manner::Refused);
    let fault = fault.on_this_thread().inject().unwrap();
    assert_eq!(first.ipc_descriptor().unwrap_err().call(), "cuMemPoolExportToShareableHandle");
    drop(fault);
    let _refused = recording.take();
    first.ipc_descriptor().unwrap();
    assert_eq!(count(&recording, "cuMemPoolExportToShareableHandle"), 1);
    second.ipc_descriptor().unwrap();
    assert_eq!(count(&recording, "cuMemPoolExportToShareableHandle"), 0, "once");
    // A real driver opens files of its own.
    assert!(open_files() == files || !testkit::is_simulator());
}

/// Access that was given through one object is taken back by the last.
#[test]
fn a_pool_that_is_imported_twice_ends_once() {
    let alone = testkit::alone();
    let shared = Shared::new();
    let recording = Recording::start();
    let import =
        || DeviceMemoryResource::from_allocation_handle(device(), &shared.pool.allocation_handle().unwrap()).unwrap();
    let (second, third) = (import(), import());
    assert_eq!((second.as_raw(), third.as_raw()), (shared.mapped.as_raw(), shared.mapped.as_raw()));
    let fault = Fault::in_call("cuMemPoolImportFromShareableHandle").status(999).manner(Manner::Done);
    let fault = fault.on_this_thread().inject().unwrap();
    let refused = DeviceMemoryResource::from_allocation_handle(device(), &shared.pool.allocation_handle().unwrap());
    assert!(refused.is_err());
    drop(fault);
    let peer = Device::all().unwrap().into_iter().find(|other| *other != device());
    if let Some(peer) = peer {
        second.set_access(&[peer], &[]).unwrap();
    }
    second.close().unwrap();
    drop(third);
    assert_eq!(count(&recording, "cuMemPoolDestroy"), 2, "each import is given back");
    let (_exported, descriptor) = shared.export(64, 6);
    assert_eq!(bytes_of(&shared.import(&descriptor, &shared.stream), &shared.stream), [6; 64]);
    shared.stream.synchronize().unwrap();
    let _before = recording.take();
    let Shared { mapped, .. } = shared;
    mapped.close().unwrap();
    let calls: Vec<_> = recording.take().iter().map(|record| record.call).collect();
    let wanted: &[&str] =
        if peer.is_some() { &["cuMemPoolSetAccess", "cuMemPoolDestroy"] } else { &["cuMemPoolDestroy"] };
    let made: Vec<_> = calls.iter().copied().filter(|call| call.starts_with("cuMemPool")).collect();
    assert_eq!(made, wanted);
    assert_eq!(alone.reports(), [""; 0]);
}

/// The driver destroys no import of a pool while memory is imported through another one.
#[test]
fn an_import_of_a_pool_ends_while_memory_of_another_is_imported() {
    let alone = testkit::alone();
    let shared = Shared::new();
    let (exported, descriptor) = shared.export(64, 8);
    let imported = shared.import(&descriptor, &shared.stream);
    let recording = Recording::start();
    let import = || {
        let handle = shared.pool.allocation_handle().unwrap();
        DeviceMemoryResource::from_allocation_handle(device(), &handle)
    };
    import().unwrap().close().unwrap();
    drop(import().unwrap());
    // One that is undone, since the caller's context cannot be put back.
    cuirass_call::context::ctx_set_current(std::ptr::null_mut()).unwrap();
    let handle = shared.pool.allocation_handle().unwrap();
    let fault = Fault::in_call("cuCtxSetCurrent").nth(2).status(999).on_this_thread().inject().unwrap();
    let error = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap_err();
    assert_eq!((fault.count(), error.call()), (1, "cuCtxSetCurrent"), "{error}");
    assert!(!error.to_string().contains("not undone"), "{error}");
    drop(fault);
    device().set_current().unwrap();
    assert_eq!(count(&recording, "cuMemPoolDestroy"), 0);
    let Shared { stream, pool, mapped } = shared;
    mapped.close().unwrap();
    assert_eq!(count(&recording, "cuMemPoolDestroy"), 0, "the memory has a share of it");
    assert_eq!(bytes_of(&imported, &stream), [8; 64]);
    imported.close().unwrap();
    assert_eq!(count(&recording, "cuMemPoolDestroy"), 4, "as often as it was imported");
    drop((exported, pool));
    stream.synchronize().unwrap();
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// An import that had to wait for memory is given back with that, though another import of the pool stays.
#[test]
fn an_import_that_waited_for_memory_is_given_back_though_another_stays() {
    let alone = testkit::alone();
    let owner = Shared::new();
    let (exported, descriptor) = owner.export(64, 2);
    let handle = owner.pool.allocation_handle().unwrap();
    for (imports, through_the_one_that_stays) in [(1, false), (1, true), (3, false), (3, true)] {
        let stream = self::stream();
        let import = || DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap();
        let others: Vec<_> = (0..imports).map(|_| import()).collect();
        let through = if through_the_one_that_stays { &owner.mapped } else { &others[0] };
        let imported = Buffer::from_ipc_descriptor(through, &descriptor, &stream).unwrap();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        stream.launch_host_function(move || receive.recv().unwrap()).unwrap();
        let recording = Recording::start();
        drop(imported);
        drop(others);
        assert_eq!(count(&recording, "cuMemPoolDestroy"), 0, "its memory is not unmapped yet");
        send.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(cuirass::drain(), 0);
        assert_eq!(count(&recording, "cuMemPoolDestroy"), imports, "{through_the_one_that_stays}");
    }
    assert_eq!(bytes_of(&owner.import(&descriptor, &owner.stream), &owner.stream), [2; 64]);
    drop(exported);
    assert_eq!(alone.reports(), [""; 0]);
}

/// Whichever object of the pool they came through. Measured: a driver loses a pool that is destroyed while the free of
/// memory imported from it is not done, with a file descriptor each time, and refuses to destroy one that memory is
/// imported from.
#[test]
fn a_pool_is_not_destroyed_before_its_memory_is_unmapped() {
    let _alone = testkit::alone();
    let owner = Shared::new();
    let (exported, descriptor) = owner.export(64, 1);
    let handle = owner.pool.allocation_handle().unwrap();
    let before = open_files();
    for busy in [false, true].repeat(8) {
        let stream = self::stream();
        let mapped = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap();
        let again = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap();
        let imported = Buffer::from_ipc_descriptor(&mapped, &descriptor, &stream).unwrap();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        if busy {
            stream.launch_host_function(move || receive.recv().unwrap()).unwrap();
        }
        let recording = Recording::start();
        drop(imported);
        again.close().unwrap();
        mapped.close().unwrap();
        let calls = recording.take();
        let place = |call| calls.iter().position(|record| record.call == call);
        assert!(place("cuMemFreeAsync").is_some(), "{calls:?}");
        assert!(!busy || place("cuMemPoolDestroy").is_none(), "{calls:?}");
        if busy {
            assert_eq!(cuirass::pending_releases(), 1);
            send.send(()).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(cuirass::drain(), 0);
        let ends = calls.iter().filter(|record| record.call == "cuMemPoolDestroy").count();
        assert_eq!(ends + count(&recording, "cuMemPoolDestroy"), 2);
    }
    assert_eq!(open_files(), before);
    let recording = Recording::start();
    drop(owner.mapped);
    assert_eq!(count(&recording, "cuMemPoolDestroy"), 1, "its own");
    drop(exported);
}

/// Measured: that it was done, or seen to be done, is not enough for a driver. A call has to have waited for it, or the
/// pool and a file descriptor are lost.
#[test]
fn a_pool_is_not_destroyed_before_the_end_of_its_memory_was_waited_for() {
    let alone = testkit::alone();
    let import = |owner: &Shared| {
        let handle = owner.pool.allocation_handle().unwrap();
        DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap()
    };
    let buffer = |mapped: &DeviceMemoryResource, descriptor: &IpcBufferDescriptor, stream: &Stream| {
        Buffer::from_ipc_descriptor(mapped, descriptor, stream).unwrap()
    };
    type End<'a> = (&'a str, &'a dyn Fn(&Shared, DeviceMemoryResource, &IpcBufferDescriptor));
    let ends: [End<'_>; 10] = [
        ("the memory, then the pool", &|_, mapped, descriptor| {
            buffer(&mapped, descriptor, &stream()).close().unwrap();
            mapped.close().unwrap();
        }),
        ("both dropped", &|owner, mapped, descriptor| drop((buffer(&mapped, descriptor, &owner.stream), mapped))),
        ("the pool, then the memory", &|owner, mapped, descriptor| {
            let imported = buffer(&mapped, descriptor, &owner.stream);
            mapped.close().unwrap();
            imported.close().unwrap();
        }),
        ("on the default streams", &|_, mapped, descriptor| {
            for stream in [Stream::legacy_default(), Stream::per_thread_default()] {
                buffer(&mapped, descriptor, &stream).close().unwrap();
            }
            mapped.close().unwrap();
        }),
        ("behind other streams", &|owner, mapped, descriptor| {
            let (own, other) = (stream(), stream());
            let shares = [&own, &other, &owner.stream].map(|stream| buffer(&mapped, descriptor, stream));
            drop((own, other));
            shares.into_iter().for_each(|share| share.close().unwrap());
            mapped.close().unwrap();
        }),
        ("several imports of the pool", &|owner, mapped, descriptor| {
            let (second, third) = (import(owner), import(owner));
            let imported = buffer(&second, descriptor, &owner.stream);
            third.close().unwrap();
            second.close().unwrap();
            imported.close().unwrap();
            mapped.close().unwrap();
        }),
        ("several pieces of memory, on a stream each", &|owner, mapped, descriptor| {
            let (more, another) = owner.export(256, 2);
            let (one, other) = (buffer(&mapped, descriptor, &stream()), buffer(&mapped, &another, &stream()));
            drop(mapped);
            drop((other, one));
            cuirass::drain();
            owner.stream.synchronize().unwrap();
            device().synchronize().unwrap();
            cuirass::drain();
            drop(more);
        }),
        ("freed on another stream than it was imported on", &|owner, mapped, descriptor| {
            buffer(&mapped, descriptor, &owner.stream).close_on(&stream()).unwrap();
            mapped.close().unwrap();
        }),
        ("a stream that is captured meanwhile", &|owner, mapped, descriptor| {
            let imported = buffer(&mapped, descriptor, &owner.stream);
            let mode = cuirass::raw::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
            builder::stream_begin_capture(owner.stream.as_raw(), mode).unwrap();
            imported.close().unwrap();
            mapped.close().unwrap();
            cuirass::drain();
            definition::destroy(builder::stream_end_capture(owner.stream.as_raw()).unwrap()).unwrap();
        }),
        ("an import that is undone", &|owner, mapped, descriptor| {
            let fault = Fault::in_call("cuPointerGetAttributes").on_this_thread().inject().unwrap();
            let error = Buffer::from_ipc_descriptor(&mapped, descriptor, &owner.stream).unwrap_err();
            assert_eq!((fault.count(), error.call()), (1, "cuPointerGetAttributes"));
            mapped.close().unwrap();
        }),
    ];
    for (name, end) in ends {
        let mut left = None;
        // The first time a real driver opens files of its own.
        for round in 0..6 {
            let owner = Shared::new();
            let (exported, descriptor) = owner.export(64, 1);
            let Shared { pool, stream, mapped } = owner;
            mapped.close().unwrap();
            let owner = Shared { mapped: pool.clone(), pool, stream };
            let imported = import(&owner);
            end(&owner, imported, &descriptor);
            // Here a real driver is as slow as it likes; but nobody waits for it otherwise.
            while cuirass::drain() > 0 {
                std::thread::yield_now();
            }
            owner.stream.synchronize().unwrap();
            drop((exported, owner));
            device().synchronize().unwrap();
            let now = (open_files(), testkit::census());
            let before = left.replace(now.clone());
            assert!(round < 3 || before.as_ref() == Some(&now), "{name}: {before:?}, {now:?}");
        }
        assert_eq!(alone.reports(), Vec::<String>::new(), "{name}");
    }
}

/// It is not certain that the driver is done with it then: the pool is kept, and said to be.
#[test]
fn a_pool_whose_memory_could_not_be_waited_for_is_leaked() {
    let alone = testkit::alone();
    let shared = Shared::new();
    let (_exported, descriptor) = shared.export(64, 1);
    let handle = shared.pool.allocation_handle().unwrap();
    let Shared { stream, mapped, pool } = shared;
    mapped.close().unwrap();
    let mapped = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap();
    let imported = Buffer::from_ipc_descriptor(&mapped, &descriptor, &stream).unwrap();
    let named = format!("imported pool {:p}", mapped.as_raw());
    let recording = Recording::start();
    let fault = Fault::in_call("cuEventSynchronize").status(999).on_this_thread().inject().unwrap();
    let closed = imported.close();
    mapped.close().unwrap();
    while cuirass::drain() > 0 {}
    assert_eq!(fault.count(), 1);
    drop(fault);
    let told = match closed {
        Err(error) => error.notes().join("; "),
        Ok(()) => alone.reports().join("; "),
    };
    assert!(told.contains(&named) && told.contains("is leaked"), "{told}");
    assert_eq!(count(&recording, "cuMemPoolDestroy"), 0);
    drop(pool);
}

#[test]
fn two_objects_of_a_pool_share_a_mapping() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let (exported, descriptor) = shared.export(64, 1);
    let handle = shared.pool.allocation_handle().unwrap();
    let other = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap();
    let recording = Recording::start();
    let first = shared.import(&descriptor, &shared.stream);
    let second = Buffer::from_ipc_descriptor(&other, &descriptor, &shared.stream).unwrap();
    assert_eq!(first.as_raw(), second.as_raw());
    assert_eq!(count(&recording, "cuMemPoolImportPointer"), 1);
    let Shared { stream, pool, mapped } = shared;
    first.close().unwrap();
    mapped.close().unwrap();
    assert_eq!(bytes_of(&second, &stream), [1; 64]);
    second.close().unwrap();
    other.close().unwrap();
    exported.close().unwrap();
    stream.synchronize().unwrap();
    let calls: Vec<_> = recording.take();
    let of = |name: &str| calls.iter().filter(|record| record.call == name).count();
    // The driver counts how often it imported the pool.
    assert_eq!((of("cuMemFreeAsync"), of("cuMemPoolDestroy")), (2, 2));
    pool.close().unwrap();
}

#[test]
fn the_last_share_waits_for_the_streams_of_all() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let (_exported, descriptor) = shared.export(64, 1);
    let other = stream();
    let first = shared.import(&descriptor, &other);
    let second = shared.import(&descriptor, &shared.stream);
    let third = shared.import(&descriptor, &shared.stream);
    first.close().unwrap();
    third.close().unwrap();
    let recording = Recording::start();
    second.close().unwrap();
    let calls: Vec<_> = recording.take();
    let position = |name: &str| calls.iter().position(|record| record.call == name).expect(name);
    let (recorded, waited, freed) =
        (position("cuEventRecord"), position("cuStreamWaitEvent"), position("cuMemFreeAsync"));
    assert!(recorded < waited && waited < freed, "{calls:?}");
    assert_eq!(calls[recorded].arguments[1], other.as_raw().addr() as u64);
    assert_eq!(calls[waited].arguments[0], shared.stream.as_raw().addr() as u64);
    assert_eq!(calls[freed].arguments[1], shared.stream.as_raw().addr() as u64);
    assert_eq!(
        calls[..freed].iter().filter(|record| record.call == "cuEventRecord").count(),
        1,
        "one stream, one event"
    );
    shared.stream.synchronize().unwrap();
}

#[test]
fn a_release_waits_for_a_capture_and_an_import_revives_it() {
    let alone = testkit::alone();
    let shared = Shared::new();
    let (_exported, descriptor) = shared.export(64, 5);
    let captured = stream();
    let imported = shared.import(&descriptor, &captured);
    let mode = cuirass::raw::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    builder::stream_begin_capture(captured.as_raw(), mode).unwrap();
    let recording = Recording::start();
    imported.close().unwrap();
    assert_eq!(cuirass::pending_releases(), 1);
    // It is mapped still, and given out again.
    let again = shared.import(&descriptor, &shared.stream);
    assert_eq!(count(&recording, "cuMemPoolImportPointer"), 0);
    definition::destroy(builder::stream_end_capture(captured.as_raw()).unwrap()).unwrap();
    cuirass::drain();
    assert_eq!(cuirass::pending_releases(), 0);
    assert_eq!(bytes_of(&again, &shared.stream), [5; 64]);
    again.close().unwrap();
    let calls = recording.take();
    assert_eq!(calls.iter().filter(|record| record.call == "cuMemFreeAsync").count(), 1, "{calls:?}");
    assert_eq!(alone.reports(), [""; 0]);
}

#[test]
fn threads_import_and_let_go_together() {
    let alone = testkit::alone();
    let shared = Shared::new();
    let pieces: Vec<_> = (0..4_u8).map(|pattern| shared.export(256, pattern)).collect();
    let descriptors: Vec<_> = pieces.iter().map(|(_, descriptor)| descriptor.clone()).collect();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (shared, descriptors) = (&shared, &descriptors);
            scope.spawn(move || {
                let own = stream();
                for round in 0..50 {
                    let at = (thread + round) % descriptors.len();
                    let stream = if round % 3 == 0 { &shared.stream } else { &own };
                    let buffer = shared.import(&descriptors[at], stream);
                    assert!(bytes_of(&buffer, &own).iter().all(|byte| usize::from(*byte) == at));
                    drop(buffer);
                }
                own.synchronize().unwrap();
            });
        }
    });
    shared.stream.synchronize().unwrap();
    assert_eq!(alone.reports(), [""; 0]);
}

#[test]
fn what_is_no_shared_memory_says_so() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let (exported, descriptor) = shared.export(64, 1);
    let said = |error: cuirass::Error, kind: ErrorKind, words: &str| {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    let plain = device().memory_resource().unwrap();
    said(plain.allocation_handle().unwrap_err(), ErrorKind::State, "not IPC-enabled");
    let memory = plain.allocate(64, &shared.stream).unwrap();
    said(memory.ipc_descriptor().unwrap_err(), ErrorKind::State, "not IPC-enabled");
    let pinned = LegacyPinnedMemoryResource.allocate(64, &shared.stream).unwrap();
    said(pinned.ipc_descriptor().unwrap_err(), ErrorKind::State, "of no pool");
    let import = |pool: &DeviceMemoryResource, descriptor: &IpcBufferDescriptor| {
        Buffer::from_ipc_descriptor(pool, descriptor, &shared.stream).unwrap_err()
    };
    said(import(&plain, &descriptor), ErrorKind::State, "not IPC-enabled");
    said(import(&shared.pool, &descriptor), ErrorKind::State, "this process's own");
    let other = Shared::new();
    said(import(&other.mapped, &descriptor), ErrorKind::Value, "is of memory of");
    let mut bytes = descriptor.to_bytes();
    assert_eq!(bytes.len(), IpcBufferDescriptor::LENGTH);
    for (changed, words) in [(0, "does not begin"), (50, "changed on the way"), (bytes.len() - 1, "changed")] {
        bytes[changed] ^= 1;
        said(IpcBufferDescriptor::from_bytes(&bytes).unwrap_err(), ErrorKind::Value, words);
        bytes[changed] ^= 1;
    }
    for length in [0, 63, bytes.len() - 1] {
        said(IpcBufferDescriptor::from_bytes(&bytes[..length]).unwrap_err(), ErrorKind::Value, "bytes");
    }
    assert_eq!(IpcBufferDescriptor::from_bytes(&bytes).unwrap(), descriptor);
    let event = IpcEventDescriptor::from_raw([3; 64], true);
    assert_eq!(IpcEventDescriptor::from_bytes(&event.to_bytes()).unwrap(), event);
    said(IpcEventDescriptor::from_bytes(&descriptor.to_bytes()).unwrap_err(), ErrorKind::Value, "does not begin");
    let local = device().create_event(&EventOptions::default()).unwrap();
    said(local.ipc_descriptor().unwrap_err(), ErrorKind::State, "not IPC-enabled");
    // What only the driver can judge; nobody promises that a real one survives it.
    if testkit::is_simulator() {
        let error = import(&shared.mapped, &IpcBufferDescriptor::from_raw([0xee; 64], 64));
        assert_eq!(error.call(), "cuMemPoolImportPointer", "{error}");
        assert_eq!(Event::from_ipc_descriptor(&event).unwrap_err().call(), "cuIpcOpenEventHandle");
    }
    // A file that is no pool, and a number that is no file.
    let file = std::fs::File::open("/dev/null").unwrap();
    let handle = IpcAllocationHandle::from_file(file.into(), None);
    let error = DeviceMemoryResource::from_allocation_handle(device(), &handle).unwrap_err();
    assert_eq!(error.call(), "cuMemPoolImportFromShareableHandle", "{error}");
    said(IpcAllocationHandle::duplicate_of(-1, None).unwrap_err(), ErrorKind::State, "Bad file descriptor");
    exported.close().unwrap();
}

#[test]
fn a_failed_import_says_whose_the_memory_is() {
    let _alone = testkit::alone();
    let shared = Shared::new();
    let (_exported, descriptor) = shared.export(64, 1);
    let fault = Fault::in_call("cuMemPoolImportPointer").status(1).on_this_thread().inject().unwrap();
    let error = Buffer::from_ipc_descriptor(&shared.mapped, &descriptor, &shared.stream).unwrap_err();
    drop(fault);
    assert!(error.to_string().starts_with("CUDA_ERROR_INVALID_VALUE"), "{error}");
    let process = format!("exported by process {}", std::process::id());
    assert!(error.notes().iter().any(|note| note.contains(&process)), "{:?}", error.notes());
    // Nothing is left of it.
    assert_eq!(bytes_of(&shared.import(&descriptor, &shared.stream), &shared.stream), [1; 64]);
}

/// Whatever call fails, no file descriptor is left, and nothing else.
#[test]
fn no_file_is_left_whichever_call_fails() {
    let alone = testkit::alone();
    let cycle = || -> cuirass::Result<()> {
        let stream = device().create_stream(&StreamOptions::default())?;
        let options = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
        let pool = DeviceMemoryResource::create(device(), &options)?;
        let handle = pool.allocation_handle()?;
        let mapped = DeviceMemoryResource::from_allocation_handle(device(), &handle)?;
        handle.close()?;
        let exported = pool.allocate(64, &stream)?;
        let imported = Buffer::from_ipc_descriptor(&mapped, &exported.ipc_descriptor()?, &stream)?;
        imported.close()?;
        exported.close()?;
        stream.synchronize()
    };
    cycle().unwrap();
    let recording = Recording::start();
    cycle().unwrap();
    let mut calls: Vec<_> = recording.take().iter().map(|record| record.call).collect();
    drop(recording);
    calls.sort_unstable();
    calls.dedup();
    for call in calls.iter().filter(|call| !call.contains("Destroy") && !call.contains("Free")) {
        // A real driver opens files of its own the first time that a thing happens.
        let (mut before, mut leaks) = (None, false);
        for _again in 0..2 {
            let fault = Fault::in_call(call).status(999).manner(Manner::Refused).on_this_thread().inject().unwrap();
            let result = cycle();
            let hit = fault.count();
            drop(fault);
            cuirass::drain();
            device().synchronize().unwrap();
            let told = alone.reports();
            assert!(hit == 0 || result.is_err() || !told.is_empty(), "{call}");
            // What is leaked, because its release could not be made, was told.
            leaks |= format!("{told:?} {result:?}").contains("leaked");
            let now = (open_files(), testkit::census());
            leaks |= !testkit::is_simulator();
            assert!(leaks || before.as_ref().is_none_or(|before| *before == now), "{now:?}, {before:?}: {call}");
            before = Some(now);
        }
    }
}

#[test]
fn many_cycles_leave_nothing() {
    let _alone = testkit::alone();
    let cycle = |shared: &Shared| {
        let (exported, descriptor) = shared.export(64, 3);
        let imported = shared.import(&IpcBufferDescriptor::from_bytes(&descriptor.to_bytes()).unwrap(), &shared.stream);
        imported.close().unwrap();
        exported.close().unwrap();
        shared.stream.synchronize().unwrap();
    };
    cycle(&Shared::new());
    let (files, census) = (open_files(), testkit::census());
    for _ in 0..200 {
        let shared = Shared::new();
        (0..10).for_each(|_| cycle(&shared));
    }
    assert_eq!((open_files(), testkit::census()), (files, census));
}
