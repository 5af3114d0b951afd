//! Copies between tensors whose elements lie in different ways.
#![allow(unsafe_code)]

use super::layout::StridedLayout;
use crate::context::scope;
use crate::stream::{CaptureStatus, Stream};
use crate::{Outcome, Result};
use cuirass_call::memory::buffer as call;
use cuirass_call::sys::cuda::{CUDA_MEMCPY2D, CUmemorytype};
use cuirass_fault::{Failure, Misuse};
use smallvec::SmallVec;
use std::ptr::{copy_nonoverlapping, with_exposed_provenance, with_exposed_provenance_mut};

/// A pitch of the driver's is at most this.
const MOST_PITCH: i64 = i32::MAX as i64;

/// A tensor in memory: where its first element is, how its elements lie, and who can use the memory.
#[derive(Clone, Debug)]
pub struct Strided {
    /// The address that the layout's offsets count from.
    pub address: u64,
    /// How its elements lie.
    pub layout: StridedLayout,
    /// Whether it is ordinary memory of the host, which copies are not asynchronous with. Page-locked and managed memory
    /// is not.
    pub is_host: bool,
}

/// A copy of all elements of one tensor to another of the same shape, which may lie in another way.
///
/// Between memory that the driver can use it is one `cuMemcpyAsync` where that does, else `cuMemcpy2DAsync`, as many as
/// are needed: elements that lie in the same order on both sides, up to gaps of one axis, need one; a transposition needs
/// one for each row. Where one side is ordinary memory of the host and the other has no gaps, the host rearranges the
/// elements in staging memory instead, which waits for the stream. So does a copy within ordinary memory of the host.
#[derive(Debug)]
pub struct StridedCopy {
    way: Way,
    axes: Axes,
    /// The bytes of a piece that is without gaps on both sides.
    piece: usize,
    to: u64,
    from: u64,
    bytes: usize,
    to_is_host: bool,
    from_is_host: bool,
}

type Axes = SmallVec<[Axis; 6]>;

/// An axis of both tensors, with its strides in bytes.
#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: i64,
    to: i64,
    from: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// There is nothing to copy.
    Nothing,
    /// The driver copies.
    Driver,
    /// The host gathers into staging memory, from where the driver copies.
    Gather,
    /// The driver copies to staging memory, from where the host scatters.
    Scatter,
    /// The host copies.
    Host,
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::misuse(Misuse::Value, message.into())
}

impl Strided {
    /// Its first byte and the one behind its last.
    fn span(&self) -> (i128, i128) {
        let item = self.layout.itemsize() as i128;
        let (low, high) = self.layout.offset_bounds();
        let base = i128::from(self.address);
        (base + i128::from(low) * item, base + (i128::from(high) + 1) * item)
    }
}

impl StridedCopy {
    /// Finds out how to copy.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) if the shapes or the sizes of an element differ, if elements of the
    /// target share an address, if the two overlap, or if one reaches out of the address space.
    pub fn new(to: &Strided, from: &Strided) -> Result<StridedCopy> {
        Ok(StridedCopy::plan(to, from)?)
    }

    fn plan(to: &Strided, from: &Strided) -> Outcome<StridedCopy> {
        let (target, source) = (&to.layout, &from.layout);
        if target.shape() != source.shape() {
            let message = format!("the source's shape is {:?}, the target's {:?}", source.shape(), target.shape());
            return Err(wrong(message));
        }
        if target.itemsize() != source.itemsize() {
            return Err(wrong(format!(
                "an element of the source has {} bytes, one of the target {}: a copy converts nothing",
                source.itemsize(),
                target.itemsize()
            )));
        }
        let nothing = StridedCopy {
            way: Way::Nothing,
            axes: Axes::new(),
            piece: 0,
            to: 0,
            from: 0,
            bytes: 0,
            to_is_host: to.is_host,
            from_is_host: from.is_host,
        };
        if target.volume() == 0 {
            return Ok(nothing);
        }
        let (to_span, from_span) = (to.span(), from.span());
        for (low, high) in [to_span, from_span] {
            if low < 0 || high > i128::from(u64::MAX) {
                return Err(wrong("the elements of a tensor reach out of the address space"));
            }
        }
        if !target.is_unique() {
            return Err(wrong("elements of the target share an address: which value is left would not be certain"));
        }
        if to.address == from.address && target == source {
            return Ok(nothing);
        }
        if to_span.0 < from_span.1 && from_span.0 < to_span.1 {
            return Err(wrong("the source and the target overlap"));
        }
        let bytes = usize::try_from(target.volume()).unwrap_or(usize::MAX).saturating_mul(target.itemsize());
        // The side that is not the host's says in which order the elements are taken.
        let lead_is_to = from.is_host || !to.is_host;
        let mut copy = StridedCopy { way: Way::Driver, bytes, ..nothing };
        copy.lay_out(to, from, lead_is_to)?;
        let is_one_piece = copy.axes.is_empty();
        copy.way = match (to.is_host, from.is_host) {
            (true, true) => Way::Host,
            (false, false) => Way::Driver,
            _ if is_one_piece || copy.is_rows() => Way::Driver,
            (false, true) if copy.is_dense(|axis| axis.to) => Way::Gather,
            (true, false) if copy.is_dense(|axis| axis.from) => Way::Scatter,
            _ => Way::Driver,
        };
        Ok(copy)
    }

