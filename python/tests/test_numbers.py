"""Integers as arguments: one that is out of range is an error that names the argument and says the range."""

import ast
import ctypes
import functools
import pathlib
import re
import types
import warnings

import pytest

import cuirass
from cuirass import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    GraphMemoryResource,
    Host,
    Kernel,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ManagedBuffer,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    Program,
    Stream,
    StreamOptions,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
    testing,
)
from cuirass._cuirass import (
    IPCAllocationHandle,
    IPCBufferDescriptor,
    _compiler_status_name,
    _status_name,
    _StridedLayout,
)
from cuirass.utils import StridedMemoryView, copy_2d, copy_3d

from .conftest import KERNELS, driver_version, is_sim

# No argument takes one of these; Python does not even write the last of them.
WRONG = {"2**70": 2**70, "-2**70": -(2**70), "10**5000": 10**5000}


@functools.cache
def compiled():
    return Program(KERNELS, "c++").compile("ptx")


@pytest.fixture
def my(device):
    """One object of each kind."""
    stream = device.create_stream()
    code = compiled()
    my = types.SimpleNamespace(
        device=device,
        stream=stream,
        buffer=device.allocate(64, stream=stream),
        other=device.allocate(64, stream=stream),
        pool=DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True)),
        virtual=VirtualMemoryResource(device),
        pinned=LegacyPinnedMemoryResource(),
        graph=GraphMemoryResource(device),
        builder=device.create_graph_builder().begin_building(),
        kernel=code.get_kernel("nothing"),
        code=code,
        config=LaunchConfig(grid=1, block=1),
        layout=_StridedLayout((2, 3), None, 4),
    )
    my.view = StridedMemoryView.from_buffer(my.buffer, (2,), itemsize=4)
    my.word = code.get_kernel("word")
    my.condition = my.builder.create_condition() if driver_version() >= (12, 3) else None
    yield my
    my.builder.close()


def rows(name):
    """What copies rows, with this argument."""
    return lambda my, n: copy_2d(my.buffer, my.other, **{"width": 1, "height": 1, name: n}, stream=my.stream)


def slices(name):
    return lambda my, n: copy_3d(
        my.buffer, my.other, **{"width": 1, "height": 1, "depth": 1, name: n}, stream=my.stream
    )


def set_to(of, name):
    return lambda my, n: setattr(of(my), name, n)


def occupancy(name, *arguments):
    return lambda my, n: getattr(my.kernel.occupancy, name)(*(n if given is ... else given for given in arguments))


def attribute(name):
    return lambda my, n: setattr(my.kernel.attributes, name, n)


