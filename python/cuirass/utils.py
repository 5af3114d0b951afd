"""What is used beside the main classes."""

import enum
import functools
from collections.abc import Callable
from typing import Any

from ._cuirass import StridedMemoryView

__all__ = [
    "MemcpyOverlapMode",
    "MemcpySrcAccessOrder",
    "StridedMemoryView",
    "args_viewable_as_strided_memory",
]


class MemcpyOverlapMode(enum.StrEnum):
    """Whether a copy should run beside kernels."""

    DEFAULT = "default"
    PREFER_OVERLAP_WITH_COMPUTE = "prefer_overlap_with_compute"


class MemcpySrcAccessOrder(enum.StrEnum):
    """When a copy reads its source."""

    STREAM = "stream"
    DURING_API_CALL = "during_api_call"
    ANY = "any"


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
