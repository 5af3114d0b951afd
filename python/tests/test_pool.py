"""Pools: whatever is allocated, used and given back on several streams, no two pieces of memory that are alive overlap,
and none is given out again before the order of the streams allows it."""

import contextlib

import numpy as np
import pytest

import cuirass
from cuirass import (
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    StreamOptions,
)

from .conftest import CHECKED, is_sim

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.thread_unsafe(reason="the checker is the whole process's")

STREAMS = 3
MOST = 700 << 10
MAKERS = {
    "device": lambda: DeviceMemoryResource(0, DeviceMemoryResourceOptions()),
    "small device": lambda: DeviceMemoryResource(0, DeviceMemoryResourceOptions(max_size=32 << 20)),
    "pinned": lambda: PinnedMemoryResource(PinnedMemoryResourceOptions()),
}

streams = st.integers(0, STREAMS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), streams, st.integers(1, 1 << 12) | st.integers(1, MOST)),
        st.tuples(st.just("use"), streams, st.integers(0, 30)),
        st.tuples(st.just("free"), streams, st.integers(0, 30)),
        st.tuples(st.just("sync"), streams, st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


class Piece:
    """Memory with a pattern of its own, and what of it was seen at its end."""

    def __init__(self, resource, size, stream, mark, room):
        self.buffer, self.size, self.mark, self.room = resource.allocate(size, stream=stream), size, mark, room
        self.stream = stream
        self.buffer.fill(mark, stream=stream)

    def moves_to(self, stream):
        if stream is not self.stream:
            stream.wait(self.stream)
            self.stream = stream

    def ends(self, stream):
        self.moves_to(stream)
        self.buffer.copy_to(self.room, stream=stream)
        self.buffer.close(stream)

    def overlaps(self, other):
        mine, theirs = int(self.buffer.handle), int(other.buffer.handle)
        return mine < theirs + other.size and theirs < mine + self.size


@contextlib.contextmanager
def in_order(seed):
    """On the simulated driver, in an order that the seed draws, and with the checker on."""
    if not is_sim():
        yield
        return
    before = cuirass.sim.state()["seed"]
    cuirass.sim.seed(seed)
    try:
        with cuirass.sim.check_order() as order:
            yield
    finally:
        cuirass.sim.seed(before)
    assert order.findings == []


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=40 if is_sim() else 15, deadline=None)
@given(steps=steps, seed=st.integers(1, 1 << 30))
def test_live_memory_is_apart_and_comes_back_in_order(kind, steps, seed):
    cuirass.Device(0).set_current()
    queues = [cuirass.Device(0).create_stream(options=StreamOptions(nonblocking=True)) for _ in range(STREAMS)]
    resource, host, live, ended = MAKERS[kind](), LegacyPinnedMemoryResource(), [], []
    with in_order(seed):
        for what, at, number in steps:
            stream = queues[at]
            if what == "sync":
                stream.sync()
            elif what == "allocate":
                mark = 1 + (len(live) + len(ended)) % 255
                piece = Piece(resource, number, stream, mark, host.allocate(number))
                assert piece.buffer.size == number and int(piece.buffer.handle) % 256 == 0
                assert not any(piece.overlaps(other) for other in live)
                live.append(piece)
            elif live and what == "use":
                piece = live[number % len(live)]
                piece.moves_to(stream)
                piece.mark = 1 + (piece.mark + 90) % 255
                piece.buffer.fill(piece.mark, stream=stream)
            elif live:
                ended.append(live.pop(number % len(live)))
                ended[-1].ends(stream)
        for piece in live:
            piece.ends(piece.stream)
        for stream in queues:
            stream.sync()
        for piece in ended + live:
            assert (np.frombuffer(piece.room, dtype=np.uint8) == piece.mark).all(), (piece.size, piece.mark)
            piece.room.close()
    assert resource.attributes.used_mem_current == 0
    resource.close()
    for stream in queues:
        stream.close()


@pytest.mark.skipif(not is_sim() or CHECKED, reason="the simulated driver's order of work, and its checker")
def test_the_property_can_fail():
    """Memory that is given back before another stream has used it is given out again."""
    cuirass.Device(0).set_current()
    first, second = (cuirass.Device(0).create_stream(options=StreamOptions(nonblocking=True)) for _ in range(2))
    resource = DeviceMemoryResource(0, DeviceMemoryResourceOptions(max_size=32 << 20))
    with pytest.raises(AssertionError), in_order(1):
        early = resource.allocate(20 << 20, stream=first)
        second.wait(first)
        early.fill(1, stream=second)
        early.close(first)
        late = resource.allocate(20 << 20, stream=first)
        late.fill(2, stream=first)
        for stream in (first, second):
            stream.sync()
    late.close()
    first.sync()
    resource.close()
