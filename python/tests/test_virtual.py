"""Virtual memory: allocations that grow."""

import gc

import numpy as np
import pytest

import cuirass
from cuirass import (
    Buffer,
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
    launch,
)

from .conftest import is_sim, needs_sim


@pytest.fixture
def resource(device):
    return VirtualMemoryResource(device)


def filled(buffer, stream):
    """Writes numbers into a buffer, and returns them."""
    values = np.arange(buffer.size // 4, dtype=np.uint32) * np.uint32(2654435761)
    host = LegacyPinnedMemoryResource().allocate(buffer.size)
    np.frombuffer(host, dtype=np.uint32)[:] = values
    buffer.copy_from(host, stream=stream)
    stream.sync()
    return values


def content(buffer, stream):
    host = LegacyPinnedMemoryResource().allocate(buffer.size)
    buffer.copy_to(host, stream=stream)
    stream.sync()
    return np.frombuffer(host, dtype=np.uint32).copy()


def test_options_are_those_of_the_official_class(resource):
    official = pytest.importorskip("cuda.core").VirtualMemoryResourceOptions()
    ours = resource.config
    for name in VirtualMemoryResourceOptions.__dataclass_fields__:
        assert getattr(ours, name) == getattr(official, name), name
    assert (resource.device, resource.device_id) == (Device(0), 0)
    assert (resource.is_device_accessible, resource.is_host_accessible, resource.is_managed) == (True, False, False)


def test_sizes_are_rounded_up(resource, stream):
    with resource.allocate(100, stream=stream) as buffer:
        assert buffer.size >= 1 << 16
        assert buffer.size.bit_count() == 1
        assert buffer.handle % buffer.size == 0
        assert buffer.memory_resource is resource
        assert (content(buffer, stream) == content(buffer, stream)).all()
    for size in (0, -1):
        with pytest.raises(ValueError, match=r"0 bytes|from 0 to"):
            resource.allocate(size, stream=stream)


def test_what_is_in_it_stays_when_it_grows(resource, stream):
    buffer = resource.allocate(1, stream=stream)
    first, start, size = filled(buffer, stream), buffer.handle, buffer.size
    grown = resource.modify_allocation(buffer, 3 * size - 1)
    assert buffer.is_closed
    assert grown.size == 3 * size
    assert (content(grown, stream)[: first.size] == first).all()
    if is_sim():
        assert grown.handle == start
    values = filled(grown, stream)
    assert (content(grown, stream) == values).all()
    assert resource.modify_allocation(grown, size) is grown
    grown.close()
    with pytest.raises(RuntimeError, match="closed"):
        resource.modify_allocation(grown, 10 * size)


def test_what_cannot_grow(resource, device, stream):
    plain = device.memory_resource.allocate(64, stream=stream)
    with pytest.raises(ValueError, match="no virtual memory"):
        resource.modify_allocation(plain, 128)
    assert not plain.is_closed
    foreign = Buffer.from_handle(plain.handle, 64, owner=plain)
    with pytest.raises(ValueError, match="cannot grow"):
        resource.modify_allocation(foreign, 128)
    with pytest.raises(TypeError):
        resource.modify_allocation(1, 128)
    assert (foreign.size, plain.size) == (64, 64)


def test_a_failure_leaves_it_as_it_was(resource, stream):
    buffer = resource.allocate(1, stream=stream)
    values = filled(buffer, stream)
    before = cuirass.sim.census() if is_sim() else None
    for call in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        fault = cuirass.testing.fail(call, status="CUDA_ERROR_OUT_OF_MEMORY")
        with fault, pytest.raises(cuirass.CUDAError, match=call):
            resource.modify_allocation(buffer, buffer.size * 2)
        assert (content(buffer, stream) == values).all()
        with fault, pytest.raises(cuirass.CUDAError, match=call):
            resource.allocate(1, stream=stream)
    gc.collect()
    assert before is None or cuirass.sim.census() == before
    buffer.close()


def test_another_configuration(device, stream):
    resource = VirtualMemoryResource(device, {"self_access": None, "handle_type": None, "granularity": "minimum"})
    assert not resource.is_device_accessible
    resource.allocate(1, stream=stream).close()
    resource.config = VirtualMemoryResourceOptions(addr_align=1 << 24)
    with resource.allocate(1, stream=stream) as buffer:
        assert buffer.handle % (1 << 24) == 0
    resource.device = 0
    assert resource.device == device
    assert "device=0" in repr(resource)


def test_kernels_use_it(resource, code, stream):
    with resource.allocate(4096, stream=stream) as buffer:
        values = filled(buffer, stream)
        launch(stream, LaunchConfig(grid=4, block=256), code.get_kernel("add"), buffer, np.int32(1000), np.int32(3))
        expected = values.copy()
        expected[:1000] += 3
        assert (content(buffer, stream) == expected).all()


@pytest.mark.parametrize("handle_type", ["posix_fd", None])
@pytest.mark.parametrize("location", ["host", "host_numa"])
def test_memory_of_the_host(location, handle_type, device, code, stream):
    resource = VirtualMemoryResource(device, {"location_type": location, "handle_type": handle_type})
    assert (resource.is_host_accessible, resource.is_device_accessible, resource.device_id) == (True, True, -1)
    assert resource.device is None
    buffer = resource.allocate(4096, stream=stream)
    assert (buffer.is_host_accessible, buffer.is_device_accessible, buffer.device_id) == (True, True, -1)
    values = np.frombuffer(memoryview(buffer), dtype=np.int32)
    values[:] = np.arange(values.size)
    launch(stream, LaunchConfig(grid=4, block=256), code.get_kernel("add"), buffer, np.int32(1000), np.int32(3))
    stream.sync()
    expected = np.arange(values.size)
    expected[:1000] += 3
    assert (values == expected).all()
    del values
    grown = resource.modify_allocation(buffer, 2 * buffer.size)
    values = np.frombuffer(memoryview(grown), dtype=np.int32)
    assert (values[: expected.size] == expected).all()
    values[:] = 1
    assert (content(grown, stream) == 1).all()
    del values
    grown.close()


def test_no_memory_on_the_current_node(device, stream):
    resource = VirtualMemoryResource(device, {"location_type": "host_numa_current"})
    with pytest.raises(cuirass.CUDAError, match="cuMemCreate") as caught:
        resource.allocate(1, stream=stream)
    assert "the current NUMA node" in caught.value.__notes__[0]


@needs_sim
def test_memory_that_nobody_was_given_access_to(device, stream):
    """A real driver refuses to fill it, and crashes when it is to copy it."""
    nobody = VirtualMemoryResource(device, {"self_access": None})
    mark = cuirass.sim.reports_mark()
    with nobody.allocate(1, stream=stream) as buffer:
        for use in (lambda: buffer.fill(1, stream=stream), lambda: content(buffer, stream)):
            with pytest.raises(cuirass.CUDAError, match="INVALID_VALUE"):
                use()
    texts = [report["text"] for report in cuirass.sim.reports(mark)]
    assert len(texts) == 2 and "no access to that writes" in texts[0] and "nobody was given access to" in texts[1]
    # The context is as good as it was.
    stream.sync()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allocation_type", "managed"),
        ("allocation_type", "x"),
        ("location_type", "moon"),
        ("handle_type", "pigeon"),
        ("granularity", "fine"),
        ("self_access", "w"),
        ("peer_access", "rwx"),
        ("peers", [1000]),
    ],
)
def test_values_that_an_option_cannot_have(device, name, value):
    with pytest.raises(ValueError, match=str(value).strip("[]") if name == "peers" else name.split("_")[0]):
        VirtualMemoryResource(device, {name: value})


