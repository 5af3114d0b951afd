"""StridedMemoryView: every protocol, every type, every layout; beside the official class, and beside numpy."""

import ctypes
import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuirass
from cuirass._layout import _StridedLayout
from cuirass.utils import StridedMemoryView, args_viewable_as_strided_memory

from .conftest import child
from .producers import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    READ_ONLY,
    SUBBYTE_PADDED,
    WRONG_TENSORS,
    Interface,
    ManagedVersioned,
    Producer,
    capsule_pointer,
    same,
)

official = pytest.importorskip("cuda.core.utils").StridedMemoryView

DTYPES = [
    np.dtype(name)
    for name in [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
]
MEMORY = (ctypes.c_char * 4096)()
ADDRESS = ctypes.addressof(MEMORY)


def arrays():
    """Arrays of every type and of any layout that slicing makes."""

    @st.composite
    def build(draw):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(0, 4), min_size=0, max_size=5))
        array = np.zeros(shape, dtype, order=draw(st.sampled_from("CF")))
        for axis in range(array.ndim):
            step = draw(st.sampled_from((1, 1, 2, 3, -1, -2)))
            array = array[(slice(None),) * axis + (slice(None, None, step),)]
        if array.ndim:
            array = array.transpose(draw(st.permutations(range(array.ndim))))
        if draw(st.booleans()):
            array = array[np.newaxis]
        if draw(st.integers(0, 4)) == 0:
            array = np.broadcast_to(array, (3, *array.shape))
        if draw(st.integers(0, 4)) == 0:
            array = array.view()
            array.flags.writeable = False
        return array

    return build()


@given(arrays())
@settings(max_examples=300, deadline=None)
def test_any_numpy_array_is_as_the_official_class_says(array):
    said = same(lambda cls: cls.from_any_interface(array, -1))
    assert said == same(lambda cls: cls.from_dlpack(array, -1))
    assert said["shape"] == array.shape
    assert said["dtype"] is array.dtype
    assert said["readonly"] is not array.flags.writeable
    view = StridedMemoryView.from_any_interface(array, -1)
    assert view.exporting_obj is array
    assert view._layout.volume == array.size
    back = np.from_dlpack(view)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.size == 0 or (back.ctypes.data, back.strides) == (array.ctypes.data, array.strides)
    host = StridedMemoryView.from_array_interface(array)
    assert (host.shape, host.dtype, host.ptr, host.readonly) == (view.shape, view.dtype, view.ptr, view.readonly)
    given_strides = array.__array_interface__["strides"]
    expected = None if given_strides is None else tuple(stride // array.itemsize for stride in given_strides)
    assert host.strides == expected


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, ">f4"),
        np.zeros(3, [("a", "i4"), ("b", "f8")]),
        np.zeros(3, "S5"),
        np.zeros(3, "U5"),
        np.zeros(3, object),
        np.zeros(3, "M8[s]"),
        np.zeros(3, "V7"),
        np.zeros(3, "longdouble"),
        np.lib.stride_tricks.as_strided(np.zeros(8, "u1").view("i2"), (2,), (3,)),
    ],
    ids=lambda array: array.dtype.str,
)
def test_what_dlpack_has_no_type_for(array):
    """numpy's own error passes through."""
    for make in (StridedMemoryView.from_dlpack, StridedMemoryView.from_any_interface):
        with pytest.raises(BufferError, match="DLPack only supports"):
            make(array, -1)
    assert same(lambda cls: cls.from_any_interface(array, -1)) is BufferError


def test_arrays_of_any_type_by_their_interface():
    for kind in (">f4", "S5", "U5", "M8[s]", "m8[ns]", "V7", "longdouble", ">i1", "?", "f2", "c16"):
        array = np.zeros((2, 3), kind)
        view = StridedMemoryView.from_array_interface(array)
        assert view.dtype == np.dtype(array.__array_interface__["typestr"])
        assert (view.shape, view.strides, view._layout.itemsize) == ((2, 3), None, array.itemsize)
    with pytest.raises(ValueError, match="no multiple"):
        StridedMemoryView.from_array_interface(
            np.lib.stride_tricks.as_strided(np.zeros(8, "u1").view("i2"), (2,), (3,))
        )
    with pytest.raises(ValueError, match="no bytes"):
        StridedMemoryView.from_array_interface(np.zeros(3, "V0"))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 12, 16, 24])
