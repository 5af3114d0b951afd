//! Copies with options, in batches and of rows, against loops that say what they should do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::memory::{
    BatchedCopy, CopyExtent, CopyOptions, LegacyPinnedMemoryResource, Location, MemcpyOverlapMode,
    MemcpySrcAccessOrder, MemoryResource, Pitched, copy_batch, copy_batch_unordered,
};
use cuirass::testing::Recording;
use cuirass::{Buffer, CaptureStatus, Device, ErrorKind, Stream, StreamOptions};
use cuirass_testkit as testkit;

const BATCHES: u32 = 12080;

fn names(recording: &Recording) -> Vec<&'static str> {
    recording.take().iter().map(|record| record.call).collect()
}

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn allocate(bytes: usize, stream: &Stream) -> Buffer {
    device().memory_resource().unwrap().allocate(bytes, stream).unwrap()
}

fn noise(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn filled(values: &[u8], stream: &Stream) -> Buffer {
    let buffer = allocate(values.len(), stream);
    buffer.copy_from_slice(values, stream).unwrap();
    buffer
}

fn read(buffer: &Buffer, stream: &Stream) -> Vec<u8> {
    let mut values = vec![0; buffer.len()];
    buffer.copy_to_slice(&mut values, stream).unwrap();
    values
}

fn in_order(options: CopyOptions) -> CopyOptions {
    CopyOptions { src_access_order: MemcpySrcAccessOrder::Stream, ..options }
}

const EAGER: CopyOptions = CopyOptions {
    src_access_order: MemcpySrcAccessOrder::Any,
    src_location_hint: Some(Location::Host),
    dst_location_hint: None,
    overlap_mode: MemcpyOverlapMode::PreferOverlapWithCompute,
};

#[test]
fn a_batch_copies_each_pair() {
    let _alone = testkit::alone();
    let stream = stream();
    let hint = CopyOptions { dst_location_hint: Some(Location::Device(device())), ..in_order(EAGER) };
    for count in [1, 2, 7, 100] {
        for options in [vec![CopyOptions::default()], vec![in_order(EAGER)], vec![in_order(EAGER), hint]] {
            let values: Vec<_> = (0..count).map(|at| noise(1 + 37 * at, at as u32 + 1)).collect();
            let sources: Vec<_> = values.iter().map(|values| filled(values, &stream)).collect();
            let targets: Vec<_> = values.iter().map(|values| filled(&vec![0; values.len() + 3], &stream)).collect();
            let copies: Vec<_> = (0..count)
                .map(|at| BatchedCopy { to: &targets[at], from: &sources[at], options: options[at % options.len()] })
                .collect();
            if testkit::driver_version() < BATCHES {
                let error = copy_batch(&copies, &stream).unwrap_err();
                assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, "cuMemcpyBatchAsync"));
                assert!(error.to_string().contains("needs a driver of CUDA 12.8, this one is of CUDA 12."), "{error}");
                assert!(read(&targets[0], &stream).iter().all(|byte| *byte == 0));
                continue;
            }
            let recording = Recording::start();
            copy_batch(&copies, &stream).unwrap();
            let batches = recording.take().iter().filter(|call| call.call.starts_with("cuMemcpyBatchAsync")).count();
            assert_eq!(batches, 1);
            for (values, target) in values.iter().zip(&targets) {
                let found = read(target, &stream);
                assert_eq!(&found[..values.len()], values);
                assert_eq!(&found[values.len()..], [0, 0, 0]);
            }
        }
    }
}

