"""Graphs that what they keep refers to: the collector takes the whole, and never what somebody still has a share of."""

import contextlib
import ctypes
import gc
import threading
import time
import weakref

import pytest

import cuirass
from cuirass.graph import GraphBuilder

from .conftest import child, refused_before
from .test_graph_mishaps import Gate

pytestmark = pytest.mark.thread_unsafe(reason="it looks at what the collector does for the whole process")
C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
DROPPED = "a graph builder was dropped while it was building"


class Pipeline:
    """What has a graph, or a part of one, whose callback refers to it."""

    def __init__(self, ran=None):
        self.ran = [] if ran is None else ran
        self.whole = ["whole"]

    def done(self, _data=None):
        # The collector would have emptied it before it let it go.
        self.ran.append(self.whole[0])


# How the callback refers to the pipeline.
FUNCTIONS = {
    "a bound method": lambda pipeline: ((pipeline.done,), {}),
    "a closure": lambda pipeline: ((lambda: pipeline.done(),), {}),
    "a C function": lambda pipeline: ((C_FUNCTION(pipeline.done),), {"user_data": b"data"}),
}


def begun(device, pipeline, function="a bound method"):
    """A builder that has captured the callback."""
    builder = device.create_graph_builder().begin_building()
    arguments, keywords = FUNCTIONS[function](pipeline)
    builder.callback(*arguments, **keywords)
    return builder


def completed(device, pipeline, function="a bound method"):
    builder = begun(device, pipeline, function).end_building()
    graph = builder.complete()
    builder.close()
    return graph


def defined(device, pipeline, function):
    builder = begun(device, pipeline, function).end_building()
    definition = builder.graph_definition
    builder.close()
    return definition


def launched(device, pipeline, function):
    graph = completed(device, pipeline, function)
    stream = device.create_stream()
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    assert pipeline.ran == ["whole"] * 3
    return graph


def updated(device, pipeline, function):
    graph = completed(device, Pipeline(), "a closure")
    graph.update(defined(device, pipeline, function))
    return graph


def joined(device, pipeline, function):
    builder = device.create_graph_builder().begin_building()
    builder, fork = builder.split(2)
    arguments, keywords = FUNCTIONS[function](pipeline)
    fork.callback(*arguments, **keywords)
    pipeline.fork = fork
    return GraphBuilder.join(builder, fork).end_building()


def embedded(device, pipeline, function):
    parent = device.create_graph_builder().begin_building()
    for _ in range(2):
        inner = begun(device, pipeline, function).end_building()
        parent.embed(inner)
        inner.close()
    graph = parent.end_building().complete()
    parent.close()
    return graph


# What the pipeline has, in the end.
HOLDERS = {
    "a graph": completed,
    "a launched graph": launched,
    "an updated graph": updated,
    "a definition": defined,
    "a node": lambda *made: next(iter(defined(*made).nodes())),
    "a fresh builder": lambda device, *_: device.create_graph_builder(),
    "a builder that builds": begun,
    "a builder that has ended": lambda *made: begun(*made).end_building(),
    "a builder that was joined": joined,
    "a graph around it": embedded,
}


def collect():
    gc.collect()
    cuirass.drain()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_cycle_is_collected(device, census, reports, holder, function):
    pipeline = Pipeline()
    pipeline.itself = pipeline
    pipeline.held = HOLDERS[holder](device, pipeline, function)
    seen = weakref.ref(pipeline)
    del pipeline
    collect()
    assert seen() is None
    building = holder == "a builder that builds"
    assert len(reports) == building and all(DROPPED in text for text in reports)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_held_is_left_alone(device, census, holder, function):
    """The callback alone refers to the pipeline, and runs as ever after the collector has looked at everything."""
    ran = []
    pipeline = Pipeline(ran)
    held = HOLDERS[holder](device, pipeline, function)
    del pipeline, ran[:]
    for _ in range(3):
        gc.collect()
    if holder == "a fresh builder":
        return
    if holder == "a node":
        held = held.graph
    if holder == "a builder that builds":
        held.end_building()
        gc.collect()
    if hasattr(held, "complete"):
        held = held.complete()
    elif hasattr(held, "instantiate"):
        held = held.instantiate()
    gc.collect()
    stream = device.create_stream()
    held.launch(stream)
    gc.collect()
    stream.sync()
    assert ran and set(ran) == {"whole"}


