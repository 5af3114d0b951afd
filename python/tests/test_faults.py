"""Faults that are injected: what they do, and cases that the gauntlet (python/tests/gauntlet) does not put so."""

import contextlib
import gc
import threading
import warnings

import pytest

import cuirass
from cuirass import CUDAError, EventOptions, NVRTCError, Program, ProgramOptions, testing

from .conftest import KERNELS, is_sim


def on_a_thread(work):
    """Runs work on a thread of its own, without a current context, and returns what it returned or raises."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def current():
    driver = pytest.importorskip("cuda.bindings.driver")
    return int(driver.cuCtxGetCurrent()[1])


def counts():
    gc.collect()
    return cuirass.sim.census() if is_sim() else None


TIMED = EventOptions(timing_enabled=True)
OPERATIONS = {
    "cuStreamCreateWithPriority": lambda device: device.create_stream(),
    "cuEventCreate": lambda device: device.create_event(),
    "cuCtxSynchronize": lambda device: device.sync(),
}


@pytest.mark.parametrize("first", OPERATIONS)
def test_a_restoration_that_fails_too(device, first):
    """The operation's error, and the failed restoration as its note; nothing else is disturbed."""

    def work():
        # A thread without a context: entering is the first cuCtxSetCurrent, restoring the second.
        with (
            testing.fail(first, status="CUDA_ERROR_OUT_OF_MEMORY"),
            testing.fail("cuCtxSetCurrent", nth=2),
            pytest.raises(CUDAError) as caught,
        ):
            OPERATIONS[first](device)
        error = caught.value
        assert (error.call, error.status.name) == (first, "CUDA_ERROR_OUT_OF_MEMORY")
        assert any("could not be restored after this failure" in note and "cuCtxSetCurrent" in note
                   for note in error.__notes__)  # fmt: skip
        assert current() == int(device.context.handle)

    on_a_thread(work)


def test_what_was_created_is_undone_when_the_context_cannot_be_restored(device):
    before = counts()

    def work():
        with testing.fail("cuCtxSetCurrent", nth=2), pytest.raises(CUDAError) as caught:
            device.create_stream()
        assert caught.value.call == "cuCtxSetCurrent"
        assert any("could not be restored" in note for note in caught.value.__notes__)
        assert any("Device.set_current()" in note for note in caught.value.__notes__)

    on_a_thread(work)
    assert counts() == before


def test_leaving_a_device_fails_while_an_exception_passes(device):
    def work():
        with pytest.raises(KeyError) as caught, device:
            fault = testing.fail("cuCtxSetCurrent")
            fault.__enter__()
            raise KeyError("mine")
        fault.__exit__(None, None, None)
        assert any("could not be restored after this failure" in note for note in caught.value.__notes__)
        with testing.fail("cuCtxSetCurrent", nth=2), pytest.raises(CUDAError, match="cuCtxSetCurrent"), device:
            pass

    on_a_thread(work)


def test_set_current_that_fails_changes_nothing(device):
    made = device.create_context()
    device.set_current()
    before = current()
    for arguments in ((), (made,)):
        with testing.fail("cuCtxSetCurrent"), pytest.raises(CUDAError):
            device.set_current(*arguments)
        assert current() == before
        assert device.context != made
    made.close()


def test_a_compiler_call_that_fails():
    options = cuirass.ProgramOptions(arch="sm_90")
    with testing.record() as recording:
        cuirass.Program(KERNELS, "c++", options).compile("cubin", name_expressions=("twice<int>",))
    calls = [call.name for call in recording.calls]
    assert "nvrtcCompileProgram" in calls
    for name in sorted(set(calls)):
        with testing.fail(name, status=5), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                cuirass.Program(KERNELS, "c++", options).compile("cubin", name_expressions=("twice<int>",))
                gc.collect()
                raised = None
            except cuirass.NVRTCError as error:
                raised = error
        # Raised, or reported where a program is released: once, and never both.
        if raised is not None:
            assert (raised.call, int(raised.status)) == (name, 5)
            assert caught == []
        else:
            assert name == "nvrtcDestroyProgram"
            assert len(caught) == 1 and str(caught[0].message).startswith(name)


