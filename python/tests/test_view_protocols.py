"""StridedMemoryView by the CUDA array interface and by DLPack's interface in C, and the streams of both."""

import ctypes
import gc
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import cuirass
from cuirass import testing
from cuirass.utils import StridedMemoryView

from .conftest import driver_version
from .producers import (
    CPU,
    CUDA,
    DELETER,
    READ_ONLY,
    WRONG_TENSORS,
    Interface,
    ManagedVersioned,
    Producer,
    Tensor,
    capsule_pointer,
    same,
)

MEMORY = (ctypes.c_char * 4096)()
ADDRESS = ctypes.addressof(MEMORY)


# The array interfaces.


def cuda_array(**entries):
    return Interface("__cuda_array_interface__", **entries)


@pytest.fixture
def memory(device, stream):
    buffer = device.allocate(256, stream=stream)
    yield buffer
    buffer.close()


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"strides": (4, 12)},
        {"strides": None},
        {"strides": (-16, 4)},
        {"strides": (3, 12)},
        {"strides": (4,)},
        {"shape": ()},
        {"shape": (0, 3)},
        {"shape": (-1,)},
        {"version": 2},
        {"version": 4},
        {"mask": 3},
        {"mask": None},
        {"readonly": True},
        {"stream": None},
        *(
            {"typestr": kind}
            for kind in [
                "<f2",
                "<f4",
                "<f8",
                "<c8",
                "<c16",
                "|b1",
                "<b1",
                "|i1",
                "|u1",
                "<i2",
                "<u8",
                ">f4",
                "|V7",
                "<M8[s]",
                "|S5",
                "<U5",
                "=f4",
                "f4",
            ]
        ),
        *({"typestr": kind} for kind in ("junk", "", "<f3")),
    ],
    ids=str,
)
def test_cuda_array_interface(memory, entries):
    entries = dict(entries)
    readonly = entries.pop("readonly", False)
    interface = {"shape": (3, 4), "typestr": "<f4", "data": (memory.handle, readonly), "version": 3, **entries}
    if entries.get("strides") == (-16, 4):
        interface["data"] = (memory.handle + 32, False)
    said = same(lambda cls: cls.from_cuda_array_interface(cuda_array(**interface), -1))
    assert said == same(lambda cls: cls.from_any_interface(cuda_array(**interface), -1))


def test_a_view_may_be_the_first_thing_that_a_process_does():
    code = """
import numpy as np
from cuirass.utils import StridedMemoryView
class Array:
    pass
array, memory = Array(), np.zeros(4, np.float32)
array.__cuda_array_interface__ = {
    "shape": (4,), "typestr": "<f4", "data": (memory.ctypes.data, False), "version": 3, "stream": 1
}
for stream in (-1, 2):
    view = StridedMemoryView.from_any_interface(array, stream)
    assert (view.device_id, view.is_device_accessible) == (0, True)
assert not StridedMemoryView.from_array_interface(memory).is_device_accessible
"""
    # Without the path that the tests give, the package knows where its simulator is.
    for name in ("CUIRASS_SIM_LIBRARY", "NOTHING"):
        left = {key: value for key, value in os.environ.items() if key != name}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=left)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"data": None}, BufferError),
        ({"data": (0, False)}, BufferError),
        ({"data": (1,)}, ValueError),
        ({"data": 5}, TypeError),
        ({"data": (-1, False)}, ValueError),
        ({"typestr": 3}, TypeError),
        ({"typestr": None}, BufferError),
        ({"shape": [3]}, TypeError),
        ({"shape": ("x",)}, TypeError),
        ({"shape": None}, BufferError),
        ({"shape": (1 << 62, 4)}, ValueError),
        ({"strides": [4]}, TypeError),
        ({"version": "x"}, TypeError),
        ({"stream": 0}, BufferError),
        ({"stream": "x"}, TypeError),
    ],
    ids=str,
)
def test_wrong_cuda_array_interfaces(memory, stream, entries, error):
    interface = {"shape": (3, 4), "typestr": "<f4", "data": (memory.handle, False), "version": 3, **entries}
    with pytest.raises(error):
        StridedMemoryView.from_cuda_array_interface(cuda_array(**interface), stream.__cuda_stream__()[1])
    with pytest.raises(TypeError, match="dict"):
        wrong = cuda_array()
        wrong.__cuda_array_interface__ = 5
        StridedMemoryView.from_cuda_array_interface(wrong, -1)


