"""Memory and events between processes, as far as one process can show it: it may import what it has exported."""

import copy
import gc
import os
import pickle
import re
import resource as limits
import uuid
import warnings
import weakref
from multiprocessing import reduction

import pytest

import cuirass
from cuirass import (
    Buffer,
    CUDAError,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Event,
    EventOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)
from cuirass._event import IPCEventDescriptor
from cuirass._memory._ipc import IPCAllocationHandle, IPCBufferDescriptor

from .conftest import calls_of, child, is_sim
from .ipc_children import filled, mapping_of, open_files, read


def test_what_a_shared_resource_says(shared, stream):
    assert shared.is_ipc_enabled and not shared.is_mapped and shared.is_handle_owned
    assert isinstance(shared.uuid, uuid.UUID) and shared.uuid.version == 4
    handle = shared.allocation_handle
    assert isinstance(handle, IPCAllocationHandle)
    assert shared.allocation_handle is handle
    assert handle.uuid == shared.uuid and int(handle) == handle.handle >= 0 and not handle.is_closed
    assert not os.get_inheritable(handle.handle)
    mapped = mapping_of(shared)
    assert mapped.is_ipc_enabled and mapped.is_mapped and mapped.is_handle_owned
    assert (mapped.uuid, mapped.device_id) == (shared.uuid, 0)
    assert mapped.allocation_handle is handle
    with pytest.raises(TypeError, match="mapped"):
        mapped.allocate(16, stream=stream)


def test_imported_memory_is_the_same_memory(shared, stream):
    exported = filled(shared, 7, stream)
    descriptor = exported.ipc_descriptor
    assert isinstance(descriptor, IPCBufferDescriptor) and descriptor.size == 1000
    assert not exported.is_mapped
    mapped = mapping_of(shared)
    with Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream) as imported:
        assert imported.is_mapped and imported.size == 1000 and imported.memory_resource is mapped
        assert imported.device_id == 0 and imported.is_device_accessible and not imported.is_host_accessible
        assert read(imported, stream) == bytes([7]) * 1000
        imported.fill(8, stream=stream)
        assert read(exported, stream) == bytes([8]) * 1000
        again = Buffer.from_ipc_descriptor(mapped, imported.ipc_descriptor, stream=stream)
        assert again == imported
        again.close()
        assert read(imported, stream) == bytes([8]) * 1000
    assert not imported.is_mapped


def test_an_import_is_made_once_and_unmapped_once(shared, stream):
    exported, mapped = filled(shared, 1, stream), mapping_of(shared)
    descriptor = exported.ipc_descriptor
    with cuirass.testing.record() as calls:
        buffers = [Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream) for _ in range(5)]
        for buffer in buffers[:4]:
            buffer.close()
    assert [call.name for call in calls.calls].count("cuMemPoolImportPointer") == 1
    assert calls_of(calls, "cuMemFreeAsync", int(buffers[4].handle)) == 0
    address = int(buffers[4].handle)
    with cuirass.testing.record() as calls:
        buffers[4].close()
    assert calls_of(calls, "cuMemFreeAsync", address) == 1


def test_the_release_is_in_the_order_of_the_stream_given(device, shared, stream):
    mapped, other = mapping_of(shared), device.create_stream()
    exported = filled(shared, 1, stream)
    buffer = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream)
    buffer.set_deallocation_stream(other)
    with pytest.raises(TypeError, match="stream"):
        Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor)
    with pytest.raises(TypeError, match="stream"):
        Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=None)
    buffer.close()
    other.sync()
    other.close()


def test_pickles_of_one_process(shared, stream):
    exported, mapped = filled(shared, 4, stream), mapping_of(shared)
    with pytest.raises(RuntimeError, match=f"{shared.uuid} was not found"):
        pickle.loads(pickle.dumps(exported))
    assert mapped.register(shared.uuid) is mapped
    assert mapping_of(shared).register(shared.uuid) is mapped
    assert DeviceMemoryResource.from_registry(shared.uuid) is mapped
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        imported = pickle.loads(pickle.dumps(exported, protocol))
        assert imported.memory_resource is mapped and read(imported, stream) == bytes([4]) * 1000
    assert pickle.loads(pickle.dumps(mapped)) is mapped
    assert pickle.loads(pickle.dumps(shared)) is mapped
    with pytest.raises(RuntimeError, match="is a DeviceMemoryResource"):
        PinnedMemoryResource.from_registry(shared.uuid)
    # The registry keeps nothing alive, and what is closed is not there.
    alive = weakref.ref(mapped)
    name = shared.uuid
    del mapped, imported
    gc.collect()
    assert alive() is None
    with pytest.raises(RuntimeError, match="was not found"):
        DeviceMemoryResource.from_registry(name)
    closed = mapping_of(shared)
    closed.register(name)
    closed.close()
    with pytest.raises(RuntimeError, match="was not found"):
        DeviceMemoryResource.from_registry(name)


