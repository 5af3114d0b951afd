"""Operations, as the registry has them: what each needs, what it does, how it may end."""

import inspect
import pathlib
import sys
from dataclasses import dataclass, field

ALL = ("nothing", "other", "primary")
"""What a caller may have current: no context, one that is not the operation's, the device's primary one."""
NEEDS_CURRENT = ("other", "primary")
"""For what is about the current context: with none there is nothing to do."""


@dataclass
class Operation:
    """A public operation with what it needs. The engine reads the first lines; see ``cuirass-testkit``."""

    name: str
    function: object
    makers: dict
    ends: str = "raises"
    case: str = ""
    callers: tuple = ("nothing", "other")
    submits: bool = False
    needs: int = 0
    allowed: list = field(default_factory=list)
    keeps: tuple = ()
    dropped: str | None = None
    follow: object = None

    @property
    def title(self):
        return f"{self.name}: {self.case}" if self.case else self.name

    def prepare(self):
        return Prepared(self)

    def allow(self, what, names=(), *, reason):
        """Lets something pass that the checks would not: ``reported``, ``stays``, ``sets current``,
        ``leaks together``, ``keeps answers``, ``says``."""
        self.allowed.append((what, [names] if isinstance(names, str) else list(names), reason))
        return self


class Prepared:
    """An operation's objects, made anew for each run."""

    def __init__(self, operation):
        self.operation = operation
        self.objects = made = {}
        for name, make in operation.makers.items():
            made[name] = make(*(made[needed] for needed in inspect.signature(make).parameters))
        self.counts = None

    def operate(self):
        operation = self.operation
        self.counts = self.references()
        if operation.dropped:
            del self.objects[operation.dropped]
            return None
        return operation.function(*self.objects.values())

    def follow_up(self):
        from .objects import works

        if self.operation.follow:
            self.operation.follow(self.objects)
            return
        for thing in self.objects.values():
            works(thing)

    def __del__(self):
        from .objects import put_away

        for thing in self.everything():
            put_away(thing)

    def everything(self):
        for value in self.objects.values():
            yield from value if isinstance(value, (tuple, list)) else (value,)

    def references(self):
        """How many references there are to each object that is not the operation's to drop or to keep."""
        counts = {}
        for name, value in self.objects.items():
            things = value if isinstance(value, (tuple, list)) else (value,)
            for at, thing in enumerate(things):
                if name not in self.operation.keeps and name != self.operation.dropped:
                    counts[f"{name}[{at}]"] = sys.getrefcount(thing)
        return counts

    def remarks(self):
        """What the collector would never mend: references that an operation has left behind, or taken away."""
        if self.counts is None:
            return []
        now = self.references()
        return [
            f"{name} had {before} references and has {now[name]}"
            for name, before in self.counts.items()
            # What is dropped lets go of what it refers to.
            if now.get(name, before) > before or (now.get(name, before) < before and not self.operation.dropped)
        ]


def operation(name, function, *, case="", callers=None, submits=False, needs=0, keeps=(), follow=None, **makers):
    """An operation that raises its error.

    ``makers`` make the objects that it needs, in order: functions, whose parameters are the names of objects made
    before. ``function`` gets them all, as positional arguments. ``follow`` is the follow-up, where it is not that each
    object works; it gets the objects by name. ``keeps`` names objects that may be referred to afterwards.
    """
    return Operation(
        name, function, makers, case=case, callers=callers or ("nothing", "other"), submits=submits, needs=needs,
        keeps=(keeps,) if isinstance(keeps, str) else tuple(keeps), follow=follow,
    )  # fmt: skip


def pure(name, function, *, case="", keeps=(), needs=0, **makers):
    """An operation that makes no call at all, which is checked."""
    made = operation(name, function, case=case, callers=("nothing",), keeps=keeps, needs=needs, **makers)
    made.ends = "makes no call"
    return made


def dropped(kind, *, case="", callers=None, keeps=(), needs=0, **makers):
    """The last object that is made is dropped: it can raise nothing, and its failures are reported."""
    made = operation(f"{kind} (dropped)", None, case=case, callers=callers, keeps=keeps, needs=needs, **makers)
    made.ends, made.dropped = "reports", list(makers)[-1]
    return made


def reporting(name, function, **rest):
    """An operation that is called as the interpreter does: it can raise nothing, and its failures are reported."""
    made = operation(name, function, **rest)
    made.ends = "reports"
    return made


def getters(kind, names, *, calls=True, **makers):
    """An operation for each of the properties of an object, which is the last that is made."""
    make = operation if calls else pure
    return [make(f"{kind}.{name}", lambda *made, _name=name: getattr(made[-1], _name), **makers) for name in names]


def families():
    """Every family's operations, by its name: each module in ``families/`` has a list ``OPERATIONS``."""
    import importlib

    folder = pathlib.Path(__file__).parent / "families"
    names = sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
    return {name: importlib.import_module(f"{__package__}.families.{name}").OPERATIONS for name in names}
