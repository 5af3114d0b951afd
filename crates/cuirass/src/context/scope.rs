//! Running in a context that is not the caller's: the one place that switches, and switches back.

use crate::Outcome;
use cuirass_call::context as call;
use cuirass_call::sys::cuda::CUcontext;
use cuirass_fault::Failure;
use std::fmt;
use std::mem::ManuallyDrop;

/// What the caller had current, where it was another context.
struct Entered {
    previous: CUcontext,
    target: CUcontext,
}

const ASKING_FAILED: &str = "which context is current could not be asked after this failure";

fn enter(target: CUcontext) -> Outcome<Option<Entered>> {
    let previous = call::ctx_get_current()?;
    if previous == target {
        return Ok(None);
    }
    match call::ctx_set_current(target) {
        Ok(()) => Ok(Some(Entered { previous, target })),
        Err(failure) => Err(left_as_it_was(previous, target, failure)),
    }
}

/// After a call that makes a context current has failed: it may have done so all the same, and returned an older
/// error. The caller's context is put back where it is not current any more.
#[cold]
fn left_as_it_was(previous: CUcontext, target: CUcontext, failure: Failure) -> Failure {
    let (failure, now) = match call::ctx_get_current() {
        Ok(now) if now == previous => return failure,
        Ok(now) => (failure, now),
        Err(asking) => (asking.attach_to(failure, ASKING_FAILED), target),
    };
    match call::ctx_set_current(previous) {
        Ok(()) => failure,
        Err(restoring) => Entered { previous, target: now }.after_failure(failure, restoring),
    }
}

impl Entered {
    fn restore(&self) -> Outcome<()> {
        call::ctx_set_current(self.previous)
    }

    /// What the user must know once the restoration has failed.
    fn not_restored(&self, failure: Failure) -> Failure {
        failure.note(format!(
            "the caller's context ({:p}) could not be restored, context ({:p}) is now current, call \
             `Device.set_current()` before more CUDA work on this thread",
            self.previous, self.target
        ))
    }

    fn after_failure(&self, failure: Failure, restoring: Failure) -> Failure {
        restoring.attach_to(
            failure,
            &format!(
                "the caller's context ({:p}) could not be restored after this failure, context ({:p}) is now current, \
                 call `Device.set_current()` before more CUDA work on this thread",
                self.previous, self.target
            ),
        )
    }
}

/// Runs `operation`, which creates something, with `target` current. If the caller's context cannot be restored,
/// what was created is undone.
#[inline]
pub(crate) fn create<T>(
    target: CUcontext,
    operation: impl FnOnce() -> Outcome<T>,
    undo: impl FnOnce(T) -> Outcome<()>,
) -> Outcome<T> {
    let Some(entered) = enter(target)? else { return operation() };
    let result = operation();
    match entered.restore() {
        Ok(()) => result,
        Err(restoring) => not_kept(target, &entered, result, restoring, undo),
    }
}

#[cold]
fn not_kept<T>(
    target: CUcontext,
    entered: &Entered,
    result: Outcome<T>,
    restoring: Failure,
    undo: impl FnOnce(T) -> Outcome<()>,
) -> Outcome<T> {
    match result {
        Ok(made) => {
            let failure = entered.not_restored(restoring);
            Err(undone(target, failure, || undo(made)))
        }
        Err(failure) => Err(entered.after_failure(failure, restoring)),
    }
}

