"""cuirass: the host side of CUDA, with failures that cannot be lost.

The names are those of ``cuda.core`` 1.2, and the exceptions of 1.3. Not here yet: ``Linker``, programs of PTX or NVVM,
graphs that are built node by node, program caches, textures and graphics, tensor maps, green contexts, ``checkpoint``,
and of ``system`` all but ``typing``.

Modules have the rest: ``cuirass.graph`` graphs by capture; ``cuirass.utils`` views of arrays, copies with options, of
rows and in batches; ``cuirass.typing`` enumerations and types; ``cuirass.testing`` faults in driver calls;
``cuirass.sim`` the simulated device, and the checker of order between streams.

``import cuirass`` loads neither the driver nor the compiler, nor numpy or ``cuda.bindings``: each is loaded when it is
first needed. Without a GPU the simulated device serves, if it is asked for: ``CUIRASS_DRIVER=sim``, or
``cuirass.sim.use()``.
"""

from ._cuirass import (
    LEGACY_DEFAULT_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    Buffer,
    Context,
    Device,
    DeviceMemoryResource,
    Event,
    GraphMemoryResource,
    Host,
    Kernel,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ManagedBuffer,
    ManagedMemoryResource,
    MemoryResource,
    ObjectCode,
    PinnedMemoryResource,
    Program,
    Stream,
    VirtualMemoryResource,
    __version__,
    drain,
    launch,
)
from ._error import CUDAError, CUDAStickyError, CUDAWarning, NVRTCError, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import graph as graph
    from . import sim as sim
    from . import system as system
    from . import testing as testing
    from . import typing as typing
    from . import utils as utils
    from ._options import (
        ContextOptions,
        DeviceMemoryResourceOptions,
        EventOptions,
        ManagedMemoryResourceOptions,
        PinnedMemoryResourceOptions,
        ProgramOptions,
        StreamOptions,
        VirtualMemoryResourceOptions,
    )

# Data classes need a module that is slow to load: they are made when one is first asked for.
_OPTIONS = frozenset(
    (
        "ContextOptions",
        "DeviceMemoryResourceOptions",
        "EventOptions",
        "ManagedMemoryResourceOptions",
        "PinnedMemoryResourceOptions",
        "ProgramOptions",
        "StreamOptions",
        "VirtualMemoryResourceOptions",
    )
)
_TO_COME = frozenset(
    (
        "DeviceResources",
        "GraphicsResource",
        "Linker",
        "LinkerOptions",
        "SMResource",
        "SMResourceOptions",
        "TensorMapDescriptor",
        "TensorMapDescriptorOptions",
        "WorkqueueResource",
        "WorkqueueResourceOptions",
        "checkpoint",
        "texture",
    )
)
"""What ``cuda.core`` 1.2 has, and this version does not."""
_MODULES = frozenset(("graph", "sim", "system", "testing", "typing", "utils"))

__all__ = [
    "LEGACY_DEFAULT_STREAM",
    "PER_THREAD_DEFAULT_STREAM",
    "Buffer",
    "CUDAError",
    "CUDAStickyError",
    "CUDAWarning",
    "Context",
    "ContextOptions",
    "Device",
    "DeviceMemoryResource",
    "DeviceMemoryResourceOptions",
    "Event",
    "EventOptions",
    "GraphMemoryResource",
    "Host",
    "Kernel",
    "LaunchConfig",
    "LegacyPinnedMemoryResource",
    "ManagedBuffer",
    "ManagedMemoryResource",
    "ManagedMemoryResourceOptions",
    "MemoryResource",
    "NVRTCError",
    "ObjectCode",
    "PinnedMemoryResource",
    "PinnedMemoryResourceOptions",
    "Program",
    "ProgramOptions",
    "Status",
    "Stream",
    "StreamOptions",
    "VirtualMemoryResource",
    "VirtualMemoryResourceOptions",
    "__version__",
    "drain",
    "launch",
]


def __getattr__(name: str) -> object:
    if name in _OPTIONS:
        from . import _options

        value: object = getattr(_options, name)
        globals()[name] = value
        return value
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"cuirass.{name}")
    raise AttributeError(f"module 'cuirass' has no attribute {name!r}{_where_it_is(name)}")


def _where_it_is(name: str) -> str:
    """What is said of a name that is not here: that a module has it, or that ``cuda.core`` alone has it yet."""
    if name.startswith("_"):
        return ""
    import importlib

    for module in sorted(_MODULES):
        try:
            names = getattr(importlib.import_module(f"cuirass.{module}"), "__all__", ())
        except ImportError:
            # A module may need what is not installed: who asks for a name learns of the name alone.
            continue
        if name in names:
            return f": it is cuirass.{module}.{name}"
    if name == "experimental":
        return ": what cuda.core.experimental had is in cuirass itself"
    return ": cuda.core has it, and this version of cuirass does not yet" if name in _TO_COME else ""


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *globals()})
