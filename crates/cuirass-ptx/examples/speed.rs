//! PTX instructions a second, counted once for every thread: saxpy, a tiled matrix product, and
//! a loop of integer arithmetic.
//!
//! `cargo run --release -p cuirass-ptx --example speed [workers [opcodes]]`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{Go, Params, Ram, TestHost, load};

fn measure(name: &str, go: &Go<'_>, ram: &Ram, loaded: &cuirass_ptx::Loaded) {
    let host = TestHost::default();
    let mut best = f64::INFINITY;
    let mut instructions = 0;
    for _ in 0..3 {
        let begin = Instant::now();
        match go.run(loaded, ram, &host) {
            Ok(stats) => instructions = stats.instructions,
            Err(fault) => return println!("{name}: {fault}"),
        }
        best = best.min(begin.elapsed().as_secs_f64());
    }
    let rate = instructions as f64 / best / 1e6;
    println!(
        "{name:24} {best:8.3} s {:10.0} M instructions {rate:8.0} M/s, {:8.0} M/s a worker",
        instructions as f64 / 1e6,
        rate / go.workers as f64
    );
}

/// One opcode many times in a loop.
fn opcode(name: &str, operands: &str, ram: &mut Ram, out: u64) {
    let line = format!("{name} {operands};\n");
    let source = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.shared .align 16 .b8 sm[4096];
.entry k(.param .u64 out) {{ .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %w<16>; .reg .b64 %l<16>; .reg .b32 %n;
ld.param.u64 %l9, [out]; mov.u32 %w9, %tid.x; mul.wide.u32 %l8, %w9, 16; add.s64 %l9, %l9, %l8;
mul.lo.u32 %w1, %w9, 0x1234567; mov.b32 %w2, 0x3f812345; mov.b32 %w3, 0x3c003e11; shl.b32 %w8, %w9, 2; mov.u32 %w10, sm; add.u32 %w8, %w8, %w10;
cvt.rn.f64.u32 %l1, %w9; cvt.rn.f64.u32 %l2, %w2; mov.b64 %l3, %l2; mov.b16 %h1, 0x3e11; mov.b16 %h2, 0x3c02; mov.b16 %h3, 0x3555;
setp.lt.u32 %p1, %w9, 7; mov.u32 %n, 0;
l: {} add.u32 %n, %n, 1; setp.lt.u32 %p7, %n, 500; @%p7 bra l; ret; }}",
        line.repeat(16)
    );
    let loaded = match load(&source, ram) {
        Ok(loaded) => loaded,
        Err(error) => return println!("{name}: {error}"),
    };
    let mut go = Go::new("k", 4, 256, Params::default().u64(out));
    go.workers = 1;
    measure(name, &go, ram, &loaded);
}

