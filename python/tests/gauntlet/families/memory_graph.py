"""Memory that graphs allocate."""

from cuirass import GraphMemoryResource
from cuirass._cuirass import GraphMemoryResourceAttributes

from ..objects import builder, memory
from ..registry import getters, operation, pure

ATTRIBUTES = [name for name in vars(GraphMemoryResourceAttributes) if not name.startswith("_")]


def resource():
    return GraphMemoryResource(0)


def attributes():
    return resource().attributes


def allocated(builder, resource):
    return resource.allocate(64, stream=builder).handle


OPERATIONS = [
    pure("GraphMemoryResource()", lambda: GraphMemoryResource(0)),
    operation("GraphMemoryResource.allocate",
              lambda memory, builder, resource: resource.allocate(64, stream=builder),
              memory=memory, builder=builder, resource=resource),
    operation("GraphMemoryResource.deallocate",
              lambda memory, builder, resource, address: resource.deallocate(address, 64, stream=builder),
              memory=memory, builder=builder, resource=resource, address=allocated),
    operation("GraphMemoryResource.trim", lambda resource: resource.trim(), resource=resource),
    pure("GraphMemoryResource.close", lambda resource: resource.close(), resource=resource),
    *getters("GraphMemoryResource", ["attributes", "device_id", "is_device_accessible", "is_host_accessible"],
             calls=False, resource=resource),
    pure("GraphMemoryResource.__repr__", repr, resource=resource),
    *getters("GraphMemoryResourceAttributes", ATTRIBUTES, attributes=attributes),
    operation("GraphMemoryResourceAttributes.used_mem_high (set)",
              lambda attributes: setattr(attributes, "used_mem_high", 0), attributes=attributes),
    operation("GraphMemoryResourceAttributes.reserved_mem_high (set)",
              lambda attributes: setattr(attributes, "reserved_mem_high", 0), attributes=attributes),
]  # fmt: skip
