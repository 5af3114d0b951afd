"""What the driver answers about pools and events between processes, access between devices, and virtual memory: writes
memory.jsonl's rows to stdout.

Needs a driver, and two devices for the rows about those. Nothing but the standard library. One process stands for both:
it imports what it has itself exported.

A row has what it is `about`, the `call` in words, the `status` (`CUDA_ERROR_` left out), and a `value` where that says
something: whether two handles or addresses are the same, what access a device has (0 none, 1 reading, 3 reading and
writing), for virtual memory that of a device, the host, a node of it and the current node; for properties a location's
type and number and how it can be shared; for imported pools how many file descriptors four of them leave; for captures
how they are afterwards.
"""

import ctypes
import json
import os
import subprocess
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
Handle, Address, Size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
DEVICE, SYSTEM, HOST, CURRENT = 1, 2, 3, 4  # CU_MEM_LOCATION_TYPE_DEVICE, _HOST, _HOST_NUMA, _HOST_NUMA_CURRENT
FILE = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PINNED, MANAGED = 1, 2  # CU_MEM_ALLOCATION_TYPE_*
NONE, READ, READ_WRITE = 0, 1, 3  # CU_MEM_ACCESS_FLAGS_PROT_*
NON_BLOCKING = 1
DISABLE_TIMING, INTERPROCESS = 2, 4


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class PoolProperties(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("security", Handle),
        ("most", Size), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54),
    )  # fmt: skip


