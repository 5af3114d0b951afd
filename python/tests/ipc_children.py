"""What the processes run that ``test_ipc_processes.py`` starts, and what the tests share with them."""

import os
import pickle
import threading
import traceback
import uuid
from multiprocessing import reduction

import cuirass
from cuirass import Buffer, Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions


def run(conn, work, *arguments):
    """Runs one of the functions below, and answers with what it returns, or with what it raised."""
    try:
        answer = ("returned", work(conn, *arguments))
    except BaseException:
        answer = ("raised", traceback.format_exc())
    conn.send(answer)
    conn.close()


def fresh():
    device = Device(0)
    device.set_current()
    return device, device.create_stream()


def read(buffer, stream):
    staging = cuirass.LegacyPinnedMemoryResource().allocate(buffer.size)
    buffer.copy_to(staging, stream=stream)
    stream.sync()
    return bytes(memoryview(staging))


def filled(resource, value, stream, size=1000):
    buffer = resource.allocate(size, stream=stream)
    buffer.fill(value, stream=stream)
    stream.sync()
    return buffer


def mapping_of(resource):
    return DeviceMemoryResource.from_allocation_handle(resource.device_id, resource.allocation_handle)


def open_files():
    return len(os.listdir("/proc/self/fd"))


def shown(resource):
    """A resource, described."""
    return type(resource).__name__, resource.is_mapped, resource.is_ipc_enabled, resource.uuid, resource.device_id


def change(conn, buffer, value):
    """Reads memory and fills it anew."""
    _, stream = fresh()
    before = read(buffer, stream)
    buffer.fill(value, stream=stream)
    stream.sync()
    facts = before, buffer.is_mapped, buffer.size, shown(buffer.memory_resource)
    buffer.close(stream)
    stream.sync()
    return facts


def take_many(conn, count):
    """Receives buffers one by one, and tells what became of them and of the file descriptors."""
    _, stream = fresh()
    first = conn.recv()
    files = open_files()
    buffers = [first] + [conn.recv() for _ in range(count - 1)]
    contents = [read(buffer, stream)[0] for buffer in buffers]
    resources = {id(buffer.memory_resource) for buffer in buffers}
    grown = open_files() - files
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    return contents, len(resources), grown


def take_pickles(conn, resource):
    """Receives buffers as plain pickles: the resource has come before."""
    _, stream = fresh()
    buffers = [pickle.loads(conn.recv_bytes()) for _ in range(3)]
    same = all(buffer.memory_resource is resource for buffer in buffers)
    found = DeviceMemoryResource.from_registry(resource.uuid) is resource
    return [read(buffer, stream)[0] for buffer in buffers], same, found, pickle.loads(conn.recv_bytes()) is resource


def refuse(conn, pickled, descriptor):
    """Unpickles a buffer whose pool was never sent, and imports a descriptor with another's resource."""
    device, stream = fresh()
    said = []
    try:
        pickle.loads(pickled)
    except RuntimeError as error:
        said.append(str(error))
    own = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    other = DeviceMemoryResource.from_allocation_handle(device, own.allocation_handle)
    for resource in (own, other):
        try:
            Buffer.from_ipc_descriptor(resource, descriptor, stream=stream)
        except (RuntimeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def import_by_parts(conn, handle, descriptor):
    """Imports by hand what another process exported."""
    device, stream = fresh()
    mapped = DeviceMemoryResource.from_allocation_handle(device, handle)
    file = int(handle)
    handle.close()
    try:
        os.fstat(file)
        closed = False
    except OSError:
        closed = True
    buffer = Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream)
    again = Buffer.from_ipc_descriptor(mapped, descriptor, stream=stream)
    try:
        mapped.allocate(16, stream=stream)
        refused = None
    except TypeError as error:
        refused = str(error)
    same = buffer.handle == again.handle and mapped.register(uuid.UUID(str(mapped.uuid))) is mapped
    return read(buffer, stream), same, refused, closed


def import_in_threads(conn, resource, count):
    """Many threads unpickle the same buffers."""
    _, stream = fresh()
    pickles = [conn.recv_bytes() for _ in range(count)]
    wrong, together = [], threading.Barrier(8)

    def work():
        Device(0).set_current()
        own = Device(0).create_stream()
        together.wait(30)
        for _ in range(20):
            for at, pickled in enumerate(pickles):
                buffer = pickle.loads(pickled)
                if buffer.memory_resource is not resource or read(buffer, own)[0] != at:
                    wrong.append(at)
                buffer.close(own)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    stream.sync()
    return wrong, any(thread.is_alive() for thread in threads)


