"""The fixture ``cuirass_fail``: a fault of it that was in no call fails a test that passes otherwise."""

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="other processes")

FIXTURES = """
import threading
import pytest
import cuirass
from cuirass import CUDAError

def timed(device):
    return device.create_event(options=cuirass.EventOptions(timing_enabled=True))

@pytest.fixture
def device():
    device = cuirass.Device(0)
    device.set_current()
    return device

@pytest.fixture
def stream(device):
    return device.create_stream()

@pytest.fixture
def closed_later(cuirass_fail, device):
    stream = device.create_stream()
    yield
    with pytest.raises(CUDAError):
        stream.close()
"""

# What the faults are, what is done then, and what is said of them.
UNUSED = {
    "no call": (
        ["'cuStreamSynchronize'"], "pass",
        ["cuirass_fail('cuStreamSynchronize', nth=1)", "no calls of cuStreamSynchronize while it was in place",
         "and it is in call 1", "Have the test make call 1 of cuStreamSynchronize"],
    ),
    "too few calls": (
        ["'cuStreamSynchronize', nth=3, status=2"], "stream.sync(); stream.sync()",
        ["'cuStreamSynchronize', nth=3", "cuirass made 2 calls of cuStreamSynchronize while", "it is in call 3"],
    ),
    "one call": (["'cuStreamSynchronize', nth=2"], "stream.sync()", ["made 1 call of cuStreamSynchronize while"]),
    "any call": (["None, nth=1000, times=None"], "stream.sync()", ["cuirass_fail(None, nth=1000)", " call 1000,"]),
    "another call": (["'cuEventQuery'"], "stream.sync()", ["made no calls of cuEventQuery", "record() lists"]),
    "another thread": (
        ["'cuStreamSynchronize', thread=threading.get_ident() + 1"], "stream.sync()",
        ["made no calls of cuStreamSynchronize on thread "],
    ),
    "one of two": (
        ["'cuStreamSynchronize'", "'cuEventQuery'"], "\n    with pytest.raises(CUDAError):\n        stream.sync()",
        ["cuirass_fail('cuEventQuery', nth=1)"],
    ),
    "two": (["'cuEventQuery'", "'cuEventRecord'"], "stream.sync()", ["of cuEventQuery", "of cuEventRecord"]),
    "removed before": (["'cuEventQuery'"], "fault.__exit__(None, None, None)", ["made no calls of cuEventQuery"]),
    "its call fails of itself": (
        ["'cuEventElapsedTime', done=True"],
        "with pytest.raises(RuntimeError):\n        timed(device) - timed(device)",
        ["made 1 call of cuEventElapsedTime, and what it was to be in failed of itself"],
    ),
}  # fmt: skip


def with_faults(case, *, also=""):
    faults, then, _ = UNUSED[case]
    lines = [f"    fault = cuirass_fail({fault}{also})\n" for fault in faults]
    return f"def test_it(device, stream, cuirass_fail):\n{''.join(lines)}    {then}\n"


# Tests that are told of already, or whose fault was in a call.
QUIET = {
    "used": ("def test_it(stream, cuirass_fail):\n    cuirass_fail('cuStreamSynchronize')\n"
             "    with pytest.raises(CUDAError):\n        stream.sync()\n", "passed"),
    "used with unused_ok": (
        "def test_it(stream, cuirass_fail):\n    cuirass_fail('cuStreamSynchronize', unused_ok=True)\n"
        "    with pytest.raises(CUDAError):\n        stream.sync()\n", "passed"),
    "used by a fixture's end": (
        "def test_it(closed_later, cuirass_fail):\n    cuirass_fail('cuStreamDestroy', done=True)\n", "passed"),
    "no fault": ("def test_it(cuirass_fail):\n    pass\n", "passed"),
    "no fixture": ("def test_it():\n    pass\n", "passed"),
    "fails": (
        "def test_it(cuirass_fail):\n    cuirass_fail('cuEventQuery')\n    assert False\n", "failure"),
    "skips": ("def test_it(cuirass_fail):\n    cuirass_fail('cuEventQuery')\n    pytest.skip('so')\n", "skipped"),
    "xfails": ("@pytest.mark.xfail\ndef test_it(cuirass_fail):\n    cuirass_fail('cuEventQuery')\n    assert False\n",
               "skipped"),
    "is not begun": (
        "@pytest.fixture\ndef broken(cuirass_fail):\n    cuirass_fail('cuEventQuery')\n    assert False\n"
        "def test_it(broken):\n    pass\n", "error"),
    "refused": ("def test_it(cuirass_fail):\n    with pytest.raises(ValueError):\n        cuirass_fail('cuAbsent')\n",
                "passed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each of those tests ended in a process of pytest's own: a word, and what was said."""
    folder = tmp_path_factory.mktemp("tests")
    tests = {("unused", case): with_faults(case) for case in UNUSED}
    tests |= {("meant", case): with_faults(case, also=", unused_ok=True") for case in UNUSED}
    tests |= {("quiet", case): test for case, (test, _) in QUIET.items()}
    # In one file: what one was like says nothing of the next.
    names = {key: f"test_number_{number}" for number, key in enumerate(tests)}
    source = [test.replace("test_it", names[key]) for key, test in tests.items()]
    (folder / "test_them.py").write_text(FIXTURES + "\n".join(source))
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=told.xml", "test_them.py"],
        capture_output=True, text=True, timeout=100, cwd=folder,
    )  # fmt: skip
    assert process.returncode == 1 and process.stderr == "", process.stdout + process.stderr
    cases = {case.get("name"): list(case) for case in ET.parse(folder / "told.xml").iter("testcase")}
    return {key: outcome(cases[name]) for key, name in names.items()}


def outcome(told):
    """What pytest wrote of a test."""
    if not told:
        return "passed", ""
    said = "\n".join(one.text or one.get("message") for one in told)
    [kind] = {one.tag for one in told}
    return (f"{kind} at its end" if "failed on teardown" in told[0].get("message") else kind), said


@pytest.mark.parametrize("case", UNUSED)
def test_a_fault_in_no_call_fails_the_test(case, ended):
    word, said = ended["unused", case]
    assert word == "error at its end"
    for text in [*UNUSED[case][2], "this fault was in no call", "unused_ok=True"]:
        assert text in said, said
    assert said.count("this fault was in no call") == (2 if case == "two" else 1), said


@pytest.mark.parametrize("case", UNUSED)
def test_it_may_be_said_that_this_is_meant(case, ended):
    assert ended["meant", case] == ("passed", "")


@pytest.mark.parametrize("case", QUIET)
def test_nothing_is_said_of_other_tests(case, ended):
    word, said = ended["quiet", case]
    assert word == QUIET[case][1], said
    assert "was in no call" not in said
