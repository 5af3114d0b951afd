//! The project's own commands: `cargo xtask gen`, `cargo xtask families`, `cargo xtask tree`.

mod exports;
mod families;
mod header;
mod instructions;
mod signatures;
mod source_tree;
mod table;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask gen [--check] | families --check | tree --check | instructions [--check]
  gen               write the generated files from the pinned headers and families/*.toml
  gen --check       fail if a generated file differs from what gen would write
  families --check  every driver call is claimed by one family, every listed call has one wrapper
  tree --check      file lengths, unsafe only where allowed, safety tags, no foreign call outside the seam
  instructions      count the instructions of the host paths over a driver that does nothing (needs valgrind)
  instructions --check  fail where one has grown by more than 3 % over benches/instructions.toml";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let root = root();
    match words.as_slice() {
        ["gen"] => generate(&root, false),
        ["gen", "--check"] => generate(&root, true),
        ["families", "--check"] => families::check(&root),
        ["tree", "--check"] => source_tree::check(&root),
        ["instructions"] => instructions::write(&root),
        ["instructions", "--check"] => instructions::check(&root),
        _ => bail!("{USAGE}"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Writes every generated file, or with `check` compares each with what is in the tree.
fn generate(root: &Path, check: bool) -> Result<()> {
    let headers = header::fetch(root)?;
    let families = families::read_all(root)?;
    let (types, signatures) = header::bind(&headers)?;
    families::check_versions(&families, &headers)?;
    let types = header::Types { cuda: header::format(&types.cuda)?, nvrtc: header::format(&types.nvrtc)? };
    let tables =
        [table::driver(&families, &signatures, &types.cuda)?, table::nvrtc(&families, &signatures, &types.nvrtc)?];
    let [driver_table, nvrtc_table] = tables;
    let files = [
        ("crates/cuirass-sys/src/cuda.rs", types.cuda),
        ("crates/cuirass-sys/src/nvrtc.rs", types.nvrtc),
        ("crates/cuirass-call/src/table/driver.rs", driver_table),
        ("crates/cuirass-call/src/table/nvrtc.rs", nvrtc_table),
        ("sim-libs/src/exports.rs", exports::write(root, &families, &signatures)?),
    ];
    let mut stale = Vec::new();
    for (path, text) in files {
        let text = header::format(&text)?;
        let path = root.join(path);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
        } else {
            std::fs::create_dir_all(path.parent().unwrap_or(root))?;
            std::fs::write(&path, text)?;
        }
    }
    if stale.is_empty() {
        println!("gen: {} driver calls in {} families", signatures.len(), families.len());
        return Ok(());
    }
    bail!("out of date, run `cargo xtask gen`: {}", stale.join(", "))
}