def export(conn, bye):
    """Exports memory, and goes when it is told to, without a word to the driver."""
    device, stream = fresh()
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    buffer = resource.allocate(4096, stream=stream)
    buffer.fill(0x5A, stream=stream)
    stream.sync()
    conn.send(buffer)
    assert conn.recv() == "go"
    if bye:
        os._exit(0)


def export_by_parts(conn):
    """Sends a pool's handle and the descriptors of memory and of an event, and goes when it is told to."""
    device, stream = fresh()
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    buffer = filled(resource, 0x5B, stream, 4096)
    event = stream.record(options=EventOptions(ipc_enabled=True))
    conn.send((resource.allocation_handle, buffer.ipc_descriptor, event.ipc_descriptor))
    assert conn.recv() == "go"
    os._exit(0)


def export_bytes(conn):
    """Sends what would be imported, and ends."""
    device, stream = fresh()
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    conn.send(bytes(reduction.ForkingPickler.dumps(resource.allocate(64, stream=stream))))


def vanish(conn, buffer):
    """Imports memory, writes to it, and is gone at once."""
    _, stream = fresh()
    buffer.fill(0x77, stream=stream)
    stream.sync()
    conn.send("written")
    os._exit(0)


def pass_on(conn, method, buffer):
    """Sends imported memory to a third process."""
    import multiprocessing

    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=run, args=(there, change, buffer, 3))
    process.start()
    there.close()
    assert here.poll(60), "the third process does not answer"
    answer = here.recv()
    process.join(30)
    return answer


def wait_for(conn, buffer, theirs):
    """Waits for another process's event on the device, and records one of that process's own for it."""
    _, stream = fresh()
    facts = theirs.is_ipc_enabled, theirs.is_timing_enabled, theirs.is_blocking_sync, theirs.device.device_id
    stream.wait(theirs)
    seen = read(buffer, stream)
    theirs.sync()
    assert theirs.is_done
    timed = stream.record(options=EventOptions(timing_enabled=True))
    try:
        timed - theirs
        refused = None
    except RuntimeError as error:
        refused = str(error)
    buffer.fill(0x22, stream=stream)
    stream.record(theirs)
    conn.send("recorded")
    assert conn.recv() == "seen"
    buffer.close(stream)
    stream.sync()
    return facts, set(seen), refused


def relay(conn, theirs, own):
    """Has its stream wait for one event and record the other, each time that it is told to."""
    _, stream = fresh()
    conn.send("ready")
    while conn.recv() is not None:
        stream.wait(theirs)
        stream.record(own)
        conn.send("relayed")
    stream.sync()


def nothing_left(conn, count):
    """Receives a buffer and lets it go, many times; tells how files and memory have grown."""
    _, stream = fresh()

    def once():
        buffer = conn.recv()
        assert read(buffer, stream)[0] == 0x31
        buffer.close(stream)
        stream.sync()
        conn.send("next")

    once()
    once()
    files = open_files()
    for _ in range(count):
        once()
    return open_files() - files


def echo(conn):
    """Sends back what it receives."""
    _, stream = fresh()
    while (buffer := conn.recv()) is not None:
        assert buffer.is_mapped
        conn.send(buffer)
        buffer.close(stream)
        stream.sync()


def take_from_queue(conn, queue, count):
    _, stream = fresh()
    buffers = [queue.get(timeout=60) for _ in range(count)]
    return [read(buffer, stream)[0] for buffer in buffers], len({id(buffer.memory_resource) for buffer in buffers})


def first_byte(buffer):
    _, stream = fresh()
    return read(buffer, stream)[0]


def on_its_device(conn, buffer, event):
    Device(0).set_current()
    device = Device(buffer.device_id)
    stream = device.create_stream()
    stream.wait(event)
    with device:
        return buffer.device_id, event.device.device_id, read(buffer, stream)[0]


def unpickle(conn):
    """Unpickles two things, and tells what was raised."""
    said = []
    for _ in range(2):
        try:
            pickle.loads(conn.recv_bytes())
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


KEPT = []


def keep_all(conn, buffer):
    """Ends with what it has still alive, in a cycle and in a module."""
    _, stream = fresh()
    cycle = [buffer, buffer.memory_resource, stream.record(options=EventOptions(ipc_enabled=True))]
    cycle.append(cycle)
    KEPT.append(cycle)
