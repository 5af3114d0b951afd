"""``python -m cuirass demo``: the main job, and the promise, in one command."""

import ctypes
import os
import subprocess
import sys
import time
import traceback
from typing import Any, Literal, NamedTuple

import cuirass
from cuirass import CUDAError, CUDAStickyError, Device, EventOptions, LaunchConfig, Program, ProgramOptions, launch

_TIMED = EventOptions(timing_enabled=True)
# A C float also where the driver does not tell that the parameter is one (before CUDA 12.4).
_TWO = ctypes.c_float(2.0)


class _Row(NamedTuple):
    what: str
    stream: str
    shape: str
    milliseconds: float
    verdict: str


def _source() -> str:
    path = os.path.join(os.path.dirname(__file__), "demo_kernels.cu")
    with open(path, encoding="utf-8") as file:
        return file.read()


def _choose(driver: str | None) -> Device | None:
    """Take the driver that was asked for; else the GPU if there is one, and the simulated device if there is none."""
    if driver == "sim":
        cuirass.sim.use()
    elif driver is None and "CUIRASS_DRIVER" not in os.environ:
        try:
            return Device(0)
        except CUDAError as error:
            print(f"No GPU can be used here: {error}\nThe simulated device is used instead.\n")
            if cuirass._cuirass._loaded_driver() is not None:
                # A driver without a device is in the process already: begin again.
                environment = {**os.environ, "CUIRASS_DRIVER": "sim"}
                os.execve(sys.executable, [sys.executable, "-m", "cuirass", "demo"], environment)
            cuirass.sim.use()
    try:
        return Device(0)
    except CUDAError as error:
        print(f"Device 0 cannot be used: {error}")
        return None