class Foreign:
    """Another library's stream."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def order_calls(recording):
    return [call.name for call in recording.calls if call.name in ("cuEventRecord", "cuStreamWaitEvent")]


def test_the_streams_of_a_cuda_array(device, stream, memory):
    other = device.create_stream()
    producer, consumer = stream.__cuda_stream__()[1], other.__cuda_stream__()[1]
    for stream_of_array, stream_ptr, ordered in [
        (producer, consumer, True),
        (producer, producer, False),
        (producer, -1, False),
        (None, consumer, False),
        (1, consumer, True),
        (2, consumer, True),
        (producer, 0, True),
        (1, 0, False),
        (1, 1, False),
        (producer, stream.handle, False),
        (producer, stream, False),
        (producer, other, True),
        (producer, Foreign(consumer), True),
    ]:
        interface = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (memory.handle, False),
            "version": 3,
            "stream": stream_of_array,
        }
        with testing.record() as recording:
            StridedMemoryView.from_cuda_array_interface(cuda_array(**interface), stream_ptr)
        expected = ["cuEventRecord", "cuStreamWaitEvent"] if ordered else []
        assert order_calls(recording) == expected, (stream_of_array, stream_ptr)
    other.close()


@pytest.mark.parametrize(
    "call", ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy_v2", "cuPointerGetAttributes"]
)
def test_a_failure_of_the_order_is_raised(device, stream, memory, call, reports, census):
    other = device.create_stream()
    array = cuda_array(
        shape=(4,), typestr="<f4", data=(memory.handle, False), version=3, stream=stream.__cuda_stream__()[1]
    )
    # A handle whose destruction returned an error is spent: it is destroyed all the same here.
    done = call == "cuEventDestroy_v2"
    with testing.fail(call, status="CUDA_ERROR_UNKNOWN", done=done), pytest.raises(cuirass.CUDAError) as caught:
        StridedMemoryView.from_any_interface(array, other.__cuda_stream__()[1])
    assert caught.value.call == call
    assert reports == []
    assert sys.getrefcount(array) == 2
    other.close()


# DLPack's interface in C.

FROM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.POINTER(ManagedVersioned)))
INTO = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ManagedVersioned), ctypes.POINTER(ctypes.py_object))
BORROW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.POINTER(ManagedVersioned)), ctypes.c_void_p, ERROR
)


class Api(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ALLOCATE),
        ("export", FROM),
        ("import_", INTO),
        ("borrow", BORROW),
        ("current_stream", STREAM),
    )


def api_of(cls):
    pointer = capsule_pointer(cls.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return ctypes.cast(pointer, ctypes.POINTER(Api)).contents


def test_our_interface_in_c():
    assert StridedMemoryView.__dlpack_c_exchange_api__ is StridedMemoryView.__c_dlpack_exchange_api__
    api = api_of(StridedMemoryView)
    assert (api.major, api.minor, api.previous) == (1, 3, None)
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    view = StridedMemoryView.from_array_interface(array)
    tensor = Tensor()
    assert api.borrow(view, tensor) == 0
    assert (tensor.data, tensor.ndim, list(tensor.shape[:2]), list(tensor.strides[:2])) == (
        array.ctypes.data,
        2,
        [3, 4],
        [4, 1],
    )
    assert (tensor.code, tensor.bits, tensor.lanes, tensor.device_type) == (0, 16, 1, CPU)
    managed = ctypes.POINTER(ManagedVersioned)()
    before = sys.getrefcount(view)
    assert api.export(view, managed) == 0
    assert sys.getrefcount(view) == before + 1
    made = ctypes.py_object()
    assert api.import_(managed, made) == 0
    other = made.value
    ctypes.pythonapi.Py_DecRef(made)
    assert type(other) is StridedMemoryView
    assert (other.ptr, other.shape, other.dtype, other.exporting_obj) == (view.ptr, (3, 4), array.dtype, None)
    del made, other
    gc.collect()
    assert sys.getrefcount(view) == before
    current = ctypes.c_void_p(5)
    assert api.current_stream(CUDA, 0, current) == 0
    assert current.value is None
    said = []
    function = ERROR(lambda context, kind, text: said.append((kind, text)))
    assert api.allocate(tensor, managed, None, function) == -1
    assert said == [(b"NotImplementedError", b"a StridedMemoryView is a view: it allocates no memory")]
    for wrong, error in [(5, TypeError), (StridedMemoryView.from_array_interface(np.zeros(2, "S3")), BufferError)]:
        with pytest.raises(error):
            api.borrow(wrong, tensor)
        with pytest.raises(error):
            api.export(wrong, managed)


def make_api(module, *, borrow=True, major=1, previous=None, current=0, fails=None):
    """A class with an interface in C over numpy arrays, and what was called."""
    calls = []

    def export(each, out):
        calls.append("export")
        if fails == "silent":
            return -1
        out[0] = ctypes.pointer(each.managed())
        return 0

    def borrowed(each, out):
        calls.append("borrow")
        out[0] = each.tensor
        return 0

    def current_stream(kind, ordinal, out):
        calls.append(("stream", kind, ordinal))
        out[0] = current
        return -1 if fails == "stream" else 0

    class Fake(Producer):
        def managed(self):
            deleter = DELETER(self._delete)
            managed = ManagedVersioned(1, 0, None, deleter, self.flags, self.tensor)
            self.kept.append((managed, deleter))
            return managed

    Fake.__module__ = module
    api = Api(
        major,
        0,
        previous,
        ALLOCATE(),
        FROM(export),
        INTO(),
        BORROW(borrowed) if borrow else BORROW(),
        STREAM(current_stream),
    )
    KEPT.append(api)
    new = ctypes.pythonapi.PyCapsule_New
    Fake.__dlpack_c_exchange_api__ = new(ctypes.addressof(api), b"dlpack_exchange_api", None)
    return Fake, calls, api


KEPT = []


def test_interfaces_in_c(device, stream):
    torch, calls, _ = make_api("torch")
    tensor = torch(ADDRESS, (2, 3), (3, 1))
    view = StridedMemoryView.from_any_interface(tensor, -1)
    assert calls == ["borrow"], "a tensor of torch's can be written to"
    assert (view.ptr, view.shape, view.strides, view.exporting_obj) == (ADDRESS, (2, 3), (3, 1), tensor)
    assert tensor.asked == []
    other, calls, _ = make_api("other")
    tensor = other(ADDRESS, (2, 3), (3, 1), flags=READ_ONLY)
    view = StridedMemoryView.from_dlpack(tensor, -1)
    assert calls == ["export"], "only a tensor that is taken says that it is read-only"
    assert view.readonly
    del view
    gc.collect()
    assert tensor.deleted == 1
    newer, calls, _ = make_api("other", major=2)
    StridedMemoryView.from_dlpack(newer(ADDRESS, (2,), (1,)), -1)
    assert calls == [], "the methods are asked"
    _older, calls, api = make_api("other")
    newest, _, _ = make_api("other", major=2, previous=ctypes.addressof(api))
    StridedMemoryView.from_dlpack(newest(ADDRESS, (2,), (1,)), -1)
    assert calls == ["export"], "the chain leads to one that is known"


@pytest.mark.parametrize("axes", range(7))
@pytest.mark.parametrize("has_strides", [True, False])
def test_a_borrowed_tensor_may_change_afterwards(axes, has_strides):
    """As torch's do in place: a view has numbers of its own."""
    torch, calls, _ = make_api("torch")
    shape = (2, 3, 2, 1, 4, 2)[:axes]
    strides = (1, 2, 6, 0, 12, 48)[:axes] if has_strides else None
    for cls in (StridedMemoryView, type("Sub", (StridedMemoryView,), {})):
        tensor = torch(ADDRESS, shape, strides)
        view = cls.from_any_interface(tensor, stream_ptr=-1)
        for at in range(axes):
            tensor.tensor.shape[at] = 99
            if has_strides:
                tensor.tensor.strides[at] = 99
        assert type(view) is cls
        assert (view.shape, view.strides, view.exporting_obj) == (shape, strides, tensor)
        assert view._layout.volume == int(np.prod(shape))
        assert view._layout.is_contiguous_c is (not has_strides or axes < 2)
    assert calls == ["borrow", "borrow"]


