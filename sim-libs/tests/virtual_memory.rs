//! Virtual memory: mappings, access, sharing by descriptor.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Driver, alone};

const PAGE: usize = 2 << 20;

fn create(d: &Driver, bytes: usize, shareable: u32) -> usize {
    let prop = [1u32, shareable, 1, 0, 0, 0, 0, 0];
    d.get("cuMemCreate", |out| (out, bytes, prop.as_ptr(), 0u64))
}

fn reserve(d: &Driver, bytes: usize) -> usize {
    d.get("cuMemAddressReserve", |out| (out, bytes, 0usize, 0usize, 0u64))
}

fn map(d: &Driver, at: usize, bytes: usize, handle: usize) -> String {
    d.call("cuMemMap", (at, bytes, 0usize, handle, 0u64))
}

/// `CUmemAccessDesc` for device 0: 0 none, 1 read, 3 read and write.
fn access(d: &Driver, at: usize, bytes: usize, flags: u32) -> String {
    let wish = [1u32, 0, flags];
    d.call("cuMemSetAccess", (at, bytes, wish.as_ptr(), 1usize))
}

fn bytes(d: &Driver, at: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; count];
    d.ok("cuMemcpyDtoH_v2", (bytes.as_mut_ptr(), at, count));
    bytes
}

#[test]
fn neighbouring_mappings_are_one_piece() {
    alone("neighbouring_mappings_are_one_piece", "memory=1GiB", || {
        let (d, _) = Driver::ready();
        let range = reserve(&d, 4 * PAGE);
        let (a, b) = (create(&d, PAGE, 0), create(&d, 2 * PAGE, 0));
        assert_eq!(map(&d, range, PAGE, a), "SUCCESS");
        assert_eq!(map(&d, range, PAGE, b), "INVALID_VALUE");
        assert_eq!(map(&d, range + PAGE, 2 * PAGE, b), "SUCCESS");
        assert_eq!(access(&d, range, 4 * PAGE, 3), "INVALID_VALUE");
        assert_eq!(access(&d, range, 3 * PAGE, 3), "SUCCESS");
        d.ok("cuMemsetD8_v2", (range, 7u8, 3 * PAGE));
        assert_eq!(bytes(&d, range + PAGE - 2, 4), [7; 4]);
        assert_eq!(d.call("cuMemsetD8_v2", (range, 7u8, 4 * PAGE)), "INVALID_VALUE");
        assert_eq!(d.call("cuMemAddressFree", (range, 4 * PAGE)), "INVALID_VALUE");
        d.ok("cuMemRelease", (a,));
        assert_eq!(d.call("cuMemRelease", (a,)), "INVALID_VALUE");
        assert_eq!(bytes(&d, range, 1), [7]);
        d.ok("cuMemUnmap", (range, 3 * PAGE));
        assert_eq!(d.call("cuMemsetD8_v2", (range, 7u8, 1usize)), "INVALID_VALUE");
        d.ok("cuMemRelease", (b,));
        d.ok("cuMemAddressFree", (range, 4 * PAGE));
        let (mut free, mut total) = (0usize, 0usize);
        d.ok("cuMemGetInfo_v2", (&raw mut free, &raw mut total));
        assert_eq!(free, total);
        for kind in ["address_range", "physical_memory", "mapping"] {
            assert_eq!(d.census()[kind], 0, "{kind}");
        }
    });
}

