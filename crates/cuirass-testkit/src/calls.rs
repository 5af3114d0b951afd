//! What the family lists (`families/*.toml`) say of a call: what it starts, what it ends, which statuses are answers.

use cuirass_call::table::{CallInfo, driver, nvrtc};
use cuirass_fault::Library;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One call of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFacts {
    /// The kind of object that it makes.
    pub starts: Option<String>,
    /// The kind of object that it gives back.
    pub ends: Option<String>,
    /// The statuses that are answers and build no failure, without their prefix: `NOT_READY`.
    pub answers: Vec<String>,
}

/// What the lists say of a call; nothing for one that they do not have.
pub fn facts(call: &str) -> &'static CallFacts {
    static LISTS: OnceLock<HashMap<String, CallFacts>> = OnceLock::new();
    static NOTHING: CallFacts = CallFacts { starts: None, ends: None, answers: Vec::new() };
    LISTS.get_or_init(read_lists).get(call).unwrap_or(&NOTHING)
}

/// Every call of the lists that has answers, with them.
pub fn with_answers() -> Vec<(String, Vec<String>)> {
    let mut found: Vec<_> = read_lists()
        .into_iter()
        .filter(|(_, facts)| !facts.answers.is_empty())
        .map(|(name, facts)| (name, facts.answers))
        .collect();
    found.sort();
    found
}

/// Whether a status is an answer of a call: part of its result, and no failure.
pub fn is_answer(library: Library, call: &str, status: u32) -> bool {
    let name = status_name(library, status);
    let short = name.strip_prefix("CUDA_ERROR_").or_else(|| name.strip_prefix("NVRTC_ERROR_")).unwrap_or(&name);
    facts(call).answers.iter().any(|answer| answer == short)
}

/// The calls that return at once, whatever other threads do: measured on an H200 while another thread's launch waited on
/// a full queue (`facts/README.md`).
const RETURN_AT_ONCE: [&str; 24] = [
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetStreamPriorityRange",
    "cuCtxSetCurrent",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetAttribute",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxGetState",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuFuncGetAttribute",
    "cuKernelGetAttribute",
    "cuMemGetInfo_v2",
    "cuMemPoolGetAttribute",
    "cuPointerGetAttribute",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamGetCtx",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamGetPriority",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
];

/// Whether a call may wait for another thread's that waits, and so must not be made with a lock held that such a thread
/// may need: every call that was not seen to return at once.
pub fn may_wait(call: &CallInfo) -> bool {
    call.library != Library::Driver || !RETURN_AT_ONCE.contains(&call.name)
}

/// A status's name, as messages have it.
pub fn status_name(library: Library, status: u32) -> String {
    match library {
        Library::Driver => {
            driver::status_name(status).map_or_else(|| format!("CUDA_ERROR_{status}"), ToOwned::to_owned)
        }
        _ => nvrtc::status_name(status).map_or_else(|| format!("NVRTC_ERROR_{status}"), ToOwned::to_owned),
    }
}

/// The root of the repository, where the lists are.
pub fn repository() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_owned);
    // Carried to another machine, a test is run from the root of a copy.
    if built.join("families").exists() { built } else { PathBuf::from(".") }
}

fn read_lists() -> HashMap<String, CallFacts> {
    let mut lists = HashMap::new();
    read_folder(&repository().join("families"), &mut lists);
    lists
}

fn read_folder(folder: &Path, into: &mut HashMap<String, CallFacts>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read_folder(&path, into);
        } else if let Some(list) = std::fs::read_to_string(&path).ok().and_then(|text| text.parse::<toml::Table>().ok())
        {
            read_list(&list, into);
        }
    }
}

fn read_list(list: &toml::Table, into: &mut HashMap<String, CallFacts>) {
    let Some(calls) = list.get("calls").and_then(toml::Value::as_table) else { return };
    for (name, call) in calls {
        let text = |key: &str| call.get(key).and_then(toml::Value::as_str).map(ToOwned::to_owned);
        let answers = call.get("answers").and_then(toml::Value::as_array).into_iter().flatten();
        let facts = CallFacts {
            starts: text("starts"),
            ends: text("ends"),
            answers: answers.filter_map(toml::Value::as_str).map(ToOwned::to_owned).collect(),
        };
        if let Some(fallback) = text("fallback") {
            into.insert(fallback, facts.clone());
        }
        into.insert(name.clone(), facts);
    }
}
