// What becomes of a primary context and of a stream in it when somebody resets or releases the context behind its owner's
// back. Each case in a process of its own, a line each.
//   gcc -O2 -I/usr/local/cuda/include measure_reset.c -o reset -L/usr/local/cuda/lib64/stubs -lcuda
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define CK(x) do { CUresult r_ = (x); if (r_) { printf("%s: %d\n", #x, (int)r_); exit(1); } } while (0)
static CUdevice d; static CUcontext c; static CUstream s;
static unsigned long long id(CUcontext context) { unsigned long long n = 0; CUresult r = cuCtxGetId(context, &n); return r ? 1000000 + r : n; }

// How the context goes, and whether it comes back.
static void nothing(void) {}
static void reset(void) { CK(cuDevicePrimaryCtxReset(d)); }
static void reset_used(void) { reset(); CUstream t = 0; CUresult r = cuStreamCreate(&t, CU_STREAM_NON_BLOCKING); printf(" new stream %d%s,", (int)r, t == s ? " at the same place" : ""); }
static void reset_retained(void) { reset(); CUcontext n; CUresult r = cuDevicePrimaryCtxRetain(&n, d); printf(" retained %d%s, id %llu,", (int)r, n == c ? " at the same place" : "", id(n)); CK(cuCtxSetCurrent(n)); CUstream t = 0; r = cuStreamCreate(&t, CU_STREAM_NON_BLOCKING); printf(" new stream %d%s,", (int)r, t == s ? " at the same place" : ""); }
static void released(void) { CK(cuDevicePrimaryCtxRelease(d)); }
static void released_retained(void) { CK(cuDevicePrimaryCtxRelease(d)); CUcontext n; CUresult r = cuDevicePrimaryCtxRetain(&n, d); printf(" retained %d%s, id %llu,", (int)r, n == c ? " at the same place" : "", id(n)); CK(cuCtxSetCurrent(n)); CUstream t = 0; r = cuStreamCreate(&t, CU_STREAM_NON_BLOCKING); printf(" new stream %d%s,", (int)r, t == s ? " at the same place" : ""); }
static const struct { const char* name; void (*go)(void); } WAYS[] = {{"nothing", nothing}, {"reset", reset}, {"reset, a new stream", reset_used}, {"reset, retained again", reset_retained}, {"released", released}, {"released, retained again", released_retained}};

static void of_stream(const char* what) {
  unsigned long long n = 0; CUstreamCaptureStatus status = 9; CUcontext of = 0; CUgraph g = 0;
  if (!strcmp(what, "context id")) printf(" %llu", id(c));
  else if (!strcmp(what, "current context")) { CUresult r = cuCtxGetCurrent(&of); printf(" %d%s", (int)r, of == c ? " the same" : of ? " another" : " none"); }
  else if (!strcmp(what, "stream id")) { CUresult r = cuStreamGetId(s, &n); printf(" %d %llu", (int)r, n); }
  else if (!strcmp(what, "stream context")) { CUresult r = cuStreamGetCtx(s, &of); printf(" %d%s", (int)r, of == c ? " the same" : " another"); }
  else if (!strcmp(what, "is capturing")) { CUresult r = cuStreamIsCapturing(s, &status); printf(" %d %d", (int)r, (int)status); }
  else if (!strcmp(what, "query")) printf(" %d", (int)cuStreamQuery(s));
  else if (!strcmp(what, "destroy")) printf(" %d", (int)cuStreamDestroy(s));
  else if (!strcmp(what, "capture")) { CUresult r = cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED); printf(" begin %d", (int)r); fflush(stdout); r = cuStreamEndCapture(s, &g); printf(" end %d%s", (int)r, g ? " with a graph" : ""); }
}
static const char* ASKED[] = {"context id", "current context", "stream id", "stream context", "is capturing", "query", "destroy", "capture"};
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

int main(void) {
  for (unsigned way = 0; way < sizeof WAYS / sizeof *WAYS; way++) for (unsigned asked = 0; asked < sizeof ASKED / sizeof *ASKED; asked++) {
    printf("%s; %s:", WAYS[way].name, ASKED[asked]); fflush(stdout);
    pid_t child = fork(); int status;
    if (!child) {
      CK(cuInit(0)); CK(cuDeviceGet(&d, 0)); CK(cuDevicePrimaryCtxRetain(&c, d)); CK(cuCtxSetCurrent(c)); CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
      unsigned long long n = 0; CK(cuStreamGetId(s, &n)); printf(" (context %llu, stream %llu)", id(c), n); WAYS[way].go(); fflush(stdout); of_stream(ASKED[asked]); printf("\n"); exit(0);
    }
    waitpid(child, &status, 0); if (WIFSIGNALED(status)) printf(" ended by signal %d\n", WTERMSIG(status)); fflush(stdout);
  }
  CK(cuInit(0)); CK(cuDeviceGet(&d, 0)); CK(cuDevicePrimaryCtxRetain(&c, d)); CK(cuCtxSetCurrent(c)); CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  unsigned long long n; CUstreamCaptureStatus is; CUcontext of; double t = now();
  for (int i = 0; i < 100000; i++) cuCtxGetId(c, &n);
  double a = now(); for (int i = 0; i < 100000; i++) cuStreamGetId(s, &n);
  double b = now(); for (int i = 0; i < 100000; i++) cuStreamIsCapturing(s, &is);
  double e = now(); for (int i = 0; i < 100000; i++) cuCtxGetCurrent(&of);
  double f = now(); printf("ns: cuCtxGetId %.0f, cuStreamGetId %.0f, cuStreamIsCapturing %.0f, cuCtxGetCurrent %.0f\n", (a - t) / 1e5, (b - a) / 1e5, (e - b) / 1e5, (f - e) / 1e5);
  return 0;
}