def test_a_mapping_made_of_a_file_descriptor(shared, stream):
    handle = shared.allocation_handle

    def work():
        mapped = DeviceMemoryResource.from_allocation_handle(0, int(handle))
        assert mapped.uuid is None and mapped.is_mapped
        assert mapped.allocation_handle.handle != handle.handle and not handle.is_closed
        with pytest.raises(RuntimeError, match="register"):
            pickle.dumps(mapped)
        assert mapped.register(shared.uuid) is mapped and mapped.uuid == shared.uuid
        with pytest.raises(ValueError, match=r"is .*, and not"):
            mapped.register(uuid.uuid4())
        with pytest.raises(TypeError, match="uuid"):
            mapped.register("x")
        exported = filled(shared, 2, stream)
        buffer = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream)
        assert read(buffer, stream)[0] == 2

    # A real driver opens files of its own the first time.
    work()
    gc.collect()
    files = open_files()
    work()
    gc.collect()
    assert open_files() == files


def test_a_closed_handle(shared, stream):
    handle = shared.allocation_handle
    files = open_files()
    handle.close()
    handle.close()
    assert open_files() == files - 1
    assert handle.is_closed and handle.handle == -1 and "closed" in repr(handle)
    with pytest.raises(ValueError, match="closed"):
        int(handle)
    with pytest.raises(RuntimeError, match="closed"):
        DeviceMemoryResource.from_allocation_handle(0, handle)
    with pytest.raises(RuntimeError, match="closed"):
        reduction.ForkingPickler.dumps(handle)
    # The resource makes another; a mapped one cannot.
    mapped = mapping_of(shared)
    assert shared.allocation_handle is not handle
    mapped.allocation_handle.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = mapped.allocation_handle
    shared.close()
    for use in (lambda: shared.allocation_handle, lambda: pickle.dumps(shared), lambda: shared.register(uuid.uuid4())):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    assert shared.uuid is None


def test_a_handle_closed_behind_our_back_is_told(shared, reports):
    handle = shared.allocation_handle
    os.close(handle.handle)
    with pytest.raises(RuntimeError, match=f"file descriptor {int(handle)} could not be closed"):
        handle.close()
    other = shared.allocation_handle
    os.close(int(other))
    del other
    shared.close()
    assert len(reports) == 1 and "could not be closed" in reports[0]


def test_what_is_not_shared_says_so(device, shared, stream):
    plain = device.memory_resource
    buffer = plain.allocate(64, stream=stream)
    for use in (
        lambda: plain.allocation_handle,
        lambda: plain.register(uuid.uuid4()),
        lambda: pickle.dumps(plain),
        lambda: reduction.ForkingPickler.dumps(plain),
        lambda: buffer.ipc_descriptor,
        lambda: pickle.dumps(buffer),
        lambda: copy.copy(buffer),
        lambda: Buffer.from_ipc_descriptor(plain, filled(shared, 1, stream).ipc_descriptor, stream=stream),
        lambda: Buffer.from_handle(0x1000, 16).ipc_descriptor,
    ):
        with pytest.raises(RuntimeError, match=r"IPC-enabled"):
            use()
    with pytest.raises(RuntimeError, match="own"):
        Buffer.from_ipc_descriptor(shared, filled(shared, 1, stream).ipc_descriptor, stream=stream)
    with pytest.raises(TypeError, match="not Device"):
        Buffer.from_ipc_descriptor(device, filled(shared, 1, stream).ipc_descriptor, stream=stream)
    with pytest.raises(TypeError, match="not bytes"):
        Buffer.from_ipc_descriptor(mapping_of(shared), b"x", stream=stream)
    with pytest.raises(TypeError, match="multiprocessing"):
        pickle.dumps(shared.allocation_handle)
    for file in (-1, 9999):
        with pytest.raises(OSError, match="Bad file descriptor"):
            DeviceMemoryResource.from_allocation_handle(0, file)
    with pytest.raises(TypeError, match="not str"):
        DeviceMemoryResource.from_allocation_handle(0, "3")
    with open(os.devnull) as file, pytest.raises(CUDAError) as caught:
        DeviceMemoryResource.from_allocation_handle(0, file.fileno())
    assert caught.value.call == "cuMemPoolImportFromShareableHandle"


