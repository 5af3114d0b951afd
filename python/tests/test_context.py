import gc
import weakref

import pytest

from cuirass import Context, ContextOptions, StreamOptions


def test_the_primary_context(device):
    context = device.context
    assert context == device.context
    assert hash(context) == hash(device.context)
    assert not context.is_closed
    assert not context.is_green
    assert int(context.handle) != 0
    assert weakref.ref(context)() is context


def test_a_created_context(device, census):
    made = device.create_context()
    assert made != device.context
    stream = made.create_stream(StreamOptions(nonblocking=False))
    assert stream.context == made
    assert not stream.is_nonblocking
    made.close()
    made.close()
    assert made.is_closed
    assert made.handle is None
    with pytest.raises(RuntimeError, match="closed"):
        made.create_stream()
    # The stream is a share of the context.
    stream.sync()
    stream.close()
    del stream
    gc.collect()


def test_a_current_context_is_not_closed(device, census):
    made = device.create_context()
    previous = device.set_current(made)
    with pytest.raises(RuntimeError, match="current on this thread"):
        made.close()
    assert not made.is_closed
    device.set_current(previous)
    made.close()
    previous.close()
    del made, previous


def test_creating_keeps_what_is_current(device, census):
    before = device.context
    made = device.create_context()
    assert device.create_stream().context == before
    assert made != before
    del made, before


def test_not_constructed():
    with pytest.raises(RuntimeError, match=r"Device\.context"):
        Context()


def test_green_contexts_are_not_there_yet(device):
    with pytest.raises(NotImplementedError):
        device.create_context(ContextOptions(resources=[]))


def test_closed_contexts_are_only_themselves(device):
    one, other = device.create_context(), device.create_context()
    one.close()
    other.close()
    assert one == one
    assert one != other
    assert "closed" in repr(one)