#[test]
fn copies_that_depend_on_one_another_are_refused() {
    let _alone = testkit::alone();
    let stream = stream();
    let memory = filled(&noise(100, 1), &stream);
    // SAFETY: [test] parts of the same memory, which outlives them.
    let part = |at: u64, bytes| unsafe { Buffer::borrow_raw(memory.as_raw() + at, bytes, None) };
    let before = read(&memory, &stream);
    let pair = |to: &'static str| {
        let at = |text: &str| -> Vec<u64> { text.split(',').map(|number| number.parse().unwrap()).collect() };
        at(to)
    };
    // Targets, sources and sizes.
    for case in ["0,50,10,5,60,10", "0,50,10,45,5,10", "0,50,10,80,3,2", "0,20,10,29,0,1", "20,0,10,0,25,1"] {
        let numbers = pair(case);
        let [to, from, size, other_to, other_from, other_size] = numbers[..] else { panic!("six numbers") };
        let (one, other) = ((size as usize, to, from), (other_size as usize, other_to, other_from));
        let buffers = [one, other].map(|(bytes, to, from)| (part(to, bytes), part(from, bytes)));
        let copies = buffers.each_ref().map(|(to, from)| BatchedCopy { to, from, options: CopyOptions::default() });
        let error = copy_batch(&copies, &stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{case}");
        assert!(error.to_string().contains("the copies are made in no order"), "{case}: {error}");
    }
    assert_eq!(read(&memory, &stream), before);
    let (small, large) = (part(0, 10), part(20, 11));
    let error =
        copy_batch(&[BatchedCopy { to: &small, from: &large, options: CopyOptions::default() }], &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    if testkit::driver_version() >= BATCHES {
        // Neighbours, and two copies of one source, do not.
        let buffers = [(part(0, 10), part(50, 10)), (part(10, 10), part(50, 10)), (part(20, 5), part(60, 5))];
        let copies = buffers.each_ref().map(|(to, from)| BatchedCopy { to, from, options: CopyOptions::default() });
        copy_batch(&copies, &stream).unwrap();
        let mut expected = before.clone();
        expected.copy_within(50..60, 0);
        expected.copy_within(50..60, 10);
        expected[20..25].copy_from_slice(&before[60..65]);
        assert_eq!(read(&memory, &stream), expected);
    }
}

#[test]
fn a_source_that_is_read_during_the_call_is_free_afterwards() {
    let _alone = testkit::alone();
    if testkit::driver_version() < BATCHES {
        return;
    }
    let stream = stream();
    let during = CopyOptions { src_access_order: MemcpySrcAccessOrder::DuringApiCall, ..CopyOptions::default() };
    for bytes in [100, 70_000, 3 << 20] {
        let target = allocate(bytes, &stream);
        let mut values = noise(bytes, 5);
        let expected = values.clone();
        // SAFETY: [test] the vector outlives the call, which is all that it is read in.
        let source = unsafe { Buffer::borrow_raw(values.as_mut_ptr().expose_provenance() as u64, bytes, None) };
        // SAFETY: [test] as above.
        unsafe { target.copy_from_with_unordered(&source, &during, &stream).unwrap() };
        values.fill(0);
        assert_eq!(read(&target, &stream), expected, "{bytes} bytes");
        // The safe function reads nothing out of order.
        let error = target.copy_from_with(&source, &during, &stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State);
        drop(source);
    }
}

#[test]
fn options_that_say_nothing_make_a_plain_copy() {
    let _alone = testkit::alone();
    let stream = stream();
    let values = noise(300, 9);
    let (source, target) = (filled(&values, &stream), filled(&[0; 300], &stream));
    let recording = Recording::start();
    target.copy_from_with(&source, &CopyOptions::default(), &stream).unwrap();
    assert_eq!(names(&recording), ["cuMemcpyAsync"]);
    assert_eq!(read(&target, &stream), values);
    target.fill(0, &stream).unwrap();
    // SAFETY: [test] the same stream orders everything, and the source is not written to.
    let copied = unsafe { target.copy_from_with_unordered(&source, &EAGER, &stream) };
    if testkit::driver_version() >= BATCHES {
        copied.unwrap();
        assert_eq!(read(&target, &stream), values);
    } else {
        let error = copied.unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, "cuMemcpyBatchAsync"));
        assert_eq!(read(&target, &stream), [0; 300]);
    }
}

