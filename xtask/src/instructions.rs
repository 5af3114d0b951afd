//! Instructions of the host paths over a driver that does nothing, counted by callgrind, kept in
//! `benches/instructions.toml`. Two runs of different length are subtracted, so that only the loop counts.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// How much a count may grow before the check fails.
const BOUND: f64 = 1.03;
const SHORT: u64 = 1000;
const LONG: u64 = 3000;
const LIST: &str = "benches/instructions.toml";

/// Counts and writes the list.
pub fn write(root: &Path) -> Result<()> {
    let counts = count(root)?;
    let mut text = String::from(
        "# Instructions a call of the Rust interface over a driver that does nothing: `cargo xtask instructions`.\n\
         # CI fails where one has grown by more than 3 %. The calls of the driver itself are about 2 instructions each.\n\n",
    );
    writeln!(text, "with = {:?}\n\n[calls]", environment())?;
    for (case, instructions) in &counts {
        writeln!(text, "{case} = {instructions}")?;
    }
    std::fs::write(root.join(LIST), &text)?;
    print!("{text}");
    Ok(())
}

/// Counts and compares.
pub fn check(root: &Path) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("instructions: NOT CHECKED, valgrind is not installed");
        return Ok(());
    }
    let list: toml::Table = std::fs::read_to_string(root.join(LIST))?.parse()?;
    let (here, there) = (environment(), list.get("with").and_then(toml::Value::as_str).unwrap_or_default().to_owned());
    if here != there {
        println!("instructions: NOT CHECKED, the list was made with {there}, and here is {here}");
        return Ok(());
    }
    let known: BTreeMap<String, f64> = list.get("calls").context("calls in the list")?.clone().try_into()?;
    let counts = count(root)?;
    let mut wrong = Vec::new();
    for (case, now) in &counts {
        match known.get(case) {
            None => wrong.push(format!("{case}: {now} instructions, not in the list")),
            Some(then) if *now as f64 > (then * BOUND).max(then + 2.0) => {
                wrong.push(format!("{case}: {now} instructions, {then} in the list"));
            }
            Some(_) => {}
        }
    }
    wrong.extend(
        known.keys().filter(|case| !counts.contains_key(*case)).map(|case| format!("{case}: in the list only")),
    );
    if wrong.is_empty() {
        println!("instructions: {} host paths, none has grown by more than 3 %", counts.len());
        return Ok(());
    }
    bail!("instructions ({LIST}; `cargo xtask instructions` writes it anew):\n  {}", wrong.join("\n  "))
}

/// What counts depend on beside the sources: the compiler, the C library, and the processor, whose copying routines it
/// chooses by.
fn environment() -> String {
    let first_line = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().to_owned()
    };
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let value = processor.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        value.trim_start_matches([' ', '\t', ':'])
    };
    // Of one name there are some that have these and some that do not.
    let flags = field("flags").split(' ').filter(|flag| ["avx2", "avx512f", "erms", "fsrm"].contains(flag));
    let model = format!("{} ({})", field("model name"), flags.collect::<Vec<_>>().join(" "));
    format!("{}; {}; {model}", first_line("rustc", "--version"), first_line("ldd", "--version"))
}

fn count(root: &Path) -> Result<BTreeMap<String, u64>> {
    let packages = ["-p", "cuirass-bench-null-driver", "-p", "cuirass-bench-instructions"];
    let built =
        Command::new("cargo").args(["build", "--release", "--quiet"]).args(packages).current_dir(root).status()?;
    if !built.success() {
        bail!("the benchmark was not built");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("release");
    let program = target.join("cuirass-bench-instructions");
    let list = Command::new(&program).arg("--list").output()?;
    let mut counts = BTreeMap::new();
    for case in String::from_utf8(list.stdout)?.lines() {
        let (short, long) = (callgrind(&target, &program, case, SHORT)?, callgrind(&target, &program, case, LONG)?);
        counts.insert(case.to_owned(), long.saturating_sub(short) / (LONG - SHORT));
    }
    Ok(counts)
}

fn callgrind(target: &Path, program: &Path, case: &str, times: u64) -> Result<u64> {
    // The driver that does nothing has the simulator's place, but not its mark: it is loaded as a GPU's driver is.
    let folder = target.join("null-driver");
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(target.join("libcuirass_null_driver.so"), folder.join("libcuda.so.1"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([case, &times.to_string()])
        .env("LD_LIBRARY_PATH", &folder)
        .env("CUIRASS_DRIVER", "gpu")
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{case}: {text}");
    }
    let collected = text.lines().find_map(|line| line.split_once("Collected :")).context("callgrind's total")?;
    Ok(collected.1.trim().parse()?)
}