def test_a_launch_that_is_under_way_keeps_the_cycle(device, census):
    gate, ran = Gate(device), []
    pipeline = Pipeline(ran)
    pipeline.graph = completed(device, pipeline)
    pipeline.graph.launch(gate.stream)
    pipeline.graph.launch(gate.stream)
    seen = weakref.ref(pipeline.done.__func__), weakref.ref(pipeline.graph)
    del pipeline
    for _ in range(3):
        collect()
    assert ran == []
    gate.open()
    collect()
    assert ran == ["whole", "whole"] and seen[1]() is None


def test_the_collector_runs_in_a_callback(device, stream, census):
    """On a thread of the driver, while the graph that it collects runs."""
    ran, went_on = [], threading.Event()
    pipeline = Pipeline(ran)

    def function(pipeline=pipeline):
        went_on.wait(10)
        gc.collect()
        pipeline.done()
        del pipeline
        gc.collect()

    builder = device.create_graph_builder().begin_building()
    builder.callback(function)
    pipeline.graph = builder.end_building().complete()
    builder.close()
    pipeline.graph.launch(stream)
    seen = weakref.ref(pipeline.graph)
    del pipeline, function, builder
    went_on.set()
    stream.sync()
    collect()
    assert ran == ["whole"] and seen() is None


@pytest.fixture(scope="module")
def add(code):
    kernel = code.get_kernel("add")
    # Loaded before anything is counted.
    assert kernel.attributes
    return kernel


class Users(cuirass.MemoryResource):
    """A resource of a user's, which must be whole when it gets its memory back."""

    is_device_accessible = is_host_accessible = True
    device_id = 0

    def __init__(self, log):
        self.log, self.inner, self.memory = log, cuirass.LegacyPinnedMemoryResource(), {}

    def allocate(self, size, *, stream=None):
        buffer = self.inner.allocate(size)
        self.memory[int(buffer.handle)] = buffer
        return cuirass.Buffer.from_handle(int(buffer.handle), size, mr=self)

    def deallocate(self, ptr, size, *, stream=None):
        self.memory.pop(int(ptr)).close()
        self.log.append(size)


@pytest.mark.parametrize("under_way", [False, True], ids=["at rest", "under way"])
def test_memory_of_a_resource_that_has_the_graph_goes_back_to_it(device, add, census, under_way):
    log = []
    resource = Users(log)
    buffer = resource.allocate(64)
    memoryview(buffer).cast("B")[:] = bytes(64)
    builder = device.create_graph_builder().begin_building()
    cuirass.launch(builder, cuirass.LaunchConfig(grid=1, block=16), add, buffer, 16, 1)
    resource.graph = builder.end_building().complete()
    builder.close()
    gate = Gate(device)
    resource.graph.launch(gate.stream)
    seen = weakref.ref(resource.graph)
    if not under_way:
        gate.open()
    del resource, buffer, builder
    collect()
    if under_way:
        assert log == []
        gate.open()
        collect()
    assert log == [64] and seen() is None


def kept_by(held):
    """What the collector is shown."""
    return [object.__func__ for object in gc.get_referents(held) if hasattr(object, "__func__")]


