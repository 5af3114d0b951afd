//! What a PTX file holds, and what of it is not simulated.
//!
//! `cargo run -p cuirass-ptx --example inspect FILE...`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::type_complexity
)]

use cuirass_ptx::{Module, Target};

fn main() {
    for path in std::env::args().skip(1) {
        let source = match std::fs::read_to_string(&path) {
            Ok(source) => source,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        let target = Target { max_ptx_version: (9, 9), arch: 90 };
        let module = match Module::parse(&source, &target) {
            Ok(module) => module,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        for kernel in module.kernels() {
            println!(
                "{path}: {} ({} parameter bytes, {} shared, {} local, {} registers): {}",
                kernel.name(),
                kernel.param_bytes(),
                kernel.static_shared_bytes(),
                kernel.local_bytes(),
                kernel.registers(),
                kernel.unsupported().unwrap_or("complete")
            );
        }
    }
}
