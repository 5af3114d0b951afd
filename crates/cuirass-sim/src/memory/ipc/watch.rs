//! The thread that waits for what other processes do.

use super::event::{Cell, Recording};
use crate::engine::QueueKey;
use crate::state::{self, State};
use crate::{host, report, thread};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A recording of another process, and the place in this one that it makes reached.
struct Watched {
    cell: Arc<Cell>,
    recording: Recording,
    gate: QueueKey,
}

struct Watch {
    all: Vec<Watched>,
    runs: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { all: Vec::new(), runs: false });

/// How long it sleeps between two looks, at first and at most.
const REST: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];
/// How often it looks whether the processes are alive.
const ALIVE: Duration = Duration::from_millis(20);

/// Has a place reached once a recording has happened, or its process has ended.
pub fn watch(state: &mut State, cell: Arc<Cell>, recording: Recording, gate: QueueKey) {
    let mut watch = WATCH.lock();
    if !watch.runs {
        match std::thread::Builder::new().name("cuirass-sim-ipc".into()).spawn(run) {
            Ok(_detached) => watch.runs = true,
            Err(error) => {
                report::make(report::Kind::Panic, format!("no thread can be started to wait for an event: {error}"));
                return state.pass(gate);
            }
        }
    }
    watch.all.push(Watched { cell, recording, gate });
}

fn run() {
    host::block_signals();
    thread::enter("the wait for another process");
    let (mut rest, mut alive) = (REST[0], Instant::now());
    loop {
        let look = alive.elapsed() >= ALIVE;
        if look {
            alive = Instant::now();
        }
        let mut reached = Vec::new();
        {
            let mut watch = WATCH.lock();
            if watch.all.is_empty() {
                watch.runs = false;
                return;
            }
            let mut at = 0;
            while let Some(Watched { cell, recording, .. }) = watch.all.get(at) {
                if cell.has_happened(recording.number) || look && is_orphan(cell, *recording) {
                    reached.push(watch.all.swap_remove(at));
                } else {
                    at += 1;
                }
            }
        }
        if reached.is_empty() {
            std::thread::sleep(rest);
            rest = (rest * 2).min(REST[1]);
            continue;
        }
        rest = REST[0];
        let Ok(mut state) = state::lock() else { return };
        for Watched { gate, .. } in reached {
            state.pass(gate);
        }
    }
}

/// Whether a recording will never happen; from now on it has.
fn is_orphan(cell: &Cell, recording: Recording) -> bool {
    // It may have happened before its process ended.
    if !cell.is_orphan(recording) || cell.has_happened(recording.number) {
        return false;
    }
    report::bug(format!(
        "process {} ended before an event that it had recorded happened; the event counts as having happened",
        recording.process
    ));
    cell.happened(recording.number);
    true
}
