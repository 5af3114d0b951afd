"""Memory and events between processes."""

import copy
import gc
import multiprocessing
import os
import pickle
import resource as limits
import uuid
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

from . import ipc_children as children
from .conftest import child, is_sim
from .ipc_children import open_files, read

PATIENCE = 90

methods = pytest.mark.parametrize("method", ["spawn", "forkserver"])


class Child:
    """A process that runs one of ``ipc_children``'s functions; it never outlives the test, nor hangs it."""

    def __init__(self, method, work, *arguments):
        context = multiprocessing.get_context(method)
        self.conn, there = context.Pipe()
        self.process = context.Process(target=children.run, args=(there, work, *arguments), daemon=False)
        self.process.start()
        there.close()

    def __enter__(self):
        return self

    def receive(self):
        assert self.conn.poll(PATIENCE), "the process does not answer"
        return self.conn.recv()

    def answer(self):
        kind, answer = self.receive()
        assert kind == "returned", answer
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0
        return answer

    def __exit__(self, kind, error, trace):
        self.process.join(5 if kind is not None else PATIENCE)
        hangs = self.process.is_alive()
        if hangs:
            self.process.kill()
            self.process.join()
        self.process.close()
        self.conn.close()
        assert kind is not None or not hangs, "the process does not end"


@pytest.fixture
def shared(device, census):
    shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    yield shared
    shared.close()


def filled(resource, value, stream, size=1000):
    buffer = resource.allocate(size, stream=stream)
    buffer.fill(value, stream=stream)
    stream.sync()
    return buffer


def mapping_of(resource):
    return DeviceMemoryResource.from_allocation_handle(resource.device_id, resource.allocation_handle)


# One process. It may import what it has itself exported.


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
    names = [call.name for call in calls.calls]
    assert names.count("cuMemPoolImportPointer") == 1 and "cuMemFreeAsync" not in names
    with cuirass.testing.record() as calls:
        buffers[4].close()
    assert [call.name for call in calls.calls].count("cuMemFreeAsync") == 1


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
    files = open_files()
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
    del buffer, mapped
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
    mapped = mapping_of(shared)
    rebuild, (whole, size) = filled(shared, 1, stream).ipc_descriptor.__reduce__()
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
    # The driver's own bytes, which only it can judge.
    with pytest.raises(CUDAError) as caught:
        Buffer.from_ipc_descriptor(mapped, IPCBufferDescriptor._init(b"\xee" * 64, 64), stream=stream)
    assert caught.value.call == "cuMemPoolImportPointer"
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
    with pytest.raises(CUDAError) as caught:
        Event.from_ipc_descriptor(IPCEventDescriptor._init(b"\xee" * 64, False))
    assert caught.value.call == "cuIpcOpenEventHandle"


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


# Several processes.


@methods
def test_a_buffer_is_an_argument_of_a_process(method, shared, stream):
    buffer = filled(shared, 0x11, stream, 5000)
    with Child(method, children.change, buffer, 0x99) as child:
        seen, mapped, size, described = child.answer()
    assert seen == b"\x11" * 5000 and mapped and size == 5000
    assert described == ("DeviceMemoryResource", True, True, shared.uuid, 0)
    assert read(buffer, stream) == b"\x99" * 5000


@methods
def test_pinned_buffers_go_to_a_process(method, device, stream, census):
    shared = PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))
    buffer = shared.allocate(512, stream=stream)
    stream.sync()
    memoryview(buffer)[:] = b"\x12" * 512
    with Child(method, children.change, buffer, 0x34) as child:
        seen, mapped, _, described = child.answer()
    assert seen == b"\x12" * 512 and mapped and described[0] == "PinnedMemoryResource" and described[3] == shared.uuid
    assert bytes(memoryview(buffer)) == b"\x34" * 512


@methods
def test_many_buffers_of_a_pool_have_one_resource_there(method, shared, stream):
    buffers = [filled(shared, value, stream) for value in range(12)]
    with Child(method, children.take_many, len(buffers)) as child:
        for buffer in buffers:
            child.conn.send(buffer)
        contents, resources, files = child.answer()
    assert contents == list(range(12))
    assert (resources, files) == (1, 0)


