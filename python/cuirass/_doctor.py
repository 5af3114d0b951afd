"""``python -m cuirass doctor``: what is installed, found and missing, and how to mend it."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from typing import Any

import cuirass

_PROBE = """
import json, sys
import cuirass
facts = {}
try:
    facts["version"] = cuirass._cuirass._driver_version()
    facts["path"] = cuirass._cuirass._loaded_driver()[0]
    facts["devices"] = [
        {"name": d.name, "arch": d.arch, "bus": d.pci_bus_id} for d in cuirass.Device.get_all_devices()
    ]
except cuirass.CUDAError as error:
    facts["error"] = str(error)
print(json.dumps(facts))
"""

_COMPILER = """
import json
import cuirass
facts = {}
try:
    code = cuirass.Program("__global__ void k() {}", "c++", cuirass.ProgramOptions(arch="sm_90")).compile("ptx")
    facts["path"], facts["version"] = cuirass._cuirass._loaded_compiler()
except cuirass.CUDAError as error:
    facts["error"] = str(error)
print(json.dumps(facts))
"""


def _probe(source: str, **environment: str) -> dict[str, Any]:
    """Ask in a process of its own, so that nothing is loaded here and nothing can hang this one."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "it did not answer within 60 seconds"}
    try:
        facts: dict[str, Any] = json.loads(answer.stdout)
    except json.JSONDecodeError:
        return {"error": f"the process ended with {answer.returncode}: {answer.stderr.strip()[-500:]}"}
    return facts


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


class _Findings:
    def __init__(self) -> None:
        self.problems = 0

    def good(self, what: str, text: str) -> None:
        print(f"  ok       {what}: {text}")

    def note(self, what: str, text: str) -> None:
        print(f"  -        {what}: {text}")

    def missing(self, what: str, text: str, fix: str, *, needed: bool) -> None:
        if needed:
            self.problems += 1
        print(f"  {'MISSING' if needed else 'missing'}  {what}: {text}\n           to mend it: {fix}")


def _package(findings: _Findings, module: str, distribution: str, use: str) -> None:
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if found:
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            version = "of unknown version"
        findings.good(distribution, f"{version} ({use})")
    else:
        findings.missing(distribution, f"not installed; {use}", f"pip install {distribution}", needed=False)


def _driver(findings: _Findings) -> bool:
    print("GPU driver")
    facts = _probe(_PROBE, CUIRASS_DRIVER="gpu")
    if "error" in facts:
        # The error's own advice is given below, or is not needed.
        found = facts["error"].partition(" Install NVIDIA's driver")[0]
        if os.environ.get("CUIRASS_DRIVER") == "sim":
            findings.note("driver", f"{found} None is needed: CUIRASS_DRIVER=sim")
        else:
            fix = "install NVIDIA's driver (580 or newer for CUDA 13), or use the simulated device: CUIRASS_DRIVER=sim"
            findings.missing("driver", found, fix, needed=False)
        return False
    findings.good("driver", f"CUDA {_version(facts['version'])} ({facts['path']})")
    for number, device in enumerate(facts["devices"]):
        findings.good(f"device {number}", f"{device['name']}, sm_{device['arch']}, {device['bus']}")
    if not facts["devices"]:
        findings.missing("devices", "none", "check CUDA_VISIBLE_DEVICES and nvidia-smi", needed=False)
    return bool(facts["devices"])


def _simulator(findings: _Findings) -> bool:
    print("Simulated device")
    path = os.environ.get("CUIRASS_SIM_LIBRARY") or cuirass.sim.library()
    if path is None:
        findings.missing(
            "simulator", "this package was built without it", "install a wheel, or run make in a checkout", needed=False
        )
        return False
    facts = _probe(_PROBE, CUIRASS_DRIVER="sim")
    if "error" in facts:
        findings.missing("simulator", facts["error"], "reinstall the package", needed=False)
        return False
    devices = ", ".join(f"{device['name']} (sm_{device['arch']})" for device in facts["devices"]) or "no devices"
    findings.good("simulator", f"CUDA {_version(facts['version'])} ({path}): {devices}")
    return True


def run() -> int:
    """Print what there is; 1 if ``Device(0)`` or the compiler does not work."""
    findings = _Findings()
    print(f"cuirass {cuirass.__version__}, {platform.python_implementation()} {platform.python_version()}, "
          f"{platform.system()} {platform.machine()}")  # fmt: skip
    print("Settings")
    names = ("CUIRASS_DRIVER", "CUIRASS_SIM", "CUIRASS_SIM_LIBRARY", "CUIRASS_NVRTC", "CUDA_PATH", "CUDA_HOME",
             "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")  # fmt: skip
    said = [name for name in names if name in os.environ]
    for name in said:
        findings.note(name, os.environ[name])
    if not said:
        findings.note("environment", "none of the variables that matter is set")
    gpu, simulator = _driver(findings), _simulator(findings)
    if not (gpu or simulator):
        findings.missing("a device", "neither a GPU nor the simulated device can be used", "see above", needed=True)
    print("Compiler")
    facts = _probe(_COMPILER)
    if "error" in facts:
        findings.missing("NVRTC", facts["error"], "pip install nvidia-cuda-nvrtc", needed=True)
    else:
        findings.good("NVRTC", f"{_version(facts['version'])} ({facts['path']})")
    print("Packages")
    _package(findings, "cuda.bindings", "cuda-bindings", "handles are then its objects")
    _package(findings, "cuda.pathfinder", "cuda-pathfinder", "finds CUDA's libraries")
    _package(findings, "numpy", "numpy", "its scalars and records can be kernel arguments")
    chosen = os.environ.get("CUIRASS_DRIVER") or "gpu"
    usable = {"gpu": gpu, "sim": simulator}.get(chosen, False)
    print(f"Device(0) is {'a GPU' if chosen == 'gpu' else 'simulated'} here, and "
          f"{'works' if usable else 'does not work'}" + ("" if usable or not simulator else
          "; there is no GPU that can be used: set CUIRASS_DRIVER=sim for the simulated device"))  # fmt: skip
    return 0 if usable and not findings.problems else 1