def test_the_collector_is_shown_what_one_object_alone_keeps(device, stream, census):
    pipeline = Pipeline()
    alone = [Pipeline.done]
    builder = begun(device, pipeline)
    assert kept_by(builder) == alone
    builder.end_building()
    assert kept_by(builder) == alone
    definition = builder.graph_definition
    assert kept_by(builder) == kept_by(definition) == []
    graph = builder.complete()
    assert kept_by(builder) == kept_by(definition) == kept_by(graph) == []
    definition.__del__()
    assert kept_by(builder) == kept_by(graph) == kept_by(definition) == []
    parent = device.create_graph_builder().begin_building()
    parent.embed(builder)
    builder.close()
    assert kept_by(builder) == kept_by(graph) == kept_by(parent) == []
    graph.close()
    assert kept_by(graph) == [] and kept_by(parent) == alone
    for _ in range(2):
        with begun(device, pipeline).end_building() as inner:
            parent.embed(inner)
            parent.embed(inner)
            assert kept_by(inner) == []
    assert kept_by(parent) == alone, "what is embedded twice has two owners"
    parent.close()
    assert kept_by(parent) == []


def test_the_collector_is_shown_nothing_of_a_launch_under_way(device, census):
    """Of a graph that was closed, beside a definition that shares it."""
    gate, pipeline = Gate(device), Pipeline()
    definition = defined(device, pipeline, "a bound method")
    graph = definition.instantiate()
    graph.launch(gate.stream)
    graph.close()
    assert kept_by(definition) == []
    gate.open()
    cuirass.drain()
    assert kept_by(definition) == [Pipeline.done]


def test_the_collector_is_shown_nothing_of_what_is_in_use(device, stream, census):
    class Stream:
        def __cuda_stream__(self):
            shown.append(kept_by(graph))
            return stream.__cuda_stream__()

    shown, pipeline = [], Pipeline()
    graph = completed(device, pipeline)
    graph.launch(Stream())
    stream.sync()
    assert shown == [[]] and kept_by(graph) == [Pipeline.done]
    graph.close()


def test_the_collector_is_shown_nothing_of_a_capture_in_parts(device, stream, census):
    ran = []
    builder, fork = begun(device, Pipeline(ran)).split(2)
    assert kept_by(builder) == kept_by(fork) == []
    gc.collect()
    builder = GraphBuilder.join(builder, fork)
    assert kept_by(builder) == []
    builder.end_building()
    assert kept_by(builder) == [Pipeline.done]
    builder.complete().launch(stream)
    stream.sync()
    assert ran == ["whole"]
    builder.close()


def test_the_collector_is_shown_nothing_of_a_capture_with_bodies(device, census):
    with begun(device, Pipeline()) as builder, refused_before((12, 3), "cuGraphConditionalHandleCreate"):
        body = builder.if_then(builder.create_condition(0))
        assert kept_by(builder) == kept_by(body) == []
        body.begin_building().end_building()
        gc.collect()
        builder.end_building()
        assert kept_by(builder) == kept_by(body) == []
        definition = body.graph_definition
        builder.close()
        assert kept_by(body) == kept_by(definition) == []
        body.close()
        assert kept_by(definition) == []
        gc.collect()


@pytest.mark.parametrize("closed", ["builder", "graph"])
def test_a_cycle_with_two_owners_stays_until_one_is_closed(device, census, closed):
    pipeline = Pipeline()
    pipeline.builder = begun(device, pipeline).end_building()
    pipeline.graph = pipeline.builder.complete()
    owner, seen = weakref.ref(getattr(pipeline, closed)), weakref.ref(pipeline)
    del pipeline
    collect()
    assert seen() is not None
    owner().close()
    collect()
    assert seen() is None


@pytest.mark.parametrize("holder", ["a graph", "a definition", "a builder that has ended"])
def test_a_share_from_outside_keeps_what_the_callback_needs(device, stream, census, holder):
    ran = []
    pipeline = Pipeline(ran)
    builder = begun(device, pipeline).end_building()
    outside = builder.graph_definition
    if holder == "a graph":
        pipeline.held = builder.complete()
    else:
        pipeline.held = builder.graph_definition if holder == "a definition" else builder
    del builder, pipeline
    gc.collect()
    graph = outside.instantiate()
    del outside
    gc.collect()
    graph.launch(stream)
    stream.sync()
    assert ran == ["whole"]
    # The cycle has two owners still.
    graph.close()


