"""cuda.bindings, which knows nothing of cuirass, on the simulated driver: NVRTC's PTX, memory of all kinds, launches.

Run with the folder of the simulated libcuda.so.1 first in LD_LIBRARY_PATH; needs cuda-bindings, numpy and
nvidia-cuda-nvrtc.
"""

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void saxpy(float a, const float *x, const float *y, float *out, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
__device__ int counter = 5;
__constant__ float factor[2] = {2.0f, 3.0f};
extern "C" __global__ void count(float *out) {
    atomicAdd(&counter, 1);
    out[threadIdx.x] = factor[threadIdx.x & 1];
}
extern "C" __global__ void __launch_bounds__(64) reversed(int *data) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
"""


def ok(answer):
    """The value of a call that must succeed."""
    status, *values = answer
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else tuple(values)


def ptx(arch=90):
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"test.cu", 0, [], []))
    options = [f"--gpu-architecture=compute_{arch}".encode()]
    status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
    if int(status) != 0:
        log = b" " * ok(nvrtc.nvrtcGetProgramLogSize(program))
        ok(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    text = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, text))
    ok(nvrtc.nvrtcDestroyProgram(program))
    return text


def main():
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    stream = ok(driver.cuStreamCreate(1))
    image = np.frombuffer(ptx(), dtype=np.uint8)
    library = ok(driver.cuLibraryLoadData(image.ctypes.data, [], [], 0, [], [], 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"saxpy"))
    assert ok(driver.cuLibraryGetKernelCount(library)) == 3
    assert ok(driver.cuKernelGetParamInfo(kernel, 4)) == (32, 8)

    # saxpy
    n = 1 << 20
    x, y = np.random.default_rng(1).random((2, n), dtype=np.float32)
    out = np.zeros(n, dtype=np.float32)
    dx, dy, dout = (ok(driver.cuMemAllocAsync(x.nbytes, stream)) for _ in range(3))
    ok(driver.cuMemcpyHtoDAsync(dx, x.ctypes.data, x.nbytes, stream))
    ok(driver.cuMemcpyHtoDAsync(dy, y.ctypes.data, y.nbytes, stream))
    values = (np.float32(2.5), int(dx), int(dy), int(dout), n)
    types = (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function = driver.CUfunction(int(kernel))
    ok(driver.cuLaunchKernel(function, (n + 255) // 256, 1, 1, 256, 1, 1, 0, stream, (values, types), 0))
    ok(driver.cuMemcpyDtoHAsync(out.ctypes.data, dout, out.nbytes, stream))
    ok(driver.cuStreamSynchronize(stream))
    # The kernel rounds once where numpy rounds twice.
    assert np.allclose(out, 2.5 * x + y, rtol=1e-6)
    for memory in (dx, dy, dout):
        ok(driver.cuMemFreeAsync(memory, stream))

    # Variables
    count = ok(driver.cuLibraryGetKernel(library, b"count"))
    function = ok(driver.cuKernelGetFunction(count))
    small = ok(driver.cuMemAlloc(4 * 64))
    ok(driver.cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, ((small,), (None,)), 0))
    ok(driver.cuStreamSynchronize(stream))
    address, size = ok(driver.cuLibraryGetGlobal(library, b"counter"))
    value = np.zeros(1, dtype=np.int32)
    assert size == 4
    ok(driver.cuMemcpyDtoH(value.ctypes.data, address, 4))
    assert value[0] == 5 + 128, value
    back = np.zeros(64, dtype=np.float32)
    ok(driver.cuMemcpyDtoH(back.ctypes.data, small, back.nbytes))
    assert np.array_equal(back, np.tile(np.float32([2, 3]), 32))

    # Shared memory, managed memory, launch bounds, occupancy
    reverse = ok(driver.cuKernelGetFunction(ok(driver.cuLibraryGetKernel(library, b"reversed"))))
    managed = ok(driver.cuMemAllocManaged(4 * 64, 1))
    view = np.ctypeslib.as_array((ctypes.c_int * 64).from_address(int(managed)))
    view[:] = np.arange(64)
    ok(driver.cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 256, stream, ((managed,), (None,)), 0))
    ok(driver.cuStreamSynchronize(stream))
    assert np.array_equal(view, np.arange(63, -1, -1))
    status = driver.cuLaunchKernel(reverse, 1, 1, 1, 128, 1, 1, 256, stream, ((managed,), (None,)), 0)[0]
    assert status == driver.CUresult.CUDA_ERROR_INVALID_VALUE, status
    most_threads = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert ok(driver.cuFuncGetAttribute(most_threads, reverse)) == 64
    assert ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(reverse, 64, 256)) == 32
    assert ok(driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, managed))

    ok(driver.cuMemFree(managed))
    ok(driver.cuMemFree(small))
    ok(driver.cuLibraryUnload(library))
    ok(driver.cuStreamDestroy(stream))
    ok(driver.cuDevicePrimaryCtxRelease(device))
    print("cuda.bindings on the simulated driver: fine")


main()