@methods
def test_plain_pickles_after_the_resource(method, shared, stream):
    buffers = [filled(shared, value, stream) for value in (5, 6, 7)]
    with Child(method, children.take_pickles, shared) as child:
        for each in (*buffers, shared):
            child.conn.send_bytes(pickle.dumps(each))
        assert child.answer() == ([5, 6, 7], True, True, True)


@methods
def test_the_wrong_process(method, shared, stream):
    buffer = filled(shared, 1, stream)
    with Child(method, children.refuse, pickle.dumps(buffer), buffer.ipc_descriptor) as child:
        missing, own, other = child.answer()
    assert f"Memory resource {shared.uuid} was not found" in missing
    assert own.startswith("RuntimeError: this memory resource is this process's own")
    assert own != other and other.startswith(f"ValueError: the descriptor is of memory of {shared.uuid}")


@methods
def test_handle_and_descriptor_by_hand(method, shared, stream):
    buffer = filled(shared, 0x42, stream)
    with Child(method, children.import_by_parts, shared.allocation_handle, buffer.ipc_descriptor) as child:
        seen, once, refused, closed = child.answer()
    assert seen == b"\x42" * 1000 and once and closed
    assert "mapped memory resource" in refused


def test_many_threads_import_at_once(shared, stream):
    buffers = [filled(shared, value, stream) for value in range(5)]
    with Child("spawn", children.import_in_threads, shared, len(buffers)) as child:
        for buffer in buffers:
            child.conn.send_bytes(pickle.dumps(buffer))
        assert child.answer() == ([], False)


@pytest.mark.parametrize("bye", [True, False])
def test_the_exporter_dies_first(bye, device, stream, census):
    with Child("spawn", children.export, bye) as child:
        buffer = child.receive()
        assert buffer.is_mapped and read(buffer, stream) == b"\x5a" * 4096
        child.conn.send("go")
        child.process.join(PATIENCE)
        assert child.process.exitcode == 0
    # What is mapped stays.
    assert read(buffer, stream) == b"\x5a" * 4096
    buffer.fill(1, stream=stream)
    buffer.close(stream)
    stream.sync()


@methods
def test_the_importer_dies_first(method, shared, stream):
    buffer = filled(shared, 1, stream)
    with Child(method, children.vanish, buffer) as child:
        assert child.receive() == "written"
    assert read(buffer, stream) == b"\x77" * 1000
    buffer.close()
    stream.sync()
    assert read(filled(shared, 2, stream), stream) == b"\x02" * 1000


def test_a_third_process(shared, stream):
    buffer = filled(shared, 0x21, stream)
    with Child("spawn", children.pass_on, "spawn", buffer) as child:
        kind, answer = child.answer()
    assert kind == "returned", answer
    seen, mapped, _, described = answer
    assert seen == b"\x21" * 1000 and mapped and described[3] == shared.uuid
    assert read(buffer, stream) == b"\x03" * 1000


@methods
@pytest.mark.parametrize("blocking", [False, True])
def test_events_order_two_processes(method, blocking, shared, stream):
    buffer = filled(shared, 0x10, stream)
    event = stream.record(options=EventOptions(ipc_enabled=True, blocking_sync=blocking))
    with Child(method, children.wait_for, buffer, event) as child:
        assert child.receive() == "recorded"
        # The other process's record.
        stream.wait(event)
        assert read(buffer, stream) == b"\x22" * 1000
        event.sync()
        assert event.is_done
        child.conn.send("seen")
        facts, seen, refused = child.answer()
    assert facts == (True, False, blocking, 0)
    assert seen == {0x10}
    assert "take the time" in refused


def test_cycles_between_processes_leave_nothing(shared, stream):
    count = 200
    with Child("spawn", children.nothing_left, count) as child:
        files = None
        for at in range(count + 2):
            buffer = filled(shared, 0x31, stream, 64)
            child.conn.send(buffer)
            assert child.receive() == "next"
            buffer.close()
            stream.sync()
            if at == 1:
                files = open_files()
        assert child.answer() == 0
        assert open_files() == files


