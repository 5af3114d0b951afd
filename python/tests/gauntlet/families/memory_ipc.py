"""Pools, memory and events shared between processes. One process imports what it has itself exported, which the driver
takes for pools and memory."""

import functools
import uuid

import cuirass
from cuirass import Buffer, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions

from ..objects import Kept, device, stream
from ..registry import ALL, dropped, getters, operation, pure
from .event import refused


def shared():
    """A pool that other processes can use."""
    return DeviceMemoryResource(0, DeviceMemoryResourceOptions(ipc_enabled=True))


@functools.cache
def exported():
    """What another process would have. It is there for the process: it must not go while anything imports it."""
    mine, pool = stream(), shared()
    memory = pool.allocate(64, stream=mine)
    mine.sync()
    return Kept(pool=pool, memory=memory, stream=mine, handle=pool.allocation_handle, descriptor=memory.ipc_descriptor)


def there():
    return Kept(of=exported())


def at_rest():
    """It is made before any run."""
    exported()


def mapped(there):
    return Kept(pool=DeviceMemoryResource.from_allocation_handle(0, there.of.handle))


def imported(there, stream, mapped):
    return Buffer.from_ipc_descriptor(mapped.pool, there.of.descriptor, stream=stream)


def handle(pool):
    return pool.allocation_handle


def descriptor(there):
    return there.of.descriptor


def event():
    return device().create_event(EventOptions(ipc_enabled=True))


def event_descriptor(event):
    return event.ipc_descriptor


MADE = dict(there=there, stream=stream, mapped=mapped)

OPERATIONS = [
    operation("_MemPool.allocation_handle", lambda pool: pool.allocation_handle, case="of a shared pool", callers=ALL,
              pool=shared),
    pure("_MemPool.uuid", lambda pool, handle: pool.uuid, case="of a shared pool", pool=shared, handle=handle),
    operation("DeviceMemoryResource.from_allocation_handle",
              lambda there: DeviceMemoryResource.from_allocation_handle(0, there.of.handle), callers=ALL, there=there),
    pure("PinnedMemoryResource.from_allocation_handle",
         refused(lambda: cuirass.PinnedMemoryResource.from_allocation_handle("none"))),
    pure("_MemPool.register", lambda pool, handle: pool.register(pool.uuid), pool=shared, handle=handle),
    pure("_MemPool.from_registry", refused(lambda: DeviceMemoryResource.from_registry(uuid.uuid4()))),
    pure("_MemPool.__reduce__", refused(lambda pool: pool.__reduce__()), pool=lambda: DeviceMemoryResource(0)),
    operation("Buffer.from_ipc_descriptor", imported, case="of another process", callers=ALL, **MADE),
    operation("Buffer.ipc_descriptor", lambda stream, pool, memory: memory.ipc_descriptor, case="of a shared pool",
              stream=stream, pool=shared, memory=lambda stream, pool: pool.allocate(64, stream=stream)),
    operation("Buffer.close", lambda there, stream, mapped, memory: memory.close(), case="of another process",
              callers=ALL, **MADE, memory=imported),
    dropped("Buffer", case="of another process", callers=ALL, **MADE, memory=imported),
    pure("IPCAllocationHandle.close", lambda pool, handle: handle.close(), pool=shared, handle=handle),
    *getters("IPCAllocationHandle", ["handle", "is_closed", "uuid"], calls=False, pool=shared, handle=handle),
    pure("IPCAllocationHandle.__int__", lambda pool, handle: int(handle), pool=shared, handle=handle),
    pure("IPCAllocationHandle.__repr__", lambda pool, handle: repr(handle), pool=shared, handle=handle),
    pure("IPCAllocationHandle.__reduce__", refused(lambda pool, handle: handle.__reduce__()), pool=shared,
         handle=handle),
    pure("IPCBufferDescriptor.size", lambda there, descriptor: descriptor.size, there=there, descriptor=descriptor),
    pure("IPCBufferDescriptor.__repr__", lambda there, descriptor: repr(descriptor), there=there,
         descriptor=descriptor),
    pure("IPCBufferDescriptor.__reduce__", lambda there, descriptor: descriptor.__reduce__(), there=there,
         descriptor=descriptor),
    operation("Event.ipc_descriptor", lambda event: event.ipc_descriptor, case="of a shared event", callers=ALL,
              event=event),
    pure("IPCEventDescriptor.__eq__", lambda event, descriptor: descriptor == 3, event=event,
         descriptor=event_descriptor),
    pure("IPCEventDescriptor.__reduce__", lambda event, descriptor: descriptor.__reduce__(), event=event,
         descriptor=event_descriptor),
]  # fmt: skip
