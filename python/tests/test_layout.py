"""Layouts beside numpy, which has the same algebra, and beside the official class where it is installed."""

import inspect
import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cuirass._layout import _StridedLayout as Layout

np = pytest.importorskip("numpy")

try:
    from cuda.core._layout import _StridedLayout as Official
except ImportError:
    Official = None

needs_official = pytest.mark.skipif(Official is None, reason="cuda.core is not installed")
LIMIT = 2**63
# A shared machine's clock is no test.
unhurried = settings(deadline=None)


def array_of(layout, base):
    """The elements of a layout as an array over `base`, the layout's offset 0 being in the middle of it."""
    strides = layout.strides if layout.strides is not None else Layout.dense(layout.shape, 1).strides
    middle = base[len(base) // 2 + layout.slice_offset :]
    return np.lib.stride_tricks.as_strided(middle, layout.shape, [stride * base.itemsize for stride in strides])


BASE = np.arange(-4000, 4000, dtype=np.int32)


def elements(layout):
    """The offset of every element, as an array of the layout's shape."""
    return array_of(layout, BASE)


def same(layout, array):
    assert layout.shape == array.shape
    assert np.array_equal(elements(layout), array)


extents = st.integers(0, 4)
shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple) | st.lists(extents, max_size=4).map(tuple)
places = st.integers(-6, 6) | st.none()
slices = st.builds(slice, places, places, st.none() | st.integers(-3, 3).filter(bool))
indices = st.lists(slices | st.integers(-3, 2), max_size=4).map(tuple)


@st.composite
def arguments(draw):
    """Shape, strides and a slice of a layout: of an array, or of anything."""
    shape = draw(shapes)
    kind = draw(st.sampled_from(["none", "dense", "any"]))
    if kind == "none":
        return shape, None
    if kind == "any":
        return shape, tuple(draw(st.integers(-9, 9)) for _ in shape)
    order = draw(st.permutations(range(len(shape))))
    return shape, Layout.dense(shape, 4, tuple(order)).strides


@st.composite
def layouts(draw):
    layout = Layout(*draw(arguments()), 4)
    key = draw(indices)
    try:
        return layout[key] if draw(st.booleans()) else layout
    except ValueError:
        return layout


@unhurried
@given(layouts())
def test_what_it_answers_is_what_the_elements_show(layout):
    array = elements(layout)
    offsets = array.ravel().tolist()
    bounds = (min(offsets), max(offsets)) if offsets else (0, -1)
    assert layout.offset_bounds == bounds == (layout.min_offset, layout.max_offset)
    assert layout.ndim == array.ndim
    assert layout.volume == array.size
    assert layout.is_unique == (len(set(offsets)) == len(offsets))
    assert layout.is_contiguous_c == array.flags.c_contiguous
    assert layout.is_contiguous_f == array.flags.f_contiguous
    assert layout.is_contiguous_any == any(
        array.transpose(order).flags.c_contiguous for order in itertools.permutations(range(array.ndim))
    )
    assert layout.is_dense == (layout.is_contiguous_any and layout.slice_offset == 0)
    assert layout.slice_offset_in_bytes == 4 * layout.slice_offset
    if layout.strides is not None:
        assert layout.strides_in_bytes == tuple(4 * stride for stride in layout.strides)
    if bounds[0] < 0:
        with pytest.raises(ValueError):
            layout.required_size_in_bytes()
    else:
        assert layout.required_size_in_bytes() == 4 * (bounds[1] + 1)


@unhurried
@given(layouts(), st.data())
def test_reshaping_is_that_of_numpy(layout, data):
    factors = [n for n in layout.shape if n != 1]
    shape = data.draw(st.permutations(factors + [1] * data.draw(st.integers(0, 2))))
    shape = [math.prod(part) for part in _parts(shape, data)]
    array = elements(layout)
    try:
        expected = np.reshape(array, shape, copy=False)
    except ValueError:
        with pytest.raises(ValueError):
            layout.reshaped(tuple(shape))
        return
    same(layout.reshaped(tuple(shape)), expected)
    if shape and layout.volume:
        at = data.draw(st.integers(0, len(shape) - 1))
        assert layout.reshaped((*shape[:at], -1, *shape[at + 1 :])) == layout.reshaped(tuple(shape))


