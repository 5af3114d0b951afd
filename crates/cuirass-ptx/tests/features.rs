//! What C++ makes of functions, structs, tables, text, and faults.

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
use cuirass_ptx::{Fault, FaultKind, Loaded};

const SOURCES: [&str; 2] = [include_str!("samples/features.ptx"), include_str!("samples/features_debug.ptx")];

/// Runs a test on the optimised and on the debug build.
fn both(test: impl Fn(&Loaded, &mut Ram)) {
    for source in SOURCES {
        let mut ram = Ram::default();
        let loaded = load(source, &mut ram).unwrap();
        test(&loaded, &mut ram);
    }
}

fn run(loaded: &Loaded, ram: &Ram, kernel: &str, block: u32, params: Params) {
    Go::new(kernel, 1, block, params).run(loaded, ram, &TestHost::default()).unwrap();
}

fn fails(loaded: &Loaded, ram: &Ram, kernel: &str, params: Params) -> Fault {
    Go::new(kernel, 1, 64, params).run(loaded, ram, &TestHost::default()).unwrap_err()
}

fn f64s(ram: &Ram, at: u64) -> Vec<f64> {
    ram.bytes(at).chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect()
}

fn big() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..10i32).flat_map(|i| (i * 10).to_le_bytes()).collect();
    bytes.extend(1.25f64.to_le_bytes());
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

#[test]
fn virtual_functions() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "virtuals", 64, Params::default().u64(out));
        for (i, v) in ram.f32s(out).into_iter().enumerate() {
            let x = i as f32 * 0.5;
            let want = if i % 3 != 0 { x * x * i as f32 } else { x - 1.0 };
            assert_eq!(v, want, "{i}");
        }
    });
}

#[test]
fn structs_by_value() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 8);
        let params = Params::default().u64(out).push(&big(), 8).u32(13);
        run(loaded, ram, "structs", 64, params);
        for (i, v) in f64s(ram, out).into_iter().enumerate() {
            let mut a: Vec<i32> = (0..10).map(|i| i * 10).collect();
            a[i % 10] += 1;
            a[(i + 1) % 10] += 1;
            let want = f64::from(a[3] + 100 * a[i % 10]) + 1.25 * 4.0 + 3.0;
            assert_eq!(v, want, "{i}");
        }
    });
}

#[test]
fn recursion() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "recursion", 64, Params::default().u64(out));
        let fib = |n: u32| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
        for (i, v) in ram.u32s(out).into_iter().enumerate() {
            assert_eq!(v, fib(i as u32 % 12), "{i}");
        }
    });
}

#[test]
fn function_and_data_pointers() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "pointers", 64, Params::default().u64(out));
        for (i, v) in ram.u32s(out).into_iter().enumerate() {
            let i = i as u32;
            let f = [i + 1, i * 2, i * i][i as usize % 3];
            assert_eq!(v, f + 2 + (i & 3) + 1, "{i}");
        }
    });
}

#[test]
fn switches() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "switches", 64, Params::default().u64(out));
        for (i, v) in ram.u32s(out).into_iter().enumerate() {
            let x = i as i32;
            let want = match i % 10 {
                0 => x + 11,
                1 => x * 3,
                2 => x ^ 0x55,
                3 => x / 7,
                4 => x % 9,
                5 => -x,
                6 => x << 3,
                7 => x >> 1,
                8 => 42,
                _ => 7,
            };
            assert_eq!(v as i32, want, "{i}");
        }
    });
}

