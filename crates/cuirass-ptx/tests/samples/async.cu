// Barriers in shared memory and copies that need not be waited for at once.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline_primitives.h>
namespace cg = cooperative_groups;
extern "C" __global__ void barriers(const int *x, int *o, int rounds) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int part[128];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    int v = x[threadIdx.x];
    for (int r = 0; r < rounds; r++) {
        part[threadIdx.x] = v;
        auto token = bar.arrive();
        bar.wait(cuda::std::move(token));
        v += part[(threadIdx.x + 1) % blockDim.x];
        bar.arrive_and_wait();
    }
    o[threadIdx.x] = v;
}
extern "C" __global__ void copies(const int4 *x, int4 *o) {
    __shared__ int4 buffer[2][64];
    __pipeline_memcpy_async(&buffer[0][threadIdx.x], &x[threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_memcpy_async(&buffer[1][threadIdx.x], &x[threadIdx.x + 64], 16, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    o[threadIdx.x] = buffer[0][63 - threadIdx.x];
    o[threadIdx.x + 64] = buffer[1][63 - threadIdx.x];
}
extern "C" __global__ void groups(const int *x, int *o) {
    __shared__ int buffer[128];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, buffer, x, sizeof(int) * 128);
    cg::wait(block);
    o[threadIdx.x] = buffer[127 - threadIdx.x];
}
