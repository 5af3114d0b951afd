"""What is used beside the main classes."""

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._cuirass import (
    Buffer,
    Device,
    Host,
    Stream,
    StridedMemoryView,
    _copy_pitched,
    copy_batch,
    discard_batch,
    discard_prefetch_batch,
    prefetch_batch,
)

if TYPE_CHECKING:
    from .graph import GraphBuilder

__all__ = [
    "CopyOptions",
    "MemcpyOverlapMode",
    "MemcpySrcAccessOrder",
    "StridedMemoryView",
    "args_viewable_as_strided_memory",
    "copy_2d",
    "copy_3d",
    "copy_batch",
    "discard_batch",
    "discard_prefetch_batch",
    "prefetch_batch",
]


class MemcpyOverlapMode(enum.StrEnum):
    """Whether a copy should run beside kernels."""

    DEFAULT = "default"
    PREFER_OVERLAP_WITH_COMPUTE = "prefer_overlap_with_compute"


class MemcpySrcAccessOrder(enum.StrEnum):
    """When a copy reads its source.

    In the order of the stream; before the call returns, whatever is on the stream before it; or at any time until the
    stream has passed the copy.
    """

    STREAM = "stream"
    DURING_API_CALL = "during_api_call"
    ANY = "any"


@dataclass(frozen=True)
class CopyOptions:
    """How a copy is made.

    Attributes
    ----------
    src_access_order : MemcpySrcAccessOrder or str
        When the source is read. For another order than the stream's the source has to be there, and nothing may write
        to it, from the call until the stream has passed the copy.
    src_location_hint : Device or Host, optional
        Where the source is expected to be. The driver looks at it for managed memory, and for pageable memory that
        devices can use.
    dst_location_hint : Device or Host, optional
        Where the target is expected to be, as for the source.
    overlap_mode : MemcpyOverlapMode or str
        Whether it should run beside kernels.

    Raises
    ------
    ValueError
        If an order or a mode is none.
    """

    src_access_order: MemcpySrcAccessOrder | str = MemcpySrcAccessOrder.STREAM
    src_location_hint: Device | Host | None = None
    dst_location_hint: Device | Host | None = None
    overlap_mode: MemcpyOverlapMode | str = MemcpyOverlapMode.DEFAULT

    def __post_init__(self) -> None:
        object.__setattr__(self, "src_access_order", _member(MemcpySrcAccessOrder, "src_access_order", self))
        object.__setattr__(self, "overlap_mode", _member(MemcpyOverlapMode, "overlap_mode", self))


def _member(kind: type[enum.StrEnum], name: str, options: CopyOptions) -> enum.StrEnum:
    value = getattr(options, name)
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise ValueError(f"{name} must be one of {known}, not {value!r}") from None


def copy_2d(
    dst: Buffer,
    src: Buffer,
    *,
    width: int,
    height: int,
    dst_pitch: int = 0,
    src_pitch: int = 0,
    dst_offset: int = 0,
    src_offset: int = 0,
    stream: "Stream | GraphBuilder",
) -> None:
    """Copy rows of bytes from one buffer to another, in the stream's order (``cuMemcpy2DAsync``).

    ``cuda.core`` has no such function. Host memory takes part as a page-locked buffer, or as what
    ``Buffer.from_handle()`` makes of an array's address, with the array as its owner.

    Parameters
    ----------
    dst, src : Buffer
        The target and the source.
    width : int
        Bytes in a row.
    height : int
        Rows.
    dst_pitch, src_pitch : int, optional
        Bytes from row to row; 0 for rows without gaps.
    dst_offset, src_offset : int, optional
        The first byte of the first row.
    stream : Stream or GraphBuilder
        The stream.

    Raises
    ------
    ValueError
        If rows lie outside of a buffer or overlap one another, or a byte would be both read and written. Rows of the
        source may lie between those of the target.
    CUDAError
        What the driver answers.
    """
    _copy_pitched(dst, src, (width, height, 1), (dst_offset, dst_pitch, 0), (src_offset, src_pitch, 0), stream=stream)


def copy_3d(
    dst: Buffer,
    src: Buffer,
    *,
    width: int,
    height: int,
    depth: int,
    dst_pitch: int = 0,
    src_pitch: int = 0,
    dst_rows: int = 0,
    src_rows: int = 0,
    dst_offset: int = 0,
    src_offset: int = 0,
    stream: "Stream | GraphBuilder",
) -> None:
    """Copy slices of rows of bytes from one buffer to another, in the stream's order (``cuMemcpy3DAsync``).

    ``cuda.core`` has no such function. Host memory takes part as a page-locked buffer, or as what
    ``Buffer.from_handle()`` makes of an array's address, with the array as its owner.

    Parameters
    ----------
    dst, src : Buffer
        The target and the source.
    width : int
        Bytes in a row.
    height : int
        Rows in a slice.
    depth : int
        Slices.
    dst_pitch, src_pitch : int, optional
        Bytes from row to row; 0 for rows without gaps.
    dst_rows, src_rows : int, optional
        Rows from slice to slice; 0 for slices without gaps.
    dst_offset, src_offset : int, optional
        The first byte of the first row.
    stream : Stream or GraphBuilder
        The stream.

    Raises
    ------
    ValueError
        If rows or slices lie outside of a buffer or overlap one another, or a byte would be both read and written. Rows
        of the source may lie between those of the target.
    CUDAError
        What the driver answers.
    """
    to, from_ = (dst_offset, dst_pitch, dst_rows), (src_offset, src_pitch, src_rows)
    _copy_pitched(dst, src, (width, height, depth), to, from_, stream=stream)


class _Viewable:
    """An argument of which a view can be had, once the stream is known."""

    __slots__ = ("has_dlpack", "obj")

    def __init__(self, obj: object) -> None:
        self.obj = obj
        self.has_dlpack = hasattr(obj, "__dlpack__")
        if not self.has_dlpack and not hasattr(obj, "__cuda_array_interface__"):
            kind = type(obj).__name__
            raise BufferError(f"{kind} has neither __dlpack__ nor __cuda_array_interface__")

    def view(self, stream_ptr: Any = None) -> StridedMemoryView:
        """The view, as of ``StridedMemoryView.from_any_interface()``."""
        return StridedMemoryView.from_any_interface(self.obj, stream_ptr)


def args_viewable_as_strided_memory(
    arg_indices: tuple[int, ...],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function take arrays of any library: what it gets for these arguments has ``view(stream_ptr)``.

    Parameters
    ----------
    arg_indices : tuple of int
        Which positional arguments. Each must then be given, by position.

    Returns
    -------
    Callable
        A decorator. A call raises ``BufferError`` for an argument that has neither ``__dlpack__`` nor
        ``__cuda_array_interface__``, and ``IndexError`` if one of them is not given by position.

    Examples
    --------
    >>> @args_viewable_as_strided_memory((0,))
    ... def double(array, stream):
    ...     view = array.view(stream.handle)
    """
    if not isinstance(arg_indices, tuple):
        raise TypeError(f"arg_indices must be a tuple of int, not {type(arg_indices).__name__}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for index in arg_indices:
                try:
                    given[index] = _Viewable(given[index])
                except IndexError:
                    raise IndexError(
                        f"argument {index} must be given by position; there are {len(args)} positional arguments"
                    ) from None
            return function(*given, **kwargs)

        return wrapped

    return decorate
