"""Streams, events, contexts, memory, and what is between processes: how ``leaks.py`` makes and releases them."""

import os
import pickle
import uuid

import cuirass
from cuirass import (
    Buffer,
    CUDAError,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Event,
    EventOptions,
    GraphMemoryResource,
    Host,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    Stream,
    StreamOptions,
    VirtualMemoryResource,
)
from cuirass.utils import CopyOptions, copy_batch, prefetch_batch

from .conftest import is_sim
from .leak_kinds import Foreign, each_closed, fails, in_thread, kind

# Streams, events, contexts, devices


@kind("stream")
def streams(at):
    return at.device.create_stream, Stream.close


@kind("stream with options")
def streams_with_options(at):
    return lambda: at.device.create_stream(options=StreamOptions(nonblocking=False, priority=-1)), Stream.close


@kind("stream of another library")
def foreign_streams(at):
    def make():
        foreign = Foreign(at.second)
        at.stream.wait(foreign)
        at.device.allocate(64, stream=foreign).close()
        wrapped = at.device.create_stream(foreign)
        # A cycle through the stream itself.
        foreign.wrapped = wrapped
        return wrapped

    return make, Stream.close


@kind("stream by handle")
def streams_by_handle(at):
    handle = at.second.handle
    return lambda: Stream.from_handle(handle), Stream.close


@kind("event")
def events(at):
    return at.device.create_event, Event.close


@kind("event recorded and waited for")
def recorded_events(at):
    options = EventOptions(timing_enabled=True)

    def make():
        first, last = at.stream.record(), at.stream.record(options=options)
        at.second.wait(first)
        at.second.wait(at.stream)
        last.sync()
        return first, last

    return make, each_closed


@kind("context", fewer=50)
def contexts(at):
    def make():
        made = at.device.create_context()
        return made, made.create_stream()

    return make, each_closed


@kind("context, read")
def read_contexts(at):
    return lambda: (at.device.context, at.stream.context, at.stream.device, Device())


@kind("device properties", fewer=4)
def properties(at):
    names = [name for name in dir(at.device.properties) if not name.startswith("_")]

    def make():
        device = Device(0)
        facts = [getattr(device.properties, name) for name in names]
        return facts, device.name, device.uuid, device.pci_bus_id, device.compute_capability, device.arch

    return make


@kind("device made current")
def current(at):
    def make():
        previous = at.device.set_current(at.device.context)
        with at.device:
            return previous

    return make


@kind("thread", fewer=4)
def threads(at):
    def work():
        at.device.set_current()
        at.device.create_event().close()
        at.device.allocate(64, stream=at.stream).close()
        cuirass.PER_THREAD_DEFAULT_STREAM.record().close()
        fails(lambda: at.device.allocate(1 << 50, stream=at.stream))

    return lambda: in_thread(work)


# Memory


@kind("buffer of the device's pool")
def pool_buffers(at):
    return lambda: at.device.allocate(256, stream=at.stream), Buffer.close


@kind("buffer closed on another stream")
def buffers_elsewhere(at):
    def close(buffer):
        buffer.close(at.second)

    def make():
        buffer = at.device.allocate(256, stream=at.stream)
        buffer.set_deallocation_stream(at.second)
        return buffer

    return make, close


@kind("buffer filled and copied")
def copied_buffers(at):
    def make():
        buffer = at.device.allocate(4096, stream=at.stream)
        buffer.fill(1, stream=at.stream)
        buffer.fill(b"\x01\x00\x02\x00", stream=at.stream)
        buffer.copy_from(at.host, stream=at.stream)
        return buffer, buffer.copy_to(stream=at.stream)

    return make, each_closed


