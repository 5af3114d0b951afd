"""A failed destroy of each kind: reported once, with its call and its handle, where the last share is dropped."""

import gc
import inspect
import os
import pickle
import re
import subprocess
import sys

import pytest

import cuirass
from cuirass import (
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Event,
    EventOptions,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    PinnedMemoryResource,
    Program,
    VirtualMemoryResource,
    testing,
)

from .conftest import KERNELS, driver_version


def on(resource, device):
    return resource.allocate(64, stream=device.create_stream())


def shared(device):
    return DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))


def imported(device):
    own = shared(device)
    return DeviceMemoryResource.from_allocation_handle(device, own.allocation_handle), own


def imported_buffer(device):
    (mapped, own), stream = imported(device), device.create_stream()
    exported = own.allocate(64, stream=stream)
    stream.sync()
    return Buffer.from_ipc_descriptor(mapped, exported.ipc_descriptor, stream=stream), mapped, exported, own


EXPORTS_AN_EVENT = """
import pickle, sys
import cuirass
device = cuirass.Device(0)
event = device.create_event(cuirass.EventOptions(ipc_enabled=True))
sys.stdout.buffer.write(pickle.dumps(event.ipc_descriptor))
sys.stdout.buffer.close()
sys.stdin.read()
"""


class Exporter:
    """A process that has an event, as long as this object lives."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", EXPORTS_AN_EVENT], stdin=pipe, stdout=pipe)
        self.descriptor = pickle.load(self.process.stdout)

    def __del__(self):
        self.process.communicate(timeout=60)


def opened_event(device):
    exporter = Exporter()
    return Event.from_ipc_descriptor(exporter.descriptor), exporter


def newer(kind):
    """A pool that only newer drivers have; on an older one, another pool."""

    def make(device):
        resource = kind() if driver_version() >= (13, 0) else shared(device)
        return on(resource, device), resource

    return make


def library(device):
    code = Program(KERNELS, "c++").compile("ptx")
    code.get_kernel("nothing")
    return code


def graph(device):
    buffer = device.allocate(64, stream=device.default_stream)
    builder = device.create_graph_builder().begin_building()
    buffer.fill(1, stream=builder)
    return builder.end_building()


def executable(device):
    builder = graph(device)
    return builder.complete(), builder


# What it is, the call that fails, and what is dropped: an object, or the first of several, which it needs.
KINDS = {
    "stream": ("cuStreamDestroy", lambda device: device.create_stream()),
    "event": ("cuEventDestroy", lambda device: device.create_event()),
    "timed event": ("cuEventDestroy", lambda device: device.create_event(EventOptions(timing_enabled=True))),
    "event of another process": ("cuEventDestroy", opened_event),
    "memory of a device's pool": ("cuMemFreeAsync", lambda device: on(device.memory_resource, device)),
    "memory on the default stream": (
        "cuMemFreeAsync",
        lambda device: device.allocate(64, stream=device.default_stream),
    ),
    "memory of an own pool": ("cuMemFreeAsync", lambda device: on(shared(device), device)),
    "memory of a pinned pool": ("cuMemFreeAsync", newer(PinnedMemoryResource)),
    "memory of a managed pool": ("cuMemFreeAsync", newer(ManagedMemoryResource)),
    "memory of another process": ("cuMemFreeAsync", imported_buffer),
    "page-locked memory": ("cuMemFreeHost", lambda device: on(LegacyPinnedMemoryResource(), device)),
    "mapping": ("cuMemUnmap", lambda device: on(VirtualMemoryResource(device), device)),
    "reserved addresses": ("cuMemAddressFree", lambda device: on(VirtualMemoryResource(device), device)),
    "pool": ("cuMemPoolDestroy", shared),
    "pool of another process": ("cuMemPoolDestroy", imported),
    "context": ("cuCtxDestroy", lambda device: device.create_context()),
    "library": ("cuLibraryUnload", library),
    "captured graph": ("cuGraphDestroy", graph),
    "executable graph": ("cuGraphExecDestroy", executable),
    "program": ("nvrtcDestroyProgram", lambda device: Program("", "c++")),
}
# Given back where an error can be raised, which has the handle; and what Python never gives up, or does not make
# (`crates/cuirass/tests/destroys.rs` has these).
RAISED = {"cuMemRelease"}
RUST_ONLY = {"cuDevicePrimaryCtxRelease", "cuMemFree"}


def base(call):
    return re.sub(r"_v\d+$", "", call)


def handle_of(thing):
    handle = getattr(thing, "handle", None)
    return None if handle is None else int(handle)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_destroy_is_reported_with_its_handle(device, kind, reports):
    call, make = KINDS[kind]
    device.set_current()
    # Nothing of other tests is left to be destroyed here.
    gc.collect()
    cuirass.drain()
    things = make(device)
    thing, *rest = things if isinstance(things, tuple) else (things,)
    del things
    handle = handle_of(thing)
    with (
        testing.record() as recording,
        testing.fail(call, status=999 if "nvrtc" not in call else 2, done=True) as fault,
    ):
        del thing
        gc.collect()
    assert fault.count == 1
    made = [record for record in recording.calls if base(record.name) == call]
    assert len(made) == 1, "it is not called again"
    (report,) = reports
    name, _, text = report.partition("(")
    assert base(name) == call and "failed while releasing" in text
    if handle is None:
        handle = made[0].arguments[0]
    assert re.search(rf"\b{handle:#x}\b", text), (hex(handle), text)
    reports.clear()
    del rest
    gc.collect()
    assert reports == []


def test_a_file_descriptor_that_cannot_be_closed(device, reports):
    handle = shared(device).allocation_handle
    number = int(handle)
    os.close(number)
    del handle
    gc.collect()
    (report,) = reports
    assert report.startswith(f"file descriptor {number} could not be closed: ")
    assert "while releasing an allocation handle" in report


def test_every_destroy_that_is_called_is_in_the_table():
    ends = re.compile(r"Destroy|Free|Release|Unload|Unmap|Close|Unregister")
    destroys = {base(call) for call in testing.known_calls() if ends.search(call)}
    assert destroys == {call for call, _ in KINDS.values()} | RAISED | RUST_ONLY


def test_every_class_that_can_be_closed_is_in_the_table(device):
    """Of those that have a handle of the driver's: a graph's memory is the graph's."""
    classes = {value for value in vars(cuirass._cuirass).values() if inspect.isclass(value) and "close" in vars(value)}
    tested = set()
    for _, make in KINDS.values():
        things = make(device)
        thing = things[0] if isinstance(things, tuple) else things
        tested.update(type(thing).__mro__)
        del thing, things
    names = {kind.__qualname__ for kind in classes - tested}
    assert names == {"IPCAllocationHandle", "GraphMemoryResource"}
