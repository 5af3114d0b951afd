//! Managed memory and batches of the simulated driver: which arguments are refused, what is kept, what is reported.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{Driver, NULL, alone};

/// `CUmemLocation`, which C passes in a register.
fn location(kind: u32, id: i32) -> u64 {
    u64::from(kind) | u64::from(id.cast_unsigned()) << 32
}

const DEVICE: u32 = 1;
const HOST: u32 = 2;
const NODE: u32 = 3;
const NODE_HERE: u32 = 4;

fn managed(d: &Driver, bytes: usize) -> usize {
    d.get("cuMemAllocManaged", |out| (out, bytes, 1_u32))
}

fn attribute(d: &Driver, which: u32, from: usize, bytes: usize) -> i32 {
    let mut value = 99_i32;
    d.ok("cuMemRangeGetAttribute", (&raw mut value, 4_usize, which, from, bytes));
    value
}

#[test]
fn advice_is_kept_page_by_page() {
    alone("advice_is_kept_page_by_page", "devices=2", || {
        let (d, _) = Driver::ready();
        let p = managed(&d, 64 << 10);
        let advise =
            |at: usize, bytes: usize, advice: u32, place: u64| d.call("cuMemAdvise_v2", (at, bytes, advice, place));
        assert_eq!((attribute(&d, 1, p, 100), attribute(&d, 2, p, 100), attribute(&d, 5, p, 100)), (0, -2, 0));
        // The whole page is meant.
        assert_eq!(advise(p + 5000, 10, 3, location(DEVICE, 1)), "SUCCESS");
        assert_eq!(
            (attribute(&d, 2, p + 4096, 4096), attribute(&d, 5, p + 4096, 1), attribute(&d, 6, p + 8191, 1)),
            (1, 1, 1)
        );
        assert_eq!((attribute(&d, 2, p, 4096), attribute(&d, 2, p + 4000, 200)), (-2, -2));
        assert_eq!(advise(p, 64 << 10, 3, location(NODE_HERE, 77)), "SUCCESS");
        assert_eq!((attribute(&d, 2, p, 64 << 10), attribute(&d, 5, p, 64 << 10), attribute(&d, 6, p, 1)), (-1, 3, 0));
        for (advice, place, answer) in [
            (0, location(HOST, 0), "INVALID_VALUE"),
            (7, location(HOST, 0), "INVALID_VALUE"),
            (3, location(0, 0), "INVALID_VALUE"),
            (3, location(DEVICE, 2), "INVALID_DEVICE"),
            (3, location(NODE, 5), "INVALID_VALUE"),
            (5, location(NODE, 0), "INVALID_VALUE"),
            // What takes no place does not look at it.
            (1, location(77, 99), "SUCCESS"),
            (4, location(77, 99), "SUCCESS"),
        ] {
            assert_eq!(advise(p, 4096, advice, place), answer, "advice {advice}, {place:#x}");
        }
        let devices = |room: usize| {
            let mut all = [99_i32; 4];
            d.ok("cuMemRangeGetAttribute", (all.as_mut_ptr(), room * 4, 3_u32, p, 64_usize << 10));
            all
        };
        assert_eq!(d.call("cuMemAdvise", (p, 64_usize << 10, 5_u32, 1_i32)), "SUCCESS");
        assert_eq!(d.call("cuMemAdvise", (p, 64_usize << 10, 5_u32, -1_i32)), "SUCCESS");
        assert_eq!(d.call("cuMemAdvise", (p, 4096_usize, 5_u32, 0_i32)), "SUCCESS");
        assert_eq!((devices(4), devices(1)), ([1, -1, -2, -2], [1, 99, 99, 99]));
        // Its end takes all of it along.
        d.ok("cuMemFree_v2", (p,));
        let again = managed(&d, 64 << 10);
        assert_eq!((again, attribute(&d, 1, p, 4096), attribute(&d, 2, p, 64 << 10)), (p, 0, -2));
        assert_eq!(d.reports(), "");
    });
}

