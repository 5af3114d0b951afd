"""The stream-order checker: planted mistakes, each with the program mended, and programs that are in order."""

import ctypes
import threading
import time

import numpy as np
import pytest

import cuirass
from cuirass import (
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    StreamOptions,
    launch,
    sim,
)
from cuirass.graph import GraphBuilder

from .conftest import CHECKED, child, needs_sim

pytestmark = [needs_sim, pytest.mark.unordered]

COUNT = 1024
SIZE = 4 * COUNT
GRID = LaunchConfig(grid=4, block=256)
KERNELS = r"""
extern "C" __global__ void add(int* values, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += what;
}
extern "C" __global__ void move(const int* from, int* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
}
extern "C" __global__ void strided(int* values, int first, int n) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + first;
    if (i < n) values[i] = i;
}
extern "C" __global__ void histogram(int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(bins + i % 7, 1);
}
extern "C" __global__ void wait_for(volatile int* flag) { while (*flag == 0) {} }
extern "C" __global__ void raise_(int* flag) { atomicExch(flag, 1); }
"""


class Bench:
    """Two streams that order nothing by themselves, memory, kernels."""

    def __init__(self, device, code):
        self.device = device
        self.code = code
        self.a, self.b, self.c = (device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(3))
        self.x, self.y = self.buffer(), self.buffer()
        self.kept = []

    def buffer(self, stream=None):
        buffer = self.device.allocate(SIZE, stream=stream or self.a)
        if stream is None:
            buffer.fill(0, stream=self.a)
            self.a.sync()
        return buffer

    def pinned(self):
        self.kept.append(LegacyPinnedMemoryResource().allocate(SIZE))
        return self.kept[-1]

    def add(self, stream, buffer, n=COUNT):
        launch(stream, GRID, self.code.get_kernel("add"), buffer, np.int32(n), np.int32(1))

    def move(self, stream, source, target):
        launch(stream, GRID, self.code.get_kernel("move"), source, target, np.int32(COUNT))

    def run(self, name, stream, *arguments):
        launch(stream, GRID, self.code.get_kernel(name), *arguments)


def idle():
    """Waits until all work is done, without the driver's knowing that the program knows."""
    while sim.pending():
        time.sleep(0.001)


@pytest.fixture(scope="module")
def compiled():
    return cuirass.Program(KERNELS, "c++").compile("cubin")


@pytest.fixture
def bench(device, compiled):
    bench = Bench(device, compiled)
    yield bench
    device.sync()


def missing_wait(bench, mended):
    bench.add(bench.a, bench.x)
    if mended:
        bench.b.wait(bench.a)
    bench.move(bench.b, bench.x, bench.y)


def event_recorded_too_early(bench, mended):
    if mended:
        bench.add(bench.a, bench.x)
    event = bench.a.record()
    if not mended:
        bench.add(bench.a, bench.x)
    bench.b.wait(event)
    bench.move(bench.b, bench.x, bench.y)


def wrong_stream(bench, mended):
    bench.add(bench.a, bench.x)
    (bench.b if mended else bench.c).wait(bench.a)
    bench.move(bench.b, bench.x, bench.y)


def host_waited_for_the_wrong_stream(bench, mended):
    bench.add(bench.a, bench.x)
    (bench.a if mended else bench.c).sync()
    bench.move(bench.b, bench.x, bench.y)


def copied_back_too_early(bench, mended):
    bench.add(bench.a, bench.x)
    if mended:
        bench.b.wait(bench.a)
    bench.x.copy_to(bench.pinned(), stream=bench.b)


def input_overwritten_too_early(bench, mended):
    bench.move(bench.a, bench.x, bench.y)
    if mended:
        bench.b.wait(bench.a)
    bench.x.fill(1, stream=bench.b)


def the_default_stream_does_not_wait(bench, mended):
    bench.add(bench.a if not mended else bench.device.create_stream(options=StreamOptions(nonblocking=False)), bench.x)
    bench.move(bench.device.default_stream, bench.x, bench.y)


