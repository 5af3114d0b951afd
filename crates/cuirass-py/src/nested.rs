//! Letting go of what may hold others of its kind in turn, as a buffer's owner may be a buffer: the stack does not grow
//! with the length of such a chain.

use std::any::Any;
use std::cell::{Cell, RefCell};

/// How many may be let go of within each other.
const DEEP: u32 = 32;

thread_local! {
    /// How many are being let go of within each other, and whether some were put off: one word, for one look at what is
    /// the thread's own.
    static STATE: Cell<State> = const { Cell::new(State { depth: 0, put_off: false }) };
    /// What the outermost one lets go of when it is done with its own.
    static LATER: RefCell<Vec<Box<dyn Any + Send>>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy)]
struct State {
    depth: u32,
    put_off: bool,
}

/// Drops a value. The thread is attached to the interpreter.
#[inline]
pub fn let_go<T: Send + 'static>(value: T) {
    STATE.with(|state| {
        let before = state.get();
        if before.depth >= DEEP {
            put_off(Box::new(value));
            state.set(State { put_off: true, ..before });
            return;
        }
        state.set(State { depth: before.depth + 1, ..before });
        drop(value);
        let after = State { depth: before.depth, ..state.get() };
        state.set(after);
        if after.put_off && after.depth == 0 {
            finish(state);
        }
    });
}

#[cold]
fn put_off(value: Box<dyn Any + Send>) {
    let mut value = Some(value);
    // While the thread ends, nobody would come back for it: it is dropped here.
    let _put = LATER.try_with(|later| later.borrow_mut().extend(value.take()));
}

#[cold]
fn finish(state: &Cell<State>) {
    let next = || LATER.try_with(|later| later.borrow_mut().pop()).unwrap_or(None);
    state.set(State { depth: 1, put_off: true });
    while let Some(value) = next() {
        drop(value);
    }
    state.set(State { depth: 0, put_off: false });
}
