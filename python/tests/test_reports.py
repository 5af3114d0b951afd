import gc
import sys
import threading
import warnings

import pytest

import cuirass
from cuirass import Buffer, CUDAWarning, testing
from cuirass._cuirass import _report

from .conftest import child, needs_sim

# An address that no pool has: its release fails.
NOWHERE = 0x1234_0000


def failing_release(device, stream):
    buffer = Buffer.from_handle(NOWHERE, 64, mr=device.memory_resource, stream=stream)
    del buffer


def test_text_and_category(device, stream):
    with pytest.warns(CUDAWarning) as caught:
        failing_release(device, stream)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text.startswith(f"cuMemFreeAsync({NOWHERE:#x}")
    assert "failed while releasing a buffer: CUDA_ERROR_INVALID_VALUE: invalid argument" in text
    assert caught[0].filename == __file__


def test_the_same_line_twice_is_two_warnings(device, stream):
    """With Python's default filters, which show a warning of a line once."""
    shown = []
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("default")
        previous, warnings.showwarning = warnings.showwarning, lambda *args: shown.append(args)
        try:
            for _ in range(3):
                failing_release(device, stream)
        finally:
            warnings.showwarning = previous
    assert len(shown) == 3
    assert "__warningregistry__" not in globals() or not globals()["__warningregistry__"].get("cuMemFreeAsync")