fn opcodes(ram: &mut Ram) {
    let out = ram.alloc(1 << 16);
    for (name, operands) in [
        ("add.s32", "%w4, %w1, %w2"),
        ("mul.lo.s64", "%l4, %l1, %l2"),
        ("mul.hi.u64", "%l4, %l1, %l2"),
        ("div.s32", "%w4, %w1, %w2"),
        ("rem.u64", "%l4, %l1, %l2"),
        ("shf.l.wrap.b32", "%w4, %w1, %w2, %w9"),
        ("lop3.b32", "%w4, %w1, %w2, %w3, 0xca"),
        ("prmt.b32", "%w4, %w1, %w2, 0x5410"),
        ("bfe.u32", "%w4, %w1, 3, 7"),
        ("popc.b32", "%w4, %w1"),
        ("clz.b32", "%w4, %w1"),
        ("brev.b32", "%w4, %w1"),
        ("add.cc.u32", "%w4, %w1, %w2"),
        ("dp4a.s32.s32", "%w4, %w1, %w2, %w3"),
        ("add.f32", "%w4, %w1, %w2"),
        ("fma.rn.f32", "%w4, %w1, %w2, %w3"),
        ("fma.rn.ftz.f32", "%w4, %w1, %w2, %w3"),
        ("fma.rz.f32", "%w4, %w1, %w2, %w3"),
        ("div.rn.f32", "%w4, %w1, %w2"),
        ("sqrt.rn.f32", "%w4, %w2"),
        ("min.f32", "%w4, %w1, %w2"),
        ("ex2.approx.ftz.f32", "%w4, %w2"),
        ("lg2.approx.f32", "%w4, %w2"),
        ("sin.approx.f32", "%w4, %w2"),
        ("rcp.approx.ftz.f32", "%w4, %w2"),
        ("rsqrt.approx.f32", "%w4, %w2"),
        ("fma.rn.f64", "%l4, %l1, %l2, %l3"),
        ("add.rz.f64", "%l4, %l1, %l2"),
        ("div.rn.f64", "%l4, %l1, %l2"),
        ("add.rn.f16", "%h4, %h1, %h2"),
        ("add.rn.f16x2", "%w4, %w3, %w3"),
        ("mul.rn.f16x2", "%w4, %w3, %w3"),
        ("fma.rn.f16", "%h4, %h1, %h2, %h3"),
        ("fma.rn.f16x2", "%w4, %w3, %w3, %w3"),
        ("fma.rn.bf16x2", "%w4, %w3, %w3, %w3"),
        ("max.f16x2", "%w4, %w3, %w3"),
        ("cvt.rn.f16.f32", "%h4, %w2"),
        ("cvt.f32.f16", "%w4, %h2"),
        ("cvt.rn.f32.s32", "%w4, %w1"),
        ("cvt.rzi.s32.f32", "%w4, %w2"),
        ("cvt.rni.s32.f32", "%w4, %w2"),
        ("cvt.rzi.u32.f32", "%w4, %w2"),
        ("cvt.rzi.s64.f64", "%l4, %l2"),
        ("cvt.rni.f32.f32", "%w4, %w2"),
        ("cvt.s64.s32", "%l4, %w2"),
        ("setp.lt.s32", "%p2, %w1, %w2"),
        ("setp.lt.f32", "%p2, %w1, %w2"),
        ("setp.lt.f64", "%p2, %l1, %l2"),
        ("selp.b32", "%w4, %w1, %w2, %p1"),
        ("@%p1 add.s32", "%w4, %w1, %w2"),
        ("ld.shared.u32", "%w4, [%w8]"),
        ("st.shared.u32", "[%w8+1024], %w4"),
        ("ld.shared.v4.u32", "{%w4, %w5, %w6, %w7}, [sm]"),
        ("ld.global.u32", "%w4, [%l9]"),
        ("ld.global.v4.u32", "{%w4, %w5, %w6, %w7}, [%l9]"),
        ("st.global.u64", "[%l9], %l1"),
        ("atom.global.add.u32", "%w4, [%l9], 1"),
        ("red.shared.add.u32", "[sm], 1"),
        ("shfl.sync.bfly.b32", "%w4, %w1, 3, 31, -1"),
        ("vote.sync.ballot.b32", "%w4, %p1, -1"),
        ("bar.sync", "0"),
    ] {
        opcode(name, operands, ram, out);
    }
}

fn main() {
    let workers = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let mut ram = Ram::default();
    let source = include_str!("../tests/samples/basic.ptx");
    let loaded = match load(source, &mut ram) {
        Ok(loaded) => loaded,
        Err(error) => return println!("{error}"),
    };
    let n = 1usize << 24;
    let (x, y) = (ram.alloc(n * 4), ram.alloc(n * 4));
    let mut go = Go::new("saxpy", (n / 256) as u32, 256, Params::default().f32(2.0).u64(x).u64(y).u32(n as u32));
    go.fuel = None;
    go.workers = workers;
    measure("saxpy, 16 Mi floats", &go, &ram, &loaded);

    let n = 512u32;
    let bytes = (n * n * 4) as usize;
    let (a, b, c) = (ram.alloc(bytes), ram.alloc(bytes), ram.alloc(bytes));
    go.kernel = "matmul";
    go.grid = [n / 16, n / 16, 1];
    go.block = [16, 16, 1];
    go.params = Params::default().u64(a).u64(b).u64(c).u32(n);
    measure("matmul, 512 x 512", &go, &ram, &loaded);

    go.kernel = "mix";
    go.grid = [256, 1, 1];
    go.block = [256, 1, 1];
    go.params = Params::default().u64(x).u32(2000);
    measure("integer loop", &go, &ram, &loaded);

    go.kernel = "collatz";
    go.params = Params::default().u64(x).u32(65_536);
    measure("divergent loop", &go, &ram, &loaded);

    if std::env::args().nth(2).is_some() {
        opcodes(&mut ram);
    }
}
