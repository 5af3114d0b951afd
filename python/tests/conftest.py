"""What the tests share. They run on the driver that CUIRASS_DRIVER names; on the simulated one if it names none."""

import contextlib
import ctypes
import functools
import gc
import os
import subprocess
import sys
import warnings

os.environ.setdefault("CUIRASS_DRIVER", "sim")
if os.environ["CUIRASS_DRIVER"] == "sim":
    # What CUIRASS_SIM does not say. The compiler is of CUDA 13: an older driver takes its PTX all the same.
    given = [word for word in os.environ.get("CUIRASS_SIM", "").split(",") if word]
    known = {word.partition("=")[0].strip() for word in given}
    wanted = ["devices=2", "quiet=1"] + (["ptx=any"] if "driver" in known else [])
    given += [word for word in wanted if word.partition("=")[0] not in known]
    os.environ["CUIRASS_SIM"] = ",".join(given)

import pytest

import cuirass

# Processes that a test starts import these modules too. Behind everything else: the package beside them is not built.
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if HERE not in sys.path:
    sys.path.append(HERE)

KERNELS = r"""
extern "C" __global__ void add(int* values, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += what;
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void bytes16(unsigned long long* out, ulonglong2 value) { out[0] = value.x; out[1] = value.y; }
extern "C" __global__ void byte(unsigned long long* out, unsigned char value) { out[0] = value; }
extern "C" __global__ void half_(unsigned long long* out, unsigned short value) { out[0] = value; }
extern "C" __global__ void word(unsigned long long* out, unsigned value) { out[0] = value; }
extern "C" __global__ void quad(unsigned long long* out, unsigned long long value) { out[0] = value; }
struct Point { float x, y, z; int id; double weight; };
extern "C" __global__ void point(double* out, Point p) {
    out[0] = p.x; out[1] = p.y; out[2] = p.z; out[3] = p.id; out[4] = p.weight;
}
extern "C" __global__ void fault(int* p) { *(volatile int*)0 = 1; }
template <class T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }
"""


def is_sim():
    return os.environ["CUIRASS_DRIVER"] == "sim"


def driver_version():
    """The driver's CUDA version, as (12, 4)."""
    cuirass.Device(0)
    _, version, _ = cuirass._cuirass._loaded_driver()
    return version // 1000, version % 1000 // 10


@contextlib.contextmanager
def refused_before(needs, call):
    """What a driver older than `needs` lacks: there it is refused with the call and both versions."""
    found = driver_version()
    if found >= needs:
        yield
        return
    with pytest.raises(cuirass.CUDAError) as caught:
        yield
    error = caught.value
    assert (error.call, error.needs, error.found) == (call, needs, found)
    assert error.status.name == "CUDA_ERROR_NOT_SUPPORTED"
    versions = "needs a driver of CUDA {}.{}, this one is of CUDA {}.{}".format(*needs, *found)
    assert f"{call} {versions}" in str(error)


def tells_parameters():
    """Whether the driver tells the sizes of a kernel's parameters: without them a launch checks nothing."""
    return driver_version() >= (12, 4)


def pytest_addoption(parser, pluginmanager):
    """Without a plugin what pyproject.toml sets for it has no effect, and is no mistake."""
    for plugin, option in (("run-parallel", "thread_unsafe_fixtures"), ("timeout", "timeout")):
        if not pluginmanager.hasplugin(plugin):
            parser.addini(option, f"of the plugin {plugin}, which is not there")


def pytest_configure(config):
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout: of the plugin timeout, which is not there")


def pytest_report_header():
    text = f"cuirass {cuirass.__version__} on the driver {os.environ['CUIRASS_DRIVER']!r}"
    return f"{text}, {os.environ.get('CUIRASS_SIM', '')}" if is_sim() else text


def _compiler_on_the_path():
    """Whether the loader finds NVRTC by itself, so that it cannot be missing."""
    try:
        ctypes.CDLL("libnvrtc.so.13")
    except OSError:
        return False
    return True