def test_strides_of_elements_of_any_size(size):
    array = np.zeros((6, 5, 4), f"V{size}")
    for part in (array, array[::-1, 1::2], array[::2, ::-2, ::-1], array[:, :1].transpose(2, 0, 1)):
        view = StridedMemoryView.from_array_interface(part)
        assert view._layout.strides_in_bytes == part.strides or view.strides is None
        assert (view.strides is None) is part.flags.c_contiguous
    torn = np.lib.stride_tricks.as_strided(array, (2,), (size + 1,))
    if size > 1:
        with pytest.raises(ValueError, match=rf"a stride of {size + 1} bytes is no multiple of an element's {size}"):
            StridedMemoryView.from_array_interface(torn)


def test_references_to_objects_are_no_elements(pinned):
    """Their bytes could be copied: into an array of objects, which nobody had counted."""
    buffer, _ = pinned(64)
    structured = np.dtype([("number", "i4"), ("anything", "O")])
    for dtype in (np.dtype("O"), structured):
        with pytest.raises(TypeError, match="refer to Python objects"):
            StridedMemoryView.from_buffer(buffer, (2,), itemsize=dtype.itemsize, dtype=dtype)
        with pytest.raises(TypeError, match="refer to Python objects"):
            StridedMemoryView.from_any_interface(np.zeros(dtype.itemsize, "u1"), -1).view(dtype=dtype)
    with pytest.raises(TypeError, match="refer to Python objects"):
        StridedMemoryView.from_array_interface(np.array([None, "x"], dtype=object))
    interface = {"shape": (2,), "typestr": "|O", "data": (buffer.handle, False), "version": 3}
    array = type("Array", (), {"__cuda_array_interface__": interface})()
    with pytest.raises(TypeError, match="refer to Python objects"):
        StridedMemoryView.from_cuda_array_interface(array, -1)


def test_a_subclass_of_ndarray_speaks_for_itself():
    class Own(np.ndarray):
        def __dlpack__(self, **keywords):
            raise ZeroDivisionError("asked")

    with pytest.raises(ZeroDivisionError, match="asked"):
        StridedMemoryView.from_any_interface(np.zeros(3).view(Own), -1)
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    assert same(lambda cls: cls.from_any_interface(masked, -1))


