"""The whole gauntlet, a process a family; or a part of it in this one."""

import difflib
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
            sweep(of_family(name), told=True)
            return 0
        case ["--operation", name]:
            return 0 if sweep(operations(name), whole=True) else 1
        case ["--faulted", title]:
            return faulted(operations(title, whole_title=True))
        case [*names] if not any(name.startswith("-") for name in names):
            return whole({name: of_family(name) for name in names})
    print(sys.modules[__package__].__doc__)
    return 2


def of_family(name):
    """The operations of a family; ends the program where there is none of that name."""
    known = families()
    if name not in known:
        unknown("family", name, f"there are {', '.join(known)}")
    return known[name]


def operations(name, *, whole_title=False):
    """The operations of a name, or with a title; ends the program where there is none."""
    known = [one for family in families().values() for one in family]
    chosen = [one for one in known if name == one.title or (name == one.name and not whole_title)]
    if not chosen:
        words = dict.fromkeys(
            word for one in known for word in ((one.title,) if whole_title else (one.name, one.title))
        )
        near = difflib.get_close_matches(name, words)
        unknown(
            "operation", name, f"the nearest: {', '.join(near)}" if near else "families/ has a file of them a family"
        )
    return chosen


def unknown(what, name, rest):
    print(f"{WHAT}: there is no {what} {name!r}; {rest}", file=sys.stderr)
    sys.exit(2)


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
