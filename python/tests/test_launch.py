import contextlib
import ctypes
import pickle
import re
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


# What a kernel gets of each of NumPy's kinds of scalars, by the characters that it has for them: the kernel that takes
# one, a value, its bytes. What is refused has what is said of it.
TYPECODES = {
    "?": ("byte", True),
    **dict.fromkeys("bB", ("byte", 7)),
    **dict.fromkeys("hH", ("half_", 700)),
    **dict.fromkeys("iI", ("word", 70_000)),
    **dict.fromkeys("lLqQnNpP", ("quad", 1 << 40)),
    "e": ("half_", 1.5),
    "f": ("word", 1.5),
    "d": ("quad", 1.5),
    "F": ("quad", 1.5 - 2.5j),
    "D": ("bytes16", 1.5 - 2.5j),
    "g": ("bytes16", "no floating-point numbers of that size"),
    "G": ("bytes16", "no complex numbers of that size"),
    "S": ("byte", "a text; copy its bytes to a Buffer"),
    "U": ("word", "a text; copy its bytes to a Buffer"),
    "c": ("byte", "a text; copy its bytes to a Buffer"),
    "V": ("quad", b"\1\2\3\4\5\6\7\10"),
    # It is whatever it was made of.
    "O": ("quad", 1 << 40),
    **dict.fromkeys("Mm", ("quad", 1 << 40)),
}


def test_every_kind_of_numpys_is_in_the_table():
    assert set(TYPECODES) == set("".join(numpy.typecodes.values()))


@pytest.mark.parametrize("code_", TYPECODES)
def test_each_kind_of_numpys_scalars(passed, code_):
    kernel, value = TYPECODES[code_]
    kind = numpy.dtype(code_).type
    if isinstance(value, str):
        # Of a class that is derived from it, too; whether it has as many bytes as the parameter or not.
        made = "x" if code_ in "cSU" else 1.5
        for scalar in (kind(made), numpy.array([made], code_)[0], type("Mine", (kind,), {})(made)):
            for other in ("byte", "half_", "word", "quad", "bytes16"):
                with pytest.raises(TypeError, match=f"argument 1 is of type .*, which cannot .*: .*{value}"):
                    passed(other, scalar)
        return
    scalar = kind(value, "s") if code_ in "Mm" else kind(value)
    wanted = value if code_ == "O" else int.from_bytes(scalar.tobytes(), "little")
    if kernel == "bytes16":
        wanted = (wanted & ((1 << 64) - 1), wanted >> 64)
    # The second time its type is known.
    for _ in range(2):
        assert passed(kernel, scalar) == wanted
    if code_ not in "VO":
        # An item of an array of the other order of bytes is a scalar of this machine's.
        swapped = numpy.array([scalar]).astype(numpy.asarray(scalar).dtype.newbyteorder("S"))
        assert passed(kernel, swapped[0]) == wanted
        with refused_by_size("parameter 1 has"):
            passed("bytes16" if kernel != "bytes16" else "quad", scalar)


@pytest.mark.parametrize("dtype", [
    [("x", "f4"), ("id", "i4")],
    [("name", "S8")],
    [("letters", "U2")],
    [("when", "M8[ns]")],
    [("bytes", "u1", (8,))],
    [("inner", [("a", "u4"), ("b", "u2", (2,))])],
    # Parts that lie over each other, with nothing between, or with room: as they are.
    {"names": ["a", "b"], "formats": ["u8", "u4"], "offsets": [0, 4]},
    {"names": ["a", "b"], "formats": ["u1", "<u4"], "offsets": [0, 1], "itemsize": 8},
    "V8",
])  # fmt: skip
@pytest.mark.parametrize("kind", [numpy.void, numpy.record])
def test_records_are_their_bytes(passed, dtype, kind):
    value = numpy.frombuffer(b"\1\2\0\0\5\0\0\0", numpy.dtype((kind, numpy.dtype(dtype))))[0]
    assert isinstance(value, kind)
    assert passed("quad", value) == 0x5_0000_0201


@pytest.mark.parametrize(("dtype", "text"), [
    ([("a", "O")], "refers to objects of Python"),
    ([("a", "u4"), ("b", [("c", "O", (2,))])], "refers to objects of Python"),
    ([("a", ">i8")], "not in this machine's order"),
    ([("a", ">u4", (2,))], "not in this machine's order"),
    ([("a", [("b", ">f4")], (2,))], "not in this machine's order"),
    ([("a", ">M8[s]")], "not in this machine's order"),
    ([("a", ">U2")], "not in this machine's order"),
    ([("a", "g")], "no floating-point numbers of that size"),
    ([("a", "G", (1,))], "no complex numbers of that size"),
    ([], "it has no bytes"),
    ("V0", "it has no bytes"),
])  # fmt: skip
def test_records_that_a_kernel_can_make_nothing_of(passed, dtype, text):
    value = numpy.empty(1, dtype)[0]
    for kernel in ("quad", "bytes16"):
        with pytest.raises(TypeError, match=rf"argument 1 is of type numpy\.void, which cannot .*: .*{text}"):
            passed(kernel, value)


def test_a_record_of_the_other_order_is_converted_as_the_message_says(passed):
    value = numpy.array([(5, 7)], [("a", ">u4"), ("b", ">u2", (2,))])[0]
    with pytest.raises(TypeError) as caught:
        passed("quad", value)
    advice = re.search(r"value\.astype\(.*\)\)", str(caught.value))[0]
    assert passed("quad", eval(advice, {"value": value})) == 0x7_0007_0000_0005


def test_numpys_scalars_of_other_packages(passed):
    """Those of small numbers are no numpy.void, though they have its kind."""
    types = pytest.importorskip("ml_dtypes")
    kinds = {kind for kind in vars(types).values() if isinstance(kind, type) and issubclass(kind, numpy.generic)}
    assert {types.bfloat16, types.float8_e4m3fn, types.int4} < kinds
    for kind in kinds:
        scalar = kind(1)
        kernel = {1: "byte", 2: "half_", 4: "word"}[len(scalar.tobytes())]
        assert passed(kernel, scalar) == int.from_bytes(scalar.tobytes(), "little")


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
    for wrong, advice in ((numpy.zeros(3), "copy it to a Buffer"), ("x", "copy its bytes"), (b"x", "copy its bytes")):
        with pytest.raises(TypeError, match=advice):
            launch(stream, ONE, kernel, wrong, 1, 2)
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
