// f16 and bf16, single and in pairs.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halves(const float *x, const float *y, float *o, int n) {
    int i = threadIdx.x; if (i >= n) return;
    __half a = __float2half(x[i]), b = __float2half(y[i]);
    __half r = __hfma(a, b, __hadd(a, b));
    r = __hsub(r, __hmul(a, __float2half(0.5f)));
    if (__hgt(a, b)) r = __hdiv(r, __hadd(__habs(b), __float2half(1.0f)));
    r = __hmax(r, __hneg(a)); r = __hmin(r, __float2half(100.f));
    o[i] = __half2float(r) + (float)__half2int_rn(a) + __half2float(hsqrt(__habs(a))) + __half2float(hexp(__hmul(b, __float2half(0.1f))));
}
extern "C" __global__ void pairs(const float *x, const float *y, float *o, int n) {
    int i = threadIdx.x; if (i >= n) return;
    __half2 a = __floats2half2_rn(x[i], y[i]), b = __floats2half2_rn(y[i], x[i]);
    __half2 r = __hfma2(a, b, __hadd2(a, b));
    r = __hmul2(r, __float2half2_rn(0.25f));
    r = __hmax2(r, a);
    __half2 m = __hgt2(a, b);
    r = __hadd2(r, m);
    float2 f = __half22float2(r);
    o[i] = f.x - f.y;
}
extern "C" __global__ void brains(const float *x, const float *y, float *o, int n) {
    int i = threadIdx.x; if (i >= n) return;
    __nv_bfloat16 a = __float2bfloat16(x[i]), b = __float2bfloat16(y[i]);
    __nv_bfloat16 r = __hfma(a, b, __hadd(a, b));
    r = __hsub(r, __hmul(a, b));
    __nv_bfloat162 p = __floats2bfloat162_rn(x[i], y[i]);
    p = __hfma2(p, p, p);
    o[i] = __bfloat162float(r) + __low2float(p) + __high2float(p);
}
extern "C" __global__ void half_atomics(float *o, __half *h, __half2 *h2, __nv_bfloat16 *b) {
    atomicAdd(h, __float2half(1.0f));
    atomicAdd(h2, __floats2half2_rn(1.0f, 2.0f));
    atomicAdd(b, __float2bfloat16(1.0f));
}
