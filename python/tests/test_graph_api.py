"""The names, members and signatures of ``cuda.core.graph`` that this stage of the package promises."""

import dataclasses
import inspect

import pytest

import cuirass
from cuirass import graph

CLASSES = {
    "Graph": ["close", "is_closed", "handle", "update", "upload", "launch", "to_dot", "to_svg", "_repr_svg_"],
    "GraphBuilder": [
        "close",
        "is_closed",
        "stream",
        "is_join_required",
        "graph_definition",
        "begin_building",
        "is_building",
        "end_building",
        "complete",
        "debug_dot_print",
        "split",
        "join",
        "__cuda_stream__",
        "create_condition",
        "if_then",
        "if_else",
        "switch",
        "while_loop",
        "embed",
        "callback",
        "__enter__",
        "__exit__",
    ],
    "GraphCondition": ["__eq__", "__hash__", "handle"],
    "GraphDefinition": ["is_valid", "handle", "nodes", "edges", "instantiate", "debug_dot_print", "__eq__", "__hash__"],
    "GraphNode": ["type", "graph", "handle", "is_valid", "__eq__", "__hash__"],
}
SIGNATURES = {
    "GraphBuilder.begin_building": "(self, /, mode='relaxed')",
    "GraphBuilder.complete": "(self, /, options=None)",
    "GraphBuilder.debug_dot_print": "(self, /, path, options=None)",
    "GraphBuilder.split": "(self, /, count)",
    "GraphBuilder.join": "(*graph_builders)",
    "GraphBuilder.create_condition": "(self, /, default_value=None)",
    "GraphBuilder.switch": "(self, /, condition, count)",
    "GraphBuilder.embed": "(self, /, child)",
    "GraphBuilder.callback": "(self, /, fn, *, user_data=None)",
    "Graph.update": "(self, /, source)",
    "Graph.launch": "(self, /, stream)",
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name):
    found = getattr(graph, name)
    assert found.__module__ == "cuirass.graph" and found.__doc__
    for member in CLASSES[name]:
        assert hasattr(found, member), member
        assert member.startswith("_") or getattr(found, member).__doc__, member
    with pytest.raises((RuntimeError, NotImplementedError)):
        found()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    kind, member = name.split(".")
    assert str(inspect.signature(getattr(getattr(graph, kind), member))) == SIGNATURES[name]


def test_options():
    complete = {field.name: field.default for field in dataclasses.fields(graph.GraphCompleteOptions)}
    assert complete == {
        "auto_free_on_launch": False,
        "upload_stream": None,
        "device_launch": False,
        "use_node_priority": False,
    }
    printed = dataclasses.fields(graph.GraphDebugPrintOptions)
    assert len(printed) == 16 and all(field.default is False for field in printed)
    for options in (graph.GraphCompleteOptions, graph.GraphDebugPrintOptions):
        assert options.__module__ == "cuirass.graph"
        with pytest.raises(TypeError):
            hash(options())


def test_makers_and_memory():
    for maker in (cuirass.Device, cuirass.Stream):
        assert str(inspect.signature(maker.create_graph_builder)) == "(self, /)"
    for member in ["allocate", "deallocate", "close", "trim", "attributes", "device_id", "is_device_accessible"]:
        assert hasattr(cuirass.GraphMemoryResource, member)