@pytest.mark.parametrize("code", range(20))
def test_every_code_of_dlpack(code):
    for bits in (1, 2, 4, 6, 8, 16, 32, 64, 128):
        for flags in (0, SUBBYTE_PADDED):
            producer = Producer(ADDRESS, (2,), (1,), dtype=(code, bits, 1), flags=flags)
            if bits < 8 and not flags:
                with pytest.raises(BufferError, match="bits"):
                    StridedMemoryView.from_dlpack(producer, -1)
                continue
            view = StridedMemoryView.from_dlpack(producer, -1)
            assert view._layout.itemsize == max(1, bits // 8)
            try:
                expected = official.from_dlpack(producer, -1).dtype
            except (TypeError, ValueError, NotImplementedError):
                continue
            if code != 4 or bits == 16:
                # The official class calls each width of code 4 bfloat16.
                assert view.dtype == expected


def test_narrow_types():
    narrow = pytest.importorskip("ml_dtypes")
    names = [
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float4_e2m1fn",
    ]
    known = {(7 + index, 8 if index < 8 else 6 if index < 10 else 4): name for index, name in enumerate(names)}
    known.update({(4, 16): "bfloat16", (0, 4): "int4", (1, 4): "uint4", (0, 2): "int2", (1, 2): "uint2"})
    for (code, bits), name in known.items():
        flags = SUBBYTE_PADDED if bits < 8 else 0
        producer = Producer(ADDRESS, (3,), (1,), dtype=(code, bits, 1), flags=flags)
        view = StridedMemoryView.from_dlpack(producer, -1)
        dtype = np.dtype(getattr(narrow, name))
        assert view.dtype == dtype
        # The values that numpy and ml_dtypes see are those that are there.
        array = np.array([0, 1, 1], dtype)
        ctypes.memmove(ADDRESS, array.ctypes.data, array.nbytes)
        again = StridedMemoryView.from_array_interface(array)
        assert (again.dtype, again.shape) == (dtype, (3,))
        assert StridedMemoryView.from_any_interface(array, -1).dtype == dtype
        capsule = again.__dlpack__(max_version=(1, 0))
        tensor = ctypes.cast(capsule_pointer(capsule, b"dltensor_versioned"), ctypes.POINTER(ManagedVersioned)).contents
        assert (tensor.tensor.code, tensor.tensor.bits, tensor.flags) == (code, bits, flags)
        if flags:
            with pytest.raises(BufferError, match="less than a byte"):
                again.__dlpack__()


def test_narrow_types_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    view = StridedMemoryView.from_dlpack(Producer(ADDRESS, (2,), (1,), dtype=(4, 16, 1)), -1)
    with pytest.raises(NotImplementedError, match="ml_dtypes"):
        _ = view.dtype
    assert (view.shape, view._layout.itemsize) == ((2,), 2)
    assert "bfloat16" not in repr(view)


@pytest.mark.parametrize("device", [(CPU, 0), (CUDA, 0), (CUDA, 1), (CUDA_HOST, 0), (CUDA_MANAGED, 1)])
@pytest.mark.parametrize("versioned", [True, False])
def test_producers(device, versioned):
    for shape, strides in [
        ((2, 3), (3, 1)),
        ((2, 3), (1, 2)),
        ((2, 3), (-3, 1)),
        ((4,), (0,)),
        ((0, 3), (3, 1)),
        ((2, 3), None),
    ]:
        producer = Producer(ADDRESS + 64, shape, strides, device=device, versioned=versioned, byte_offset=8)
        said = same(lambda cls, producer=producer: cls.from_dlpack(producer, -1))
        assert said["ptr"] == ADDRESS + 72
        assert (said["device_id"], said["device"]) == (
            device[1] if device[0] != CPU else -1,
            device if device[0] == CUDA else (device[0], 0),
        )
        gc.collect()
        assert producer.deleted == 2, "ours and the official one's"


def test_flags_and_versions():
    assert same(lambda cls: cls.from_dlpack(Producer(ADDRESS, (2,), (1,), flags=READ_ONLY), -1))["readonly"] is True
    assert same(lambda cls: cls.from_dlpack(Producer(ADDRESS, (2,), (1,), old=True), -1))["readonly"] is False
    newer = Producer(ADDRESS, (2,), (1,), version=(2, 0))
    with pytest.raises(BufferError, match=r"version 2\.0"):
        StridedMemoryView.from_dlpack(newer, -1)
    assert newer.deleted == 0, "a tensor that is not understood is left in its capsule"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"raises": ZeroDivisionError("mine")}, ZeroDivisionError, "mine"),
        ({"raises": TypeError("mine")}, TypeError, "mine"),
        ({"returns": 5}, BufferError, "capsule"),
        ({"returns": "dltensor"}, BufferError, "capsule"),
        ({"name": b"wrong"}, BufferError, "capsule"),
        ({"name": b"used_dltensor"}, BufferError, "used before"),
        *((arguments, BufferError, text) for arguments, text in WRONG_TENSORS),
        ({"device": (1,)}, ValueError, None),
        ({"device": None}, TypeError, None),
        ({"device": ("x", 0)}, TypeError, None),
    ],
)
def test_bad_producers(arguments, error, text):
    arguments = {"data": ADDRESS, "shape": (2, 3), "strides": (3, 1), **arguments}
    device = arguments.get("device", (CPU, 0))
    well = device if isinstance(device, tuple) and len(device) == 2 and isinstance(device[0], int) else (CPU, 0)
    producer = Producer(arguments.pop("data"), arguments.pop("shape"), **{**arguments, "device": well})
    producer.device = device
    for make in (StridedMemoryView.from_dlpack, StridedMemoryView.from_any_interface):
        with pytest.raises(error, match=text):
            make(producer, -1)
    # What was taken was given back; what was not is the producer's.
    assert producer.deleted in (0, 2)