#[test]
fn several_attributes_at_once() {
    alone("several_attributes_at_once", "", || {
        let (d, _) = Driver::ready();
        let p = managed(&d, 4096);
        let stream = d.stream(1);
        d.ok("cuMemPrefetchAsync_v2", (p, 4096_usize, location(NODE, 0), 0_u32, stream));
        let (mut read_mostly, mut kind, mut id, mut devices) = (9_i32, 9_i32, 9_i32, [9_i32; 2]);
        let mut places = [&raw mut read_mostly, &raw mut kind, &raw mut id, devices.as_mut_ptr()];
        let (mut sizes, mut which) = ([4_usize, 4, 4, 8], [1_u32, 7, 8, 3]);
        let mut ask = |number: usize| {
            let (places, sizes, which) = (places.as_mut_ptr(), sizes.as_mut_ptr(), which.as_mut_ptr());
            d.call("cuMemRangeGetAttributes", (places, sizes, which, number, p, 4096_usize))
        };
        assert_eq!(ask(4), "SUCCESS");
        assert_eq!(ask(0), "INVALID_VALUE");
        assert_eq!((read_mostly, kind, id, devices), (0, 3, 0, [-2, -2]));
        let mut value = 0_u64;
        let out = &raw mut value;
        for (bytes, which, count) in
            [(8_usize, 1_u32, 4096_usize), (0, 1, 4096), (3, 3, 4096), (4, 9, 4096), (4, 1, 4097), (4, 1, 0)]
        {
            assert_eq!(
                d.call("cuMemRangeGetAttribute", (out, bytes, which, p, count)),
                "INVALID_VALUE",
                "{bytes} {which} {count}"
            );
        }
    });
}

#[test]
fn older_drivers_know_fewer_places() {
    alone("older_drivers_know_fewer_places", "driver=12.0", || {
        let (d, _) = Driver::ready();
        let p = managed(&d, 4096);
        d.ok("cuMemAdvise", (p, 4096_usize, 3_u32, 0_i32));
        assert_eq!(attribute(&d, 2, p, 4096), 0);
        let mut value = 0_i32;
        assert_eq!(d.call("cuMemRangeGetAttribute", (&raw mut value, 4_usize, 5_u32, p, 4096_usize)), "INVALID_VALUE");
    });
}

#[test]
fn batches_take_what_comes_before_a_refused_entry() {
    alone("batches_take_what_comes_before_a_refused_entry", "", || {
        let (d, _) = Driver::ready();
        let (p, plain, stream) = (managed(&d, 1 << 16), d.memory(4096), d.stream(1));
        d.ok("cuMemsetD8_v2", (p, 7_u8, 1_usize << 16));
        let prefetch = |addresses: &[usize], places: &[u64], at: &[usize], flags: u64, stream: usize| {
            let (mut addresses, mut sizes) = (addresses.to_vec(), vec![4096_usize; addresses.len()]);
            let (mut places, mut at) = (places.to_vec(), at.to_vec());
            let (count, number) = (addresses.len(), places.len());
            let (addresses, sizes) = (addresses.as_mut_ptr(), sizes.as_mut_ptr());
            let given = (addresses, sizes, count, places.as_mut_ptr(), at.as_mut_ptr(), number, flags, stream);
            d.call("cuMemDiscardAndPrefetchBatchAsync", given)
        };
        let (here, host) = (location(DEVICE, 0), location(HOST, 0));
        let (beyond, mut place) = (p + (1 << 16) - 100, -2);
        for (addresses, places, at, flags, on, answer) in [
            (&[][..], &[][..], &[][..], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here], &[1], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here, host], &[0, 0], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here, host], &[0, 2], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here, here, here], &[0, 1, 2], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[], &[], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here], &[0], 1, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here], &[0], 0, NULL, "INVALID_VALUE"),
            (&[p, p + 4096], &[here], &[0], 0, 1, "INVALID_VALUE"),
            (&[p, beyond], &[here], &[0], 0, stream, "INVALID_VALUE"),
            (&[p, plain], &[here], &[0], 0, stream, "INVALID_VALUE"),
            (&[p, p + 4096], &[here, location(DEVICE, 3)], &[0, 1], 0, stream, "INVALID_DEVICE"),
            (&[p, p + 4096, p + 8192], &[here, host], &[0, 1], 0, stream, "SUCCESS"),
            (&[p, p + 4096, p + 8192], &[here, host], &[0, 1], 0, 2, "SUCCESS"),
        ] {
            assert_eq!(prefetch(addresses, places, at, flags, on), answer, "{addresses:x?} {places:x?} {at:?}");
            // Measured: what comes before an entry that is refused for its memory is taken.
            if addresses.contains(&beyond) || addresses.contains(&plain) {
                place = 0;
            }
            if answer != "SUCCESS" {
                assert_eq!(attribute(&d, 4, p, 4096), place, "{addresses:x?} {places:x?} {at:?}");
            }
        }
        d.ok("cuCtxSynchronize", ());
        let places = [0, 4096, 8192, 12288].map(|at| attribute(&d, 4, p + at, 4096));
        assert_eq!(places, [0, -1, -1, -2]);
        let mut bytes = [0_u8; 2];
        d.ok("cuMemcpyDtoH_v2", (bytes.as_mut_ptr(), p + 12287, 2_usize));
        assert_ne!(bytes[0], 7, "given up");
        assert_eq!(bytes[1], 7, "behind what was given up");
        // A graph has no such node: the capture is spoilt.
        d.ok("cuStreamBeginCapture_v2", (stream, 2_u32));
        assert_eq!(prefetch(&[p], &[here], &[0], 0, stream), "STREAM_CAPTURE_UNSUPPORTED");
        assert_eq!(d.capturing(stream).1, "INVALIDATED");
        d.ok("cuMemFree_v2", (p,));
        assert_eq!(d.reports(), "");
        assert_eq!(d.call("cuMemAdvise", (p, 4096_usize, 1_u32, 0_i32)), "INVALID_VALUE");
        assert!(d.reports().contains("which was freed by cuMemFree_v2"), "{}", d.reports());
    });
}

