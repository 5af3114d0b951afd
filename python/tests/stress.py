"""Sixteen threads that create, use and drop everything at once, while warnings run code that calls back, the collector
runs, and releases and creations are made to fail.

::

    python python/tests/stress.py --seconds 600 --seed 7
    CUIRASS_DRIVER=gpu python python/tests/stress.py --seconds 300

It goes in rounds. After each one everything has been dropped, and it checks that nothing is left (the simulated
driver's census, or what the calls that were made started and did not end), and that each failure that was injected was
told: by one exception, note or warning. A round that makes no progress for a minute dumps all stacks and exits.
"""

import argparse
import collections
import contextlib
import faulthandler
import gc
import os
import random
import re
import sys
import threading
import time
import warnings

os.environ.setdefault("CUIRASS_DRIVER", "sim")
if os.environ["CUIRASS_DRIVER"] == "sim":
    os.environ.setdefault("CUIRASS_SIM", "devices=2,quiet=1")

import cuirass
from cuirass import EventOptions, LaunchConfig, ProgramOptions, StreamOptions, launch, testing

SOURCE = """extern "C" __global__ void add(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += n; }
extern "C" __global__ void nothing() {}
"""
PATIENCE = int(os.environ.get("PATIENCE", "60"))
"""Seconds without any progress of a thread, after which it hangs."""
INJECTED = "CUDA_ERROR_UNKNOWN"
"""What every injected fault answers, and nothing else here."""
TOLD = re.compile(r"CUDA_ERROR_UNKNOWN|NVRTC_ERROR_999")
RELEASES = (
    "cuStreamDestroy_v2", "cuEventDestroy_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuGraphExecDestroy",
    "cuGraphDestroy", "cuLibraryUnload", "cuMemPoolDestroy",
)  # fmt: skip
MODES = ("nothing fails", "releases fail", "anything fails")
# Races that the program itself makes: another thread has closed it, or captures its stream; and what comes of a context
# that could not be put back.
OWN_FAULT = re.compile(r"closed|CONTEXT_IS_DESTROYED|captur|in use|using|ended|building|joined|still to come")


class Told:
    """What was injected, and where it was told."""

    # No lock, and nothing that is read and written back: the collector runs anywhere, and what it lets go of reports.
    def __init__(self):
        self.log = []
        self.strange = []
        self.here = threading.local()

    def add(self, what, number=1):
        self.log.append((what, number))
        if what in ("raised or noted", "reported") and hasattr(self.here, "log"):
            self.here.log.append(number)

    def counts(self):
        counts = collections.Counter()
        for what, number in self.log:
            counts[what] += number
        return counts

    def error(self, error):
        """An exception that a thread got."""
        texts = [str(error), *getattr(error, "__notes__", ())]
        injected = sum(len(TOLD.findall(text)) for text in texts)
        self.add("raised or noted", injected)
        if injected == 0 and not OWN_FAULT.search(" ".join(texts)) and not isinstance(error, MemoryError):
            self.odd(f"{type(error).__name__}: {' | '.join(texts)}")

    def report(self, text):
        injected = len(TOLD.findall(text))
        self.add("reported", injected)
        if injected == 0 and "captur" not in text and "CallbackError" not in text:
            self.odd(f"reported {text}")
        if "CallbackError" in text:
            self.add("callbacks reported")

    def odd(self, text):
        self.strange.append(text)


class CallbackError(Exception):
    """What callbacks raise."""


