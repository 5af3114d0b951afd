//! `cargo xtask tree --check`: rules about the sources that no compiler checks.
//!
//! Each rule is tested against a planted violation below, so that it is known to bite.

use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The longest a hand-written file may be, in lines.
const LONGEST: usize = 800;
/// Files that a tool writes.
const GENERATED: [&str; 5] = [
    "crates/cuirass-sys/src/cuda.rs",
    "crates/cuirass-sys/src/nvrtc.rs",
    "crates/cuirass-call/src/table/driver.rs",
    "crates/cuirass-call/src/table/nvrtc.rs",
    "sim-libs/src/exports.rs",
];
/// Where a context may be made current: the one scope, and what a user asks for by name.
const SETS_CONTEXT: [&str; 4] = [
    "crates/cuirass/src/context/scope.rs",
    "crates/cuirass/src/context/mod.rs",
    "crates/cuirass/src/device.rs",
    "crates/cuirass-call/src/context.rs",
];

/// A source file.
struct Source {
    path: String,
    text: String,
}

/// Runs the checks over the files that git knows.
pub fn check(root: &Path) -> Result<()> {
    let safety = std::fs::read_to_string(root.join("SAFETY.md"))?;
    let sources = sources(root)?;
    let wrong = violations(&sources, &safety);
    if wrong.is_empty() {
        println!("tree: {} sources, no violation", sources.len());
        return Ok(());
    }
    bail!("tree:\n  {}", wrong.join("\n  "))
}

fn sources(root: &Path) -> Result<Vec<Source>> {
    let output = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "*.rs", "*.py"])
        .current_dir(root)
        .output()?;
    let mut sources = Vec::new();
    for path in String::from_utf8(output.stdout)?.lines() {
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            sources.push(Source { path: path.to_owned(), text });
        }
    }
    Ok(sources)
}

fn violations(sources: &[Source], safety: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let tags = bracketed(safety);
    let files = unsafe_files(safety);
    for source in sources {
        if GENERATED.contains(&source.path.as_str()) || source.path.starts_with("xtask/") {
            continue;
        }
        check_length(source, &mut wrong);
        if source.path.ends_with(".rs") {
            check_tags(source, &tags, &mut wrong);
            check_unsafe(source, &files, &mut wrong);
            check_context(source, &mut wrong);
            check_seam(source, &mut wrong);
        }
    }
    wrong
}

fn check_length(source: &Source, wrong: &mut Vec<String>) {
    let lines = source.text.lines().count();
    if lines > LONGEST {
        wrong.push(format!("{}: {lines} lines, {LONGEST} is the most", source.path));
    }
}

/// The tags that SAFETY.md explains.
fn bracketed(safety: &str) -> BTreeSet<String> {
    safety.split("**[").skip(1).filter_map(|rest| rest.split_once("]**")).map(|(tag, _)| tag.to_owned()).collect()
}

/// The files that SAFETY.md's last section lists.
fn unsafe_files(safety: &str) -> BTreeSet<String> {
    let list = safety.split("## Files").nth(1).unwrap_or("");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn check_tags(source: &Source, tags: &BTreeSet<String>, wrong: &mut Vec<String>) {
    if is_test(&source.path) {
        return;
    }
    for (number, line) in source.text.lines().enumerate() {
        // An example in the documentation talks to its reader.
        if line.trim_start().starts_with("//!") || line.trim_start().starts_with("///") {
            continue;
        }
        let Some((_, rest)) = line.split_once("// SAFETY:") else { continue };
        let tag = rest.trim().strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(tag, _)| tag);
        match tag {
            None => wrong.push(format!("{}:{}: a SAFETY comment without a [tag]", source.path, number + 1)),
            Some(tag) if tags.contains(tag) => {}
            Some(tag) => wrong.push(format!("{}:{}: SAFETY.md does not explain [{tag}]", source.path, number + 1)),
        }
    }
}

/// Whether a path is a test, an example or a benchmark.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "examples" | "benches" | "fuzz" | "cuirass-testkit"))
}

fn check_unsafe(source: &Source, files: &BTreeSet<String>, wrong: &mut Vec<String>) {
    if is_test(&source.path)
        || files
            .iter()
            .any(|file| source.path == *file || (file.ends_with('/') && source.path.starts_with(file.as_str())))
    {
        return;
    }
    for (number, line) in source.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        // Declaring a function that its callers must be careful with is not doing anything unsafe.
        let declares = code.contains("unsafe fn") || code.contains("unsafe_code");
        if !declares && code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
            wrong.push(format!("{}:{}: unsafe outside the files that SAFETY.md lists", source.path, number + 1));
        }
    }
}

fn check_context(source: &Source, wrong: &mut Vec<String>) {
    if is_test(&source.path)
        || SETS_CONTEXT.contains(&source.path.as_str())
        || source.path.starts_with("crates/cuirass-sim/")
    {
        return;
    }
    for (number, line) in source.text.lines().enumerate() {
        if ["ctx_set_current", "ctx_push_current", "ctx_pop_current"].iter().any(|call| line.contains(call)) {
            wrong.push(format!("{}:{}: a context is switched outside context/scope.rs", source.path, number + 1));
        }
    }
}

/// Foreign functions are named in the seam alone; the two halves meet only at the C interface.
fn check_seam(source: &Source, wrong: &mut Vec<String>) {
    let simulator = ["crates/cuirass-sim/", "crates/cuirass-ptx/", "sim-libs/"]
        .iter()
        .any(|folder| source.path.starts_with(folder));
    for (number, line) in source.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        if simulator && (code.contains("cuirass_call") || code.contains("use cuirass::")) {
            wrong.push(format!("{}:{}: the simulator uses the other half", source.path, number + 1));
        }
        let above_seam = source.path.starts_with("crates/cuirass/") || source.path.starts_with("crates/cuirass-py/");
        if above_seam && !is_test(&source.path) && code.contains("extern \"C\" {") {
            wrong.push(format!("{}:{}: a foreign function outside the seam", source.path, number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, violations};

    const SAFETY: &str = "**[known]** text\n## Files\n`crates/cuirass/src/launch.rs`";

    fn seen(path: &str, text: &str) -> Vec<String> {
        violations(&[Source { path: path.into(), text: text.into() }], SAFETY)
    }

    #[test]
    fn each_rule_bites() {
        assert_eq!(
            seen("crates/cuirass/src/launch.rs", "// SAFETY: [known] yes\nunsafe { x() }"),
            Vec::<String>::new()
        );
        for (path, text, part) in [
            ("crates/cuirass/src/a.rs", "unsafe { x() }", "unsafe outside"),
            ("crates/cuirass/src/launch.rs", "// SAFETY: trust me", "without a [tag]"),
            ("crates/cuirass/src/launch.rs", "// SAFETY: [unknown] x", "does not explain [unknown]"),
            ("crates/cuirass/src/stream.rs", "call::ctx_set_current(x)", "a context is switched"),
            ("crates/cuirass-sim/src/a.rs", "use cuirass_call::x;", "the other half"),
            ("crates/cuirass/src/a.rs", "extern \"C\" { fn cuInit(); }", "outside the seam"),
            ("python/a.py", &"x\n".repeat(801), "801 lines"),
        ] {
            let wrong = seen(path, text);
            assert!(wrong.iter().any(|line| line.contains(part)), "{path}: {wrong:?}");
        }
    }
}
