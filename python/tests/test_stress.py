"""A few seconds of the stress test, which runs for minutes by itself: see stress.py."""

import os
import pathlib
import subprocess
import sys

import pytest

STRESS = pathlib.Path(__file__).parent / "stress.py"


@pytest.mark.thread_unsafe(reason="another process")
@pytest.mark.timeout(300)
def test_a_few_seconds():
    seconds = os.environ.get("CUIRASS_STRESS_SECONDS", "9")
    result = subprocess.run(
        [sys.executable, str(STRESS), "--seconds", seconds, "--seed", "3"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1].endswith(" 0 violations")


@pytest.mark.thread_unsafe(reason="another process")
@pytest.mark.parametrize(
    ("mistake", "said"),
    {
        "self.told.report = lambda text: None": "failures were injected",
        "self.things_for_ever = [cuirass.Device(0).create_event()]": "event: ",
    }.items(),
    ids=["a report that is lost", "an event that is leaked"],
)
def test_a_mistake_is_found(mistake, said, tmp_path):
    """In a copy of it, as a mistake in the package would look."""
    text = STRESS.read_text()
    place = "        workers = [Worker("
    assert text.count(place) == 1
    program = tmp_path / "stress.py"
    program.write_text(text.replace(place, f"        {mistake}\n{place}"))
    result = subprocess.run(
        [sys.executable, str(program), "--seconds", "6", "--threads", "4"], capture_output=True, text=True
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert said in result.stderr, result.stderr
