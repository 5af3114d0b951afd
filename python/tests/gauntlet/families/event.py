"""Events."""

import operator

from cuirass import EventOptions

from ..objects import context, event, stream
from ..registry import ALL, dropped, getters, operation, pure

TIMED = EventOptions(timing_enabled=True)


def timed():
    """An event that has come."""
    made = stream().record(options=TIMED)
    made.sync()
    return made


def of_another_context():
    return context().create_stream().record()


def refused(function):
    """What is not available yet, or not of such an object: it says so before any call."""

    def operate(*objects):
        try:
            function(*objects)
        except (NotImplementedError, RuntimeError, TypeError):
            return
        raise AssertionError("it was to be refused")

    return operate


OPERATIONS = [
    operation("Event.close", lambda event: event.close(), event=event),
    operation("Event.close", lambda event: event.close(), case="the last of its context", event=of_another_context)
    .allow("reported", "cuCtxDestroy_v2", reason="the context is another object: close() answers for its own"),
    dropped("Event", event=event),
    dropped("Event", case="the last of its context", event=of_another_context),
    operation("Event.sync", lambda event: event.sync(), callers=ALL, event=event),
    operation("Event.is_done", lambda event: event.is_done, callers=ALL, event=event),
    operation("Event.__sub__", lambda start, end: end - start, start=timed, end=timed),
    pure("Event.__rsub__", refused(lambda event: 1 - event), event=event),
    pure("Event.__isub__", refused(lambda event: operator.isub(event, 1)), event=event),
    *getters("Event", ["is_closed", "is_ipc_enabled", "is_timing_enabled", "is_blocking_sync", "handle", "device",
                       "context"], calls=False, event=event),
    pure("Event.ipc_descriptor", refused(lambda event: event.ipc_descriptor), event=event),
    pure("Event.from_ipc_descriptor", refused(lambda event: event.from_ipc_descriptor(b"")), event=event),
    pure("Event.__reduce__", refused(lambda event: event.__reduce__()), event=event),
    pure("Event.__eq__", lambda event: event == 3, event=event),
    pure("Event.__hash__", hash, event=event),
    pure("Event.__repr__", repr, event=event),
]  # fmt: skip
