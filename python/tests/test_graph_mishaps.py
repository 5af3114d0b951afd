"""Captures that go wrong: each ends in one exception or one report, and leaves nothing behind."""

import contextlib
import gc
import sys
import threading
import time
import weakref

import numpy
import pytest

import cuirass
from cuirass import testing, utils

from .conftest import child, driver_version, is_sim

MODES = ["global", "thread_local", "relaxed"]

# What spoils a capture, as code; the last ones not in relaxed mode.
ILLEGAL = {
    "context": "device.sync()",
    "stream": "stream.sync()",
    "wait from outside": "stream.wait(outside)",
    "query": "stream.record(inside).is_done",
    "event": "stream.record(inside).sync()",
    "merge": "stream.wait(rival.stream.record())",
    "legacy": "buffer.fill(1, stream=cuirass.LEGACY_DEFAULT_STREAM)",
    "other stream": "other.sync()",
    "allocation": "device.allocate(64, stream=other)",
    "pool": "cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions())",
}
ORDERS = ["end close", "close close", "collect", "end collect", "end end close", "end begin end", "with"]

MISHAP = """
import gc, sys, warnings
import cuirass
mode, illegal, name = sys.argv[1:4]
texts = []
warnings.simplefilter("always", cuirass.CUDAWarning)
warnings.showwarning = lambda message, *rest: texts.append(str(message))
device = cuirass.Device(0)
device.set_current()
for order in sys.argv[4:]:
    stream = device.create_stream(options=cuirass.StreamOptions(nonblocking=name != "legacy"))
    other, outside, inside = device.create_stream(), device.create_event(), device.create_event()
    other.record(outside)
    buffer = device.allocate(256, stream=stream)
    rival = device.create_graph_builder()
    device.sync()
    gc.collect()
    before = cuirass.sim.census() if cuirass.sim.is_active() else None
    builder = stream.create_graph_builder().begin_building(mode)
    if name == "merge":
        rival.begin_building("relaxed")
    buffer.fill(1, stream=builder)
    raised = []
    def do(step):
        global builder
        try:
            if step == "with":
                with builder:
                    raise LookupError("mine")
            elif step == "collect":
                builder = None
                gc.collect()
            else:
                getattr(builder, {"end": "end_building", "begin": "begin_building"}.get(step, step))()
        except LookupError as error:
            assert any("STREAM_CAPTURE_INVALIDATED" in note for note in error.__notes__), error.__notes__
            raised.append(error)
        except cuirass.CUDAError as error:
            assert error.status == 901 and error.call == "cuStreamEndCapture", error
            raised.append(error)
        except RuntimeError as error:
            pass
    try:
        exec(illegal)
        sys.exit(f"{illegal} worked")
    except cuirass.CUDAError as error:
        error = None
    if name == "merge":
        try:
            rival.end_building()
            sys.exit("the rival's capture is spoilt too")
        except cuirass.CUDAError:
            pass
    try:
        builder.is_building
        sys.exit("it is spoilt")
    except RuntimeError:
        pass
    for step in order.split():
        do(step)
    if "collect" == order:
        assert not raised and len(texts) == 1 and "INVALIDATED" in texts.pop(), (order, raised, texts)
    else:
        assert len(raised) == 1 and not texts, (order, raised, texts)
    builder = None
    raised.clear()
    buffer.fill(2, stream=stream)
    stream.sync()
    gc.collect()
    if before is not None:
        assert cuirass.sim.census() == before, (order, cuirass.sim.census(), before)
    again = stream.create_graph_builder().begin_building(mode)
    buffer.fill(3, stream=again)
    again.end_building().complete().launch(stream)
    stream.sync()
    again.close()
print("well")
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ILLEGAL)
def test_an_invalidated_capture_ends_in_one_error(mode, name):
    if mode == "relaxed" and name in ("other stream", "allocation", "pool"):
        pytest.skip("relaxed mode allows it")
    result = child(MISHAP, mode, ILLEGAL[name], name, *ORDERS)
    assert (result.returncode, result.stdout, result.stderr) == (0, "well\n", "")


LOOK_UP = """
import gc, sys, threading
import cuirass
mode, place, what = sys.argv[1:4]
device = cuirass.Device(0)
device.set_current()
stream, other = device.create_stream(), device.create_stream()
pool = cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions())
things = [pool.allocate(64, stream=stream), pool.allocate(64, stream=other), device.create_event(), pool, other]
builder = stream.create_graph_builder().begin_building(mode)
del pool, other
def work():
    if what == "property":
        device.memory_resource
    else:
        cuirass.DeviceMemoryResource(device)
    things.clear()
    gc.collect()
    cuirass.drain()
