"""What is refused says which argument or attribute is wrong, and what it has to be."""

import ctypes
import os
import pickle

import pytest

from cuirass import (
    Buffer,
    Device,
    DeviceMemoryResource,
    ManagedMemoryResource,
    MemoryResource,
    ObjectCode,
    PinnedMemoryResource,
    Program,
    ProgramOptions,
)
from cuirass.utils import StridedMemoryView

from .conftest import driver_version


class Offering:
    """An object with DLPack's methods."""

    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        raise AssertionError("it was asked")


class Own(MemoryResource):
    """A resource that says of itself what is wrong."""

    is_device_accessible = "yes"
    is_host_accessible = None
    is_managed = False
    device_id = "0"

    def deallocate(self, ptr, size, *, stream):
        pass


def viewed(device):
    StridedMemoryView.from_any_interface(Offering(device), stream_ptr=-1)


def own():
    return Buffer.from_handle(4096, 8, mr=Own())


def callback(user_data):
    builder = Device(0).create_graph_builder().begin_building()
    try:
        builder.callback(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None), user_data=user_data)
    finally:
        builder.close()


def program(**options):
    Program("", "c++", ProgramOptions(**options))


FROM_CODE = ("from_cubin", "from_ptx", "from_ltoir", "from_fatbin", "from_object", "from_library")
CASES = {
    "arch": (lambda: program(arch=5), "arch must be a str, not int"),
    "name": (lambda: program(arch="sm_90", name=b"name"), "name must be a str, not bytes"),
    "max_register_count": (lambda: program(max_register_count="5"), "max_register_count must be an int, not str"),
    "split_compile": (lambda: program(split_compile=1.5), "split_compile must be an int, not float"),
    **{
        f"symbol_mapping of {name}, {wrong}": (
            lambda name=name, wrong=wrong: getattr(ObjectCode, name)(b"code", symbol_mapping=wrong),
            f"symbol_mapping must be a dict of str to str, not {told}",
        )
        for name in FROM_CODE
        for wrong, told in (({1: "a"}, "one with int"), ({"a": 2}, "one with int"), (["a"], "list"), ("a", "str"))
    },
    "no device": (lambda: viewed(2), r"what __dlpack_device__\(\) returns must be a tuple of two numbers, not int"),
    "a device of texts": (lambda: viewed(("2", 0)), r"__dlpack_device__\(\) .* two numbers, not one with str"),
    "a device of None": (lambda: viewed((2, None)), r"__dlpack_device__\(\) .* two numbers, not one with NoneType"),
    "is_device_accessible": (lambda: own().is_device_accessible, "Own.is_device_accessible must be a bool, not str"),
    "is_host_accessible": (lambda: own().is_host_accessible, "Own.is_host_accessible must be a bool, not NoneType"),
    "device_id": (lambda: own().device_id, "Own.device_id must be an int, not str"),
    "__dlpack_device__": (lambda: own().__dlpack_device__(), "Own.is_device_accessible must be a bool, not str"),
    "user_data": (lambda: callback(object()), "user_data must be an int, an address, or have bytes.* not object"),
    "user_data of text": (lambda: callback("text"), "user_data must be an int, an address, or have bytes.* not str"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_of_the_wrong_kind_is_named(device, case):
    call, text = CASES[case]
    with pytest.raises(TypeError, match=text):
        call()


@pytest.mark.parametrize("given", [(), (2,), (2, 0, 0)])
def test_a_device_of_another_length(device, given):
    with pytest.raises(ValueError, match=rf"two numbers, it has {len(given)}"):
        viewed(given)


def test_a_file_descriptor_that_is_none(device):
    # Freed, so that nothing has it.
    file = os.open(os.devnull, os.O_RDONLY)
    os.close(file)
    calls = [
        lambda: DeviceMemoryResource.from_allocation_handle(0, 10**6 + file),
        lambda: PinnedMemoryResource.from_allocation_handle(10**6 + file),
    ]
    for call in calls:
        with pytest.raises(OSError, match=f"alloc_handle is {10**6 + file}") as caught:
            call()
        assert caught.value.errno == 9


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: DeviceMemoryResource(0), "make it with DeviceMemoryResource(device,"),
        (PinnedMemoryResource, "make it with PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))"),
        (ManagedMemoryResource, "memory of its kind is of one process alone"),
    ],
    ids=["device", "pinned", "managed"],
)
def test_what_is_not_pickled_says_what_would_be(device, stream, make, advice):
    if make in (PinnedMemoryResource, ManagedMemoryResource) and driver_version() < (13, 0):
        pytest.skip("what an older driver lacks is refused first")
    resource = make()
    for what in (resource, resource.allocate(8, stream=stream)):
        with pytest.raises(RuntimeError) as caught:
            pickle.dumps(what)
        assert advice in str(caught.value)
