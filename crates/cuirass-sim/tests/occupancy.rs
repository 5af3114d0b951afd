//! Occupancy of an H200, against values worked out by hand from its limits: 64 warps, 32 blocks, 65,536 registers and
//! 233,472 bytes of shared memory a multiprocessor.

#![allow(clippy::unwrap_used, missing_docs)]

use cuirass_sim::config;
use cuirass_sim::device;
use cuirass_sim::launch::Device;

fn device() -> Device {
    Device::of(&device::Device::new(0, &config::parse("").unwrap()))
}

#[test]
fn threads_and_blocks_limit() {
    let device = device();
    for (threads, blocks) in [(1, 32), (32, 32), (64, 32), (96, 21), (128, 16), (256, 8), (512, 4), (768, 2), (1024, 2)]
    {
        assert_eq!(device.fitting(threads, 16, 0), blocks, "{threads} threads");
    }
    assert_eq!((device.fitting(0, 16, 0), device.fitting(1025, 16, 0)), (0, 0));
}

#[test]
fn registers_limit() {
    let device = device();
    // 33 registers are 1,056 a warp, rounded to 1,280: 12 warps in each quarter, 48 warps.
    assert_eq!(device.fitting(256, 33, 0), 6);
    // 64: 2,048 a warp, 8 in each quarter, 32 warps.
    assert_eq!(device.fitting(256, 64, 0), 4);
    // 128: 16 warps.
    assert_eq!((device.fitting(256, 128, 0), device.fitting(512, 128, 0), device.fitting(1024, 128, 0)), (2, 1, 0));
    // 255: 8,160 a warp, rounded to 8,192: 2 in each quarter.
    assert_eq!((device.fitting(256, 255, 0), device.fitting(288, 255, 0)), (1, 0));
}

#[test]
fn shared_memory_limits() {
    let device = device();
    // 48 KiB and the system's 1 KiB: 50,176 bytes, four times in 233,472.
    assert_eq!(device.fitting(128, 16, 48 << 10), 4);
    // 1 byte: 1,025, rounded to 1,152: 202 blocks, more than 32.
    assert_eq!(device.fitting(32, 16, 1), 32);
    // 100 KiB: 103,424, twice.
    assert_eq!(device.fitting(128, 16, 100 << 10), 2);
    // All that a block may ask for, and one byte more.
    assert_eq!((device.fitting(128, 16, 232_448), device.fitting(128, 16, 232_449)), (1, 0));
}
