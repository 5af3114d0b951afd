//! The layout of a strided tensor: where each of its elements is, without the memory itself.

use crate::{Outcome, Result};
use cuirass_fault::{Failure, Misuse};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// A value for each dimension. Up to six are kept in place, without an allocation.
pub type Dims<T = i64> = SmallVec<[T; 6]>;

/// The dimensions that a layout may have: one bit each in the mask of
/// [`flattened_axis_mask`](StridedLayout::flattened_axis_mask).
pub const MAX_DIMS: usize = 64;

/// Which axes the strides of a dense layout grow along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrideOrder<'a> {
    /// From the last axis to the first, as in C.
    C,
    /// From the first axis to the last, as in Fortran.
    F,
    /// As in the layout that is copied.
    Keep,
    /// A permutation of the axes; the last one has the smallest stride. Negative axes count from the end.
    Axes(&'a [i64]),
}

/// Where the elements of a tensor are: its shape, its strides, the size of an element, and the offset of the first one.
///
/// Shape, strides and offsets count elements, not bytes, unless a name says otherwise. Strides may be zero (broadcast)
/// or negative. A layout makes no call and touches no memory.
///
/// The number of elements, and the place in bytes of each of them, fit in 64 bits with a sign: what would not is
/// refused when a layout is made, with [`ErrorKind::Value`](crate::ErrorKind::Value), by every function that makes
/// one. So is a layout of more than [`MAX_DIMS`] dimensions.
///
/// Two layouts are equal if they have the same shape, item size and offset, and the same strides, given or not.
///
/// ```
/// use cuirass::view::{StrideOrder, StridedLayout};
///
/// # fn main() -> cuirass::Result<()> {
/// let layout = StridedLayout::dense(&[5, 3, 7], 4, StrideOrder::C)?;
/// assert_eq!(layout.strides(), Some(&[21, 7, 1][..]));
/// assert_eq!(layout.required_size_in_bytes()?, 5 * 3 * 7 * 4);
/// assert!(layout.is_contiguous_c());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StridedLayout {
    shape: Dims,
    /// Those of a C-contiguous layout, where none were given.
    strides: Dims,
    strides_given: bool,
    itemsize: usize,
    slice_offset: i64,
    volume: i64,
    min_offset: i64,
    max_offset: i64,
}

impl StridedLayout {
    /// A layout of this shape and these strides, both in elements; without strides it is C-contiguous. `itemsize` is
    /// the size of an element in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a negative extent, as many strides as there are no axes, an
    /// item size of zero, and what does not fit in 64 bits.
    pub fn new(shape: &[i64], strides: Option<&[i64]>, itemsize: usize) -> Result<StridedLayout> {
        check_axes(strides.unwrap_or(shape).len())?;
        Ok(StridedLayout::of(shape, strides.map(Dims::from_slice), itemsize)?)
    }

    /// The same with strides in bytes.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for a stride that is no multiple of the item size.
    pub fn from_byte_strides(shape: &[i64], strides: Option<&[i64]>, itemsize: usize) -> Result<StridedLayout> {
        let size = checked_itemsize(itemsize)?;
        check_axes(strides.unwrap_or(shape).len())?;
        let mut given = strides.map(Dims::from_slice);
        for stride in given.iter_mut().flatten() {
            if *stride % size != 0 {
                let message = format!("a stride of {stride} bytes is no multiple of the item size, {size} bytes");
                return Err(wrong(message).raise());
            }
            *stride /= size;
        }
        Ok(StridedLayout::of(shape, given, itemsize)?)
    }

    /// A layout without gaps whose strides grow in this order. Those of an empty one are zero.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) as for [`new`](Self::new), for an order that is no permutation of
    /// the axes, and for [`StrideOrder::Keep`], as there is nothing to keep.
    pub fn dense(shape: &[i64], itemsize: usize, order: StrideOrder<'_>) -> Result<StridedLayout> {
        Ok(StridedLayout::dense_in(shape, itemsize, order)?)
    }