#[test]
fn the_legacy_default_stream_makes_no_batches() {
    let _alone = testkit::alone();
    if testkit::driver_version() < BATCHES {
        return;
    }
    let (stream, legacy) = (stream(), Stream::legacy_default());
    let (source, target) = (filled(&[1; 8], &stream), filled(&[0; 8], &stream));
    stream.synchronize().unwrap();
    device().set_current().unwrap();
    let copies = [BatchedCopy { to: &target, from: &source, options: CopyOptions::default() }];
    // SAFETY: [test] it is refused.
    let error = unsafe { copy_batch_unordered(&copies, &legacy) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
    assert_eq!(read(&target, &stream), [0; 8]);
    // SAFETY: [test] the stream is waited for.
    unsafe { copy_batch_unordered(&copies, &Stream::per_thread_default()) }.unwrap();
    Stream::per_thread_default().synchronize().unwrap();
    assert_eq!(read(&target, &stream), [1; 8]);
    cuirass_call::context::ctx_set_current(std::ptr::null_mut()).unwrap();
}

/// The bytes that a copy of rows should leave behind.
fn copied(target: &[u8], to: Pitched, source: &[u8], from: Pitched, extent: CopyExtent) -> Vec<u8> {
    let mut target = target.to_vec();
    let place = |side: Pitched, slice: usize, row: usize| {
        let pitch = if side.pitch == 0 { extent.width } else { side.pitch };
        let rows = if side.rows == 0 { extent.height } else { side.rows };
        side.offset + pitch * (rows * slice + row)
    };
    for slice in 0..extent.depth {
        for row in 0..extent.height {
            for byte in 0..extent.width {
                target[place(to, slice, row) + byte] = source[place(from, slice, row) + byte];
            }
        }
    }
    target
}

const EXTENTS: [CopyExtent; 6] = [
    CopyExtent { width: 5, height: 4, depth: 1 },
    CopyExtent { width: 16, height: 1, depth: 1 },
    CopyExtent { width: 3, height: 2, depth: 3 },
    CopyExtent { width: 1, height: 7, depth: 2 },
    CopyExtent { width: 8, height: 1, depth: 4 },
    CopyExtent { width: 0, height: 3, depth: 1 },
];

const SIDES: [Pitched; 4] = [
    Pitched { offset: 0, pitch: 0, rows: 0 },
    Pitched { offset: 7, pitch: 0, rows: 0 },
    Pitched { offset: 3, pitch: 19, rows: 0 },
    Pitched { offset: 1, pitch: 17, rows: 9 },
];

#[test]
fn rows_land_where_a_loop_would_put_them() {
    let alone = testkit::alone();
    let stream = stream();
    let (before, values) = (noise(700, 3), noise(700, 4));
    let source = filled(&values, &stream);
    let pinned = LegacyPinnedMemoryResource.allocate(700, &stream).unwrap();
    pinned.copy_from_slice(&values, &stream).unwrap();
    for extent in EXTENTS {
        for to in SIDES {
            for from in SIDES {
                let expected = copied(&before, to, &values, from, extent);
                let target = filled(&before, &stream);
                target.copy_pitched_from(to, &source, from, extent, &stream).unwrap();
                assert_eq!(read(&target, &stream), expected, "{extent:?}, to {to:?}, from {from:?}");
                target.copy_from_slice(&before, &stream).unwrap();
                target.copy_pitched_from(to, &pinned, from, extent, &stream).unwrap();
                assert_eq!(read(&target, &stream), expected, "{extent:?}, to {to:?}, from page-locked {from:?}");
                target.copy_from_slice(&before, &stream).unwrap();
                target.copy_pitched_from_slice(to, &values, from, extent, &stream).unwrap();
                assert_eq!(read(&target, &stream), expected, "{extent:?}, to {to:?}, from a slice {from:?}");
                let mut slice = before.clone();
                source.copy_pitched_to_slice(from, &mut slice, to, extent, &stream).unwrap();
                assert_eq!(slice, expected, "{extent:?}, to a slice {to:?}, from {from:?}");
            }
        }
    }
    assert_eq!(alone.reports(), [""; 0]);
}

#[test]
fn rows_outside_of_a_buffer_are_refused() {
    let _alone = testkit::alone();
    let stream = stream();
    let (target, source) = (filled(&[0; 100], &stream), filled(&[1; 100], &stream));
    let flat = |width, height, depth| CopyExtent { width, height, depth };
    let at = |offset, pitch, rows| Pitched { offset, pitch, rows };
    for (extent, side) in [
        (flat(101, 1, 1), at(0, 0, 0)),
        (flat(10, 11, 1), at(0, 0, 0)),
        (flat(10, 10, 1), at(1, 0, 0)),
        (flat(10, 3, 1), at(0, 46, 0)),
        (flat(10, 3, 1), at(0, 9, 0)),
        (flat(5, 4, 2), at(0, 0, 3)),
        (flat(5, 4, 2), at(0, 10, 7)),
        (flat(1, usize::MAX, 1), at(0, 0, 0)),
        (flat(1, 2, 2), at(usize::MAX, 1, 0)),
        (flat(2, 2, 2), at(0, usize::MAX, usize::MAX)),
        (flat(0, 1, 1), at(101, 0, 0)),
    ] {
        let loose = if extent.width == 0 { at(0, 0, 0) } else { side };
        for error in [
            target.copy_pitched_from(side, &source, loose, extent, &stream).unwrap_err(),
            target.copy_pitched_from_slice(side, &[1_u8; 100], loose, extent, &stream).unwrap_err(),
            source.copy_pitched_to_slice(side, &mut [1_u8; 100], loose, extent, &stream).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Value, "{extent:?}, {side:?}: {error}");
        }
    }
    assert_eq!(read(&target, &stream), [0; 100]);
    // The last byte is inside, and a single row or slice needs no pitch.
    target.copy_pitched_from(at(0, 45, 0), &source, at(90, 1, 0), flat(10, 1, 1), &stream).unwrap();
    target.copy_pitched_from(at(0, 45, 0), &source, at(0, 45, 1), flat(10, 3, 1), &stream).unwrap();
}

