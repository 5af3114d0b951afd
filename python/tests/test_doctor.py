import os
import subprocess
import sys

import pytest

from .conftest import needs_no_compiler, needs_sim
from .test_demo import run


def test_doctor(driver):
    result = run("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    text = result.stdout
    assert f"{'GPU' if driver == 'gpu' else 'Simulated'}" in text
    for what in ("GPU driver", "Simulated device", "Compiler", "Packages", "NVRTC", "CUIRASS_DRIVER"):
        assert what in text
    assert "works" in text.splitlines()[-1]


def test_doctor_fails_where_the_device_does_not_work():
    result = run("doctor", env={"CUIRASS_DRIVER": ""})
    last = result.stdout.splitlines()[-1]
    assert "Device(0) is a GPU here" in last
    if "does not work" in last:
        assert result.returncode == 1
        assert "no GPU that can be used: set CUIRASS_DRIVER=sim" in last or "simulator: CUDA" not in result.stdout
    else:
        assert result.returncode == 0


@needs_no_compiler
def test_doctor_says_what_is_missing(tmp_path):
    result = run("doctor", env={"CUIRASS_NVRTC": str(tmp_path / "absent.so"), "LD_LIBRARY_PATH": ""})
    assert result.returncode == 1
    assert "MISSING  NVRTC" in result.stdout
    assert "pip install nvidia-cuda-nvrtc" in result.stdout


@needs_sim
def test_sim_runs_any_program_on_the_simulator():
    source = "from cuda.bindings import driver; print(driver.cuInit(0)[0].name, int(driver.cuDeviceGetCount()[1]))"
    result = run("sim", "--", sys.executable, "-c", source, env={"CUIRASS_SIM": "devices=3", "CUIRASS_DRIVER": ""})
    assert result.stdout == "CUDA_SUCCESS 3\n", result.stderr
    source = "import cuirass; print(cuirass.Device(0).device_id, cuirass.sim.is_active())"
    result = run("sim", sys.executable, "-c", source, env={"CUIRASS_DRIVER": ""})
    assert result.stdout == "0 True\n", result.stderr


@needs_sim
def test_sim_returns_the_programs_code():
    assert run("sim", "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert run("sim", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").returncode == 128 + 9
    result = run("sim", "--", "/nowhere/program")
    assert result.returncode == 127 and "cannot be run" in result.stderr
    assert run("sim").returncode == 2


def test_no_command():
    result = run()
    assert result.returncode == 2
    assert "usage: python -m cuirass" in result.stderr


COMMANDS = (["doctor"], ["demo", "--driver", "sim"], ["--help"])


@needs_sim
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("buffering", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_reader_that_has_enough_is_no_failure_to_tell_of(command, buffering):
    reader, writer = os.pipe()
    os.close(reader)
    told = written_to(writer, command, buffering)
    assert "Traceback" not in told.stderr and "rror" not in told.stderr, told.stderr


@needs_sim
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("buffering", ["", "1"], ids=["buffered", "unbuffered"])
def test_an_output_that_is_full_is_told_in_a_line(command, buffering):
    told = written_to(os.open("/dev/full", os.O_WRONLY), command, buffering)
    assert told.stderr in ("the output cannot be written: No space left on device\n", ""), told.stderr
    # `argparse` itself passes over what it cannot write.
    assert told.returncode == (1 if told.stderr else 0) and (told.stderr or command == ["--help"])


def written_to(output, command, buffering):
    try:
        return subprocess.run(
            [sys.executable, "-m", "cuirass", *command],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONUNBUFFERED": buffering},
        )
    finally:
        os.close(output)