#[test]
fn dynamic_shared_memory() {
    both(|loaded, ram| {
        assert!(loaded.module().kernel("dynamic_shared").unwrap().uses_dynamic_shared());
        let out = ram.alloc(64 * 8);
        let mut go = Go::new("dynamic_shared", 1, 64, Params::default().u64(out));
        go.shared = 64 * 8;
        go.run(loaded, ram, &TestHost::default()).unwrap();
        for (i, v) in f64s(ram, out).into_iter().enumerate() {
            assert_eq!(v, (63 - i) as f64 * 1.5 + 2.5);
        }
        // Less than the kernel uses is out of bounds.
        go.shared = 63 * 8;
        let fault = go.run(loaded, ram, &TestHost::default()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        assert_eq!(fault.thread, [63, 0, 0]);
        assert!(fault.write);
    });
}

#[test]
fn printing() {
    both(|loaded, ram| {
        let host = TestHost::default();
        Go::new("prints", 1, 32, Params::default().u32(7)).run(loaded, ram, &host).unwrap();
        let want = "hello 7 from thread one:  3.14|42    |-00042|ff|z|1099511627776|%|\
                    1.234568e+04|0.0001\nplain\n";
        assert_eq!(host.text(), want);
    });
}

#[test]
fn local_arrays() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "local_arrays", 64, Params::default().u64(out).u32(32));
        for (i, v) in ram.u32s(out).into_iter().enumerate() {
            let mut values = [0i32; 32];
            for k in 0..32 {
                values[(k * 7 + i) & 31] = (k * i) as i32;
            }
            let sum: i32 = (0..32).map(|k| values[k] * (k as i32 + 1)).sum();
            assert_eq!(v as i32, sum, "{i}");
        }
    });
}

#[test]
fn heap() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "heap", 64, Params::default().u64(out));
        assert_eq!(ram.u32s(out), vec![0; 64]);
        let pool = ram.alloc(1 << 16);
        let host = TestHost { heap: Some(pool.into()), ..TestHost::default() };
        Go::new("heap", 1, 64, Params::default().u64(out)).run(loaded, ram, &host).unwrap();
        let want: Vec<u32> = (0..64).map(|i| i + i * i).collect();
        assert_eq!(ram.u32s(out), want);
    });
}

#[test]
fn constant_parameters_and_templates() {
    both(|loaded, ram| {
        let out = ram.alloc(64 * 4);
        run(loaded, ram, "fixed", 64, Params::default().push(&big(), 8).u64(out));
        let want: Vec<u32> = (0..64).map(|i| (i * 3) % 10 * 10).collect();
        assert_eq!(ram.u32s(out), want);
        let a: Vec<u32> = (0..80).collect();
        let b: Vec<u8> = (0..80).flat_map(|i| (f64::from(i) * 0.5).to_le_bytes()).collect();
        let (da, db, out) = (ram.alloc_u32(&a), ram.alloc_bytes(&b), ram.alloc(64 * 8));
        run(loaded, ram, "templates", 64, Params::default().u64(da).u64(db).u64(out).u32(5));
        for (i, v) in f64s(ram, out).into_iter().enumerate() {
            let want: f64 = (i..i + 5).map(|k| k as f64 * 1.5).sum();
            assert_eq!(v, want);
        }
    });
}

#[test]
fn faults_name_their_place() {
    both(|loaded, ram| {
        let fault = fails(loaded, ram, "traps", Params::default().u32(40));
        assert_eq!((fault.kind, fault.thread), (FaultKind::Trap, [40, 0, 0]));
        assert_eq!(fault.instruction, "trap;".trim_end_matches(';'));
        assert!(fault.line > 0);

        let host = TestHost::default();
        let go = Go::new("asserts", 1, 64, Params::default().u32(9));
        let fault = go.run(loaded, ram, &host).unwrap_err();
        assert_eq!((fault.kind, fault.thread), (FaultKind::Assert, [9, 0, 0]));
        assert_eq!(host.text(), "features.cu:77: asserts: block: [0,0,0], thread: [9,0,0] Assertion `n > 0` failed.\n");

        let out = ram.alloc(64);
        let params = Params::default().u64(out).u64(1 << 20);
        let fault = fails(loaded, ram, "wild", params);
        assert_eq!((&fault.kind, fault.thread), (&FaultKind::IllegalAddress, [5, 0, 0]));
        assert_eq!(fault.address, Some(out + (4 << 20)));
        assert!(fault.write && fault.access_bytes == 4);
        let text = fault.to_string();
        assert!(text.contains("wild") && text.contains("st."), "{text}");

        let fault = fails(loaded, ram, "crooked", Params::default().u64(out));
        assert_eq!(fault.kind, FaultKind::MisalignedAddress);

        let mut go = Go::new("spin", 1, 1, Params::default().u64(out));
        go.fuel = Some(1_000_000);
        let fault = go.run(loaded, ram, &TestHost::default()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::OutOfFuel);
    });
}