def test_a_forked_child_collects_nothing_of_the_parents(device):
    source = """
import gc, os, sys, threading, cuirass
device = cuirass.Device(0)
device.set_current()
class Pipeline:
    def done(self): pass
for _ in range(5):
    pipeline = Pipeline()
    builder = device.create_graph_builder().begin_building()
    builder.callback(pipeline.done)
    pipeline.held = builder
pipeline.held.end_building()
pipeline.held = pipeline.held.complete()
gc.disable()
child = os.fork()
shown = gc.get_referents(pipeline.held)
gc.collect()
if child == 0:
    os._exit(len([o for o in shown if hasattr(o, "__func__")]))
_, status = os.waitpid(child, 0)
assert status == 0, status
"""
    result = child(source)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(DROPPED) == 4


def test_a_cycle_may_be_left_to_the_end_of_the_process(device):
    source = """
import gc, cuirass
gc.disable()
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
class Pipeline:
    def done(self): pass
for building in (False, True):
    pipeline = Pipeline()
    builder = device.create_graph_builder().begin_building()
    builder.callback(pipeline.done)
    pipeline.held = builder if building else builder.end_building().complete()
    if not building:
        builder.close()
        pipeline.held.launch(stream)
        stream.sync()
"""
    result = child(source)
    assert (result.returncode, result.stderr) == (0, "")


def test_collecting_while_graphs_are_captured_launched_and_closed(device, census):
    """The collector runs all the time, also while threads are in calls that share and unshare what graphs keep."""
    stop, failures, alive = threading.Event(), [], []

    def collecting():
        while not stop.is_set():
            gc.collect()
            time.sleep(0)

    def work(number):
        device = cuirass.Device(0)
        device.set_current()
        stream = device.create_stream()
        turn = 0
        while not stop.is_set() and not failures:
            turn += 1
            ran = []
            pipeline = Pipeline(ran)
            builder = begun(device, pipeline, list(FUNCTIONS)[turn % 3])
            # Work on the stream itself takes a share of the capture for a moment.
            on_stream = builder.stream
            event = on_stream.record()
            pipeline.held = builder.end_building().complete()
            if turn % 2:
                builder.close()
            for _ in range(2):
                pipeline.held.launch(stream)
            definition = pipeline.held if turn % 4 else builder
            del definition, event, on_stream
            alive.append(weakref.ref(pipeline))
            if turn % 2 == 0:
                builder.close()
            if turn % 5 == 0:
                begun(device, pipeline).close()
            if turn % 7 == 0:
                pipeline.held.close()
            del pipeline, builder
            stream.sync()
            if set(ran) != {"whole"} or len(ran) != 2:
                failures.append(ran)
        stream.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    threads.append(threading.Thread(target=collecting))
    for thread in threads:
        thread.start()
    time.sleep(2)
    stop.set()
    for thread in threads:
        thread.join()
    for _ in range(2):
        collect()
    assert failures == [] and len(alive) > 3
    assert [seen for seen in alive if seen() is not None] == []


def test_collecting_while_another_thread_works_on_the_captured_stream(device, census):
    """It takes shares of the capture, which it gives back at once: what the callback needs is seen all the same, each
    time that the collector asks."""
    stop, ran = threading.Event(), []
    builder = begun(device, Pipeline(ran))
    stream = builder.stream
    buffer = cuirass.LegacyPinnedMemoryResource().allocate(64)

    def working():
        cuirass.Device(0).set_current()
        with contextlib.suppress(cuirass.CUDAError):
            while not stop.is_set():
                buffer.fill(1, stream=stream)

    thread = threading.Thread(target=working)
    thread.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert kept_by(builder) == [Pipeline.done]
        gc.collect()
    stop.set()
    thread.join()
    graph = builder.end_building().complete()
    launcher = device.create_stream()
    graph.launch(launcher)
    launcher.sync()
    assert ran == ["whole"]
    graph.close()
    builder.close()
    launcher.close()
