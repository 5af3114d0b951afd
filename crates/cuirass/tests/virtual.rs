//! Virtual memory: allocations that grow, and what is left of them when a step fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::memory::{Location, MemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions};
use cuirass::testing::{Fault, Recording};
use cuirass::{Buffer, Device, ErrorKind, Stream, StreamOptions};
use cuirass_testkit as testkit;

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn resource() -> VirtualMemoryResource {
    VirtualMemoryResource::new(device(), VirtualMemoryResourceOptions::default()).unwrap()
}

fn write(buffer: &Buffer, stream: &Stream) -> Vec<u32> {
    let words = u32::try_from(buffer.len() / 4).unwrap();
    let values: Vec<u32> = (0..words).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    buffer.copy_from_slice(&values, stream).unwrap();
    values
}

fn read(buffer: &Buffer, words: usize, stream: &Stream) -> Vec<u32> {
    let mut values = vec![0; words];
    buffer.copy_to_slice(&mut values, stream).unwrap();
    values
}

#[test]
fn sizes_are_multiples_of_the_granularity() {
    let _alone = testkit::alone();
    let (resource, stream) = (resource(), stream());
    let granularity = resource.granularity().unwrap();
    assert!(granularity.is_power_of_two());
    let buffer = resource.allocate(100, &stream).unwrap();
    assert_eq!(buffer.len(), granularity);
    assert_eq!(buffer.as_raw() % granularity as u64, 0);
    let values = write(&buffer, &stream);
    assert_eq!(read(&buffer, values.len(), &stream), values);
    assert_eq!(resource.allocate(0, &stream).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(resource.allocate(usize::MAX, &stream).unwrap_err().kind(), ErrorKind::Value);
    buffer.close().unwrap();
    stream.close().unwrap();
}

#[test]
fn what_was_written_stays_when_it_grows() {
    let _alone = testkit::alone();
    let (resource, stream) = (resource(), stream());
    let mut buffer = resource.allocate(1, &stream).unwrap();
    let values = write(&buffer, &stream);
    let start = buffer.as_raw();
    for times in 2..6_usize {
        let wanted = values.len() * 4 * times;
        buffer = resource.grow(buffer, wanted - 5).map_err(|(_, error)| error).unwrap();
        assert_eq!(buffer.len(), wanted);
        assert_eq!(read(&buffer, values.len(), &stream), values);
        // A driver may have taken the addresses behind it; the simulated one has not.
        assert!(buffer.as_raw() == start || !testkit::is_simulator());
    }
    // All of it is one piece, to copies and to whoever reads and writes it.
    let all = write(&buffer, &stream);
    assert_eq!(read(&buffer, all.len(), &stream), all);
    let same = buffer.as_raw();
    let buffer = resource.grow(buffer, 3).map_err(|(_, error)| error).unwrap();
    assert_eq!((buffer.as_raw(), buffer.len()), (same, all.len() * 4));
    buffer.close().unwrap();
    stream.synchronize().unwrap();
    cuirass::drain();
    stream.close().unwrap();
}

#[test]
fn growth_moves_where_the_addresses_behind_it_are_taken() {
    let _alone = testkit::alone();
    let (resource, stream) = (resource(), stream());
    let granularity = resource.granularity().unwrap();
    let first = resource.allocate(granularity, &stream).unwrap();
    let end = first.as_raw() + granularity as u64;
    let options = VirtualMemoryResourceOptions { address_hint: end, ..Default::default() };
    let neighbour = VirtualMemoryResource::new(device(), options).unwrap().allocate(granularity, &stream).unwrap();
    let values = write(&first, &stream);
    let (old, taken) = (first.as_raw(), neighbour.as_raw() == end);
    let grown = resource.grow(first, granularity * 3).map_err(|(_, error)| error).unwrap();
    assert!(!taken || grown.as_raw() != old, "the addresses behind it are the neighbour's");
    assert_eq!(read(&grown, values.len(), &stream), values);
    let all = write(&grown, &stream);
    assert_eq!(read(&grown, all.len(), &stream), all);
    for buffer in [grown, neighbour] {
        buffer.close().unwrap();
    }
    stream.synchronize().unwrap();
    cuirass::drain();
    stream.close().unwrap();
}

#[test]
fn a_step_that_fails_leaves_nothing() {
    let _alone = testkit::alone();
    let (resource, stream) = (resource(), stream());
    resource.allocate(1, &stream).unwrap().close().unwrap();
    let before = testkit::simulator::census();
    for call in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let fault = Fault::in_call(call).status(2).on_this_thread().inject().unwrap();
        let error = resource.allocate(1, &stream).unwrap_err();
        assert_eq!(error.call(), call, "{error}");
        drop(fault);
        assert_eq!(testkit::simulator::census(), before, "{call}");
    }
    stream.close().unwrap();
}

