import contextlib
import ctypes
import pickle
import struct

import pytest

from cuirass import CUDAError, LaunchConfig, Program, ProgramOptions, launch
from cuirass.utils import StridedMemoryView

from .conftest import refused_before, tells_parameters

numpy = pytest.importorskip("numpy")

ONE = LaunchConfig(grid=1, block=1)


@pytest.fixture
def passed(code, device, stream, pinned):
    """What a kernel got of an argument, as a number."""
    out, view = pinned(64, "Q")

    def call(kernel, value):
        launch(stream, ONE, code.get_kernel(kernel), out, value)
        stream.sync()
        return view[0] if kernel != "bytes16" else (view[0], view[1])

    return call


@contextlib.contextmanager
def refused_by_size(text):
    """An argument of another size than the parameter's; passed as it is where the driver does not tell the sizes."""
    if tells_parameters():
        with pytest.raises(ValueError, match=text):
            yield
    else:
        yield


def bits(kind, value):
    return int.from_bytes(struct.pack(f"<{kind}", value), "little")


def test_config():
    config = LaunchConfig(grid=4, block=(8, 2), shmem_size=16)
    assert config.grid == (4, 1, 1)
    assert config.block == (8, 2, 1)
    assert config.cluster is None
    assert config.shmem_size == 16
    assert config.is_cooperative is False
    assert config.programmatic_stream_serialization is False
    assert config == LaunchConfig(grid=(4,), block=(8, 2, 1), shmem_size=16)
    assert hash(config) == hash(LaunchConfig(4, None, (8, 2), 16))
    assert config != LaunchConfig(grid=5, block=(8, 2), shmem_size=16)
    assert config != 1
    assert eval(repr(config)) == config
    config.grid = (1, 2, 3)
    config.block = 7
    config.cluster = 2
    config.shmem_size = None
    config.is_cooperative = True
    config.programmatic_stream_serialization = True
    assert (config.grid, config.block, config.cluster, config.shmem_size) == ((1, 2, 3), (7, 1, 1), (2, 1, 1), 0)
    assert config.is_cooperative and config.programmatic_stream_serialization
    assert eval(repr(config)) == config


@pytest.mark.parametrize("wrong", [None, 0, -1, 1.5, "1", [1, 2], (), (1, 2, 3, 4), (1, 0), (1, "2"), 1 << 32])
def test_wrong_configs(wrong):
    with pytest.raises(ValueError, match="grid"):
        LaunchConfig(grid=wrong, block=1)
    with pytest.raises(ValueError, match="block"):
        LaunchConfig(grid=1, block=wrong)
    config = LaunchConfig(grid=1, block=1)
    with pytest.raises(ValueError, match="grid"):
        config.grid = wrong
    assert config.grid == (1, 1, 1)
    with pytest.raises(ValueError):
        LaunchConfig(grid=1, block=1, shmem_size=-1)


def test_a_launch(code, device, stream, pinned):
    memory, view = pinned(4000, "i")
    launch(stream, LaunchConfig(grid=8, block=128), code.get_kernel("add"), memory, 1000, 42)
    stream.sync()
    assert view.tolist() == [42] * 1000
    launch(stream, ONE, code.get_kernel("nothing"))
    stream.sync()


def test_a_template(code, stream, pinned):
    memory, view = pinned(16, "f")
    view[0], view[1] = 1.5, -2.0
    launch(stream, LaunchConfig(grid=1, block=2), code.get_kernel("twice<float>"), memory)
    stream.sync()
    assert view.tolist()[:2] == [3.0, -4.0]


@pytest.mark.parametrize(("kernel", "size"), [("byte", 1), ("half_", 2), ("word", 4), ("quad", 8)])
def test_an_int_has_its_parameters_size(passed, kernel, size):
    most = (1 << (8 * size)) - 1
    for value in (0, 1, most, most >> 1, -1, -(most >> 1) - 1):
        assert passed(kernel, value) == value & most
    if not tells_parameters():
        # It is passed in 8 bytes then, whatever the parameter's size.
        for value in (most + 1, -(most >> 1) - 2):
            if size < 8:
                assert passed(kernel, value) == value & most
        size, most = 8, (1 << 64) - 1
    for value in (most + 1, -(most >> 1) - 2, 1 << 200):
        with pytest.raises(OverflowError, match=f"parameter 1 has {size} bytes"):
            passed(kernel, value)


def test_floats(passed):
    assert passed("quad", 1.5) == bits("d", 1.5)
    # A double where the size is not known: a float of 4 bytes is ctypes' or NumPy's then.
    assert passed("word", 1.5) == (bits("f", 1.5) if tells_parameters() else bits("d", 1.5) & 0xFFFFFFFF)
    assert passed("word", ctypes.c_float(1.5)) == passed("word", numpy.float32(1.5)) == bits("f", 1.5)
    assert passed("quad", float("nan")) == bits("d", float("nan"))
    with refused_by_size("parameter 1 has 2 bytes, the argument has 8"):
        passed("half_", 1.5)


