"""Types for annotations, and the enumerations of options."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Literal, Protocol, SupportsInt, TypeAlias, runtime_checkable

__all__ = [
    "AddressModeType",
    "ArrayFormatType",
    "CompilerBackendType",
    "DevicePointerType",
    "DeviceResourcesType",
    "FilterModeType",
    "GraphConditionalType",
    "GraphMemoryType",
    "IsStreamType",
    "ManagedMemoryLocationType",
    "ObjectCodeFormatType",
    "PCHStatusType",
    "ProcessStateType",
    "ReadModeType",
    "SourceCodeType",
    "VirtualMemoryAccessType",
    "VirtualMemoryAllocationType",
    "VirtualMemoryGranularityType",
    "VirtualMemoryHandleType",
    "VirtualMemoryLocationType",
    "WorkqueueSharingScopeType",
]

DevicePointerType: TypeAlias = SupportsInt | int | None
"""An address: a number, a ``CUdeviceptr`` of ``cuda.bindings.driver``, or ``None`` for none."""

DeviceResourcesType: TypeAlias = Sequence[object]
"""Parts of a device."""

ProcessStateType: TypeAlias = Literal["running", "locked", "checkpointed", "failed"]
"""What a process that can be checkpointed is doing."""


@runtime_checkable
class IsStreamType(Protocol):
    """Anything that says which CUDA stream it is."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the stream's handle."""
        ...


class AddressModeType(enum.StrEnum):
    """What a texture reads outside of its range."""

    WRAP = "wrap"
    CLAMP = "clamp"
    MIRROR = "mirror"
    BORDER = "border"


class ArrayFormatType(enum.StrEnum):
    """The type of an array's elements."""

    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class CompilerBackendType(enum.StrEnum):
    """What compiles or links."""

    NVRTC = "NVRTC"
    NVVM = "NVVM"
    NVJITLINK = "nvJitLink"
    DRIVER = "driver"


class FilterModeType(enum.StrEnum):
    """How a texture reads between its elements."""

    POINT = "point"
    LINEAR = "linear"


class GraphConditionalType(enum.StrEnum):
    """What a conditional node of a graph does."""

    IF = "if"
    WHILE = "while"
    SWITCH = "switch"


class GraphMemoryType(enum.StrEnum):
    """Where a graph's allocation is."""

    DEVICE = "device"
    HOST = "host"
    MANAGED = "managed"


class ManagedMemoryLocationType(enum.StrEnum):
    """Where managed memory prefers to be."""

    DEVICE = "device"
    HOST = "host"
    HOST_NUMA = "host_numa"


class ObjectCodeFormatType(enum.StrEnum):
    """What object code is."""

    PTX = "ptx"
    CUBIN = "cubin"
    LTOIR = "ltoir"
    FATBIN = "fatbin"
    OBJECT = "object"
    LIBRARY = "library"


class PCHStatusType(enum.StrEnum):
    """What became of a precompiled header."""

    CREATED = "created"
    NOT_ATTEMPTED = "not_attempted"
    FAILED = "failed"


class ReadModeType(enum.StrEnum):
    """What a texture's elements are read as."""

    ELEMENT_TYPE = "element_type"
    NORMALIZED_FLOAT = "normalized_float"


class SourceCodeType(enum.StrEnum):
    """What a program's source is."""

    CXX = "c++"
    PTX = "ptx"
    NVVM = "nvvm"


class VirtualMemoryAccessType(enum.StrEnum):
    """How virtual memory may be used."""

    READ_WRITE = "rw"
    READ = "r"


class VirtualMemoryAllocationType(enum.StrEnum):
    """What virtual memory is."""

    PINNED = "pinned"
    MANAGED = "managed"


class VirtualMemoryGranularityType(enum.StrEnum):
    """Which granularity virtual memory has."""

    MINIMUM = "minimum"
    RECOMMENDED = "recommended"


class VirtualMemoryHandleType(enum.StrEnum):
    """How virtual memory is shared."""

    POSIX_FD = "posix_fd"
    WIN32_KMT = "win32_kmt"
    FABRIC = "fabric"


class VirtualMemoryLocationType(enum.StrEnum):
    """Where virtual memory is."""

    DEVICE = "device"
    HOST = "host"
    HOST_NUMA = "host_numa"
    HOST_NUMA_CURRENT = "host_numa_current"


class WorkqueueSharingScopeType(enum.StrEnum):
    """Who shares work queues."""

    DEVICE_CTX = "device_ctx"
    GREEN_CTX_BALANCED = "green_ctx_balanced"
