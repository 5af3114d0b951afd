//! Copies of rows and of slices of rows.

use super::{Buffer, explained, passed, refuse_in_capture};
use crate::graph::recording;
use crate::stream::Stream;
use crate::{Outcome, Result};
use bytemuck::Pod;
use cuirass_call::memory::buffer as call;
use cuirass_call::sys::cuda::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUmemorytype};
use cuirass_fault::{Failure, Misuse};

/// How much is copied: rows of bytes, and slices of rows. 2-D copies have a depth of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyExtent {
    /// Bytes in a row.
    pub width: usize,
    /// Rows in a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

impl CopyExtent {
    fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

/// How the rows of one side of a copy lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pitched {
    /// The first byte.
    pub offset: usize,
    /// Bytes from row to row; 0 for rows without gaps.
    pub pitch: usize,
    /// Rows from slice to slice; 0 for slices without gaps.
    pub rows: usize,
}

impl Pitched {
    /// As it is with pitch and rows filled in, where it fits into so many bytes.
    fn within(self, bytes: usize, extent: CopyExtent, what: &str) -> Outcome<Pitched> {
        let pitch = if self.pitch == 0 { extent.width } else { self.pitch };
        let rows = if self.rows == 0 { extent.height } else { self.rows };
        if extent.height.max(extent.depth) > 1 && pitch < extent.width {
            return Err(Failure::misuse(
                Misuse::Value,
                format!("rows of {what} would overlap: they have {} bytes and begin every {pitch}", extent.width),
            ));
        }
        if extent.depth > 1 && rows < extent.height {
            return Err(Failure::misuse(
                Misuse::Value,
                format!("slices of {what} would overlap: they have {} rows and begin every {rows}", extent.height),
            ));
        }
        let end = (|| {
            if extent.is_empty() {
                return Some(self.offset);
            }
            let slices = pitch.checked_mul(rows)?.checked_mul(extent.depth - 1)?;
            let last = pitch.checked_mul(extent.height - 1)?.checked_add(extent.width)?;
            self.offset.checked_add(slices)?.checked_add(last)
        })();
        match end {
            Some(end) if end <= bytes => Ok(Pitched { pitch, rows, ..self }),
            end => {
                let end = end.map_or_else(|| "a byte past the address space".to_owned(), |end| format!("byte {end}"));
                Err(Failure::misuse(Misuse::Value, format!("{what} has {bytes} bytes, the copy would end at {end}")))
            }
        }
    }
}

/// One side of a copy, checked.
struct Side {
    kind: CUmemorytype,
    address: u64,
    lies: Pitched,
}

impl Side {
    fn of_buffer(buffer: &Buffer, lies: Pitched, extent: CopyExtent, what: &str) -> Outcome<Side> {
        let lies = lies.within(buffer.len(), extent, what)?;
        Ok(Side { kind: CUmemorytype::CU_MEMORYTYPE_UNIFIED, address: buffer.as_raw(), lies })
    }

    fn of_slice(address: usize, bytes: usize, lies: Pitched, extent: CopyExtent) -> Outcome<Side> {
        let lies = lies.within(bytes, extent, "the slice")?;
        Ok(Side { kind: CUmemorytype::CU_MEMORYTYPE_HOST, address: address as u64, lies })
    }

    fn start(&self) -> u64 {
        self.address + self.lies.offset as u64
    }

    fn host(&self) -> *mut std::ffi::c_void {
        if self.kind == CUmemorytype::CU_MEMORYTYPE_HOST {
            std::ptr::with_exposed_provenance_mut(usize::try_from(self.start()).unwrap_or(0))
        } else {
            std::ptr::null_mut()
        }
    }

    fn device(&self) -> u64 {
        if self.kind == CUmemorytype::CU_MEMORYTYPE_HOST { 0 } else { self.start() }
    }
}

/// The rows of one side: where the first begins, and how far rows and slices are apart. Both sides have as many.
#[derive(Clone, Copy)]
struct Rows {
    start: i128,
    pitch: i128,
    slice: i128,
}

impl Rows {
    fn of(side: &Side) -> Rows {
        let pitch = side.lies.pitch as i128;
        Rows { start: i128::from(side.start()), pitch, slice: pitch * side.lies.rows as i128 }
    }

    fn end(self, extent: CopyExtent) -> i128 {
        self.start
            + self.slice * (extent.depth as i128 - 1)
            + self.pitch * (extent.height as i128 - 1)
            + extent.width as i128
    }

