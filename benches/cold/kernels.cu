// The two kernels of bench.py that cold.c launches.
extern "C" __global__ void k0() {}
extern "C" __global__ void k2(float* x, int n) { if (n < 0) x[0] = 1; }
