"""Managed memory: the resource, what is said of it, and what is asked for it."""

import copy
import ctypes
import gc
import pickle

import numpy as np
import pytest

import cuirass
from cuirass import Device, Host, ManagedBuffer, ManagedMemoryResource, ManagedMemoryResourceOptions
from cuirass._memory._managed_buffer import AccessedBySetProxy
from cuirass.typing import ManagedMemoryLocationType
from cuirass.utils import discard_batch, discard_prefetch_batch, prefetch_batch

from .conftest import driver_version, is_sim, needs_sim, refused_before  # noqa: F401 (the condition of needs_pools)

PAGES = 2 << 20

needs_pools = pytest.mark.skipif("driver_version() < (13, 0)", reason="managed pools are of CUDA 13.0")


@pytest.fixture
def resource(device):
    return ManagedMemoryResource(ManagedMemoryResourceOptions())


@pytest.fixture
def allocated(device):
    """Memory of `cuMemAllocManaged`, which every driver has, by its size."""
    driver = pytest.importorskip("cuda.bindings.driver")
    made = []

    def make(size):
        status, pointer = driver.cuMemAllocManaged(size, 1)
        assert status == driver.CUresult.CUDA_SUCCESS
        made.append(pointer)
        return int(pointer)

    yield make
    device.sync()
    for pointer in made:
        assert driver.cuMemFree(pointer)[0] == driver.CUresult.CUDA_SUCCESS


def on_host(address, size):
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=np.uint8)


class TestHost:
    def test_the_same_arguments_give_the_same_object(self):
        assert Host() is Host(None)
        assert Host(1) is Host(numa_id=1)
        assert Host.numa_current() is Host(is_numa_current=True)
        assert len({Host(), Host(0), Host(1), Host.numa_current()}) == 4

    def test_equality_and_text(self):
        assert Host() == Host()
        assert Host(0) != Host()
        assert Host() != 0
        assert Host() != Device(0)
        assert [repr(host) for host in (Host(), Host(2), Host.numa_current())] == [
            "Host()",
            "Host(numa_id=2)",
            "Host.numa_current()",
        ]
        assert (Host(3).numa_id, Host(3).is_numa_current) == (3, False)
        assert (Host.numa_current().numa_id, Host.numa_current().is_numa_current) == (None, True)

    def test_it_is_pickled(self):
        for host in (Host(), Host(1), Host.numa_current()):
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                assert pickle.loads(pickle.dumps(host, protocol)) is host

    @pytest.mark.parametrize("numa_id", [-1, True, "a", 1.0, 1 << 40])
    def test_numbers_that_are_none(self, numa_id):
        with pytest.raises(ValueError, match="numa_id"):
            Host(numa_id)

    def test_both_at_once(self):
        with pytest.raises(ValueError, match="cannot both be given"):
            Host(1, is_numa_current=True)