    /// A dense layout of the shape and item size of another one, which it is equal to if that has the order already.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an order that is no permutation of the axes, and where the
    /// other one repeats elements and writing them out does not fit in 64 bits.
    pub fn dense_like(other: &StridedLayout, order: StrideOrder<'_>) -> Result<StridedLayout> {
        let same = match order {
            StrideOrder::Keep => other.is_dense(),
            StrideOrder::C => other.slice_offset == 0 && other.is_contiguous_c(),
            StrideOrder::F => other.slice_offset == 0 && other.is_contiguous_f(),
            StrideOrder::Axes(_) => false,
        };
        if same {
            return Ok(other.clone());
        }
        let order = match order {
            StrideOrder::Keep => return Ok(StridedLayout::dense_along(&other.shape, other.itemsize, &other.order())?),
            order => order,
        };
        Ok(StridedLayout::dense_in(&other.shape, other.itemsize, order)?)
    }

    /// [`dense_like`](Self::dense_like) this layout.
    ///
    /// # Errors
    /// As [`dense_like`](Self::dense_like).
    pub fn to_dense(&self, order: StrideOrder<'_>) -> Result<StridedLayout> {
        StridedLayout::dense_like(self, order)
    }

    /// The number of elements along each axis.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The distance in elements between neighbours along each axis, where strides were given.
    pub fn strides(&self) -> Option<&[i64]> {
        self.strides_given.then_some(&*self.strides)
    }

    /// The strides in elements, given or those of a C-contiguous layout.
    pub fn effective_strides(&self) -> &[i64] {
        &self.strides
    }

    /// The strides in bytes, where strides were given.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) if one does not fit in 64 bits: that of an axis of one element
    /// may be anything.
    pub fn strides_in_bytes(&self) -> Result<Option<Dims>> {
        if !self.strides_given {
            return Ok(None);
        }
        let size = checked_itemsize(self.itemsize)?;
        let mut strides = self.strides.clone();
        for stride in &mut strides {
            *stride = stride.checked_mul(size).ok_or_else(|| too_large("a stride in bytes"))?;
        }
        Ok(Some(strides))
    }

    /// The size of an element in bytes.
    pub fn itemsize(&self) -> usize {
        self.itemsize
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements: the product of the shape, 1 without dimensions.
    pub fn volume(&self) -> i64 {
        self.volume
    }

    /// The offset in elements of the element at index 0 of every axis. Only slicing makes it other than zero.
    pub fn slice_offset(&self) -> i64 {
        self.slice_offset
    }

    /// [`slice_offset`](Self::slice_offset) in bytes.
    pub fn slice_offset_in_bytes(&self) -> i64 {
        // Both were checked when the layout was made.
        self.slice_offset.saturating_mul(i64::try_from(self.itemsize).unwrap_or(i64::MAX))
    }

    /// The axes from the largest stride to the smallest, regardless of their signs; of two equal ones the axis with
    /// more elements comes first, and of two that are alike in this too the first one.
    pub fn stride_order(&self) -> Dims<usize> {
        self.order()
    }

    /// The lowest and the highest offset of an element, in elements; `(0, -1)` of an empty layout.
    pub fn offset_bounds(&self) -> (i64, i64) {
        (self.min_offset, self.max_offset)
    }

    /// The lowest offset of an element, in elements.
    pub fn min_offset(&self) -> i64 {
        self.min_offset
    }

    /// The highest offset of an element, in elements.
    pub fn max_offset(&self) -> i64 {
        self.max_offset
    }

    /// Whether its elements follow each other without gaps, the last axis fastest. Strides of axes with one element
    /// say nothing, and an empty layout is contiguous.
    pub fn is_contiguous_c(&self) -> bool {
        self.is_contiguous_along((0..self.ndim()).rev())
    }

    /// Whether its elements follow each other without gaps, the first axis fastest.
    pub fn is_contiguous_f(&self) -> bool {
        self.is_contiguous_along(0..self.ndim())
    }

    /// Whether its elements follow each other without gaps in some order of the axes.
    pub fn is_contiguous_any(&self) -> bool {
        self.is_contiguous_c() || self.is_contiguous_f() || {
            let mut axes: Dims<usize> = (0..self.ndim()).filter(|&axis| self.shape[axis] > 1).collect();
            axes.sort_unstable_by_key(|&axis| self.strides[axis]);
            self.is_contiguous_along(axes.into_iter())
        }
    }

    /// Whether it is contiguous in some order and its first element is at offset 0.
    pub fn is_dense(&self) -> bool {
        self.slice_offset == 0 && self.is_contiguous_any()
    }

    /// The bytes of memory that hold all its elements, the memory beginning at offset 0.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) if some element lies before offset 0.
    pub fn required_size_in_bytes(&self) -> Result<usize> {
        if self.min_offset < 0 {
            let message = format!(
                "no size of memory is enough: an element lies at offset {}, before the beginning",
                self.min_offset
            );
            return Err(wrong(message).raise());
        }
        let items = usize::try_from(self.max_offset + 1).map_err(|_range| too_large("the size"))?;
        Ok(items.checked_mul(self.itemsize).ok_or_else(|| too_large("the size"))?)
    }
}

impl StridedLayout {
    fn of(shape: &[i64], strides: Option<Dims>, itemsize: usize) -> Outcome<StridedLayout> {
        if let Some(strides) = &strides
            && strides.len() != shape.len()
        {
            let message = format!("there are {} strides for {} dimensions", strides.len(), shape.len());
            return Err(wrong(message));
        }
        match strides {
            Some(strides) => StridedLayout::checked(Dims::from_slice(shape), strides, itemsize, 0),
            None => {
                let strides = dense_strides(shape, (0..shape.len()).rev())?;
                let mut layout = StridedLayout::checked(Dims::from_slice(shape), strides, itemsize, 0)?;
                layout.strides_given = false;
                Ok(layout)
            }
        }
    }