    /// The beginnings, in the order of the addresses.
    fn starts(self, extent: CopyExtent) -> impl Iterator<Item = i128> {
        let slices = (0..extent.depth as i128).map(move |slice| self.start + slice * self.slice);
        slices.flat_map(move |start| (0..extent.height as i128).map(move |row| start + row * self.pitch))
    }
}

/// Whether a byte is in a row of both sides. Rows of one may lie between those of the other.
fn meet(one: Rows, other: Rows, extent: CopyExtent) -> bool {
    if extent.is_empty() || one.end(extent) <= other.start || other.end(extent) <= one.start {
        return false;
    }
    let width = extent.width as i128;
    if (one.pitch, one.slice) == (other.pitch, other.slice) {
        // Two rows as many slices and rows apart as makes up for the distance, or nearly: what is beside that is farther.
        let near = |distance: i128, step: i128, count: usize| {
            let most = count as i128 - 1;
            let nearest = if step == 0 { 0 } else { distance.div_euclid(step) };
            [nearest, nearest + 1].map(|steps| distance - steps.clamp(-most, most) * step)
        };
        let rests = near(one.start - other.start, one.slice, extent.depth);
        return rests.iter().flat_map(|rest| near(*rest, one.pitch, extent.height)).any(|rest| rest.abs() < width);
    }
    let (mut left, mut right) = (one.starts(extent).peekable(), other.starts(extent).peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        if (one - other).abs() < width {
            return true;
        }
        if one < other {
            left.next()
        } else {
            right.next()
        };
    }
    false
}

/// # Safety
/// As [`Buffer::copy_pitched_from_unordered`], of both sides, which were checked.
unsafe fn submit(to: &Side, from: &Side, extent: CopyExtent, stream: &Stream) -> Outcome<()> {
    if extent.is_empty() {
        return Ok(());
    }
    if extent.depth == 1 {
        // Measured: the driver wants a pitch of the width, even where there is but one row.
        let pitch = |side: &Side| if extent.height == 1 { side.lies.pitch.max(extent.width) } else { side.lies.pitch };
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: from.kind,
            srcHost: from.host(),
            srcDevice: from.device(),
            srcPitch: pitch(from),
            dstMemoryType: to.kind,
            dstHost: to.host(),
            dstDevice: to.device(),
            dstPitch: pitch(to),
            WidthInBytes: extent.width,
            Height: extent.height,
            ..CUDA_MEMCPY2D::default()
        };
        // SAFETY: [stream-ordered-copy] the caller's promise; the rows lie in both sides.
        return unsafe { call::memcpy_2d_async(&copy, stream.raw()) };
    }
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: from.kind,
        srcHost: from.host(),
        srcDevice: from.device(),
        srcPitch: from.lies.pitch,
        srcHeight: from.lies.rows,
        dstMemoryType: to.kind,
        dstHost: to.host(),
        dstDevice: to.device(),
        dstPitch: to.lies.pitch,
        dstHeight: to.lies.rows,
        WidthInBytes: extent.width,
        Height: extent.height,
        Depth: extent.depth,
        ..CUDA_MEMCPY3D::default()
    };
    // SAFETY: [stream-ordered-copy] the caller's promise; the slices lie in both sides.
    unsafe { call::memcpy_3d_async(&copy, stream.raw()) }
}

impl Buffer {
    /// Copies rows of another buffer, in stream order (`cuMemcpy2DAsync`, or `cuMemcpy3DAsync` for several slices). The
    /// stream must be the one that orders the release of both.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for rows that lie outside of a buffer or overlap one another, and
    /// for a byte that is both read and written: rows of the one may lie between those of the other.
    /// [`ErrorKind::State`](crate::ErrorKind::State) for another stream; what the driver answers.
    pub fn copy_pitched_from(
        &self,
        to: Pitched,
        source: &Buffer,
        from: Pitched,
        extent: CopyExtent,
        stream: &Stream,
    ) -> Result<()> {
        self.check_ordered(stream)?;
        source.check_ordered(stream)?;
        // SAFETY: [stream-ordered-copy] both releases come after the copy on this stream.
        unsafe { self.copy_pitched_from_unordered(to, source, from, extent, stream) }
    }

