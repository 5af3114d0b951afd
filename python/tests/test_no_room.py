"""Arguments that are too large to be copied: an exception that Python can go on after, and never the process's end."""

import pytest

from .conftest import child, is_sim

# What is made before memory gets short, and what is then called with something large.
CASES = {
    "source": ("source = large", "Program(source, 'c++')"),
    "source as bytes": ("source = large.encode()", "Program(source, 'c++')"),
    "source as bytearray": ("source = bytearray(large.encode())", "Program(source, 'c++')"),
    "name": ("options = ProgramOptions(name=large)", "Program('', 'c++', options)"),
    "architecture": ("options = ProgramOptions(arch=large)", "Program('', 'c++', options)"),
    "define": ("options = ProgramOptions(define_macro=large)", "Program('', 'c++', options)"),
    "defines": ("options = ProgramOptions(define_macro=['A'] * (1 << 22))", "Program('', 'c++', options)"),
    "kind of source": ("", "Program('', large)"),
    "kind of code": ("program = Program('', 'c++')", "program.compile(large)"),
    "name expression": ("program = Program('', 'c++')", "program.compile('ptx', name_expressions=(large,))"),
    "name expressions": (
        "program, names = Program('', 'c++'), ['A'] * (1 << 22)",
        "program.compile('ptx', name_expressions=names)",
    ),
    "object code": ("code = large.encode()", "ObjectCode.from_cubin(code)"),
    "object code that is loaded": (
        "code = ObjectCode.from_ptx(large.encode())",
        "code.get_kernel('nothing')",
    ),
    "object code's bytes": ("code = ObjectCode.from_ptx(large.encode())", "code.code"),
    "object code's pickle": ("code = ObjectCode.from_ptx(large.encode())", "pickle.dumps(code)"),
    "path of object code": ("", "ObjectCode.from_cubin(large)"),
    "name of object code": ("", "ObjectCode.from_cubin('path', name=large)"),
    "kernel's name": ("code", "code.get_kernel(large)"),
    "kernel's name as bytes": ("name = large.encode()", "code.get_kernel(name)"),
    "structure": (
        "argument = (ctypes.c_byte * SIZE)()",
        "cuirass.launch(stream, LaunchConfig(grid=1, block=1), kernel, argument)",
    ),
    "arguments": (
        "arguments = (1,) * (1 << 24)",
        "cuirass.launch(stream, LaunchConfig(grid=1, block=1), kernel, *arguments)",
    ),
    "data of a callback": (
        "data = large.encode(); function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None); "
        "builder = device.create_graph_builder().begin_building()",
        "builder.callback(function, user_data=data)",
    ),
    "branches": ("builder = device.create_graph_builder().begin_building()", "builder.split(1 << 60)"),
    "copies": ("buffers = [buffer] * (1 << 23)", "cuirass.utils.copy_batch(stream, buffers, buffers)"),
    "prefetches": ("buffers = [buffer] * (1 << 23)", "cuirass.utils.prefetch_batch(stream, buffers, device)"),
    "pattern": ("pattern = large.encode()", "buffer.fill(pattern, stream=stream)"),
    "shape": ("shape = (1,) * (1 << 24)", "_StridedLayout(shape=shape, strides=None, itemsize=4)"),
    "strides": ("shape = (1,) * (1 << 24)", "_StridedLayout(shape=(1,), strides=shape, itemsize=4)"),
    "index": ("layout, index = _StridedLayout((1,), None, 4), (0,) * (1 << 24)", "layout[index]"),
    "shape of an array": (
        "array = types.SimpleNamespace(__array_interface__=dict(shape=(1,) * (1 << 24), typestr='<i4', version=3,"
        " data=(4096, False)))",
        "StridedMemoryView.from_array_interface(array)",
    ),
    "descriptor": ("data = large.encode()", "IPCBufferDescriptor._init(data, 1)"),
    "type of a view": (
        "import numpy; numpy.zeros(1)",
        "StridedMemoryView.from_buffer(buffer, _StridedLayout((1,), None, 4), dtype=large)",
    ),
}

CHILD = """
import ctypes, pickle, resource, sys, types
import cuirass
from cuirass import LaunchConfig, ObjectCode, Program, ProgramOptions
from cuirass.utils import StridedMemoryView
from cuirass._cuirass import IPCBufferDescriptor, _StridedLayout

SIZE = 1 << 28
before, call = sys.argv[1:]
device = cuirass.Device(0)
device.set_current()
stream = device.create_stream()
buffer = device.allocate(64, stream=stream)
buffer.fill(1, stream=stream)
code = Program('extern "C" __global__ void nothing() {}', "c++").compile("ptx")
kernel = code.get_kernel("nothing")
cuirass.launch(stream, LaunchConfig(grid=1, block=1), kernel)
stream.sync()
large = "x" * SIZE
exec(before)
with open("/proc/self/statm") as status:
    used = int(status.read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), hard))
try:
    eval(call)
    said = "nothing"
except Exception as error:
    said = f"{type(error).__name__}: {str(error)[:200]}"
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
# Everything works as before.
buffer.fill(2, stream=stream)
cuirass.launch(stream, LaunchConfig(grid=1, block=1), kernel)
stream.sync()
print(said)
"""

ANSWERS = {
    "kind of source": "RuntimeError: code_type must be",
    "kind of code": "ValueError: ",
    "branches": "MemoryError: there is no memory for the branches",
    "descriptor": "ValueError: this is not an IPC buffer descriptor",
    "pattern": "ValueError: a pattern has 1, 2 or 4 bytes",
    "shape": "ValueError: 16777216 dimensions are too many",
    "strides": "ValueError: 16777216 dimensions are too many",
    "index": "ValueError: 16777216 dimensions are too many",
    "shape of an array": "ValueError: 16777216 dimensions are too many",
}


# A real driver maps much more than it is used for.
@pytest.mark.skipif(not is_sim(), reason="the addresses of the process are limited")
@pytest.mark.parametrize("case", CASES)
def test_what_is_too_large_is_an_exception(case):
    result = child(CHILD, *CASES[case])
    assert result.returncode == 0, (result.returncode, result.stderr[-500:])
    assert result.stderr == ""
    assert result.stdout.startswith(ANSWERS.get(case, "MemoryError")), result.stdout
