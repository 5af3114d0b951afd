"""The tables of README.md, of what bench.py wrote with --json in so many processes, whoever took part in each.

usage: table.py [--lambda-at-most NS] RUN.json ...    (or lists of such: results/*.json)

With --lambda-at-most only the turns count in which an empty call took at most so long: those of one state of the machine.
"""

import argparse
import json
import pathlib
import statistics

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
    """What a contender took: over the floor where the case has one; Python's less the same process's `lambda`.
    Of several processes the median, the least and the most.
    """
    values, has_floor = [], False
    for run in runs:
        row = run.get(case)
        if row is None or who not in row["median"]:
            continue
        has_floor = "c" in row["over"]
        value = row["over"][who] if has_floor and who != "c" else row["median"][who]
        if who in ("cuirass", "least", "cuda.core", "cupy"):
            value -= run["lambda"]["median"]["least"]
        values.append(value)
    if not values:
        return ""
    sign = "+" if has_floor and who != "c" else ""
    text = f"{statistics.median(values):{sign}.0f}"
    if len(values) > 1:
        text += f" [{min(values):{sign}.0f}..{max(values):{sign}.0f}]"
    return text if bound is None else f"{text} ({bound})"


def chosen_turns(runs, case, most):
    """The turns of all processes in which an empty call took at most so long, each with the number of its process."""
    for number, run in enumerate(runs):
        turns = run.get(case, {}).get("turns", {})
        for at, loop in enumerate(turns.get("lambda", [])):
            if loop <= most:
                yield number, {who: values[at] for who, values in turns.items()}


def table_of_turns(runs, most):
    shown = ["c", "c-again", "cuirass-rs", "cuirass", "least"]
    print(f"| case | turns (processes) | {' | '.join(HEADS[who] for who in shown)} |")
    print("|---" * (len(shown) + 2) + "|")
    for case, (name, python, rust) in ROWS.items():
        turns = list(chosen_turns(runs, case, most))
        if not turns:
            continue
        cells = [f"{len(turns)} ({len({number for number, _ in turns})})"]
        for who in shown:
            # Over the floor where the case has one; Python's less the empty call of the same turn.
            values = [
                turn[who] - turn.get("c", 0) * (who != "c") - turn["lambda"] * (who in ("cuirass", "least"))
                for _, turn in turns
                if who in turn
            ]
            bound = {"cuirass": f" ({python})", "cuirass-rs": f" ({rust})"}.get(who, "")
            sign = "+" if who != "c" and "c" in turns[0][1] else ""
            cells.append(f"{statistics.median(values):{sign}.0f}{bound}" if values else "")
        print(f"| {name} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lambda-at-most", type=float)
    parser.add_argument("runs", nargs="+")
    arguments = parser.parse_args()
    runs = []
    for path in arguments.runs:
        read = json.loads(pathlib.Path(path).read_text())
        runs.extend(read if isinstance(read, list) else [read])
    if arguments.lambda_at_most is not None:
        table_of_turns(runs, arguments.lambda_at_most)
        return
    print(f"| case | {' | '.join(HEADS.values())} |")
    print("|---" * (len(HEADS) + 1) + "|")
    for case, (name, python, rust) in ROWS.items():
        bounds = {"cuirass": python, "cuirass-rs": rust}
        print(f"| {name} | {' | '.join(cell(runs, case, who, bounds.get(who)) for who in HEADS)} |")
    loops = sorted(run["lambda"]["median"]["least"] for run in runs)
    print("\nlambda: " + ", ".join(f"{value:.0f}" for value in loops))


if __name__ == "__main__":
    main()
