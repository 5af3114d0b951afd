//! Managed memory: what is said of it, what is asked for it, and what older drivers lack.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::memory::{
    Location, ManagedMemoryResource, ManagedMemoryResourceOptions, MemoryResource, PooledMemory, discard_batch,
    discard_prefetch_batch, prefetch_batch,
};
use cuirass::testing::{Fault, Recording};
use cuirass::{Buffer, CaptureStatus, Context, Device, ErrorKind, Stream, StreamOptions};
use cuirass_call::memory::{buffer as raw_buffer, managed as raw};
use cuirass_testkit as testkit;

const POOLS: u32 = 13000;
const INVALID_VALUE: Option<u32> = Some(1);

fn names(recording: &Recording) -> Vec<&'static str> {
    recording.take().iter().map(|record| record.call).collect()
}

fn no_context() {
    cuirass_call::context::ctx_set_current(std::ptr::null_mut()).unwrap();
}

fn device() -> Device {
    Device::new(0).unwrap()
}

fn here() -> Location {
    Location::Device(device())
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn pool() -> ManagedMemoryResource {
    ManagedMemoryResource::create(&ManagedMemoryResourceOptions::default()).unwrap()
}

/// Memory of `cuMemAllocManaged`, which every driver has.
struct Allocated(Buffer);

impl Allocated {
    fn new(bytes: usize) -> Allocated {
        device().set_current().unwrap();
        let address = raw::alloc_managed(bytes, 1).unwrap();
        // SAFETY: [test] freed when this is dropped.
        Allocated(unsafe { Buffer::borrow_raw(address, bytes, None) })
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        raw_buffer::free(self.0.as_raw()).unwrap();
        no_context();
    }
}

fn host_address(buffer: &Buffer) -> *mut u32 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(buffer.as_raw()).unwrap())
}

/// What the host finds at its address. Nothing else uses it meanwhile.
fn on_host(buffer: &Buffer) -> &[u32] {
    // SAFETY: [test] managed memory is the host's too, and the streams were waited for.
    unsafe { std::slice::from_raw_parts(host_address(buffer), buffer.len() / 4) }
}

/// The same, the other way round.
fn write_on_host(buffer: &Buffer, values: &[u32]) {
    assert!(size_of_val(values) <= buffer.len());
    // SAFETY: [test] as above.
    unsafe { host_address(buffer).copy_from_nonoverlapping(values.as_ptr(), values.len()) }
}

fn says_what_was_said(buffer: &Buffer) {
    assert!(!buffer.is_read_mostly().unwrap());
    assert_eq!(buffer.preferred_location().unwrap(), None);
    assert_eq!(buffer.accessed_by().unwrap(), []);
    assert_eq!(buffer.last_prefetch_location().unwrap(), None);
    for said in [true, false] {
        buffer.set_read_mostly(said).unwrap();
        assert_eq!(buffer.is_read_mostly().unwrap(), said);
    }
    for place in [Some(here()), Some(Location::Host), None] {
        buffer.set_preferred_location(place).unwrap();
        assert_eq!(buffer.preferred_location().unwrap(), place);
    }
    buffer.set_accessed_by(Location::Host, true).unwrap();
    buffer.set_accessed_by(here(), true).unwrap();
    let mut all = buffer.accessed_by().unwrap();
    all.sort_by_key(|place| *place == Location::Host);
    assert_eq!(all, [here(), Location::Host]);
    buffer.set_accessed_by(here(), false).unwrap();
    assert_eq!(buffer.accessed_by().unwrap(), [Location::Host]);
    buffer.set_accessed_by(Location::Host, false).unwrap();
    assert_eq!(buffer.accessed_by().unwrap(), []);
}

#[test]
fn what_is_said_is_read_back_on_every_driver() {
    let _alone = testkit::alone();
    let (memory, stream) = (Allocated::new(3 << 20), stream());
    says_what_was_said(&memory.0);
    for place in [here(), Location::Host] {
        memory.0.prefetch(place, &stream).unwrap();
        assert_eq!(memory.0.last_prefetch_location().unwrap(), Some(place));
    }
    stream.synchronize().unwrap();
    // With no context current it is the same.
    no_context();
    says_what_was_said_without_a_context(&memory.0);
    device().set_current().unwrap();
}

