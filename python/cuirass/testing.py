"""Making driver calls fail, to test how a program behaves when they do.

A fault lives in cuirass's own table of entry points: it works over a real driver and the simulated one alike, and costs
nothing while there is none. It affects the calls that cuirass makes, not those of other libraries in the process::

    with cuirass.testing.fail("cuMemAllocFromPoolAsync", nth=2, status="CUDA_ERROR_OUT_OF_MEMORY") as fault:
        ...
    assert fault.count == 1

In a test of pytest the same is a fixture, whose faults end with the test. If one was in no call, a test that passes
otherwise fails at its end; ``unused_ok=True`` says that this is meant::

    def test_a_failed_allocation(cuirass_fail):
        cuirass_fail("cuMemAllocFromPoolAsync", status="CUDA_ERROR_OUT_OF_MEMORY")
        ...
"""

from collections import namedtuple
from types import TracebackType

from . import _cuirass
from ._error import Status, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading

__all__ = ["Call", "fail", "known_calls", "record", "status"]

Call = namedtuple("Call", ("name", "status", "arguments"))
Call.__doc__ = "A driver call: its entry point, what it returned, its arguments as numbers."


def status(name: str | int) -> Status:
    """Return a status by its name, of the driver or of the compiler, or one of the driver's by its number.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if not isinstance(name, str):
        return Status(name, _cuirass._status_name(name))
    compilers = {_cuirass._compiler_status_name(number): number for number in range(100)}
    found = Status(compilers[name], name) if name in compilers else named(name)
    if found is None:
        import difflib

        known = [_cuirass._status_name(number) for number in range(1000)] + list(compilers)
        near = difflib.get_close_matches(name, [other for other in known if other])
        nearest = f"; the nearest: {', '.join(near)}" if near else ""
        raise ValueError(f"{name!r} is no status of the driver, nor of the compiler{nearest}")
    return found


def _status_of(call: str | None, given: str | int) -> int:
    """The number of a status that a call can return."""
    found = status(given)
    if call is not None and isinstance(given, str):
        library, other = ("compiler", "driver") if call.startswith("nvrtc") else ("driver", "compiler")
        if given.startswith("NVRTC_") != (library == "compiler"):
            raise ValueError(f"{given} is a status of the {other}, and {call} is a call of the {library}")
    return int(found)


def known_calls() -> list[str]:
    """Return the entry points that cuirass calls, of the driver and of the compiler."""
    return _cuirass._known_calls()


def _number_of(thread: "threading.Thread | int | None") -> int | None:
    if thread is None or isinstance(thread, int):
        return thread
    try:
        number = thread.ident
    except AttributeError:
        raise TypeError(f"thread must be a threading.Thread or its ident, not {type(thread).__name__}") from None
    if number is None:
        raise ValueError("the thread was not started")
    return number


class fail:
    """Makes calls of one entry point fail, in a ``with`` block. Blocks in each other make several fail.

    Parameters
    ----------
    call : str or None
        The entry point: ``cuStreamDestroy_v2``; or without the version, in the one that this driver has. ``None`` is
        any of them, of the driver and of the compiler: with ``nth``, each call of an operation fails in turn.
    nth : int
        The first call that fails, counted from 1.
    times : int, optional
        How many fail from there on; ``None`` for all.
    status : str or int, optional
        What they return, by its name or number; of calls of the compiler it is one of the compiler's:
        ``"NVRTC_ERROR_OUT_OF_MEMORY"``. Without it, ``CUDA_ERROR_UNKNOWN``, and ``NVRTC_ERROR_INTERNAL_ERROR`` of calls
        of the compiler.
    done : bool
        Whether the failing call is made all the same: a destroy may return an older error after having worked.
    thread : threading.Thread or int, optional
        Only this thread's calls are counted and fail; a number is one of ``threading.get_ident()``. Without it, those
        of all threads.

    Raises
    ------
    ValueError
        If cuirass makes no such call, there is no such status, it is one of the other library or 0, ``nth`` or
        ``times`` is 0, or the thread was not started. Of the call and of the numbers this is said when the block is
        entered.
    """

    def __init__(
        self,
        call: str | None,
        *,
        nth: int = 1,
        times: int | None = 1,
        status: str | int | None = None,
        done: bool = False,
        thread: "threading.Thread | int | None" = None,
    ) -> None:
        self._call = call
        self._nth = nth
        self._times = times
        self._status = None if status is None else _status_of(call, status)
        self._done = done
        self._thread = _number_of(thread)
        self._fault: _cuirass._Fault | None = None
        self._counts = (0, 0)
        self._first_call: str | None = None

    def __enter__(self) -> "fail":
        if self._fault is not None:
            raise RuntimeError("this fault is in place already")
        self._fault = _cuirass._inject(
            self._call,
            nth=self._nth,
            times=self._times,
            status=self._status,
            done=self._done,
            thread=self._thread,
        )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            self._counts, self._first_call = fault.counts(), fault.first_call()
            fault.remove()

    @property
    def count(self) -> int:
        """How many calls have failed by it. One that is made and fails of itself has not."""
        return self._counts[0] if self._fault is None else self._fault.counts()[0]

    @property
    def first_call(self) -> str | None:
        """The entry point of the first call that has failed by it."""
        return self._first_call if self._fault is None else self._fault.first_call()

    @property
    def seen(self) -> int:
        """How many calls of the entry point were made."""
        return self._counts[1] if self._fault is None else self._fault.counts()[1]


class record:
    """Records the calls that cuirass makes in a ``with`` block.

    Attributes
    ----------
    calls : list of Call
        What was called, in order; there once the block has ended.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._recording: _cuirass._Recording | None = None

    def __enter__(self) -> "record":
        if self._recording is not None:
            raise RuntimeError("this recording goes on already")
        self._recording = _cuirass._record()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            self.calls.extend(Call(*call) for call in recording.take())
            recording.stop()