/// Measured: of the host's memory, a fill that goes from one mapping to the next is refused; a copy is not.
#[test]
fn memory_of_the_host_is_filled_a_mapping_at_a_time() {
    alone("memory_of_the_host_is_filled_a_mapping_at_a_time", "memory=1GiB", || {
        let (d, _) = Driver::ready();
        let (range, stream) = (reserve(&d, 3 * PAGE), d.stream(1));
        // CU_MEM_LOCATION_TYPE_HOST, twice, and a device's memory behind it.
        for (at, kind) in [2_u32, 2, 1].into_iter().enumerate() {
            let prop = [1u32, 0, kind, 0, 0, 0, 0, 0];
            let memory = d.get("cuMemCreate", |out| (out, PAGE, prop.as_ptr(), 0u64));
            assert_eq!(map(&d, range + at * PAGE, PAGE, memory), "SUCCESS");
            d.ok("cuMemRelease", (memory,));
        }
        assert_eq!(access(&d, range, 3 * PAGE, 3), "SUCCESS");
        let fill = |start: usize, count: usize| d.call("cuMemsetD8Async", (start, 6u8, count, stream));
        assert_eq!(fill(range, PAGE), "SUCCESS");
        assert_eq!(fill(range + PAGE, PAGE), "SUCCESS");
        for (start, count) in [(range, 2 * PAGE), (range + PAGE - 1, 2), (range + PAGE, PAGE + 1), (range, 3 * PAGE)] {
            assert_eq!(fill(start, count), "INVALID_VALUE");
        }
        // It is captured, and the graph is of no use.
        for (count, executable) in [(PAGE, "SUCCESS"), (2 * PAGE, "INVALID_VALUE")] {
            let (mut graph, mut exec) = (0usize, 0usize);
            d.ok("cuStreamBeginCapture_v2", (stream, 0u32));
            assert_eq!(fill(range, count), "SUCCESS");
            d.ok("cuStreamEndCapture", (stream, &raw mut graph));
            assert_eq!(d.call("cuGraphInstantiateWithFlags", (&raw mut exec, graph, 0u64)), executable);
            d.ok("cuGraphDestroy", (graph,));
        }
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(bytes(&d, range + PAGE - 2, 4), [6; 4]);
        assert_eq!(d.reports(), "");
    });
}

#[test]
fn memory_mapped_twice_is_the_same_memory() {
    alone("memory_mapped_twice_is_the_same_memory", "memory=1GiB", || {
        let (d, _) = Driver::ready();
        let (range, handle) = (reserve(&d, 2 * PAGE), create(&d, PAGE, 1));
        let mut descriptor = -1i32;
        d.ok("cuMemExportToShareableHandle", (&raw mut descriptor, handle, 1u32, 0u64));
        let twin = d.get("cuMemImportFromShareableHandle", |out| (out, descriptor as usize, 1u32));
        assert_eq!(map(&d, range, PAGE, handle), "SUCCESS");
        assert_eq!(map(&d, range + PAGE, PAGE, twin), "SUCCESS");
        assert_eq!(access(&d, range, 2 * PAGE, 3), "SUCCESS");
        d.ok("cuMemsetD8_v2", (range, 9u8, PAGE));
        assert_eq!(bytes(&d, range + PAGE + 100, 3), [9; 3]);
        let again = d.get("cuMemRetainAllocationHandle", |out| (out, range + 5));
        assert_eq!(again, handle);
    });
}

#[test]
fn memory_without_access_is_refused() {
    alone("memory_without_access_is_refused", "memory=1GiB", || {
        let (d, _) = Driver::ready();
        let (range, handle) = (reserve(&d, PAGE), create(&d, PAGE, 0));
        assert_eq!(map(&d, range, PAGE, handle), "SUCCESS");
        assert_eq!(access(&d, range, PAGE, 3), "SUCCESS");
        assert_eq!(access(&d, range, PAGE, 0), "SUCCESS");
        let mut flags = 9u64;
        d.ok("cuMemGetAccess", (&raw mut flags, [1u32, 0].as_ptr(), range));
        assert_eq!(flags, 0);
        // Measured, for fills and copies; a kernel faults.
        assert_eq!(d.call("cuMemsetD8_v2", (range, 1u8, 16usize)), "INVALID_VALUE");
        assert_eq!(d.call("cuCtxSynchronize", ()), "SUCCESS");
    });
}
