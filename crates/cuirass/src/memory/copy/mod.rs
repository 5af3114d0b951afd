//! Copies and fills.
//!
//! Three ways, by what is known of the other side: copies with borrowed host slices finish before they return; copies
//! with page-locked memory are asynchronous and hold it until they are done; copies and fills between buffers are
//! safe on the stream that orders the release of each, and `unsafe` on others. Copies with options and in batches are in
//! `batch`, copies of rows in `pitched`.
#![allow(unsafe_code)]

mod batch;
mod pitched;

pub use batch::{BatchedCopy, CopyOptions, MemcpyOverlapMode, MemcpySrcAccessOrder, copy_batch, copy_batch_unordered};
pub use pitched::{CopyExtent, Pitched};

use crate::context::{capture, scope};
use crate::deferred;
use crate::event::{Event, EventOptions};
use crate::graph::recording;
use crate::memory::buffer::{Buffer, MemoryResource};
use crate::memory::pinned::PinnedMemory;
use crate::memory::pool::PooledMemory;
use crate::memory::r#virtual::Reservation;
use crate::stream::Stream;
use crate::{Outcome, Result};
use bytemuck::Pod;
use cuirass_call::event as event_call;
use cuirass_call::memory::buffer as call;
use cuirass_call::owner::is_answer_to_release;
use cuirass_call::status::code;
use cuirass_call::sys::cuda::CUstream;
use cuirass_fault::{Failure, Misuse};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A copy that may still be under way, with the page-locked memory that it uses. Waiting gives the memory back.
/// Dropped, it waits; where that fails, the memory is leaked rather than freed under the copy.
#[must_use = "the memory comes back from wait()"]
pub struct Transfer<M> {
    memory: ManuallyDrop<M>,
    /// Its address, for messages.
    address: u64,
    release: Release<M>,
    /// Behind the copy; `None` once the memory has been taken.
    event: Option<Event>,
}

/// How page-locked memory is given back, alone or shared.
type Release<M> = fn(M) -> Outcome<()>;

fn release_shared<T: Pod>(memory: Arc<PinnedMemory<T>>) -> Outcome<()> {
    Arc::into_inner(memory).map_or(Ok(()), PinnedMemory::close_inner)
}

/// Gives page-locked memory back because of a failure that is on its way.
fn released_after<M>(memory: M, release: Release<M>, failure: Failure) -> Failure {
    match release(memory) {
        Ok(()) => failure,
        Err(releasing) => releasing.attach_to(failure, "giving the page-locked memory back failed too"),
    }
}

fn leaked(address: u64) -> String {
    format!("page-locked memory {address:#x} is leaked, since it is not certain that its copy is done")
}

impl<M> Transfer<M> {
    fn new(memory: M, address: u64, release: Release<M>, copied: Outcome<()>, stream: &Stream) -> Result<Transfer<M>> {
        let submitted = copied.is_ok();
        let failure = match copied.and_then(|()| Ok(stream.record_new(&EventOptions::default())?)) {
            Ok(event) => {
                return Ok(Transfer { memory: ManuallyDrop::new(memory), address, release, event: Some(event) });
            }
            Err(failure) => failure,
        };
        // The copy may be under way, even where the call returned an error, and cannot be followed: the whole stream
        // is waited for before the memory goes.
        let memory = ManuallyDrop::new(memory);
        Err(match stream.synchronize() {
            Ok(()) => {
                let failure = released_after(ManuallyDrop::into_inner(memory), release, failure);
                if submitted { failure.note("the copy itself was submitted, and is done") } else { failure }
            }
            Err(waiting) => Failure::from(waiting).attach_to(failure, &leaked(address)),
        }
        .raise())
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it.
    pub fn is_done(&self) -> Result<bool> {
        self.event.as_ref().map_or(Ok(true), Event::is_done)
    }

    /// Waits for the copy and gives the memory back.
    ///
    /// # Errors
    /// What the driver answers, an earlier kernel's fault among it; the memory is then leaked. Where the copy is done
    /// and only the end of its event fails, the memory is released.
    pub fn wait(mut self) -> Result<M> {
        let Some(event) = self.event.take() else {
            return Err(Failure::internal("a copy that was waited for twice").raise());
        };
        if let Err(waiting) = event.synchronize() {
            let failure = Failure::from(waiting).note(leaked(self.address));
            return Err(match event.close() {
                Ok(()) => failure,
                Err(closing) => Failure::from(closing).attach_to(failure, "releasing the copy's event failed too"),
            }
            .raise());
        }
        let closed = event.close();
        // SAFETY: [transfer-taken] the event is gone, so that dropping `self` leaves the memory alone.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        match closed {
            Ok(()) => Ok(memory),
            Err(closing) => {
                let failure = Failure::from(closing).note("the copy itself is done, and its memory is given back");
                Err(released_after(memory, self.release, failure).raise())
            }
        }
    }
}

