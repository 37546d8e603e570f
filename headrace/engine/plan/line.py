"""The line of a stream: taps of sources, exchanges level after level, segments of columns, and outlets to sinks.

Where a batch has a tree of stages, a stream must not branch after an operator with state. So all exchanges that are as
many exchanges away from the sources are one level, and rows say where they go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.engine.plan.columnsegments import Segment, ToSegment
from headrace.engine.plan.taps import Tap
from headrace.engine.shard.joinprocessor import LEFT, RIGHT
from headrace.engine.shard.joinwork import JoinWork, ToJoin
from headrace.engine.shard.senders import ToSink
from headrace.engine.shard.toprows import TopRowsWork, ToTopRows
from headrace.engine.shard.wire import HEARTBEAT, Station
from headrace.engine.shard.work import Work
from headrace.engine.sides.sidedwork import SidedWork
from headrace.engine.stateful.processor import StatefulWork
from headrace.engine.worker.bundles import ToBlocks, ToColumns
from headrace.engine.worker.program import Binding, Output, Readers
from headrace.engine.worker.sidevalues import SideResolver
from headrace.model.columnjoins import Join
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.schema import Schema
from headrace.model.tasks import NEXT


@dataclass(eq=False)
class Exchange:
    """Brings rows of one key together: the places of its shards, their work, their upstreams, and readers by tag."""

    number: int
    label: str
    work: Work
    level: int
    dests: tuple[int, ...]
    upstream: tuple[str, ...]
    readers: dict[str | None, Readers] = field(default_factory=lambda: {None: Readers()})

    def names(self) -> tuple[str, ...]:
        """Returns the names of those whose watermarks it sends on: its shards."""
        return tuple(f"{self.number}/{shard}" for shard in range(len(self.dests)))

    def settings(self) -> str:
        """Describes what may change about it while there is state, as far as is known."""
        return repr(getattr(self.work, "windowing", None))


Origins = tuple[Tap | Exchange, ...]
"""Where the elements of a collection come from."""


def names_of(origins: Origins) -> tuple[str, ...]:
    """Returns the names of those whose watermarks a collection with these origins waits for."""
    return tuple(name for origin in origins for name in origin.names())


def heard_by(exchange: Exchange) -> frozenset[str]:
    """Returns the names of those whose clock reports matter to an exchange."""
    return frozenset(exchange.upstream) | ({HEARTBEAT} if exchange.level == 1 else set())


@dataclass(eq=False)
class Outlet:
    """A sink, the number by which rows find it, and the names of those whose watermarks its input has."""

    number: int
    node: Node
    output: ToBlocks | ToColumns | Any
    upstream: tuple[str, ...] = ()


@dataclass(eq=False)
class Line:
    """The whole of a stream.

    Every program of a stream has all `outputs` of the line, also those that it does not feed itself: a program reports
    the watermarks it heard to every exchange that waits for them, and some of those are fed by a program behind a
    segment of columns. An output that got no rows and has no watermark to report sends nothing.
    """

    graph: Graph
    taps: list[Tap] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    joins: dict[int, Node] = field(default_factory=dict)  # by the numbers of their exchanges
    segments: list[Segment] = field(default_factory=list)
    outlets: list[Outlet] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    levels: int = 0  # the least number of levels; the last may have no exchanges

    @property
    def rounds(self) -> bool:
        """Whether shards send rows to shards of the next micro-batch."""
        return any(NEXT in exchange.readers for exchange in self.exchanges)

    @property
    def depth(self) -> int:
        """The number of levels of exchanges."""
        return max([self.levels, *(exchange.level for exchange in self.exchanges)])

    def level(self, number: int) -> list[Exchange]:
        """Returns the exchanges of a level."""
        return [exchange for exchange in self.exchanges if exchange.level == number]

    def at(self, station: Station) -> list[Segment]:
        """Returns the segments of columns at a station."""
        return [segment for segment in self.segments if segment.station == station]

    def add_output(self, readers: Readers, output: Output) -> None:
        """Adds an output that is fed where these readers are."""
        readers.outputs.append(len(self.outputs))
        self.outputs.append(output)

    def bind(self, resolve: SideResolver, rows_schema: Callable[[PCollection], Schema]) -> Line:
        """Returns a copy for one run, with values of side inputs, and the columns of Rows as Spark knows them."""
        binding = Binding(resolve)

        def known(output: Any, pc: PCollection) -> Any:
            unknown = isinstance(output, ToColumns) and output.element_schema is None
            return replace(output, element_schema=rows_schema(pc)) if unknown else output

        outlets = [replace(outlet, output=known(outlet.output, outlet.node.inputs[0])) for outlet in self.outlets]
        segments = [
            replace(
                segment,
                output=replace(segment.output, columns=known(segment.output.columns, segment.enters)),
                readers=binding.readers(segment.readers),
            )
            for segment in self.segments
        ]
        to_segments = {segment.dest: segment.output for segment in segments}

        def columns_of(label: str) -> pa.Schema:
            """Returns the columns that the exchange with this label reads."""
            (pc,) = next(node.inputs for node in self.graph if node.label == label)
            schema = pc.schema or rows_schema(pc)
            return pa.schema(list(zip(schema.names, schema.types, strict=True)))

        rows_of = {
            (number, side): known(self.join_columns(number, side), pc)
            for number, node in self.joins.items()
            for side, pc in enumerate(node.inputs)
        }

        def output(planned: Output) -> Output:
            if isinstance(planned, ToSegment):
                return to_segments[planned.dest]
            rows = getattr(planned, "rows", None)
            if isinstance(rows, ToTopRows):
                return replace(planned, rows=rows.bind(columns_of(rows.label)))  # type: ignore[type-var]
            if isinstance(planned, ToJoin):
                return replace(planned, rows=replace(planned.rows, columns=rows_of[planned.join, planned.side]))
            return replace(planned, batches=outlets[planned.number].output) if isinstance(planned, ToSink) else planned

        return replace(
            self,
            taps=[_bound_tap(tap, binding) for tap in self.taps],
            exchanges=[
                replace(
                    each,
                    work=each.work.bind(columns_of(each.label))
                    if isinstance(each.work, TopRowsWork)
                    else self._bound_work(each, resolve, rows_of),
                    readers=binding.by_tag(each.readers),
                )
                for each in self.exchanges
            ],
            segments=segments,
            outlets=outlets,
            outputs=list(map(output, self.outputs)),
        )

    def join_columns(self, join: int, side: int) -> ToColumns:
        """Returns what lays the rows of one side of a join out as columns."""
        outputs = [each for each in self.outputs if isinstance(each, ToJoin) and (each.join, each.side) == (join, side)]
        return outputs[0].rows.columns

    def _bound_work(self, exchange: Exchange, resolve: SideResolver, rows_of: dict[tuple[int, int], ToColumns]) -> Work:
        work = exchange.work
        if isinstance(work, JoinWork):
            node = self.joins[exchange.number]
            assert isinstance(node.transform, Join)
            left, right = (rows_of[exchange.number, side].schema() for side in (LEFT, RIGHT))
            try:
                return work.bind(left, right, node.transform)
            except PipelineError as error:
                raise PipelineError(f"{node}: {error}") from None
        if isinstance(work, SidedWork):
            return work.bind(resolve)
        return replace(work, fn=work.fn.bind(resolve)) if isinstance(work, StatefulWork) else work


def _bound_tap(tap: Tap, binding: Binding) -> Tap:
    readings = [replace(reading, readers=binding.readers(reading.readers)) for reading in tap.readings]
    return replace(tap, readings=readings, dead=binding.readers(tap.dead))