@kind("copies in a batch", fewer=2, needs=(12, 8))
def batches(at):
    def make():
        made = [at.device.allocate(64, stream=at.stream) for _ in range(4)]
        made[0].fill(1, stream=at.stream)
        made[1].fill(2, stream=at.stream)
        copy_batch(at.stream, made[:2], made[2:], options=CopyOptions())
        fails(lambda: copy_batch(at.stream, made[:2], made[2:3]), (TypeError, ValueError))
        return made

    return make, each_closed


@kind("pool of its own")
def own_pools(at):
    def make():
        pool = DeviceMemoryResource(at.device, DeviceMemoryResourceOptions(max_size=1 << 22))
        repr(pool.attributes)
        return pool, pool.allocate(64, stream=at.stream)

    return make, each_closed


@kind("pinned pool's buffer")
def pinned_pool_buffers(at):
    pool = PinnedMemoryResource(PinnedMemoryResourceOptions())
    return lambda: pool.allocate(256, stream=at.stream), Buffer.close


@kind("pinned pool of its own")
def pinned_pools(at):
    def make():
        pool = PinnedMemoryResource(PinnedMemoryResourceOptions())
        return pool, pool.allocate(64, stream=at.stream)

    return make, each_closed


@kind("page-locked buffer")
def page_locked(at):
    return lambda: at.pinned.allocate(4096), Buffer.close


@kind("virtual memory that grows", fewer=5)
def virtual(at):
    def make():
        resource = VirtualMemoryResource(at.device)
        buffer = resource.allocate(1, stream=at.stream)
        return resource.modify_allocation(buffer, buffer.size + 1)

    return make, Buffer.close


@kind("memory of a graph", fewer=2)
def graph_memory(at):
    resource = GraphMemoryResource(at.device)

    def make():
        builder = at.capture()
        buffer = resource.allocate(256, stream=builder)
        buffer.fill(1, stream=builder)
        buffer.close(builder)
        graph = builder.end_building().complete()
        graph.launch(at.stream)
        return builder, graph

    return make, each_closed


@kind("managed buffer", fewer=2, needs=(13, 0))
def managed(at):
    resource = ManagedMemoryResource(ManagedMemoryResourceOptions())

    def make():
        buffer = resource.allocate(4096, stream=at.stream)
        buffer.prefetch(at.device, stream=at.stream)
        assert buffer.preferred_location is None and list(buffer.accessed_by) == []
        prefetch_batch(at.stream, [buffer], Host())
        fails(lambda: buffer.prefetch("here", stream=at.stream), (TypeError, ValueError))
        return buffer

    return make, Buffer.close


@kind("managed pool of its own", fewer=2, needs=(13, 0))
def managed_pools(at):
    def make():
        pool = ManagedMemoryResource(ManagedMemoryResourceOptions())
        return pool, pool.allocate(64, stream=at.stream)

    return make, each_closed


@kind("buffer by handle, with an owner")
def owned_buffers(at):
    class Owner:
        pass

    def make():
        owner = Owner()
        owner.buffer = Buffer.from_handle(at.buffer.handle, 64, owner=owner)
        return owner.buffer

    return make, Buffer.close


class Mine(cuirass.MemoryResource):
    def __init__(self, pool):
        self.pool, self.held = pool, {}

    def allocate(self, size, *, stream):
        inner = self.pool.allocate(size, stream=stream)
        self.held[inner.handle] = inner
        return Buffer.from_handle(inner.handle, size, mr=self, stream=stream)

    def deallocate(self, ptr, size, *, stream):
        self.held.pop(ptr).close(stream)


@kind("buffer of a user's resource")
def buffers_of_users(at):
    def make():
        resource = Mine(at.pool)
        resource.buffer = resource.allocate(64, stream=at.stream)
        return resource.buffer

    return make, Buffer.close


@kind("memoryview")
def memoryviews(at):
    pool = PinnedMemoryResource(PinnedMemoryResourceOptions())

    def make():
        buffer = pool.allocate(64, stream=at.stream)
        view = memoryview(buffer)
        buffer.close()
        return view

    return make, memoryview.release


