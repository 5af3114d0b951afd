"""Views, programs, launches, graphs and failures: how ``leaks.py`` makes and releases them."""

import collections
import ctypes
import pickle

import numpy as np

from cuirass import (
    PER_THREAD_DEFAULT_STREAM,
    Buffer,
    LaunchConfig,
    ObjectCode,
    Program,
    ProgramOptions,
    Stream,
    VirtualMemoryResource,
    launch,
    testing,
)
from cuirass._layout import _StridedLayout
from cuirass.graph import GraphBuilder
from cuirass.utils import StridedMemoryView, args_viewable_as_strided_memory

from .conftest import driver_version
from .leak_kinds import NOWHERE, ONE, Foreign, each_closed, fails, in_thread, kind
from .producers import CPU, Interface, Producer, delete, take

# Views


@kind("DLPack capsule, unused")
def unused_capsules(at):
    def make():
        buffer = at.device.allocate(64, stream=at.stream)
        return buffer.__dlpack__(stream=-1, max_version=(1, 0)), buffer.__dlpack__(stream=-1)

    return make


@kind("DLPack capsule, taken")
def taken_capsules(at):
    def make():
        buffer = at.device.allocate(64, stream=at.stream)
        for version in ((1, 0), None):
            delete(take(buffer.__dlpack__(stream=-1, max_version=version)))
        return buffer

    return make, Buffer.close


@kind("array of NumPy by DLPack")
def arrays(at):
    return lambda: np.from_dlpack(at.host)


@kind("view by DLPack")
def dlpack_views(at):
    array = np.arange(64, dtype=np.float32).reshape(8, 8)

    def make():
        view = StridedMemoryView.from_dlpack(array, -1)
        view.shape, view.strides, view.dtype  # noqa: B018
        return view, view.__dlpack__()

    return make


@kind("view of a producer of DLPack")
def produced_views(at):
    memory = (ctypes.c_char * 256)()
    # Its deleters are made by ctypes: they must outlive the views, which the collector would not see to.
    producer = Producer(ctypes.addressof(memory), (4, 4), device=(CPU, 0))
    producer.kept, producer.asked = collections.deque(maxlen=50), collections.deque(maxlen=1)

    def make():
        view = StridedMemoryView.from_dlpack(producer, -1)
        fails(lambda: StridedMemoryView.from_dlpack(Producer(0, (4,), raises=KeyError("mine")), -1), KeyError)
        return view

    return make


@kind("view by the CUDA array interface")
def cuda_array_views(at):
    address = at.buffer.handle

    def make():
        entries = {"shape": (4, 4), "typestr": "<f4", "data": (address, False), "version": 3, "strides": (16, 4)}
        entries["stream"] = at.second.__cuda_stream__()[1]
        return StridedMemoryView.from_cuda_array_interface(
            Interface("__cuda_array_interface__", **entries), at.stream.__cuda_stream__()[1]
        )

    return make


@kind("view by the array interface")
def array_views(at):
    array = np.arange(64, dtype=np.int16)[::2]
    return lambda: (StridedMemoryView.from_array_interface(array), StridedMemoryView.from_any_interface(array, -1))


@kind("view of a buffer")
def buffer_views(at):
    def make():
        view = StridedMemoryView.from_buffer(at.buffer, (8, 16), dtype=np.float32)
        return view, view.view(view._layout.permuted((1, 0))), view.view(dtype=np.int32)

    return make


@kind("view given to a function")
def viewable(at):
    @args_viewable_as_strided_memory((0,))
    def use(array):
        return array.view(-1)

    array = np.arange(16)
    return lambda: use(array)


@kind("views copied")
def copied_views(at):
    array = np.zeros((8, 16), np.float32)

    def make():
        device = StridedMemoryView.from_buffer(at.buffer, (8, 16), dtype=np.float32)
        host = StridedMemoryView.from_any_interface(array, -1)
        device.copy_from(host, at.stream)
        device.copy_to(host, at.stream)
        transposed = device.view(device._layout.permuted((1, 0)))
        other = StridedMemoryView.from_any_interface(np.zeros((16, 8), np.float32), -1)
        other.copy_from(transposed, at.stream)
        return other

    return make


@kind("layout")
def layouts(at):
    def make():
        layout = _StridedLayout.dense((4, 6), 4)
        fails(lambda: layout.reshaped((5, 5)), ValueError)
        return layout[1:, ::2], layout.reshaped((2, 12)), layout.permuted((1, 0)), layout.broadcast_to((3, 4, 6))

    return make


# Programs, code, launches


# NVRTC itself keeps 4112 bytes in every 36 compilations (13.0, called by ctypes).
@kind("program", fewer=500, theirs=230)
def programs(at):
    def make():
        program = Program("template <class T> __global__ void k(T* x) { *x = 1; }", "c++", ProgramOptions(arch="sm_90"))
        program.compile("ptx", name_expressions=("k<int>",))
        return program

    return make, Program.close


@kind("program that does not compile", fewer=500)
def failing_programs(at):
    return lambda: fails(lambda: Program("no program", "c++", ProgramOptions(arch="sm_90")).compile("ptx"))


