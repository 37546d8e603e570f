"""Spouts and bolts: what a user writes. They declare what they emit, and are called by their tasks.

Calls leave what they emit, ack and fail with the task's `Collected`; what becomes of it is not said here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.dialects.storm.api.tuples import Tuple

if TYPE_CHECKING:
    from headrace.dialects.storm.api.collectors import Collected, SpoutCollected
    from headrace.dialects.storm.api.config import Config
    from headrace.dialects.storm.api.groupings import Grouping
    from headrace.dialects.storm.api.topology import Topology

DEFAULT: Final = "default"
"""The stream of those who name none."""


@dataclass(frozen=True)
class TopologyContext:
    """Where a component's instance runs: which task of which component, in which topology.

    `task` is the number of the task in the whole topology, `index` its place among the component's.

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
        """The number of this task, which no other task of the topology has."""
        return self.topology.tasks_of(self.component)[self.index]

    def tasks(self, component: str) -> range:
        """The numbers of a component's tasks; `emit_direct` takes one of them."""
        return self.topology.tasks_of(component)

    def component_of(self, task: int) -> str:
        """The component of a task."""
        return self.topology.component_of(task)[0]

    def fields(self, component: str, stream: str = DEFAULT) -> tuple[str, ...]:
        """The fields of a component's stream."""
        return self.topology.node(component).streams[stream]

    @property
    def sources(self) -> dict[tuple[str, str], Grouping]:
        """What this component reads, and how: by component and stream."""
        return {(each.source, each.stream): each.grouping for each in self.topology.node(self.component).inputs}

    @property
    def targets(self) -> dict[str, dict[str, Grouping]]:
        """Who reads of this component, and how: by stream and component."""
        return {
            stream: {node.id: grouping for node, grouping in self.topology.readers(self.component, stream)}
            for stream in self.topology.node(self.component).streams
        }


class Component:
    """What spouts and bolts have in common: the streams they declare, and how they say what went wrong.

    `fields` are those of the stream "default", `streams` has the fields of streams by name. Attributes of a bolt are
    its state, but for those named in `transient`: these are made in `prepare`, each time anew.

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
        """The fields of each stream it may emit to."""
        default = {DEFAULT: tuple(self.fields)} if self.fields else {}
        return {**default, **{stream: tuple(fields) for stream, fields in self.streams.items()}}


class Spout(Component):
    """A source of tuples. Overrides `next_tuple`, which emits none or some each time it is called, and what it needs.

    A tuple that is emitted with a message id is tracked: `ack` or `fail` is called with the id once the tree is known
    to be done, or not.

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

    _collected: SpoutCollected

    def open(self, context: TopologyContext) -> None:
        """Called once, before anything else."""

    def close(self) -> None:
        """Called at the end, if it comes in peace."""

    def activate(self) -> None:
        """Called when it may emit again after `deactivate`."""

    def deactivate(self) -> None:
        """Called when `next_tuple` will not be called for a while."""

    def next_tuple(self) -> None:
        """Emits what there is to emit now, if anything, and returns."""
        raise NotImplementedError(f"{type(self).__name__} is a spout without next_tuple(); override it")

    def ack(self, message_id: Any) -> None:
        """The tuple emitted with this id, and all that was made of it, is done."""

    def fail(self, message_id: Any) -> None:
        """The tuple emitted with this id, or something made of it, failed or took too long."""

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT) -> None:
        """Emits a tuple; one with a message id is tracked."""
        self._collected.emit(stream, values, message_id)

    def emit_direct(self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT) -> None:
        """Emits a tuple to one task, of a bolt that reads the stream by direct grouping."""
        self._collected.emit(stream, values, message_id, task)

    def report_error(self, error: BaseException) -> None:
        """Shows an error to whoever watches the topology, and goes on."""
        self._collected.report(error)


class Bolt(Component):
    """A step of the work: `execute` is called for every tuple, emits what follows from it, and acks or fails it.

    An exception fails the tuple and is reported. A tuple that is neither acked nor failed fails when the message
    timeout is over.

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

    _collected: Collected

    split: Callable[[int], Sequence[Mapping[str, Any]]]
    """If defined: the state as attributes for each of so many tasks, when the topology is rebalanced."""
    merge: Callable[[Mapping[str, Any]], None]
    """If defined: takes over attributes that `split` of another instance gave."""

    def prepare(self, context: TopologyContext) -> None:
        """Called once for each instance, before its state is put back and before any tuple."""

    def execute(self, tup: Tuple) -> None:
        """Works on a tuple."""
        raise NotImplementedError(f"{type(self).__name__} is a bolt without execute(); override it")

    def cleanup(self) -> None:
        """Called when the topology is killed, where the cluster is, on an instance with the state that the task had."""

    def emit(self, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT) -> None:
        """Emits a tuple. It belongs to the trees of its anchors; without them, nobody waits for it."""
        # Called for every tuple: one anchor of this batch is the way of nearly all of them, the rest is for `anchor`.
        try:
            out = self._collected.outs[stream]
        except KeyError:
            raise self._collected.no_stream(stream) from None
        if len(values) != out.width:
            raise out.wrong_width(values)
        try:
            (tup,) = anchors
            row = tup.row
        except (ValueError, AttributeError):
            out.anchor(anchors)
        else:
            if row >= out.first:
                out.anchors.append(row)
            else:
                out.anchor(anchors)
        out.flat.extend(values)

    def emit_direct(
        self, task: int, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT
    ) -> None:
        """Emits a tuple to one task, of a bolt that reads the stream by direct grouping."""
        self._collected.emit_direct(task, values, anchors, stream)

    def ack(self, tup: Tuple) -> None:
        """The tuple is done, here."""
        collected, row = self._collected, tup.row
        if row >= collected.first:
            collected.acked.append(row)
        else:
            collected.held_acked.append(tup)

    def fail(self, tup: Tuple) -> None:
        """The trees of the tuple have failed."""
        self._collected.failed.append(tup)

    def report_error(self, error: BaseException) -> None:
        """Shows an error to whoever watches the topology, and goes on."""
        self._collected.report(error)


class BasicBolt(Bolt):
    """A bolt whose tuples are acked by themselves after `execute`, and that anchors all it emits to the tuple at hand.

    >>> from headrace import storm
    >>> class Exclaim(storm.BasicBolt):
    ...     fields = ["word"]
    ...     def execute(self, tup):
    ...         self.emit([tup["word"] + "!"])
    >>> Exclaim().declared()
    {'default': ('word',)}
    """

    def emit(self, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT) -> None:
        """Emits a tuple, anchored to the one that is being worked on."""
        collected = self._collected
        try:
            out = collected.outs[stream]
        except KeyError:
            raise collected.no_stream(stream) from None
        if len(values) != out.width:
            raise out.wrong_width(values)
        out.anchors.append(collected.row)
        out.flat.extend(values)

    def emit_direct(
        self, task: int, values: Sequence[Any], anchors: Sequence[Tuple] = (), stream: str = DEFAULT
    ) -> None:
        """Emits a tuple to one task, anchored to the one that is being worked on."""
        self._collected.emit_direct(task, values, anchors or self._collected.current, stream)
