//! Seeing every call of the sweep's thread, and making chosen ones fail.

use crate::calls::may_wait;
use crate::ledger::Ledger;
use cuirass_call::table::{self, CallInfo, Interceptor, Word};
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Whether the failing call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It is not made.
    Refused,
    /// It is made, and returns an error all the same.
    Done,
}

/// A call that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which call of the operation, counted from 0.
    pub at: usize,
    /// What it is to return.
    pub status: u32,
    /// Whether it is made.
    pub manner: Manner,
    /// Whether every later call of the same entry point fails too.
    pub for_ever: bool,
}

/// A call that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which.
    pub call: &'static CallInfo,
    /// Its arguments' bits.
    pub arguments: Vec<u64>,
    /// What the program was told.
    pub status: u32,
    /// How it was made to fail, if it was.
    pub failed: Option<Manner>,
    /// What was current on the thread before it.
    pub current: u64,
    /// What it ended, if anything.
    pub ends: bool,
}

#[derive(Default)]
struct State {
    open: bool,
    plan: Vec<Planned>,
    seen: Vec<Seen>,
    wrong: Vec<String>,
    held: Vec<&'static str>,
    ledger: Ledger,
}

/// Sees the calls of the thread that made it.
pub struct Instrument {
    state: Mutex<State>,
    thread: ThreadId,
    /// Whether the thread holds the lock of a language's interpreter.
    is_held: Box<dyn Fn() -> bool + Send + Sync>,
}

thread_local! {
    static UNSEEN: Cell<bool> = const { Cell::new(false) };
}

/// Makes calls of the sweep's own, which are neither seen nor made to fail.
pub fn unseen<T>(calls: impl FnOnce() -> T) -> T {
    let before = UNSEEN.replace(true);
    let result = calls();
    UNSEEN.set(before);
    result
}

impl Instrument {
    /// Starts to see the calls of this thread, until the process ends.
    pub fn start() -> Arc<Instrument> {
        Instrument::start_in(Box::new(|| false))
    }

    /// The same in a language whose interpreter has a lock: `is_held` says whether this thread holds it.
    pub fn start_in(is_held: Box<dyn Fn() -> bool + Send + Sync>) -> Arc<Instrument> {
        let (state, thread) = (Mutex::new(State::default()), thread::current().id());
        let instrument = Arc::new(Instrument { state, thread, is_held });
        table::add_interceptor(Arc::clone(&instrument) as Arc<dyn Interceptor>);
        instrument
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger of the calls so far.
    pub fn ledger<T>(&self, with: impl FnOnce(&mut Ledger) -> T) -> T {
        with(&mut self.state().ledger)
    }

    /// From now on calls are numbered, and fail as planned.
    pub fn open(&self, plan: &[Planned]) {
        let mut state = self.state();
        state.open = true;
        plan.clone_into(&mut state.plan);
        state.seen.clear();
    }

    /// Ends it, and returns the calls.
    pub fn close(&self) -> Vec<Seen> {
        let mut state = self.state();
        state.open = false;
        std::mem::take(&mut state.seen)
    }

    /// What was wrong with the handles that calls were given.
    pub fn take_wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.state().wrong)
    }

    /// The calls that may wait and were made with the interpreter's lock held.
    pub fn take_held(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().held)
    }
}

impl State {
    fn planned(&self, call: &CallInfo) -> Option<Planned> {
        let at = self.seen.len();
        let again = |planned: &&Planned| {
            planned.for_ever && self.seen.get(planned.at).is_some_and(|first| first.call.name == call.name)
        };
        self.plan.iter().find(|planned| planned.at == at).or_else(|| self.plan.iter().find(again)).copied()
    }
}

impl Interceptor for Instrument {
    fn call(&self, call: &'static CallInfo, arguments: &[Word], real: &mut dyn FnMut() -> u32) -> u32 {
        if UNSEEN.get() || thread::current().id() != self.thread {
            return real();
        }
        let is_held = may_wait(call) && (self.is_held)();
        let arguments: Vec<u64> = arguments.iter().map(|word| word.0).collect();
        let (planned, ending, ends, current) = {
            let mut state = self.state();
            let (ending, wrong) = state.ledger.before(call, &arguments);
            state.wrong.extend(wrong);
            let is_held = is_held && !state.ledger.returns_at_once(call, &arguments);
            state.held.extend(is_held.then_some(call.name));
            let planned = if state.open { state.planned(call) } else { None };
            (planned, ending, crate::calls::facts(call.name).ends.is_some(), state.ledger.current())
        };
        let made = planned.is_none_or(|planned| planned.manner == Manner::Done);
        // The library is called with no lock held.
        let answer = if made { real() } else { 0 };
        let status = match planned {
            // An error of its own is the older one, and stands.
            Some(planned) if answer == 0 => planned.status,
            _ => answer,
        };
        let mut state = self.state();
        state.ledger.after(call, &arguments, &ending, made, answer, status);
        if state.open {
            let failed = planned.map(|planned| planned.manner);
            state.seen.push(Seen { call, arguments, status, failed, current, ends });
        }
        status
    }
}
