"""What options may be given as, and values that an option cannot have, which are named."""

import pytest

import cuirass
from cuirass import (
    DeviceMemoryResource,
    EventOptions,
    ManagedMemoryResource,
    PinnedMemoryResource,
    StreamOptions,
    VirtualMemoryResource,
)

FLAGS = {
    "DeviceMemoryResourceOptions.ipc_enabled": lambda value: DeviceMemoryResource(0, {"ipc_enabled": value}),
    "PinnedMemoryResourceOptions.ipc_enabled": lambda value: PinnedMemoryResource({"ipc_enabled": value}),
    "VirtualMemoryResourceOptions.gpu_direct_rdma": lambda value: VirtualMemoryResource(0, {"gpu_direct_rdma": value}),
    "StreamOptions.nonblocking": lambda value: cuirass.Device(0).create_stream(options=StreamOptions(value)),
    "EventOptions.timing_enabled": lambda value: cuirass.Device(0).create_event(EventOptions(timing_enabled=value)),
    "EventOptions.blocking_sync": lambda value: cuirass.Device(0).create_event(EventOptions(blocking_sync=value)),
    "EventOptions.ipc_enabled": lambda value: cuirass.Device(0).create_event(EventOptions(ipc_enabled=value)),
}


@pytest.mark.parametrize("name", FLAGS)
def test_text_is_no_flag(device, name):
    """ "no" would be taken for true."""
    for value in ("no", "", b"0"):
        kind = type(value).__name__
        with pytest.raises(TypeError, match=f"{name.partition('.')[2]} must be a bool, not {kind}"):
            FLAGS[name](value)
    for value in (None, False, 0):
        FLAGS[name](value)


@pytest.mark.parametrize(
    "name", ["allocation_type", "location_type", "handle_type", "granularity", "self_access", "peer_access"]
)
def test_what_is_no_text(device, name):
    for value in (5, b"device", ["device"]):
        with pytest.raises(TypeError, match=f"{name} must be a str, not {type(value).__name__}"):
            VirtualMemoryResource(device, {name: value})


def test_what_is_no_set_of_devices(device):
    for value in (5, None):
        with pytest.raises(TypeError, match=f"peers must be an iterable of devices, not {type(value).__name__}"):
            VirtualMemoryResource(device, {"peers": value})
    with pytest.raises(TypeError, match="peers must be an int or a Device"):
        VirtualMemoryResource(device, {"peers": ["x"]})


@pytest.mark.parametrize(
    ("make", "argument", "name"),
    [
        (lambda options: DeviceMemoryResource(0, options), "options", "DeviceMemoryResourceOptions"),
        (PinnedMemoryResource, "options", "PinnedMemoryResourceOptions"),
        (ManagedMemoryResource, "options", "ManagedMemoryResourceOptions"),
        (lambda options: VirtualMemoryResource(0, options), "config", "VirtualMemoryResourceOptions"),
        (
            lambda options: setattr(VirtualMemoryResource(0), "config", options),
            "config",
            "VirtualMemoryResourceOptions",
        ),
    ],
)
def test_what_are_no_options(device, make, argument, name):
    for value in (5, "x", [1], object, StreamOptions(), getattr(cuirass, name)):
        with pytest.raises(TypeError, match=f"{argument} must be {name}, not"):
            make(value)
    with pytest.raises(TypeError, match="nope"):
        make({"nope": 1})


def test_advice_that_is_text(stream):
    if cuirass.Device(0).properties.concurrent_managed_access:
        driver = pytest.importorskip("cuda.bindings.driver")
        status, pointer = driver.cuMemAllocManaged(4096, 1)
        assert status == 0
        buffer = cuirass.ManagedBuffer.from_handle(int(pointer), 4096)
        with pytest.raises(TypeError, match="read_mostly must be a bool, not str"):
            buffer.read_mostly = "no"
        assert not buffer.read_mostly
        driver.cuMemFree(pointer)