def test_faults_themselves(device, stream):
    with testing.fail("cuStreamSynchronize", nth=2, times=2) as fault:
        stream.sync()
        for _ in range(2):
            with pytest.raises(CUDAError, match="CUDA_ERROR_UNKNOWN"):
                stream.sync()
        stream.sync()
        assert (fault.count, fault.seen) == (2, 4)
    stream.sync()
    assert (fault.count, fault.seen) == (2, 4)
    with testing.fail("cuStreamSynchronize", times=None, status=2), pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        stream.sync()
    # An error of its own is the older one, and stands: this one cannot be measured.
    with testing.fail("cuEventElapsedTime", done=True) as fault, pytest.raises(RuntimeError):
        device.create_event(options=TIMED) - device.create_event(options=TIMED)
    assert (fault.count, fault.seen) == (0, 1)
    with testing.fail("cuStreamSynchronize", thread=threading.get_ident()):
        on_a_thread(stream.sync)
    with pytest.raises(ValueError, match="makes no call cuAbsent"), testing.fail("cuAbsent"):
        pass
    with pytest.raises(ValueError, match=r"nearest: .*cuStreamSynchronize"), testing.fail("cuStreamSynchronise"):
        pass
    with pytest.raises(ValueError, match="no status"):
        testing.fail("cuStreamSynchronize", status="ABSENT")
    with pytest.raises(ValueError, match=r"nearest: .*CUDA_ERROR_OUT_OF_MEMORY"):
        testing.fail("cuStreamSynchronize", status="CUDA_ERROR_OUT_OF_MEMRY")
    with pytest.raises(ValueError, match=r"nearest: NVRTC_ERROR_COMPILATION"):
        testing.fail("nvrtcCompileProgram", status="NVRTC_ERROR_COMPILE")
    for call, status in (("nvrtcCompileProgram", "CUDA_ERROR_OUT_OF_MEMORY"), ("cuInit", "NVRTC_ERROR_OUT_OF_MEMORY")):
        with pytest.raises(ValueError, match=f"{status} is a status of the .*, and {call} is a call of the "):
            testing.fail(call, status=status)
    for zero in ({"nth": 0}, {"status": 0}):
        with pytest.raises(ValueError, match="nth from 1"), testing.fail("cuStreamSynchronize", **zero):
            pass
    event = stream.record()
    event.sync()
    for nth, call in enumerate(("cuEventQuery", "cuStreamSynchronize"), 1):
        with (
            testing.fail(None, nth=nth, times=None, thread=threading.get_ident()) as fault,
            pytest.raises(CUDAError) as caught,
        ):
            assert event.is_done
            stream.sync()
        assert (caught.value.call, fault.first_call, fault.count, fault.seen) == (call, call, 1, nth)
    for block in (testing.fail("cuStreamSynchronize", times=None), testing.record()):
        with block:
            # A second one would lose what the first has seen.
            with pytest.raises(RuntimeError, match="already"), block:
                pass
            with contextlib.suppress(CUDAError):
                stream.sync()
        assert getattr(block, "count", None) == 1 or [call.name for call in block.calls] == ["cuStreamSynchronize"]
    assert testing.fail(None).first_call is None
    assert "cuLaunchKernelEx" in testing.known_calls()
    assert testing.status("CUDA_ERROR_OUT_OF_MEMORY") == testing.status(2) == 2
    assert testing.status(2).name == "CUDA_ERROR_OUT_OF_MEMORY"
    status = testing.status("NVRTC_ERROR_COMPILATION")
    assert (status, status.name) == (6, "NVRTC_ERROR_COMPILATION")


@pytest.mark.parametrize("pattern", [7, b"\1\2", b"\1\2\3\4"])
def test_a_fill_that_fails_names_its_stream(device, stream, pattern):
    buffer = device.allocate(16, stream=stream)
    with testing.fail(None, status=2, thread=threading.get_ident()) as fault, pytest.raises(CUDAError) as caught:
        buffer.fill(pattern, stream=stream)
    assert fault.count == 1 and caught.value.call.startswith("cuMemsetD")
    text = str(caught.value)
    assert f"{int(buffer.handle):#x}, value " in text and f" elements, stream {int(stream.handle):#x})" in text, text


def test_a_fault_of_the_compiler(device):
    program = Program("__global__ void nothing() {}", "c++", ProgramOptions(arch=f"sm_{device.arch}"))
    name = "NVRTC_ERROR_OUT_OF_MEMORY"
    with testing.fail("nvrtcCompileProgram", status=name), pytest.raises(NVRTCError, match=name) as caught:
        program.compile("ptx")
    assert (caught.value.call, caught.value.status) == ("nvrtcCompileProgram", testing.status(name))


@pytest.mark.parametrize("call", ["nvrtcCompileProgram", None])
def test_a_fault_without_a_status_has_one_of_its_library(call, stream):
    program = Program("__global__ void nothing() {}", "c++")
    with (
        testing.fail(call, thread=threading.get_ident()),
        pytest.raises(NVRTCError, match="NVRTC_ERROR_INTERNAL_ERROR"),
    ):
        program.compile("ptx")
    with testing.fail(call and "cuStreamSynchronize"), pytest.raises(CUDAError, match="CUDA_ERROR_UNKNOWN"):
        stream.sync()


def test_the_fixture(device, stream, cuirass_fail):
    """Its faults are in place until the test ends."""
    fault = cuirass_fail("cuStreamSynchronize", nth=2, status="CUDA_ERROR_OUT_OF_MEMORY", thread=threading.get_ident())
    other = cuirass_fail("cuEventCreate", times=None, thread=threading.current_thread())
    stream.sync()
    with pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        stream.sync()
    for _ in range(2):
        with pytest.raises(CUDAError, match="UNKNOWN"):
            device.create_event()
    assert (fault.count, fault.seen, other.count) == (1, 2, 2)


def test_faults_of_the_fixture_are_gone(device, stream):
    stream.sync()
    device.create_event().close()


def test_a_fault_of_one_thread(device):
    """The calls of that thread fail, and no others."""
    go, done, told = threading.Event(), threading.Event(), []

    def work():
        go.wait()
        try:
            cuirass.Device(0).create_event()
        except CUDAError as error:
            told.append(error.call)
        done.set()

    thread = threading.Thread(target=work)
    with pytest.raises(ValueError, match="was not started"):
        testing.fail("cuEventCreate", thread=thread)
    with pytest.raises(TypeError, match=r"must be a threading\.Thread or its ident, not str"):
        testing.fail("cuEventCreate", thread="main")
    thread.start()
    with testing.fail("cuEventCreate", thread=thread) as fault:
        device.create_event().close()
        assert fault.seen == 0
        go.set()
        assert done.wait(30)
    thread.join()
    assert told == ["cuEventCreate"] and fault.count == 1


def test_a_fault_that_would_never_be():
    with pytest.raises(ValueError, match="times from 1"), testing.fail("cuEventCreate", times=0):
        pass