#[test]
fn growth_that_fails_gives_the_buffer_back_as_it_was() {
    let _alone = testkit::alone();
    let (resource, stream) = (resource(), stream());
    let mut buffer = resource.allocate(1, &stream).unwrap();
    let (address, bytes) = (buffer.as_raw(), buffer.len());
    let values = write(&buffer, &stream);
    for call in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let before = testkit::simulator::census();
        let fault = Fault::in_call(call).status(2).on_this_thread().inject().unwrap();
        let (same, error) = resource.grow(buffer, bytes * 4).unwrap_err();
        drop(fault);
        buffer = same;
        assert_eq!(error.call(), call, "{error}");
        assert_eq!((buffer.as_raw(), buffer.len()), (address, bytes));
        assert_eq!(read(&buffer, values.len(), &stream), values);
        assert_eq!(testkit::simulator::census(), before, "{call}");
    }
    let plain = device().memory_resource().unwrap().allocate(64, &stream).unwrap();
    let (plain, error) = resource.grow(plain, 128).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    plain.close().unwrap();
    buffer.close().unwrap();
    stream.close().unwrap();
}

#[test]
fn memory_is_unmapped_behind_the_work_of_its_stream() {
    let _alone = testkit::alone();
    let (resource, stream) = (resource(), stream());
    let buffer = resource.allocate(1, &stream).unwrap();
    let gate = std::sync::Arc::new(std::sync::Barrier::new(2));
    let held = gate.clone();
    stream
        .launch_host_function(move || {
            held.wait();
        })
        .unwrap();
    let recording = Recording::start();
    buffer.close().unwrap();
    let waits = cuirass::pending_releases();
    gate.wait();
    stream.synchronize().unwrap();
    cuirass::drain();
    let calls = recording.take();
    assert_eq!(waits, 1);
    assert!(calls.iter().any(|call| call.call == "cuMemUnmap"), "{calls:?}");
    assert_eq!(cuirass::pending_releases(), 0);
    stream.close().unwrap();
}

#[test]
fn memory_without_a_stream_goes_at_once() {
    let _alone = testkit::alone();
    let resource = resource();
    let buffer = resource.allocate_unordered(1).unwrap();
    assert!(buffer.deallocation_stream().is_none());
    let before = testkit::simulator::census();
    buffer.close().unwrap();
    assert!(testkit::simulator::census() != before || before.is_none());
}

#[test]
fn peers_get_access() {
    let _alone = testkit::alone();
    let devices = Device::all().unwrap();
    let Some(other) = devices.get(1).copied() else { return };
    if !other.can_access_peer(device()).unwrap() {
        return;
    }
    let options = VirtualMemoryResourceOptions { peers: vec![device(), other], ..Default::default() };
    let resource = VirtualMemoryResource::new(device(), options).unwrap();
    let stream = other.create_stream(&StreamOptions::default()).unwrap();
    let buffer = resource.allocate(1, &stream).unwrap();
    // Written by the other device, through its own stream.
    buffer.fill(0x5a, &stream).unwrap();
    assert_eq!(read(&buffer, 4, &stream), [0x5a5a_5a5a; 4]);
    buffer.close().unwrap();
    stream.close().unwrap();
}

fn fill_by_a_graph(buffer: &Buffer) {
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Global).unwrap();
    // SAFETY: [test] nothing else uses the memory.
    unsafe { buffer.fill_unordered(&[9], builder.stream()).unwrap() };
    builder.end_building().unwrap();
    let graph = builder.complete(&GraphCompleteOptions::default()).unwrap();
    let stream = stream();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    graph.close().unwrap();
}