def test_objects_without_any_protocol():
    for object_ in (object(), 5, None, "text"):
        with pytest.raises(BufferError, match="neither"):
            StridedMemoryView.from_any_interface(object_, -1)
        kind = type(object_).__name__
        for make, name in (
            (lambda each: StridedMemoryView.from_dlpack(each, -1), "__dlpack_device__"),
            (lambda each: StridedMemoryView.from_cuda_array_interface(each, -1), "__cuda_array_interface__"),
            (StridedMemoryView.from_array_interface, "__array_interface__"),
        ):
            with pytest.raises(TypeError, match=f"^obj must have {name}, {kind} has not$"):
                make(object_)
        with pytest.raises(TypeError, match=f"buffer must be a Buffer, not {kind}"):
            StridedMemoryView.from_buffer(object_, (1,), itemsize=1)


def test_an_interface_that_fails_itself_says_so():
    class Fails:
        @property
        def __array_interface__(self):
            return self.nothing

        @property
        def __dlpack_device__(self):
            raise LookupError("mine")

    with pytest.raises(TypeError, match="__array_interface__, Fails has not") as caught:
        StridedMemoryView.from_array_interface(Fails())
    assert "nothing" in str(caught.value.__cause__)
    with pytest.raises(LookupError, match="mine"):
        StridedMemoryView.from_dlpack(Fails(), -1)


def test_the_consumers_stream_reaches_the_producer():
    for given_stream, asked in [(-1, -1), (0, None), (1, 1), (2, 2), (77, 77)]:
        producer = Producer(ADDRESS, (2,), (1,), device=(CUDA, 0))
        StridedMemoryView.from_dlpack(producer, given_stream)
        assert producer.asked == [{"stream": asked, "max_version": (1, 3)}]
        old = Producer(ADDRESS, (2,), (1,), device=(CUDA, 0), old=True)
        StridedMemoryView.from_dlpack(old, given_stream)
        assert old.asked[-1] == {"stream": asked}
        host = Producer(ADDRESS, (2,), (1,))
        StridedMemoryView.from_dlpack(host, given_stream)
        assert host.asked == [{"stream": None, "max_version": (1, 3)}], "the host has no streams"
    for wrong, error in [
        (None, BufferError),
        (-2, ValueError),
        (1 << 70, ValueError),
        ("x", TypeError),
        (1.5, TypeError),
    ]:
        with pytest.raises(error):
            StridedMemoryView.from_dlpack(np.zeros(3), wrong)


# Buffers, layouts, types.


@pytest.fixture
def memory(device, stream):
    buffer = device.allocate(256, stream=stream)
    yield buffer
    buffer.close()


