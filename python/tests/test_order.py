"""The stream-order checker: planted mistakes, each with the corrected program beside it."""

import numpy as np
import pytest

import cuirass
from cuirass import Device, LaunchConfig, LegacyPinnedMemoryResource, StreamOptions, launch, sim

from .conftest import needs_sim

pytestmark = needs_sim

SIZE = 4096


def streams(device, count=2):
    return [device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(count)]


def test_a_race_is_found_and_a_wait_mends_it(device, code):
    add = code.get_kernel("add")
    config = LaunchConfig(grid=4, block=256)
    for mended in (False, True):
        a, b = streams(device)
        buffer = device.allocate(SIZE, stream=a)
        b.wait(a)
        with sim.check_order() as order:
            launch(a, config, add, buffer, 1024, np.int32(1))
            if mended:
                b.wait(a)
            launch(b, config, add, buffer, 1024, np.int32(1))
        print(order.findings)
        assert bool(order.findings) != mended
        device.sync()
