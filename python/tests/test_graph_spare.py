"""The stream of a builder that was closed, which the next one gets, where the primary context goes behind its back."""

import pytest

from .conftest import child

# In a process of its own: a driver ends one that asks about a stream of a context that is gone.
GONE = """
import ctypes, sys, warnings
import cuirass
way = sys.argv[1]
texts = []
warnings.simplefilter("always", cuirass.CUDAWarning)
warnings.showwarning = lambda message, *rest: texts.append(str(message))
device = cuirass.Device(0)
device.set_current()
path, _, _ = cuirass._cuirass._loaded_driver()
driver = ctypes.CDLL(path)
context = ctypes.c_void_p()

def built():
    builder = device.create_graph_builder().begin_building()
    graph = builder.end_building().complete()
    builder.close()
    return graph

built().close()
if "reset" in way:
    assert driver.cuDevicePrimaryCtxReset_v2(0) == 0
if "released" in way:
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
if "retained" in way:
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    stream = device.create_stream()
    for _ in range(3):
        graph = built()
        graph.launch(stream)
        stream.sync()
        graph.close()
    stream.close()
else:
    try:
        device.create_graph_builder()
    except cuirass.CUDAError as error:
        assert "cuCtxGetId" in str(error) and "CONTEXT_IS_DESTROYED" in str(error), error
    else:
        raise AssertionError("a builder in a context that is gone")
cuirass.drain()
cuirass.drain()
assert texts == [], texts
print("as it should")
"""


@pytest.mark.parametrize("way", ["reset", "reset retained", "released", "released retained"])
def test_a_stream_that_went_with_its_context_is_not_touched(way):
    done = child(GONE, way)
    assert done.returncode == 0 and done.stdout == "as it should\n", done
