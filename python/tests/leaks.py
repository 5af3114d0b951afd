"""What creating and releasing objects leaves behind, kind by kind: nothing.

    python python/tests/leaks.py [--cycles 100000] [--seconds 120] [--share 1/4] [KIND ...]

Each kind of ``leak_memory.py`` and ``leak_work.py`` is created and released over and over, in six ways in turn: closed,
dropped, and left to the collector in a cycle, on the thread that made it and on another one. Before, and after each of
eight equal parts, it is counted what the process holds. What is judged is the median of the eight differences: a table
that grew once does not disturb it, and what is lost in every cycle is in every part. What grew is measured again, three
times at most, because a leak is there each time; what grew then too is measured way by way.

It is a program of its own, so that it counts what cuirass does and not what came before: the caches that malloc keeps
for each thread are off, because what is in them counts as given out. With ``--serve`` it reads names of kinds and
answers each with a line of JSON, for ``test_leaks.py``.

heap      bytes that malloc has given out and not got back, in all its arenas, by a cycle: at most 1
blocks    blocks of Python's own allocator, by a cycle: at most 0.02
resident  bytes of resident memory by a cycle: at most 4; judged where the parts are large enough to tell it from a page
files, maps, threads   file descriptors, mappings of memory, threads, by a part: none
driver    objects that are alive in the simulated driver, at the end against the beginning: none
device    bytes of device memory in use, by a part: none; not judged of a share, beside which others use the device
reports   reports that no cycle of this kind makes, and reports of the simulator: none

All parts together may leave 8 bytes of heap and of resident memory a cycle, which tells what grows by doubling.
"""

import argparse
import array
import contextlib
import ctypes
import gc
import importlib.util
import itertools
import json
import os
import queue
import sys
import threading
import time
import warnings
from typing import NamedTuple

if not __package__:
    # Run as a program: its folder is a package all the same.
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location("tests", os.path.join(folder, "__init__.py"))
    sys.modules["tests"] = importlib.util.module_from_spec(spec)
    __package__ = "tests"

import cuirass

from . import leak_memory, leak_work  # noqa: F401
from .conftest import is_sim
from .leak_kinds import KINDS, Place

PARTS = 8
WAYS = 6
BATCH = 48
COUNTS = ("heap", "blocks", "resident", "files", "maps", "threads", "device")
# What a part may leave: so much a cycle, and what is always forgiven because it is noise.
BOUNDS = {"heap": (1, 1000), "blocks": (0.02, 2), "resident": (4, 1 << 15), "files": (0, 0), "maps": (0, 0)}
BOUNDS |= {"threads": (0, 0), "device": (0, 0)}
# What all parts together may leave beside 8 bytes a cycle: what grows by doubling is in few parts.
TOTALS = {"heap": 1 << 18, "resident": 1 << 20}
PAGE = os.sysconf("SC_PAGE_SIZE")
WAY_NAMES = [f"{end} {where}" for where in ("here", "on another thread") for end in ("closed", "dropped", "collected")]
EXACT_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def _heap():
    """A function: how many bytes malloc has given out. None where the C library does not tell (glibc before 2.33)."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return None
    mallinfo.restype = _Mallinfo

    def heap():
        info = mallinfo()
        return info.uordblks + info.hblkhd

    return heap


def driver_library():
    """The driver that is loaded, for calls that cuirass does not make."""
    path, _, _ = cuirass._cuirass._loaded_driver()
    return ctypes.CDLL(path)


def _device_memory():
    """A function: how many bytes of the current device's memory are in use, which the driver itself tells."""
    ask = driver_library().cuMemGetInfo_v2
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def used():
        status = ask(ctypes.byref(free), ctypes.byref(total))
        if status:
            raise RuntimeError(f"cuMemGetInfo returned {status}")
        return total.value - free.value

    return used


