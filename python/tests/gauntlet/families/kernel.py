"""Kernels: their attributes, parameters and occupancy."""

from cuirass import Kernel, LaunchConfig
from cuirass._cuirass import KernelAttributes

from ..objects import kernel, loaded_code, stream
from ..registry import ALL, dropped, getters, operation, pure
from .event import refused

ATTRIBUTES = [name for name in vars(KernelAttributes) if not name.startswith("_")]
CLUSTERS = LaunchConfig(grid=4, block=32, cluster=1)
PARAMETERS = "INVALID_VALUE is how the driver says that a kernel has no more parameters; how many it has is kept"


def attributes(kernel):
    return kernel.attributes[0]


def occupancy(kernel):
    return kernel.occupancy


OPERATIONS = [
    *getters("Kernel", ["attributes", "occupancy", "handle"], calls=False, kernel=kernel),
    operation("Kernel.num_arguments", lambda kernel: kernel.num_arguments, callers=ALL, needs=12040, kernel=kernel)
    .allow("keeps answers", reason=PARAMETERS),
    operation("Kernel.arguments_info", lambda kernel: kernel.arguments_info, needs=12040, kernel=kernel)
    .allow("keeps answers", reason=PARAMETERS),
    pure("Kernel.from_handle", lambda kernel: Kernel.from_handle(kernel.handle), kernel=kernel),
    pure("Kernel.from_handle", lambda code, kernel: Kernel.from_handle(kernel.handle, code), case="with its code",
              code=loaded_code, kernel=lambda code: code.get_kernel("add")),
    dropped("Kernel", case="the last of its code", kernel=kernel),
    pure("Kernel.__eq__", lambda kernel: kernel == 3, kernel=kernel),
    pure("Kernel.__hash__", hash, kernel=kernel),
    pure("Kernel.__repr__", repr, kernel=kernel),
    pure("KernelAttributes.__getitem__", lambda kernel: kernel.attributes[0], kernel=kernel),
    *getters("KernelAttributes", ATTRIBUTES, kernel=kernel, attributes=attributes),
    *[
        operation(f"KernelAttributes.{name} (set)",
                  lambda kernel, attributes, _name=name, _value=value: setattr(attributes, _name, _value), submits=True,
                  callers=ALL, kernel=kernel, attributes=attributes)
        for name, value in (("max_dynamic_shared_size_bytes", 1024), ("preferred_shared_memory_carveout", 50))
    ],
    operation("KernelOccupancy.max_active_blocks_per_multiprocessor",
              lambda kernel, occupancy: occupancy.max_active_blocks_per_multiprocessor(32, 0), callers=ALL,
              kernel=kernel, occupancy=occupancy),
    operation("KernelOccupancy.max_potential_block_size",
              lambda kernel, occupancy: occupancy.max_potential_block_size(0, 0), kernel=kernel, occupancy=occupancy),
    operation("KernelOccupancy.available_dynamic_shared_memory_per_block",
              lambda kernel, occupancy: occupancy.available_dynamic_shared_memory_per_block(1, 32),
              kernel=kernel, occupancy=occupancy),
    *[
        pure(f"KernelOccupancy.{name}",
             refused(lambda kernel, occupancy, stream, _name=name: getattr(occupancy, _name)(CLUSTERS, stream=stream)),
             kernel=kernel, occupancy=occupancy, stream=stream)
        for name in ("max_potential_cluster_size", "max_active_clusters")
    ],
]  # fmt: skip
