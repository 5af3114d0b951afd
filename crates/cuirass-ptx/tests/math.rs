//! The math library as NVRTC inlines it, against the host's.

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

const SOURCE: &str = include_str!("samples/math.ptx");

fn inputs() -> Vec<f64> {
    let mut x: Vec<f64> = (0..500).map(|i| (f64::from(i) - 250.0) * 0.0371).collect();
    x.extend([0.0, -0.0, 1.0, -1.0, 0.5, 1e-10, 1e5, -1e5, 88.0, -88.0]);
    x.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3e5, 1.5e-40]);
    x
}

fn single(ram: &mut Ram, loaded: &cuirass_ptx::Loaded, name: &str, f: impl Fn(f64) -> f64, ulps: f64) {
    let x: Vec<f32> = inputs().iter().map(|v| *v as f32).collect();
    let (dx, out) = (ram.alloc_f32(&x), ram.alloc(x.len() * 4));
    let params = Params::default().u64(dx).u64(out).u32(x.len() as u32);
    let kernel = format!("f_{name}");
    Go::new(&kernel, 5, 128, params).run(loaded, ram, &TestHost::default()).unwrap();
    for (x, got) in x.iter().zip(ram.f32s(out)) {
        let want = f(f64::from(*x));
        let ulp = f64::from(f32::EPSILON) * want.abs().max(f64::from(f32::MIN_POSITIVE));
        let near = (f64::from(got) - want).abs() <= ulps * ulp;
        let same = got == want as f32 || (got.is_nan() && want.is_nan());
        assert!(near || same, "{name}({x:e}) = {got:e}, not {want:e}");
    }
}

fn double(ram: &mut Ram, loaded: &cuirass_ptx::Loaded, name: &str, f: impl Fn(f64) -> f64, ulps: f64) {
    let x = inputs();
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let (dx, out) = (ram.alloc_bytes(&bytes), ram.alloc(x.len() * 8));
    let params = Params::default().u64(dx).u64(out).u32(x.len() as u32);
    let kernel = format!("d_{name}");
    Go::new(&kernel, 5, 128, params).run(loaded, ram, &TestHost::default()).unwrap();
    let got = ram.bytes(out);
    let got = got.chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().unwrap()));
    for (x, got) in x.iter().zip(got) {
        let want = f(*x);
        let near = (got - want).abs() <= ulps * f64::EPSILON * want.abs().max(f64::MIN_POSITIVE);
        let same = got == want || (got.is_nan() && want.is_nan());
        assert!(near || same, "{name}({x:e}) = {got:e}, not {want:e}");
    }
}

#[test]
fn single_precision() {
    let mut ram = Ram::default();
    let loaded = load(SOURCE, &mut ram).unwrap();
    let table: [(&str, fn(f64) -> f64, f64); 25] = [
        ("sinf", f64::sin, 3.0),
        ("cosf", f64::cos, 3.0),
        ("tanf", f64::tan, 6.0),
        ("expf", f64::exp, 4.0),
        ("exp2f", f64::exp2, 4.0),
        ("logf", f64::ln, 3.0),
        ("log2f", f64::log2, 3.0),
        ("log10f", f64::log10, 4.0),
        ("sqrtf", f64::sqrt, 0.5),
        ("cbrtf", f64::cbrt, 2.0),
        ("atanf", f64::atan, 3.0),
        ("tanhf", f64::tanh, 3.0),
        ("sinhf", f64::sinh, 5.0),
        ("floorf", f64::floor, 0.0),
        ("ceilf", f64::ceil, 0.0),
        ("roundf", f64::round, 0.0),
        ("truncf", f64::trunc, 0.0),
        ("rintf", f64::round_ties_even, 0.0),
        ("fabsf", f64::abs, 0.0),
        ("rsqrtf", |v| 1.0 / v.sqrt(), 3.0),
        ("expm1f", f64::exp_m1, 3.0),
        ("log1pf", f64::ln_1p, 3.0),
        ("asinhf", f64::asinh, 5.0),
        ("powf", |v| v.abs().powf(f64::from(1.7f32)), 9.0),
        ("erff", erf, 4.0),
    ];
    for (name, f, ulps) in table {
        single(&mut ram, &loaded, name, f, ulps);
    }
}

/// The error function by its series or its continued fraction.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let a = x.abs();
    if a > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (a, a);
    for n in 1..400 {
        term *= -a * a / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    let v = if a < 4.5 { sum * 2.0 / std::f64::consts::PI.sqrt() } else { 1.0 };
    v.copysign(x)
}

