"""Graphs of vertices: stages, the streams of messages between them, and loops. What a graph means, not how it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from headrace.model.errors import PipelineError
from headrace.model.timely.loopgraph import LoopGraph
from headrace.model.timely.pathsummaries import ENTER, FEEDBACK, LEAVE, STAY
from headrace.model.timely.vertex import Vertex

ONLY: Final = ""
"""The name of the input of a stage that has one."""


@dataclass(eq=False)
class LoopContext:
    """A loop of a graph: streams enter it, go round by feedback, and leave it.

    Within it, times have one counter more: 0 for what enters, and one more for each time that it went round.

    >>> graph = Graph()
    >>> outer = graph.loop("outer", iterations=3)
    >>> inner = outer.loop("inner")
    >>> inside = inner.enter(outer.enter(graph.input("numbers")))
    >>> graph.loops.depth[inside.node] + 1  # an epoch and two counters
    3
    """

    graph: Graph = field(repr=False)
    name: str
    parent: LoopContext | None
    iterations: int | None
    limit: int

    def enter(self, stream: Stream) -> Stream:
        """Returns a stream of the same messages within the loop, in its first round."""
        self._check("enter", stream, self.parent, "of the context around the loop")
        return self._pass(ENTER, stream, self)

    def leave(self, stream: Stream) -> Stream:
        """Returns a stream of the same messages outside of the loop, of all rounds."""
        self._check("leave", stream, self, "of the loop")
        return self._pass(LEAVE, stream, self.parent)

    def feedback(self) -> Feedback:
        """Returns the stream of what goes round; `connect` says what that is."""
        node = self.graph._add_node(f"{self.name}/{FEEDBACK}", FEEDBACK, self)
        return Feedback(self.graph, node, context=self)

    def loop(self, name: str | None = None, *, iterations: int | None = None, limit: int = 1000) -> LoopContext:
        """Returns a loop within this one."""
        return self.graph._add_loop(self, name, iterations, limit)

    def _pass(self, kind: str, stream: Stream, context: LoopContext | None) -> Stream:
        node = self.graph._add_node(f"{self.name}/{kind}", kind, self)
        self.graph._connect(stream, node)
        return Stream(self.graph, node, context=context, key=stream.key)

    def _check(self, method: str, stream: Stream, context: LoopContext | None, where: str) -> None:
        if not isinstance(stream, Stream) or stream.graph is not self.graph:
            raise PipelineError(f"{self.name}: {method} takes a stream of its graph, got {stream!r}")
        if stream.context is not context:
            raise PipelineError(
                f"{self.name}: {method} takes a stream {where}, got {stream!r}; enter or leave loops one by one"
            )


@dataclass(eq=False)
class Stream:
    """A stream of messages in a graph: an output of a stage, an input, or what entered or left a loop.

    `stream["odd"]` is another output of the same stage. `stream.by(fn)` says to which vertex of the next stage a
    message goes: those with equal keys `fn(message)` go to one.

    >>> class Pass(Vertex):
    ...     def on_recv(self, message, time):
    ...         self.send(message, time)
    >>> graph = Graph()
    >>> graph.stage(Pass, graph.input("words").by(len), vertices=4)
    Stream(node='Pass', output='out')
    """

    graph: Graph = field(repr=False)
    node: str
    output: str = "out"
    context: LoopContext | None = field(default=None, repr=False)
    key: Callable[[Any], Any] | None = field(default=None, repr=False)

    def by(self, key: Callable[[Any], Any]) -> Stream:
        """Returns the same stream with a partitioning function."""
        if not callable(key):
            raise PipelineError(f"by takes a function from a message to its key, got {key!r}")
        return Stream(self.graph, self.node, self.output, self.context, key)

    def __getitem__(self, output: str) -> Stream:
        stage = self.graph.stages.get(self.node)
        if stage is None or output not in stage.outputs:
            known = () if stage is None else stage.outputs
            raise PipelineError(
                f"{self.node!r} has no output {output!r}; it has {', '.join(map(repr, known)) or 'one'}"
            )
        return Stream(self.graph, self.node, output, self.context)


class Feedback(Stream):
    """The stream of what goes round in a loop.

    >>> class Merge(Vertex):
    ...     def on_recv_new(self, message, time):
    ...         if message > 1:
    ...             self.send(message // 2, time)
    ...     on_recv_old = on_recv_new
    >>> graph = Graph()
    >>> loop = graph.loop()
    >>> back = loop.feedback()
    >>> halves = graph.stage(Merge, {"new": loop.enter(graph.input("numbers")), "old": back})
    >>> back.connect(halves)
    """

    def connect(self, stream: Stream) -> None:
        """Says which stream goes round: its messages come out of this one, with a counter that is one more."""
        assert self.context is not None
        self.context._check("feedback", stream, self.context, "of the loop")
        self.graph._connect(stream, self.node)


@dataclass(frozen=True)
class Connector:
    """A connection: from an output of a node to an input of another, and the key by which vertices are chosen."""

    sender: str
    output: str
    receiver: str
    input: str
    key: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Stage:
    """A stage: so many vertices that a function makes, the names of its inputs and outputs, and the loop it is in."""

    name: str
    make: Callable[[], Vertex]
    vertices: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    context: LoopContext | None


class Graph:
    """A timely dataflow: inputs, stages of vertices, and loops.

    >>> class Halve(Vertex):
    ...     outputs = ("even", "odd")
    ...     def on_recv_new(self, message, time):
    ...         self.send_by("odd" if message % 2 else "even", message // 2, time)
    ...     on_recv_old = on_recv_new
    >>> graph = Graph()
    >>> numbers = graph.input("numbers")
    >>> loop = graph.loop()
    >>> back = loop.feedback()
    >>> halved = graph.stage(Halve, {"new": loop.enter(numbers), "old": back})
    >>> back.connect(halved["even"])
    >>> odd = loop.leave(halved["odd"])
    >>> graph.loops.could_result_in(("numbers", (0,)), ("Halve", (0, 7)))
    True
    """

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}  # by name, where messages come from
        self.stages: dict[str, Stage] = {}
        self.contexts: dict[str, LoopContext] = {}
        self.kinds: dict[str, str] = {}  # of nodes that enter, leave or go round
        self.within: dict[str, LoopContext] = {}  # the loops that these nodes belong to
        self.connectors: list[Connector] = []
        self.complete = False

    def __getstate__(self) -> dict[str, Any]:
        """Leaves origins out: a graph runs where there is no pipeline."""
        return {
            **{name: value for name, value in self.__dict__.items() if name not in ("loops", "receivers")},
            "inputs": dict.fromkeys(self.inputs),
        }

    def input(self, name: str, origin: Any = None) -> Stream:
        """Adds an input, whose messages come from a collection of a pipeline."""
        self._check_name(name)
        self.inputs[name] = origin
        return Stream(self, name)

    def stage(
        self,
        vertex: Callable[[], Vertex],
        inputs: Stream | Mapping[str, Stream],
        *,
        vertices: int = 1,
        name: str | None = None,
    ) -> Stream:
        """Adds a stage, and returns the stream of its first output.

        - vertex: a class of vertices, or a function that makes one
        - inputs: the stream that it reads; or several by name, for each of which the vertex has an `on_recv_NAME`
        - vertices: how many vertices the stage has; with several, streams need a partitioning function (`Stream.by`)
        """
        name = name or getattr(vertex, "__name__", None) or type(vertex).__name__
        self._check_name(name)
        streams = {ONLY: inputs} if isinstance(inputs, Stream) else dict(inputs)
        if not streams or not all(isinstance(each, Stream) and each.graph is self for each in streams.values()):
            raise PipelineError(f"stage {name!r} reads streams of its graph, one or several by name, got {inputs!r}")
        if type(vertices) is not int or vertices < 1:
            raise PipelineError(f"stage {name!r}: vertices must be a number of vertices, at least 1, got {vertices!r}")
        made = vertex()
        if not isinstance(made, Vertex):
            raise PipelineError(f"stage {name!r} takes a class of vertices or a function that makes one, got {made!r}")
        for each, stream in streams.items():
            if getattr(type(made), method_of(each), Vertex.on_recv) is Vertex.on_recv:
                raise PipelineError(
                    f"stage {name!r} reads {each!r}, but {type(made).__name__} has no method "
                    f"{method_of(each)}(message, time); write one"
                )
            if vertices > 1 and stream.key is None:
                raise PipelineError(
                    f"stage {name!r} has {vertices} vertices, but {stream!r} does not say which of them a message goes "
                    "to; give it a partitioning function by stream.by(...)"
                )
        contexts = {stream.context for stream in streams.values()}
        if len(contexts) > 1:
            raise PipelineError(f"stage {name!r} reads streams of different loops; let each enter or leave first")
        (context,) = contexts
        self.stages[name] = Stage(name, vertex, vertices, tuple(streams), tuple(made.outputs), context)
        for each, stream in streams.items():
            self._connect(stream, name, each)
        return Stream(self, name, made.outputs[0], context)

    def loop(self, name: str | None = None, *, iterations: int | None = None, limit: int = 1000) -> LoopContext:
        """Adds a loop, which ends when nothing goes round any more.

        With `iterations`, messages are in rounds 0 to `iterations` - 1, and what would go round further is left out. A
        loop that goes round more often than `limit` is an error.
        """
        return self._add_loop(None, name, iterations, limit)

    @cached_property
    def loops(self) -> LoopGraph:
        """The nodes and edges of the graph, by which progress is computed."""
        for node, kind in self.kinds.items():
            if kind == FEEDBACK and not any(each.receiver == node for each in self.connectors):
                raise PipelineError(f"nothing goes round by {node!r}; say feedback.connect(stream)")
        edges = [(each.sender, each.receiver) for each in self.connectors]
        return LoopGraph(edges, {**dict.fromkeys(self.inputs, STAY), **self.kinds})

    @cached_property
    def receivers(self) -> dict[tuple[str, str], list[Connector]]:
        """The connectors behind each output of each node."""
        found: dict[tuple[str, str], list[Connector]] = {}
        for each in self.connectors:
            found.setdefault((each.sender, each.output), []).append(each)
        return found

    def _add_loop(
        self, parent: LoopContext | None, name: str | None, iterations: int | None, limit: int
    ) -> LoopContext:
        for option, number in (("iterations", iterations), ("limit", limit)):
            if number is not None and (type(number) is not int or number < 1):
                raise PipelineError(f"loop: {option} must be a whole number, at least 1, got {number!r}")
        name = name or f"loop {len(self.contexts) + 1}"
        self._check_name(name)
        self.contexts[name] = LoopContext(self, name, parent, iterations, limit)
        return self.contexts[name]

    def _add_node(self, name: str, kind: str, context: LoopContext) -> str:
        node = f"{name} {1 + sum(each.startswith(name) for each in self.kinds)}"
        self.kinds[node], self.within[node] = kind, context
        return node

    def _connect(self, stream: Stream, node: str, input_: str = ONLY) -> None:
        if self.complete:
            raise PipelineError("the graph is complete: its messages go to a pipeline already; build it before")
        for name in ("loops", "receivers"):  # computed from connectors
            self.__dict__.pop(name, None)
        self.connectors.append(Connector(stream.node, stream.output, node, input_, stream.key))

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise PipelineError(f"inputs, stages and loops have names of text, got {name!r}")
        if name in {*self.inputs, *self.stages, *self.contexts, *self.kinds}:
            raise PipelineError(f"two parts of the graph are called {name!r}; give one of them another name")


def method_of(input_: str) -> str:
    """Returns the name of the method that takes messages of an input.

    >>> method_of(ONLY), method_of("edges")
    ('on_recv', 'on_recv_edges')
    """
    return "on_recv" if input_ == ONLY else f"on_recv_{input_}"
