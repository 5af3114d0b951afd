"""Copies with options, in batches and of rows; numpy says what they should do."""

import numpy as np
import pytest

import cuirass
from cuirass import Host
from cuirass.utils import CopyOptions, MemcpyOverlapMode, MemcpySrcAccessOrder, copy_2d, copy_3d, copy_batch

from .conftest import driver_version, needs_sim, refused_before

EAGER = CopyOptions(src_access_order="any", src_location_hint=Host(), overlap_mode="prefer_overlap_with_compute")
BATCHES = (12, 8)
needs_batches = pytest.mark.skipif("driver_version() < (12, 8)", reason="batches are of CUDA 12.8")


@pytest.fixture
def make(device, stream):
    """Device memory with these values."""
    host = cuirass.LegacyPinnedMemoryResource()

    def make(values):
        values = np.ascontiguousarray(values)
        buffer = device.memory_resource.allocate(values.nbytes, stream=stream)
        source = host.allocate(values.nbytes)
        np.frombuffer(source, dtype=np.uint8)[:] = values.view(np.uint8).reshape(-1)
        buffer.copy_from(source, stream=stream)
        stream.sync()
        return buffer

    return make


@pytest.fixture
def read(stream):
    """The bytes of device memory."""
    host = cuirass.LegacyPinnedMemoryResource()

    def read(buffer):
        target = host.allocate(buffer.size)
        buffer.copy_to(target, stream=stream)
        stream.sync()
        return np.frombuffer(target, dtype=np.uint8).copy()

    return read