if place == "same":
    work()
else:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
assert builder.is_building
builder.end_building().complete().close()
builder.close()
stream.sync()
print("well")
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["same", "other"])
@pytest.mark.parametrize("what", ["property", "class"])
def test_look_ups_and_releases_leave_captures_alone(mode, place, what):
    result = child(LOOK_UP, mode, place, what)
    assert (result.returncode, result.stdout, result.stderr) == (0, "well\n", "")


@pytest.mark.parametrize("mode", MODES)
def test_explicit_actions_get_a_note_that_names_the_mode(device, stream, mode):
    with stream.create_graph_builder() as builder:
        builder.begin_building(mode)
        with pytest.raises(cuirass.CUDAError) as caught:
            builder.stream.sync()
        assert any("forbids" in note and mode in note for note in caught.value.__notes__)
        with pytest.raises(cuirass.CUDAError, match="INVALIDATED"):
            builder.end_building()


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_another_thread_does_not_end_it(device, mode):
    builder = device.create_graph_builder().begin_building(mode)
    errors = []

    def work():
        try:
            builder.end_building()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "thread that began it" in str(errors[0])
    assert builder.is_building
    builder.end_building()
    builder.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["fork origin", "origin fork", "cycle"])
def test_builders_are_collected_in_any_order(device, mode, order, reports, census):
    builder = device.create_graph_builder().begin_building(mode)
    fork = builder.split(2)[1]
    if order == "fork origin":
        del fork
        gc.collect()
        assert builder.is_building and not reports
        del builder
    elif order == "origin fork":
        del builder
        gc.collect()
        del fork
    else:
        cycle = [builder, fork]
        cycle.append(cycle)
        del builder, fork, cycle
    gc.collect()
    assert len(reports) == 1 and "dropped while it was building" in reports[0]


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_in_the_block_is_not_hidden(device, stream, mode, census):
    with pytest.raises(LookupError) as caught, stream.create_graph_builder() as builder:
        builder.begin_building(mode)
        raise LookupError("mine")
    assert not hasattr(caught.value, "__notes__"), "a good capture ends without an error"
    stream.sync()
    del builder, caught
    gc.collect()


@pytest.mark.parametrize("mode", MODES)
def test_the_stream_is_not_closed_while_it_is_captured(device, mode):
    stream = device.create_stream()
    builder = stream.create_graph_builder().begin_building(mode)
    with pytest.raises(RuntimeError, match="captured"):
        stream.close()
    assert not stream.is_closed and builder.is_building
    builder.end_building()
    stream.close()
    builder.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("behind", ["the captured stream", "another", "the legacy default stream"])
@pytest.mark.parametrize("kind", ["page-locked", "virtual", "an owner's", "in use", "an owner's, in use"])
def test_a_close_behind_a_stream_disturbs_no_capture(device, stream, mode, behind, kind, reports, census):
    """Where no stream orders the release, a close waits for the one that it is given; not for one that is captured."""
    resource = cuirass.VirtualMemoryResource(device) if kind == "virtual" else cuirass.LegacyPinnedMemoryResource()
    buffer = inner = resource.allocate(64)
    if "owner" in kind:
        buffer = cuirass.Buffer.from_handle(inner.handle, 64, owner=inner)
    shown = buffer.__dlpack__(stream=-1) if "in use" in kind else None
    is_there = weakref.ref(inner)
    del inner
    other = device.create_stream()
    builder = stream.create_graph_builder().begin_building(mode)
    with testing.record() as calls:
        buffer.close({"the captured stream": stream, "another": other}.get(behind, cuirass.LEGACY_DEFAULT_STREAM))
    waited = [call.arguments for call in calls.calls if call.name == "cuStreamSynchronize"]
    assert buffer.is_closed and builder.is_building
    assert len(waited) == (behind != "the captured stream")
    del shown, buffer
    gc.collect()
    kept = cuirass.drain()
    assert kept == (behind == "the captured stream")
    if "owner" in kind:
        assert (is_there() is not None) == kept
    builder.end_building().close()
    stream.sync()
    assert cuirass.drain() == 0 and is_there() is None
    other.close()
    assert reports == []