def test_from_buffer(device, stream, memory, pinned):
    f4 = np.dtype("f4")
    for arguments in [
        {"shape": (3, 4), "dtype": f4},
        {"shape": (3, 4), "itemsize": 4},
        {"shape": (3, 4), "itemsize": 4, "dtype": f4},
        {"shape": (3, 4), "strides": (1, 3), "dtype": f4},
        {"shape": (3, 4), "dtype": f4, "is_readonly": True},
        {"shape": (), "dtype": f4},
        {"shape": (0, 9), "dtype": f4},
        {"shape": (64,), "dtype": f4},
        {"shape": (3,), "dtype": np.dtype([("a", "i4"), ("b", "i4")])},
    ]:
        view = StridedMemoryView.from_buffer(memory, **arguments)
        assert view.exporting_obj is memory
        assert (view.ptr, view.shape, view.dtype) == (memory.handle, arguments["shape"], arguments.get("dtype"))
        assert view.strides == arguments.get("strides")
        assert view.readonly is arguments.get("is_readonly", False)
        assert (view.device_id, view.is_device_accessible) == (0, True)
    for arguments, error in [
        ({"shape": (65,), "dtype": f4}, ValueError),
        ({"shape": (3,), "strides": (-1,), "dtype": f4}, ValueError),
        ({"shape": (3,), "strides": (1 << 61,), "dtype": f4}, ValueError),
        ({"shape": (3,), "strides": (1, 1), "dtype": f4}, ValueError),
        ({"shape": (-3,), "dtype": f4}, ValueError),
        ({"shape": (3,)}, ValueError),
        ({"shape": (3,), "itemsize": 0}, ValueError),
        ({"shape": (3,), "itemsize": 8, "dtype": f4}, ValueError),
        ({"shape": 3, "dtype": f4}, TypeError),
        ({"shape": [3], "dtype": f4}, TypeError),
        ({"shape": ("x",), "dtype": f4}, TypeError),
    ]:
        with pytest.raises(error):
            StridedMemoryView.from_buffer(memory, **arguments)
    with pytest.raises(TypeError, match="Buffer"):
        StridedMemoryView.from_buffer(np.zeros(3), (3,), itemsize=8)
    host, _view = pinned(16)
    assert StridedMemoryView.from_buffer(host, (4,), itemsize=4).__dlpack_device__() == (CUDA_HOST, 0)


def test_host_arrays_in_page_locked_memory(pinned):
    memory, _view = pinned(64)
    array = np.asarray(memoryview(memory)).view(np.float32)
    view = StridedMemoryView.from_array_interface(array)
    assert view.is_device_accessible
    assert not StridedMemoryView.from_array_interface(np.zeros(3)).is_device_accessible


def test_threads(pinned):
    """Views are made, exported, taken and dropped by many threads at once, of the same objects."""
    memory, _view = pinned(4096)
    array = np.arange(1024, dtype=np.float32)
    start = threading.Barrier(8)
    failures = []

    def work():
        start.wait()
        try:
            for _ in range(500):
                view = StridedMemoryView.from_any_interface(array, -1)
                part = view.view(view._layout[::2])
                assert np.from_dlpack(part)[3] == 6
                assert StridedMemoryView.from_dlpack(memory, -1).ptr == memory.handle
                assert view.shape is view.shape
        except BaseException as error:
            failures.append(error)

    before = sys.getrefcount(array)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert failures == []
    assert sys.getrefcount(array) == before


def test_a_view_has_a_share_of_the_buffer(device, stream, census):
    buffer = device.allocate(64, stream=stream)
    view = StridedMemoryView.from_buffer(buffer, (16,), dtype=np.dtype("f4"))
    part = view.view(view._layout[2:5])
    buffer.close()
    with pytest.raises(RuntimeError, match="closed"):
        StridedMemoryView.from_buffer(buffer, (16,), itemsize=4)
    del view
    target = np.zeros(3, "f4")
    part.copy_to(StridedMemoryView.from_any_interface(target, -1), stream)


@given(arrays(), st.data())
@settings(max_examples=100, deadline=None)
def test_views_of_views_are_numpys_slices(array, data):
    view = StridedMemoryView.from_dlpack(array, -1)
    index = tuple(
        data.draw(
            st.sampled_from([slice(None), slice(None, None, -1), slice(1, None), slice(None, None, 2), slice(0, 0)])
        )
        for _ in range(array.ndim)
    )
    part, expected = view.view(view._layout[index]), array[(*index, ...)]
    if expected.size:
        assert part.ptr == expected.ctypes.data
        assert np.from_dlpack(part).__array_interface__["data"] == expected.__array_interface__["data"]
    assert part.shape == expected.shape
    assert part.exporting_obj is array
    assert part.view(view._layout).ptr == view.ptr
    again = part.view()
    assert (again.ptr, again.shape, again.strides, again._layout) == (part.ptr, part.shape, part.strides, part._layout)


