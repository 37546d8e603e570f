"""Handles bad records: rows whose column BAD is set become dead letters, an error, or just a count.

They are counted where rows are read anyway: in a stream by the program of the source, in a batch by Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.spark.observedrows import ObservedRows
from headrace.engine.worker.blame import MARK, WorkerFailure
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle, to_block
from headrace.engine.worker.hidden import BAD, LOW
from headrace.engine.worker.program import Counters
from headrace.model.badrecords import REASONS, Bad, RecordSource
from headrace.model.elementwise import DeadLetter
from headrace.model.pipeline import Node
from headrace.model.times import MIN_TIME

RECORDS = "records"
"""The name of the count of all records, good and bad, among what is observed."""
_LAST = "last"
_SHOWN = 200  # characters of a record that ends a run
_REMEDY = "; bad='dead_letters' would go on without it"


def fail_on_bad(node: Node, data: DataFrame) -> DataFrame:
    """Returns the frame of a batch's source; with bad="fail", one that raises an error at a bad record."""
    if BAD not in data.columns or _policy_of(node) != "fail":
        return data
    bad = F.col(BAD)
    error = F.concat(bad["reason"], F.lit(": "), bad["message"], F.lit(", at "), bad["position"], F.lit(_REMEDY))
    element, trace = F.substring(bad["record"], 1, _SHOWN), F.array().cast("array<string>")
    report = {"label": F.lit(node.label), "element": element, "error": error, "trace": trace}
    failure = F.concat(F.lit(MARK), F.to_json(F.struct(*[each.alias(name) for name, each in report.items()])))
    fine = data.where(F.when(bad.isNull(), F.lit(True)).otherwise(F.raise_error(failure).cast("boolean")))
    # An observation keeps this filter apart from those that follow, which would drop the nulls of a bad record first.
    return fine.drop(BAD).observe(Observation(), F.count(F.lit(1)).alias("rows"))


def good_rows(data: DataFrame) -> DataFrame:
    """Returns the rows that are elements."""
    return data.where(F.col(BAD).isNull()).drop(BAD) if BAD in data.columns else data


def dead_letter_blocks(label: str, data: DataFrame) -> DataFrame:
    """Returns the dead letters of a source, as packed blocks."""
    return (
        data.where(F.col(BAD).isNotNull()).select(BAD).mapInArrow(ToDeadLetters(label), from_arrow_schema(BLOCK_SCHEMA))
    )


def dead_letters(label: str, bad: pa.Array) -> list[DeadLetter]:
    """Makes dead letters of a source's column BAD."""
    rows = bad.filter(bad.is_valid()).to_pylist() if bad.null_count < len(bad) else []
    return [DeadLetter(row["record"], label, row["reason"], row["message"], row["position"]) for row in rows]


@dataclass
class BadRecordReader:
    """Reads the bad records of a source in the program of a stream, and counts them."""

    label: str
    bad: Bad
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: DeadLetter | None = None
    records: int = 0

    @staticmethod
    def of(source: Node, has_bad: bool) -> BadRecordReader | None:
        """Returns the reader of a source that can have bad records, otherwise None."""
        return BadRecordReader(source.label, _policy_of(source)) if has_bad else None

    def read(self, batch: pa.RecordBatch) -> list[DeadLetter]:
        """Returns the bad records of a batch as dead letters; with bad="fail", raises an error instead."""
        letters = dead_letters(self.label, batch.column(BAD))
        self.records += _count_records(batch)
        if letters and self.bad == "fail":
            raise _failure(letters[0])
        self.counts.update((self.label, letter.error) for letter in letters)
        self.last = letters[-1] if letters else self.last
        return letters

    def count(self, counters: Counters) -> None:
        """Adds what was read to the counters; called in a worker, once a task."""
        counters.add_records(Counter({self.label: self.records}))
        if self.last is not None:
            counters.add(self.counts)
            if self.bad != "skip":
                counters.report_bad({self.label: self.last})


def _failure(letter: DeadLetter) -> WorkerFailure:
    """Returns the error of a stream with bad="fail"."""
    error = f"{letter.error}: {letter.message}, at {letter.position}{_REMEDY}"
    report = {"label": letter.label, "element": letter.element[:_SHOWN], "error": error, "trace": []}
    return WorkerFailure(MARK + json.dumps(report))


def _count_records(batch: pa.RecordBatch) -> int:
    """Returns how many rows of a source are records; those of a script that only have a watermark are none."""
    if LOW not in batch.schema.names:
        return batch.num_rows  # type: ignore[no-any-return]
    watermarks = pc.sum(pc.greater(batch.column(LOW), MIN_TIME)).as_py()
    return batch.num_rows - (watermarks or 0)  # type: ignore[no-any-return]


@dataclass
class ToDeadLetters:
    """Makes blocks of dead letters; callable by mapInArrow over the column BAD."""

    label: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if letters := dead_letters(self.label, batch.column(BAD)):
                yield pa.record_batch([pa.array([to_block(Bundle(letters))], pa.binary())], schema=BLOCK_SCHEMA)


class BadRecordObservation:
    """Counts the bad records of a batch's source, by Spark, in the job that first reads its frame."""

    def __init__(self, node: Node, data: DataFrame) -> None:
        self.node = node
        self._observed = ObservedRows(data, *observed())
        self.data = self._observed.data

    def report(self, counters: Counters) -> None:
        """Adds the counts to the counters, once that job is done."""
        report(self.node, self._observed.counted(), counters)


def report(source: Node, counted: dict[str, Any], counters: Counters) -> None:
    """Adds what was `observed` of a source to the counters; with bad="fail", raises an error at a bad record."""
    counters.add_records(Counter({source.label: counted[RECORDS]}))
    counts = Counter({(source.label, reason): counted[reason] for reason in REASONS if counted[reason]})
    if not counts:
        return
    last, policy = counted[_LAST], _policy_of(source)
    letter = DeadLetter(last["record"], source.label, last["reason"], last["message"], last["position"])
    if policy == "fail":
        raise _failure(letter)
    counters.add(counts)
    if policy != "skip":
        counters.report_bad({source.label: letter})


def _policy_of(source: Node) -> Bad:
    assert isinstance(source.transform, RecordSource)
    return source.transform.bad


def observed() -> list[Column]:
    """Returns what is counted of a frame with the column BAD: bad records by reason, one of them, and all records."""
    bad = F.col(BAD)
    # Not count_if, for which Spark would make a row with further columns first.
    by_reason = [F.count(F.when(bad["reason"] == reason, True)).alias(reason) for reason in REASONS]
    return [*by_reason, F.max(bad).alias(_LAST), F.count(F.lit(1)).alias(RECORDS)]
