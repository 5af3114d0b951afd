//! Handles as the calls show them: which are alive, which are spent, and whether a spent one is used.
//!
//! It sees every call at the seam, so that it serves on both drivers. What starts and ends a handle is in the family
//! lists; a call that starts one writes it through its first argument, a call that ends one has it as its first. A capture
//! is known by its stream; its end starts a graph, which it writes through its second argument.
//!
//! A real driver's handles are addresses, which come round again, for handles of other kinds and for the program's own
//! memory: an argument is a handle only where its parameter's type says so, and a handle that starts ends the memory of
//! every spent one of the same value.

use crate::calls::{CallFacts, facts};
use cuirass_call::sys::cuda::{CUlaunchConfig, CUstreamCaptureMode};
use cuirass_call::table::CallInfo;
use cuirass_fault::Library;
use std::collections::{BTreeMap, BTreeSet};

/// A handle: its kind, and its value (for a primary context, which is counted, its device's number).
pub type Handle = (&'static str, u64);

/// Where a handle is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The driver has it, and so has the program.
    Alive,
    /// Its start was made, and answered with an error: the program cannot know it.
    Orphan,
    /// Its end was asked for and refused: the driver still has it, and the program must not touch it again.
    Refused,
    /// It was left in a context that has ended, and went with it.
    Gone,
    /// Its end was made.
    Ended,
}

/// One handle's story.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it is in its life.
    pub life: Life,
    /// How often it was started and not yet ended: more than once for a primary context only.
    pub count: u32,
    /// How many of these the program does not know of, or has given up: a retain that was answered with an error, a
    /// release that was refused. Of a primary context only.
    pub strays: u32,
    /// The context that was current when it was made.
    pub context: u64,
    /// The handles that it was made of: a pool, a stream.
    pub parents: Vec<Handle>,
    /// Its size, where it takes that to give it back: of an address range or a mapping.
    pub bytes: u64,
}

/// The handles of the calls so far, and what is current on the thread that makes them.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Handle, Entry>,
    /// Graphs that belong to a conditional node: ending their capture gives nobody anything.
    bodies: BTreeSet<u64>,
    /// Streams whose last capture was begun in relaxed mode.
    relaxed: BTreeSet<u64>,
    /// What `cuKernelGetFunction` gave.
    functions: BTreeSet<u64>,
    stack: Vec<u64>,
}

/// A call before it is made: what it would end.
pub struct Ending(Option<Handle>);

impl Ledger {
    /// What is current on the thread, as the calls that were made say.
    pub fn current(&self) -> u64 {
        self.stack.last().copied().unwrap_or(0)
    }

    /// Says what is current, as the driver was asked.
    pub fn set_current(&mut self, context: u64) {
        self.stack = if context == 0 { Vec::new() } else { vec![context] };
    }

    /// Whether a handle's end was made.
    pub fn is_ended(&self, handle: Handle) -> bool {
        self.entries.get(&handle).is_some_and(|entry| entry.life == Life::Ended)
    }

    /// Forgets the handles that are spent: the driver may give their values again.
    pub fn forget_spent(&mut self) {
        self.entries.retain(|_, entry| matches!(entry.life, Life::Alive | Life::Orphan));
    }

    /// A handle that the sweep has put away is ended; of a primary context, one of its retains.
    pub fn put_away(&mut self, handle: Handle) {
        match self.entries.get_mut(&handle) {
            Some(entry) if entry.count > 1 => {
                entry.count -= 1;
                entry.strays = entry.strays.saturating_sub(1);
            }
            _ => self.ended(handle, true),
        }
    }

    /// Everything that the driver still has.
    pub fn alive(&self) -> BTreeMap<Handle, Entry> {
        let there = self.entries.iter().filter(|(_, entry)| entry.life != Life::Ended);
        there.map(|(handle, entry)| (*handle, entry.clone())).collect()
    }