class TestResource:
    def test_options_are_data(self):
        options = ManagedMemoryResourceOptions()
        assert (options.preferred_location, options.preferred_location_type) == (None, None)

    def test_the_current_pool(self, stream):
        with refused_before((13, 0), "cuMemGetMemPool"):
            resource = ManagedMemoryResource()
            assert not resource.is_handle_owned
            assert resource.preferred_location is None
            with resource.allocate(64, stream=stream) as buffer:
                assert type(buffer) is ManagedBuffer
                assert buffer.memory_resource is resource

    def test_older_drivers_have_no_pools_of_it(self, device):
        with refused_before((13, 0), "cuMemPoolCreate"):
            resource = ManagedMemoryResource({"preferred_location": 0})
            assert resource.is_handle_owned
            assert resource.is_managed
            assert resource.is_device_accessible
            assert resource.is_host_accessible
            assert not resource.is_ipc_enabled
            assert not resource.is_mapped
            assert resource.uuid is None
            resource.close()
            assert resource.is_closed

    @needs_pools
    @pytest.mark.parametrize(
        ("options", "preferred", "device_id"),
        [
            ((), None, -1),
            ((0,), (ManagedMemoryLocationType.DEVICE, 0), 0),
            ((-1,), (ManagedMemoryLocationType.HOST, None), -1),
            ((0, "device"), (ManagedMemoryLocationType.DEVICE, 0), 0),
            ((None, "host"), (ManagedMemoryLocationType.HOST, None), -1),
            ((0, ManagedMemoryLocationType.HOST_NUMA), (ManagedMemoryLocationType.HOST_NUMA, 0), -1),
        ],
    )
    def test_preferred_places(self, device, stream, options, preferred, device_id):
        resource = ManagedMemoryResource(ManagedMemoryResourceOptions(*options))
        assert resource.preferred_location == preferred
        assert resource.device_id == device_id
        buffer = resource.allocate(PAGES, stream=stream)
        assert buffer.device_id == device_id
        places = {None: None, "device": device, "host": Host(), "host_numa": Host(0)}
        assert buffer.preferred_location == places[preferred and preferred[0]]
        buffer.close()
        resource.close()

    @needs_pools
    def test_the_node_of_the_current_device(self, device):
        resource = ManagedMemoryResource(ManagedMemoryResourceOptions(None, "host_numa"))
        assert resource.preferred_location == ("host_numa", device.properties.host_numa_id)

    @pytest.mark.parametrize(
        "options",
        [(-2,), (None, "device"), (-1, "device"), (0, "host"), (-1, "host_numa"), (0, "bogus"), (None, 5), (1000,)],
    )
    def test_options_that_name_no_place(self, device, options):
        with pytest.raises(ValueError, match=r"preferred_location|device_id"):
            ManagedMemoryResource(ManagedMemoryResourceOptions(*options))

    @needs_pools
    def test_a_subclass_takes_its_memory_back(self, stream, device):
        taken = []

        class Own(ManagedMemoryResource):
            def deallocate(self, ptr, size, *, stream):
                taken.append((int(ptr), size))
                super().deallocate(ptr, size, stream=stream)

        buffer = Own(ManagedMemoryResourceOptions()).allocate(128, stream=stream)
        assert isinstance(buffer, ManagedBuffer)
        address = buffer.handle
        buffer.close()
        assert taken == [(address, 128)]


@needs_pools
class TestMemory:
    def test_host_and_device_see_it_at_one_address(self, device, stream, resource, code):
        buffer = resource.allocate(4096, stream=stream)
        stream.sync()
        values = np.frombuffer(buffer, dtype=np.int32)
        values[:] = np.arange(1024)
        buffer.prefetch(device, stream=stream)
        config = cuirass.LaunchConfig(grid=8, block=128)
        cuirass.launch(stream, config, code.get_kernel("add"), buffer, np.int32(1024), np.int32(5))
        buffer.prefetch(Host(), stream=stream)
        stream.sync()
        np.testing.assert_array_equal(values, np.arange(1024) + 5)

    def test_what_it_is(self, stream, resource):
        buffer = resource.allocate(100, stream=stream)
        assert (buffer.size, buffer.device_id) == (100, -1)
        assert buffer.is_managed
        assert buffer.is_host_accessible
        assert buffer.is_device_accessible
        assert not buffer.is_mapped
        with pytest.raises(RuntimeError, match="ManagedMemoryResource"):
            ManagedBuffer()
        copy = buffer.copy_to(stream=stream)
        assert type(copy) is ManagedBuffer

    def test_nothing_is_left_of_it(self, device, stream, census):
        resource = ManagedMemoryResource(ManagedMemoryResourceOptions())
        for size in (1, 4096, 1 << 20):
            buffer = resource.allocate(size, stream=stream)
            buffer.prefetch(device, stream=stream)
        resource.close()
        buffer.close()
        stream.sync()
        del buffer
        gc.collect()

    def test_a_closed_buffer(self, device, stream, resource):
        buffer = resource.allocate(100, stream=stream)
        accessed_by = buffer.accessed_by
        buffer.close()
        for use in (
            lambda: buffer.read_mostly,
            lambda: buffer.preferred_location,
            lambda: list(accessed_by),
            lambda: buffer.prefetch(device, stream=stream),
            lambda: buffer.discard(stream=stream),
            lambda: prefetch_batch(stream, [buffer], device),
        ):
            with pytest.raises(RuntimeError, match="closed"):
                use()


