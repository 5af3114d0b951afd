// What C++ makes of functions, structs, tables and text.
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);
extern "C" __device__ int printf(const char *, ...);

struct Shape { __device__ virtual float area(float x) const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape { float k; __device__ Square(float k) : k(k) {} __device__ float area(float x) const override { return x * x * k; } };
struct Line : Shape { __device__ float area(float x) const override { return x - 1; } };

struct Big { int a[10]; double d; char c; };

__constant__ float coefficients[4] = {1, 2, 3, 4};
__device__ int table[3] = {1, 2, 3};
__device__ int *into_table = &table[1];
__device__ float counter = 2.5f;

__device__ __noinline__ Big change(Big b, int i) { b.a[i] += 1; b.d *= 2; b.c ^= 1; return b; }
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ int increment(int x) { return x + 1; }
__device__ int twice(int x) { return x * 2; }
__device__ int square(int x) { return x * x; }
typedef int (*Function)(int);
__device__ Function functions[3] = {increment, twice, square};

extern "C" __global__ void virtuals(float *out) {
    int i = threadIdx.x;
    Square a(i); Line b;
    const Shape *p = i % 3 ? (const Shape *)&a : (const Shape *)&b;
    out[i] = p->area(i * 0.5f);
}

extern "C" __global__ void structs(double *out, Big b, int n) {
    int i = threadIdx.x;
    Big r = change(change(b, i % 10), (i + 1) % 10);
    out[i] = r.a[n % 10] + 100 * r.a[i % 10] + r.d + r.c;
}

extern "C" __global__ void recursion(int *out) { out[threadIdx.x] = fib(threadIdx.x % 12); }

extern "C" __global__ void pointers(int *out) {
    int i = threadIdx.x;
    out[i] = functions[i % 3](i) + *into_table + (int)coefficients[i & 3];
}

__device__ __noinline__ int choose(int v, int x) {
    switch (v) {
    case 0: return x + 11;
    case 1: return x * 3;
    case 2: return x ^ 0x55;
    case 3: return x / 7;
    case 4: return x % 9;
    case 5: return -x;
    case 6: return x << 3;
    case 7: return x >> 1;
    case 8: return 42;
    default: return 7;
    }
}
extern "C" __global__ void switches(int *out) { int i = threadIdx.x; out[i] = choose(i % 10, i); }

extern "C" __global__ void dynamic_shared(double *out) {
    extern __shared__ double scratch[];
    int i = threadIdx.x;
    scratch[i] = i * 1.5;
    __syncthreads();
    out[i] = scratch[blockDim.x - 1 - i] + counter;
}

extern "C" __global__ void prints(int n) {
    int i = threadIdx.x;
    if (i == 1) printf("hello %d from %s: %5.2f|%-6d|%06d|%x|%c|%llu|%%|%e|%g\n", n, "thread one", 3.14159, 42, -42, 255, 'z', 1ull << 40, 12345.678, 0.0001);
    if (i == 2) printf("plain\n");
}

extern "C" __global__ void asserts(int n) {
    if (threadIdx.x == n) __assertfail("n > 0", "features.cu", 77, "asserts", 1);
}

extern "C" __global__ void traps(int n) { if (threadIdx.x == n) __trap(); }

extern "C" __global__ void local_arrays(int *out, int n) {
    int values[32];
    int i = threadIdx.x;
    for (int k = 0; k < n; k++) values[(k * 7 + i) & 31] = k * i;
    int sum = 0;
    for (int k = 0; k < n; k++) sum += values[k] * (k + 1);
    out[i] = sum;
}

extern "C" __global__ void heap(unsigned *out) {
    unsigned i = threadIdx.x;
    unsigned *p = (unsigned *)malloc(16);
    if (!p) { out[i] = 0; return; }
    p[0] = i; p[3] = i * i;
    out[i] = p[0] + p[3];
    free(p);
}

extern "C" __global__ void fixed(const __grid_constant__ Big b, int *out) {
    const int *p = b.a;
    out[threadIdx.x] = p[(threadIdx.x * 3) % 10];
}

extern "C" __global__ void wild(int *p, long long offset) { if (threadIdx.x == 5) p[offset] = 1; }
extern "C" __global__ void crooked(char *p) { if (threadIdx.x == 3) *(int *)(p + 2) = 1; }
extern "C" __global__ void spin(volatile int *p) { while (*p == 0) {} }

template <typename T> __device__ T sum(const T *v, int n) { T s = 0; for (int i = 0; i < n; i++) s += v[i]; return s; }
extern "C" __global__ void templates(const int *a, const double *b, double *out, int n) {
    out[threadIdx.x] = sum(a + threadIdx.x, n) + sum(b + threadIdx.x, n);
}
