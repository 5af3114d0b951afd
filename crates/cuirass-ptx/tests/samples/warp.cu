// Warps and blocks together.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void shuffles(int *o) {
    int i = threadIdx.x, v = i * i;
    int r = __shfl_sync(~0u, v, (i + 5) & 31) + __shfl_up_sync(~0u, v, 3) + __shfl_down_sync(~0u, v, 2, 16) + __shfl_xor_sync(~0u, v, 9);
    o[i] = r;
}
extern "C" __global__ void votes(unsigned *o) {
    int i = threadIdx.x;
    unsigned r = __ballot_sync(~0u, i % 3 == 0);
    r ^= __all_sync(~0u, i < 1000) << 1 ^ __any_sync(~0u, i == 7) << 2;
    r += __match_any_sync(~0u, i / 4);
    int p; r ^= __match_all_sync(~0u, i / 32, &p); r += p;
    r += __reduce_add_sync(~0u, i) + __reduce_max_sync(~0u, i) + __activemask() / 3;
    r ^= __reduce_xor_sync(~0u, (unsigned)i * 77);
    o[i] = r;
}
extern "C" __global__ void block_sum(const int *x, int *o) {
    __shared__ int part[32];
    int i = threadIdx.x, v = x[blockIdx.x * blockDim.x + i];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (i % 32 == 0) part[i / 32] = v;
    __syncthreads();
    if (i < 32) {
        v = i < blockDim.x / 32 ? part[i] : 0;
        for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
        if (i == 0) o[blockIdx.x] = v;
    }
}
extern "C" __global__ void groups(int *o) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int v = block.thread_rank();
    for (int d = tile.size() / 2; d; d /= 2) v += tile.shfl_xor(v, d);
    block.sync();
    int n = 0;
    if (threadIdx.x % 3 == 0) { auto c = cg::coalesced_threads(); n = c.size() * 100 + c.thread_rank(); }
    o[threadIdx.x] = v * 10000 + n;
}
extern "C" __global__ void grid_barrier(unsigned *state, unsigned *o, int rounds) {
    for (int r = 0; r < rounds; r++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(&state[0], 1);
            while (*(volatile unsigned *)&state[0] < (r + 1) * gridDim.x) {}
            __threadfence();
            o[r * gridDim.x + blockIdx.x] = *(volatile unsigned *)&state[1];
            atomicAdd(&state[2], 1);
        }
        __syncthreads();
    }
}
extern "C" __global__ void lane_lock(int *lock, int *value) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)value += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
extern "C" __global__ void naive_lock(int *lock, int *value) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *(volatile int *)value += 1;
    __threadfence();
    atomicExch(lock, 0);
}
extern "C" __global__ void many_atomics(int *i, unsigned *u, unsigned long long *l, float *f, double *d) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(i, t); atomicSub(i + 1, t); atomicMin(i + 2, -t); atomicMax(i + 3, t); atomicXor(i + 4, t * 77); atomicOr(i + 5, 1 << (t & 31)); atomicAnd(i + 6, ~(1 << (t & 7)));
    atomicInc(u, 999); atomicDec(u + 1, 1999);
    atomicAdd(l, (unsigned long long)t << 30); atomicMax(l + 1, (unsigned long long)t * t); atomicCAS(l + 2, 0ull, 5ull);
    atomicAdd(f, 1.0f); atomicAdd(d, 0.5);
    atomicAdd_block(i + 7, 1); atomicAdd_system(i + 8, 1);
}
extern "C" __global__ void counts(const int *x, int *out, int n) {
    int i = threadIdx.x;
    int c = __syncthreads_count(x[i] > n), a = __syncthreads_and(x[i] > n), o = __syncthreads_or(x[i] > n);
    out[i] = c * 100 + (a != 0) * 10 + (o != 0);
}
