//! Turns the measured profile of a real device (`facts/device.json`) into Rust tables.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../facts/device.json");
    println!("cargo::rerun-if-changed={}", profile.display());
    let facts: Value = serde_json::from_str(&std::fs::read_to_string(&profile)?)?;
    let mut text = String::new();
    attributes(&facts, &mut text)?;
    limits(&facts, &mut text)?;
    statuses(&facts, &mut text)?;
    let name = facts.get("name").and_then(Value::as_str).ok_or("the profile has no name")?;
    let memory = facts.get("total mem").and_then(Value::as_u64).ok_or("the profile has no memory size")?;
    writeln!(text, "/// The device's name.\npub const NAME: &str = {name:?};")?;
    writeln!(text, "/// The device's memory in bytes.\npub const MEMORY: u64 = {memory};")?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("profile.rs"), text)?;
    Ok(())
}

fn attributes(facts: &Value, text: &mut String) -> Result<(), Failure> {
    let all = facts.get("attributes").and_then(Value::as_object).ok_or("no attributes")?;
    writeln!(
        text,
        "/// Attribute and value; attributes that the device refuses are not listed.\npub const ATTRIBUTES: &[(u32, i32)] = &["
    )?;
    for (name, value) in all {
        if let Some(value) = value.as_i64() {
            writeln!(text, "(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_{name}.0, {value}),")?;
        }
    }
    writeln!(text, "];")?;
    Ok(())
}

fn limits(facts: &Value, text: &mut String) -> Result<(), Failure> {
    let all = facts.as_object().ok_or("the profile is no object")?;
    writeln!(
        text,
        "/// Limit and value, or how asking for it is refused.\npub const LIMITS: &[(u32, Result<u64, Status>)] = &["
    )?;
    for (name, value) in all {
        let Some(limit) = name.strip_prefix("limit ") else { continue };
        match (value.as_u64(), value.as_str()) {
            (Some(value), _) => writeln!(text, "(CUlimit::{limit}.0, Ok({value})),")?,
            (None, Some(status)) => writeln!(text, "(CUlimit::{limit}.0, Err(Status::CUDA_ERROR_{status})),")?,
            (None, None) => return Err(format!("{name} is neither a number nor a status").into()),
        }
    }
    writeln!(text, "];")?;
    Ok(())
}

fn statuses(facts: &Value, text: &mut String) -> Result<(), Failure> {
    let all = facts.get("statuses").and_then(Value::as_object).ok_or("no statuses")?;
    writeln!(
        text,
        "/// Status code, name, description; both end with a zero for C.\npub const STATUSES: &[(u32, &std::ffi::CStr, &std::ffi::CStr)] = &["
    )?;
    let mut rows = Vec::new();
    for (code, words) in all {
        let word = |at: usize| words.get(at).and_then(Value::as_str);
        if let (Some(name), Some(what)) = (word(0), word(1)) {
            rows.push((code.parse::<u32>()?, name, what));
        }
    }
    rows.sort_unstable();
    for (code, name, what) in rows {
        writeln!(text, "({code}, c{name:?}, c{what:?}),")?;
    }
    writeln!(text, "];")?;
    Ok(())
}
