"""Lowers a graph to the line of a stream. Nothing here runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.aggregation.columnsfn import columns_fn, to_keyed
from headrace.engine.aggregation.toprowsfn import TopRowsFn, ToRowPairs
from headrace.engine.plan.collectionplaces import CollectionPlaces, PythonPlace, all_origins
from headrace.engine.plan.joinedtables import without_tables
from headrace.engine.plan.line import Exchange, Line, Origins, Outlet, heard_by, names_of
from headrace.engine.plan.taps import Reading
from headrace.engine.plan.translation import operator, readers_of, stateful_fn, step_of
from headrace.engine.shard.columnrows import ToGroups
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.intervaljoin import IntervalJoinWork
from headrace.engine.shard.joinprocessor import LEFT
from headrace.engine.shard.joinwork import AsOfJoinWork, JoinRows, JoinWork, ToJoin
from headrace.engine.shard.lateoutput import ElementFn, whole_elements
from headrace.engine.shard.matchedgroups import MatchedGrouping
from headrace.engine.shard.rows import to_pairs, to_partials
from headrace.engine.shard.senders import ToShards, ToSink
from headrace.engine.shard.taskshard import TaskBatches, TaskWork, ToNextBatch, ToTasks
from headrace.engine.shard.toprows import TopRowsWork, ToTopRows
from headrace.engine.shard.wire import shard_dests
from headrace.engine.shard.work import Grouping, Work, column_grouping
from headrace.engine.sides.processor import SideInputWork
from headrace.engine.sides.rows import MAIN, ToEveryShard, ToKeyedRole, ToRole, ToSpread
from headrace.engine.sides.sidedwork import SidedWork
from headrace.engine.sides.sideviews import SideView, side_view
from headrace.engine.stateful.processor import StatefulWork
from headrace.engine.worker import operators
from headrace.engine.worker.addedcolumns import added_columns, change_columns
from headrace.engine.worker.bundles import Bundle, ToBlocks, ToColumns
from headrace.engine.worker.grouped import needs_times
from headrace.engine.worker.program import Output, Readers, Step
from headrace.engine.worker.sidevalues import ShownCells, SideValue
from headrace.engine.worker.text import text_of
from headrace.engine.worker.torecords import to_records
from headrace.model.algebra import CombineFn
from headrace.model.badrecords import RecordSource
from headrace.model.columnjoins import AsOfJoin, Join
from headrace.model.columns import Aggregate, Columnwise, TopRows
from headrace.model.elementwise import ParDo, SideInput
from headrace.model.errors import PipelineError
from headrace.model.joins import IntervalJoinFn
from headrace.model.keyed import CombinePerKey, Flatten, GroupByKey, Reshuffle, WindowInto
from headrace.model.lakes import WriteLake
from headrace.model.lateoutput import LATE
from headrace.model.matching import MatchQueries
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sharded import Sharded
from headrace.model.sinks import BatchSink, ForEach, Sink, WriteFiles
from headrace.model.sources import Source
from headrace.model.tasks import NEXT, Tasks
from headrace.model.topics import WriteTopic
from headrace.model.windows import CountWindows


def lower(
    graph: Graph,
    *,
    shards: int,
    partitions: int,
    numbers: Mapping[str, int] | None = None,
    taken: Iterable[int] = (),
    levels: int = 0,
    by_slot: bool = True,
) -> Line:
    """Makes the line that runs this graph, each exchange with so many shards on so many partitions.

    `numbers` are those that exchanges have already, by label; others get new ones that are not `taken`. There are at
    least so many `levels`. `by_slot`: keys find their shards by slots.
    """
    line = _Lowering(graph, shards, partitions, numbers or {}, tuple(taken), levels).line
    for output in line.outputs:
        if isinstance(output, ToShards):
            output.by_slot = by_slot
    return line


class PassOperator(operators.Operator):
    """Hands elements on as they are."""

    def run(self, bundle: Bundle) -> Iterator[operators.Tagged]:
        yield None, bundle


class _Lowering:
    """Walks the graph in order, and adds each node to the line."""

    def __init__(
        self,
        graph: Graph,
        shards: int,
        partitions: int,
        numbers: Mapping[str, int],
        taken: tuple[int, ...],
        levels: int,
    ) -> None:
        self.line = Line(graph, levels=levels)
        self.shards, self.partitions, self.numbers, self.taken = shards, partitions, dict(numbers), taken
        self.places = CollectionPlaces(self.line)
        streamed = without_tables(graph)
        for node in streamed:
            self._add(node)
        for node in streamed:
            if isinstance(node.transform, Source) and all(tap.source is not node for tap in self.line.taps):
                self.places.enter(node.outputs[0])  # nobody reads it, but it is opened
            if isinstance(node.transform, RecordSource) and node.transform.checks:
                self.places.tap(node, ())  # one that sees all of it
        for tap in self.line.taps:
            if not tap.readings:
                tap.readings.append(Reading((), tap.source.outputs[0]))

    def _add(self, node: Node) -> None:
        transform = node.transform
        if isinstance(transform, Source):
            self.places.add_source(node)
        elif isinstance(transform, Aggregate):
            self._aggregate(node, transform)
        elif isinstance(transform, TopRows):
            self._top(node, transform)
        elif isinstance(transform, Join) and not transform.with_table(node.inputs[1]):
            self._join(node, transform)
        elif isinstance(transform, MatchQueries):
            self._match(node)
        elif isinstance(transform, Columnwise | WindowInto) and self.places.add_columns(node):
            pass  # Catalyst does it
        elif isinstance(transform, Columnwise):
            self.places.begin_columns(node)
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
        elif isinstance(transform, Sharded):
            self._sharded(node, transform)
        elif isinstance(transform, Sink) and not isinstance(transform, ForEach):
            self._sink(node)
        elif all(pc.bounded for pc in transform.side_inputs()):
            self._step(node, node.inputs[0])
        else:
            self._with_stream_sides(node)

    def _step(self, node: Node, pc: PCollection) -> None:
        step, place = step_of(node, operator(node)), self.places.enter(pc)
        place.readers.steps.append(step)
        for out in node.outputs:
            self.places.add(out, replace(place, readers=step.readers[out.tag]))

    def _match(self, node: Node) -> None:
        """Places the matching of queries, which works on columns: those of a source, or that Catalyst computed."""
        (pc,) = node.inputs
        if not self.places.in_columns(pc):
            raise PipelineError(f"{node}: {pc.label!r} is made by a function, not of columns; put a Select before it")
        self._step(node, pc)

    def _flatten(self, node: Node) -> None:
        (out,), together = node.outputs, Readers()
        places = [self.places.enter(pc) for pc in node.inputs]
        for place in places:
            place.readers.steps.append(Step(PassOperator(node.label), {None: together}))
        self.places.add(out, PythonPlace(together, all_origins(places), max(place.station for place in places)))

    def _aggregate(self, node: Node, aggregate: Aggregate) -> None:
        (pc,) = node.inputs
        keyed, fn, readers = to_keyed(aggregate, pc.schema), columns_fn(aggregate), self.places.enter(pc).readers
        if aggregate.has_late_output and self.places.may_retract(pc):
            # What is taken back is looked for among whole elements, and must be found in state of earlier versions.
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

    def _top(self, node: Node, top: TopRows) -> None:
        readers = self.places.enter(node.inputs[0]).readers
        exchange = self._exchange_over(node, node.inputs[0], readers, TopRowsFn(top.n, top.by), top)
        self._after(exchange, node.outputs[0], exchange.readers[None])

    def _exchange(self, node: Node, pc: PCollection, fn: CombineFn[Any, Any, Any] | None) -> None:
        exchange = self._exchange_over(node, pc, self.places.enter(pc).readers, fn)
        self._after(exchange, node.outputs[0], exchange.readers[None])
        for out in node.outputs[1:]:
            self._after(exchange, out, exchange.readers[LATE])

    def _after(self, exchange: Exchange, pc: PCollection, readers: Readers) -> None:
        """Notes the place of a collection that comes out of an exchange."""
        self.places.add(pc, PythonPlace(readers, (exchange,), (exchange.level, 0)))

    def _exchange_over(
        self,
        node: Node,
        pc: PCollection,
        readers: Readers,
        fn: CombineFn[Any, Any, Any] | None,
        aggregate: Aggregate | TopRows | None = None,
    ) -> Exchange:
        windowing = pc.windowing
        retractable = self.places.may_retract(pc)
        if retractable and windowing.accumulation == "discarding" and (fn is None or not fn.invertible):
            raise PipelineError(
                f"{node}: its input takes panes back, but with accumulation='discarding' it keeps nothing to take them "
                "from; say accumulation='accumulating' or 'retracting' in WindowInto"
            )
        if retractable and aggregate is not None and isinstance(windowing.window, CountWindows):
            raise PipelineError(
                f"{node}: its input takes panes back, and {windowing.window!r} numbers what comes, once and for all; "
                "use windows of time, or say accumulation='discarding' where the input is grouped"
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
            elements = late and aggregate is not None and not isinstance(fn, ElementFn)
            rows = to_pairs(node.label, windowing, retractable=retractable, elements=elements)
        if isinstance(aggregate, TopRows):
            rows = ToTopRows(node.label, fn, ToRowPairs(pc.schema, aggregate.keys), rows)
        elif aggregate is not None and not isinstance(fn, ElementFn):
            rows = ToGroups(node.label, columns_fn(aggregate), to_keyed(aggregate, pc.schema), rows)
        grouping = Grouping(windowing, fn, kind, late)
        work = grouping
        if isinstance(aggregate, TopRows):
            work = TopRowsWork(**vars(grouping), keys=aggregate.keys, rank=aggregate.rank)
        elif aggregate is not None:
            work = column_grouping(grouping, aggregate)
            matched = self.line.graph.producer(pc).transform
            if isinstance(matched, MatchQueries) and not late and aggregate.keys[:1] == (matched.number,):
                work = MatchedGrouping(**vars(work), queries=matched.table)
        exchange = self._shards_over(node, pc, readers, work, rows, Delays() if fractions else None)
        if late:
            exchange.readers[LATE] = Readers()
        return exchange

    def _stateful(self, node: Node, transform: ParDo) -> None:
        (pc,), place = node.inputs, self.places.enter(node.inputs[0])
        window = pc.windowing.window
        if window.merging or isinstance(window, CountWindows):
            raise PipelineError(
                f"{node}: a DoFn with state or timers needs windows that are known when an element comes, but "
                f"{pc.label!r} is in {window!r}; use GlobalWindows, FixedWindows or SlidingWindows, or GroupByKey first"
            )
        if self.places.may_retract(pc):
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
        if isinstance(transform.fn, IntervalJoinFn) and not panes:
            work = IntervalJoinWork(pc.windowing, transform.fn)
            exchange = self._shards_over(node, pc, place.readers, work, work.rows(node.label))
            self._after(exchange, node.outputs[0], exchange.readers[None])
            return
        rows = to_pairs(node.label, pc.windowing, retractable=False, panes=panes)
        exchange = self._shards_over(node, pc, place.readers, StatefulWork(stateful_fn(node, transform)), rows)
        exchange.readers = readers_of(node)
        for out in node.outputs:
            self._after(exchange, out, exchange.readers[out.tag])

    def _join(self, node: Node, join: Join) -> None:
        """Places a join of two streams: each side sends its rows to the same shards."""
        if back := [pc.label for pc in node.inputs if self.places.may_retract(pc)]:
            raise PipelineError(
                f"{node}: its input {back[0]!r} takes panes back (accumulation='retracting'), which a join of streams "
                "does not follow; say accumulation='accumulating' or 'discarding' in WindowInto, or use CoGroupByKey"
            )
        places = [self.places.enter(pc) for pc in node.inputs]
        windowing = max((pc.windowing for pc in node.inputs), key=lambda windowing: windowing.allowed_lateness)
        kind = AsOfJoinWork if isinstance(join, AsOfJoin) else JoinWork
        work = kind(windowing, join.pairs, join.how, join.within)
        exchange = self._add_exchange(node, work, all_origins(places))
        self.line.joins[exchange.number] = node
        for side, (pc, place) in enumerate(zip(node.inputs, places, strict=True)):
            columns = ToColumns(pc.label, pc.schema, windowed=not pc.windowing.is_global)
            keys = tuple(pair[side] for pair in join.pairs)
            rows = JoinRows(columns, keys, join.keeps_left if side == LEFT else join.keeps_right)
            self.line.add_output(
                place.readers, ToJoin(rows, exchange.dests, heard_by(exchange), join=exchange.number, side=side)
            )
        self._after(exchange, node.outputs[0], exchange.readers[None])

    def _tasks(self, node: Node, transform: Tasks) -> None:
        if not node.inputs:
            raise PipelineError(f"{node}: Tasks needs at least one collection of rows for them")
        if back := [pc.label for pc in node.inputs if self.places.may_retract(pc)]:
            raise PipelineError(
                f"{node}: its input {back[0]!r} takes panes back (accumulation='retracting'), which tasks do not see; "
                "say accumulation='accumulating' or 'discarding' in WindowInto"
            )
        places = [self.places.enter(pc) for pc in node.inputs]
        work = TaskWork(transform.task, transform.tasks, transform.initial, transform.note, transform.rounds)
        exchange = self._add_exchange(node, work, all_origins(places), shards=transform.tasks)
        for place in places:
            rows = TaskBatches(node.label, transform.tasks)
            self.line.add_output(place.readers, ToTasks(rows, exchange.dests, heard_by(exchange)))
        exchange.readers = {tag: Readers() for tag in transform.outputs}
        if transform.rounds:
            exchange.readers[NEXT] = Readers()
            rows = TaskBatches(node.label, transform.tasks)
            self.line.add_output(exchange.readers[NEXT], ToNextBatch(rows, exchange.dests))
        for out in node.outputs:
            self._after(exchange, out, exchange.readers[out.tag])

    def _sharded(self, node: Node, transform: Sharded) -> None:
        (pc,) = node.inputs
        if self.places.may_retract(pc):
            raise PipelineError(
                f"{node}: its input {pc.label!r} takes panes back (accumulation='retracting'), which its work does not "
                "see; say accumulation='accumulating' or 'discarding' in WindowInto"
            )
        if any(not side.collection.bounded for side in transform.sides):
            values, views, others = self._stream_sides(node, transform.sides)
            shown = iter(values)
            sides = tuple(side if side.collection.bounded else next(shown) for side in transform.sides)
            work = SidedWork(node.label, transform.work, pc.windowing, views, sides)
            exchange = self._meet_sides(node, work, views, others, ToShards, ToKeyedRole(MAIN))
        else:
            rows = to_pairs(node.label, pc.windowing, retractable=False)
            work = transform.work
            if transform.sides:
                work = SidedWork(node.label, work, pc.windowing, (), transform.sides)
            exchange = self._shards_over(node, pc, self.places.enter(pc).readers, work, rows)
        exchange.readers = {out.tag: Readers() for out in node.outputs}
        for out in node.outputs:
            self._after(exchange, out, exchange.readers[out.tag])

    def _shards_over(
        self, node: Node, pc: PCollection, readers: Readers, work: Work, rows: Output, delays: Delays | None = None
    ) -> Exchange:
        exchange = self._add_exchange(node, work, self.places.enter(pc).origins)
        self.line.add_output(readers, ToShards(rows, exchange.dests, heard_by(exchange), delays))
        return exchange

    def _add_exchange(
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
        return self.numbers.setdefault(label, 1 + max([-1, *self.taken, *self.numbers.values()]))

    def _with_stream_sides(self, node: Node) -> None:
        """Places a function with side inputs that are streams: its elements first go where those are."""
        (pc,) = node.inputs
        if self.places.may_retract(pc):
            raise PipelineError(
                f"{node}: its input takes panes back (accumulation='retracting'), but what was made of them with a "
                "side input that has been refreshed since is not known any more; use accumulation='accumulating'"
            )
        op = operator(node)
        values, views, others = self._stream_sides(node, op.side_inputs)
        work = SideInputWork(pc.windowing, views, values)
        exchange = self._meet_sides(node, work, views, others, ToSpread, ToRole(MAIN))
        # The exchange shows the values, in its own order of them; side inputs that are bounded are bound in a run.
        shown = iter(values)
        step = step_of(node, op.bind(lambda side: side if side.collection.bounded else next(shown)))
        exchange.readers[None].steps.append(step)
        for out in node.outputs:
            self._after(exchange, out, step.readers[out.tag])

    def _stream_sides(
        self, node: Node, all_sides: Sequence[SideInput]
    ) -> tuple[tuple[SideValue, ...], tuple[SideView, ...], list[PythonPlace]]:
        """Returns the values, views and places of the side inputs that are streams."""
        sides = [side for side in all_sides if not side.collection.bounded]
        places = [self.places.enter(side.collection) for side in sides]
        views = [
            side_view(
                node,
                side,
                self.line.graph,
                retractable=self.places.may_retract(side.collection),
                upstream=names_of(place.origins),
            )
            for side, place in zip(sides, places, strict=True)
        ]
        return tuple(SideValue.of(side, ShownCells()) for side in sides), tuple(views), places

    def _meet_sides(
        self,
        node: Node,
        work: Work,
        views: tuple[SideView, ...],
        others: list[PythonPlace],
        sender: type[ToShards],
        rows: ToRole,
    ) -> Exchange:
        """Adds the exchange in whose shards the main input meets side inputs that are streams."""
        main = self.places.enter(node.inputs[0])
        exchange = self._add_exchange(node, work, main.origins, *(place.origins for place in others))
        self.line.add_output(main.readers, sender(rows, exchange.dests, heard_by(exchange)))
        for role, (place, view) in enumerate(zip(others, views, strict=True), MAIN + 1):
            output = ToEveryShard(ToRole(role), exchange.dests, frozenset(view.upstream))
            self.line.add_output(place.readers, output)
        return exchange

    def _sink(self, node: Node) -> None:
        (pc,), sink = node.inputs, node.transform
        place = self.places.enter(pc)
        output: Any
        if isinstance(sink, WriteTopic):
            if sink.watermarks and not all(isinstance(origin, Exchange) for origin in place.origins):
                raise PipelineError(
                    f"{node}: with watermarks=True there must be a grouping between source and topic, since a stream "
                    "without one keeps no watermark; group first, or leave watermarks out"
                )
            output = to_records(node, pc)
        elif isinstance(sink, WriteLake):
            output = ToColumns(node.label, pc.schema, not pc.windowing.is_global, change_columns(self.line.graph, node))
        elif isinstance(sink, BatchSink):
            output = ToBlocks()
        elif isinstance(sink, WriteFiles):
            added = added_columns(self.line.graph, node)
            output = text_of(node.label, sink, pc, added) or ToColumns(node.label, pc.schema, False, added)
        else:
            raise PipelineError(f"{node}: not yet in a stream: {sink}")
        outlet = Outlet(len(self.line.outlets), node, output, names_of(place.origins))
        self.line.outlets.append(outlet)
        self.line.add_output(place.readers, ToSink(output, outlet.number))
