"""What a driver call costs beside other work: why a figure over a real driver is more than over one that does nothing.

usage: cold.py [--repeats 15] COLD.so CUBIN

COLD.so is made of cold.c, CUBIN of kernels.cu (bench.py leaves one with these kernels in /tmp/bench_kernels.cubin):

    gcc -O2 -shared -fPIC -I/usr/local/cuda/include cold.c -o cold.so -L/usr/local/cuda/lib64/stubs -lcuda
    nvcc -arch=native -cubin -o cold.cubin kernels.cu

`scripts/gpu.sh run cold` does all this. Seconds on one GPU.

Three tables, each in ns a call over the same call alone in a loop of C (median of paired differences), and in brackets
the same over `nothing` instead of a driver call: what the addition costs by itself. The difference of the two is what it
costs the call beside it, and the call it.

1. C: the interpreter released and retaken around the call (gil), a locked instruction behind it (lock: waits for the
   writes to the device), a wait that touches nothing (spin), so many lines of other code (of 64 bytes: the cold caches
   that a Python program leaves).
2. From Python: a C function that makes the call and nothing else (bare), that releases the interpreter meanwhile
   (released: no Python interface that does so can be faster), and cuirass. The loop's `lambda` is in all of them.
3. Other forms of the same call, over the first form.
"""

import argparse
import ctypes
import gc
import os
import statistics as st
import sys
import time

ap = argparse.ArgumentParser()
ap.add_argument("--repeats", type=int, default=15)
ap.add_argument("library")
ap.add_argument("cubin")
A = ap.parse_args()

C = ctypes.PyDLL(os.path.abspath(A.library), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
C.cold_run.restype = ctypes.c_double
C.cold_run.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
if status := C.cold_init(A.cubin.encode()):
    sys.exit(f"cold_init: {status}")


class MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


METH_FASTCALL = 0x80
new_function = ctypes.pythonapi.PyCFunction_NewEx
new_function.restype = ctypes.py_object
new_function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
KEPT = []


def builtin(name):
    definition = MethodDef(name.encode(), ctypes.cast(getattr(C, name), ctypes.c_void_p).value, METH_FASTCALL, None)
    KEPT.append(definition)
    return new_function(ctypes.addressof(definition), None, None)


def in_c(call, way):
    def run(n):
        v = C.cold_run(call.encode(), way.encode(), n)
        if v < 0:
            raise RuntimeError(f"{call}, {way}: {v}")
        return v

    return run


def in_python(fn, call=None):
    def run(n):
        if call:
            C.cold_choose(call.encode())
        gc.disable()
        t = time.perf_counter_ns()
        for _ in range(n):
            fn()
        v = (time.perf_counter_ns() - t) / n
        gc.enable()
        return v

    return run


def over(first, others, n):
    """The first's median, and what the others take over it."""
    for run in (first, *others):
        run(n // 4)
        C.cold_drain()
    rows = []
    for _ in range(A.repeats):
        row = []
        for run in (first, *others):
            C.cold_drain()
            row.append(run(n))
        rows.append(row)
    C.cold_drain()
    return [st.median(row[0] for row in rows)] + [
        st.median(row[at] - row[0] for row in rows) for at in range(1, len(others) + 1)
    ]


def table(title, calls, columns, runs):
    """``runs(call)``: the plain one, and one for each column."""
    print(f"\n{title}\n{'call':20s}{'alone':>8s}" + "".join(f"{c:>16s}" for c in columns))
    by_itself = over(*runs("nothing"), 20000)
    for call in calls:
        values = over(*runs(call), 400)
        cells = (f"{v:+8.0f} ({b:+5.0f})" if v == v else "" for v, b in zip(values[1:], by_itself[1:], strict=True))
        print(f"{call:20s}{values[0]:8.0f}" + "".join(f"{cell:>16s}" for cell in cells), flush=True)


CALLS = ["record", "fill", "graph", "copy", "launch_0", "launch_2"]
WAYS = ["gil", "lock", "spin", "64 lines", "128 lines", "256 lines", "512 lines"]
table("1. In C", CALLS, WAYS, lambda call: (in_c(call, "plain"), [in_c(call, way) for way in WAYS]))

try:
    import cuirass as cc

    dev = cc.Device(0)
    dev.set_current()
    s = dev.create_stream()
    code = cc.ObjectCode.from_cubin(A.cubin)
    k0, k2, cfg = code.get_kernel("k0"), code.get_kernel("k2"), cc.LaunchConfig(grid=1, block=32)
    mr, e, launch = dev.memory_resource, dev.create_event(), cc.launch
    a, b = mr.allocate(1 << 20, stream=s), mr.allocate(1 << 20, stream=s)
    small, other = mr.allocate(256, stream=s), mr.allocate(256, stream=s)
    gb = dev.create_graph_builder().begin_building()
    for _ in range(10):
        launch(gb, cfg, k2, a, 5)
    g = gb.end_building().complete()
    gb.close()
    ours = {
        "nothing": lambda: None,
        "record": lambda: s.record(e),
        "fill": lambda: small.fill(0, stream=s),
        "graph": lambda: g.launch(s),
        "copy": lambda: small.copy_to(other, stream=s),
        "launch_0": lambda: launch(s, cfg, k0),
        "launch_2": lambda: launch(s, cfg, k2, a, 5),
    }
    columns = ["bare", "released", "cuirass"]
except ImportError as error:
    print(f"without cuirass: {error}", file=sys.stderr)
    ours, columns = {}, ["bare", "released"]

bare, released = builtin("cold_bare"), builtin("cold_released")


def drained(run):
    """The queue that cuirass uses is another one than the C calls': drained as well."""

    def drained_first(n):
        if ours:
            s.sync()
        return run(n)

    return drained_first


def from_python(call):
    runs = [in_python(lambda: bare(1, 2, 3, 4), call), in_python(lambda: released(1, 2, 3, 4), call)]
    if ours:
        runs.append(in_python(ours[call]))
    return drained(in_c(call, "plain")), [drained(run) for run in runs]


table("2. From Python", CALLS, columns, from_python)

print(f"\n3. Other forms\n{'call':24s}{'alone':>8s}{'over the first form':>24s}")
for first, others in {
    "launch_0": ["launch_0_kernel", "launch_0_old", "launch_0_looked_up"],
    "launch_2": ["launch_2_kernel", "launch_2_attribute"],
    "copy": ["copy_d2d"],
}.items():
    values = over(in_c(first, "plain"), [in_c(form, "plain") for form in others], 400)
    print(f"{first:24s}{values[0]:8.0f}")
    for form, value in zip(others, values[1:], strict=True):
        print(f"{form:24s}{'':8s}{value:+24.0f}")
