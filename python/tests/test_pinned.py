"""Page-locked memory of pools."""

import contextlib
import gc

import numpy as np
import pytest

import cuirass
from cuirass import (
    DeviceMemoryResource,
    LaunchConfig,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    launch,
)

from .conftest import driver_version, refused_before


def test_options_are_data():
    options = PinnedMemoryResourceOptions()
    assert (options.ipc_enabled, options.max_size, options.numa_id) == (False, 0, None)


def test_the_current_pool(stream):
    with refused_before((13, 0), "cuMemGetMemPool"):
        resource = PinnedMemoryResource()
        assert not resource.is_handle_owned
        assert (resource.device_id, resource.numa_id) == (-1, -1)
        assert resource.is_device_accessible
        assert resource.is_host_accessible
        assert not resource.is_managed
        with resource.allocate(64, stream=stream) as buffer:
            assert buffer.memory_resource is resource
        resource.close()
        assert resource.is_closed


def test_a_pool_of_its_own_is_host_memory_that_kernels_use(device, stream):
    resource = PinnedMemoryResource(PinnedMemoryResourceOptions(max_size=1 << 26))
    assert resource.is_handle_owned
    host = resource.allocate(4096, stream=stream)
    stream.sync()
    view = np.frombuffer(host, dtype=np.uint32)
    view[:] = np.arange(1024, dtype=np.uint32)
    inner = DeviceMemoryResource(device).allocate(4096, stream=stream)
    host.copy_to(inner, stream=stream)
    back = resource.allocate(4096, stream=stream)
    inner.copy_to(back, stream=stream)
    stream.sync()
    assert (np.frombuffer(back, dtype=np.uint32) == np.arange(1024)).all()
    assert (host.device_id, host.is_host_accessible, host.is_device_accessible) == (-1, True, True)
    del view
    for buffer in (host, inner, back):
        buffer.close()
    stream.sync()
    resource.close()


MAKERS = {
    "current": lambda: PinnedMemoryResource(),
    "own": lambda: PinnedMemoryResource(PinnedMemoryResourceOptions()),
    "shared": lambda: PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_kernels_use_it(kind, code, stream):
    """A real driver gives devices no access to the memory of a pool of the host."""
    with refused_before((13, 0), "cuMemGetMemPool") if kind == "current" else contextlib.nullcontext():
        resource = MAKERS[kind]()
        with resource.allocate(4096, stream=stream) as buffer:
            buffer.fill(b"\1\0\0\0", stream=stream)
            launch(stream, LaunchConfig(grid=4, block=256), code.get_kernel("add"), buffer, np.int32(1000), np.int32(6))
            stream.sync()
            assert (np.frombuffer(buffer, dtype=np.int32) == np.where(np.arange(1024) < 1000, 7, 1)).all()
        resource.close()


def test_all_devices_use_it(code):
    with refused_before((13, 0), "cuMemGetMemPool"):
        resource = PinnedMemoryResource()
        for device in cuirass.Device.get_all_devices():
            with device:
                stream = device.create_stream()
                with resource.allocate(256, stream=stream) as buffer:
                    buffer.fill(0, stream=stream)
                    arguments = buffer, np.int32(64), np.int32(device.device_id + 1)
                    launch(stream, LaunchConfig(grid=1, block=64), code.get_kernel("add"), *arguments)
                    stream.sync()
                    assert (np.frombuffer(buffer, dtype=np.int32) == device.device_id + 1).all()
                stream.sync()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_current_pool_disturbs_no_capture(mode, device, stream):
    with refused_before((13, 0), "cuMemGetMemPool"):
        PinnedMemoryResource()
        driver = pytest.importorskip("cuda.bindings.driver")
        kind = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        host = driver.CUmemLocation()
        host.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
        _, pool = driver.cuMemGetMemPool(host, kind)
        closed = driver.CUmemAccessDesc()
        closed.location.type, closed.location.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
        closed.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
        assert driver.cuMemPoolSetAccess(pool, [closed], 1)[0] == 0
        other = device.allocate(64, stream=stream)
        builder = stream.create_graph_builder().begin_building(mode)
        other.fill(1, stream=builder)
        resource = PinnedMemoryResource()
        builder.end_building().complete().close()
        with resource.allocate(64, stream=stream) as buffer:
            buffer.fill(1, stream=stream)
        other.close()


def test_a_view_keeps_its_memory(stream):
    resource = PinnedMemoryResource(PinnedMemoryResourceOptions())
    buffer = resource.allocate(16, stream=stream)
    stream.sync()
    view = memoryview(buffer)
    buffer.close()
    del buffer, resource
    gc.collect()
    view[:] = b"0123456789abcdef"
    assert bytes(view) == b"0123456789abcdef"


def test_numa_nodes():
    with pytest.raises(ValueError, match="NUMA"):
        PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id=-2))
    with pytest.raises(TypeError):
        PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id="a"))
    if driver_version() < (13, 0):
        return
    resource = PinnedMemoryResource({"numa_id": 0})
    assert resource.numa_id == 0
    assert "numa_id=0" in repr(resource)
    resource.close()


def test_a_pool_for_other_processes_has_a_node(device):
    device.set_current()
    if not device.properties.host_numa_memory_pools_supported:
        pytest.skip("no pools on NUMA nodes of the host")
    resource = PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))
    assert resource.numa_id == max(device.properties.host_numa_id, 0)
    resource.close()


def test_attributes_are_the_pools(stream):
    resource = PinnedMemoryResource(PinnedMemoryResourceOptions())
    before = resource.attributes.used_mem_current
    buffer = resource.allocate(1 << 20, stream=stream)
    assert resource.attributes.used_mem_current == before + (1 << 20)
    buffer.close()
    stream.sync()


def test_memory_goes_where_it_came_from_when_the_resource_is_closed(stream):
    resource = PinnedMemoryResource(PinnedMemoryResourceOptions())
    buffer = resource.allocate(16, stream=stream)
    resource.close()
    with pytest.raises(RuntimeError, match="closed"):
        resource.allocate(1, stream=stream)
    with cuirass.testing.record() as recording:
        buffer.close()
    assert [call.name for call in recording.calls if "Free" in call.name] == ["cuMemFreeAsync"]
