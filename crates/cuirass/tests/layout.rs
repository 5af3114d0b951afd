//! Layouts against a model that enumerates every index.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::ErrorKind;
use cuirass::view::{Index, StrideOrder, StridedLayout};
use proptest::prelude::*;
use std::collections::BTreeSet;

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

/// Every index, the last axis running fastest.
fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    shape.iter().fold(vec![Vec::new()], |all, &extent| {
        all.iter().flat_map(|index| (0..extent).map(|last| [index.as_slice(), &[last]].concat())).collect()
    })
}

fn offset_at(layout: &StridedLayout, index: &[i64]) -> i64 {
    layout.slice_offset() + index.iter().zip(layout.effective_strides()).map(|(i, stride)| i * stride).sum::<i64>()
}

/// The offset of every element, the last axis running fastest.
fn offsets(layout: &StridedLayout) -> Vec<i64> {
    indices(layout.shape()).iter().map(|index| offset_at(layout, index)).collect()
}

/// The bytes of every element, in order.
fn bytes(layout: &StridedLayout) -> Vec<i64> {
    let size = i64::try_from(layout.itemsize()).unwrap();
    offsets(layout).iter().flat_map(|offset| (0..size).map(move |byte| offset * size + byte)).collect()
}

fn sorted(mut values: Vec<i64>) -> Vec<i64> {
    values.sort_unstable();
    values
}

/// What a Python slice takes of an axis, by walking along it.
fn walked(start: Option<i64>, stop: Option<i64>, step: i64, extent: i64) -> Vec<i64> {
    let from_start = |place: i64| if place < 0 { place + extent } else { place };
    let mut taken = Vec::new();
    let (mut at, end) = if step > 0 {
        (start.map_or(0, |place| from_start(place).max(0)), stop.map_or(extent, |place| from_start(place).min(extent)))
    } else {
        let last = extent - 1;
        (start.map_or(last, |place| from_start(place).min(last)), stop.map_or(-1, |place| from_start(place).max(-1)))
    };
    while if step > 0 { at < end } else { at > end } {
        taken.push(at);
        at += step;
    }
    taken
}

fn slice() -> impl Strategy<Value = Index> {
    let place = || prop::option::of(-6_i64..=6);
    prop_oneof![
        (-3_i64..3).prop_map(Index::At),
        (place(), place(), prop_oneof![-3_i64..=-1, 1_i64..=3]).prop_map(|(start, stop, step)| Index::Slice {
            start,
            stop,
            step
        }),
    ]
}

/// Layouts as arrays and their views have them, and any others.
fn layout() -> impl Strategy<Value = StridedLayout> {
    let given = prop::collection::vec((0_i64..=4, -9_i64..=9), 0..=4).prop_map(|axes| {
        let (shape, strides): (Vec<i64>, Vec<i64>) = axes.into_iter().unzip();
        StridedLayout::new(&shape, Some(&strides), 4).unwrap()
    });
    let dense = prop::collection::vec(prop_oneof![1 => Just(0_i64), 9 => 1_i64..=4], 0..=4)
        .prop_flat_map(|shape| {
            let axes: Vec<i64> = (0..shape.len()).map(|axis| i64::try_from(axis).unwrap()).collect();
            (Just(shape), Just(axes).prop_shuffle(), any::<bool>())
        })
        .prop_map(|(shape, axes, implicit)| match implicit {
            true => StridedLayout::new(&shape, None, 4).unwrap(),
            false => StridedLayout::dense(&shape, 4, StrideOrder::Axes(&axes)).unwrap(),
        });
    let whole = prop_oneof![given, dense.boxed()];
    (whole, prop::collection::vec(slice(), 0..=3)).prop_map(|(whole, slices)| {
        let most = slices.len().min(whole.ndim());
        whole.sliced(&slices[..most]).unwrap_or(whole)
    })
}