def test_other_types_of_the_same_bytes():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    view = StridedMemoryView.from_dlpack(array, -1)
    assert np.array_equal(np.from_dlpack(view.view(dtype=np.dtype("i4"))), array.view("i4"))
    wide = view.view(_StridedLayout((3, 2), None, 8), np.dtype("f8"))
    assert np.array_equal(np.from_dlpack(wide), array.view("f8"))
    for layout, dtype, error in [
        (None, np.dtype("i8"), ValueError),
        (None, np.dtype("i2"), ValueError),
        (_StridedLayout((6,), None, 8), None, ValueError),
        (_StridedLayout((6,), None, 8), np.dtype("i4"), ValueError),
        (_StridedLayout((13,), None, 4), None, ValueError),
        (_StridedLayout((3,), (-1,), 4), None, ValueError),
        ((3, 4), None, TypeError),
    ]:
        with pytest.raises(error):
            view.view(layout, dtype)
    array.flags.writeable = False
    assert StridedMemoryView.from_dlpack(array, -1).view(dtype=np.dtype("i4")).readonly


def test_a_view_of_a_view_keeps_the_tensor():
    producer = Producer(ADDRESS, (4,), (1,))
    view = StridedMemoryView.from_dlpack(producer, -1)
    part = view.view(view._layout[1:])
    deeper = part.view(part._layout[1:])
    del view, part
    gc.collect()
    assert producer.deleted == 0
    assert deeper.ptr == ADDRESS + 8
    del deeper
    gc.collect()
    assert producer.deleted == 1


def test_attributes_are_lazy_and_stay():
    array = np.arange(6.0)
    view = StridedMemoryView.from_any_interface(array, -1)
    assert view.shape is view.shape
    assert view.dtype is view.dtype is array.dtype
    for name in ("ptr", "shape", "dtype", "readonly", "exporting_obj", "device_id"):
        with pytest.raises(AttributeError):
            setattr(view, name, 1)
    assert repr(view) == (
        f"<StridedMemoryView ptr={array.ctypes.data:#x} shape=(6,) strides=(1,) itemsize=8 dtype=float64 device_id=-1 "
        "readonly=False>"
    )
    with pytest.raises(RuntimeError, match="not available"):
        view.as_tensor_map((1,))


def test_subclasses():
    class Own(StridedMemoryView):
        def __init__(self):
            raise AssertionError("the class methods do not call it")

    class Named(StridedMemoryView):
        pass

    array = np.arange(3.0)
    for made in (
        Own.from_dlpack(array, -1),
        Own.from_any_interface(array, -1),
        Own.from_array_interface(array),
    ):
        assert type(made) is Own
        assert made.ptr == array.ctypes.data
    named = Named.from_dlpack(array, -1)
    named.name = "x"
    alive = weakref.ref(named)
    named.itself = named
    del named
    gc.collect()
    assert alive() is None


def test_the_constructor_is_deprecated():
    array = np.arange(3.0)
    with pytest.warns(DeprecationWarning, match="from_any_interface"):
        view = StridedMemoryView(array, -1)
    assert view.ptr == array.ctypes.data
    with pytest.warns(DeprecationWarning):
        nothing = StridedMemoryView()
    assert (nothing.ptr, nothing.exporting_obj, nothing.readonly) == (0, None, False)
    for name in ("shape", "strides", "size", "dtype", "_layout"):
        with pytest.raises(ValueError, match="nothing"):
            getattr(nothing, name)
    assert repr(nothing) == "<StridedMemoryView of nothing>"
    with pytest.warns(DeprecationWarning), pytest.raises(BufferError):
        StridedMemoryView(array)


