"""Graphs by capture: what can be captured, what comes of it, and what it keeps."""

import ctypes
import doctest
import gc
import threading
import weakref

import pytest

import cuirass
from cuirass.graph import Graph, GraphBuilder, GraphCompleteOptions, GraphDebugPrintOptions, GraphDefinition

from .conftest import driver_version, refused_before

MODES = ["global", "thread_local", "relaxed"]


@pytest.fixture
def numbers(stream, device):
    """A function: a buffer of as many numbers, all zero."""

    def make(count=64):
        buffer = device.allocate(4 * count, stream=stream)
        buffer.fill(0, stream=stream)
        return buffer

    yield make
    stream.sync()


@pytest.fixture
def read(stream, pinned):
    def values(buffer):
        host, view = pinned(buffer.size, "i")
        buffer.copy_to(host, stream=stream)
        stream.sync()
        return list(view)

    return values


@pytest.fixture(scope="module")
def add(code):
    return code.get_kernel("add")


def launch(stream, kernel, buffer, what):
    cuirass.launch(stream, cuirass.LaunchConfig(grid=1, block=64), kernel, buffer, buffer.size // 4, what)


@pytest.mark.parametrize("mode", [*MODES, None])
def test_a_builder_is_used_wherever_a_stream_is(stream, numbers, read, add, mode):
    a, b = numbers(), numbers()
    stream.sync()
    builder = stream.create_graph_builder()
    assert isinstance(builder, GraphBuilder) and not builder.is_building
    assert builder.stream == stream and builder.__cuda_stream__() == stream.__cuda_stream__()
    assert builder.begin_building(mode) is builder
    assert builder.is_building
    launch(builder, add, a, 3)
    launch(builder.stream, add, a, 4)
    b.copy_from(a, stream=builder)
    a.fill(0, stream=builder)
    assert builder.end_building() is builder
    graph = builder.complete()
    assert isinstance(graph, Graph) and int(graph.handle)
    builder.close()
    builder.close()
    assert builder.is_closed and read(b) == [0] * 64
    graph.upload(stream)
    graph.launch(stream)
    graph.launch(stream)
    assert (read(a), read(b)) == ([0] * 64, [7] * 64)
    graph.close()
    graph.close()
    assert graph.is_closed and int(graph.handle) == 0
    with pytest.raises(RuntimeError, match="closed"):
        graph.launch(stream)


def test_misuse(device, stream):
    with pytest.raises(NotImplementedError):
        GraphBuilder()
    with pytest.raises(RuntimeError):
        Graph()
    builder = device.create_graph_builder()
    with pytest.raises(ValueError, match="mode"):
        builder.begin_building("strict")
    with pytest.raises(RuntimeError, match="not building"):
        builder.end_building()
    with pytest.raises(RuntimeError):
        builder.complete()
    builder.begin_building()
    with pytest.raises(RuntimeError, match="already"):
        builder.begin_building()
    with pytest.raises(RuntimeError, match="is building"):
        builder.graph_definition  # noqa: B018
    builder.end_building()
    with pytest.raises(RuntimeError, match="ended"):
        builder.begin_building()
    with pytest.raises(TypeError):
        builder.complete(3)
    builder.close()
    with pytest.raises(RuntimeError, match="closed"):
        builder.begin_building()
    with pytest.raises(RuntimeError, match="closed"):
        device.allocate(4, stream=builder)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_graph_refers_to_lives_as_long_as_it(device, stream, numbers, read, code, census, mode):
    out, kernel = numbers(), code.get_kernel("add")
    mine = numbers()
    stream.sync()
    builder = stream.create_graph_builder().begin_building(mode)
    launch(builder, kernel, mine, 5)
    out.copy_from(mine, stream=builder)
    graph = builder.end_building().complete(GraphCompleteOptions())
    builder.close()
    mine.close()
    del mine, kernel, builder
    gc.collect()
    decoys = [device.allocate(256, stream=stream) for _ in range(8)]
    for decoy in decoys:
        decoy.fill(255, stream=stream)
    graph.launch(stream)
    graph.launch(stream)
    assert read(out) == [10] * 64
    graph.close()
    for decoy in decoys:
        decoy.close()


def test_memory_of_a_users_resource_goes_back_with_the_graph(stream, add):
    class Resource(cuirass.MemoryResource):
        freed = 0

        def allocate(self, size, *, stream):
            self.inner = cuirass.Device(0).allocate(size, stream=stream)
            return cuirass.Buffer.from_handle(self.inner.handle, size, mr=self, stream=stream)

        def deallocate(self, ptr, size, *, stream):
            self.freed += 1
            self.inner.close(stream)

    resource = Resource()
    buffer = resource.allocate(256, stream=stream)
    stream.sync()
    builder = stream.create_graph_builder().begin_building()
    launch(builder, add, buffer, 1)
    buffer.fill(0, stream=builder)
    graph = builder.end_building().complete()
    builder.close()
    buffer.close()
    del buffer
    graph.launch(stream)
    stream.sync()
    assert resource.freed == 0
    graph.close()
    assert resource.freed == 1
    stream.sync()


def test_an_owner_is_kept_by_the_graph(stream, device, add):
    class Owner:
        pass

    inner = device.allocate(256, stream=stream)
    owner = Owner()
    gone = weakref.ref(owner)
    buffer = cuirass.Buffer.from_handle(inner.handle, 256, owner=owner)
    del owner
    builder = stream.create_graph_builder().begin_building()
    launch(builder, add, buffer, 1)
    graph = builder.end_building().complete()
    builder.close()
    buffer.close()
    del buffer
    gc.collect()
    assert gone()
    graph.close()
    gc.collect()
    assert not gone()


def test_memory_of_a_graph(device, stream, numbers, read):
    resource = cuirass.GraphMemoryResource(device)
    assert resource.device_id == 0 and resource.is_device_accessible and not resource.is_host_accessible
    out = numbers()
    with pytest.raises(RuntimeError, match="is being captured, and this one is not"):
        resource.allocate(64, stream=stream)
    builder = stream.create_graph_builder().begin_building("global")
    with pytest.raises(RuntimeError, match="GraphMemoryResource"):
        device.allocate(64, stream=builder)
    with pytest.raises(RuntimeError, match="GraphMemoryResource"):
        out.copy_to(stream=builder)
    kept, freed = (resource.allocate(256, stream=builder) for _ in range(2))
    freed.fill(1, stream=builder)
    kept.copy_from(freed, stream=builder)
    shown = freed.__dlpack__(stream=-1)
    for stream_ in (builder, None):
        with pytest.raises(RuntimeError, match="in use: no view"):
            freed.close(stream_)
    del shown
    freed.close(builder)
    out.copy_from(kept, stream=builder)
    graph = builder.end_building().complete({"auto_free_on_launch": True})
    builder.close()
    graph.launch(stream)
    graph.launch(stream)
    assert read(out) == [0x01010101] * 64
    assert resource.attributes.used_mem_current >= 0
    kept.close(stream)
    stream.sync()
    graph.close()
    resource.trim()
    resource.close()


def test_memory_of_a_graph_whose_release_is_overridden(device, stream):
    class Resource(cuirass.GraphMemoryResource):
        freed = ()

        def deallocate(self, ptr, size, *, stream):
            self.freed = (*self.freed, ptr)
            super().deallocate(ptr, size, stream=stream)

    resource = Resource(device)
    builder = device.create_graph_builder().begin_building()
    buffer = resource.allocate(256, stream=builder)
    buffer.fill(1, stream=builder)
    address = int(buffer.handle)
    buffer.close(builder)
    assert resource.freed == (address,), "in the graph, which uses it, and not at its end"
    graph = builder.end_building().complete()
    builder.close()
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    graph.close()


def test_branches(device, stream, numbers, read, add):
    a, b = numbers(), numbers()
    stream.sync()
    builder = device.create_graph_builder().begin_building("thread_local")
    root, fork = builder.split(2)
    assert root is builder and fork.is_join_required and not builder.is_join_required
    launch(root, add, a, 1)
    launch(fork, add, b, 2)
    with pytest.raises(RuntimeError, match="fork"):
        fork.end_building()
    for wrong in [(), (builder,)]:
        with pytest.raises(ValueError, match="two"):
            GraphBuilder.join(*wrong)
    with pytest.raises(TypeError):
        GraphBuilder.join(builder, stream)
    with pytest.raises(ValueError, match="branches"):
        builder.split(1)
    with device.create_graph_builder() as other, pytest.raises(RuntimeError):
        GraphBuilder.join(builder, other)
    assert GraphBuilder.join(fork, builder) is builder
    assert fork.is_closed
    graph = builder.end_building().complete()
    graph.launch(stream)
    assert (read(a), read(b)) == ([1] * 64, [2] * 64)
    graph.close()
    builder.close()


def test_a_graph_in_a_graph(device, stream, numbers, read, add):
    buffer = numbers()
    stream.sync()
    child, parent = device.create_graph_builder().begin_building(), device.create_graph_builder().begin_building()
    launch(child, add, buffer, 10)
    with pytest.raises(RuntimeError):
        parent.embed(child)
    child.end_building()
    launch(parent, add, buffer, 1)
    parent.embed(child)
    child.close()
    graph = parent.end_building().complete()
    with pytest.raises(RuntimeError, match="embed"), device.create_graph_builder().begin_building() as third:
        graph.launch(third)
    graph.launch(stream)
    assert read(buffer) == [11] * 64
    dot = graph.to_dot()
    # Drivers before CUDA 12.3 do not tell a kernel's name.
    assert ("add" if driver_version() >= (12, 3) else '"kernel\\n1 x 64"') in dot and "subgraph" in dot
    assert graph._repr_svg_() == graph.to_svg() and "<svg" in graph.to_svg()


def test_update(device, stream, numbers, read, add):
    buffer = numbers()
    stream.sync()

    def capture(*amounts):
        builder = device.create_graph_builder().begin_building()
        for amount in amounts:
            launch(builder, add, buffer, amount)
        return builder.end_building()

    first = capture(1)
    graph = first.complete()
    graph.update(capture(5))
    graph.launch(stream)
    graph.update(capture(10).graph_definition)
    graph.launch(stream)
    assert read(buffer) == [15] * 64
    with pytest.raises(cuirass.CUDAError) as caught:
        graph.update(capture(1, 2))
    assert caught.value.status == 910
    assert any("CU_GRAPH_EXEC_UPDATE_ERROR" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError):
        graph.update(stream)
    graph.launch(stream)
    assert read(buffer) == [25] * 64


def test_a_definition_outlives_its_builder(device, tmp_path, numbers, add, stream):
    buffer = numbers()
    builder = device.create_graph_builder().begin_building()
    launch(builder, add, buffer, 1)
    launch(builder, add, buffer, 1)
    builder.end_building()
    definition = builder.graph_definition
    builder.close()
    del builder
    assert isinstance(definition, GraphDefinition) and definition.is_valid
    nodes, [(first, second)] = definition.nodes(), definition.edges()
    assert len(nodes) == 2 and {first, second} == nodes and first != second
    assert first.graph == definition and int(first.type) == 0 and first.is_valid and int(first.handle)
    path = tmp_path / "graph.dot"
    definition.debug_dot_print(path, GraphDebugPrintOptions(verbose=True))
    definition.debug_dot_print(str(path))
    assert "digraph" in path.read_text()
    assert "digraph" in definition.to_dot() and "<svg" in definition._repr_svg_()
    definition.instantiate().close()


SET = """
extern "C" __device__ void cudaGraphSetConditional(unsigned long long, unsigned);
extern "C" __global__ void set(unsigned long long c, unsigned value) { cudaGraphSetConditional(c, value); }
extern "C" __global__ void down(unsigned long long c, int* x) { cudaGraphSetConditional(c, --*x > 0); }
"""


def conditions_are_refused(builder):
    """Whether the driver has none (CUDA 12.3): then it says so, and the capture goes on and ends."""
    if driver_version() >= (12, 3):
        return False
    for arguments in ({}, {"default_value": 1}):
        with refused_before((12, 3), "cuGraphConditionalHandleCreate"):
            builder.create_condition(**arguments)
    assert builder.is_building
    builder.end_building().complete().close()
    builder.close()
    return True


@pytest.mark.parametrize("value", [0, 1])
def test_conditions(device, stream, numbers, read, add, value):
    set_ = cuirass.Program(SET, "c++").compile("cubin").get_kernel("set")
    buffer = numbers()
    stream.sync()
    builder = device.create_graph_builder().begin_building()
    if conditions_are_refused(builder):
        return

    def condition():
        """Each node needs one of its own."""
        condition = builder.create_condition()
        cuirass.launch(builder, cuirass.LaunchConfig(grid=1, block=1), set_, condition, value)
        return condition

    first = condition()
    then = builder.if_then(first)
    with pytest.raises(cuirass.CUDAError, match="INVALID_VALUE") as caught:
        builder.if_then(first)
    assert any("one conditional node" in note for note in caught.value.__notes__)
    for count in (-1, 0, 65537, -(1 << 63)):
        with pytest.raises(ValueError, match=f"from 1 to 65536 bodies, not {count}"):
            builder.switch(first, count)
    yes = no = None
    cases, expected = [], [[0], [1]]
    with refused_before((12, 8), "cuGraphAddNode"):
        yes, no = builder.if_else(condition())
    with refused_before((12, 8), "cuGraphAddNode"):
        cases, expected = builder.switch(condition(), 2), [[120], [211]]
    bodies = [(then, 1), (yes, 10), (no, 20), *zip(cases, (100, 200), strict=False)]
    bodies = [(body, amount) for body, amount in bodies if body is not None]
    for body, amount in bodies:
        assert body.graph_definition.nodes() == set()
        body.begin_building()
        launch(body, add, buffer, amount)
        with pytest.raises(RuntimeError, match="conditional"):
            body.callback(print)
        with pytest.raises(RuntimeError, match="end them first"):
            builder.end_building()
        body.end_building()
    graph = builder.end_building().complete()
    for body, _amount in bodies:
        body.close()
    builder.close()
    graph.launch(stream)
    assert read(buffer) == expected[value] * 64


def test_a_loop(device, stream, numbers, read):
    down = cuirass.Program(SET, "c++").compile("cubin").get_kernel("down")
    count = numbers(1)
    count.fill(b"\x05\x00\x00\x00", stream=stream)
    builder = device.create_graph_builder().begin_building()
    if conditions_are_refused(builder):
        return
    condition = builder.create_condition(default_value=1)
    body = builder.while_loop(condition).begin_building()
    cuirass.launch(body, cuirass.LaunchConfig(grid=1, block=1), down, condition, count)
    body.end_building()
    graph = builder.end_building().complete()
    graph.launch(stream)
    assert read(count) == [0]


@pytest.mark.thread_unsafe(reason="doctest takes over stdout")
def test_the_examples_of_the_documentation(device):
    if driver_version() < (12, 3):
        pytest.skip("conditional nodes need CUDA 12.3")
    result = doctest.testmod(cuirass.graph)
    assert result.attempted > 30 and not result.failed


def test_python_callbacks_run_each_time(device, stream, reports):
    # What tests before this one left, if they failed, is none of this one's.
    gc.collect()
    reports.clear()
    calls = []

    def note():
        calls.append(threading.get_ident())

    gone = weakref.ref(note)
    builder = device.create_graph_builder().begin_building("global")
    builder.callback(note)
    builder.callback(lambda: 1 // 0)
    with pytest.raises(ValueError, match="user_data"):
        builder.callback(note, user_data=b"x")
    with pytest.raises(TypeError, match="callable"):
        builder.callback(3)
    graph = builder.end_building().complete()
    builder.close()
    del note
    gc.collect()
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    assert len(calls) == 3 and threading.get_ident() not in calls
    assert len(reports) == 3 and all("ZeroDivisionError" in text for text in reports)
    assert gone()
    graph.close()
    assert not gone()


@pytest.mark.thread_unsafe(reason="it makes threads of its own")
def test_callbacks_do_not_deadlock_with_a_thread_that_waits(device, stream):
    ran = []
    builder = device.create_graph_builder().begin_building()
    for _ in range(20):
        builder.callback(lambda: ran.append(sum(range(1000))))
    graph = builder.end_building().complete()

    def work():
        mine = device.create_stream()
        for _ in range(10):
            graph.launch(mine)
            mine.sync()
            mine.record().sync()
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        graph.launch(stream)
        stream.sync()
    for thread in threads:
        thread.join()
    assert len(ran) == 20 * 40
    graph.close()


def test_c_callbacks(device, stream):
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    seen = []

    @kind
    def c_function(data):
        seen.append(ctypes.string_at(data, 3) if data else None)

    number = (ctypes.c_char * 4)(*b"num")
    builder = device.create_graph_builder().begin_building()
    builder.callback(c_function)
    builder.callback(c_function, user_data=bytearray(b"abc"))
    builder.callback(c_function, user_data=ctypes.addressof(number))
    wrong = [
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda data: 0),
        ctypes.CFUNCTYPE(None)(lambda: None),
        ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None),
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda a, b: None),
        ctypes.CDLL(None).free,
    ]
    for function in wrong:
        with pytest.raises(TypeError, match="c_void_p"):
            builder.callback(function)
    with pytest.raises(ValueError, match="null"):
        builder.callback(kind(0))
    graph = builder.end_building().complete()
    builder.close()
    del c_function
    gc.collect()
    graph.launch(stream)
    graph.launch(stream)
    stream.sync()
    assert seen == [None, b"abc", b"num"] * 2
    graph.close()


def test_events_order_streams_in_a_capture(device, stream, numbers, read, add):
    a, other = numbers(), device.create_stream()
    stream.sync()
    builder = stream.create_graph_builder().begin_building()
    launch(builder, add, a, 1)
    other.wait(builder.stream.record())
    launch(other, add, a, 1)
    with pytest.raises(RuntimeError, match="captured"):
        other.close()
    assert not other.is_closed
    builder.stream.wait(other)
    graph = builder.end_building().complete()
    builder.close()
    graph.launch(stream)
    assert read(a) == [2] * 64
    other.close()
    graph.close()