def test_a_callback_that_comes_late_is_skipped():
    result = child(
        """
import cuirass, time
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
builder = device.create_graph_builder().begin_building()
for _ in range(100):
    builder.callback(lambda: time.sleep(0.01))
graph = builder.end_building().complete()
graph.launch(stream)
graph.launch(stream)
time.sleep(0.05)
"""
    )
    assert (result.returncode, result.stdout) == (0, "")
    told = result.stderr.splitlines()
    assert len(told) <= 1 and all("after the interpreter had begun to end, and w" in line for line in told), told


def test_callbacks_that_come_late_are_counted():
    result = child(
        """
import cuirass, time
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
builder = device.create_graph_builder().begin_building()
for _ in range(10):
    builder.callback(lambda: time.sleep(0.1))
graph = builder.end_building().complete()
graph.launch(stream)
time.sleep(0.02)
class Last:
    def __del__(self, sync=stream.sync):
        sync()
import builtins
builtins.last = Last()
"""
    )
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.endswith("host callbacks of graphs came after the interpreter had begun to end, and were skipped")
    assert 0 < int(line.split()[1]) <= 10, line


@pytest.mark.parametrize("kind", ["globals", "cycle", "invalidated", "daemon"])
def test_a_process_ends_quietly_in_the_middle_of_a_capture(kind):
    result = child(
        """
import sys, threading, time
import cuirass
kind = sys.argv[1]
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
buffer = device.allocate(64, stream=stream)
done = stream.create_graph_builder().begin_building()
done.callback(lambda: None)
buffer.fill(1, stream=done)
graph = done.end_building().complete()
graph.launch(stream)
builder = device.create_graph_builder().begin_building("global")
fork = builder.split(2)[1]
builder.callback(lambda: None)
if kind == "cycle":
    cycle = [builder, graph]
    cycle.append(cycle)
    del builder, graph, cycle
elif kind == "invalidated":
    try:
        stream.sync()
    except cuirass.CUDAError:
        pass
elif kind == "daemon":
    def work():
        while True:
            graph.launch(stream)
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)
""",
        kind,
    )
    assert (result.returncode, result.stdout) == (0, "")
    # Callbacks that the device still had to run are counted, and told in one line.
    told = result.stderr.splitlines()
    assert len(told) <= 1 and all("after the interpreter had begun to end, and w" in line for line in told), told


@pytest.mark.parametrize("invalidated", [False, True])
def test_a_stream_is_not_closed_while_others_capture_it(device, invalidated):
    driver = pytest.importorskip("cuda.bindings.driver")
    device.set_current()
    stream = device.create_stream()
    raw = driver.CUstream(int(stream.handle))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert driver.cuStreamBeginCapture(raw, mode) == (0,)
    if invalidated:
        with pytest.raises(cuirass.CUDAError):
            stream.sync()
    with pytest.raises(RuntimeError, match="the stream is being captured"):
        stream.close()
    assert not stream.is_closed, "it is as it was"
    status, graph = driver.cuStreamEndCapture(raw)
    assert int(status) == (901 if invalidated else 0)
    if not invalidated:
        assert driver.cuGraphDestroy(graph) == (0,)
    stream.sync()
    stream.close()
    assert stream.is_closed


class Gate:
    """Keeps a stream busy until it is opened."""

    def __init__(self, device):
        self.event = threading.Event()
        self.stream = device.create_stream()
        builder = device.create_graph_builder().begin_building()
        builder.callback(self.event.wait)
        self.graph = builder.end_building().complete()
        builder.close()
        self.graph.launch(self.stream)

    def open(self):
        self.event.set()
        self.stream.sync()
        self.graph.close()


