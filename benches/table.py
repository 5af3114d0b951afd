"""The table of README.md, of what bench.py wrote with --json: of all contenders, and of cuirass by itself.

usage: table.py bench.json bench-own.json
"""

import json
import pathlib
import sys

# In brackets: at most so much over the floor, in Python and in Rust; of rows without a floor, in all.
ROWS = {
    "device_ctor": ("Device(0), in all", 130, 5),
    "set_current": ("set_current", 80, 10),
    "stream_create_close": ("stream create + close", 400, 80),
    "event_create_close": ("event create + close", 300, 40),
    "event_record": ("event record", 110, 10),
    "event_query": ("event query", 90, 10),
    "stream_sync_idle": ("stream sync, idle", 110, 10),
    "alloc_free_256": ("pool alloc 256 B + free", 400, 60),
    "launch_config": ("LaunchConfig, in all", 350, 5),
    "launch_0": ("launch, 0 arguments", 180, 20),
    "launch_2": ("launch, buffer + int", 280, 30),
    "launch_16": ("launch, 16 arguments", 650, 60),
    "copy_d2d_256": ("copy 256 B device to device", 150, 15),
    "fill_256": ("fill 256 B", 150, 15),
    "graph_launch_10": ("graph launch, 10 nodes", 160, 15),
    "capture_10_complete": ("capture 10 launches, instantiate, close", 4000, 600),
    "smv_numpy": ("StridedMemoryView of a numpy array, in all", 400, None),
    "smv_torch": ("StridedMemoryView of a torch tensor, in all", 350, None),
    "smv_cupy": ("StridedMemoryView of a CuPy array, in all", 600, None),
}
HEADS = {
    "c": "C",
    "c-again": "C again",
    "cuirass-rs": "cuirass, Rust",
    "cuirass": "cuirass, Python",
    "least": "least, Python",
    "cuda.core": "cuda.core 1.2",
    "cupy": "CuPy",
    "cudarc": "cudarc",
}


def cell(runs, case, who, bound):
    """What a contender took in each run: over the floor where the case has one; Python's less the loop's `lambda`."""
    values = []
    for run in runs:
        row = run.get(case)
        if row is None or who not in row["median"]:
            continue
        has_floor = "c" in row["over"]
        value = row["over"][who] if has_floor and who != "c" else row["median"][who]
        if who in ("cuirass", "least", "cuda.core", "cupy"):
            value -= run["lambda"]["median"]["least"]
        values.append(f"{value:+.0f}" if has_floor and who != "c" else f"{value:.0f}")
    text = ", ".join(values)
    return f"{text} ({bound})" if values and bound is not None else text


def main():
    runs = [json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:]]
    print(f"| case | {' | '.join(HEADS.values())} |")
    print("|---" * (len(HEADS) + 1) + "|")
    for case, (name, python, rust) in ROWS.items():
        bounds = {"cuirass": python, "cuirass-rs": rust}
        print(f"| {name} | {' | '.join(cell(runs, case, who, bounds.get(who)) for who in HEADS)} |")
    print("\nlambda: " + ", ".join(f"{run['lambda']['median']['least']:.0f}" for run in runs))


if __name__ == "__main__":
    main()
