"""Spouts and bolts: the components that a user writes.

A component declares the streams it emits to. Its task calls it; what the calls emit, ack and fail goes to the output
collector of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.dialects.storm.api.collectors import UNANCHORED
from headrace.dialects.storm.api.tuples import Tuple

if TYPE_CHECKING:
    from headrace.dialects.storm.api.collectors import OutputCollector, SpoutOutputCollector
    from headrace.dialects.storm.api.config import Config
    from headrace.dialects.storm.api.groupings import Grouping
    from headrace.dialects.storm.api.topology import Topology

DEFAULT: Final = "default"
"""The stream of emits and groupings that name none."""


@dataclass(frozen=True)
class TopologyContext:
    """The place of a component's instance: its task, its component and its topology.

    `task` is the number of the task in the whole topology, `index` its place among the tasks of the component.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words(), parallelism=2)
    >>> context = storm.TopologyContext(builder.create(), storm.Config(), "words", index=1)
    >>> context.task, list(context.tasks("words")), context.fields("words"), context.targets
    (1, [0, 1], ('word',), {'default': {}})
    """

    topology: Topology
    config: Config
    component: str
    index: int

    @property
    def task(self) -> int:
        """The number of this task, which is unique in the topology."""
        return self.topology.tasks_of(self.component)[self.index]

    def tasks(self, component: str) -> range:
        """Returns the numbers of a component's tasks; `emit_direct` takes one of them."""
        return self.topology.tasks_of(component)

    def component_of(self, task: int) -> str:
        """Returns the component of a task."""
        return self.topology.component_of(task)[0]

    def fields(self, component: str, stream: str = DEFAULT) -> tuple[str, ...]:
        """Returns the fields of a component's stream."""
        return self.topology.node(component).streams[stream]

    @property
    def sources(self) -> dict[tuple[str, str], Grouping]:
        """The groupings of the streams that this component reads, by source component and stream."""
        return {(read.source, read.stream): read.grouping for read in self.topology.node(self.component).inputs}

    @property
    def targets(self) -> dict[str, dict[str, Grouping]]:
        """The groupings by which others read this component, by stream and reading component."""
        return {
            stream: {node.id: grouping for node, grouping in self.topology.readers(self.component, stream)}
            for stream in self.topology.node(self.component).streams
        }


class Component:
    """The base class of spouts and bolts: declares the streams that a component emits to.

    `fields` are the fields of the stream "default"; `streams` has the fields of other streams, by name. The attributes
    of a component are its state, except those named in `transient`: `prepare` or `open` makes these anew.

    >>> from headrace import storm
    >>> class Parse(storm.Bolt):
    ...     fields = ["number"]
    ...     streams = {"errors": ["line", "reason"]}
    >>> Parse().declared()
    {'default': ('number',), 'errors': ('line', 'reason')}
    """

    fields: Sequence[str] = ()
    streams: Mapping[str, Sequence[str]] = {}
    transient: ClassVar[Sequence[str]] = ()

    context: TopologyContext

    def declared(self) -> dict[str, tuple[str, ...]]:
        """Returns the fields of each stream that it may emit to."""
        default = {DEFAULT: tuple(self.fields)} if self.fields else {}
        return {**default, **{stream: tuple(fields) for stream, fields in self.streams.items()}}


class Spout(Component):
    """A source of tuples. Override `next_tuple`, which emits none or some tuples at each call, and others as needed.

    A tuple that is emitted with a message id is tracked: `ack` or `fail` is called with the id once its tree is
    complete, has failed or has timed out.

    >>> from headrace import storm
    >>> class Numbers(storm.Spout):
    ...     fields = ["n"]
    ...     def open(self, context):
    ...         self.n = 0
    ...     def next_tuple(self):
    ...         self.n += 1
    ...         self.emit([self.n], message_id=self.n)
    >>> Numbers().declared()
    {'default': ('n',)}
    """

    _collector: SpoutOutputCollector

    def open(self, context: TopologyContext) -> None:
        """Called once, before anything else."""

    def close(self) -> None:
        """Called when the topology stops in an orderly way."""

    def activate(self) -> None:
        """Called after `open`, and when the spout may emit again after `deactivate`."""

    def deactivate(self) -> None:
        """Called when `next_tuple` will not be called for a while."""

    def next_tuple(self) -> None:
        """Emits the tuples that are available now, if any, and returns."""
        raise NotImplementedError(f"{type(self).__name__} is a spout without next_tuple(); override it")

    def ack(self, message_id: Any) -> None:
        """Called when the tuple emitted with this id, and every tuple anchored to it, was acked."""

    def fail(self, message_id: Any) -> None:
        """Called when the tuple emitted with this id, or a tuple anchored to it, has failed or timed out."""

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT) -> None:
        """Emits a tuple; with a message id, it is tracked."""
        self._collector.emit(stream, values, message_id)

    def emit_direct(self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT) -> None:
        """Emits a tuple to one task of a bolt that reads the stream by direct grouping."""
        self._collector.emit(stream, values, message_id, task)

    def report_error(self, error: BaseException) -> None:
        """Reports an error in the status of the topology, and goes on."""
        self._collector.report(error)


