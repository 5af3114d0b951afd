import sys

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