def constructed(my, n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        StridedMemoryView(my.buffer, stream_ptr=n)


# The parameter, as the stubs and the classes of options have it, and a call with a number for it.
CASES = {
    "_StridedLayout.__new__:shape": lambda my, n: _StridedLayout((1, n), None, 4),
    "_StridedLayout.__new__:strides": lambda my, n: _StridedLayout((1,), [n], 4),
    "_StridedLayout.__new__:itemsize": lambda my, n: _StridedLayout((1,), None, n),
    "_StridedLayout.dense:shape": lambda my, n: _StridedLayout.dense((n,), 4),
    "_StridedLayout.dense:itemsize": lambda my, n: _StridedLayout.dense((1,), n),
    "_StridedLayout.dense:stride_order": lambda my, n: _StridedLayout.dense((1,), 4, (n,)),
    "_StridedLayout.dense_like:stride_order": lambda my, n: _StridedLayout.dense_like(my.layout, (n, 0)),
    "_StridedLayout.to_dense:stride_order": lambda my, n: my.layout.to_dense((n, 0)),
    "_StridedLayout.reshaped:shape": lambda my, n: my.layout.reshaped((n,)),
    "_StridedLayout.permuted:axis_order": lambda my, n: my.layout.permuted((n, 0)),
    "_StridedLayout.flattened:start_axis": lambda my, n: my.layout.flattened(n),
    "_StridedLayout.flattened:end_axis": lambda my, n: my.layout.flattened(0, n),
    "_StridedLayout.flattened:mask": lambda my, n: my.layout.flattened(mask=n),
    "_StridedLayout.unsqueezed:axis": lambda my, n: my.layout.unsqueezed(n),
    "_StridedLayout.broadcast_to:shape": lambda my, n: my.layout.broadcast_to((n, 2, 3)),
    "_StridedLayout.repacked:itemsize": lambda my, n: my.layout.repacked(n),
    "_StridedLayout.repacked:data_ptr": lambda my, n: my.layout.repacked(4, n),
    "_StridedLayout.repacked:axis": lambda my, n: my.layout.repacked(4, axis=n),
    "_StridedLayout.max_compatible_itemsize:max_itemsize": lambda my, n: my.layout.max_compatible_itemsize(n),
    "_StridedLayout.max_compatible_itemsize:data_ptr": lambda my, n: my.layout.max_compatible_itemsize(4, n),
    "_StridedLayout.max_compatible_itemsize:axis": lambda my, n: my.layout.max_compatible_itemsize(axis=n),
    "_StridedLayout.sliced:slices (index)": lambda my, n: my.layout.sliced(n),
    "_StridedLayout.__getitem__:key (index)": lambda my, n: my.layout[0, n],
    "Buffer.from_handle:ptr": lambda my, n: Buffer.from_handle(n, 64),
    "Buffer.from_handle:size": lambda my, n: Buffer.from_handle(4096, n),
    "Buffer.fill:value": lambda my, n: my.buffer.fill(n, stream=my.stream),
    "Buffer.__dlpack__:stream": lambda my, n: my.buffer.__dlpack__(stream=n),
    "Device.__new__:device_id": lambda my, n: Device(n),
    "Device.can_access_peer:peer": lambda my, n: my.device.can_access_peer(n),
    "Device.allocate:size": lambda my, n: my.device.allocate(n, stream=my.stream),
    "IPCAllocationHandle._init:handle": lambda my, n: IPCAllocationHandle._init(n, None),
    "IPCBufferDescriptor._init:size": lambda my, n: IPCBufferDescriptor._init(bytes(64), n),
    "Kernel.from_handle:handle": lambda my, n: Kernel.from_handle(n),
    "KernelAttributes.__getitem__:key (device)": lambda my, n: my.kernel.attributes[n],
    "KernelAttributes.max_dynamic_shared_size_bytes:value (max_dynamic_shared_size_bytes)": attribute(
        "max_dynamic_shared_size_bytes"
    ),
    "KernelAttributes.preferred_shared_memory_carveout:value (preferred_shared_memory_carveout)": attribute(
        "preferred_shared_memory_carveout"
    ),
    "KernelOccupancy.max_active_blocks_per_multiprocessor:block_size": occupancy(
        "max_active_blocks_per_multiprocessor", ..., 0
    ),
    "KernelOccupancy.max_active_blocks_per_multiprocessor:dynamic_shared_memory_size": occupancy(
        "max_active_blocks_per_multiprocessor", 32, ...
    ),
    "KernelOccupancy.max_potential_block_size:dynamic_shared_memory_needed": occupancy(
        "max_potential_block_size", ..., 0
    ),
    "KernelOccupancy.max_potential_block_size:block_size_limit": occupancy("max_potential_block_size", 0, ...),
    "KernelOccupancy.available_dynamic_shared_memory_per_block:num_blocks_per_multiprocessor": occupancy(
        "available_dynamic_shared_memory_per_block", ..., 32
    ),
    "KernelOccupancy.available_dynamic_shared_memory_per_block:block_size": occupancy(
        "available_dynamic_shared_memory_per_block", 1, ...
    ),
    "LaunchConfig.__new__:grid": lambda my, n: LaunchConfig(grid=n, block=1),
    "LaunchConfig.__new__:cluster": lambda my, n: LaunchConfig(grid=1, block=1, cluster=(1, n)),
    "LaunchConfig.__new__:block": lambda my, n: LaunchConfig(grid=1, block=(n, 1)),
    "LaunchConfig.__new__:shmem_size": lambda my, n: LaunchConfig(grid=1, block=1, shmem_size=n),
    "LaunchConfig.grid:value (grid)": set_to(lambda my: my.config, "grid"),
    "LaunchConfig.cluster:value (cluster)": set_to(lambda my: my.config, "cluster"),
    "LaunchConfig.block:value (block)": set_to(lambda my: my.config, "block"),
    "LaunchConfig.shmem_size:value (shmem_size)": set_to(lambda my: my.config, "shmem_size"),
    "DeviceMemoryResource.__new__:device_id": lambda my, n: DeviceMemoryResource(n),
    "_MemPool.allocate:size": lambda my, n: my.pool.allocate(n, stream=my.stream),
    "_MemPool.deallocate:ptr": lambda my, n: my.pool.deallocate(n, 1, stream=my.stream),
    "_MemPool.deallocate:size": lambda my, n: my.pool.deallocate(0, n, stream=my.stream),
    "DeviceMemoryResource.from_allocation_handle:device_id": lambda my, n: DeviceMemoryResource.from_allocation_handle(
        n, 0
    ),
    "DeviceMemoryResource.from_allocation_handle:alloc_handle": (
        lambda my, n: DeviceMemoryResource.from_allocation_handle(0, n)
    ),
    "DeviceMemoryResource.peer_accessible_by:devices (device_id)": (
        lambda my, n: setattr(my.pool, "peer_accessible_by", [n])
    ),
    "PinnedMemoryResource.from_allocation_handle:alloc_handle": (
        lambda my, n: PinnedMemoryResource.from_allocation_handle(n)
    ),
    "VirtualMemoryResource.__new__:device_id": lambda my, n: VirtualMemoryResource(n),
    "VirtualMemoryResource.allocate:size": lambda my, n: my.virtual.allocate(n, stream=my.stream),
    "VirtualMemoryResource.deallocate:ptr": lambda my, n: my.virtual.deallocate(n, 1, stream=my.stream),
    "VirtualMemoryResource.deallocate:size": lambda my, n: my.virtual.deallocate(4096, n, stream=my.stream),
    "VirtualMemoryResource.modify_allocation:new_size": lambda my, n: my.virtual.modify_allocation(
        my.virtual.allocate(1, stream=my.stream), n
    ),
    "Host.__new__:numa_id": lambda my, n: Host(n),
    "ManagedMemoryResource.allocate:size": lambda my, n: ManagedMemoryResource().allocate(n, stream=my.stream),
    "ManagedBuffer.from_handle:ptr": lambda my, n: ManagedBuffer.from_handle(n, 1),
    "ManagedBuffer.from_handle:size": lambda my, n: ManagedBuffer.from_handle(4096, n),
    "LegacyPinnedMemoryResource.allocate:size": lambda my, n: my.pinned.allocate(n),
    "LegacyPinnedMemoryResource.deallocate:ptr": lambda my, n: my.pinned.deallocate(n, 1),
    "LegacyPinnedMemoryResource.deallocate:size": lambda my, n: my.pinned.deallocate(0, n),
    "Stream.from_handle:handle": lambda my, n: Stream.from_handle(n),
    "GraphBuilder.split:count": lambda my, n: my.builder.split(n),
    "GraphBuilder.create_condition:default_value": lambda my, n: my.builder.create_condition(n),
    "GraphBuilder.switch:count": lambda my, n: my.builder.switch(my.condition, n),
    "GraphBuilder.callback:user_data": lambda my, n: my.builder.callback(
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None), user_data=n
    ),
    "GraphMemoryResource.__new__:device_id": lambda my, n: GraphMemoryResource(n),
    "GraphMemoryResource.allocate:size": lambda my, n: my.graph.allocate(n, stream=my.builder),
    "GraphMemoryResource.deallocate:ptr": lambda my, n: my.graph.deallocate(n, 1, stream=my.builder),
    "GraphMemoryResource.deallocate:size": lambda my, n: my.graph.deallocate(4096, n, stream=my.builder),
    "GraphMemoryResourceAttributes.reserved_mem_high:value (reserved_mem_high)": set_to(
        lambda my: my.graph.attributes, "reserved_mem_high"
    ),
    "GraphMemoryResourceAttributes.used_mem_high:value (used_mem_high)": set_to(
        lambda my: my.graph.attributes, "used_mem_high"
    ),
    "StridedMemoryView.__new__:stream_ptr": constructed,
    "StridedMemoryView.from_dlpack:stream_ptr": lambda my, n: StridedMemoryView.from_dlpack(my.buffer, stream_ptr=n),
    "StridedMemoryView.from_any_interface:stream_ptr": lambda my, n: StridedMemoryView.from_any_interface(
        my.buffer, stream_ptr=n
    ),
    "StridedMemoryView.from_buffer:shape": lambda my, n: StridedMemoryView.from_buffer(my.buffer, (n,), itemsize=4),
    "StridedMemoryView.from_buffer:strides": lambda my, n: StridedMemoryView.from_buffer(
        my.buffer, (1,), strides=(n,), itemsize=4
    ),
    "StridedMemoryView.from_buffer:itemsize": lambda my, n: StridedMemoryView.from_buffer(my.buffer, (1,), itemsize=n),
    "StridedMemoryView.__dlpack__:stream": lambda my, n: my.view.__dlpack__(stream=n),
    "_status_name:code (status)": lambda my, n: _status_name(n),
    "_compiler_status_name:code (status)": lambda my, n: _compiler_status_name(n),
    "StreamOptions.priority": lambda my, n: my.device.create_stream(options=StreamOptions(priority=n)),
    "PinnedMemoryResourceOptions.max_size": lambda my, n: PinnedMemoryResource(PinnedMemoryResourceOptions(max_size=n)),
    "PinnedMemoryResourceOptions.numa_id": lambda my, n: PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id=n)),
    "VirtualMemoryResourceOptions.addr_hint": lambda my, n: VirtualMemoryResource(
        my.device, VirtualMemoryResourceOptions(addr_hint=n)
    ).allocate(1, stream=my.stream),
    "VirtualMemoryResourceOptions.addr_align": lambda my, n: VirtualMemoryResource(
        my.device, VirtualMemoryResourceOptions(addr_align=n)
    ).allocate(1, stream=my.stream),
    "VirtualMemoryResourceOptions.peers": lambda my, n: VirtualMemoryResource(
        my.device, VirtualMemoryResourceOptions(peers=[n])
    ).allocate(1, stream=my.stream),
    "ManagedMemoryResourceOptions.preferred_location": lambda my, n: ManagedMemoryResource(
        ManagedMemoryResourceOptions(preferred_location=n)
    ),
    "DeviceMemoryResourceOptions.max_size": lambda my, n: DeviceMemoryResource(
        my.device, DeviceMemoryResourceOptions(max_size=n)
    ),
    **{
        f"copy_2d:{name}": rows(name)
        for name in ("width", "height", "dst_pitch", "src_pitch", "dst_offset", "src_offset")
    },
    **{
        f"copy_3d:{name}": slices(name)
        for name in (
            *("width", "height", "depth", "dst_pitch", "src_pitch", "dst_rows", "src_rows"),
            *("dst_offset", "src_offset"),
        )
    },
    "status:name (status)": lambda my, n: testing.status(n),
    "fail.__init__:nth": lambda my, n: testing.fail("cuInit", nth=n).__enter__(),
    "fail.__init__:times": lambda my, n: testing.fail("cuInit", times=n).__enter__(),
    "fail.__init__:thread": lambda my, n: testing.fail("cuInit", thread=n).__enter__(),
    "fail.__init__:status": lambda my, n: testing.fail("cuInit", status=n),
    "seed:value (seed)": lambda my, n: cuirass.sim.seed(n),
}
# As in cuda.core: what does not fit in what is filled, or passed, overflows.
OVERFLOWS = {"Buffer.fill:value": "an int that fills a buffer is a byte, from 0 to 255"}
# What has no range of its own, or is called by something that is in the table.
ELSEWHERE = {
    "Buffer.__buffer__:flags": "Python's own",
    "Buffer.__dlpack__:max_version": "a version, a TypeError",
    "Buffer.__dlpack__:dl_device": "a pair, a TypeError",
    "StridedMemoryView.__dlpack__:max_version": "a version, a TypeError",
    "StridedMemoryView.__dlpack__:dl_device": "a pair, a TypeError",
    "MemoryResource.allocate:size": "a user's class takes what it likes",
    "MemoryResource.deallocate:ptr": "a user's class takes what it likes",
    "MemoryResource.deallocate:size": "a user's class takes what it likes",
    "_MemPool._is_accessible_by:device": "peer_accessible_by calls it",
    "_MemPool._set_access:granted": "peer_accessible_by calls it",
    "_MemPool._set_access:revoked": "peer_accessible_by calls it",
    "VirtualMemoryResource.device:device": "not available yet",
    "_copy_pitched:extent": "copy_3d() calls it",
    "_copy_pitched:to": "copy_3d() calls it",
    "_copy_pitched:from_": "copy_3d() calls it",
    "_inject:nth": "testing.fail() calls it",
    "_inject:times": "testing.fail() calls it",
    "_inject:status": "testing.fail() calls it",
    "_inject:thread": "testing.fail() calls it",
    "_number_of:thread": "testing.fail() calls it",
    "_status_of:given": "testing.fail() calls it",
    "_sim_reports:mark": "reports() calls it",
    "_sim_seed:seed": "seed() calls it",
    "StridedMemoryView.from_cuda_array_interface:stream_ptr": "as from_any_interface()",
    "StridedMemoryView.as_tensor_map:box_dim": "not available yet",
    "StridedMemoryView.as_tensor_map:element_strides": "not available yet",
    "ProgramOptions.max_register_count": "the compiler's",
    "ProgramOptions.diag_error": "the compiler's",
    "ProgramOptions.diag_suppress": "the compiler's",
    "ProgramOptions.diag_warn": "the compiler's",
    "ProgramOptions.split_compile": "the compiler's",
    "args_viewable_as_strided_memory:arg_indices": "a tuple's index",
    "reports:since": "a mark of its own",
}