class UserCode:
    """What warnings run: it allocates, frees, collects, takes a lock, and sometimes raises."""

    def __init__(self, told, seed):
        self.told, self.random = told, random.Random(seed)
        self.lock = threading.RLock()
        self.inside = threading.local()

    def show(self, message, category, filename, lineno, file=None, line=None):
        self.told.report(str(message))
        self.run()
        if self.random.random() < 0.1:
            raise LookupError("a warning's own")

    def match(self, text):
        """As a filter's pattern."""
        self.run()
        return True

    def unraisable(self, unraisable):
        if not isinstance(unraisable.exc_value, LookupError):
            self.told.odd(f"unraisable: {unraisable.exc_value!r}")

    def run(self):
        if getattr(self.inside, "on", False):
            return
        self.inside.on = True
        try:
            with self.lock:
                device = cuirass.Device(0)
                stream = device.create_stream()
                with device.allocate(64, stream=stream) as memory:
                    memory.fill(1, stream=stream)
                if self.random.random() < 0.2:
                    gc.collect(0)
                stream.close()
        except (cuirass.CUDAError, RuntimeError) as error:
            self.told.error(error)
        finally:
            self.inside.on = False


class Resource(cuirass.MemoryResource):
    """A user's."""

    is_device_accessible, is_host_accessible, device_id = True, False, 0

    def allocate(self, size, *, stream):
        inner = cuirass.Device(0).allocate(size, stream=stream)
        buffer = cuirass.Buffer.from_handle(inner.handle, size, mr=Resource(), stream=stream)
        buffer.memory_resource.inner = inner
        return buffer

    def deallocate(self, ptr, size, *, stream):
        self.inner.close(stream)


class Memory:
    """A buffer with the stream that all its work is on, and that orders its release."""

    def __init__(self, buffer, stream):
        self.buffer, self.stream = buffer, stream
        self.is_pinned = isinstance(buffer.memory_resource, cuirass.LegacyPinnedMemoryResource)

    def close(self):
        self.buffer.close()


