//! The stream of a graph builder that was closed, kept for the next one on its device.
//!
//! Measured: making a stream and destroying it takes the driver 3 of the 25 us of a capture of ten launches that is made
//! executable and given up again. A stream is kept only where nobody outside cuirass can have its handle and nothing depends
//! on it, so that the next builder has it to itself as if it were new.

use crate::Outcome;
use crate::context::Context;
use crate::stream::StreamKind;
use cuirass_call::context as call;
use cuirass_call::owner::Owned;
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

    /// The stream that is kept, if it is one of this very context.
    pub(crate) fn take(&self, context: &Context, id: u64) -> Option<Owned<StreamKind>> {
        let Kept { stream, made_in } = self.0.lock().take()?;
        if made_in == id && stream.parent() == context {
            return Some(stream);
        }
        // It went with the context as that was.
        drop(stream.into_raw());
        None
    }

    /// Keeps a stream, of the context with this number. One that was kept before is returned, to be given back.
    pub(crate) fn keep(&self, stream: Owned<StreamKind>, id: u64) -> Option<Owned<StreamKind>> {
        self.0.lock().replace(Kept { stream, made_in: id }).map(|before| before.stream)
    }

    /// Destroys the stream that is kept, where there is one.
    pub(crate) fn give_back(&self) -> Outcome<()> {
        let Some(Kept { stream, made_in }) = self.0.lock().take() else { return Ok(()) };
        match call::ctx_get_id(stream.parent().as_raw()) {
            Ok(id) if id == made_in => stream.close(),
            Ok(_another) => {
                drop(stream.into_raw());
                Ok(())
            }
            Err(failure) if failure.status() == Some(code::CONTEXT_IS_DESTROYED) => {
                failure.answered();
                drop(stream.into_raw());
                Ok(())
            }
            Err(failure) => {
                let (raw, _context) = stream.into_raw();
                Err(failure.leaking(format_args!("stream {raw:p}, which was kept for the next graph builder")))
            }
        }
    }
}
