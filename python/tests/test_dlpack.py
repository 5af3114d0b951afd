"""DLPack of buffers: capsules, their ends, devices, streams; and numpy as a consumer."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import cuirass
from cuirass import testing

from .conftest import HERE, child, is_sim
from .producers import (
    CPU,
    CUDA,
    CUDA_HOST,
    READ_ONLY,
    UNVERSIONED,
    VERSIONED,
    capsule_name,
    delete,
    managed_of,
    take,
)


@pytest.fixture
def buffer(device, stream):
    buffer = device.allocate(1024, stream=stream)
    yield buffer
    buffer.close()


def stream_number(stream):
    return stream.__cuda_stream__()[1]


def waits(recording):
    """The calls by which one stream was made to wait for another."""
    return [call.name for call in recording.calls if call.name in ("cuEventRecord", "cuStreamWaitEvent")]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3), (2, 5)])
def test_capsules_are_of_the_kind_that_the_consumer_knows(buffer, version, census):
    capsule = buffer.__dlpack__(stream=-1, max_version=version)
    new = version is not None and version >= (1, 0)
    assert capsule_name(capsule) == (VERSIONED if new else UNVERSIONED)
    managed = managed_of(capsule)
    tensor = managed.tensor
    assert (tensor.data, tensor.byte_offset) == (buffer.handle, 0)
    assert (tensor.device_type, tensor.device_id) == (CUDA, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (0, 8, 1)
    assert (tensor.ndim, tensor.shape[0], tensor.strides[0]) == (1, 1024, 1)
    if new:
        assert (managed.major, managed.minor, managed.flags) == (1, 3, 0)


def test_devices(device, stream, buffer, pinned):
    memory, _view = pinned(16)
    array = np.zeros(4, np.int32)
    wrapped = cuirass.Buffer.from_handle(array.ctypes.data, array.nbytes, owner=array)
    assert buffer.__dlpack_device__() == (CUDA, 0)
    assert memory.__dlpack_device__() == (CUDA_HOST, 0)
    assert wrapped.__dlpack_device__() == (CPU, 0)
    assert managed_of(wrapped.__dlpack__()).tensor.data == array.ctypes.data


def test_numpy_and_back(pinned):
    memory, view = pinned(64, "i")
    array = np.from_dlpack(memory)
    assert (array.dtype, array.shape) == (np.int8, (64,))
    assert array.ctypes.data == memory.handle
    words = array.view(np.int32)
    words[:] = np.arange(16)
    assert view.tolist() == list(range(16))
    view[3] = -7
    assert words[3] == -7
    again = cuirass.utils.StridedMemoryView.from_any_interface(words, -1)
    assert (again.ptr, again.shape, again.dtype) == (memory.handle, (16,), np.int32)


def test_host_memory_needs_no_driver(tmp_path):
    code = """
