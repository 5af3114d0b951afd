import gc
import re
import weakref

import pytest

import cuirass
from cuirass import (
    LEGACY_DEFAULT_STREAM,
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
    MemoryResource,
)

from .conftest import child


class Mine(MemoryResource):
    """A resource of a user's, over a pool."""

    def __init__(self, device, fail=False):
        self.pool = device.memory_resource
        self.device = device
        self.freed = []
        self.fail = fail
        self.held = {}

    def allocate(self, size, *, stream):
        inner = self.pool.allocate(size, stream=stream)
        self.held[inner.handle] = inner
        return Buffer.from_handle(inner.handle, size, mr=self, stream=stream)

    def deallocate(self, ptr, size, *, stream):
        self.freed.append((ptr, size, stream))
        self.held.pop(ptr).close(stream)
        if self.fail:
            raise LookupError("deallocate failed")

    @property
    def is_device_accessible(self):
        return True

    @property
    def is_host_accessible(self):
        return False

    @property
    def device_id(self):
        return self.device.device_id


def test_the_base_class_has_nothing(stream):
    base = MemoryResource()
    with pytest.raises(TypeError, match="subclass"):
        base.allocate(1, stream=stream)
    with pytest.raises(TypeError, match="subclass"):
        base.deallocate(1, 1, stream=stream)
    for name in ("device_id", "is_device_accessible", "is_host_accessible"):
        with pytest.raises(TypeError, match=name):
            getattr(base, name)
    assert base.is_managed is False


def test_a_subclass_gets_its_memory_back_once(device, stream, census):
    resource = Mine(device)
    buffer = resource.allocate(100, stream=stream)
    assert buffer.memory_resource is resource
    assert buffer.device_id == 0 and buffer.is_device_accessible and not buffer.is_host_accessible
    buffer.fill(1, stream=stream)
    address = buffer.handle
    buffer.close()
    buffer.close()
    del buffer
    assert resource.freed == [(address, 100, stream)]
    assert isinstance(resource.freed[0][2], cuirass.Stream)


def test_a_collected_buffer_goes_back_too(device, stream, census):
    resource = Mine(device)
    resource.allocate(100, stream=stream)
    gc.collect()
    assert len(resource.freed) == 1


def test_another_stream_for_the_release(device, stream, census):
    resource, other = Mine(device), device.create_stream()
    resource.allocate(100, stream=stream).close(other)
    buffer = resource.allocate(100, stream=stream)
    buffer.set_deallocation_stream(other)
    del buffer
    assert [freed[2] for freed in resource.freed] == [other, other]
    resource.freed.clear()


def test_without_a_stream_it_is_the_legacy_default_one(device):
    freed = []

    class Least(MemoryResource):
        def deallocate(self, ptr, size, *, stream):
            freed.append((ptr, size, stream))

    Buffer.from_handle(0x1000, 16, mr=Least()).close()
    assert freed == [(0x1000, 16, LEGACY_DEFAULT_STREAM)]


def test_what_close_raises_is_the_resources_own(device, stream, reports):
    resource = Mine(device, fail=True)
    buffer = resource.allocate(100, stream=stream)
    with pytest.raises(LookupError, match="deallocate failed"):
        buffer.close()
    del buffer
    gc.collect()
    assert len(resource.freed) == 1
    assert reports == []


def test_what_a_destructor_raises_is_a_report(device, stream, reports):
    resource = Mine(device, fail=True)
    buffer = resource.allocate(100, stream=stream)
    address = buffer.handle
    del buffer
    assert len(resource.freed) == 1
    assert len(reports) == 1
    text = reports[0]
    assert text.startswith(f"Mine.deallocate({address:#x}, 100) raised LookupError: deallocate failed")
    assert __file__ in text and text.endswith("(while releasing a buffer)")


def test_a_destructor_keeps_the_exception_on_its_way(device, stream, reports):
    resource = Mine(device, fail=True)

    def work():
        buffer = resource.allocate(100, stream=stream)
        assert buffer.size == 100
        raise KeyError("mine")

    try:
        work()
    except KeyError as error:
        assert error.args == ("mine",)
        error.__traceback__ = None
    gc.collect()
    assert len(reports) == len(resource.freed) == 1


def test_a_cycle_through_a_buffer_is_collected(device, stream, census):
    resource = Mine(device)
    resource.mine = resource.allocate(100, stream=stream)
    alive = weakref.ref(resource)
    del resource
    gc.collect()
    assert alive() is None


def test_the_default_pool(device, stream):
    resource = DeviceMemoryResource(device)
    assert resource.device_id == 0
    assert resource.is_device_accessible and not resource.is_host_accessible and not resource.is_managed
    assert not resource.is_handle_owned
    assert not resource.is_ipc_enabled and not resource.is_mapped and resource.uuid is None
    assert int(resource.handle) == int(device.memory_resource.handle)
    assert resource.attributes.release_threshold == (1 << 64) - 1
    buffer = resource.allocate(64, stream=stream)
    assert buffer.memory_resource is resource
    assert isinstance(resource, MemoryResource)
    assert weakref.ref(resource)() is resource
    assert int(DeviceMemoryResource(0).handle) == int(resource.handle)


def test_a_pool_of_its_own(device, stream, census):
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 22))
    assert resource.is_handle_owned
    buffer = resource.allocate(1 << 20, stream=stream)
    stream.sync()
    attributes = resource.attributes
    assert attributes.used_mem_current >= 1 << 20
    assert attributes.reserved_mem_high >= attributes.used_mem_high >= 1 << 20
    assert attributes.reuse_allow_opportunistic in (True, False)
    names = [name for name in dir(attributes) if not name.startswith("_")]
    assert sorted(re.findall(r"(\w+)=", repr(attributes))) == names
    assert all(re.search(rf"\b{name}=(True|False|\d+)\b", repr(attributes)) for name in names)
    del attributes
    resource.close()
    assert resource.is_closed
    assert int(resource.handle) == 0
    with pytest.raises(RuntimeError, match="closed"):
        resource.allocate(1, stream=stream)
    # The buffer is a share of the pool.
    buffer.fill(1, stream=stream)
    buffer.close()
    stream.sync()
    del buffer


