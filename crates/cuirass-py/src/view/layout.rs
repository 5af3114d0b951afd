//! `_StridedLayout`: where the elements of a tensor are.

use super::index::{Indices, Numbers, OneOrMore, Order};
use crate::error::ask;
use crate::handle::Equal;
use crate::number::Number;
use cuirass::view::StridedLayout as Layout;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::fmt::Write;

/// Where the elements of a tensor are: a shape, strides, and the size of an element.
///
/// Shape, strides and offsets count elements, not bytes, unless a name says otherwise. Strides may be zero (broadcast)
/// or negative. Layouts do not change; every method that would change one returns another. None of them touches
/// memory or makes a call.
///
/// Two layouts are equal if they have the same shape, item size and slice offset, and the same strides, given or not.
///
/// Parameters
/// ----------
/// shape : tuple of int
///     The number of elements along each axis; at most 64 axes.
/// strides : tuple of int or None
///     The distance between neighbours along each axis. Without them the layout is C-contiguous, and its
///     :attr:`strides` are ``None``.
/// itemsize : int
///     The size of an element, in bytes.
/// divide_strides : bool, optional
///     Whether ``strides`` are in bytes.
///
/// Raises
/// ------
/// ValueError
///     For a negative extent, as many strides as there are no axes, an item size below 1, strides in bytes that are
///     no multiples of it, more than 64 axes, and a number of elements or an offset in bytes beyond 64 bits.
#[pyclass(frozen, weakref, module = "cuirass._layout", name = "_StridedLayout")]
pub struct StridedLayout(Layout);

impl StridedLayout {
    /// The class's object for a layout.
    pub fn of(layout: Layout) -> StridedLayout {
        StridedLayout(layout)
    }

    /// The layout.
    pub fn get(&self) -> &Layout {
        &self.0
    }
}

/// Another layout, as the Python object.
fn made(py: Python<'_>, operation: impl FnOnce() -> cuirass::Result<Layout>) -> PyResult<StridedLayout> {
    ask(py, operation).map(StridedLayout)
}

#[pymethods]
impl StridedLayout {
    #[new]
    #[pyo3(signature = (shape, strides, itemsize, divide_strides=false))]
    fn new(
        py: Python<'_>,
        shape: Numbers,
        strides: Option<Numbers>,
        itemsize: Number<usize>,
        divide_strides: bool,
    ) -> PyResult<StridedLayout> {
        let (shape, itemsize) = (shape.named("shape")?, itemsize.named("itemsize")?);
        let strides = strides.map(|strides| strides.named("strides")).transpose()?;
        made(py, || {
            if divide_strides {
                Layout::from_byte_strides(&shape, strides.as_deref(), itemsize)
            } else {
                Layout::new(&shape, strides.as_deref(), itemsize)
            }
        })
    }

    /// Make a layout without gaps.
    ///
    /// Parameters
    /// ----------
    /// shape : tuple of int
    ///     The number of elements along each axis.
    /// itemsize : int
    ///     The size of an element, in bytes.
    /// stride_order : str or tuple of int, optional
    ///     ``'C'``: the last axis has the smallest stride; ``'F'``: the first one has; or the axes from the largest
    ///     stride to the smallest.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout, with its strides given. Those of an empty one are zero.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For another order, and what the class itself refuses.
    #[classmethod]
    #[pyo3(signature = (shape, itemsize, stride_order=Order::C), text_signature = "($cls, shape, itemsize, stride_order='C')")]
    fn dense(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        shape: Numbers,
        itemsize: Number<usize>,
        stride_order: Order,
    ) -> PyResult<StridedLayout> {
        let (shape, itemsize) = (shape.named("shape")?, itemsize.named("itemsize")?);
        made(py, || Layout::dense(&shape, itemsize, stride_order.get()))
    }