def counting(device, counts):
    """A builder that has captured a callback, which nobody else keeps, and a weak reference to that."""

    def count():
        counts.append(1)

    builder = device.create_graph_builder().begin_building()
    builder.callback(count)
    return builder.end_building(), weakref.ref(count)


@pytest.mark.parametrize("default", [False, True], ids=["a stream", "a thread's default stream"])
def test_a_launch_that_was_made_and_returned_an_error_is_waited_for(device, default):
    """The error may be that of older work: what the launch needs is not let go before it is done."""
    counts = []
    gate = Gate(device)
    stream = gate.stream
    if default:
        stream = cuirass.PER_THREAD_DEFAULT_STREAM
        stream.wait(gate.stream)
    builder, function = counting(device, counts)
    graph = builder.complete()
    builder.close()
    with cuirass.testing.fail("cuGraphLaunch", done=True), pytest.raises(cuirass.CUDAError, match="cuGraphLaunch"):
        graph.launch(stream)
    graph.close()
    del graph, builder
    gc.collect()
    assert function() is not None and counts == []
    gate.open()
    stream.sync()
    cuirass.drain()
    gc.collect()
    assert counts == [1] and function() is None


@pytest.mark.parametrize("call", ["cuGraphExecUpdate_v2", "cuCtxSetCurrent"])
def test_an_update_that_was_made_and_returned_an_error_is_kept(device, call):
    """Of itself, or because the caller's context could not be set again."""
    counts = []
    builder, _ = counting(device, counts)
    graph = builder.complete()
    builder.close()
    source, function = counting(device, counts)
    raised = []

    def update():
        # A thread without a context: the second switch is the one back.
        with cuirass.testing.fail(call, nth=1 + (call == "cuCtxSetCurrent"), done=True):
            try:
                graph.update(source)
            except cuirass.CUDAError as error:
                raised.append(error.call)

    thread = threading.Thread(target=update)
    thread.start()
    thread.join()
    assert raised == [call]
    source.close()
    gc.collect()
    assert function() is not None
    stream = device.create_stream()
    graph.launch(stream)
    stream.sync()
    graph.close()
    cuirass.drain()
    gc.collect()
    assert counts == [1] and function() is None


def rows(buffer):
    return utils.StridedMemoryView.from_buffer(buffer, (4, 4), dtype=numpy.dtype("i4"))


# What captured work refers to a buffer in, and the call that is made for it.
REFERS = {
    "fill": ("cuMemsetD8Async", lambda mine, other, to: mine.fill(1, stream=to)),
    "copy to it": ("cuMemcpyAsync", lambda mine, other, to: mine.copy_from(other, stream=to)),
    "copy from it": ("cuMemcpyAsync", lambda mine, other, to: other.copy_from(mine, stream=to)),
    "its copy": ("cuMemcpyAsync", lambda mine, other, to: mine.copy_to(other, stream=to)),
    "rows": ("cuMemcpy2DAsync_v2", lambda mine, other, to: utils.copy_2d(mine, other, width=8, height=8, stream=to)),
    "view": ("cuMemcpyAsync", lambda mine, other, to: rows(mine).copy_from(rows(other), to)),
    "launch": ("cuLaunchKernelEx", None),
}


