"""Contexts."""

from ..objects import context, device
from ..registry import ALL, dropped, getters, operation, pure


def primary():
    return device().context


OPERATIONS = [
    operation("Context.create_stream", lambda context: context.create_stream(), callers=ALL, context=primary),
    operation("Context.create_stream", lambda context: context.create_stream(), case="of a created one",
              context=context),
    operation("Context.close", lambda context: context.close(), context=context),
    pure("Context.close", lambda context: context.close(), case="a share", context=primary),
    dropped("Context", context=context),
    *getters("Context", ["handle", "is_closed", "is_green"], calls=False, context=primary),
    pure("Context.__eq__", lambda context: context == device().context, context=primary),
    pure("Context.__hash__", hash, context=primary),
    pure("Context.__repr__", repr, context=primary),
]  # fmt: skip
