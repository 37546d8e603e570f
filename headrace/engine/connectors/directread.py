"""Sources whose records a stream's own program reads: Spark hands it ranges of them, and never sees a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame


class RangeReader(Protocol):
    """Reads the records of ranges, in a worker."""

    def read_ranges(self, ranges: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yields the records with TIME and, if they can be bad, BAD; each batch with its partition, if it has one."""
        ...


@dataclass(frozen=True)
class DirectRead:
    """The direct way to read a source.

    - columns: all columns of its elements
    - ranges: makes the frame of ranges, which Spark deals to tasks
    - records: reads a range; checks: whether it finds bad records
    """

    columns: pa.Schema
    ranges: Callable[[], DataFrame]
    records: RangeReader
    checks: bool


ColumnsRead = Callable[[pa.Schema], Sequence[set[str] | None] | None]
"""Tells which columns are read of a source with this schema, by reader; None if Catalyst is to compute others of them.

A reader without a set of columns reads whole elements.
"""


def pruned(schema: pa.Schema, read: Sequence[set[str] | None]) -> pa.Schema:
    """Returns the columns that readers read; all, if one of them reads whole elements.

    >>> pruned(pa.schema([("a", pa.int64()), ("b", pa.int64())]), [{"b"}]).names
    ['b']
    """
    named = [names for names in read if names is not None]
    if len(named) < len(read):
        return schema
    wanted = set().union(*named)
    return pa.schema([field for field in schema if field.name in wanted])
