"""Memory resources between processes: which are registered, and how ``multiprocessing`` sends them."""

import os
import threading
import uuid
import weakref
from collections.abc import Callable
from multiprocessing import AuthenticationError, reduction
from typing import Any, TypeVar

from .._cuirass import (
    Device,
    DeviceMemoryResource,
    IPCAllocationHandle,
    IPCBufferDescriptor,
    PinnedMemoryResource,
)

__all__ = ["IPCAllocationHandle", "IPCBufferDescriptor"]

_Shared = DeviceMemoryResource | PinnedMemoryResource
_S = TypeVar("_S", DeviceMemoryResource, PinnedMemoryResource)
_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

# A collection may come in the middle of a look-up, and look up something itself.
_lock = threading.RLock()
_registered: weakref.WeakValueDictionary[uuid.UUID, _Shared] = weakref.WeakValueDictionary()


def _find(name: uuid.UUID) -> _Shared | None:
    with _lock:
        resource = _registered.get(name)
    return None if resource is None or resource.is_closed else resource


def _register(resource: _S, name: uuid.UUID) -> _Shared:
    """Return the registered resource of a UUID: this one, if there is no other."""
    with _lock:
        known = _registered.get(name)
        if known is not None and not known.is_closed:
            return known
        _registered[name] = resource
    return resource


def _lookup(cls: type[_S], name: uuid.UUID) -> _S:
    """Return the registered resource of a UUID, which is of this class."""
    resource = _find(name)
    if resource is None:
        raise RuntimeError(
            f"Memory resource {name} was not found: it is sent with multiprocessing first, or imported with "
            "from_allocation_handle() and registered with register()"
        )
    wanted = PinnedMemoryResource if issubclass(cls, PinnedMemoryResource) else DeviceMemoryResource
    if not isinstance(resource, wanted):
        raise RuntimeError(f"Memory resource {name} is a {type(resource).__name__}, and not a {wanted.__name__}")
    return resource


def _reduce_handle(handle: IPCAllocationHandle) -> _Reduced:
    # The file descriptor is duplicated for whoever unpickles this, once.
    return _rebuild_handle, (reduction.DupFd(_open(handle)), handle.uuid)


def _open(handle: IPCAllocationHandle) -> int:
    if handle.is_closed:
        raise RuntimeError("this allocation handle is closed, and cannot be sent")
    return int(handle)


def _rebuild_handle(duplicate: "reduction.DupFd", name: uuid.UUID | None) -> IPCAllocationHandle:  # type: ignore[valid-type]
    try:
        file = duplicate.detach()  # type: ignore[attr-defined]
    except (OSError, EOFError, AuthenticationError) as error:
        raise RuntimeError(
            f"the file descriptor of memory resource {name} was not passed on: the process that sent it has ended, or "
            "has passed it on before, or is not related to this one"
        ) from error
    try:
        return IPCAllocationHandle._init(file, name)
    finally:
        os.close(file)


def _reduce_device(resource: DeviceMemoryResource) -> _Reduced:
    device = Device(resource.device_id)
    return _rebuild_device, (device.device_id, device.uuid, resource.allocation_handle)


def _rebuild_device(ordinal: int, name: str, handle: IPCAllocationHandle) -> _Shared:
    return _rebuild(handle, lambda: DeviceMemoryResource.from_allocation_handle(_device(ordinal, name), handle))


def _reduce_pinned(resource: PinnedMemoryResource) -> _Reduced:
    return _rebuild_pinned, (resource.allocation_handle,)


def _rebuild_pinned(handle: IPCAllocationHandle) -> _Shared:
    return _rebuild(handle, lambda: PinnedMemoryResource.from_allocation_handle(handle))


def _rebuild(handle: IPCAllocationHandle, make: Callable[[], _Shared]) -> _Shared:
    """Return the resource of a handle: the one that this process has, or a new one."""
    name = handle.uuid
    if name is None:
        return make()
    known = _find(name)
    if known is not None and known.is_mapped:
        handle.close()
        return known
    made = make()
    registered = made.register(name)
    # This process's own, which cannot import.
    return registered if registered.is_mapped else made


def _device(ordinal: int, name: str) -> Device:
    """Return the sender's device, which may have another ordinal here."""
    devices = Device.get_all_devices()
    for device in (*devices[ordinal : ordinal + 1], *devices):
        if device.uuid == name:
            return device
    raise RuntimeError(f"the memory resource is on device {name}, which this process does not see")


def _send(cls: type[_S]) -> None:
    """Have multiprocessing send the resources of a class, which may be a subclass: what arrives is not."""
    if issubclass(cls, PinnedMemoryResource):
        reduction.register(cls, _reduce_pinned)
    else:
        reduction.register(cls, _reduce_device)


reduction.register(IPCAllocationHandle, _reduce_handle)
_send(DeviceMemoryResource)
_send(PinnedMemoryResource)