def test_descriptors_that_were_damaged(shared, stream):
    exported, mapped = filled(shared, 1, stream), mapping_of(shared)
    rebuild, (whole, size) = exported.ipc_descriptor.__reduce__()
    assert rebuild(whole, size).size == size
    for damaged, said in (
        (b"", "these are 0"),
        (whole[:-1], "these are"),
        (whole + b"x", "these are"),
        (b"x" + whole[1:], "does not begin as one"),
        (whole[:60] + bytes([whole[60] ^ 4]) + whole[61:], "changed on the way"),
    ):
        with pytest.raises(ValueError, match=said):
            rebuild(damaged, size)
    with pytest.raises(ValueError, match="1000 bytes"):
        rebuild(whole, size + 1)
    other = DeviceMemoryResource(0, DeviceMemoryResourceOptions(ipc_enabled=True))
    with pytest.raises(ValueError, match=f"is of memory of {shared.uuid}, and this memory resource is {other.uuid}"):
        Buffer.from_ipc_descriptor(mapping_of(other), rebuild(whole, size), stream=stream)
    assert Buffer.from_ipc_descriptor(mapped, rebuild(whole, size), stream=stream).size == size
    for cls in (IPCBufferDescriptor, IPCEventDescriptor, IPCAllocationHandle):
        with pytest.raises(RuntimeError, match=cls.__name__):
            cls()


@pytest.mark.parametrize(
    "call", ["cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer",
             "cuMemPoolExportPointer"]
)  # fmt: skip
def test_a_step_that_fails_leaves_nothing(call, shared, stream):
    exported, name = filled(shared, 6, stream), shared.uuid

    def work():
        mapped = mapping_of(shared)
        mapped.register(name)
        pickle.loads(pickle.dumps(exported)).close()
        shared.allocation_handle.close()

    work()
    stream.sync()
    gc.collect()
    files = open_files()
    with cuirass.testing.fail(call, status="CUDA_ERROR_UNKNOWN"):
        with pytest.raises(CUDAError) as caught:
            work()
        assert caught.value.call == call
        if call.startswith("cuMemPoolImportPointer"):
            assert f"exported by process {os.getpid()}" in "".join(caught.value.__notes__)
    del caught
    gc.collect()
    shared.allocation_handle.close()
    assert open_files() == files
    work()


def test_no_file_descriptor_is_left(shared):
    handle = shared.allocation_handle
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    held = [os.dup(0)]
    while held[-1] < highest:
        held.append(os.dup(0))
    limits.setrlimit(limits.RLIMIT_NOFILE, (held[-1] + 1, hard))
    try:
        with pytest.raises(RuntimeError, match="could not be duplicated: Too many open files"):
            DeviceMemoryResource.from_allocation_handle(0, int(handle))
    finally:
        limits.setrlimit(limits.RLIMIT_NOFILE, (soft, hard))
        for file in held:
            os.close(file)
    assert DeviceMemoryResource.from_allocation_handle(0, int(handle)).is_mapped


def test_2000_cycles_leave_nothing(device, stream, census):
    def cycle(shared, mapped):
        exported = shared.allocate(64, stream=stream)
        Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream).close()
        exported.close()
        stream.sync()

    def pools(count):
        for _ in range(count):
            shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
            mapped = mapping_of(shared)
            for _ in range(20):
                cycle(shared, mapped)
            mapped.close()
            shared.close()

    pools(1)
    files = open_files()
    pools(100)
    assert open_files() == files


def test_pinned_memory(device, stream, census):
    shared = PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))
    assert shared.is_ipc_enabled and shared.numa_id >= 0
    mapped = PinnedMemoryResource.from_allocation_handle(shared.allocation_handle)
    assert mapped.is_mapped and mapped.uuid == shared.uuid and mapped.device_id == -1
    assert mapped.register(mapped.uuid) is mapped
    exported = shared.allocate(100, stream=stream)
    stream.sync()
    memoryview(exported)[:] = bytes(range(100))
    imported = pickle.loads(pickle.dumps(exported))
    assert imported.is_mapped and imported.is_host_accessible and imported.memory_resource is mapped
    assert bytes(memoryview(imported)) == bytes(range(100))
    with pytest.raises(TypeError, match="mapped"):
        mapped.allocate(16, stream=stream)
    with pytest.raises(TypeError, match="close the buffers"):
        mapped.deallocate(imported.handle, 100, stream=stream)
    assert bytes(memoryview(imported)) == bytes(range(100))
    imported.close(stream)