/// Runs `operation`, which makes a context and pushes it on the thread's stack, and takes it off again: setting none
/// current does that, and the caller's context is current as it was, and as deep. If that fails the new one is undone,
/// which takes it off too.
pub(crate) fn create_current(
    previous: CUcontext,
    operation: impl FnOnce() -> Outcome<CUcontext>,
    undo: impl FnOnce(CUcontext) -> Outcome<()>,
) -> Outcome<CUcontext> {
    let none = std::ptr::null_mut();
    let made = match operation() {
        Ok(made) => made,
        Err(failure) => {
            // It may have been made all the same, and be current.
            let (failure, now, back) = match call::ctx_get_current() {
                Ok(now) if now == previous => return Err(failure),
                Ok(now) => (failure, now, none),
                // The caller's context is set, not uncovered: that does no harm where nothing was made.
                Err(asking) => (asking.attach_to(failure, ASKING_FAILED), none, previous),
            };
            return Err(match call::ctx_set_current(back) {
                Ok(()) => failure,
                Err(restoring) => Entered { previous, target: now }.after_failure(failure, restoring),
            });
        }
    };
    let Err(restoring) = call::ctx_set_current(none) else { return Ok(made) };
    let entered = Entered { previous, target: made };
    let failure = entered.not_restored(restoring);
    match undo(made) {
        Ok(()) => Err(failure),
        Err(undoing) => Err(undoing.attach_to(failure, "the new context was not undone")),
    }
}

/// Undoes, in the target context, what was made before `failure`. That is still current, unless the restoration worked
/// and returned an older error.
#[cold]
fn undone(target: CUcontext, failure: Failure, undo: impl FnOnce() -> Outcome<()>) -> Failure {
    const NOT_UNDONE: &str = "what was created was not undone";
    // Where it cannot be entered the undo is tried all the same: most need no context, and one that does says so.
    let (failure, entered) = match enter(target) {
        Ok(entered) => (failure, entered),
        Err(entering) => (entering.attach_to(failure, "the context could not be entered for the undo"), None),
    };
    let failure = match undo() {
        Ok(()) => failure,
        Err(undoing) => undoing.attach_to(failure, NOT_UNDONE),
    };
    match entered.map(|entered| (entered.restore(), entered)) {
        None | Some((Ok(()), _)) => failure,
        Some((Err(restoring), entered)) => entered.after_failure(failure, restoring),
    }
}

/// Runs `operation`, which only reads, with `target` current.
pub(crate) fn read<T>(target: CUcontext, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    create(target, operation, |_read| Ok(()))
}

/// Runs `operation`, which cannot be taken back, with `target` current. If the caller's context cannot be restored,
/// the error says that the operation itself was submitted.
pub(crate) fn submit<T>(target: CUcontext, what: &str, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let Some(entered) = enter(target)? else { return operation() };
    let result = operation();
    match (result, entered.restore()) {
        (result, Ok(())) => result,
        (Ok(_done), Err(restoring)) => {
            Err(entered.not_restored(restoring).note(format!("{what} itself was submitted: do not repeat it")))
        }
        (Err(failure), Err(restoring)) => Err(entered.after_failure(failure, restoring)),
    }
}

/// What the release of something came to. Where it was leaked, what it needed is kept for good.
#[inline]
pub(crate) fn ended<T>(needed: T, result: Outcome<()>) -> Outcome<()> {
    result.map_err(|failure| keep_if_leaked(needed, failure))
}

/// The same, of a release that failed.
#[cold]
pub(crate) fn keep_if_leaked<T>(needed: T, failure: Failure) -> Failure {
    if failure.facts().is_some_and(|facts| facts.leaked) {
        let _kept = ManuallyDrop::new(needed);
    }
    failure
}

/// Runs `operation`, which gives `what` back, with `target` current. Entering failed: nothing was given back, it is
/// leaked.
pub(crate) fn release(
    target: CUcontext,
    what: fmt::Arguments<'_>,
    operation: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    let entered = match enter(target) {
        Ok(entered) => entered,
        Err(failure) => {
            return Err(failure.leaking(format_args!("its context ({target:p}) could not be entered: {what}")));
        }
    };
    let Some(entered) = entered else { return operation() };
    let result = operation();
    match (result, entered.restore()) {
        (result, Ok(())) => result,
        (Ok(()), Err(restoring)) => Err(entered.not_restored(restoring).note("the release itself worked")),
        (Err(failure), Err(restoring)) => Err(entered.after_failure(failure, restoring)),
    }
}
