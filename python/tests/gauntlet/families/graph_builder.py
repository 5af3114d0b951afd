"""Graphs by capture: builders and conditions."""

import ctypes
import os
import tempfile

from cuirass.graph import GraphBuilder

from ..objects import builder, ended, memory, not_begun, run_captured, stream
from ..registry import ALL, dropped, getters, operation, pure, reporting
from ..world import leaving

PICTURE = os.path.join(tempfile.gettempdir(), f"cuirass-gauntlet-{os.getpid()}.dot")


def forks(builder):
    return builder.split(3)


def condition(builder):
    return builder.create_condition(0)


class Counter:
    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def c_function(_data):
    pass


CAPTURE = dict(memory=memory, builder=builder)
ENDED = dict(memory=memory, builder=ended)
CONDITION = dict(memory=memory, builder=builder, condition=condition)

OPERATIONS = [
    operation("GraphBuilder.begin_building", lambda builder: builder.begin_building("relaxed"), builder=not_begun),
    operation("GraphBuilder.begin_building", lambda builder: builder.begin_building("global"), case="global",
              builder=not_begun),
    operation("GraphBuilder.is_building", lambda memory, builder: builder.is_building, **CAPTURE),
    operation("GraphBuilder.end_building", lambda memory, builder: builder.end_building(), **CAPTURE),
    operation("GraphBuilder.complete", lambda memory, builder: builder.complete(), callers=ALL, **ENDED),
    operation("GraphBuilder.split", lambda memory, builder: builder.split(3), **CAPTURE)
    .allow("stays", "stream", reason="a stream that may have joined the capture is kept until that ends"),
    operation("GraphBuilder.join", lambda memory, builder, forks: GraphBuilder.join(*forks), keeps="forks",
              memory=memory, builder=builder, forks=forks),
    operation("GraphBuilder.embed", lambda memory, builder, other, child: builder.embed(child),
              memory=memory, builder=builder, other=memory, child=lambda other: ended(other)),
    operation("GraphBuilder.callback", lambda memory, builder, called: builder.callback(called), follow=run_captured,
              keeps="called", memory=memory, builder=builder, called=Counter),
    operation("GraphBuilder.callback", lambda memory, builder: builder.callback(c_function, user_data=b"data"),
              case="a C function", follow=run_captured, **CAPTURE),
    operation("GraphBuilder.debug_dot_print", lambda memory, builder: builder.debug_dot_print(PICTURE), **ENDED),
    pure("GraphBuilder.graph_definition", lambda memory, builder: builder.graph_definition, **ENDED),
    pure("GraphBuilder.close", lambda stream, builder: builder.close(), case="before it begins", stream=stream,
         builder=lambda stream: stream.create_graph_builder()),
    operation("GraphBuilder.close", lambda memory, builder: builder.close(), case="building", **CAPTURE),
    operation("GraphBuilder.close", lambda memory, builder: builder.close(), case="ended", **ENDED),
    dropped("GraphBuilder", case="building", **CAPTURE)
    .allow("says", "was dropped while it was building", reason="what it had captured is lost, which is news"),
    dropped("GraphBuilder", case="ended", **ENDED),
    reporting("GraphBuilder.__del__", lambda memory, builder: builder.__del__(), case="building", **CAPTURE)
    .allow("says", "was dropped while it was building", reason="what it had captured is lost, which is news"),
    reporting("GraphBuilder.__del__", lambda memory, builder: builder.__del__(), case="ended", **ENDED),
    pure("GraphBuilder.__enter__", lambda memory, builder: builder.__enter__(), **CAPTURE),
    operation("GraphBuilder.__exit__", lambda memory, builder: builder.__exit__(None, None, None), **CAPTURE),
    operation("GraphBuilder.__exit__", lambda memory, builder: leaving(builder), case="with an exception passing",
              **CAPTURE),
    *getters("GraphBuilder", ["is_closed", "stream", "is_join_required"], calls=False, **CAPTURE),
    pure("GraphBuilder.__cuda_stream__", lambda memory, builder: builder.__cuda_stream__(), **CAPTURE),
    pure("GraphBuilder.__repr__", lambda memory, builder: repr(builder), **CAPTURE),
    operation("GraphBuilder.create_condition", lambda memory, builder: builder.create_condition(1), needs=12030,
              **CAPTURE),
    operation("GraphBuilder.if_then", lambda memory, builder, condition: builder.if_then(condition), needs=12030,
              **CONDITION),
    operation("GraphBuilder.if_else", lambda memory, builder, condition: builder.if_else(condition), needs=12030,
              **CONDITION),
    operation("GraphBuilder.switch", lambda memory, builder, condition: builder.switch(condition, 3), needs=12030,
              **CONDITION),
    operation("GraphBuilder.while_loop", lambda memory, builder, condition: builder.while_loop(condition), needs=12030,
              **CONDITION),
    pure("GraphCondition.handle", lambda memory, builder, condition: condition.handle, needs=12030, **CONDITION),
    pure("GraphCondition.__eq__", lambda memory, builder, condition: condition == 3, needs=12030, **CONDITION),
    pure("GraphCondition.__hash__", lambda memory, builder, condition: hash(condition), needs=12030, **CONDITION),
    pure("GraphCondition.__repr__", lambda memory, builder, condition: repr(condition), needs=12030, **CONDITION),
]  # fmt: skip