    /// Make a layout without gaps of the shape and item size of another one.
    ///
    /// Parameters
    /// ----------
    /// other : _StridedLayout
    ///     The layout whose shape and item size are taken.
    /// stride_order : str or tuple of int, optional
    ///     As for :meth:`dense`; ``'K'``: the order of the other layout's strides.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout; one equal to the other, if that is dense and has the order already.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For another order, and where elements that are repeated do not fit in 64 bits without that.
    #[classmethod]
    #[pyo3(signature = (other, stride_order=Order::K), text_signature = "($cls, other, stride_order='K')")]
    fn dense_like(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        other: &Bound<'_, StridedLayout>,
        stride_order: Order,
    ) -> PyResult<StridedLayout> {
        made(py, || Layout::dense_like(&other.get().0, stride_order.get()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!("_StridedLayout(shape={}, strides=", self.shape(py)?.repr()?);
        match self.strides(py)? {
            Some(strides) => text += strides.repr()?.to_cow()?.as_ref(),
            None => text += "None",
        }
        // Writing to a text does not fail.
        if write!(text, ", itemsize={}", self.0.itemsize()).is_ok() && self.0.slice_offset() != 0 {
            text += &format!(", _slice_offset={}", self.0.slice_offset());
        }
        text.push(')');
        Ok(text)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Equal {
        Equal(other.cast::<StridedLayout>().ok().map(|other| self.0 == other.get().0))
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.ndim()
    }

    /// The number of elements along each axis.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The distance in elements between neighbours along each axis; ``None`` if the layout was made without strides.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.strides().map(|strides| PyTuple::new(py, strides)).transpose()
    }

    /// The strides in bytes; ``None`` if the layout was made without strides.
    #[getter]
    fn strides_in_bytes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let strides = ask(py, || self.0.strides_in_bytes())?;
        strides.map(|strides| PyTuple::new(py, strides)).transpose()
    }

    /// The axes from the largest stride to the smallest, whatever their signs.
    ///
    /// Of two axes with equal strides the one with more elements comes first; if these are as many, the first one.
    #[getter]
    fn stride_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.stride_order())
    }

    /// The number of elements: the product of the shape.
    #[getter]
    fn volume(&self) -> i64 {
        self.0.volume()
    }

    /// Whether no two elements have the same offset.
    ///
    /// The answer is exact for the strides of any array or view of it, and for small or regular ones that no array
    /// has. In general the question is as hard as a knapsack: it is given up after about a hundred thousand steps, with
    /// ``False``.
    #[getter]
    fn is_unique(&self, py: Python<'_>) -> PyResult<bool> {
        ask(py, || Ok(self.0.is_unique()))
    }

    /// Whether the elements follow each other without gaps, the last axis fastest.
    #[getter]
    fn is_contiguous_c(&self) -> bool {
        self.0.is_contiguous_c()
    }

    /// Whether the elements follow each other without gaps, the first axis fastest.
    #[getter]
    fn is_contiguous_f(&self) -> bool {
        self.0.is_contiguous_f()
    }

    /// Whether the elements follow each other without gaps in some order of the axes.
    #[getter]
    fn is_contiguous_any(&self) -> bool {
        self.0.is_contiguous_any()
    }

    /// Whether the layout is contiguous in some order and its first element is at offset 0.
    #[getter]
    fn is_dense(&self) -> bool {
        self.0.is_dense()
    }

    /// The lowest and the highest offset of an element; ``(0, -1)`` of an empty layout.
    #[getter]
    fn offset_bounds(&self) -> (i64, i64) {
        self.0.offset_bounds()
    }

    /// The lowest offset of an element.
    #[getter]
    fn min_offset(&self) -> i64 {
        self.0.min_offset()
    }

    /// The highest offset of an element.
    #[getter]
    fn max_offset(&self) -> i64 {
        self.0.max_offset()
    }

    /// The offset in bytes of the element at index 0 of every axis.
    #[getter]
    fn slice_offset_in_bytes(&self) -> i64 {
        self.0.slice_offset_in_bytes()
    }

    /// The size of an element, in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.itemsize()
    }

    /// The offset of the element at index 0 of every axis. Only slicing makes it other than 0.
    #[getter]
    fn slice_offset(&self) -> i64 {
        self.0.slice_offset()
    }

    /// Say how much memory holds all elements, if it begins at offset 0.
    ///
    /// Returns
    /// -------
    /// int
    ///     The size in bytes: ``(max_offset + 1) * itemsize``.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If an element lies before offset 0.
    fn required_size_in_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        ask(py, || self.0.required_size_in_bytes())
    }

    /// Say which axes can be merged with the one before them.
    ///
    /// Returns
    /// -------
    /// int
    ///     A mask for :meth:`flattened`: the bit of each such axis is set. The masks of several layouts, combined with
    ///     ``&``, say what can be merged in all of them.
    fn flattened_axis_mask(&self) -> u64 {
        self.0.flattened_axis_mask()
    }

    /// :meth:`dense_like` this layout.
    ///
    /// Parameters
    /// ----------
    /// stride_order : str or tuple of int, optional
    ///     As for :meth:`dense_like`.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     As :meth:`dense_like`.
    #[pyo3(signature = (stride_order=Order::K), text_signature = "($self, stride_order='K')")]
    fn to_dense(&self, py: Python<'_>, stride_order: Order) -> PyResult<StridedLayout> {
        made(py, || self.0.to_dense(stride_order.get()))
    }

    /// The same elements, in the same order (the last axis fastest), under another shape.
    ///
    /// Parameters
    /// ----------
    /// shape : tuple of int
    ///     The shape, of as many elements. One extent may be -1: it is what the others leave.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For another number of elements, and where no strides list the elements in this order, so that they would
    ///     have to be copied.
    fn reshaped(&self, py: Python<'_>, shape: Numbers) -> PyResult<StridedLayout> {
        let shape = shape.named("shape")?;
        made(py, || self.0.reshaped(&shape))
    }

    /// The axes in another order.
    ///
    /// Parameters
    /// ----------
    /// axis_order : tuple of int
    ///     A permutation of the axes, which may count from the end.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For what is no permutation of the axes.
    fn permuted(&self, py: Python<'_>, axis_order: Numbers) -> PyResult<StridedLayout> {
        let axes = axis_order.named("axis_order")?;
        made(py, || self.0.permuted(&axes))
    }

    /// Merge axes with those before them wherever one stride serves for both, the last axis running fastest.
    ///
    /// Parameters
    /// ----------
    /// start_axis, end_axis : int, optional
    ///     The axes between which it is done, both included; they may count from the end.
    /// mask : int, optional
    ///     The axes that may be merged with the one before them, as bits, instead; see :meth:`flattened_axis_mask`.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout; without dimensions one axis of one element.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For an axis that is not there, and an extent beyond 64 bits.
    #[pyo3(
        signature = (start_axis=Number::new(0), end_axis=Number::new(-1), mask=None),
        text_signature = "($self, start_axis=0, end_axis=-1, mask=None)"
    )]
    fn flattened(
        &self,
        py: Python<'_>,
        start_axis: Number<i64>,
        end_axis: Number<i64>,
        mask: Option<Number<u64>>,
    ) -> PyResult<StridedLayout> {
        let (start, end) = (start_axis.named("start_axis")?, end_axis.named("end_axis")?);
        let mask = mask.map(|mask| mask.named("mask")).transpose()?;
        made(py, || self.0.flattened(start, end, mask))
    }

    /// Without the axes of one element.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout; an empty one becomes one axis of no elements.
    fn squeezed(&self, py: Python<'_>) -> PyResult<StridedLayout> {
        made(py, || self.0.squeezed())
    }

    /// With further axes of one element.
    ///
    /// Parameters
    /// ----------
    /// axis : int or tuple of int
    ///     Where they are in the new shape; they may count from its end.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For an axis beyond the new shape, or named twice.
    fn unsqueezed(&self, py: Python<'_>, axis: OneOrMore) -> PyResult<StridedLayout> {
        let axis = axis.named("axis")?;
        made(py, || self.0.unsqueezed(&axis))
    }

    /// Repeat axes of one element, and new axes before the first one, to a shape: by strides of zero.
    ///
    /// Parameters
    /// ----------
    /// shape : tuple of int
    ///     The shape.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For fewer dimensions, and an extent that is not that of an axis with more than one element.
    fn broadcast_to(&self, py: Python<'_>, shape: Numbers) -> PyResult<StridedLayout> {
        let shape = shape.named("shape")?;
        made(py, || self.0.broadcast_to(&shape))
    }

    /// The same bytes as elements of another size.
    ///
    /// Parameters
    /// ----------
    /// itemsize : int
    ///     The size in bytes; a multiple of that of now, or a divisor of it.
    /// data_ptr : int, optional
    ///     The address of the memory, which larger elements have to be aligned to; 0 if it is not known.
    /// axis : int, optional
    ///     The axis along which several elements become one, or one becomes several. Its stride must be 1.
    /// keep_dim : bool, optional
    ///     Whether the axis stays if a single larger element is left of it.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If neither size is a multiple of the other; if the axis is not there, is empty or has another stride; and for
    ///     larger elements if the extent of the axis, another stride or the slice offset is no whole number of them, or
    ///     ``data_ptr`` is not aligned.
    #[pyo3(
        signature = (itemsize, data_ptr=Number::new(0), axis=Number::new(-1), keep_dim=true),
        text_signature = "($self, itemsize, data_ptr=0, axis=-1, keep_dim=True)"
    )]
    fn repacked(
        &self,
        py: Python<'_>,
        itemsize: Number<usize>,
        data_ptr: Number<usize>,
        axis: Number<i64>,
        keep_dim: bool,
    ) -> PyResult<StridedLayout> {
        let (itemsize, address, axis) = (itemsize.named("itemsize")?, data_ptr.named("data_ptr")?, axis.named("axis")?);
        made(py, || self.0.repacked(itemsize, address, axis, keep_dim))
    }

    /// Find the largest elements that :meth:`repacked` can make.
    ///
    /// Parameters
    /// ----------
    /// max_itemsize : int, optional
    ///     A size in bytes that the answer divides; at least the item size.
    /// data_ptr : int, optional
    ///     The address of the memory, which the answer divides too; 0 if it is not known.
    /// axis : int, optional
    ///     The axis along which they would be made.
    ///
    /// Returns
    /// -------
    /// int
    ///     The size in bytes. It is less than the item size if that does not divide ``max_itemsize`` or ``data_ptr``,
    ///     and the item size itself if the axis cannot be repacked.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For a ``max_itemsize`` below the item size, and an axis that is not there.
    #[pyo3(
        signature = (max_itemsize=Number::new(16), data_ptr=Number::new(0), axis=Number::new(-1)),
        text_signature = "($self, max_itemsize=16, data_ptr=0, axis=-1)"
    )]
    fn max_compatible_itemsize(
        &self,
        py: Python<'_>,
        max_itemsize: Number<usize>,
        data_ptr: Number<usize>,
        axis: Number<i64>,
    ) -> PyResult<usize> {
        let (most, address) = (max_itemsize.named("max_itemsize")?, data_ptr.named("data_ptr")?);
        let axis = axis.named("axis")?;
        ask(py, || self.0.max_compatible_itemsize(most, address, axis))
    }

    /// The layout of a part, as brackets take it: ``layout[1:, ::-2]``.
    ///
    /// Parameters
    /// ----------
    /// slices : int, slice, or tuple of them
    ///     What is taken of each axis, from the first one on. An int takes the axis away.
    ///
    /// Returns
    /// -------
    /// _StridedLayout
    ///     The layout, whose :attr:`slice_offset` is that of its first element.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     For more indices than axes, an int beyond its axis, and a step of 0.
    fn sliced(&self, py: Python<'_>, slices: Indices) -> PyResult<StridedLayout> {
        made(py, || self.0.sliced(&slices.0))
    }

    fn __getitem__(&self, py: Python<'_>, slices: Indices) -> PyResult<StridedLayout> {
        self.sliced(py, slices)
    }
}
