//! Layouts, which make no call.

use crate::objects::{Plain, operation};
use cuirass::Result;
use cuirass::view::{Index, StrideOrder, StridedLayout};
use cuirass_testkit::operation::Operation;

fn layout() -> Result<Plain<StridedLayout>> {
    StridedLayout::dense(&[2, 3, 4], 4, StrideOrder::C).map(Plain)
}

pub fn operations() -> Vec<Operation> {
    let all = [
        operation!("StridedLayout::new", || Ok(()), |()| StridedLayout::new(&[2, 3], None, 4)),
        operation!("StridedLayout::from_byte_strides", || Ok(()), |()| {
            StridedLayout::from_byte_strides(&[2, 3], Some(&[12, 4]), 4)
        }),
        operation!("StridedLayout::dense", || Ok(()), |()| StridedLayout::dense(&[2, 3], 4, StrideOrder::F)),
        operation!("StridedLayout::dense_like", layout, |layout| {
            StridedLayout::dense_like(&layout.0, StrideOrder::Keep)
        }),
        operation!("StridedLayout::to_dense", layout, |layout| layout.0.to_dense(StrideOrder::F)),
        operation!("StridedLayout::shape", layout, |layout| Ok(layout.0.shape().len())),
        operation!("StridedLayout::strides", layout, |layout| Ok(layout.0.strides().map(<[i64]>::len))),
        operation!("StridedLayout::effective_strides", layout, |layout| Ok(layout.0.effective_strides().len())),
        operation!("StridedLayout::strides_in_bytes", layout, |layout| layout.0.strides_in_bytes()),
        operation!("StridedLayout::itemsize", layout, |layout| Ok(layout.0.itemsize())),
        operation!("StridedLayout::ndim", layout, |layout| Ok(layout.0.ndim())),
        operation!("StridedLayout::volume", layout, |layout| Ok(layout.0.volume())),
        operation!("StridedLayout::slice_offset", layout, |layout| Ok(layout.0.slice_offset())),
        operation!("StridedLayout::slice_offset_in_bytes", layout, |layout| Ok(layout.0.slice_offset_in_bytes())),
        operation!("StridedLayout::stride_order", layout, |layout| Ok(layout.0.stride_order())),
        operation!("StridedLayout::offset_bounds", layout, |layout| Ok(layout.0.offset_bounds())),
        operation!("StridedLayout::min_offset", layout, |layout| Ok(layout.0.min_offset())),
        operation!("StridedLayout::max_offset", layout, |layout| Ok(layout.0.max_offset())),
        operation!("StridedLayout::is_contiguous_c", layout, |layout| Ok(layout.0.is_contiguous_c())),
        operation!("StridedLayout::is_contiguous_f", layout, |layout| Ok(layout.0.is_contiguous_f())),
        operation!("StridedLayout::is_contiguous_any", layout, |layout| Ok(layout.0.is_contiguous_any())),
        operation!("StridedLayout::is_dense", layout, |layout| Ok(layout.0.is_dense())),
        operation!("StridedLayout::required_size_in_bytes", layout, |layout| layout.0.required_size_in_bytes()),
        operation!("StridedLayout::is_unique", layout, |layout| Ok(layout.0.is_unique())),
        operation!("StridedLayout::flattened_axis_mask", layout, |layout| Ok(layout.0.flattened_axis_mask())),
        operation!("StridedLayout::flattened", layout, |layout| layout.0.flattened(0, -1, None)),
        operation!("StridedLayout::reshaped", layout, |layout| layout.0.reshaped(&[4, -1])),
        operation!("StridedLayout::permuted", layout, |layout| layout.0.permuted(&[2, 0, 1])),
        operation!("StridedLayout::squeezed", layout, |layout| layout.0.squeezed()),
        operation!("StridedLayout::unsqueezed", layout, |layout| layout.0.unsqueezed(&[0, -1])),
        operation!("StridedLayout::broadcast_to", layout, |layout| layout.0.broadcast_to(&[5, 2, 3, 4])),
        operation!("StridedLayout::repacked", layout, |layout| layout.0.repacked(8, 0, -1, true)),
        operation!("StridedLayout::max_compatible_itemsize", layout, |layout| {
            layout.0.max_compatible_itemsize(16, 0, -1)
        }),
        operation!("StridedLayout::sliced", layout, |layout| layout.0.sliced(&[Index::At(1), (0..2).into()])),
    ];
    all.into_iter().map(Operation::makes_no_call).collect()
}
