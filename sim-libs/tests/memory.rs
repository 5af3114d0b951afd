//! Memory of the simulated driver: what copies and fills move, what pools hold, what reports say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{Driver, NULL, alone};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static GATE: AtomicBool = AtomicBool::new(false);

/// A host function that holds its stream until the gate is open.
extern "C" fn hold(_data: *mut c_void) {
    while !GATE.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn hold_up(d: &Driver, stream: usize) {
    GATE.store(false, Ordering::Release);
    d.ok("cuLaunchHostFunc", (stream, hold as *const () as usize, NULL));
}

fn release() {
    GATE.store(true, Ordering::Release);
}

fn read(d: &Driver, from: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    d.ok("cuMemcpyDtoH_v2", (bytes.as_mut_ptr(), from, len));
    bytes
}

fn pool_attribute(d: &Driver, pool: usize, attribute: u32) -> u64 {
    let mut value = 0_u64;
    d.ok("cuMemPoolGetAttribute", (pool, attribute, &raw mut value));
    value
}

const RESERVED: u32 = 5;
const USED: u32 = 7;

#[test]
fn fills_of_every_width() {
    alone("fills_of_every_width", "", || {
        let (d, _) = Driver::ready();
        let p = d.memory(64);
        d.ok("cuMemsetD8_v2", (p, 0x11_u8, 64_usize));
        d.ok("cuMemsetD16_v2", (p + 2, 0x2233_u16, 3_usize));
        d.ok("cuMemsetD32_v2", (p + 12, 0x4455_6677_u32, 2_usize));
        d.ok("cuMemsetD2D8_v2", (p + 32, 8_usize, 0x88_u8, 2_usize, 3_usize));
        let mut want = [0x11_u8; 64];
        want[2..8].copy_from_slice(&[0x33, 0x22, 0x33, 0x22, 0x33, 0x22]);
        want[12..20].copy_from_slice(&[0x77, 0x66, 0x55, 0x44, 0x77, 0x66, 0x55, 0x44]);
        [32, 33, 40, 41, 48, 49].iter().for_each(|at| want[*at] = 0x88);
        assert_eq!(read(&d, p, 64), want);
        // Alignment, pitch and bounds.
        assert_eq!(d.call("cuMemsetD16_v2", (p + 1, 0_u16, 1_usize)), "INVALID_VALUE");
        assert_eq!(d.call("cuMemsetD32_v2", (p + 2, 0_u32, 1_usize)), "INVALID_VALUE");
        assert_eq!(d.call("cuMemsetD2D8_v2", (p, 1_usize, 0_u8, 2_usize, 2_usize)), "INVALID_VALUE");
        assert_eq!(d.call("cuMemsetD8_v2", (p, 0_u8, 65_usize)), "INVALID_VALUE");
        assert_eq!(d.call("cuMemsetD32_v2", (p, 0_u32, usize::MAX / 2)), "INVALID_VALUE");
    });
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Copy2D {
    src: [usize; 2],
    src_type: u32,
    src_host: usize,
    src_device: usize,
    src_array: usize,
    src_pitch: usize,
    dst: [usize; 2],
    dst_type: u32,
    dst_host: usize,
    dst_device: usize,
    dst_array: usize,
    dst_pitch: usize,
    size: [usize; 2],
}

#[test]
fn copies_of_rows() {
    alone("copies_of_rows", "", || {
        let (d, _) = Driver::ready();
        let (mut p, mut pitch) = (0_usize, 0_usize);
        d.ok("cuMemAllocPitch_v2", (&raw mut p, &raw mut pitch, 10_usize, 4_usize, 4_u32));
        assert_eq!(pitch, 512);
        let source: Vec<u8> = (0..40).collect();
        let mut back = vec![0_u8; 12];
        let up = Copy2D {
            src_type: 1,
            src_host: source.as_ptr() as usize,
            src_pitch: 10,
            dst_type: 2,
            dst_device: p,
            dst_pitch: pitch,
            size: [10, 4],
            ..Copy2D::default()
        };
        d.ok("cuMemcpy2D_v2", (&raw const up,));
        assert_eq!(read(&d, p + 2 * pitch, 10), source[20..30]);
        let down = Copy2D {
            src: [3, 1],
            src_type: 2,
            src_device: p,
            src_pitch: pitch,
            dst_type: 1,
            dst_host: back.as_mut_ptr() as usize,
            dst_pitch: 4,
            size: [4, 3],
            ..Copy2D::default()
        };
        d.ok("cuMemcpy2DAsync_v2", (&raw const down, NULL));
        let want: Vec<u8> = [13, 23, 33].iter().flat_map(|first| *first..first + 4).collect();
        assert_eq!(back, want);
        for wrong in [Copy2D { src: [3, 2], ..down }, Copy2D { src_type: 9, ..down }, Copy2D { dst_pitch: 3, ..down }] {
            assert_eq!(d.call("cuMemcpy2D_v2", (&raw const wrong,)), "INVALID_VALUE");
        }
        let array = Copy2D { src_type: 3, ..down };
        assert_eq!(d.call("cuMemcpy2D_v2", (&raw const array,)), "NOT_SUPPORTED");
    });
}

#[test]
fn pageable_memory_is_free_again_when_the_call_returns() {
    alone("pageable_memory_is_free_again_when_the_call_returns", "", || {
        let (d, _) = Driver::ready();
        let stream = d.stream(1);
        let p = d.memory(16);
        hold_up(&d, stream);
        let mut bytes = [7_u8; 16];
        d.ok("cuMemcpyHtoDAsync_v2", (p, bytes.as_ptr(), 16_usize, stream));
        bytes.fill(0);
        release();
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(read(&d, p, 16), [7; 16]);
    });
}

#[test]
fn pinned_and_registered_memory_are_what_devices_see() {
    alone("pinned_and_registered_memory_are_what_devices_see", "", || {
        let (d, context) = Driver::ready();
        let pinned = d.get("cuMemHostAlloc", |out| (out, 100_usize, 1_u32));
        let mut flags = 0_u32;
        d.ok("cuMemHostGetFlags", (&raw mut flags, pinned));
        assert_eq!(flags & 1, 1);
        assert_eq!(d.get("cuMemHostGetDevicePointer_v2", |out| (out, pinned, 0_u32)), pinned);
        let mut own = vec![1_u8; 8192];
        let address = own.as_mut_ptr() as usize;
        assert_eq!(d.call("cuMemHostUnregister", (address,)), "HOST_MEMORY_NOT_REGISTERED");
        d.ok("cuMemHostRegister_v2", (address, 8192_usize, 0_u32));
        assert_eq!(d.call("cuMemHostRegister_v2", (address + 64, 64_usize, 0_u32)), "HOST_MEMORY_ALREADY_REGISTERED");
        d.ok("cuMemsetD8_v2", (address, 5_u8, 100_usize));
        d.ok("cuMemcpyDtoD_v2", (pinned, address, 100_usize));
        d.ok("cuCtxSynchronize", ());
        // SAFETY: [test] the driver gave 100 bytes.
        assert!(unsafe { std::slice::from_raw_parts(pinned as *const u8, 100) }.iter().all(|byte| *byte == 5));
        assert_eq!(d.get("cuPointerGetAttribute", |out| (out, 1_u32, address)), context);
        let mut kind = 0_u32;
        d.ok("cuPointerGetAttribute", (&raw mut kind, 2_u32, address));
        assert_eq!(kind, 1);
        d.ok("cuMemHostUnregister", (address,));
        assert_eq!(d.call("cuPointerGetAttribute", (&raw mut kind, 2_u32, address)), "INVALID_VALUE");
        assert_eq!(d.call("cuMemHostRegister_v2", (64_usize, 8192_usize, 0_u32)), "OUT_OF_MEMORY");
        d.ok("cuMemFreeHost", (pinned,));
        assert_eq!(d.census()["pinned_memory"], 0);
        drop(own);
    });
}

#[test]
fn attributes_of_pointers() {
    alone("attributes_of_pointers", "", || {
        let (d, context) = Driver::ready();
        let stream = d.stream(1);
        let plain = d.memory(1000);
        let pooled = d.get("cuMemAllocAsync", |out| (out, 1000_usize, stream));
        let default = d.get("cuDeviceGetDefaultMemPool", |out| (out, 0_i32));
        let one = |attribute: u32, p: usize| d.get("cuPointerGetAttribute", |out| (out, attribute, p));
        assert_eq!((one(1, plain), one(1, pooled)), (context, 0));
        assert_eq!((one(17, plain), one(17, pooled)), (0, default));
        assert_eq!((one(11, plain + 999), one(12, plain + 999)), (plain, 1000));
        assert_ne!(one(7, plain), one(7, pooled));
        let mut got = 0_usize;
        assert_eq!(d.call("cuPointerGetAttribute", (&raw mut got, 4_u32, plain)), "INVALID_VALUE");
        assert_eq!(d.call("cuPointerGetAttribute", (&raw mut got, 1_u32, plain + 1000)), "INVALID_VALUE");
        // Several at once: what a pointer does not have is nothing, not an error.
        let attributes = [2_u32, 4, 9];
        let (mut kind, mut host, mut ordinal) = (9_u32, 9_usize, 9_i32);
        let places = [(&raw mut kind).cast::<c_void>(), (&raw mut host).cast(), (&raw mut ordinal).cast()];
        d.ok("cuPointerGetAttributes", (3_u32, attributes.as_ptr(), places.as_ptr(), plain));
        assert_eq!((kind, host, ordinal), (2, 0, 0));
        d.ok("cuPointerGetAttributes", (3_u32, attributes.as_ptr(), places.as_ptr(), 64_usize));
        assert_eq!((kind, host, ordinal), (0, 0, -2));
        let yes = 1_u32;
        d.ok("cuPointerSetAttribute", (&raw const yes, 6_u32, plain));
        assert_eq!(one(6, plain) as u32, 1);
        let (mut base, mut size) = (0_usize, 0_usize);
        d.ok("cuMemGetAddressRange_v2", (&raw mut base, &raw mut size, plain + 10));
        assert_eq!((base, size), (plain, 1000));
        assert!(!d.reports().contains("bug"), "asking what a pointer is is no bug: {}", d.reports());
    });
}

#[test]
fn a_pool_keeps_to_its_threshold() {
    alone("a_pool_keeps_to_its_threshold", "memory=1GiB", || {
        let (d, _) = Driver::ready();
        let stream = d.stream(1);
        let pool = d.get("cuDeviceGetDefaultMemPool", |out| (out, 0_i32));
        let alloc = |bytes: usize| d.get("cuMemAllocAsync", |out| (out, bytes, stream));
        let free = |p: usize| d.ok("cuMemFreeAsync", (p, stream));
        let first = alloc(1 << 20);
        free(first);
        assert_eq!((pool_attribute(&d, pool, RESERVED), pool_attribute(&d, pool, USED)), (32 << 20, 0));
        assert_eq!(alloc(1 << 20), first, "freed memory is used again in the same stream");
        free(first);
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(pool_attribute(&d, pool, RESERVED), 0, "a threshold of 0 gives all of it back");
        let threshold = 64_u64 << 20;
        d.ok("cuMemPoolSetAttribute", (pool, 4_u32, &raw const threshold));
        let all: Vec<usize> = (0..4).map(|_| alloc(32 << 20)).collect();
        assert_eq!(pool_attribute(&d, pool, RESERVED), 128 << 20);
        all.into_iter().for_each(free);
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(pool_attribute(&d, pool, RESERVED), 64 << 20);
        d.ok("cuMemPoolTrimTo", (pool, 1_usize));
        assert_eq!(pool_attribute(&d, pool, RESERVED), 32 << 20);
        // What pools hold without need is no reason to refuse.
        let (mut free_bytes, mut total) = (0_usize, 0_usize);
        d.ok("cuMemGetInfo_v2", (&raw mut free_bytes, &raw mut total));
        assert_eq!(total - free_bytes, 32 << 20);
        let whole = d.memory(total);
        let mut got = 0_usize;
        assert_eq!(d.call("cuMemAlloc_v2", (&raw mut got, 1_usize)), "OUT_OF_MEMORY");
        assert_eq!(d.call("cuMemAllocAsync", (&raw mut got, 1_usize, stream)), "OUT_OF_MEMORY");
        d.ok("cuMemFree_v2", (whole,));
    });
}

#[test]
fn memory_freed_in_a_busy_stream_is_not_another_streams() {
    alone("memory_freed_in_a_busy_stream_is_not_another_streams", "memory=64MiB", || {
        let (d, _) = Driver::ready();
        let (busy, other) = (d.stream(1), d.stream(1));
        let alloc = |stream: usize, bytes: usize| d.get("cuMemAllocAsync", |out| (out, bytes, stream));
        let threshold = u64::MAX;
        let pool = d.get("cuDeviceGetDefaultMemPool", |out| (out, 0_i32));
        d.ok("cuMemPoolSetAttribute", (pool, 4_u32, &raw const threshold));
        let first = alloc(busy, 32 << 20);
        hold_up(&d, busy);
        d.ok("cuMemsetD8Async", (first, 1_u8, 32_usize << 20, busy));
        d.ok("cuMemFreeAsync", (first, busy));
        let same = alloc(busy, 32 << 20);
        assert_eq!(same, first, "the same stream has it at once");
        d.ok("cuMemFreeAsync", (same, busy));
        let second = alloc(other, 32 << 20);
        assert_ne!(second, first, "another stream has to wait for it");
        // There is no other memory left: the driver makes the stream wait for the free.
        let third = alloc(other, 16 << 20);
        assert_eq!(third, first);
        d.ok("cuMemsetD8Async", (third, 2_u8, 16_usize << 20, other));
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(d.call("cuStreamQuery", (other,)), "NOT_READY");
        release();
        d.ok("cuStreamSynchronize", (other,));
        assert_eq!(read(&d, third, 4), [2; 4]);
    });
}

#[test]
fn use_after_free_names_both_places() {
    alone("use_after_free_names_both_places", "", || {
        let (d, _) = Driver::ready();
        let p = d.memory(256);
        d.ok("cuMemFree_v2", (p,));
        assert_eq!(d.call("cuMemsetD8_v2", (p + 8, 0_u8, 1_usize)), "INVALID_VALUE");
        let reports = d.reports();
        for word in ["cuMemsetD8_v2", "256 bytes", "cuMemAlloc_v2", "freed by cuMemFree_v2"] {
            assert!(reports.contains(word), "{word}: {reports}");
        }
    });
}

#[test]
fn memory_of_a_graph_lives_from_launch_to_free() {
    alone("memory_of_a_graph_lives_from_launch_to_free", "", || {
        let (d, _) = Driver::ready();
        let stream = d.stream(1);
        d.ok("cuStreamBeginCapture_v2", (stream, 2_u32));
        let p = d.get("cuMemAllocAsync", |out| (out, 4096_usize, stream));
        d.ok("cuMemsetD8Async", (p, 9_u8, 4096_usize, stream));
        let graph = d.get("cuStreamEndCapture", |out| (stream, out));
        let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0_u64));
        d.ok("cuGraphLaunch", (exec, stream));
        assert_eq!(d.call("cuGraphLaunch", (exec, stream)), "INVALID_VALUE", "its memory has not been freed");
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(read(&d, p, 4), [9; 4]);
        d.ok("cuMemFreeAsync", (p, stream));
        d.ok("cuGraphLaunch", (exec, stream));
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(read(&d, p, 4), [9; 4]);
        d.ok("cuGraphExecDestroy", (exec,));
        d.ok("cuGraphDestroy", (graph,));
        d.ok("cuMemFreeAsync", (p, stream));
        assert_eq!(d.call("cuMemFreeAsync", (p, stream)), "INVALID_VALUE");
    });
}

