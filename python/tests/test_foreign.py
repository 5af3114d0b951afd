"""cuda.bindings in the same process: contexts, streams, events and memory go both ways."""

import ctypes

import pytest

import cuirass
from cuirass import Buffer, Device, LaunchConfig, Stream, launch

from .conftest import child, driver_version

driver = pytest.importorskip("cuda.bindings.driver")


def ok(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]


def create_context():
    """A context of theirs, which is current then."""
    if driver_version() >= (12, 5):
        return int(ok(driver.cuCtxCreate(None, 0, 0)))
    # cuda.bindings calls it as it is from CUDA 12.5 on; an older driver has others of the name.
    path, _, _ = cuirass._cuirass._loaded_driver()
    context = ctypes.c_void_p()
    assert ctypes.CDLL(path).cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    return context.value


def test_handles_are_its_objects(device, stream, code):
    event = stream.record()
    assert type(stream.handle) is driver.CUstream
    assert type(event.handle) is driver.CUevent
    assert type(device.context.handle) is driver.CUcontext
    assert type(device.memory_resource.handle) is driver.CUmemoryPool
    assert type(code.get_kernel("add").handle) is driver.CUkernel
    assert type(code.handle) is driver.CUlibrary
    assert type(code.get_module()) is driver.CUmodule


def test_ours_in_theirs(device, stream):
    event = stream.record()
    ok((driver.cuStreamWaitEvent(stream.handle, event.handle, 0)[0], None))
    ok((driver.cuStreamSynchronize(stream.handle)[0], None))
    assert ok(driver.cuStreamGetPriority(stream.handle)) == stream.priority
    buffer = device.allocate(64, stream=stream)
    ok((driver.cuMemsetD8Async(buffer.handle, 7, 64, stream.handle)[0], None))
    host = bytearray(64)
    ok((driver.cuStreamSynchronize(stream.handle)[0], None))
    ok((driver.cuMemcpyDtoH(host, buffer.handle, 64)[0], None))
    assert bytes(host) == b"\7" * 64


def test_theirs_in_ours(device, code, pinned):
    theirs = ok(driver.cuStreamCreate(1))
    stream = Stream.from_handle(theirs)
    assert stream.device is device and stream.context == device.context and stream.is_nonblocking
    memory, view = pinned(64, "i")
    address = ok(driver.cuMemAlloc(64))
    buffer = Buffer.from_handle(address, 64, owner=address)
    buffer.fill(0, stream=stream)
    launch(stream, LaunchConfig(grid=1, block=16), code.get_kernel("add"), buffer, 16, 9)
    buffer.copy_to(memory, stream=stream)
    stream.sync()
    assert view.tolist() == [9] * 16
    stream.close()
    buffer.close()
    ok((driver.cuMemFree(address)[0], None))
    ok((driver.cuStreamDestroy(theirs)[0], None))


def test_their_context_is_kept_current(device, census):
    theirs = create_context()
    try:
        assert int(ok(driver.cuCtxGetCurrent())) == theirs
        # What the device makes is the device's own, and the caller's context stays.
        stream = device.create_stream()
        assert stream.context == device.context
        buffer = device.allocate(64, stream=stream)
        buffer.close()
        stream.close()
        del stream, buffer
        device.sync()
        assert int(ok(driver.cuCtxGetCurrent())) == theirs
        with device:
            assert int(ok(driver.cuCtxGetCurrent())) == int(device.context.handle)
        assert int(ok(driver.cuCtxGetCurrent())) == theirs
        assert Device() is device
    finally:
        ok((driver.cuCtxDestroy(theirs)[0], None))
    device.set_current()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_stack_below_the_top_is_kept(device, depth):
    device.set_current()
    pushed = []
    for _ in range(depth):
        pushed.append(create_context())
    device.set_current()
    device.set_current(device.context)
    assert int(ok(driver.cuCtxGetCurrent())) == int(device.context.handle)
    below = []
    for _ in range(depth):
        ok(driver.cuCtxPopCurrent())
        below.append(int(ok(driver.cuCtxGetCurrent())))
    wanted = pushed[:-1][::-1] + ([int(device.context.handle)] if depth else [])
    assert below == wanted
    device.set_current()
    for context in pushed:
        ok((driver.cuCtxDestroy(context)[0], None))
    device.set_current()


def test_without_the_package_handles_are_numbers():
    result = child(
        """
import sys
sys.modules["cuda.bindings"] = None
import cuirass
device = cuirass.Device(0)
stream = device.create_stream()
print(type(stream.handle).__name__, type(stream.record().handle).__name__, stream.handle == stream.__cuda_stream__()[1])
assert cuirass.Stream.from_handle(stream.handle) == stream
"""
    )
    assert result.stdout == "int int True\n", result.stderr


def test_handle_return():
    from cuirass._utils.cuda_utils import CUDAError, NVRTCError, handle_return

    assert CUDAError is cuirass.CUDAError and NVRTCError is cuirass.NVRTCError
    assert handle_return(driver.cuDeviceGetCount()) >= 1
    assert handle_return((driver.CUresult.CUDA_SUCCESS,)) is None
    with pytest.raises(cuirass.CUDAError) as caught:
        handle_return(driver.cuDeviceGet(99))
    assert caught.value.status == 101
    assert caught.value.status.name == "CUDA_ERROR_INVALID_DEVICE"
