"""The devices that can use a pool's memory, as a set."""

from collections.abc import Iterable, Iterator, MutableSet, Set
from typing import Any, NoReturn

from .._cuirass import Device, DeviceMemoryResource

__all__ = ["PeerAccessibleBySetProxy"]


class PeerAccessibleBySetProxy(MutableSet[Device]):
    """The devices beside its own whose kernels can use a pool's memory.

    A live view: what it holds is asked of the driver (``cuMemPoolGetAccess``) each time, and each change is one
    ``cuMemPoolSetAccess``, whatever the number of devices. Devices are given as ``Device`` or as ordinals; the pool's
    own device always has access, and is left out.

    Parameters
    ----------
    mr : DeviceMemoryResource
        The pool.
    """

    __slots__ = ("_mr",)

    def __init__(self, mr: DeviceMemoryResource) -> None:
        self._mr = mr

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object: it is a view; set() of it has the devices")

    @classmethod
    def _from_iterable(cls, it: Iterable[Device]) -> set[Device]:  # type: ignore[override]
        return set(it)

    def _peers(self) -> list[Device]:
        own = self._mr.device_id
        return [device for device in Device.get_all_devices() if device.device_id != own]

    def _device(self, value: object) -> Device:
        device = value if isinstance(value, Device) else Device(_ordinal(value))
        own = self._mr.device_id
        if device.device_id != own and not device.can_access_peer(own):
            raise ValueError(f"device {device.device_id} cannot be given access to memory of device {own}")
        return device

    def _change(self, granted: Iterable[object], revoked: Iterable[object]) -> None:
        wanted = {device.device_id for device in map(self._device, granted)} - {self._mr.device_id}
        unwanted = {_ordinal(value) for value in revoked} - {self._mr.device_id} - wanted
        if not wanted and not unwanted:
            return
        current = {device.device_id for device in self}
        to_add, to_remove = sorted(wanted - current), sorted(unwanted & current)
        if to_add or to_remove:
            self._mr._set_access(to_add, to_remove)

    def _replace(self, devices: Iterable[object]) -> None:
        if not isinstance(devices, Iterable):
            raise TypeError(f"peer_accessible_by must be an iterable of devices, not {type(devices).__name__}")
        wanted = [*devices]
        keep = {_ordinal(value) for value in wanted}
        self._change(wanted, [device for device in self if device.device_id not in keep])

    def __contains__(self, value: object) -> bool:
        try:
            ordinal = _ordinal(value)
        except TypeError:
            return False
        return any(device.device_id == ordinal and self._mr._is_accessible_by(device) for device in self._peers())

    def __iter__(self) -> Iterator[Device]:
        return iter([device for device in self._peers() if self._mr._is_accessible_by(device)])

    def __len__(self) -> int:
        return sum(map(self._mr._is_accessible_by, self._peers()))

    def add(self, value: Device | int) -> None:
        """Give a device access.

        Raises
        ------
        ValueError
            If it cannot have access.
        """
        self._change([value], [])

    def discard(self, value: Device | int) -> None:
        """Take access from a device; nothing happens if it has none."""
        self._change([], [value])

    def clear(self) -> None:
        """Take access from all other devices, in one call."""
        self._change([], list(self))

    def update(self, *others: Iterable[Device | int]) -> None:
        """Give access to all these devices, in one call."""
        self._change([value for other in others for value in other], [])

    def difference_update(self, *others: Iterable[Device | int]) -> None:
        """Take access from all these devices, in one call."""
        self._change([], [value for other in others for value in other])

    def intersection_update(self, *others: Iterable[Device | int]) -> None:
        """Take access from the devices that are not in all of these, in one call."""
        kept = [{_ordinal(value) for value in other} for other in others]
        self._change([], [device for device in self if not all(device.device_id in keep for keep in kept)])

    def symmetric_difference_update(self, other: Iterable[Device | int]) -> None:
        """Give access to those of these devices that have none, and take it from those that have, in one call."""
        given = {_ordinal(value) for value in other}
        current = {device.device_id for device in self}
        self._change(given - current, given & current)

    def __ior__(self, other: Set[Any]) -> "PeerAccessibleBySetProxy":  # type: ignore[misc]
        self.update(other)
        return self

    def __iand__(self, other: Set[Any]) -> "PeerAccessibleBySetProxy":
        self.intersection_update(other)
        return self

    def __isub__(self, other: Set[Any]) -> "PeerAccessibleBySetProxy":
        self.difference_update(other)
        return self

    def __ixor__(self, other: Set[Any]) -> "PeerAccessibleBySetProxy":  # type: ignore[misc]
        self.symmetric_difference_update(other)
        return self

    def __repr__(self) -> str:
        return f"PeerAccessibleBySetProxy({sorted(device.device_id for device in self)})"


def _ordinal(value: object) -> int:
    if isinstance(value, Device):
        return value.device_id
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"a device is a Device or its ordinal, not {type(value).__name__}")
    return int(value.__index__())