class _Demo:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.rows: list[_Row] = []
        self.wrong = 0
        self.host = cuirass.LegacyPinnedMemoryResource()
        self.kept: list[Any] = []

    def verdict(self, good: bool, text: str) -> str:
        if not good:
            self.wrong += 1
        return f"{text}: {'as expected' if good else 'WRONG'}"

    def host_floats(self, count: int, kind: Literal["f", "d"] = "f") -> tuple[Any, "memoryview[float]"]:
        buffer = self.host.allocate(count * (4 if kind == "f" else 8))
        self.kept.append(buffer)
        return buffer, memoryview(buffer).cast(kind)

    def work(self) -> None:
        """Three kernels on two streams, ordered by events."""
        simulated = cuirass.sim.is_active()
        n, side = (1 << 16, 64) if simulated else (1 << 24, 1024)
        device = self.device
        started = time.perf_counter()
        code = Program(_source(), "c++", ProgramOptions(name="demo_kernels.cu", std="c++17")).compile("cubin")
        compiled = time.perf_counter() - started
        path, version = cuirass._cuirass._loaded_compiler() or ("?", 0)
        print(f"compiled 4 kernels to {len(code.code)} bytes in {compiled * 1e3:.0f} ms, by NVRTC "
              f"{version // 1000}.{version % 1000 // 10} ({path})")  # fmt: skip

        first, second = device.create_stream(), device.create_stream()
        x, y, total = (device.allocate(size, stream=first) for size in (4 * n, 4 * n, 8))
        a, b, c = (device.allocate(4 * side * side, stream=second) for _ in range(3))
        host_x, values_x = self.host_floats(n)
        host_y, values_y = self.host_floats(n)
        host_total, values_total = self.host_floats(1, "d")
        host_a, values_a = self.host_floats(side * side)
        host_b, values_b = self.host_floats(side * side)
        host_c, values_c = self.host_floats(side * side)
        _write(values_x, lambda i: i % 1000 * 0.25)
        _write(values_y, lambda i: 1.0)
        _write(values_a, lambda i: i % 7 - 3.0)
        _write(values_b, lambda i: i % 5 * 0.5)

        x.copy_from(host_x, stream=first)
        y.copy_from(host_y, stream=first)
        total.fill(0, stream=first)
        a.copy_from(host_a, stream=second)
        b.copy_from(host_b, stream=second)

        line = LaunchConfig(grid=n // 256, block=256)
        square = LaunchConfig(grid=(side // 16, side // 16), block=(16, 16))
        saxpy, block_sum, matmul = (code.get_kernel(name) for name in ("saxpy", "block_sum", "matmul"))
        before_saxpy = first.record(options=_TIMED)
        launch(first, line, saxpy, _TWO, x, y, n)
        after_saxpy = first.record(options=_TIMED)
        # The sum is on the other stream: it waits there for the event, and the host does not.
        second.wait(after_saxpy)
        before_sum = second.record(options=_TIMED)
        launch(second, line, block_sum, y, total, n)
        after_sum = second.record(options=_TIMED)
        launch(second, square, matmul, a, b, c, side)
        after_matmul = second.record(options=_TIMED)
        c.copy_to(host_c, stream=second)
        total.copy_to(host_total, stream=second)
        first.wait(after_sum)
        y.copy_to(host_y, stream=first)
        first.sync()
        second.sync()

        good_y, good_total, good_c = _compare(values_x, values_y, values_total, values_a, values_b, values_c, side)
        self.row("saxpy", "first", line, after_saxpy - before_saxpy, good_y, f"{n} floats")
        self.row("block_sum", "second", line, after_sum - before_sum, good_total, f"sum {values_total[0]:.1f}")
        self.row("matmul", "second", square, after_matmul - after_sum, good_c, f"{side} x {side}")
        for buffer in (x, y, total, a, b, c):
            buffer.close()
        device.sync()

    def row(self, what: str, stream: str, config: LaunchConfig, milliseconds: float, good: bool, text: str) -> None:
        shape = f"{'x'.join(map(str, config.grid))} blocks of {'x'.join(map(str, config.block))}"
        self.rows.append(_Row(what, stream, shape, milliseconds, self.verdict(good, text)))

    def table(self) -> None:
        titles = ("kernel", "stream", "grid", "ms", "result")
        cells = [titles] + [(r.what, r.stream, r.shape, f"{r.milliseconds:.3f}", r.verdict) for r in self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
        print()
        for number, row in enumerate(cells):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))
        print()

    def failures(self) -> None:
        """The promise: each failure is raised where it happened, and what was there before still works."""
        device, stream = self.device, self.device.create_stream()
        code = Program(_source(), "c++", ProgramOptions(std="c++17")).compile("cubin")
        saxpy = code.get_kernel("saxpy")
        buffer = device.allocate(1 << 10, stream=stream)

        print("1. An allocation that cannot succeed:")
        try:
            device.allocate(1 << 60, stream=stream)
        except CUDAError as error:
            _show(error)
            self.check(error.status == 2 and error.call == "cuMemAllocFromPoolAsync", "status and call")
        else:
            self.check(False, "an error")

        print("2. A launch with an argument too few, and with one that does not fit:")
        self.wrong_launches(stream, saxpy, buffer)

        print("3. What was there before still works:")
        buffer.fill(0, stream=stream)
        launch(stream, LaunchConfig(grid=1, block=32), saxpy, _TWO, buffer, buffer, 32)
        stream.sync()
        print("   the buffer was filled, and the kernel ran on it")

        print("4. A kernel that writes where nothing is (in a process of its own, which the fault spoils):")
        sys.stdout.flush()
        name = "sim" if cuirass.sim.is_active() else "gpu"
        child = subprocess.run([sys.executable, "-m", "cuirass", "demo", "--fault"],
                               env={**os.environ, "CUIRASS_DRIVER": name}, check=False)  # fmt: skip
        self.check(child.returncode == 0, "the process lived, and every later call said what had happened")

    def wrong_launches(self, stream: cuirass.Stream, saxpy: cuirass.Kernel, buffer: cuirass.Buffer) -> None:
        try:
            saxpy.num_arguments  # noqa: B018
        except CUDAError as error:
            _show(error)
            print("   this cannot be shown here: nothing is known to hold the arguments against")
            self.check(error.needs is not None and error.call == "cuKernelGetParamInfo", "refused by name")
            return
        for arguments, kind in (((_TWO, buffer, buffer), ValueError), ((_TWO, buffer, buffer, 1 << 40), OverflowError)):
            try:
                launch(stream, LaunchConfig(grid=1, block=32), saxpy, *arguments)
            except kind as error:
                _show(error)
                self.check(True, "nothing was launched")
            else:
                self.check(False, "an error")

    def check(self, good: bool, what: str) -> None:
        print(f"   [{self.verdict(good, what)}]")


def _show(error: BaseException) -> None:
    for line in "".join(traceback.format_exception_only(error)).splitlines():
        print(f"   {line}")


def _write(values: "memoryview[float]", of: Any) -> None:
    for start in range(0, len(values), 35000):
        # The values repeat: one stretch of them is computed, whatever the size.
        stop = min(start + 35000, len(values))
        if start == 0:
            for i in range(stop):
                values[i] = of(i)
        else:
            values[start:stop] = values[: stop - start]


def _compare(x: Any, y: Any, total: Any, a: Any, b: Any, c: Any, side: int) -> tuple[bool, bool, bool]:
    try:
        import numpy
    except ImportError:
        expected = [2.0 * value + 1.0 for value in x]
        good_y = all(abs(e - v) <= 1e-3 for e, v in zip(expected, y, strict=True))
        rows = [list(a[i * side : (i + 1) * side]) for i in range(side)]
        columns = [b.tolist()[i::side] for i in range(side)]
        good_c = all(
            abs(sum(p * q for p, q in zip(row, column, strict=True)) - c[i * side + j]) <= 1e-2
            for i, row in enumerate(rows)
            for j, column in enumerate(columns)
        )
        return good_y, abs(sum(expected) - total[0]) <= 1e-6 * abs(total[0]), good_c
    expected_y = 2.0 * numpy.asarray(x) + 1.0
    product = numpy.asarray(a).reshape(side, side).astype(float) @ numpy.asarray(b).reshape(side, side).astype(float)
    return (
        bool(numpy.allclose(numpy.asarray(y), expected_y)),
        bool(numpy.isclose(total[0], expected_y.sum(dtype=float))),
        bool(numpy.allclose(numpy.asarray(c).reshape(side, side), product, rtol=1e-4)),
    )


def fault() -> int:
    """What the child process does: a fault, and what every later call says of it."""
    import warnings

    warnings.simplefilter("ignore", cuirass.CUDAWarning)
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    kernel = Program(_source(), "c++", ProgramOptions(std="c++17")).compile("cubin").get_kernel("write_nowhere")
    launch(stream, LaunchConfig(grid=1, block=32), kernel, None)
    as_expected = True
    for name, call in (
        ("stream.sync()", stream.sync),
        ("device.allocate(16, stream=stream)", lambda: device.allocate(16, stream=stream)),
    ):
        try:
            call()
        except CUDAStickyError as error:
            print(f"   {name}")
            _show(error)
            as_expected = as_expected and error.sticky
        else:
            as_expected = False
    return 0 if as_expected else 1


def run(driver: str | None) -> int:
    """Run the demonstration; 1 if something is not as expected."""
    device = _choose(driver)
    if device is None:
        return 1
    device.set_current()
    path, version, simulated = cuirass._cuirass._loaded_driver() or ("?", 0, False)
    kind = "the simulated device" if simulated else "a GPU"
    print(f"{device.name}, compute capability {'.'.join(map(str, device.compute_capability))}: {kind}, driver of CUDA "
          f"{version // 1000}.{version % 1000 // 10} ({path})")  # fmt: skip
    demo = _Demo(device)
    try:
        demo.work()
    except CUDAError as error:
        if error.status != 222:  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            raise
        _show(error)
        how = "add ptx=any to CUIRASS_SIM" if simulated else "install the compiler of its own CUDA, or a newer driver"
        print(f"The compiler is newer than this driver, which does not take what it makes: {how}.")
        return 1
    demo.table()
    demo.failures()
    print("\neverything was as expected" if demo.wrong == 0 else f"\n{demo.wrong} things were NOT as expected")
    return 1 if demo.wrong else 0
