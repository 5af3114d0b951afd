"""A process that touched CUDA ends with code 0 and a quiet stderr, whatever is alive."""

import pytest

from .conftest import KERNELS, child, driver_version

EVERYTHING = """
import sys
import cuirass
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
event = stream.record(options=cuirass.EventOptions(timing_enabled=True))
context = device.create_context()
other = context.create_stream()
buffer = device.allocate(1024, stream=stream)
default = device.allocate(64, stream=device.default_stream)
pinned = cuirass.LegacyPinnedMemoryResource().allocate(64)
view = memoryview(pinned)
pool = cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions())
pooled = pool.allocate(64, stream=stream)
program = cuirass.Program(sys.argv[1], "c++")
code = program.compile("cubin")
kernel = code.get_kernel("add")
cuirass.launch(stream, cuirass.LaunchConfig(grid=1, block=32), kernel, buffer, 32, 1)
class Foreign:
    def __cuda_stream__(self):
        return stream.__cuda_stream__()
foreign = device.create_stream(Foreign())
class Mine(cuirass.MemoryResource):
    def deallocate(self, ptr, size, *, stream):
        raise LookupError("too late")
mine = Mine()
users = cuirass.Buffer.from_handle(0x1000, 16, mr=mine, stream=stream)
"""

CASES = {
    "globals": "",
    "synchronized": "stream.sync()",
    "cycles": "class C: pass\nc = C(); c.c = c; c.all = dict(globals())\ndel c",
    "cyclic owner": "class C: pass\nc = C(); c.b = cuirass.Buffer.from_handle(1, 1, owner=c); del c",
    "exit": "sys.exit(0)",
    "atexit": "import atexit\natexit.register(lambda: (stream.sync(), buffer.close(), event.handle))",
    "daemon threads": (
        "import threading, time\n"
        "def work():\n"
        "    mine = device.create_stream()\n"
        "    while True:\n"
        "        mine.record(); mine.sync()\n"
        "        device.allocate(64, stream=mine).close()\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.2)"
    ),
    "daemon threads that compile": (
        "import threading, time\n"
        "def work():\n"
        "    while True:\n"
        "        cuirass.Program(sys.argv[1], 'c++', cuirass.ProgramOptions(arch='sm_90')).compile('ptx')\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.5)"
    ),
    "finalizers": (
        "class F:\n"
        "    def __del__(self):\n"
        "        for thing in (stream, event, kernel, context, pool):\n"
        "            if not int(thing.handle): raise SystemExit('no handle')\n"
        "        buffer.handle\n"
        "import builtins\n"
        "builtins.f = F()"
    ),
    "threads with objects": (
        "import threading\n"
        "local = threading.local()\n"
        "def work():\n"
        "    local.device = cuirass.Device(0); local.stream = local.device.create_stream()\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()"
    ),
    "an owner that runs code": (
        "class O:\n    def __del__(self): device.set_current()\nowned = cuirass.Buffer.from_handle(1, 1, owner=O())"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_quiet_end(case):
    result = child(EVERYTHING + CASES[case], KERNELS)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_a_quiet_end_after_a_fault():
    source = EVERYTHING.replace("kernel, buffer, 32, 1", "code.get_kernel('fault'), buffer")
    result = child(source + "import warnings; warnings.simplefilter('ignore')", KERNELS)
    assert result.returncode == 0
    # Releases that meet the fault say so, and nothing else does.
    assert all("CUDAWarning: " in line for line in result.stderr.splitlines()), result.stderr


def test_nothing_but_an_import():
    result = child("import cuirass; stream = cuirass.LEGACY_DEFAULT_STREAM")
    assert (result.returncode, result.stderr) == (0, "")


def test_handles_at_exit_import_nothing():
    result = child(
        """
import sys
sys.modules["cuda.bindings"] = None
import cuirass
stream = cuirass.Device(0).create_stream()
class F:
    def __del__(self):
        print(type(stream.handle).__name__, stream.handle != 0)
import builtins
builtins.f = F()
builtins.stream = stream
"""
    )
    assert result.stdout == "int True\n", result.stderr
    assert (result.returncode, result.stderr) == (0, "")


def test_a_forked_child_ends_quietly():
    """Releases of what is the parent's do nothing and report nothing."""
    source = (
        EVERYTHING.replace('"too late"', '"too early"')
        + """
import os
import warnings
stream.sync()
# From Python 3.12 on, a fork of a process with threads is warned of.
warnings.simplefilter("ignore", DeprecationWarning)
if os.fork() == 0:
    del event, other, context, pooled, pool, kernel, code
    default.close(stream); stream.close(); buffer.close()
    view.release(); pinned.close()
    try:
        device.create_stream()
    except cuirass.CUDAError as error:
        assert "spawn" in str(error)
    else:
        raise SystemExit("no error")
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
buffer.fill(0, stream=stream)
stream.sync()
"""
    )
    result = child(source, KERNELS)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


INHERITED = """
import gc, os, sys, warnings
import cuirass
how = sys.argv[1]
texts = []
warnings.simplefilter("always")
warnings.simplefilter("ignore", DeprecationWarning)
warnings.showwarning = lambda message, *rest: texts.append(str(message))
device = cuirass.Device(0)
device.set_current()
stream, context = device.create_stream(), device.create_context()
buffer = device.allocate(64, stream=stream)

def begun():
    return device.create_graph_builder().begin_building()

done = begun()
buffer.fill(1, stream=done)
done.callback(lambda: None)
graph = done.end_building().complete()
graph.launch(stream)
stream.sync()
things = [device.create_graph_builder(), done, graph, begun(), begun(), context, context.create_stream(), stream]
things[4:4] = things[4].split(3)[1:]
spoilt = begun()
try:
    spoilt.stream.sync()
except cuirass.CUDAError:
    pass
things.append(spoilt)
if sys.argv[2] == "bodies":
    outer = begun()
    bodies = [outer.if_then(outer.create_condition(1)) for _ in range(2)]
    things += [bodies[0], bodies[1].begin_building(), outer]
things += [cuirass.Program("", "c++"), device.create_event(), cuirass.DeviceMemoryResource(device, {}), buffer]
child = os.fork()
if child == 0:
    if how == "end":
        for builder in (things[3], spoilt, things[-5]):
            try:
                builder.end_building()
                sys.exit("it is the parent's")
            except cuirass.CUDAError as error:
                assert "spawn" in str(error) and not hasattr(error, "__notes__"), error
    for thing in things if how != "drop" else ():
        if how == "with" and hasattr(thing, "__exit__"):
            with thing:
                pass
        else:
            thing.close()
    thing = builder = None
    names = "stream context buffer done graph spoilt outer bodies".split()
    things.clear()
    for name in names:
        globals().pop(name, None)
    gc.collect()
    assert cuirass.drain() == 0 and not texts, texts
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
# What the child did is not the parent's business.
things[3].end_building()
print("well", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("how", ["close", "with", "drop", "end"])
def test_a_forked_child_gives_up_all_that_it_inherited(how):
    """Captures that are going on among it: they are the parent's, as everything is."""
    bodies = "bodies" if driver_version() >= (12, 3) else "none"
    result = child(INHERITED, how, bodies)
    assert (result.returncode, result.stdout, result.stderr) == (0, "well\n", "")


FORKS = """
import os, sys, threading, time, warnings
import cuirass
from cuirass import testing
warnings.simplefilter("ignore", DeprecationWarning)
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()

def forked(body=lambda: None):
    # How long the child took to end, and how it did.
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        body()
        sys.exit(0)
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return time.monotonic() - began, os.waitstatus_to_exitcode(status)
        if time.monotonic() - began > 20:
            os.kill(child, 9)
            return time.monotonic() - began, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(0.001)

stop = False

def forked_beside(works, here):
    # How children ended that were forked while threads were at work, until they find `stop`.
    global stop
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    ends = [forked(here) for _ in range(60)]
    stop = True
    for thread in threads:
        thread.join()
    return {code for _, code in ends}
"""


def test_a_forked_child_waits_for_no_lock_of_another_thread():
    """Threads of the parent hold the locks that releases, captures, graphs and recordings share: the child has none of
    these threads, and would wait for ever. What waited to be released is the parent's, and the child does not tell of
    it."""
    result = child(
        FORKS
        + """
captured = device.create_stream()
waiting = [device.allocate(64, stream=captured) for _ in range(50)]
held = device.allocate(64, stream=stream)
event = stream.record()
graph = captured.create_graph_builder().begin_building()
waiting.clear()
assert cuirass.drain() == 50

def drains():
    while not stop:
        cuirass.drain()

def captures():
    mine = device.create_stream()
    while not stop:
        with testing.record():
            builder = mine.create_graph_builder().begin_building()
            held.fill(1, stream=builder)
            builder.end_building().close()

def here():
    global held, event
    assert cuirass.drain() == 0
    with testing.record(), testing.fail("cuStreamCreateWithPriority"):
        for refused in (graph.end_building, lambda: held.fill(1, stream=graph), device.create_stream):
            try:
                refused()
            except cuirass.CUDAError as error:
                assert "spawn" in str(error), error
            else:
                raise SystemExit("no error")
    captured.close()
    graph.close()
    del held, event

codes = forked_beside((drains, drains, drains, captures), here)
graph.end_building().close()
assert cuirass.drain() == 0
print(codes)
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "{0}\n", "")


def test_a_forked_child_waits_for_no_lock_of_a_graph():
    """Of a graph that other threads of the parent use all the time: whatever the child does with it is refused.

    It has no callback in Python: while one begins on a thread of the driver CPython 3.11 holds a lock of its own that a
    child waits for.
    """
    result = child(
        FORKS
        + """
held = device.allocate(64, stream=stream)

def built():
    builder = device.create_graph_builder().begin_building()
    held.fill(1, stream=builder)
    return builder.end_building()

builder, graph = built(), built().complete()
definition = builder.graph_definition

def uses():
    device.set_current()
    while not stop:
        graph.update(builder)
        builder.graph_definition.nodes()
        graph.launch(device.create_stream())

def here():
    for use in (
        lambda: graph.update(builder), lambda: graph.update(definition), lambda: builder.graph_definition, graph.to_dot,
        graph.to_svg, definition.nodes, definition.edges, definition.to_dot, definition.instantiate, builder.complete,
        lambda: graph.launch(stream), lambda: graph.launch(cuirass.PER_THREAD_DEFAULT_STREAM),
        lambda: graph.upload(stream), builder.begin_building, builder.end_building, lambda: builder.is_building,
        lambda: builder.split(2), builder.create_condition, lambda: builder.callback(int),
        lambda: builder.debug_dot_print("/dev/null"),
    ):
        try:
            use()
        except cuirass.CUDAError as error:
            assert "spawn" in str(error), error
        else:
            raise SystemExit("no error")
    graph.close()
    builder.close()

codes = forked_beside((uses, uses, uses), here)
graph.close()
device.sync()
assert cuirass.drain() == 0
print(codes)
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "{0}\n", "")


def test_a_forked_child_waits_for_nothing_that_is_under_way_in_its_parent():
    """Its exit hook waits for callbacks that run and for compilations: those of its own."""
    result = child(
        FORKS
        + """
begun, go_on = threading.Event(), threading.Event()
builder = device.create_graph_builder().begin_building()
builder.callback(lambda: (begun.set(), go_on.wait()))
graph = builder.end_building().complete()
graph.launch(stream)
begun.wait()
callback = forked()
go_on.set()
stream.sync()

source = "".join(f"template __global__ void f<{i}>(float*);" for i in range(150))
source = "template <int I> __global__ void f(float* x) { x[I] = sinf(x[I]) * I; }" + source
compiling = threading.Thread(target=lambda: cuirass.Program(source, "c++").compile("ptx"))
compiling.start()
time.sleep(0.1)
compilation = forked()
assert compiling.is_alive(), "the compilation is too short for this test"
compiling.join()
print([took < 1.5 for took, _ in (callback, compilation)], [code for _, code in (callback, compilation)])
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "[True, True] [0, 0]\n", "")


def test_an_endless_kernel_does_not_hold_the_end():
    """What could wait for the device is left to the process's end."""
    result = child(
        """
import cuirass, sys
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
source = 'extern "C" __global__ void endless(volatile int* p) { while (*p == 0) {} }'
code = cuirass.Program(source, "c++").compile("cubin")
buffer = device.allocate(64, stream=stream)
buffer.fill(0, stream=stream)
pinned = cuirass.LegacyPinnedMemoryResource().allocate(64)
context = device.create_context()
mine = context.create_stream()
builder = device.create_graph_builder().begin_building()
buffer.fill(0, stream=builder)
graph = builder.end_building().complete()
graph.launch(stream)
cuirass.launch(stream, cuirass.LaunchConfig(grid=1, block=1), code.get_kernel("endless"), buffer)
graph.launch(stream)
""",
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_memory_whose_stream_is_busy_at_the_end_is_told():
    """Imported memory is freed, and its pool is kept; virtual memory is mapped still."""
    result = child(
        """
import cuirass
from cuirass import Buffer, DeviceMemoryResource, DeviceMemoryResourceOptions, VirtualMemoryResource
device = cuirass.Device(0)
device.set_current()
stream, other = device.create_stream(), device.create_stream()
shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
exported = shared.allocate(64, stream=other)
other.sync()
mapped = DeviceMemoryResource.from_allocation_handle(device, shared.allocation_handle)
imported = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream)
virtual = VirtualMemoryResource(device).allocate(64, stream=stream)
source = 'extern "C" __global__ void endless(volatile int* p) { while (*p == 0) {} }'
code = cuirass.Program(source, "c++").compile("cubin")
flag = device.allocate(64, stream=stream)
flag.fill(0, stream=stream)
cuirass.launch(stream, cuirass.LaunchConfig(grid=1, block=1), code.get_kernel("endless"), flag)
imported.close()
mapped.close()
virtual.close()
""",
        timeout=60,
    )
    assert result.returncode == 0
    (line,) = [line for line in result.stderr.splitlines() if "CUDAWarning" in line]
    assert "2 releases still wait for a capture or for a stream's work to end" in line


def test_a_capture_that_is_open_at_the_end_is_told():
    result = child(
        """
import cuirass
from cuda.bindings import driver
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
buffer = device.allocate(64, stream=stream)
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
assert driver.cuStreamBeginCapture(driver.CUstream(int(stream.handle)), mode) == (0,)
del buffer
"""
    )
    assert result.returncode == 0
    (line,) = [line for line in result.stderr.splitlines() if "CUDAWarning" in line]
    assert "a release still waits for a capture or for a stream's work to end: what it was to release is leaked" in line
    assert "inconsistency" not in result.stderr


LATE = """
import builtins, sys, threading, time, warnings
import cuirass
from cuirass import testing
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()

class Last:
    "Keeps the interpreter's end going for a while."
    def __del__(self, sleep=time.sleep):
        sleep(0.5)

def slow(*args, clock=time.monotonic, sleep=time.sleep, **keywords):
    end = clock() + 30
    while clock() < end:
        sleep(0.01)

class Slow(cuirass.MemoryResource):
    is_device_accessible, is_host_accessible, device_id = True, False, 0
    allocate = deallocate = write = __dlpack__ = __cuda_stream__ = match = slow
    def __dlpack_device__(self):
        return 1, 0

class Ends:
    __del__ = slow
    def __call__(self):
        pass

def lose(*filters):
    warnings.filters[:0] = filters
    warnings._filters_mutated()
    with testing.fail("cuEventDestroy_v2", done=True):
        device.create_event()

def shown():
    warnings.showwarning = slow
    lose(("always", None, Warning, None, 0))

def escalated():
    sys.unraisablehook = slow
    lose(("error", None, Warning, None, 0))

def capture(function):
    builder = device.create_graph_builder().begin_building()
    builder.callback(function)
    return builder.end_building()

def compile():
    cuirass.Program('#warning "x"', "c++", cuirass.ProgramOptions(arch="sm_90")).compile("ptx", logs=Slow())

builtins.last = Last()
kind = sys.argv[1]
if kind == "callback":
    graph = capture(slow).complete()
    graph.launch(stream)
else:
    buffers = [cuirass.Buffer.from_handle(4096, 8, mr=Slow(), stream=stream)]
    owned = [cuirass.Buffer.from_handle(4096, 8, owner=Ends())] if kind == "owner" else []
    graph = capture(Ends()) if kind == "graph" else None
    if kind == "allocate":
        device.memory_resource = Slow()
    work = {
        "showwarning": shown,
        "filter": lambda: lose(("always", Slow(), Warning, None, 0)),
        "unraisablehook": escalated,
        "close": buffers[0].close,
        "drop": buffers.clear,
        "allocate": lambda: device.allocate(64, stream=stream),
        "stream": lambda: stream.wait(Slow()),
        "dlpack": lambda: cuirass.utils.StridedMemoryView.from_dlpack(Slow(), stream_ptr=-1),
        "log": compile,
        "owner": owned.clear,
        "graph": lambda: graph.close(),
    }[kind]
    import cuirass.utils
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
print("well")
"""


@pytest.mark.parametrize(
    "kind",
    [
        *("callback", "showwarning", "filter", "unraisablehook", "log"),
        *("allocate", "close", "drop", "owner", "graph", "stream", "dlpack"),
    ],
)
def test_a_thread_in_a_users_code_does_not_end_the_process(kind):
    """The interpreter ends threads that come back to it late, by unwinding their stacks: not through ours."""
    result = child(LATE, kind, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "well\n", "")
