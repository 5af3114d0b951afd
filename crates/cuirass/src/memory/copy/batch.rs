//! Copies with options, and many copies at once.

use super::{Buffer, explained};
use crate::context::scope;
use crate::graph::recording;
use crate::memory::few::{FOR_A_BATCH, Few, few};
use crate::memory::location::Location;
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::memory::buffer as call;
use cuirass_call::sys::cuda::{CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder};
use cuirass_fault::{Failure, Misuse, room};

/// When a copy reads its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemcpySrcAccessOrder {
    /// In the order of the stream.
    #[default]
    Stream,
    /// Before the call returns, whatever is on the stream before it.
    DuringApiCall,
    /// At any time until the stream has passed the copy.
    Any,
}

/// Whether a copy should run beside kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemcpyOverlapMode {
    /// As the driver likes.
    #[default]
    Default,
    /// Rather beside kernels, if the device can.
    PreferOverlapWithCompute,
}

/// How a copy is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopyOptions {
    /// When the source is read.
    pub src_access_order: MemcpySrcAccessOrder,
    /// Where the source is expected to be. The driver looks at it for managed memory, and for pageable memory that
    /// devices can use.
    pub src_location_hint: Option<Location>,
    /// Where the target is expected to be, as for the source.
    pub dst_location_hint: Option<Location>,
    /// Whether it should run beside kernels.
    pub overlap_mode: MemcpyOverlapMode,
}

impl CopyOptions {
    fn raw(&self) -> CUmemcpyAttributes {
        let order = match self.src_access_order {
            MemcpySrcAccessOrder::Stream => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            MemcpySrcAccessOrder::DuringApiCall => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
            MemcpySrcAccessOrder::Any => CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
        };
        let flags = match self.overlap_mode {
            MemcpyOverlapMode::Default => CUmemcpyFlags::CU_MEMCPY_FLAG_DEFAULT,
            MemcpyOverlapMode::PreferOverlapWithCompute => CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE,
        };
        let place = |hint: Option<Location>| hint.map_or_else(Location::raw_none, Location::raw);
        CUmemcpyAttributes {
            srcAccessOrder: order,
            srcLocHint: place(self.src_location_hint),
            dstLocHint: place(self.dst_location_hint),
            flags: flags.0,
        }
    }

    /// Memory of a pool is there only in the order of its stream.
    fn check_ordered(&self) -> Outcome<()> {
        if self.src_access_order == MemcpySrcAccessOrder::Stream {
            return Ok(());
        }
        Err(Failure::misuse(
            Misuse::State,
            "the source would not be read in the order of the stream: use the unsafe function",
        ))
    }
}

/// One copy of a batch: all of `from` into the start of `to`.
#[derive(Clone, Copy, Debug)]
pub struct BatchedCopy<'a> {
    /// The target.
    pub to: &'a Buffer,
    /// The source.
    pub from: &'a Buffer,
    /// How it is made.
    pub options: CopyOptions,
}

/// A graph has no node for it; trying would invalidate the capture.
fn refuse_in_capture(stream: &Stream) -> Outcome<()> {
    if recording::of(stream).is_none() {
        return Ok(());
    }
    Err(Failure::misuse(
        Misuse::State,
        "the stream is being captured by a graph builder, and a graph cannot have copies with options or in batches: copy \
         without",
    ))
}

