"""What the stream-order checker remembers of a long run: bounded, and enough to find mistakes all the same."""

import numpy as np
import pytest

import cuirass
from cuirass import (
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LaunchConfig,
    StreamOptions,
    launch,
    sim,
)
from cuirass.graph import GraphBuilder

from . import ipc_children as children
from .conftest import CHECKED, needs_sim
from .ipc_children import filled
from .test_ipc_processes import Child
from .test_order import KERNELS

pytestmark = [needs_sim, pytest.mark.unordered, pytest.mark.thread_unsafe(reason="the checker is the whole process's")]

ROUNDS = 4000
WIDTH = 1 << 14


class Run:
    def __init__(self, device, code):
        self.device = device
        self.add, self.strided = code.get_kernel("add"), code.get_kernel("strided")
        self.a, self.b = (self.stream() for _ in range(2))
        self.x, self.y, self.wide = (self.device.allocate(size, stream=self.a) for size in (4096, 4096, 4 * WIDTH))
        for buffer in (self.x, self.y, self.wide):
            buffer.fill(0, stream=self.a)
        self.a.sync()
        builder = device.create_graph_builder().begin_building()
        left, right = builder.split(2)
        self.work(left, self.x)
        self.work(right, self.y)
        self.graph = GraphBuilder.join(left, right).end_building().complete()

    def stream(self):
        return self.device.create_stream(options=StreamOptions(nonblocking=True))

    def work(self, stream, buffer):
        launch(stream, LaunchConfig(grid=1, block=32), self.add, buffer, np.int32(32), np.int32(1))


def streams_that_come_and_go(run, at):
    stream = run.stream()
    stream.wait(run.a)
    run.work(stream, run.x)
    run.a.wait(stream)
    stream.close()


def launches_of_a_graph(run, at):
    run.graph.launch(run.a)


def two_streams_and_events(run, at):
    run.work(run.a, run.x)
    run.b.wait(run.a)
    run.y.copy_from(run.x, stream=run.b)
    run.a.wait(run.b)


def memory_that_is_given_back(run, at):
    buffer = run.device.allocate(512 * (1 + at % 31), stream=run.a)
    for _ in range(3):
        run.work(run.a, buffer)
    buffer.close(stream=run.a)


def scattered_reads_and_writes(run, at):
    """Each touches other bytes than the ones before it."""
    if at < ROUNDS // 10:
        grid = LaunchConfig(grid=16, block=256)
        launch(run.a, grid, run.strided, run.wide, np.int32(at % 2), np.int32(WIDTH - at))


def mistakes(run, at):
    """Always the same one, on streams of different names."""
    if at < ROUNDS // 10:
        stream = run.stream()
        run.work(stream, run.x)
        stream.close()


PROGRAMS = [
    streams_that_come_and_go,
    launches_of_a_graph,
    two_streams_and_events,
    memory_that_is_given_back,
    scattered_reads_and_writes,
    mistakes,
]
# The most of each kind that a program here needs, by what the checker promises to remember.
BOUNDS = {"lines": 500, "clocks": 500_000, "pieces": 5000, "uses": 70_000, "ranges": 400_000, "guards": 256,
          "findings": 200}  # fmt: skip


@pytest.fixture
def run(device):
    run = Run(device, cuirass.Program(KERNELS, "c++").compile("cubin"))
    yield run
    device.sync()


