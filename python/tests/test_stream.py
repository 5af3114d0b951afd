import gc
import threading
import weakref

import pytest

import cuirass
from cuirass import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream, StreamOptions


class Foreign:
    """Another library's stream."""

    def __init__(self, stream, version=0):
        self.answer = (version, int(stream.handle))

    def __cuda_stream__(self):
        return self.answer


def test_create_and_close(device, census):
    stream = device.create_stream()
    assert stream.is_nonblocking is True
    assert stream.priority == 0
    assert stream.device is device
    assert stream.context == device.context
    assert stream.__cuda_stream__() == (0, int(stream.handle))
    assert weakref.ref(stream)() is stream
    stream.close()
    stream.close()
    assert stream.is_closed
    assert int(stream.handle) == 0
    for use in (stream.sync, stream.record, stream.__cuda_stream__, lambda: stream.device, lambda: stream.wait(stream)):
        with pytest.raises(RuntimeError, match="this stream is closed"):
            use()


def test_options(device):
    assert not device.create_stream(options=StreamOptions(nonblocking=False)).is_nonblocking
    assert device.create_stream(options=StreamOptions(priority=-1)).priority == -1
    assert device.create_stream(options={"priority": -1}).priority == -1
    with pytest.raises(ValueError, match="priority must be from"):
        device.create_stream(options=StreamOptions(priority=99))
    with pytest.raises(TypeError, match="options must be StreamOptions"):
        device.create_stream(options=3)
    with pytest.raises(TypeError):
        device.create_stream(options={"color": 1})


def test_equality_and_hash(device):
    one, other = device.create_stream(), device.create_stream()
    assert one == one and one != other and one != 1
    same = Stream.from_handle(one.handle)
    assert same == one and hash(same) == hash(one)
    handle = int(one.handle)
    one.close()
    assert one == one and one != Stream.from_handle(handle)


def test_record_and_wait(device):
    one, other = device.create_stream(), device.create_stream()
    event = one.record()
    assert not event.is_timing_enabled
    assert one.record(event) is event
    assert one.record(event=event) is event
    other.wait(event)
    other.wait(one)
    other.wait(Foreign(one))
    other.wait(LEGACY_DEFAULT_STREAM)
    other.sync()
    with pytest.raises(TypeError):
        one.record(1)
    with pytest.raises(ValueError, match="__cuda_stream__"):
        one.wait(1)


def test_foreign_streams_are_kept(device):
    stream = device.create_stream()
    foreign = Foreign(stream)
    alive = weakref.ref(foreign)
    wrapped = device.create_stream(foreign)
    del foreign
    assert alive() is not None
    assert wrapped == stream
    wrapped.record().sync()
    wrapped.close()
    assert alive() is None
    # It was not ours to destroy.
    stream.sync()


def test_a_foreign_object_that_holds_its_wrapper_is_collected(device):
    stream = device.create_stream()
    foreign = Foreign(stream)
    foreign.wrapper = device.create_stream(foreign)
    alive = weakref.ref(foreign)
    del foreign
    gc.collect()
    assert alive() is None


def test_a_buffer_keeps_the_foreign_object_of_its_stream(device):
    stream = device.create_stream()
    foreign = Foreign(stream)
    foreign.wrapper = device.create_stream(foreign)
    buffer = device.allocate(64, stream=foreign.wrapper)
    alive = weakref.ref(foreign)
    del foreign
    gc.collect()
    assert alive() is not None
    assert alive().wrapper is not None
    buffer.close()
    gc.collect()
    assert alive() is None


def test_wrong_protocols(device, stream):
    with pytest.raises(TypeError, match="__cuda_stream__"):
        device.create_stream(1)
    with pytest.raises(RuntimeError, match="version 1"):
        device.create_stream(Foreign(stream, version=1))
    wrong = Foreign(stream)
    wrong.answer = 3
    with pytest.raises(RuntimeError, match="pair"):
        device.create_stream(wrong)
    with pytest.raises(ValueError):
        device.create_stream(stream, options=StreamOptions())

    class Raises:
        def __cuda_stream__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.create_stream(Raises())


def test_a_stream_of_ours_as_obj_is_a_share(device, census):
    stream = device.create_stream()
    share = device.create_stream(stream)
    assert share == stream
    stream.close()
    share.sync()
    share.close()


def test_default_streams(device):
    assert LEGACY_DEFAULT_STREAM.__cuda_stream__() == (0, 1)
    assert PER_THREAD_DEFAULT_STREAM.__cuda_stream__() == (0, 2)
    assert int(LEGACY_DEFAULT_STREAM.handle) == 1
    LEGACY_DEFAULT_STREAM.close()
    assert not LEGACY_DEFAULT_STREAM.is_closed
    assert LEGACY_DEFAULT_STREAM.device is device
    assert LEGACY_DEFAULT_STREAM.context == device.context
    LEGACY_DEFAULT_STREAM.sync()
    PER_THREAD_DEFAULT_STREAM.record().sync()


def test_not_constructed():
    with pytest.raises(RuntimeError, match="create_stream"):
        Stream()


def test_subclass(device):
    class Mine(Stream):
        pass

    with pytest.raises(RuntimeError):
        Mine()


def test_closing_while_others_use_it(device, census):
    for _ in range(20):
        stream = device.create_stream()
        event = device.create_event()
        stop = threading.Event()
        unexpected = []

        def use(stream=stream, event=event, stop=stop, unexpected=unexpected):
            while not stop.is_set():
                try:
                    stream.record(event)
                    stream.sync()
                except RuntimeError as error:
                    if "closed" not in str(error):
                        unexpected.append(error)
                    return
                except BaseException as error:
                    unexpected.append(error)
                    return

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        stream.close()
        stop.set()
        for thread in threads:
            thread.join()
        assert unexpected == []
        assert stream.is_closed
        event.close()
    cuirass.drain()
