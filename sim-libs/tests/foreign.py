"""A driver sequence of NVIDIA's own bindings (cuda-bindings from PyPI) on the simulated driver.

The folder with the simulated libcuda.so.1 must come first on the loader's path:

    LD_LIBRARY_PATH=FOLDER python sim-libs/tests/foreign.py
"""

import ctypes
import time

from cuda.bindings import driver

PTX = rb"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 to, .param .u32 value, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<7>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    ld.param.u32 %r2, [count];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r3, %r3, %r4, %r5;
    setp.ge.u32 %p, %r3, %r2;
    @%p bra DONE;
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    add.u32 %r6, %r6, %r1;
    st.global.u32 [%rd3], %r6;
DONE:
    ret;
}
"""


def ok(answer):
    """The values of a call that must succeed."""
    status, *values = answer
    assert status == driver.CUresult.CUDA_SUCCESS, status
    return values[0] if len(values) == 1 else values


def start():
    """Initialisation, the device, its primary context."""
    ok(driver.cuInit(0))
    assert ok(driver.cuDriverGetVersion()) >= 12000
    assert ok(driver.cuDeviceGetCount()) >= 1
    device = ok(driver.cuDeviceGet(0))
    name = ok(driver.cuDeviceGetName(128, device))
    major = ok(
        driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device
        )
    )
    print("device", name.split(b"\0")[0].decode(), "of compute capability", major)
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    return device


def kernel(stream):
    """Memory, copies, a kernel from PTX, its result."""
    count = 1000
    there = ok(driver.cuMemAlloc(4 * count))
    host = (ctypes.c_uint32 * count)(*range(count))
    ok(driver.cuMemcpyHtoDAsync(there, ctypes.addressof(host), 4 * count, stream))
    module = ok(driver.cuModuleLoadData(PTX))
    function = ok(driver.cuModuleGetFunction(module, b"add"))
    threads = 128
    blocks = (count + threads - 1) // threads
    values = ((int(there), 5, count), (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32))
    start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(start, stream))
    ok(driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, values, 0))
    ok(driver.cuEventRecord(end, stream))
    back = (ctypes.c_uint32 * count)()
    ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(back), there, 4 * count, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert list(back) == [at + 5 for at in range(count)]
    print("kernel", ok(driver.cuEventElapsedTime(start, end)), "ms")
    ok(driver.cuMemsetD32(there, 7, count))
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), there, 4 * count))
    assert set(back) == {7}
    pooled = ok(driver.cuMemAllocAsync(1 << 20, stream))
    ok(driver.cuMemFreeAsync(pooled, stream))
    ok(driver.cuModuleUnload(module))
    ok(driver.cuMemFree(there))
    for event in (start, end):
        ok(driver.cuEventDestroy(event))


def callback(stream):
    """A host function, in stream order."""
    ran = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: (time.sleep(0.02), ran.append(data)))
    ok(driver.cuLaunchHostFunc(stream, driver.CUhostFn(_ptr=ctypes.addressof(function)), 42))
    assert driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    ok(driver.cuStreamSynchronize(stream))
    assert ran == [42], ran


def capture(stream):
    """Capture, and the graph that it gives."""
    there = ok(driver.cuMemAlloc(64))
    ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    ok(driver.cuMemsetD8Async(there, 9, 64, stream))
    graph = ok(driver.cuStreamEndCapture(stream))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    back = (ctypes.c_uint8 * 64)()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), there, 64))
    assert set(back) == {0}
    ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), there, 64))
    assert set(back) == {9}
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))
    ok(driver.cuMemFree(there))


def refusals():
    """What the driver refuses, as NVIDIA's bindings see it."""
    assert driver.cuDeviceGet(99)[0] == driver.CUresult.CUDA_ERROR_INVALID_DEVICE
    assert ok(driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_INVALID_DEVICE)) == b"CUDA_ERROR_INVALID_DEVICE"
    assert driver.cuMemAlloc(0)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    assert driver.cuCtxGetApiVersion(0)[0] == driver.CUresult.CUDA_SUCCESS


def main():
    device = start()
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    callback(stream)
    kernel(stream)
    capture(stream)
    refusals()
    ok(driver.cuStreamDestroy(stream))
    ok(driver.cuDevicePrimaryCtxRelease(device))
    print("all well")


main()
