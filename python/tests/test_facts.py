"""What was measured on a real driver, measured again on the one that the tests run on."""

import json
import pathlib
import subprocess
import sys
import tomllib

import pytest

from .conftest import driver_version, is_sim

FACTS = pathlib.Path(__file__).parents[2] / "facts"
pytestmark = pytest.mark.thread_unsafe(reason="other processes")


def rows_of(text):
    rows = [json.loads(line) for line in text.splitlines()]
    return {(row.pop("about"), row.pop("call")): row for row in rows}


def test_memory():
    script = [sys.executable, str(FACTS / "measure_memory.py")]
    simulated = [sys.executable, "-m", "cuirass", "sim", "--"] if is_sim() else []
    done = subprocess.run([*simulated, *script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found, wanted = rows_of(done.stdout), rows_of((FACTS / "memory.jsonl").read_text())
    if not any(about == "two devices" for about, _call in found):
        wanted = {key: row for key, row in wanted.items() if key[0] != "two devices"}
    if driver_version() < (13, 0):
        newer = ("default pool", "managed memory")
        wanted = {key: row for key, row in wanted.items() if not any(text in key[0] for text in newer)}
    differences = tomllib.loads((FACTS / "differences.toml").read_text())["difference"]
    listed = {(entry["scene"], call): entry for entry in differences for call in entry["steps"]} if is_sim() else {}
    # Whether addresses are given right behind others is chance; what needs them there was not measured then.
    chance = ("reserve right behind", "fill two in two reservations", "fill all")
    for key, row in wanted.items():
        if key[1] in chance and found.get((key[0], chance[0])) == {"status": "SUCCESS", "value": "elsewhere"}:
            continue
        if key in listed:
            assert (row["status"], found[key]["status"]) == (listed[key]["real"], listed[key]["simulated"]), key
        else:
            assert found.get(key) == row, key
