r"""Graphs: work that is captured once on a stream and then launched as a whole.

>>> import cuirass
>>> from cuirass.graph import GraphBuilder
>>> device = cuirass.Device(0)
>>> device.set_current()
>>> stream = device.create_stream()
>>> code = cuirass.Program('''
...     extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);
...     extern "C" __global__ void add(int* x, int amount) { *x += amount; }
...     extern "C" __global__ void down(unsigned long long condition, int* x) {
...         cudaGraphSetConditional(condition, --*x > 0);
...     }
... ''', "c++", cuirass.ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
>>> add, down = code.get_kernel("add"), code.get_kernel("down")
>>> one = cuirass.LaunchConfig(grid=1, block=1)
>>> first, second = (device.allocate(4, stream=stream) for _ in range(2))
>>> first.fill(0, stream=stream)
>>> second.fill(0, stream=stream)

``split()`` makes branches that run beside each other; what comes after ``join()`` waits for both:

>>> builder = device.create_graph_builder().begin_building()
>>> left, right = builder.split(2)
>>> cuirass.launch(left, one, add, first, 3)
>>> cuirass.launch(right, one, add, second, 4)
>>> builder = GraphBuilder.join(left, right)
>>> cuirass.launch(builder, one, add, first, 2)
>>> graph = builder.end_building().complete()
>>> graph.launch(stream)

A conditional node (``if_then()``, ``if_else()``, ``switch()``, ``while_loop()``; drivers from CUDA 12.3 on) runs by a
condition, a number that kernels set. They call ``cudaGraphSetConditional``, which is declared above as it must be with
NVRTC, and take the condition as a parameter of 8 bytes. Each node needs a condition of its own; its body is a builder:

>>> builder = device.create_graph_builder().begin_building()
>>> condition = builder.create_condition(default_value=1)
>>> body = builder.while_loop(condition).begin_building()
>>> cuirass.launch(body, one, add, second, 10)
>>> cuirass.launch(body, one, down, condition, first)
>>> body = body.end_building()
>>> loop = builder.end_building().complete()
>>> loop.launch(stream)
>>> stream.sync()

The loop has run 5 times: ``first`` was 5, and ``second`` is 4 + 5 * 10.

>>> host = cuirass.LegacyPinnedMemoryResource().allocate(4)
>>> second.copy_to(host, stream=stream) is host
True
>>> stream.sync()
>>> memoryview(host).cast("i")[0]
54

What captured work refers to (buffers, kernels, the functions of callbacks) lives as long as the graph, and until the
launches of it that are under way when it is closed are done.
"""

from ._cuirass import Graph, GraphBuilder, GraphCondition, GraphDefinition, GraphNode
from ._options import GraphCompleteOptions, GraphDebugPrintOptions

__all__ = [
    "Graph",
    "GraphBuilder",
    "GraphCompleteOptions",
    "GraphCondition",
    "GraphDebugPrintOptions",
    "GraphDefinition",
    "GraphNode",
]