class Counter:
    """Counts what the process holds. Its room is made beforehand, so that counting is no part of what is counted."""

    def __init__(self):
        self.heap, self.device = _heap(), _device_memory()
        self.rows = array.array("q", bytes(8 * len(COUNTS) * (PARTS + 1)))

    def count(self, number):
        blocks = sys.getallocatedblocks()
        heap = self.heap() if self.heap else 0
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * PAGE
        with open("/proc/self/maps") as file:
            maps = sum(1 for _ in file)
        values = heap, blocks, resident, len(os.listdir("/proc/self/fd")), maps, len(os.listdir("/proc/self/task"))
        for place, value in enumerate((*values, self.device())):
            self.rows[number * len(COUNTS) + place] = value

    def grown(self, name):
        """The median of what the parts left."""
        column = self.rows[COUNTS.index(name) :: len(COUNTS)]
        differences = sorted(after - before for before, after in itertools.pairwise(column))
        return (differences[(PARTS - 1) // 2] + differences[PARTS // 2]) / 2

    def total(self, name):
        """What all parts left together."""
        column = self.rows[COUNTS.index(name) :: len(COUNTS)]
        return column[-1] - column[0]


class Elsewhere:
    """Another thread, on which objects end."""

    def __init__(self, device):
        self.queue, self.done, self.wrong = queue.SimpleQueue(), threading.Semaphore(0), []
        self.thread = threading.Thread(target=self._work, args=(device,), daemon=True)
        self.thread.start()

    def _work(self, device):
        device.set_current()
        while (job := self.queue.get()) is not None:
            end, things = job
            job = None
            try:
                while things:
                    end(things.pop())
            except BaseException as error:
                self.wrong.append(error)
                things.clear()
            self.done.release()

    def end(self, end, things):
        """Ends things, and waits for it."""
        self.queue.put((end, things))
        self.done.acquire()
        if self.wrong:
            raise self.wrong.pop()

    def stop(self):
        self.queue.put(None)
        self.thread.join()


def _drop(thing):
    del thing


def _lose(thing):
    cycle = [thing]
    cycle.append(cycle)


class Row(NamedTuple):
    """What a kind left behind: by a cycle or by a part, as the head of this file says."""

    kind: str
    cycles: int
    microseconds: float
    counts: dict
    driver: dict
    reports: int
    leaks: list
    # Where something leaked: bytes of heap that a cycle left, for each way in which the object ended.
    ways: dict


class Measure:
    """Measures kinds, one after the other."""

    def __init__(self, alone=True):
        self.at = Place()
        self.elsewhere = Elsewhere(self.at.device)
        self.counter = Counter()
        self.bounds = BOUNDS if alone else {name: bound for name, bound in BOUNDS.items() if name != "device"}

    def stop(self):
        self.elsewhere.stop()
        self.at.close()

    def settle(self):
        # The interpreter's cache of attributes keeps their names: a few thousand, which come and go.
        clear_caches()
        gc.collect()
        self.at.settle()
        cuirass.drain()
        self.at.settle()
        gc.collect()

    def turn(self, make, ends, cycles):
        for begin in range(0, cycles, BATCH):
            batch = range(begin, min(begin + BATCH, cycles))
            for way, end in enumerate(ends):
                if end is None:
                    continue
                things = [make() for number in batch if number % WAYS == way]
                if way < WAYS // 2:
                    while things:
                        end(things.pop())
                else:
                    self.elsewhere.end(end, things)
            gc.collect(0)
            self.at.settle()

    def kind(self, kind, cycles, seconds=None):
        """Measures one kind, with at most so many cycles; with about so many as the seconds allow, if given."""
        cycles = max(cycles // kind.fewer, WAYS * PARTS)
        with _reports() as reports:
            made = kind.set_up(self.at)
            make, close = made if isinstance(made, tuple) else (made, _drop)
            ends = (close, _drop, _lose) * 2
            started = time.monotonic()
            # The second warm-up tells how long a cycle takes when everything is loaded.
            self.turn(make, ends, WAYS)
            begin, warm = time.monotonic(), WAYS if kind.fewer >= 50 else max(WAYS * PARTS, min(cycles // 2, 1200))
            self.turn(make, ends, warm)
            self.settle()
            each = (time.monotonic() - begin) / warm
            if seconds is not None:
                left = max(0, seconds - (time.monotonic() - started))
                cycles = min(cycles, max(WAYS * PARTS, int(left / each)))
            part = -(-cycles // (PARTS * WAYS)) * WAYS
            for _attempt in range(4):
                row = self._parts(kind, make, ends, part, reports)
                if not row.leaks:
                    break
            else:
                row.ways.update(self._ways(make, ends, part, reports))
        del make, close, ends, made
        self.settle()
        return row

    def _count(self, make, ends, part, reports):
        """Makes and ends as many in each part, and counts after each."""
        # Twice, so that what counting itself needs is there.
        self.counter.count(0)
        self.counter.count(0)
        for number in range(PARTS):
            self.turn(make, ends, part)
            self.settle()
            reports.clear()
            self.counter.count(number + 1)

    def _ways(self, make, ends, part, reports):
        """Bytes of heap by a cycle that ended in each of the ways."""
        ways = {}
        for way, name in enumerate(WAY_NAMES):
            self._count(make, [ends[way] if way == other else None for other in range(WAYS)], part, reports)
            ways[name] = self.counter.grown("heap") / (part // WAYS)
        return ways

    def _parts(self, kind, make, ends, part, reports):
        told, marked = len(reports), cuirass.sim.reports_mark() if is_sim() else 0
        reports.clear()
        before = cuirass.sim.census() if is_sim() else {}
        begin = time.monotonic()
        self._count(make, ends, part, reports)
        return self._judge(kind, part, time.monotonic() - begin, before, reports, told, marked)

    def _judge(self, kind, part, elapsed, before, reports, told, marked):
        after = cuirass.sim.census() if is_sim() else {}
        names = before.keys() | after.keys()
        driver = {name: more for name in names if (more := after.get(name, 0) - before.get(name, 0)) > 0}
        counts = {name: self.counter.grown(name) for name in COUNTS}
        leaks = []
        for name, (each, least) in self.bounds.items():
            each += kind.theirs if name == "heap" else 0
            if counts[name] > max(each * part, least):
                leaks.append(name)
        for name, least in TOTALS.items():
            if self.counter.total(name) > (8 + kind.theirs) * part * PARTS + least:
                leaks.append(f"{name} in all")
        if driver:
            leaks.append("driver")
        strange = 0 if kind.reports else reports.made - told
        strange += cuirass.sim.reports_mark() - marked if is_sim() and not kind.wrong else 0
        if strange:
            leaks.append("reports")
        for name in ("heap", "blocks", "resident"):
            counts[name] /= part
        return Row(kind.name, part * PARTS, elapsed / (part * PARTS) * 1e6, counts, driver, strange, leaks, {})


class _Reports(list):
    """The last texts, and how many there were."""

    made = 0


@contextlib.contextmanager
def _reports():
    texts = _Reports()

    def show(message, *_rest):
        texts.made += 1
        texts.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", cuirass.CUDAWarning)
        previous, warnings.showwarning = warnings.showwarning, show
        try:
            yield texts
        finally:
            warnings.showwarning = previous


def table(rows):
    head = f"{'kind':34s}{'cycles':>8s}{'us':>9s}{'heap':>8s}{'blocks':>8s}{'resident':>9s}"
    yield head + f"{'files':>6s}{'maps':>6s}{'threads':>8s}{'device':>8s}{'driver':>8s}{'reports':>8s}"
    for row in rows:
        counts = row.counts
        line = f"{row.kind:34s}{row.cycles:8,d}{row.microseconds:9.1f}"
        line += f"{counts['heap']:8.2f}{counts['blocks']:8.3f}{counts['resident']:9.2f}"
        line += f"{counts['files']:6.0f}{counts['maps']:6.0f}{counts['threads']:8.0f}{counts['device']:8.0f}"
        line += f"{sum(map(abs, row.driver.values())):8d}{row.reports:8d}"
        yield line + (f"  LEAKS: {', '.join(row.leaks)} {row.driver or ''} {row.ways}" if row.leaks else "")


def serve():
    """Measures the kinds that the lines of its input name, with their numbers of cycles."""
    measure = Measure()
    kinds = {kind.name: kind for kind in KINDS}
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        name, cycles = json.loads(line)
        if reason := kinds[name].missing(measure.at):
            answer = {"missing": reason}
        else:
            answer = measure.kind(kinds[name], cycles)._asdict()
        print(json.dumps(answer), flush=True)
    measure.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=100_000, help="of each kind; slow kinds make fewer")
    parser.add_argument("--seconds", type=float, help="about how long all kinds may take together")
    parser.add_argument(
        "--share", metavar="N/OF", help="the Nth of so many parts of the kinds, for processes side by side"
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="words of their names; all kinds by default")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if os.environ.get("GLIBC_TUNABLES") is None:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | EXACT_MALLOC)
    if asked.serve:
        return serve()
    chosen = [kind for kind in KINDS if not asked.kinds or any(word in kind.name for word in asked.kinds)]
    if asked.share:
        number, of = map(int, asked.share.split("/"))
        chosen = chosen[number - 1 :: of]
    begin, rows, skipped = time.monotonic(), [], []
    measure = Measure(alone=not asked.share)
    gc.collect()
    gc.freeze()
    for number, kind in enumerate(chosen):
        if reason := kind.missing(measure.at):
            skipped.append(f"{kind.name:34s}not measured: {reason}")
            continue
        share = None
        if asked.seconds is not None:
            share = max(0.0, asked.seconds - (time.monotonic() - begin)) / (len(chosen) - number)
        rows.append(measure.kind(kind, asked.cycles, share))
        print(
            f"{number + 1}/{len(chosen)} {kind.name}: {', '.join(rows[-1].leaks) or 'ok'}", file=sys.stderr, flush=True
        )
    measure.stop()
    print(*table(rows), *skipped, sep="\n")
    leaking = [row.kind for row in rows if row.leaks]
    cycles = sum(row.cycles for row in rows)
    print(f"leaks: {len(rows)} kinds, {cycles:,} cycles, {time.monotonic() - begin:.0f} s, {len(leaking)} leak")
    return 1 if leaking else 0


if __name__ == "__main__":
    sys.exit(main())
