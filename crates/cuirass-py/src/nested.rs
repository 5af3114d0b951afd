//! Letting go of what may hold others of its kind in turn, as a buffer's owner may be a buffer: the stack does not grow
//! with the length of such a chain.

use std::any::Any;
use std::cell::{Cell, RefCell};

/// How many may be let go of within each other.
const DEEP: usize = 32;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What the outermost one lets go of when it is done with its own.
    static LATER: RefCell<Vec<Box<dyn Any + Send>>> = const { RefCell::new(Vec::new()) };
}

/// Drops a value. The thread is attached to the interpreter.
#[inline]
pub fn let_go<T: Send + 'static>(value: T) {
    let depth = DEPTH.get();
    if depth >= DEEP {
        put_off(Box::new(value));
        return;
    }
    DEPTH.set(depth + 1);
    drop(value);
    DEPTH.set(depth);
    if depth == 0 {
        finish();
    }
}

#[cold]
fn put_off(value: Box<dyn Any + Send>) {
    let mut value = Some(value);
    // While the thread ends, nobody would come back for it: it is dropped here.
    let _put = LATER.try_with(|later| later.borrow_mut().extend(value.take()));
}

#[inline]
fn finish() {
    let next = || LATER.try_with(|later| later.borrow_mut().pop()).unwrap_or(None);
    while let Some(value) = next() {
        DEPTH.set(1);
        drop(value);
        DEPTH.set(0);
    }
}
