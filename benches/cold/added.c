// What the driver calls cost that cuirass makes beside those of the C floor (floor.c): each case as the floor has it, and
// with some more calls. A line each: what it is, its median over the floor in ns, and in brackets the floor by itself.
//   gcc -O2 -I/usr/local/cuda/include added.c -o added -L/usr/local/cuda/lib64/stubs -lcuda && ./added CUBIN
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define CK(x) do { CUresult r_ = (x); if (r_) { fprintf(stderr, "%s: %d\n", #x, (int)r_); exit(1); } } while (0)
enum { CURRENT = 1, INFO = 2, CAPTURING = 4, EXCHANGE = 8, PARAMS = 16, LIBRARY = 32 };
static CUcontext c; static CUstream s; static CUmemoryPool p; static CUfunction k2, l2; static CUgraphExec graphs[2]; static CUdeviceptr x; static int n5 = 5; static void* a2[2];
static CUlaunchConfig cfg;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
static void current(int with) { CUcontext c_; if (with & CURRENT) CK(cuCtxGetCurrent(&c_)); }
static void info(int with, CUstream s_) {
  CUstreamCaptureStatus now_; cuuint64_t id;
  if (with & INFO) CK(cuStreamGetCaptureInfo_v3(s_, &now_, &id, 0, 0, 0, 0));
}
static void capturing(int with, CUstream s_) { CUstreamCaptureStatus now_; if (with & CAPTURING) CK(cuStreamIsCapturing(s_, &now_)); }
static CUstreamCaptureMode exchange(int with, CUstreamCaptureMode mode) { if (with & EXCHANGE) CK(cuThreadExchangeStreamCaptureMode(&mode)); return mode; }

static void stream(int with) {
  CUstream t; current(with); CK(cuStreamCreateWithPriority(&t, CU_STREAM_NON_BLOCKING, 0)); capturing(with, t); CK(cuStreamDestroy(t));
}
static void event(int with) { CUevent t; current(with); CK(cuEventCreate(&t, CU_EVENT_DISABLE_TIMING)); CK(cuEventDestroy(t)); }
static void alloc(int with) {
  CUdeviceptr q; CK(cuMemAllocFromPoolAsync(&q, 256, p, s));
  CUstreamCaptureMode before = exchange(with, CU_STREAM_CAPTURE_MODE_RELAXED); CK(cuMemFreeAsync(q, s)); exchange(with, before);
}
static void capture(int with) {
  CUgraph g; CUgraphExec e; CUstream cs; CUlaunchConfig l = cfg;
  current(with); CK(cuStreamCreateWithPriority(&cs, CU_STREAM_NON_BLOCKING, 0)); l.hStream = cs;
  CK(cuStreamBeginCapture(cs, CU_STREAM_CAPTURE_MODE_RELAXED)); info(with, cs);
  for (int j = 0; j < 10; j++) CK(cuLaunchKernelEx(&l, with & LIBRARY ? l2 : k2, a2, 0));
  info(with, cs); CK(cuStreamEndCapture(cs, &g));
  current(with);
  if (with & PARAMS) { CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0}; CK(cuGraphInstantiateWithParams(&e, g, &parameters)); }
  else CK(cuGraphInstantiateWithFlags(&e, g, 0));
  CK(cuGraphDestroy(g));
  current(with); CUstreamCaptureMode before = exchange(with, CU_STREAM_CAPTURE_MODE_RELAXED); CK(cuGraphExecDestroy(e)); exchange(with, before);
  capturing(with, cs); CK(cuStreamDestroy(cs));
}

static void launch(int with) { CK(cuLaunchKernelEx(&cfg, with & LIBRARY ? l2 : k2, a2, 0)); }
static void graph_launch(int with) { CK(cuGraphLaunch(graphs[with & LIBRARY ? 1 : 0], s)); }
static void make_graph(int at) {
  CUgraph g; CUstream cs; CUlaunchConfig l = cfg; CK(cuStreamCreateWithPriority(&cs, CU_STREAM_NON_BLOCKING, 0)); l.hStream = cs;
  CK(cuStreamBeginCapture(cs, CU_STREAM_CAPTURE_MODE_RELAXED)); for (int j = 0; j < 10; j++) CK(cuLaunchKernelEx(&l, at ? l2 : k2, a2, 0)); CK(cuStreamEndCapture(cs, &g));
  CK(cuGraphInstantiateWithFlags(&graphs[at], g, 0)); CK(cuGraphDestroy(g)); CK(cuStreamDestroy(cs)); CK(cuGraphLaunch(graphs[at], s));
}

static int in_order(const void* a, const void* b) { double d = *(double*)a - *(double*)b; return d < 0 ? -1 : d > 0; }
static double median(double* v, int n) { qsort(v, n, sizeof *v, in_order); return v[n / 2]; }
static double once(void (*f)(int), int with, int n) { CK(cuStreamSynchronize(s)); double t = now(); for (int i = 0; i < n; i++) f(with); return (now() - t) / n; }
static void row(const char* what, void (*f)(int), int with, int n) {
  enum { TURNS = 31 }; static double floors[TURNS], over[TURNS]; once(f, with, n / 4 + 1);
  for (int i = 0; i < TURNS; i++) {
    // Either goes first in turn.
    double more = i % 2 ? once(f, with, n) : 0; floors[i] = once(f, 0, n); if (!(i % 2)) more = once(f, with, n);
    over[i] = more - floors[i];
  }
  double m = median(over, TURNS); printf("%-58s %+8.0f (%.0f)\n", what, m, median(floors, TURNS));
}
int main(int argc, char** argv) {
  CUdevice d; CUmodule m; CUlibrary l; CUkernel k; (void)argc;
  CK(cuInit(0)); CK(cuDeviceGet(&d, 0)); CK(cuDevicePrimaryCtxRetain(&c, d)); CK(cuCtxSetCurrent(c));
  CK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0)); CK(cuModuleLoad(&m, argv[1])); CK(cuModuleGetFunction(&k2, m, "k2"));
  CK(cuLibraryLoadFromFile(&l, argv[1], 0, 0, 0, 0, 0, 0)); CK(cuLibraryGetKernel(&k, l, "k2")); CK(cuKernelGetFunction(&l2, k));
  CK(cuDeviceGetMemPool(&p, d)); cuuint64_t th = ~0ull; CK(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &th));
  CK(cuMemAllocFromPoolAsync(&x, 1 << 20, p, s)); a2[0] = &x; a2[1] = &n5;
  cfg.gridDimX = cfg.gridDimY = cfg.gridDimZ = 1; cfg.blockDimX = 32; cfg.blockDimY = cfg.blockDimZ = 1; cfg.hStream = s;
  row("event create + close, nothing more", event, 0, 1000);
  row("event create + close, cuCtxGetCurrent", event, CURRENT, 1000);
  row("stream create + close, nothing more", stream, 0, 300);
  row("stream create + close, cuCtxGetCurrent", stream, CURRENT, 300);
  row("stream create + close, cuStreamIsCapturing", stream, CAPTURING, 300);
  row("alloc + free, nothing more", alloc, 0, 1000);
  row("alloc + free, cuThreadExchangeStreamCaptureMode twice", alloc, EXCHANGE, 1000);
  make_graph(0); make_graph(1);
  row("launch, nothing more", launch, 0, 400);
  row("launch, of a library's function", launch, LIBRARY, 400);
  row("graph launch of 10, nothing more", graph_launch, 0, 300);
  row("graph launch of 10, of a library's function", graph_launch, LIBRARY, 300);
  row("capture of 10, of a library's function", capture, LIBRARY, 40);
  row("capture of 10, nothing more", capture, 0, 40);
  row("capture of 10, cuCtxGetCurrent three times", capture, CURRENT, 40);
  row("capture of 10, cuStreamGetCaptureInfo twice", capture, INFO, 40);
  row("capture of 10, cuStreamIsCapturing", capture, CAPTURING, 40);
  row("capture of 10, cuThreadExchangeStreamCaptureMode twice", capture, EXCHANGE, 40);
  row("capture of 10, cuGraphInstantiateWithParams", capture, PARAMS, 40);
  row("capture of 10, all of these", capture, CURRENT | INFO | CAPTURING | EXCHANGE | PARAMS, 40);
  return 0;
}