@kind("object code and a kernel", fewer=5)
def object_codes(at):
    pickled = pickle.dumps(at.code)

    def make():
        code = pickle.loads(pickled)
        kernel = code.get_kernel("add")
        kernel.attributes.num_regs, kernel.handle  # noqa: B018
        return code, kernel

    return make


@kind("object code of PTX", fewer=10)
def ptx_codes(at):
    def make():
        code = ObjectCode.from_ptx(at.ptx)
        fails(lambda: code.get_kernel("nothing like it"))
        return code.get_kernel("nothing")

    return make


@kind("kernel")
def kernels(at):
    tells = driver_version() >= (12, 4)

    def make():
        kernel = at.code.get_kernel("add")
        if tells:
            kernel.arguments_info, kernel.num_arguments  # noqa: B018
        kernel.occupancy.max_potential_block_size(0, 128)
        return kernel, kernel.attributes[0], kernel.attributes.max_threads_per_block

    return make


@kind("launch configuration")
def configurations(at):
    def make():
        fails(lambda: LaunchConfig(grid=0, block=1), ValueError)
        return LaunchConfig(grid=(2, 2), block=(8, 4), shmem_size=16)

    return make


class Point(ctypes.Structure):
    _fields_ = [(name, ctypes.c_float) for name in "xyz"] + [("id", ctypes.c_int), ("weight", ctypes.c_double)]


RECORD = np.zeros(1, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("id", "i4"), ("weight", "f8")])


@kind("launch with each kind of argument", fewer=10)
def launches(at):
    kernels = {
        name: at.code.get_kernel(name)
        for name in ("add", "nothing", "byte", "half_", "word", "quad", "bytes16", "point")
    }
    cases = [
        ("byte", lambda: True),
        ("byte", lambda: np.int8(-2)),
        ("byte", lambda: ctypes.c_bool(True)),
        ("half_", lambda: np.float16(1.5)),
        ("word", lambda: 70000),
        ("word", lambda: np.float32(1.5)),
        ("word", lambda: ctypes.c_float(1.5)),
        ("quad", lambda: 1.5),
        ("quad", lambda: None),
        ("quad", lambda: 1 << 63),
        ("quad", lambda: np.datetime64(5, "s")),
        ("bytes16", lambda: 1.5 - 2.5j),
        ("bytes16", lambda: (ctypes.c_uint64 * 2)(1, 2)),
        ("point", lambda: Point(1.5, 2.5, 3.5, 4, 5.5)),
        ("point", lambda: RECORD[0]),
    ]

    def make():
        out = at.device.allocate(64, stream=at.stream)
        launch(at.stream, ONE, kernels["nothing"])
        for name, argument in cases:
            launch(at.stream, ONE, kernels[name], out, argument())
        launch(Foreign(at.stream), ONE, kernels["add"], int(out.handle), 1, 1)
        # However many launches wait, the simulator has room for: that is not what is measured.
        at.stream.sync()
        return out

    return make, Buffer.close


@kind("launch that is refused")
def refused_launches(at):
    add = at.code.get_kernel("add")

    def make():
        fails(lambda: launch(at.stream, ONE, add, at.buffer, "1", object()), (TypeError, ValueError))
        fails(lambda: launch(at.stream, ONE, add, object(), 1, 1), (TypeError, ValueError))
        return fails(lambda: launch(at.stream, LaunchConfig(grid=1, block=4096), add, at.buffer, 1, 1))

    return make


# Graphs


@kind("graph", fewer=2)
def graphs(at):
    add = at.code.get_kernel("add")

    def make():
        mine = at.device.allocate(256, stream=at.stream)
        mine.fill(0, stream=at.stream)
        at.stream.sync()
        builder = at.capture()
        launch(builder, ONE, add, mine, 1, 1)
        mine.fill(1, stream=builder)
        graph = builder.end_building().complete()
        mine.close()
        graph.upload(at.stream)
        graph.launch(at.stream)
        graph.launch(at.second)
        return builder, graph

    return make, each_closed


@kind("graph launched on new streams")
def launched_on_streams(at):
    builder = at.capture()
    at.buffer.fill(1, stream=builder)
    graph = builder.end_building().complete()
    builder.close()

    def make():
        stream = at.device.create_stream()
        graph.launch(stream)
        graph.launch(Foreign(stream))
        stream.sync()
        return stream

    return make, Stream.close


@kind("graph launched by new threads", fewer=4)
def launched_by_threads(at):
    builder = at.capture()
    at.buffer.fill(1, stream=builder)
    graph = builder.end_building().complete()
    builder.close()

    def work():
        at.device.set_current()
        graph.launch(PER_THREAD_DEFAULT_STREAM)
        PER_THREAD_DEFAULT_STREAM.sync()

    return lambda: in_thread(work)