    /// Before a call: what is wrong with its arguments, and what it would end.
    pub fn before(&self, call: &CallInfo, arguments: &[u64]) -> (Ending, Vec<String>) {
        let facts = facts(call.name);
        let mut wrong = Vec::new();
        let ending = ended_by(facts, call, arguments);
        if let Some(handle) = ending.filter(|handle| self.entries.get(handle).is_some_and(Entry::is_spent)) {
            wrong.push(format!("{} releases {} a second time", call.name, shown(handle)));
        }
        // A stream that orders a release is used by it; what a call starts is not there yet.
        let first = usize::from(ending.is_some() || facts.starts.is_some());
        wrong.extend(self.uses(call, arguments, first));
        (Ending(ending), wrong)
    }

    fn uses(&self, call: &CallInfo, arguments: &[u64], first: usize) -> Vec<String> {
        let spent = |handle: &Handle| self.entries.get(handle).is_some_and(Entry::is_spent);
        let used = handles_in(call, arguments, first).into_iter().filter(spent);
        used.map(|handle| format!("{} uses {} after its end", call.name, shown(handle))).collect()
    }

    /// After a call: `made` says whether the library was really called, `real` what it answered, `answered` what the
    /// program was told.
    pub fn after(&mut self, call: &CallInfo, arguments: &[u64], ending: &Ending, made: bool, real: u32, answered: u32) {
        if let Some(handle) = ending.0 {
            // A capture is over whatever the answer to its end. What the driver itself refuses is as it was.
            let done = real == 0 || handle.0 == "capture";
            if !made || done {
                self.ended(handle, made);
            }
        }
        if !made || real != 0 {
            return;
        }
        if call.name == "cuStreamBeginCaptureToGraph" {
            self.bodies.extend(arguments.get(1));
        }
        if call.name.starts_with("cuStreamBeginCapture")
            && let Some(stream) = arguments.first()
        {
            self.started(("capture", *stream), answered == 0, Vec::new());
        }
        self.note_what_returns_at_once(call, arguments);
        let started = started_by(facts(call.name), call, arguments);
        if let Some(handle) = started.filter(|(kind, value)| *kind != "graph" || !self.bodies.contains(value)) {
            let parents = handles_in(call, arguments, 1);
            self.started(handle, answered == 0, parents);
            if let Some(entry) = self.entries.get_mut(&handle) {
                entry.bytes = arguments.get(1).copied().unwrap_or(0);
            }
        }
        if call.name == "cuCtxSetCurrent" {
            self.stack.pop();
            self.stack.extend(arguments.first().filter(|context| **context != 0));
        }
    }

    fn note_what_returns_at_once(&mut self, call: &CallInfo, arguments: &[u64]) {
        let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 as u64;
        match (call.name, arguments) {
            ("cuStreamBeginCapture_v2", [stream, mode]) | ("cuStreamBeginCaptureToGraph", [stream, .., mode]) => {
                if *mode & 0xffff_ffff == relaxed {
                    self.relaxed.insert(*stream);
                } else {
                    self.relaxed.remove(stream);
                }
            }
            ("cuKernelGetFunction", [function, ..]) => {
                self.functions.insert(read(*function));
            }
            _ => {}
        }
    }

    /// Whether a call returns at once because of what it is given: the launch of a function into a relaxed capture, which
    /// puts nothing on a queue, was measured not to wait for whatever waits.
    pub fn returns_at_once(&self, call: &CallInfo, arguments: &[u64]) -> bool {
        let [config, function, ..] = arguments else { return false };
        if call.name != "cuLaunchKernelEx" || !self.functions.contains(function) {
            return false;
        }
        let stream = launched_on(*config);
        let capture = self.entries.get(&("capture", stream));
        capture.is_some_and(|capture| capture.life == Life::Alive) && self.relaxed.contains(&stream)
    }

