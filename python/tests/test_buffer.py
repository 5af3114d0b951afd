import ctypes
import gc
import sys
import threading
import weakref

import numpy
import pytest

import cuirass
import cuirass.utils
from cuirass import LEGACY_DEFAULT_STREAM, Buffer, CUDAError, Device, testing

from .conftest import calls_of, is_sim, needs_sim


def test_allocate_and_close(device, stream, census):
    buffer = device.allocate(1000, stream=stream)
    assert buffer.size == 1000
    assert buffer.handle > 0
    assert isinstance(buffer.handle, int)
    assert buffer.device_id == 0
    assert buffer.is_device_accessible is True
    assert buffer.is_host_accessible is False
    assert buffer.is_managed is False
    assert buffer.is_mapped is False
    assert buffer.memory_resource is device.memory_resource
    assert buffer.owner is None
    assert weakref.ref(buffer)() is buffer
    buffer.close()
    buffer.close()
    assert buffer.is_closed
    assert (buffer.handle, buffer.size, buffer.memory_resource) == (0, 0, None)
    for use in (
        lambda: buffer.fill(0, stream=stream),
        lambda: buffer.copy_to(buffer, stream=stream),
        lambda: buffer.set_deallocation_stream(stream),
        lambda: buffer.device_id,
        lambda: buffer.is_host_accessible,
    ):
        with pytest.raises(RuntimeError, match="this buffer is closed"):
            use()


def test_wrong_sizes(device, stream):
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError, match="size"):
            device.allocate(wrong, stream=stream)
    with pytest.raises(TypeError):
        device.allocate(1.5, stream=stream)
    with pytest.raises(TypeError):
        device.allocate(16)
    with pytest.raises(TypeError, match="__cuda_stream__"):
        device.allocate(16, stream=1)


def test_copies(device, stream, pinned):
    source, written = pinned(256)
    target, read = pinned(256)
    written[:] = bytes(range(256))
    buffer = device.allocate(256, stream=stream)
    other = device.allocate(256, stream=stream)
    buffer.copy_from(source, stream=stream)
    assert buffer.copy_to(other, stream=stream) is other
    made = other.copy_to(stream=stream)
    assert made.size == 256 and made.memory_resource is device.memory_resource
    made.copy_to(target, stream=stream)
    stream.sync()
    assert bytes(read) == bytes(range(256))


def test_copies_of_different_sizes_are_refused(device, stream):
    small, large = device.allocate(16, stream=stream), device.allocate(32, stream=stream)
    for one, other in ((small, large), (large, small)):
        with pytest.raises(ValueError, match="same size"):
            one.copy_to(other, stream=stream)
        with pytest.raises(ValueError, match="same size"):
            one.copy_from(other, stream=stream)
    with pytest.raises(TypeError, match=r"src must be a Buffer, not bytes$"):
        small.copy_from(b"16 bytes or not?", stream=stream)
    with pytest.raises(TypeError, match="options must be CopyOptions"):
        small.copy_from(small, stream=stream, options={})


