"""Writes elements as Parquet files where the functions run, so that no row of them goes through the JVM.

A task writes one file, to a directory in which nobody looks for output. What it sends on is the name and size of the
file; the driver gives files that were named a place, and removes all others: those of tasks that failed or came second.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.edges.outputs import WrittenFile
from headrace.edges.parquetparts import ParquetPart
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle, ToColumns
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.hidden import TIME

_PART: Final = pa.schema([("name", pa.string()), ("bytes", pa.int64()), ("crc32", pa.int64()), ("rows", pa.int64())])


@dataclass
class ToParquet:
    """Writes columns to one file a task, in the directory `staging`; gives a row that describes it."""

    columns: ToColumns
    staging: str
    notes: Mapping[str, str]
    int96: bool
    _part: ParquetPart | None = field(default=None, init=False)

    def schema(self) -> pa.Schema:
        return _PART

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        self._write(self.columns.add(bundle))
        return iter(())

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Writes columns as they are."""
        self._write(self.columns.add_columns(bundle))
        return iter(())

    def finish(self) -> Iterator[pa.RecordBatch]:
        self._write(self.columns.finish())
        if self._part is not None:
            with blame(self.columns.label):
                written = self._part.close()
            row = [*astuple(written), self._part.rows]
            yield pa.record_batch([pa.array([value], kind.type) for value, kind in zip(row, _PART, strict=True)], _PART)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = batch.drop_columns([TIME])
            with blame(self.columns.label):
                if self._part is None:
                    self._part = self._begun(rows.schema)
                self._part.write(rows)

    def _begun(self, schema: pa.Schema) -> ParquetPart:
        folder = Path(self.staging)
        folder.mkdir(parents=True, exist_ok=True)
        return ParquetPart(folder / uuid.uuid4().hex, schema, self.notes, int96=self.int96)


def parts_of(batch: pa.RecordBatch) -> list[tuple[WrittenFile, int]]:
    """Returns the files that rows of an output describe, each with its number of rows.

    >>> parts_of(pa.record_batch([["a"], [10], [123], [2]], _PART))
    [(WrittenFile(name='a', bytes=10, crc32=123), 2)]
    """
    return [(WrittenFile(row["name"], row["bytes"], row["crc32"]), row["rows"]) for row in batch.to_pylist()]
