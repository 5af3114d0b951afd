//! Memory: pools, buffers, copies and fills, on whichever driver the tests run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::CaptureMode;
use cuirass::memory::{
    Buffer, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource, MemoryResource,
    PinnedMemory, PinnedMemoryResource, PinnedMemoryResourceOptions, PoolAttribute, SynchronousMemoryResource,
    VirtualMemoryResource, VirtualMemoryResourceOptions,
};
use cuirass::testing::{Fault, Manner, Recording};
use cuirass::{Context, Device, ErrorKind, Stream, StreamOptions};
use cuirass_testkit as testkit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn pool() -> DeviceMemoryResource {
    device().memory_resource().unwrap()
}

#[test]
fn what_is_copied_in_comes_out() {
    let _alone = testkit::alone();
    let stream = stream();
    let values: Vec<u32> = (0..5000_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let buffer = pool().allocate(20_000, &stream).unwrap();
    assert_eq!(buffer.len(), 20_000);
    buffer.copy_from_slice(&values, &stream).unwrap();
    let other = pool().allocate(20_000, &stream).unwrap();
    other.copy_from(&buffer, &stream).unwrap();
    let mut back = vec![0_u32; 5000];
    other.copy_to_slice(&mut back, &stream).unwrap();
    assert_eq!(back, values);
    buffer.close().unwrap();
    other.close().unwrap();
}

#[test]
fn fills_write_their_pattern() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = pool().allocate(64, &stream).unwrap();
    buffer.fill(0xa5, &stream).unwrap();
    let mut bytes = [0_u8; 64];
    buffer.copy_to_slice(&mut bytes, &stream).unwrap();
    assert_eq!(bytes, [0xa5; 64]);
    for pattern in [&[1_u8, 2][..], &[1, 2, 3, 4], &[9]] {
        // SAFETY: [test] the same stream orders the release.
        unsafe { buffer.fill_unordered(pattern, &stream).unwrap() };
        buffer.copy_to_slice(&mut bytes, &stream).unwrap();
        assert!(bytes.chunks(pattern.len()).all(|chunk| chunk == pattern), "{pattern:?}: {bytes:?}");
    }
    for pattern in [&[][..], &[1, 2, 3], &[0; 8]] {
        // SAFETY: [test] refused before anything is done.
        let error = unsafe { buffer.fill_unordered(pattern, &stream).unwrap_err() };
        assert_eq!(error.kind(), ErrorKind::Value);
    }
}

#[test]
fn more_than_fits_is_refused_before_any_call() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = pool().allocate(16, &stream).unwrap();
    let recording = Recording::start();
    assert_eq!(buffer.copy_from_slice(&[0_u8; 17], &stream).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(buffer.copy_to_slice(&mut [0_u64; 3], &stream).unwrap_err().kind(), ErrorKind::Value);
    assert!(recording.take().is_empty());
}

#[test]
fn an_allocation_that_cannot_succeed_leaves_nothing() {
    let _alone = testkit::alone();
    let stream = stream();
    let before = testkit::census();
    let error = pool().allocate(1 << 50, &stream).unwrap_err();
    assert_eq!((error.code(), error.call()), (Some(2), "cuMemAllocFromPoolAsync"));
    assert!(
        error.to_string().starts_with("CUDA_ERROR_OUT_OF_MEMORY: out of memory (cuMemAllocFromPoolAsync, pool 0x"),
        "{error}"
    );
    assert!(error.to_string().contains("1125899906842624 bytes"), "{error}");
    let error = LegacyPinnedMemoryResource.allocate(usize::MAX / 2, &stream).unwrap_err();
    assert!(error.call() == "cuMemAllocHost_v2" && error.code().is_some(), "{error}");
    stream.synchronize().unwrap();
    if before.is_some() {
        assert_eq!(before, testkit::census());
    }
    pool().allocate(256, &stream).unwrap().close().unwrap();
}