    /// Sorts the axes by the strides of one side, turned to be positive there, and joins those that are one on both.
    fn lay_out(&mut self, to: &Strided, from: &Strided, lead_is_to: bool) -> Outcome<()> {
        let item = i64::try_from(to.layout.itemsize()).unwrap_or(i64::MAX);
        let out_of_range = || wrong("the elements of a tensor reach out of the address space");
        let start = |side: &Strided| {
            let offset = side.layout.slice_offset().checked_mul(item)?;
            side.address.checked_add_signed(offset)
        };
        self.to = start(to).ok_or_else(out_of_range)?;
        self.from = start(from).ok_or_else(out_of_range)?;
        let strides = to.layout.effective_strides().iter().zip(from.layout.effective_strides());
        let mut axes = Axes::new();
        for (extent, (to_stride, from_stride)) in to.layout.shape().iter().zip(strides) {
            if *extent == 1 {
                continue;
            }
            let bytes = |stride: &i64| stride.checked_mul(item).ok_or_else(out_of_range);
            let mut axis = Axis { extent: *extent, to: bytes(to_stride)?, from: bytes(from_stride)? };
            if (if lead_is_to { axis.to } else { axis.from }) < 0 {
                self.to = self.to.wrapping_add_signed((axis.extent - 1).wrapping_mul(axis.to));
                self.from = self.from.wrapping_add_signed((axis.extent - 1).wrapping_mul(axis.from));
                axis = Axis { extent: axis.extent, to: axis.to.wrapping_neg(), from: axis.from.wrapping_neg() };
            }
            axes.push(axis);
        }
        let lead = |axis: &Axis| if lead_is_to { (axis.to, axis.from) } else { (axis.from, axis.to) };
        axes.sort_by_key(|axis| std::cmp::Reverse(lead(axis)));
        for axis in axes {
            match self.axes.last_mut() {
                Some(outer)
                    if axis.to.checked_mul(axis.extent) == Some(outer.to)
                        && axis.from.checked_mul(axis.extent) == Some(outer.from) =>
                {
                    *outer = Axis { extent: outer.extent * axis.extent, ..axis };
                }
                _ => self.axes.push(axis),
            }
        }
        self.piece = to.layout.itemsize();
        if let Some(inner) = self.axes.last().copied().filter(|axis| axis.to == item && axis.from == item) {
            self.axes.pop();
            self.piece = self.piece.saturating_mul(usize::try_from(inner.extent).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    fn piece_bytes(&self) -> i64 {
        i64::try_from(self.piece).unwrap_or(i64::MAX)
    }

    fn is_pitched(&self, axis: &Axis) -> bool {
        let allowed = self.piece_bytes()..=MOST_PITCH;
        allowed.contains(&axis.to) && allowed.contains(&axis.from)
    }

    /// Whether one pitched copy does it.
    fn is_rows(&self) -> bool {
        matches!(self.axes.as_slice(), [axis] if self.is_pitched(axis))
    }

    /// Whether a side has no gaps, in the order in which the elements are taken.
    fn is_dense(&self, stride: impl Fn(&Axis) -> i64) -> bool {
        let mut expected = Some(self.piece_bytes());
        self.axes.iter().rev().all(|axis| {
            let is_next = Some(stride(axis)) == expected;
            expected = expected.and_then(|expected| expected.checked_mul(axis.extent));
            is_next
        })
    }

    /// How many bytes of host memory the copy needs for staging; 0 if it needs none.
    pub fn staging(&self) -> usize {
        if matches!(self.way, Way::Gather | Way::Scatter) { self.bytes } else { 0 }
    }

    /// Whether nothing of it is asynchronous: it is done when [`submit`](StridedCopy::submit) has returned.
    pub fn is_synchronous(&self) -> bool {
        self.way != Way::Driver
    }

    /// Copies, in the order of the stream. With `blocking`, or where the host does a part of it, it is done when this
    /// returns. `staging` is host memory of [`staging`](StridedCopy::staging) bytes; without it such memory is allocated
    /// for the time of the call.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) if the stream is being captured and the copy would have to wait for it
    /// or uses ordinary memory of the host; what the driver answers. Where a part has been submitted, a note says so.
    ///
    /// # Safety
    /// Both tensors are where they say, and stay there until the stream has passed the copy; nothing unordered with it
    /// touches them; so for `staging`, until this returns.
    pub unsafe fn submit(&self, stream: &Stream, staging: Option<u64>, blocking: bool) -> Result<()> {
        // SAFETY: [strided-copy] the caller's promise.
        unsafe { Ok(self.submit_inner(stream, staging, blocking)?) }
    }

    unsafe fn submit_inner(&self, stream: &Stream, staging: Option<u64>, blocking: bool) -> Outcome<()> {
        if self.way == Way::Nothing {
            return Ok(());
        }
        if (self.to_is_host || self.from_is_host || blocking || self.is_synchronous())
            && stream.capture_status()? != CaptureStatus::None
        {
            return Err(Failure::misuse(
                Misuse::State,
                "the stream is being captured: a copy that uses ordinary memory of the host, or waits for the stream, is \
                 none that a graph can repeat",
            ));
        }
        if self.way == Way::Driver {
            // SAFETY: [strided-copy] the caller's promise.
            unsafe { self.by_driver(stream)? };
            return if blocking { finish(stream) } else { Ok(()) };
        }
        let mut own = Vec::new();
        let staging = match staging {
            Some(staging) => staging,
            None => {
                own.try_reserve_exact(self.staging())
                    .map_err(|_none| Failure::no_memory(format_args!("for {} bytes of staging", self.staging())))?;
                own.as_mut_ptr() as usize as u64
            }
        };
        let copy = |to: u64, from: u64| {
            // SAFETY: [strided-copy] staging memory of this size, and a side without gaps, of as many bytes.
            unsafe { call::memcpy_async(to, from, self.bytes, stream.raw()) }
        };
        match self.way {
            Way::Gather => {
                // What is on the stream before may write what is read here.
                stream.synchronize()?;
                // SAFETY: [strided-copy] the host's memory, and staging memory of the host's.
                unsafe { self.by_host(staging, self.from, Side::From) };
                finish_after(copy(self.to, staging), stream, &mut own)
            }
            Way::Scatter => {
                finish_after(copy(staging, self.from), stream, &mut own)?;
                // SAFETY: [strided-copy] as above.
                unsafe { self.by_host(self.to, staging, Side::To) };
                Ok(())
            }
            Way::Host => {
                stream.synchronize()?;
                // SAFETY: [strided-copy] both are the host's memory.
                unsafe { self.by_host(self.to, self.from, Side::Both) };
                Ok(())
            }
            Way::Driver | Way::Nothing => Ok(()),
        }
    }

    /// One call for each piece, or for each row of pieces.
    unsafe fn by_driver(&self, stream: &Stream) -> Outcome<()> {
        let mut axes = self.axes.clone();
        let rows = axes
            .iter()
            .enumerate()
            .filter(|(_index, axis)| self.is_pitched(axis))
            .max_by_key(|(_index, axis)| axis.extent)
            .map(|(index, _axis)| index)
            .map(|index| axes.remove(index));
        let Some(rows) = rows else {
            // SAFETY: [strided-copy] the caller's promise.
            return unsafe { self.parts(&axes, None, stream) };
        };
        // Unlike the plain copy, a pitched one wants a context to be current.
        let context = stream.context_inner()?;
        // SAFETY: [strided-copy] the caller's promise.
        scope::submit(context.raw(), "the copy", || unsafe { self.parts(&axes, Some(rows), stream) })
    }

    /// One call for each index of the axes.
    unsafe fn parts(&self, axes: &[Axis], rows: Option<Axis>, stream: &Stream) -> Outcome<()> {
        let mut submitted = 0_u64;
        let mut result = Ok(());
        each(axes, self.to, self.from, |to, from| {
            // SAFETY: [strided-copy] the caller's promise: each of these is a part of both tensors.
            result = unsafe {
                match rows {
                    None => call::memcpy_async(to, from, self.piece, stream.raw()),
                    Some(rows) => call::memcpy_2d_async(&self.pitched(to, from, rows), stream.raw()),
                }
            };
            submitted += 1;
            result.is_ok()
        });
        result.map_err(|failure| match submitted {
            0 | 1 => failure,
            _ => failure.note(format!("{} parts of the copy were submitted before", submitted - 1)),
        })
    }

    fn pitched(&self, to: u64, from: u64, rows: Axis) -> CUDA_MEMCPY2D {
        let bytes = |number: i64| usize::try_from(number).unwrap_or(0);
        let kind = |is_host| {
            if is_host { CUmemorytype::CU_MEMORYTYPE_HOST } else { CUmemorytype::CU_MEMORYTYPE_UNIFIED }
        };
        // Which of the two addresses is read, the kind says.
        CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: kind(self.from_is_host),
            srcHost: with_exposed_provenance(usize::try_from(from).unwrap_or(0)),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: bytes(rows.from),
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: kind(self.to_is_host),
            dstHost: with_exposed_provenance_mut(usize::try_from(to).unwrap_or(0)),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: bytes(rows.to),
            WidthInBytes: self.piece,
            Height: bytes(rows.extent),
        }
    }

    /// The host copies piece by piece. A side that is staging memory has no gaps.
    unsafe fn by_host(&self, to: u64, from: u64, sides: Side) {
        let mut axes = self.axes.clone();
        if sides != Side::Both {
            let mut step = self.piece_bytes();
            for axis in axes.iter_mut().rev() {
                match sides {
                    Side::From => axis.to = step,
                    Side::To => axis.from = step,
                    Side::Both => {}
                }
                step = step.saturating_mul(axis.extent);
            }
        }
        let inner = axes.pop().unwrap_or(Axis { extent: 1, to: 0, from: 0 });
        each(&axes, to, from, |to, from| {
            // SAFETY: [strided-copy] the caller's promise.
            unsafe {
                match self.piece {
                    1 => pieces::<1>(to, from, inner),
                    2 => pieces::<2>(to, from, inner),
                    4 => pieces::<4>(to, from, inner),
                    8 => pieces::<8>(to, from, inner),
                    16 => pieces::<16>(to, from, inner),
                    bytes => along(to, from, inner, |to, from| copy_nonoverlapping(from, to, bytes)),
                }
            }
            true
        });
    }
}

/// Which sides of a copy of the host's are strided, and not staging memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    From,
    To,
    Both,
}

fn finish(stream: &Stream) -> Outcome<()> {
    stream
        .synchronize()
        .map_err(|error| Failure::from(error).note("the copy itself was submitted; it is not certain that it is done"))
}

/// Waits for a copy from or to staging memory, also where the call returned an error: it may have been accepted all the
/// same. Where that fails the staging memory is leaked.
fn finish_after(copied: Outcome<()>, stream: &Stream, staging: &mut Vec<u8>) -> Outcome<()> {
    match (copied, finish(stream)) {
        (copied, Ok(())) => copied,
        (copied, Err(waiting)) => {
            let size = staging.capacity();
            let leaked = std::mem::ManuallyDrop::new(std::mem::take(staging));
            let failure = match copied {
                Ok(()) => waiting,
                Err(failure) => waiting.attach_to(failure, "the stream could not be waited for after this failure"),
            };
            if size == 0 {
                return Err(failure);
            }
            Err(failure.note(format!("{size} bytes of staging memory at {:p} are leaked", leaked.as_ptr())))
        }
    }
}

/// Calls for each index of some axes with the addresses there, until it is told to stop.
fn each(axes: &[Axis], to: u64, from: u64, mut call: impl FnMut(u64, u64) -> bool) {
    let mut index: SmallVec<[i64; 6]> = SmallVec::from_elem(0, axes.len());
    let (mut to, mut from) = (to, from);
    loop {
        if !call(to, from) {
            return;
        }
        let mut is_done = true;
        for (at, axis) in index.iter_mut().zip(axes).rev() {
            *at += 1;
            to = to.wrapping_add_signed(axis.to);
            from = from.wrapping_add_signed(axis.from);
            if *at < axis.extent {
                is_done = false;
                break;
            }
            *at = 0;
            to = to.wrapping_add_signed(axis.to.wrapping_mul(axis.extent).wrapping_neg());
            from = from.wrapping_add_signed(axis.from.wrapping_mul(axis.extent).wrapping_neg());
        }
        if is_done {
            return;
        }
    }
}

/// Copies pieces of a known size along an axis.
unsafe fn pieces<const N: usize>(to: u64, from: u64, axis: Axis) {
    // SAFETY: [strided-copy] the caller's promise; nothing is asked of the alignment.
    unsafe {
        along(to, from, axis, |to, from| to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()));
    }
}

#[inline]
unsafe fn along(to: u64, from: u64, axis: Axis, copy: impl Fn(*mut u8, *const u8)) {
    let address = |number: u64| usize::try_from(number).unwrap_or(0);
    let (mut to, mut from) =
        (with_exposed_provenance_mut::<u8>(address(to)), with_exposed_provenance::<u8>(address(from)));
    let step = |stride: i64| isize::try_from(stride).unwrap_or(0);
    for _ in 0..axis.extent {
        copy(to, from);
        to = to.wrapping_offset(step(axis.to));
        from = from.wrapping_offset(step(axis.from));
    }
}