@pytest.mark.parametrize("whose", ["a resource's", "an owner's", "a pool's"])
@pytest.mark.parametrize("what", REFERS)
def test_captured_work_that_returned_an_error_keeps_its_memory(device, stream, code, whose, what):
    """It may be in the graph all the same: what it refers to does not go before the graph does."""

    class Resource(cuirass.MemoryResource):
        is_device_accessible, is_host_accessible, device_id, freed = True, False, 0, ()

        def deallocate(self, ptr, size, *, stream):
            self.freed = (*self.freed, ptr)

    class Owner:
        pass

    inner, other = device.allocate(64, stream=stream), device.allocate(64, stream=stream)
    address, resource, owner = int(inner.handle), Resource(), Owner()
    gone = weakref.ref(owner)
    if whose == "a pool's":
        mine = inner
    else:
        how = {"mr": resource, "stream": stream} if whose == "a resource's" else {"owner": owner}
        mine = cuirass.Buffer.from_handle(inner.handle, 64, **how)
        del how
    del owner
    kernel, one = code.get_kernel("add"), cuirass.LaunchConfig(grid=1, block=1)
    call, work = REFERS[what]
    work = work or (lambda mine, other, to: cuirass.launch(to, one, kernel, mine, 1, 1))
    builder = device.create_graph_builder().begin_building()
    with testing.fail(call, done=True), pytest.raises(cuirass.CUDAError, match="UNKNOWN") as caught:
        work(mine, other, builder)
    assert caught.value.call == call
    builder.end_building()
    assert len(builder.graph_definition.nodes()) == 1
    with testing.record() as recording:
        mine.close()
        del mine
        gc.collect()
    freed = [made.name for made in recording.calls if "Free" in made.name and made.arguments[0] == address]
    assert (freed, resource.freed) == ([], ())
    assert whose != "an owner's" or gone()
    builder.close()
    gc.collect()
    if whose == "a resource's":
        assert len(resource.freed) == 1
    assert whose != "an owner's" or not gone()


@contextlib.contextmanager
def captured_all_the_time(stream, work=lambda builder: None):
    """Another thread captures a stream again and again; none of its captures is spoilt. Yields what is locked while
    one goes on."""
    stop, during, captures, spoilt = threading.Event(), threading.Lock(), [], []

    def capture():
        cuirass.Device(0).set_current()
        while not stop.is_set():
            builder = stream.create_graph_builder()
            try:
                with during:
                    work(builder.begin_building())
                    builder.end_building()
            except cuirass.CUDAError as error:
                spoilt.append(error)
            builder.close()
            captures.append(None)

    before, marked = sys.getswitchinterval(), cuirass.sim.reports_mark() if is_sim() else 0
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=capture)
    thread.start()
    try:
        yield during
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert len(captures) > 100
    assert spoilt == []
    # The simulated driver tells of calls beside the begin or the end of a capture, over which the real one crashes.
    assert not is_sim() or cuirass.sim.reports(marked) == []


@pytest.mark.timeout(60)
def test_memory_is_not_lost_at_the_end_of_a_capture_by_another_thread(device, stream, reports, census):
    """The driver refuses to free memory over a capture, which has ended by the time that it is asked for."""
    mine = device.create_stream()
    with captured_all_the_time(stream):
        for _ in range(50_000):
            buffer = device.allocate(64, stream=mine)
            buffer.set_deallocation_stream(stream)
            del buffer
    assert reports == [] and cuirass.drain() == 0
    mine.close()


@pytest.mark.timeout(60)
def test_a_capture_that_begins_while_something_is_released_is_left_alone(device, stream, reports, census):
    """Where a release puts an event on a stream that another thread begins to capture, it does not ask for that."""
    fixed = device.allocate(64, stream=stream)
    stream.sync()
    with captured_all_the_time(stream, lambda builder: fixed.fill(1, stream=builder)) as during:
        for _ in range(15_000):
            builder = device.create_graph_builder().begin_building()
            fixed.fill(1, stream=builder)
            graph = builder.end_building().complete()
            builder.close()
            with during:
                graph.launch(stream)
            del graph
    stream.sync()
    assert reports == [] and cuirass.drain() == 0
    fixed.close()


@pytest.mark.timeout(60)
def test_a_capture_that_begins_while_imported_memory_is_released_is_left_alone(device, stream, shared, reports):
    """As above: no other stream waits for such an event, which would make it part of the capture."""
    other = device.create_stream()
    original = shared.allocate(64, stream=other)
    mapped = cuirass.DeviceMemoryResource.from_allocation_handle(device, shared.allocation_handle)
    with captured_all_the_time(stream):
        for _ in range(10_000):
            shares = [
                cuirass.Buffer.from_ipc_descriptor(mapped, original.ipc_descriptor, stream=queue)
                for queue in (stream, other)
            ]
            del shares[0]
            del shares
    stream.sync()
    other.sync()
    assert reports == [] and cuirass.drain() == 0
    mapped.close()
    original.close()
    other.close()


