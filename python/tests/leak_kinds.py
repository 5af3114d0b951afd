"""What the kinds of objects share that ``leaks.py`` creates and releases.

A kind is a function: it is given a place with what all need, and returns what makes one object, and what closes it.
Where there is nothing to close it returns the first alone.
"""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuirass import (
    CUDAError,
    Device,
    DeviceMemoryResource,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
)

from .conftest import KERNELS, driver_version

KINDS = []
ONE = LaunchConfig(grid=1, block=1)
# An address that no pool has: its release fails.
NOWHERE = 0x1234_0000


@dataclass
class Kind:
    """A kind: its name, what sets it up, and how it differs from the others."""

    name: str
    set_up: Any
    # Divides the number of cycles: for what is slow.
    fewer: int = 1
    # Whether its cycles make reports.
    reports: bool = False
    # Whether its cycles do what is wrong in the simulator's eyes.
    wrong: bool = False
    # Bytes of heap that a library below loses in a cycle by itself.
    theirs: int = 0
    # The driver that it needs, and how many devices.
    needs: tuple = (12, 0)
    devices: int = 1

    def missing(self, at):
        """Why it cannot be measured here."""
        if driver_version() < self.needs:
            return f"the driver is older than CUDA {self.needs[0]}.{self.needs[1]}"
        if self.devices > len(at.devices):
            return "one device"
        return None


def kind(name, **how):
    def add(set_up):
        KINDS.append(Kind(name, set_up, **how))
        return set_up

    return add


class Place:
    """What all kinds use."""

    def __init__(self):
        self.device = Device(0)
        self.device.set_current()
        self.devices = Device.get_all_devices()
        self.stream, self.second = self.device.create_stream(), self.device.create_stream()
        self.ptx = Program(KERNELS, "c++", ProgramOptions(arch=f"sm_{self.device.arch}")).compile("ptx").code
        self.code = Program(KERNELS, "c++").compile("cubin")
        self.pool = self.device.memory_resource
        self.pinned = LegacyPinnedMemoryResource()
        self.buffer = self.device.allocate(4096, stream=self.stream)
        self.buffer.fill(0, stream=self.stream)
        self.host = self.pinned.allocate(4096)
        self.array = np.asarray(memoryview(self.host))
        self.array[:] = 0

    def settle(self):
        self.stream.sync()
        self.second.sync()

    def close(self):
        self.buffer.close()
        self.settle()
        self.stream.close()
        self.second.close()

    def capture(self, mode="relaxed"):
        """A builder that builds."""
        return self.device.create_graph_builder().begin_building(mode)

    def mapping(self, shared):
        return type(shared).from_allocation_handle(
            *([shared.device_id] if isinstance(shared, DeviceMemoryResource) else []), shared.allocation_handle
        )


def each_closed(things):
    """Closes the last one first, which is also the order in which a tuple drops them."""
    for thing in reversed(things):
        thing.close()


class Foreign:
    def __init__(self, stream):
        self.answer = stream.__cuda_stream__()

    def __cuda_stream__(self):
        return self.answer


def fails(use, error=CUDAError):
    """What it raises."""
    try:
        use()
    except error as raised:
        return raised
    raise AssertionError("it did not fail")


def in_thread(work):
    """Runs it in a thread of its own, and raises what it raises."""
    raised = []

    def run():
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return thread
