// What cuGraphExecDestroy answers while a stream is captured, and on a thread without the graph's context: a line each.
//   gcc -O2 -pthread -I/usr/local/cuda/include measure_exec_destroy.c -o exec_destroy -L/usr/local/cuda/lib64/stubs -lcuda
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define CK(x) do { CUresult r_ = (x); if (r_) { fprintf(stderr, "%s: %d\n", #x, (int)r_); exit(1); } } while (0)
static CUdevice d; static CUcontext c, other; static CUstream s, cs; static CUfunction k; static CUdeviceptr x;
static const char* PTX = ".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n";
enum { KERNELS, COPIES, HOST, MEMORY, CHILD, KINDS };
static const char* NAMES[] = {"kernels", "copies and fills", "a host function", "memory", "a child graph"};
static void CUDA_CB nothing(void* data) { (void)data; }

static CUgraph captured(int kind) {
  CUgraph g; CUstream t; void* a[1] = {&x}; CK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING)); CK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 10; i++) CK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, t, a, 0));
  if (kind == COPIES) { CK(cuMemsetD8Async(x, 0, 64, t)); CK(cuMemcpyAsync(x + 64, x, 64, t)); }
  if (kind == HOST) CK(cuLaunchHostFunc(t, nothing, 0));
  if (kind == MEMORY) { CUdeviceptr m; CK(cuMemAllocAsync(&m, 1 << 20, t)); CK(cuMemsetD8Async(m, 1, 64, t)); CK(cuMemFreeAsync(m, t)); }
  CK(cuStreamEndCapture(t, &g)); CK(cuStreamDestroy(t));
  if (kind == CHILD) { CUgraph outer; CUgraphNode n; CK(cuGraphCreate(&outer, 0)); CK(cuGraphAddChildGraphNode(&n, outer, 0, 0, g)); CK(cuGraphDestroy(g)); return outer; }
  return g;
}
// An executable graph, launched so often, done or under way.
static CUgraphExec made(int kind, int launches, int done) {
  CUgraph g = captured(kind); CUgraphExec e; CK(cuGraphInstantiateWithFlags(&e, g, 0)); CK(cuGraphDestroy(g));
  for (int i = 0; i < launches; i++) CK(cuGraphLaunch(e, s));
  if (done) CK(cuStreamSynchronize(s));
  return e;
}
static CUgraphExec ending; static CUcontext with; static CUresult answer;
static void* end(void* unused) { (void)unused; CK(cuCtxSetCurrent(with)); answer = cuGraphExecDestroy(ending); return 0; }
static void on_another_thread(void) { pthread_t t; pthread_create(&t, 0, end, 0); pthread_join(t, 0); }

int main(void) {
  static const struct { const char* name; CUstreamCaptureMode mode; } MODES[] = {{"global", CU_STREAM_CAPTURE_MODE_GLOBAL}, {"thread_local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}, {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}};
  CUmodule m; setvbuf(stdout, 0, _IOLBF, 0);
  CK(cuInit(0)); CK(cuDeviceGet(&d, 0)); CK(cuDevicePrimaryCtxRetain(&c, d)); CK(cuCtxSetCurrent(c)); CK(cuModuleLoadData(&m, PTX)); CK(cuModuleGetFunction(&k, m, "k"));
  CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING)); CK(cuStreamCreate(&cs, CU_STREAM_NON_BLOCKING)); CK(cuMemAlloc(&x, 256));
#if CUDA_VERSION >= 13000
  CK(cuCtxCreate(&other, 0, 0, d));
#else
  CK(cuCtxCreate(&other, 0, d));
#endif
  CK(cuCtxSetCurrent(c));
  for (int kind = 0; kind < KINDS; kind++) for (unsigned mode = 0; mode < 3; mode++) for (int elsewhere = 0; elsewhere < 2; elsewhere++) for (int under_way = 0; under_way < 2; under_way++) {
    void* a[1] = {&x}; CUgraph g = 0; CUstreamCaptureStatus now; ending = made(kind, 3, !under_way); with = c;
    CK(cuStreamBeginCapture(cs, MODES[mode].mode)); CK(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, cs, a, 0));
    if (elsewhere) on_another_thread(); else answer = cuGraphExecDestroy(ending);
    CUresult asked = cuStreamIsCapturing(cs, &now), ended = cuStreamEndCapture(cs, &g); if (g) CK(cuGraphDestroy(g));
    printf("%s, capture %s, thread %s, launches %s: %d, capture %d (%d), end %d, sync %d\n", NAMES[kind], MODES[mode].name, elsewhere ? "other" : "same",
      under_way ? "under way" : "done", (int)answer, (int)now, (int)asked, (int)ended, (int)cuStreamSynchronize(s));
  }
  for (int kind = 0; kind < KINDS; kind++) for (int which = 0; which < 2; which++) for (int under_way = 0; under_way < 2; under_way++) {
    cuuint64_t before = 0, after = 0; CK(cuDeviceGraphMemTrim(d)); CK(cuDeviceGetGraphMemAttribute(d, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &before));
    ending = made(kind, 3, !under_way); with = which ? other : 0; on_another_thread(); CK(cuStreamSynchronize(s));
    CK(cuDeviceGraphMemTrim(d)); CK(cuDeviceGetGraphMemAttribute(d, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &after));
    printf("%s, %s current, launches %s: %d, memory of graphs %llu before and %llu after, context %d\n", NAMES[kind], which ? "another context" : "no context",
      under_way ? "under way" : "done", (int)answer, (unsigned long long)before, (unsigned long long)after, (int)cuCtxSynchronize());
  }
  return 0;
}