def test_descriptors_of_what_is_closed(device, shared, stream):
    mapped, files = mapping_of(shared), open_files()
    exported = filled(shared, 1, stream)
    descriptor = exported.ipc_descriptor
    exported.close(stream)
    stream.sync()
    with pytest.raises(RuntimeError, match="buffer is closed"):
        _ = exported.ipc_descriptor
    # A real driver is not asked for what is gone: nobody promises that it survives that.
    if is_sim():
        for _ in range(2):
            with pytest.raises(CUDAError) as caught:
                Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream)
            assert caught.value.call == "cuMemPoolImportPointer"
            said = f"exported by process {os.getpid()}, which must live and not have freed it yet"
            assert said in caught.value.__notes__[0]
            # Nor is it taken for other memory that is at the same place by now.
            exported = filled(shared, 2, stream)
    descriptor = exported.ipc_descriptor if is_sim() else filled(shared, 2, stream).ipc_descriptor
    gone = device.create_stream()
    gone.close()
    with pytest.raises(RuntimeError, match="stream is closed"):
        Buffer.from_ipc_descriptor(mapped, descriptor, stream=gone)
    mapped.close()
    with pytest.raises(RuntimeError, match="memory resource is closed"):
        Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream)
    event = stream.record(options=EventOptions(ipc_enabled=True))
    event.close()
    for use in (lambda: event.ipc_descriptor, lambda: pickle.dumps(event)):
        with pytest.raises(RuntimeError, match="event is closed"):
            use()
    assert open_files() <= files
    exported.close()
    stream.sync()


def test_memory_taken_for_what_it_is_not(device, shared, stream, census):
    """A file descriptor does not say what it is of: that comes out when memory is imported, before a use of it."""
    options = PinnedMemoryResourceOptions(ipc_enabled=True)
    pinned = PinnedMemoryResource(options)
    of_device, of_host = filled(shared, 5, stream), pinned.allocate(64, stream=stream)
    stream.sync()
    wrong = [
        (
            of_device,
            PinnedMemoryResource.from_allocation_handle(shared.allocation_handle),
            "of device 0, .* of the host",
        ),
        (
            of_host,
            DeviceMemoryResource.from_allocation_handle(0, pinned.allocation_handle),
            "of the host, .* of device 0",
        ),
    ]
    for buffer, mapped, said in wrong:
        with pytest.raises(ValueError, match=said) as refused:
            Buffer.from_ipc_descriptor(mapped, buffer.ipc_descriptor, stream=stream)
        assert not hasattr(refused.value, "__notes__")
        with cuirass.testing.fail("cuPointerGetAttributes"), pytest.raises(CUDAError) as caught:
            Buffer.from_ipc_descriptor(mapped, buffer.ipc_descriptor, stream=stream)
        assert caught.value.call == "cuPointerGetAttributes"
        mapped.close()
    with Buffer.from_ipc_descriptor(mapping_of(shared), of_device.ipc_descriptor, stream=stream) as imported:
        assert read(imported, stream) == bytes([5]) * 1000
    of_device.close()
    of_host.close()
    stream.sync()


def test_memory_taken_for_another_devices(device, stream):
    if len(cuirass.Device.get_all_devices()) < 2:
        pytest.skip("needs two devices")
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    buffer = filled(pool, 5, stream)
    other = DeviceMemoryResource.from_allocation_handle(1, pool.allocation_handle)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"of device 0, .* of device 1"):
            Buffer.from_ipc_descriptor(other, buffer.ipc_descriptor, stream=stream)
    other.close()
    assert read(buffer, stream) == bytes([5]) * 1000


def test_events_of_one_process(device, stream, census):
    with pytest.raises(ValueError, match="timing_enabled"):
        device.create_event(EventOptions(ipc_enabled=True, timing_enabled=True))
    with pytest.raises(ValueError, match="timing_enabled"):
        stream.record(options=EventOptions(ipc_enabled=True, timing_enabled=True))
    plain = stream.record()
    assert not plain.is_ipc_enabled
    for use in (lambda: plain.ipc_descriptor, lambda: pickle.dumps(plain), lambda: copy.copy(plain)):
        with pytest.raises(RuntimeError, match="ipc_enabled=True"):
            use()
    with pytest.raises(TypeError, match="not int"):
        Event.from_ipc_descriptor(3)
    with pytest.raises(ValueError, match="these are 6"):
        IPCEventDescriptor._init(b"x" * 6, False)