def staging_used_again_too_early(bench, mended):
    staging = bench.pinned()
    bench.x.copy_from(staging, stream=bench.a)
    if mended:
        bench.b.wait(bench.a)
    bench.y.copy_to(staging, stream=bench.b)
    bench.device.sync()


def used_before_it_is_ready(bench, mended):
    buffer = bench.buffer(bench.a)
    if mended:
        bench.b.wait(bench.a)
    bench.add(bench.b, buffer)
    bench.a.wait(bench.b)


def released_too_early(bench, mended):
    buffer = bench.buffer()
    bench.add(bench.b, buffer)
    idle()
    if mended:
        bench.a.wait(bench.b)
    buffer.close(stream=bench.a)


def released_by_the_host_too_early(bench, mended):
    # `cuMemFree` does not wait for work that uses memory of a pool.
    driver = pytest.importorskip("cuda.bindings.driver")
    _, address = driver.cuMemAllocAsync(SIZE, int(bench.b.handle))
    launch(bench.b, GRID, bench.code.get_kernel("add"), np.uint64(int(address)), np.int32(COUNT), np.int32(1))
    idle()
    if mended:
        bench.b.sync()
    assert driver.cuMemFree(address)[0] == 0


def staging_released_too_early(bench, mended):
    staging = bench.pinned()
    bench.x.copy_to(staging, stream=bench.a)
    idle()
    if mended:
        bench.a.sync()
    staging.close()


def memory_used_again_too_early(bench, mended):
    """The pool gives the memory out again; a stream that nobody waited for still writes to it."""
    pool = DeviceMemoryResource(bench.device, {"max_size": 32 << 20})
    first = pool.allocate(24 << 20, stream=bench.a)
    bench.b.wait(bench.a)
    bench.add(bench.b, first)
    idle()
    if mended:
        bench.a.wait(bench.b)
    first.close(stream=bench.a)
    second = pool.allocate(24 << 20, stream=bench.a)
    bench.add(bench.a, second)
    second.close(stream=bench.a)


def branches_of_a_graph(bench, mended):
    builder = bench.device.create_graph_builder().begin_building()
    root, fork = builder.split(2)
    bench.add(root, bench.x)
    if mended:
        root = GraphBuilder.join(root, fork)
        bench.add(root, bench.x)
    else:
        bench.add(fork, bench.x)
        root = GraphBuilder.join(root, fork)
    root.end_building().complete().launch(bench.a)


def graph_launched_too_early(bench, mended):
    builder = bench.device.create_graph_builder().begin_building()
    bench.move(builder, bench.x, bench.y)
    graph = builder.end_building().complete()
    bench.x.fill(1, stream=bench.a)
    if mended:
        bench.b.wait(bench.a)
    graph.launch(bench.b)
    bench.b.sync()


def result_read_while_others_add_to_it(bench, mended):
    bench.run("histogram", bench.a, bench.x, np.int32(COUNT))
    if mended:
        bench.b.wait(bench.a)
    bench.x.copy_to(bench.pinned(), stream=bench.b)


def streams_of_two_threads(bench, mended):
    done = []

    def work(stream):
        bench.device.set_current()
        bench.add(stream, bench.x)
        if mended:
            stream.sync()
        done.append(stream)

    for stream in (bench.a, bench.b):
        thread = threading.Thread(target=work, args=(stream,))
        thread.start()
        thread.join()
    assert len(done) == 2


def result_read_too_early(bench, mended):
    staging = bench.pinned()
    values = np.asarray(memoryview(staging)).view(np.int32)
    bench.x.copy_to(staging, stream=bench.a)
    # While the copy itself writes there the page is open.
    idle()
    if mended:
        bench.a.sync()
    assert values.sum() == 0
    bench.a.sync()


def input_written_too_early(bench, mended):
    staging = bench.pinned()
    values = np.asarray(memoryview(staging)).view(np.int32)
    bench.x.copy_from(staging, stream=bench.a)
    idle()
    if mended:
        bench.a.sync()
    values[:] = 7
    bench.a.sync()


