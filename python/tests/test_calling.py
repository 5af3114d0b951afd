"""The functions with a calling form of their own: the common form of a call and every other give the same."""

import contextlib
import gc
import inspect
import pickle
import re
import sys
import weakref

import pytest

import cuirass
from cuirass import Buffer, CUDAError, Device, DeviceMemoryResource, LaunchConfig, Stream, launch, testing
from cuirass.graph import Graph, GraphBuilder

from .conftest import tells_parameters

ONE = LaunchConfig(grid=1, block=1)


def read(buffer, stream, pinned):
    host, view = pinned(buffer.size, "B")
    buffer.copy_to(host, stream=stream)
    stream.sync()
    return bytes(view)


ALLOCATIONS = [
    lambda resource, stream: resource.allocate(16, stream=stream),
    lambda resource, stream: resource.allocate(stream=stream, size=16),
    lambda resource, stream: resource.allocate(size=16, stream=stream),
    lambda resource, stream: DeviceMemoryResource.allocate(resource, 16, stream=stream),
    lambda resource, stream: resource.allocate(*[16], **{"".join(["str", "eam"]): stream}),
]
FILLS = [
    lambda buffer, value, stream: buffer.fill(value, stream=stream),
    lambda buffer, value, stream: buffer.fill(stream=stream, value=value),
    lambda buffer, value, stream: Buffer.fill(buffer, value, stream=stream),
    lambda buffer, value, stream: buffer.fill(bytes([value]), stream=stream),
]


@pytest.mark.parametrize("allocate", ALLOCATIONS)
def test_forms_of_memory(allocate, device, stream, pinned):
    resource = device.memory_resource
    buffer, other = allocate(resource, stream), allocate(resource, stream)
    assert buffer.size == 16 and buffer.memory_resource is resource
    for value, fill in enumerate(FILLS):
        assert fill(buffer, value + 1, stream) is None
        assert read(buffer, stream, pinned) == bytes([value + 1]) * 16
    assert buffer.copy_to(other, stream=stream) is other
    assert buffer.copy_to(dst=other, stream=stream, options=None) is other
    assert read(other, stream, pinned) == bytes([4]) * 16
    made = buffer.copy_to(stream=stream)
    assert read(made, stream, pinned) == bytes([4]) * 16
    again = buffer.copy_to(None, stream=stream)
    assert again is not other and read(again, stream, pinned) == bytes([4]) * 16
    other.fill(9, stream=stream)
    assert buffer.copy_from(other, stream=stream) is None
    assert read(buffer, stream, pinned) == bytes([9]) * 16
    buffer.close(stream)
    other.close(stream=stream)
    made.close(None)
    again.close()
    assert all(one.is_closed for one in (buffer, other, made, again))
    buffer.close()


def test_names_of_keywords_that_come_and_go(device, stream):
    """Names that are made for one call have an address that those of the next may have again."""
    buffer, names = device.memory_resource.allocate(16, stream=stream), ["stream", "strem", "stream_ptr", "grid"]
    for turn in range(400):
        name = names[turn % 4]
        keywords = {name: stream}
        with contextlib.nullcontext() if name == "stream" else pytest.raises(TypeError, match=name):
            assert buffer.fill(1, **keywords) is None


def test_new_objects_are_as_all_are(device, stream):
    """They have weak references, the collector sees them, and each has a share of its class until it is gone."""
    resource = device.memory_resource
    for make in (
        device.create_event,
        device.create_stream,
        device.create_graph_builder,
        lambda: device.create_graph_builder().begin_building().end_building().complete(),
        lambda: resource.allocate(16, stream=stream),
        lambda: LaunchConfig(grid=1, block=1),
    ):
        one, gone = make(), []
        weak = weakref.ref(one, gone.append)
        assert gc.is_tracked(one) and weak() is one
        counts = [sys.getrefcount(type(one))]
        many = [make() for _ in range(20)]
        counts.append(sys.getrefcount(type(one)))
        del many
        gc.collect()
        counts.append(sys.getrefcount(type(one)))
        assert counts == [counts[0], counts[0] + 20, counts[0]]
        del one
        assert gone == [weak]


def test_forms_of_a_stream(device, stream):
    event = device.create_event()
    assert stream.record(event) is event
    assert stream.record(event=event) is event
    assert isinstance(stream.record(), cuirass.Event)
    assert isinstance(stream.record(None), cuirass.Event)
    assert stream.wait(event) is None
    assert stream.wait(event_or_stream=event) is None
    assert stream.sync() is None


