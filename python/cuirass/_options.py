"""The options: plain data, read where they are used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .typing import (
    VirtualMemoryAccessType,
    VirtualMemoryAllocationType,
    VirtualMemoryGranularityType,
    VirtualMemoryHandleType,
    VirtualMemoryLocationType,
)

if TYPE_CHECKING:
    from ._cuirass import Device, Stream
    from .typing import CompilerBackendType, ManagedMemoryLocationType, ObjectCodeFormatType

__all__ = [
    "ContextOptions",
    "DeviceMemoryResourceOptions",
    "EventOptions",
    "GraphCompleteOptions",
    "GraphDebugPrintOptions",
    "ManagedMemoryResourceOptions",
    "PinnedMemoryResourceOptions",
    "ProgramOptions",
    "StreamOptions",
    "VirtualMemoryResourceOptions",
]


@dataclass(slots=True)
class StreamOptions:
    """How a stream is made.

    Attributes
    ----------
    nonblocking : bool
        Whether it takes no part in the implicit order of the legacy default stream.
    priority : int, optional
        A lower number goes first; ``None`` is the default priority, 0.
    """

    nonblocking: bool = True
    priority: int | None = None


@dataclass(slots=True)
class EventOptions:
    """How an event is made.

    Attributes
    ----------
    timing_enabled : bool, optional
        Whether it takes the time, so that it can be subtracted from another.
    blocking_sync : bool, optional
        Whether waiting for it sleeps instead of spinning.
    ipc_enabled : bool, optional
        Whether other processes can use it; it then takes no time.
    """

    timing_enabled: bool | None = False
    blocking_sync: bool | None = False
    ipc_enabled: bool | None = False


@dataclass(slots=True)
class PinnedMemoryResourceOptions:
    """How a pool of page-locked memory is made.

    Attributes
    ----------
    ipc_enabled : bool
        Whether other processes can use its memory.
    max_size : int
        The most memory that it may take, in bytes; 0 leaves that to the driver.
    numa_id : int, optional
        The NUMA node that its memory is on. Without one the system places it; for other processes, which need a node,
        it is the one that is nearest to the current device.
    """

    ipc_enabled: bool = False
    max_size: int = 0
    numa_id: int | None = None


@dataclass(slots=True)
class VirtualMemoryResourceOptions:
    """How virtual memory is made.

    Attributes
    ----------
    allocation_type : VirtualMemoryAllocationType or str
        ``"pinned"``: the one type there is.
    location_type : VirtualMemoryLocationType or str
        Where the physical memory is: on the device (``"device"``); on the host where the system places it (``"host"``),
        or on the NUMA node that is nearest to the device (``"host_numa"``, and ``"host"`` too where it can be exported:
        drivers export only memory of a node). Drivers refuse ``"host_numa_current"``, as of CUDA 13.0. The host reads
        and writes its own memory through ``memoryview(buffer)``.
    handle_type : VirtualMemoryHandleType or str, optional
        How the physical memory can be exported to other processes; ``None`` if it need not be.
    granularity : VirtualMemoryGranularityType or str
        Whether sizes are multiples of what the driver recommends, or of the least that it takes.
    gpu_direct_rdma : bool
        Whether network devices are to reach it directly.
    addr_hint : int, optional
        The address that is asked for; 0 leaves it to the driver, which may choose another one anyway.
    addr_align : int, optional
        What addresses are a multiple of, in bytes; ``None`` is the granularity.
    peers : iterable of int or Device
        Other devices that get access.
    self_access, peer_access : VirtualMemoryAccessType or str, optional
        What the device, and what its peers, may do with it; ``None`` is nothing.
    """

    allocation_type: VirtualMemoryAllocationType | str = VirtualMemoryAllocationType.PINNED
    location_type: VirtualMemoryLocationType | str = VirtualMemoryLocationType.DEVICE
    handle_type: VirtualMemoryHandleType | str | None = VirtualMemoryHandleType.POSIX_FD
    granularity: VirtualMemoryGranularityType | str = VirtualMemoryGranularityType.RECOMMENDED
    gpu_direct_rdma: bool = False
    addr_hint: int | None = 0
    addr_align: int | None = None
    peers: "Iterable[Device | int]" = field(default_factory=tuple)
    self_access: VirtualMemoryAccessType | str | None = VirtualMemoryAccessType.READ_WRITE
    peer_access: VirtualMemoryAccessType | str | None = VirtualMemoryAccessType.READ_WRITE


@dataclass(slots=True)
class ManagedMemoryResourceOptions:
    """How a pool of managed memory is made.

    Attributes
    ----------
    preferred_location : int, optional
        Where its memory is rather to be: the ordinal of a device or the number of a NUMA node, as the type says.
    preferred_location_type : ManagedMemoryLocationType or str, optional
        What the number is: of a ``"device"``, or of a NUMA node (``"host_numa"``; without a number it is the one that
        is nearest to the current device). ``"host"`` takes no number. Without a type the number is the ordinal of a
        device, or -1 for the host; without both the driver decides.
    """

    preferred_location: int | None = None
    preferred_location_type: "ManagedMemoryLocationType | str | None" = None


@dataclass(slots=True)
class ContextOptions:
    """How a context is made.

    Attributes
    ----------
    resources : sequence
        The parts of the device that it has.
    """

    resources: Sequence[object]


@dataclass(slots=True)
class DeviceMemoryResourceOptions:
    """How a device's memory pool is made.

    Attributes
    ----------
    ipc_enabled : bool
        Whether other processes can use its memory.
    max_size : int
        The most memory that it may take, in bytes; 0 leaves that to the driver.
    """

    ipc_enabled: bool = False
    max_size: int = 0


@dataclass
class ProgramOptions:
    """How a program is compiled. What is ``None`` is left to the compiler.

    Attributes
    ----------
    name : str, optional
        What messages call the program.
    arch : str, optional
        What to compile for: ``sm_90``. Without it, the current device's architecture.
    relocatable_device_code : bool, optional
        Whether the code can be linked with other code.
    extensible_whole_program : bool, optional
        Whether code may be added to the whole program by later links.
    debug : bool, optional
        Whether there is debug information.
    lineinfo : bool, optional
        Whether there are line numbers.
    device_code_optimize : bool, optional
        Whether code is optimised together with ``debug``.
    ptxas_options : str or sequence of str, optional
        Options of the assembler.
    max_register_count : int, optional
        The most registers that a thread may have.
    ftz : bool, optional
        Whether denormal floats are taken as zero.
    prec_sqrt, prec_div : bool, optional
        Whether square roots and divisions of floats are rounded as IEEE 754 says.
    fma : bool, optional
        Whether multiplications and additions are contracted.
    use_fast_math : bool, optional
        Whether fast approximations are used.
    extra_device_vectorization : bool, optional
        Whether the optimiser vectorises more.
    link_time_optimization : bool, optional
        Whether code for the linker's optimiser is made.
    gen_opt_lto : bool, optional
        Whether the optimiser runs before such code is made.
    define_macro : str, tuple of two str, or sequence of these, optional
        Macros: a name, or a name and its value.
    undefine_macro : str or sequence of str, optional
        Macros that are undefined.
    include_path : str or sequence of str, optional
        Folders of headers.
    use_bundled_headers : bool, optional
        Whether the compiler's own bundled headers are used.
    pre_include : str or sequence of str, optional
        Headers that are included first.
    no_source_include : bool, optional
        Whether the folder of the source is left out of the search for headers.
    std : str, optional
        The language: ``c++17``.
    builtin_move_forward, builtin_initializer_list : bool, optional
        Whether the compiler knows ``std::move`` and ``std::forward``, and ``std::initializer_list``, by itself.
    disable_warnings : bool, optional
        Whether there are no warnings.
    restrict : bool, optional
        Whether all pointers of kernels are ``__restrict__``.
    device_as_default_execution_space : bool, optional
        Whether functions without an execution space are ``__device__``.
    device_int128, device_float128 : bool, optional
        Whether there are 128-bit integers and floats.
    optimization_info : str, optional
        What optimisations are reported: ``inline``.
    no_display_error_number : bool, optional
        Whether messages have no numbers.
    diag_error, diag_suppress, diag_warn : int or sequence of int, optional
        Messages, by number, that are made errors, left out, made warnings.
    brief_diagnostics : bool, optional
        Whether messages leave out the source line.
    time : str, optional
        A file for the times of the compiler's phases.
    split_compile : int, optional
        How many threads optimise; 0 for as many as there are cores.
    fdevice_syntax_only : bool, optional
        Whether only the syntax is checked.
    minimal : bool, optional
        Whether language features that need time are left out.
    no_cache : bool, optional
        Whether the compiler's own cache is not used.
    fdevice_time_trace : str, optional
        A file for a trace of the compiler's phases.
    frandom_seed : str, optional
        A seed for names that are made up.
    ofast_compile : str, optional
        How much optimisation is given up for speed of compilation: ``0``, ``min``, ``mid``, ``max``.
    pch, create_pch, use_pch, pch_dir, pch_verbose, pch_messages, instantiate_templates_in_pch : optional
        Precompiled headers: automatic, made as a file, taken from a file, and so on.
    extra_sources : sequence of pairs, optional
        Names and sources of more modules; NVVM only.
    use_libdevice : bool, optional
        Whether the mathematical library is linked; NVVM only.
    numba_debug : bool, optional
        Whether debug information is as Numba wants it.

    Raises
    ------
    ValueError
        If options contradict each other.
    """

    name: str | None = "default_program"
    arch: str | None = None
    relocatable_device_code: bool | None = None
    extensible_whole_program: bool | None = None
    debug: bool | None = None
    lineinfo: bool | None = None
    device_code_optimize: bool | None = None
    ptxas_options: str | list[str] | tuple[str] | None = None
    max_register_count: int | None = None
    ftz: bool | None = None
    prec_sqrt: bool | None = None
    prec_div: bool | None = None
    fma: bool | None = None
    use_fast_math: bool | None = None
    extra_device_vectorization: bool | None = None
    link_time_optimization: bool | None = None
    gen_opt_lto: bool | None = None
    define_macro: str | tuple[str, str] | list[str | tuple[str, str]] | tuple[str | tuple[str, str], ...] | None = None
    undefine_macro: str | list[str] | tuple[str] | None = None
    include_path: str | list[str] | tuple[str] | None = None
    use_bundled_headers: bool | None = None
    pre_include: str | list[str] | tuple[str] | None = None
    no_source_include: bool | None = None
    std: str | None = None
    builtin_move_forward: bool | None = None
    builtin_initializer_list: bool | None = None
    disable_warnings: bool | None = None
    restrict: bool | None = None
    device_as_default_execution_space: bool | None = None
    device_int128: bool | None = None
    optimization_info: str | None = None
    no_display_error_number: bool | None = None
    diag_error: int | list[int] | tuple[int] | None = None
    diag_suppress: int | list[int] | tuple[int] | None = None
    diag_warn: int | list[int] | tuple[int] | None = None
    brief_diagnostics: bool | None = None
    time: str | None = None
    split_compile: int | None = None
    fdevice_syntax_only: bool | None = None
    minimal: bool | None = None
    no_cache: bool | None = None
    fdevice_time_trace: str | None = None
    device_float128: bool | None = None
    frandom_seed: str | None = None
    ofast_compile: str | None = None
    pch: bool | None = None
    create_pch: str | None = None
    use_pch: str | None = None
    pch_dir: str | None = None
    pch_verbose: bool | None = None
    pch_messages: bool | None = None
    instantiate_templates_in_pch: bool | None = None
    extra_sources: (
        list[tuple[str, str | bytes | bytearray]] | tuple[tuple[str, str | bytes | bytearray], ...] | None
    ) = None
    use_libdevice: bool | None = None
    numba_debug: bool | None = None

    def __post_init__(self) -> None:
        from ._program_options import check

        check(self)

    def as_bytes(
        self,
        backend: "CompilerBackendType | str",
        target_type: "ObjectCodeFormatType | str | None" = None,
    ) -> list[bytes]:
        """Return the options as a compiler takes them.

        Parameters
        ----------
        backend : CompilerBackendType or str
            The compiler: ``"nvrtc"``. NVVM is not available yet.
        target_type : ObjectCodeFormatType or str, optional
            What is to be made; plays no part for NVRTC.

        Raises
        ------
        ValueError
            If the compiler is unknown, or cannot do what an option asks for.
        """
        from ._program_options import nvrtc_texts

        known = str(backend).lower()
        if known == "nvvm":
            raise NotImplementedError("NVVM is not available in this version of cuirass")
        if known != "nvrtc":
            raise ValueError(f"backend must be 'nvrtc' or 'nvvm', not {backend!r}")
        return [text.encode() for text in nvrtc_texts(self)]


@dataclass(slots=True)
class GraphCompleteOptions:
    """How a graph is made executable.

    Attributes
    ----------
    auto_free_on_launch : bool
        Whether a launch first frees what the one before allocated and did not free.
    upload_stream : Stream, optional
        A stream on which it is uploaded to the device at once.
    device_launch : bool
        Whether kernels may launch it.
    use_node_priority : bool
        Whether its nodes have the priorities that they were captured with, instead of the launch stream's.
    """

    auto_free_on_launch: bool = False
    upload_stream: "Stream | None" = None
    device_launch: bool = False
    use_node_priority: bool = False


@dataclass(slots=True)
class GraphDebugPrintOptions:
    """What the driver's picture of a graph shows.

    Attributes
    ----------
    verbose : bool
        Everything.
    runtime_types : bool
        Types of the runtime interface instead of the driver's.
    kernel_node_params, memcpy_node_params, memset_node_params, host_node_params, event_node_params : bool
        Parameters of nodes of these kinds.
    ext_semas_signal_node_params, ext_semas_wait_node_params : bool
        Parameters of nodes that signal, and that wait for, an external semaphore.
    kernel_node_attributes : bool
        Attributes of kernel nodes.
    handles : bool
        Handles.
    mem_alloc_node_params, mem_free_node_params, batch_mem_op_node_params : bool
        Parameters of nodes of these kinds.
    extra_topo_info : bool
        More of the topology.
    conditional_node_params : bool
        Parameters of conditional nodes.
    """

    verbose: bool = False
    runtime_types: bool = False
    kernel_node_params: bool = False
    memcpy_node_params: bool = False
    memset_node_params: bool = False
    host_node_params: bool = False
    event_node_params: bool = False
    ext_semas_signal_node_params: bool = False
    ext_semas_wait_node_params: bool = False
    kernel_node_attributes: bool = False
    handles: bool = False
    mem_alloc_node_params: bool = False
    mem_free_node_params: bool = False
    batch_mem_op_node_params: bool = False
    extra_topo_info: bool = False
    conditional_node_params: bool = False


GraphCompleteOptions.__module__ = GraphDebugPrintOptions.__module__ = "cuirass.graph"
for _class in (
    StreamOptions,
    EventOptions,
    ContextOptions,
    DeviceMemoryResourceOptions,
    ManagedMemoryResourceOptions,
    PinnedMemoryResourceOptions,
    ProgramOptions,
    VirtualMemoryResourceOptions,
):
    _class.__module__ = "cuirass"
del _class