impl<M> Drop for Transfer<M> {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else { return };
        deferred::drain_if_any();
        // A release, which disturbs no capture.
        match capture::relaxed(|| event_call::synchronize(event.as_raw())).map_err(Failure::raise) {
            // SAFETY: [transfer-taken] the copy is done and the memory was not taken.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            // The driver is shutting down, and its memory goes with it.
            Err(error) if is_answer_to_release(error.facts()) => {}
            Err(error) => {
                Failure::from(error).note(leaked(self.address)).report("waiting for a copy that was dropped");
            }
        }
    }
}

/// Waits until a stream has passed a copy with borrowed memory, also where the call returned an error: it may have been
/// accepted all the same.
fn passed(copied: Outcome<()>, stream: &Stream) -> Result<()> {
    match (copied, stream.synchronize()) {
        (Ok(()), Ok(())) => Ok(()),
        (Ok(()), Err(waiting)) => {
            Err(Failure::from(waiting).note("the copy itself was submitted; it is not certain that it is done").raise())
        }
        (Err(failure), Ok(())) => Err(failure.raise()),
        (Err(failure), Err(waiting)) => Err(Failure::from(waiting)
            .attach_to(failure, "the stream could not be waited for after this failure")
            .raise()),
    }
}

/// Copies that end when their call does, or give their memory back, are none that a graph can repeat.
#[inline]
fn refuse_in_capture(stream: &Stream, what: &str) -> Outcome<()> {
    if recording::of(stream).is_none() {
        return Ok(());
    }
    Err(Failure::misuse(
        Misuse::State,
        format!(
            "the stream is being captured by a graph builder: a graph that copies would use {what} each time it runs; copy \
             between buffers instead, page-locked ones for the host"
        ),
    ))
}

/// Runs a copy. Measured: without a current context the driver refuses those of memory with several mappings.
#[inline]
fn in_context<const N: usize>(
    buffers: [&Buffer; N],
    stream: &Stream,
    copy: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    if !buffers.iter().any(|buffer| buffer.has_several_mappings()) {
        return copy();
    }
    let context = stream.context_inner()?;
    scope::submit(context.raw(), "the copy", copy)
}

/// What the driver leaves unsaid where it refuses memory of another device's pool: the stream's device needs access to
/// it. Of the first such buffer.
#[cold]
fn explained<'a>(failure: Failure, buffers: impl IntoIterator<Item = &'a Buffer>, stream: &Stream) -> Failure {
    let here = stream.known_device().filter(|_here| failure.status() == Some(code::INVALID_VALUE));
    let Some(here) = here else { return failure };
    let far = buffers.into_iter().find_map(|buffer| match buffer.pool()?.memory() {
        PooledMemory::Device(owner) if owner != here => Some((buffer.as_raw(), owner)),
        _ => None,
    });
    let Some((address, owner)) = far else { return failure };
    failure.note(format!(
        "the memory {address:#x} is of a pool of device {}, the stream of device {}: without access to the pool \
         (peer_accessible_by in Python, MemoryPool::set_access in Rust) a device cannot use its memory",
        owner.ordinal(),
        here.ordinal()
    ))
}

impl Buffer {
    fn check_fits(&self, bytes: usize, what: &str) -> Outcome<()> {
        if bytes <= self.len() {
            return Ok(());
        }
        Err(Failure::misuse(Misuse::Value, format!("{what} has {bytes} bytes, the buffer has {}", self.len())))
    }

    #[inline]
    pub(crate) fn check_ordered(&self, stream: &Stream) -> Outcome<()> {
        let own = self.release_handle();
        if own == 0 || own == stream.raw().addr() {
            return Ok(());
        }
        Err(Failure::misuse(
            Misuse::State,
            "another stream orders the release of this buffer: use that one, or the unsafe function of the same name that \
             ends in _unordered, whose conditions you then keep",
        ))
    }

    /// A graph would use page-locked memory each time it runs, while the caller has it.
    fn check_transfer(&self, bytes: usize, stream: &Stream) -> Outcome<()> {
        self.check_fits(bytes, "the memory")?;
        self.check_ordered(stream)?;
        refuse_in_capture(stream, "page-locked memory that comes back")
    }

    /// A graph that captured work holds the memory that it uses.
    #[cold]
    fn attach(&self, stream: &Stream) {
        recording::attach_work(stream, None, std::iter::once(self));
    }