def test_views_are_objects_like_all_others():
    """However they are made: counted by their class, seen by the collector, and of the size that the class says."""
    array = np.zeros((2, 3))
    whole = StridedMemoryView.from_array_interface(array)
    made = [
        lambda: StridedMemoryView.from_any_interface(array, stream_ptr=-1),
        lambda: StridedMemoryView.from_dlpack(array, -1),
        lambda: StridedMemoryView.from_array_interface(array),
        whole.view,
        lambda: StridedMemoryView.__new__(StridedMemoryView),
    ]
    with pytest.warns(DeprecationWarning):
        sizes = {sys.getsizeof(make()) for make in made}
    assert len(sizes) == 1
    gc.collect()
    for make in made[:-1]:
        before = sys.getrefcount(StridedMemoryView), sys.getrefcount(array)
        views = [make() for _ in range(100)]
        assert all(type(view) is StridedMemoryView and gc.is_tracked(view) for view in views)
        assert sys.getrefcount(StridedMemoryView) == before[0] + 100
        del views
        assert (sys.getrefcount(StridedMemoryView), sys.getrefcount(array)) == before


def test_cycles_are_collected():
    class Node:
        pass

    owner = Node()
    buffer = cuirass.Buffer.from_handle(ADDRESS, 16, owner=owner)
    owner.view = StridedMemoryView.from_buffer(buffer, (4,), itemsize=4)
    owner.part = owner.view.view(owner.view._layout[1:])

    class Wrapper:
        def __init__(self):
            self.array = np.zeros(4)
            self.__dlpack__, self.__dlpack_device__ = self.array.__dlpack__, self.array.__dlpack_device__

    producer = Wrapper()
    producer.view = StridedMemoryView.from_dlpack(producer, -1)
    assert producer.view.exporting_obj is producer
    seen = weakref.ref(owner), weakref.ref(producer)
    del owner, buffer, producer
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_the_decorator():
    @args_viewable_as_strided_memory((0, 2))
    def function(first, second, third, *, scale=1):
        """Its own text."""
        return first.view(-1), second, third.view(-1), scale

    arrays = np.zeros(3), np.ones((2, 2), np.int8)
    first, second, third, scale = function(arrays[0], "as it is", arrays[1], scale=2)
    assert (second, scale) == ("as it is", 2)
    assert first.exporting_obj is arrays[0]
    assert third.exporting_obj is arrays[1]
    assert (function.__name__, function.__doc__) == ("function", "Its own text.")
    with pytest.raises(BufferError, match="neither"):
        function(1, 2, arrays[0])
    with pytest.raises(IndexError, match="by position"):
        function(arrays[0], 2)
    with pytest.raises(TypeError, match="tuple"):
        args_viewable_as_strided_memory([0])

    @args_viewable_as_strided_memory((-1,))
    def last(*given):
        with pytest.raises(BufferError, match="ambiguous"):
            given[-1].view()
        return given[-1].obj, given[-1].has_dlpack

    assert last(1, arrays[0])[0] is arrays[0]
    assert last(Interface("__cuda_array_interface__", shape=(1,)))[1] is False


def test_import_loads_no_numpy():
    code = """
import sys, cuirass, cuirass.utils
class P:
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **k): raise KeyError
try: cuirass.utils.StridedMemoryView.from_any_interface(P(), -1)
except KeyError: pass
assert 'numpy' not in sys.modules
"""
    done = child(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_long_chain_of_views_goes_at_once():
    """Each is of the one before, by DLPack."""
    array = np.arange(8.0)
    held = sys.getrefcount(array)
    view = StridedMemoryView.from_dlpack(array, -1)
    for _ in range(50_000):
        view = StridedMemoryView.from_dlpack(view, -1)
    assert view.ptr == array.ctypes.data
    del view
    gc.collect()
    assert sys.getrefcount(array) == held
