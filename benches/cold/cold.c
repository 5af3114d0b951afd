// What a driver call costs beside other work: one call in a loop, alone and with this or that around it (see cold.py).
//   int    cold_init(const char* cubin)                          0, or a CUresult
//   double cold_run(const char* call, const char* way, int n)    nanoseconds a turn; -1: no such call or way
//   int    cold_choose(const char* call)                         the call that the functions for Python make; for cold_make
//                                                                what it makes: stream, event or memory
//   void   cold_drain(void)
// Python's functions are declared here, so that its headers are not needed.
#include <cuda.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct Object Object;
extern Object _Py_NoneStruct;
extern void Py_IncRef(Object*);
extern void* PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void*);
extern void Py_DecRef(Object*);
extern void PyObject_Free(void*);
extern Object* PyType_GenericAlloc(Object*, intptr_t);
extern Object* PyType_FromSpec(void*);

static CUstream s; static CUevent e; static CUfunction k0, k2; static CUkernel l0, l2; static CUdeviceptr x, y; static CUgraphExec ge; static CUmemoryPool pool;
static CUlaunchConfig cfg; static int n5 = 5; static void* a2[2];
static CUresult (*looked_up)(const CUlaunchConfig*, CUfunction, void**, void**);

static CUresult launch_0(void) { return cuLaunchKernelEx(&cfg, k0, 0, 0); }
static CUresult launch_0_kernel(void) { return cuLaunchKernelEx(&cfg, (CUfunction)l0, 0, 0); }
static CUresult launch_0_old(void) { return cuLaunchKernel(k0, 1, 1, 1, 32, 1, 1, 0, s, 0, 0); }
static CUresult launch_0_looked_up(void) { return looked_up(&cfg, k0, 0, 0); }
static CUresult launch_2(void) { return cuLaunchKernelEx(&cfg, k2, a2, 0); }
static CUresult launch_2_kernel(void) { return cuLaunchKernelEx(&cfg, (CUfunction)l2, a2, 0); }
static CUresult launch_2_attribute(void) {
  // A launch attribute that says nothing new.
  CUlaunchAttribute a; memset(&a, 0, sizeof a); a.id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  CUlaunchConfig c = cfg; c.attrs = &a; c.numAttrs = 1; return cuLaunchKernelEx(&c, k2, a2, 0);
}
static CUresult copy(void) { return cuMemcpyAsync(y, x, 256, s); }
static CUresult copy_d2d(void) { return cuMemcpyDtoDAsync(y, x, 256, s); }
static CUresult fill(void) { return cuMemsetD8Async(x, 0, 256, s); }
static CUresult record(void) { return cuEventRecord(e, s); }
static CUresult graph(void) { return cuGraphLaunch(ge, s); }
static CUresult query(void) { CUresult r = cuEventQuery(e); return r == CUDA_ERROR_NOT_READY ? 0 : r; }
static CUresult synchronize(void) { return cuStreamSynchronize(s); }
static CUresult nothing(void) { return 0; }

static const struct { const char* name; CUresult (*call)(void); } CALLS[] = {
  {"nothing", nothing}, {"record", record}, {"query", query}, {"synchronize", synchronize}, {"fill", fill}, {"graph", graph}, {"copy", copy}, {"copy_d2d", copy_d2d}, {"launch_0", launch_0},
  {"launch_0_kernel", launch_0_kernel}, {"launch_0_old", launch_0_old}, {"launch_0_looked_up", launch_0_looked_up}, {"launch_2", launch_2},
  {"launch_2_kernel", launch_2_kernel}, {"launch_2_attribute", launch_2_attribute}};

// Lines of code that are run through: as much of another program as comes between two calls.
#if defined(__x86_64__)
__asm__(".balign 64\ncold_lines:\n.set cold_line, 0\n.rept 2048\n.balign 64\ndecl %edi\nje cold_end\n"
        "jmp cold_lines + ((cold_line + 37) % 2048) * 64\n.set cold_line, cold_line + 1\n.endr\n.balign 64\ncold_end:\nret\n");