def test_peers_use_it(device, stream):
    devices = Device.get_all_devices()
    if len(devices) < 2 or not devices[1].can_access_peer(device):
        pytest.skip("no second device")
    resource = VirtualMemoryResource(device, VirtualMemoryResourceOptions(peers=devices))
    theirs = devices[1].create_stream()
    buffer = resource.allocate(1, stream=theirs)
    buffer.fill(0x17, stream=theirs)
    theirs.sync()
    assert (content(buffer, stream).view(np.uint8) == 0x17).all()
    buffer.close()


def test_another_devices_buffer_does_not_grow(device, stream):
    devices = Device.get_all_devices()
    if len(devices) < 2:
        pytest.skip("no second device")
    buffer = VirtualMemoryResource(device).allocate(1, stream=stream)
    with pytest.raises(ValueError, match="of device 0, this one is of device 1"):
        VirtualMemoryResource(devices[1]).modify_allocation(buffer, 2 * buffer.size)
    assert not buffer.is_closed
    buffer.close()


def test_a_collected_buffer_is_unmapped_behind_its_stream(resource, stream):
    buffer = resource.allocate(1, stream=stream)
    buffer.fill(1, stream=stream)
    before = cuirass.sim.census() if is_sim() else None
    del buffer
    gc.collect()
    stream.sync()
    cuirass.drain()
    if before is not None:
        assert cuirass.sim.census()["mapping"] == before["mapping"] - 1


def test_a_subclass_that_takes_memory_back_itself(device, stream):
    freed = []

    class Mine(VirtualMemoryResource):
        def deallocate(self, ptr, size, *, stream=None):
            freed.append((ptr, size))
            super().deallocate(ptr, size, stream=stream)

    buffer = Mine(device).allocate(1, stream=stream)
    expected = [(buffer.handle, buffer.size)]
    buffer.close()
    assert freed == expected


def test_what_is_not_there_is_not_released(resource, device, stream, reports):
    """Nothing was leaked that nobody has; the driver is not asked to unmap it."""
    pooled = device.allocate(64, stream=stream)
    gone = resource.allocate(1, stream=stream)
    address, size = int(gone.handle), gone.size
    gone.close()
    stream.sync()
    cuirass.drain()
    for ptr, length in ((0x1230000, 64), (address, size), (2**64 - 1, 64), (4096, 2**64 - 1), (0, 64)):
        with cuirass.testing.record() as recording, pytest.raises(ValueError, match=f"begins at {ptr:#x}") as caught:
            resource.deallocate(ptr, length, stream=stream)
        assert not getattr(caught.value, "__notes__", ())
        assert not any(call.name == "cuMemUnmap" for call in recording.calls)
    # Memory of another kind is the driver's to refuse.
    with pytest.raises(cuirass.CUDAError) as caught:
        resource.deallocate(pooled.handle, 64, stream=stream)
    assert caught.value.call == "cuMemUnmap"
    assert reports == []