class Worker(threading.Thread):
    """One of the threads."""

    def __init__(self, number, stress, mode, seed, until):
        super().__init__(name=f"worker {number}", daemon=True)
        self.stress, self.mode, self.until = stress, mode, until
        self.random = random.Random(seed)
        self.progress = time.monotonic()
        self.actions = 0
        self.things = []

    def run(self):
        names = [name for name in dir(self) if name.startswith("do_")]
        try:
            while time.monotonic() < self.until:
                self.step(getattr(self, self.random.choice(names)))
                self.progress = time.monotonic()
                self.actions += 1
            self.step(self.things.clear)
        except BaseException as error:
            self.stress.told.odd(f"{self.name} ended by {error!r}")
        finally:
            self.things = None
            self.progress = None

    def step(self, action):
        told = self.stress.told
        told.here.log = []
        try:
            with self.fault() as fault:
                try:
                    action()
                except (cuirass.CUDAError, RuntimeError, ValueError, CallbackError) as error:
                    self.stress.told.error(error)
                    # Its traceback has objects.
                    del error
                if self.random.random() < 0.3:
                    self.drop_one()
        finally:
            if fault is not None:
                told.add("injected", fault.count)
                here = sum(told.here.log)
                if fault.count != here:
                    name = getattr(action, "__name__", "?")
                    told.odd(f"{name}: {fault.first_call} made to fail, and told {here} times")
                if fault.count:
                    # A context that could not be put back is another's, who may destroy it.
                    self.device.set_current()

    def fault(self):
        chance = self.random.random()
        if self.mode == "nothing fails" or chance > 0.3:
            return contextlib.nullcontext()
        if self.mode == "releases fail":
            call, nth = self.random.choice(RELEASES), 1
        else:
            call, nth = None, self.random.randrange(1, 30)
        # In a round of releases they are made all the same, so that nothing is left.
        done = self.mode == "releases fail" or chance < 0.15
        return testing.fail(call, nth=nth, status=INJECTED, done=done, thread=threading.get_ident())

    def keep(self, thing):
        """Keeps it for later: alone, for all threads, or in a cycle that only the collector takes apart."""
        chance = self.random.random()
        if chance < 0.5:
            self.things.append(thing)
        elif chance < 0.8:
            self.share(thing)
        else:
            cycle = [thing]
            cycle.append(cycle)
        if len(self.things) > 20:
            del self.things[: self.random.randrange(20)]

    def pick(self, kind):
        """Something of a class, of this thread's or of all; made anew where there is none."""
        candidates = [thing for thing in self.things if isinstance(thing, kind)]
        thing = self.random.choice(self.stress.shared)
        if isinstance(thing, kind):
            candidates.append(thing)
        return self.random.choice(candidates) if candidates else None

    def drop_one(self):
        if self.things:
            self.things.pop(self.random.randrange(len(self.things)))
        self.share(None)

    def share(self, thing):
        shared = self.stress.shared
        at = self.random.randrange(len(shared))
        with self.stress.taking:
            before, shared[at] = shared[at], thing
        # Dropped with no lock held.
        del before

    @property
    def device(self):
        return cuirass.Device(0)

    def stream(self):
        return self.pick(cuirass.Stream) or self.do_create_stream()

    # -- what they do -------------------------------------------------------------------------------------------

    def do_create_stream(self):
        stream = self.device.create_stream(options=StreamOptions(nonblocking=self.random.random() < 0.7))
        self.keep(stream)
        return stream

    def do_race(self):
        """Closes something that others may be using."""
        thing = self.pick((cuirass.Stream, cuirass.Event, cuirass.graph.Graph))
        if thing is not None and self.random.random() < 0.3:
            thing.close()

    def do_close(self):
        thing = self.take((cuirass.Stream, cuirass.Event, Memory, cuirass.graph.Graph))
        if thing is not None:
            thing.close()

    def do_event(self):
        stream = self.stream()
        event = stream.record(options=EventOptions(timing_enabled=self.random.random() < 0.5))
        self.keep(event)
        other = self.pick(cuirass.Event)
        if other is not None:
            self.stream().wait(other)
            if self.random.random() < 0.3:
                other.sync()

    def do_allocate(self):
        stream = self.stream()
        kind = self.random.randrange(5)
        if kind == 0:
            buffer = cuirass.LegacyPinnedMemoryResource().allocate(256)
        elif kind == 1:
            pool = cuirass.DeviceMemoryResource(0, cuirass.DeviceMemoryResourceOptions())
            buffer = pool.allocate(256, stream=stream)
        elif kind == 2:
            buffer = Resource().allocate(256, stream=stream)
        else:
            buffer = self.device.allocate(256, stream=stream)
        self.keep(Memory(buffer, stream))

    def take(self, kind):
        """As pick, and nobody else has it until it is kept again."""
        for at in self.random.sample(range(len(self.stress.shared)), 4):
            with self.stress.taking:
                thing = self.stress.shared[at]
                if isinstance(thing, kind):
                    self.stress.shared[at] = None
                    return thing
        for at, thing in enumerate(self.things):
            if isinstance(thing, kind):
                return self.things.pop(at)
        return None

    def do_work(self):
        memory = self.take(Memory)
        if memory is None or memory.is_pinned:
            return
        memory.buffer.fill(self.random.randrange(256), stream=memory.stream)
        launch(memory.stream, LaunchConfig(grid=1, block=32), self.stress.kernel, memory.buffer, 32)
        if self.random.random() < 0.5:
            self.keep(memory)

    def do_copy(self):
        one, two = self.take(Memory), self.take(Memory)
        if one is None or two is None:
            return
        try:
            one.stream.wait(two.stream)
            one.buffer.copy_to(two.buffer, stream=one.stream)
            two.stream.wait(one.stream)
            if one.is_pinned or two.is_pinned:
                one.stream.sync()
        except (cuirass.CUDAError, RuntimeError):
            # Whether the copy is done with them, and whose stream is behind it, is not known.
            self.stress.unknown.append((one, two))
            raise
        self.keep(one)
        self.keep(two)

    def do_view(self):
        buffer = cuirass.LegacyPinnedMemoryResource().allocate(256)
        view = memoryview(buffer)
        buffer.close()
        view[:4] = b"abcd"
        self.keep(view)

    def do_launch(self):
        launch(self.stream(), LaunchConfig(grid=1, block=1), self.stress.nothing)

    def do_code(self):
        code = cuirass.ObjectCode.from_ptx(self.stress.ptx)
        self.keep(code.get_kernel("nothing"))

    def do_compile(self):
        if self.random.random() < 0.05:
            program = cuirass.Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{self.device.arch}"))
            self.keep(program.compile("ptx"))
            self.keep(program)

    def do_graph(self):
        memory = self.device.allocate(256, stream=self.device.create_stream())
        builder = self.device.create_graph_builder()
        mode = self.random.choice(("relaxed", "thread_local"))
        # What a warning runs on this thread would spoil the capture, as the program itself would.
        inside = self.stress.user.inside
        inside.on = mode == "thread_local"
        try:
            self.graph(builder.begin_building(mode), memory)
        finally:
            inside.on = False

    def graph(self, builder, memory):
        launch(builder, LaunchConfig(grid=1, block=32), self.stress.kernel, memory, 32)
        if self.random.random() < 0.3:
            forks = builder.split(3)
            for fork in forks:
                launch(fork, LaunchConfig(grid=1, block=1), self.stress.nothing)
            builder = cuirass.graph.GraphBuilder.join(*forks)
            del forks, fork
        if self.random.random() < 0.5:
            builder.callback(self.stress.callback(self.random.random() < 0.2))
        chance = self.random.random()
        if chance < 0.1:
            return  # the builder is dropped in the middle
        if chance < 0.2:
            builder.close()
            return
        graph = builder.end_building().complete()
        if chance < 0.4:
            graph.update(builder)
        builder.close()
        stream = self.device.create_stream()
        for _ in range(self.random.randrange(4)):
            graph.launch(stream)
        if chance < 0.7:
            stream.sync()
        self.keep(graph)

    def do_context(self):
        if self.random.random() < 0.05:
            context = self.device.create_context()
            stream = context.create_stream()
            self.keep(self.device.allocate(64, stream=stream))
            self.keep(stream)

    def do_current(self):
        with self.device:
            self.device.set_current()
            cuirass.drain()

    def do_collect(self):
        if self.random.random() < 0.1:
            gc.collect()


