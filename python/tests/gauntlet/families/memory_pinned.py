"""Page-locked memory."""

from cuirass import LegacyPinnedMemoryResource

from ..objects import Kept, stream
from ..registry import ALL, getters, operation, pure


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
]  # fmt: skip
