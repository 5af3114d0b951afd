"""A launch holds the buffers that it is given: none is given back before it has been made, whoever closes one."""

import threading

import pytest

from cuirass import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

from .conftest import is_sim

np = pytest.importorskip("numpy")

ONE = LaunchConfig(grid=1, block=1)
SOURCE = """
extern "C" __global__ void put(int* x, long long handle, int value) { x[0] = value; }
extern "C" __global__ void only_one(int* x) { x[0] = 1; }
"""


@pytest.fixture(scope="module")
def kernels():
    device = Device(0)
    device.set_current()
    code = Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin" if not is_sim() else "ptx")
    return code.get_kernel("put"), code.get_kernel("only_one")


@pytest.fixture(params=["a pool's", "page-locked", "a part of another"])
def memory(request, device, stream):
    """Memory, and what else has to be closed for it to be given back."""
    if request.param == "a pool's":
        return device.memory_resource.allocate(64, stream=stream), []
    whole = LegacyPinnedMemoryResource().allocate(64)
    if request.param == "page-locked":
        return whole, []
    return type(whole).from_handle(int(whole.handle), 64, owner=whole), [whole]


class Closes:
    """An argument whose handle closes buffers when it is asked for."""

    def __init__(self, *buffers):
        self.buffers = buffers

    @property
    def handle(self):
        for buffer in self.buffers:
            buffer.close()
        return 0


def test_an_argument_that_closes_one_before_it(kernels, census, memory, stream, reports):
    buffer, others = memory
    stream.sync()
    launch(stream, ONE, kernels[0], buffer, Closes(buffer, *others), 7)
    assert buffer.is_closed
    stream.sync()
    assert reports == []


def test_an_argument_that_closes_one_behind_it(kernels, device, stream):
    code = Program(
        'extern "C" __global__ void put(long long handle, int* x) { x[0] = 1; }',
        "c++",
        ProgramOptions(arch=f"sm_{device.arch}"),
    ).compile("ptx")
    buffer = device.memory_resource.allocate(64, stream=stream)
    with pytest.raises(RuntimeError, match="closed"):
        launch(stream, ONE, code.get_kernel("put"), Closes(buffer), buffer)
    stream.sync()


def test_a_capture_has_no_node_of_a_launch_that_was_refused(kernels, memory, device):
    """A graph cannot keep the memory of a buffer that was closed: nothing is captured."""
    buffer, others = memory
    builder = device.create_graph_builder().begin_building()
    with pytest.raises(RuntimeError, match="closed"):
        launch(builder, ONE, kernels[0], buffer, Closes(buffer, *others), 7)
    assert len(builder.end_building().graph_definition.nodes()) == 0
    builder.close()


def test_one_that_is_closed_by_another_thread(kernels, device, stream):
    """It is refused, or the launch has its memory: the kernel never runs on what was given back."""
    resource, wrong = LegacyPinnedMemoryResource(), []
    for _ in range(300):
        buffer, ready = resource.allocate(64), threading.Barrier(2)

        def close(buffer=buffer, ready=ready):
            ready.wait()
            buffer.close(stream)

        closer = threading.Thread(target=close)
        closer.start()
        ready.wait()
        try:
            launch(stream, ONE, kernels[1], buffer)
        except RuntimeError as error:
            if "closed" not in str(error):
                wrong.append(error)
        closer.join()
    stream.sync()
    assert wrong == []