#[test]
fn a_buffer_outlives_its_stream_and_pool_handles() {
    let _alone = testkit::alone();
    let resource = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
    let stream = stream();
    let buffer = resource.allocate(1024, &stream).unwrap();
    let recording = Recording::start();
    stream.close().unwrap();
    resource.close().unwrap();
    assert!(recording.take().is_empty(), "the buffer holds its share of both");
    buffer.close().unwrap();
    let calls: Vec<_> = recording.take().iter().map(|call| call.call).collect();
    let position =
        |name: &str| calls.iter().position(|call| *call == name).unwrap_or_else(|| panic!("{name} in {calls:?}"));
    assert!(position("cuMemFreeAsync") < position("cuMemPoolDestroy"), "{calls:?}");
    assert!(position("cuMemFreeAsync") < position("cuStreamDestroy_v2"), "{calls:?}");
}

#[test]
fn pools_have_attributes() {
    let _alone = testkit::alone();
    let stream = stream();
    let resource = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
    let used = || resource.attribute(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT).unwrap();
    assert_eq!(used(), 0);
    let buffer = resource.allocate(1 << 20, &stream).unwrap();
    assert_eq!(used(), 1 << 20);
    assert!(resource.attribute(PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT).unwrap() >= 1 << 20);
    buffer.close().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(used(), 0);
    assert_eq!(resource.attribute(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH).unwrap(), 1 << 20);
    resource.set_attribute(PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 1 << 30).unwrap();
    assert_eq!(resource.attribute(PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD).unwrap(), 1 << 30);
    let error = resource.set_attribute(PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0).unwrap_err();
    assert_eq!(error.code(), Some(1));
    resource.trim_to(0).unwrap();
}

#[test]
fn the_default_pool_keeps_what_is_freed() {
    let _alone = testkit::alone();
    assert!(!pool().is_owned());
    assert_eq!(pool().attribute(PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD).unwrap(), u64::MAX);
}

