"""Copies between views: any layout to any other, between host, page-locked and device memory, beside numpy."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuirass
from cuirass import testing
from cuirass._layout import _StridedLayout
from cuirass.utils import StridedMemoryView

PLACES = ("host", "pinned", "device")
ROOM = 4096


class Memory:
    """A piece of memory of one place, and what it should hold."""

    def __init__(self, place, device, stream):
        self.place, self.stream = place, stream
        self.expected = np.zeros(ROOM, np.uint8)
        if place == "host":
            self.array = np.zeros(ROOM, np.uint8)
            self.view = StridedMemoryView.from_any_interface(self.array, -1)
            return
        if place == "pinned":
            self.buffer = cuirass.LegacyPinnedMemoryResource().allocate(ROOM)
            self.array = np.asarray(memoryview(self.buffer))
        else:
            self.buffer = device.allocate(ROOM, stream=stream)
            self.staging = cuirass.LegacyPinnedMemoryResource().allocate(ROOM)
            self.array = np.asarray(memoryview(self.staging))
        self.view = StridedMemoryView.from_buffer(self.buffer, (ROOM,), itemsize=1)

    def fill(self, values):
        self.expected[:] = values
        self.array[:] = values
        if self.place == "device":
            self.buffer.copy_from(self.staging, stream=self.stream)

    def read(self):
        if self.place == "device":
            self.buffer.copy_to(self.staging, stream=self.stream)
        self.stream.sync()
        return self.array


@pytest.fixture(scope="module")
def places():
    device = cuirass.Device(0)
    device.set_current()
    stream = device.create_stream()
    yield {(place, role): Memory(place, device, stream) for place in PLACES for role in ("to", "from")}, stream
    stream.close()


@st.composite
def layouts(draw, shape, itemsize, repeats):
    """Where a layout of a shape starts within the room, and the layout: any order of axes, gaps, directions, and for a
    source repeated elements. None where it does not fit."""
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step + draw(st.sampled_from((0, 0, 0, 1, 3)))
        step = strides[axis] * max(1, shape[axis])
        if repeats and draw(st.integers(0, 5)) == 0:
            strides[axis] = 0
        if draw(st.booleans()):
            strides[axis] = -strides[axis]
    layout = _StridedLayout(tuple(shape), tuple(strides), itemsize)
    low = -layout.min_offset if layout.volume else 0
    high = layout.max_offset if layout.volume else 0
    room = ROOM // itemsize - low - high - 1
    start = low + draw(st.integers(0, max(0, min(room, 5))))
    if room < 0:
        return None
    return start, layout


def view_at(memory, choice):
    start, layout = choice
    owner = cuirass.Buffer.from_handle(memory.view.ptr, ROOM, owner=memory)
    # Strides of both signs are reached through slices of a layout that has none but positive ones.
    positive = tuple(abs(stride) for stride in layout.strides)
    low = start + (layout.min_offset if layout.volume else 0)
    span = (
        1 + sum((extent - 1) * stride for extent, stride in zip(layout.shape, positive, strict=True))
        if layout.volume
        else 0
    )
    bytes_ = cuirass.Buffer.from_handle(
        memory.view.ptr + low * layout.itemsize, max(span, 1) * layout.itemsize, owner=owner
    )
    view = StridedMemoryView.from_buffer(bytes_, layout.shape, positive, itemsize=layout.itemsize)
    index = tuple(slice(None, None, -1 if stride < 0 else 1) for stride in layout.strides)
    return view.view(view._layout[index])


def model_at(memory, choice):
    start, layout = choice
    return np.lib.stride_tricks.as_strided(
        memory.expected[start * layout.itemsize :],
        (*layout.shape, layout.itemsize),
        (*(stride * layout.itemsize for stride in layout.strides), 1),
    )


@st.composite
def copies(draw):
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    itemsize = draw(st.sampled_from((1, 2, 3, 4, 8, 16)))
    to, source = draw(layouts(shape, itemsize, False)), draw(layouts(shape, itemsize, True))
    return (
        draw(st.sampled_from(PLACES)),
        draw(st.sampled_from(PLACES)),
        to,
        source,
        draw(st.sampled_from((None, True, False))),
    )


@given(copies(), st.integers(0, 1 << 30))
@settings(max_examples=400, deadline=None)
def test_any_copy_is_numpys(places, copy, seed):
    memories, stream = places
    to_place, from_place, to_layout, from_layout, blocking = copy
    if to_layout is None or from_layout is None:
        return
    to, source = memories[to_place, "to"], memories[from_place, "from"]
    random = np.random.default_rng(seed)
    to.fill(random.integers(0, 256, ROOM, np.uint8))
    source.fill(random.integers(0, 256, ROOM, np.uint8))
    if blocking is False or "host" not in (to_place, from_place):
        stream.sync()
    view_at(to, to_layout).copy_from(view_at(source, from_layout), stream, blocking=blocking)
    model_at(to, to_layout)[...] = model_at(source, from_layout)
    assert np.array_equal(to.read(), to.expected)
    assert np.array_equal(source.read(), source.expected)


def numpy_view(array):
    return StridedMemoryView.from_any_interface(array, -1)


@pytest.fixture
def on_device(device, stream):
    buffers = []

    def make(shape, dtype="f4", strides=None, room=1 << 16):
        buffers.append(device.allocate(room, stream=stream))
        return StridedMemoryView.from_buffer(buffers[-1], shape, strides, dtype=np.dtype(dtype))

    yield make
    for buffer in buffers:
        buffer.close()


def copy_calls(recording):
    return [call.name for call in recording.calls if call.name.startswith("cuMemcpy")]


def test_how_many_calls(device, stream, on_device):
    """One where the elements lie in the same order; one a row for what does not."""
    for to, source, calls in [
        (on_device((8, 16)), on_device((8, 16)), ["cuMemcpyAsync"]),
        (on_device((8, 16), strides=(1, 8)), on_device((8, 16), strides=(1, 8)), ["cuMemcpyAsync"]),
        (on_device((8, 16)), on_device((8, 16), strides=(20, 1)), ["cuMemcpy2DAsync_v2"]),
        (on_device((8, 16), strides=(32, 2)), on_device((8, 16)), ["cuMemcpy2DAsync_v2"]),
        (on_device((2, 3, 4)), on_device((2, 3, 4), strides=(24, 4, 1)), ["cuMemcpy2DAsync_v2"]),
        (on_device((8, 16)), on_device((8, 16), strides=(1, 8)), ["cuMemcpy2DAsync_v2"] * 8),
        (on_device((8, 1)), on_device((8, 1), strides=(1, 99)), ["cuMemcpyAsync"]),
        (on_device((0, 4)), on_device((0, 4)), []),
        (on_device((4,)), on_device((4,), strides=(0,)), ["cuMemcpyAsync"] * 4),
    ]:
        with testing.record() as recording:
            to.copy_from(source, stream)
        assert copy_calls(recording) == calls
    same = on_device((8, 16))
    with testing.record() as recording:
        same.copy_from(same.view(), stream)
    assert copy_calls(recording) == []
    # The host rearranges: one call, whatever the order of the axes.
    array = np.arange(8 * 16 * 4, dtype="f4").reshape(8, 16, 4)
    target = on_device((4, 8, 16))
    with testing.record() as recording:
        target.copy_from(numpy_view(array.transpose(2, 0, 1)), stream)
    assert copy_calls(recording) == ["cuMemcpyAsync"]
    back = np.zeros((16, 8, 4), "f4").transpose(2, 1, 0)
    with testing.record() as recording:
        target.copy_to(numpy_view(back), stream)
    assert copy_calls(recording) == ["cuMemcpyAsync"]
    assert np.array_equal(back, array.transpose(2, 0, 1))


def test_blocking(device, stream, on_device, pinned):
    def waits(to, source, **keywords):
        with testing.record() as recording:
            to.copy_from(source, stream, **keywords)
        return [call.name for call in recording.calls].count("cuStreamSynchronize")

    first, second = on_device((8,)), on_device((8,))
    host = numpy_view(np.zeros(8, "f4"))
    memory, _view = pinned(32)
    locked = StridedMemoryView.from_buffer(memory, (8,), dtype=np.dtype("f4"))
    assert waits(first, second) == 0
    assert waits(first, second, blocking=True) == 1
    assert waits(first, host) == 1
    assert waits(host, first) == 1
    assert waits(first, host, blocking=False) == 0
    assert waits(locked, first) == 0
    assert waits(host, numpy_view(np.ones(8, "f4"))) == 1, "before: the host copies"
    # The legacy default stream, where none is given.
    array = np.full(8, 7, "f4")
    numpy_view(array).copy_to(first)
    result = np.zeros(8, "f4")
    first.copy_to(numpy_view(result))
    assert np.array_equal(result, array)


def test_what_is_refused(device, stream, on_device):
    target = on_device((3, 4))
    frozen = np.zeros((3, 4), "f4")
    frozen.flags.writeable = False
    buffer = device.allocate(256, stream=stream)
    part = StridedMemoryView.from_buffer(buffer, (16,), itemsize=4)
    for to, source, text in [
        (target, on_device((4, 3)), "shape"),
        (target, on_device((1, 4)), "shape"),
        (target, on_device((3, 4), "i4"), "float32.*|int32.*"),
        (target, on_device((3, 4), "f8"), "type"),
        (target, StridedMemoryView.from_buffer(buffer, (3, 4), itemsize=2), "bytes"),
        (numpy_view(frozen), target, "read-only"),
        (on_device((3, 4), strides=(0, 1)), target, "share an address"),
        (on_device((3, 4), strides=(1, 1)), target, "share an address"),
        (part.view(part._layout[1:]), part.view(part._layout[:-1]), "overlap"),
        (part.view(part._layout[::-1]), part, "overlap"),
    ]:
        with testing.record() as recording, pytest.raises(ValueError, match=text):
            to.copy_from(source, stream)
        assert copy_calls(recording) == []
    for to, arguments in [(target, (frozen, stream)), (target, (target, None)), (target, (target, 5))]:
        with pytest.raises(TypeError):
            to.copy_from(*arguments)
    with pytest.raises(TypeError, match="allocator"):
        target.copy_from(numpy_view(frozen), stream, allocator=5)
    # Types that are not known are those of the other side.
    unknown = StridedMemoryView.from_buffer(buffer, (3, 4), itemsize=4)
    unknown.copy_from(target, stream)
    buffer.close()


def test_the_allocators_memory(device, stream, on_device):
    array = np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(2, 1, 0)
    target = on_device((4, 3, 2))
    asked = []

    class Own(cuirass.MemoryResource):
        inner = cuirass.LegacyPinnedMemoryResource()
        kept = {}
        is_device_accessible = True
        is_host_accessible = True
        device_id = -1

        def allocate(self, size, *, stream=None):
            asked.append(size)
            buffer = self.inner.allocate(size)
            self.kept[int(buffer.handle)] = buffer
            return cuirass.Buffer.from_handle(buffer.handle, size, mr=self, stream=stream)

        def deallocate(self, ptr, size, *, stream=None):
            asked.append(-size)
            self.kept.pop(int(ptr)).close()

    own = Own()
    target.copy_from(numpy_view(array), stream, own)
    back = np.zeros((2, 4, 3), "f4").transpose(1, 2, 0)
    target.copy_to(numpy_view(back), stream, allocator=own)
    assert np.array_equal(back, array)
    assert asked == [96, -96, 96, -96]
    target.copy_from(numpy_view(np.ascontiguousarray(array)), stream, own)
    assert asked == [96, -96, 96, -96], "nothing is rearranged"
    with pytest.raises(ValueError, match="host memory"):
        target.copy_from(numpy_view(array), stream, device.memory_resource)
    with testing.fail("cuMemcpyAsync"), pytest.raises(cuirass.CUDAError):
        target.copy_from(numpy_view(array), stream, own)
    assert asked[4:] == [96, -96]


def test_what_an_allocator_raises_on_the_way_back_is_a_note(device, stream, on_device, reports):
    """With the notes that it has itself: they may tell of further failures."""
    array = np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(2, 1, 0)
    target = on_device((4, 3, 2))

    class Own(cuirass.MemoryResource):
        is_device_accessible = True
        device_id = -1
        is_host_accessible = True

        def allocate(self, size, *, stream=None):
            self.buffer = cuirass.LegacyPinnedMemoryResource().allocate(size)
            return cuirass.Buffer.from_handle(self.buffer.handle, size, mr=self, stream=stream)

        def deallocate(self, ptr, size, *, stream=None):
            error = LookupError("mine")
            error.add_note("and what else failed")
            raise error

    class OfTheDevice(Own):
        is_host_accessible = False

    with testing.fail("cuMemcpyAsync"), pytest.raises(cuirass.CUDAError, match="cuMemcpyAsync") as caught:
        target.copy_from(numpy_view(array), stream, Own())
    assert any("mine; and what else failed" in note for note in caught.value.__notes__), caught.value.__notes__
    with pytest.raises(ValueError, match="host memory") as caught:
        target.copy_from(numpy_view(array), stream, OfTheDevice())
    assert any("mine; and what else failed" in note for note in caught.value.__notes__), caught.value.__notes__
    assert reports == []


@pytest.mark.parametrize("direction", ["to device", "from device"])
@pytest.mark.parametrize("call", ["cuMemcpyAsync", "cuStreamSynchronize", "cuMemcpy2DAsync_v2"])
@pytest.mark.parametrize("done", [False, True])
def test_failures_are_raised(device, stream, on_device, direction, call, done, reports):
    array = np.arange(24, dtype="f4").reshape(2, 3, 4)
    array = array[:, :, :3] if call == "cuMemcpy2DAsync_v2" else array.transpose(2, 1, 0)
    host, target = numpy_view(array), on_device(array.shape)
    to, source = (target, host) if direction == "to device" else (host, target)
    with (
        testing.fail(call, status="CUDA_ERROR_UNKNOWN", done=done),
        pytest.raises(cuirass.CUDAError, match="CUDA_ERROR_UNKNOWN") as caught,
    ):
        to.copy_from(source, stream)
    assert caught.value.call == call
    assert reports == []
    to.copy_from(source, stream)


def test_parts_that_were_submitted(device, stream, on_device):
    to, source = on_device((8, 16)), on_device((8, 16), strides=(1, 8))
    with testing.fail("cuMemcpy2DAsync_v2", nth=4), pytest.raises(cuirass.CUDAError) as caught:
        to.copy_from(source, stream)
    assert any("3 parts" in note for note in caught.value.__notes__)


def test_in_a_capture(device, stream, on_device):
    values = np.arange(12, dtype="f4").reshape(3, 4)
    to, source, host = on_device((4, 3)), on_device((3, 4)), numpy_view(np.zeros((4, 3), "f4"))
    source.copy_from(numpy_view(values), stream)
    builder = stream.create_graph_builder().begin_building("global")
    turned = source.view(_StridedLayout((4, 3), (1, 4), 4))
    to.copy_from(turned, builder)
    for target, origin, blocking in [(to, host, None), (host, to, None), (to, turned, True)]:
        with pytest.raises(RuntimeError, match="captured"):
            target.copy_from(origin, builder, blocking=blocking)
    # Nor is anything allocated for what is refused, or waited for.
    rearranged, allocator = numpy_view(values.T), cuirass.LegacyPinnedMemoryResource()
    for blocking in (None, False, True):
        with testing.record() as recording, pytest.raises(RuntimeError, match="captured") as caught:
            to.copy_from(rearranged, builder, allocator, blocking=blocking)
        assert {call.name for call in recording.calls} == {"cuStreamIsCapturing"}
        assert builder.is_building and not hasattr(caught.value, "__notes__")
    graph = builder.end_building().complete()
    builder.close()
    del turned, source, origin
    for _ in range(2):
        graph.launch(stream)
    to.copy_to(host, stream)
    assert np.array_equal(host.exporting_obj, values.T)
    graph.close()


NARROW = [
    "bfloat16",
    *(
        f"float8_{kind}"
        for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    ),
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
]


def test_types(device, stream, on_device):
    for kind in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]:
        array = np.arange(6).astype(kind).reshape(2, 3)
        target = on_device((2, 3), kind)
        target.copy_from(numpy_view(array), stream)
        result = np.zeros((2, 3), kind, order="F")
        target.copy_to(numpy_view(result), stream)
        assert np.array_equal(result, array)
    with contextlib.suppress(ImportError):
        import ml_dtypes

        for name in NARROW:
            kind = np.dtype(getattr(ml_dtypes, name))
            array = np.array([0, 1, 1, 0, 0, 1]).astype(kind).reshape(2, 3)
            target = on_device((2, 3), kind)
            assert target.dtype == kind and target.size == 6
            target.copy_from(numpy_view(array), stream)
            result = np.zeros((2, 3), kind, order="F")
            target.copy_to(numpy_view(result), stream)
            assert result.tobytes("C") == array.tobytes("C"), name
        array = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
        target = on_device((2, 3), ml_dtypes.bfloat16)
        target.copy_from(numpy_view(array), stream)
        result = np.zeros_like(array)
        target.copy_to(numpy_view(result), stream)
        assert np.array_equal(result, array)
        with pytest.raises(ValueError, match="bfloat16"):
            target.copy_from(numpy_view(array.view(np.float16)), stream)
