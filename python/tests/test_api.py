"""The names and members that this stage of the package promises, those of cuda.core."""

import dataclasses
import inspect

import pytest

import cuirass

# Class, members, constructor parameters (None: it is not called).
CLASSES = {
    "Buffer": (
        None,
        [
            "__reduce__",
            "from_handle",
            "from_ipc_descriptor",
            "ipc_descriptor",
            "close",
            "set_deallocation_stream",
            "__enter__",
            "__exit__",
            "copy_to",
            "copy_from",
            "fill",
            "device_id",
            "handle",
            "is_closed",
            "__eq__",
            "__hash__",
            "is_device_accessible",
            "is_host_accessible",
            "is_managed",
            "is_mapped",
            "memory_resource",
            "size",
            "owner",
        ],
    ),
    "Context": (None, ["handle", "is_closed", "is_green", "create_stream", "close", "__eq__", "__hash__"]),
    "Device": (
        ["device_id"],
        [
            "get_all_devices",
            "device_id",
            "pci_bus_id",
            "uuid",
            "name",
            "properties",
            "compute_capability",
            "arch",
            "context",
            "memory_resource",
            "default_stream",
            "__int__",
            "__hash__",
            "__eq__",
            "__reduce__",
            "set_current",
            "create_context",
            "create_stream",
            "create_event",
            "allocate",
            "sync",
        ],
    ),
    "DeviceMemoryResource": (
        ["device_id", "options"],
        [
            "__reduce__",
            "from_registry",
            "register",
            "from_allocation_handle",
            "allocation_handle",
            "device_id",
            "is_device_accessible",
            "is_host_accessible",
            "close",
            "is_closed",
            "allocate",
            "deallocate",
            "attributes",
            "handle",
            "is_handle_owned",
            "is_ipc_enabled",
            "is_mapped",
            "uuid",
        ],
    ),
    "Event": (
        None,
        [
            "close",
            "is_closed",
            "__isub__",
            "__rsub__",
            "__sub__",
            "__hash__",
            "__eq__",
            "ipc_descriptor",
            "from_ipc_descriptor",
            "is_ipc_enabled",
            "is_timing_enabled",
            "is_blocking_sync",
            "sync",
            "is_done",
            "handle",
            "device",
            "context",
        ],
    ),
    "Kernel": (
        None,
        ["attributes", "num_arguments", "arguments_info", "occupancy", "handle", "from_handle", "__eq__", "__hash__"],
    ),
    "LaunchConfig": (
        ["grid", "cluster", "block", "shmem_size", "is_cooperative", "programmatic_stream_serialization"],
        [
            "__eq__",
            "__hash__",
            "grid",
            "cluster",
            "block",
            "shmem_size",
            "is_cooperative",
            "programmatic_stream_serialization",
        ],
    ),
    "LegacyPinnedMemoryResource": (
        [],
        ["allocate", "deallocate", "is_device_accessible", "is_host_accessible", "device_id"],
    ),
    "MemoryResource": (
        [],
        ["allocate", "deallocate", "is_device_accessible", "is_host_accessible", "is_managed", "device_id"],
    ),
    "ObjectCode": (
        None,
        [
            "__reduce__",
            "from_cubin",
            "from_ptx",
            "from_ltoir",
            "from_fatbin",
            "from_object",
            "from_library",
            "get_kernel",
            "get_module",
            "code",
            "name",
            "code_type",
            "symbol_mapping",
            "handle",
            "__eq__",
            "__hash__",
        ],
    ),
    "PinnedMemoryResource": (
        ["options"],
        [
            "__reduce__",
            "from_registry",
            "register",
            "from_allocation_handle",
            "allocation_handle",
            "allocate",
            "deallocate",
            "device_id",
            "numa_id",
            "is_device_accessible",
            "is_host_accessible",
            "close",
            "is_closed",
            "attributes",
            "handle",
            "is_handle_owned",
            "is_ipc_enabled",
            "is_mapped",
            "uuid",
        ],
    ),
    "Program": (["code", "code_type", "options"], ["close", "is_closed", "compile", "pch_status", "backend", "handle"]),
    "Stream": (
        None,
        [
            "close",
            "is_closed",
            "__cuda_stream__",
            "__hash__",
            "__eq__",
            "handle",
            "is_nonblocking",
            "priority",
            "sync",
            "record",
            "wait",
            "device",
            "context",
            "from_handle",
        ],
    ),
}

