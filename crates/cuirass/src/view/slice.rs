//! Parts of a layout, by indices and slices as Python has them.

use super::layout::{Dims, StridedLayout, too_large, wrong};
use crate::{Outcome, Result};
use std::ops::{Range, RangeFull};

/// What is taken of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One element; the axis goes away. A negative index counts from the end.
    At(i64),
    /// Every `step`-th element from `start` on and before `stop`, as of a Python slice: negative ones count from the
    /// end, what is beyond the axis is cut off, and a negative step goes backwards.
    Slice {
        /// The first one; from the end that the step goes away from, if not given.
        start: Option<i64>,
        /// The one that is no longer taken; up to the other end, if not given.
        stop: Option<i64>,
        /// How far the next one is; not zero.
        step: i64,
    },
}

impl From<i64> for Index {
    fn from(index: i64) -> Index {
        Index::At(index)
    }
}

impl From<RangeFull> for Index {
    fn from(_all: RangeFull) -> Index {
        Index::Slice { start: None, stop: None, step: 1 }
    }
}

impl From<Range<i64>> for Index {
    fn from(range: Range<i64>) -> Index {
        Index::Slice { start: Some(range.start), stop: Some(range.end), step: 1 }
    }
}

impl StridedLayout {
    /// The layout of a part: an index or a slice for each axis from the first one on; further axes are left as they
    /// are. The part's first element is at its [`slice_offset`](Self::slice_offset). Strides are zero where a slice
    /// takes nothing.
    ///
    /// ```
    /// # use cuirass::view::{Index, StrideOrder, StridedLayout};
    /// # fn main() -> cuirass::Result<()> {
    /// let rows = StridedLayout::dense(&[4, 6], 4, StrideOrder::C)?;
    /// let part = rows.sliced(&[2.into(), Index::Slice { start: None, stop: None, step: -2 }])?;
    /// assert_eq!((part.shape(), part.strides(), part.slice_offset()), (&[3][..], Some(&[-2][..]), 17));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for more indices than axes, an index beyond its axis, a step of
    /// zero, and offsets or strides beyond 64 bits.
    pub fn sliced(&self, indices: &[Index]) -> Result<StridedLayout> {
        if indices.len() > self.ndim() {
            let message = format!("there are {} indices for {} dimensions", indices.len(), self.ndim());
            return Err(wrong(message).raise());
        }
        let (mut shape, mut strides) = (Dims::new(), Dims::new());
        let (mut offset, mut nothing_taken) = (self.slice_offset(), false);
        for (axis, (&extent, &stride)) in self.shape().iter().zip(self.effective_strides()).enumerate() {
            let start = match indices.get(axis) {
                None => {
                    shape.push(extent);
                    strides.push(stride);
                    continue;
                }
                Some(&Index::At(index)) => element(index, extent, axis)?,
                Some(&Index::Slice { start, stop, step }) => {
                    let (start, length) = taken(start, stop, step, extent)?;
                    // The stride of a single element says nothing.
                    let stepped = stride.checked_mul(step).or((length <= 1).then_some(stride));
                    shape.push(length);
                    strides.push(stepped.ok_or_else(|| too_large("a stride"))?);
                    nothing_taken |= length == 0;
                    if length == 0 { 0 } else { start }
                }
            };
            offset = start
                .checked_mul(stride)
                .and_then(|moved| offset.checked_add(moved))
                .ok_or_else(|| too_large("the slice offset"))?;
        }
        if nothing_taken {
            strides.fill(0);
        }
        Ok(StridedLayout::checked(shape, strides, self.itemsize(), offset)?)
    }
}

fn element(index: i64, extent: i64, axis: usize) -> Outcome<i64> {
    let from_start = if index < 0 { index.saturating_add(extent) } else { index };
    if from_start < 0 || from_start >= extent {
        return Err(wrong(format!("index {index} is out of range for axis {axis} with {extent} elements")));
    }
    Ok(from_start)
}

/// The first element of a slice, and how many there are.
fn taken(start: Option<i64>, stop: Option<i64>, step: i64, extent: i64) -> Outcome<(i64, i64)> {
    if step == 0 {
        return Err(wrong("the step of a slice must not be zero"));
    }
    let (lowest, highest) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let (from, to) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let place = |given: i64| {
        let from_start = if given < 0 { given.saturating_add(extent) } else { given };
        from_start.clamp(lowest, highest)
    };
    let (start, stop) = (start.map_or(from, place), stop.map_or(to, place));
    let (low, high) = if step > 0 { (start, stop) } else { (stop, start) };
    let length = if low < high { (high - low).unsigned_abs().div_ceil(step.unsigned_abs()) } else { 0 };
    // At most the extent.
    Ok((start, i64::try_from(length).unwrap_or(extent)))
}
