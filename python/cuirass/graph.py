"""Graphs: work that is captured once on a stream and then launched as a whole.

>>> builder = stream.create_graph_builder().begin_building()
>>> cuirass.launch(builder, config, kernel, buffer)
>>> graph = builder.end_building().complete()
>>> graph.launch(stream)

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