import numpy as np, cuirass
array = np.arange(8, dtype=np.int8)
buffer = cuirass.Buffer.from_handle(array.ctypes.data, 8, owner=array)
assert buffer.__dlpack_device__() == (1, 0)
assert np.from_dlpack(buffer).tolist() == list(range(8))
"""
    done = child(code, env={"CUIRASS_DRIVER": "gpu", "LD_LIBRARY_PATH": str(tmp_path)} if is_sim() else None)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_capsule_that_nobody_takes_gives_its_share_back(device, stream, census):
    buffer = device.allocate(256, stream=stream)
    capsule = buffer.__dlpack__(stream=-1)
    buffer.close()
    assert buffer.is_closed
    if is_sim():
        assert cuirass.sim.census().get("pooled_memory", 0) > 0
    del capsule
    stream.sync()


def test_a_consumer_keeps_the_memory_after_close(pinned, census):
    memory, view = pinned(32)
    view[:] = bytes(range(32))
    view.release()
    array = np.from_dlpack(memory)
    memory.close()
    del memory
    gc.collect()
    assert array.tolist() == list(range(32))
    array[0] = 9
    assert array[0] == 9


def test_used_capsules(buffer):
    capsule = buffer.__dlpack__(stream=-1, max_version=(1, 0))
    managed = take(capsule)
    with pytest.raises(BufferError, match="used before"):
        cuirass.utils.StridedMemoryView.from_dlpack(_Returns(capsule), -1)
    before = sys.getrefcount(buffer)
    del capsule
    assert sys.getrefcount(buffer) == before, "a used capsule has nothing to give back"
    delete(managed)
    assert sys.getrefcount(buffer) == before - 1


class _Returns:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return (CUDA, 0)

    def __dlpack__(self, **_keywords):
        return self.capsule


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_the_deleter_runs_on_any_thread(device, stream, version, census, reports):
    buffer = device.allocate(256, stream=stream)
    alive = weakref.ref(buffer)
    managed = take(buffer.__dlpack__(stream=-1, max_version=version))
    buffer.close()
    del buffer
    assert alive() is not None
    # ctypes releases the interpreter around the call: the deleter is called by a thread that is not attached.
    thread = threading.Thread(target=delete, args=(managed,))
    thread.start()
    thread.join()
    gc.collect()
    assert alive() is None
    assert reports == []


END = """
import ctypes, sys, threading
import numpy as np
import cuirass
sys.path.append(sys.argv[1])
from tests.producers import take, delete
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
buffer = device.allocate(256, stream=stream)
pinned = cuirass.LegacyPinnedMemoryResource().allocate(64)
array = np.from_dlpack(pinned)
view = cuirass.utils.StridedMemoryView.from_any_interface(array, -1)
kept = np.from_dlpack(view)
capsule = buffer.__dlpack__(stream=-1, max_version=(1, 0))
taken = take(buffer.__dlpack__(stream=-1))
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "buffer.close(); pinned.close(); del buffer, pinned",
        # A capsule, an array and a view that outlive their modules.
        "sys.keep = [capsule, array, view, kept, buffer]",
        "import atexit; atexit.register(delete, taken)",
        # A thread that deletes while the interpreter ends, and never sees it again.
        """
library = ctypes.CDLL(None)
start = library.pthread_create
deleter = ctypes.cast(taken.deleter, ctypes.c_void_p)
handle = ctypes.c_ulong()
class Late:
    def __del__(self):
        assert start(ctypes.byref(handle), None, deleter, ctypes.c_void_p(ctypes.addressof(taken))) == 0
        assert library.pthread_join(handle, None) == 0
sys.late = Late()
""",
        # The C library calls it once Python is gone.
        """
register = ctypes.CDLL(None).__cxa_atexit
register.argtypes = (ctypes.c_void_p,) * 3
assert register(ctypes.cast(taken.deleter, ctypes.c_void_p), ctypes.addressof(taken), None) == 0
""",
    ],
)
def test_the_end_of_the_interpreter(end):
    done = child(END + end, HERE)
    assert (done.returncode, done.stderr) == (0, "")


def test_read_only_memory_has_no_old_capsule(device):
    array = np.arange(6, dtype=np.float32)
    array.flags.writeable = False
    view = cuirass.utils.StridedMemoryView.from_any_interface(array, -1)
    with pytest.raises(BufferError, match="read-only"):
        view.__dlpack__()
    capsule = view.__dlpack__(max_version=(1, 0))
    assert managed_of(capsule).flags == READ_ONLY
    del capsule
    again = np.from_dlpack(view)
    assert not again.flags.writeable
    assert again.tolist() == array.tolist()
    del again
    gc.collect()
    assert sys.getrefcount(view) == 2


@pytest.mark.parametrize("wanted", [(1, 0), (3, 0), None])
def test_the_host_may_have_page_locked_memory(pinned, wanted):
    memory, _view = pinned(16)
    tensor = managed_of(memory.__dlpack__(dl_device=wanted)).tensor
    assert (tensor.device_type, tensor.device_id) == (wanted or (3, 0))
    if wanted == (1, 0):
        assert np.from_dlpack(memory, device="cpu", copy=None).ctypes.data == memory.handle


@pytest.mark.thread_unsafe(reason="it counts references to what all threads have")
def test_what_is_not_done_is_refused(buffer):
    before = sys.getrefcount(buffer)
    for keywords, error in [
        ({"dl_device": (1, 0)}, BufferError),
        ({"dl_device": (2, 1)}, BufferError),
        ({"dl_device": (2,)}, ValueError),
        ({"dl_device": 2}, TypeError),
        ({"dl_device": ("x", 0)}, TypeError),
        ({"copy": True}, BufferError),
        ({"max_version": 1}, TypeError),
        ({"max_version": (1,)}, ValueError),
        ({"stream": 0}, ValueError),
        ({"stream": -2}, ValueError),
        ({"stream": "x"}, TypeError),
        ({"stream": 1 << 70}, ValueError),
    ]:
        with pytest.raises(error):
            buffer.__dlpack__(**{"stream": -1, **keywords})
        assert sys.getrefcount(buffer) == before
    assert buffer.__dlpack__(stream=-1, copy=False, dl_device=(2, 0))
    with pytest.raises(TypeError):
        buffer.__dlpack__(-1)


def test_a_closed_buffer_is_not_exported(device, stream):
    buffer = device.allocate(16, stream=stream)
    buffer.close()
    for call in (lambda: buffer.__dlpack__(stream=-1), buffer.__dlpack_device__):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_the_consumers_stream_waits(device, stream, buffer):
    other = device.create_stream()
    for number, ordered in [
        (stream_number(other), True),
        (stream_number(stream), False),
        (-1, False),
        (1, True),
        (2, True),
        (None, True),
    ]:
        with testing.record() as recording:
            buffer.__dlpack__(stream=number)
        assert waits(recording) == (["cuEventRecord", "cuStreamWaitEvent"] if ordered else []), number
    other.close()


