"""Launches, and how they are configured."""

from cuirass import LaunchConfig, launch

from ..objects import buffer, builder, config, kernel, memory, run_captured, stream
from ..registry import ALL, getters, operation, pure
from .kernel import PARAMETERS

FIELDS = ["grid", "cluster", "block", "shmem_size", "is_cooperative", "programmatic_stream_serialization"]


class Captured:
    """What a captured launch refers to: it is let go before the graph runs."""

    def __init__(self):
        self.kernel, self.buffer = kernel(), buffer(stream())


class Known(Captured):
    """The same, of a kernel that was launched before: its launch into a capture returns at once."""

    def __init__(self):
        super().__init__()
        order = stream()
        launch(order, config(), self.kernel, self.buffer, 8)
        order.sync()


def run(stream, memory, kernel, config):
    launch(stream, config, kernel, memory, 8)


OPERATIONS = [
    operation("launch", run, callers=ALL, stream=stream, memory=buffer, kernel=kernel, config=config)
    .allow("keeps answers", reason=PARAMETERS),
    operation("launch", lambda memory, builder, config, given: launch(builder, config, given.kernel, given.buffer, 8),
              case="captured", follow=run_captured, memory=memory, builder=builder, config=config, given=Captured)
    .allow("keeps answers", reason=PARAMETERS),
    operation("launch", lambda memory, builder, config, given: launch(builder, config, given.kernel, given.buffer, 8),
              case="captured, of a kernel that was launched before", follow=run_captured, memory=memory,
              builder=builder, config=config, given=Known),
    pure("LaunchConfig()", config),
    *getters("LaunchConfig", FIELDS, calls=False, config=config),
    *[
        pure(f"LaunchConfig.{name} (set)", lambda config, _name=name: setattr(config, _name, getattr(config, _name)),
             config=config)
        for name in FIELDS
    ],
    pure("LaunchConfig.__eq__", lambda config: config == LaunchConfig(grid=1, block=8), config=config),
    pure("LaunchConfig.__hash__", hash, config=config),
    pure("LaunchConfig.__repr__", repr, config=config),
]  # fmt: skip