RANGE = re.compile(r"from -?\d+ to \d+|must fit in 64 bits and not be negative")
NEEDS_13 = ("ManagedBuffer", "ManagedMemoryResource")


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("case", CASES)
def test_a_number_out_of_range_is_named(my, case, wrong):
    skip_what_an_older_driver_lacks(case)
    kind = OverflowError if case in OVERFLOWS else ValueError
    with pytest.raises(kind) as caught:
        CASES[case](my, WRONG[wrong])
    assert type(caught.value) is kind, repr(caught.value)
    text, name = str(caught.value), re.search(r"(\w+)\)?$", case)[1]
    if case in OVERFLOWS:
        assert text == OVERFLOWS[case]
    else:
        assert re.search(rf"\b{name}\b", text), text
        assert RANGE.search(text), text
    assert len(text) < 500


def test_arguments_that_are_no_numbers_are_named(my):
    for case, call in CASES.items():
        if case in {"Buffer.fill:value", "status:name (status)", "GraphBuilder.callback:user_data"}:
            continue
        with pytest.raises((TypeError, ValueError, cuirass.CUDAError)) as caught:
            call(my, 1.5)
        assert "as an integer" not in str(caught.value), (case, caught.value)


class Raising:
    """No number: asking it raises."""

    def __init__(self, error):
        self.error = error

    def __index__(self):
        raise self.error

    __int__ = __index__


