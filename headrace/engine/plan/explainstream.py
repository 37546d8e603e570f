"""Renders the plan of a stream as text: its line from the sources through levels of exchanges to the sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.engine.plan.line import Line
from headrace.engine.plan.lowering import PassOperator, lower
from headrace.engine.plan.stages import named
from headrace.engine.worker.program import Readers, steps_of
from headrace.model.pipeline import Graph


@dataclass(frozen=True)
class StreamPlan:
    """The plan of a graph that runs as a stream."""

    line: Line

    def tree(self) -> str:
        """Renders the plan as text: what is done at each place of the line, in the order of the data."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for tap in self.line.taps:
            yield f"read  {named(tap.source)}"
            columns = dict.fromkeys(
                node.label for reading in tap.readings for node in (*reading.columns, *reading.windows)
            )
            if columns:
                yield f"   columns  {' · '.join(columns)}"
            yield from _python(*[reading.readers for reading in tap.readings], tap.dead)
        yield from self._segments(0)
        for level in range(1, self.line.depth + 1):
            for exchange in self.line.level(level):
                yield f"level {level}  {exchange.label}: {exchange.work.describe()}"
                yield from _python(*exchange.readers.values())
            yield from self._segments(level)
        yield from (f"write  {named(outlet.node)}" for outlet in self.line.outlets)

    def _segments(self, level: int) -> Iterator[str]:
        for segment in sorted(self.line.segments, key=lambda segment: segment.station):
            if segment.station[0] == level:
                yield f"columns  {' · '.join(node.label for node in segment.nodes)}"
                yield from _python(segment.readers)


def stream_plan(graph: Graph) -> StreamPlan:
    """Makes the plan of a graph as a stream, on any number of machines."""
    return StreamPlan(lower(graph, shards=1, partitions=1))


def _python(*readers: Readers) -> Iterator[str]:
    labels = dict.fromkeys(step.op.label for step in steps_of(*readers) if not isinstance(step.op, PassOperator))
    if labels:
        yield f"   python  {' · '.join(labels)}"
