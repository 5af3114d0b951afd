"""Page-locked memory."""

from cuirass import LegacyPinnedMemoryResource, PinnedMemoryResource, PinnedMemoryResourceOptions

from ..objects import Kept, stream
from ..registry import ALL, dropped, getters, operation, pure


class Unfreed(LegacyPinnedMemoryResource):
    """Memory that goes back by hand alone."""

    def deallocate(self, ptr, size, *, stream=None):
        pass


def unfreed(*stream):
    resource = Unfreed()
    memory = resource.allocate(64)
    return Kept(resource=resource, memory=memory, address=memory.handle)


def free(memory, stream=None):
    LegacyPinnedMemoryResource.deallocate(memory.resource, memory.address, 64, stream=stream)


def own_pool():
    return PinnedMemoryResource(PinnedMemoryResourceOptions())


OPERATIONS = [
    pure("LegacyPinnedMemoryResource()", LegacyPinnedMemoryResource),
    operation("LegacyPinnedMemoryResource.allocate", lambda resource: resource.allocate(64), callers=ALL,
              resource=LegacyPinnedMemoryResource),
    operation("LegacyPinnedMemoryResource.allocate", lambda resource, stream: resource.allocate(64, stream=stream),
              case="with a stream", resource=LegacyPinnedMemoryResource, stream=stream),
    operation("LegacyPinnedMemoryResource.deallocate", free, callers=ALL, memory=lambda: unfreed()),
    operation("LegacyPinnedMemoryResource.deallocate", free, case="after a stream", memory=lambda: unfreed(),
              stream=stream),
    *getters("LegacyPinnedMemoryResource", ["is_device_accessible", "is_host_accessible", "device_id"], calls=False,
             resource=LegacyPinnedMemoryResource),
    operation("PinnedMemoryResource()", own_pool, callers=ALL),
    operation("PinnedMemoryResource()", PinnedMemoryResource, case="the current pool", needs=13000),
    dropped("PinnedMemoryResource", pool=own_pool),
    operation("_MemPool.allocate", lambda stream, pool: pool.allocate(64, stream=stream), case="page-locked",
              callers=ALL, stream=stream, pool=own_pool),
    dropped("Buffer", case="of a page-locked pool", stream=stream, pool=own_pool,
            buffer=lambda stream, pool: pool.allocate(64, stream=stream)),
    *getters("PinnedMemoryResource", ["is_device_accessible", "is_host_accessible", "device_id", "numa_id"],
             calls=False, pool=own_pool),
    pure("PinnedMemoryResource.__repr__", repr, pool=own_pool),
]  # fmt: skip