class Nameless:
    """A number that cannot be shown."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    __int__ = __index__

    def __repr__(self):
        raise LookupError("not shown")

    __str__ = __repr__


class NamelessInt(int):
    """The same of a class of int."""

    __repr__ = __str__ = Nameless.__repr__


# What takes an int alone, and asks no other object.
INTS_ALONE = {
    *("Buffer.fill:value", "GraphBuilder.callback:user_data", "fail.__init__:thread"),
    *(f"LaunchConfig.{name}" for name in ("__new__:grid", "grid:value (grid)", "block:value (block)")),
    *("LaunchConfig.cluster:value (cluster)", "KernelOccupancy.max_potential_block_size:dynamic_shared_memory_needed"),
}


class Offering:
    """An object with these attributes, which a protocol asks for."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def interface(**changed):
    """An array interface with this instead of what is right."""
    right = {"shape": (1,), "typestr": "<f4", "data": (4096, False), "version": 3}
    return Offering(__cuda_array_interface__={**right, **changed})


def viewed(offering):
    return StridedMemoryView.from_any_interface(offering, stream_ptr=-1)


# Numbers that are no parameters of their own.
MORE = {
    "grid of a tuple": lambda my, n: setattr(my.config, "grid", (1, n)),
    "block of a tuple": lambda my, n: setattr(my.config, "block", (n,)),
    "cluster of a tuple": lambda my, n: setattr(my.config, "cluster", (n, 1)),
    "start of a slice": lambda my, n: my.layout[n:],
    "stop of a slice": lambda my, n: my.layout[:n],
    "step of a slice": lambda my, n: my.layout[::n],
    "version of an interface": lambda my, n: viewed(interface(version=n)),
    "address of an interface": lambda my, n: viewed(interface(data=(n, False))),
    "shape of an interface": lambda my, n: viewed(interface(shape=(n,))),
    "strides of an interface": lambda my, n: viewed(interface(strides=(n,))),
    "kind of DLPack's device": lambda my, n: viewed(Offering(__dlpack__=None, __dlpack_device__=lambda: (n, 0))),
    "number of DLPack's device": lambda my, n: viewed(Offering(__dlpack__=None, __dlpack_device__=lambda: (2, n))),
    "max_version of DLPack": lambda my, n: my.buffer.__dlpack__(max_version=(n, 0)),
    "dl_device of DLPack": lambda my, n: my.buffer.__dlpack__(dl_device=(2, n)),
    "version of a stream": lambda my, n: my.stream.wait(Offering(__cuda_stream__=lambda: (n, 0))),
    "handle of a stream": lambda my, n: my.stream.wait(Offering(__cuda_stream__=lambda: (0, n))),
}
# A class of its own among the errors that Python raises about numbers, and what a program must not lose.
OWN_ERRORS = {
    kind.__name__: kind
    for kind in (KeyboardInterrupt, MemoryError, SystemExit, TypeError, OverflowError, ValueError, LookupError)
}


