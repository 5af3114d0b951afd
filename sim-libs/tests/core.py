"""cuda.core, as it comes from PyPI, on the simulated driver: its own way of compiling, launching and copying.

Run with the folder of the simulated libcuda.so.1 first in LD_LIBRARY_PATH; needs cuda-core, cuda-bindings, numpy and
nvidia-cuda-nvrtc. PTX is asked for, because the simulated device's native code is PTX.
"""

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

SOURCE = """
template<typename T>
__global__ void saxpy(const T a, const T *x, const T *y, T *out, size_t n) {
    const unsigned int tid = threadIdx.x + blockIdx.x * blockDim.x;
    for (size_t i = tid; i < n; i += gridDim.x * blockDim.x) out[i] = a * x[i] + y[i];
}
"""


def main():
    device = Device()
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    program = Program(SOURCE, code_type="c++", options=options)
    code = program.compile("ptx", name_expressions=("saxpy<float>", "saxpy<double>"))
    for dtype, name, n in ((np.float32, "saxpy<float>", 10_000), (np.float64, "saxpy<double>", 4_321)):
        kernel = code.get_kernel(name)
        random = np.random.default_rng(3)
        x, y = (random.random(n).astype(dtype) for _ in range(2))
        out = np.zeros(n, dtype=dtype)
        pool, pinned = device.memory_resource, LegacyPinnedMemoryResource()
        buffers = [pool.allocate(x.nbytes, stream=stream) for _ in range(3)]
        staging = [pinned.allocate(x.nbytes, stream=stream) for _ in range(3)]
        for stage, values in zip(staging, (x, y, out), strict=True):
            np.from_dlpack(stage).view(dtype)[:] = values
        buffers[0].copy_from(staging[0], stream=stream)
        buffers[1].copy_from(staging[1], stream=stream)
        config = LaunchConfig(grid=32, block=256)
        launch(stream, config, kernel, dtype(2), buffers[0], buffers[1], buffers[2], np.uint64(n))
        buffers[2].copy_to(staging[2], stream=stream)
        stream.sync()
        result = np.from_dlpack(staging[2]).view(dtype)
        assert np.allclose(result, 2 * x + y), name
        for buffer in buffers + staging:
            buffer.close(stream)
    event = stream.record()
    event.sync()
    stream.close()
    print("cuda.core on the simulated driver: fine")


main()