@kind("graph updated", fewer=2)
def updated(at):
    add = at.code.get_kernel("add")

    def capture(*amounts):
        builder = at.capture()
        for amount in amounts:
            launch(builder, ONE, add, at.buffer, 1, amount)
        return builder.end_building()

    def make():
        first, second = capture(1), capture(2)
        graph = first.complete()
        graph.update(second)
        graph.update(second.graph_definition)
        fails(lambda: graph.update(capture(1, 2)))
        return first, second, graph

    return make, each_closed


@kind("graph with branches and a child", fewer=2)
def branches(at):
    def make():
        child = at.capture()
        at.buffer.fill(1, stream=child)
        child.end_building()
        builder = at.capture()
        root, fork = builder.split(2)
        at.buffer.fill(0, stream=fork)
        GraphBuilder.join(root, fork)
        builder.embed(child)
        builder.end_building()
        return child, builder, builder.complete()

    return make, each_closed


@kind("graph with a condition", fewer=5, needs=(12, 3))
def conditions(at):
    def make():
        builder = at.capture()
        bodies = (
            *builder.if_else(builder.create_condition(default_value=1)),
            builder.while_loop(builder.create_condition(default_value=0)),
        )
        for body in bodies:
            body.begin_building()
            at.buffer.fill(1, stream=body)
            body.end_building()
        graph = builder.end_building().complete()
        graph.launch(at.stream)
        return builder, *bodies, graph

    return make, each_closed


@kind("graph's definition", fewer=2)
def definitions(at):
    def make():
        builder = at.capture()
        at.buffer.fill(1, stream=builder)
        at.buffer.fill(2, stream=builder)
        builder.end_building()
        definition = builder.graph_definition
        builder.close()
        nodes, edges = definition.nodes(), definition.edges()
        definition.instantiate().close()
        return definition, nodes, edges, [node.type for node in nodes], definition.to_dot()

    return make


@kind("callbacks of a graph", fewer=2)
def callbacks(at):
    c_kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def make():
        seen = []
        c_function = c_kind(seen.append)
        builder = at.capture()
        builder.callback(lambda: seen.append(1))
        builder.callback(c_function, user_data=bytearray(b"abc"))
        fails(lambda: builder.callback(3), TypeError)
        graph = builder.end_building().complete()
        graph.launch(at.stream)
        return builder, graph

    return make, each_closed


@kind("callback that raises", fewer=5, reports=True)
def raising_callbacks(at):
    def make():
        builder = at.capture()
        builder.callback(lambda: 1 // 0)
        graph = builder.end_building().complete()
        graph.launch(at.stream)
        at.stream.sync()
        return builder, graph

    return make, each_closed


@kind("capture given up", reports=True)
def given_up(at):
    def make():
        builder = at.capture()
        mine = at.device.create_event()
        at.buffer.fill(1, stream=builder)
        builder.stream.record(mine)
        return builder, mine

    return make, lambda things: each_closed(things[::-1])


@kind("capture that is spoilt")
def spoilt(at):
    def make():
        builder = at.capture()
        at.buffer.fill(1, stream=builder)
        fails(builder.stream.sync)
        fails(builder.end_building)
        return builder

    return make, GraphBuilder.close


# Failures


@kind("error of the driver")
def errors(at):
    def make():
        error = fails(lambda: at.device.allocate(1 << 50, stream=at.stream))
        return error, str(error), error.status, pickle.loads(pickle.dumps(error))

    return make


def unreleasable(at):
    return Buffer.from_handle(NOWHERE, 64, mr=at.pool, stream=at.stream)


@kind("error with a note", wrong=True)
def noted(at):
    def use():
        with unreleasable(at):
            raise LookupError("mine")

    def make():
        error = fails(use, LookupError)
        assert any("cuMemFreeAsync" in note for note in error.__notes__)
        return error

    return make


@kind("warning", reports=True, wrong=True)
def reported(at):
    return lambda: (unreleasable(at), unreleasable(at))


@kind("injected fault, recorded calls")
def faults(at):
    def make():
        with testing.fail("cuEventCreate", status="CUDA_ERROR_OUT_OF_MEMORY") as fault, testing.record() as calls:
            error = fails(at.device.create_event)
        assert (fault.count, len([call for call in calls.calls if call.name == "cuEventCreate"])) == (1, 1)
        return error, fault, calls

    return make


@kind("each step of a creation failing", fewer=10)
def failing_steps(at):
    steps = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"]
    virtual = VirtualMemoryResource(at.device)
    [instantiate] = [call for call in testing.known_calls() if call.startswith("cuGraphInstantiate")]

    def make():
        for step in steps:
            with testing.fail(step, status="CUDA_ERROR_OUT_OF_MEMORY"):
                fails(lambda: virtual.allocate(1, stream=at.stream))
        for step in ("cuStreamBeginCapture", "cuStreamCreateWithPriority"):
            with testing.fail(step, status="CUDA_ERROR_OUT_OF_MEMORY"):
                fails(at.capture)
        builder = at.capture()
        at.buffer.fill(1, stream=builder)
        builder.end_building()
        with testing.fail(instantiate, status="CUDA_ERROR_OUT_OF_MEMORY"):
            fails(builder.complete)
        return builder

    return make, GraphBuilder.close