def test_forms_of_a_device(device):
    class Other(Device):
        pass

    number = device.device_id
    for made in (
        Device(number),
        Device(device_id=number),
        Device(*[number]),
        Device(device),
        Device.__new__(Device, number),
        type.__call__(Device, number),
        Other(number),
    ):
        assert made is device
    assert Device(True) == Device(1) if len(Device.get_all_devices()) > 1 else True
    for call, text in (
        (lambda: Device("0"), "device_id must be an int or a Device"),
        (lambda: Device(0.0), "device_id must be an int or a Device"),
        (lambda: Device(0, 0), "takes from 0 to 1 positional arguments but 2 were given"),
        (lambda: Device(0, device_id=0), "multiple values for argument 'device_id'"),
        (lambda: Device(ordinal=0), "unexpected keyword argument 'ordinal'"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    for wrong, text in ((-1, "must be from 0"), (1 << 20, "must be from 0"), (1 << 80, "must be from 0")):
        with pytest.raises(ValueError, match=text):
            Device(wrong)


def test_forms_of_a_configuration():
    class Own(LaunchConfig):
        pass

    class Number:
        def __index__(self):
            return 4

    keywords = {"gr" + "id": 4, "".join(("blo", "ck")): (32,)}
    for made in (
        LaunchConfig(grid=4, block=32),
        LaunchConfig(block=32, grid=4),
        LaunchConfig(grid=(4,), block=(32, 1)),
        LaunchConfig(grid=(4, 1, 1), block=(32, 1, 1)),
        LaunchConfig(4, None, 32),
        LaunchConfig(4, block=32),
        LaunchConfig(grid=(Number(),), block=32),
        LaunchConfig(grid=4, block=32, shmem_size=0),
        LaunchConfig(**keywords),
        LaunchConfig(4, None, 32, 0),
        Own(grid=4, block=32),
    ):
        assert (made.grid, made.block, made.cluster, made.shmem_size) == ((4, 1, 1), (32, 1, 1), None, 0)
        assert made == LaunchConfig(grid=4, block=32)
    assert type(Own(grid=4, block=32)) is Own and type(LaunchConfig(grid=4, block=32)) is LaunchConfig
    assert LaunchConfig(grid=(2, 3, 4), block=(5, 6)).grid == (2, 3, 4)
    for given, text in (
        ({"grid": 0, "block": 32}, "grid must be from 1 to 4294967295, it is 0"),
        ({"grid": 1, "block": 0}, "block must be from 1"),
        ({"grid": -1, "block": 1}, "grid must be from 1"),
        ({"grid": 1 << 32, "block": 1}, "grid must be from 1"),
        ({"grid": 1 << 80, "block": 1}, "grid must be from 1"),
        ({"grid": (), "block": 1}, "not a tuple of 0"),
        ({"grid": (1, 1, 1, 1), "block": 1}, "not a tuple of 4"),
        ({"grid": (1, 0), "block": 1}, "grid must be from 1"),
        ({"grid": [1], "block": 1}, "not list"),
        ({"grid": 1.0, "block": 1}, "not float"),
        ({"grid": 1}, "block must be given"),
        ({"block": 1}, "grid must be given"),
    ):
        with pytest.raises(ValueError, match=text):
            LaunchConfig(**given)
        # The names as a program has them, which are the interpreter's own objects.
        if len(given) == 2:
            with pytest.raises(ValueError, match=text):
                LaunchConfig(grid=given["grid"], block=given["block"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        LaunchConfig(grid=1, size=2)


def test_forms_of_building_a_graph(device, stream):
    for begin, end, complete in (
        (lambda b: b.begin_building(), lambda b: b.end_building(), lambda b: b.complete()),
        (lambda b: b.begin_building("relaxed"), lambda b: b.end_building(*[]), lambda b: b.complete(None)),
        (lambda b: b.begin_building(mode="global"), GraphBuilder.end_building, lambda b: b.complete(options=None)),
        (GraphBuilder.begin_building, GraphBuilder.end_building, GraphBuilder.complete),
    ):
        builder = device.create_graph_builder()
        assert begin(builder) is builder
        assert end(builder) is builder
        graph = complete(builder)
        assert isinstance(graph, Graph)
        assert builder.close() is None and builder.close() is None and builder.is_closed
        graph.launch(stream)
        stream.sync()
        assert graph.close() is None and graph.close() is None and graph.is_closed
    builder = device.create_graph_builder()
    for call, text in (
        (lambda: builder.begin_building(1), "mode"),
        (lambda: builder.begin_building("relaxed", 1), "positional"),
        (lambda: builder.end_building(1), "no arguments|positional"),
        (lambda: builder.complete(1), "options must be GraphCompleteOptions, not int"),
        (lambda: builder.close(1), "no arguments|positional"),
        (lambda: GraphBuilder.begin_building(stream), "GraphBuilder"),
        (lambda: device.create_graph_builder(1), "no arguments|positional"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    with pytest.raises(ValueError, match="mode must be"):
        builder.begin_building("none")
    with pytest.raises(RuntimeError, match="is not building"):
        builder.end_building()
    builder.close()
    for call in (builder.begin_building, builder.end_building, builder.complete):
        with pytest.raises(RuntimeError, match="this graph builder is closed"):
            call()


def test_wrong_calls(device, stream):
    resource = device.memory_resource
    buffer = resource.allocate(16, stream=stream)
    for call, text in (
        (lambda: buffer.fill(1), "missing 1 required keyword argument: 'stream'"),
        (lambda: buffer.fill(1, stream), "takes 1 positional argument|positional"),
        (lambda: buffer.fill(1, strem=stream), "strem"),
        (lambda: buffer.fill(1, stream=stream, more=1), "more"),
        (lambda: buffer.fill(1, stream=object()), "stream must be a Stream"),
        (lambda: buffer.copy_to(1, stream=stream), "dst must be a Buffer, not int"),
        (lambda: buffer.copy_from(None, stream=stream), "src must be a Buffer, not NoneType"),
        (lambda: buffer.close(stream, stream), "positional"),
        (lambda: resource.allocate("16", stream=stream), "int"),
        (lambda: Buffer.fill(), "needs an argument|unbound method"),
        (lambda: Buffer.fill(resource, 1, stream=stream), "Buffer"),
        (lambda: Stream.sync(buffer), "Stream"),
        (lambda: stream.sync(1), "no arguments"),
        (lambda: stream.record(1), "event must be an Event, not int"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
    with pytest.raises(OverflowError, match="a byte"):
        buffer.fill(256, stream=stream)
    with pytest.raises(ValueError, match="only an Event"):
        stream.wait(1)
    buffer.close()
    with pytest.raises(RuntimeError, match="this buffer is closed"):
        buffer.fill(1, stream=stream)
    with testing.fail("cuStreamSynchronize"), pytest.raises(CUDAError):
        stream.sync()


def test_forms_of_a_launch(code, device, stream, pinned):
    out, view = pinned(64, "Q")
    kernel = code.get_kernel("quad")
    for value, call in enumerate(
        (
            lambda value: launch(stream, ONE, kernel, out, value),
            lambda value: launch(stream, ONE, kernel, *[out, value]),
            lambda value: launch(stream, ONE, kernel, out.handle, value),
            lambda value: launch(stream, type("Mine", (LaunchConfig,), {})(grid=1, block=1), kernel, out, value),
        )
    ):
        assert call(value + 1) is None
        stream.sync()
        assert view[0] == value + 1
    assert launch(kernel=code.get_kernel("nothing"), config=ONE, stream=stream) is None
    assert launch(stream, ONE, kernel=code.get_kernel("nothing")) is None
    stream.sync()
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'config' and 'kernel'"):
        launch(stream)
    with pytest.raises(TypeError, match="config must be a LaunchConfig, not int"):
        launch(stream, 1, kernel)
    with pytest.raises(TypeError, match="kernel must be a Kernel, not int"):
        launch(stream, ONE, 1)
    with pytest.raises(TypeError, match="what"):
        launch(stream, ONE, kernel, out, 1, what=1)
    with pytest.raises(TypeError, match="argument 1 is of type list"):
        launch(stream, ONE, kernel, out, [])
    if tells_parameters():
        with pytest.raises(ValueError, match="takes 2 arguments, 3 were given"):
            launch(stream, ONE, kernel, out, 1, 2)
        with pytest.raises(ValueError, match="takes 2 arguments, 20 were given"):
            launch(stream, ONE, kernel, *[out] * 20)
        for value in (1 << 64, -(1 << 63) - 1):
            with pytest.raises(OverflowError, match="parameter 1 has 8 bytes"):
                launch(stream, ONE, kernel, out, value)
    with testing.fail("cuLaunchKernelEx"), pytest.raises(CUDAError):
        launch(stream, ONE, kernel, out, 1)


def test_as_python_sees_them():
    assert repr(launch) == "<built-in function launch>"
    assert str(inspect.signature(launch)) == "(stream, config, kernel, *kernel_args)"
    assert launch.__module__ == "cuirass._cuirass" and launch.__name__ == launch.__qualname__ == "launch"
    assert launch.__doc__.startswith("Runs a kernel on a stream")
    assert pickle.loads(pickle.dumps(launch)) is launch
    assert str(inspect.signature(Buffer.fill)) == "(self, /, value, *, stream)"
    assert Buffer.fill.__qualname__ == "Buffer.fill" and Buffer.fill.__doc__.startswith("Fills it with a pattern")
    assert str(inspect.signature(Stream.record)) == "(self, /, event=None, options=None)"


def test_references_are_given_back(code, device, stream):
    """Of whatever a call was given, in either form, whether it works or not."""
    resource, event, kernel = device.memory_resource, device.create_event(), code.get_kernel("add")
    buffer, other, number = resource.allocate(64, stream=stream), resource.allocate(64, stream=stream), 2**40 + 7

    def calls():
        launch(stream, ONE, kernel, buffer, 0, 1)
        launch(stream=stream, config=ONE, kernel=code.get_kernel("nothing"))
        stream.record(event)
        stream.record(event=event)
        buffer.fill(1, stream=stream)
        buffer.copy_to(other, stream=stream)
        buffer.copy_to(dst=other, stream=stream)
        resource.allocate(64, stream=stream).close(stream)
        assert Device(device.device_id) is Device(device_id=device.device_id)
        builder = device.create_graph_builder().begin_building()
        launch(builder, ONE, kernel, buffer, 0, 1)
        graph = builder.end_building().complete()
        builder.close()
        graph.close()
        for wrong in (
            lambda: Device("0"),
            lambda: launch(stream, ONE, kernel, buffer, number, 1),
            lambda: launch(stream, ONE, kernel, buffer, event, 1),
            lambda: buffer.fill(number, stream=stream),
            lambda: buffer.fill(1, other=stream),
            lambda: buffer.copy_to(event, stream=stream),
        ):
            try:
                wrong()
            except (TypeError, OverflowError, ValueError):
                pass
            else:
                assert not tells_parameters()
        stream.sync()

    kept = [stream, ONE, kernel, buffer, other, event, resource, number]
    calls()
    gc.collect()
    before = [sys.getrefcount(one) for one in kept]
    for _ in range(200):
        calls()
    gc.collect()
    assert [sys.getrefcount(one) for one in kept] == before


# Classes without a public name: that of what an attribute gives is all that it has.
PRIVATE = {"_MemPoolAttributes", "_StridedLayout"}


def wrong_uses(thing):
    """Calls with the wrong arguments, and properties that are set or read wrongly, of all that an object has."""
    for name in dir(type(thing)):
        if name.startswith("_"):
            continue
        value = getattr(type(thing), name)
        if callable(value):
            method = getattr(thing, name)
            yield lambda method=method: method(*[object()] * 20)
            yield lambda method=method: method(nonsense=1)
            yield lambda value=value: value(object())
            parameters = inspect.signature(method).parameters.values()
            if any(one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
                   for one in parameters):  # fmt: skip
                yield method
        else:
            yield lambda name=name: setattr(thing, name, object())
            yield lambda name=name: delattr(thing, name)
            yield lambda value=value: value.__get__(object())
    yield lambda: thing.nonsense
    yield lambda: setattr(thing, "nonsense", 1)
    yield lambda: type(thing)(*[object()] * 20)


def test_messages_have_names_that_users_know(code, device, stream):
    """Whatever is wrong with a use of a public class: no message speaks of the class that it has its methods of."""
    pools = [DeviceMemoryResource(device), cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions())]
    for kind in (cuirass.PinnedMemoryResource, cuirass.ManagedMemoryResource):
        with contextlib.suppress(CUDAError):
            pools.append(kind())
    others = [
        cuirass.LegacyPinnedMemoryResource(), cuirass.VirtualMemoryResource(device), device.allocate(16, stream=stream),
        device, device.context, device.properties, stream, stream.record(), code, code.get_kernel("nothing"), ONE,
        device.create_graph_builder(), pools[0].attributes,
    ]  # fmt: skip
    messages = []
    for thing in (*pools, *others):
        for use in wrong_uses(thing):
            try:
                use()
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
    assert len(messages) > 400
    private = [text for text in messages if set(re.findall(r"\b_[A-Z]\w+", text)) - PRIVATE]
    assert private == []
    resource = pools[0]
    for call, text in (
        (lambda: resource.allocate(16), "MemoryResource.allocate() missing 1 required keyword argument: 'stream'"),
        (lambda: resource.deallocate(0), "MemoryResource.deallocate() missing 1 required positional argument: 'size'"),
        (
            lambda: setattr(resource, "handle", 1),
            "attribute 'handle' of 'cuirass.MemoryResource' objects is not writable",
        ),
        (cuirass._cuirass._MemPool, "Memory pool objects are not made by calling the class; use DeviceMemoryResource"),
    ):
        with pytest.raises((TypeError, AttributeError, RuntimeError), match=re.escape(text)):
            call()


def test_the_class_of_pools_as_python_sees_it():
    """It has a name of its own, though messages do without."""
    base = DeviceMemoryResource.__base__
    assert base is cuirass._cuirass._MemPool and base.__base__ is cuirass.MemoryResource
    assert repr(base) == "<class 'cuirass._cuirass._MemPool'>"
    assert base.allocate.__qualname__ == "_MemPool.allocate"
    assert pickle.loads(pickle.dumps(base)) is base
    assert pickle.loads(pickle.dumps(cuirass.MemoryResource)) is cuirass.MemoryResource
