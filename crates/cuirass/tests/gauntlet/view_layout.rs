//! Layouts, which make no call.

use crate::objects::{Plain, operation};
use cuirass::Result;
use cuirass::view::{StrideOrder, StridedLayout};
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
    ];
    all.into_iter().map(Operation::makes_no_call).collect()
}
