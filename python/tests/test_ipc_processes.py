"""Memory and events between processes that are several."""

import multiprocessing
import pickle
from multiprocessing import reduction

import pytest

import cuirass
from cuirass import (
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Event,
    EventOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)

from . import ipc_children as children
from .conftest import child, is_sim, needs_sim
from .ipc_children import filled, open_files, read

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


@needs_sim
def test_the_exporter_dies_before_anybody_has_imported(device, stream, census):
    """What it sent says whose it was. (What a real driver makes of it is its own affair.)"""
    with Child("spawn", children.export_by_parts) as child:
        handle, descriptor, event = child.receive()
        mapped = DeviceMemoryResource.from_allocation_handle(device, handle)
        child.conn.send("go")
        child.process.join(PATIENCE)
        exporter = child.process.pid
    files = open_files()
    # The memory is there as long as its pool is; the event was the process's.
    with Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream) as buffer:
        assert read(buffer, stream) == b"\x5b" * 4096
    with pytest.raises(cuirass.CUDAError, match="cuIpcOpenEventHandle") as caught:
        Event.from_ipc_descriptor(event)
    assert exporter and "INVALID_HANDLE" in str(caught.value)
    stream.sync()
    assert open_files() <= files


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
    assert "takes no time" in refused


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
        # What an earlier test left to the collector may have gone meanwhile.
        assert open_files() <= files


def test_a_file_descriptor_is_passed_on_once(shared, stream, capfd):
    buffer = filled(shared, 0x11, stream)
    with Child("spawn", children.unpickle) as other:
        sent = bytes(reduction.ForkingPickler.dumps(shared.allocation_handle))
        other.conn.send_bytes(sent)
        other.conn.send_bytes(sent)
        (said,) = other.answer()
    assert said.startswith(f"RuntimeError: the file descriptor of memory resource {shared.uuid} was not passed on")
    # A process that is no relative.
    sent = bytes(reduction.ForkingPickler.dumps(buffer))
    result = child("import pickle, sys; pickle.loads(bytes.fromhex(sys.argv[1]))", sent.hex())
    assert result.returncode == 1
    assert f"RuntimeError: the file descriptor of memory resource {shared.uuid} was not passed on" in result.stderr
    # Nor one whose sender is gone.
    with Child("spawn", children.export_bytes) as other:
        sent = other.receive()
        other.answer()
    with pytest.raises(RuntimeError, match="was not passed on"):
        pickle.loads(sent)
    # What multiprocessing says of the first two itself.
    capfd.readouterr()


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