def skip_what_an_older_driver_lacks(case):
    if case.startswith(NEEDS_13) and driver_version() < (13, 0):
        pytest.skip("what an older driver lacks is refused first")
    if ("condition" in case or "switch" in case) and driver_version() < (12, 8):
        pytest.skip("what an older driver lacks is refused first")
    if case.startswith("seed") and not is_sim():
        pytest.skip("of the simulated driver")


@pytest.mark.parametrize("kind", OWN_ERRORS)
@pytest.mark.parametrize("case", {**CASES, **MORE})
def test_what_a_number_raises_of_its_own_is_passed_on_as_it_is(my, case, kind):
    skip_what_an_older_driver_lacks(case)
    if case in INTS_ALONE:
        pytest.skip("takes an int alone")
    error = OWN_ERRORS[kind]("its own")
    with pytest.raises(OWN_ERRORS[kind]) as caught:
        {**CASES, **MORE}[case](my, Raising(error))
    assert caught.value is error, repr(caught.value)
    assert str(error) == "its own"


def outcome(call, my, number):
    try:
        call(my, number)
    except Exception as error:
        return type(error), str(error)
    return "no error"


@pytest.mark.parametrize("number", [-1, 2**70, 10**5000], ids=["-1", "2**70", "10**5000"])
@pytest.mark.parametrize("case", CASES)
def test_a_number_that_cannot_be_shown_is_any_number(my, case, number):
    skip_what_an_older_driver_lacks(case)
    expected = outcome(CASES[case], my, number)
    found = {kind: outcome(CASES[case], my, kind(number)) for kind in (NamelessInt, Nameless)}
    assert found[NamelessInt] == expected
    if case not in INTS_ALONE:
        assert found[Nameless] == expected