/// The shapes that so many elements can have.
fn shape_of(volume: i64) -> BoxedStrategy<Vec<i64>> {
    if volume == 0 {
        return prop::collection::vec(0_i64..3, 0..3).prop_map(|rest| [rest, vec![0]].concat()).boxed();
    }
    let mut factors = Vec::new();
    let mut rest = volume;
    for prime in [2, 3, 5, 7] {
        while rest % prime == 0 {
            factors.push(prime);
            rest /= prime;
        }
    }
    factors.extend([1, rest]);
    let axes = 1_usize..=4;
    let places = prop::collection::vec(0_usize..4, factors.len());
    (axes, places)
        .prop_map(move |(axes, places)| {
            let mut shape = vec![1; axes];
            for (factor, place) in factors.iter().zip(places) {
                shape[place % axes] *= factor;
            }
            shape
        })
        .boxed()
}

/// The strides that list the same elements under another shape, if there are any.
fn strides_by_force(offsets: &[i64], shape: &[i64]) -> Option<Vec<i64>> {
    let stride = |axis: usize| {
        let step: i64 = shape[axis + 1..].iter().product();
        if shape[axis] > 1 { offsets[usize::try_from(step).unwrap()] - offsets[0] } else { 0 }
    };
    let strides: Vec<i64> = (0..shape.len()).map(stride).collect();
    let listed = indices(shape)
        .into_iter()
        .map(|index| offsets[0] + index.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<i64>());
    listed.eq(offsets.iter().copied()).then_some(strides)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_layout_answers_is_what_its_offsets_show(layout in layout()) {
        let offsets = offsets(&layout);
        prop_assert_eq!(layout.volume(), i64::try_from(offsets.len()).unwrap());
        let bounds = offsets.iter().min().zip(offsets.iter().max()).map_or((0, -1), |(min, max)| (*min, *max));
        prop_assert_eq!(layout.offset_bounds(), bounds);
        prop_assert_eq!((layout.min_offset(), layout.max_offset()), bounds);
        match layout.required_size_in_bytes() {
            Ok(size) => prop_assert_eq!(size, usize::try_from(bounds.1 + 1).unwrap() * 4),
            Err(_) => prop_assert!(bounds.0 < 0),
        }
        let distinct: BTreeSet<i64> = offsets.iter().copied().collect();
        prop_assert_eq!(layout.is_unique(), distinct.len() == offsets.len());
        let follow = |offsets: &[i64]| offsets.windows(2).all(|pair| pair[1] == pair[0] + 1);
        prop_assert_eq!(layout.is_contiguous_c(), follow(&offsets));
        let reversed: Vec<i64> = (0..i64::try_from(layout.ndim()).unwrap()).rev().collect();
        let transposed = layout.permuted(&reversed).unwrap();
        prop_assert_eq!(layout.is_contiguous_f(), follow(&self::offsets(&transposed)));
        let forwards = layout.shape().iter().zip(layout.effective_strides()).all(|(n, stride)| *n < 2 || *stride > 0);
        let filled = offsets.is_empty() || (forwards && follow(&sorted(offsets.clone())));
        prop_assert_eq!(layout.is_contiguous_any(), filled);
        prop_assert_eq!(layout.is_dense(), filled && layout.slice_offset() == 0);
    }

    #[test]
    fn uniqueness_is_exact(axes in prop::collection::vec((2_i64..=5, -40_i64..=40), 1..=4)) {
        let (shape, strides): (Vec<i64>, Vec<i64>) = axes.into_iter().unzip();
        let layout = StridedLayout::new(&shape, Some(&strides), 1).unwrap();
        let offsets = offsets(&layout);
        let distinct: BTreeSet<i64> = offsets.iter().copied().collect();
        prop_assert_eq!(layout.is_unique(), distinct.len() == offsets.len());
    }

    #[test]
    fn reshaping_keeps_the_order_or_is_refused((layout, shape) in layout().prop_flat_map(|layout| {
        let shape = shape_of(layout.volume());
        (Just(layout), shape)
    })) {
        let before = offsets(&layout);
        let possible = before.is_empty() || strides_by_force(&before, &shape).is_some();
        match layout.reshaped(&shape) {
            Ok(reshaped) => {
                prop_assert_eq!(reshaped.shape(), &shape[..]);
                prop_assert_eq!(offsets(&reshaped), before.clone());
            }
            Err(error) => {
                prop_assert!(!possible, "{}", error);
                prop_assert_eq!(error.kind(), ErrorKind::Value);
            }
        }
        if !before.is_empty() {
            let mut open = shape.clone();
            open[0] = -1;
            prop_assert_eq!(layout.reshaped(&open).ok(), layout.reshaped(&shape).ok());
        }
    }

    #[test]
    fn flattening_keeps_the_order(layout in layout(), mask in any::<u64>(), ends in (-4_i64..4, -4_i64..4)) {
        let before = offsets(&layout);
        let whole = layout.flattened(0, -1, None).unwrap();
        prop_assert_eq!(offsets(&whole), before.clone());
        if layout.volume() > 0 && layout.ndim() > 0 {
            prop_assert_eq!(whole.flattened_axis_mask(), 0);
            let merged = layout.flattened_axis_mask().count_ones();
            prop_assert_eq!(whole.ndim(), layout.ndim() - usize::try_from(merged).unwrap());
        }
        let masked = layout.flattened(0, -1, Some(mask)).unwrap();
        prop_assert_eq!(offsets(&masked), before.clone());
        match layout.flattened(ends.0, ends.1, None) {
            Ok(part) => prop_assert_eq!(offsets(&part), before),
            Err(_) => {
                let ndim = i64::try_from(layout.ndim()).unwrap();
                let there = |axis: i64| (-ndim..ndim).contains(&axis);
                prop_assert!(!(there(ends.0) && there(ends.1)));
                prop_assert!(ndim > 0 || ends != (0, -1));
            }
        }
    }

    #[test]
    fn axes_of_one_element_come_and_go(layout in layout(), at in prop::collection::vec(-5_i64..5, 0..3)) {
        let before = offsets(&layout);
        let squeezed = layout.squeezed().unwrap();
        prop_assert_eq!(offsets(&squeezed), before.clone());
        prop_assert!(squeezed.volume() == 0 || !squeezed.shape().contains(&1));
        if let Ok(longer) = layout.unsqueezed(&at) {
            prop_assert_eq!(longer.ndim(), layout.ndim() + at.len());
            prop_assert_eq!(offsets(&longer), before);
            let ndim = i64::try_from(longer.ndim()).unwrap();
            prop_assert!(at.iter().all(|axis| longer.shape()[usize::try_from((axis + ndim) % ndim).unwrap()] == 1));
        } else {
            let ndim = i64::try_from(layout.ndim() + at.len()).unwrap();
            let places: BTreeSet<i64> = at.iter().map(|axis| if *axis < 0 { axis + ndim } else { *axis }).collect();
            prop_assert!(places.len() < at.len() || places.iter().any(|place| !(0..ndim).contains(place)));
        }
    }

    #[test]
    fn permuting_and_broadcasting_move_indices(
        (layout, order) in layout().prop_flat_map(|layout| {
            let axes: Vec<usize> = (0..layout.ndim()).collect();
            (Just(layout), Just(axes).prop_shuffle())
        }),
        wider in prop::collection::vec(0_i64..4, 4),
        added in prop::collection::vec(0_i64..3, 0..2),
    ) {
        let axes: Vec<i64> = order.iter().map(|axis| i64::try_from(*axis).unwrap()).collect();
        let permuted = layout.permuted(&axes).unwrap();
        for index in indices(permuted.shape()) {
            let mut old = vec![0; index.len()];
            order.iter().zip(&index).for_each(|(axis, place)| old[*axis] = *place);
            prop_assert_eq!(offset_at(&permuted, &index), offset_at(&layout, &old));
        }
        let repeated = layout.shape().iter().zip(wider).map(|(n, wider)| if *n == 1 { wider } else { *n });
        let shape: Vec<i64> = added.iter().copied().chain(repeated).collect();
        let broadcast = layout.broadcast_to(&shape).unwrap();
        prop_assert_eq!(broadcast.shape(), &shape[..]);
        for index in indices(&shape) {
            let old: Vec<i64> =
                index[added.len()..].iter().zip(layout.shape()).map(|(place, n)| if *n == 1 { 0 } else { *place }).collect();
            prop_assert_eq!(offset_at(&broadcast, &index), offset_at(&layout, &old));
        }
    }

    #[test]
    fn slices_are_those_of_python(layout in layout(), slices in prop::collection::vec(slice(), 0..4)) {
        let mut taken = Vec::new();
        let mut wrong = slices.len() > layout.ndim();
        for (axis, &extent) in layout.shape().iter().enumerate() {
            taken.push(match slices.get(axis) {
                None => (0..extent).collect(),
                Some(&Index::At(index)) => {
                    wrong |= !(-extent..extent).contains(&index);
                    vec![if index < 0 { index + extent } else { index }]
                }
                Some(&Index::Slice { start, stop, step }) => walked(start, stop, step, extent),
            });
        }
        match layout.sliced(&slices) {
            Err(error) => {
                prop_assert!(wrong, "{}", error);
                prop_assert_eq!(error.kind(), ErrorKind::Value);
            }
            Ok(part) => {
                prop_assert!(!wrong);
                let expected = taken.iter().fold(vec![Vec::new()], |all: Vec<Vec<i64>>, places| {
                    all.iter().flat_map(|at| places.iter().map(|place| [&at[..], &[*place]].concat())).collect()
                });
                let expected: Vec<i64> = expected.iter().map(|index| offset_at(&layout, index)).collect();
                prop_assert_eq!(offsets(&part), expected);
                let kept = layout.ndim() - slices.iter().filter(|index| matches!(index, Index::At(_))).count();
                prop_assert_eq!(part.ndim(), kept);
            }
        }
    }

    #[test]
    fn dense_layouts_have_their_order(layout in layout()) {
        for order in [StrideOrder::Keep, StrideOrder::C, StrideOrder::F] {
            let dense = layout.to_dense(order).unwrap();
            prop_assert!(dense.is_dense());
            prop_assert_eq!((dense.shape(), dense.itemsize()), (layout.shape(), layout.itemsize()));
            prop_assert_eq!(dense.required_size_in_bytes().unwrap(), usize::try_from(layout.volume()).unwrap() * 4);
        }
        prop_assert!(layout.to_dense(StrideOrder::C).unwrap().is_contiguous_c());
        prop_assert!(layout.to_dense(StrideOrder::F).unwrap().is_contiguous_f());
        let kept = layout.to_dense(StrideOrder::Keep).unwrap();
        let long = |layout: &StridedLayout| {
            layout.stride_order().into_iter().filter(|axis| layout.shape()[*axis] > 1).collect::<Vec<usize>>()
        };
        if layout.volume() > 0 {
            prop_assert_eq!(long(&kept), long(&layout));
            let strides = |axis: usize| (layout.effective_strides()[axis].abs(), layout.shape()[axis]);
            prop_assert!(layout.stride_order().windows(2).all(|pair| strides(pair[0]) >= strides(pair[1])));
        }
    }

    #[test]
    fn repacking_keeps_the_bytes(
        layout in layout(),
        old in prop::sample::select(vec![1_usize, 2, 3, 4, 6, 8, 12]),
        new in 1_usize..=24,
        axis in -4_i64..4,
        address in prop::sample::select(vec![0_usize, 2, 4, 8, 24, 256]),
    ) {
        let whole = StridedLayout::new(layout.shape(), Some(layout.effective_strides()), old).unwrap();
        let packed = whole.repacked(new, address, axis, true);
        if let Ok(packed) = &packed {
            prop_assert_eq!(packed.itemsize(), new);
            let (before, after) = (bytes(&whole), bytes(packed));
            if axis == -1 || usize::try_from(axis + 1) == Ok(whole.ndim()) {
                prop_assert_eq!(&before, &after);
            }
            prop_assert_eq!(sorted(before), sorted(after));
            prop_assert!(new <= old || address % new == 0);
            let short = whole.repacked(new, address, axis, false).unwrap();
            prop_assert_eq!(bytes(&short), bytes(packed));
        }
        let there = axis >= -i64::try_from(whole.ndim()).unwrap() && axis < i64::try_from(whole.ndim()).unwrap();
        match whole.max_compatible_itemsize(24, address, axis) {
            Err(_) => prop_assert!(!there),
            Ok(most) => {
                let takes = |size: &usize| {
                    24 % size == 0 && address % size == 0 && whole.repacked(*size, address, axis, true).is_ok()
                };
                let ndim = i64::try_from(whole.ndim()).unwrap();
                let at = usize::try_from(axis.rem_euclid(ndim)).unwrap();
                let repackable = whole.shape()[at] > 0 && whole.effective_strides()[at] == 1;
                let expected = if repackable { (1..=24).filter(takes).max().unwrap() } else { old };
                prop_assert_eq!(most, expected);
            }
        }
    }

    #[test]
    fn nothing_wraps_or_panics(
        axes in prop::collection::vec((extreme(), extreme(), extreme()), 0..4),
        itemsize in prop_oneof![Just(1_usize), Just(8), any::<usize>()],
        ends in (extreme(), extreme(), extreme()),
        mask in any::<u64>(),
    ) {
        let shape: Vec<i64> = axes.iter().map(|axis| axis.0).collect();
        let strides: Vec<i64> = axes.iter().map(|axis| axis.1).collect();
        let others: Vec<i64> = axes.iter().map(|axis| axis.2).collect();
        let (start, stop, step) = ends;
        let slices = [Index::Slice { start: Some(start), stop: Some(stop), step }, Index::At(start)];
        let backwards = Index::Slice { start: None, stop: None, step: start };
        let made = [
            StridedLayout::new(&shape, Some(&strides), itemsize),
            StridedLayout::new(&shape, None, itemsize),
            StridedLayout::dense(&shape, itemsize, StrideOrder::F),
            StridedLayout::from_byte_strides(&shape, Some(&strides), itemsize),
        ];
        for layout in made.into_iter().flatten() {
            let size = i128::try_from(layout.itemsize()).unwrap();
            if layout.volume() > 0 {
                let reach = |sign: i128| -> i128 {
                    let each = layout.shape().iter().zip(layout.effective_strides());
                    each.map(|(n, stride)| (i128::from(*n) - 1) * i128::from(*stride))
                        .filter(|reach| reach * sign > 0).sum()
                };
                prop_assert_eq!(i128::from(layout.min_offset()), reach(-1));
                prop_assert_eq!(i128::from(layout.max_offset()), reach(1));
                prop_assert!(i64::try_from(reach(-1) * size).is_ok() && i64::try_from(reach(1) * size).is_ok());
            }
            layout.is_unique();
            layout.is_contiguous_any();
            let results = [
                layout.to_dense(StrideOrder::Keep),
                layout.reshaped(&others),
                layout.flattened(0, -1, None),
                layout.flattened(start, stop, None),
                layout.flattened(start, stop, Some(mask)),
                layout.squeezed(),
                layout.unsqueezed(&others),
                layout.broadcast_to(&others),
                layout.permuted(&others),
                layout.repacked(usize::try_from(start).unwrap_or(4), 0, stop, false),
                layout.repacked(1, 0, -1, false),
                layout.sliced(&slices),
                layout.sliced(&slices[..1]),
                layout.sliced(&[backwards]),
            ];
            for result in results {
                match result {
                    Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Value),
                    Ok(result) => {
                        result.is_unique();
                        if let Ok(most) = layout.max_compatible_itemsize(usize::MAX, 0, -1) {
                            prop_assert!(most == layout.itemsize() || usize::MAX % most == 0);
                        }
                        prop_assert!(result.strides_in_bytes().is_ok() || result.shape().iter().any(|n| *n < 2));
                    }
                }
            }
        }
    }
}