def test_escalated_it_is_never_raised(device, stream):
    seen = []
    previous, sys.unraisablehook = sys.unraisablehook, lambda args: seen.append((args.exc_type, str(args.exc_value)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CUDAWarning)
            failing_release(device, stream)
            after = "reached"
    finally:
        sys.unraisablehook = previous
    assert after == "reached"
    assert [kind for kind, _ in seen] == [CUDAWarning]
    assert "cuMemFreeAsync" in seen[0][1]


def test_a_showwarning_that_raises(device, stream):
    def broken(*args):
        raise KeyError("broken")

    seen = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda args: seen.append(args.exc_type)
    shown, warnings.showwarning = warnings.showwarning, broken
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = broken
            failing_release(device, stream)
    finally:
        sys.unraisablehook, warnings.showwarning = hook, shown
    assert seen == [KeyError]


def test_an_exception_on_its_way_is_kept(device, stream, reports):
    def work():
        buffer = Buffer.from_handle(NOWHERE, 64, mr=device.memory_resource, stream=stream)
        assert buffer.size == 64
        raise LookupError("mine")

    try:
        work()
    except LookupError as error:
        assert error.args == ("mine",)
        error.__traceback__ = None
    gc.collect()
    assert len(reports) == 1


def test_closing_raises_and_does_not_report(device, stream, reports):
    buffer = Buffer.from_handle(NOWHERE, 64, mr=device.memory_resource, stream=stream)
    with pytest.raises(cuirass.CUDAError) as caught:
        buffer.close()
    assert caught.value.call == "cuMemFreeAsync"
    assert buffer.is_closed
    buffer.close()
    del buffer
    gc.collect()
    assert reports == []


def test_reports_may_call_back(device, stream):
    seen = []

    def calls_back(message, *rest):
        seen.append(cuirass.Device(0).create_stream().is_closed)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = calls_back
        failing_release(device, stream)
    assert seen == [False]


def test_reports_that_make_reports_come_to_an_end():
    """User code that each report runs makes the next one: on a small stack, too, the process lives."""
    result = child(
        """
import threading, warnings
import cuirass
from cuirass import testing
device = cuirass.Device(0)
stream = device.create_stream()
shown = []

def make_another(*report):
    shown.append(str(report[0]))
    device.allocate(64, stream=stream)

def work():
    with testing.fail("cuMemFreeAsync", times=None, done=True) as fault:
        device.allocate(64, stream=stream)
    print(len(shown), fault.count)

warnings.simplefilter("always")
warnings.showwarning = make_another
threading.stack_size(1 << 20)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    )
    assert result.returncode == 0, result
    shown, failed = map(int, result.stdout.split())
    assert 1 < shown < 100 and failed == shown + 1
    assert result.stderr.count("cuMemFreeAsync(") == 1, "where it ends, on stderr"


def test_reports_from_threads(device, stream, reports):
    thread = threading.Thread(target=failing_release, args=(device, stream))
    thread.start()
    thread.join()
    assert len(reports) == 1


def test_any_failure_can_be_reported(reports):
    cuirass._cuirass._report("a failure", "doing something")
    assert reports == ["a failure (while doing something)"]


@needs_sim
def test_at_exit_reports_go_to_stderr():
    result = child(
        """
import cuirass
device = cuirass.Device(0)
stream = device.create_stream()
buffer = cuirass.Buffer.from_handle(0x12340000, 64, mr=device.memory_resource, stream=stream)
"""
    )
    assert result.returncode == 0
    assert result.stderr.startswith("CUDAWarning: cuMemFreeAsync(0x12340000")
    assert result.stderr.count("\n") == 1


# The main thread, and another one, wait for the device with a lock that the warning wants; the exception comes from a
# callback that they wait for.
WAITS_WITH_A_LOCK = """
import sys, threading, time, warnings
import cuirass

device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
shown, ran = [], []

def callback():
    # The other one waits for the device by then.
    time.sleep(0.2)
    ran.append(threading.get_ident())
    raise LookupError("mine")

builder = device.create_graph_builder().begin_building()
builder.callback(callback)
graph = builder.end_building().complete()
lock = {lock}

def show(message, category, filename, lineno, *rest):
    with lock:
        shown.append((str(message), category.__name__, filename, lineno, threading.get_ident()))

warnings.simplefilter("always")
warnings.showwarning = show

def wait():
    device.set_current()
    with lock:
        graph.launch(stream)
        {wait}

{start}
assert len(ran) == 1 and ran[0] != threading.get_ident()
(report,) = shown
text, category, filename, line, thread = report
assert text.startswith("the host callback <function callback at 0x") and "raised LookupError: mine" in text, text
assert text.endswith("(while running a host callback of a graph)"), text
# It has no place in the program that the main thread happens to be at.
assert (category, filename, line, thread) == ("CUDAWarning", "<cuirass>", 0, threading.get_ident()), report
"""


@pytest.mark.parametrize("wait", ["device.sync()", "stream.sync()", "stream.record().sync()"])
@pytest.mark.parametrize(
    ("lock", "start"),
    [
        ("threading.RLock()", "wait()"),
        ("threading.Lock()", "thread = threading.Thread(target=wait); thread.start(); thread.join()"),
    ],
    ids=["main thread", "other thread"],
)
def test_what_a_callback_raises_waits_for_no_lock_of_a_thread_that_waits(lock, start, wait):
    result = child(WAITS_WITH_A_LOCK.format(lock=lock, start=start, wait=wait), timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


RAISES = """
import sys, threading, warnings
import cuirass

device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
count = 0

def callback():
    global count
    count += 1
    raise LookupError(f"number {count}")

builder = device.create_graph_builder().begin_building()
builder.callback(callback)
graph = builder.end_building().complete()
shown = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: shown.append(str(message))
"""


def test_no_exception_of_a_callback_is_lost():
    """More of them than the interpreter has room for, from one wait to the next."""
    result = child(
        RAISES
        + """
for _ in range(100):
    graph.launch(stream)
stream.sync()
assert [f"raised LookupError: number {at} " in text for at, text in enumerate(shown, 1)] == [True] * 100, shown
"""
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_an_exception_of_a_callback_is_reported_by_drain_and_at_exit():
    result = child(
        RAISES
        + """
import os

def other():
    device.set_current()
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    # The main thread runs no instruction meanwhile: its report can wait, and need not.
    cuirass.drain()
    told.extend(shown)
    os.close(wakes)

told = []
waits, wakes = os.pipe()
thread = threading.Thread(target=other)
thread.start()
os.read(waits, 1)
assert [f"number {at} " in text for at, text in enumerate(told, 1)] == [True] * 3, told
warnings.showwarning = lambda message, *rest: print(message)
# Comes when the exit hook waits for callbacks.
import atexit
atexit.register(lambda: (graph.launch(stream), stream.sync()))
"""
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "number 4 " in result.stdout and result.stdout.count("\n") == 1


# What is released by which call.
RELEASED = {
    "cuEventDestroy_v2": lambda device, stream: device.create_event(),
    "cuStreamDestroy_v2": lambda device, stream: device.create_stream(),
    "cuMemFreeAsync": lambda device, stream: device.allocate(64, stream=stream),
    "cuGraphExecDestroy": lambda device, stream: (
        device.create_graph_builder().begin_building().end_building().complete()
    ),
}


def put_off(device, stream, *things):
    """Has the last shares of things dropped where no CUDA call may be made: their release waits."""
    things, dropped = list(things), threading.Event()

    def drop():
        things.clear()
        dropped.set()

    builder = device.create_graph_builder().begin_building()
    builder.callback(drop)
    graph = builder.end_building().complete()
    graph.launch(stream)
    assert dropped.wait(60)
    return builder, graph


@pytest.mark.parametrize("call", RELEASED)
def test_a_release_that_was_put_off_is_reported_as_any_other(device, stream, reports, call):
    """Once with its handle; not at all where the driver is shutting down; what to do about a fault is said once."""
    for status, many in (("CUDA_ERROR_UNKNOWN", 2), ("CUDA_ERROR_DEINITIALIZED", 0), ("CUDA_ERROR_ILLEGAL_ADDRESS", 2)):
        kept = put_off(device, stream, RELEASED[call](device, stream), RELEASED[call](device, stream))
        with testing.fail(call, times=None, status=status, done=True) as fault:
            cuirass.drain()
        assert (fault.count, len(reports)) == (2, many), reports
        assert all(f"{call}(" in text and "which had been put off" in text and status in text for text in reports)
        if status == "CUDA_ERROR_ILLEGAL_ADDRESS":
            assert all("returned an earlier kernel's fault" in text for text in reports), reports
            assert sum("must be restarted" in text for text in reports) <= 1, reports
        reports.clear()
        stream.sync()
        del kept


@pytest.mark.parametrize("first", ["CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_UNKNOWN"])
@pytest.mark.parametrize("second", ["CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_UNKNOWN"])
def test_a_driver_that_is_shutting_down_hides_no_other_failure(device, reports, first, second):
    """A release and the switch back after it: that the driver is shutting down is an answer only where it is all."""
    things = [make(device, device.default_stream) for make in RELEASED.values()]

    def work():
        while things:
            with testing.fail("cuCtxSetCurrent", nth=2, status=second, thread=threading.get_ident(), done=True) as back:
                call = list(RELEASED)[len(things) - 1]
                with testing.fail(call, status=first, thread=threading.get_ident(), done=True) as release:
                    things.pop()
            assert release.count == 1
            counts.append(back.count)

    counts = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(counts) == len(RELEASED) and sum(counts) > 0, "a thread without a context has to switch for some"
    expected = 0
    for back in counts:
        statuses = [first] + [second] * back
        expected += any(status != "CUDA_ERROR_DEINITIALIZED" for status in statuses)
    assert len(reports) == expected, reports
    for status in {first, second} - {"CUDA_ERROR_DEINITIALIZED"}:
        assert sum(status in text for text in reports) == expected, reports


# What the program does with the places that a report is shown at: whether the report comes by way of them, or, past
# Python, to the file descriptor.
RELEASE = """
import os, sys, warnings
from cuirass import Buffer, Device

device = Device(0)
device.set_current()
stream = device.create_stream()

def report():
    buffer = Buffer.from_handle(0x1234_0000, 64, mr=device.memory_resource, stream=stream)
    del buffer

class Broken:
    def write(self, text):
        raise LookupError("the stderr's own")

    def flush(self):
        pass

def raising(*args):
    raise LookupError("the hook's own")

escalated = sys.argv[1] == "error"
warnings.simplefilter(sys.argv[1])
"""
PLACES = {
    "as it is": "",
    "no stderr": "sys.stderr = None",
    "no stderr at all": "del sys.stderr",
    "a closed stderr": "sys.stderr.close()",
    "a broken stderr": "sys.stderr = Broken()",
    "a hook that raises": "sys.unraisablehook = raising",
    "a hook that ends the process": "sys.unraisablehook = lambda unraisable: sys.exit(3)",
    "a hook that is none": "sys.unraisablehook = None",
    "no hook": "del sys.unraisablehook",
    "no hook at all": "del sys.unraisablehook, sys.__unraisablehook__",
    "a hook that calls the interpreter's": "sys.unraisablehook = lambda given: sys.__unraisablehook__(given)",
    "the same without stderr": "sys.stderr = None; sys.unraisablehook = lambda given: sys.__unraisablehook__(given)",
    "a hook that raises, and no stderr": "sys.stderr = None; sys.unraisablehook = raising",
    "a showwarning that raises": "warnings.showwarning = raising",
    "that, and a hook that raises": "warnings.showwarning = sys.unraisablehook = raising",
}


@needs_sim
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", ["always", "error"])
def test_a_report_is_never_lost_where_it_is_shown(action, place):
    result = child(RELEASE + PLACES[place] + "\nreport()\nreport()\nprint('reached')", action)
    assert (result.returncode, result.stdout) == (0, "reached\n"), result.stderr
    assert result.stderr.count("failed while releasing a buffer: CUDA_ERROR_INVALID_VALUE") == 2, result.stderr
    calls_hook = action == "error" or "showwarning" in place
    if calls_hook and "raises" in place and "unraisablehook = raising" in PLACES[place]:
        assert result.stderr.count("sys.unraisablehook raised LookupError: the hook's own") == 2, result.stderr
    if calls_hook and place == "a hook that ends the process":
        assert result.stderr.count("sys.unraisablehook raised SystemExit: 3") == 2, result.stderr


@needs_sim
@pytest.mark.parametrize(
    ("setting", "shown"),
    {
        "an ignored one": ("warnings.simplefilter('ignore')", 0),
        "one for a log": ("import logging; logging.captureWarnings(True)", 0),
        "one for a showwarning": ("warnings.showwarning = lambda *args: print('shown')", 0),
        "one for a hook": ("warnings.simplefilter('error'); sys.unraisablehook = lambda given: print('shown')", 0),
    }.values(),
)
def test_what_goes_elsewhere_is_not_shown_where_there_is_no_stderr(setting, shown):
    result = child(RELEASE + f"sys.stderr = None\n{setting}\nreport()\nprint(sys.stderr)", "always")
    assert result.stdout.splitlines()[-1] == "None" and result.stderr.count("CUDA_ERROR") == shown, result
    assert result.stdout.count("shown") == setting.count("shown"), result


@needs_sim
def test_reports_that_lead_to_reports_where_there_is_no_stderr():
    """It is lent to them all, and taken back with the last, unless the program has put another one there."""
    result = child(
        RELEASE
        + """
sys.stderr = None
depth = 0
show = warnings.showwarning

def showing(*args):
    global depth
    depth += 1
    if depth < 3:
        report()
    show(*args)

warnings.showwarning = showing
report()
print(sys.stderr)
warnings.showwarning = lambda *args: setattr(sys, "stderr", sys.stdout)
report()
print(sys.stderr is sys.stdout)
""",
        "always",
    )
    assert result.stdout == "None\nTrue\n", result
    assert result.stderr.count("failed while releasing a buffer") == 3, result.stderr


@needs_sim
@pytest.mark.parametrize("action", ["always", "error"])
def test_a_stderr_that_is_not_there_is_not_there_after_a_report(action):
    result = child(RELEASE + "del sys.stderr\nreport()\nprint(hasattr(sys, 'stderr'))", action)
    assert result.stdout == "False\n", result


def test_a_hook_is_given_what_the_interpreter_gives():
    given = []
    previous, sys.unraisablehook = sys.unraisablehook, given.append
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CUDAWarning)
            _report("what is wrong", "testing")
        late = Late()
        late.itself = late
        del late
        gc.collect()
    finally:
        sys.unraisablehook = previous
    ours, python = given
    assert type(ours) is type(python)
    assert (ours.exc_type, type(ours.exc_value), ours.err_msg, ours.object) == (CUDAWarning, CUDAWarning, None, None)


class Late:
    def __del__(self):
        raise LookupError("late")
