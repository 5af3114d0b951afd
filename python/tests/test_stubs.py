"""The stubs are kept true, and the package checks under strict typing."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent

pytest.importorskip("mypy")
pytestmark = pytest.mark.thread_unsafe(reason="other processes, with one cache")


def run(*command):
    environment = {**os.environ, "MYPY_CACHE_DIR": os.environ.get("MYPY_CACHE_DIR", ".mypy_cache")}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT / "python", capture_output=True, text=True, env=environment
    )


@pytest.mark.timeout(400)
def test_stubtest():
    result = run("mypy.stubtest", "cuirass", "--allowlist", str(HERE / "stubtest_allow.txt"),
                 "--ignore-unused-allowlist")  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.timeout(400)
def test_strict_typing():
    result = run("mypy", "--config-file", str(ROOT / "pyproject.toml"), "cuirass")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.timeout(400)
def test_types_as_a_program_sees_them(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
from cuirass import Buffer, CUDAError, Device, Event, EventOptions, LaunchConfig, Program, ProgramOptions, launch, sim


class Foreign:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1


device = Device(0)
stream = device.create_stream()
event: Event = stream.record(options=EventOptions(timing_enabled=True))
wrapped = device.create_stream(Foreign())
buffer: Buffer = device.allocate(1024, stream=stream)
kernel = Program("", "c++", ProgramOptions(std="c++17")).compile("cubin").get_kernel("k")
launch(Foreign(), LaunchConfig(grid=1, block=(32, 1)), kernel, buffer, 1, 2.0)
elapsed: float = event - event
major: int = device.compute_capability.major
with device as same, buffer as memory:
    reveal_type(same)
    reveal_type(memory)
try:
    stream.sync()
except CUDAError as error:
    reveal_type(error.status)
counts: dict[str, int] = sim.census()
device.allocate("1024", stream=stream)
"""
    )
    result = run("mypy", "--strict", str(program))
    lines = [line.split(": ", 1)[1] for line in result.stdout.splitlines() if ": " in line]
    assert lines[:4] == [
        'note: Revealed type is "cuirass._cuirass.Device"',
        'note: Revealed type is "cuirass._cuirass.Buffer"',
        'note: Revealed type is "cuirass._error.Status | None"',
        'error: Argument 1 to "allocate" of "Device" has incompatible type "str"; expected "SupportsIndex"  [arg-type]',
    ], result.stdout
