"""Computes columns where the rows are: Select and Where as expressions over Arrow, in the program that read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.engine.columns.expressions import Expression, Rows
from headrace.engine.worker.columnbundles import ColumnBundle, ColumnReader
from headrace.engine.worker.hidden import TIME


class ColumnStep(Protocol):
    """A transform of columns."""

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...

    def needs(self, wanted: set[str]) -> set[str]:
        """Returns the columns that it reads so that those that are wanted come out."""
        ...

    def only(self, wanted: set[str]) -> ColumnStep:
        """Returns the transform without columns that nobody wants."""
        ...


@dataclass(frozen=True)
class SelectStep:
    """Computes columns, by name.

    >>> from headrace.engine.columns.expressions import Attribute
    >>> SelectStep((("b", Attribute("a")),)).run(pa.record_batch({"a": [1], "c": [2]})).to_pydict()
    {'b': [1]}
    """

    columns: tuple[tuple[str, Expression], ...]

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = Rows(batch)
        return pa.record_batch({name: expression.array(rows) for name, expression in self.columns})

    def needs(self, wanted: set[str]) -> set[str]:
        return set().union(*(expression.columns for name, expression in self.columns if name in wanted))

    def only(self, wanted: set[str]) -> SelectStep:
        return SelectStep(tuple((name, expression) for name, expression in self.columns if name in wanted))


@dataclass(frozen=True)
class WhereStep:
    """Keeps the rows for which a condition is true."""

    condition: Expression

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        mask = self.condition.array(Rows(batch))
        return batch if mask.true_count == len(mask) else batch.filter(mask)

    def needs(self, wanted: set[str]) -> set[str]:
        return wanted | self.condition.columns

    def only(self, wanted: set[str]) -> WhereStep:
        return self


def needed(steps: tuple[ColumnStep, ...], wanted: set[str]) -> tuple[set[str], tuple[ColumnStep, ...]]:
    """Returns the columns that transforms read so that those that are wanted come out, and the transforms of no others.

    >>> from headrace.engine.columns.expressions import Attribute
    >>> steps = (WhereStep(Attribute("ok")), SelectStep((("x", Attribute("a")), ("y", Attribute("b")))))
    >>> sorted(needed(steps, {"x"})[0])
    ['a', 'ok']
    """
    wanted = wanted | {TIME}
    pruned: list[ColumnStep] = []
    for step in reversed(steps):
        pruned.append(step.only(wanted))
        wanted = step.needs(wanted)
    return wanted, tuple(reversed(pruned))


@dataclass
class ComputingReader:
    """Reads columns as columns, after transforms of them."""

    steps: tuple[ColumnStep, ...]
    reader: ColumnReader

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ColumnBundle]:
        return self.reader.bundles(batch for batch in map(self._run, batches) if batch.num_rows)

    def _run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for step in self.steps:
            batch = step.run(batch)
        return batch
