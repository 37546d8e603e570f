"""From a pipeline to a graph of vertices, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.timely.executor import Sent
from headrace.engine.timely.graphtask import GraphTask, compute_graph
from headrace.engine.timely.shardedgraph import ShardedGraphTask
from headrace.engine.timely.vertexplaces import shards_of_input
from headrace.model.dofn import DoFn, TaggedOutput, TimestampedValue
from headrace.model.elementwise import FlatMap, ParDo
from headrace.model.errors import PipelineError
from headrace.model.keyed import Flatten, GroupByKey
from headrace.model.pipeline import PCollection
from headrace.model.tasks import Tasks, checked_shards
from headrace.model.timely.epochs import TIME, Epochs, checked_epochs, epoch_of
from headrace.model.timely.vertexgraph import Graph, Stream


def messages(*streams: Stream, epochs: Epochs = "batch", label: str = "graph", shards: int = 1) -> Any:
    """Gives the messages of streams of a graph to the pipeline, as elements `Sent(message, time)`.

    One stream gives a collection, several give a tuple of them. All that are wanted are given at once: they complete
    the graph, which then runs in one shard, where its vertices are and their state is. The state is found by the label.

    With several `shards`, vertex n of each stage of a stream is in shard n mod shards. Messages within a shard are
    delivered in their micro-batch, those to another shard in the next one, which begins at once; and a notice comes
    when nothing in any shard could result in its time.

    With epochs="batch", every micro-batch of a stream is an epoch, and bounded input is one. With epochs="time", the
    epoch of an element is its event time, in whole seconds, and the watermark closes epochs: messages are delivered as
    they come, and notices of an epoch when the watermark has passed it. An input is as far as its slowest producer. An
    element of an epoch that is closed is late: it is left out, and counted. Messages have the time of their epoch.

    >>> import headrace as hr
    >>> from headrace import naiad
    >>> class Longest(naiad.Vertex):
    ...     def __init__(self):
    ...         self.longest = {}
    ...     def on_recv(self, message, time):
    ...         self.longest[time] = max(self.longest.get(time, ""), message, key=len)
    ...         self.notify_at(time)
    ...     def on_notify(self, time):
    ...         self.send(self.longest.pop(time), time)
    >>> with hr.Pipeline() as p:
    ...     words = [hr.TimestampedValue(word, epoch) for epoch, word in [(0, "ash"), (1, "elm"), (0, "maple")]]
    ...     graph = naiad.Graph()
    ...     longest = graph.stage(Longest, graph.input("words", p | hr.Create(words)))
    ...     out = naiad.messages(longest, epochs="time") | hr.Collect()
    >>> sorted(out)
    [Sent(message='elm', time=(1,)), Sent(message='maple', time=(0,))]
    """
    timed = checked_epochs(epochs) == TIME
    graph = _graph_of(streams)
    outputs = {str(number): stream for number, stream in enumerate(streams)}
    bounded = all(origin.bounded for origin in graph.inputs.values())
    shards = 1 if checked_shards(shards) == 1 or bounded else shards
    made = _MakeGraph(graph, outputs, epochs)
    sender = _TimedSender if timed else _Sender
    sent = tuple(
        origin | f"{label}/send {name}" >> ParDo(sender(name, made, shards)) for name, origin in graph.inputs.items()
    )
    if bounded:
        together = sent | f"{label}/together" >> Flatten() | f"{label}/at one place" >> GroupByKey()
        found = together | f"{label}/compute" >> ParDo(made.compute).with_outputs(*outputs)
        collections = [found[tag] | f"{label}/messages {tag}" >> FlatMap(made.timed) for tag in outputs]
    else:
        where = "all in one shard" if shards == 1 else "a round a micro-batch"
        note = f"{made.stages}, {where}"
        tasks = Tasks(made, tasks=shards, outputs=tuple(outputs), note=note, rounds=shards > 1)
        found = sent | label >> tasks
        by_tag = dict(found) if len(outputs) > 1 else {"0": found}
        collections = [by_tag[tag] | f"{label}/messages {tag}" >> FlatMap(made.read) for tag in outputs]
    return collections[0] if len(collections) == 1 else tuple(collections)


def _graph_of(streams: tuple[Stream, ...]) -> Graph:
    if not streams or not all(isinstance(each, Stream) for each in streams):
        raise PipelineError(f"messages takes streams of a graph, at least one, got {streams!r}")
    graph = streams[0].graph
    if any(each.graph is not graph for each in streams):
        raise PipelineError("messages takes streams of one graph; call it once for each graph")
    if inside := [each for each in streams if each.context is not None]:
        raise PipelineError(f"messages takes streams outside of loops, got {inside[0]!r}; let it leave its loop")
    if graph.complete:
        raise PipelineError("the messages of this graph go to a pipeline already; give all streams at once")
    if bad := [name for name, origin in graph.inputs.items() if not isinstance(origin, PCollection)]:
        raise PipelineError(
            f"the input {bad[0]!r} gets its messages from nowhere; say graph.input({bad[0]!r}, collection)"
        )
    if not graph.inputs:
        raise PipelineError("the graph has no input; add one by graph.input(name, collection)")
    assert graph.loops  # it is checked here, where who builds it sees the error
    graph.complete = True
    return graph


class _Sender(DoFn):
    """Packs a bundle's messages of one input for the shards whose vertices get them."""

    def __init__(self, name: str, made: _MakeGraph, shards: int) -> None:
        self.name, self.made, self.shards = name, made, shards

    def start_bundle(self) -> None:
        self.messages: list[tuple[Any, int | None]] = []

    def process(self, element: Any, *args: Any, **kwargs: Any) -> None:
        self.messages.append((element, None))

    def finish_bundle(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for shard, messages in self._by_shard().items():
            yield shard, pack_list(self.name, messages)

    def _by_shard(self) -> dict[int, list[Any]]:
        if not self.messages or self.shards == 1:
            return {0: self.messages} if self.messages else {}
        found: dict[int, list[Any]] = {}
        for message, epoch in self.messages:
            places = self.made.shards_of(self.name, message, self.shards)
            for shard in places:
                found.setdefault(shard, []).append((message, epoch, shard == places[0]))
        return found


class _TimedSender(_Sender):
    """Packs messages with their epochs."""

    def process(self, element: Any, timestamp: Any = DoFn.TimestampParam) -> None:
        self.messages.append((element, epoch_of(timestamp)))


@dataclass(frozen=True)
class _MakeGraph:
    """Makes the task of a graph, computes it at once in a batch, and reads its messages."""

    graph: Graph
    outputs: Mapping[str, Stream]
    epochs: Epochs
    __name__: str = field(default="graph", init=False)

    def __call__(self, number: int, of: int) -> GraphTask:
        if of > 1:
            return ShardedGraphTask(self.graph, self.outputs, self.epochs, number, of)
        return GraphTask(self.graph, self.outputs, self.epochs)

    def shards_of(self, name: str, message: Any, shards: int) -> list[int]:
        named = [(stream.node, stream.output) for stream in self.outputs.values()]
        return shards_of_input(self.graph, named, name, message, shards)

    @property
    def stages(self) -> str:
        names = list(self.graph.stages)
        return f"stage{'' if len(names) == 1 else 's'} {', '.join(names)}"

    def compute(self, group: tuple[int, Any]) -> Iterator[TaggedOutput]:
        packed = [messages for batch in group[1] for messages in unpack_lists(batch)]
        for name, sent in compute_graph(self.graph, self.outputs, packed):
            yield TaggedOutput(name, sent)

    def read(self, output: tuple[int, pa.RecordBatch]) -> Iterator[Any]:
        for _, listed in unpack_lists(output[1]):
            for each in listed:
                yield from self.timed(Sent(*each))

    def timed(self, sent: Sent) -> Iterator[Any]:
        yield TimestampedValue(sent, sent.time[0]) if self.epochs == TIME else sent