/// Refuses copies of which one writes what another reads or writes: they are made in no order.
fn check_apart(copies: &[BatchedCopy<'_>]) -> Outcome<()> {
    let range = |buffer: &Buffer, bytes: usize| (buffer.as_raw(), buffer.as_raw().saturating_add(bytes as u64));
    let writes = copies.iter().enumerate().filter(|(_, copy)| !copy.from.is_empty());
    let mut written = room::list(writes.map(|(at, copy)| (range(copy.to, copy.from.len()), at)), FOR_A_BATCH)?;
    written.sort_unstable();
    let two_writers = written.windows(2).find_map(|pair| match pair {
        [((_, end), one), ((start, _), other)] if start < end => Some((*one, *other)),
        _ => None,
    });
    let meeting = two_writers.or_else(|| {
        // What is written lies apart by now, so that the ends rise with the starts.
        copies.iter().enumerate().filter(|(_, copy)| !copy.from.is_empty()).find_map(|(reader, copy)| {
            let (start, end) = range(copy.from, copy.from.len());
            let before = written.partition_point(|((first, _), _)| *first < end);
            let meeting = written.iter().take(before).rev().take_while(|((_, last), _)| *last > start);
            meeting.map(|(_, writer)| *writer).find(|writer| *writer != reader).map(|writer| (writer, reader))
        })
    });
    let Some((writer, other)) = meeting else { return Ok(()) };
    Err(Failure::misuse(
        Misuse::Value,
        format!("copy {writer} of the batch writes memory that copy {other} uses, and the copies are made in no order"),
    ))
}

/// Copies buffers into the starts of others, in the order of the stream that orders the release of all of them, and in
/// no order among one another (`cuMemcpyBatchAsync`). No copy may write what another one reads or writes.
///
/// # Errors
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for a target that is smaller than its source, and for copies that
/// depend on one another. [`ErrorKind::State`](crate::ErrorKind::State) for another stream, for sources that are not
/// read in stream order, and while a graph builder captures the stream. What the driver answers:
/// `CUDA_ERROR_INVALID_VALUE` for no copy at all and for the legacy default stream.
/// [`Unsupported`](crate::ErrorKind::Unsupported) before CUDA 12.8. Nothing was then copied.
pub fn copy_batch(copies: &[BatchedCopy<'_>], stream: &Stream) -> Result<()> {
    for copy in copies {
        copy.to.check_ordered(stream)?;
        copy.from.check_ordered(stream)?;
        copy.options.check_ordered()?;
    }
    // SAFETY: [stream-ordered-copy] all releases come after the copies on this stream.
    unsafe { copy_batch_unordered(copies, stream) }
}

/// As [`copy_batch`], on any stream and with any options.
///
/// # Errors
/// As there, but for the other stream and the options.
///
/// # Safety
/// No buffer is released before the stream has passed the copies, and nothing unordered with them touches one. A source
/// that is not read in stream order is there, and nothing writes to it, from the call until the stream has passed.
pub unsafe fn copy_batch_unordered(copies: &[BatchedCopy<'_>], stream: &Stream) -> Result<()> {
    copies.iter().try_for_each(|copy| copy.to.check_fits(copy.from.len(), "the source"))?;
    check_apart(copies)?;
    refuse_in_capture(stream)?;
    // SAFETY: [stream-ordered-copy] the caller's promise; the sizes were checked.
    Ok(unsafe { submit(copies, stream) }?)
}

/// # Safety
/// As [`copy_batch_unordered`]; the sizes were checked.
unsafe fn submit(copies: &[BatchedCopy<'_>], stream: &Stream) -> Outcome<()> {
    let mut to: Few<_> = few(copies.iter().map(|copy| copy.to.as_raw()))?;
    let mut from: Few<_> = few(copies.iter().map(|copy| copy.from.as_raw()))?;
    let mut sizes: Few<_> = few(copies.iter().map(|copy| copy.from.len()))?;
    let alike = copies.windows(2).all(|pair| matches!(pair, [one, other] if one.options == other.options));
    let entries = if alike { 1 } else { copies.len() };
    let mut attributes: Few<_> = few(copies.iter().take(entries).map(|copy| copy.options.raw()))?;
    // SAFETY: [stream-ordered-copy] the caller's promise; one address and size a copy, and one set of attributes for all
    // or for each.
    let copy = || unsafe { call::memcpy_batch_async(&mut to, &mut from, &mut sizes, &mut attributes, stream.raw()) };
    // Measured: unlike a plain copy, a batch wants a context to be current.
    let context = stream.context_inner()?;
    let sides = || copies.iter().flat_map(|copy| [copy.to, copy.from]);
    scope::submit(context.raw(), "the batch", copy).map_err(|failure| explained(failure, sides(), stream))
}

impl Buffer {
    /// Copies another buffer's bytes into the start of this one, as the options say, in stream order. The stream must be
    /// the one that orders the release of both. Options that say nothing make a plain copy (`cuMemcpyAsync`), others a
    /// batch of one (`cuMemcpyBatchAsync`).
    ///
    /// # Errors
    /// As [`copy_from`](Buffer::copy_from), and for other options than the default ones as [`copy_batch`].
    pub fn copy_from_with(&self, source: &Buffer, options: &CopyOptions, stream: &Stream) -> Result<()> {
        self.check_ordered(stream)?;
        source.check_ordered(stream)?;
        options.check_ordered()?;
        // SAFETY: [stream-ordered-copy] both releases come after the copy on this stream.
        unsafe { self.copy_from_with_unordered(source, options, stream) }
    }

    /// As [`copy_from_with`](Buffer::copy_from_with), on any stream and with any options.
    ///
    /// # Errors
    /// As there, but for the other stream and the options.
    ///
    /// # Safety
    /// As [`copy_batch_unordered`].
    pub unsafe fn copy_from_with_unordered(
        &self,
        source: &Buffer,
        options: &CopyOptions,
        stream: &Stream,
    ) -> Result<()> {
        if *options == CopyOptions::default() {
            // SAFETY: [stream-ordered-copy] the caller's promise.
            return unsafe { self.copy_from_unordered(source, stream) };
        }
        self.check_fits(source.len(), "the source")?;
        refuse_in_capture(stream)?;
        // SAFETY: [stream-ordered-copy] the caller's promise; the sizes were checked.
        Ok(unsafe { submit(&[BatchedCopy { to: self, from: source, options: *options }], stream) }?)
    }
}
