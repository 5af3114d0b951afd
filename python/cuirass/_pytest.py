"""What cuirass gives to pytest: the fixture ``cuirass_fail``."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from .testing import fail


@pytest.fixture
def cuirass_fail() -> Iterator[Callable[..., fail]]:
    """:class:`cuirass.testing.fail` for the rest of a test: a function of its parameters, which puts the fault in place
    and returns it. At the end of the test all of them are gone.
    """
    with contextlib.ExitStack() as faults:

        def put_in_place(*args: object, **kwargs: object) -> fail:
            return faults.enter_context(fail(*args, **kwargs))  # type: ignore[arg-type]

        yield put_in_place