@pytest.mark.parametrize(("axes", "shape"), [(0, False), (0, True), (2, False)])
def test_a_borrowed_tensor_without_numbers(axes, shape):
    torch, calls, _ = make_api("torch")
    tensor = torch(ADDRESS, (2, 3)[:axes], None, null_shape=not shape)
    if axes == 0:
        view = StridedMemoryView.from_any_interface(tensor, -1)
        assert (view.shape, view.strides, view.size) == ((), None, 1)
    else:
        with pytest.raises(BufferError, match="no shape"):
            StridedMemoryView.from_any_interface(tensor, -1)
    assert calls == ["borrow"]
    assert sys.getrefcount(tensor) == (3 if axes == 0 else 2)


@pytest.mark.parametrize(("arguments", "text"), WRONG_TENSORS)
def test_a_wrong_borrowed_tensor(arguments, text):
    torch, calls, _ = make_api("torch")
    arguments = {"data": ADDRESS, "shape": (2, 3), "strides": (3, 1), **arguments}
    tensor = torch(arguments.pop("data"), arguments.pop("shape"), **arguments)
    for make in (StridedMemoryView.from_dlpack, StridedMemoryView.from_any_interface):
        with pytest.raises(BufferError, match=text):
            make(tensor, -1)
    assert calls == ["borrow", "borrow"]
    assert sys.getrefcount(tensor) == 2, "what is refused is not kept"


