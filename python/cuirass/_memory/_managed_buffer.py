"""The processors that use managed memory, as a set."""

from collections.abc import Iterable, Iterator, MutableSet
from typing import NoReturn, TypeAlias

from .._cuirass import Device, Host, ManagedBuffer

__all__ = ["AccessedBySetProxy"]

_Location: TypeAlias = Device | Host


class AccessedBySetProxy(MutableSet[_Location]):
    """The processors that managed memory is said to be used by, so that it is mapped for them wherever it is.

    A live view: what it holds is asked of the driver (``cuMemRangeGetAttribute``) each time, and each change is a
    ``cuMemAdvise``. A processor is a ``Device``, or ``Host()``: the NUMA nodes of the host are none.

    Parameters
    ----------
    buffer : ManagedBuffer
        The memory.
    """

    __slots__ = ("_buffer",)

    def __init__(self, buffer: ManagedBuffer) -> None:
        self._buffer = buffer

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object: it is a view; set() of it has the processors")

    @classmethod
    def _from_iterable(cls, it: Iterable[_Location]) -> set[_Location]:  # type: ignore[override]
        return set(it)

    def _replace(self, locations: Iterable[object]) -> None:
        if not isinstance(locations, Iterable):
            raise TypeError(f"accessed_by must be an iterable of processors, not {type(locations).__name__}")
        wanted = [*map(_processor, locations)]
        current = self._buffer._accessed_by()
        for location in current:
            if location not in wanted:
                self._buffer._set_accessed_by(location, False)
        for location in wanted:
            if location not in current:
                self._buffer._set_accessed_by(location, True)

    def __contains__(self, location: object) -> bool:
        return _is_processor(location) and location in self._buffer._accessed_by()

    def __iter__(self) -> Iterator[_Location]:
        return iter(self._buffer._accessed_by())

    def __len__(self) -> int:
        return len(self._buffer._accessed_by())

    def add(self, location: _Location) -> None:
        """Say that a processor uses the memory.

        Raises
        ------
        TypeError
            If it is no ``Device`` or ``Host``.
        ValueError
            If it is a NUMA node.
        CUDAError
            What the driver answers.
        """
        self._buffer._set_accessed_by(_processor(location), True)

    def discard(self, location: _Location) -> None:
        """Say that a processor does not use the memory; nothing is done for what is not in the set.

        Raises
        ------
        CUDAError
            What the driver answers.
        """
        if location in self:
            self._buffer._set_accessed_by(location, False)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self))
        return f"AccessedBySetProxy({f'{{{shown}}}' if shown else 'set()'})"


def _is_processor(location: object) -> bool:
    if isinstance(location, Host):
        return location.numa_id is None and not location.is_numa_current
    return isinstance(location, Device)


def _processor(location: object) -> _Location:
    if not isinstance(location, Device | Host):
        raise TypeError(f"a processor is a Device or Host(), not {type(location).__name__}")
    if not _is_processor(location):
        raise ValueError(f"a processor is a Device or Host(), not {location}, which is a part of the host")
    return location
