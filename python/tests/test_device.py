import copy
import gc
import pickle
import threading

import pytest

import cuirass
from cuirass import Device

from .conftest import is_sim, needs_sim


def current():
    """The handle of the context that is current on this thread."""
    driver = pytest.importorskip("cuda.bindings.driver")
    status, context = driver.cuCtxGetCurrent()
    assert status == 0
    return int(context)


def test_the_same_object_per_thread_and_ordinal(device):
    assert Device(0) is Device(0) is Device(Device(0)) is device
    others = []
    thread = threading.Thread(target=lambda: others.append(Device(0)))
    thread.start()
    thread.join()
    assert others[0] is not device
    assert others[0] == device
    assert hash(others[0]) == hash(device)


def test_wrong_ordinals():
    with pytest.raises(ValueError, match="device_id must be from 0 to"):
        Device(99)
    with pytest.raises(ValueError):
        Device(-1)
    with pytest.raises(ValueError):
        Device(1 << 40)
    with pytest.raises(TypeError):
        Device("0")
    with pytest.raises(TypeError):
        Device(1.0)


def test_all_devices():
    devices = Device.get_all_devices()
    assert isinstance(devices, tuple)
    assert [device.device_id for device in devices] == list(range(len(devices)))
    assert all(device is Device(device.device_id) for device in devices)


def test_what_it_tells(device):
    assert isinstance(device.name, str) and device.name
    assert len(device.uuid) == 36 and device.uuid.count("-") == 4
    major, minor = device.compute_capability
    assert device.compute_capability.major == major
    assert device.arch == f"{major}{minor}"
    assert device.pci_bus_id.count(":") == 2
    assert int(device) == 0
    assert device.device_id == 0
    assert "Device 0" in repr(device)


def test_can_access_peer(device):
    assert device.can_access_peer(device) is True
    assert device.can_access_peer(0) is True
    with pytest.raises(ValueError):
        device.can_access_peer(99)


def test_equality_and_hash(device):
    assert device == Device(0)
    assert device != 0
    assert {device: 1}[Device(0)] == 1


def test_pickle_and_copy(device):
    assert pickle.loads(pickle.dumps(device)) is device
    assert copy.copy(device) is device
    assert copy.deepcopy(device) is device


def test_properties(device):
    properties = device.properties
    assert properties.warp_size == 32
    assert properties.max_threads_per_block >= 512
    assert properties.unified_addressing is True
    assert properties.compute_capability_major == device.compute_capability.major
    names = [name for name in dir(properties) if not name.startswith("_")]
    assert len(names) == 143
    for name in names:
        assert isinstance(getattr(properties, name), int), name
    with pytest.raises(RuntimeError):
        type(properties)()


def test_set_current_without_a_context_returns_none(device):
    assert device.set_current() is None


def test_set_current_with_a_context_returns_the_previous_one(device, census):
    made = device.create_context()
    primary = device.context
    assert device.set_current(made) == primary
    assert device.context == made
    assert device.create_stream().context == made
    assert device.set_current(primary) == made
    assert device.context == primary
    made.close()
    del made, primary
    device.set_current()


def test_set_current_on_a_thread_without_a_context():
    answers = []

    def run():
        device = Device(0)
        answers.append(device.set_current(device.context))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert answers == [None]


@pytest.mark.skipif(not is_sim(), reason="needs two devices")
def test_set_current_with_a_context_of_another_device(device):
    other = Device(1).context
    assert device.set_current(other) == device.context
    assert Device() == Device(1)
    device.set_current()
    assert Device() == device


def test_set_current_refuses_what_is_no_context(device):
    with pytest.raises(TypeError, match="ctx must be a Context"):
        device.set_current(1)


def test_methods_work_without_a_current_context():
    answers = []

    def run():
        device = Device(0)
        stream = device.create_stream()
        event = stream.record()
        event.sync()
        buffer = device.allocate(64, stream=stream)
        buffer.close()
        stream.close()
        device.sync()
        answers.append(current())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert answers == [0]


def test_with_a_device_restores_what_was_current(device):
    before = current()
    with Device(0) as inner:
        assert inner is device
    assert current() == before
    made = device.create_context()
    device.set_current(made)
    other = Device.get_all_devices()[-1]
    with device:
        # The context that its methods work in.
        assert current() == int(device.context.handle) == int(made.handle)
    with other:
        assert current() == int(other.context.handle)
    assert current() == int(made.handle)
    device.set_current()
    made.close()


def test_with_a_device_nested_and_after_an_exception():
    seen = []

    def run():
        devices = Device.get_all_devices()
        last = devices[-1]
        try:
            with devices[0], last, devices[0]:
                seen.append(Device().device_id)
                raise KeyError("mine")
        except KeyError as error:
            seen.append(error.args)
        seen.append(current())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [0, ("mine",), 0]


def test_exit_without_enter(device):
    with pytest.raises(RuntimeError, match="not entered"):
        device.__exit__(None, None, None)


def test_memory_resource(device):
    resource = device.memory_resource
    assert resource is device.memory_resource
    assert isinstance(resource, cuirass.DeviceMemoryResource)
    mine = cuirass.LegacyPinnedMemoryResource()
    device.memory_resource = mine
    try:
        assert device.memory_resource is mine
        assert device.allocate(16, stream=device.default_stream).memory_resource is mine
    finally:
        device.memory_resource = resource
    with pytest.raises(TypeError):
        device.memory_resource = 1


def test_default_stream(device, monkeypatch):
    assert device.default_stream is cuirass.LEGACY_DEFAULT_STREAM
    monkeypatch.setenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    assert device.default_stream is cuirass.PER_THREAD_DEFAULT_STREAM


@needs_sim
def test_creation_leaves_nothing(device, census):
    for _ in range(3):
        stream = device.create_stream()
        event = device.create_event()
        buffer = device.allocate(100, stream=stream)
        del stream, event, buffer
    gc.collect()