    /// As [`copy_pitched_from`](Buffer::copy_pitched_from), on any stream.
    ///
    /// # Errors
    /// As there, but for the other stream.
    ///
    /// # Safety
    /// Neither buffer is released before the stream has passed the copy, and nothing unordered with it touches them.
    pub unsafe fn copy_pitched_from_unordered(
        &self,
        to: Pitched,
        source: &Buffer,
        from: Pitched,
        extent: CopyExtent,
        stream: &Stream,
    ) -> Result<()> {
        let to = Side::of_buffer(self, to, extent, "the target")?;
        let from = Side::of_buffer(source, from, extent, "the source")?;
        if meet(Rows::of(&to), Rows::of(&from), extent) {
            let text = "the source and the target overlap: what would be copied is not specified";
            return Err(Failure::misuse(Misuse::Value, text).raise());
        }
        // SAFETY: [stream-ordered-copy] the caller's promise; both sides were checked.
        let copied = unsafe { submit(&to, &from, extent, stream) };
        // Whatever the answer: the node may be there even where the call returns an error.
        if recording::any() {
            self.attach(stream);
            source.attach(stream);
        }
        Ok(copied.map_err(|failure| explained(failure, [self, source], stream))?)
    }

    /// Copies rows of a slice. It is done when this returns. Offsets and pitches are in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for rows that lie outside of the buffer or of the slice, or overlap
    /// one another, [`ErrorKind::State`](crate::ErrorKind::State) while a graph builder captures the stream; what the
    /// driver answers.
    pub fn copy_pitched_from_slice<T: Pod>(
        &self,
        to: Pitched,
        values: &[T],
        from: Pitched,
        extent: CopyExtent,
        stream: &Stream,
    ) -> Result<()> {
        let to = Side::of_buffer(self, to, extent, "the buffer")?;
        let from = Side::of_slice(values.as_ptr().expose_provenance(), size_of_val(values), from, extent)?;
        refuse_in_capture(stream, "a slice")?;
        // SAFETY: [borrowed-host-memory] the slice is borrowed until the stream has been waited for.
        let copied = unsafe { submit(&to, &from, extent, stream) };
        passed(copied, stream)
    }

    /// Copies rows into a slice. It is done when this returns. Offsets and pitches are in bytes.
    ///
    /// # Errors
    /// As [`copy_pitched_from_slice`](Buffer::copy_pitched_from_slice).
    pub fn copy_pitched_to_slice<T: Pod>(
        &self,
        from: Pitched,
        values: &mut [T],
        to: Pitched,
        extent: CopyExtent,
        stream: &Stream,
    ) -> Result<()> {
        let from = Side::of_buffer(self, from, extent, "the buffer")?;
        let to = Side::of_slice(values.as_mut_ptr().expose_provenance(), size_of_val(values), to, extent)?;
        refuse_in_capture(stream, "a slice")?;
        // SAFETY: [borrowed-host-memory] the slice is borrowed until the stream has been waited for; `T` is plain.
        let copied = unsafe { submit(&to, &from, extent, stream) };
        passed(copied, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Held against the bytes themselves, for every small copy.
    #[test]
    fn rows_meet_where_their_bytes_do() {
        let bytes = |rows: Rows, extent: CopyExtent| -> HashSet<i128> {
            let width = extent.width as i128;
            rows.starts(extent).flat_map(|start| start..start + width).collect()
        };
        let (mut met, mut apart) = (0, 0);
        for (width, height, depth) in [(1, 1, 1), (3, 1, 1), (2, 3, 1), (3, 2, 2), (1, 2, 3), (2, 1, 3), (0, 2, 2)] {
            let extent = CopyExtent { width, height, depth };
            let sides: Vec<(i128, i128)> = (0..4)
                .flat_map(|gap| (0..3).map(move |rows| (gap, rows)))
                .map(|(gap, rows)| (width as i128 + gap, (width as i128 + gap) * (height as i128 + rows)))
                .collect();
            for &(pitch, slice) in &sides {
                for &(other_pitch, other_slice) in &sides {
                    for start in 0..40 {
                        let one = Rows { start: 100, pitch, slice };
                        let other = Rows { start: 90 + start, pitch: other_pitch, slice: other_slice };
                        let shared = bytes(one, extent).intersection(&bytes(other, extent)).count() > 0;
                        assert_eq!(meet(one, other, extent), shared, "{extent:?} {pitch} {slice} {start}");
                        assert_eq!(meet(other, one, extent), shared);
                        *if shared { &mut met } else { &mut apart } += 1;
                    }
                }
            }
        }
        assert!(met > 1000 && apart > 1000, "{met} {apart}");
    }
}