@kind("access by another device", devices=2)
def peers(at):
    other = at.devices[1]

    def make():
        pool = DeviceMemoryResource(at.device, DeviceMemoryResourceOptions())
        peers = pool.peer_accessible_by
        peers.add(other)
        assert list(peers) == [other]
        pool.peer_accessible_by = []
        pool.peer_accessible_by |= {other}
        return pool, pool.allocate(64, stream=at.stream)

    return make, each_closed


# Between processes


class InOrder:
    """What a driver has to be given back in this order: what is imported before what it was exported from, or it keeps
    both. It is kept also where the collector ends them."""

    def __init__(self, *things):
        self.things = list(things)

    def close(self):
        while self.things:
            self.things.pop(0).close()

    def __del__(self):
        while self.things:
            del self.things[0]


def _shared(at, pool):
    def make():
        shared = pool()
        exported = shared.allocate(64, stream=at.stream)
        mapped = at.mapping(shared)
        imported = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=at.stream)
        again = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=at.stream)
        return InOrder(again, imported, mapped, exported, shared)

    return make, InOrder.close


@kind("pool shared and imported", fewer=5)
def shared_pools(at):
    return _shared(at, lambda: DeviceMemoryResource(at.device, DeviceMemoryResourceOptions(ipc_enabled=True)))


# Measured, in C: a driver keeps 1,700 bytes of the heap for each import of a pool of the host that a device is given
# access to, which it does not have before.
@kind("pinned pool shared and imported", fewer=5, theirs=0 if is_sim() else 1800)
def shared_pinned_pools(at):
    return _shared(at, lambda: PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True)))


@kind("buffer sent by pickle", fewer=2)
def pickled_buffers(at):
    shared = DeviceMemoryResource(at.device, DeviceMemoryResourceOptions(ipc_enabled=True))
    mapped = at.mapping(shared).register(shared.uuid)

    def make():
        assert mapped.uuid == shared.uuid
        exported = shared.allocate(64, stream=at.stream)
        return exported, pickle.loads(pickle.dumps(exported))

    def close(things):
        # Released in the order of the stream that the import was given: the default one.
        things[1].set_deallocation_stream(at.stream)
        each_closed(things)

    return make, close


@kind("resource in the registry", fewer=4)
def registered(at):
    shared = DeviceMemoryResource(at.device, DeviceMemoryResourceOptions(ipc_enabled=True))

    def make():
        mapped = at.mapping(shared).register(shared.uuid)
        assert pickle.loads(pickle.dumps(mapped)) is mapped
        fails(lambda: DeviceMemoryResource.from_registry(uuid.uuid4()), RuntimeError)
        return mapped

    return make, DeviceMemoryResource.close


@kind("file descriptor of a pool")
def allocation_handles(at):
    shared = DeviceMemoryResource(at.device, DeviceMemoryResourceOptions(ipc_enabled=True))

    def make():
        handle = shared.allocation_handle
        handle.close()
        fails(lambda: DeviceMemoryResource.from_allocation_handle(0, handle), RuntimeError)
        fails(lambda: DeviceMemoryResource.from_allocation_handle(0, 9999), OSError)
        return shared.allocation_handle

    return make, lambda handle: handle.close()


@kind("import that fails", fewer=2, wrong=True)
def failing_imports(at):
    def make():
        with open(os.devnull) as file:
            return fails(lambda: DeviceMemoryResource.from_allocation_handle(0, file.fileno()))

    return make


@kind("event that can be shared", fewer=2)
def shared_events(at):
    def make():
        event = at.stream.record(options=EventOptions(ipc_enabled=True))
        descriptor = pickle.loads(pickle.dumps(event.ipc_descriptor))
        try:
            return event, Event.from_ipc_descriptor(descriptor)
        except CUDAError:
            # A process that opens its own event: the real driver refuses it.
            return (event,)

    return make, each_closed