#[test]
fn strides_in_bytes_fit_where_offsets_do() {
    let layout = StridedLayout::from_byte_strides(&[3], Some(&[-(1 << 62)]), 8).unwrap();
    assert_eq!(layout.min_offset(), -(1 << 60));
    for (start, stop, step) in [(Some(2), None, -2), (None, None, -2), (Some(2), Some(-4), -2)] {
        let refused = layout.sliced(&[Index::Slice { start, stop, step }]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Value);
        assert_eq!(refused.to_string(), "a stride in bytes does not fit in 64 bits");
    }
    // One element may have any stride, and half of it fits.
    let one = layout.sliced(&[Index::Slice { start: Some(2), stop: Some(1), step: -2 }]).unwrap();
    assert_eq!(one.shape(), [1]);
    let back = layout.sliced(&[Index::Slice { start: None, stop: None, step: -1 }]).unwrap();
    assert_eq!(back.strides_in_bytes().unwrap().unwrap()[0], 1 << 62);
}

fn extreme() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -3_i64..=5,
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1 << 62, -1 << 32, 1 << 31, 1 << 32, 1 << 62, i64::MAX]),
        1 => any::<i64>(),
    ]
}

#[test]
fn large_layouts_are_judged_at_once() {
    let unique = |shape: &[i64], strides: &[i64]| StridedLayout::new(shape, Some(strides), 1).unwrap().is_unique();
    let million = 1_000_000;
    assert!(unique(&[million, million], &[million + 1, million]));
    assert!(unique(&[million, million + 2], &[million + 1, million]));
    assert!(!unique(&[million + 1, million + 2], &[million + 1, million]));
    assert!(unique(&[million, million], &[2 * million - 1, 2]));
    assert!(unique(&[million, million], &[2 * million - 3, 2]));
    assert!(!unique(&[million, million], &[2 * million - 4, 2]));
    assert!(!unique(&[million, million, 3], &[million, 1, 0]));
    assert!(unique(&[1 << 30, 1 << 30], &[-(1 << 30), 1]));
    // Windows over a signal.
    assert!(!unique(&[million, 64], &[1, 1]));
    assert!(unique(&[million, 64], &[64, 1]));
    // As hard as a knapsack: an answer is given all the same.
    let strides: Vec<i64> = (0..30).map(|axis| (1 << 50) + axis * axis * 7919 + axis).collect();
    unique(&[2; 30], &strides);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let layout = StridedLayout::dense(&[2, 3], 4, StrideOrder::C).unwrap();
    let empty = StridedLayout::dense(&[0, 3], 4, StrideOrder::C).unwrap();
    let refused = |result: cuirass::Result<StridedLayout>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Value);
    refused(StridedLayout::dense(&[2, 3], 4, StrideOrder::Keep));
    refused(StridedLayout::dense(&[2, 3], 4, StrideOrder::Axes(&[0])));
    refused(StridedLayout::dense(&[2, 3], 4, StrideOrder::Axes(&[0, 2])));
    refused(layout.to_dense(StrideOrder::Axes(&[1, -1])));
    refused(layout.reshaped(&[-1, -1]));
    refused(layout.reshaped(&[-2, -3]));
    refused(layout.reshaped(&[5]));
    refused(layout.reshaped(&[4, -1]));
    refused(layout.reshaped(&[1 << 62, 4]));
    refused(empty.reshaped(&[0, -1]));
    refused(empty.reshaped(&[5]));
    refused(layout.permuted(&[0]));
    refused(layout.permuted(&[1, 1]));
    refused(layout.flattened(0, 2, None));
    refused(layout.flattened(-3, -1, None));
    refused(layout.unsqueezed(&[0, 0]));
    refused(layout.unsqueezed(&[3]));
    refused(layout.unsqueezed(&[0; 100]));
    refused(layout.broadcast_to(&[3]));
    refused(layout.broadcast_to(&[2, 4]));
    refused(layout.broadcast_to(&[-1, 2, 3]));
    refused(layout.broadcast_to(&[1 << 62, 2, 3]));
    refused(StridedLayout::dense(&[1], 4, StrideOrder::C).unwrap().broadcast_to(&[-1]));
    refused(layout.repacked(0, 0, -1, true));
    refused(layout.repacked(6, 0, -1, true));
    refused(layout.repacked(8, 0, -1, true));
    refused(layout.repacked(8, 0, 0, true));
    refused(empty.repacked(2, 0, 0, true));
    refused(layout.sliced(&[2.into()]));
    refused(layout.sliced(&[(..).into(), (..).into(), (..).into()]));
    refused(layout.sliced(&[Index::Slice { start: None, stop: None, step: 0 }]));
    assert!(layout.max_compatible_itemsize(2, 0, -1).is_err());
    assert!(layout.max_compatible_itemsize(16, 0, 2).is_err());
    // A stride that no index uses is no reason to refuse.
    let far = Index::Slice { start: None, stop: None, step: i64::MIN };
    let last = StridedLayout::dense(&[3], 4, StrideOrder::C).unwrap().sliced(&[far]).unwrap();
    assert_eq!((last.shape(), last.slice_offset()), (&[1][..], 2));
}

