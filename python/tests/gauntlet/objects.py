"""What operations need, and how to see that it still works."""

import functools
import gc
import warnings

import cuirass
from cuirass import EventOptions, LaunchConfig, ProgramOptions, launch
from cuirass.graph import Graph, GraphBuilder, GraphDefinition

SOURCE = """extern "C" __global__ void add(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += n; }
extern "C" __global__ void nothing() {}
"""
FAULT = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry fault() {
.reg .b64 %rd1;
.reg .b32 %r1;
mov.u64 %rd1, 16;
mov.u32 %r1, 1;
st.global.u32 [%rd1], %r1;
ret;
}
"""


def device():
    return cuirass.Device(0)


def stream():
    return device().create_stream()


def event():
    return device().create_event()


def pool():
    return device().memory_resource


def own_pool():
    return cuirass.DeviceMemoryResource(device(), cuirass.DeviceMemoryResourceOptions())


def buffer(stream):
    return pool().allocate(64, stream=stream)


def pinned():
    return cuirass.LegacyPinnedMemoryResource().allocate(64)


def context():
    """A context that is not the primary one."""
    return device().create_context()


@functools.cache
def ptx():
    """The source compiled, once for the process."""
    return cuirass.Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device().arch}")).compile("ptx").code


def code():
    """Object code that is not loaded yet."""
    return cuirass.ObjectCode.from_ptx(ptx())


def loaded_code():
    made = code()
    made.get_kernel("nothing")
    return made


def kernel():
    return code().get_kernel("add")


def config():
    return LaunchConfig(grid=1, block=8)


class Kept:
    """What a graph refers to, kept here too: closing the graph is then about the graph alone. It is not asked whether
    it works, since waiting for the device would end a capture."""

    def __init__(self, **things):
        vars(self).update(things)


def memory():
    """Memory for graphs to work on."""
    mine = stream()
    return Kept(buffer=buffer(mine), stream=mine)


def not_begun():
    return stream().create_graph_builder()


def builder(memory):
    """A capture in progress, with a node."""
    # Its stream is the memory's, which waits for the end of a capture that cannot be ended.
    made = memory.stream.create_graph_builder().begin_building("relaxed")
    memory.buffer.fill(1, stream=made)
    return made


def ended(memory):
    """A builder that has built a graph."""
    return builder(memory).end_building()


def definition(memory):
    made = ended(memory)
    found = made.graph_definition
    made.close()
    return found


def graph(memory):
    return definition(memory).instantiate()


def launched(memory):
    """A graph that has been launched, so that what it refers to waits for the stream."""
    made = graph(memory)
    made.launch(memory.stream)
    memory.stream.sync()
    return made


def run_captured(made):
    """Ends a capture and runs what it captured, after everything else that it was given has been let go."""
    builder = made["builder"]
    for name in [name for name in made if name not in ("memory", "builder")]:
        del made[name]
    if not builder.is_building:
        return
    collected()
    graph = builder.end_building().complete()
    stream = device().create_stream()
    graph.launch(stream)
    stream.sync()
    graph.close()
    stream.close()


def put_away(thing):
    """Ends what must not be left to the collector. What an operation has done to it makes no difference here, but for a
    kernel's fault, which nobody else tells."""
    if isinstance(thing, GraphBuilder):
        try:
            thing.close()
        except cuirass.CUDAStickyError as error:
            notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
            doing = "failed while closing a graph builder of the gauntlet"
            warnings.warn(f"{error.call}(0) {doing}: {error}{notes}", cuirass.CUDAWarning, stacklevel=1)
        except (cuirass.CUDAError, RuntimeError):
            return


def user_resource():
    """A resource that is written in Python."""

    class Resource(cuirass.MemoryResource):
        def allocate(self, size, *, stream):
            self.inner = pool().allocate(size, stream=stream)
            return cuirass.Buffer.from_handle(self.inner.handle, size, mr=self, stream=stream)

        def deallocate(self, ptr, size, *, stream):
            self.inner.close(stream)

    return Resource()


def lose_the_context():
    """Loses the primary context for good, and raises what the driver says of it."""
    stream = device().create_stream()
    launch(stream, LaunchConfig(grid=1, block=1), cuirass.ObjectCode.from_ptx(FAULT).get_kernel("fault"))
    stream.sync()


# -- whether it still works: a follow-up operation on each --------------------------------------------------------

FOLLOW_UPS = {}


def follow_up(kind):
    """Says how to see that an object of a class still works."""

    def remember(function):
        FOLLOW_UPS[kind] = function
        return function

    return remember


def works(thing):
    if isinstance(thing, (tuple, list)):
        for one in thing:
            works(one)
        return
    if getattr(thing, "is_closed", False) is True:
        return
    for kind in type(thing).__mro__:
        if kind in FOLLOW_UPS:
            FOLLOW_UPS[kind](thing)
            return


def check(holds, what):
    if not holds:
        raise AssertionError(what)


@follow_up(cuirass.Device)
def _(device):
    check(device.properties.warp_size == 32, "a device tells its warp size")


@follow_up(cuirass.Context)
def _(context):
    context.create_stream().close()


@follow_up(cuirass.Stream)
def _(stream):
    if stream in (cuirass.LEGACY_DEFAULT_STREAM, cuirass.PER_THREAD_DEFAULT_STREAM):
        # It is the current context's, of which there may be none.
        return
    event = stream.record(options=EventOptions())
    stream.wait(event)
    stream.sync()
    event.close()


@follow_up(cuirass.Event)
def _(event):
    event.sync()
    check(event.is_done, "an event that was waited for is done")


@follow_up(cuirass.DeviceMemoryResource)
def _(resource):
    stream = device().create_stream()
    memory = resource.allocate(64, stream=stream)
    memory.fill(1, stream=stream)
    memory.close()
    stream.sync()
    stream.close()


@follow_up(cuirass.Buffer)
def _(buffer):
    if not buffer.size:
        return
    device().sync()
    stream = device().create_stream()
    staging = cuirass.LegacyPinnedMemoryResource().allocate(buffer.size)
    with memoryview(staging) as view:
        pattern = (bytes(range(256)) * (buffer.size // 256 + 1))[: buffer.size]
        view[:] = pattern
        buffer.copy_from(staging, stream=stream)
        stream.sync()
        view[:] = bytes(buffer.size)
        buffer.copy_to(staging, stream=stream)
        stream.sync()
        check(bytes(view) == pattern, "a buffer holds what was written to it")
    staging.close()
    stream.close()


@follow_up(cuirass.Program)
def _(program):
    check(program.compile("ptx").code, "a program compiles")


@follow_up(cuirass.ObjectCode)
def _(code):
    code.get_kernel("nothing")


@follow_up(cuirass.Kernel)
def _(kernel):
    stream = device().create_stream()
    memory = pool().allocate(128, stream=stream)
    memory.fill(0, stream=stream)
    launch(stream, LaunchConfig(grid=1, block=32), kernel, memory, 32)
    staging = cuirass.LegacyPinnedMemoryResource().allocate(128)
    memory.copy_to(staging, stream=stream)
    stream.sync()
    with memoryview(staging) as view:
        check(list(view.cast("i")) == [32] * 32, "a kernel writes what it should")
    for one in (memory, staging, stream):
        one.close()


@follow_up(GraphBuilder)
def _(builder):
    builder.is_building  # noqa: B018


@follow_up(GraphDefinition)
def _(definition):
    definition.nodes()


@follow_up(Graph)
def _(graph):
    stream = device().create_stream()
    graph.launch(stream)
    stream.sync()
    stream.close()


def collected():
    gc.collect()