def _parts(values, data):
    """A list cut into pieces."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    return [values[a:b] for a, b in itertools.pairwise([0, *cuts, len(values)])] if values else []


@unhurried
@given(layouts(), indices)
def test_slicing_is_that_of_numpy(layout, key):
    array = elements(layout)
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(ValueError):
            layout[key]
        return
    same(layout[key], np.asarray(expected))
    assert layout.sliced(key) == layout[key]
    if len(key) == 1:
        assert layout[key[0]] == layout[key]


@unhurried
@given(layouts(), st.data())
def test_axes_move_as_in_numpy(layout, data):
    array = elements(layout)
    order = tuple(data.draw(st.permutations(range(array.ndim))))
    same(layout.permuted(order), array.transpose(order))
    same(layout.permuted(tuple(axis - array.ndim for axis in order)), array.transpose(order))
    squeezed = layout.squeezed()
    if layout.volume:
        same(squeezed, array.squeeze())
    else:
        assert (squeezed.shape, squeezed.strides) == ((0,), (0,))
    added = data.draw(st.lists(st.integers(-5, 5), max_size=2).map(tuple))
    try:
        expected = np.expand_dims(array, added)
    except ValueError:
        with pytest.raises(ValueError):
            layout.unsqueezed(added)
    else:
        same(layout.unsqueezed(added), expected)
    shape = tuple(data.draw(st.lists(extents, max_size=1))) + tuple(
        data.draw(extents) if data.draw(st.booleans()) else n for n in layout.shape
    )
    try:
        expected = np.broadcast_to(array, shape)
    except ValueError:
        with pytest.raises(ValueError):
            layout.broadcast_to(shape)
    else:
        same(layout.broadcast_to(shape), expected)


@unhurried
@given(layouts(), st.integers(0, 31))
def test_flattening_keeps_the_elements(layout, mask):
    array = elements(layout)
    for flat in (layout.flattened(), layout.flattened(mask=mask), layout.flattened(mask=layout.flattened_axis_mask())):
        assert np.array_equal(elements(flat).ravel(), array.ravel())
    assert layout.flattened() == layout.flattened(mask=layout.flattened_axis_mask())
    assert layout.volume == 0 or layout.flattened().flattened_axis_mask() == 0


@unhurried
@given(layouts(), st.sampled_from([1, 2, 4, 8, 16]), st.integers(-2, 3))
def test_repacking_is_that_of_numpy(layout, size, axis):
    assume(layout.volume and -layout.ndim <= axis < layout.ndim)
    try:
        repacked = layout.repacked(size, axis=axis)
    except ValueError:
        return
    # Each byte of memory is a number, that of its place: two bytes wide, as there are more than 256.
    memory, middle = np.arange(2**15, dtype=np.uint16), 2**14

    def listed(layout):
        strides = layout.strides or Layout.dense(layout.shape, 1).strides
        size = 2 * layout.itemsize
        array = np.ndarray(
            layout.shape,
            f"V{size}",
            memory,
            2 * (middle + layout.slice_offset_in_bytes),
            [size * stride for stride in strides],
        )
        return np.moveaxis(array, axis, -1).tobytes()

    assert listed(repacked) == listed(layout)
    assert repacked.volume * size == layout.volume * 4


@unhurried
@given(layouts())
def test_dense_layouts(layout):
    for order in "CF":
        expected = np.empty(layout.shape, np.int32, order)
        dense = layout.to_dense(order)
        assert dense == Layout.dense_like(layout, order)
        assert dense.is_dense
        assert dense.is_contiguous_c if order == "C" else dense.is_contiguous_f
        made = Layout.dense(layout.shape, 4, order)
        if layout.volume:
            assert made.strides_in_bytes == expected.strides
        else:
            assert made.strides == (0,) * layout.ndim
    kept = layout.to_dense()
    assert kept.is_dense
    assert kept.shape == layout.shape
    assert kept.to_dense() == kept
    order = layout.stride_order
    assert Layout.dense(layout.shape, 4, order).is_dense
    if layout.volume > 1 and layout.strides is not None:
        keys = [(abs(layout.strides[axis]), layout.shape[axis], -axis) for axis in order]
        assert keys == sorted(keys, reverse=True)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda: Layout((-1,), None, 4), ValueError, "negative"),
        (lambda: Layout((2,), (1, 2), 4), ValueError, "2 strides for 1 dimensions"),
        (lambda: Layout((2,), None, 0), ValueError, "positive"),
        (lambda: Layout((2,), None, -1), ValueError, "must be from"),
        (lambda: Layout((2.0,), None, 4), TypeError, "float"),
        (lambda: Layout(2, None, 4), TypeError, "tuple"),
        (lambda: Layout((2,), 4, 4), TypeError, "tuple"),
        (lambda: Layout((LIMIT,), None, 4), ValueError, "must be from"),
        (lambda: Layout((LIMIT - 1,), None, 4), ValueError, "64 bits"),
        (lambda: Layout((2**32, 2**32), (0, 0), 4), ValueError, "64 bits"),
        (lambda: Layout((3,), (-LIMIT,), 1), ValueError, "64 bits"),
        (lambda: Layout((3,), (6,), 4, divide_strides=True), ValueError, "multiple"),
        (lambda: Layout((1,) * 65, None, 4), ValueError, "at most 64"),
        (lambda: Layout.dense((2, 3), 4, "K"), ValueError, "kept"),
        (lambda: Layout.dense((2, 3), 4, "A"), ValueError, "permutation"),
        (lambda: Layout.dense((2, 3), 4, (1, 1)), ValueError, "twice"),
        (lambda: Layout.dense((2, 3), 4, None), TypeError, "tuple"),
        (lambda: Layout.dense_like(3), TypeError, "_StridedLayout"),
        (lambda: Layout((2, 3), None, 4).reshaped((4, -1)), ValueError, "arranged"),
        (lambda: Layout((2, 3), (1, 2), 4).reshaped((6,)), ValueError, "without copying"),
        (lambda: Layout((2, 3), None, 4).permuted((0,)), ValueError, "1 axes for 2"),
        (lambda: Layout((2, 3), None, 4).flattened(mask=-1), ValueError, "must be from"),
        (lambda: Layout((2, 3), None, 4).flattened(2), ValueError, "axis 2"),
        (lambda: Layout((2, 3), None, 4).unsqueezed("0"), TypeError, "str"),
        (lambda: Layout((2, 3), None, 4).broadcast_to((2, 4)), ValueError, "broadcast"),
        (lambda: Layout((2, 4), None, 4).repacked(6), ValueError, "neither divides"),
        (lambda: Layout((2, 4), None, 4).repacked(8, data_ptr=4), ValueError, "aligned"),
        (lambda: Layout((2, 4), None, 4).repacked(8, data_ptr=-8), ValueError, "must be from"),
        (lambda: Layout((2, 4), None, 4).max_compatible_itemsize(2), ValueError, "less than"),
        (lambda: Layout((2, 3), None, 4)[2], ValueError, "out of range for axis 0"),
        (lambda: Layout((2, 3), None, 4)[0, 0, 0], ValueError, "3 indices"),
        (lambda: Layout((2, 3), None, 4)[::0], ValueError, "zero"),
        (lambda: Layout((2, 3), None, 4)[...], TypeError, "ellipsis"),
        (lambda: Layout((2, 3), None, 4)[None], TypeError, "NoneType"),
        (lambda: Layout((2, 3), None, 4)[1.0], TypeError, "float"),
        (lambda: Layout((2, 3), None, 4)["a":], TypeError, "str"),
        (lambda: hash(Layout((2, 3), None, 4)), TypeError, "unhashable"),
    ],
)
def test_mistakes_are_named(function, error, words):
    with pytest.raises(error, match=words):
        function()


def test_slices_beyond_every_axis():
    layout = Layout((3,), (4,), 4)
    for key in (slice(-(2**70), 2**70), slice(None, None, 2**70), slice(None, None, -LIMIT), slice(2**70, None)):
        same(layout[key], elements(layout)[key])


SIGNATURES = {
    "__new__": ("shape", "strides", "itemsize", "divide_strides=False"),
    "dense": ("shape", "itemsize", "stride_order='C'"),
    "dense_like": ("other", "stride_order='K'"),
    "required_size_in_bytes": (),
    "flattened_axis_mask": (),
    "to_dense": ("stride_order='K'",),
    "reshaped": ("shape",),
    "permuted": ("axis_order",),
    "flattened": ("start_axis=0", "end_axis=-1", "mask=None"),
    "squeezed": (),
    "unsqueezed": ("axis",),
    "broadcast_to": ("shape",),
    "repacked": ("itemsize", "data_ptr=0", "axis=-1", "keep_dim=True"),
    "max_compatible_itemsize": ("max_itemsize=16", "data_ptr=0", "axis=-1"),
    "sliced": ("slices",),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    function = Layout if name == "__new__" else getattr(Layout, name)
    parameters = [str(value) for key, value in inspect.signature(function).parameters.items() if key != "self"]
    assert tuple(parameters) == SIGNATURES[name]


def test_what_it_is_like_as_an_object():
    layout = Layout((2, 3), None, 4)
    assert repr(layout) == "_StridedLayout(shape=(2, 3), strides=None, itemsize=4)"
    assert repr(layout[1:]) == "_StridedLayout(shape=(1, 3), strides=(3, 1), itemsize=4, _slice_offset=3)"
    assert layout == Layout((2, 3), None, 4)
    assert layout != Layout((2, 3), (3, 1), 4)
    assert layout != Layout((2, 3), None, 8)
    assert layout[1:] != Layout((1, 3), (3, 1), 4)
    assert layout != 3
    with pytest.raises(AttributeError):
        layout.itemsize = 8
    assert Layout.__module__ == "cuirass._layout"


# Beside the official class: what it answers is answered, but where that is no answer to what was asked.

STATE = (
    "shape",
    "itemsize",
    "slice_offset",
    "ndim",
    "volume",
    "is_contiguous_c",
    "is_contiguous_f",
    "is_contiguous_any",
    "is_dense",
    "offset_bounds",
    "min_offset",
    "max_offset",
    "slice_offset_in_bytes",
)


def alike(ours, theirs, strides=True):
    for name in STATE:
        assert getattr(ours, name) == getattr(theirs, name), name
    if strides:
        assert repr(ours) == repr(theirs)
        for name in ("strides", "strides_in_bytes", "stride_order"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.flattened_axis_mask() == theirs.flattened_axis_mask()
    # It answers False where it did not look closely.
    assert ours.is_unique or not theirs.is_unique
    if ours.min_offset >= 0:
        assert ours.required_size_in_bytes() == theirs.required_size_in_bytes()


def both(ours, theirs, function, strides=True):
    """The same operation on both, and what they made of it."""
    try:
        expected = function(theirs)
    except (ValueError, OverflowError):
        with pytest.raises(ValueError):
            function(ours)
        return ours, theirs
    made = function(ours)
    alike(made, expected, strides)
    return made, expected


axes = st.integers(-4, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("sliced"), st.tuples(indices)),
    st.tuples(
        st.just("permuted"), st.tuples(st.integers(0, 4).flatmap(lambda n: st.permutations(range(n))).map(tuple))
    ),
    st.tuples(st.just("unsqueezed"), st.tuples(axes | st.lists(axes, max_size=2).map(tuple))),
    st.tuples(st.just("flattened"), st.tuples() | st.tuples(axes, axes)),
    st.tuples(st.just("flattened"), st.tuples(st.just(0), st.just(-1), st.integers(0, 31))),
    st.tuples(st.just("squeezed"), st.tuples()),
    st.tuples(st.just("broadcast_to"), st.tuples(shapes)),
    st.tuples(st.just("to_dense"), st.tuples(st.sampled_from("KCFA"))),
    st.tuples(st.just("repacked"), st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.just(0), axes, st.booleans())),
)


@needs_official
@settings(unhurried, max_examples=600)
@given(arguments(), st.lists(OPERATIONS, max_size=4))
def test_chains_of_operations_end_as_the_official_ones(arguments, operations):
    ours, theirs = Layout(*arguments, 4), Official(*arguments, 4)
    alike(ours, theirs)
    for name, values in operations:
        ours, theirs = both(ours, theirs, lambda layout, name=name, values=values: getattr(layout, name)(*values))
    assert (ours == Layout(*arguments, 4)) == (theirs == Official(*arguments, 4))


@needs_official
@unhurried
@given(arguments(), shapes | st.lists(st.integers(-1, 8), max_size=4).map(tuple))
def test_reshaping_is_the_official_one_or_more(arguments, shape):
    ours, theirs = Layout(*arguments, 4), Official(*arguments, 4)
    try:
        expected = theirs.reshaped(shape)
    except ValueError:
        try:
            made = ours.reshaped(shape)
        except ValueError:
            return
        # It stumbles over axes of one element.
        assert 1 in ours.shape
        assert np.array_equal(elements(made).ravel(), elements(ours).ravel())
        return
    alike(ours.reshaped(shape), expected, strides=False)
    if 1 not in ours.shape:
        alike(ours.reshaped(shape), expected)


@needs_official
@unhurried
@given(arguments(), st.sampled_from([1, 2, 4, 8]), st.sampled_from([8, 16, 32, 24, 12]), st.integers(-3, 3), indices)
def test_the_largest_item_size_is_the_official_one_where_that_can_be_used(arguments, size, most, axis, key):
    ours, theirs = Layout(*arguments, size), Official(*arguments, size)
    ours, theirs = both(ours, theirs, lambda layout: layout[key])
    for address in (0, 2, 4, 8, 12, 256):
        try:
            expected = theirs.max_compatible_itemsize(most, address, axis)
        except ValueError:
            with pytest.raises(ValueError):
                ours.max_compatible_itemsize(most, address, axis)
            continue
        found = ours.max_compatible_itemsize(most, address, axis)
        if expected % size == 0 or size % expected == 0:
            assert found == expected
        assert ours.repacked(found, address if found > size else 0, axis).itemsize == found


@needs_official
@pytest.mark.parametrize("order", ["C", "F", "K", (1, 0, 2), (0, -1, 1), (0, 0, 1), (0, 3, 1), (0,)])
def test_orders_are_the_official_ones(order):
    def check(function):
        try:
            expected = function(Official)
        except ValueError:
            with pytest.raises(ValueError):
                function(Layout)
        else:
            alike(function(Layout), expected)

    for shape in ((2, 3, 4), (2, 0, 4), (1, 3, 1)):
        check(lambda kind, shape=shape: kind.dense(shape, 4, order))
        check(lambda kind, shape=shape: kind(shape, None, 4).to_dense(order))
        check(lambda kind, shape=shape: kind.dense_like(kind(shape, (12, 1, 2), 4), order))
        check(lambda kind, shape=shape: kind(shape, (16, 4, 8), 4, divide_strides=True))


@needs_official
def test_where_the_official_one_is_not_followed():
    """What it answers to these is no layout of the same bytes, or it gives up what can be answered."""
    assert Official((5, 4), None, 4).repacked(6).volume * 6 != 5 * 4 * 4
    with pytest.raises(ValueError):
        Layout((5, 4), None, 4).repacked(6)
    assert Official((5, 4), None, 3).max_compatible_itemsize() == 4
    assert Layout((5, 4), None, 3).max_compatible_itemsize() == 1
    assert not Official((4, 3), (4, 6), 4).is_unique or Layout((4, 3), (4, 6), 4).is_unique
    with pytest.raises(OverflowError):
        _ = Official((2**32, 2**32, 0), None, 4).volume
    assert Layout((2**32, 2**32, 0), None, 4).volume == 0
    with pytest.raises(ValueError):
        Official((4, 1, 3), (3, 77, 1), 4).reshaped((12,))
    assert Layout((4, 1, 3), (3, 77, 1), 4).reshaped((12,)).strides == (1,)
    assert Official((2.5,), None, 4).shape == (2,)
    with pytest.raises(TypeError):
        Layout((2.5,), None, 4)
