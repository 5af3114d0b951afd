"""Objects that offer arrays by DLPack and the array interfaces: what real libraries do, and what none should."""

import ctypes

import pytest

from cuirass.utils import StridedMemoryView

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
VERSIONED, UNVERSIONED = b"dltensor_versioned", b"dltensor"
READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


def _function(name, result, *arguments):
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
capsule_name = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
capsule_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
rename_capsule = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


def managed_of(capsule):
    """The tensor in a capsule that was not taken."""
    name = capsule_name(capsule)
    kind = ManagedVersioned if name == VERSIONED else Managed
    return ctypes.cast(capsule_pointer(capsule, name), ctypes.POINTER(kind)).contents


# Names of capsules must outlive them.
USED = {VERSIONED: b"used_dltensor_versioned", UNVERSIONED: b"used_dltensor"}


def take(capsule):
    """Takes the tensor, as a consumer does, who calls its deleter with its address when done."""
    name = capsule_name(capsule)
    managed = managed_of(capsule)
    assert rename_capsule(capsule, USED[name]) == 0
    return managed


def delete(managed):
    managed.deleter(ctypes.addressof(managed))


class Producer:
    """Offers a tensor; counts the deletions of what it offered."""

    def __init__(
        self,
        data,
        shape,
        strides=None,
        *,
        dtype=(2, 32, 1),
        device=(CPU, 0),
        flags=0,
        version=(1, 0),
        versioned=True,
        byte_offset=0,
        old=False,
        raises=None,
        returns=None,
        name=None,
        ndim=None,
        null_shape=False,
    ):
        self.tensor = Tensor(
            data,
            *device,
            len(shape) if ndim is None else ndim,
            *dtype,
            None if null_shape else (ctypes.c_int64 * max(1, len(shape)))(*shape),
            None if strides is None else (ctypes.c_int64 * max(1, len(strides)))(*strides),
            byte_offset,
        )
        self.device, self.flags, self.version, self.versioned = device, flags, version, versioned
        self.old, self.raises, self.returns, self.name = old, raises, returns, name
        self.asked, self.deleted, self.kept = [], 0, []

    def __dlpack_device__(self):
        return self.device

    def _delete(self, _managed):
        self.deleted += 1

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        if self.old and keywords.keys() - {"stream"}:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        if self.raises is not None:
            raise self.raises
        if self.returns is not None:
            return self.returns
        deleter = DELETER(self._delete)
        if self.versioned and not self.old:
            managed = ManagedVersioned(*self.version, None, deleter, self.flags, self.tensor)
        else:
            managed = Managed(self.tensor, None, deleter)
        # The capsule has no destructor: what is not taken is this object's.
        self.kept.append((managed, deleter))
        name = self.name or (VERSIONED if isinstance(managed, ManagedVersioned) else UNVERSIONED)
        return new_capsule(ctypes.addressof(managed), name, None)


# What is wrong of a tensor of 2 times 3 elements, and what is said of it.
WRONG_TENSORS = [
    ({"data": None}, "null"),
    ({"null_shape": True}, "no shape"),
    ({"shape": (-1, 2)}, "negative"),
    ({"shape": (1 << 40, 1 << 40)}, "address space"),
    ({"shape": (1 << 60, 8), "strides": None}, "address space"),
    ({"strides": (1 << 62, 1)}, "address space"),
    ({"strides": (-(1 << 60), 1)}, "address space"),
    ({"data": (1 << 64) - 8, "strides": None}, "address space"),
    ({"ndim": -1}, "dimensions"),
    ({"ndim": 1 << 30}, "dimensions"),
    ({"dtype": (2, 32, 0)}, "no bits"),
    ({"dtype": (2, 0, 1)}, "no bits"),
    ({"dtype": (2, 4, 1)}, "4 bits"),
    ({"byte_offset": (1 << 64) - 1}, "address space"),
    ({"device": (4, 0)}, "device type 4"),
    ({"device": (10, 0)}, "device type 10"),
    ({"device": (2, -1)}, "device -1"),
]


class Interface:
    """Has an array interface."""

    def __init__(self, name, **entries):
        setattr(self, name, entries)


def facts(view):
    try:
        dtype = view.dtype
    except Exception as error:
        dtype = type(error)
    return {
        "ptr": view.ptr,
        "shape": view.shape,
        "strides": view.strides,
        "size": view.size,
        "dtype": dtype,
        "device_id": view.device_id,
        "is_device_accessible": view.is_device_accessible,
        "readonly": view.readonly,
        "device": view.__dlpack_device__(),
        "itemsize": view._layout.itemsize,
    }


def same(make):
    """What the official class says of the same object, or how it fails."""
    official = pytest.importorskip("cuda.core.utils").StridedMemoryView
    answers = []
    for each in (StridedMemoryView, official):
        try:
            answers.append(facts(make(each)))
        except Exception as error:
            answers.append(type(error))
    assert answers[0] == answers[1], answers
    return answers[0]
