"""While a launch waits on a queue that a callback in Python keeps full, some calls of other threads wait for it
(``facts/README.md``): none of them is made with the interpreter held, which the callback needs."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="another process")

PROGRAM = """
import faulthandler, gc, sys, threading, time
import cuirass
from cuirass import EventOptions, LaunchConfig, ObjectCode, launch

faulthandler.dump_traceback_later(50, exit=True)
PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
'''
device = cuirass.Device(0)
device.set_current()
code = ObjectCode.from_ptx(PTX)
kernel = code.get_kernel("nothing")
gate = threading.Event()
stream, other = device.create_stream(), device.create_stream()
launch(other, LaunchConfig(grid=1, block=1), kernel)
other.sync()

builder = device.create_graph_builder().begin_building()
builder.callback(gate.wait)
graph = builder.end_building().complete()
builder.close()

captured = device.create_graph_builder().begin_building()
launch(captured, LaunchConfig(grid=1, block=1), kernel)

event, timed = device.create_event(), other.record(options=EventOptions(timing_enabled=True))
own = cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions())
context = device.create_context()
dropped = {
    "event": device.create_event(),
    "stream": device.create_stream(),
    "code": ObjectCode.from_ptx(PTX).get_kernel("nothing"),
    "attributes": ObjectCode.from_ptx(PTX).get_kernel("nothing").attributes,
    "occupancy": ObjectCode.from_ptx(PTX).get_kernel("nothing").occupancy,
    "pool": cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions()).attributes,
    "context": device.create_context(),
    "buffer": own.allocate(64, stream=other),
}
operations = {
    "creating an event": device.create_event,
    "closing an event": event.close,
    "recording a new event": lambda: other.record(options=EventOptions()),
    "asking an event": lambda: timed.is_done,
    "creating a stream": device.create_stream,
    "waiting": lambda: other.wait(stream),
    "setting a context": lambda: device.set_current(context),
    "device": lambda: (device.uuid, device.pci_bus_id, device.name, device.properties.warp_size),
    "attributes of a pool": lambda: repr(own.attributes),
    "loading code": lambda: ObjectCode.from_ptx(PTX).get_kernel("nothing").attributes.num_regs,
    "graph memory": lambda: cuirass.GraphMemoryResource(device).attributes.used_mem_current,
    "allocating": lambda: device.allocate(64, stream=other).close(),
    "looking at memory": lambda: repr(cuirass.Buffer.from_handle(dropped["buffer"].handle, 64).is_device_accessible),
    **{f"dropping {name}": lambda name=name: dropped.pop(name) and None for name in dropped if name != "buffer"},
    "the streams": lambda: (stream.priority, stream.is_nonblocking, stream.device, stream.context),
    "launching into a capture": lambda: launch(captured, LaunchConfig(grid=1, block=1), kernel),
    "launching another kernel into it": lambda: launch(
        captured, LaunchConfig(grid=1, block=1), ObjectCode.from_ptx(PTX).get_kernel("nothing")),
    "collecting": gc.collect,
}

graph.launch(stream)
launched = 0
def fill():
    global launched
    for _ in range(1500):
        launch(stream, LaunchConfig(grid=1, block=1), kernel)
        launched += 1
filling = threading.Thread(target=fill)
filling.start()
before = -1
while launched != before:
    before = launched
    time.sleep(0.3)
assert launched < 1500, "the queue is never full"
failed = []
def run(name, operation):
    device.set_current()
    try:
        operation()
    except BaseException as error:
        failed.append(f"{name}: {error!r}")
threads = []
for name, operation in operations.items():
    print(name, flush=True)
    threads.append(threading.Thread(target=run, args=(name, operation)))
    threads[-1].start()
    time.sleep(0.05)
print("opening the gate", flush=True)
gate.set()
for thread in [filling, *threads]:
    thread.join()
captured.close()
stream.sync()
assert launched == 1500 and not failed, failed
print("done")
"""


@pytest.mark.timeout(90)
def test_no_call_waits_with_the_interpreter_held(tmp_path):
    program = tmp_path / "full.py"
    program.write_text(PROGRAM)
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.endswith("done\n"), result.stdout + result.stderr