    /// Copies a slice into the start of the buffer. It is done when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for more bytes than the buffer has; what the driver answers.
    pub fn copy_from_slice<T: Pod>(&self, values: &[T], stream: &Stream) -> Result<()> {
        let bytes = size_of_val(values);
        self.check_fits(bytes, "the slice")?;
        refuse_in_capture(stream, "a slice")?;
        // Measured: the calls that name the device's side take no memory of the host's pools.
        let from = values.as_ptr().expose_provenance() as u64;
        // SAFETY: [borrowed-host-memory] the slice is borrowed until the stream has been waited for.
        let copied =
            in_context([self], stream, || unsafe { call::memcpy_async(self.as_raw(), from, bytes, stream.raw()) });
        passed(copied, stream)
    }

    /// Copies the start of the buffer into a slice. It is done when this returns.
    ///
    /// # Errors
    /// As [`copy_from_slice`](Buffer::copy_from_slice).
    pub fn copy_to_slice<T: Pod>(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        let bytes = size_of_val(values);
        self.check_fits(bytes, "the slice")?;
        refuse_in_capture(stream, "a slice")?;
        let to = values.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: [borrowed-host-memory] the slice is borrowed until the stream has been waited for; `T` is plain.
        let copied =
            in_context([self], stream, || unsafe { call::memcpy_async(to, self.as_raw(), bytes, stream.raw()) });
        passed(copied, stream)
    }

    /// Starts a copy of page-locked memory into the start of the buffer. The memory is shared until it is done.
    ///
    /// # Errors
    /// As [`copy_from_slice`](Buffer::copy_from_slice).
    pub fn copy_from_pinned<T: Pod>(
        &self,
        memory: Arc<PinnedMemory<T>>,
        stream: &Stream,
    ) -> Result<Transfer<Arc<PinnedMemory<T>>>> {
        let (address, bytes) = (memory.buffer().as_raw(), memory.buffer().len());
        if let Err(failure) = self.check_transfer(bytes, stream) {
            return Err(released_after(memory, release_shared, failure).raise());
        }
        // SAFETY: [pinned-transfer] the transfer holds the memory until the copy is done; the buffer's release comes
        // after the copy on the same stream.
        let copied =
            in_context([self], stream, || unsafe { call::memcpy_async(self.as_raw(), address, bytes, stream.raw()) });
        Transfer::new(memory, address, release_shared, copied, stream)
    }

    /// Starts a copy of the start of the buffer into page-locked memory, which comes back when it is done.
    ///
    /// # Errors
    /// As [`copy_from_slice`](Buffer::copy_from_slice).
    pub fn copy_to_pinned<T: Pod>(
        &self,
        memory: PinnedMemory<T>,
        stream: &Stream,
    ) -> Result<Transfer<PinnedMemory<T>>> {
        let (address, bytes) = (memory.buffer().as_raw(), memory.buffer().len());
        if let Err(failure) = self.check_transfer(bytes, stream) {
            return Err(released_after(memory, PinnedMemory::close_inner, failure).raise());
        }
        // SAFETY: [pinned-transfer] as above.
        let copied =
            in_context([self], stream, || unsafe { call::memcpy_async(address, self.as_raw(), bytes, stream.raw()) });
        Transfer::new(memory, address, PinnedMemory::close_inner, copied, stream)
    }

    /// Copies another buffer's bytes into the start of this one, in stream order (`cuMemcpyAsync`). The stream must be
    /// the one that orders the release of both. Where the two overlap, CUDA does not say what is copied.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when this buffer is smaller,
    /// [`ErrorKind::State`](crate::ErrorKind::State) for another stream; what the driver answers.
    #[inline]
    pub fn copy_from(&self, source: &Buffer, stream: &Stream) -> Result<()> {
        self.check_ordered(stream)?;
        source.check_ordered(stream)?;
        // SAFETY: [stream-ordered-copy] both releases come after the copy on this stream.
        unsafe { self.copy_from_unordered(source, stream) }
    }

    /// As [`copy_from`](Buffer::copy_from), on any stream.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when this buffer is smaller; what the driver answers.
    ///
    /// # Safety
    /// Neither buffer is released before the stream has passed the copy, and nothing unordered with it touches them.
    #[inline]
    pub unsafe fn copy_from_unordered(&self, source: &Buffer, stream: &Stream) -> Result<()> {
        self.check_fits(source.len(), "the source")?;
        // SAFETY: [stream-ordered-copy] the caller's promise; the sizes were checked.
        let copied = in_context([self, source], stream, || unsafe {
            call::memcpy_async(self.as_raw(), source.as_raw(), source.len(), stream.raw())
        });
        // Whatever the answer: the node may be there even where the call returns an error.
        if recording::any() {
            self.attach(stream);
            source.attach(stream);
        }
        Ok(copied.map_err(|failure| explained(failure, [self, source], stream))?)
    }

