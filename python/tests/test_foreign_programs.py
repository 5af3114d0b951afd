"""Programs that know nothing of cuirass, on the simulated driver, by ``python -m cuirass sim``."""

import pathlib
import subprocess
import sys

import pytest

from .conftest import needs_sim

SCRIPTS = pathlib.Path(__file__).parents[2] / "sim-libs" / "tests"


def sim(*command, **environment):
    import os

    words = [sys.executable, "-m", "cuirass", "sim", "--", *command]
    env = os.environ | {"CUIRASS_SIM": "devices=2"} | environment
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)


@needs_sim
@pytest.mark.parametrize("script", ["bindings", "core", "foreign", "kernels"])
def test_a_program_of_another_library(script):
    pytest.importorskip("cuda.bindings" if script != "core" else "cuda.core")
    result = sim(sys.executable, str(SCRIPTS / f"{script}.py"))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_sim
def test_the_official_core_loads_no_cubin():
    """A cubin is code of a real GPU: the error says so, and so does the simulator's report."""
    pytest.importorskip("cuda.core")
    source = """
from cuda.core import Device, Program, ProgramOptions
device = Device(); device.set_current()
code = Program('extern "C" __global__ void k() {}', "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
try:
    code.get_kernel("k")
except Exception as error:
    print(error)
"""
    result = sim(sys.executable, "-c", source)
    assert result.returncode == 0, result.stderr
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in result.stdout
    assert "the image is a cubin" in result.stderr