OPTIONS = {
    "ContextOptions": {"resources": "<required>"},
    "DeviceMemoryResourceOptions": {"ipc_enabled": False, "max_size": 0},
    "EventOptions": {"timing_enabled": False, "blocking_sync": False, "ipc_enabled": False},
    "ProgramOptions": {
        "name": "default_program",
        "arch": None,
        "relocatable_device_code": None,
        "extensible_whole_program": None,
        "debug": None,
        "lineinfo": None,
        "device_code_optimize": None,
        "ptxas_options": None,
        "max_register_count": None,
        "ftz": None,
        "prec_sqrt": None,
        "prec_div": None,
        "fma": None,
        "use_fast_math": None,
        "extra_device_vectorization": None,
        "link_time_optimization": None,
        "gen_opt_lto": None,
        "define_macro": None,
        "undefine_macro": None,
        "include_path": None,
        "use_bundled_headers": None,
        "pre_include": None,
        "no_source_include": None,
        "std": None,
        "builtin_move_forward": None,
        "builtin_initializer_list": None,
        "disable_warnings": None,
        "restrict": None,
        "device_as_default_execution_space": None,
        "device_int128": None,
        "optimization_info": None,
        "no_display_error_number": None,
        "diag_error": None,
        "diag_suppress": None,
        "diag_warn": None,
        "brief_diagnostics": None,
        "time": None,
        "split_compile": None,
        "fdevice_syntax_only": None,
        "minimal": None,
        "no_cache": None,
        "fdevice_time_trace": None,
        "device_float128": None,
        "frandom_seed": None,
        "ofast_compile": None,
        "pch": None,
        "create_pch": None,
        "use_pch": None,
        "pch_dir": None,
        "pch_verbose": None,
        "pch_messages": None,
        "instantiate_templates_in_pch": None,
        "extra_sources": None,
        "use_libdevice": None,
        "numba_debug": None,
    },
    "StreamOptions": {"nonblocking": True, "priority": None},
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name):
    cls = getattr(cuirass, name)
    parameters, members = CLASSES[name]
    missing = [member for member in members if not any(member in vars(base) for base in cls.__mro__[:-1])]
    assert missing == []
    if parameters is None:
        with pytest.raises(RuntimeError):
            cls()
    else:
        assert list(inspect.signature(cls).parameters) == parameters


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    cls = getattr(cuirass, name)
    assert dataclasses.is_dataclass(cls)
    assert cls.__hash__ is None
    found = {
        field.name: "<required>" if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(cls)
    }
    assert found == OPTIONS[name]


def test_names_between_processes():
    from cuirass import _event
    from cuirass._memory import _ipc

    for cls, members in (
        (_event.IPCEventDescriptor, ["__eq__", "__reduce__"]),
        (_ipc.IPCBufferDescriptor, ["__reduce__", "size"]),
        (_ipc.IPCAllocationHandle, ["close", "is_closed", "__int__", "handle", "uuid"]),
    ):
        assert cls.__module__ in ("cuirass._event", "cuirass._memory._ipc")
        assert [member for member in members if member not in vars(cls)] == []
        with pytest.raises(RuntimeError):
            cls()
    assert _event.IPCEventDescriptor.__hash__ is None


def test_functions_and_data():
    assert str(inspect.signature(cuirass.launch)) == "(stream, config, kernel, *kernel_args)"
    assert isinstance(cuirass.LEGACY_DEFAULT_STREAM, cuirass.Stream)
    assert isinstance(cuirass.PER_THREAD_DEFAULT_STREAM, cuirass.Stream)
    assert isinstance(cuirass.__version__, str)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("Buffer.copy_to", "(self, /, dst=None, *, stream, options=None)"),
        ("Buffer.fill", "(self, /, value, *, stream)"),
        ("Buffer.from_ipc_descriptor", "(mr, ipc_descriptor, *, stream)"),
        ("DeviceMemoryResource.from_allocation_handle", "(device_id, alloc_handle)"),
        ("DeviceMemoryResource.from_registry", "(uuid)"),
        ("DeviceMemoryResource.register", "(self, /, uuid)"),
        ("Event.from_ipc_descriptor", "(ipc_descriptor)"),
        ("PinnedMemoryResource.from_allocation_handle", "(alloc_handle)"),
        ("Buffer.from_handle", "(ptr, size, mr=None, owner=None, *, stream=None)"),
        ("Device.allocate", "(self, /, size, *, stream)"),
        ("Device.create_stream", "(self, /, obj=None, options=None)"),
        ("Device.set_current", "(self, /, ctx=None)"),
        ("Kernel.from_handle", "(handle, mod=None)"),
        ("Program.compile", "(self, /, target_type, name_expressions=(), logs=None, *, cache=None)"),
        ("Stream.record", "(self, /, event=None, options=None)"),
    ],
)
def test_signatures(name, signature):
    cls, _, method = name.partition(".")
    assert str(inspect.signature(getattr(getattr(cuirass, cls), method))) == signature


def test_enumerations():
    from cuirass import typing, utils
    from cuirass.system import typing as system

    assert typing.ObjectCodeFormatType.CUBIN == "cubin"
    assert typing.SourceCodeType("c++") is typing.SourceCodeType.CXX
    assert utils.MemcpyOverlapMode.DEFAULT == "default"
    assert system.DeviceArch.HOPPER == 9
    assert isinstance(cuirass.LEGACY_DEFAULT_STREAM, typing.IsStreamType)
    for module in (typing, utils, system):
        assert all(hasattr(module, name) for name in module.__all__)


def test_enumerations_are_taken_as_text(device):
    from cuirass.typing import ObjectCodeFormatType, SourceCodeType

    program = cuirass.Program("", SourceCodeType.CXX, cuirass.ProgramOptions(arch="sm_90"))
    assert program.compile(ObjectCodeFormatType.PTX).code_type == "ptx"
