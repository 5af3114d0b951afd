"""The registration check: every public operation of the package is in the registry, and the registry has no other."""

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import pathlib
import pkgutil
import warnings

import cuirass

from .registry import families

# What every class has of Python itself, and what the interpreter makes of `__eq__`.
PLUMBING = {
    "__new__", "__init__", "__doc__", "__module__", "__dict__", "__weakref__", "__slots__", "__qualname__",
    "__lt__", "__le__", "__ne__", "__gt__", "__ge__", "__match_args__", "__annotations__", "__static_attributes__",
    "__firstlineno__", "__abstractmethods__", "__parameters__", "__orig_bases__",
}  # fmt: skip

BUFFER_PROTOCOL = ("__buffer__", "__release_buffer__")


def check():
    """What is not registered, and what is registered and not there."""
    public = set(names())
    registered = {one.name for operations in families().values() for one in operations}
    wrong = [f"{name}: a public operation without a place in python/tests/gauntlet" for name in public - registered]
    known = public | {f"{kind} (dropped)" for kind in kinds()} | {f"{kind}()" for kind in kinds()}
    wrong += [f"{name}: in the registry, and no public operation" for name in registered - known]
    if len(public) < 300:
        wrong.append(f"only {len(public)} public operations were found: the check looks in the wrong place")
    return sorted(wrong)


def modules():
    """The package and its public modules, but for its commands."""
    found = [cuirass]
    for info in pkgutil.walk_packages(cuirass.__path__, "cuirass."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found.append(importlib.import_module(info.name))
    return found


def exported():
    """Every function and class that can be had: the public names of the modules, and the classes of the objects that
    operations return, which are those of the extension."""
    for module in modules():
        for name in getattr(module, "__all__", ()):
            yield module, name, getattr(module, name)
    for name, value in sorted(vars(cuirass._cuirass).items()):
        if inspect.isclass(value):
            yield cuirass, name, value


def is_data(value):
    """Enumerations, options, exceptions, tuples with names, protocols: they do nothing."""
    return (
        issubclass(value, (enum.Enum, BaseException, int))
        or dataclasses.is_dataclass(value)
        or (issubclass(value, tuple) and hasattr(value, "_fields"))
        or getattr(value, "_is_protocol", False)
    )


def kinds():
    return {value.__qualname__ for _, _, value in exported() if inspect.isclass(value) and not is_data(value)}


def names():
    """The operations: `launch`, `testing.fail`, `Stream.close`, `Device()`."""
    seen = set()
    for module, name, value in exported():
        if inspect.isclass(value):
            if not is_data(value) and value not in seen:
                seen.add(value)
                yield from members(value)
        elif inspect.isroutine(value) and value.__module__ in ("cuirass", "cuirass._cuirass", module.__name__):
            yield name if module is cuirass else f"{module.__name__.removeprefix('cuirass.')}.{name}"


def members(kind):
    if is_constructed(kind):
        yield f"{kind.__qualname__}()"
    for name, value in vars(kind).items():
        is_property = inspect.isdatadescriptor(value) or isinstance(value, property)
        is_special = name.startswith("__") and name.endswith("__")
        if (
            name in PLUMBING
            or name in BUFFER_PROTOCOL
            or (name.startswith("_") and not is_special and name != "_repr_svg_")
        ):
            continue
        if is_property or inspect.isroutine(value) or isinstance(value, (classmethod, staticmethod)):
            yield f"{kind.__qualname__}.{name}"
        if is_property and is_settable(kind, name):
            yield f"{kind.__qualname__}.{name} (set)"
    # The buffer protocol has names in a class since Python 3.12 alone.
    yield from (
        f"{kind.__qualname__}.{name}" for name in BUFFER_PROTOCOL if (kind.__qualname__, name) in stub_methods()
    )


def is_constructed(kind):
    """Whether a class is called by users: the others say what makes their objects, and make no call."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            kind()
    except cuirass.CUDAError:
        # It is, and this driver has not what it needs.
        return True
    except (RuntimeError, NotImplementedError):
        return False
    except (TypeError, ValueError) as error:
        # Something is missing; or it is of the extension's own, without any constructor.
        return "cannot create" not in str(error)
    return True


@functools.cache
def stubs():
    """The methods of the extension's classes as the stubs have them: pairs of the class's name and the definition."""
    tree = ast.parse((pathlib.Path(cuirass.__file__).parent / "_cuirass.pyi").read_text())
    return [
        (kind.name, member)
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for member in kind.body
        if isinstance(member, ast.FunctionDef)
    ]


@functools.cache
def stub_methods():
    return {(kind, member.name) for kind, member in stubs()}


@functools.cache
def setters():
    """The properties that can be set: a getset of the extension cannot be asked without an object."""
    return {
        (kind, member.name)
        for kind, member in stubs()
        for mark in member.decorator_list
        if isinstance(mark, ast.Attribute) and mark.attr == "setter"
    }


def is_settable(kind, name):
    value = vars(kind)[name]
    return value.fset is not None if isinstance(value, property) else (kind.__qualname__, name) in setters()