def test_bool_complex_and_none(passed):
    assert passed("byte", True) == 1
    with refused_by_size("the argument has 1"):
        passed("word", True)
    assert passed("bytes16", 1.5 - 2.5j) == (bits("d", 1.5), bits("d", -2.5))
    floats = bits("f", 1.5) | bits("f", -2.5) << 32
    assert passed("quad", 1.5 - 2.5j) == (floats if tells_parameters() else bits("d", 1.5))
    assert passed("quad", None) == 0


@pytest.mark.parametrize(
    ("kernel", "value", "wanted"),
    [
        ("byte", numpy.int8(-2), 254),
        ("byte", numpy.uint8(200), 200),
        ("byte", numpy.bool_(True), 1),
        ("half_", numpy.int16(-2), 65534),
        ("half_", numpy.uint16(65535), 65535),
        ("half_", numpy.float16(1.5), 0x3E00),
        ("half_", numpy.array([0x7E01], numpy.uint16).view(numpy.float16)[0], 0x7E01),
        ("word", numpy.int32(-2), 0xFFFFFFFE),
        ("word", numpy.uint32(1 << 31), 1 << 31),
        ("word", numpy.float32(1.5), bits("f", 1.5)),
        ("quad", numpy.int64(-2), (1 << 64) - 2),
        ("quad", numpy.uint64((1 << 64) - 1), (1 << 64) - 1),
        ("quad", numpy.float64(1.5), bits("d", 1.5)),
        ("quad", numpy.complex64(1 + 2j), bits("f", 1.0) | bits("f", 2.0) << 32),
        ("bytes16", numpy.complex128(1 + 2j), (bits("d", 1.0), bits("d", 2.0))),
        ("quad", numpy.datetime64(5, "s"), 5),
    ],
)
def test_numpy_scalars(passed, kernel, value, wanted):
    # The second time its type is known.
    for _ in range(2):
        assert passed(kernel, value) == wanted


def test_numpy_scalars_of_another_size(passed):
    for wrong in (numpy.int32(1), numpy.float16(1), numpy.complex128(1)):
        with refused_by_size("parameter 1 has 8 bytes"):
            passed("quad", wrong)


@pytest.mark.parametrize(
    ("kernel", "value", "wanted"),
    [
        ("byte", ctypes.c_int8(-1), 255),
        ("byte", ctypes.c_bool(True), 1),
        ("half_", ctypes.c_uint16(7), 7),
        ("word", ctypes.c_int(-1), 0xFFFFFFFF),
        ("word", ctypes.c_float(1.5), bits("f", 1.5)),
        ("quad", ctypes.c_double(1.5), bits("d", 1.5)),
        ("quad", ctypes.c_void_p(0x1234), 0x1234),
        ("quad", ctypes.c_void_p(None), 0),
        ("quad", ctypes.c_longlong(-1), (1 << 64) - 1),
        ("bytes16", (ctypes.c_uint64 * 2)(1, 2), (1, 2)),
    ],
)
def test_ctypes(passed, kernel, value, wanted):
    assert passed(kernel, value) == wanted


class Point(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_float),
        ("y", ctypes.c_float),
        ("z", ctypes.c_float),
        ("id", ctypes.c_int),
        ("weight", ctypes.c_double),
    ]


def test_structures_by_value(code, stream, pinned):
    out, view = pinned(64, "d")
    kernel = code.get_kernel("point")
    launch(stream, ONE, kernel, out, Point(1.5, 2.5, 3.5, 4, 5.5))
    stream.sync()
    assert view.tolist()[:5] == [1.5, 2.5, 3.5, 4.0, 5.5]
    record = numpy.zeros(2, dtype=[("x", "f4"), ("y", "f4"), ("z", "f4"), ("id", "i4"), ("weight", "f8")])
    record[1] = (-1.0, -2.0, -3.0, -4, -5.0)
    launch(stream, ONE, kernel, out, record[1])
    stream.sync()
    assert view.tolist()[:5] == [-1.0, -2.0, -3.0, -4.0, -5.0]
    if tells_parameters():
        with pytest.raises(ValueError, match="parameter 1 has 24 bytes, the argument has 16"):
            launch(stream, ONE, kernel, out, numpy.complex128(0))


def test_addresses(code, device, stream, pinned):
    driver = pytest.importorskip("cuda.bindings.driver")
    kernel = code.get_kernel("add")
    memory, view = pinned(64, "i")

    class Handle:
        handle = memory.handle

    class Sub(int):
        pass

    for argument in (memory, memory.handle, driver.CUdeviceptr(memory.handle), Handle(), Sub(memory.handle)):
        launch(stream, LaunchConfig(grid=1, block=16), kernel, argument, 16, 1)
    stream.sync()
    assert view.tolist() == [5] * 16


