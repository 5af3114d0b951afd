"""The exceptions and the warning of cuirass."""

# Loaded by `import cuirass`: nothing is imported here.


class _Named(type):
    """Gives ``Status`` the driver's statuses as attributes: ``Status.CUDA_ERROR_OUT_OF_MEMORY``."""

    def __getattr__(cls, name: str) -> "Status":
        found = named(name) if name.startswith("CUDA_") else None
        if found is None:
            raise AttributeError(f"{name!r} is no status of the driver")
        return found


def named(name: str) -> "Status | None":
    """Return the driver's status of that name; ``None`` if there is none."""
    from . import _cuirass

    for number in range(1000):
        if _cuirass._status_name(number) == name:
            return Status(number, name)
    return None


class Status(int, metaclass=_Named):
    """The status that a CUDA library returned: a number with CUDA's own name.

    The driver's are attributes: ``error.status == Status.CUDA_ERROR_OUT_OF_MEMORY``; the name compares as well, and is
    the way with a compiler's: ``error.status.name == "NVRTC_ERROR_COMPILATION"``. Any number is legal, since a newer
    library knows more of them than this package.

    Attributes
    ----------
    name : str
        CUDA's name: ``CUDA_ERROR_OUT_OF_MEMORY``.
    """

    __module__ = "cuirass"
    name: str

    def __new__(cls, value: int, name: str | None = None) -> "Status":
        """Make a status of a number and its name."""
        status = super().__new__(cls, value)
        status.name = name or f"CUDA_ERROR_{int(value)}"
        return status

    @property
    def value(self) -> int:
        """The number, as a plain int."""
        return int(self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Status.{self.name}: {int(self)}>"

    def __reduce__(self) -> tuple[type["Status"], tuple[int, str]]:
        return type(self), (int(self), self.name)


class CUDAError(Exception):
    """A call of the CUDA driver, or of another CUDA library, failed.

    The message starts with the status, and has the library's own description, the entry point and what the call was
    about. What else went wrong on the way is in the notes.

    Attributes
    ----------
    status : Status or None
        What the call returned; ``None`` if there is no library to call. To tell one from another:
        ``error.status == Status.CUDA_ERROR_OUT_OF_MEMORY``, or ``error.status.name == "CUDA_ERROR_OUT_OF_MEMORY"``.
    call : str
        The entry point that failed: ``cuMemAllocFromPoolAsync``; empty if none was called.
    sticky : bool
        Whether this process can make no further use of CUDA.
    needs, found : tuple of int or None
        For a call that this driver is too old for: the CUDA version that introduced it and the driver's.
    """

    __module__ = "cuirass"
    status: Status | None = None
    call: str = ""
    sticky: bool = False
    needs: tuple[int, int] | None = None
    found: tuple[int, int] | None = None


class CUDAStickyError(CUDAError):
    """A kernel faulted earlier, and this process can make no further use of CUDA: it must be restarted."""

    __module__ = "cuirass"
    sticky = True


class NVRTCError(CUDAError):
    """The compiler failed. The message has its whole log, which is also in ``log``.

    Attributes
    ----------
    log : str
        The compiler's log.
    """

    __module__ = "cuirass"
    log: str = ""


class CUDAWarning(RuntimeWarning):
    """A failure that could not be raised to anybody, as of a release while an object was collected."""

    __module__ = "cuirass"


def make(kind: str, message: str, facts: dict[str, object]) -> CUDAError:
    """Make the exception of an error of the Rust crate."""
    error: CUDAError
    if kind == "sticky":
        error = CUDAStickyError(message)
    elif kind == "compiler":
        error = NVRTCError(message)
        log = facts.pop("log", "")
        if log:
            error.log = str(log)
    else:
        error = CUDAError(message)
    status = facts.pop("status", None)
    if isinstance(status, tuple):
        error.status = Status(*status)
    elif kind == "unsupported":
        error.status = Status(801, "CUDA_ERROR_NOT_SUPPORTED")
    elif kind == "forked":
        error.status = Status(3, "CUDA_ERROR_NOT_INITIALIZED")
    for name, value in facts.items():
        setattr(error, name, value)
    return error
