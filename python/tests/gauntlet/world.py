"""What operations run in: the contexts of callers, the process at rest, and what Python was told."""

import gc
import pickle
import re
import sys
import time
import warnings

import cuirass

REPORT = re.compile(r"(?P<call>\w+)\(.*?\) failed .*?: (?P<status>(?:CUDA|NVRTC)_ERROR_\w+): ", re.DOTALL)
# What a user's resource raised: the driver's error is in it as a whole.
RAISED = re.compile(r"\w+\.deallocate\(.*?\) raised \w+: (?P<status>CUDA_ERROR_\w+): .*?\((?P<call>cu\w+)", re.DOTALL)
# The same where it was noted on an exception that was passing.
NOTED = re.compile(r".* \(\w+: (?P<text>(?P<status>(?:CUDA|NVRTC)_ERROR_\w+): [^;]*\((?P<call>\w+)[^;]*)", re.DOTALL)


class PassingError(Exception):
    """What passes through a ``with`` block whose own exit fails."""


class World:
    """As ``World`` of ``cuirass-testkit``, for one process."""

    def __init__(self, operations=()):
        makers = [make for one in operations for make in one.makers.values()]
        modules = {getattr(make, "__module__", None) for make in makers}
        # What a family keeps for the process.
        self._for_good = set()
        self._at_rest = [module.at_rest for name in modules if hasattr(module := sys.modules.get(name), "at_rest")]
        self.device = cuirass.Device(0)
        self._other = self.device.create_context()
        # The resource that the device has of itself.
        self._pool = self.device.memory_resource
        self._reports = []
        warnings.resetwarnings()
        warnings.simplefilter("always")
        warnings.showwarning = self._show
        sys.unraisablehook = self._unraisable
        # Nothing is collected in the middle of a run, and what is there for good is not looked at again.
        gc.disable()
        gc.collect()
        gc.freeze()

    def context(self, name):
        return int(self._other.handle if name == "other" else self.device.context.handle)

    def rest(self):
        """Everything that is kept for the process as it was: the primary context retained and the device's own, its
        pool known, all work done."""
        gc.collect()
        self.device.set_current()
        self.device.memory_resource = self._pool
        self.device.properties  # noqa: B018
        for at_rest in self._at_rest:
            at_rest()
        # Where other processes keep the device busy that takes long; what waits for a capture that was given up does so
        # for good, and is waited for once.
        end = time.monotonic() + 5
        while cuirass.drain():
            waiting = set(cuirass._cuirass._gauntlet_waiting())
            if waiting <= self._for_good:
                break
            if time.monotonic() > end:
                print(f"gauntlet (Python): for 5 seconds these have waited: {waiting}", file=sys.stderr, flush=True)
                self._for_good = waiting
                break
            time.sleep(0.0002)
        self.device.sync()

    def _show(self, message, category, filename, lineno, file=None, line=None):
        current = cuirass._cuirass._gauntlet_current()
        text = str(message)
        told = REPORT.match(text) or RAISED.match(text)
        if category is not cuirass.CUDAWarning or told is None:
            self._reports.append(("", None, f"{category.__name__}: {text}", text.split("; ")[1:], current))
            return
        notes = text[told.end() :].split("; ")[1:]
        self._reports.append((told["call"], told["status"], text, notes, current))

    def _unraisable(self, unraisable):
        current = cuirass._cuirass._gauntlet_current()
        text = f"sys.unraisablehook got {unraisable.exc_value!r} ({unraisable.err_msg})"
        self._reports.append(("", None, text, [], current))

    def reports(self):
        reports, self._reports = self._reports, []
        return reports

    def told(self, error):
        """What an exception says: the call, the status's number, its text, its notes, whether it is sticky."""
        notes = list(getattr(error, "__notes__", ()))
        if isinstance(error, PassingError) and notes and (told := NOTED.match(notes[0])):
            number = int(cuirass.testing.status(told["status"])) if told["call"].startswith("cu") else None
            sticky = told["status"] in STICKY
            return told["call"], number, told["text"], [*notes[0].split("; ")[1:], *notes[1:]], sticky
        if not isinstance(error, cuirass.CUDAError):
            return "", None, f"{type(error).__name__}: {error}", notes, False
        number = None if error.status is None or error.needs is not None else int(error.status)
        wrong = wrongs(error)
        text = f"({'; '.join(wrong)}) {error}" if wrong else str(error)
        return error.call, number, text, notes, isinstance(error, cuirass.CUDAStickyError)


def leaving(thing):
    """Leaves a ``with`` block of something, while an exception is passing; raises that if it has been told anything."""
    passing = PassingError("passing")
    try:
        thing.__exit__(PassingError, passing, None)
        if hasattr(passing, "__notes__"):
            raise passing
    finally:
        # Its traceback has this frame.
        del passing


def wrongs(error):
    """What is wrong with a CUDAError, beside what its call and status should be."""
    wrong = []
    expected = cuirass.CUDAError
    if error.sticky:
        expected = cuirass.CUDAStickyError
    elif error.call.startswith("nvrtc"):
        expected = cuirass.NVRTCError
    if type(error) is not expected:
        wrong.append(f"a {type(error).__name__}, and no {expected.__name__}")
    if error.status is not None and not str(error).startswith(str(error.status)) and error.needs is None:
        wrong.append(f"its status is {error.status}")
    if error.__context__ is not None or error.__cause__ is not None:
        wrong.append(f"it hides {error.__cause__ or error.__context__!r}")
    again = pickle.loads(pickle.dumps(error))
    if (type(again), str(again), vars(again)) != (type(error), str(error), vars(error)):
        wrong.append("it does not pickle")
    return wrong


STICKY = {"CUDA_ERROR_ILLEGAL_ADDRESS"}
"""Those of the statuses that the sweep injects which say that the process is lost."""
