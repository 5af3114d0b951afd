"""Layouts: they make no call."""

from cuirass._layout import _StridedLayout as Layout

from ..registry import getters, pure

GETTERS = [
    "ndim", "shape", "strides", "strides_in_bytes", "stride_order", "volume", "is_unique", "is_contiguous_c",
    "is_contiguous_f", "is_contiguous_any", "is_dense", "offset_bounds", "min_offset", "max_offset",
    "slice_offset_in_bytes", "itemsize", "slice_offset",
]  # fmt: skip
CALLS = {
    "required_size_in_bytes": (), "flattened_axis_mask": (), "to_dense": (), "reshaped": ((6,),), "permuted": ((1, 0),),
    "flattened": (), "squeezed": (), "unsqueezed": (0,), "broadcast_to": ((4, 2, 3),), "repacked": (2,),
    "max_compatible_itemsize": (), "sliced": (slice(1),), "__getitem__": (0,), "__repr__": (), "__eq__": (3,),
}  # fmt: skip


def layout():
    return Layout((2, 3), None, 4)


OPERATIONS = [
    pure("_StridedLayout()", layout),
    pure("_StridedLayout.dense", lambda: Layout.dense((2, 3), 4)),
    pure("_StridedLayout.dense_like", Layout.dense_like, layout=layout),
    *getters("_StridedLayout", GETTERS, calls=False, layout=layout),
    *[
        pure(f"_StridedLayout.{name}", lambda layout, _name=name: getattr(layout, _name)(*CALLS[_name]), layout=layout)
        for name in CALLS
    ],
]
