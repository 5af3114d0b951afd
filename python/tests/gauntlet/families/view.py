"""Views of memory with a layout: of buffers, and of other libraries' arrays."""

import ctypes
import warnings

import numpy as np

from cuirass.utils import StridedMemoryView, args_viewable_as_strided_memory

from ..objects import buffer, stream
from ..registry import ALL, dropped, getters, operation, pure
from .event import refused

GETTERS = ["size", "shape", "strides", "dtype", "ptr", "device_id", "is_device_accessible", "readonly",
           "exporting_obj"]  # fmt: skip


class Array:
    """Another library's array, of the memory of a buffer."""

    def __init__(self, buffer):
        self.__cuda_array_interface__ = {"data": (buffer.handle, False), "shape": (16,), "typestr": "<i4", "version": 3}


class HostArray:
    """The same in the host's memory."""

    def __init__(self):
        self.memory = bytearray(64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.__array_interface__ = {"data": (address, False), "shape": (16,), "typestr": "<i4", "version": 3}


def view(buffer):
    return StridedMemoryView.from_buffer(buffer, (16,), dtype=np.int32)


def old_constructor():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return StridedMemoryView()


def every_other(buffer):
    return StridedMemoryView.from_buffer(buffer, (4,), (2,), itemsize=4)


@args_viewable_as_strided_memory((0,))
def viewed(array, stream):
    return array.view(int(stream.handle))


def unreadable(memory):
    """The host cannot use memory of the device's."""
    try:
        memory.__array__()
    except BufferError:
        return
    raise AssertionError("it was to be refused")


VIEW = dict(stream=stream, buffer=buffer, view=view)
TWO = dict(**VIEW, other=buffer, target=lambda other: view(other))
SPREAD = dict(stream=stream, buffer=buffer, view=every_other, other=buffer, target=lambda other: every_other(other))

OPERATIONS = [
    pure("StridedMemoryView()", old_constructor),
    pure("StridedMemoryView.from_buffer", lambda stream, buffer: view(buffer), stream=stream, buffer=buffer),
    operation("StridedMemoryView.from_cuda_array_interface",
              lambda stream, buffer, array: StridedMemoryView.from_cuda_array_interface(array, int(stream.handle)),
              stream=stream, buffer=buffer, array=Array),
    operation("StridedMemoryView.from_any_interface",
              lambda stream, buffer, array: StridedMemoryView.from_any_interface(array, int(stream.handle)),
              stream=stream, buffer=buffer, array=Array),
    pure("StridedMemoryView.from_dlpack",
         lambda stream, buffer: StridedMemoryView.from_dlpack(buffer, int(stream.handle)),
         stream=stream, buffer=buffer),
    operation("StridedMemoryView.from_dlpack",
              lambda stream, buffer, view, other: StridedMemoryView.from_dlpack(view, int(other.handle)),
              case="on another stream", callers=ALL, **VIEW, other=stream),
    pure("StridedMemoryView.from_array_interface", StridedMemoryView.from_array_interface, array=HostArray),
    pure("StridedMemoryView.view", lambda stream, buffer, view: view.view(), **VIEW),
    pure("StridedMemoryView.as_tensor_map", refused(lambda stream, buffer, view: view.as_tensor_map()), **VIEW),
    operation("StridedMemoryView.copy_from",
              lambda stream, buffer, view, other, target: target.copy_from(view, stream), callers=ALL, **TWO),
    operation("StridedMemoryView.copy_to",
              lambda stream, buffer, view, other, target: view.copy_to(target, stream), callers=ALL, **TWO),
    operation("StridedMemoryView.copy_to",
              lambda stream, buffer, view, other, target: view.copy_to(target, stream), case="with gaps",
              callers=ALL, **SPREAD),
    pure("StridedMemoryView.__dlpack__",
              lambda stream, buffer, view: view.__dlpack__(stream=int(stream.handle), max_version=(1, 0)), **VIEW),
    pure("StridedMemoryView.__dlpack_device__", lambda stream, buffer, view: view.__dlpack_device__(), **VIEW),
    *getters("StridedMemoryView", GETTERS, calls=False, **VIEW),
    pure("StridedMemoryView.__repr__", lambda stream, buffer, view: repr(view), **VIEW),
    dropped("StridedMemoryView", case="the last of its memory", stream=stream,
            view=lambda stream: view(buffer(stream))),
    pure("StridedMemoryView.__array__", lambda stream, buffer, view: unreadable(view), **VIEW),
    pure("Buffer.__array__", lambda stream, buffer: unreadable(buffer), stream=stream, buffer=buffer),
    pure("Buffer.__dlpack__",
         lambda stream, buffer: buffer.__dlpack__(stream=int(stream.handle), max_version=(1, 0)),
              stream=stream, buffer=buffer),
    pure("Buffer.__dlpack_device__", lambda stream, buffer: buffer.__dlpack_device__(), stream=stream, buffer=buffer),
    pure("utils.args_viewable_as_strided_memory", lambda: args_viewable_as_strided_memory((0,))(print)),
    operation("utils.args_viewable_as_strided_memory", lambda stream, buffer, array: viewed(array, stream),
              case="called", stream=stream, buffer=buffer, array=Array),
]  # fmt: skip