needs_no_compiler = pytest.mark.skipif(_compiler_on_the_path(), reason="the loader finds NVRTC on this machine")
needs_sim = pytest.mark.skipif(not is_sim(), reason="reads the simulator's own census")


CHECKED = is_sim() and "check=order" in os.environ["CUIRASS_SIM"].split(",")


@pytest.fixture(autouse=True)
def ordered(request):
    """With CUIRASS_SIM=check=order every test fails that the stream-order checker finds something in."""
    if not CHECKED or request.node.get_closest_marker("unordered"):
        yield
        return
    cuirass.Device(0)
    with cuirass.sim.check_order() as order:
        yield
    assert not order.findings


# What a test that uses one of them does to the whole process: others beside it would see it.
PROCESS_WIDE = {"child", "testing", "sim", "is_sim", "warnings", "subprocess", "unraisablehook", "census"}


def calls_of(recording, name, handle):
    """How often a recorded call was given a handle: what earlier tests have left to be released may be released too."""
    return sum(call.name == name and call.arguments[0] == handle for call in recording.calls)


def names_in(code):
    """The names that a function's code uses, with those of the functions in it."""
    inner = (names_in(constant) for constant in code.co_consts if hasattr(constant, "co_names"))
    return set(code.co_names).union(*inner)


def pytest_itemcollected(item):
    """With --parallel-threads: each thread is a user's, with the device current and an object of it of its own."""
    if getattr(item.config.option, "parallel_threads", 1) in (1, "1") or not hasattr(item.obj, "__code__"):
        return
    names = names_in(item.obj.__code__)
    if names & PROCESS_WIDE:
        item.add_marker(pytest.mark.thread_unsafe(reason="what it does is the whole process's"))
    if "stream" in item.fixturenames and "create_graph_builder" in names:
        item.add_marker(pytest.mark.thread_unsafe(reason="the stream that it captures is one for all threads"))
    if "device" in item.fixturenames:
        item.obj = with_a_device(item.obj)


def with_a_device(test):
    @functools.wraps(test)
    def on_this_thread(*args, **kwargs):
        device = cuirass.Device(0)
        device.set_current()
        if "device" in kwargs:
            kwargs["device"] = device
        return test(*args, **kwargs)

    return on_this_thread


@pytest.fixture(scope="session")
def driver():
    return os.environ["CUIRASS_DRIVER"]


@pytest.fixture
def device():
    device = cuirass.Device(0)
    device.set_current()
    return device


@pytest.fixture
def stream(device):
    stream = device.create_stream()
    yield stream
    stream.close()


@pytest.fixture(scope="session")
def code():
    program = cuirass.Program(KERNELS, "c++", cuirass.ProgramOptions(std="c++17"))
    yield program.compile("cubin", name_expressions=("twice<float>", "twice<int>"))


@pytest.fixture
def pinned():
    """Page-locked memory, as a function of its size: the buffer and a memoryview of it."""
    resource = cuirass.LegacyPinnedMemoryResource()

    def make(size, kind="B"):
        buffer = resource.allocate(size)
        view = memoryview(buffer)
        view[:] = bytes(size)
        return buffer, view.cast(kind)

    return make


@pytest.fixture
def census():
    """Checks that nothing is left alive that was not alive before."""
    if not is_sim():
        yield
        return
    cuirass.Device(0).set_current()

    def alive():
        gc.collect()
        # What is kept for the next of its kind goes too.
        cuirass.drain()
        return cuirass.sim.census()

    before = alive()
    yield
    assert alive() == before


@pytest.fixture
def shared(device, census):
    """A memory resource that other processes can use."""
    options = cuirass.DeviceMemoryResourceOptions(ipc_enabled=True)
    shared = cuirass.DeviceMemoryResource(device, options)
    yield shared
    shared.close()


@pytest.fixture
def reports():
    """The reports that are made, as texts."""
    texts = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", cuirass.CUDAWarning)
        previous, warnings.showwarning = warnings.showwarning, lambda message, *rest: texts.append(str(message))
        try:
            yield texts
        finally:
            warnings.showwarning = previous


def child(source, *arguments, env=None, timeout=100):
    """Runs Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )
