//! Warps, blocks and grids together; halves.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

mod common;

use common::{Go, Params, Ram, TestHost, load};

const WARP: &str = include_str!("samples/warp.ptx");

#[test]
fn shuffles() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let out = ram.alloc(64 * 4);
    let params = Params::default().u64(out);
    Go::new("shuffles", 1, 64, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.u32s(out).into_iter().enumerate() {
        let (lane, base) = (i % 32, i / 32 * 32);
        let at = |l: usize| ((base + l) * (base + l)) as u32;
        let up = if lane >= 3 { lane - 3 } else { lane };
        let down = if lane % 16 + 2 < 16 { lane + 2 } else { lane };
        assert_eq!(v, at((i + 5) & 31) + at(up) + at(down) + at(lane ^ 9), "{i}");
    }
}

#[test]
fn votes() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let out = ram.alloc(64 * 4);
    let params = Params::default().u64(out);
    Go::new("votes", 1, 64, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.u32s(out).into_iter().enumerate() {
        let base = i / 32 * 32;
        let warp = || base..base + 32;
        let mut r = warp().filter(|k| k % 3 == 0).fold(0u32, |m, k| m | 1 << (k - base));
        r ^= 1 << 1 ^ u32::from(base == 0) << 2;
        r = r.wrapping_add(warp().filter(|k| k / 4 == i / 4).fold(0, |m, k| m | 1 << (k - base)));
        r = (r ^ u32::MAX).wrapping_add(1);
        let sum: usize = warp().sum();
        r = r.wrapping_add((sum + base + 31) as u32).wrapping_add(u32::MAX / 3);
        r ^= warp().fold(0, |x, k| x ^ (k as u32 * 77));
        assert_eq!(v, r, "{i}");
    }
}

#[test]
fn sums_of_blocks() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let x: Vec<u32> = (0..40 * 256).map(|i| i % 101).collect();
    let (dx, out) = (ram.alloc_u32(&x), ram.alloc(40 * 4));
    let params = Params::default().u64(dx).u64(out);
    Go::new("block_sum", 40, 256, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    let want: Vec<u32> = x.chunks(256).map(|c| c.iter().sum()).collect();
    assert_eq!(ram.u32s(out), want);
}

#[test]
fn cooperative_groups() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let out = ram.alloc(96 * 4);
    let params = Params::default().u64(out);
    Go::new("groups", 1, 96, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.u32s(out).into_iter().enumerate() {
        let tile: usize = (i / 8 * 8..i / 8 * 8 + 8).sum();
        let base = i / 32 * 32;
        let third = |k: &usize| k.is_multiple_of(3);
        let n = if i % 3 == 0 {
            (base..base + 32).filter(third).count() * 100 + (base..i).filter(third).count()
        } else {
            0
        };
        assert_eq!(v as usize, tile * 10_000 + n, "{i}");
    }
}

/// More blocks than workers wait for each other: all have to be in turns.
#[test]
fn barriers_of_grids() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let (state, out) = (ram.alloc(64), ram.alloc(24 * 5 * 4));
    let params = Params::default().u64(state).u64(out).u32(5);
    let begin = std::time::Instant::now();
    Go::new("grid_barrier", 24, 64, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    assert_eq!(ram.u32s(state)[2], 24 * 5);
    println!("{:?}", begin.elapsed());
}

#[test]
fn locks_between_lanes() {
    for kernel in ["lane_lock", "naive_lock"] {
        let mut ram = Ram::default();
        let loaded = load(WARP, &mut ram).unwrap();
        let (lock, value) = (ram.alloc(4), ram.alloc(4));
        let params = Params::default().u64(lock).u64(value);
        Go::new(kernel, 4, 64, params).run(&loaded, &ram, &TestHost::default()).unwrap();
        assert_eq!(ram.u32s(value)[0], 256, "{kernel}");
    }
}

#[test]
fn atomics() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let n = 20 * 128u32;
    let i = ram.alloc_u32(&[0, 0, 0, 0, 0, 0, u32::MAX, 0, 0]);
    let (u, l, f, d) = (ram.alloc(16), ram.alloc(32), ram.alloc(8), ram.alloc(8));
    let params = Params::default().u64(i).u64(u).u64(l).u64(f).u64(d);
    Go::new("many_atomics", 20, 128, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    let sum = n * (n - 1) / 2;
    let xor = (0..n).fold(0, |x, t| x ^ (t * 77));
    let want = [sum, sum.wrapping_neg(), (n - 1).wrapping_neg(), n - 1, xor, u32::MAX, !0xff, n, n];
    assert_eq!(ram.u32s(i), want);
    // Up to 999 and over again; down from the top.
    assert_eq!(ram.u32s(u)[0], n % 1000);
    assert_eq!(ram.u32s(u)[1], (2000 - n % 2000) % 2000);
    let l = ram.bytes(l);
    let word = |k: usize| u64::from_le_bytes(l[k * 8..][..8].try_into().unwrap());
    assert_eq!(word(0), u64::from(sum) << 30);
    assert_eq!(word(1), u64::from(n - 1).pow(2));
    assert_eq!(word(2), 5);
    assert_eq!(ram.f32s(f)[0], n as f32);
    assert_eq!(f64::from_le_bytes(ram.bytes(d).try_into().unwrap()), f64::from(n) * 0.5);
}