fn says_what_was_said_without_a_context(buffer: &Buffer) {
    buffer.set_read_mostly(true).unwrap();
    assert!(buffer.is_read_mostly().unwrap());
    buffer.set_preferred_location(Some(here())).unwrap();
    assert_eq!(buffer.preferred_location().unwrap(), Some(here()));
    assert!(Context::current().unwrap().is_none());
}

#[test]
fn parts_of_the_host_are_told_from_one_another() {
    let _alone = testkit::alone();
    let (memory, stream) = (Allocated::new(1 << 20), stream());
    if testkit::driver_version() < 12020 {
        for error in [
            memory.0.set_preferred_location(Some(Location::HostNuma(0))).unwrap_err(),
            memory.0.prefetch(Location::HostNumaCurrent, &stream).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("needs a driver of CUDA 12.2, this one is of CUDA 12."), "{error}");
        }
        assert_eq!(memory.0.preferred_location().unwrap(), None);
        return;
    }
    memory.0.set_preferred_location(Some(Location::HostNuma(0))).unwrap();
    // Measured: a driver may take a node and tell of none.
    let told = memory.0.preferred_location().unwrap();
    assert!(told == Some(Location::HostNuma(0)) || !testkit::is_simulator() && told.is_none(), "{told:?}");
    memory.0.prefetch(Location::HostNuma(0), &stream).unwrap();
    assert_eq!(memory.0.last_prefetch_location().unwrap(), Some(Location::HostNuma(0)));
    // The nearest node is some node.
    memory.0.set_preferred_location(Some(Location::HostNumaCurrent)).unwrap();
    let found = memory.0.preferred_location().unwrap();
    assert!(matches!(found, Some(Location::HostNuma(_))) || !testkit::is_simulator(), "{found:?}");
    // The host as a processor has no parts.
    assert_eq!(memory.0.set_accessed_by(Location::HostNuma(0), true).unwrap_err().code(), INVALID_VALUE);
    assert!(memory.0.set_preferred_location(Some(Location::HostNuma(12345))).is_err());
    assert_eq!(memory.0.preferred_location().unwrap(), found);
    stream.synchronize().unwrap();
}

#[test]
fn a_part_of_an_allocation_has_its_own_advice() {
    let _alone = testkit::alone();
    let memory = Allocated::new(4 << 20);
    // SAFETY: [test] a part of the same memory, which outlives it.
    let part = |at: u64, bytes| unsafe { Buffer::borrow_raw(memory.0.as_raw() + at, bytes, None) };
    let (first, second) = (part(0, 2 << 20), part(2 << 20, 2 << 20));
    second.set_preferred_location(Some(Location::Host)).unwrap();
    second.set_read_mostly(true).unwrap();
    assert_eq!((first.preferred_location().unwrap(), first.is_read_mostly().unwrap()), (None, false));
    assert_eq!((second.preferred_location().unwrap(), second.is_read_mostly().unwrap()), (Some(Location::Host), true));
    assert_eq!((memory.0.preferred_location().unwrap(), memory.0.is_read_mostly().unwrap()), (None, false));
    first.set_preferred_location(Some(Location::Host)).unwrap();
    first.set_read_mostly(true).unwrap();
    assert_eq!(
        (memory.0.preferred_location().unwrap(), memory.0.is_read_mostly().unwrap()),
        (Some(Location::Host), true)
    );
}

#[test]
fn other_memory_is_refused() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = device().memory_resource().unwrap().allocate(4096, &stream).unwrap();
    let errors = [
        buffer.set_read_mostly(true).unwrap_err(),
        buffer.preferred_location().unwrap_err(),
        buffer.accessed_by().unwrap_err(),
        buffer.prefetch(here(), &stream).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, INVALID_VALUE), "{error}");
    }
}

