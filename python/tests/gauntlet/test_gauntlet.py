"""A part of the gauntlet over the package, and the check that every public operation is in it."""

import os
import pathlib
import subprocess
import sys

import pytest

from . import completeness, registry, runner

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.thread_unsafe(reason="other processes")
needs_engine = pytest.mark.skipif(not runner.is_built(), reason="this package is built without the gauntlet's engine")


def gauntlet(*arguments, part):
    return subprocess.run(
        [sys.executable, str(HERE / "__main__.py"), *arguments],
        capture_output=True, text=True, env={**os.environ, "CUIRASS_GAUNTLET": part},
    )  # fmt: skip


def test_every_public_operation_is_registered():
    assert completeness.check() == []


def test_a_new_operation_is_missed(monkeypatch):
    import cuirass

    def scale(stream):
        """What somebody may add."""

    monkeypatch.setattr(scale, "__module__", "cuirass")
    monkeypatch.setattr(cuirass, "scale", scale, raising=False)
    monkeypatch.setattr(cuirass, "__all__", [*cuirass.__all__, "scale"])
    assert completeness.check() == ["scale: a public operation without a place in python/tests/gauntlet"]


def test_names_of_operations_are_theirs_alone():
    titles = [one.title for operations in registry.families().values() for one in operations]
    assert len(titles) == len(set(titles))


# What is asked for that is not there, and what is said then.
ASKED = {
    "a family": (["--family", "nonsense"], "there is no family 'nonsense'; there are context, device, "),
    "families": (["stream", "nonsense"], "there is no family 'nonsense'; there are context, device, "),
    "an operation": (["--operation", "Stream.clos"], "there is no operation 'Stream.clos'; the nearest: Stream.close"),
    "nothing like it": (["--operation", "qqqq"], "there is no operation 'qqqq'; families/ has a file of them a family"),
    "a title": (["--faulted", "Stream.sinc"], "there is no operation 'Stream.sinc'; the nearest: Stream.sync"),
}


@needs_engine
@pytest.mark.parametrize("case", ASKED)
def test_what_is_not_there_is_named_in_one_line(case):
    arguments, said = ASKED[case]
    result = gauntlet(*arguments, part="slice:1")
    assert result.returncode == 2 and result.stdout == "", result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"gauntlet (Python): {said}"), line
    if "famil" in case:
        assert all(name in line for name in registry.families())


@needs_engine
@pytest.mark.timeout(400)
def test_a_part(capfd):
    part = os.environ.get("CUIRASS_GAUNTLET") or ("full" if os.environ.get("CUIRASS_SOAK") else "slice:1")
    result = gauntlet(part=part)
    with capfd.disabled():
        print("", *(line for line in result.stdout.splitlines() if line.startswith("gauntlet (Python)")), sep="\n")
    assert result.returncode == 0, result.stdout + result.stderr
    assert ", 0 violations" in result.stdout.splitlines()[-1]


# What the engine has to find: operations with a mistake in them, as a mistake in the package would look.
PLANTED = {
    "swallows": ("of cuStreamSynchronize raised", 1),
    "raises something else": ("violation of check 1", 1),
    "warns beside": ("violation of check 1", 1),
    "keeps a reference": ("references and has", 3),
    "leaks": ("what is leaked is named in a report", 3),
    "changes the context": ("violation of check 2", 2),
    "ends the process": ("the process ended", 6),
    "holds the interpreter": ("made with it held: cuCtxSynchronize", 7),
}


@needs_engine
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake, tmp_path):
    said, check = PLANTED[mistake]
    program = tmp_path / "planted.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(HERE.parent)!r})\n"
        "from gauntlet import planted\n"
        f"sys.exit(planted.main({mistake!r}, sys.argv[1:]))\n"
    )
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True,
        env={**os.environ, "CUIRASS_GAUNTLET": "full"},
    )  # fmt: skip
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"violation of check {check} in" in result.stdout and said in result.stdout, result.stdout
