"""Graphs: definitions, nodes, executable graphs."""

from ..objects import definition, graph, launched, memory, stream, works
from ..registry import ALL, dropped, getters, operation, pure, reporting
from ..world import leaving
from .graph_builder import PICTURE

TOGETHER = "what the graph refers to is leaked"
ATTACHMENTS = "a graph refers to things of any kind and number; the report names the graph or the stream"
OTHERS = "the mark behind its launches is another object: close() answers for its own"


def node(definition):
    return next(iter(definition.nodes()))


DEFINITION = dict(memory=memory, definition=definition)
GRAPH = dict(memory=memory, graph=graph)
NODE = dict(memory=memory, definition=definition, node=node)

OPERATIONS = [
    *[
        operation(f"GraphDefinition.{name}", lambda memory, definition, _name=name: getattr(definition, _name)(),
                  **DEFINITION)
        for name in ("nodes", "edges", "to_dot", "to_svg", "_repr_svg_")
    ],
    operation("GraphDefinition.instantiate", lambda memory, definition: definition.instantiate(), callers=ALL,
              **DEFINITION),
    operation("GraphDefinition.debug_dot_print", lambda memory, definition: definition.debug_dot_print(PICTURE),
              **DEFINITION),
    dropped("GraphDefinition", **DEFINITION),
    reporting("GraphDefinition.__del__", lambda memory, definition: definition.__del__(),
              follow=lambda objects: works(objects["memory"]), **DEFINITION),
    *getters("GraphDefinition", ["is_valid", "handle"], calls=False, **DEFINITION),
    pure("GraphDefinition.__eq__", lambda memory, definition: definition == 3, **DEFINITION),
    pure("GraphDefinition.__hash__", lambda memory, definition: hash(definition), **DEFINITION),
    pure("GraphDefinition.__repr__", lambda memory, definition: repr(definition), **DEFINITION),
    *getters("GraphNode", ["type", "graph", "handle", "is_valid"], calls=False, **NODE),
    pure("GraphNode.__eq__", lambda memory, definition, node: node == 3, **NODE),
    pure("GraphNode.__hash__", lambda memory, definition, node: hash(node), **NODE),
    pure("GraphNode.__repr__", lambda memory, definition, node: repr(node), **NODE),
    operation("Graph.launch", lambda memory, graph, stream: graph.launch(stream), callers=ALL, **GRAPH, stream=stream),
    operation("Graph.upload", lambda memory, graph, stream: graph.upload(stream), **GRAPH, stream=stream),
    operation("Graph.update", lambda memory, graph, definition: graph.update(definition), submits=True, **GRAPH,
              definition=definition),
    operation("Graph.close", lambda memory, graph: graph.close(), **GRAPH),
    operation("Graph.close", lambda memory, graph: graph.close(), case="launched", memory=memory, graph=launched)
    .allow("leaks together", TOGETHER, reason=ATTACHMENTS)
    .allow("reported", "cuEventDestroy_v2", reason=OTHERS),
    dropped("Graph", callers=ALL, **GRAPH),
    dropped("Graph", case="launched", memory=memory, graph=launched)
    .allow("leaks together", TOGETHER, reason=ATTACHMENTS),
    reporting("Graph.__del__", lambda memory, graph: graph.__del__(), **GRAPH),
    pure("Graph.__enter__", lambda memory, graph: graph.__enter__(), **GRAPH),
    operation("Graph.__exit__", lambda memory, graph: graph.__exit__(None, None, None), **GRAPH),
    operation("Graph.__exit__", lambda memory, graph: leaving(graph), case="with an exception passing", **GRAPH),
    *[operation(f"Graph.{name}", lambda memory, graph, _name=name: getattr(graph, _name)(), **GRAPH)
      for name in ("to_dot", "to_svg", "_repr_svg_")],
    *getters("Graph", ["is_closed", "handle"], calls=False, **GRAPH),
    pure("Graph.__eq__", lambda memory, graph: graph == 3, **GRAPH),
    pure("Graph.__hash__", lambda memory, graph: hash(graph), **GRAPH),
    pure("Graph.__repr__", lambda memory, graph: repr(graph), **GRAPH),
]  # fmt: skip
