"""The named tuples that are handed out."""

from collections import namedtuple

ComputeCapability = namedtuple("ComputeCapability", ("major", "minor"))
ComputeCapability.__doc__ = "The compute capability of a device."

ParamInfo = namedtuple("ParamInfo", ("offset", "size"))
ParamInfo.__doc__ = "Where a kernel's parameter is in the parameter block, and its size, in bytes."

MaxPotentialBlockSizeOccupancyResult = namedtuple(
    "MaxPotentialBlockSizeOccupancyResult", ("min_grid_size", "max_block_size")
)
MaxPotentialBlockSizeOccupancyResult.__doc__ = "The smallest grid that fills a device, and the block size for it."