/// `CUmemcpyAttributes`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    order: u32,
    from: u64,
    to: u64,
    flags: u32,
}

/// The same, as C lays it out: places have the alignment of their numbers.
fn laid_out(all: &[Attributes]) -> Vec<u32> {
    let halves = |place: u64| [place as u32, (place >> 32) as u32];
    let words = |one: &Attributes| {
        let ([a, b], [c, d]) = (halves(one.from), halves(one.to));
        [one.order, a, b, c, d, one.flags]
    };
    all.iter().flat_map(words).collect()
}

#[test]
fn copies_of_a_batch_are_checked_and_made_in_no_order() {
    alone("copies_of_a_batch_are_checked_and_made_in_no_order", "", || {
        let (d, _) = Driver::ready();
        let (p, stream) = (d.memory(1024), d.stream(1));
        let plain = Attributes { order: 1, from: 0, to: 0, flags: 0 };
        let copy = |copies: &[(usize, usize, usize)], all: &[Attributes], at: &[usize], stream: usize| {
            let mut to: Vec<_> = copies.iter().map(|copy| copy.0).collect();
            let mut from: Vec<_> = copies.iter().map(|copy| copy.1).collect();
            let mut sizes: Vec<_> = copies.iter().map(|copy| copy.2).collect();
            let (mut all, mut at, number) = (laid_out(all), at.to_vec(), all.len());
            let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
            let count = copies.len();
            let given = (to, from, sizes, count, all.as_mut_ptr(), at.as_mut_ptr(), number, stream);
            d.call("cuMemcpyBatchAsync_v2", given)
        };
        let one = [(p, p + 512, 16)];
        for (copies, attributes, at, on, answer) in [
            (&[][..], &[plain][..], &[0][..], stream, "INVALID_VALUE"),
            (&one, &[], &[], stream, "INVALID_VALUE"),
            (&one, &[plain, plain], &[0, 1], stream, "INVALID_VALUE"),
            (&one, &[Attributes { order: 0, ..plain }], &[0], stream, "INVALID_VALUE"),
            (&one, &[Attributes { order: 4, ..plain }], &[0], stream, "INVALID_VALUE"),
            (&one, &[Attributes { flags: 2, ..plain }], &[0], stream, "INVALID_VALUE"),
            (&one, &[Attributes { to: location(DEVICE, 9), ..plain }], &[0], stream, "INVALID_VALUE"),
            (&one, &[plain], &[0], NULL, "INVALID_VALUE"),
            (&[(p + 1020, p, 16)], &[plain], &[0], stream, "INVALID_VALUE"),
            (
                &one,
                &[Attributes { to: location(HOST, 0), from: location(DEVICE, 0), order: 3, flags: 1 }],
                &[0],
                2,
                "SUCCESS",
            ),
            (
                &[(p, p + 512, 16), (p + 16, p + 512, 0), (p + 32, p + 512, 8)],
                &[plain, plain],
                &[0, 2],
                stream,
                "SUCCESS",
            ),
        ] {
            assert_eq!(copy(copies, attributes, at, on), answer, "{copies:x?}, attributes {}", attributes.len());
        }
        assert_eq!(d.reports(), "");
        let values: Vec<u8> = (0..64).collect();
        d.ok("cuMemcpyHtoD_v2", (p, values.as_ptr(), 64_usize));
        // Each copy reads what the one before writes.
        assert_eq!(copy(&[(p + 16, p, 16), (p + 32, p + 16, 16)], &[plain], &[0], stream), "SUCCESS");
        let report = d.reports();
        assert!(report.contains("copy 0 of the batch writes memory that copy 1 uses"), "{report}");
        d.ok("cuStreamBeginCapture_v2", (stream, 2_u32));
        assert_eq!(copy(&one, &[plain], &[0], stream), "STREAM_CAPTURE_UNSUPPORTED");
        assert_eq!(d.capturing(stream).1, "INVALIDATED");
    });
}

