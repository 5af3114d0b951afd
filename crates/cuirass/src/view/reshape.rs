//! The same elements under other axes.

use super::layout::{Dims, MAX_DIMS, StridedLayout, axis_of, permutation, take_once, volume_of, wrong};
use crate::{Outcome, Result};

impl StridedLayout {
    /// Which axes can be merged with the one before them: bit `axis` of the result. Masks of several layouts with as
    /// many dimensions, combined with `&`, say what can be merged in all of them; see [`flattened`](Self::flattened).
    pub fn flattened_axis_mask(&self) -> u64 {
        mergeable(self.shape(), self.effective_strides())
    }

    /// Axes merged with those before them wherever one stride serves for both, the last axis running fastest: those
    /// between `start_axis` and `end_axis`, both included and counted from the end if negative, or those of a mask
    /// instead. Without dimensions it becomes one axis of one element.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an axis that is not there, and for an extent beyond 64 bits.
    pub fn flattened(&self, start_axis: i64, end_axis: i64, mask: Option<u64>) -> Result<StridedLayout> {
        let ndim = self.ndim();
        let wanted = match mask {
            Some(mask) => mask,
            None if ndim == 0 && (start_axis, end_axis) == (0, -1) => 0,
            None => {
                let (start, end) = (axis_of(start_axis, ndim)?, axis_of(end_axis, ndim)?);
                (start + 1..=end).fold(0, |mask, axis| mask | 1 << axis)
            }
        };
        if ndim == 0 {
            return Ok(self.with(Dims::from_slice(&[1]), Dims::from_slice(&[1]))?);
        }
        let (shape, strides) = merged(self.shape(), self.effective_strides(), wanted & self.flattened_axis_mask())?;
        Ok(self.with(shape, strides)?)
    }

    /// The same elements in the same order (the last axis running fastest) under another shape. One extent may be -1:
    /// it is what the others leave.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for another number of elements, an extent of -1 that is not
    /// determined, and where the elements would have to be copied because no strides are theirs.
    pub fn reshaped(&self, shape: &[i64]) -> Result<StridedLayout> {
        let shape = self.completed(shape)?;
        if self.volume() == 0 {
            let strides = Dims::from_elem(0, shape.len());
            return Ok(self.with(shape, strides)?);
        }
        let strides = self.strides_for(&shape)?;
        Ok(self.with(shape, strides)?)
    }

    /// A shape of the same number of elements, with its -1 replaced.
    fn completed(&self, shape: &[i64]) -> Outcome<Dims> {
        let volume = self.volume();
        let mut completed = Dims::from_slice(shape);
        let mut open = completed.iter_mut().filter(|extent| **extent == -1);
        if let Some(extent) = open.next() {
            if open.next().is_some() {
                return Err(wrong("only one extent can be -1"));
            }
            *extent = 1;
            let others = volume_of(&completed)?;
            if others == 0 {
                return Err(wrong("an extent of -1 beside one of 0 could be any"));
            }
            if volume % others != 0 {
                return Err(wrong(format!("{volume} elements cannot be arranged in {shape:?}")));
            }
            for (completed, given) in completed.iter_mut().zip(shape) {
                if *given == -1 {
                    *completed = volume / others;
                }
            }
        }
        let wanted = volume_of(&completed)?;
        if wanted != volume {
            return Err(wrong(format!("the shape {shape:?} has {wanted} elements, the layout {volume}")));
        }
        Ok(completed)
    }

    /// The strides of another shape of as many elements, at least one.
    fn strides_for(&self, shape: &[i64]) -> Outcome<Dims> {
        // Axes of one element do not matter; what can be merged is, and split again as the shape wants it.
        let (extents, steps) = self.long_axes();
        let (extents, steps) = merged(&extents, &steps, mergeable(&extents, &steps))?;
        let mut groups = extents.iter().zip(&steps).rev();
        let mut left = 1;
        let mut stride = self.effective_strides().last().copied().unwrap_or(1);
        let mut strides = Dims::from_elem(0, shape.len());
        for (axis, &extent) in shape.iter().enumerate().rev() {
            if extent != 1 && left == 1 {
                (left, stride) = groups.next().map_or((1, stride), |(extent, stride)| (*extent, *stride));
            }
            if left % extent != 0 {
                return Err(wrong(format!(
                    "the shape {:?} with strides {:?} cannot become {shape:?} without copying the elements",
                    self.shape(),
                    self.effective_strides()
                )));
            }
            strides[axis] = stride;
            stride = stride_beyond(stride, extent);
            left /= extent;
        }
        Ok(strides)
    }

