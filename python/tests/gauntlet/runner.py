"""The whole gauntlet, a process a family; or a part of it in this one."""

import os
import sys

os.environ.setdefault("CUIRASS_DRIVER", "sim")
if os.environ["CUIRASS_DRIVER"] == "sim":
    given = [word for word in os.environ.get("CUIRASS_SIM", "").split(",") if word]
    wanted = ["devices=2", "quiet=1"] + (["ptx=any"] if "driver=" in ",".join(given) else [])
    known = {word.partition("=")[0].strip() for word in given}
    os.environ["CUIRASS_SIM"] = ",".join(given + [word for word in wanted if word.partition("=")[0] not in known])

import cuirass

from . import completeness
from .registry import families

WHAT = "gauntlet (Python)"


def is_built():
    """Whether the package has the engine."""
    return hasattr(cuirass._cuirass, "_gauntlet_sweep")


def main(arguments):
    if not is_built():
        print("gauntlet (Python): this package is built without its engine: maturin develop --features gauntlet")
        return 2
    match arguments:
        case []:
            return whole(families())
        case ["--family", name]:
            sweep(families()[name], told=True)
            return 0
        case ["--operation", name]:
            chosen = [one for one in operations() if name in (one.name, one.title)]
            return 0 if sweep(chosen, whole=True) else 1
        case ["--faulted", title]:
            return faulted([one for one in operations() if one.title == title])
        case [*names] if not any(name.startswith("-") for name in names):
            return whole({name: families()[name] for name in names})
    print(sys.modules[__package__].__doc__)
    return 2


def operations():
    return [one for family in families().values() for one in family]


def sweep(chosen, *, whole=False, told=False, fault=None):
    from .world import World

    return cuirass._cuirass._gauntlet_sweep(WHAT, chosen, World(chosen), whole, told, fault)


def faulted(chosen):
    from .objects import lose_the_context

    sweep(chosen, told=True, fault=lose_the_context)
    return 0


def whole(chosen):
    """Everything, a process a family; after that, a process an operation in a context that is lost."""
    wrong = completeness.check()
    for text in wrong:
        print(f"not registered: {text}")
    if os.environ["CUIRASS_DRIVER"] == "gpu":
        print(f"{WHAT}: over the system's driver", flush=True)
    run = cuirass._cuirass._gauntlet_run
    this = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")]
    # The longest first, so that no process is left with one of them at the end.
    names = sorted(chosen, key=lambda name: -len(chosen[name]))
    titles = [one.title for name in names for one in chosen[name] if one.ends != "makes no call"]
    part = cuirass._cuirass._gauntlet_slice()
    if part is not None:
        seed, one_in = part
        titles = titles[seed % one_in :: one_in * 8]
    lost = run(f"{WHAT}, in a context lost to a kernel's fault", [(t, [*this, "--faulted", t]) for t in titles])
    found = run(WHAT, [(name, [*this, "--family", name]) for name in names])
    return 1 if wrong or lost or found else 0