def managed_result_read_too_early(bench, mended):
    driver = pytest.importorskip("cuda.bindings.driver")
    status, address = driver.cuMemAllocManaged(SIZE, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)
    assert status == 0
    values = (ctypes.c_int * COUNT).from_address(int(address))
    launch(bench.a, GRID, bench.code.get_kernel("add"), np.uint64(int(address)), np.int32(COUNT), np.int32(1))
    idle()
    if mended:
        bench.a.sync()
    assert values[1000] == 1
    bench.a.sync()
    driver.cuMemFree(address)


def import_given_up_too_early(bench, mended):
    shared = DeviceMemoryResource(bench.device, DeviceMemoryResourceOptions(ipc_enabled=True))
    exported = shared.allocate(SIZE, stream=bench.a)
    bench.a.sync()
    mapped = DeviceMemoryResource.from_allocation_handle(bench.device, shared.allocation_handle)
    imported = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=bench.a)
    bench.move(bench.b, bench.x, imported)
    idle()
    if mended:
        bench.a.wait(bench.b)
    imported.close()
    bench.kept += [shared, exported, mapped]


MISTAKES = {
    result_read_too_early: "host read too early",
    input_written_too_early: "host write too early",
    managed_result_read_too_early: "host read too early",
    missing_wait: "race",
    event_recorded_too_early: "race",
    wrong_stream: "race",
    host_waited_for_the_wrong_stream: "race",
    copied_back_too_early: "race",
    input_overwritten_too_early: "race",
    the_default_stream_does_not_wait: "race",
    staging_used_again_too_early: "race",
    used_before_it_is_ready: "use before ready",
    released_too_early: "release too early",
    released_by_the_host_too_early: "release too early",
    import_given_up_too_early: "release too early",
    staging_released_too_early: "release too early",
    memory_used_again_too_early: "release too early",
    branches_of_a_graph: "race",
    graph_launched_too_early: "race",
    result_read_while_others_add_to_it: "race",
    streams_of_two_threads: "race",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(bench, mistake):
    with sim.check_order() as order:
        mistake(bench, mended=False)
    assert [finding.rule for finding in order.findings] == [MISTAKES[mistake]], order.findings
    text = order.findings[0].text
    # Both places, with their streams or calls, and the memory.
    assert text.count(" (call ") + text.count(" on stream ") >= 4, text
    assert " bytes at 0x" in text and " made by cuMem" in text, text
    assert order.findings[0].call.startswith("cu")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_mended_program_is_in_order(bench, mistake):
    with sim.check_order() as order:
        mistake(bench, mended=True)
    assert order.findings == []


def test_use_after_release():
    result = child(
        f"""
import time
import numpy as np
from cuirass import Device, LaunchConfig, Program, launch, sim
device = Device(0)
device.set_current()
kernel = Program({KERNELS!r}, "c++").compile("cubin").get_kernel("add")
stream = device.create_stream()
buffer = device.allocate(4096, stream=stream)
address = np.uint64(int(buffer.handle))
with sim.check_order() as order:
    buffer.close(stream=stream)
    launch(stream, LaunchConfig(grid=4, block=256), kernel, address, np.int32(1024), np.int32(1))
print(*order.findings, sep="\\n")
""",
        env={"CUIRASS_SIM": "quiet=1"},
    )
    assert "use after release" in result.stdout, result.stderr
    assert "kernel add of cuLaunchKernel" in result.stdout and "had been released by cuMemFreeAsync" in result.stdout
    assert result.stdout.count("Finding(") == 1


def test_the_message_names_both_places(bench):
    with sim.check_order() as order:
        bench.add(bench.a, bench.x)
        bench.x.fill(3, stream=bench.b)
    (finding,) = order.findings
    streams = [f"{int(stream.handle):#x}" for stream in (bench.a, bench.b)]
    assert "kernel add of cuLaunchKernelEx (call " in finding.text
    assert f"on stream {streams[0]} reads and a fill by cuMemsetD8Async (call " in finding.text
    assert f"on stream {streams[1]} writes bytes 0 to 4095 of the allocation of 4096 bytes at " in finding.text
    assert f"{int(bench.x.handle):#x} made by cuMemAllocFromPoolAsync (call " in finding.text
    assert finding.rule == "race" and finding.call == "cuMemsetD8Async"


def test_branches_of_a_graph_lack_an_edge(bench):
    with sim.check_order() as order:
        branches_of_a_graph(bench, mended=False)
    (finding,) = order.findings
    assert finding.text.endswith("nothing orders them: no edge between these nodes of the graph"), finding.text


def halves(bench):
    launch(bench.a, LaunchConfig(grid=2, block=256), bench.code.get_kernel("add"), bench.x, np.int32(512), np.int32(1))
    back = np.uint64(int(bench.x.handle) + 2048)
    launch(bench.b, LaunchConfig(grid=2, block=256), bench.code.get_kernel("add"), back, np.int32(512), np.int32(1))


def every_other(bench):
    bench.run("strided", bench.a, bench.x, np.int32(0), np.int32(COUNT))
    bench.run("strided", bench.b, bench.x, np.int32(1), np.int32(COUNT))


def both_read(bench):
    other = bench.buffer()
    bench.move(bench.a, bench.x, bench.y)
    bench.move(bench.b, bench.x, other)
    bench.b.sync()


def both_add_atomically(bench):
    bench.run("histogram", bench.a, bench.x, np.int32(COUNT))
    bench.run("histogram", bench.b, bench.x, np.int32(COUNT))


def one_waits_in_a_kernel(bench):
    if sim.state()["seed"] is not None:
        pytest.skip("a seeded schedule runs one kernel at a time")
    one = LaunchConfig(grid=1, block=1)
    launch(bench.a, one, bench.code.get_kernel("wait_for"), bench.x)
    launch(bench.b, one, bench.code.get_kernel("raise_"), bench.x)


def asked_until_done(bench):
    bench.add(bench.a, bench.x)
    event = bench.a.record(options=EventOptions())
    while not event.is_done:
        time.sleep(0.001)
    bench.add(bench.b, bench.x)


def through_a_third_stream(bench):
    bench.add(bench.a, bench.x)
    bench.c.wait(bench.a)
    bench.b.wait(bench.c)
    bench.add(bench.b, bench.x)


def told_by_a_callback(bench):
    told = threading.Event()
    builder = bench.device.create_graph_builder().begin_building()
    bench.add(builder, bench.x)
    builder.callback(told.set)
    builder.end_building().complete().launch(bench.a)
    assert told.wait(60)
    bench.add(bench.b, bench.x)


def one_graph_in_two_streams(bench):
    builder = bench.device.create_graph_builder().begin_building()
    bench.add(builder, bench.x)
    graph = builder.end_building().complete()
    # Launches of one executable graph follow each other.
    graph.launch(bench.a)
    graph.launch(bench.b)
    bench.device.sync()


def streams_that_are_gone(bench):
    for _ in range(3):
        stream = bench.device.create_stream(options=StreamOptions(nonblocking=False))
        bench.add(stream, bench.x)
        idle()
        stream.close()
        bench.move(bench.device.default_stream, bench.x, bench.y)
    bench.device.sync()
    bench.add(bench.b, bench.x)


def memory_goes_round(bench):
    for _ in range(200):
        buffer = bench.device.allocate(SIZE, stream=bench.a)
        bench.add(bench.a, buffer)
        bench.b.wait(bench.a)
        bench.add(bench.b, buffer)
        buffer.close(stream=bench.b)


def the_rest_of_a_buffer(bench):
    """The host may use what the copies leave alone, on other pages and on the same."""
    staging = LegacyPinnedMemoryResource().allocate(1 << 16)
    bench.kept.append(staging)
    values = np.asarray(memoryview(staging))
    big = bench.device.allocate(1 << 16, stream=bench.a)
    launch(bench.a, GRID, bench.code.get_kernel("add"), np.uint64(int(staging.handle)), np.int32(COUNT), np.int32(1))
    idle()
    values[4096:] = 3
    assert values[4096:].sum() == 3 * (values.size - 4096)
    launch(bench.b, GRID, bench.code.get_kernel("add"), np.uint64(staging.handle + 8192), np.int32(10), np.int32(1))
    idle()
    values[8192 + 40 :] = 4
    bench.device.sync()
    assert values[0] == 1 and values[8192] == 4
    big.close()


def a_kernel_tells_the_host(bench):
    staging = LegacyPinnedMemoryResource().allocate(8)
    bench.kept.append(staging)
    flag = np.asarray(memoryview(staging)).view(np.int32)
    flag[:] = 0
    bench.add(bench.a, bench.x)
    launch(bench.a, LaunchConfig(grid=1, block=1), bench.code.get_kernel("raise_"), np.uint64(int(staging.handle)))
    while not flag[0]:
        time.sleep(0.001)
    bench.add(bench.b, bench.x)


def asked_before_it_was_read(bench):
    staging = bench.pinned()
    bench.x.copy_to(staging, stream=bench.a)
    while not bench.a.record().is_done:
        time.sleep(0.001)
    assert bytes(memoryview(staging)) == bytes(SIZE)
    memoryview(staging)[:] = bytes(range(256)) * 16
    bench.x.copy_from(staging, stream=bench.a)
    assert bytes(memoryview(staging)) == bytes(range(256)) * 16


IN_ORDER = [
    the_rest_of_a_buffer,
    a_kernel_tells_the_host,
    asked_before_it_was_read,
    halves,
    every_other,
    both_read,
    both_add_atomically,
    one_waits_in_a_kernel,
    asked_until_done,
    through_a_third_stream,
    told_by_a_callback,
    one_graph_in_two_streams,
    streams_that_are_gone,
    memory_goes_round,
]


@pytest.mark.parametrize("program", IN_ORDER, ids=lambda program: program.__name__)
def test_a_program_in_order(bench, program):
    with sim.check_order() as order:
        program(bench)
    assert order.findings == []


checks_itself = pytest.mark.skipif(CHECKED, reason="the checker is on all the time")


@checks_itself
def test_what_happened_before_is_not_looked_at(bench):
    bench.add(bench.a, bench.x)
    with sim.check_order() as order:
        bench.add(bench.b, bench.x)
    assert order.findings == []


@checks_itself
def test_blocks_nest_and_end(bench):
    with sim.check_order() as outer:
        with sim.check_order() as inner:
            missing_wait(bench, mended=False)
        bench.device.sync()
        bench.x.fill(1, stream=bench.a)
        bench.x.fill(2, stream=bench.b)
    assert len(inner.findings) == 1 and len(outer.findings) == 2
    mark = sim.reports_mark()
    bench.x.fill(1, stream=bench.a)
    bench.x.fill(2, stream=bench.b)
    bench.device.sync()
    assert sim.reports(mark) == []
    with pytest.raises(RuntimeError, match="with block"):
        _ = sim.check_order().findings
    with inner, pytest.raises(RuntimeError, match="entered already"):
        inner.__enter__()
    assert inner.findings == []


def test_a_whole_process():
    result = child(
        """
from cuirass import Device, StreamOptions, sim
device = Device(0)
device.set_current()
a, b = (device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(2))
buffer = device.allocate(4096, stream=a)
a.sync()
buffer.fill(1, stream=a)
buffer.fill(2, stream=b)
device.sync()
print([report["kind"] for report in sim.reports()])
""",
        env={"CUIRASS_SIM": "check=order"},
    )
    assert result.stdout == "['order']\n", result.stderr
    assert result.stderr.startswith("cuirass-sim: order: race: a fill by cuMemsetD8Async (call ")
