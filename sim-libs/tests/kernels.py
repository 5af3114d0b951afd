"""What NVRTC makes of CUDA C++ that asks the driver for something: printf, malloc, assert, faults, fences.

Run with the folder of the simulated libcuda.so.1 first in LD_LIBRARY_PATH; needs cuda-bindings, numpy and
nvidia-cuda-nvrtc. Each part runs in a process of its own, because a kernel's fault stays with its context.
"""

import ctypes
import subprocess
import sys

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" {
int printf(const char *, ...);
__global__ void say(int n) { printf("%d of %s: %.2f\\n", (int)threadIdx.x, "three", n / 2.0); }
__global__ void heap(int *sum, int n) {
    int *mine = (int *)malloc(n * sizeof(int));
    if (!mine) { atomicAdd(sum + 1, 1); return; }
    for (int i = 0; i < n; i++) mine[i] = i;
    int total = 0;
    for (int i = 0; i < n; i++) total += mine[i];
    free(mine);
    atomicAdd(sum, total);
}
__global__ void insist(int x) { assert(x == 3); }
__global__ void wild(int *p) { p[threadIdx.x * 1000] = 1; }
__global__ void scan(const int *in, int *out, int n) {
    __shared__ int warps[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = i < n ? in[i] : 0;
    for (int d = 1; d < 32; d *= 2) { int t = __shfl_up_sync(~0u, v, d); if (lane >= d) v += t; }
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int w = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (int d = 1; d < 32; d *= 2) { int t = __shfl_up_sync(~0u, w, d); if (lane >= d) w += t; }
        warps[lane] = w;
    }
    __syncthreads();
    if (warp > 0) v += warps[warp - 1];
    if (i < n) out[i] = v;
}
__device__ unsigned arrived;
__global__ void last(const float *in, float *partial, float *result, int n) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    __shared__ bool am_last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        am_last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (am_last && threadIdx.x == 0) {
        float all = 0;
        for (int b = 0; b < gridDim.x; b++) all += ((volatile float *)partial)[b];
        *result = all;
    }
}
}
"""


def ok(answer):
    status, *values = answer
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else tuple(values)


def ptx():
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"k.cu", 0, [], []))
    options = [b"--gpu-architecture=compute_90"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
    if int(status) != 0:
        log = b" " * ok(nvrtc.nvrtcGetProgramLogSize(program))
        ok(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    text = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, text))
    return text


class Machine:
    def __init__(self):
        ok(driver.cuInit(0))
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
        self.image = np.frombuffer(ptx(), dtype=np.uint8)
        self.module = ok(driver.cuModuleLoadData(self.image.ctypes.data))

    def launch(self, name, grid, block, *arguments):
        types = tuple(None if not isinstance(a, int) else ctypes.c_int for a in arguments)
        function = ok(driver.cuModuleGetFunction(self.module, name.encode()))
        ok(driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, 0, (arguments, types), 0))

    def upload(self, values):
        p = ok(driver.cuMemAlloc(values.nbytes))
        ok(driver.cuMemcpyHtoD(p, values.ctypes.data, values.nbytes))
        return p

    def download(self, p, values):
        ok(driver.cuMemcpyDtoH(values.ctypes.data, p, values.nbytes))
        return values


def say(m):
    m.launch("say", 1, 3, 7)
    ok(driver.cuCtxSynchronize())


def heap(m):
    sums = m.upload(np.zeros(2, dtype=np.int32))
    m.launch("heap", 4, 64, sums, 100)
    assert list(m.download(sums, np.zeros(2, dtype=np.int32))) == [4 * 64 * 4950, 0]
    sums = m.upload(np.zeros(2, dtype=np.int32))
    m.launch("heap", 1, 1, sums, 1 << 22)
    assert list(m.download(sums, np.zeros(2, dtype=np.int32))) == [0, 1], "16 MiB do not fit a heap of 8 MiB"


def insist(m):
    m.launch("insist", 2, 32, 3)
    ok(driver.cuCtxSynchronize())
    m.launch("insist", 2, 32, 4)
    assert driver.cuCtxSynchronize()[0] == driver.CUresult.CUDA_ERROR_ASSERT


def wild(m):
    p = m.upload(np.zeros(1500, dtype=np.int32))
    m.launch("wild", 1, 2, p)
    assert driver.cuCtxSynchronize()[0] == driver.CUresult.CUDA_SUCCESS
    m.launch("wild", 1, 3, p)
    assert driver.cuCtxSynchronize()[0] == driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert driver.cuMemAlloc(16)[0] == driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS


def scan(m):
    values = np.random.default_rng(2).integers(-100, 100, 1024 * 50, dtype=np.int32)
    out = m.upload(np.zeros_like(values))
    m.launch("scan", 50, 1024, m.upload(values), out, len(values))
    sums = m.download(out, np.zeros_like(values)).reshape(50, 1024)
    assert np.array_equal(sums, values.reshape(50, 1024).cumsum(axis=1))


def last(m):
    values = np.ones(100_000, dtype=np.float32)
    result = m.upload(np.zeros(1, dtype=np.float32))
    for _ in range(3):
        m.launch("last", 40, 32, m.upload(values), m.upload(np.zeros(40, dtype=np.float32)), result, len(values))
        assert m.download(result, np.zeros(1, dtype=np.float32))[0] == 100_000


PARTS = {part.__name__: part for part in (say, heap, insist, wild, scan, last)}
WORDS = {"say": ["0 of three: 3.50\n1 of three: 3.50\n2 of three: 3.50"], "wild": ["thread (2,0,0)", "cuMemAlloc_v2"]}

if len(sys.argv) > 1:
    PARTS[sys.argv[1]](Machine())
else:
    for name in PARTS:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{name}: {said}"
        for word in WORDS.get(name, []):
            assert word in said, f"{name}: {word!r} is not in {said}"
    print("CUDA C++ on the simulated driver: fine")