#[test]
fn in_a_capture_rows_are_a_node_and_batches_are_refused() {
    let _alone = testkit::alone();
    let stream = stream();
    let target = filled(&[0; 64], &stream);
    let extent = CopyExtent { width: 4, height: 4, depth: 2 };
    let (to, from) = (Pitched { offset: 2, pitch: 7, rows: 4 }, Pitched::default());
    let values = noise(64, 8);
    let builder = stream.create_graph_builder().unwrap();
    {
        let source = filled(&values, &stream);
        stream.synchronize().unwrap();
        builder.begin_building(CaptureMode::ThreadLocal).unwrap();
        let captured = builder.stream();
        let copies = [BatchedCopy { to: &target, from: &source, options: CopyOptions::default() }];
        for error in [
            copy_batch(&copies, captured).unwrap_err(),
            target.copy_from_with(&source, &in_order(EAGER), captured).unwrap_err(),
            target.copy_pitched_from_slice(to, &values, from, extent, captured).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::State);
            assert!(error.to_string().contains("being captured by a graph builder"), "{error}");
        }
        assert_eq!(captured.capture_status().unwrap(), CaptureStatus::Active);
        target.copy_pitched_from(to, &source, from, extent, captured).unwrap();
        builder.end_building().unwrap();
        // The source goes here, but for the graph.
    }
    let graph = builder.complete(&GraphCompleteOptions::default()).unwrap();
    assert_eq!(read(&target, &stream), [0; 64]);
    graph.launch(&stream).unwrap();
    assert_eq!(read(&target, &stream), copied(&[0; 64], to, &values, from, extent));
    graph.close().unwrap();
    builder.close().unwrap();
}