    fn dense_in(shape: &[i64], itemsize: usize, order: StrideOrder<'_>) -> Outcome<StridedLayout> {
        let ndim = shape.len();
        let strides = match order {
            StrideOrder::C => dense_strides(shape, (0..ndim).rev())?,
            StrideOrder::F => dense_strides(shape, 0..ndim)?,
            StrideOrder::Axes(axes) => {
                check_axes(ndim)?;
                return StridedLayout::dense_along(shape, itemsize, &permutation(axes, ndim, "stride order")?);
            }
            StrideOrder::Keep => return Err(wrong("there is no layout whose stride order could be kept")),
        };
        StridedLayout::checked(Dims::from_slice(shape), strides, itemsize, 0)
    }

    fn dense_along(shape: &[i64], itemsize: usize, axes: &[usize]) -> Outcome<StridedLayout> {
        let strides = dense_strides(shape, axes.iter().rev().copied())?;
        StridedLayout::checked(Dims::from_slice(shape), strides, itemsize, 0)
    }

    /// The one place where a layout is made, with all that it promises checked.
    pub(super) fn checked(shape: Dims, strides: Dims, itemsize: usize, slice_offset: i64) -> Outcome<StridedLayout> {
        let size = checked_itemsize(itemsize)?;
        let volume = volume_of(&shape)?;
        let (mut min_offset, mut max_offset) = (0, -1);
        if volume > 0 {
            // Neither sum overflows: the extents' product fits in 64 bits, and their sum is not much more.
            let (mut min, mut max) = (i128::from(slice_offset), i128::from(slice_offset));
            for (&extent, &stride) in shape.iter().zip(&strides) {
                // Between elements on both sides of the origin a stride can be twice as much as either offset.
                if extent > 1 && stride.checked_mul(size).is_none() {
                    return Err(too_large("a stride in bytes"));
                }
                let reach = i128::from(extent - 1) * i128::from(stride);
                *if reach < 0 { &mut min } else { &mut max } += reach;
            }
            let fits = |offset: i128| i64::try_from(offset).ok().filter(|offset| offset.checked_mul(size).is_some());
            (min_offset, max_offset) = fits(min)
                .zip(fits(max))
                .ok_or_else(|| too_large("the offset of an element of this layout, in bytes,"))?;
        }
        if slice_offset.checked_mul(size).is_none() {
            return Err(too_large("the slice offset in bytes"));
        }
        Ok(StridedLayout {
            shape,
            strides,
            strides_given: true,
            itemsize,
            slice_offset,
            volume,
            min_offset,
            max_offset,
        })
    }