@pytest.mark.thread_unsafe(reason="the memory that is advised on is one for all threads")
class TestAdvice:
    @pytest.fixture
    def buffer(self, allocated):
        return ManagedBuffer.from_handle(allocated(2 * PAGES), 2 * PAGES)

    def test_memory_that_is_there_already(self, allocated):
        address = allocated(4096)
        owner = object()
        buffer = ManagedBuffer.from_handle(address, 4096, owner=owner)
        assert type(buffer) is ManagedBuffer
        assert (buffer.handle, buffer.size, buffer.owner, buffer.memory_resource) == (address, 4096, owner, None)
        assert buffer.is_managed
        assert buffer.is_host_accessible
        assert memoryview(buffer).nbytes == 4096

        class Mine(ManagedBuffer):
            pass

        assert type(Mine.from_handle(address, 4096)) is Mine
        with pytest.raises(RuntimeError, match="not made by calling"):
            Mine()

    def test_read_mostly(self, buffer):
        assert buffer.read_mostly is False
        buffer.read_mostly = True
        assert buffer.read_mostly is True
        buffer.read_mostly = 0
        assert buffer.read_mostly is False

    def test_preferred_location(self, device, buffer):
        assert buffer.preferred_location is None
        for place in (device, Host(), None):
            buffer.preferred_location = place
            assert buffer.preferred_location is place

    def test_nodes_need_cuda_12_2(self, buffer):
        with refused_before((12, 2), "cuMemAdvise_v2"):
            buffer.preferred_location = Host(0)
            # Measured: a driver may take a node and tell of none.
            assert buffer.preferred_location in ((Host(0),) if is_sim() else (Host(0), None))
            buffer.preferred_location = Host.numa_current()
            assert not is_sim() or buffer.preferred_location.numa_id is not None

    @pytest.mark.parametrize("place", [0, -1, "cpu", True])
    def test_places_that_are_none(self, buffer, stream, place):
        with pytest.raises(TypeError, match="must be a Device or a Host"):
            buffer.preferred_location = place
        with pytest.raises(TypeError, match="must be a Device or a Host"):
            buffer.prefetch(place, stream=stream)
        with pytest.raises(ValueError, match="must be given"):
            buffer.prefetch(None, stream=stream)

    def test_accessed_by_is_a_set_over_the_drivers_state(self, device, buffer):
        every = buffer.accessed_by
        assert (list(every), len(every), repr(every)) == ([], 0, "AccessedBySetProxy(set())")
        every.add(device)
        every.add(Host())
        every.add(device)
        assert every == {device, Host()}
        assert buffer.accessed_by == {device, Host()}
        assert len(every) == 2
        assert device in every
        assert Host() in every
        assert Host(0) not in every
        assert 0 not in every
        every.discard(Host(0))
        every.discard("x")
        every.discard(device)
        assert list(every) == [Host()]
        assert repr(every) == "AccessedBySetProxy({Host()})"
        with pytest.raises(KeyError):
            every.remove(device)
        buffer.accessed_by |= {device}
        assert every - {Host()} == {device}
        assert type(every | {device}) is set
        buffer.accessed_by = [device]
        assert list(every) == [device]
        every.clear()
        assert not every

    def test_processors_that_are_none(self, device, buffer):
        buffer.accessed_by = [device]
        for wrong, error in (
            (0, TypeError),
            (None, TypeError),
            (Host(0), ValueError),
            (Host.numa_current(), ValueError),
        ):
            with pytest.raises(error, match="processor"):
                buffer.accessed_by.add(wrong)
            with pytest.raises(error, match="processor"):
                buffer.accessed_by = [Host(), wrong]
        with pytest.raises(TypeError, match="iterable"):
            buffer.accessed_by = None
        assert list(buffer.accessed_by) == [device], "nothing was changed"
        with pytest.raises(TypeError, match="unhashable"):
            hash(buffer.accessed_by)

    def test_several_devices(self, buffer):
        every = Device.get_all_devices()
        for device in every:
            buffer.accessed_by.add(device)
        assert buffer.accessed_by == set(every)
        buffer.preferred_location = every[-1]
        assert buffer.preferred_location is every[-1]

    def test_prefetches_are_told(self, device, stream, buffer):
        assert buffer.last_prefetch_location is None
        for place in (device, Host()):
            buffer.prefetch(place, stream=stream)
            assert buffer.last_prefetch_location is place
        buffer.prefetch(device, stream=cuirass.LEGACY_DEFAULT_STREAM)
        assert buffer.last_prefetch_location is device
        half = ManagedBuffer.from_handle(buffer.handle, PAGES)
        half.prefetch(Host(), stream=stream)
        assert half.last_prefetch_location is Host()
        assert buffer.last_prefetch_location is None, "its halves were sent to different places"
        stream.sync()

    def test_other_memory(self, device, stream):
        memory = device.memory_resource.allocate(4096, stream=stream)
        other = ManagedBuffer.from_handle(memory.handle, 4096)
        assert not other.is_managed
        for use in (lambda: other.read_mostly, lambda: setattr(other, "preferred_location", device)):
            with pytest.raises(cuirass.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
                use()
        for use in (
            lambda: other.prefetch(device, stream=stream),
            lambda: other.discard(stream=stream),
            lambda: other.discard_prefetch(device, stream=stream),
            lambda: prefetch_batch(stream, [other], device),
            lambda: discard_batch(stream, [memory]),
        ):
            with pytest.raises(ValueError, match="is not managed memory"):
                use()


class TestBatches:
    def test_they_need_cuda_13(self, device, stream, allocated):
        buffer = ManagedBuffer.from_handle(allocated(4096), 4096)
        with refused_before((13, 0), "cuMemPrefetchBatchAsync"):
            prefetch_batch(stream, [buffer], device)
        with refused_before((13, 0), "cuMemDiscardBatchAsync"):
            discard_batch(stream, [buffer])
        with refused_before((13, 0), "cuMemDiscardBatchAsync"):
            buffer.discard(stream=stream)
        with refused_before((13, 0), "cuMemDiscardAndPrefetchBatchAsync"):
            buffer.discard_prefetch(device, stream=stream)

    @needs_pools
    @pytest.mark.parametrize("batch", [prefetch_batch, discard_prefetch_batch])
    def test_places_for_all_or_each(self, device, stream, resource, batch):
        buffers = [resource.allocate(PAGES, stream=stream) for _ in range(3)]
        batch(stream, buffers, device)
        assert [buffer.last_prefetch_location for buffer in buffers] == [device] * 3
        batch(stream, tuple(buffers), [Host(), device, Host(0)])
        assert [buffer.last_prefetch_location for buffer in buffers] == [Host(), device, Host(0)]
        batch(stream, buffers[:1], [Host()])
        assert buffers[0].last_prefetch_location is Host()

    @needs_pools
    def test_a_prefetch_keeps_contents_and_a_discard_does_not_touch_others(self, device, stream, resource):
        buffers = [resource.allocate(PAGES, stream=stream) for _ in range(2)]
        for value, buffer in enumerate(buffers):
            buffer.fill(value + 1, stream=stream)
        prefetch_batch(stream, buffers, device)
        discard_batch(stream, buffers[:1])
        stream.sync()
        assert (np.frombuffer(buffers[1], dtype=np.uint8) == 2).all()
        if is_sim():
            assert (np.frombuffer(buffers[0], dtype=np.uint8) != 1).all()
        buffers[0].fill(b"ab", stream=stream)
        stream.sync()
        assert bytes(buffers[0]) == b"ab" * (PAGES // 2)

    @needs_pools
    def test_arguments_that_make_no_batch(self, device, stream, resource):
        buffers = [resource.allocate(4096, stream=stream) for _ in range(2)]
        for batch in (prefetch_batch, discard_prefetch_batch):
            for given, places, error in (
                ([], device, ValueError),
                (buffers, [device], ValueError),
                (buffers, [device] * 3, ValueError),
                (buffers, None, ValueError),
                (buffers, [device, None], ValueError),
                (buffers, 0, TypeError),
                (buffers, "cp", TypeError),
                (buffers[0], device, TypeError),
                ([buffers[0], 5], device, TypeError),
                (iter(buffers), device, TypeError),
            ):
                with pytest.raises(error):
                    batch(stream, given, places)
        for given, error in (([], ValueError), (buffers[0], TypeError), ([None], TypeError)):
            with pytest.raises(error):
                discard_batch(stream, given)
        with pytest.raises(cuirass.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
            discard_batch(cuirass.LEGACY_DEFAULT_STREAM, buffers)
        assert [buffer.last_prefetch_location for buffer in buffers] == [None, None]


@needs_pools
def test_advice_that_a_driver_takes_only_for_other_memory(stream, resource):
    """Measured: for the memory of a managed pool it answers NOT_SUPPORTED. A driver that takes it is as good."""
    with resource.allocate(4096, stream=stream) as buffer:
        for advise in (
            lambda: setattr(buffer, "read_mostly", True),
            lambda: setattr(buffer, "preferred_location", Host()),
            lambda: setattr(buffer, "preferred_location", None),
            lambda: buffer.accessed_by.add(Host()),
        ):
            try:
                advise()
            except cuirass.CUDAError as error:
                assert error.status.name == "CUDA_ERROR_NOT_SUPPORTED" and error.call.startswith("cuMemAdvise")
                assert "not for memory of managed pools" in "".join(error.__notes__)
            else:
                assert not is_sim()


@needs_pools
def test_a_capture_goes_on(device, stream, resource):
    buffer = resource.allocate(4096, stream=stream)
    stream.sync()
    builder = device.create_graph_builder()
    builder.begin_building()
    buffer.fill(3, stream=builder)
    for use in (
        lambda: buffer.prefetch(device, stream=builder),
        lambda: buffer.discard(stream=builder),
        lambda: buffer.discard_prefetch(device, stream=builder),
        lambda: prefetch_batch(builder, [buffer], device),
        lambda: discard_batch(builder.stream, [buffer]),
        lambda: discard_prefetch_batch(builder, [buffer], device),
    ):
        with pytest.raises(RuntimeError, match="being captured by a graph builder"):
            use()
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert bytes(buffer) == b"\x03" * 4096


@needs_pools
def test_a_failure_leaves_nothing_half_done(device, stream, resource):
    buffer = resource.allocate(4096, stream=stream)
    fault = cuirass.testing.fail("cuMemAdvise_v2", status="CUDA_ERROR_OUT_OF_MEMORY")
    with fault, pytest.raises(cuirass.CUDAError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        buffer.preferred_location = device
    assert buffer.preferred_location is None
    fault = cuirass.testing.fail("cuMemAllocFromPoolAsync", status="CUDA_ERROR_OUT_OF_MEMORY")
    with fault, pytest.raises(cuirass.CUDAError, match="cuMemAllocFromPoolAsync"):
        resource.allocate(64, stream=stream)


@needs_pools
@needs_sim
@pytest.mark.unordered
@pytest.mark.parametrize("waits", [True, False])
def test_the_order_checker_sees_a_discard(device, stream, resource, waits):
    other = device.create_stream(options=cuirass.StreamOptions(nonblocking=True))
    buffer = resource.allocate(4096, stream=stream)
    stream.sync()
    with cuirass.sim.check_order() as order:
        buffer.fill(1, stream=stream)
        if waits:
            other.wait(stream)
        buffer.discard(stream=other)
        other.sync()
        stream.sync()
    assert bool(order.findings) is not waits


@pytest.mark.parametrize("kind", [None, "device"])
def test_a_place_on_a_device_that_is_not_there(kind):
    count = len(cuirass.Device.get_all_devices())
    with pytest.raises(ValueError, match=f"preferred_location must be from 0 to {count - 1}, it is {count}"):
        cuirass.ManagedMemoryResource({"preferred_location": count, "preferred_location_type": kind})


@needs_pools
def test_what_is_no_set_of_processors(stream):
    resource = cuirass.ManagedMemoryResource()
    buffer = resource.allocate(64, stream=stream)
    for wrong in (1, None, cuirass.Device(0)):
        with pytest.raises(TypeError, match=f"accessed_by must be an iterable.* not {type(wrong).__name__}"):
            buffer.accessed_by = wrong
    buffer.close()


@pytest.mark.parametrize("copies", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_view_of_the_processors_is_not_pickled(copies):
    with pytest.raises(TypeError, match=r"cannot pickle 'AccessedBySetProxy' object.*set"):
        copies(AccessedBySetProxy(None))