/// A real driver gives devices none by itself, and its calls that name the device's side of a copy take no such memory.
#[test]
fn devices_have_access_to_the_memory_of_pinned_pools() {
    let _alone = testkit::alone();
    let (stream, devices) = (stream(), Device::all().unwrap());
    let mut pools = vec![PinnedMemoryResource::create(&PinnedMemoryResourceOptions::default()).unwrap()];
    match PinnedMemoryResource::current() {
        Ok(current) => {
            // As it is before anybody has asked for it, then as it is from then on.
            current.set_access(&[], &devices).unwrap();
            pools.push(PinnedMemoryResource::current().unwrap());
            let recording = Recording::start();
            pools.push(PinnedMemoryResource::current().unwrap());
            let calls = recording.take();
            assert!(calls.iter().all(|call| call.call != "cuMemPoolSetAccess"), "{calls:?}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
    for pool in pools {
        assert!(devices.iter().all(|device| pool.is_accessible_by(*device).unwrap()));
        let buffer = pool.allocate(64, &stream).unwrap();
        buffer.fill(7_u8, &stream).unwrap();
        let mut back = [0_u8; 64];
        buffer.copy_to_slice(&mut back, &stream).unwrap();
        assert_eq!(back, [7; 64]);
        buffer.copy_from_slice(&[9_u8; 64], &stream).unwrap();
        buffer.copy_to_slice(&mut back, &stream).unwrap();
        assert_eq!(back, [9; 64]);
        buffer.close().unwrap();
    }
    stream.close().unwrap();
}

#[test]
fn a_release_without_a_context_works() {
    let alone = testkit::alone();
    let stream = stream();
    let on_stream = pool().allocate(256, &stream).unwrap();
    device().set_current().unwrap();
    let on_default = pool().allocate(256, &Stream::legacy_default()).unwrap();
    let synchronous = SynchronousMemoryResource::new(device()).unwrap().allocate(256, &stream).unwrap();
    let pinned = LegacyPinnedMemoryResource.allocate(256, &stream).unwrap();
    std::thread::spawn(move || {
        drop((on_stream, on_default, synchronous, pinned));
        assert!(Context::current().unwrap().is_none());
    })
    .join()
    .unwrap();
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn allocation_on_a_default_stream_needs_no_context() {
    let _alone = testkit::alone();
    std::thread::spawn(|| {
        let buffer = pool().allocate(256, &Stream::legacy_default()).unwrap();
        assert!(Context::current().unwrap().is_none());
        buffer.close().unwrap();
        LegacyPinnedMemoryResource.allocate(64, &Stream::legacy_default()).unwrap().close().unwrap();
        assert!(Context::current().unwrap().is_none());
    })
    .join()
    .unwrap();
}

#[test]
fn the_stream_that_orders_a_release_can_be_replaced() {
    let _alone = testkit::alone();
    let (first, second) = (stream(), stream());
    let buffer = pool().allocate(256, &first).unwrap();
    assert_eq!(buffer.deallocation_stream().unwrap(), first);
    buffer.set_deallocation_stream(&second).unwrap();
    second.wait_for_stream(&first).unwrap();
    let recording = Recording::start();
    buffer.close().unwrap();
    let calls = recording.take();
    let free = calls.iter().find(|call| call.call == "cuMemFreeAsync").unwrap();
    assert_eq!(free.arguments.get(1), Some(&(second.as_raw().addr() as u64)));
}

#[test]
fn copies_on_a_stream_that_does_not_order_the_release_are_refused() {
    let _alone = testkit::alone();
    let (first, second) = (stream(), stream());
    let (a, b) = (pool().allocate(64, &first).unwrap(), pool().allocate(64, &second).unwrap());
    assert_eq!(a.copy_from(&b, &first).unwrap_err().kind(), ErrorKind::State);
    assert_eq!(a.fill(0, &second).unwrap_err().kind(), ErrorKind::State);
    b.fill(3, &second).unwrap();
    first.wait_for_stream(&second).unwrap();
    // SAFETY: [test] ordered by the wait; `b` is released after the synchronisation below.
    unsafe { a.copy_from_unordered(&b, &first).unwrap() };
    let mut bytes = [0_u8; 64];
    a.copy_to_slice(&mut bytes, &first).unwrap();
    assert_eq!(bytes, [3; 64]);
}

#[test]
fn pinned_memory_travels_asynchronously() {
    let _alone = testkit::alone();
    let stream = stream();
    let values: Vec<f64> = (0..1000).map(|i| f64::from(i) / 7.0).collect();
    let out = Arc::new(PinnedMemory::from_slice(&values).unwrap());
    let buffer = pool().allocate(8000, &stream).unwrap();
    let there = buffer.copy_from_pinned(Arc::clone(&out), &stream).unwrap();
    let back = buffer.copy_to_pinned(PinnedMemory::<f64>::zeroed(1000).unwrap(), &stream).unwrap();
    assert_eq!(back.wait().unwrap().as_slice(), values);
    assert_eq!(there.wait().unwrap().as_slice(), values);
    // A transfer that is dropped waits for itself.
    drop(buffer.copy_from_pinned(out, &stream).unwrap());
}

/// It waits as a release does.
#[test]
fn a_transfer_that_is_dropped_disturbs_no_capture() {
    let alone = testkit::alone();
    let stream = stream();
    let buffer = pool().allocate(8000, &stream).unwrap();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let memory = PinnedMemory::<f64>::zeroed(1000).unwrap();
        let transfer = buffer.copy_from_pinned(Arc::new(memory), &stream).unwrap();
        let builder = device().create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        drop(transfer);
        assert!(builder.is_building().unwrap(), "{mode:?}");
        builder.close().unwrap();
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn a_failed_release_names_the_buffer() {
    let alone = testkit::alone();
    let stream = stream();
    let buffer = pool().allocate(256, &stream).unwrap();
    let address = buffer.as_raw();
    let fault = Fault::in_call("cuMemFreeAsync").status(201).manner(Manner::Done).on_this_thread().inject().unwrap();
    drop(buffer);
    drop(fault);
    let reports = alone.reports();
    let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
    assert!(report.starts_with(&format!("cuMemFreeAsync({address:#x}, stream ")), "{report}");
    assert!(report.contains("failed while releasing a buffer: CUDA_ERROR_INVALID_CONTEXT"), "{report}");
}

/// The work on the stream that was named may use the memory: where that cannot order the release, or cannot be waited for,
/// nothing is freed in another order.
#[test]
fn memory_that_cannot_go_back_behind_a_stream_is_leaked() {
    let alone = testkit::alone();
    let own = stream();
    let make: [(&str, &dyn Fn() -> Buffer, Stream, &str); 4] = [
        ("pooled", &|| pool().allocate(256, &own).unwrap(), Stream::legacy_default(), "cuCtxGetCurrent"),
        ("virtual", &|| virtual_memory().allocate(1, &own).unwrap(), Stream::legacy_default(), "cuCtxGetCurrent"),
        ("page-locked", &|| LegacyPinnedMemoryResource.allocate(64, &own).unwrap(), own.clone(), "cuStreamSynchronize"),
        (
            "virtual, of no stream",
            &|| virtual_memory().allocate_unordered(1).unwrap(),
            own.clone(),
            "cuStreamSynchronize",
        ),
    ];
    for (name, make, behind, call) in make {
        let buffer = make();
        let named = format!("memory {:#x}, which was to go back behind the work on stream", buffer.as_raw());
        let recording = Recording::start();
        let fault = Fault::in_call(call).status(999).on_this_thread().inject().unwrap();
        let error = buffer.close_on(&behind).unwrap_err();
        assert_eq!((fault.count(), error.call()), (1, call), "{name}: {error}");
        drop(fault);
        assert!(error.notes().iter().any(|note| note.starts_with(&named) && note.contains("is leaked")), "{error:?}");
        let calls: Vec<_> = recording.take().iter().map(|record| record.call).collect();
        assert!(!calls.iter().any(|call| call.contains("Free") || call.contains("Unmap")), "{name}: {calls:?}");
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// A release waits for nothing that is being captured, and disturbs no capture by waiting for something else: neither of
/// another stream, nor of this one, behind which the memory goes back when the capture has ended.
#[test]
fn a_close_behind_a_stream_disturbs_no_capture() {
    let alone = testkit::alone();
    device().set_current().unwrap();
    let other = stream();
    let synchronous = SynchronousMemoryResource::new(device()).unwrap();
    let make: [(&str, &dyn Fn() -> Buffer); 3] = [
        ("synchronous", &|| synchronous.allocate(64, &other).unwrap()),
        ("page-locked", &|| LegacyPinnedMemoryResource.allocate(64, &other).unwrap()),
        ("virtual", &|| virtual_memory().allocate_unordered(1).unwrap()),
    ];
    let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    for ((name, make), mode, nonblocking) in
        make.iter().flat_map(|make| modes.map(|mode| [(make, mode, true), (make, mode, false)])).flatten()
    {
        let captured = device().create_stream(&StreamOptions { nonblocking, priority: None }).unwrap();
        let legacy = Stream::legacy_default();
        // A capture of a blocking stream involves the legacy default stream.
        for (behind, waits) in [(&captured, true), (&other, false), (&legacy, !nonblocking)] {
            let buffer = make();
            let builder = captured.create_graph_builder().unwrap();
            builder.begin_building(mode).unwrap();
            let recording = Recording::start();
            buffer.close_on(behind).unwrap();
            let is_free =
                || recording.take().iter().any(|made| made.call.contains("Free") || made.call.contains("Unmap"));
            assert_eq!(is_free(), !waits, "{name}, {mode:?}, {behind:?}");
            assert!(builder.is_building().unwrap(), "{name}, {mode:?}, {behind:?}");
            builder.end_building().unwrap();
            builder.close().unwrap();
            captured.synchronize().unwrap();
            legacy.synchronize().unwrap();
            assert_eq!(cuirass::drain(), 0, "{name}, {mode:?}, {behind:?}");
            assert_eq!(is_free(), waits, "{name}, {mode:?}, {behind:?}");
        }
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// What says when it is dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Also the other way round: it is there until the stream has passed, and where nobody knows, it is given back.
#[test]
fn what_goes_behind_a_stream_is_there_until_then() {
    let alone = testkit::alone();
    device().set_current().unwrap();
    let captured = stream();
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = || gone.swap(false, Ordering::SeqCst);
    captured.let_go_behind(Told(gone.clone())).map_err(|failed| failed.1).unwrap();
    assert!(is_gone());
    let fault = Fault::in_call("cuStreamSynchronize").inject().unwrap();
    let (told, error) = *captured.let_go_behind(Told(gone.clone())).unwrap_err();
    drop(fault);
    assert!(error.call() == "cuStreamSynchronize" && !is_gone());
    drop(told);
    assert!(is_gone());
    let builder = captured.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    captured.let_go_behind(Told(gone.clone())).map_err(|failed| failed.1).unwrap();
    assert!((cuirass::drain(), is_gone()) == (1, false));
    builder.close().unwrap();
    captured.synchronize().unwrap();
    assert!((cuirass::drain(), is_gone()) == (0, true));
    // Where it cannot be known it is leaked.
    let builder = captured.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    captured.let_go_behind(Told(gone.clone())).map_err(|failed| failed.1).unwrap();
    let fault = Fault::in_call("cuEventRecord").inject().unwrap();
    builder.close().unwrap();
    assert!((cuirass::drain(), is_gone()) == (0, false));
    assert_eq!(fault.count(), 1);
    let reports = alone.reports();
    assert!(reports.len() == 1 && reports[0].contains("is leaked with what it needs"), "{reports:?}");
}

fn virtual_memory() -> VirtualMemoryResource {
    VirtualMemoryResource::new(device(), VirtualMemoryResourceOptions::default()).unwrap()
}

/// Memory whose release no stream orders is waited for.
#[test]
fn memory_of_no_stream_goes_back_behind_one() {
    let alone = testkit::alone();
    let stream = stream();
    let synchronous = SynchronousMemoryResource::new(device()).unwrap();
    let all = [
        synchronous.allocate(64, &stream).unwrap(),
        LegacyPinnedMemoryResource.allocate(64, &stream).unwrap(),
        virtual_memory().allocate_unordered(1).unwrap(),
    ];
    for buffer in all {
        let recording = Recording::start();
        buffer.close_on(&stream).unwrap();
        let calls: Vec<_> = recording.take().iter().map(|record| record.call).collect();
        let waited = calls.iter().position(|call| *call == "cuStreamSynchronize");
        let freed = calls.iter().position(|call| call.contains("Free"));
        assert!(waited.is_some() && waited < freed, "{calls:?}");
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// A user's own resource: it counts, and gets each piece of memory back once.
#[derive(Clone)]
struct Resource(Arc<Counting>);

struct Counting {
    inner: DeviceMemoryResource,
    alive: AtomicUsize,
    kept: Mutex<Vec<Buffer>>,
}

impl MemoryResource for Resource {
    fn allocate(&self, bytes: usize, stream: &Stream) -> cuirass::Result<Buffer> {
        let inner = self.0.inner.allocate(bytes, stream)?;
        let address = inner.as_raw();
        self.0.kept.lock().unwrap().push(inner);
        self.0.alive.fetch_add(1, Ordering::SeqCst);
        // SAFETY: [test] the memory is kept until it is given back.
        Ok(unsafe { Buffer::from_resource(address, bytes, Arc::new(self.clone()), stream) })
    }

    fn deallocate(&self, address: u64, _bytes: usize, stream: &Stream) -> cuirass::Result<()> {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
        let mut kept = self.0.kept.lock().unwrap();
        let at = kept.iter().position(|buffer| buffer.as_raw() == address).unwrap();
        kept.remove(at).close_on(stream)
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        false
    }

    fn device(&self) -> Option<Device> {
        Some(device())
    }
}

#[test]
fn a_users_resource_gets_each_buffer_back_once() {
    let alone = testkit::alone();
    let stream = stream();
    let counting = Counting { inner: pool(), alive: AtomicUsize::new(0), kept: Mutex::new(Vec::new()) };
    let resource = Resource(Arc::new(counting));
    let (first, second) = (resource.allocate(64, &stream).unwrap(), resource.allocate(64, &stream).unwrap());
    assert_eq!(resource.0.alive.load(Ordering::SeqCst), 2);
    assert_eq!(first.device(), Some(device()));
    first.close().unwrap();
    drop(second);
    assert_eq!(resource.0.alive.load(Ordering::SeqCst), 0);
    // What its deallocate fails with is raised by close, and reported by drop.
    for closing in [true, false] {
        let buffer = resource.allocate(64, &stream).unwrap();
        let fault =
            Fault::in_call("cuMemFreeAsync").status(999).manner(Manner::Done).on_this_thread().inject().unwrap();
        if closing {
            assert_eq!(buffer.close().unwrap_err().code(), Some(999));
        } else {
            drop(buffer);
            assert_eq!(alone.reports().len(), 1);
        }
        drop(fault);
    }
}

#[test]
fn zero_bytes_are_a_buffer_too() {
    let _alone = testkit::alone();
    let stream = stream();
    for buffer in [
        pool().allocate(0, &stream).unwrap(),
        SynchronousMemoryResource::new(device()).unwrap().allocate(0, &stream).unwrap(),
        LegacyPinnedMemoryResource.allocate(0, &stream).unwrap(),
    ] {
        assert!(buffer.is_empty());
        buffer.copy_from_slice::<u8>(&[], &stream).unwrap();
        buffer.close().unwrap();
    }
}

#[test]
fn a_pool_whose_own_device_was_given_access_closes_without_a_failure() {
    let _alone = testkit::alone();
    let pool = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
    assert!(pool.is_accessible_by(device()).unwrap());
    pool.set_access(&[device()], &[]).unwrap();
    // Measured: it cannot be taken from it.
    let refused = pool.set_access(&[], &[device()]).unwrap_err();
    assert_eq!(refused.status().unwrap().name, "CUDA_ERROR_INVALID_DEVICE");
    pool.close().unwrap();
}

/// With the last buffer go its pool, its stream and the stream's context: the pool before what its memory was freed in,
/// whether the release comes at once or had to wait.
#[test]
fn a_pool_ends_before_the_context_that_its_memory_was_freed_in() {
    let _alone = testkit::alone();
    for waits in [false, true] {
        let context = Context::create(device()).unwrap();
        let stream = Stream::create(&context, &StreamOptions::default()).unwrap();
        let pool = DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default()).unwrap();
        let buffer = pool.allocate(64, &stream).unwrap();
        let builder = waits.then(|| stream.create_graph_builder().unwrap());
        drop((context, stream, pool));
        if let Some(builder) = &builder {
            builder.begin_building(cuirass::graph::CaptureMode::Relaxed).unwrap();
        }
        let recording = Recording::start();
        drop(buffer);
        assert_eq!(cuirass::pending_releases(), usize::from(waits));
        if let Some(builder) = builder {
            builder.close().unwrap();
        }
        assert_eq!(cuirass::drain(), 0);
        let calls: Vec<_> = recording.take().iter().map(|record| record.call).collect();
        let ends = ["cuMemFreeAsync", "cuMemPoolDestroy", "cuStreamDestroy_v2", "cuCtxDestroy_v2"];
        let made: Vec<_> = calls.into_iter().filter(|call| ends.contains(call)).collect();
        assert_eq!(made, ends, "{waits}");
    }
}