class Stress:
    """The whole of it."""

    def __init__(self, seed, threads):
        self.random = random.Random(seed)
        self.threads = threads
        self.told = Told()
        self.user = UserCode(self.told, seed)
        self.shared = [None] * 32
        self.taking = threading.Lock()
        self.unknown = []
        device = cuirass.Device(0)
        device.set_current()
        self.ptx = cuirass.Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("ptx").code
        code = cuirass.ObjectCode.from_ptx(self.ptx)
        self.kernel, self.nothing = code.get_kernel("add"), code.get_kernel("nothing")
        stream = device.create_stream()
        launch(stream, LaunchConfig(grid=1, block=1), self.nothing)
        stream.sync()
        stream.close()
        warnings.resetwarnings()
        warnings.filters.insert(0, ("always", self.user, cuirass.CUDAWarning, None, 0))
        warnings._filters_mutated()
        warnings.showwarning = self.user.show
        sys.unraisablehook = self.user.unraisable

    def callback(self, raises):
        def called():
            if raises:
                self.told.add("callbacks raised")
                raise CallbackError("a callback's own")

        return called

    def round(self, mode, seconds):
        """One round; what was wrong with it."""
        alive = Alive()
        self.told.log.clear()
        until = time.monotonic() + seconds
        workers = [Worker(n, self, mode, self.random.random(), until) for n in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            while worker.is_alive():
                faulthandler.dump_traceback_later(PATIENCE + 30, exit=True)
                alive.tally()
                worker.join(0.2)
                self.check_progress(workers)
        actions = sum(worker.actions for worker in workers)
        workers.clear()
        del worker
        self.at_rest()
        wrong = [] if mode == "anything fails" else alive.left()
        alive.stop()
        counts = self.told.counts()
        told = counts["raised or noted"] + counts["reported"]
        if counts["injected"] != told:
            wrong.append(f"{counts['injected']} failures were injected, {told} were told: {dict(counts)}")
        if counts["callbacks raised"] != counts["callbacks reported"]:
            wrong.append(f"callbacks: {dict(counts)}")
        wrong += sorted(set(self.told.strange))[:5]
        self.told.strange.clear()
        print(f"{mode}: {actions} actions, {counts['injected']} failures injected, {told} told", flush=True)
        return wrong

    def check_progress(self, workers):
        now = time.monotonic()
        for worker in workers:
            progress = worker.progress
            if progress is not None and now - progress > PATIENCE:
                print(f"stress: {worker.name} has hung for {PATIENCE} seconds", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)

    def at_rest(self):
        """Everything dropped, and all work done."""
        for at in range(len(self.shared)):
            self.shared[at] = None
        cuirass.Device(0).sync()
        self.unknown.clear()
        for _ in range(3):
            gc.collect()
            cuirass.Device(0).sync()
            cuirass.drain()


class Alive:
    """What is alive: the simulated driver's census; on a real one, what the calls that were made say."""

    STARTS = {
        "cuStreamCreateWithPriority": "stream", "cuEventCreate": "event", "cuMemAllocFromPoolAsync": "memory",
        "cuMemAllocHost_v2": "pinned memory", "cuMemPoolCreate": "pool", "cuLibraryLoadData": "library",
        "cuGraphInstantiateWithParams": "executable graph", "cuCtxCreate_v2": "context",
    }  # fmt: skip
    ENDS = {
        "cuStreamDestroy_v2": "stream", "cuEventDestroy_v2": "event", "cuMemFreeAsync": "memory",
        "cuMemFreeHost": "pinned memory", "cuMemPoolDestroy": "pool", "cuLibraryUnload": "library",
        "cuGraphExecDestroy": "executable graph", "cuCtxDestroy_v2": "context",
    }  # fmt: skip

    def __init__(self):
        self.before = cuirass.sim.census() if cuirass.sim.is_active() else None
        self.counts = collections.Counter()
        # It was there before the faults: what it sees was really made.
        self.recording = None if self.before is not None else cuirass._cuirass._record()

    def tally(self):
        for name, status, _ in self.recording.take() if self.recording else ():
            if status == 0:
                self.counts[self.STARTS.get(name)] += 1
                self.counts[self.ENDS.get(name)] -= 1

    def left(self):
        if self.before is not None:
            now = cuirass.sim.census()
            kinds = [kind for kind in now if now[kind] != self.before.get(kind)]
            return [f"{kind}: {self.before.get(kind)} before, {now[kind]} left" for kind in kinds]
        self.tally()
        kinds = set(self.STARTS.values())
        return [f"{kind}: {self.counts[kind]} left" for kind in sorted(kinds) if self.counts[kind] != 0]

    def stop(self):
        if self.recording:
            self.recording.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=16)
    options = parser.parse_args()
    faulthandler.enable()
    faulthandler.dump_traceback_later(PATIENCE + 30, exit=True)
    stress = Stress(options.seed, options.threads)
    end = time.monotonic() + options.seconds
    rounds, wrong = 0, []
    while rounds < len(MODES) or time.monotonic() < end:
        mode = MODES[rounds % len(MODES)]
        left = max(end - time.monotonic(), 1)
        seconds = min(options.seconds / len(MODES), 10, left)
        wrong += [f"round {rounds + 1}, {mode}: {text}" for text in stress.round(mode, seconds)]
        rounds += 1
        if len(wrong) > 10:
            break
    faulthandler.cancel_dump_traceback_later()
    for text in wrong:
        print(f"stress: {text}", file=sys.stderr)
    print(f"stress: {rounds} rounds of {options.threads} threads, seed {options.seed}, {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
