"""Access between devices, and work on two of them."""

import copy
import pickle

import numpy as np
import pytest

import cuirass
from cuirass import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource
from cuirass._memory._peer_access_utils import PeerAccessibleBySetProxy
from cuirass.utils import CopyOptions, copy_2d, copy_3d, copy_batch

from .conftest import KERNELS, child, driver_version, needs_sim

pytestmark = pytest.mark.thread_unsafe(reason="access to a device's memory is the whole process's")


@pytest.fixture
def other(device):
    devices = Device.get_all_devices()
    if len(devices) < 2:
        pytest.skip("one device")
    return devices[1]


@pytest.fixture
def pool(device):
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    yield resource
    resource.close()


def test_which_devices_can(device, other):
    assert device.can_access_peer(other)
    assert other.can_access_peer(device.device_id)
    assert device.can_access_peer(device)
    with pytest.raises(ValueError, match="1000"):
        device.can_access_peer(1000)


def test_access_is_what_the_driver_says(pool, other):
    peers = pool.peer_accessible_by
    assert isinstance(peers, PeerAccessibleBySetProxy)
    assert (len(peers), list(peers), other in peers) == (0, [], False)
    peers.add(other)
    assert (len(peers), list(peers), other in peers, other.device_id in peers) == (1, [other], True, True)
    # Another view of the same pool sees it.
    assert pool.peer_accessible_by == {other}
    peers.discard(other.device_id)
    assert peers == set()
    peers.discard(other)


def test_the_own_device_is_left_out(pool, device, other):
    pool.peer_accessible_by = [device, other]
    assert pool.peer_accessible_by == {other}
    pool.peer_accessible_by = [device.device_id]
    assert pool.peer_accessible_by == set()
    assert device not in pool.peer_accessible_by


def test_each_change_is_one_call(pool, other):
    peers = pool.peer_accessible_by
    for change in (
        lambda: peers.update([other], [other.device_id]),
        lambda: peers.clear(),
        lambda: peers.symmetric_difference_update([other]),
        lambda: peers.intersection_update([]),
        lambda: setattr(pool, "peer_accessible_by", {other}),
        lambda: peers.difference_update({other}),
    ):
        with cuirass.testing.record() as recording:
            change()
        assert [call.name for call in recording.calls].count("cuMemPoolSetAccess") == 1
    with cuirass.testing.record() as recording:
        peers.clear()
        peers.update([])
    assert "cuMemPoolSetAccess" not in [call.name for call in recording.calls]


def test_the_operators_of_a_set(pool, other):
    peers = pool.peer_accessible_by
    peers |= {other}
    assert peers == {other}
    assert peers & {other} == {other}
    peers &= set()
    assert peers == set()
    peers ^= {other}
    assert peers == {other}
    peers -= {other}
    assert len(peers) == 0
    assert repr(peers) == "PeerAccessibleBySetProxy([])"


def test_what_is_no_device(pool):
    peers = pool.peer_accessible_by
    assert "a" not in peers
    with pytest.raises(TypeError):
        peers.add("a")
    with pytest.raises(ValueError, match="1000"):
        peers.add(1000)
    with pytest.raises(TypeError):
        hash(peers)


def test_a_failure_leaves_access_as_it_was(pool, other):
    refused = cuirass.testing.fail("cuMemPoolSetAccess", status="CUDA_ERROR_OUT_OF_MEMORY")
    with refused, pytest.raises(cuirass.CUDAError, match="cuMemPoolSetAccess"):
        pool.peer_accessible_by.add(other)
    assert pool.peer_accessible_by == set()


def test_the_end_of_a_pool_takes_access_back(device, other):
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    resource.peer_accessible_by.add(other)
    with cuirass.testing.record() as recording:
        resource.close()
    names = [call.name for call in recording.calls]
    assert names.index("cuMemPoolSetAccess") < names.index("cuMemPoolDestroy")
    for _again in range(8):
        fresh = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
        assert fresh.peer_accessible_by == set()
        fresh.close()


@pytest.mark.filterwarnings("error")
def test_a_kernel_of_another_device_uses_the_memory(device, other, pool):
    other.set_current()
    kernel = (
        cuirass.Program(KERNELS, "c++", cuirass.ProgramOptions(arch=f"sm_{other.arch}"))
        .compile("cubin")
        .get_kernel("add")
    )
    device.set_current()
    ours = device.create_stream()
    values = pool.allocate(4096, stream=ours)
    values.fill(b"\x05\x00\x00\x00", stream=ours)
    pool.peer_accessible_by.add(other)
    done = ours.record()
    other.set_current()
    theirs = other.create_stream()
    theirs.wait(done)
    cuirass.launch(theirs, cuirass.LaunchConfig(grid=8, block=128), kernel, values, 1024, 37)
    theirs.sync()
    host = LegacyPinnedMemoryResource().allocate(4096)
    device.set_current()
    values.copy_to(host, stream=ours)
    ours.sync()
    assert (np.frombuffer(host, dtype=np.int32) == 42).all()
    values.close(theirs)
    theirs.sync()


