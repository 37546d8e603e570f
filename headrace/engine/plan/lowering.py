"""Lowers a graph to the line of a stream. Nothing here runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.aggregation.columnsfn import columns_fn, to_keyed
from headrace.engine.plan.columnsegments import segment
from headrace.engine.plan.line import Exchange, Line, Origins, Outlet, heard_by, names_of
from headrace.engine.plan.taps import Reading, Tap, shareable, with_windows_in_python
from headrace.engine.plan.translation import operator, readers_of, stateful_fn, step_of
from headrace.engine.shard.columnrows import ToGroups
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.lateoutput import whole_elements
from headrace.engine.shard.rows import to_pairs, to_partials
from headrace.engine.shard.senders import ToShards, ToSink
from headrace.engine.shard.taskshard import TaskBatches, TaskWork, ToTasks
from headrace.engine.shard.wire import Station, shard_dests
from headrace.engine.shard.work import Grouping, Work, column_grouping
from headrace.engine.sides.processor import SideInputWork
from headrace.engine.sides.rows import MAIN, ToEveryShard, ToRole, ToSpread
from headrace.engine.sides.sideviews import side_view
from headrace.engine.stateful.processor import StatefulWork
from headrace.engine.worker import operators
from headrace.engine.worker.bundles import Bundle, ToBlocks, ToColumns
from headrace.engine.worker.grouped import needs_times
from headrace.engine.worker.program import Output, Readers, Step
from headrace.engine.worker.sidevalues import ShownCells, SideValue
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


def lower(graph: Graph, *, shards: int, partitions: int, numbers: Mapping[str, int] | None = None) -> Line:
    """Makes the line that runs this graph, each exchange with so many shards on so many partitions.

    `numbers` are those that exchanges have already, by label; others get new ones.
    """
    return _Lowering(graph, shards, partitions, numbers or {}).line


class PassOperator(operators.Operator):
    """Hands elements on as they are."""

    def run(self, bundle: Bundle) -> Iterator[operators.Tagged]:
        yield None, bundle


@dataclass(frozen=True)
class ColumnChain:
    """Column transforms that Catalyst does, since a source was opened or a collection was in Python last."""

    start: Node | PCollection
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class PythonPlace:
    """Where the elements of a collection are in Python: who reads them, their origins, and their station."""

    readers: Readers
    origins: Origins
    station: Station


@dataclass
class CollectionPlace:
    """Where a collection is: in columns, in Python, or in both. Dead letters of a source are in neither until read."""

    columns: ColumnChain | None = None
    python: PythonPlace | None = None
    dead_letters_of: Node | None = None


class _Lowering:
    """Walks the graph in order, and notes the place of each collection."""

    def __init__(self, graph: Graph, shards: int, partitions: int, numbers: Mapping[str, int]) -> None:
        self.line = Line(graph)
        self.shards, self.partitions, self.numbers = shards, partitions, dict(numbers)
        self.places: dict[int, CollectionPlace] = {}
        for node in graph:
            self._place(node)
        for node in graph:
            if isinstance(node.transform, Source) and all(tap.source is not node for tap in self.line.taps):
                self._enter(node.outputs[0])  # nobody reads it, but it is opened
            if isinstance(node.transform, RecordSource) and node.transform.checks:
                self._tap(node, ())  # one that sees all of it
        for tap in self.line.taps:
            if not tap.readings:
                tap.readings.append(Reading((), tap.source.outputs[0]))
            if len(tap.readings) > 1:
                tap.readings = [with_windows_in_python(reading) for reading in tap.readings]

    def _place(self, node: Node) -> None:
        transform = node.transform
        if isinstance(transform, Source):
            pc, *letters = node.outputs
            self.places[id(pc)] = CollectionPlace(ColumnChain(node))
            self.places |= {id(each): CollectionPlace(dead_letters_of=node) for each in letters}
        elif isinstance(transform, Aggregate):
            self._aggregate(node, transform)
        elif isinstance(transform, Columnwise | WindowInto) and (chain := self._chain(node)) is not None:
            self.places[id(node.outputs[0])] = CollectionPlace(replace(chain, nodes=(*chain.nodes, node)))
        elif isinstance(transform, Columnwise):
            self._enter(node.inputs[0])
            self.places[id(node.outputs[0])] = CollectionPlace(ColumnChain(node.inputs[0], (node,)))
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
            self._step(node, node.inputs[0])
        else:
            self._with_stream_sides(node)

    def _chain(self, node: Node) -> ColumnChain | None:
        """Returns the columns of what a node reads, if Catalyst can go on with them."""
        (pc,) = node.inputs
        chain = self.places[id(pc)].columns
        if chain is None or not pc.has_columns:
            return None
        # Other windows may be several of one row, which would repeat the rows that pass beside it.
        windows = node.transform.windowing.window if isinstance(node.transform, WindowInto) else None
        if isinstance(chain.start, Node) or windows is None or isinstance(windows, FixedWindows | GlobalWindows):
            return chain
        return None

    def _enter(self, pc: PCollection) -> PythonPlace:
        """Returns the place of a collection in Python, which it enters here if it has not yet."""
        place = self.places[id(pc)]
        if place.python is None and place.dead_letters_of is not None:
            tap = self._tap(place.dead_letters_of, ())
            place.python = PythonPlace(tap.dead, (tap,), (0, 0))
        elif place.python is None:
            assert place.columns is not None, pc
            start, nodes = place.columns.start, place.columns.nodes
            if isinstance(start, Node):
                tap, reading = self._tap(start, nodes), Reading(nodes, pc)
                tap.readings.append(reading)
                place.python = PythonPlace(reading.readers, (tap,), (0, 0))
            else:
                place.python = self._segment(start, nodes)
        return place.python

    def _origins(self, pc: PCollection) -> Origins:
        """Returns the origins of a collection, as far as they are exchanges, or taps that it reads already."""
        place = self.places[id(pc)]
        if place.python is not None:
            return place.python.origins
        chain = place.columns
        return () if chain is None or isinstance(chain.start, Node) else self._origins(chain.start)

    def _may_retract(self, pc: PCollection) -> bool:
        return any(isinstance(origin, Exchange) and origin.work.retracts for origin in self._origins(pc))

    def _tap(self, source: Node, columns: tuple[Node, ...]) -> Tap:
        """Returns the tap that a source's columns can be read from; there is one, unless windows repeat its rows."""
        taps = [tap for tap in self.line.taps if tap.source is source]
        for tap in taps:
            if all(map(shareable, [columns, *(reading.columns for reading in tap.readings)])):
                return tap
        tap = Tap(f"{source.label} ({len(taps) + 1})" if taps else source.label, source)
        self.line.taps.append(tap)
        return tap

    def _segment(self, start: PCollection, nodes: tuple[Node, ...]) -> PythonPlace:
        before = self._enter(start)
        level, hop = before.station
        made = segment(len(self.line.segments), (level, hop + 1), nodes)
        self.line.segments.append(made)
        self._output(before.readers, made.output)
        return PythonPlace(made.readers, before.origins, made.station)

    def _step(self, node: Node, pc: PCollection) -> None:
        step, place = step_of(node, operator(node)), self._enter(pc)
        place.readers.steps.append(step)
        for out in node.outputs:
            self._note(out, replace(place, readers=step.readers[out.tag]))

    def _flatten(self, node: Node) -> None:
        (out,), together = node.outputs, Readers()
        places = [self._enter(pc) for pc in node.inputs]
        for place in places:
            place.readers.steps.append(Step(PassOperator(node.label), {None: together}))
        self._note(out, PythonPlace(together, _all_origins(places), max(place.station for place in places)))

    def _aggregate(self, node: Node, aggregate: Aggregate) -> None:
        (pc,) = node.inputs
        keyed, fn, readers = to_keyed(aggregate, pc.schema), columns_fn(aggregate), self._enter(pc).readers
        if aggregate.has_late_output:
            whole = whole_elements(keyed, fn)
            pairs = Step(operators.MapOperator(node.label, operators.Call(whole.pair)), {None: Readers()})
            readers.steps.append(pairs)
            exchange = self._exchange_over(node, pc, pairs.readers[None], whole.fn, aggregate)
        else:
            exchange = self._exchange_over(node, pc, readers, fn, aggregate)
        self._after(exchange, node.outputs[0], exchange.readers[None])
        for out in node.outputs[1:]:
            elements = Step(operators.MapOperator(node.label, operators.Call(itemgetter(1))), {None: Readers()})
            exchange.readers[LATE].steps.append(elements)
            self._after(exchange, out, elements.readers[None])

    def _exchange(self, node: Node, pc: PCollection, fn: CombineFn[Any, Any, Any] | None) -> None:
        exchange = self._exchange_over(node, pc, self._enter(pc).readers, fn)
        self._after(exchange, node.outputs[0], exchange.readers[None])
        for out in node.outputs[1:]:
            self._after(exchange, out, exchange.readers[LATE])

    def _after(self, exchange: Exchange, pc: PCollection, readers: Readers) -> None:
        """Notes the place of a collection that comes out of an exchange."""
        self._note(pc, PythonPlace(readers, (exchange,), (exchange.level, 0)))

    def _note(self, pc: PCollection, place: PythonPlace) -> None:
        self.places[id(pc)] = CollectionPlace(python=place)

    def _exchange_over(
        self,
        node: Node,
        pc: PCollection,
        readers: Readers,
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
        fractions = CompiledTrigger(windowing.trigger).fractions
        plain = not needs_times(windowing) and not fractions
        rows: Any
        if fn is not None and plain and not retractable and not late:
            kind, rows = RowKind.ACCUMULATORS, to_partials(node.label, windowing, fn)
        else:
            kind = RowKind.SIGNED_VALUES if retractable else RowKind.VALUES
            rows = to_pairs(node.label, windowing, retractable=retractable)
        if aggregate is not None and not late:
            rows = ToGroups(node.label, columns_fn(aggregate), to_keyed(aggregate, pc.schema), rows)
        grouping = Grouping(windowing, fn, kind, late)
        work = grouping if aggregate is None else column_grouping(grouping, aggregate)
        exchange = self._shards_over(node, pc, readers, work, rows, Delays() if fractions else None)
        if late:
            exchange.readers[LATE] = Readers()
        return exchange

    def _stateful(self, node: Node, transform: ParDo) -> None:
        (pc,), place = node.inputs, self._enter(node.inputs[0])
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
        # What was never grouped is in no pane.
        panes = any(isinstance(origin, Exchange) for origin in place.origins)
        rows = to_pairs(node.label, pc.windowing, retractable=False, panes=panes)
        exchange = self._shards_over(node, pc, place.readers, StatefulWork(stateful_fn(node, transform)), rows)
        exchange.readers = readers_of(node)
        for out in node.outputs:
            self._after(exchange, out, exchange.readers[out.tag])

    def _tasks(self, node: Node, transform: Tasks) -> None:
        if not node.inputs:
            raise PipelineError(f"{node}: Tasks needs at least one collection of rows for them")
        if back := [pc.label for pc in node.inputs if self._may_retract(pc)]:
            raise PipelineError(
                f"{node}: its input {back[0]!r} takes panes back (accumulation='retracting'), which tasks do not see; "
                "say accumulation='accumulating' or 'discarding' in WindowInto"
            )
        places = [self._enter(pc) for pc in node.inputs]
        work = TaskWork(transform.task, transform.tasks, transform.initial)
        exchange = self._made(node, work, _all_origins(places), shards=transform.tasks)
        for place in places:
            rows = TaskBatches(node.label, transform.tasks)
            self._output(place.readers, ToTasks(rows, exchange.dests, heard_by(exchange)))
        exchange.readers = {tag: Readers() for tag in transform.outputs}
        for out in node.outputs:
            self._after(exchange, out, exchange.readers[out.tag])

    def _shards_over(
        self, node: Node, pc: PCollection, readers: Readers, work: Work, rows: Output, delays: Delays | None = None
    ) -> Exchange:
        exchange = self._made(node, work, self._enter(pc).origins)
        self._output(readers, ToShards(rows, exchange.dests, heard_by(exchange), delays))
        return exchange

    def _made(
        self, node: Node, work: Work, waited_for: Origins, *others: Origins, shards: int | None = None
    ) -> Exchange:
        """Adds an exchange behind all these origins, with the line's number of shards or one of its own."""
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

    def _with_stream_sides(self, node: Node) -> None:
        """Places a function with side inputs that are streams: its elements first go where those are."""
        (pc,) = node.inputs
        if self._may_retract(pc):
            raise PipelineError(
                f"{node}: its input takes panes back (accumulation='retracting'), but what was made of them with a "
                "side input that has been refreshed since is not known any more; use accumulation='accumulating'"
            )
        op = operator(node)
        sides = [side for side in op.side_inputs if not side.collection.bounded]
        main, *others = [self._enter(each) for each in (pc, *(side.collection for side in sides))]
        views = [
            side_view(
                node,
                side,
                self.line.graph,
                retractable=self._may_retract(side.collection),
                upstream=names_of(place.origins),
            )
            for side, place in zip(sides, others, strict=True)
        ]
        values = [SideValue.of(side, ShownCells()) for side in sides]
        work = SideInputWork(pc.windowing, tuple(views), tuple(values))
        exchange = self._made(node, work, main.origins, *(place.origins for place in others))
        dests = exchange.dests
        self._output(main.readers, ToSpread(ToRole(MAIN), dests, heard_by(exchange)))
        for role, (place, each) in enumerate(zip(others, views, strict=True), MAIN + 1):
            self._output(place.readers, ToEveryShard(ToRole(role), dests, frozenset(each.upstream)))
        # The exchange shows the values, in its own order of them; side inputs that are bounded are bound in a run.
        shown = iter(values)
        step = step_of(node, op.bind(lambda side: side if side.collection.bounded else next(shown)))
        exchange.readers[None].steps.append(step)
        for out in node.outputs:
            self._after(exchange, out, step.readers[out.tag])

    def _sink(self, node: Node) -> None:
        (pc,), sink = node.inputs, node.transform
        readers = self._enter(pc).readers
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
        self._output(readers, ToSink(output, outlet.number))

    def _output(self, readers: Readers, output: Output) -> None:
        readers.outputs.append(len(self.line.outputs))
        self.line.outputs.append(output)


def _all_origins(places: Iterable[PythonPlace]) -> Origins:
    """Returns the origins of several collections, each once."""
    return tuple({id(origin): origin for place in places for origin in place.origins}.values())