@pytest.mark.skipif(not is_sim(), reason="a real driver may crash here")
def test_the_simulated_driver_tells_of_a_call_beside_the_begin_of_a_capture(device, stream):
    """A real driver (580) has crashed over nearly any call on a stream whose capture another thread began or ended."""
    entered, go_on = threading.Event(), threading.Event()

    def hold():
        entered.set()
        go_on.wait(10)

    builder = device.create_graph_builder().begin_building()
    builder.callback(hold)
    graph = builder.end_building().complete()
    graph.launch(stream)
    assert entered.wait(10)
    marked, made = cuirass.sim.reports_mark(), cuirass.sim.calls().get("cuStreamSynchronize", 0)
    waiting = threading.Thread(target=stream.sync)
    waiting.start()
    while cuirass.sim.calls().get("cuStreamSynchronize", 0) == made:
        time.sleep(0.001)
    # It is in its call, and the stream must not be captured before it waits there.
    time.sleep(0.2)
    stream.create_graph_builder().begin_building().close()
    told = [report for report in cuirass.sim.reports(marked) if report["kind"] == "bug"]
    go_on.set()
    waiting.join()
    builder.close()
    graph.close()
    assert "cuStreamSynchronize" in told[0]["text"] and "crashes" in told[0]["text"]


LATE_BODY = """
import gc, sys, warnings
import cuirass
why, how = sys.argv[1:3]
texts = []
warnings.simplefilter("always", cuirass.CUDAWarning)
warnings.showwarning = lambda message, *rest: texts.append(str(message))
device = cuirass.Device(0)
device.set_current()
buffer = device.allocate(64, stream=device.default_stream)
device.sync()
builder = device.create_graph_builder().begin_building()
body = builder.if_then(builder.create_condition(1))
builder.end_building()
early = builder.complete()
definition = builder.graph_definition
body.begin_building()
if why == "spoilt":
    try:
        body.stream.sync()
    except cuirass.CUDAError:
        pass
else:
    fork = body.split(2)[1]
    buffer.fill(1, stream=fork)
told = []
if how == "drop":
    body = None
    gc.collect()
    told = texts
else:
    try:
        body.end_building() if how == "end" else body.close()
    except cuirass.CUDAError as error:
        told.append("".join([str(error), *error.__notes__]))
assert len(told) == 1 and "cuStreamEndCapture" in told[0] and "leaked" in told[0], (told, texts)
assert not definition.is_valid
other = device.create_graph_builder().begin_building()
embed, update = lambda: other.embed(builder), lambda: early.update(builder)
for use in (builder.complete, definition.nodes, definition.to_svg, embed, update):
    try:
        use()
        sys.exit("it is used")
    except RuntimeError as error:
        assert "conditional body" in str(error), error
other.end_building()
early.launch(device.default_stream)
device.sync()
builder.close()
del builder, definition, early, body
gc.collect()
assert len(texts) == (how == "drop"), texts
if cuirass.sim.is_active():
    assert not cuirass.sim.reports(), cuirass.sim.reports()
print("well")
"""


@pytest.mark.parametrize("why", ["spoilt", "unjoined"])
@pytest.mark.parametrize("how", ["end", "close", "drop"])
def test_a_body_that_fails_after_the_end_of_its_graph_costs_the_graph(why, how):
    """The driver crashes when such a graph is used or destroyed."""
    if driver_version() < (12, 3):
        pytest.skip("conditional nodes came with CUDA 12.3")
    result = child(LATE_BODY, why, how)
    assert (result.returncode, result.stdout, result.stderr) == (0, "well\n", "")


def test_what_a_callback_raises_is_told_with_its_notes(device, stream, reports):
    """A second failure is a note on the first: it is lost with the note."""

    def fail():
        error = LookupError("mine")
        error.add_note("and what else failed: CUDA_ERROR_UNKNOWN")
        raise error

    with device.create_graph_builder() as builder:
        builder.begin_building().callback(fail)
        graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    cuirass.drain()
    assert len(reports) == 1
    assert "raised LookupError: mine; and what else failed: CUDA_ERROR_UNKNOWN" in reports[0]
