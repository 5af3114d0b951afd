// Saxpy, a block reduction with shared memory and atomics, a tiled matrix product, an integer loop.
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void reduce(const float *x, float *out, unsigned n) {
    __shared__ float part[256];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[16][16], tb[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    int col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        ta[y][x] = a[row * n + t + x];
        tb[y][x] = b[(t + y) * n + col];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += ta[y][k] * tb[k][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

extern "C" __global__ void collatz(unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = i + 1;
    unsigned steps = 0;
    while (v != 1) {
        v = v & 1 ? 3 * v + 1 : v / 2;
        steps++;
    }
    out[i] = steps;
}

extern "C" __global__ void mix(unsigned *out, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = i;
#pragma unroll 1
    for (unsigned k = 0; k < rounds; k++) {
        v ^= v << 13;
        v ^= v >> 17;
        v ^= v << 5;
        v += k;
    }
    out[i] = v;
}
