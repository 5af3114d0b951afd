//! What the libraries that come with CUDA make: cub, cooperative groups, 128-bit integers.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

mod common;

use common::{Params, Ram, TestHost, load};
use cuirass_ptx::{FaultKind, Launch, Limits, run_with};

const SOURCE: &str = include_str!("samples/library.ptx");

fn go(kernel: &str, grid: u32, block: u32, params: Params, ram: &mut Ram, cooperative: bool) -> Result<(), FaultKind> {
    let loaded = load(SOURCE, ram).unwrap();
    let launch = Launch {
        kernel: loaded.module().kernel(kernel).unwrap(),
        loaded: &loaded,
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: 0,
        params: &params.0,
        workers: 2,
        fuel: Some(1 << 32),
        grid_id: 1,
        multiprocessors: 132,
    };
    let limits = Limits { cooperative, ..Limits::default() };
    run_with(&launch, ram, &TestHost::default(), &limits).map(|_| ()).map_err(|f| f.kind)
}

#[test]
fn cub() {
    let mut ram = Ram::default();
    let x: Vec<u32> = (0..128).map(|i| i * 37 % 101).collect();
    let (dx, out) = (ram.alloc_u32(&x), ram.alloc(512));
    go("cubs", 1, 128, Params::default().u64(dx).u64(out), &mut ram, false).unwrap();
    let sum: u32 = x.iter().sum();
    let mut keys: Vec<i32> = x.iter().flat_map(|&v| [v as i32, v as i32 ^ 5, v as i32 * 7, -(v as i32)]).collect();
    keys.sort_unstable();
    let mut before = 0u32;
    for (i, got) in ram.u32s(out).into_iter().enumerate() {
        let want = (sum + before) as i32 + keys[4 * i] * 3 + keys[4 * i + 3];
        assert_eq!(got as i32, want, "{i}");
        before += x[i];
    }
}

#[test]
fn grid_wide_barriers() {
    let mut ram = Ram::default();
    let x: Vec<u32> = (0..64).map(|i| i * 37 % 101).collect();
    let (dx, out) = (ram.alloc_u32(&x), ram.alloc(256));
    let params = || Params::default().u64(dx).u64(out);
    // A launch that is not cooperative has no workspace, and the library traps.
    assert_eq!(go("cgs", 8, 64, params(), &mut ram, false), Err(FaultKind::Trap));
    go("cgs", 8, 64, params(), &mut ram, true).unwrap();
    for (i, got) in ram.u32s(out).into_iter().enumerate().skip(1) {
        let base = i / 32 * 32;
        let warp = &x[base..base + 32];
        let scan: u32 = x[base..=i].iter().sum();
        let same = warp.iter().filter(|v| *v & 1 == x[i] & 1).count() as u32;
        let want = warp.iter().sum::<u32>() + warp.iter().max().unwrap() + scan + same;
        assert_eq!(got, want, "{i}");
    }
}

#[test]
fn wide_integers() {
    let mut ram = Ram::default();
    let words: Vec<i128> = (0..9i128).map(|i| (i - 4) * 0x1234_5678_9abc_def0 + i).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|v| v.to_le_bytes()).collect();
    let data = ram.alloc_bytes(&bytes);
    go("i128", 1, 1, Params::default().u64(data), &mut ram, false).unwrap();
    let got = i128::from_le_bytes(ram.bytes(data)[..16].try_into().unwrap());
    assert_eq!(got, words[0].wrapping_mul(words[1]) / 7 + (words[1] >> 3));
}

#[test]
fn barrier_objects_and_copies() {
    let mut ram = Ram::default();
    let loaded = load(include_str!("samples/async.ptx"), &mut ram).unwrap();
    let run = |ram: &Ram, kernel: &str, block: u32, params: Params| {
        common::Go::new(kernel, 1, block, params).run(&loaded, ram, &TestHost::default()).unwrap();
    };
    let x: Vec<u32> = (0..512).map(|i| i * 7 % 31).collect();
    let (dx, out) = (ram.alloc_u32(&x), ram.alloc(2048));
    run(&ram, "barriers", 128, Params::default().u64(dx).u64(out).u32(5));
    let mut v: Vec<u32> = x[..128].to_vec();
    for _ in 0..5 {
        v = (0..128).map(|i| v[i] + v[(i + 1) % 128]).collect();
    }
    assert_eq!(ram.u32s(out)[..128], v);
    run(&ram, "groups", 128, Params::default().u64(dx).u64(out));
    let reversed: Vec<u32> = x[..128].iter().rev().copied().collect();
    assert_eq!(ram.u32s(out)[..128], reversed);
    run(&ram, "copies", 64, Params::default().u64(dx).u64(out));
    let got = ram.u32s(out);
    for i in 0..64 {
        assert_eq!(got[4 * i..][..4], x[4 * (63 - i)..][..4]);
        // The last four bytes of the second sixteen were asked to be zero.
        let from = 256 + 4 * (63 - i);
        assert_eq!(got[256 + 4 * i..][..4], [x[from], x[from + 1], x[from + 2], 0]);
    }
}
