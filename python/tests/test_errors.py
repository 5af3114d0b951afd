import copy
import pickle

import pytest

import cuirass
from cuirass import CUDAError, CUDAStickyError, CUDAWarning, NVRTCError, Status

from .conftest import KERNELS, child, needs_sim


def test_classes():
    assert issubclass(CUDAError, Exception) and not issubclass(CUDAError, RuntimeError)
    assert issubclass(NVRTCError, CUDAError)
    assert issubclass(CUDAStickyError, CUDAError)
    assert issubclass(CUDAWarning, RuntimeWarning)
    plain = CUDAError("text")
    assert (str(plain), plain.status, plain.call, plain.sticky) == ("text", None, "", False)


def test_a_status_is_a_number_with_a_name():
    status = Status(2, "CUDA_ERROR_OUT_OF_MEMORY")
    assert status == 2 and int(status) == status.value == 2
    assert str(status) == f"{status}" == status.name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert repr(status) == "<Status.CUDA_ERROR_OUT_OF_MEMORY: 2>"
    assert Status(12345).name == "CUDA_ERROR_12345"
    assert pickle.loads(pickle.dumps(status)).name == status.name
    assert {2: "x"}[status] == "x"
    assert status == Status.CUDA_ERROR_OUT_OF_MEMORY and Status.CUDA_ERROR_OUT_OF_MEMORY.name == status.name
    for absent in ("CUDA_ERROR_ABSENT", "absent"):
        with pytest.raises(AttributeError, match="no status of the driver"):
            getattr(Status, absent)


def test_an_error_of_the_driver(device, stream):
    with pytest.raises(CUDAError) as caught:
        device.allocate(1 << 50, stream=stream)
    error = caught.value
    assert type(error) is CUDAError
    assert error.status == 2
    assert str(error.status) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert error.call == "cuMemAllocFromPoolAsync"
    assert error.sticky is False
    text = str(error)
    assert text.startswith("CUDA_ERROR_OUT_OF_MEMORY: ")
    assert "cuMemAllocFromPoolAsync" in text and str(1 << 50) in text and f"{int(stream.handle):#x}" in text
    # The failure is over: nothing is parked for a later call.
    stream.sync()
    device.sync()


@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_pickle(device, stream, duplicate):
    with pytest.raises(CUDAError) as caught:
        device.allocate(1 << 50, stream=stream)
    caught.value.add_note("a note")
    again = duplicate(caught.value)
    assert type(again) is CUDAError
    assert str(again) == str(caught.value)
    assert (again.status, again.status.name, again.call) == (2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemAllocFromPoolAsync")
    assert again.__notes__ == ["a note"]


def test_an_error_of_the_compiler():
    with pytest.raises(NVRTCError) as caught:
        cuirass.Program("this is no program", "c++", cuirass.ProgramOptions(arch="sm_90")).compile("ptx")
    error = caught.value
    assert error.status.name == "NVRTC_ERROR_COMPILATION"
    assert error.call == "nvrtcCompileProgram"
    assert 'identifier "this" is undefined' in str(error) or "error:" in str(error)
    assert error.log and error.log in str(error)
    assert pickle.loads(pickle.dumps(error)).log == error.log


STICKY = """
import sys, pickle, warnings
warnings.simplefilter("ignore")
import cuirass
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
kernel = cuirass.Program(sys.argv[1], "c++").compile("cubin").get_kernel("fault")
buffer = device.allocate(64, stream=stream)
stream.sync()
cuirass.launch(stream, cuirass.LaunchConfig(grid=1, block=1), kernel, buffer)
for call in (stream.sync, device.sync, lambda: device.allocate(16, stream=stream), stream.sync):
    try:
        call()
    except cuirass.CUDAStickyError as error:
        assert isinstance(error, cuirass.CUDAError) and isinstance(error, Exception)
        assert error.sticky and error.status.name == "CUDA_ERROR_ILLEGAL_ADDRESS", error
        assert any("restarted" in note for note in error.__notes__), error.__notes__
        assert pickle.loads(pickle.dumps(error)).sticky
    else:
        raise SystemExit(f"{call} did not fail")
print("done")
"""


def test_a_fault_is_sticky_and_the_process_lives():
    result = child(STICKY, KERNELS)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done\n"


@needs_sim
def test_a_driver_that_is_too_old():
    result = child(
        """
import cuirass, sys
device = cuirass.Device(0)
kernel = cuirass.Program(sys.argv[1], "c++", cuirass.ProgramOptions(arch="sm_90")).compile("cubin").get_kernel("add")
try:
    kernel.num_arguments
except cuirass.CUDAError as error:
    print(error.status, error.call, error.needs, error.found)
""",
        KERNELS,
        env={"CUIRASS_SIM": "driver=12.2,quiet=1,ptx=any"},
    )
    assert result.stdout == "CUDA_ERROR_NOT_SUPPORTED cuKernelGetParamInfo (12, 4) (12, 2)\n", result.stderr


NO_DRIVER = """
import cuirass
texts = []
for _ in range(3):
    for call in (lambda: cuirass.Device(0), cuirass.Device, cuirass.Device.get_all_devices):
        try:
            call()
        except cuirass.CUDAError as error:
            texts.append(str(error))
assert len(texts) == 9 and len(set(texts)) == 1, texts
print(texts[0])
"""


@pytest.mark.skipif(
    child("import ctypes; ctypes.CDLL('libcuda.so.1')").returncode == 0, reason="this machine has a driver"
)
def test_without_a_driver_every_attempt_fails_alike():
    result = child(NO_DRIVER, env={"CUIRASS_DRIVER": "gpu"})
    assert result.returncode == 0, result.stderr
    assert "set CUIRASS_DRIVER=sim in the environment" in result.stdout


def test_an_unknown_driver():
    result = child("import cuirass; cuirass.Device(0)", env={"CUIRASS_DRIVER": "tpu"})
    assert result.returncode == 1
    assert "CUIRASS_DRIVER=tpu" in result.stderr


def test_after_a_fork(device):
    result = child(
        """
import os, cuirass
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
if os.fork() == 0:
    try:
        stream.sync()
    except cuirass.CUDAError as error:
        code = 0 if "spawn" in str(error) and error.status == 3 else 2
        os._exit(code)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    )
    assert result.stdout == "0\n", result.stderr


def test_a_comparison_with_another_kind_asks_the_other(device, stream):
    from unittest import mock

    event = stream.record()
    config = cuirass.LaunchConfig(grid=1, block=1)
    for thing in (device, stream, event, config, device.context):
        assert thing.__eq__(1) is NotImplemented
        assert (thing == "x") is False
        assert thing == mock.ANY
        assert mock.ANY == thing  # noqa: SIM300


def test_a_note_that_cannot_be_added_is_reported(device, stream, reports):
    class Stubborn(Exception):
        def add_note(self, note):
            raise RuntimeError("no notes")

    buffer = device.allocate(64, stream=stream)
    with pytest.raises(Stubborn), cuirass.testing.fail("cuMemFreeAsync", status=999, done=True):  # noqa: SIM117
        with buffer:
            raise Stubborn("mine")
    assert len(reports) == 1 and "cuMemFreeAsync" in reports[0]


def test_a_failure_in_a_closed_generator_is_reported(device, stream, reports):
    def generator():
        with device.allocate(64, stream=stream):
            yield

    running = generator()
    next(running)
    with cuirass.testing.fail("cuMemFreeAsync", status=999, done=True):
        running.close()
    assert len(reports) == 1 and "cuMemFreeAsync" in reports[0]