    fn order(&self) -> Dims<usize> {
        let mut axes: Dims<usize> = (0..self.ndim()).collect();
        if self.strides_given {
            axes.sort_by_key(|&axis| Reverse((self.strides[axis].unsigned_abs(), self.shape[axis])));
        }
        axes
    }

    fn is_contiguous_along(&self, from_fastest: impl Iterator<Item = usize>) -> bool {
        let mut expected = 1;
        self.volume == 0
            || from_fastest.filter(|&axis| self.shape[axis] > 1).all(|axis| {
                let fits = self.strides[axis] == expected;
                // At most the volume, as long as the strides are as expected.
                expected = expected.wrapping_mul(self.shape[axis]);
                fits
            })
    }
}

fn checked_itemsize(itemsize: usize) -> Outcome<i64> {
    match i64::try_from(itemsize) {
        Ok(size) if size > 0 => Ok(size),
        Ok(_) => Err(wrong("the item size must be positive")),
        Err(_) => Err(too_large("the item size")),
    }
}

/// The product of the extents, which are checked.
pub(super) fn volume_of(shape: &[i64]) -> Outcome<i64> {
    check_axes(shape.len())?;
    if let Some(extent) = shape.iter().find(|extent| **extent < 0) {
        return Err(wrong(format!("an extent must not be negative, got {extent}")));
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let volume = shape.iter().try_fold(1_i64, |volume, &extent| volume.checked_mul(extent));
    volume.ok_or_else(|| too_large("the number of elements"))
}

/// Before anything has as many numbers.
fn check_axes(count: usize) -> Outcome<()> {
    if count <= MAX_DIMS {
        return Ok(());
    }
    Err(wrong(format!("{count} dimensions are too many: a layout has at most {MAX_DIMS}")))
}

/// Strides without gaps; zeros for an empty shape.
fn dense_strides(shape: &[i64], from_fastest: impl Iterator<Item = usize>) -> Outcome<Dims> {
    let volume = volume_of(shape)?;
    let mut strides = Dims::from_elem(0, shape.len());
    if volume > 0 {
        let mut next = 1;
        for axis in from_fastest {
            strides[axis] = next;
            // At most the volume.
            next *= shape[axis];
        }
    }
    Ok(strides)
}

/// An axis that may count from the end.
pub(super) fn axis_of(axis: i64, ndim: usize) -> Outcome<usize> {
    let from_start = if axis < 0 { axis.checked_add_unsigned(ndim as u64) } else { Some(axis) };
    from_start
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|axis| *axis < ndim)
        .ok_or_else(|| wrong(format!("axis {axis} is out of range for {ndim} dimensions")))
}

/// A permutation of the axes, which may count from the end.
pub(super) fn permutation(axes: &[i64], ndim: usize, what: &str) -> Outcome<Dims<usize>> {
    if axes.len() != ndim {
        return Err(wrong(format!("the {what} has {} axes for {ndim} dimensions", axes.len())));
    }
    let mut seen = 0_u64;
    let mut order = Dims::from_elem(0, ndim);
    for (place, &axis) in order.iter_mut().zip(axes) {
        *place = axis_of(axis, ndim)?;
        take_once(&mut seen, *place)?;
    }
    Ok(order)
}

/// Marks an axis, below [`MAX_DIMS`], that may be named once.
pub(super) fn take_once(seen: &mut u64, axis: usize) -> Outcome<()> {
    let bit = 1_u64 << axis;
    if *seen & bit != 0 {
        return Err(wrong(format!("axis {axis} is named twice")));
    }
    *seen |= bit;
    Ok(())
}

#[cold]
pub(super) fn wrong(message: impl Into<String>) -> Failure {
    Failure::misuse(Misuse::Value, message)
}

#[cold]
pub(super) fn too_large(what: &str) -> Failure {
    wrong(format!("{what} does not fit in 64 bits"))
}
