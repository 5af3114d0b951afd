/* Which calls a driver survives while another thread begins and ends captures of a stream.
 *
 *     gcc -O2 -pthread -I/usr/local/cuda/include measure_beside_capture.c -o beside -L/usr/local/cuda/lib64/stubs -lcuda
 *     ./beside [SECONDS [CASE ...]]
 *
 * Each case is a process of two threads, a few seconds long: one captures stream S over and over, in relaxed mode; the other
 * makes the call, its own mode relaxed too, as the releases of cuirass do. What the call needs on S itself (an allocation,
 * a free, a record) is made where the two never meet. A line says how often both were done, or the signal that ended the
 * process. `apart` is the same with nothing but what the calls need.
 */
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CK(call) do { CUresult r_ = (call); if (r_) { fprintf(stderr, "%s: %d\n", #call, r_); _exit(3); } } while (0)

static CUcontext context;
static CUstream stream, other;
static CUmemoryPool shared_pool;
static pthread_mutex_t apart = PTHREAD_MUTEX_INITIALIZER;
static atomic_int over;
static unsigned long captures, calls;

static void start(void) {
  CUdevice device;
  CK(cuInit(0));
  CK(cuDeviceGet(&device, 0));
  CK(cuDevicePrimaryCtxRetain(&context, device));
  CK(cuCtxSetCurrent(context));
  CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CK(cuDeviceGetMemPool(&shared_pool, device));
}

static CUmemoryPool new_pool(void) {
  CUmemPoolProps props = {0};
  CUmemoryPool pool;
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CK(cuMemPoolCreate(&pool, &props));
  return pool;
}

/* Allocates, fills and frees in S's order, while S is not captured. */
static void use(CUmemoryPool pool) {
  CUdeviceptr memory;
  pthread_mutex_lock(&apart);
  CK(cuMemAllocFromPoolAsync(&memory, 256, pool, stream));
  CK(cuMemsetD8Async(memory, 1, 256, stream));
  CK(cuMemFreeAsync(memory, stream));
  pthread_mutex_unlock(&apart);
}

static CUevent recorded(void) {
  CUevent event;
  CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  pthread_mutex_lock(&apart);
  CK(cuEventRecord(event, stream));
  pthread_mutex_unlock(&apart);
  return event;
}

/* What the cases do. A call's refusal is none of their business, a crash is. */
static void nothing(void) { use(shared_pool); }
static void pool_destroy(void) { CUmemoryPool pool = new_pool(); use(pool); cuMemPoolDestroy(pool); }
static void pool_destroy_idle(void) { CUmemoryPool pool = new_pool(); use(pool); pthread_mutex_lock(&apart); CK(cuStreamSynchronize(stream)); pthread_mutex_unlock(&apart); cuMemPoolDestroy(pool); }
static void pool_destroy_unused(void) { cuMemPoolDestroy(new_pool()); }
static void pool_trim(void) { use(shared_pool); cuMemPoolTrimTo(shared_pool, 0); }
static void ctx_synchronize(void) { use(shared_pool); cuCtxSynchronize(); }
static void free_host(void) { void *memory; CK(cuMemAllocHost(&memory, 4096)); cuMemFreeHost(memory); }
static void free_device(void) { CUdeviceptr memory; CK(cuMemAlloc(&memory, 4096)); cuMemFree(memory); }
static void mem_info(void) { size_t free, total; use(shared_pool); cuMemGetInfo(&free, &total); }
static void event_destroy(void) { cuEventDestroy(recorded()); }
static void event_query(void) { CUevent event = recorded(); cuEventQuery(event); CK(cuEventDestroy(event)); }
static void event_synchronize(void) { CUevent event = recorded(); cuEventSynchronize(event); CK(cuEventDestroy(event)); }
static void wait_elsewhere(void) { CUevent event = recorded(); cuStreamWaitEvent(other, event, 0); CK(cuEventDestroy(event)); }
static void stream_destroy(void) { CUstream made; CK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING)); cuStreamDestroy(made); }
static void alloc_elsewhere(void) { CUdeviceptr memory; use(shared_pool); CK(cuMemAllocAsync(&memory, 256, other)); CK(cuMemFreeAsync(memory, other)); }
static void exec_destroy(void) {
  CUgraph graph; CUgraphNode node; CUgraphExec made;
  CK(cuGraphCreate(&graph, 0));
  CK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
  CK(cuGraphInstantiate(&made, graph, 0));
  pthread_mutex_lock(&apart);
  CK(cuGraphLaunch(made, stream));
  pthread_mutex_unlock(&apart);
  cuGraphExecDestroy(made);
  cuGraphDestroy(graph);
}
static void free_on_s(void) {
  CUdeviceptr memory;
  pthread_mutex_lock(&apart);
  CK(cuMemAllocAsync(&memory, 256, stream));
  pthread_mutex_unlock(&apart);
  cuMemFreeAsync(memory, stream);
}

static const struct { const char *name; void (*once)(void); } cases[] = {
  {"apart", nothing},
  {"cuMemPoolDestroy, memory freed on S", pool_destroy},
  {"cuMemPoolDestroy, S idle", pool_destroy_idle},
  {"cuMemPoolDestroy, never used", pool_destroy_unused},
  {"cuMemPoolTrimTo", pool_trim},
  {"cuCtxSynchronize", ctx_synchronize},
  {"cuMemFreeHost", free_host},
  {"cuMemFree", free_device},
  {"cuMemGetInfo", mem_info},
  {"cuEventDestroy, recorded on S", event_destroy},
  {"cuEventQuery, recorded on S", event_query},
  {"cuEventSynchronize, recorded on S", event_synchronize},
  {"cuStreamWaitEvent by another stream", wait_elsewhere},
  {"cuStreamDestroy of another stream", stream_destroy},
  {"cuMemAllocAsync on another stream", alloc_elsewhere},
  {"cuGraphExecDestroy, launched on S", exec_destroy},
  {"cuMemFreeAsync on S", free_on_s},
};

static void *capture(void *none) {
  (void)none;
  CK(cuCtxSetCurrent(context));
  while (!over) {
    CUgraph graph = NULL;
    pthread_mutex_lock(&apart);
    CUresult begun = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUresult ended = begun ? begun : cuStreamEndCapture(stream, &graph);
    pthread_mutex_unlock(&apart);
    if (!ended && graph) cuGraphDestroy(graph);
    captures++;
  }
  return NULL;
}

static void run(int number, int seconds) {
  pthread_t thread;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  start();
  CK(cuThreadExchangeStreamCaptureMode(&mode));
  CK(pthread_create(&thread, NULL, capture, NULL) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
  for (time_t end = time(NULL) + seconds; time(NULL) < end; calls++) cases[number].once();
  over = 1;
  pthread_join(thread, NULL);
  printf("%lu captures, %lu calls, no crash\n", captures, calls);
  fflush(stdout);
  _exit(0);
}

int main(int count, char **words) {
  int seconds = count > 1 ? atoi(words[1]) : 4;
  for (size_t number = 0; number < sizeof cases / sizeof *cases; number++) {
    int wanted = count < 3, status = 0;
    for (int word = 2; word < count; word++) wanted |= strstr(cases[number].name, words[word]) != NULL;
    if (!wanted) continue;
    printf("%-42s", cases[number].name);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { alarm((unsigned)seconds + 20); run((int)number, seconds); }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
    else if (WEXITSTATUS(status)) printf("exit %d\n", WEXITSTATUS(status));
    fflush(stdout);
  }
  return 0;
}
