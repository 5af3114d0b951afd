"""The simulated device: for machines without a GPU, and for tests.

It is a shared library with the driver's interface. ``CUIRASS_DRIVER=sim`` chooses it for a process, and so does
:func:`use` before the first call; ``CUIRASS_SIM`` shapes it, as in ``CUIRASS_SIM=devices=2,arch=90,memory=4GiB``.
"""

import json
import os
from typing import Any

from . import _cuirass

__all__ = [
    "calls",
    "census",
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
        If another driver is loaded already, or this package has no simulator.
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
        If the simulator is not in use; the same holds for the other functions here.
    """
    counts: dict[str, int] = json.loads(_cuirass._sim_text("census"))
    return counts


def objects() -> list[dict[str, Any]]:
    """Return every object that is alive in the simulator: its kind, its handle, its context."""
    return [json.loads(line) for line in _cuirass._sim_text("objects").splitlines()]


def state() -> dict[str, Any]:
    """Return the simulator's configuration, devices and contexts."""
    facts: dict[str, Any] = json.loads(_cuirass._sim_text("state"))
    return facts


def calls() -> dict[str, int]:
    """Return how often the process has made each driver call."""
    counts: dict[str, int] = json.loads(_cuirass._sim_text("calls"))
    return counts


def pending() -> int:
    """Return how much work is on all streams that is not done."""
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
    """Make the order of work on different streams deterministic, by a seed; free again with ``None``."""
    _cuirass._sim_seed(value)
