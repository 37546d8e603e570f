"""From graph to levels: a stream is a straight line of operators, level after level of exchanges.

Where a batch has a tree of stages, a stream must not branch after an operator with state. So all exchanges that are as
many exchanges away from the sources are one level, and rows say where they go. Nothing here runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from headrace.engine.aggregation.columnsfn import columns_fn, to_keyed
from headrace.engine.plan.columnsegments import Segment, segment
from headrace.engine.plan.taps import Reading, Tap, separated, shareable
from headrace.engine.plan.translation import call_of, operator, step_of, tags_of, window_of
from headrace.engine.shard.columnrows import ToGroups
from headrace.engine.shard.compiledtriggers import Program as Firing
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.lateoutput import whole_elements
from headrace.engine.shard.rows import to_pairs, to_partials
from headrace.engine.shard.taskshard import Batches, Tasking, ToTasks
from headrace.engine.shard.wire import HEARTBEAT, Station, Tidings, ToShards, ToSink, shard_dests
from headrace.engine.shard.work import Grouping, Work, aggregating
from headrace.engine.sides.processor import Beside
from headrace.engine.sides.rows import MAIN, ToEveryShard, ToRole, ToSpread
from headrace.engine.sides.sideviews import view
from headrace.engine.stateful.operator import StatefulOp
from headrace.engine.stateful.processor import Stateful
from headrace.engine.worker import operators
from headrace.engine.worker.bundles import Bundle, ToBlocks, ToColumns
from headrace.engine.worker.grouped import needs_times
from headrace.engine.worker.program import Output, Readers, Step
from headrace.engine.worker.text import text_of
from headrace.engine.worker.torecords import to_records
from headrace.model.algebra import CombineFn
from headrace.model.badrecords import RecordSource
from headrace.model.columns import Aggregate, Columnwise
from headrace.model.elementwise import ParDo
from headrace.model.errors import PipelineError
from headrace.model.keyed import CombinePerKey, Flatten, GroupByKey, Reshuffle, WindowInto
from headrace.model.lateoutput import LATE
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import BatchSink, ForEach, Sink, WriteFiles
from headrace.model.sources import Source
from headrace.model.tasks import Tasks
from headrace.model.topics import WriteTopic
from headrace.model.windows import CountWindows, FixedWindows, GlobalWindows


@dataclass(eq=False)
class Exchange:
    """Rows of one key brought together: where the shards are, what they do, whom they wait for, who reads, by tag."""

    number: int
    label: str
    work: Work
    level: int
    dests: tuple[int, ...]
    upstream: tuple[str, ...]
    readers: dict[str | None, Readers] = field(default_factory=lambda: {None: Readers()})

    def names(self) -> tuple[str, ...]:
        """Those whose watermarks it sends on: its shards."""
        return tuple(f"{self.number}/{shard}" for shard in range(len(self.dests)))

    def settings(self) -> str:
        """What may change about it, as far as is known."""
        return repr(getattr(self.work, "windowing", None))


Origins = tuple[Tap | Exchange, ...]
"""Where the elements of a collection come from."""


def names_of(origins: Origins) -> tuple[str, ...]:
    """Those whose watermarks a collection with these origins waits for."""
    return tuple(name for origin in origins for name in origin.names())


def heard_by(exchange: Exchange) -> frozenset[str]:
    """Those whose tidings matter to an exchange."""
    return frozenset(exchange.upstream) | ({HEARTBEAT} if exchange.level == 1 else set())


@dataclass(eq=False)
class Outlet:
    """A sink, and the number by which rows find it."""

    number: int
    node: Node
    output: ToBlocks | ToColumns | Any


@dataclass(eq=False)
class Line:
    """The whole of a stream."""

    graph: Graph
    taps: list[Tap] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    outlets: list[Outlet] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    tidings: Tidings = field(default_factory=Tidings)

    @property
    def depth(self) -> int:
        """How many levels of exchanges there are."""
        return max((exchange.level for exchange in self.exchanges), default=0)

    def level(self, number: int) -> list[Exchange]:
        """The exchanges of a level."""
        return [exchange for exchange in self.exchanges if exchange.level == number]

    def at(self, station: Station) -> list[Segment]:
        """The segments of columns at a station."""
        return [segment for segment in self.segments if segment.station == station]


def lower(graph: Graph, *, shards: int, partitions: int, numbers: Mapping[str, int] | None = None) -> Line:
    """The line that runs this graph, each exchange with so many shards on so many partitions.

    `numbers` are those that exchanges have already, by label; others get new ones.
    """
    return _Lowering(graph, shards, partitions, numbers or {}).line


class Passing(operators.Op):
    """Hands elements on."""

    def run(self, bundle: Bundle) -> Iterator[operators.Tagged]:
        yield None, bundle


class _Lowering:
    """Walks the graph in order and keeps, for each collection, its readers and where its elements come from."""

    def __init__(self, graph: Graph, shards: int, partitions: int, numbers: Mapping[str, int]) -> None:
        self.line = Line(graph)
        self.shards, self.partitions, self.numbers = shards, partitions, dict(numbers)
        # What is not in Python yet, or not again: where it was read or was in Python last, and the transforms since.
        self.columns: dict[int, tuple[Node | PCollection, tuple[Node, ...]]] = {}
        self.letters: dict[int, Node] = {}  # those of bad records, and their sources
        self.readers: dict[int, Readers] = {}
        self.origins: dict[int, Origins] = {}
        self.stations: dict[int, Station] = {}
        for node in graph:
            self._place(node)
        for node in graph:
            if isinstance(node.transform, Source) and all(tap.source is not node for tap in self.line.taps):
                self._reading(node.outputs[0])  # nobody does, but it is read
            if isinstance(node.transform, RecordSource) and node.transform.checks:
                self._tap(node, ())  # one that sees all of it
        for tap in self.line.taps:
            if not tap.readings:
                tap.readings.append(Reading((), tap.source.outputs[0]))
            if len(tap.readings) > 1:
                tap.readings = [separated(reading) for reading in tap.readings]

    def _place(self, node: Node) -> None:
        transform = node.transform
        if isinstance(transform, Source):
            self.columns[id(node.outputs[0])] = node, ()
            self.letters |= {id(letters): node for letters in node.outputs[1:]}
        elif isinstance(transform, Aggregate):
            self._aggregate(node, transform)
        elif isinstance(transform, Columnwise | WindowInto) and self._in_columns(node):
            since, done = self.columns[id(node.inputs[0])]
            self.columns[id(node.outputs[0])] = since, (*done, node)
        elif isinstance(transform, Columnwise):
            self._reading(node.inputs[0])
            self.columns[id(node.outputs[0])] = node.inputs[0], (node,)
        elif isinstance(transform, Flatten | Reshuffle):  # a stream spreads its rows over the shards anyway
            self._flatten(node)
        elif isinstance(transform, GroupByKey):
            self._exchange(node, node.inputs[0], None)
        elif isinstance(transform, CombinePerKey):
            self._exchange(node, node.inputs[0], transform.fn)
        elif isinstance(transform, ParDo) and transform.stateful:
            self._stateful(node, transform)
        elif isinstance(transform, Tasks):
            self._tasks(node, transform)
        elif isinstance(transform, Sink) and not isinstance(transform, ForEach):
            self._sink(node)
        elif all(pc.bounded for pc in transform.side_inputs()):
            self._step(node, node.inputs[0], operator(node, lambda pc: pc))
        else:
            self._beside(node)

    def _in_columns(self, node: Node) -> bool:
        """Whether Catalyst can go on with what a node reads."""
        (pc,) = node.inputs
        if id(pc) not in self.columns or not pc.has_columns:
            return False
        since, _ = self.columns[id(pc)]
        # Other windows may be several of one row, which would repeat the rows that pass beside it.
        windows = node.transform.windowing.window if isinstance(node.transform, WindowInto) else None
        return isinstance(since, Node) or windows is None or isinstance(windows, FixedWindows | GlobalWindows)

    def _reading(self, pc: PCollection) -> Readers:
        """The readers of a collection, which enters Python here if it has not yet."""
        if id(pc) in self.letters:
            tap = self._tap(self.letters[id(pc)], ())
            self._given(pc, tap.dead, (tap,), (0, 0))
        elif id(pc) not in self.readers:
            since, nodes = self.columns[id(pc)]
            if isinstance(since, Node):
                tap, reading = self._tap(since, nodes), Reading(nodes, pc)
                tap.readings.append(reading)
                self._given(pc, reading.readers, (tap,), (0, 0))
            else:
                self._segment(pc, since, nodes)
        return self.readers[id(pc)]

    def _tap(self, source: Node, columns: tuple[Node, ...]) -> Tap:
        """The tap of a source that these columns can be read from; there is one, unless windows repeat its rows."""
        taps = [tap for tap in self.line.taps if tap.source is source]
        for tap in taps:
            if all(map(shareable, [columns, *(reading.columns for reading in tap.readings)])):
                return tap
        tap = Tap(f"{source.label} ({len(taps) + 1})" if taps else source.label, source)
        self.line.taps.append(tap)
        return tap

    def _segment(self, pc: PCollection, since: PCollection, nodes: tuple[Node, ...]) -> None:
        level, hop = self.stations[id(since)]
        made = segment(len(self.line.segments), (level, hop + 1), nodes, self.line.tidings)
        self.line.segments.append(made)
        self._output(self.readers[id(since)], made.output)
        self._given(pc, made.readers, self.origins[id(since)], made.station)

    def _step(self, node: Node, pc: PCollection, op: operators.Op) -> None:
        step = step_of(node, op)
        self._reading(pc).steps.append(step)
        for out in node.outputs:
            self._given(out, step.readers[out.tag], self.origins[id(pc)], self.stations[id(pc)])

    def _flatten(self, node: Node) -> None:
        (out,) = node.outputs
        together = self.readers[id(out)] = Readers()
        origins: dict[int, Tap | Exchange] = {}
        for pc in node.inputs:
            self._reading(pc).steps.append(Step(Passing(node.label), {None: together}))
            origins |= {id(origin): origin for origin in self.origins[id(pc)]}
        self.origins[id(out)] = tuple(origins.values())
        self.stations[id(out)] = max(self.stations[id(pc)] for pc in node.inputs)

    def _aggregate(self, node: Node, aggregate: Aggregate) -> None:
        (pc,) = node.inputs
        keyed, fn, reading = to_keyed(aggregate, pc.schema), columns_fn(aggregate), self._reading(pc)
        if aggregate.has_late_output:
            whole = whole_elements(keyed, fn)
            pairs = Step(operators.MapOp(node.label, operators.Call(whole.pair)), {None: Readers()})
            reading.steps.append(pairs)
            exchange = self._exchange_over(node, pc, pairs.readers[None], whole.fn, aggregate)
        else:
            exchange = self._exchange_over(node, pc, reading, fn, aggregate)
        self._given(node.outputs[0], exchange.readers[None], (exchange,), (exchange.level, 0))
        for out in node.outputs[1:]:
            elements = Step(operators.MapOp(node.label, operators.Call(itemgetter(1))), {None: Readers()})
            exchange.readers[LATE].steps.append(elements)
            self._given(out, elements.readers[None], (exchange,), (exchange.level, 0))

    def _exchange(self, node: Node, pc: PCollection, fn: CombineFn[Any, Any, Any] | None) -> None:
        exchange = self._exchange_over(node, pc, self._reading(pc), fn)
        self._given(node.outputs[0], exchange.readers[None], (exchange,), (exchange.level, 0))
        for out in node.outputs[1:]:
            self._given(out, exchange.readers[LATE], (exchange,), (exchange.level, 0))

    def _given(self, pc: PCollection, readers: Readers, origins: Origins, station: Station) -> None:
        self.readers[id(pc)], self.origins[id(pc)], self.stations[id(pc)] = readers, origins, station

    def _exchange_over(
        self,
        node: Node,
        pc: PCollection,
        reading: Readers,
        fn: CombineFn[Any, Any, Any] | None,
        aggregate: Aggregate | None = None,
    ) -> Exchange:
        windowing = pc.windowing
        retractable = self._may_retract(pc)
        if retractable and windowing.accumulation == "discarding" and (fn is None or not fn.invertible):
            raise PipelineError(
                f"{node}: its input takes panes back, but with accumulation='discarding' it keeps nothing to take them "
                "from; say accumulation='accumulating' or 'retracting' in WindowInto"
            )
        late = len(node.outputs) > 1
        # What is combined has no time of its own, cannot be taken back, and is late as a whole.
        fractions = Firing(windowing.trigger).fractions
        plain = not needs_times(windowing) and not fractions
        lifted = fn is not None and plain and not retractable and not late
        rows: Any
        if lifted and fn is not None:
            rows = to_partials(node.label, windowing, fn)
        else:
            rows = to_pairs(node.label, windowing, retractable=retractable)
        if aggregate is not None and not late:
            rows = ToGroups(node.label, columns_fn(aggregate), to_keyed(aggregate, pc.schema), rows)
        grouping = Grouping(windowing, fn, lifted, retractable, late)
        work = grouping if aggregate is None else aggregating(grouping, aggregate)
        exchange = self._shards_over(node, pc, reading, work, rows, Delays() if fractions else None)
        if late:
            exchange.readers[LATE] = Readers()
        return exchange

    def _stateful(self, node: Node, transform: ParDo) -> None:
        (pc,), reading = node.inputs, self._reading(node.inputs[0])
        window = pc.windowing.window
        if window.merging or isinstance(window, CountWindows):
            raise PipelineError(
                f"{node}: a DoFn with state or timers needs windows that are known when an element comes, but "
                f"{pc.label!r} is in {window!r}; use GlobalWindows, FixedWindows or SlidingWindows, or GroupByKey first"
            )
        if self._may_retract(pc):
            raise PipelineError(
                f"{node}: its input takes panes back (accumulation='retracting'), which state cannot follow; say "
                "accumulation='accumulating' or 'discarding' in WindowInto"
            )
        if streams := [side.label for side in transform.side_inputs() if not side.bounded]:
            raise PipelineError(
                f"{node}: a DoFn with state or timers cannot have a side input that is a stream, {streams[0]!r}; "
                "put a Map before it that sees the side input"
            )
        call = call_of(transform, lambda side: side)
        op = StatefulOp(
            node.label, call, tags_of(transform), fn=transform.fn, window=window_of(node), windowing=pc.windowing
        )
        # What was never grouped is in no pane.
        panes = any(isinstance(origin, Exchange) for origin in self.origins[id(pc)])
        rows = to_pairs(node.label, pc.windowing, retractable=False, panes=panes)
        exchange = self._shards_over(node, pc, reading, Stateful(op), rows)
        exchange.readers = step_of(node, op).readers
        for out in node.outputs:
            self._given(out, exchange.readers[out.tag], (exchange,), (exchange.level, 0))

    def _tasks(self, node: Node, transform: Tasks) -> None:
        if not node.inputs:
            raise PipelineError(f"{node}: Tasks needs at least one collection of rows for them")
        if back := [pc.label for pc in node.inputs if self._may_retract(pc)]:
            raise PipelineError(
                f"{node}: its input {back[0]!r} takes panes back (accumulation='retracting'), which tasks do not see; "
                "say accumulation='accumulating' or 'discarding' in WindowInto"
            )
        readings = [self._reading(pc) for pc in node.inputs]
        origins = {id(origin): origin for pc in node.inputs for origin in self.origins[id(pc)]}
        work = Tasking(transform.task, transform.tasks, transform.initial)
        exchange = self._made(node, work, tuple(origins.values()), shards=transform.tasks)
        for reading in readings:
            rows = Batches(node.label, transform.tasks)
            self._output(reading, ToTasks(rows, exchange.dests, heard_by(exchange), self.line.tidings))
        exchange.readers = {tag: Readers() for tag in transform.outputs}
        for out in node.outputs:
            self._given(out, exchange.readers[out.tag], (exchange,), (exchange.level, 0))

    def _shards_over(
        self, node: Node, pc: PCollection, reading: Readers, work: Work, rows: Output, delays: Delays | None = None
    ) -> Exchange:
        exchange = self._made(node, work, self.origins[id(pc)])
        self._output(reading, ToShards(rows, exchange.dests, heard_by(exchange), self.line.tidings, delays))
        return exchange

    def _made(
        self, node: Node, work: Work, waited_for: Origins, *others: Origins, shards: int | None = None
    ) -> Exchange:
        """An exchange behind all these origins, with as many shards as others have or as are said."""
        number = self._number(node.label)
        exchange = Exchange(
            number,
            node.label,
            work,
            level=1 + max(origin.level for origins in (waited_for, *others) for origin in origins),
            dests=shard_dests(number, shards or self.shards, self.partitions),
            upstream=names_of(waited_for),
        )
        self.line.exchanges.append(exchange)
        return exchange

    def _number(self, label: str) -> int:
        return self.numbers.setdefault(label, 1 + max(self.numbers.values(), default=-1))

    def _beside(self, node: Node) -> None:
        """A function with side inputs that are streams: its elements first go where those are."""
        (pc,) = node.inputs
        if self._may_retract(pc):
            raise PipelineError(
                f"{node}: its input takes panes back (accumulation='retracting'), but what was made of them with a "
                "side input that has been refreshed since is not known any more; use accumulation='accumulating'"
            )
        op = operator(node, lambda pc: pc)
        assert isinstance(op, operators.CallOp)
        sides = [side for side in op.call.sides if not side.read.bounded]
        readings = [self._reading(each) for each in (pc, *(side.read for side in sides))]
        main, *others = (self.origins[id(each)] for each in (pc, *(side.read for side in sides)))
        views = [
            view(node, side, self.line.graph, retractable=self._may_retract(side.read), upstream=names_of(origins))
            for side, origins in zip(sides, others, strict=True)
        ]
        exchange = self._made(node, Beside(pc.windowing, tuple(views), tuple(sides)), main, *others)
        dests, tidings = exchange.dests, self.line.tidings
        self._output(readings[0], ToSpread(ToRole(MAIN), dests, heard_by(exchange), tidings))
        for role, (reading, each) in enumerate(zip(readings[1:], views, strict=True), MAIN + 1):
            self._output(reading, ToEveryShard(ToRole(role), dests, frozenset(each.upstream), tidings))
        for side in sides:
            side.read = None  # it is shown, not read
        step = step_of(node, op)
        exchange.readers[None].steps.append(step)
        for out in node.outputs:
            self._given(out, step.readers[out.tag], (exchange,), (exchange.level, 0))

    def _may_retract(self, pc: PCollection) -> bool:
        self._reading(pc)  # whose origins are known once it enters Python
        origins = self.origins[id(pc)]
        return any(isinstance(origin, Exchange) and origin.work.retracts for origin in origins)

    def _sink(self, node: Node) -> None:
        (pc,), sink = node.inputs, node.transform
        reading = self._reading(pc)
        output: Any
        if isinstance(sink, WriteTopic):
            output = to_records(node, pc)
        elif isinstance(sink, BatchSink):
            output = ToBlocks()
        elif isinstance(sink, WriteFiles):
            if self._may_retract(pc):
                raise PipelineError(
                    f"{node}: its input takes panes back (accumulation='retracting'), which files cannot show; use "
                    "ForEachBatch, whose elements say whether they are retractions"
                )
            output = text_of(node.label, sink, pc) or ToColumns(node.label, pc.schema, windowed=False)
        else:
            raise PipelineError(f"{node}: not yet in a stream: {sink}")
        outlet = Outlet(len(self.line.outlets), node, output)
        self.line.outlets.append(outlet)
        self._output(reading, ToSink(output, outlet.number, self.line.tidings))

    def _output(self, reading: Readers, output: Output) -> None:
        reading.outputs.append(len(self.line.outputs))
        self.line.outputs.append(output)
