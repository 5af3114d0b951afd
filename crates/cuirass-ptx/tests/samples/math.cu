// The math library as NVRTC inlines it.
#define F1(name) extern "C" __global__ void f_##name(const float *x, float *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = name(x[i]); }
#define D1(name) extern "C" __global__ void d_##name(const double *x, double *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = name(x[i]); }
F1(sinf) F1(cosf) F1(tanf) F1(expf) F1(exp2f) F1(logf) F1(log2f) F1(log10f) F1(sqrtf) F1(cbrtf) F1(atanf) F1(tanhf) F1(sinhf) F1(erff) F1(floorf) F1(ceilf) F1(roundf) F1(truncf) F1(rintf) F1(fabsf) F1(rsqrtf) F1(expm1f) F1(log1pf) F1(asinhf) F1(tgammaf) F1(lgammaf)
D1(sin) D1(cos) D1(tan) D1(exp) D1(log) D1(log2) D1(sqrt) D1(cbrt) D1(atan) D1(tanh) D1(erf) D1(floor) D1(ceil) D1(round) D1(rsqrt) D1(expm1) D1(log1p) D1(j0) D1(normcdf)
extern "C" __global__ void f_powf(const float *x, float *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = powf(fabsf(x[i]), 1.7f); }
extern "C" __global__ void d_pow(const double *x, double *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = pow(fabs(x[i]), 1.7); }
extern "C" __global__ void d_fmod(const double *x, double *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = fmod(x[i], 0.7); }
extern "C" __global__ void d_atan2(const double *x, double *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = atan2(x[i], 1.5); }
extern "C" __global__ void d_div(const double *x, double *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = 1.0 / x[i]; }
extern "C" __global__ void integers(const int *a, const int *b, long long *o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    unsigned long long u = x * 0x9e3779b97f4a7c15ull, v = y * 0xbf58476d1ce4e5b9ull;
    long long r = 0;
    if (b[i]) r += a[i] / b[i] + a[i] % b[i];
    if (y) r ^= (x * 1000003) / y + (x * 1000003) % y;
    r ^= __umul64hi(u, v) + __mul64hi((long long)u, (long long)v);
    r += __popc(a[i]) + __clz(b[i]) + __ffs(a[i]) + __popcll(u) + __clzll(v) + __ffsll(u);
    r ^= (long long)__brev(a[i]) << 7 ^ __brevll(v);
    r += __byte_perm(a[i], b[i], 0x3715) + __funnelshift_l(a[i], b[i], 13) + __funnelshift_rc(a[i], b[i], 40);
    r += __sad(a[i], b[i], 5) + __mulhi(a[i], b[i]) + __hadd(a[i], b[i]) + __rhadd(a[i], b[i]);
    o[i] = r;
}
