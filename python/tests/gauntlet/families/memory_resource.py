"""What memory resources have in common."""

from cuirass import MemoryResource

from ..objects import stream
from ..registry import getters, pure
from .event import refused

OPERATIONS = [
    pure("MemoryResource()", MemoryResource),
    pure("MemoryResource.allocate", refused(lambda resource, stream: resource.allocate(8, stream=stream)),
         resource=MemoryResource, stream=stream),
    pure("MemoryResource.deallocate", refused(lambda resource, stream: resource.deallocate(1, 8, stream=stream)),
         resource=MemoryResource, stream=stream),
    *[
        pure(f"MemoryResource.{name}", refused(lambda resource, _name=name: getattr(resource, _name)),
             resource=MemoryResource)
        for name in ("is_device_accessible", "is_host_accessible", "device_id")
    ],
    *getters("MemoryResource", ["is_managed"], calls=False, resource=MemoryResource),
]  # fmt: skip
