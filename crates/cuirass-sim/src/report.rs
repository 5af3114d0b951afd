//! Reports: what the simulated driver says beside its status codes.
//!
//! A report is kept in memory, to be read through `cuirass_sim_reports`, and written to stderr as one line unless
//! the configuration says `quiet=1`. Making one never fails and never panics.

use crate::{host, order, thread};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many reports are kept; older ones are counted only.
const KEPT: usize = 10_000;

/// What a report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A bug in the program that hardware may hide or crash on.
    Bug,
    /// Something that this driver does not simulate.
    Unsupported,
    /// A kernel's fault, which hardware would have answered with the same status.
    Fault,
    /// Use of memory that no order between streams makes safe ([`crate::order`]).
    Order,
    /// A defect of the simulator itself.
    Panic,
    /// Something wrong with `CUIRASS_SIM`.
    Config,
}

impl Kind {
    /// As it stands in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bug => "bug",
            Kind::Unsupported => "unsupported",
            Kind::Fault => "fault",
            Kind::Order => "order",
            Kind::Panic => "panic",
            Kind::Config => "config",
        }
    }
}

/// One report.
#[derive(Clone, Debug)]
pub struct Report {
    /// Counted from 0 for the life of the process.
    pub number: u64,
    /// What it is about.
    pub kind: Kind,
    /// The call that it is about: the one that the thread was in, or that asked for the work.
    pub call: &'static str,
    /// One sentence.
    pub text: String,
}

struct Reports {
    kept: VecDeque<Report>,
    next: u64,
}

static REPORTS: Mutex<Reports> = Mutex::new(Reports { kept: VecDeque::new(), next: 0 });
static QUIET: AtomicBool = AtomicBool::new(false);

/// Says whether stderr is left alone.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Makes a report about the call that the thread is in.
pub fn make(kind: Kind, text: String) {
    make_of(kind, thread::place().call, text);
}

/// Makes a report about a call.
pub fn make_of(kind: Kind, call: &'static str, text: String) {
    if host::forked() {
        // Another thread of the parent may have held the locks.
        return;
    }
    if !QUIET.load(Ordering::Relaxed) {
        let line = format!("cuirass-sim: {}: {text}\n", kind.name());
        // Nobody is left to tell if stderr itself is closed; the report is kept in memory all the same.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }
    let mut reports = REPORTS.lock();
    let number = reports.next;
    reports.next += 1;
    if reports.kept.len() == KEPT {
        reports.kept.pop_front();
    }
    reports.kept.push_back(Report { number, kind, call, text });
}

/// A bug in the program.
pub fn bug(text: String) {
    make(Kind::Bug, text);
}

/// Something not simulated.
pub fn unsupported(text: String) {
    make(Kind::Unsupported, text);
}

/// The number that the next report will have.
pub fn mark() -> u64 {
    if order::on() && !host::forked() {
        order::drain();
    }
    if host::forked() { 0 } else { REPORTS.lock().next }
}

/// The kept reports from a mark on.
pub fn since(mark: u64) -> Vec<Report> {
    if host::forked() {
        return Vec::new();
    }
    if order::on() {
        order::drain();
    }
    REPORTS.lock().kept.iter().filter(|report| report.number >= mark).cloned().collect()
}

/// Text as a JSON string.
pub fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reports from a mark on, one JSON object a line.
pub fn json_lines(mark: u64) -> String {
    let mut out = String::new();
    for report in since(mark) {
        out.push_str(&format!(
            "{{\"number\":{},\"kind\":\"{}\",\"call\":{},\"text\":{}}}\n",
            report.number,
            report.kind.name(),
            json_string(report.call),
            json_string(&report.text)
        ));
    }
    out
}
