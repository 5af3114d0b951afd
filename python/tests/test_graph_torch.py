"""Captures that PyTorch began: nothing that cuirass does on its own disturbs them. Needs PyTorch and a GPU."""

import gc
import threading

import pytest

import cuirass

from .conftest import is_sim

if is_sim():
    pytest.skip("PyTorch needs a GPU", allow_module_level=True)
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("place", ["same", "other"])
def test_look_ups_and_releases_leave_its_captures_alone(mode, place):
    device = cuirass.Device(0)
    device.set_current()
    mine = device.create_stream()
    pool = cuirass.DeviceMemoryResource(device, cuirass.DeviceMemoryResourceOptions())
    things = [pool.allocate(1024, stream=mine), device.create_event(), device.create_stream(), pool]
    del pool
    torch.cuda.synchronize()

    def work():
        device.memory_resource  # noqa: B018
        cuirass.DeviceMemoryResource(device)
        things.clear()
        gc.collect()
        cuirass.drain()

    tensor = torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        tensor += 1
        if place == "same":
            work()
        else:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        tensor += 1
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert tensor.tolist() == [6.0] * 64
    mine.close()


def test_work_of_cuirass_joins_its_captures(code):
    device = cuirass.Device(0)
    device.set_current()
    add = code.get_kernel("add")
    tensor = torch.zeros(64, dtype=torch.int32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = device.create_stream(_Torch(torch.cuda.current_stream()))
        cuirass.launch(stream, cuirass.LaunchConfig(grid=1, block=64), add, tensor.data_ptr(), 64, 5)
        tensor += 1
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert tensor.tolist() == [12] * 64


class _Torch:
    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.cuda_stream