class Bolt(Component):
    """A step of the computation: `execute` is called for every tuple, may emit tuples, and acks or fails its input.

    An exception fails the tuple and is reported. A tuple that is neither acked nor failed times out.

    >>> from headrace import storm
    >>> class Split(storm.Bolt):
    ...     fields = ["word"]
    ...     def execute(self, tup):
    ...         for word in tup["sentence"].split():
    ...             self.emit([word], anchors=[tup])
    ...         self.ack(tup)
    >>> Split().declared()
    {'default': ('word',)}
    """

    _collector: OutputCollector

    split: Callable[[int], Sequence[Mapping[str, Any]]]
    """If defined: returns the attributes of each of so many tasks, when the topology is rebalanced."""
    merge: Callable[[Mapping[str, Any]], None]
    """If defined: takes over attributes that `split` of another instance returned."""

    def prepare(self, context: TopologyContext) -> None:
        """Called once for each instance, before its state is restored and before any tuple."""

    def execute(self, tup: Tuple) -> None:
        """Processes a tuple."""
        raise NotImplementedError(f"{type(self).__name__} is a bolt without execute(); override it")

    def cleanup(self) -> None:
        """Called when the topology is killed, in the cluster's process, on an instance with the state of the task."""

    def emit(self, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT) -> None:
        """Emits a tuple. It belongs to the trees of its anchors; without anchors, it is not tracked."""
        # Called for every tuple: nearly all have one anchor of this batch; `anchor` does the rest.
        try:
            output = self._collector.outputs[stream]
        except KeyError:
            raise self._collector.no_stream(stream) from None
        if len(values) != output.width:
            raise output.wrong_width(values)
        if anchors:
            try:
                (tup,) = anchors
                row = tup.row
            except (ValueError, AttributeError):
                output.anchor(anchors)
            else:
                if row >= output.first:
                    output.anchors.append(row)
                else:
                    output.anchor(anchors)
        else:
            output.anchors.append(UNANCHORED)
        output.flat.extend(values)

    def emit_direct(
        self, task: int, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT
    ) -> None:
        """Emits a tuple to one task of a bolt that reads the stream by direct grouping."""
        self._collector.emit_direct(task, values, anchors, stream)

    def ack(self, tup: Tuple) -> None:
        """Acks a tuple: this bolt has processed it."""
        collector, row = self._collector, tup.row
        if row >= collector.first:
            collector.acked.append(row)
        else:
            collector.earlier_acked.append(tup)

    def fail(self, tup: Tuple) -> None:
        """Fails a tuple, and with it all its trees."""
        self._collector.failed.append(tup)

    def report_error(self, error: BaseException) -> None:
        """Reports an error in the status of the topology, and goes on."""
        self._collector.report(error)


class BasicBolt(Bolt):
    """A bolt whose input is acked after `execute`, and whose emitted tuples are anchored to that input.

    >>> from headrace import storm
    >>> class Exclaim(storm.BasicBolt):
    ...     fields = ["word"]
    ...     def execute(self, tup):
    ...         self.emit([tup["word"] + "!"])
    >>> Exclaim().declared()
    {'default': ('word',)}
    """

    def emit(self, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT) -> None:
        """Emits a tuple, anchored to the one that is being executed."""
        collector = self._collector
        try:
            output = collector.outputs[stream]
        except KeyError:
            raise collector.no_stream(stream) from None
        if len(values) != output.width:
            raise output.wrong_width(values)
        output.anchors.append(collector.row)
        output.flat.extend(values)

    def emit_direct(
        self, task: int, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT
    ) -> None:
        """Emits a tuple to one task, anchored to the one that is being executed."""
        current = self._collector.current
        self._collector.emit_direct(task, values, anchors or (() if current is None else (current,)), stream)