#[test]
fn the_first_batches_name_the_copy_that_is_wrong() {
    alone("the_first_batches_name_the_copy_that_is_wrong", "driver=12.8", || {
        let (d, _) = Driver::ready();
        let (p, stream) = (d.memory(1024), d.stream(1));
        let copy = |to: [usize; 3], count: usize| {
            let (mut to, mut from, mut sizes) = (to, [p + 512; 3], [8_usize; 3]);
            let (mut all, mut at, mut failed) = ([1_u32, 0, 0, 0, 0, 0], [0_usize], 77_usize);
            let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
            let given = (to, from, sizes, count, all.as_mut_ptr(), at.as_mut_ptr(), 1_usize, &raw mut failed, stream);
            (d.call("cuMemcpyBatchAsync", given), failed)
        };
        assert_eq!(copy([p, p + 8, p + 16], 3), ("SUCCESS".to_owned(), 77));
        assert_eq!(copy([p, p + 8, p + 1020], 3), ("INVALID_VALUE".to_owned(), 2));
        assert_eq!(copy([p; 3], 0), ("INVALID_VALUE".to_owned(), usize::MAX));
    });
}

#[test]
fn a_managed_pool_prefers_a_place() {
    alone("a_managed_pool_prefers_a_place", "", || {
        let (d, _) = Driver::ready();
        let create = |kind: u32, id: i32, most: usize| {
            // CUmemPoolProps: type, handle types, location, security attributes, the most, usage and what is reserved.
            let mut words = [0_u64; 11];
            words[0] = 2;
            words[1] = location(kind, id);
            words[3] = most as u64;
            let mut pool = 0_usize;
            (d.call("cuMemPoolCreate", (&raw mut pool, words.as_ptr())), pool)
        };
        for (kind, id, most) in [(DEVICE, 0, 4096), (DEVICE, 4, 0), (NODE, 5, 0), (NODE_HERE, 0, 0)] {
            assert_eq!(create(kind, id, most).0, "INVALID_VALUE", "{kind} {id} {most}");
        }
        let stream = d.stream(1);
        for (kind, id, number) in [(0, 0, -2), (DEVICE, 0, 0), (HOST, 0, -1), (NODE, 0, -1)] {
            let (answer, pool) = create(kind, id, 0);
            assert_eq!(answer, "SUCCESS");
            let p = d.get("cuMemAllocFromPoolAsync", |out| (out, 8192_usize, pool, stream));
            assert_eq!(attribute(&d, 2, p, 8192), number);
            assert_eq!(d.call("cuMemAdvise", (p, 4096_usize, 4_u32, -1_i32)), "NOT_SUPPORTED");
            assert_eq!((attribute(&d, 2, p, 4096), attribute(&d, 2, p + 4096, 4096)), (number, number));
            d.ok("cuMemFreeAsync", (p, stream));
            d.ok("cuMemPoolDestroy", (pool,));
        }
    });
}
