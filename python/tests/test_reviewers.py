"""What a reviewer of a system that must lose no failure would try."""

import sys
import warnings

import pytest

from cuirass import Buffer, CUDAError, CUDAWarning, testing

from .conftest import child
from .test_faults import current, on_a_thread


@pytest.fixture
def shown():
    """What Python's default filters show."""
    all_shown = []
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("default")
        warnings.showwarning = lambda *args: all_shown.append((str(args[0]), current()))
        yield all_shown


def test_two_releases_of_one_line_whose_restoration_fails(device, shown):
    def work():
        default = device.default_stream
        for _ in range(2):
            buffer = device.allocate(64, stream=default)
            before = current()
            with testing.fail("cuCtxSetCurrent", nth=2, status="CUDA_ERROR_UNKNOWN"):
                del buffer
            # The thread keeps the context that the release used; nobody restores it behind its back.
            assert (before, current()) == (0, int(device.context.handle))
            pytest.importorskip("cuda.bindings.driver").cuCtxSetCurrent(0)

    on_a_thread(work)
    assert len(shown) == 2
    for text, _ in shown:
        assert text.startswith("cuCtxSetCurrent(") and "failed while releasing a buffer: CUDA_ERROR_UNKNOWN" in text
        assert "could not be restored" in text and "the release itself worked" in text


def test_a_failed_restoration_leaves_no_trace_on_a_later_error(device, reports):
    def work():
        with testing.fail("cuCtxSetCurrent", nth=2, status="CUDA_ERROR_UNKNOWN"), pytest.raises(CUDAError) as first:
            device.create_event()
        assert (first.value.call, first.value.status.name) == ("cuCtxSetCurrent", "CUDA_ERROR_UNKNOWN")
        assert any("could not be restored" in note for note in first.value.__notes__)
        with pytest.raises(CUDAError) as later:
            device.allocate(1 << 60, stream=device.default_stream)
        assert (later.value.call, later.value.status.name) == ("cuMemAllocFromPoolAsync", "CUDA_ERROR_OUT_OF_MEMORY")
        assert not any("cuCtxSetCurrent" in note for note in getattr(later.value, "__notes__", ()))
        assert "UNKNOWN" not in str(later.value)

    on_a_thread(work)
    assert reports == []


def test_a_warning_sees_the_callers_context(device, shown):
    other = device.create_context()

    def work():
        driver = pytest.importorskip("cuda.bindings.driver")
        for mine in (0, int(other.handle)):
            buffer = device.allocate(64, stream=device.default_stream)
            driver.cuCtxSetCurrent(mine)
            with testing.fail("cuMemFreeAsync", status="CUDA_ERROR_UNKNOWN", done=True):
                del buffer
            assert (shown[-1][1], current()) == (mine, mine)
            driver.cuCtxSetCurrent(0)

    on_a_thread(work)
    assert len(shown) == 2
    other.close()


def test_an_escalated_warning_does_not_stop_the_release(device, stream):
    seen = []
    previous, sys.unraisablehook = sys.unraisablehook, lambda args: seen.append((args.exc_type, str(args.exc_value)))
    before = device.memory_resource.attributes.used_mem_current
    buffer = device.allocate(1 << 20, stream=stream)
    try:
        with warnings.catch_warnings(), testing.fail("cuMemFreeAsync", status="CUDA_ERROR_UNKNOWN", done=True) as fault:
            warnings.simplefilter("error", CUDAWarning)
            del buffer
    finally:
        sys.unraisablehook = previous
    assert fault.count == 1
    assert [kind for kind, _ in seen] == [CUDAWarning] and "cuMemFreeAsync" in seen[0][1]
    stream.sync()
    assert device.memory_resource.attributes.used_mem_current == before, "the memory went back"


def test_a_handle_that_comes_round_again_is_reported_again(device, stream, shown):
    nowhere = 0x1234_0000
    for _ in range(3):
        buffer = Buffer.from_handle(nowhere, 64, mr=device.memory_resource, stream=stream)
        del buffer
    texts = [text for text, _ in shown]
    assert len(texts) == 3 and len(set(texts)) == 1, "the same text, of three failures"
    assert texts[0].startswith(f"cuMemFreeAsync({nowhere:#x}")


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("fails", [False, True])
def test_set_current_and_the_stack_of_contexts(device, depth, fails):
    """One cuCtxSetCurrent: the top is replaced, what lies below is as it was."""
    driver = pytest.importorskip("cuda.bindings.driver")
    contexts = [device.create_context() for _ in range(2)]

    def work():
        for context in contexts[:depth]:
            (status,) = driver.cuCtxPushCurrent(int(context.handle))
            assert status == 0
        top = current()
        assert top == (int(contexts[depth - 1].handle) if depth else 0)
        with testing.record() as recording:
            if fails:
                with testing.fail("cuCtxSetCurrent", status="CUDA_ERROR_UNKNOWN"), pytest.raises(CUDAError):
                    device.set_current()
            else:
                device.set_current()
        sets = [call.name for call in recording.calls if call.name.startswith(("cuCtxSet", "cuCtxPush", "cuCtxPop"))]
        assert sets == ([] if fails else ["cuCtxSetCurrent"])
        assert current() == (top if fails else int(device.context.handle))
        # Below the top.
        if depth or not fails:
            driver.cuCtxPopCurrent()
        assert current() == (int(contexts[0].handle) if depth == 2 else 0)
        while current():
            driver.cuCtxPopCurrent()

    on_a_thread(work)
    for context in contexts:
        context.close()


def test_a_fault_is_told_in_full_once():
    """The first release in a context that meets it says what to do; the others say in a line that they met it."""
    result = child(
        """
import warnings
import cuirass
from cuirass import testing
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: print(message)
device = cuirass.Device(0)
device.set_current()
things = [device.create_stream(), device.create_event(), device.create_stream()]
while things:
    with testing.fail("cuEventDestroy" if len(things) == 2 else "cuStreamDestroy", status=719, done=True):
        del things[-1]
"""
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 3, result
    assert all("returned an earlier kernel's fault: CUDA_ERROR_LAUNCH_FAILED" in line for line in lines)
    assert ["restarted" in line for line in lines] == [True, False, False]


def test_a_process_that_ends_at_once():
    result = child(
        """
import os, threading, time
import cuirass
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
buffers = [device.allocate(64, stream=stream) for _ in range(10)]
builder = device.create_graph_builder().begin_building()
def work():
    mine = device.create_stream()
    while True:
        mine.record(); mine.sync()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
os._exit(7)
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (7, "", "")
