import os
import subprocess
import sys

import pytest

from .conftest import is_sim, needs_sim, tells_parameters


def run(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "cuirass", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, **(env or {})},
    )


def test_demo(driver):
    result = run("demo", "--driver", driver)
    assert result.returncode == 0, result.stdout + result.stderr
    text = result.stdout
    for kernel in ("saxpy", "block_sum", "matmul"):
        assert any(line.startswith(kernel) and line.endswith("as expected") for line in text.splitlines()), text
    assert "CUDA_ERROR_OUT_OF_MEMORY" in text
    if tells_parameters():
        assert "kernel saxpy takes 4 arguments, 3 were given" in text
        assert "this cannot be shown here" not in text
    else:
        assert "cuKernelGetParamInfo needs a driver of CUDA 12.4, this one is of CUDA 12." in text
        assert "this cannot be shown here: nothing is known to hold the arguments against" in text
    assert text.count("CUDAStickyError: CUDA_ERROR_ILLEGAL_ADDRESS") == 2
    assert text.endswith("everything was as expected\n")
    assert ("the simulated device" in text) == is_sim()


@needs_sim
def test_demo_without_numpy(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('not here')")
    result = run("demo", "--driver", "sim", env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("everything was as expected\n")


@needs_sim
def test_demo_takes_the_simulated_device_where_no_gpu_is():
    environment = {name: value for name, value in os.environ.items() if name != "CUIRASS_DRIVER"}
    result = subprocess.run(
        [sys.executable, "-m", "cuirass", "demo"], capture_output=True, text=True, timeout=110, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr
    if "a GPU" not in result.stdout:
        assert "The simulated device is used instead." in result.stdout


@needs_sim
def test_demo_with_a_compiler_that_is_newer_than_the_driver():
    result = run("demo", "--driver", "sim", env={"CUIRASS_SIM": "driver=12.0,quiet=1"})
    assert result.returncode == 1
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in result.stdout
    assert "add ptx=any to CUIRASS_SIM" in result.stdout
    assert result.stderr == ""


@pytest.mark.skipif(not is_sim(), reason="this machine may have a GPU")
def test_demo_on_a_gpu_that_is_not_there():
    result = run("demo", "--driver", "gpu", env={"CUDA_VISIBLE_DEVICES": ""})
    assert result.returncode == 1
    assert "Device 0 cannot be used" in result.stdout
    assert "Traceback" not in result.stderr
