//! The family lists (`families/*.toml`): reading and checking them.

use crate::header::{self, Headers};
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One family's list.
pub struct Family {
    /// `stream`, `memory/pool`, …
    pub name: String,
    /// `cuda` or `nvrtc`.
    pub library: String,
    /// The calls that have a wrapper in the seam, in the list's order.
    pub calls: Vec<Call>,
    /// Calls that belong to the family and have no wrapper yet, with the version that introduced each.
    pub later: BTreeMap<String, u32>,
}

/// One call of a list.
#[derive(Clone)]
pub struct Call {
    /// The name of this version of the call in the library.
    pub name: String,
    /// The CUDA version that introduced it (12030 is 12.3); 0 for libraries without versions.
    pub since: u32,
    /// The call that older drivers have instead.
    pub fallback: Option<(String, u32)>,
}

/// Reads every list.
pub fn read_all(root: &Path) -> Result<Vec<Family>> {
    let mut families = Vec::new();
    read_folder(&root.join("families"), "", &mut families)?;
    families.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(families)
}

fn read_folder(folder: &Path, prefix: &str, into: &mut Vec<Family>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).context("a file name")?;
        let name = format!("{prefix}{stem}");
        if path.is_dir() {
            read_folder(&path, &format!("{name}/"), into)?;
        } else {
            into.push(read(&path, name.clone()).with_context(|| name)?);
        }
    }
    Ok(())
}

fn read(path: &Path, name: String) -> Result<Family> {
    let table: toml::Table = std::fs::read_to_string(path)?.parse()?;
    let library = table.get("library").and_then(toml::Value::as_str).unwrap_or("cuda").to_owned();
    let later: BTreeMap<String, u32> = match table.get("later") {
        Some(list) => list.clone().try_into()?,
        None => BTreeMap::new(),
    };
    let mut calls = Vec::new();
    if let Some(toml::Value::Table(list)) = table.get("calls") {
        for (call, row) in list {
            let since = row.get("since").and_then(toml::Value::as_integer).unwrap_or(0);
            let fallback = match row.get("fallback").and_then(toml::Value::as_str) {
                Some(old) => {
                    let since = later.get(old).with_context(|| format!("{old}: a fallback stands in [later]"))?;
                    Some((old.to_owned(), *since))
                }
                None => None,
            };
            calls.push(Call { name: call.clone(), since: u32::try_from(since)?, fallback });
        }
    }
    Ok(Family { name, library, calls, later })
}

/// The name that `cuGetProcAddress_v2` wants: without the version of the call.
pub fn base_name(call: &str) -> &str {
    match call.rsplit_once("_v") {
        Some((base, digits)) if digits.chars().all(|c| c.is_ascii_digit()) => base,
        _ => call,
    }
}

/// Holds the lists against the header's own table of versions.
pub fn check_versions(families: &[Family], headers: &Headers) -> Result<()> {
    let known = versions(&headers.read("cudaTypedefs.h")?);
    let mut wrong = Vec::new();
    let mut claimed: BTreeMap<&str, &str> = BTreeMap::new();
    for family in families.iter().filter(|family| family.library == "cuda") {
        let calls = family.calls.iter().map(|call| (call.name.as_str(), call.since));
        for (call, since) in calls.chain(family.later.iter().map(|(call, since)| (call.as_str(), *since))) {
            if let Some(other) = claimed.insert(call, &family.name) {
                wrong.push(format!("{call} is in two lists: {other}, {}", family.name));
            }
            match known.get(call) {
                Some(version) if *version == since => {}
                Some(version) => wrong.push(format!("{call}: the list says {since}, the header {version}")),
                None => wrong.push(format!("{call} ({}) is not in the header", family.name)),
            }
        }
    }
    wrong.extend(
        known
            .keys()
            .filter(|call| !claimed.contains_key(call.as_str()))
            .map(|call| format!("{call} is in no family's list")),
    );
    if wrong.is_empty() { Ok(()) } else { bail!("families:\n  {}", wrong.join("\n  ")) }
}

/// From `PFN_cuStreamDestroy_v4000` and its kind: the n-th version of a name has the suffix `_vn`.
fn versions(typedefs: &str) -> BTreeMap<String, u32> {
    let mut by_base: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for piece in typedefs.split("(CUDAAPI *PFN_").skip(1) {
        let Some((name, _)) = piece.split_once(')') else { continue };
        let Some((base, version)) = name.rsplit_once("_v") else { continue };
        if let Ok(version) = version.parse() {
            by_base.entry(base).or_default().insert(version);
        }
    }
    let mut named = BTreeMap::new();
    for (base, versions) in by_base {
        for (index, version) in versions.into_iter().enumerate() {
            let suffix = if index == 0 { String::new() } else { format!("_v{}", index + 1) };
            named.insert(format!("{base}{suffix}"), version);
        }
    }
    named
}

/// `cargo xtask families --check`: every call claimed once, every listed call wrapped once, in its family's file.
pub fn check(root: &Path) -> Result<()> {
    let families = read_all(root)?;
    check_versions(&families, &header::fetch(root)?)?;
    let mut wrong = Vec::new();
    let mut wrappers = 0;
    for family in &families {
        let sources = family_sources(&root.join("crates/cuirass-call/src"), &family.name);
        for call in &family.calls {
            let uses =
                sources.iter().map(|text| text.matches(&format!("entry!({})", call.name)).count()).sum::<usize>();
            if uses == 1 {
                wrappers += 1;
            } else {
                wrong.push(format!(
                    "{}: {} wrappers in crates/cuirass-call/src/{}.rs, one is wanted",
                    call.name, uses, family.name
                ));
            }
        }
    }
    if wrong.is_empty() {
        println!("families: {} families, {wrappers} calls, each with one wrapper", families.len());
        return Ok(());
    }
    bail!("families:\n  {}", wrong.join("\n  "))
}

/// The texts of a family's file, or of its folder once it has one.
pub fn family_sources(source: &Path, family: &str) -> Vec<String> {
    let mut texts = Vec::new();
    texts.extend(std::fs::read_to_string(source.join(format!("{family}.rs"))));
    if let Ok(folder) = std::fs::read_dir(source.join(family)) {
        for entry in folder.flatten() {
            texts.extend(std::fs::read_to_string(entry.path()));
        }
    }
    texts
}
