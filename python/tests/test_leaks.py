"""What objects leave behind once they are released: a slice of ``leaks.py``, and that it finds what does leak."""

import ctypes
import gc
import json
import mmap
import os
import subprocess
import sys
import threading

import pytest

import cuirass

from .conftest import is_sim, needs_sim
from .leak_kinds import KINDS, Kind
from .leaks import Measure, driver_library

pytestmark = pytest.mark.thread_unsafe(reason="it counts what the whole process holds")
CYCLES = 1440 if is_sim() else 480


@pytest.fixture(scope="module")
def measure():
    gc.collect()
    gc.freeze()
    measure = Measure()
    yield measure
    measure.stop()
    gc.unfreeze()


@pytest.fixture(scope="module")
def program():
    """``leaks.py``: a process of its own, in which no other test has run."""
    path = os.path.join(os.path.dirname(__file__), "leaks.py")
    command = [sys.executable, path, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield child
        child.stdin.close()
        assert child.wait(60) == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_is_left(program, kind):
    print(json.dumps([kind.name, CYCLES]), file=program.stdin, flush=True)
    line = program.stdout.readline()
    assert line, f"leaks.py ended: {program.wait(60)}"
    row = json.loads(line)
    if reason := row.get("missing"):
        pytest.skip(reason)
    assert row["leaks"] == [], row


def _leaking(leak):
    """A kind that loses something in each cycle, and what it has lost."""
    lost = []
    return Kind("planted", lambda at: lambda: lost.append(leak(at))), lost


MALLOC = ctypes.CDLL(None)
MALLOC.malloc.restype, MALLOC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
MALLOC.free.argtypes = [ctypes.c_void_p]


def _thread():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    return stop, thread


@pytest.mark.parametrize(
    ("name", "leak", "mend", "cycles"),
    [
        ("heap", lambda at: MALLOC.malloc(8), MALLOC.free, CYCLES),
        ("blocks", lambda at: object(), None, CYCLES),
        ("files", lambda at: os.dup(0), os.close, 48),
        ("maps", lambda at: mmap.mmap(-1, 4096), None, 48),
        ("threads", lambda at: _thread(), lambda both: (both[0].set(), both[1].join()), 48),
        pytest.param("driver", lambda at: at.device.create_event(), cuirass.Event.close, 48, marks=needs_sim),
        ("device", lambda at: at.device.allocate(1 << 25, stream=at.stream), cuirass.Buffer.close, 48),
    ],
)
def test_what_leaks_is_found(measure, name, leak, mend, cycles):
    kind, lost = _leaking(leak)
    row = measure.kind(kind, cycles)
    for thing in lost:
        if mend:
            mend(thing)
    lost.clear()
    assert name in row.leaks, row


def test_a_buffer_costs_at_most_200_bytes(measure):
    """The object and what cuirass has on the heap for it; what the driver has there is measured by its own calls."""
    count, heap, stream = 20_000, measure.counter.heap, measure.at.stream
    if heap is None:
        pytest.skip("this C library does not tell what malloc has given out")
    driver, handle = driver_library(), ctypes.c_void_p(stream.__cuda_stream__()[1])
    addresses, buffers = (ctypes.c_uint64 * count)(), [None] * count

    def theirs():
        begin = heap()
        for number in range(count):
            place = ctypes.byref(addresses, 8 * number)
            assert driver.cuMemAllocAsync(place, ctypes.c_size_t(256), handle) == 0
        end = heap()
        for address in addresses:
            assert driver.cuMemFreeAsync(ctypes.c_uint64(address), handle) == 0
        stream.sync()
        return end - begin

    def ours():
        begin = heap()
        for number in range(count):
            buffers[number] = measure.at.pool.allocate(256, stream=stream)
        end = heap()
        size = sys.getsizeof(buffers[0])
        for number in range(count):
            buffers[number] = None
        stream.sync()
        return end - begin, size

    # The first of each make room, which stays.
    theirs(), ours()
    driver_bytes = theirs()
    heap_bytes, size = ours()
    # Python's allocator gives out 16 bytes at a time.
    each = -(-size // 16) * 16 + max(0, heap_bytes - driver_bytes) / count
    assert each <= 200, (size, heap_bytes, driver_bytes)