    fn started(&mut self, handle: Handle, known: bool, parents: Vec<Handle>) {
        // What is made on a stream is made in its context.
        let stream = parents.iter().find(|(kind, _)| *kind == "stream").and_then(|stream| self.entries.get(stream));
        let context = stream.map_or_else(|| self.current(), |stream| stream.context);
        if self.imported_again(handle, known) {
            return;
        }
        if !matches!(handle.0, "primary_context" | "capture") {
            let again = |(kind, value): &Handle| *value == handle.1 && *kind != "primary_context";
            self.entries.retain(|other, entry| !(again(other) && entry.is_spent()));
        }
        let fresh = Entry { life: Life::Alive, count: 0, strays: 0, context, parents, bytes: 0 };
        let entry = self.entries.entry(handle).or_insert_with(|| fresh.clone());
        if handle.0 == "primary_context" {
            entry.life = Life::Alive;
            entry.count += 1;
            entry.strays += u32::from(!known);
            return;
        }
        *entry = Entry { life: if known { Life::Alive } else { Life::Orphan }, count: 1, ..fresh };
        if handle.0 == "context" {
            self.stack.push(handle.1);
        }
    }

    /// Memory and a pool that start while the driver has them are another process's, which is imported again: memory ends
    /// once for all, a pool when it was ended as often.
    fn imported_again(&mut self, handle: Handle, known: bool) -> bool {
        let there = |entry: &&mut Entry| matches!(entry.life, Life::Alive | Life::Orphan | Life::Refused);
        let Some(entry) = self.entries.get_mut(&handle).filter(there) else { return false };
        if !matches!(handle.0, "memory" | "pool") {
            return false;
        }
        if known {
            entry.life = Life::Alive;
        }
        if handle.0 == "pool" {
            entry.count += 1;
            entry.strays += u32::from(!known);
        }
        true
    }

    fn ended(&mut self, handle: Handle, done: bool) {
        let context = self.current();
        let fresh = Entry { life: Life::Alive, count: 1, strays: 0, context, parents: Vec::new(), bytes: 0 };
        let entry = self.entries.entry(handle).or_insert(fresh);
        if handle.0 == "pool" && entry.count > 1 {
            entry.count -= u32::from(done);
            entry.strays += u32::from(!done);
            return;
        }
        if handle.0 == "primary_context" {
            entry.count -= u32::from(done && entry.count > 0);
            entry.strays += u32::from(!done);
            entry.life = if entry.count == 0 { Life::Ended } else { Life::Alive };
            return;
        }
        entry.life = match (done, handle.0) {
            (true, _) => Life::Ended,
            // A capture goes on, and its end is asked for once more.
            (false, "capture") => Life::Alive,
            (false, _) => Life::Refused,
        };
        if done && handle.0 == "context" {
            self.stack.retain(|context| *context != handle.1);
            for ((kind, _), entry) in &mut self.entries {
                if matches!(*kind, "stream" | "event") && entry.context == handle.1 && entry.life != Life::Ended {
                    entry.life = Life::Gone;
                }
            }
        }
    }
}

impl Entry {
    /// Whether the program has given it back, and must not touch it again.
    fn is_spent(&self) -> bool {
        matches!(self.life, Life::Ended | Life::Refused | Life::Gone)
            || (self.life == Life::Alive && self.count == self.strays)
    }
}

/// What of one list is not in an earlier one; of a primary context, how many retains more.
pub fn new_in(now: &BTreeMap<Handle, Entry>, before: &BTreeMap<Handle, Entry>) -> BTreeMap<Handle, Entry> {
    let mut new = BTreeMap::new();
    for (handle, entry) in now {
        let known = before.get(handle).map_or(0, |entry| entry.count);
        if entry.count > known {
            new.insert(*handle, Entry { count: entry.count - known, ..entry.clone() });
        }
    }
    new
}

/// A handle as messages have it: `stream 0x7f00`, `primary context of device 0`.
pub fn shown(handle: Handle) -> String {
    match handle {
        ("primary_context", device) => format!("the primary context of device {device}"),
        (kind, value) => format!("{} {value:#x}", kind.replace('_', " ")),
    }
}