    /// Fills the buffer with a byte, in the order of the stream that orders its release. Virtual memory of the host that
    /// has grown is filled a part at a time.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for another stream; what the driver answers. Where it refuses a later
    /// part, those before it are filled, as a note says.
    pub fn fill(&self, value: u8, stream: &Stream) -> Result<()> {
        self.check_ordered(stream)?;
        // SAFETY: [stream-ordered-copy] the release comes after the fill on this stream.
        unsafe { self.fill_unordered(&[value], stream) }
    }

    /// Fills the buffer with a pattern of 1, 2 or 4 bytes, in the order of any stream (`cuMemsetD8Async` and its like).
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for another length of the pattern, or one that the buffer's size
    /// is no multiple of; what the driver answers.
    ///
    /// # Safety
    /// The buffer is not released before the stream has passed the fill, and nothing unordered with it touches it.
    // Where it is called the pattern's length is mostly known.
    #[inline(always)]
    pub unsafe fn fill_unordered(&self, pattern: &[u8], stream: &Stream) -> Result<()> {
        let width = pattern.len();
        // Not a division: the widths are powers of two.
        if !matches!(width, 1 | 2 | 4) || self.len() & (width - 1) != 0 {
            return Err(self.no_pattern(width).raise());
        }
        if self.is_virtual() {
            // SAFETY: [stream-ordered-copy] the caller's promise.
            return unsafe { self.fill_virtual(pattern, stream) };
        }
        // SAFETY: [stream-ordered-copy] the caller's promise; what is filled is the buffer.
        let filled = unsafe { fill(self.as_raw(), self.len(), pattern, stream.raw()) };
        self.filled(filled, stream)
    }

    /// Why nothing of this length fills it.
    #[cold]
    fn no_pattern(&self, width: usize) -> Failure {
        let message = match width {
            1 | 2 | 4 => format!("the buffer's {} bytes are no multiple of the pattern's {width}", self.len()),
            width => format!("a pattern has 1, 2 or 4 bytes, this one has {width}"),
        };
        Failure::misuse(Misuse::Value, message)
    }

    #[inline]
    fn filled(&self, filled: Outcome<()>, stream: &Stream) -> Result<()> {
        if recording::any() {
            self.attach(stream);
        }
        Ok(filled.map_err(|failure| explained(failure, [self], stream))?)
    }

    /// Fills virtual memory; that of the host a mapping at a time. Measured: a driver refuses a fill there that goes from
    /// one to the next. The granularity of mappings is a multiple of every pattern's length.
    #[cold]
    #[inline(never)]
    unsafe fn fill_virtual(&self, pattern: &[u8], stream: &Stream) -> Result<()> {
        let whole = [self.len()];
        let parts = match self.reservations() {
            Some((parts, resource)) if resource.is_host_accessible() => parts,
            _ => &[],
        };
        let mappings = parts.iter().flat_map(Reservation::mappings);
        let (start, mut at) = (self.as_raw(), self.as_raw());
        let filled = mappings.chain(whole.iter().filter(|_whole| parts.is_empty())).try_for_each(|bytes| {
            // SAFETY: [stream-ordered-copy] the caller's promise; what is filled is the buffer, in parts.
            let filled = unsafe { fill(at, *bytes, pattern, stream.raw()) };
            let done = at - start;
            at += *bytes as u64;
            match done {
                0 => filled,
                _ => {
                    filled.map_err(|failure| failure.note(format!("the fill of the first {done} bytes was submitted")))
                }
            }
        });
        self.filled(filled, stream)
    }
}

/// Fills so many bytes, a multiple of the pattern's length.
///
/// # Safety
/// They are there until the stream has passed the fill, and nothing unordered with it touches them.
#[inline(always)]
unsafe fn fill(to: u64, bytes: usize, pattern: &[u8], raw: CUstream) -> Outcome<()> {
    // SAFETY: [stream-ordered-copy] the caller's promise; so many elements of the pattern's width are these bytes.
    unsafe {
        match *pattern {
            [a] => call::memset_d8_async(to, a, bytes, raw),
            [a, b] => call::memset_d16_async(to, u16::from_le_bytes([a, b]), bytes / 2, raw),
            [a, b, c, d] => call::memset_d32_async(to, u32::from_le_bytes([a, b, c, d]), bytes / 4, raw),
            _ => Ok(()),
        }
    }
}
