"""Private names of ``cuda.core`` that programs import."""

from typing import Any

from cuirass._error import CUDAError, NVRTCError, Status
from cuirass._types import ComputeCapability

__all__ = ["CUDAError", "ComputeCapability", "NVRTCError", "handle_return"]


def handle_return(result: tuple[Any, ...], handle: object | None = None) -> Any:
    """Return what a function of ``cuda.bindings`` returned beside its status, or raise the status.

    Parameters
    ----------
    result : tuple
        The status, then the results.
    handle : object, optional
        Plays no part; there for programs that give it.

    Raises
    ------
    NVRTCError
        If the status is one of NVRTC's and not success.
    CUDAError
        If another status is not success.
    """
    status = result[0]
    if int(status) != 0:
        name = getattr(status, "name", str(status))
        error = (NVRTCError if "nvrtc" in type(status).__name__.lower() else CUDAError)(name)
        error.status = Status(int(status), name)
        raise error
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]