/// How a message names a handle.
pub fn name_in_messages(handle: Handle) -> String {
    match handle {
        ("primary_context", device) => format!("device {device}"),
        (_, value) => format!("{value:#x}"),
    }
}

/// Memory is one kind, whichever call made it: each of the two frees can release both.
fn kind_of(kind: &str) -> &'static str {
    const KINDS: [&str; 13] = [
        "stream",
        "event",
        "context",
        "primary_context",
        "pool",
        "pinned_memory",
        "address_range",
        "physical_memory",
        "mapping",
        "library",
        "program",
        "graph",
        "graph_exec",
    ];
    match kind {
        "memory" | "pooled_memory" | "imported_memory" => "memory",
        other => KINDS.into_iter().find(|kind| *kind == other).unwrap_or("other"),
    }
}

/// The handles among the arguments, from one on, by the types of their parameters.
fn handles_in(call: &CallInfo, arguments: &[u64], first: usize) -> Vec<Handle> {
    let typed = call.parameters.iter().zip(arguments).skip(first);
    let handle = |(kind, value): (&&str, &u64)| match *kind {
        "*const CUlaunchConfig" => Some(("stream", launched_on(*value))),
        kind => handle_type(kind).map(|kind| (kind, *value)),
    };
    typed.filter_map(handle).filter(|(_, value)| *value != 0).collect()
}

/// The kind that a parameter's type is of. Graphs are not watched: the driver gives out some of its own. Host addresses
/// come round again at once, and have no type; the simulated driver watches those of page-locked memory itself.
fn handle_type(parameter: &str) -> Option<&'static str> {
    Some(match parameter {
        "CUstream" => "stream",
        "CUevent" => "event",
        "CUcontext" => "context",
        "CUmemoryPool" => "pool",
        "CUdeviceptr" => "memory",
        "CUlibrary" => "library",
        "CUgraphExec" => "graph_exec",
        _ => return None,
    })
}

/// The stream of a launch.
fn launched_on(config: u64) -> u64 {
    let config: *const CUlaunchConfig = std::ptr::with_exposed_provenance(usize::try_from(config).unwrap_or(0));
    // SAFETY: [entry-signature] the parameter of this type points to one, or is null.
    unsafe { config.as_ref() }.map_or(0, |config| config.hStream.addr() as u64)
}

fn ended_by(facts: &CallFacts, call: &CallInfo, arguments: &[u64]) -> Option<Handle> {
    if call.name == "cuStreamEndCapture" {
        return Some(("capture", *arguments.first()?));
    }
    let kind = kind_of(facts.ends.as_deref()?);
    let first = *arguments.first()?;
    let value = if call.library == Library::Nvrtc { read(first) } else { first };
    (kind == "primary_context" || value != 0).then_some((kind, value))
}

fn started_by(facts: &CallFacts, call: &CallInfo, arguments: &[u64]) -> Option<Handle> {
    if call.name == "cuStreamEndCapture" {
        return Some(("graph", read(*arguments.get(1)?))).filter(|(_, graph)| *graph != 0);
    }
    let kind = kind_of(facts.starts.as_deref()?);
    let value = match call.name {
        "cuDevicePrimaryCtxRetain" => *arguments.get(1)?,
        // What it starts is at the address that it is given.
        "cuMemMap" => *arguments.first()?,
        _ => read(*arguments.first()?),
    };
    (kind == "primary_context" || value != 0).then_some((kind, value))
}

/// The handle behind a pointer that a call was given for one.
fn read(pointer: u64) -> u64 {
    let pointer: *const u64 = std::ptr::with_exposed_provenance(usize::try_from(pointer).unwrap_or(0));
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: [entry-signature] the first argument of a call that gives a handle, or of the compiler's that ends one,
    // points to it.
    unsafe { pointer.read() }
}