extern void cold_lines(int);
static inline void locked(void) { __asm__ volatile("lock addl $0, (%%rsp)" ::: "memory", "cc"); }
#else
static void cold_lines(int n) { (void)n; }
static inline void locked(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
static void spin(int turns) { for (int i = 0; i < turns; i++) __asm__ volatile(""); }

static CUresult (*find(const char* name))(void) {
  for (unsigned i = 0; i < sizeof CALLS / sizeof *CALLS; i++) if (!strcmp(CALLS[i].name, name)) return CALLS[i].call;
  return 0;
}

#define WAY(nm, before, after) if (!strcmp(way, nm)) { double t = now(); for (int i = 0; i < n; i++) { before; CUresult r = f(); after; if (r) return -1000.0 - r; } return (now() - t) / n; }
double cold_run(const char* call, const char* way, int n) {
  CUresult (*f)(void) = find(call);
  if (!f) return -1;
  WAY("plain", , )
  WAY("gil", void* state = PyEval_SaveThread(), PyEval_RestoreThread(state))
  WAY("lock", , locked())
  WAY("spin", , spin(1000))
  WAY("64 lines", , cold_lines(64))
  WAY("128 lines", , cold_lines(128))
  WAY("256 lines", , cold_lines(256))
  WAY("512 lines", , cold_lines(512))
  return -1;
}

// The same call from Python: functions of any arguments, in the form METH_FASTCALL.
static CUresult (*chosen)(void) = nothing;
static int choose_kind(const char* name);
int cold_choose(const char* call) { CUresult (*f)(void) = find(call); if (f) chosen = f; return f ? 0 : choose_kind(call); }
static Object* none(void) { Py_IncRef(&_Py_NoneStruct); return &_Py_NoneStruct; }
Object* cold_bare(Object* self, Object* const* arguments, long count) { (void)self, (void)arguments, (void)count; chosen(); return none(); }
Object* cold_released(Object* self, Object* const* arguments, long count) {
  (void)self, (void)arguments, (void)count; void* state = PyEval_SaveThread(); chosen(); PyEval_RestoreThread(state); return none();
}

// What makes something and gives it back, as an object with a method close() for Python. Both release the interpreter.
typedef struct { intptr_t references; Object* type; void* made; } Made;
static CUresult make_stream(void** at) { return cuStreamCreateWithPriority((CUstream*)at, CU_STREAM_NON_BLOCKING, 0); }
static CUresult end_stream(void* it) { return cuStreamDestroy(it); }
static CUresult make_event(void** at) { return cuEventCreate((CUevent*)at, CU_EVENT_DISABLE_TIMING); }
static CUresult end_event(void* it) { return cuEventDestroy(it); }
static CUresult make_memory(void** at) { return cuMemAllocFromPoolAsync((CUdeviceptr*)at, 256, pool, s); }
static CUresult end_memory(void* it) { return cuMemFreeAsync((CUdeviceptr)it, s); }
static const struct { const char* name; CUresult (*make)(void**); CUresult (*end)(void*); } KINDS[] = {
  {"stream", make_stream, end_stream}, {"event", make_event, end_event}, {"memory", make_memory, end_memory}};
static CUresult (*chosen_make)(void**); static CUresult (*chosen_end)(void*); static Object* made_type;
static int choose_kind(const char* name) {
  for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
    if (!strcmp(KINDS[i].name, name)) { chosen_make = KINDS[i].make; chosen_end = KINDS[i].end; return 0; }
  return -1;
}
static void made_end(Object* object) { Object* type = ((Made*)object)->type; PyObject_Free(object); Py_DecRef(type); }
static Object* made_close(Object* self, Object* const* arguments, long count) {
  (void)arguments, (void)count; Made* made = (Made*)self;
  void* state = PyEval_SaveThread(); chosen_end(made->made); PyEval_RestoreThread(state); made->made = 0; return none();
}
typedef struct { const char* name; void* function; int flags; const char* doc; } Method;
static Method made_methods[] = {{"close", made_close, 0x80 /* METH_FASTCALL */, 0}, {0}};
typedef struct { int slot; void* value; } TypeSlot;
static TypeSlot made_slots[] = {{64 /* Py_tp_methods */, made_methods}, {52 /* Py_tp_dealloc */, made_end}, {0}};
typedef struct { const char* name; int size, item; unsigned flags; TypeSlot* slots; } TypeSpec;
static TypeSpec made_spec = {"cold.Made", sizeof(Made), 0, 0, made_slots};
Object* cold_make(Object* self, Object* const* arguments, long count) {
  (void)self, (void)arguments, (void)count; void* it = 0;
  void* state = PyEval_SaveThread(); chosen_make(&it); PyEval_RestoreThread(state);
  Object* made = PyType_GenericAlloc(made_type, 0); if (made) ((Made*)made)->made = it; return made;
}

// The same two as methods of an object that take any arguments and keywords, so that a call of them can be written as that of
// a real interface.
static Object* any_call(Object* self, Object* const* arguments, long count, Object* names) { (void)names; return cold_released(self, arguments, count); }
static Object* any_make(Object* self, Object* const* arguments, long count, Object* names) { (void)names; return cold_make(self, arguments, count); }
static Method any_methods[] = {{"call", any_call, 0x82 /* METH_FASTCALL | METH_KEYWORDS */, 0}, {"make", any_make, 0x82, 0}, {0}};
static TypeSlot any_slots[] = {{64, any_methods}, {52, made_end}, {0}};
static TypeSpec any_spec = {"cold.Any", sizeof(Made), 0, 0, any_slots}; static Object* any_type;
Object* cold_any(Object* self, Object* const* arguments, long count) { (void)self, (void)arguments, (void)count; return PyType_GenericAlloc(any_type, 0); }

void cold_drain(void) { cuStreamSynchronize(s); }

int cold_init(const char* cubin) {
  if (!(made_type = PyType_FromSpec(&made_spec)) || !(any_type = PyType_FromSpec(&any_spec))) return -1;
  CUresult r; CUdevice d; CUcontext c; CUmodule m; CUlibrary l; CUgraph g; CUstream cs; CUdriverProcAddressQueryResult q;
#define T(v) if ((r = (v))) return (int)r
  T(cuInit(0)); T(cuDeviceGet(&d, 0)); T(cuDevicePrimaryCtxRetain(&c, d)); T(cuCtxSetCurrent(c));
  T(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0)); T(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  T(cuModuleLoad(&m, cubin)); T(cuModuleGetFunction(&k0, m, "k0")); T(cuModuleGetFunction(&k2, m, "k2"));
  T(cuLibraryLoadFromFile(&l, cubin, 0, 0, 0, 0, 0, 0)); T(cuLibraryGetKernel(&l0, l, "k0")); T(cuLibraryGetKernel(&l2, l, "k2"));
  T(cuGetProcAddress("cuLaunchKernelEx", (void**)&looked_up, 12000, 0, &q));
  T(cuDeviceGetMemPool(&pool, d)); T(cuMemAllocFromPoolAsync(&x, 1 << 20, pool, s)); T(cuMemAllocFromPoolAsync(&y, 1 << 20, pool, s));
  cfg.gridDimX = cfg.gridDimY = cfg.gridDimZ = 1; cfg.blockDimX = 32; cfg.blockDimY = cfg.blockDimZ = 1; cfg.hStream = s; a2[0] = &x; a2[1] = &n5;
  T(cuStreamCreateWithPriority(&cs, CU_STREAM_NON_BLOCKING, 0)); cfg.hStream = cs; T(cuStreamBeginCapture(cs, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 10; i++) T(launch_2());
  T(cuStreamEndCapture(cs, &g)); T(cuGraphInstantiateWithFlags(&ge, g, 0)); T(cuGraphDestroy(g)); T(cuStreamDestroy(cs));
  cfg.hStream = s; T(launch_0()); T(record()); T(cuStreamSynchronize(s));
  return 0;
}
