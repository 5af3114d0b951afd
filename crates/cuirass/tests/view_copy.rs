//! Copies between strided tensors, on the device and on the host, against a loop over every element.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::memory::Buffer;
use cuirass::testing::{Fault, Recording};
use cuirass::view::{Strided, StridedCopy, StridedLayout};
use cuirass::{Device, ErrorKind, Stream, StreamOptions};
use cuirass_testkit as testkit;
use proptest::prelude::*;

const ROOM: usize = 2048;

fn stream() -> Stream {
    Device::new(0).unwrap().create_stream(&StreamOptions::default()).unwrap()
}

fn memory(stream: &Stream) -> Buffer {
    Device::new(0).unwrap().memory_resource().unwrap().allocate(ROOM, stream).unwrap()
}

/// A layout, and the element at which it starts.
#[derive(Clone, Debug)]
struct Place {
    strides: Vec<i64>,
    start: i64,
}

fn place(shape: &[i64], order: &[usize], gaps: &[i64], turned: &[bool]) -> Place {
    let mut place = Place { strides: vec![0; shape.len()], start: 0 };
    let mut step = 1;
    for &axis in order {
        step += gaps[axis];
        place.strides[axis] = step;
        step *= shape[axis].max(1);
        if turned[axis] {
            place.start += place.strides[axis] * (shape[axis] - 1).max(0);
            place.strides[axis] = -place.strides[axis];
        }
    }
    place
}

fn places() -> impl Strategy<Value = (Vec<i64>, usize, Place, Place)> {
    let sizes = (1_usize..4).prop_flat_map(|ndim| {
        let one = move || {
            (
                Just((0..ndim).collect::<Vec<_>>()).prop_shuffle(),
                prop::collection::vec(0_i64..2, ndim),
                prop::collection::vec(any::<bool>(), ndim),
            )
        };
        (prop::collection::vec(0_i64..5, ndim), prop::sample::select(vec![1_usize, 2, 3, 4, 8]), one(), one())
    });
    sizes.prop_map(|(shape, itemsize, to, from)| {
        let to = place(&shape, &to.0, &to.1, &to.2);
        let from = place(&shape, &from.0, &from.1, &from.2);
        (shape, itemsize, to, from)
    })
}

/// Calls with the offset in bytes of each element on both sides.
fn each(shape: &[i64], to: &Place, from: &Place, itemsize: usize, mut call: impl FnMut(usize, usize)) {
    let volume: i64 = shape.iter().product();
    for number in 0..volume {
        let (mut rest, mut a, mut b) = (number, to.start, from.start);
        for axis in (0..shape.len()).rev() {
            let index = rest % shape[axis];
            rest /= shape[axis];
            a += index * to.strides[axis];
            b += index * from.strides[axis];
        }
        call(usize::try_from(a).unwrap() * itemsize, usize::try_from(b).unwrap() * itemsize);
    }
}

fn strided(base: u64, is_host: bool, shape: &[i64], place: &Place, itemsize: usize) -> Strided {
    let layout = StridedLayout::new(shape, Some(&place.strides), itemsize).unwrap();
    Strided { address: base + u64::try_from(place.start).unwrap() * itemsize as u64, layout, is_host }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_moves_every_element((shape, itemsize, to, from) in places(), to_host in any::<bool>(), from_host in any::<bool>()) {
        let _alone = testkit::alone();
        let stream = stream();
        let (target, source) = (memory(&stream), memory(&stream));
        let values: Vec<u8> = (0..ROOM).map(|i| (i * 37 % 251) as u8).collect();
        let mut host_target = vec![0xee_u8; ROOM];
        target.copy_from_slice(&host_target, &stream).unwrap();
        source.copy_from_slice(&values, &stream).unwrap();
        let mut expected = host_target.clone();
        each(&shape, &to, &from, itemsize, |a, b| expected[a..a + itemsize].copy_from_slice(&values[b..b + itemsize]));
        let to_base = if to_host { host_target.as_mut_ptr().expose_provenance() as u64 } else { target.as_raw() };
        let from_base = if from_host { values.as_ptr().expose_provenance() as u64 } else { source.as_raw() };
        let copy = StridedCopy::new(
            &strided(to_base, to_host, &shape, &to, itemsize),
            &strided(from_base, from_host, &shape, &from, itemsize),
        ).unwrap();
        // SAFETY: [test] all of it lives until the stream has been waited for.
        unsafe { copy.submit(&stream, None, true).unwrap() };
        let result = if to_host { host_target } else {
            let mut bytes = vec![0_u8; ROOM];
            target.copy_to_slice(&mut bytes, &stream).unwrap();
            bytes
        };
        prop_assert_eq!(result, expected);
    }
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let at = |address, shape: &[i64], strides: &[i64], itemsize| Strided {
        address,
        layout: StridedLayout::new(shape, Some(strides), itemsize).unwrap(),
        is_host: false,
    };
    let whole = at(4096, &[4, 4], &[4, 1], 4);
    for (to, from) in [
        (at(8192, &[4, 3], &[4, 1], 4), &whole),
        (at(8192, &[4, 4], &[4, 1], 2), &whole),
        (at(8192, &[4, 4], &[0, 1], 4), &whole),
        (at(8192, &[4, 4], &[1, 1], 4), &whole),
        (at(4100, &[4, 4], &[4, 1], 4), &whole),
        (at(u64::MAX - 8, &[4, 4], &[4, 1], 4), &whole),
        (at(16, &[4, 4], &[-4, 1], 4), &whole),
    ] {
        let error = StridedCopy::new(&to, from).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
    }
    let nothing = StridedCopy::new(&whole, &whole).unwrap();
    assert_eq!((nothing.staging(), nothing.is_synchronous()), (0, true));
}

#[test]
fn staging_memory_that_may_be_in_use_is_leaked() {
    let _alone = testkit::alone();
    let stream = stream();
    let device = memory(&stream);
    let mut host = vec![0_u8; 16];
    let layout = |strides: &[i64]| StridedLayout::new(&[4, 4], Some(strides), 1).unwrap();
    let to = Strided { address: host.as_mut_ptr().expose_provenance() as u64, layout: layout(&[1, 4]), is_host: true };
    let from = Strided { address: device.as_raw(), layout: layout(&[4, 1]), is_host: false };
    let copy = StridedCopy::new(&to, &from).unwrap();
    assert_eq!((copy.staging(), copy.is_synchronous()), (16, true));
    let fault = Fault::in_call("cuStreamSynchronize").status(999).inject().unwrap();
    // SAFETY: [test] the host's memory is not written to after a failure; the device's lives on.
    let error = unsafe { copy.submit(&stream, None, true).unwrap_err() };
    drop(fault);
    assert_eq!(error.call(), "cuStreamSynchronize");
    assert!(error.notes().iter().any(|note| note.contains("staging memory") && note.contains("leaked")), "{error:?}");
    assert_eq!(host, [0; 16]);
    let recording = Recording::start();
    // SAFETY: [test] as above.
    unsafe { copy.submit(&stream, None, true).unwrap() };
    let copies = recording.take().iter().filter(|call| call.call.starts_with("cuMemcpy")).count();
    assert_eq!(copies, 1);
}
