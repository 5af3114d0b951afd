import weakref

import pytest

import cuirass
from cuirass import CUDAError, Device, Event, EventOptions


def test_create_and_close(device, census):
    event = device.create_event()
    assert not event.is_timing_enabled
    assert not event.is_blocking_sync
    assert not event.is_ipc_enabled
    assert event.is_done
    assert event.device is device
    assert event.context == device.context
    assert int(event.handle) != 0
    assert weakref.ref(event)() is event
    event.sync()
    event.close()
    event.close()
    assert event.is_closed
    assert int(event.handle) == 0
    for use in (event.sync, lambda: event.is_done, lambda: event.device, lambda: event - event):
        with pytest.raises(RuntimeError, match="this event is closed"):
            use()


def test_options(device):
    event = device.create_event(EventOptions(timing_enabled=True, blocking_sync=True))
    assert event.is_timing_enabled and event.is_blocking_sync
    assert device.create_event({"timing_enabled": True}).is_timing_enabled
    assert not device.create_event(EventOptions(timing_enabled=None)).is_timing_enabled
    with pytest.raises(ValueError, match="timing_enabled must be False"):
        device.create_event(EventOptions(timing_enabled=True, ipc_enabled=True))


def test_elapsed_time(device, stream):
    timed = EventOptions(timing_enabled=True)
    start = stream.record(options=timed)
    end = stream.record(options=timed)
    end.sync()
    assert end - start >= 0.0
    assert isinstance(end - start, float)


TIMED = EventOptions(timing_enabled=True)
# What is wrong with an event that another, which is right, is subtracted from, and the other way round.
WRONG = {
    "untimed": (lambda here, there, stream: stream.record(), "takes no time", "takes no time"),
    "unrecorded": (lambda here, there, stream: here.create_event(TIMED), "not recorded", "not recorded"),
    "captured": (lambda here, there, stream: captured(here), "recorded in a capture", "recorded in a capture"),
    "of another device": (
        lambda here, there, stream: recorded_on(there),
        "of different devices, 1 and 0",
        "of different devices, 0 and 1",
    ),
    "unrecorded, of another device": (
        lambda here, there, stream: there.create_event(TIMED),
        "of different devices, 1 and 0",
        "of different devices, 0 and 1",
    ),
}


def captured(device):
    event = device.create_event(TIMED)
    with device.create_graph_builder().begin_building() as builder:
        builder.stream.record(event)
        builder.end_building()
    return event


def recorded_on(device):
    with device:
        stream = device.create_stream()
        event = stream.record(options=TIMED)
        stream.sync()
    return event


@pytest.mark.parametrize("wrong", WRONG)
def test_a_subtraction_says_what_is_wrong(device, stream, wrong):
    make, as_end, as_start = WRONG[wrong]
    if "another device" in wrong and len(Device.get_all_devices()) < 2:
        pytest.skip("needs two devices")
    there = Device(1) if "another device" in wrong else None
    right, event = stream.record(options=TIMED), make(device, there, stream)
    stream.sync()
    for end, start, text in ((event, right, as_end), (right, event, as_start)):
        with pytest.raises(CUDAError if wrong == "captured" else RuntimeError) as caught:
            end - start
        assert text in " ".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        cause = caught.value.__cause__
        if wrong == "unrecorded":
            assert isinstance(cause, CUDAError) and cause.status.name == "CUDA_ERROR_INVALID_HANDLE"
        else:
            assert cause is None


def test_unsupported_operands(stream):
    event = stream.record()
    with pytest.raises(TypeError):
        event - 1
    with pytest.raises(TypeError):
        1 - event
    with pytest.raises(TypeError):
        event -= 1


def test_equality_and_hash(device):
    one, other = device.create_event(), device.create_event()
    assert one == one and one != other and one != 1
    assert hash(one) == hash(one)
    assert len({one, other}) == 2


def test_events_of_another_context(device, census):
    context = device.create_context()
    stream = context.create_stream()
    event = device.create_event()
    with pytest.raises(CUDAError) as caught:
        stream.record(event)
    assert caught.value.status.name == "CUDA_ERROR_INVALID_HANDLE"
    assert caught.value.call == "cuEventRecord"
    # The events of wait() are made where the waited-on stream is.
    device.create_stream().wait(stream)
    stream.close()
    context.close()
    del caught


def test_not_constructed_and_not_shared(device):
    with pytest.raises(RuntimeError, match="create_event"):
        Event()
    with pytest.raises(RuntimeError, match="ipc_enabled"):
        _ = device.create_event().ipc_descriptor


def test_events_of_two_devices_are_not_subtracted():
    """The programming guide: cuEventElapsedTime fails for events of different devices."""
    if len(cuirass.Device.get_all_devices()) < 2:
        pytest.skip("one device")
    events = []
    for ordinal in (0, 1):
        device = cuirass.Device(ordinal)
        device.set_current()
        stream = device.create_stream()
        events.append(stream.record(options=cuirass.EventOptions(timing_enabled=True)))
        stream.sync()
    cuirass.Device(0).set_current()
    with pytest.raises((cuirass.CUDAError, RuntimeError)):
        events[1] - events[0]
