"""The layout of a strided tensor."""

from ._cuirass import _StridedLayout

__all__ = ["_StridedLayout"]