class MemoryProperties(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("security", Handle),
        ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", ctypes.c_int))


Bytes64 = ctypes.c_ubyte * 64


class EventHandle(ctypes.Structure):
    _fields_ = (("bytes", Bytes64),)


def call(name, *arguments):
    """A call's status, as a name."""
    code = getattr(cuda, name)(*arguments)
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    return (text.value or b"?").decode().removeprefix("CUDA_ERROR_").removeprefix("CUDA_")


def ok(name, *arguments):
    status = call(name, *arguments)
    assert status == "SUCCESS", (name, status)


def made(type, name, *arguments):
    """What a call that must work writes through its first argument."""
    out = type()
    ok(name, ctypes.byref(out), *arguments)
    return out


def row(about, what, status, **value):
    print(json.dumps({"about": about, "call": what, "status": status} | value), flush=True)


def new_stream():
    return made(Handle, "cuStreamCreate", NON_BLOCKING)


def new_pool(handles, location=DEVICE, device=0):
    properties = PoolProperties(kind=PINNED, handles=handles, location=Location(location, device))
    return made(Handle, "cuMemPoolCreate", ctypes.byref(properties))


def pools_between_processes(about, location):
    stream, pool = new_stream(), new_pool(FILE, location)
    memory = made(Address, "cuMemAllocFromPoolAsync", Size(4096), pool, stream)
    ok("cuStreamSynchronize", stream)
    data, again, files = Bytes64(), Bytes64(), []

    def export(what):
        file = ctypes.c_int(-1)
        row(about, what, call("cuMemPoolExportToShareableHandle", ctypes.byref(file), pool, FILE, Address(0)))
        files.append(file.value)

    def import_pool(what, others):
        out = Handle()
        status = call("cuMemPoolImportFromShareableHandle", ctypes.byref(out), Handle(files[0]), FILE, Address(0))
        row(about, what, status, value="the same" if out.value in others else "another")
        return out

    def import_pointer(what, through, others):
        out = Address()
        status = call("cuMemPoolImportPointer", ctypes.byref(out), through, data)
        known = {} if status != "SUCCESS" else {"value": "the same" if out.value in others else "another"}
        row(about, what, status, **known)
        return out

    row(about, "export a pointer, the pool was not exported", call("cuMemPoolExportPointer", data, memory))
    export("export the pool")
    row(about, "export a pointer, the pool was exported", call("cuMemPoolExportPointer", data, memory))
    fresh = made(Address, "cuMemAllocFromPoolAsync", Size(4096), pool, stream)
    row(about, "export a pointer, just allocated", call("cuMemPoolExportPointer", again, fresh))
    export("export the pool again")
    imported = import_pool("import the pool", [pool.value])
    second = import_pool("import the pool again", [imported.value])
    for file in files:
        os.close(file)
    out = Address()
    status = call("cuMemAllocFromPoolAsync", ctypes.byref(out), Size(256), imported, stream)
    row(about, "allocate from the imported pool", status)
    alias = import_pointer("import the pointer", imported, [memory.value])
    import_pointer("import the pointer again", imported, [alias.value])
    import_pointer("import the pointer through the second import", second, [alias.value])
    row(about, "export the imported pointer", call("cuMemPoolExportPointer", again, alias))
    row(about, "free the imported pointer", call("cuMemFreeAsync", alias, stream))
    ok("cuStreamSynchronize", stream)
    row(about, "fill the original", call("cuMemsetD8Async", memory, ctypes.c_ubyte(1), Size(16), stream))
    ok("cuStreamSynchronize", stream)
    row(about, "free the original", call("cuMemFreeAsync", memory, stream))
    ok("cuMemFreeAsync", fresh, stream)
    ok("cuStreamSynchronize", stream)
    row(about, "destroy the imported pool", call("cuMemPoolDestroy", imported))
    row(about, "destroy the imported pool a second time", call("cuMemPoolDestroy", second))
    last = made(Address, "cuMemAllocFromPoolAsync", Size(256), pool, stream)
    ok("cuMemFreeAsync", last, stream)
    ok("cuStreamSynchronize", stream)
    row(about, "destroy the original pool", call("cuMemPoolDestroy", pool))
    ok("cuStreamDestroy_v2", stream)


def pool_in_use(about, location):
    """An imported pool that is destroyed while memory is imported from it."""
    stream, pool = new_stream(), new_pool(FILE, location)
    memory = made(Address, "cuMemAllocFromPoolAsync", Size(4096), pool, stream)
    ok("cuStreamSynchronize", stream)
    data, file = Bytes64(), made(ctypes.c_int, "cuMemPoolExportToShareableHandle", pool, FILE, Address(0))
    ok("cuMemPoolExportPointer", data, memory)
    imported, second = (
        made(Handle, "cuMemPoolImportFromShareableHandle", Handle(file.value), FILE, Address(0)) for _ in range(2)
    )
    os.close(file.value)
    alias = made(Address, "cuMemPoolImportPointer", imported, data)
    row(about, "destroy the imported pool, of two imports", call("cuMemPoolDestroy", imported))
    row(about, "destroy the imported pool, of one import", call("cuMemPoolDestroy", second))
    row(about, "fill through the imported pointer", call("cuMemsetD8Async", alias, ctypes.c_ubyte(1), Size(16), stream))
    row(about, "free the imported pointer", call("cuMemFreeAsync", alias, stream))
    ok("cuStreamSynchronize", stream)
    row(about, "destroy the imported pool, nothing imported", call("cuMemPoolDestroy", imported))
    row(about, "destroy the imported pool once more", call("cuMemPoolDestroy", imported))
    ok("cuMemFreeAsync", memory, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuMemPoolDestroy", pool)
    ok("cuStreamDestroy_v2", stream)


def pool_with_a_free_that_waits(about):
    """An imported pool that is destroyed while the free of its last memory waits on a stream."""
    stream, pool = new_stream(), new_pool(FILE)
    memory = made(Address, "cuMemAllocFromPoolAsync", Size(4096), pool, stream)
    ok("cuStreamSynchronize", stream)
    data, file = Bytes64(), made(ctypes.c_int, "cuMemPoolExportToShareableHandle", pool, FILE, Address(0))
    ok("cuMemPoolExportPointer", data, memory)
    imported = made(Handle, "cuMemPoolImportFromShareableHandle", Handle(file.value), FILE, Address(0))
    os.close(file.value)
    alias = made(Address, "cuMemPoolImportPointer", imported, data)
    go = threading.Event()
    wait = ctypes.CFUNCTYPE(None, Handle)(lambda _: go.wait())
    ok("cuLaunchHostFunc", stream, wait, Handle())
    row(about, "free the imported pointer", call("cuMemFreeAsync", alias, stream))
    status = call("cuMemPoolDestroy", imported)
    row(about, "destroy the imported pool", status)
    go.set()
    ok("cuStreamSynchronize", stream)
    row(about, "destroy the imported pool once the free is done", call("cuMemPoolDestroy", imported))
    ok("cuMemFreeAsync", memory, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuMemPoolDestroy", pool)
    ok("cuStreamDestroy_v2", stream)


def until_done(name, handle):
    while (status := call(name, handle)) == "NOT_READY":
        pass
    assert status == "SUCCESS", (name, status)


def pools_that_are_lost(about, location):
    """An imported pool that is destroyed behind the free of its memory: how many file descriptors four of them leave,
    by what the host does between the two. All work is waited for afterwards."""
    stream, other = new_stream(), new_stream()
    event, later = made(Handle, "cuEventCreate", DISABLE_TIMING), made(Handle, "cuEventCreate", DISABLE_TIMING)

    def recorded():
        ok("cuEventRecord", event, stream)

    def seen_done():
        recorded()
        until_done("cuEventQuery", event)

    def waited_for_by(do):
        recorded()
        ok("cuStreamWaitEvent", other, event, 0)
        do()

    def on_a_thread():
        thread = threading.Thread(target=lambda: ok("cuEventSynchronize", event))
        seen_done()
        thread.start()
        thread.join()

    def in_relaxed_mode_beside_a_capture():
        captured, graph = new_stream(), Handle()
        ok("cuStreamBeginCapture_v2", captured, GLOBAL)
        relaxed(lambda: (seen_done(), ok("cuEventSynchronize", event)))
        ok("cuStreamEndCapture", captured, ctypes.byref(graph))
        ok("cuGraphDestroy", graph)
        ok("cuStreamDestroy_v2", captured)

    ways = {
        "does nothing": lambda: None,
        "asks the stream until it is done": lambda: until_done("cuStreamQuery", stream),
        "asks an event behind it until it is done": seen_done,
        "waits for another stream": lambda: ok("cuStreamSynchronize", other),
        "waits for the stream": lambda: ok("cuStreamSynchronize", stream),
        "waits for the context": lambda: ok("cuCtxSynchronize"),
        "waits for an event behind it": lambda: (recorded(), ok("cuEventSynchronize", event)),
        "waits for an event behind it that is done": lambda: (seen_done(), ok("cuEventSynchronize", event)),
        "waits for such an event on a thread without a context": on_a_thread,
        "waits for such an event in relaxed mode, beside a capture": in_relaxed_mode_beside_a_capture,
        "waits for a stream that waits for it": lambda: waited_for_by(lambda: ok("cuStreamSynchronize", other)),
        "waits for an event on such a stream": lambda: waited_for_by(
            lambda: (ok("cuEventRecord", later, other), ok("cuEventSynchronize", later))
        ),
    }

    def one(do):
        pool = new_pool(FILE, location)
        memory = made(Address, "cuMemAllocFromPoolAsync", Size(64), pool, stream)
        ok("cuStreamSynchronize", stream)
        data, file = Bytes64(), made(ctypes.c_int, "cuMemPoolExportToShareableHandle", pool, FILE, Address(0))
        imported = made(Handle, "cuMemPoolImportFromShareableHandle", Handle(file.value), FILE, Address(0))
        os.close(file.value)
        ok("cuMemPoolExportPointer", data, memory)
        alias = made(Address, "cuMemPoolImportPointer", imported, data)
        ok("cuMemFreeAsync", alias, stream)
        do()
        status = call("cuMemPoolDestroy", imported)
        ok("cuMemFreeAsync", memory, stream)
        ok("cuStreamSynchronize", stream)
        ok("cuMemPoolDestroy", pool)
        ok("cuCtxSynchronize")
        return status

    # The driver opens files of its own the first time.
    for _ in range(2):
        one(ways["waits for the stream"])
    for name, do in ways.items():
        before = len(os.listdir("/proc/self/fd"))
        statuses = {one(do) for _ in range(4)}
        kept = len(os.listdir("/proc/self/fd")) - before
        row(about, f"destroy the imported pool, the host {name}", "/".join(statuses), value=kept)
    for each in (event, later):
        ok("cuEventDestroy_v2", each)
    for each in (stream, other):
        ok("cuStreamDestroy_v2", each)


GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # CU_STREAM_CAPTURE_MODE_*


def relaxed(do):
    """Does something with this thread's capture mode exchanged to relaxed."""
    mode = ctypes.c_int(RELAXED)
    ok("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    result = do()
    ok("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    return result


def waiting_beside_a_capture():
    """Whether a wait for an event of another stream, which is done, disturbs a capture."""
    about = "a wait for an event that is done, beside a capture"
    captured, other = new_stream(), new_stream()
    event = made(Handle, "cuEventCreate", DISABLE_TIMING)
    ok("cuEventRecord", event, other)
    ok("cuStreamSynchronize", other)

    def elsewhere(do):
        result = []
        thread = threading.Thread(target=lambda: result.append(do()))
        thread.start()
        thread.join()
        return result[0]

    for mode, name in enumerate(("global", "thread-local", "relaxed")):
        for place, where in (("the same", lambda do: do()), ("another", elsewhere)):
            for scope, within in (("", lambda do: do()), (", in relaxed mode", relaxed)):
                graph, state = Handle(), ctypes.c_int(-1)
                ok("cuStreamBeginCapture_v2", captured, mode)
                status = where(lambda within=within: within(lambda: call("cuEventSynchronize", event)))
                ok("cuStreamIsCapturing", captured, ctypes.byref(state))
                what = f"in a {name} capture, on {place} thread{scope}"
                row(about, what, status, value=("NONE", "ACTIVE", "INVALIDATED")[state.value])
                call("cuStreamEndCapture", captured, ctypes.byref(graph))
                if graph:
                    ok("cuGraphDestroy", graph)
    ok("cuEventDestroy_v2", event)
    for each in (captured, other):
        ok("cuStreamDestroy_v2", each)


PREFETCHED = 4  # CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION


def batches_of_managed_memory(about):
    """Batches with an entry that is refused: whether those before it are taken."""
    stream, plain = new_stream(), new_pool(0)
    managed = made(Handle, "cuMemPoolCreate", ctypes.byref(PoolProperties(kind=MANAGED)))

    def batch(name, *entries, prefetches=True):
        count = len(entries)
        addresses, sizes = (Address * count)(*(entry.value for entry in entries)), (Size * count)(*[4096] * count)
        places, which = (Location * 1)(Location(DEVICE, 0)), (Size * 1)(0)
        arguments = [addresses, sizes, Size(count)]
        arguments += [places, which, Size(1)] if prefetches else []
        return call(name, *arguments, Address(0), stream)

    for name in ("cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"):
        one, other = (made(Address, "cuMemAllocFromPoolAsync", Size(4096), managed, stream) for _ in range(2))
        device = made(Address, "cuMemAllocFromPoolAsync", Size(4096), plain, stream)
        ok("cuStreamSynchronize", stream)

        def place(memory):
            out = ctypes.c_int(-9)
            call("cuMemRangeGetAttribute", ctypes.byref(out), Size(4), PREFETCHED, memory, Size(4096))
            return out.value

        status = batch(name, one, device, other)
        row(about, f"{name}, the second of three is not managed", status, value=[place(one), place(other)])
        status = batch(name, device, other)
        row(about, f"{name}, the first is not managed", status, value=[place(other)])
        for memory in (one, other, device):
            ok("cuMemFreeAsync", memory, stream)
        ok("cuStreamSynchronize", stream)
    for pool in (managed, plain):
        ok("cuMemPoolDestroy", pool)
    ok("cuStreamDestroy_v2", stream)


def events_between_processes():
    about = "events between processes"
    open_event = cuda.cuIpcOpenEventHandle
    open_event.argtypes = [ctypes.POINTER(Handle), EventHandle]
    event, handle, out = made(Handle, "cuEventCreate", DISABLE_TIMING | INTERPROCESS), EventHandle(), Handle()
    row(about, "get a handle", call("cuIpcGetEventHandle", ctypes.byref(handle), event))
    row(about, "open the own event", call("cuIpcOpenEventHandle", ctypes.byref(out), handle))
    row(about, "open what is no handle", call("cuIpcOpenEventHandle", ctypes.byref(out), EventHandle()))
    ok("cuEventDestroy_v2", event)


def two_devices(first):
    about = "two devices"
    contexts = first, made(Handle, "cuDevicePrimaryCtxRetain", 1)
    events = []
    streams = []
    for context in contexts:
        ok("cuCtxSetCurrent", context)
        events.append(made(Handle, "cuEventCreate", 0))
        streams.append(new_stream())
        ok("cuEventRecord", events[-1], streams[-1])
        ok("cuStreamSynchronize", streams[-1])
    time = ctypes.c_float()
    row(about, "time between their events", call("cuEventElapsedTime", ctypes.byref(time), *events))
    row(about, "time back", call("cuEventElapsedTime", ctypes.byref(time), *reversed(events)))
    ok("cuCtxSetCurrent", first)
    pool = new_pool(0)

    def access(device):
        flags, location = ctypes.c_int(-1), Location(DEVICE, device)
        ok("cuMemPoolGetAccess", ctypes.byref(flags), pool, ctypes.byref(location))
        return {"value": flags.value}

    def set_access(of, device, flags):
        wanted = Access(Location(DEVICE, device), flags)
        return call("cuMemPoolSetAccess", of, ctypes.byref(wanted), Size(1))

    row(about, "access of the own device", "SUCCESS", **access(0))
    row(about, "access of the other device", "SUCCESS", **access(1))
    row(about, "give it", set_access(pool, 1, READ_WRITE), **access(1))
    row(about, "take it back", set_access(pool, 1, NONE), **access(1))
    row(about, "give it to read", set_access(pool, 1, READ), **access(1))
    row(about, "take it from the own device", set_access(pool, 0, NONE))
    row(about, "give it to no device", set_access(pool, 99, READ_WRITE))
    far = new_pool(0, device=1)
    near_memory = made(Address, "cuMemAllocFromPoolAsync", Size(256), pool, streams[0])
    far_memory = made(Address, "cuMemAllocFromPoolAsync", Size(256), far, streams[1])
    for stream in streams:
        ok("cuStreamSynchronize", stream)
    copy = near_memory, far_memory, Size(256), streams[0]
    row(about, "copy to the other's pool without access", call("cuMemcpyAsync", far_memory, near_memory, *copy[2:]))
    assert set_access(far, 0, READ_WRITE) == "SUCCESS"
    row(about, "copy to the other's pool with access", call("cuMemcpyAsync", far_memory, near_memory, *copy[2:]))
    ok("cuStreamSynchronize", streams[0])
    ok("cuMemFreeAsync", near_memory, streams[0])
    ok("cuMemFreeAsync", far_memory, streams[1])
    for stream in streams:
        ok("cuStreamSynchronize", stream)
    set_access(pool, 1, READ_WRITE)
    ok("cuMemPoolDestroy", pool)
    pool = new_pool(0)
    row(about, "access of the other device to a pool made after one that it had access to", "SUCCESS", **access(1))
    for each in (pool, far):
        ok("cuMemPoolDestroy", each)


KERNEL = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry increment(.param .u64 address) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [address];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.s32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
\0"""


def launch(address, stream):
    """Runs a kernel that changes a word; what waiting for it answers."""
    kernel = made(Handle, "cuModuleGetFunction", made(Handle, "cuModuleLoadData", KERNEL), b"increment")
    value = Address(address)
    ok("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, (Handle * 1)(ctypes.addressof(value)), None)
    return call("cuStreamSynchronize", stream)


def pools_of_the_host(about, pool):
    stream = new_stream()
    memory, other = (made(Address, "cuMemAllocFromPoolAsync", Size(4096), pool, stream) for _ in range(2))
    near = made(Address, "cuMemAlloc_v2", Size(4096))
    ok("cuStreamSynchronize", stream)
    pageable = ctypes.create_string_buffer(4096)
    here = Handle(ctypes.addressof(pageable))
    size = Size(4096)

    def access(kind):
        flags, location = ctypes.c_int(-1), Location(kind, 0)
        ok("cuMemPoolGetAccess", ctypes.byref(flags), pool, ctypes.byref(location))
        return {"value": flags.value}

    def set_access(kind, flags):
        wanted = Access(Location(kind, 0), flags)
        return call("cuMemPoolSetAccess", pool, ctypes.byref(wanted), Size(1))

    def works(when):
        for what, name, *arguments in (
            ("fill", "cuMemsetD8Async", memory, ctypes.c_ubyte(1), Size(16), stream),
            ("copy it to a device", "cuMemcpyAsync", near, memory, size, stream),
            ("copy to it from a device", "cuMemcpyAsync", memory, near, size, stream),
            ("copy it within the pool", "cuMemcpyAsync", other, memory, size, stream),
            ("copy to it from pageable memory", "cuMemcpyAsync", memory, here, size, stream),
            ("copy it to pageable memory", "cuMemcpyAsync", here, memory, size, stream),
            ("copy it as the host's", "cuMemcpyHtoDAsync_v2", near, memory, size, stream),
            ("copy to it as the host's", "cuMemcpyDtoHAsync_v2", memory, near, size, stream),
            ("copy to it as a device's, from a device", "cuMemcpyDtoDAsync_v2", memory, near, size, stream),
            ("copy to it as a device's, from the host", "cuMemcpyHtoD_v2", memory, here, size),
        ):
            row(about, f"{what}, {when}", call(name, *arguments))
            ok("cuStreamSynchronize", stream)

    row(about, "access of a device", "SUCCESS", **access(DEVICE))
    row(about, "access of the host", "SUCCESS", **access(SYSTEM))
    works("without access")
    row(about, "give access", set_access(DEVICE, READ_WRITE), **access(DEVICE))
    works("with access")
    row(about, "run a kernel, with access", launch(memory.value, stream))
    row(about, "give it to the host", set_access(SYSTEM, READ_WRITE))
    row(about, "take it from the host", set_access(SYSTEM, NONE), **access(SYSTEM))
    row(about, "take access back", set_access(DEVICE, NONE), **access(DEVICE))
    for each in (memory, other):
        ok("cuMemFreeAsync", each, stream)
    ok("cuStreamSynchronize", stream)
    ok("cuMemFree_v2", near)


def default_pool(kind):
    location = Location(kind, 0)
    return made(Handle, "cuMemGetDefaultMemPool", ctypes.byref(location), PINNED)


def default_pools_of_the_host():
    about = "default pools of the host"
    same = default_pool(SYSTEM).value == default_pool(HOST).value
    row(about, "that of the host and of a node", "SUCCESS", value="the same" if same else "another")
    system, node = Location(SYSTEM, 0), Location(HOST, 0)
    pools = new_pool(0, SYSTEM), new_pool(0, HOST)
    row(about, "make a pool of a node the host's", call("cuMemSetMemPool", ctypes.byref(system), PINNED, pools[1]))
    row(about, "make a pool of the host a node's", call("cuMemSetMemPool", ctypes.byref(node), PINNED, pools[0]))
    for pool in pools:
        ok("cuMemPoolDestroy", pool)
    stream = new_stream()
    for mode, name in enumerate(("global", "thread-local", "relaxed")):
        wanted, graph = Access(Location(DEVICE, 0), READ_WRITE), Handle()
        ok("cuStreamBeginCapture_v2", stream, mode)
        status = call("cuMemPoolSetAccess", default_pool(SYSTEM), ctypes.byref(wanted), Size(1))
        row(about, f"give access, in a {name} capture", status)
        row(about, f"end the {name} capture", call("cuStreamEndCapture", stream, ctypes.byref(graph)))
        if graph:
            ok("cuGraphDestroy", graph)
    wanted = Access(Location(DEVICE, 0), NONE)
    ok("cuMemPoolSetAccess", default_pool(SYSTEM), ctypes.byref(wanted), Size(1))
    ok("cuStreamDestroy_v2", stream)


def kernel_without_access(about):
    stream = new_stream()
    if about == "a pool of the host":
        memory = made(Address, "cuMemAllocFromPoolAsync", Size(4096), new_pool(0, SYSTEM), stream)
        ok("cuStreamSynchronize", stream)
    else:
        memory = physical(SYSTEM, 0)[1]
        wanted = Access(Location(SYSTEM, 0), READ_WRITE)
        ok("cuMemSetAccess", memory, Size(GRAIN), ctypes.byref(wanted), Size(1))
    row(about, "run a kernel, without access", launch(memory.value, stream))


GRAIN = 2 << 20


def physical(kind, handles):
    """New physical memory, and the addresses that it is mapped to."""
    properties = MemoryProperties(kind=PINNED, handles=handles, location=Location(kind, 0))
    memory = made(Address, "cuMemCreate", Size(GRAIN), ctypes.byref(properties), Address(0))
    at = made(Address, "cuMemAddressReserve", Size(GRAIN), Size(0), Address(0), Address(0))
    ok("cuMemMap", at, Size(GRAIN), Size(0), memory, Address(0))
    return memory, at


def physical_memory(about, kind):
    stream = new_stream()
    for handles, name in ((0, "not to be shared"), (FILE, "to be shared")):
        properties = MemoryProperties(kind=PINNED, handles=handles, location=Location(kind, 0))
        grain, memory = Size(), Address()
        status = call("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(properties), 0)
        row(about, f"granularity, {name}", status, value=grain.value)
        for size, which in ((GRAIN // 2, "half of one"), (GRAIN, "one")):
            status = call("cuMemCreate", ctypes.byref(memory), Size(size), ctypes.byref(properties), Address(0))
            row(about, f"create {which}, {name}", status)
        if status == "SUCCESS":
            ok("cuMemGetAllocationPropertiesFromHandle", ctypes.byref(properties), memory)
            facts = [properties.location.type, properties.location.id, properties.handles]
            row(about, f"its properties, {name}", "SUCCESS", value=facts)
            ok("cuMemRelease", memory)
    if kind == CURRENT:
        return
    _, at = physical(kind, 0)
    near = made(Address, "cuMemAlloc_v2", Size(4096))

    def access(of):
        flags, location = Address(99), Location(of, 0)
        status = call("cuMemGetAccess", ctypes.byref(flags), ctypes.byref(location), at)
        return status if status != "SUCCESS" else flags.value

    def give(what, to, flags):
        wanted = Access(Location(to, 0), flags)
        status = call("cuMemSetAccess", at, Size(GRAIN), ctypes.byref(wanted), Size(1))
        row(about, what, status, value=[access(of) for of in (DEVICE, SYSTEM, HOST, CURRENT)])

    def works(when):
        row(about, f"fill, {when}", call("cuMemsetD8Async", at, ctypes.c_ubyte(7), Size(64), stream))
        if kind == DEVICE or when != "nobody has access":  # The real driver crashes.
            row(about, f"copy it to a device, {when}", call("cuMemcpyAsync", near, at, Size(4096), stream))
            row(about, f"copy to it from a device, {when}", call("cuMemcpyAsync", at, near, Size(4096), stream))
        ok("cuStreamSynchronize", stream)

    works("nobody has access")
    if kind == DEVICE:
        give("give the host access", SYSTEM, READ_WRITE)
        give("take it from the host", SYSTEM, NONE)
        give("give a node access", HOST, READ_WRITE)
        give("give the current node access", CURRENT, READ_WRITE)
        return
    for to, name in ((SYSTEM, "the host"), (HOST, "a node"), (CURRENT, "the current node")):
        give(f"give {name} access", to, READ_WRITE)
        give(f"give {name} access to read", to, READ)
        give(f"take it from {name}", to, NONE)
    give("give the host access again", SYSTEM, READ_WRITE)
    give("give a device access", DEVICE, READ_WRITE)
    works("the device has access")
    row(about, "run a kernel, the device has access", launch(at.value, stream))
    for name, number in (("memory type", 2), ("device", 9), ("flag of managed memory", 8)):
        value = Address()
        status = call("cuPointerGetAttribute", ctypes.byref(value), number, at)
        row(about, f"its {name}", status, value=value.value)
    for name, number in (("the device's address", 3), ("the host's address", 4)):
        value = Address()
        status = call("cuPointerGetAttribute", ctypes.byref(value), number, at)
        row(about, name, status, value="the same" if value.value == at.value else "another")
    ok("cuMemsetD8Async", at, ctypes.c_ubyte(9), Size(64), stream)
    ok("cuStreamSynchronize", stream)
    row(about, "the host reads a byte of the fill", "SUCCESS", value=ctypes.c_ubyte.from_address(at.value).value)
    ctypes.memset(at.value, 3, 4096)
    ok("cuMemcpyAsync", near, at, Size(4096), stream)
    back = ctypes.create_string_buffer(4096)
    ok("cuMemcpyDtoHAsync_v2", back, near, Size(4096), stream)
    ok("cuStreamSynchronize", stream)
    row(about, "a copy of what the host wrote", "SUCCESS", value=back.raw[4095])


def memory_with_several_mappings(about, kind):
    """Three mappings of physical memory, one behind the other: two in one reservation, one in another right behind."""
    stream, near = new_stream(), made(Address, "cuMemAlloc_v2", Size(4096))
    properties = MemoryProperties(kind=PINNED, handles=0, location=Location(kind, 0))
    at = made(Address, "cuMemAddressReserve", Size(2 * GRAIN), Size(0), Address(0), Address(0))
    last = made(Address, "cuMemAddressReserve", Size(GRAIN), Size(0), Address(at.value + 2 * GRAIN), Address(0))
    places = [at.value, at.value + GRAIN, last.value]
    wanted = (Access * 2)(Access(Location(DEVICE, 0), READ_WRITE), Access(Location(kind, 0), READ_WRITE))
    count = 1 if kind == DEVICE else 2
    for place in places:
        memory = made(Address, "cuMemCreate", Size(GRAIN), ctypes.byref(properties), Address(0))
        ok("cuMemMap", Address(place), Size(GRAIN), Size(0), memory, Address(0))
        ok("cuMemRelease", memory)
        ok("cuMemSetAccess", Address(place), Size(GRAIN), wanted, Size(count))
    row(about, "reserve right behind", "SUCCESS", value="there" if last.value == at.value + 2 * GRAIN else "elsewhere")

    def fill(what, start, size, width=1):
        value, name = ctypes.c_uint(7), f"cuMemsetD{8 * width}Async"
        value = {1: ctypes.c_ubyte, 2: ctypes.c_ushort, 4: ctypes.c_uint}[width](7)
        row(about, f"fill {what}", call(name, Address(start), value, Size(size // width), stream))
        ok("cuStreamSynchronize", stream)

    first, middle = places[0], places[1]
    fill("one mapping", first, GRAIN)
    fill("another", middle, GRAIN)
    for width in (1, 2, 4):
        fill(f"two of them, {8 * width} bits at a time", first, 2 * GRAIN, width)
    fill("a few bytes on both sides of the boundary", middle - 64, 128)
    if last.value == at.value + 2 * GRAIN:
        fill("two in two reservations", middle, 2 * GRAIN)
        fill("all", first, 3 * GRAIN)
    pitched = Address(first), Size(GRAIN), ctypes.c_ubyte(7), Size(64), Size(2), stream
    row(about, "fill rows, one in each of two", call("cuMemsetD2D8Async", *pitched))
    size, across = Size(4096), Address(middle - 2048)
    row(about, "copy across the boundary", call("cuMemcpyAsync", near, across, size, stream))
    row(about, "copy to both sides of it", call("cuMemcpyAsync", across, near, size, stream))
    ok("cuStreamSynchronize", stream)
    graph = Handle()
    ok("cuStreamBeginCapture_v2", stream, RELAXED)
    status = call("cuMemsetD8Async", Address(first), ctypes.c_ubyte(7), Size(2 * GRAIN), stream)
    row(about, "fill two of them, captured", status)
    row(about, "end the capture", call("cuStreamEndCapture", stream, ctypes.byref(graph)))
    if graph:
        executable = Handle()
        status = call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, Address(0))
        row(about, "make it executable", status)
        if executable:
            row(about, "launch it", call("cuGraphLaunch", executable, stream))
            row(about, "wait for it", call("cuStreamSynchronize", stream))
            ok("cuGraphExecDestroy", executable)
        ok("cuGraphDestroy", graph)
    for place in places:
        ok("cuMemUnmap", Address(place), Size(GRAIN))
    ok("cuMemAddressFree", at, Size(2 * GRAIN))
    ok("cuMemAddressFree", last, Size(GRAIN))
    ok("cuMemFree_v2", near)
    ok("cuStreamDestroy_v2", stream)


def virtual_memory():
    about = "virtual memory"
    properties = MemoryProperties(kind=PINNED, handles=FILE, location=Location(DEVICE, 0))
    grain = made(Size, "cuMemGetAllocationGranularity", ctypes.byref(properties), 1).value
    wanted = Access(Location(DEVICE, 0), READ_WRITE)
    at = made(Address, "cuMemAddressReserve", Size(2 * grain), Size(0), Address(0), Address(0))
    memory = made(Address, "cuMemCreate", Size(grain), ctypes.byref(properties), Address(0))
    ok("cuMemMap", at, Size(grain), Size(0), memory, Address(0))
    ok("cuMemSetAccess", at, Size(grain), ctypes.byref(wanted), Size(1))
    other = Address()
    arguments = Size(grain), Size(0), at, Address(0)
    status = call("cuMemAddressReserve", ctypes.byref(other), *arguments)
    row(about, "reserve addresses that are taken", status, value="the same" if other.value == at.value else "another")
    retained = Address()
    status = call("cuMemRetainAllocationHandle", ctypes.byref(retained), Handle(at.value))
    row(about, "retain a handle", status, value="the same" if retained.value == memory.value else "another")
    ok("cuMemMap", Address(at.value + grain), Size(grain), Size(0), retained, Address(0))
    row(about, "unmap two mappings at once", call("cuMemUnmap", at, Size(2 * grain)))

    def without_a_context():
        about = "virtual memory, without a current context"
        memory, at = Address(), Address()
        size = Size(grain)
        status = call("cuMemCreate", ctypes.byref(memory), size, ctypes.byref(properties), Address(0))
        row(about, "create memory", status)
        row(about, "reserve", call("cuMemAddressReserve", ctypes.byref(at), size, Size(0), Address(0), Address(0)))
        row(about, "map", call("cuMemMap", at, size, Size(0), memory, Address(0)))
        row(about, "set access", call("cuMemSetAccess", at, size, ctypes.byref(wanted), Size(1)))
        row(about, "unmap", call("cuMemUnmap", at, size))
        row(about, "release", call("cuMemRelease", memory))
        row(about, "free the addresses", call("cuMemAddressFree", at, size))

    thread = threading.Thread(target=without_a_context)
    thread.start()
    thread.join()


def main():
    ok("cuInit", 0)
    count = made(ctypes.c_int, "cuDeviceGetCount").value
    context = made(Handle, "cuDevicePrimaryCtxRetain", 0)
    ok("cuCtxSetCurrent", context)
    alone = {
        "an imported pool in use, of a device": lambda about: pool_in_use(about, DEVICE),
        "an imported pool, a free waits": pool_with_a_free_that_waits,
        "a pool of the host": kernel_without_access,
        "physical memory of the host": kernel_without_access,
    }
    if sys.argv[1:]:
        return alone[sys.argv[1]](sys.argv[1])
    virtual_memory()
    events_between_processes()
    if count > 1:
        two_devices(context)
        ok("cuCtxSetCurrent", context)
    pools_between_processes("pools between processes, of a device", DEVICE)
    pools_between_processes("pools between processes, of the host", HOST)
    pools_that_are_lost("imported pools behind a free, of a device", DEVICE)
    pools_that_are_lost("imported pools behind a free, of the host", HOST)
    waiting_beside_a_capture()
    if made(ctypes.c_int, "cuDriverGetVersion").value >= 13000:
        batches_of_managed_memory("batches of managed memory")
        default_pools_of_the_host()
        pools_of_the_host("the default pool of the host", default_pool(SYSTEM))
    pools_of_the_host("a pool of the host", new_pool(0, SYSTEM))
    pools_of_the_host("a pool of a node of the host", new_pool(0, HOST))
    for kind, name in ((DEVICE, "a device"), (SYSTEM, "the host"), (HOST, "a node"), (CURRENT, "the current node")):
        physical_memory(f"physical memory of {name}", kind)
        if kind != CURRENT:
            memory_with_several_mappings(f"several mappings of {name}", kind)
    # After a fault a context is lost; a driver has crashed long after a pool was destroyed twice.
    for about in alone:
        subprocess.run([sys.executable, __file__, about], check=True)


if __name__ == "__main__":
    main()
