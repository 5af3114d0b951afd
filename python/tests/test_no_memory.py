"""The interpreter has no memory for one of its objects."""

import pytest

from .conftest import child, needs_sim

NO_MEMORY = """
import sys
import _testcapi
import cuirass
from cuirass import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
stream, event = device.create_stream(), device.create_event()
pool = device.memory_resource
SOURCE = 'extern "C" __global__ void k() {}'
kernel = Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("ptx").get_kernel("k")
memory = pool.allocate(64, stream=stream)
config = LaunchConfig(grid=1, block=1)
calls = {
    "create_stream": lambda: device.create_stream(options={"priority": 0}),
    "allocate": lambda: pool.allocate("x", stream=stream),
    "launch": lambda: launch(stream, config, kernel, "x"),
    "fill": lambda: memory.fill("x", stream=stream),
}
call = calls[sys.argv[1]]
seen = set()
fail_from, fail_no_more = _testcapi.set_nomemory, _testcapi.remove_mem_hooks
for at in range(60):
    fail_from(at, at + 1)
    try:
        try:
            call()
        finally:
            fail_no_more()
    except BaseException as error:
        seen.add(type(error))
        assert "internal" not in str(error), error
    fail_no_more()
assert MemoryError in seen and all(issubclass(kind, Exception) for kind in seen), seen
"""


@needs_sim
@pytest.mark.parametrize("call", ["create_stream", "allocate", "launch", "fill"])
def test_an_interpreter_without_memory_for_one_object(call):
    """One allocation of the interpreter's fails, whichever: the process goes on, with an error."""
    pytest.importorskip("_testcapi")
    result = child(NO_MEMORY, call)
    assert result.returncode == 0, result.stderr
