"""Counts the rows that transforms of columns failed on and left out: by transform, with the last one of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.worker.hidden import REJECTED
from headrace.engine.worker.program import Counters
from headrace.model.badrecords import FAILED_EXPRESSION
from headrace.model.elementwise import DeadLetter


@dataclass
class RejectedRows:
    """The rows that were left out in a task."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: dict[str, DeadLetter] = field(default_factory=dict)

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reads the column REJECTED, if there is one, or a list of such; returns a batch without it."""
        if REJECTED not in batch.schema.names:
            return batch
        rejected = batch.column(REJECTED)
        if rejected.null_count < len(rejected):
            self._add(rejected.flatten() if pa.types.is_list(rejected.type) else rejected)
        return batch.drop_columns([REJECTED])

    def _add(self, rejected: pa.StructArray) -> None:
        rows = rejected.drop_null()
        for each in pc.value_counts(rows.field("label")).to_pylist():
            self.counts[each["values"], FAILED_EXPRESSION] += each["counts"]
        for row in rows.to_pylist():
            label = row["label"]
            self.last[label] = DeadLetter(row["record"], label, FAILED_EXPRESSION, row["message"], label)

    def count(self, counters: Counters) -> None:
        """Adds what was read to the counters; called once a task."""
        if self.counts:
            counters.add(self.counts)
            counters.report_bad(self.last)
        self.counts, self.last = Counter(), {}