#[test]
fn pools_of_managed_memory_need_cuda_13() {
    let _alone = testkit::alone();
    let preferred = |place| ManagedMemoryResource::create(&ManagedMemoryResourceOptions { preferred_location: place });
    if testkit::driver_version() < POOLS {
        for (error, call) in [
            (ManagedMemoryResource::current().unwrap_err(), "cuMemGetMemPool"),
            (preferred(None).unwrap_err(), "cuMemPoolCreate"),
        ] {
            assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, call));
            assert!(error.to_string().contains("needs a driver of CUDA 13.0, this one is of CUDA 12."), "{error}");
        }
        return;
    }
    let current = ManagedMemoryResource::current().unwrap();
    assert!(!current.is_owned());
    assert_eq!((current.preferred_location(), current.device()), (None, None));
    for place in [None, Some(here()), Some(Location::Host), Some(Location::HostNuma(0))] {
        let pool = preferred(place).unwrap();
        assert!(pool.is_owned() && pool.is_host_accessible() && pool.is_device_accessible());
        assert_eq!((pool.memory(), pool.preferred_location()), (PooledMemory::Managed(place), place));
        assert_eq!(pool.device(), place.filter(|place| *place == here()).map(|_here| device()));
        pool.close().unwrap();
    }
    // Measured: a real driver makes one of the nearest node.
    if testkit::is_simulator() {
        assert_eq!(preferred(Some(Location::HostNumaCurrent)).unwrap_err().code(), INVALID_VALUE);
    }
}

#[test]
fn host_and_device_use_it_at_one_address() {
    let alone = testkit::alone();
    if testkit::driver_version() < POOLS {
        return;
    }
    let (pool, stream) = (pool(), stream());
    let buffer = pool.allocate(1 << 20, &stream).unwrap();
    assert!(cuirass::memory::pointer_info(buffer.as_raw()).unwrap().is_managed);
    stream.synchronize().unwrap();
    let values: Vec<u32> = (0..1 << 18_u32).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
    write_on_host(&buffer, &values);
    buffer.prefetch(here(), &stream).unwrap();
    let other = device().memory_resource().unwrap().allocate(1 << 20, &stream).unwrap();
    other.copy_from(&buffer, &stream).unwrap();
    buffer.fill(0xa5, &stream).unwrap();
    buffer.prefetch(Location::Host, &stream).unwrap();
    let mut copied = vec![0_u32; 1 << 18];
    other.copy_to_slice(&mut copied, &stream).unwrap();
    assert_eq!(copied, values);
    assert!(on_host(&buffer).iter().all(|word| *word == 0xa5a5_a5a5));
    // Measured: a driver takes no advice for memory of a pool.
    let refused = buffer.set_read_mostly(true).unwrap_err();
    assert_eq!((refused.call(), &*refused.status().unwrap().name), ("cuMemAdvise_v2", "CUDA_ERROR_NOT_SUPPORTED"));
    buffer.close().unwrap();
    other.close().unwrap();
    stream.close().unwrap();
    drop(pool);
    assert_eq!(alone.reports(), [""; 0]);
}