    /// The axes in another order, which may count from the end.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for what is no permutation of the axes.
    pub fn permuted(&self, axis_order: &[i64]) -> Result<StridedLayout> {
        let order = permutation(axis_order, self.ndim(), "permutation")?;
        let (mut shape, mut strides) = (Dims::from_elem(0, order.len()), Dims::from_elem(0, order.len()));
        for (place, &axis) in order.iter().enumerate() {
            (shape[place], strides[place]) = (self.shape()[axis], self.effective_strides()[axis]);
        }
        Ok(self.with(shape, strides)?)
    }

    /// Without the axes of one element. An empty layout becomes one axis of no elements.
    ///
    /// # Errors
    /// None; it is a `Result` as all functions that make layouts.
    pub fn squeezed(&self) -> Result<StridedLayout> {
        if self.volume() == 0 {
            return Ok(self.with(Dims::from_slice(&[0]), Dims::from_slice(&[0]))?);
        }
        let (shape, strides) = self.long_axes();
        Ok(self.with(shape, strides)?)
    }

    /// With axes of one element at these places of the new shape, which may count from its end.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an axis beyond the new shape or named twice.
    pub fn unsqueezed(&self, axes: &[i64]) -> Result<StridedLayout> {
        if axes.is_empty() {
            return Ok(self.clone());
        }
        let ndim = self.ndim() + axes.len();
        if ndim > MAX_DIMS {
            return Err(wrong(format!("{ndim} dimensions are too many: a layout has at most {MAX_DIMS}")).raise());
        }
        let mut added = 0_u64;
        for &axis in axes {
            take_once(&mut added, axis_of(axis, ndim)?)?;
        }
        let (mut shape, mut strides) = (Dims::from_elem(1, ndim), Dims::from_elem(0, ndim));
        let mut old = self.shape().iter().zip(self.effective_strides()).rev();
        let mut beyond = self.effective_strides().last().copied().unwrap_or(1);
        for axis in (0..ndim).rev() {
            (shape[axis], strides[axis]) = match added & (1 << axis) {
                0 => old.next().map_or((1, beyond), |(extent, stride)| (*extent, *stride)),
                _ => (1, beyond),
            };
            beyond = stride_beyond(strides[axis], shape[axis]);
        }
        Ok(self.with(shape, strides)?)
    }

    /// With axes of one element, and new axes before the first one, repeated to this shape: by strides of zero.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for fewer dimensions, and an extent that is neither the old one
    /// nor takes the place of one element.
    pub fn broadcast_to(&self, shape: &[i64]) -> Result<StridedLayout> {
        let Some(added) = shape.len().checked_sub(self.ndim()) else {
            let message = format!("{} dimensions cannot be broadcast to {}", self.ndim(), shape.len());
            return Err(wrong(message).raise());
        };
        let mut strides = Dims::from_elem(0, shape.len());
        for (axis, &extent) in self.shape().iter().enumerate() {
            let wanted = shape[added + axis];
            if wanted == extent {
                strides[added + axis] = self.effective_strides()[axis];
            } else if extent != 1 {
                let message = format!("{extent} elements of axis {axis} cannot be broadcast to {wanted}");
                return Err(wrong(message).raise());
            }
        }
        Ok(self.with(Dims::from_slice(shape), strides)?)
    }

    /// The axes of other than one element.
    fn long_axes(&self) -> (Dims, Dims) {
        let (mut shape, mut strides) = (Dims::new(), Dims::new());
        for (&extent, &stride) in self.shape().iter().zip(self.effective_strides()) {
            if extent != 1 {
                shape.push(extent);
                strides.push(stride);
            }
        }
        (shape, strides)
    }

    /// Another shape and strides, with the same item size and offset.
    fn with(&self, shape: Dims, strides: Dims) -> Outcome<StridedLayout> {
        StridedLayout::checked(shape, strides, self.itemsize(), self.slice_offset())
    }
}

/// The axes that one stride serves for together with those before them, as bits.
fn mergeable(shape: &[i64], strides: &[i64]) -> u64 {
    (1..shape.len())
        .filter(|&axis| strides[axis].checked_mul(shape[axis]) == Some(strides[axis - 1]))
        .fold(0, |mask, axis| mask | 1 << axis)
}

/// Axes whose bit is set, merged with those before them.
fn merged(shape: &[i64], strides: &[i64], mask: u64) -> Outcome<(Dims, Dims)> {
    let (mut extents, mut steps) = (Dims::new(), Dims::new());
    let mut first = 0;
    for axis in 1..=shape.len() {
        if axis < shape.len() && mask & (1 << axis) != 0 {
            continue;
        }
        extents.push(volume_of(&shape[first..axis])?);
        steps.push(strides[axis - 1]);
        first = axis;
    }
    Ok((extents, steps))
}

/// The stride of an axis of one element before one of these: any would do.
fn stride_beyond(stride: i64, extent: i64) -> i64 {
    stride.checked_mul(extent).unwrap_or(stride)
}