#[test]
fn double_precision() {
    let mut ram = Ram::default();
    let loaded = load(SOURCE, &mut ram).unwrap();
    let table: [(&str, fn(f64) -> f64, f64); 21] = [
        ("sin", f64::sin, 3.0),
        ("cos", f64::cos, 3.0),
        ("tan", f64::tan, 4.0),
        ("exp", f64::exp, 3.0),
        ("log", f64::ln, 3.0),
        ("log2", f64::log2, 3.0),
        ("sqrt", f64::sqrt, 0.0),
        ("cbrt", f64::cbrt, 2.0),
        ("atan", f64::atan, 4.0),
        ("tanh", f64::tanh, 4.0),
        ("floor", f64::floor, 0.0),
        ("ceil", f64::ceil, 0.0),
        ("round", f64::round, 0.0),
        ("rsqrt", |v| 1.0 / v.sqrt(), 3.0),
        ("expm1", f64::exp_m1, 4.0),
        ("log1p", f64::ln_1p, 4.0),
        ("pow", |v| v.abs().powf(1.7), 4.0),
        ("fmod", |v| v % 0.7, 0.0),
        ("atan2", |v| v.atan2(1.5), 4.0),
        ("div", |v| 1.0 / v, 0.0),
        ("sqrt", f64::sqrt, 0.0),
    ];
    for (name, f, ulps) in table {
        double(&mut ram, &loaded, name, f, ulps);
    }
}

#[test]
fn integers() {
    let mut ram = Ram::default();
    let loaded = load(SOURCE, &mut ram).unwrap();
    let n = 600u32;
    let a: Vec<u32> = (0..n).map(|i| i.wrapping_mul(0x9e37_79b9) ^ i << 3).collect();
    let b: Vec<u32> = (0..n).map(|i| if i % 50 == 0 { i } else { i.wrapping_mul(0x85eb_ca6b) }).collect();
    let (da, db, out) = (ram.alloc_u32(&a), ram.alloc_u32(&b), ram.alloc(n as usize * 8));
    let params = Params::default().u64(da).u64(db).u64(out).u32(n);
    Go::new("integers", 5, 128, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    let bytes = ram.bytes(out);
    let got = bytes.chunks_exact(8).map(|c| i64::from_le_bytes(c.try_into().unwrap()));
    for ((a, b), got) in a.iter().zip(&b).zip(got) {
        assert_eq!(got, reference(*a as i32, *b as i32), "{a:x} {b:x}");
    }
}

fn reference(a: i32, b: i32) -> i64 {
    let (x, y) = (i64::from(a), i64::from(b));
    let u = (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let v = (y as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let ffs = |v: u64| if v == 0 { 0 } else { i64::from(v.trailing_zeros()) + 1 };
    let mut r = 0i64;
    if b != 0 {
        r += i64::from(a.wrapping_div(b).wrapping_add(a.wrapping_rem(b)));
        let t = x.wrapping_mul(1_000_003);
        r ^= t.wrapping_div(y).wrapping_add(t.wrapping_rem(y));
    }
    let high = ((u128::from(u) * u128::from(v)) >> 64) as i64;
    let signed = ((i128::from(u as i64) * i128::from(v as i64)) >> 64) as i64;
    r ^= high.wrapping_add(signed);
    let counts = i64::from(a.count_ones() + b.leading_zeros())
        + ffs(a as u32 as u64)
        + i64::from(u.count_ones() + v.leading_zeros())
        + ffs(u);
    r = r.wrapping_add(counts);
    r ^= i64::from((a as u32).reverse_bits()) << 7 ^ v.reverse_bits() as i64;
    let (ua, ub) = (a as u32, b as u32);
    let bytes = (u64::from(ub) << 32 | u64::from(ua)).to_le_bytes();
    let permuted = u32::from_le_bytes([bytes[5], bytes[1], bytes[7], bytes[3]]);
    let left = ub << 13 | ua >> 19;
    let mixed = permuted.wrapping_add(left).wrapping_add(ub);
    r = r.wrapping_add(i64::from(mixed));
    let sad = (x - y).unsigned_abs() as u32;
    let sad = sad.wrapping_add(5);
    let mulhi = ((x * y) >> 32) as i32;
    let hadd = ((x + y) >> 1) as i32;
    let rhadd = ((x + y + 1) >> 1) as i32;
    let last = sad.wrapping_add(mulhi as u32).wrapping_add(hadd as u32).wrapping_add(rhadd as u32);
    r.wrapping_add(i64::from(last))
}