#[test]
fn many_threads_allocate_and_free() {
    alone("many_threads_allocate_and_free", "memory=256MiB", || {
        let (_d, context) = Driver::ready();
        let work = move |seed: u64| {
            let d = Driver::load();
            d.ok("cuCtxSetCurrent", (context,));
            let stream = d.stream(1);
            let mut random = seed;
            let mut next = move |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let mut live: Vec<(usize, usize, u8)> = Vec::new();
            for round in 0..600_u64 {
                if live.len() < 8 && next(3) > 0 {
                    let bytes = 1 + next(200_000) as usize;
                    let value = (round % 251) as u8;
                    let p = d.get("cuMemAllocAsync", |out| (out, bytes, stream));
                    d.ok("cuMemsetD8Async", (p, value, bytes, stream));
                    live.push((p, bytes, value));
                } else if let Some((p, bytes, value)) = live.pop() {
                    let mut back = vec![0_u8; bytes];
                    d.ok("cuMemcpyDtoHAsync_v2", (back.as_mut_ptr(), p, bytes, stream));
                    d.ok("cuStreamSynchronize", (stream,));
                    assert!(back.iter().all(|byte| *byte == value), "somebody else wrote here");
                    d.ok("cuMemFreeAsync", (p, stream));
                }
            }
            live.into_iter().for_each(|(p, ..)| d.ok("cuMemFreeAsync", (p, stream)));
            d.ok("cuStreamDestroy_v2", (stream,));
        };
        let threads: Vec<_> = (1..5).map(|seed| std::thread::spawn(move || work(seed))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let d = Driver::load();
        d.ok("cuCtxSynchronize", ());
        assert_eq!(d.census()["pooled_memory"], 0);
    });
}

const TOUCH: &std::ffi::CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 to)
{
    .reg .b32 %r1;
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, 77;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

#[test]
fn another_devices_memory_needs_leave() {
    alone("another_devices_memory_needs_leave", "devices=2,memory=256MiB", || {
        let (d, first) = Driver::ready();
        let p = d.memory(64);
        let second = d.get("cuDevicePrimaryCtxRetain", |out| (out, 1_i32));
        d.ok("cuCtxSetCurrent", (second,));
        let q = d.memory(64);
        let mut ordinal = 9_i32;
        d.ok("cuPointerGetAttribute", (&raw mut ordinal, 9_u32, q));
        assert_eq!(ordinal, 1);
        d.ok("cuMemsetD8_v2", (p, 1_u8, 64_usize));
        d.ok("cuMemcpyPeer", (q, second, p, first, 64_usize));
        assert_eq!(read(&d, q, 2), [1, 1]);
        let module = d.get("cuModuleLoadData", |out| (out, TOUCH.as_ptr()));
        let touch = d.get("cuModuleGetFunction", |out| (out, module, c"touch".as_ptr()));
        let launch = |to: usize| {
            let (one, params) = (1_u32, [&raw const to]);
            d.call("cuLaunchKernel", (touch, one, one, one, one, one, one, 0_u32, NULL, params.as_ptr(), NULL))
        };
        d.ok("cuCtxEnablePeerAccess", (first, 0_u32));
        assert_eq!(d.call("cuCtxEnablePeerAccess", (first, 0_u32)), "PEER_ACCESS_ALREADY_ENABLED");
        assert_eq!(launch(p), "SUCCESS");
        d.ok("cuCtxSynchronize", ());
        assert_eq!(read(&d, p, 4), [77, 0, 0, 0]);
        d.ok("cuCtxDisablePeerAccess", (first,));
        assert_eq!(d.call("cuCtxDisablePeerAccess", (first,)), "PEER_ACCESS_NOT_ENABLED");
        // Pool memory asks its pool instead.
        d.ok("cuCtxSetCurrent", (first,));
        let pooled = d.get("cuMemAllocAsync", |out| (out, 64_usize, NULL));
        let pool = d.get("cuDeviceGetDefaultMemPool", |out| (out, 0_i32));
        let wish = [1_u32, 1, 3];
        d.ok("cuMemPoolSetAccess", (pool, wish.as_ptr(), 1_usize));
        d.ok("cuCtxSetCurrent", (second,));
        assert_eq!(launch(pooled), "SUCCESS");
        d.ok("cuCtxSynchronize", ());
        assert_eq!(launch(p), "SUCCESS");
        assert_eq!(d.call("cuCtxSynchronize", ()), "ILLEGAL_ADDRESS");
        assert!(d.reports().contains("device 1 has no access to this allocation of device 0"), "{}", d.reports());
        d.ok("cuCtxSetCurrent", (first,));
        d.ok("cuCtxSynchronize", ());
    });
}

#[test]
fn a_copy_needs_access_to_another_devices_pool() {
    alone("a_copy_needs_access_to_another_devices_pool", "devices=2,memory=256MiB", || {
        let (d, first) = Driver::ready();
        let stream = d.stream(1);
        let near = d.get("cuMemAllocAsync", |out| (out, 64_usize, stream));
        d.ok("cuMemsetD8Async", (near, 3_u8, 64_usize, stream));
        let second = d.get("cuDevicePrimaryCtxRetain", |out| (out, 1_i32));
        d.ok("cuCtxSetCurrent", (second,));
        let theirs = d.stream(1);
        let far = d.get("cuMemAllocAsync", |out| (out, 64_usize, theirs));
        let pool = d.get("cuDeviceGetDefaultMemPool", |out| (out, 1_i32));
        d.ok("cuStreamSynchronize", (theirs,));
        d.ok("cuCtxSetCurrent", (first,));
        // In a row, in rows (CUDA_MEMCPY2D: device to device, 8 bytes eight times), and in a batch.
        const SIZE: usize = 64;
        let batch = |to: usize, from: usize| {
            let (attributes, at, size) = ([1_u32, 0, 0, 0, 0, 0], 0_usize, SIZE);
            let (sides, how) = ((&raw const to, &raw const from), (attributes.as_ptr(), &raw const at));
            let given = (sides.0, sides.1, &raw const size, 1_usize, how.0, how.1, 1_usize, stream);
            d.call("cuMemcpyBatchAsync_v2", given)
        };
        let rows = |to: usize, from: usize| {
            let what = [0, 0, 2, 0, from, 0, 8, 0, 0, 2, 0, to, 0, 8, 8, 8];
            d.call("cuMemcpy2DAsync_v2", (what.as_ptr(), stream))
        };
        for (to, from) in [(far, near), (near, far)] {
            assert_eq!(d.call("cuMemcpyAsync", (to, from, SIZE, stream)), "INVALID_VALUE");
            assert_eq!(d.call("cuMemcpyDtoDAsync_v2", (to, from, SIZE, stream)), "INVALID_VALUE");
            assert_eq!((rows(to, from), batch(to, from)), ("INVALID_VALUE".to_owned(), "INVALID_VALUE".to_owned()));
        }
        assert!(d.reports().contains("of a pool that device 0 was given no access to"), "{}", d.reports());
        // Reading alone cannot be given.
        let wish = |flags: u32| d.call("cuMemPoolSetAccess", (pool, [1_u32, 0, flags].as_ptr(), 1_usize));
        assert_eq!((wish(1), wish(2)), ("NOT_SUPPORTED".to_owned(), "INVALID_VALUE".to_owned()));
        assert_eq!(d.call("cuMemcpyAsync", (far, near, SIZE, stream)), "INVALID_VALUE");
        assert_eq!(wish(3), "SUCCESS");
        d.ok("cuMemcpyAsync", (far, near, SIZE, stream));
        assert_eq!((rows(near, far), batch(far, near)), ("SUCCESS".to_owned(), "SUCCESS".to_owned()));
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(read(&d, far, SIZE), [3; SIZE]);
    });
}

#[test]
fn absurd_sizes_are_refused() {
    alone("absurd_sizes_are_refused", "memory=1GiB", || {
        let (d, _) = Driver::ready();
        let (mut got, mut pitch) = (0_usize, 0_usize);
        let out = &raw mut got;
        for bytes in [usize::MAX, usize::MAX - 4096, 1 << 63, 1 << 47, 1 << 40, (1 << 30) + 1] {
            assert_eq!(d.call("cuMemAlloc_v2", (out, bytes)), "OUT_OF_MEMORY", "{bytes}");
            assert_eq!(d.call("cuMemAllocAsync", (out, bytes, NULL)), "OUT_OF_MEMORY", "{bytes}");
        }
        for bytes in [usize::MAX, 1 << 63, 1 << 47] {
            assert_eq!(d.call("cuMemAllocHost_v2", (out, bytes)), "OUT_OF_MEMORY", "{bytes}");
            assert_eq!(d.call("cuMemAllocManaged", (out, bytes, 1_u32)), "OUT_OF_MEMORY", "{bytes}");
            assert_ne!(d.call("cuMemHostRegister_v2", (&raw mut pitch, bytes, 0_u32)), "SUCCESS", "{bytes}");
        }
        let wide = (out, &raw mut pitch, usize::MAX, usize::MAX, 4_u32);
        assert_ne!(d.call("cuMemAllocPitch_v2", wide), "SUCCESS");
        let p = d.memory(1 << 30);
        d.ok("cuMemFree_v2", (p,));
    });
}
