//! Layouts against a model that enumerates every index.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::ErrorKind;
use cuirass::view::{StrideOrder, StridedLayout};

#[test]
fn a_layout_says_what_it_was_given() {
    let layout = StridedLayout::new(&[2, 3], Some(&[-3, 1]), 4).unwrap();
    assert_eq!((layout.shape(), layout.strides()), (&[2, 3][..], Some(&[-3, 1][..])));
    assert_eq!((layout.itemsize(), layout.ndim(), layout.volume(), layout.slice_offset()), (4, 2, 6, 0));
    assert_eq!(layout.strides_in_bytes().unwrap().unwrap().as_slice(), [-12, 4]);
    assert_eq!(layout.offset_bounds(), (-3, 2));
    assert_eq!(layout.required_size_in_bytes().unwrap_err().kind(), ErrorKind::Value);
    let bytes = StridedLayout::from_byte_strides(&[2, 3], Some(&[-12, 4]), 4).unwrap();
    assert_eq!(bytes, layout);
    let implicit = StridedLayout::new(&[2, 3], None, 4).unwrap();
    assert_eq!((implicit.strides(), implicit.effective_strides()), (None, &[3, 1][..]));
    assert_ne!(implicit, StridedLayout::dense(&[2, 3], 4, StrideOrder::C).unwrap());
    assert_eq!(implicit.required_size_in_bytes().unwrap(), 24);
}

#[test]
fn what_is_no_layout_is_refused() {
    let refused = |shape: &[i64], strides: Option<&[i64]>, itemsize: usize| {
        assert_eq!(StridedLayout::new(shape, strides, itemsize).unwrap_err().kind(), ErrorKind::Value, "{shape:?}");
    };
    refused(&[2, -1], None, 4);
    refused(&[2, 0, -1], None, 4);
    refused(&[2], Some(&[1, 2]), 4);
    refused(&[2], None, 0);
    refused(&[2], None, usize::MAX);
    refused(&[1; 65], None, 4);
    refused(&[1 << 32, 1 << 32], None, 4);
    refused(&[1 << 32, 1 << 32], Some(&[0, 0]), 4);
    refused(&[i64::MAX], None, 4);
    refused(&[3], Some(&[i64::MAX]), 1);
    refused(&[3], Some(&[i64::MIN]), 1);
    refused(&[3, 3], Some(&[i64::MIN, i64::MAX]), 1);
    assert!(StridedLayout::new(&[1 << 32, 1 << 32, 0], None, 4).is_ok());
    assert!(StridedLayout::new(&[i64::MAX], None, 1).is_ok());
    assert!(StridedLayout::new(&[1], Some(&[i64::MIN]), 8).unwrap().strides_in_bytes().is_err());
    assert!(StridedLayout::from_byte_strides(&[2], Some(&[6]), 4).is_err());
}
