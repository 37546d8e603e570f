"""Streams of columns alone whose rows have types: only by its time is such a row bad, or ahead of the clock.

`has_usual_rows` is the rule. The query's frame has the elements of usual rows, whose time is there and not ahead, and
nothing beside them: what is wrong with a row is not worked out. Spark counts the rows that it reads, and how many are
usual. If others are among them, another job reads those of the batch, by the general rules, and writes what elements
they are beside the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine.catalyst import relational
from headrace.engine.plan.line import Line, Outlet
from headrace.engine.plan.taps import Tap
from headrace.engine.spark.inputrows import rows_again, rows_sieved, settled, sieve
from headrace.engine.spark.observedrows import ObservedRows
from headrace.engine.stream.columnstream import OUT, ColumnDelivery, RowCounts, counted_frame, reads_rows
from headrace.engine.stream.programs import Watermarks
from headrace.engine.stream.sources import Sources, policy_of, watermarks_of
from headrace.engine.worker.hidden import PUNCTUATION, TIME
from headrace.model.badrecords import YEAR_10000, RecordSource
from headrace.model.pipeline import Node

_SOURCE: Final = "__source"
"""The alias of the source's rows in the query's plan."""


def has_usual_rows(line: Line) -> bool:
    """Returns whether a stream of columns alone reads usual rows first: those with types, for one sink."""
    return len(line.outlets) == 1 and all(reads_rows(tap) and len(tap.readings) == 1 for tap in line.taps)


class UsualDelivery(ColumnDelivery):
    """Delivers micro-batches of elements from usual rows, and looks for others."""

    def open(self, node: Node, sources: Sources) -> DataFrame:
        rows = sources.typed_rows(node)
        self._latest = sources.clock.column + F.lit(min(policy_of(node).max_skew, YEAR_10000))  # no time is later
        self._described: Callable[[DataFrame], DataFrame] = lambda data: sources.described(
            node, replace(rows, data=data)
        )
        return sources.timed(node, replace(rows, data=rows.data.alias(_SOURCE)))

    def frame(self, tap: Tap, opened: DataFrame, through: Callable[..., DataFrame]) -> DataFrame:
        watermarks = watermarks_of(tap.source)
        usual = sieve(is_usual(tap.source, watermarks, self._latest))

        def others(session: SparkSession) -> DataFrame:
            described = self._described(rows_again(self._spark, _SOURCE, session))
            return counted_frame(tap, through(settled(described.where(~usual)), timed=True), watermarks, all_rows=True)

        self._others = others
        data = through(opened.where(usual), timed=False)
        return data.select(*relational.element_columns(data))

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        self._now = self._time_of(batch_id)
        self._deliver_all(frame, batch_id)

    def _save(self, outlet: Outlet, rows: DataFrame, save: Callable[[DataFrame, bool], None]) -> int:
        observed = ObservedRows(rows, F.count(F.lit(1)).alias(OUT))
        save(observed.data, False)
        elements: int = observed.counted()[OUT]
        source, (reading,) = self._tap.source, self._tap.readings
        read, usual = rows_sieved(self._spark, _SOURCE)
        others = 0
        if usual < read:
            counts = RowCounts(self._tap, self._others(rows.sparkSession), self._now, lambda: read)
            save(self._elements(counts.data, 0), True)
            (others,) = counts.once(self.counters).elements
        elif _checks(source):
            self.counters.add_records(Counter({source.label: read}))
        self.counters.add(+Counter({(reading.row_producer(source).label, OUT): elements}))
        return elements + others


def is_usual(source: Node, watermarks: Watermarks, latest: Column) -> Column:
    """Returns whether a row of a source is good, and not ahead of the clock."""
    conditions = [F.lit(True)]
    if _checks(source):
        conditions.append(F.col(TIME).isNotNull())
    if watermarks == "from times":
        conditions.append(F.col(TIME) <= latest)
    if watermarks == "punctuated":
        conditions.append(F.col(PUNCTUATION).isNull() | (F.col(PUNCTUATION) <= latest))
    return reduce(Column.__and__, conditions)


def _checks(source: Node) -> bool:
    assert isinstance(source.transform, RecordSource)
    return source.transform.checks