def test_there_and_back(shared, stream):
    buffer = filled(shared, 0x51, stream)
    with Child("spawn", children.echo) as child:
        child.conn.send(buffer)
        back = child.receive()
        # It is this process's own memory, imported: another address for the same bytes.
        assert back.is_mapped and back.memory_resource.is_mapped and back.memory_resource.uuid == shared.uuid
        assert read(back, stream) == b"\x51" * 1000
        child.conn.send(buffer)
        again = child.receive()
        assert again == back and again.memory_resource is back.memory_resource
        again.fill(0x52, stream=stream)
        assert read(buffer, stream) == b"\x52" * 1000
        back.close(stream)
        again.close(stream)
        stream.sync()
        child.conn.send(None)
        child.answer()


@methods
def test_queues(method, shared, stream):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    buffers = [filled(shared, value, stream) for value in range(6)]
    with Child(method, children.take_from_queue, queue, len(buffers)) as child:
        for buffer in buffers:
            queue.put(buffer)
        assert child.answer() == (list(range(6)), 1)
    queue.close()
    queue.join_thread()


@methods
def test_a_pool_of_processes(method, shared, stream):
    from concurrent.futures import ProcessPoolExecutor

    buffers = [filled(shared, value, stream) for value in range(8)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(children.first_byte, buffers, timeout=PATIENCE)) == list(range(8))


class Mine(DeviceMemoryResource):
    """A user's subclass, which other processes need not know."""


def test_a_subclass_arrives_as_its_base(device, stream, census):
    mine = Mine(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    buffer = filled(mine, 0x61, stream)
    with Child("spawn", children.change, buffer, 0x62) as child:
        seen, _, _, described = child.answer()
    assert seen == b"\x61" * 1000 and described[0] == "DeviceMemoryResource" and described[3] == mine.uuid
    assert read(buffer, stream) == b"\x62" * 1000


def test_another_device_by_its_uuid(monkeypatch):
    devices = cuirass.Device.get_all_devices()
    if len(devices) < 2:
        pytest.skip("needs two devices")
    device = devices[1]
    with device:
        stream = device.create_stream()
        shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
        buffer = filled(shared, 0x71, stream)
        event = stream.record(options=EventOptions(ipc_enabled=True))
        with Child("spawn", children.on_its_device, buffer, event) as child:
            assert child.answer() == (1, 1, 0x71)
        # A process that does not see the device.
        monkeypatch.setenv(*(("CUIRASS_SIM", "devices=1,quiet=1") if is_sim() else ("CUDA_VISIBLE_DEVICES", "0")))
        with Child("spawn", children.unpickle) as child:
            for sent in (reduction.ForkingPickler.dumps(buffer), pickle.dumps(event)):
                child.conn.send_bytes(sent)
            blind, deaf = child.answer()
        assert blind == f"RuntimeError: the memory resource is on device {device.uuid}, which this process does not see"
        assert deaf == f"ValueError: the event is on device {device.uuid}, which this process does not see"
        buffer.close()
        stream.sync()


def test_a_process_that_ends_with_all_of_it_alive(shared, stream):
    buffer = filled(shared, 1, stream)
    with Child("spawn", children.keep_all, buffer) as other:
        other.answer()
    result = child(
        """
import sys
import cuirass
from cuirass import *
device = Device(0)
device.set_current()
stream = device.create_stream()
shared = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
mapped = DeviceMemoryResource.from_allocation_handle(device, shared.allocation_handle)
mapped.register(mapped.uuid)
buffer = shared.allocate(64, stream=stream)
imported = [Buffer.from_ipc_descriptor(mapped, buffer.ipc_descriptor, stream=stream) for _ in range(3)]
event = stream.record(options=EventOptions(ipc_enabled=True))
descriptor = event.ipc_descriptor
cycle = [imported]
cycle.append(cycle)
"""
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


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