def noise(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


class TestOptions:
    def test_they_are_data(self, device):
        options = CopyOptions()
        assert options.src_access_order is MemcpySrcAccessOrder.STREAM
        assert options.overlap_mode is MemcpyOverlapMode.DEFAULT
        assert (options.src_location_hint, options.dst_location_hint) == (None, None)
        assert CopyOptions("any").src_access_order is MemcpySrcAccessOrder.ANY
        assert EAGER.overlap_mode is MemcpyOverlapMode.PREFER_OVERLAP_WITH_COMPUTE
        assert hash(CopyOptions()) == hash(CopyOptions())
        assert CopyOptions(src_location_hint=device) != CopyOptions()
        with pytest.raises(AttributeError):
            options.overlap_mode = "default"

    @pytest.mark.parametrize("wrong", [{"src_access_order": "bogus"}, {"src_access_order": None}, {"overlap_mode": 1}])
    def test_words_that_are_none(self, wrong):
        with pytest.raises(ValueError, match="must be one of"):
            CopyOptions(**wrong)

    def test_those_that_say_nothing_make_a_plain_copy(self, make, read, stream):
        values = noise(300)
        source, target = make(values), make(np.zeros(300, np.uint8))
        with cuirass.testing.record() as recorded:
            assert source.copy_to(target, stream=stream, options=CopyOptions()) is target
        assert "cuMemcpyAsync" in [call.name for call in recorded.calls]
        np.testing.assert_array_equal(read(target), values)

    @pytest.mark.parametrize("order", list(MemcpySrcAccessOrder))
    def test_each_order(self, device, make, read, stream, order):
        values = noise(5000)
        source, target, other = make(values), make(np.zeros(5000, np.uint8)), make(np.zeros(5000, np.uint8))
        options = CopyOptions(order, src_location_hint=device, dst_location_hint=Host())
        with refused_before(BATCHES, "cuMemcpyBatchAsync"):
            source.copy_to(target, stream=stream, options=options)
        with refused_before(BATCHES, "cuMemcpyBatchAsync"):
            other.copy_from(source, stream=stream, options=options)
        expected = values if driver_version() >= BATCHES else np.zeros(5000, np.uint8)
        np.testing.assert_array_equal(read(target), expected)
        np.testing.assert_array_equal(read(other), expected)

    def test_without_a_target(self, make, read, stream):
        values = noise(100)
        with refused_before(BATCHES, "cuMemcpyBatchAsync"):
            copy = make(values).copy_to(stream=stream, options=EAGER)
            np.testing.assert_array_equal(read(copy), values)

    def test_arguments_that_are_none(self, make, stream):
        source, target = make(noise(8)), make(noise(8))
        for options in ("any", {}, 1):
            with pytest.raises(TypeError, match="must be CopyOptions"):
                source.copy_to(target, stream=stream, options=options)
        with pytest.raises(TypeError, match="src_location_hint must be a Device or a Host"):
            source.copy_to(target, stream=stream, options=CopyOptions(src_location_hint=0))
        with pytest.raises(TypeError, match="legacy default stream"):
            source.copy_to(target, stream=cuirass.LEGACY_DEFAULT_STREAM, options=CopyOptions())
        with pytest.raises(ValueError, match="same size"):
            source.copy_to(make(noise(9)), stream=stream, options=EAGER)


class TestBatch:
    @pytest.mark.parametrize("count", [1, 2, 50])
    @pytest.mark.parametrize("options", [None, CopyOptions(), EAGER, "each"])
    def test_each_pair_is_copied(self, make, read, stream, count, options):
        values = [noise(1 + 13 * at, at) for at in range(count)]
        sources, targets = [make(one) for one in values], [make(np.zeros_like(one)) for one in values]
        if options == "each":
            options = [EAGER if at % 2 else CopyOptions() for at in range(count)]
        with refused_before(BATCHES, "cuMemcpyBatchAsync"):
            copy_batch(stream, sources, targets, options=options)
            for target, one in zip(targets, values, strict=True):
                np.testing.assert_array_equal(read(target), one)

    @needs_batches
    def test_on_the_threads_default_stream(self, device, make, read, stream):
        values = noise(77)
        source, target = make(values), make(np.zeros(77, np.uint8))
        copy_batch(cuirass.PER_THREAD_DEFAULT_STREAM, [source], [target])
        device.sync()
        np.testing.assert_array_equal(read(target), values)

    def test_arguments_that_make_no_batch(self, make, stream):
        a, b, c, d = (make(noise(8, at)) for at in range(4))
        longer = make(noise(9))
        for srcs, dsts, options, error in (
            ([], [], None, ValueError),
            ([a, b], [c], None, ValueError),
            ([a, b], [c, longer], None, ValueError),
            ([a, b], [c, d], [EAGER], ValueError),
            ([a, b], [c, d], [EAGER, None], TypeError),
            ([a, b], [c, d], {}, TypeError),
            ([a, b], [c, d], "x", ValueError),
            (a, c, None, TypeError),
            ([a, 5], [c, d], None, TypeError),
            (iter([a]), [c], None, TypeError),
        ):
            with pytest.raises(error):
                copy_batch(stream, srcs, dsts, options=options)
        with pytest.raises(TypeError, match="legacy default stream"):
            copy_batch(cuirass.LEGACY_DEFAULT_STREAM, [a], [b])
        b.close()
        with pytest.raises(RuntimeError, match="closed"):
            copy_batch(stream, [a], [b])

    def test_copies_that_depend_on_one_another(self, make, read, stream):
        values = [noise(64, at) for at in range(3)]
        a, b, c = map(make, values)
        for srcs, dsts in (([a, b], [b, c]), ([a, b], [c, c]), ([b, a], [c, b])):
            with pytest.raises(ValueError, match="in no order"):
                copy_batch(stream, srcs, dsts)
        for buffer, one in zip((a, b, c), values, strict=True):
            np.testing.assert_array_equal(read(buffer), one)

    def test_a_capture_goes_on(self, device, make, read, stream):
        values = noise(64)
        source, target = make(values), make(np.zeros(64, np.uint8))
        builder = device.create_graph_builder()
        builder.begin_building()
        for use in (
            lambda: copy_batch(builder, [source], [target]),
            lambda: copy_batch(builder.stream, [source], [target]),
            lambda: source.copy_to(target, stream=builder, options=EAGER),
            lambda: source.copy_to(target, stream=builder, options=CopyOptions()),
        ):
            with pytest.raises(TypeError, match="graph cannot have"):
                use()
        source.copy_to(target, stream=builder)
        source.close()
        graph = builder.end_building().complete()
        graph.launch(stream)
        np.testing.assert_array_equal(read(target), values)


def lying(buffer_bytes, offset, pitch, rows, width, height, depth):
    """A view of the bytes that a copy touches, by slice, row and byte."""
    pitch, rows = pitch or width, rows or height
    return np.lib.stride_tricks.as_strided(
        buffer_bytes[offset:], shape=(depth, height, width), strides=(pitch * rows, pitch, 1)
    )


class TestRows:
    @pytest.mark.parametrize("to", [(0, 0), (7, 0), (3, 19)])
    @pytest.mark.parametrize("from_", [(0, 0), (5, 16), (1, 31)])
    @pytest.mark.parametrize("size", [(5, 4), (16, 1), (1, 9), (0, 3)])
    def test_2d(self, make, read, stream, to, from_, size):
        (width, height), before, values = size, noise(400, 1), noise(400, 2)
        target, source = make(before), make(values)
        expected = before.copy()
        lying(expected, *to, 0, *size, 1)[:] = lying(values, *from_, 0, *size, 1)
        copy_2d(
            target,
            source,
            width=width,
            height=height,
            dst_offset=to[0],
            dst_pitch=to[1],
            src_offset=from_[0],
            src_pitch=from_[1],
            stream=stream,
        )
        np.testing.assert_array_equal(read(target), expected)

    @pytest.mark.parametrize("to", [(0, 0, 0), (7, 0, 5), (3, 19, 0)])
    @pytest.mark.parametrize("from_", [(0, 0, 0), (5, 16, 6), (1, 9, 4)])
    @pytest.mark.parametrize("size", [(5, 4, 3), (8, 1, 4), (1, 3, 2), (6, 2, 1)])
    def test_3d(self, make, read, stream, to, from_, size):
        (width, height, depth), before, values = size, noise(600, 1), noise(600, 2)
        target, source = make(before), make(values)
        expected = before.copy()
        lying(expected, *to, *size)[:] = lying(values, *from_, *size)
        copy_3d(
            target,
            source,
            width=width,
            height=height,
            depth=depth,
            dst_offset=to[0],
            dst_pitch=to[1],
            dst_rows=to[2],
            src_offset=from_[0],
            src_pitch=from_[1],
            src_rows=from_[2],
            stream=stream,
        )
        np.testing.assert_array_equal(read(target), expected)

    def test_with_an_array_of_the_host(self, make, read, stream):
        values, result = noise(96).reshape(8, 12), np.zeros((8, 20), np.uint8)
        inner = make(np.zeros(8 * 16, np.uint8))
        source, target = (
            cuirass.Buffer.from_handle(one.ctypes.data, one.nbytes, owner=one) for one in (values, result)
        )
        copy_2d(inner, source, width=10, height=8, src_pitch=12, dst_pitch=16, src_offset=2, stream=stream)
        copy_2d(target, inner, width=10, height=8, src_pitch=16, dst_pitch=20, dst_offset=5, stream=stream)
        stream.sync()
        np.testing.assert_array_equal(read(inner).reshape(8, 16)[:, :10], values[:, 2:])
        expected = np.zeros((8, 20), np.uint8)
        expected[:, 5:15] = values[:, 2:]
        np.testing.assert_array_equal(result, expected)

    def test_rows_outside(self, make, read, stream):
        target, source = make(np.zeros(100, np.uint8)), make(noise(100))
        for arguments in (
            {"width": 101, "height": 1},
            {"width": 10, "height": 11},
            {"width": 10, "height": 10, "dst_offset": 1},
            {"width": 10, "height": 3, "src_pitch": 46},
            {"width": 10, "height": 3, "dst_pitch": 9},
            {"width": 1, "height": 2**64 - 1},
        ):
            with pytest.raises(ValueError, match="bytes"):
                copy_2d(target, source, **arguments, stream=stream)
        with pytest.raises(ValueError, match="slices of the target would overlap"):
            copy_3d(target, source, width=2, height=4, depth=2, dst_rows=3, stream=stream)
        with pytest.raises(ValueError, match="width must be from 0 to"):
            copy_2d(target, source, width=-1, height=1, stream=stream)
        with pytest.raises(TypeError, match="must be a Buffer"):
            copy_2d(target, b"abc", width=1, height=1, stream=stream)
        assert not read(target).any()

    def test_sides_that_meet(self, make, read, stream):
        """A byte that is both read and written; rows of one between those of the other are none."""
        values = noise(400)
        both = make(values)
        part = cuirass.Buffer.from_handle(int(both.handle) + 8, 392, owner=both)
        flat, rows = {"width": 8, "height": 10}, {"src_pitch": 20, "dst_pitch": 20}
        cases = [
            (both, both, {**flat, **rows}),
            (both, both, {**flat, **rows, "dst_offset": 7}),
            (both, both, {**flat, **rows, "dst_offset": 7 + 9 * 20}),
            (both, part, {**flat, **rows, "dst_offset": 15}),
            (both, part, {**flat, **rows, "src_offset": 20, "dst_offset": 1}),
            (both, both, {**flat, "dst_pitch": 20, "src_offset": 160}),
            (both, both, {"width": 1, "height": 1}),
        ]
        for target, source, arguments in cases:
            with pytest.raises(ValueError, match="the source and the target overlap"):
                copy_2d(target, source, **arguments, stream=stream)
        slices = {"width": 4, "height": 3, "depth": 2, "dst_pitch": 20, "src_pitch": 20, "dst_rows": 5, "src_rows": 5}
        with pytest.raises(ValueError, match="the source and the target overlap"):
            copy_3d(both, both, **slices, dst_offset=103, stream=stream)
        np.testing.assert_array_equal(read(both), values)
        expected = values.copy().reshape(20, 20)
        copy_2d(both, both, **flat, **rows, dst_offset=8, stream=stream)
        expected[:10, 8:16] = expected[:10, :8]
        copy_2d(both, part, **flat, **rows, dst_offset=200, stream=stream)
        expected[10:20, :8] = expected[:10, 8:16]
        copy_3d(both, both, **slices, dst_offset=16, stream=stream)
        expected[[0, 1, 2, 5, 6, 7], 16:20] = expected[[0, 1, 2, 5, 6, 7], :4]
        np.testing.assert_array_equal(read(both), expected.ravel())
        # No byte is in an empty copy.
        copy_2d(both, both, width=0, height=10, stream=stream)

    def test_in_a_graph(self, device, make, read, stream):
        values = noise(60)
        source, target = make(values), make(np.zeros(100, np.uint8))
        builder = device.create_graph_builder()
        builder.begin_building()
        copy_2d(target, source, width=6, height=10, dst_pitch=10, stream=builder)
        source.close()
        graph = builder.end_building().complete()
        graph.launch(stream)
        np.testing.assert_array_equal(read(target).reshape(10, 10)[:, :6], values.reshape(10, 6))


@needs_sim
@needs_batches
@pytest.mark.unordered
@pytest.mark.parametrize("waits", [True, False])
def test_the_order_checker_sees_each_copy_of_a_batch(device, make, waits):
    one, other = (device.create_stream(options=cuirass.StreamOptions(nonblocking=True)) for _ in range(2))
    buffers = [make(noise(256, at)) for at in range(4)]
    with cuirass.sim.check_order() as order:
        buffers[1].fill(1, stream=one)
        if waits:
            other.wait(one)
        copy_batch(other, buffers[:2], buffers[2:])
        other.sync()
        one.sync()
    assert bool(order.findings) is not waits


@needs_sim
def test_nothing_is_left_of_it(make, read, stream, device, census):
    for _ in range(3):
        source, target = make(noise(64)), make(noise(64))
        copy_2d(target, source, width=4, height=4, dst_pitch=8, stream=stream)
        source.close(stream)
        target.close(stream)
    stream.sync()


def test_fills_with_what_is_not_in_one_piece(make, stream):
    buffer = make(noise(8))
    with pytest.raises(ValueError, match="in one piece"):
        buffer.fill(np.zeros((2, 4), np.uint8)[:, ::2], stream=stream)
    with pytest.raises(TypeError, match="must be an int"):
        buffer.fill(1.5, stream=stream)
