//! Copies and fills.
//!
//! Three ways, by what is known of the other side: copies with borrowed host slices finish before they return; copies
//! with page-locked memory are asynchronous and hold it until they are done; copies and fills between buffers are
//! safe on the stream that orders the release of each, and `unsafe` on others.
#![allow(unsafe_code)]

use crate::event::{Event, EventOptions};
use crate::memory::buffer::Buffer;
use crate::memory::pinned::PinnedMemory;
use crate::stream::Stream;
use crate::{Outcome, Result};
use bytemuck::Pod;
use cuirass_call::memory::buffer as call;
use cuirass_fault::{Failure, Misuse};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A copy that may still be under way, with the page-locked memory that it uses. Waiting gives the memory back.
/// Dropped, it waits; where that fails, the memory is leaked rather than freed under the copy.
#[must_use = "the memory comes back from wait()"]
pub struct Transfer<M> {
    memory: ManuallyDrop<M>,
    /// Behind the copy; `None` once the memory has been taken.
    event: Option<Event>,
}

impl<M> Transfer<M> {
    fn new(memory: M, stream: &Stream) -> Result<Transfer<M>> {
        match stream.record_new(&EventOptions::default()) {
            Ok(event) => Ok(Transfer { memory: ManuallyDrop::new(memory), event: Some(event) }),
            Err(error) => {
                // The copy is under way and cannot be followed: wait for the whole stream before the memory goes.
                let memory = ManuallyDrop::new(memory);
                match stream.synchronize() {
                    Ok(()) => drop(ManuallyDrop::into_inner(memory)),
                    Err(waiting) => {
                        return Err(Failure::from(waiting)
                            .attach_to(
                                Failure::from(error),
                                "the copy itself was submitted; its memory is leaked, since waiting for it failed",
                            )
                            .raise());
                    }
                }
                Err(Failure::from(error).note("the copy itself was submitted, and is done").raise())
            }
        }
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
    /// What the driver answers, an earlier kernel's fault among it; the memory is then leaked.
    pub fn wait(mut self) -> Result<M> {
        if let Some(event) = self.event.take() {
            event.synchronize()?;
            event.close()?;
        }
        // SAFETY: [transfer-taken] the event is gone, so that dropping `self` leaves the memory alone.
        Ok(unsafe { ManuallyDrop::take(&mut self.memory) })
    }
}

impl<M> Drop for Transfer<M> {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else { return };
        match event.synchronize() {
            // SAFETY: [transfer-taken] the copy is done and the memory was not taken.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            Err(error) => Failure::from(error)
                .note("page-locked memory is leaked, since it is not certain that its copy is done")
                .report("waiting for a copy that was dropped"),
        }
    }
}

impl Buffer {
    fn check_fits(&self, bytes: usize, what: &str) -> Outcome<()> {
        if bytes <= self.len() {
            return Ok(());
        }
        Err(Failure::misuse(Misuse::Value, format!("{what} has {bytes} bytes, the buffer has {}", self.len())))
    }

    #[inline]
    fn check_ordered(&self, stream: &Stream) -> Outcome<()> {
        let own = self.release_handle();
        if own == 0 || own == stream.as_raw().addr() {
            return Ok(());
        }
        Err(Failure::misuse(
            Misuse::State,
            "another stream orders the release of this buffer: use that one, or the unsafe function",
        ))
    }

    /// Copies a slice into the start of the buffer. It is done when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for more bytes than the buffer has; what the driver answers.
    pub fn copy_from_slice<T: Pod>(&self, values: &[T], stream: &Stream) -> Result<()> {
        let bytes = size_of_val(values);
        self.check_fits(bytes, "the slice")?;
        // SAFETY: [borrowed-host-memory] the slice is borrowed until the stream has been waited for.
        unsafe { call::memcpy_htod_async(self.as_raw(), values.as_ptr().cast(), bytes, stream.as_raw())? };
        stream.synchronize()
    }

    /// Copies the start of the buffer into a slice. It is done when this returns.
    ///
    /// # Errors
    /// As [`copy_from_slice`](Buffer::copy_from_slice).
    pub fn copy_to_slice<T: Pod>(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        let bytes = size_of_val(values);
        self.check_fits(bytes, "the slice")?;
        // SAFETY: [borrowed-host-memory] the slice is borrowed until the stream has been waited for; `T` is plain.
        unsafe { call::memcpy_dtoh_async(values.as_mut_ptr().cast(), self.as_raw(), bytes, stream.as_raw())? };
        stream.synchronize()
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
        let bytes = memory.buffer().len();
        self.check_fits(bytes, "the memory")?;
        self.check_ordered(stream)?;
        // SAFETY: [pinned-transfer] the transfer holds the memory until the copy is done; the buffer's release comes
        // after the copy on the same stream.
        unsafe { call::memcpy_async(self.as_raw(), memory.buffer().as_raw(), bytes, stream.as_raw())? };
        Transfer::new(memory, stream)
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
        let bytes = memory.buffer().len();
        self.check_fits(bytes, "the memory")?;
        self.check_ordered(stream)?;
        // SAFETY: [pinned-transfer] as above.
        unsafe { call::memcpy_async(memory.buffer().as_raw(), self.as_raw(), bytes, stream.as_raw())? };
        Transfer::new(memory, stream)
    }

    /// Copies another buffer's bytes into the start of this one, in stream order (`cuMemcpyAsync`). The stream must be
    /// the one that orders the release of both.
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
        Ok(unsafe { call::memcpy_async(self.as_raw(), source.as_raw(), source.len(), stream.as_raw()) }?)
    }

    /// Fills the buffer with a byte, in the order of the stream that orders its release.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for another stream; what the driver answers.
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
    pub unsafe fn fill_unordered(&self, pattern: &[u8], stream: &Stream) -> Result<()> {
        let width = pattern.len();
        if !matches!(width, 1 | 2 | 4) {
            let message = format!("a pattern has 1, 2 or 4 bytes, this one has {width}");
            return Err(Failure::misuse(Misuse::Value, message).raise());
        }
        if !self.len().is_multiple_of(width) {
            let message = format!("the buffer's {} bytes are no multiple of the pattern's {width}", self.len());
            return Err(Failure::misuse(Misuse::Value, message).raise());
        }
        let count = self.len() / width;
        let stream = stream.as_raw();
        // SAFETY: [stream-ordered-copy] the caller's promise; `count` elements of the pattern's width fill the buffer.
        Ok(unsafe {
            match *pattern {
                [a] => call::memset_d8_async(self.as_raw(), a, count, stream),
                [a, b] => call::memset_d16_async(self.as_raw(), u16::from_le_bytes([a, b]), count, stream),
                [a, b, c, d] => call::memset_d32_async(self.as_raw(), u32::from_le_bytes([a, b, c, d]), count, stream),
                _ => Ok(()),
            }
        }?)
    }
}