def test_wrong_arguments(code, device, stream, pinned):
    memory, view = pinned(64, "i")
    kernel = code.get_kernel("add")
    for wrong in ((), (memory,), (memory, 1), (memory, 1, 2, 3)):
        if not tells_parameters():
            with refused_before((12, 4), "cuKernelGetParamInfo"):
                kernel.num_arguments  # noqa: B018
            break
        with pytest.raises(ValueError, match=f"kernel add takes 3 arguments, {len(wrong)} were given"):
            launch(stream, ONE, kernel, *wrong)
    for wrong in ("text", b"bytes", object(), [1], numpy.zeros(3)):
        with pytest.raises(TypeError, match="argument 0 is of type"):
            launch(stream, ONE, kernel, wrong, 1, 2)
    ours = (stream, stream.record(), stream.context, kernel, code, device, device.memory_resource, ONE)
    for wrong in ours:
        with pytest.raises(TypeError, match=f"argument 0 is of type {type(wrong).__name__}"):
            launch(stream, ONE, kernel, wrong, 1, 2)
    with pytest.raises(TypeError, match="copy it to a Buffer"):
        launch(stream, ONE, kernel, numpy.zeros(3), 1, 2)
    array = StridedMemoryView.from_buffer(memory, (16,), itemsize=4)
    with pytest.raises(TypeError, match=r"pass view\.ptr"):
        launch(stream, ONE, kernel, array, 1, 2)
    with pytest.raises(TypeError, match="config must be a LaunchConfig"):
        launch(stream, 1, kernel, memory, 1, 2)
    with pytest.raises(TypeError, match="kernel must be a Kernel"):
        launch(stream, ONE, "add", memory, 1, 2)
    with pytest.raises(TypeError, match="__cuda_stream__"):
        launch(1, ONE, kernel, memory, 1, 2)
    memory2, _ = pinned(16)
    memory2.close()
    # A view keeps the memory; the buffer itself is closed.
    with pytest.raises(RuntimeError, match="closed"):
        launch(stream, ONE, kernel, memory2, 1, 2)
    stream.sync()
    assert view.tolist() == [0] * 16


def test_a_config_that_the_driver_refuses(code, stream):
    with pytest.raises(CUDAError) as caught:
        launch(stream, LaunchConfig(grid=1, block=4096), code.get_kernel("nothing"))
    assert caught.value.call == "cuLaunchKernelEx"
    assert caught.value.status.name == "CUDA_ERROR_INVALID_VALUE"
    assert "at most 1024 threads, this one would have 4096" in caught.value.__notes__[0]
    stream.sync()


def test_shared_memory_that_has_to_be_allowed_first(device, stream, pinned):
    source = """extern "C" __global__ void last(int* to, int n) {
        extern __shared__ int shared[];
        shared[n - 1] = n;
        to[0] = shared[n - 1];
    }"""
    kernel = Program(source, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("last")
    memory, view = pinned(4, "i")
    attributes, most = kernel.attributes, 100_000
    config = LaunchConfig(grid=1, block=1, shmem_size=most)
    with pytest.raises(CUDAError, match="INVALID_VALUE") as caught:
        launch(stream, config, kernel, memory, most // 4)
    assert f"kernel.attributes.max_dynamic_shared_size_bytes = {most} in Python" in caught.value.__notes__[0]
    attributes.max_dynamic_shared_size_bytes = most
    attributes[device].preferred_shared_memory_carveout = 60
    assert (attributes.max_dynamic_shared_size_bytes, attributes.preferred_shared_memory_carveout) == (most, 60)
    launch(stream, config, kernel, memory, most // 4)
    stream.sync()
    assert view.tolist() == [most // 4]
    with pytest.raises(CUDAError, match=r"INVALID_VALUE.*cuKernelSetAttribute.*value 1000000000, device 0"):
        attributes.max_dynamic_shared_size_bytes = 1_000_000_000
    with pytest.raises(ValueError, match="max_dynamic_shared_size_bytes must be from"):
        attributes.max_dynamic_shared_size_bytes = 2**31
    with pytest.raises(TypeError, match="expected an int, not float"):
        attributes.max_dynamic_shared_size_bytes = 1.5
    with pytest.raises(AttributeError, match="not writable"):
        attributes.num_regs = 1


def test_a_foreign_stream(code, device, stream, pinned):
    class Foreign:
        def __cuda_stream__(self):
            return 0, int(stream.handle)

    memory, view = pinned(64, "i")
    launch(Foreign(), LaunchConfig(grid=1, block=16), code.get_kernel("add"), memory, 16, 3)
    stream.sync()
    assert view.tolist() == [3] * 16


def test_configs_are_not_shared_by_accident():
    config = LaunchConfig(grid=1, block=1)
    with pytest.raises(TypeError):
        pickle.dumps(config)
