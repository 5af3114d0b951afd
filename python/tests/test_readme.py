"""The programs in the README and in FAILURES.md do what these say."""

import pathlib
import re
import subprocess
import sys

import pytest

from .conftest import needs_sim

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(marker, page="README.md"):
    """The one program in a page that has this word."""
    text = (ROOT / page).read_text()
    (found,) = [text for text in re.findall(r"```python\n(.*?)```", text, re.S) if marker in text]
    return found


def run(folder, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    ("marker", "check"),
    [
        ("compile(", ""),
        (
            "multiprocessing",
            """
    assert process.exitcode == 0
    from cuirass import LegacyPinnedMemoryResource
    staging = LegacyPinnedMemoryResource().allocate(4096)
    shared.copy_to(staging, stream=stream)
    stream.sync()
    assert bytes(memoryview(staging)) == bytes([7]) * 4096
""",
        ),
    ],
)
def test_programs(tmp_path, marker, check):
    (tmp_path / "program.py").write_text(program(marker) + check)
    result = run(tmp_path, "program.py")
    assert result.returncode == 0, result.stdout + result.stderr


RACES = """

def streams():
    device = cuirass.Device(0)
    device.set_current()
    return device, device.create_stream(), device.create_stream()

def test_without_a_race():
    device, first, second = streams()
    memory = device.allocate(64, stream=first)
    memory.fill(1, stream=first)
    second.wait(first)
    memory.fill(2, stream=second)
    second.sync()

def test_with_a_race():
    device, first, second = streams()
    memory = device.allocate(64, stream=first)
    first.sync()
    memory.fill(1, stream=first)
    memory.fill(2, stream=second)
    second.sync()
"""


@needs_sim
def test_the_fixture_finds_a_race(tmp_path):
    (tmp_path / "test_races.py").write_text(program("pytest.fixture") + RACES)
    result = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_races.py")
    assert result.returncode == 1
    assert "2 passed, 1 error" in result.stdout, result.stdout
    assert "ERROR test_races.py::test_with_a_race" in result.stdout
    assert "AssertionError: race: a fill by cuMemsetD8Async" in result.stdout


OPERATION = """import cuirass
import pytest


@pytest.fixture
def stream():
    device = cuirass.Device(0)
    device.set_current()
    return device.create_stream()


def operation(stream):
    made = [stream.device.allocate(64, stream=stream) for _ in range(2)]
    MADE.append(len(made))


MADE = []


"""
AFTER = """
    # The allocations failed, each in its turn; what gives memory back can only warn, and the last time nothing failed.
    assert 2 < len(MADE) < nth - 2
"""


def test_each_call_of_an_operation_fails(tmp_path):
    test = program("first_call", "FAILURES.md")
    (tmp_path / "test_mine.py").write_text(OPERATION + test + AFTER)
    result = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "always", "test_mine.py")
    assert result.returncode == 0 and "1 passed" in result.stdout, result.stdout + result.stderr
    assert "CUDAWarning: cuMemFreeAsync" in result.stdout, result.stdout
