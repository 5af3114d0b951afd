//! The stream of a graph builder that was closed, kept for the next one on its device.
//!
//! Measured: making a stream and destroying it takes the driver 3 of the 25 us of a capture of ten launches that is made
//! executable and given up again. A stream is kept only where nobody outside cuirass can have its handle and nothing depends
//! on it, so that the next builder has it to itself as if it were new.

use crate::Outcome;
use crate::context::scope;
use crate::driver;
use crate::stream::StreamKind;
use cuirass_call::context as call;
use cuirass_call::owner::{Owned, in_callback};
use cuirass_call::status::code;
use cuirass_fault::lock::Mutex;

/// A device's place for one such stream, of its primary context.
pub(crate) struct Spare(Mutex<Option<Kept>>);

struct Kept {
    stream: Owned<StreamKind>,
    /// The number of the context that it was made in. Somebody may reset a primary context behind its owners' back: it has
    /// another number then, its streams are gone, and the driver crashes when it is asked about one of them (measured).
    made_in: u64,
}

impl Spare {
    pub(crate) const fn new() -> Spare {
        Spare(Mutex::new(None))
    }

    /// The stream that is kept, if it is of the context with this number.
    pub(crate) fn take(&self, id: u64) -> Option<Owned<StreamKind>> {
        let Kept { stream, made_in } = self.0.lock().take()?;
        if made_in == id {
            return Some(stream);
        }
        gone_with_its_context(stream);
        None
    }

    /// Keeps a stream, of the context with this number. Where one is kept already this one is returned, to be given back: what
    /// the driver answers to that is about the stream of him who closes, and the other's context may be gone.
    pub(crate) fn keep(&self, stream: Owned<StreamKind>, id: u64) -> Option<Owned<StreamKind>> {
        let mut kept = self.0.lock();
        if kept.is_some() {
            return Some(stream);
        }
        *kept = Some(Kept { stream, made_in: id });
        None
    }

    /// Destroys the stream that is kept, where there is one.
    pub(crate) fn give_back(&self) -> Outcome<()> {
        let Some(Kept { stream, made_in }) = self.0.lock().take() else { return Ok(()) };
        if driver::is_forked() || in_callback() {
            // Nothing is asked here: in a child it is the parent's, in a callback its release is only queued.
            return stream.close();
        }
        match call::ctx_get_id(stream.parent().as_raw()) {
            Ok(id) if id == made_in => stream.close(),
            Ok(_another) => {
                gone_with_its_context(stream);
                Ok(())
            }
            Err(failure) if failure.status() == Some(code::CONTEXT_IS_DESTROYED) => {
                failure.answered();
                gone_with_its_context(stream);
                Ok(())
            }
            Err(failure) => {
                let (raw, context) = stream.into_raw();
                let what = format_args!("stream {raw:p}, which was kept for the next graph builder,");
                Err(scope::keep_if_leaked(context, failure.leaking(what)))
            }
        }
    }
}

/// Lets go of a stream without a call: the driver is not asked about one whose context was reset.
fn gone_with_its_context(stream: Owned<StreamKind>) {
    drop(stream.into_raw());
}
