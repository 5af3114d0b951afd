"""What cuirass gives to pytest: the fixture ``cuirass_fail``."""

import contextlib
from collections.abc import Callable, Generator, Iterator

import pytest

from .testing import fail

_PASSED = pytest.StashKey[bool]()
"""Whether the test itself has passed: what is wrong with one that has not is told already."""


# In the form that every pytest knows: this is loaded wherever cuirass is installed.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, object, None]:
    outcome = yield
    if call.when == "call" and _PASSED in item.stash:
        item.stash[_PASSED] = outcome.get_result().passed  # type: ignore[attr-defined]


@pytest.fixture
def cuirass_fail(request: pytest.FixtureRequest) -> Iterator[Callable[..., fail]]:
    """:class:`cuirass.testing.fail` for the rest of a test: a function of its parameters, which puts the fault in place
    and returns it. At the end of the test all of them are gone.

    A test that passes although a fault was in no call fails then: it has not tested what it was written for. With
    ``unused_ok=True`` the fault may be in none.
    """
    request.node.stash[_PASSED] = False
    expected: list[fail] = []
    with contextlib.ExitStack() as faults:

        def put_in_place(*args: object, unused_ok: bool = False, **kwargs: object) -> fail:
            fault = faults.enter_context(fail(*args, **kwargs))  # type: ignore[arg-type]
            if not unused_ok:
                expected.append(fault)
            return fault

        yield put_in_place
    unused = [_unused(fault) for fault in expected if fault.count == 0]
    if unused and request.node.stash[_PASSED]:
        pytest.fail("\n".join(unused), pytrace=False)


def _unused(fault: fail) -> str:
    """What is said of a fault that was in no call."""
    call, nth, seen = fault._call, fault._nth, fault.seen
    of = f" of {call}" if call else ""
    on = "" if fault._thread is None else f" on thread {fault._thread}"
    made = f"{seen or 'no'} call{'' if seen == 1 else 's'}{of}{on}"
    if seen < nth:
        why = f"cuirass made {made} while it was in place, and it is in call {nth}"
        advice = f"Have the test make call {nth}{of}, or correct the fault"
        if not seen:
            advice += " (cuirass.testing.record() lists the calls that are made)"
    else:
        why = f"cuirass made {made}, and what it was to be in failed of itself"
        advice = "Have the test make a call that works"
    return (
        f"cuirass_fail({call!r}, nth={nth}): this fault was in no call, so that the test has not tested it: {why}. "
        f"{advice}; if it may be in none, say so: cuirass_fail({call!r}, nth={nth}, …, unused_ok=True)."
    )