@pytest.mark.parametrize("synchronized", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_remembered_does_not_grow(run, program, synchronized):
    """In all, some ten thousands of launches, copies, waits and allocations."""
    seen = []
    with sim.check_order() as order:
        # Where the checker is on all the time there may be some of other tests.
        before = sim.state()["order"]["findings"]
        for at in range(ROUNDS):
            program(run, at)
            if synchronized and at % 50 == 49:
                run.device.sync()
            if at in (ROUNDS // 2 - 1, ROUNDS - 1):
                seen.append(sim.state()["order"])
                seen[-1]["findings"] -= before
        for remembered in seen:
            assert all(count <= BOUNDS[kind] for kind, count in remembered.items()), remembered
        half, whole = seen
        # What is forgotten is forgotten from time to time, so that a count goes up and down. Pieces that others have
        # taken the place of are remembered up to a number that the first half does not reach.
        for kind in half.keys() - {"pieces", "uses", "ranges"}:
            assert whole[kind] <= 2 * half[kind] + 200, (kind, half, whole)
        assert order.findings == [] or program is mistakes
        # A mistake is found all the same.
        found = len(order.findings)
        fresh = run.device.allocate(4096, stream=run.a)
        run.b.wait(run.a)
        run.work(run.a, fresh)
        run.work(run.b, fresh)
    assert [finding.rule for finding in order.findings[found:]] == ["race"]
    assert (found > 0) == (program is mistakes)


@pytest.mark.skipif(CHECKED, reason="the checker is on all the time")
def test_nothing_is_counted_while_it_is_off(device):
    assert sim.state()["order"] is None
    with sim.check_order():
        assert sim.state()["order"].keys() == BOUNDS.keys()
    assert sim.state()["order"] is None


@pytest.mark.parametrize("way", ["through the other process", "past the other process"])
def test_order_that_another_process_makes(way, device, shared, stream):
    """One stream records an event that another process waits for, another waits for what that process records then."""
    buffer = filled(shared, 0x10, stream)
    first, second = (device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(2))
    with sim.check_order() as order:
        ours = first.record(options=EventOptions(ipc_enabled=True))
        theirs = second.record(options=EventOptions(ipc_enabled=True))
        with Child("spawn", children.relay, ours, theirs) as child:
            assert child.receive() == "ready"
            for _ in range(3):
                buffer.fill(1, stream=first)
                first.record(ours)
                child.conn.send("recorded")
                assert child.receive() == "relayed"
                if way == "through the other process":
                    second.wait(theirs)
                buffer.fill(2, stream=second)
                second.record(ours)
                first.wait(ours)
            child.conn.send(None)
            child.answer()
        device.sync()
    assert {finding.rule for finding in order.findings} == ({"race"} if way.startswith("past") else set())


def test_what_is_used_after_the_other_process_began_is_not_ordered_by_it(device, shared, stream):
    """The other process can have waited for no more than what was recorded by then."""
    buffer = filled(shared, 0x10, stream)
    first, second = (device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(2))
    with sim.check_order() as order:
        ours = first.record(options=EventOptions(ipc_enabled=True))
        theirs = second.record(options=EventOptions(ipc_enabled=True))
        with Child("spawn", children.relay, ours, theirs) as child:
            assert child.receive() == "ready"
            first.record(ours)
            child.conn.send("recorded")
            assert child.receive() == "relayed"
            buffer.fill(1, stream=first)
            second.wait(theirs)
            buffer.fill(2, stream=second)
            child.conn.send(None)
            child.answer()
        device.sync()
    assert [finding.rule for finding in order.findings] == ["race"]


def test_imported_memory_in_order_of_the_other_process(device, stream, census):
    """The host that waits for another process's event knows what that may have waited for."""
    shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    buffer = filled(shared, 0x10, stream)
    first, second = (device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(2))
    with sim.check_order() as order:
        ours = first.record(options=EventOptions(ipc_enabled=True))
        theirs = second.record(options=EventOptions(ipc_enabled=True))
        with Child("spawn", children.relay, ours, theirs) as child:
            assert child.receive() == "ready"
            buffer.fill(1, stream=first)
            first.record(ours)
            child.conn.send("recorded")
            assert child.receive() == "relayed"
            theirs.sync()
            buffer.fill(2, stream=second)
            child.conn.send(None)
            child.answer()
        device.sync()
    assert order.findings == []
    buffer.close(second)
    second.sync()
    shared.close()