NO_ACCESS = """
import cuirass
device, other = cuirass.Device.get_all_devices()
device.set_current()
stream = device.create_stream()
memory = cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions()).allocate(4096, stream=stream)
memory.fill(0, stream=stream)
stream.sync()
other.set_current()
source = "extern \\"C\\" __global__ void set(int* x) { *x = 1; }"
code = cuirass.Program(source, "c++", cuirass.ProgramOptions(arch=f"sm_{other.arch}")).compile("cubin")
theirs = other.create_stream()
cuirass.launch(theirs, cuirass.LaunchConfig(grid=1, block=1), code.get_kernel("set"), memory)
try:
    theirs.sync()
except cuirass.CUDAStickyError as error:
    print(error.status.name, *error.__notes__, *(report["text"] for report in cuirass.sim.reports()))
"""


@needs_sim
def test_a_fault_says_that_access_is_missing():
    result = child(NO_ACCESS, env={"CUIRASS_SIM": "devices=2"})
    said = result.stdout + result.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said
    assert "device 1 has no access to this allocation of device 0 (cuMemPoolSetAccess" in said


@pytest.fixture
def both(device, other, pool):
    """A pool on each of two devices."""
    elsewhere = DeviceMemoryResource(other, DeviceMemoryResourceOptions())
    yield pool, elsewhere
    elsewhere.close()
    device.set_current()


def test_copies_between_devices(device, other, both):
    device.set_current()
    here, there = device.create_stream(), other.create_stream()
    both[0].peer_accessible_by = [other]
    both[1].peer_accessible_by = [device]
    near = both[0].allocate(1 << 16, stream=here)
    far = both[1].allocate(1 << 16, stream=there)
    near.fill(7, stream=here)
    there.sync()
    near.copy_to(far, stream=here)
    there.wait(here.record())
    host = LegacyPinnedMemoryResource().allocate(1 << 16)
    other.set_current()
    far.copy_to(host, stream=there)
    there.sync()
    assert (np.frombuffer(host, dtype=np.uint8) == 7).all()
    assert (near.device_id, far.device_id) == (device.device_id, other.device_id)
    device.set_current()
    near.close()
    far.close()


def test_a_copy_without_access_is_refused(device, other, both):
    device.set_current()
    here, there = device.create_stream(), other.create_stream()
    near, far = both[0].allocate(256, stream=here), both[1].allocate(256, stream=there)
    there.sync()
    options = CopyOptions(src_access_order="any")
    batches = [
        (lambda: near.copy_to(far, stream=here, options=options), here, other),
        (lambda: copy_batch(here, [near], [far]), here, other),
    ]
    if driver_version() < (13, 0):
        batches = []
    for work, at, owner in (
        (lambda: near.copy_to(far, stream=here), here, other),
        (lambda: near.copy_from(far, stream=here), here, other),
        (lambda: far.copy_from(near, stream=there), there, device),
        (lambda: near.copy_from(far, stream=there), there, device),
        (lambda: near.fill(1, stream=there), there, device),
        (lambda: far.fill(b"1234", stream=here), here, other),
        (lambda: copy_2d(far, near, width=16, height=4, stream=here), here, other),
        (lambda: copy_3d(near, far, width=16, height=2, depth=2, stream=there), there, device),
        *batches,
    ):
        with pytest.raises(cuirass.CUDAError, match=r"INVALID_VALUE.*cuMem(cpy|set)") as caught:
            work()
        # The driver does not say why.
        (note,) = caught.value.__notes__
        assert f"of a pool of device {owner.device_id}, the stream of device {at.device.device_id}: " in note
        assert "peer_accessible_by" in note
    both[1].peer_accessible_by.add(device)
    near.copy_to(far, stream=here)
    here.sync()
    near.close()
    far.close()
    here.sync()
    there.sync()


def test_what_is_no_set_of_devices(device):
    resource = cuirass.DeviceMemoryResource(device)
    for wrong in (1, None, 1.5):
        with pytest.raises(TypeError, match=f"peer_accessible_by must be an iterable.* not {type(wrong).__name__}"):
            resource.peer_accessible_by = wrong


@pytest.mark.parametrize("copies", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_view_of_the_peers_is_not_pickled(device, copies):
    """As the views of a dictionary; what it holds now is."""
    peers = cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions()).peer_accessible_by
    with pytest.raises(TypeError, match=r"cannot pickle 'PeerAccessibleBySetProxy' object.*set"):
        copies(peers)
    assert pickle.loads(pickle.dumps(set(peers))) == peers
