"""Managed memory: pools, advice, prefetches and discards; copies with options, in batches and of rows."""

import pickle

from cuda.bindings import driver

from cuirass import Host, ManagedBuffer, ManagedMemoryResource, ManagedMemoryResourceOptions
from cuirass.utils import (
    CopyOptions,
    copy_2d,
    copy_3d,
    copy_batch,
    discard_batch,
    discard_prefetch_batch,
    prefetch_batch,
)

from ..objects import buffer, device, stream
from ..registry import ALL, dropped, getters, operation, pure

POOLS, BATCHES = 13000, 12080
OPTIONS = CopyOptions(dst_location_hint=Host(), overlap_mode="prefer_overlap_with_compute")


def own_pool():
    return ManagedMemoryResource(ManagedMemoryResourceOptions())


def managed(stream):
    return own_pool().allocate(4096, stream=stream)


class Advised:
    """Memory of ``cuMemAllocManaged``: a real driver takes no advice for that of a pool."""

    def __init__(self):
        device().set_current()
        status, self.address = driver.cuMemAllocManaged(4096, 1)
        assert not int(status)

    def __del__(self):
        driver.cuMemFree(self.address)


def advised():
    owner = Advised()
    return ManagedBuffer.from_handle(int(owner.address), 4096, owner=owner)


def found(inner):
    """The same memory, as another library's."""
    return ManagedBuffer.from_handle(inner.handle, 4096, owner=inner)


def said(name, value):
    """Sets a property."""
    return lambda stream, buffer: setattr(buffer, name, value())


def place():
    return Host()


ONE = {"stream": stream, "buffer": managed}
ADVISED = {"stream": stream, "buffer": advised}
TWO = {"stream": stream, "one": managed, "two": managed}

POOL = [
    operation("ManagedMemoryResource()", own_pool, callers=ALL),
    operation("ManagedMemoryResource()", ManagedMemoryResource, case="the current pool"),
    operation("ManagedMemoryResource()", lambda: ManagedMemoryResource({"preferred_location_type": "host_numa"}),
              case="at the nearest node"),
    dropped("ManagedMemoryResource", pool=own_pool),
    operation("ManagedMemoryResource.allocate", lambda stream, pool: pool.allocate(64, stream=stream), callers=ALL,
              stream=stream, pool=own_pool),
    dropped("ManagedBuffer", stream=stream, buffer=managed),
    *getters("ManagedMemoryResource",
             ["is_device_accessible", "is_host_accessible", "is_managed", "device_id", "preferred_location"],
             calls=False, pool=own_pool),
    pure("ManagedMemoryResource.__repr__", repr, pool=own_pool),
]  # fmt: skip

SAID = [
    pure("ManagedBuffer.from_handle", lambda stream, inner: found(inner), stream=stream, inner=managed),
    *getters("ManagedBuffer", ["read_mostly", "preferred_location", "last_prefetch_location"], **ADVISED),
    pure("ManagedBuffer.accessed_by", lambda stream, buffer: buffer.accessed_by, **ADVISED),
    operation("ManagedBuffer.accessed_by", lambda stream, buffer: list(buffer.accessed_by), case="read", callers=ALL,
              **ADVISED),
    operation("ManagedBuffer.read_mostly (set)", said("read_mostly", bool), submits=True, callers=ALL, **ADVISED),
    operation("ManagedBuffer.preferred_location (set)", said("preferred_location", device), submits=True, callers=ALL,
              **ADVISED),
    operation("ManagedBuffer.preferred_location (set)", said("preferred_location", lambda: None), case="none",
              submits=True, **ADVISED),
    operation("ManagedBuffer.accessed_by (set)", said("accessed_by", lambda: [device()]), **ADVISED),
]  # fmt: skip

MOVED = [
    operation("ManagedBuffer.prefetch", lambda stream, buffer: buffer.prefetch(device(), stream=stream), **ONE),
    operation("ManagedBuffer.prefetch", lambda stream, inner, buffer: buffer.prefetch(Host(), stream=stream),
              case="of another library's", stream=stream, inner=managed, buffer=found),
    operation("ManagedBuffer.discard", lambda stream, buffer: buffer.discard(stream=stream), **ONE),
    operation("ManagedBuffer.discard_prefetch", lambda stream, buffer: buffer.discard_prefetch(Host(), stream=stream),
              **ONE),
    operation("utils.prefetch_batch", lambda stream, one, two: prefetch_batch(stream, [one, two], device()), **TWO),
    operation("utils.discard_batch", lambda stream, one, two: discard_batch(stream, [one, two]), **TWO),
    operation("utils.discard_prefetch_batch",
              lambda stream, one, two: discard_prefetch_batch(stream, [one, two], [device(), Host()]), **TWO),
]  # fmt: skip

for one in [*POOL, SAID[0], *MOVED]:
    one.needs = POOLS

PAIR = {"stream": stream, "one": buffer, "two": buffer}

OPERATIONS = [
    *POOL, *SAID, *MOVED,
    operation("utils.copy_batch", lambda stream, one, two: copy_batch(stream, [one], [two]), needs=BATCHES, **PAIR),
    operation("utils.copy_batch", lambda stream, one, two: copy_batch(stream, [one], [two], options=OPTIONS),
              case="with options", needs=BATCHES, **PAIR),
    operation("Buffer.copy_to", lambda stream, one, two: one.copy_to(two, stream=stream, options=OPTIONS),
              case="with options", needs=BATCHES, **PAIR),
    operation("Buffer.copy_to", lambda stream, one: one.copy_to(stream=stream, options=OPTIONS),
              case="a new one, with options", needs=BATCHES, stream=stream, one=buffer),
    operation("Buffer.copy_from", lambda stream, one, two: one.copy_from(two, stream=stream, options=CopyOptions()),
              case="with options that say nothing", **PAIR),
    operation("utils.copy_2d",
              lambda stream, one, two: copy_2d(one, two, width=4, height=8, dst_pitch=8, stream=stream), **PAIR),
    operation("utils.copy_3d",
              lambda stream, one, two: copy_3d(one, two, width=4, height=2, depth=3, dst_pitch=8, stream=stream),
              **PAIR),
    pure("Host()", place),
    pure("Host.numa_current", lambda: Host.numa_current()),
    *getters("Host", ["numa_id", "is_numa_current"], calls=False, host=place),
    pure("Host.__eq__", lambda host: host == Host(1), host=place),
    pure("Host.__hash__", hash, host=place),
    pure("Host.__repr__", repr, host=place),
    pure("Host.__reduce__", lambda host: pickle.loads(pickle.dumps(host)), host=place),
]  # fmt: skip
