"""The simulated device: for machines without a GPU, and for tests.

It is a shared library with the driver's interface. ``CUIRASS_DRIVER=sim`` chooses it for a process, and so does
:func:`use` before the first call; ``CUIRASS_SIM`` shapes it, as in ``CUIRASS_SIM=devices=2,arch=90,memory=4GiB``.
"""

import json
import os
from collections import namedtuple
from types import TracebackType
from typing import Any

from . import _cuirass

__all__ = [
    "Finding",
    "calls",
    "census",
    "check_order",
    "is_active",
    "library",
    "objects",
    "pending",
    "reports",
    "reports_mark",
    "seed",
    "state",
    "use",
]


Finding = namedtuple("Finding", ("rule", "call", "text"))
Finding.__doc__ = (
    """What :class:`check_order` found: the rule, the call it is about, a sentence that names both places."""
)


def library() -> str | None:
    """Return the path of the simulator's library in this package; ``None`` if it was built without."""
    return _cuirass._sim_library()


def use(path: str | None = None) -> None:
    """Use the simulator in this process. To be called before anything loads a driver.

    Parameters
    ----------
    path : str, optional
        The simulator's library; without it, what ``CUIRASS_SIM_LIBRARY`` names, else this package's own.

    Raises
    ------
    RuntimeError
        If the system's driver is loaded already, or this package has no simulator. A simulator that is loaded already
        is kept, wherever it is from.
    """
    path = path or os.environ.get("CUIRASS_SIM_LIBRARY") or library()
    if path is None:
        raise RuntimeError("this package was built without the simulator: give its path")
    _cuirass._sim_use(path)


def is_active() -> bool:
    """Return whether the driver that is loaded is the simulator. Loads nothing."""
    loaded = _cuirass._loaded_driver()
    return loaded is not None and loaded[2]


def census() -> dict[str, int]:
    """Return how many objects of each kind are alive in the simulator.

    Raises
    ------
    RuntimeError
        If another driver is in use; the same holds for all functions here that ask the simulator: all but
        :func:`library`, :func:`use` and :func:`is_active`.
    """
    counts: dict[str, int] = json.loads(_cuirass._sim_text("census"))
    return counts


def objects() -> list[dict[str, Any]]:
    """Return every object that is alive in the simulator: its kind, its handle, its context."""
    return [json.loads(line) for line in _cuirass._sim_text("objects").splitlines()]


def state() -> dict[str, Any]:
    """Return the simulator's configuration, devices and contexts, and what the order checker remembers."""
    facts: dict[str, Any] = json.loads(_cuirass._sim_text("state"))
    return facts


def calls() -> dict[str, int]:
    """Return how often the process has made each driver call."""
    counts: dict[str, int] = json.loads(_cuirass._sim_text("calls"))
    return counts


def pending() -> int:
    """Return how many operations (copies, fills, kernels, waits) are on all streams that are not done."""
    return _cuirass._sim_number("pending")


def reports_mark() -> int:
    """Return the number that the next report will have: a mark for :func:`reports`."""
    return _cuirass._sim_number("reports_mark")


def reports(since: int = 0) -> list[dict[str, Any]]:
    """Return what the simulator has reported: bugs of the program, what it does not simulate, faults of kernels.

    Parameters
    ----------
    since : int
        A mark: only reports from it on.
    """
    return [json.loads(line) for line in _cuirass._sim_reports(since).splitlines()]


def seed(value: int | None) -> None:
    """Make the order of work on different streams deterministic, by a seed; free again with ``None``.

    Raises
    ------
    ValueError
        If the seed is negative, or has more than 64 bits.
    """
    _cuirass._sim_seed(value)


class check_order:
    """Finds uses of memory that no order between streams makes safe, in a ``with`` block.

    Work in two streams is ordered by an event that one records and the other waits for, by a wait of the host between
    the two calls (for a stream, an event, the device; or a query that was answered "done"), by the legacy default
    stream, by the edges of a graph. Two uses of the same bytes that are not, one of them a write, are a finding even
    if they happened to run one after the other this time::

        with cuirass.sim.check_order() as order:
            ...
        assert not order.findings

    The rules are ``"race"``, ``"use before ready"`` (memory of a pool in a stream that does not wait for its
    allocation), ``"use after release"``, ``"release too early"``, ``"host read too early"`` and ``"host write too
    early"``. A block waits at its end until all work is done, or has had 10 seconds. ``CUIRASS_SIM=check=order``
    checks a whole process; what is found is among :func:`reports`, of kind ``"order"``.

    Copies, fills and the accesses of kernels are seen, byte by byte; atomic and volatile accesses of kernels do not
    count against each other. The host's own accesses of page-locked and managed memory, through plain pointers, are
    seen on pages on which there is nothing but what the work uses: the pages are protected meanwhile, and a system
    call that is given such memory answers ``EFAULT``. They are not seen in the moments in which the work itself runs on
    the page, nor are those of registered memory. All threads of the host count as one. What another process does is not
    seen: to wait for its event counts as waiting for all that this process had by then recorded in events that it
    shares. Order that is made through memory, and memory that is mapped at two addresses, are not understood. What is
    remembered is bounded (``state()["order"]`` counts it): of the work of many streams and graph launches that the host
    has not waited for, the oldest counts as being before all that comes.

    Raises
    ------
    RuntimeError
        If the simulator is not in use.
    """

    def __init__(self) -> None:
        self._mark: int | None = None
        self._on = False
        self._findings: list[Finding] | None = None

    def __enter__(self) -> "check_order":
        if self._on:
            raise RuntimeError("this block is entered already")
        _cuirass._sim_check_order(True)
        self._on = True
        self._mark = reports_mark()
        self._findings = None
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._on = False
        _cuirass._sim_check_order(False)
        self._findings = self._read()

    def _read(self) -> list[Finding]:
        found = [report for report in reports(self._mark or 0) if report["kind"] == "order"]
        parts = [(report["call"], *report["text"].partition(": ")) for report in found]
        return [Finding(rule, call, text) for call, rule, _, text in parts]

    @property
    def findings(self) -> list[Finding]:
        """What has been found since the block began; complete once it has ended.

        Raises
        ------
        RuntimeError
            If the block has not been entered.
        """
        if self._mark is None:
            raise RuntimeError("nothing has been checked: use it in a with block")
        return self._read() if self._on or self._findings is None else self._findings
