"""Buffers."""

from cuirass import Buffer

from ..objects import Kept, buffer, builder, context, device, memory, pinned, run_captured, stream, user_resource
from ..registry import ALL, dropped, getters, operation, pure, reporting
from ..world import leaving
from .event import refused


def on_default():
    return device().memory_resource.allocate(64, stream=device().default_stream)


def last_of_everything():
    mine = context().create_stream()
    return device().memory_resource.allocate(64, stream=mine)


def owned(inner):
    """Memory that is there already, kept by its owner."""
    return Buffer.from_handle(inner.handle, 64, owner=inner)


def users(stream):
    """Memory of a resource that is written in Python."""
    return user_resource().allocate(64, stream=stream)


def viewed():
    memory = pinned()
    return Kept(memory=memory, view=memoryview(memory))


def entered(stream):
    return buffer(stream).__enter__()


GETTERS = ["device_id", "is_device_accessible", "is_host_accessible", "is_managed"]
NO_CALL = ["handle", "size", "is_closed", "is_mapped", "memory_resource", "owner"]

OPERATIONS = [
    operation("Buffer.close", lambda stream, buffer: buffer.close(), callers=ALL, stream=stream, buffer=buffer),
    operation("Buffer.close", lambda stream, other, buffer: buffer.close(other), case="on another stream",
              stream=stream, other=stream, buffer=buffer),
    operation("Buffer.close", lambda buffer: buffer.close(), case="on a default stream", callers=ALL,
              buffer=on_default),
    operation("Buffer.close", lambda stream, inner, buffer: buffer.close(stream), case="of an owner, after a stream",
              keeps="inner", stream=stream, inner=buffer, buffer=owned)
    .allow("leaks together", "is leaked, since the device may not be done with it", reason="so is what it keeps"),
    pure("Buffer.close", lambda stream, inner, buffer: buffer.close(), case="of an owner", keeps="inner",
         stream=stream, inner=buffer, buffer=owned),
    operation("Buffer.close", lambda stream, buffer: buffer.close(), case="of a resource in Python",
              stream=stream, buffer=users),
    operation("Buffer.close", lambda buffer: buffer.close(), case="page-locked", callers=ALL, buffer=pinned),
    operation("Buffer.__buffer__", lambda inner, buffer: memoryview(buffer).release(), case="of what is not known",
              callers=ALL, inner=pinned, buffer=owned),
    pure("Buffer.__buffer__", lambda buffer: memoryview(buffer).release(), buffer=pinned),
    pure("Buffer.__release_buffer__", lambda held: held.view.release(), held=viewed),
    dropped("Buffer", callers=ALL, stream=stream, buffer=buffer),
    dropped("Buffer", case="on a default stream", callers=ALL, buffer=on_default),
    dropped("Buffer", case="page-locked", callers=ALL, buffer=pinned),
    dropped("Buffer", case="of a capture in progress", memory=memory, builder=builder, buffer=lambda: captured()),
    dropped("Buffer", case="of a resource in Python", callers=ALL, stream=stream, buffer=users),
    reporting("Buffer.__del__", lambda stream, buffer: buffer.__del__(), case="of a resource in Python",
              stream=stream, buffer=users),
    operation("Buffer.set_deallocation_stream", lambda stream, buffer, other: buffer.set_deallocation_stream(other),
              case="a default stream", callers=ALL, stream=stream, buffer=buffer,
              other=lambda: device().default_stream),
    pure("Buffer.set_deallocation_stream", lambda stream, buffer, other: buffer.set_deallocation_stream(other),
         stream=stream, buffer=buffer, other=stream),
    pure("Buffer.from_handle", lambda stream, inner: owned(inner), stream=stream, inner=buffer),
    pure("Buffer.from_ipc_descriptor", refused(lambda stream: Buffer.from_ipc_descriptor(None, b"", stream=stream)),
         stream=stream),
    pure("Buffer.ipc_descriptor", refused(lambda stream, buffer: buffer.ipc_descriptor), stream=stream, buffer=buffer),
    pure("Buffer.__enter__", lambda stream, buffer: buffer.__enter__(), stream=stream, buffer=buffer),
    operation("Buffer.__exit__", lambda stream, buffer: buffer.__exit__(None, None, None),
              stream=stream, buffer=entered),
    operation("Buffer.__exit__", lambda stream, buffer: leaving(buffer), case="with an exception passing",
              stream=stream, buffer=entered),
    operation("Buffer.copy_to", lambda stream, one, two: one.copy_to(two, stream=stream), callers=ALL,
              stream=stream, one=buffer, two=buffer),
    operation("Buffer.copy_to", lambda stream, one: one.copy_to(stream=stream), case="a new one",
              stream=stream, one=buffer),
    operation("Buffer.copy_from", lambda stream, one, two: one.copy_from(two, stream=stream), callers=ALL,
              stream=stream, one=buffer, two=buffer),
    operation("Buffer.copy_from", lambda stream, one, two: one.copy_from(two, stream=stream), case="page-locked",
              stream=stream, one=buffer, two=pinned),
    operation("Buffer.fill", lambda stream, one: one.fill(7, stream=stream), callers=ALL, stream=stream, one=buffer),
    operation("Buffer.fill", lambda stream, one: one.fill(b"abcd", stream=stream), case="four bytes",
              stream=stream, one=buffer),
    *getters("Buffer", GETTERS, stream=stream, inner=buffer, buffer=owned),
    *getters("Buffer", NO_CALL, calls=False, stream=stream, buffer=buffer),
    pure("Buffer.__eq__", lambda stream, buffer: buffer == buffer, stream=stream, buffer=buffer),
    pure("Buffer.__hash__", lambda stream, buffer: hash(buffer), stream=stream, buffer=buffer),
    pure("Buffer.__repr__", lambda stream, buffer: repr(buffer), stream=stream, buffer=buffer),
    pure("Buffer.__reduce__", refused(lambda stream, buffer: buffer.__reduce__()), stream=stream, buffer=buffer),
    operation("Buffer.fill", lambda memory, builder, buffer: buffer.fill(3, stream=builder), case="captured",
              follow=run_captured, keeps="buffer", memory=memory, builder=builder, buffer=lambda: captured()),
    operation("Buffer.copy_to", lambda memory, builder, buffer: buffer.copy_to(memory.buffer, stream=builder),
              case="captured", follow=run_captured, keeps="buffer", memory=memory, builder=builder,
              buffer=lambda: captured()),
    operation("Buffer.copy_from", lambda memory, builder, buffer: buffer.copy_from(memory.buffer, stream=builder),
              case="captured", follow=run_captured, keeps="buffer", memory=memory, builder=builder,
              buffer=lambda: captured()),
]  # fmt: skip


def captured():
    """Memory that a capture is going to refer to, on a stream of its own."""
    return buffer(stream())
