"""Streams."""

import cuirass
from cuirass import EventOptions, Stream

from ..objects import context, device, event, stream
from ..registry import ALL, NEEDS_CURRENT, dropped, getters, operation, pure

TIMED = EventOptions(timing_enabled=True)


def of_another_context():
    """A stream that has the last share of its context."""
    return context().create_stream()


def borrowed(stream):
    return Stream.from_handle(stream.handle)


class Foreign:
    """Another library's stream."""

    def __init__(self):
        self.stream = stream()

    def __cuda_stream__(self):
        return 0, int(self.stream.handle)


OPERATIONS = [
    operation("Stream.close", lambda stream: stream.close(), stream=stream),
    operation("Stream.close", lambda stream: stream.close(), case="the last of its context", stream=of_another_context)
    .allow("reported", "cuCtxDestroy_v2", reason="the context is another object: close() answers for its own"),
    pure("Stream.close", lambda: cuirass.LEGACY_DEFAULT_STREAM.close(), case="a default stream"),
    pure("Stream.close", lambda stream, other: other.close(), case="borrowed", stream=stream, other=borrowed),
    dropped("Stream", stream=stream),
    dropped("Stream", case="the last of its context", stream=of_another_context),
    operation("Stream.sync", lambda stream: stream.sync(), callers=ALL, stream=stream),
    operation("Stream.record", lambda stream, event: stream.record(event), stream=stream, event=event),
    operation("Stream.record", lambda stream: stream.record(), case="a new event", callers=ALL, stream=stream),
    operation("Stream.record", lambda stream: stream.record(options=TIMED), case="a new timed event", stream=stream),
    operation("Stream.wait", lambda stream, event: stream.wait(event), stream=stream, event=event),
    operation("Stream.wait", lambda stream, other: stream.wait(other), case="for a stream",
              stream=stream, other=stream),
    operation("Stream.wait", lambda stream, other: stream.wait(other), case="for another library's stream",
              stream=stream, other=Foreign),
    *getters("Stream", ["is_nonblocking", "priority"], stream=stream),
    *getters("Stream", ["is_closed", "handle", "device", "context"], calls=False, stream=stream),
    operation("Stream.device", lambda stream, other: other.device, case="borrowed", stream=stream, other=borrowed),
    operation("Stream.context", lambda stream, other: other.context, case="borrowed", callers=ALL,
              stream=stream, other=borrowed),
    operation("Stream.context", lambda stream: stream.context, case="a default stream", callers=NEEDS_CURRENT,
              stream=lambda: cuirass.LEGACY_DEFAULT_STREAM),
    pure("Stream.create_graph_builder", lambda stream: stream.create_graph_builder(), stream=stream),
    pure("Stream.from_handle", lambda stream: Stream.from_handle(stream.handle), stream=stream),
    pure("Stream.__cuda_stream__", lambda stream: stream.__cuda_stream__(), stream=stream),
    pure("Stream.__eq__", lambda stream: stream == device().default_stream, stream=stream),
    pure("Stream.__hash__", hash, stream=stream),
    pure("Stream.__repr__", repr, stream=stream),
]  # fmt: skip