#[test]
fn counting_barriers() {
    let mut ram = Ram::default();
    let loaded = load(WARP, &mut ram).unwrap();
    let x: Vec<u32> = (0..100).collect();
    let (dx, out) = (ram.alloc_u32(&x), ram.alloc(400));
    for (n, want) in [(49, 50 * 100 + 1), (0, 99 * 100 + 1), (99, 0), (u32::MAX, 10_011)] {
        let params = Params::default().u64(dx).u64(out).u32(n);
        Go::new("counts", 1, 100, params).run(&loaded, &ram, &TestHost::default()).unwrap();
        assert_eq!(ram.u32s(out), vec![want; 100]);
    }
}

#[test]
fn halves() {
    let mut ram = Ram::default();
    let loaded = load(include_str!("samples/half.ptx"), &mut ram).unwrap();
    // Small integers and halves are exact in every step.
    let x: Vec<f32> = (0..64).map(|i| (i % 8) as f32 - 3.0).collect();
    let y: Vec<f32> = (0..64).map(|i| (i / 8) as f32 * 0.5).collect();
    let (dx, dy, out) = (ram.alloc_f32(&x), ram.alloc_f32(&y), ram.alloc(256));
    let params = || Params::default().u64(dx).u64(dy).u64(out).u32(64);
    Go::new("pairs", 1, 64, params()).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.f32s(out).into_iter().enumerate() {
        let one = |a: f32, b: f32| ((a * b + (a + b)) * 0.25).max(a) + f32::from(u8::from(a > b));
        assert_eq!(v, one(x[i], y[i]) - one(y[i], x[i]), "{i}");
    }
    Go::new("brains", 1, 64, params()).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.f32s(out).into_iter().enumerate() {
        let (a, b) = (x[i], y[i]);
        assert_eq!(v, a * b + (a + b) - a * b + a * a + a + b * b + b, "{i}");
    }
    Go::new("halves", 1, 64, params()).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.f32s(out).into_iter().enumerate() {
        let (a, b) = (x[i], y[i]);
        let mut r = a * b + (a + b) - a * 0.5;
        if a > b {
            r /= b.abs() + 1.0;
        }
        r = r.max(-a).min(100.0);
        let want = r + a.round_ties_even() + a.abs().sqrt() + (b * 0.1).exp();
        assert!((v - want).abs() < 0.02, "{i}: {v} {want}");
    }
    let (o, h, h2, b) = (ram.alloc(8), ram.alloc(8), ram.alloc(8), ram.alloc(8));
    let params = Params::default().u64(o).u64(h).u64(h2).u64(b);
    Go::new("half_atomics", 2, 64, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    assert_eq!(ram.bytes(h)[..4], [0x00, 0x58, 0, 0]);
    assert_eq!(ram.u32s(h2)[0], 0x5c00_5800);
    assert_eq!(ram.bytes(b)[..2], [0x00, 0x43]);
}

/// Lanes of one instruction name four sets of members; one lane of the first set comes from
/// elsewhere, so that set waits and the others need not.
#[test]
fn members_by_lane() {
    let source = "
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %w<10>;
    .reg .b64 %l<4>;
    .reg .pred %p<3>;
    ld.param.u64 %l1, [out];
    mov.u32 %w1, %tid.x;
    mul.wide.u32 %l2, %w1, 4;
    add.s64 %l1, %l1, %l2;
    and.b32 %w2, %w1, 24;
    shl.b32 %w3, 0xff, %w2;
    setp.eq.u32 %p1, %w1, 3;
    @%p1 bra elsewhere;
    redux.sync.add.u32 %w4, %w1, %w3;
    vote.sync.ballot.b32 %w5, %p1, %w3;
    bra.uni both;
elsewhere:
    redux.sync.add.u32 %w4, 1000, %w3;
    vote.sync.ballot.b32 %w5, %p1, %w3;
both:
    bar.warp.sync 0xffffffff;
    shl.b32 %w5, %w5, 16;
    add.u32 %w4, %w4, %w5;
    match.any.sync.b32 %w6, %w1, 0xffffffff;
    redux.sync.or.b32 %w8, 4096, %w6;
    add.u32 %w4, %w4, %w8;
    st.global.u32 [%l1], %w4;
    ret;
}
";
    let mut ram = Ram::default();
    let loaded = load(source, &mut ram).unwrap();
    let out = ram.alloc(32 * 4);
    let params = Params::default().u64(out);
    Go::new("k", 1, 32, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, v) in ram.u32s(out).into_iter().enumerate() {
        let sum: u32 = (i as u32 / 8 * 8..i as u32 / 8 * 8 + 8).sum();
        let want = if i < 8 { sum - 3 + 1000 + (8 << 16) } else { sum };
        assert_eq!(v, want + 4096, "{i}");
    }
}
