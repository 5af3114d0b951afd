"""Virtual memory."""

from cuirass import VirtualMemoryResource

from ..objects import Kept, device, stream
from ..registry import ALL, dropped, getters, operation, pure


def resource():
    return VirtualMemoryResource(0)


def buffer(stream, resource):
    return resource.allocate(64, stream=stream)


class Unfreed(VirtualMemoryResource):
    """Memory that goes back by hand alone."""

    def deallocate(self, ptr, size, *, stream=None):
        pass


def unfreed(stream):
    resource = Unfreed(0)
    memory = resource.allocate(64, stream=stream)
    return Kept(resource=resource, memory=memory, address=memory.handle, size=memory.size)


MADE = dict(stream=stream, resource=resource, buffer=buffer)

# What gives the old addresses back, where it had to move.
OLD_ADDRESSES = [
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuEventCreate",
    "cuEventRecord", "cuEventQuery", "cuEventDestroy_v2", "cuMemUnmap", "cuMemAddressFree",
]  # fmt: skip

OPERATIONS = [
    pure("VirtualMemoryResource()", resource),
    operation("VirtualMemoryResource.allocate", buffer, callers=ALL, stream=stream, resource=resource),
    operation("VirtualMemoryResource.allocate", lambda resource: resource.allocate(64), case="of no stream",
              callers=ALL, resource=resource),
    operation("VirtualMemoryResource.deallocate",
              lambda stream, kept: VirtualMemoryResource.deallocate(kept.resource, kept.address, kept.size,
                                                                    stream=stream),
              callers=ALL, stream=stream, kept=unfreed),
    operation("VirtualMemoryResource.modify_allocation",
              lambda stream, resource, buffer: resource.modify_allocation(buffer, buffer.size * 2),
              callers=ALL, **MADE)
    .allow("reported", OLD_ADDRESSES, reason="it has grown: what is left of the old addresses is reported"),
    operation("Buffer.close", lambda stream, resource, buffer: buffer.close(), case="virtual", callers=ALL, **MADE),
    dropped("Buffer", case="virtual", callers=ALL, **MADE),
    *getters("VirtualMemoryResource", ["device", "config", "device_id", "is_device_accessible", "is_host_accessible"],
             calls=False, resource=resource),
    pure("VirtualMemoryResource.device (set)", lambda resource, device: setattr(resource, "device", device),
         keeps="device", resource=resource, device=device),
    pure("VirtualMemoryResource.config (set)",
         lambda resource, config: setattr(resource, "config", config), keeps="config", resource=resource,
         config=lambda resource: resource.config),
    pure("VirtualMemoryResource.__repr__", repr, resource=resource),
]  # fmt: skip
