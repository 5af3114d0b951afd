//! The same bytes as elements of another size.

use super::layout::{Dims, StridedLayout, axis_of, too_large, wrong};
use super::overlap::gcd;
use crate::{Outcome, Result};

impl StridedLayout {
    /// The same bytes as elements of another size, which is a multiple of the old one or divides it: along `axis`, whose
    /// elements are next to each other, several become one or one becomes several. The axis may count from the end.
    /// With `keep_dim` false the axis goes away if a single larger element is left of it.
    ///
    /// `data_ptr` is the address of the memory, which larger elements have to be aligned to; 0 if it is not known.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) if neither size is a multiple of the other one, if the axis is not
    /// there, is empty or has a stride other than 1; and for larger elements, if their size in old ones does not divide
    /// the axis's extent, each other stride and the slice offset, or the address is not aligned.
    pub fn repacked(&self, itemsize: usize, data_ptr: usize, axis: i64, keep_dim: bool) -> Result<StridedLayout> {
        let old = self.itemsize();
        if itemsize == old {
            return Ok(self.clone());
        }
        if itemsize == 0 || !(itemsize.is_multiple_of(old) || old.is_multiple_of(itemsize)) {
            let message =
                format!("elements of {old} bytes cannot become ones of {itemsize}: neither divides the other");
            return Err(wrong(message).raise());
        }
        let axis = axis_of(axis, self.ndim())?;
        if self.shape()[axis] == 0 {
            return Err(wrong(format!("axis {axis} is empty, it cannot be repacked")).raise());
        }
        if self.effective_strides()[axis] != 1 {
            let stride = self.effective_strides()[axis];
            return Err(wrong(format!("the stride of axis {axis} must be 1, it is {stride}")).raise());
        }
        if itemsize < old {
            return Ok(self.unpacked(itemsize, axis)?);
        }
        if !data_ptr.is_multiple_of(itemsize) {
            let message = format!("the address {data_ptr:#x} is not aligned to elements of {itemsize} bytes");
            return Err(wrong(message).raise());
        }
        Ok(self.packed(itemsize, axis, keep_dim)?)
    }

    fn packed(&self, itemsize: usize, axis: usize, keep_dim: bool) -> Outcome<StridedLayout> {
        let factor = i64::try_from(itemsize / self.itemsize()).map_err(|_range| too_large("the item size"))?;
        let divided = |what: &str, value: i64| match value % factor {
            0 => Ok(value / factor),
            _ => Err(wrong(format!("{what} is {value}, which {factor} old elements in a new one do not divide"))),
        };
        let (mut shape, mut strides) = (Dims::from_slice(self.shape()), Dims::new());
        shape[axis] = divided("the extent of the axis", shape[axis])?;
        for (other, &stride) in self.effective_strides().iter().enumerate() {
            strides.push(if other == axis { 1 } else { divided("another axis's stride", stride)? });
        }
        let offset = divided("the slice offset", self.slice_offset())?;
        if !keep_dim && shape[axis] == 1 {
            shape.remove(axis);
            strides.remove(axis);
        }
        StridedLayout::checked(shape, strides, itemsize, offset)
    }

    fn unpacked(&self, itemsize: usize, axis: usize) -> Outcome<StridedLayout> {
        let factor = i64::try_from(self.itemsize() / itemsize).map_err(|_range| too_large("the item size"))?;
        let times = |what: &str, value: i64| value.checked_mul(factor).ok_or_else(|| too_large(what));
        let (mut shape, mut strides) = (Dims::from_slice(self.shape()), Dims::new());
        shape[axis] = times("an extent", shape[axis])?;
        for (other, &stride) in self.effective_strides().iter().enumerate() {
            strides.push(if other == axis { 1 } else { times("a stride", stride)? });
        }
        StridedLayout::checked(shape, strides, itemsize, times("the slice offset", self.slice_offset())?)
    }

    /// The largest size of elements that divides `max_itemsize`, that [`repacked`](Self::repacked) takes along the
    /// axis, and that `data_ptr` is aligned to (a smaller one than now, where the address asks for it). Where the axis
    /// cannot be repacked at all, the size of now.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for a largest size that is less than the size of now, and an axis
    /// that is not there.
    pub fn max_compatible_itemsize(&self, max_itemsize: usize, data_ptr: usize, axis: i64) -> Result<usize> {
        let old = self.itemsize();
        if max_itemsize < old {
            let message = format!("the largest item size, {max_itemsize}, is less than that of the layout, {old}");
            return Err(wrong(message).raise());
        }
        let axis = axis_of(axis, self.ndim())?;
        if self.shape()[axis] == 0 || self.effective_strides()[axis] != 1 {
            return Ok(old);
        }
        let aligned = gcd(max_itemsize as i128, data_ptr as i128);
        if aligned % old as i128 != 0 {
            return Ok(usize::try_from(gcd(aligned, old as i128)).unwrap_or(1));
        }
        let others = self.effective_strides().iter().enumerate().filter(|(other, _)| *other != axis);
        let factor = others.fold(aligned / old as i128, |factor, (_, &stride)| gcd(factor, stride.into()));
        let factor = gcd(gcd(factor, self.shape()[axis].into()), self.slice_offset().into());
        Ok(usize::try_from(factor * old as i128).unwrap_or(old))
    }
}
