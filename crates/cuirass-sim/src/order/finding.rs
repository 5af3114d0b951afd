//! What the checker says: both places, the memory, and what is missing between them.

use super::Operation;
use super::guard::Note;
use super::pieces::{Access, Piece, Release};
use crate::report;
use cuirass_ptx::Touch;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// Two operations use the same bytes, one of them writes, and none waits for the other.
    Race,
    /// Memory of a pool or a graph is used by work that does not come after its allocation.
    UseBeforeReady,
    /// Memory is used by work that was asked for after its release.
    UseAfterRelease,
    /// Memory is released without waiting for work that uses it.
    ReleaseTooEarly,
    /// The host reads what work may still write.
    HostReadTooEarly,
    /// The host writes what work may still read or write.
    HostWriteTooEarly,
}

impl Rule {
    /// The first words of its reports.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Race => "race",
            Rule::UseBeforeReady => "use before ready",
            Rule::UseAfterRelease => "use after release",
            Rule::ReleaseTooEarly => "release too early",
            Rule::HostReadTooEarly => "host read too early",
            Rule::HostWriteTooEarly => "host write too early",
        }
    }
}

/// Makes the report.
pub fn report(rule: Rule, call: &'static str, text: String) {
    report::make_of(report::Kind::Order, call, format!("{}: {text}", rule.name()));
}

fn memory(piece: &Piece) -> String {
    let on = piece.ready.as_ref().map_or_else(String::new, |(_, on)| format!(" on {on}"));
    format!("the allocation of {} bytes at {:#x} made by {}{on}", piece.len, piece.start, piece.made)
}

fn operation(access: &Access) -> String {
    named(&access.operation, &access.label)
}

fn named(operation: &Operation, label: &str) -> String {
    format!("{label}{} on {}", operation.place, operation.on)
}

fn does(touch: Touch) -> &'static str {
    match touch {
        Touch::Read => "reads",
        Touch::Write => "writes",
        Touch::StrongRead => "reads (as volatile or atomic)",
        Touch::StrongWrite => "writes (as volatile or atomic)",
    }
}

fn bytes(piece: &Piece, (start, end): (u64, u64)) -> String {
    format!("bytes {} to {} of {}", start - piece.start, end - piece.start - 1, memory(piece))
}

/// Two operations meet: each with how it touches the bytes.
pub fn race(piece: &Piece, first: (&Access, Touch), second: (&Access, Touch), range: (u64, u64)) -> String {
    let missing = match first.0.operation.place == second.0.operation.place {
        true if first.0.operation.place.call == "cuGraphLaunch" => "no edge between these nodes of the graph",
        _ => "no event, and no wait of the host between the two calls",
    };
    format!(
        "{} {} and {} {} {}, and nothing orders them: {missing}",
        operation(first.0),
        does(first.1),
        operation(second.0),
        does(second.1),
        bytes(piece, range),
    )
}

/// An operation does not come after the allocation.
pub fn unready(piece: &Piece, access: &Access) -> String {
    format!(
        "{} uses {}, and nothing orders it behind the allocation, which is made in its stream's order",
        operation(access),
        bytes(piece, access.sets.hull()),
    )
}

/// An operation was put into its stream after the release.
pub fn too_late(piece: &Piece, access: &Access) -> String {
    format!(
        "{} uses {}, which had been released by {}",
        operation(access),
        bytes(piece, access.sets.hull()),
        piece.released.as_ref().map_or_else(String::new, release),
    )
}

fn release(release: &Release) -> String {
    match release {
        Release::Stream(free) => format!("{} on {}", free.place, free.on),
        Release::Host { place, .. } => place.to_string(),
    }
}

/// The release does not wait for an operation.
pub fn too_early(piece: &Piece, by: &Release, access: &Access) -> String {
    let verb = if access.sets.writes() { "writes" } else { "reads" };
    let missing = match by {
        Release::Stream(_) => "nothing orders the release behind it",
        Release::Host { .. } => "the host had not waited for it",
    };
    format!(
        "{} releases memory that {} still {verb} ({}): {missing}",
        release(by),
        operation(access),
        bytes(piece, access.sets.hull()),
    )
}

/// The host touches memory that work may still use.
pub fn host(piece: &Piece, note: &Note, by: &Operation, label: &str, by_writes: bool) -> String {
    format!(
        "the host {} byte {} of {} after {}, its last call, while {} may still {} it: the host has not waited for that",
        if note.write { "writes" } else { "reads" },
        note.address - piece.start,
        memory(piece),
        note.place,
        named(by, label),
        if by_writes { "write" } else { "read" },
    )
}