def test_bytes_that_only_the_driver_can_judge():
    # In a process of their own: nobody promises that a driver survives them.
    result = child(
        """
from cuirass import *
from cuirass._event import IPCEventDescriptor
from cuirass._memory._ipc import IPCBufferDescriptor
device = Device(0)
device.set_current()
stream = device.create_stream()
shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
mapped = DeviceMemoryResource.from_allocation_handle(device, shared.allocation_handle)
for use in (
    lambda: Buffer.from_ipc_descriptor(mapped, IPCBufferDescriptor._init(b"\\xee" * 64, 64), stream=stream),
    lambda: Event.from_ipc_descriptor(IPCEventDescriptor._init(b"\\xee" * 64, False)),
):
    try:
        use()
    except CUDAError as error:
        print(error.call)
"""
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["cuMemPoolImportPointer", "cuIpcOpenEventHandle"]


def test_the_own_event(device, stream, census):
    event = stream.record(options=EventOptions(ipc_enabled=True, blocking_sync=True))
    assert event.is_ipc_enabled and not event.is_timing_enabled
    descriptor = event.ipc_descriptor
    assert descriptor == event.ipc_descriptor == pickle.loads(pickle.dumps(descriptor))
    assert descriptor != device.create_event(EventOptions(ipc_enabled=True)).ipc_descriptor
    with pytest.raises(TypeError):
        hash(descriptor)
    try:
        opened = Event.from_ipc_descriptor(descriptor)
    except CUDAError as error:
        # What the real driver does.
        assert error.call == "cuIpcOpenEventHandle"
        assert "the event is this process's own" in "".join(error.__notes__)
    else:
        opened.sync()
        assert opened.is_done and opened.is_ipc_enabled
    event.sync()


def test_a_graph_keeps_imported_memory(shared, stream):
    exported, mapped = filled(shared, 1, stream), mapping_of(shared)
    imported = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream)
    builder = stream.create_graph_builder().begin_building()
    imported.fill(0x44, stream=builder)
    graph = builder.end_building().complete()
    imported.close()
    with cuirass.testing.record() as calls:
        graph.launch(stream)
        stream.sync()
    assert "cuMemFreeAsync" not in [call.name for call in calls.calls]
    assert read(exported, stream) == b"\x44" * 1000
    graph.close()
    builder.close()
    stream.sync()
    cuirass.drain()


def test_a_forked_child_is_told(shared, stream):
    exported, mapped = filled(shared, 1, stream), mapping_of(shared)
    imported = Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream)
    descriptor = exported.ipc_descriptor
    here, there = os.pipe()
    with warnings.catch_warnings():
        # That there are threads is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        said = "nothing"
        try:
            Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream)
        except CUDAError as error:
            said = str(error)
        try:
            # What the parent holds is not given back.
            imported.close()
        except BaseException as error:
            said += repr(error)
        os.write(there, said.encode())
        os._exit(0)
    os.close(there)
    said = os.read(here, 4096).decode()
    os.close(here)
    assert os.waitpid(process, 0)[1] == 0
    assert "forked after CUDA was initialised" in said and "RuntimeError" not in said
    assert read(imported, stream) == b"\x01" * 1000


def test_an_error_names_the_file_descriptor_that_was_given(device):
    with open(os.devnull) as file:
        number = file.fileno()
        for handle in (number, IPCAllocationHandle._init(number, None)):
            with pytest.raises(CUDAError) as caught:
                DeviceMemoryResource.from_allocation_handle(device, handle)
            copied = re.search(r"file descriptor (\d+)\)", str(caught.value))[1]
            assert caught.value.__notes__ == [f"file descriptor {copied} is a copy of {number}, which was given"]


def test_an_import_of_the_resource_ends_while_memory_of_another_is_imported(shared, stream, reports):
    """The driver has them once, and destroys no import while there is imported memory."""
    exported, first = filled(shared, 4, stream), mapping_of(shared)
    imported = Buffer.from_ipc_descriptor(first, exported.ipc_descriptor, stream=stream)
    second = DeviceMemoryResource.from_allocation_handle(0, int(shared.allocation_handle))
    pool = int(first.handle)
    assert int(second.handle) == pool
    second.close()
    del second
    first.close()
    assert read(imported, stream) == bytes([4]) * 1000
    with cuirass.testing.record() as recording:
        imported.close()
        del imported
        gc.collect()
        # The pool is kept until its memory is unmapped on the device, too.
        stream.sync()
        assert cuirass.drain() == 0
    assert calls_of(recording, "cuMemPoolDestroy", pool) == 2
    assert reports == []
