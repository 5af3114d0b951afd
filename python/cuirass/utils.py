"""What is used beside the main classes."""

import enum

__all__ = [
    "MemcpyOverlapMode",
    "MemcpySrcAccessOrder",
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
