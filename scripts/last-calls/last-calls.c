/* The last driver calls of every thread, told when the process crashes.
 *
 *     gcc -O2 -g -shared -fPIC -o libcuda.so.1 last-calls.c -ldl -lpthread
 *     LAST_CALLS_DRIVER=/usr/lib/x86_64-linux-gnu/libcuda.so.1 LAST_CALLS_LOG=crash.txt LD_LIBRARY_PATH=. python3 stress.py
 *
 * It stands before the real driver: cuirass asks it for each entry point, and gets one that notes the call, makes it and
 * notes its answer. Only what asks cuGetProcAddress_v2 goes through it. On SIGSEGV, SIGBUS and SIGABRT the notes, the stack
 * of the thread and the mappings are written to the log (the last 6000 notes, or as many as LAST_CALLS says); what handled
 * the signal before does so after that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES 400
#define NOTES (1u << 17)

typedef uintptr_t word;
typedef word (*call)(word, word, word, word, word, word, word, word, word, word, word, word);

static struct { char name[48]; call real; } entries[ENTRIES];
static atomic_uint count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static int (*real_address)(const char *, void **, int, uint64_t, int *);
static void *real;

/* One note: a call that begins (`state` 'b'), or has ended ('e', with its answer). */
static struct note { uint64_t when; word a, b, c, d; int thread, answer, entry; char state; } notes[NOTES];
static atomic_uint next;

static struct note *note(int entry, char state, word a, word b, word c, word d) {
  static __thread int thread;
  struct timespec now;
  if (!thread) thread = (int)syscall(SYS_gettid);
  clock_gettime(CLOCK_MONOTONIC, &now);
  struct note *n = &notes[atomic_fetch_add(&next, 1) % NOTES];
  *n = (struct note){(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, a, b, c, d, thread, 0, entry, state};
  return n;
}

/* Every call of the driver takes integers and pointers alone, and none more than twelve. */
static word through(int entry, word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l) {
  note(entry, 'b', a, b, c, d);
  word answer = entries[entry].real(a, b, c, d, e, f, g, h, i, j, k, l);
  const char *name = entries[entry].name;
  int makes = answer == 0 && a > 4096 && (strstr(name, "Create") || strstr(name, "Alloc") || strstr(name, "Instantiate"));
  note(entry, 'e', makes ? *(word *)a : a, b, c, d)->answer = (int)answer;
  return answer;
}

#define ONE(n) static word entry_##n(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l) \
  { return through(1##n - 1000, a, b, c, d, e, f, g, h, i, j, k, l); }
#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) ONE(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3)
#undef ONE
#define ONE(n) entry_##n,
static const call ours[ENTRIES] = {HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3)};

int cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *query) {
  int answer = real_address(symbol, found, version, flags, query);
  if (answer || !*found) return answer;
  pthread_mutex_lock(&adding);
  unsigned at = 0;
  while (at < count && entries[at].real != (call)*found) at++;
  if (at < ENTRIES) {
    if (at == count) {
      snprintf(entries[at].name, sizeof entries[at].name, "%s", symbol);
      entries[at].real = (call)*found;
      atomic_store(&count, at + 1);
    }
    *found = (void *)ours[at];
  }
  pthread_mutex_unlock(&adding);
  return answer;
}

int cuDriverGetVersion(int *version) { return ((int (*)(int *))dlsym(real, "cuDriverGetVersion"))(version); }
int cuGetErrorString(int code, const char **text) {
  return ((int (*)(int, const char **))dlsym(real, "cuGetErrorString"))(code, text);
}

static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGABRT};
static struct sigaction before[3];

static void crashed(int signal, siginfo_t *info, void *context) {
  (void)context;
  static atomic_flag once = ATOMIC_FLAG_INIT;
  for (int s = 0; s < 3; s++) sigaction(SIGNALS[s], &before[s], NULL);
  if (!atomic_flag_test_and_set(&once)) {
    const char *path = getenv("LAST_CALLS_LOG");
    int log = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : 2;
    dprintf(log, "signal %d at %p in thread %d\n", signal, info->si_addr, (int)syscall(SYS_gettid));
    void *frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), log);
    const char *most = getenv("LAST_CALLS");
    unsigned told = most ? (unsigned)strtoul(most, NULL, 10) : 6000, end = next;
    unsigned begin = end > told ? end - told : 0;
    for (unsigned at = begin; at != end; at++) {
      const struct note *n = &notes[at % NOTES];
      dprintf(log, "%llu %d %c %s %#lx %#lx %#lx %#lx", (unsigned long long)n->when, n->thread, n->state, entries[n->entry].name, n->a, n->b, n->c, n->d);
      dprintf(log, n->state == 'e' ? " = %d\n" : "\n", n->answer);
    }
    int maps = open("/proc/self/maps", O_RDONLY);
    char part[4096];
    for (ssize_t got; maps >= 0 && (got = read(maps, part, sizeof part)) > 0;)
      if (write(log, part, (size_t)got) < 0) break;
  }
  raise(signal);
}

__attribute__((constructor)) static void load(void) {
  const char *path = getenv("LAST_CALLS_DRIVER");
  real = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
  real_address = real ? (int (*)(const char *, void **, int, uint64_t, int *))dlsym(real, "cuGetProcAddress_v2") : NULL;
  if (!real_address) {
    fprintf(stderr, "last-calls: LAST_CALLS_DRIVER=%s is no CUDA driver: %s\n", path ? path : "(not set)", dlerror());
    _exit(2);
  }
  void *warm[1];
  backtrace(warm, 1);
  struct sigaction act = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  for (int s = 0; s < 3; s++) sigaction(SIGNALS[s], &act, &before[s]);
}