@pytest.mark.parametrize("protocol", ["__dlpack__", "__cuda_array_interface__"])
def test_an_array_as_a_buffer_is_told_how_it_is_copied(device, stream, protocol):
    buffer, array = device.allocate(16, stream=stream), type("Array", (), {protocol: None})()
    for copy in (buffer.copy_from, buffer.copy_to):
        with pytest.raises(TypeError, match=r"(src|dst) must be a Buffer, not Array: .*StridedMemoryView, from_any"):
            copy(array, stream=stream)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (0, b"\0"),
        (255, b"\xff"),
        (True, b"\1"),
        (b"\x12", b"\x12"),
        (b"\x12\x34", b"\x12\x34"),
        (b"\x12\x34\x56\x78", b"\x12\x34\x56\x78"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcd"), b"abcd"),
        (ctypes.c_float(1.0), b"\0\0\x80?"),
    ],
)
def test_fill(device, stream, pinned, value, pattern):
    buffer = device.allocate(64, stream=stream)
    target, read = pinned(64)
    buffer.fill(value, stream=stream)
    buffer.copy_to(target, stream=stream)
    stream.sync()
    assert bytes(read) == pattern * (64 // len(pattern))


def test_wrong_fills(device, stream):
    buffer = device.allocate(6, stream=stream)
    for wrong in (-1, 256):
        with pytest.raises(OverflowError):
            buffer.fill(wrong, stream=stream)
    for wrong in (b"", b"abc", b"12345678"):
        with pytest.raises(ValueError, match="1, 2 or 4 bytes"):
            buffer.fill(wrong, stream=stream)
    with pytest.raises(ValueError, match="no multiple"):
        buffer.fill(b"1234", stream=stream)
    with pytest.raises(TypeError):
        buffer.fill(1.5, stream=stream)


def test_equality_and_hash(device, stream):
    one, other = device.allocate(64, stream=stream), device.allocate(64, stream=stream)
    assert one == one and one != other and one != 1
    same = Buffer.from_handle(one.handle, 64)
    assert same == one and hash(same) == hash(one)
    assert Buffer.from_handle(one.handle, 32) != one


def test_as_a_context_manager(device, stream, census):
    with device.allocate(64, stream=stream) as buffer:
        assert not buffer.is_closed
    assert buffer.is_closed
    with pytest.raises(KeyError), device.allocate(64, stream=stream) as buffer:
        raise KeyError
    assert buffer.is_closed


def test_a_failing_release_on_exit_is_a_note(device, stream):
    with pytest.raises(KeyError) as caught, Buffer.from_handle(0x1234, 16, mr=device.memory_resource, stream=stream):
        raise KeyError("mine")
    assert any("cuMemFreeAsync" in note for note in caught.value.__notes__)
    with (
        pytest.raises(CUDAError, match="cuMemFreeAsync"),
        Buffer.from_handle(0x1234, 16, mr=device.memory_resource, stream=stream),
    ):
        pass


def test_the_release_follows_its_stream(device, census):
    stream, other = device.create_stream(), device.create_stream()
    buffer = device.allocate(64, stream=stream)
    buffer.set_deallocation_stream(other)
    # The buffer's share keeps the stream for the release.
    stream.close()
    other.close()
    buffer.close()
    buffer = device.allocate(64, stream=LEGACY_DEFAULT_STREAM)
    buffer.close(stream=device.create_stream())
    buffer = device.allocate(64, stream=LEGACY_DEFAULT_STREAM)
    with pytest.raises(RuntimeError, match="closed"):
        buffer.set_deallocation_stream(stream)
    with pytest.raises(RuntimeError, match="closed"):
        buffer.close(stream)
    assert not buffer.is_closed
    del buffer


def test_a_release_on_a_thread_without_a_context(device, census):
    buffers = [device.allocate(64, stream=LEGACY_DEFAULT_STREAM), device.allocate(64, stream=device.create_stream())]
    thread = threading.Thread(target=buffers.clear)
    thread.start()
    thread.join()
    device.sync()


def test_from_handle_with_an_owner():
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    buffer = Buffer.from_handle(0x1000, 16, owner=owner)
    assert buffer.owner is owner
    assert buffer.memory_resource is None
    del owner
    assert alive() is not None
    buffer.close()
    assert buffer.owner is None
    assert alive() is None


def test_an_owner_in_a_cycle_is_collected():
    class Owner:
        pass

    owner = Owner()
    owner.buffer = Buffer.from_handle(0x1000, 16, owner=owner)
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


def test_from_handle_takes_what_cuda_bindings_give(device):
    driver = pytest.importorskip("cuda.bindings.driver")
    assert Buffer.from_handle(driver.CUdeviceptr(0x1000), 16).handle == 0x1000
    assert Buffer.from_handle(None, 0).handle == 0
    for wrong in ("0x1000", 1.5, b"1"):
        with pytest.raises(TypeError):
            Buffer.from_handle(wrong, 16)
    with pytest.raises(ValueError):
        Buffer.from_handle(-1, 16)
    with pytest.raises(ValueError):
        Buffer.from_handle(0x1000, -1)
    with pytest.raises(ValueError, match="cannot both"):
        Buffer.from_handle(0x1000, 16, mr=device.memory_resource, owner=object())
    with pytest.raises(TypeError, match="mr must be"):
        Buffer.from_handle(0x1000, 16, mr=object())


def test_what_the_driver_knows_of_an_address(device, stream):
    ours = device.allocate(64, stream=stream)
    stream.sync()
    known = Buffer.from_handle(ours.handle, 64, owner=ours)
    assert (known.is_device_accessible, known.is_host_accessible, known.device_id) == (True, False, 0)
    host = ctypes.create_string_buffer(64)
    mine = Buffer.from_handle(ctypes.addressof(host), 64, owner=host)
    assert (mine.is_device_accessible, mine.is_host_accessible, mine.device_id) == (False, True, -1)
    assert mine.is_managed is False
    memoryview(mine)[:3] = b"abc"
    assert host.value == b"abc"


def test_a_view_keeps_the_memory(device, census):
    buffer = cuirass.LegacyPinnedMemoryResource().allocate(16)
    view = memoryview(buffer)
    assert view.nbytes == 16 and not view.readonly
    buffer.close()
    view[:] = bytes(range(16))
    assert bytes(view) == bytes(range(16))
    if is_sim():
        assert cuirass.sim.census()["pinned_memory"] == 1
    view.release()
    with pytest.raises(RuntimeError, match="closed"):
        memoryview(buffer)


def test_a_view_of_device_memory_is_refused(device, stream):
    buffer = device.allocate(16, stream=stream)
    for read in (memoryview, numpy.asarray, numpy.array):
        with pytest.raises(BufferError, match="copy it to host memory"):
            read(buffer)
    view = cuirass.utils.StridedMemoryView.from_buffer(buffer, (4,), dtype=numpy.dtype("i4"))
    for read in (numpy.asarray, numpy.array):
        with pytest.raises(BufferError, match="copy it to host memory"):
            read(view)


def test_host_memory_is_an_array(device):
    buffer = cuirass.LegacyPinnedMemoryResource().allocate(16)
    memoryview(buffer)[:] = bytes(range(16))
    assert numpy.asarray(buffer).tolist() == list(range(16)) == buffer.__array__(copy=True).tolist()
    assert buffer.__array__("i4").tolist() == list(range(16))
    view = cuirass.utils.StridedMemoryView.from_buffer(buffer, (2,), (2,), dtype=numpy.dtype("<i4"))
    assert numpy.asarray(view).tolist() == [0x03020100, 0x0B0A0908]
    numpy.asarray(view)[0] = 0
    assert bytes(memoryview(buffer)[:5]) == bytes([0, 0, 0, 0, 4])


@needs_sim
def test_a_use_after_close_gives_nothing_back_twice(device, census):
    mark = cuirass.sim.reports_mark()
    buffer = cuirass.LegacyPinnedMemoryResource().allocate(16)
    buffer.close()
    for _ in range(5):
        with pytest.raises(RuntimeError):
            buffer.fill(0, stream=LEGACY_DEFAULT_STREAM)
        gc.collect()
    del buffer
    assert cuirass.sim.reports(mark) == []


def test_closing_while_others_copy(device, census):
    for _ in range(20):
        stream = device.create_stream()
        one, other = device.allocate(1 << 12, stream=stream), device.allocate(1 << 12, stream=stream)
        unexpected = []

        def copy(one=one, other=other, stream=stream, unexpected=unexpected):
            for _ in range(1000):
                try:
                    one.copy_to(other, stream=stream)
                except RuntimeError as error:
                    if "closed" not in str(error):
                        unexpected.append(error)
                    return

        threads = [threading.Thread(target=copy) for _ in range(2)]
        for thread in threads:
            thread.start()
        one.close()
        other.close()
        for thread in threads:
            thread.join()
        assert unexpected == []
        stream.close()


def test_a_buffer_is_small(device, stream):
    assert sys.getsizeof(device.allocate(1, stream=stream)) <= 200


def test_not_constructed_and_not_pickled(device, stream):
    import pickle

    with pytest.raises(RuntimeError, match="allocate"):
        Buffer()
    with pytest.raises(RuntimeError, match=r"DeviceMemoryResourceOptions\(ipc_enabled=True\)"):
        pickle.dumps(device.allocate(16, stream=stream))
    with pytest.raises(RuntimeError):
        _ = device.allocate(16, stream=stream).ipc_descriptor


@pytest.mark.skipif(not is_sim(), reason="needs two devices")
def test_memory_of_another_device(device):
    other = Device(1)
    buffer = other.allocate(64, stream=other.create_stream())
    assert buffer.device_id == 1
    assert Device() is device


def test_an_owner_is_kept_where_its_stream_could_not_be_waited_for(device):
    class Owner:
        pass

    owner = Owner()
    kept = weakref.ref(owner)
    stream = device.create_stream()
    buffer = Buffer.from_handle(0x1000, 16, owner=owner)
    del owner
    with cuirass.testing.fail("cuStreamSynchronize", status="CUDA_ERROR_UNKNOWN"), pytest.raises(CUDAError) as caught:
        buffer.close(stream)
    assert buffer.is_closed and kept() is not None
    note = "the owner of the memory (0x1000) is leaked, since the device may not be done with it"
    assert note in caught.value.__notes__


def test_a_stream_orders_nothing_without_a_resource(device):
    stream = device.create_stream()
    for given in ({}, {"owner": object()}):
        with pytest.raises(ValueError, match="without mr nothing is released"):
            Buffer.from_handle(0x1000, 16, stream=stream, **given)


def shown_by_dlpack(buffer):
    return buffer.__dlpack__(stream=-1)


@pytest.mark.parametrize("show", [memoryview, numpy.asarray, shown_by_dlpack])
def test_the_stream_of_a_close_orders_the_release_of_what_is_shown_still(device, stream, census, show):
    other = device.create_stream()
    resource = cuirass.PinnedMemoryResource(cuirass.PinnedMemoryResourceOptions(max_size=1 << 26))
    shown = []
    for closed_on in (other, None):
        buffer = resource.allocate(64, stream=stream)
        shown.append(show(buffer))
        buffer.close(closed_on)
        assert buffer.is_closed
    del buffer
    with testing.record() as recording:
        shown.reverse()
        shown.pop()
        shown.pop()
    freed_on = [call.arguments[1] for call in recording.calls if call.name == "cuMemFreeAsync"]
    assert freed_on == [int(other.handle), int(stream.handle)]
    resource.close()
    other.close()


@pytest.mark.parametrize("dropped_first", [True, False])
def test_a_part_keeps_the_memory_of_a_buffer_that_is_closed(device, census, dropped_first):
    """A buffer that is the owner of another: what the part shows is there as long as the part is."""
    whole = cuirass.LegacyPinnedMemoryResource().allocate(64)
    address = int(whole.handle)
    memoryview(whole)[:] = bytes(range(64))
    part = Buffer.from_handle(int(whole.handle) + 16, 16, owner=whole)
    part_of_it = Buffer.from_handle(int(part.handle) + 8, 8, owner=part)
    with testing.record() as recording:
        whole.close()
        part.close()
        assert whole.is_closed and part.is_closed
        if dropped_first:
            del whole, part
        assert bytes(memoryview(part_of_it)) == bytes(range(24, 32))
        assert calls_of(recording, "cuMemFreeHost", address) == 0
        del part_of_it
    assert calls_of(recording, "cuMemFreeHost", address) == 1


def test_a_closed_buffer_owns_nothing(device, stream):
    closed = device.allocate(64, stream=stream)
    address = int(closed.handle)
    closed.close()
    with pytest.raises(RuntimeError, match="owner is a closed buffer"):
        Buffer.from_handle(address, 64, owner=closed)


@pytest.mark.parametrize("kind", ["a user's resource", "an owner", "page-locked"])
def test_the_stream_of_a_close_is_not_forgotten_where_no_stream_orders(device, stream, kind):
    """Without an order the stream is waited for before the share is given up; if that fails it is not."""

    class Resource(cuirass.MemoryResource):
        is_device_accessible = is_host_accessible = True
        device_id, freed = -1, ()

        def deallocate(self, ptr, size, *, stream):
            self.freed = (*self.freed, stream)

    inner = cuirass.LegacyPinnedMemoryResource().allocate(64)
    resource = Resource() if kind == "a user's resource" else None
    if kind == "page-locked":
        buffer = inner
    else:
        how = {"mr": resource, "stream": stream} if resource else {"owner": inner}
        buffer = Buffer.from_handle(inner.handle, 64, **how)
    view = memoryview(inner) if kind == "page-locked" else buffer.__dlpack__(stream=-1)
    other = device.create_stream()
    if resource:
        buffer.close(other)
        assert resource.freed == ()
        del view
        assert resource.freed == (other,)
        return
    with testing.fail("cuStreamSynchronize"), pytest.raises(CUDAError):
        buffer.close(other)
    assert not buffer.is_closed
    with testing.record() as recording:
        buffer.close(other)
    assert buffer.is_closed
    waits = [call.arguments for call in recording.calls if call.name == "cuStreamSynchronize"]
    assert waits == [[int(other.handle)]]
    del view


@pytest.mark.parametrize("dropped", ["by count", "by the collector"])
def test_a_long_chain_of_owners_goes_at_once(device, stream, census, dropped):
    class Owner:
        """What is at its end, to see that all of it goes."""

    memory, owner = device.allocate(64, stream=stream), Owner()
    gone, chain = weakref.ref(owner), Buffer.from_handle(memory.handle, 64, owner=owner)
    del owner
    for _ in range(100_000):
        chain = Buffer.from_handle(memory.handle, 64, owner=chain)
    if dropped == "by the collector":
        lost = [chain]
        lost.append(lost)
        del lost
    del chain
    gc.collect()
    assert gone() is None
    memory.close()


def test_no_view_of_no_memory():
    """A size and a null address: whoever read what a view shows would end the process."""
    for buffer in (Buffer.from_handle(0, 64), Buffer.from_handle(None, 64)):
        with pytest.raises(BufferError, match="its address is null"):
            memoryview(buffer)
        with pytest.raises(BufferError, match="its address is null"):
            buffer.__dlpack__()
    assert memoryview(Buffer.from_handle(0, 0)).nbytes == 0