@pytest.mark.parametrize("large", [2**70, 10**5000], ids=["2**70", "10**5000"])
def test_an_argument_that_cannot_be_shown_overflows_as_any(my, large):
    def call(my, n):
        cuirass.launch(my.stream, my.config, my.word, my.buffer, n)

    expected = outcome(call, my, large)
    assert expected[0] is OverflowError
    assert outcome(call, my, NamelessInt(large)) == expected


def parameters():
    """The parameters of the package that are numbers, as its stubs and sources say."""
    is_number = re.compile(r"\bint\b|\b_Size\b|SupportsIndex|\b_Ints\b|\b_Handle\b|SupportsInt\b")

    def of(node, prefix):
        for inner in node.body:
            if isinstance(inner, ast.ClassDef):
                yield from of(inner, f"{prefix}{inner.name}.")
            elif isinstance(inner, ast.FunctionDef):
                arguments = [*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs]
                for argument in arguments:
                    if argument.annotation is not None and is_number.search(ast.unparse(argument.annotation)):
                        yield f"{prefix}{inner.name}:{argument.arg}"
            elif isinstance(inner, ast.AnnAssign) and prefix and is_number.search(ast.unparse(inner.annotation)):
                yield f"{prefix}{inner.target.id}"

    package = pathlib.Path(cuirass.__file__).parent
    for name in ("_cuirass.pyi", "_options.py", "utils.py", "testing.py", "sim.py"):
        yield from of(ast.parse((package / name).read_text()), "")


@pytest.mark.thread_unsafe(reason="ast.parse of CPython 3.11 fails beside itself")
def test_every_parameter_that_is_a_number_is_in_the_table():
    found = set(parameters())
    assert len(found) > 120
    known = {case.partition(" ")[0] for case in CASES} | set(ELSEWHERE)
    assert found - known == set()
    # What the table has beside it: methods of the classes that the stubs derive from another one.
    assert known - found == {"_MemPool.allocate:size", "_MemPool.deallocate:ptr", "_MemPool.deallocate:size"}