def test_the_order_is_a_real_one(device, stream, code):
    """A kernel on the consumer's stream reads what a kernel on the buffer's has written."""
    kernel, other = code.get_kernel("add"), device.create_stream()
    count = 1 << 16
    source = np.zeros(count, np.int32)
    config = cuirass.LaunchConfig(grid=count // 256, block=256)
    staging = cuirass.LegacyPinnedMemoryResource().allocate(source.nbytes)
    result = np.asarray(memoryview(staging)).view(np.int32)
    buffer = device.allocate(source.nbytes, stream=stream)
    buffer.fill(0, stream=stream)
    for _ in range(20):
        cuirass.launch(stream, config, kernel, buffer, count, 1)
    view = cuirass.utils.StridedMemoryView.from_dlpack(buffer, stream_number(other))
    assert view.ptr == buffer.handle
    buffer.copy_to(staging, stream=other)
    other.sync()
    assert (result == 20).all()
    other.close()


@pytest.mark.parametrize("call", ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy_v2"])
@pytest.mark.parametrize("done", [False, True])
def test_a_failure_of_the_order_is_raised_and_exports_nothing(device, stream, call, done, reports):
    other = device.create_stream()
    buffer = device.allocate(64, stream=stream)
    before = sys.getrefcount(buffer)
    with (
        testing.fail(call, status="CUDA_ERROR_UNKNOWN", done=done),
        pytest.raises(cuirass.CUDAError, match="CUDA_ERROR_UNKNOWN") as caught,
    ):
        buffer.__dlpack__(stream=stream_number(other))
    assert caught.value.call == call
    assert sys.getrefcount(buffer) == before
    assert reports == []
    assert buffer.__dlpack__(stream=stream_number(other))
    buffer.close()
    other.close()


def test_a_capture_stays_valid(device, stream):
    """Nothing is ordered behind a stream that is being captured by the legacy default stream: that is an error, which
    harms no capture."""
    buffer = device.allocate(64, stream=stream)
    builder = stream.create_graph_builder().begin_building()
    for number in (None, 1):
        with pytest.raises(RuntimeError, match="captured"):
            buffer.__dlpack__(stream=number)
    assert buffer.__dlpack__(stream=-1)
    builder.end_building()
    builder.complete().close()
    builder.close()
    assert buffer.__dlpack__()
    buffer.close()


def test_ten_thousand_times(device, stream, pinned, census):
    buffer = device.allocate(64, stream=stream)
    memory, _view = pinned(64)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    objects = (buffer, memory, array, array.dtype)
    view = cuirass.utils.StridedMemoryView

    def cycle(index):
        version = (1, 0) if index % 2 else None
        capsule = buffer.__dlpack__(stream=-1, max_version=version)
        if index % 3 == 0:
            delete(take(capsule))
        view.from_dlpack(buffer, -1)
        assert view.from_any_interface(array, -1).dtype is array.dtype
        np.from_dlpack(view.from_any_interface(memory, -1))
        view.from_buffer(memory, (4, 4), itemsize=4)
        del capsule

    for index in range(200):
        cycle(index)
    gc.collect()
    counts = [sys.getrefcount(each) for each in objects]
    blocks = sys.getallocatedblocks()
    for index in range(10_000):
        cycle(index)
    gc.collect()
    assert [sys.getrefcount(each) for each in objects] == counts
    assert sys.getallocatedblocks() - blocks < 200
    buffer.close()


def test_from_ctypes_library_alone():
    """The interface in C: a tensor that is borrowed, taken, and made into a view."""
    capsule = cuirass.utils.StridedMemoryView.__dlpack_c_exchange_api__
    assert cuirass.utils.StridedMemoryView.__c_dlpack_exchange_api__ is capsule
    assert capsule_name(capsule) == b"dlpack_exchange_api"


def test_a_capture_that_the_exchange_spoils_is_told(device, stream):
    """The consumer's stream is being captured, and the memory is of another's work: the driver refuses the wait."""
    buffer = device.allocate(64, stream=stream)
    builder = device.create_graph_builder().begin_building()
    with pytest.raises(cuirass.CUDAError, match="STREAM_CAPTURE_ISOLATION") as caught:
        buffer.__dlpack__(stream=int(builder.stream.handle))
    assert any("is now invalidated" in note for note in caught.value.__notes__)
    with pytest.raises(cuirass.CUDAError, match="STREAM_CAPTURE_INVALIDATED"):
        builder.end_building()
    builder.close()
    buffer.close(stream)
    stream.sync()
