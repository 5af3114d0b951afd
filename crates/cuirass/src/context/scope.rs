//! Running in a context that is not the caller's: the one place that switches, and switches back.

use crate::Outcome;
use cuirass_call::context as call;
use cuirass_call::sys::cuda::CUcontext;
use cuirass_fault::Failure;

/// What the caller had current, where it was another context.
struct Entered {
    previous: CUcontext,
    target: CUcontext,
}

fn enter(target: CUcontext) -> Outcome<Option<Entered>> {
    let previous = call::ctx_get_current()?;
    if previous == target {
        return Ok(None);
    }
    call::ctx_set_current(target)?;
    Ok(Some(Entered { previous, target }))
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
pub(crate) fn create<T>(
    target: CUcontext,
    operation: impl FnOnce() -> Outcome<T>,
    undo: impl FnOnce(T) -> Outcome<()>,
) -> Outcome<T> {
    let Some(entered) = enter(target)? else { return operation() };
    let result = operation();
    match (result, entered.restore()) {
        (result, Ok(())) => result,
        (Ok(made), Err(restoring)) => {
            // The target is still current, so that the undo runs in it.
            let failure = entered.not_restored(restoring);
            match undo(made) {
                Ok(()) => Err(failure),
                Err(undoing) => Err(undoing.attach_to(failure, "what was created was not undone")),
            }
        }
        (Err(failure), Err(restoring)) => Err(entered.after_failure(failure, restoring)),
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

/// Runs `operation`, which gives something back, with `target` current. Entering failed: nothing was given back, it
/// is leaked.
pub(crate) fn release(target: CUcontext, operation: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let entered = match enter(target) {
        Ok(entered) => entered,
        Err(failure) => {
            return Err(failure.note("its context could not be entered: it was not released, and is leaked"));
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