def test_streams_of_interfaces_in_c(device, stream):
    other = device.create_stream()
    number = other.__cuda_stream__()[1]
    kind, calls, _ = make_api("torch", current=number)
    tensor = kind(ADDRESS, (2,), (1,), device=(CUDA, 0))
    for consumer, ordered in [(-1, False), (number, False), (stream.__cuda_stream__()[1], True), (1, True), (0, True)]:
        with testing.record() as recording:
            StridedMemoryView.from_any_interface(tensor, consumer)
        assert order_calls(recording) == (["cuEventRecord", "cuStreamWaitEvent"] if ordered else []), consumer
    assert calls.count(("stream", CUDA, 0)) == 4
    host = kind(ADDRESS, (2,), (1,))
    del calls[:]
    StridedMemoryView.from_any_interface(host, 1)
    assert calls == ["borrow"]
    for fails in ("silent", "stream"):
        kind, calls, _ = make_api("other", fails=fails)
        tensor = kind(ADDRESS, (2,), (1,), device=(CUDA, 0))
        with pytest.raises(BufferError, match="does not say why"):
            StridedMemoryView.from_any_interface(tensor, 1)
        gc.collect()
        assert tensor.deleted == (1 if fails == "stream" else 0)
    other.close()


# CuPy's arrays.


@pytest.fixture
def cupy_class(monkeypatch):
    """A class of the name and the attributes of CuPy's, whose methods are those of a producer if it is given one."""

    class Array:
        def __init__(self, pointer, shape, strides, dtype, producer=None):
            self.data = types.SimpleNamespace(ptr=pointer, device_id=0)
            self.shape, self.strides, self.dtype, self.producer = shape, strides, np.dtype(dtype), producer

        def __dlpack_device__(self):
            return self.producer.__dlpack_device__()

        def __dlpack__(self, **keywords):
            return self.producer.__dlpack__(**keywords)

    Array.__name__, Array.__module__ = "ndarray", "cupy"
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=Array))
    return Array


@pytest.mark.parametrize(
    ("shape", "strides", "dtype"),
    [
        ((4, 5), (20, 4), "f4"),
        ((2, 5), (40, -4), "i4"),
        ((3,), (0,), "c16"),
        ((), (), "?"),
        ((0, 3), (12, 4), "u4"),
    ],
)
def test_cupy_arrays_are_read_by_their_attributes(memory, cupy_class, shape, strides, dtype):
    pointer, itemsize = int(memory.handle) + 16, np.dtype(dtype).itemsize
    array = cupy_class(pointer, shape, strides, dtype)
    view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
    assert (view.ptr, view.shape, view.dtype) == (pointer, shape, np.dtype(dtype))
    assert (view.strides or ()) == tuple(stride // itemsize for stride in strides)
    assert (view.device_id, view.readonly, view.is_device_accessible) == (0, False, True)
    assert view.exporting_obj is array and view.__dlpack_device__() == (CUDA, 0)


def test_what_only_cupy_can_say_it_is_asked(memory, cupy_class):
    pointer = int(memory.handle)
    # A stream that is to be ordered, strides that are no multiple of an element, a type that DLPack has not.
    for array, stream_ptr in [
        (cupy_class(pointer, (4,), (4,), "f4"), 1),
        (cupy_class(pointer, (4,), (6,), "f4"), -1),
        (cupy_class(pointer, (4,), (4,), ">f4"), -1),
        (cupy_class(0, (4,), (4,), "f4"), -1),
    ]:
        array.producer = Producer(pointer, (7,), device=(CUDA, 0))
        view = StridedMemoryView.from_any_interface(array, stream_ptr=stream_ptr)
        assert (view.ptr, view.shape) == (pointer, (7,))
        assert len(array.producer.asked) == 1, (array.dtype, stream_ptr)


def test_managed_memory_of_cupy_is_exported_as_such(device, stream, cupy_class):
    if driver_version() < (13, 0):
        pytest.skip("managed pools are of CUDA 13.0")
    with cuirass.ManagedMemoryResource().allocate(64, stream=stream) as buffer:
        stream.sync()
        array = cupy_class(int(buffer.handle), (4,), (4,), "f4")
        view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
        assert view.__dlpack_device__() == (13, 0) and view.is_device_accessible


def test_cupy_itself(device):
    cupy = pytest.importorskip("cupy")
    try:
        whole = cupy.arange(60, dtype="f4").reshape(3, 4, 5)
    except Exception as error:
        pytest.skip(f"CuPy cannot be used here: {error!r}")
    for array in (whole, whole[::2], whole.T, whole.astype("?"), whole[0, 0, 0], whole[:0]):
        same(lambda each, array=array: each.from_any_interface(array, stream_ptr=-1))
    # The official class divides negative strides as if they were not: 4611686018427387899 for -5.
    turned = whole[::2, ::-1]
    view = StridedMemoryView.from_any_interface(turned, stream_ptr=-1)
    assert (view.ptr, view.shape, view.strides) == (turned.data.ptr, (2, 4, 5), (40, -5, 1))