#[test]
fn many_dimensions() {
    let layout = StridedLayout::dense(&[2; 10], 2, StrideOrder::C).unwrap();
    let order = [9, 0, 8, 1, 7, 2, 6, 3, 5, 4];
    let mixed = layout.permuted(&order).unwrap();
    assert_eq!(sorted(offsets(&mixed)), (0..1024).collect::<Vec<i64>>());
    assert!(mixed.is_unique() && mixed.is_contiguous_any() && !mixed.is_contiguous_c() && !mixed.is_contiguous_f());
    assert_eq!(mixed.flattened_axis_mask(), 0);
    assert!(mixed.reshaped(&[4; 5]).is_err());
    assert_eq!(offsets(&mixed.reshaped(&[2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2]).unwrap()), offsets(&mixed));
    let inverse: Vec<i64> = (0..10).map(|axis| order.iter().position(|at| *at == axis).unwrap() as i64).collect();
    assert_eq!(mixed.permuted(&inverse).unwrap(), layout);
    assert_eq!(mixed.to_dense(StrideOrder::Keep).unwrap(), mixed);
    let windows = layout.broadcast_to(&[[5].as_slice(), &[2; 10]].concat()).unwrap();
    assert!(!windows.is_unique() && windows.sliced(&[3.into()]).unwrap().is_unique());

    let most = layout.unsqueezed(&(10..64).collect::<Vec<i64>>()).unwrap();
    assert_eq!((most.ndim(), most.flattened_axis_mask()), (64, u64::MAX - 1));
    assert_eq!(most.flattened(0, -1, None).unwrap().shape(), [1024]);
    assert_eq!(most.flattened(0, -1, Some(1 << 63)).unwrap().ndim(), 63);
    assert_eq!(most.squeezed().unwrap(), layout);
    assert_eq!(most.unsqueezed(&[0]).unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(most.reshaped(&[1; 65]).unwrap_err().kind(), ErrorKind::Value);
}
