"""Bad records on their way: rows whose column BAD says what is wrong become dead letters, a failure, or a number.

They are counted where they are met anyway: in a stream by the program that reads the source, in a batch by Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.worker.blame import MARK, WorkerFailure
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle, to_block
from headrace.engine.worker.hidden import BAD
from headrace.engine.worker.program import Counters
from headrace.model.badrecords import REASONS, Bad, RecordSource
from headrace.model.elementwise import DeadLetter
from headrace.model.pipeline import Node

_LAST = "last"
_SHOWN = 200  # characters of a record that ends a run
_REMEDY = "; bad='dead_letters' would go on without it"


def guarded(node: Node, data: DataFrame) -> DataFrame:
    """The frame of a batch's source; if bad records are to end the run, one that ends it when it meets one."""
    if BAD not in data.columns or _what_becomes(node) != "fail":
        return data
    bad = F.col(BAD)
    error = F.concat(bad["reason"], F.lit(": "), bad["message"], F.lit(", at "), bad["position"], F.lit(_REMEDY))
    element, trace = F.substring(bad["record"], 1, _SHOWN), F.array().cast("array<string>")
    told = {"label": F.lit(node.label), "element": element, "error": error, "trace": trace}
    failure = F.concat(F.lit(MARK), F.to_json(F.struct(*[each.alias(name) for name, each in told.items()])))
    fine = data.where(F.when(bad.isNull(), F.lit(True)).otherwise(F.raise_error(failure).cast("boolean")))
    # What is observed stays apart from conditions that follow: those would drop the nulls of a bad record before.
    return fine.drop(BAD).observe(Observation(), F.count(F.lit(1)).alias("rows"))


def good(data: DataFrame) -> DataFrame:
    """The elements of a source."""
    return data.where(F.col(BAD).isNull()).drop(BAD) if BAD in data.columns else data


def letters(label: str, data: DataFrame) -> DataFrame:
    """The dead letters of a source, as blocks."""
    return data.where(F.col(BAD).isNotNull()).select(BAD).mapInArrow(ToLetters(label), from_arrow_schema(BLOCK_SCHEMA))


def letters_of(label: str, bad: pa.Array) -> list[DeadLetter]:
    """The dead letters of a source's column BAD."""
    rows = bad.filter(bad.is_valid()).to_pylist() if bad.null_count < len(bad) else []
    return [DeadLetter(row["record"], label, row["reason"], row["message"], row["position"]) for row in rows]


@dataclass
class Letters:
    """Reads the bad records of a source in the program of a stream, and counts them."""

    label: str
    bad: Bad
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: DeadLetter | None = None

    @staticmethod
    def of(source: Node, there: bool) -> Letters | None:
        """Those of a source, if there can be any."""
        return Letters(source.label, _what_becomes(source)) if there else None

    def read(self, batch: pa.RecordBatch) -> list[DeadLetter]:
        """The bad records of a batch; if the first is to end the run, it does."""
        found = letters_of(self.label, batch.column(BAD))
        if found and self.bad == "fail":
            error = f"{found[0].error}: {found[0].message}, at {found[0].position}{_REMEDY}"
            told = {"label": self.label, "element": found[0].element[:_SHOWN], "error": error, "trace": []}
            raise WorkerFailure(MARK + json.dumps(told))
        self.counts.update((self.label, letter.error) for letter in found)
        self.last = found[-1] if found else self.last
        return found

    def count(self, counters: Counters) -> None:
        """Called in a worker, once a task."""
        if self.last is not None:
            counters.add(self.counts)
            if self.bad != "skip":
                counters.report_bad({self.label: self.last})


@dataclass
class ToLetters:
    """Callable by mapInArrow over the column BAD."""

    label: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if found := letters_of(self.label, batch.column(BAD)):
                yield pa.record_batch([pa.array([to_block(Bundle(found))], pa.binary())], schema=BLOCK_SCHEMA)


class Observed:
    """The bad records of a batch's source, counted by Spark in the job that first reads its frame."""

    def __init__(self, node: Node, data: DataFrame) -> None:
        self.node = node
        self._unseen, self._observation = data, Observation()
        self.data = data.observe(self._observation, *_metrics())

    def tell(self, counters: Counters) -> None:
        """Once that job is done."""
        try:
            seen: dict[str, Any] = self._observation.get
        except Py4JJavaError:
            # Adaptive execution, which leaves out what turns out to be empty, has forgotten what was observed there.
            seen = self._unseen.agg(*_metrics()).collect()[0].asDict()
        counts = Counter({(self.node.label, reason): seen[reason] for reason in REASONS if seen[reason]})
        if not counts:
            return
        counters.add(counts)
        if _what_becomes(self.node) != "skip":
            last = seen[_LAST]
            letter = DeadLetter(last["record"], self.node.label, last["reason"], last["message"], last["position"])
            counters.report_bad({self.node.label: letter})


def _what_becomes(source: Node) -> Bad:
    assert isinstance(source.transform, RecordSource)
    return source.transform.bad


def _metrics() -> list[Column]:
    bad = F.col(BAD)
    return [*[F.count_if(bad["reason"] == reason).alias(reason) for reason in REASONS], F.max(bad).alias(_LAST)]