#[test]
fn what_is_given_up_can_be_written_again() {
    let _alone = testkit::alone();
    let stream = stream();
    if testkit::driver_version() < POOLS {
        let memory = Allocated::new(4096);
        for (error, call) in [
            (memory.0.discard(&stream).unwrap_err(), "cuMemDiscardBatchAsync"),
            (memory.0.discard_prefetch(here(), &stream).unwrap_err(), "cuMemDiscardAndPrefetchBatchAsync"),
            (prefetch_batch(&[(&memory.0, here())], &stream).unwrap_err(), "cuMemPrefetchBatchAsync"),
        ] {
            assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, call));
            assert!(error.to_string().contains("needs a driver of CUDA 13.0"), "{error}");
        }
        return;
    }
    let pool = pool();
    let (one, other) = (pool.allocate(1 << 21, &stream).unwrap(), pool.allocate(1 << 21, &stream).unwrap());
    for value in 1..4_u8 {
        one.fill(value, &stream).unwrap();
        other.fill(value, &stream).unwrap();
        match value {
            1 => discard_batch(&[&one, &other], &stream).unwrap(),
            2 => discard_prefetch_batch(&[(&one, here()), (&other, Location::Host)], &stream).unwrap(),
            _ => one.discard(&stream).unwrap(),
        }
        if testkit::is_simulator() {
            // It holds nothing that anybody could rely on.
            stream.synchronize().unwrap();
            assert_ne!(on_host(&one)[7], u32::from(value) * 0x0101_0101);
        }
        // Measured: what is written after a discard, and before a prefetch, may be lost.
        one.prefetch(here(), &stream).unwrap();
        one.fill(value + 10, &stream).unwrap();
        stream.synchronize().unwrap();
        assert!(on_host(&one).iter().all(|word| *word == u32::from(value + 10) * 0x0101_0101));
    }
    assert_eq!(one.last_prefetch_location().unwrap(), Some(here()));
    assert_eq!(other.last_prefetch_location().unwrap(), Some(Location::Host));
    for (buffer, place) in [(&one, Location::Host), (&other, here())] {
        buffer.discard_prefetch(place, &stream).unwrap();
        assert_eq!(buffer.last_prefetch_location().unwrap(), Some(place));
    }
}

#[test]
fn a_batch_is_refused_with_one_status() {
    let _alone = testkit::alone();
    if testkit::driver_version() < POOLS {
        return;
    }
    let (pool, stream) = (pool(), stream());
    let (one, other) = (pool.allocate(4096, &stream).unwrap(), pool.allocate(4096, &stream).unwrap());
    let plain = device().memory_resource().unwrap().allocate(4096, &stream).unwrap();
    one.fill(7, &stream).unwrap();
    let elsewhere = self::stream();
    let error = prefetch_batch(&[(&one, here())], &elsewhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "another stream orders the release");
    for error in [
        prefetch_batch(&[(&one, here()), (&plain, here())], &stream).unwrap_err(),
        discard_prefetch_batch(&[(&one, here()), (&plain, Location::Host)], &stream).unwrap_err(),
        discard_batch(&[&one, &plain], &stream).unwrap_err(),
        prefetch_batch(&[], &stream).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, INVALID_VALUE), "{error}");
    }
    // Measured: what comes before the refused entry was taken.
    assert_eq!(one.last_prefetch_location().unwrap(), Some(here()));
    let fault = Fault::in_call("cuMemPrefetchBatchAsync").status(2).inject().unwrap();
    assert_eq!(prefetch_batch(&[(&one, here()), (&other, here())], &stream).unwrap_err().code(), Some(2));
    drop(fault);
    assert_eq!(other.last_prefetch_location().unwrap(), None);
    let recording = Recording::start();
    prefetch_batch(&[(&one, here()), (&other, here())], &stream).unwrap();
    assert_eq!(names(&recording), ["cuMemPrefetchBatchAsync"]);
    stream.synchronize().unwrap();
    assert!(on_host(&one).iter().all(|word| *word == 0x0707_0707), "nothing was given up");
}

#[test]
fn a_capture_is_not_disturbed() {
    let _alone = testkit::alone();
    let memory = Allocated::new(1 << 16);
    let stream = stream();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let builder = stream.create_graph_builder().unwrap();
        builder.begin_building(mode).unwrap();
        let captured = builder.stream();
        memory.0.fill(3, captured).unwrap();
        for error in [
            memory.0.prefetch(here(), captured).unwrap_err(),
            memory.0.discard(captured).unwrap_err(),
            memory.0.discard_prefetch(here(), captured).unwrap_err(),
            prefetch_batch(&[(&memory.0, here())], captured).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::State);
            assert!(error.to_string().contains("being captured by a graph builder"), "{error}");
        }
        assert_eq!(captured.capture_status().unwrap(), CaptureStatus::Active);
        builder.end_building().unwrap();
        let graph = builder.complete(&GraphCompleteOptions::default()).unwrap();
        memory.0.fill(1, &stream).unwrap();
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert!(on_host(&memory.0).iter().all(|word| *word == 0x0303_0303));
        graph.close().unwrap();
        builder.close().unwrap();
    }
}