def test_memory_by_handle_goes_back_to_its_pool(device, stream, census):
    resource = device.memory_resource
    driver = pytest.importorskip("cuda.bindings.driver")
    status, address = driver.cuMemAllocFromPoolAsync(64, resource.handle, stream.handle)
    assert status == 0
    Buffer.from_handle(address, 64, mr=resource, stream=stream).close()
    status, address = driver.cuMemAllocFromPoolAsync(64, resource.handle, stream.handle)
    assert status == 0
    resource.deallocate(address, 64, stream=stream)
    stream.sync()


@pytest.mark.parametrize("base", [DeviceMemoryResource, LegacyPinnedMemoryResource])
def test_an_overridden_deallocate_is_called(device, stream, census, base):
    class Counting(base):
        freed = 0

        def deallocate(self, ptr, size, *, stream=None):
            Counting.freed += 1
            super().deallocate(ptr, size, stream=stream)

    resource = Counting(device) if base is DeviceMemoryResource else Counting()
    buffer = resource.allocate(64, stream=stream)
    assert buffer.memory_resource is resource
    buffer.close()
    resource.allocate(64, stream=stream)
    gc.collect()
    assert Counting.freed == 2


def test_pinned_memory(device, stream, census):
    resource = LegacyPinnedMemoryResource()
    assert resource.device_id == -1
    assert resource.is_device_accessible and resource.is_host_accessible and not resource.is_managed
    buffer = resource.allocate(64)
    assert buffer.device_id == -1 and buffer.is_host_accessible and buffer.is_device_accessible
    assert resource.allocate(64, stream=stream).size == 64
    # No stream orders it: closing on one waits for it.
    buffer.fill(1, stream=stream)
    buffer.close(stream)
    with pytest.raises(RuntimeError, match="ordered by no stream"):
        resource.allocate(64).set_deallocation_stream(stream)
    resource.note = "has a __dict__"


def test_pinned_memory_needs_no_current_context():
    result = child(
        """
import cuirass
buffer = cuirass.LegacyPinnedMemoryResource().allocate(64)
memoryview(buffer)[:] = bytes(64)
buffer.close()
print("done")
"""
    )
    assert result.stdout == "done\n", result.stderr


def test_what_a_users_resource_returns_is_a_buffer(device, stream):
    class Wrong(cuirass.MemoryResource):
        device_id = 0
        is_device_accessible = True
        is_host_accessible = False

        def allocate(self, size, *, stream):
            return 0x1000

        def deallocate(self, ptr, size, *, stream):
            pass

    before = device.memory_resource
    device.memory_resource = Wrong()
    try:
        with pytest.raises(TypeError, match=r"Wrong\.allocate\(\) returned an object of type int, not a Buffer"):
            device.allocate(64, stream=stream)
    finally:
        device.memory_resource = before


def test_what_a_subclass_lacks_is_named(stream):
    class Bare(cuirass.MemoryResource):
        pass

    lacking = {
        r"allocate\(\)": lambda bare: bare.allocate(16, stream=stream),
        r"deallocate\(\)": lambda bare: bare.deallocate(0x1000, 16, stream=stream),
        "is_device_accessible": lambda bare: bare.is_device_accessible,
        "is_host_accessible": lambda bare: bare.is_host_accessible,
        "device_id": lambda bare: bare.device_id,
    }
    for member, use in lacking.items():
        with pytest.raises(
            TypeError, match=rf"^Bare has no {member}: a subclass of MemoryResource must have .*{member}"
        ):
            use(Bare())


class Inner(MemoryResource):
    """Passes on what another one has made of its buffer."""

    is_device_accessible, is_host_accessible, device_id = True, False, 0

    def __init__(self, change):
        self.pool, self.change = cuirass.DeviceMemoryResource(0), change

    def allocate(self, size, *, stream):
        return self.change(self.pool.allocate(size, stream=stream))

    def deallocate(self, ptr, size, *, stream):
        raise AssertionError("it has made no memory")


def closed(buffer):
    buffer.close()
    return buffer


def test_what_a_resource_returns_is_checked(device, stream):
    """A closed buffer, one that is too short, and what is none; a longer one is the resource's business."""
    previous = device.memory_resource
    try:
        device.memory_resource = Inner(closed)
        with pytest.raises(RuntimeError, match=r"^Inner\.allocate\(\) returned a buffer that is closed$"):
            device.allocate(16, stream=stream)
        device.memory_resource = Inner(lambda buffer: cuirass.Buffer.from_handle(buffer.handle, 8, owner=buffer))
        with pytest.raises(RuntimeError, match=r"^Inner\.allocate\(16\) returned a buffer of 8 bytes$"):
            device.allocate(16, stream=stream)
        device.memory_resource = Inner(lambda buffer: 5)
        with pytest.raises(TypeError, match=r"^Inner\.allocate\(\) returned an object of type int, not a Buffer$"):
            device.allocate(16, stream=stream)
        device.memory_resource = longer = Inner(lambda buffer: buffer)
        longer.change = lambda buffer: cuirass.DeviceMemoryResource(0).allocate(32, stream=stream)
        assert device.allocate(16, stream=stream).size == 32
    finally:
        device.memory_resource = previous
