//! What NVRTC makes of everyday kernels, against plain expectations.

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

#[test]
fn saxpy() {
    let mut ram = Ram::default();
    let loaded = load(include_str!("samples/basic.ptx"), &mut ram).unwrap();
    let n = 100_003;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
    let (dx, dy) = (ram.alloc_f32(&x), ram.alloc_f32(&y));
    let params = Params::default().f32(2.5).u64(dx).u64(dy).u32(n);
    let host = TestHost::default();
    Go::new("saxpy", n.div_ceil(256), 256, params).run(&loaded, &ram, &host).unwrap();
    for (i, v) in ram.f32s(dy).into_iter().enumerate() {
        assert_eq!(v, 2.5f32.mul_add(x[i], y[i]), "{i}");
    }
}

#[test]
fn reduce() {
    let mut ram = Ram::default();
    let loaded = load(include_str!("samples/basic.ptx"), &mut ram).unwrap();
    let n = 10_000;
    let x: Vec<f32> = (0..n).map(|i| (i % 10) as f32).collect();
    let (dx, out) = (ram.alloc_f32(&x), ram.alloc_f32(&[0.0]));
    let params = Params::default().u64(dx).u64(out).u32(n);
    let host = TestHost::default();
    Go::new("reduce", n.div_ceil(256), 256, params).run(&loaded, &ram, &host).unwrap();
    assert_eq!(ram.f32s(out), [45_000.0]);
}

#[test]
fn matmul() {
    let mut ram = Ram::default();
    let loaded = load(include_str!("samples/basic.ptx"), &mut ram).unwrap();
    let n = 64usize;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 13) as f32).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
    let (da, db, dc) = (ram.alloc_f32(&a), ram.alloc_f32(&b), ram.alloc(n * n * 4));
    let params = Params::default().u64(da).u64(db).u64(dc).u32(n as u32);
    let mut go = Go::new("matmul", 1, 1, params);
    go.grid = [4, 4, 1];
    go.block = [16, 16, 1];
    go.run(&loaded, &ram, &TestHost::default()).unwrap();
    let c = ram.f32s(dc);
    for row in 0..n {
        for col in 0..n {
            let sum: f32 = (0..n).map(|k| a[row * n + k] * b[k * n + col]).sum();
            assert_eq!(c[row * n + col], sum);
        }
    }
}

#[test]
fn collatz() {
    let mut ram = Ram::default();
    let loaded = load(include_str!("samples/basic.ptx"), &mut ram).unwrap();
    let n = 1000;
    let out = ram.alloc(n * 4);
    let params = Params::default().u64(out).u32(n as u32);
    Go::new("collatz", 8, 128, params).run(&loaded, &ram, &TestHost::default()).unwrap();
    for (i, got) in ram.u32s(out).into_iter().enumerate() {
        let (mut v, mut steps) = (i as u64 + 1, 0);
        while v != 1 {
            v = if v & 1 == 1 { 3 * v + 1 } else { v / 2 };
            steps += 1;
        }
        assert_eq!(got, steps, "{i}");
    }
}

/// Every sample parses, and nothing in it is missing from the interpreter.
#[test]
fn all_samples_are_supported() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let mut kernels = 0;
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "ptx") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let module = match cuirass_ptx::Module::parse(&source, &common::TARGET) {
            Ok(module) => module,
            Err(error) => {
                missing.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        for kernel in module.kernels() {
            kernels += 1;
            if let Some(text) = kernel.unsupported() {
                missing.push(format!("{}: {}: {text}", path.display(), kernel.name()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(kernels > 80, "{kernels}");
}

/// The same source with line information and with fast math.
#[test]
fn variants_of_saxpy() {
    for source in [include_str!("samples/basic_lineinfo.ptx"), include_str!("samples/basic_fast.ptx")] {
        let mut ram = Ram::default();
        let loaded = load(source, &mut ram).unwrap();
        let (dx, dy) = (ram.alloc_f32(&[1.0, 2.0, 3.0]), ram.alloc_f32(&[10.0, 20.0, 30.0]));
        let params = Params::default().f32(2.0).u64(dx).u64(dy).u32(3);
        Go::new("saxpy", 1, 32, params).run(&loaded, &ram, &TestHost::default()).unwrap();
        assert_eq!(ram.f32s(dy), [12.0, 24.0, 36.0]);
    }
}

#[test]
fn kernels_describe_themselves() {
    let module = cuirass_ptx::Module::parse(include_str!("samples/basic.ptx"), &common::TARGET).unwrap();
    assert_eq!(module.target_arch(), 90);
    let reduce = module.kernel("reduce").unwrap();
    assert_eq!(reduce.static_shared_bytes(), 1024);
    assert!(!reduce.uses_dynamic_shared());
    assert_eq!(reduce.param_bytes(), 20);
    let saxpy = module.kernel("saxpy").unwrap();
    let offsets: Vec<u32> = saxpy.params().iter().map(|p| p.offset).collect();
    assert_eq!(offsets, [0, 8, 16, 24]);
    assert_eq!(saxpy.static_shared_bytes(), 0);
    assert!((8..=255).contains(&saxpy.registers()));
}

#[test]
fn modules_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<cuirass_ptx::Module>();
    shared::<cuirass_ptx::Loaded>();
    let source = include_str!("samples/breadth.ptx");
    let module = cuirass_ptx::Module::parse(source, &common::TARGET).unwrap();
    let managed: Vec<&str> = module.globals().iter().filter(|g| g.managed).map(|g| g.name.as_str()).collect();
    assert_eq!(managed, ["managed_v"]);
    let bounds = module.kernel("lb").unwrap();
    assert_eq!(bounds.max_threads(), Some([256, 1, 1]));
}