/// A fill that is refused part of the way says how far it went; all other memory is filled by one call.
#[test]
fn a_fill_of_several_mappings() {
    let _alone = testkit::alone();
    let stream = stream();
    let fills = |recording: &Recording| {
        recording
            .take()
            .iter()
            .filter(|record| record.call == "cuMemsetD8Async")
            .map(|record| record.arguments[2])
            .collect()
    };
    for (location, expected) in [(None, 1), (Some(Location::Host), 3)] {
        let options = VirtualMemoryResourceOptions { location, ..VirtualMemoryResourceOptions::default() };
        let resource = VirtualMemoryResource::new(device(), options).unwrap();
        let mut buffer = resource.allocate(1, &stream).unwrap();
        let grain = buffer.len();
        // Behind it, and behind that.
        for _ in 0..2 {
            let wanted = buffer.len() + grain;
            buffer = resource.grow(buffer, wanted).map_err(|(_, error)| error).unwrap();
        }
        let recording = Recording::start();
        buffer.fill(7, &stream).unwrap();
        let sizes: Vec<u64> = fills(&recording);
        assert_eq!(sizes, vec![(3 * grain / expected) as u64; expected]);
        assert!(read(&buffer, 3 * grain / 4, &stream).iter().all(|word| *word == 0x0707_0707));
        let fault = Fault::in_call("cuMemsetD8Async").nth(expected as u64).on_this_thread().inject().unwrap();
        let error = buffer.fill(8, &stream).unwrap_err();
        assert_eq!((fault.count(), error.call()), (1, "cuMemsetD8Async"));
        drop(fault);
        let wanted = format!("the fill of the first {} bytes was submitted", 2 * grain);
        assert_eq!(error.notes(), if expected == 3 { vec![wanted] } else { vec![] });
        let word = |at: usize| read(&buffer, 3 * grain / 4, &stream)[at];
        assert_eq!(
            (word(0), word(3 * grain / 4 - 1)),
            (if expected == 3 { 0x0808_0808 } else { 0x0707_0707 }, 0x0707_0707)
        );
        buffer.close().unwrap();
        stream.synchronize().unwrap();
    }
}

/// Where the host's memory is, how it is to be exported, and which of it a driver makes.
#[test]
fn memory_of_the_host() {
    let _alone = testkit::alone();
    let stream = stream();
    let none = cuirass::memory::VirtualMemoryHandleType::CU_MEM_HANDLE_TYPE_NONE;
    let file = VirtualMemoryResourceOptions::default().handle_type;
    for (location, handle_type) in
        [Location::Host, Location::HostNuma(0), Location::HostNumaCurrent].iter().flat_map(|l| [(*l, none), (*l, file)])
    {
        let options = VirtualMemoryResourceOptions {
            location: Some(location),
            handle_type,
            ..VirtualMemoryResourceOptions::default()
        };
        let resource = VirtualMemoryResource::new(device(), options).unwrap();
        let before = testkit::simulator::census();
        let mut buffer = match resource.allocate(1, &stream) {
            Ok(buffer) => buffer,
            Err(error) => {
                assert_eq!((location, error.call()), (Location::HostNumaCurrent, "cuMemCreate"), "{error}");
                assert!(error.notes().iter().any(|note| note.contains("the current NUMA node")), "{error:?}");
                assert_eq!(testkit::simulator::census(), before);
                continue;
            }
        };
        for round in 0..3 {
            let values = write(&buffer, &stream);
            // SAFETY: [test] nothing uses the memory but this; the copy into it is done.
            let seen = unsafe {
                std::slice::from_raw_parts_mut(
                    std::ptr::with_exposed_provenance_mut::<u32>(buffer.as_raw() as usize),
                    values.len(),
                )
            };
            assert_eq!(seen, values, "{location:?}, {handle_type:?}");
            seen.fill(5);
            assert_eq!(read(&buffer, values.len(), &stream), vec![5; values.len()]);
            // The device writes to it, too. A real driver fills no memory of the host that has several mappings at once.
            let recording = Recording::start();
            buffer.fill(3_u8, &stream).unwrap();
            stream.synchronize().unwrap();
            assert!(seen.iter().all(|word| *word == 0x0303_0303));
            assert_eq!(recording.take().iter().filter(|record| record.call == "cuMemsetD8Async").count(), round + 1);
            for pattern in [&[1, 2][..], &[3, 4, 5, 6]] {
                // SAFETY: [test] nothing else uses the memory.
                unsafe { buffer.fill_unordered(pattern, &stream).unwrap() };
                stream.synchronize().unwrap();
                assert!(
                    seen.iter().all(|word| word.to_le_bytes() == *pattern.repeat(4 / pattern.len())),
                    "{pattern:?}"
                );
            }
            fill_by_a_graph(&buffer);
            assert!(seen.iter().all(|word| *word == 0x0909_0909));
            let bytes = buffer.len();
            buffer = resource.grow(buffer, bytes + 1).map_err(|(_, error)| error).unwrap();
            assert!(buffer.len() > bytes);
        }
        buffer.close().unwrap();
        stream.synchronize().unwrap();
        cuirass::drain();
        assert_eq!(testkit::simulator::census(), before);
    }
    stream.close().unwrap();
}

#[test]
fn what_it_is_made_of_is_told() {
    let _alone = testkit::alone();
    let resource = resource();
    assert_eq!((resource.is_device_accessible(), resource.is_host_accessible()), (true, false));
    assert_eq!(resource.device(), Some(device()));
    let options = VirtualMemoryResourceOptions { location: Some(Location::HostNuma(0)), ..Default::default() };
    let host = VirtualMemoryResource::new(device(), options).unwrap();
    assert_eq!((host.is_host_accessible(), host.device()), (true, None));
}
