"""Memory resources: pools of a device, and what they tell."""

import cuirass
from cuirass import DeviceMemoryResource, DeviceMemoryResourceOptions

from ..objects import Kept, own_pool, pool, stream
from ..registry import ALL, dropped, getters, operation, pure
from .event import refused

ATTRIBUTES = [name for name in vars(cuirass._cuirass._MemPoolAttributes) if not name.startswith("_")]
OPTIONS = DeviceMemoryResourceOptions()


def attributes(pool):
    return pool.attributes


def last_share():
    """Memory that keeps its pool alive."""
    mine, pool = stream(), own_pool()
    return pool.allocate(64, stream=mine)


def two_devices():
    return len(cuirass.Device.get_all_devices()) > 1


class Unfreed(DeviceMemoryResource):
    """The default pool, with memory that goes back by hand alone."""

    def deallocate(self, ptr, size, *, stream):
        pass


def unfreed(stream):
    resource = Unfreed(0)
    memory = resource.allocate(64, stream=stream)
    return Kept(resource=resource, memory=memory, address=memory.handle)


OPERATIONS = [
    operation("DeviceMemoryResource()", lambda: DeviceMemoryResource(0, OPTIONS), callers=ALL),
    pure("DeviceMemoryResource()", lambda: DeviceMemoryResource(0), case="the default pool"),
    operation("_MemPool.close", lambda pool: pool.close(), pool=own_pool),
    pure("_MemPool.close", lambda pool: DeviceMemoryResource(0).close(), case="the default pool",
         pool=pool),
    dropped("DeviceMemoryResource", pool=own_pool),
    operation("_MemPool.allocate", lambda stream, pool: pool.allocate(64, stream=stream), callers=ALL,
              stream=stream, pool=own_pool),
    operation("_MemPool.deallocate",
              lambda stream, kept: DeviceMemoryResource.deallocate(kept.resource, kept.address, 64, stream=stream),
              stream=stream, kept=unfreed),
    *getters("_MemPool", ["attributes", "handle", "is_handle_owned", "is_ipc_enabled", "is_mapped", "is_closed"],
             calls=False, pool=own_pool),
    *getters("DeviceMemoryResource", ["is_device_accessible", "is_host_accessible", "device_id"], calls=False,
             pool=own_pool),
    pure("DeviceMemoryResource.peer_accessible_by", lambda pool: pool.peer_accessible_by, pool=own_pool),
    operation("DeviceMemoryResource.peer_accessible_by (set)",
              lambda pool: setattr(pool, "peer_accessible_by", [1]), pool=own_pool)
    if two_devices() else
    pure("DeviceMemoryResource.peer_accessible_by (set)",
         lambda pool: setattr(pool, "peer_accessible_by", []), pool=own_pool),
    pure("_MemPool.allocation_handle", refused(lambda pool: pool.allocation_handle), pool=own_pool),
    pure("_MemPool.uuid", lambda pool: pool.uuid, pool=own_pool),
    pure("DeviceMemoryResource.__repr__", repr, pool=own_pool),
    *getters("_MemPoolAttributes", ATTRIBUTES, pool=own_pool, attributes=attributes),
    operation("_MemPoolAttributes.__repr__", lambda pool, attributes: repr(attributes), pool=own_pool,
              attributes=attributes),
    dropped("Buffer", case="the last of its stream and pool", memory=last_share),
]  # fmt: skip
