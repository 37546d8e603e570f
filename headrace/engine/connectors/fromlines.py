"""Reads the records of JSON lines as columns, straight from the files. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.edges.jsonlines import TEXT, read_lines
from headrace.edges.parquetfiles import UnsureRead
from headrace.engine.connectors.fromfiles import LENGTH, PATH, SHARE, SHARES
from headrace.engine.connectors.fromrecords import checked_times
from headrace.engine.worker.hidden import PART, TIME

_COMPRESSED = (".gz", ".gzip", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


def is_compressed(path: str) -> bool:
    """Tells whether Spark decompresses a file, which it decides by the name."""
    return path.endswith(_COMPRESSED)


def read_range(row: dict[str, object], columns: pa.Schema, event_time: str | None) -> Iterator[pa.RecordBatch]:
    """Yields the lines of a share of a file as `read_lines` does; refuses a file that is compressed."""
    path = str(row[PATH]).removeprefix("file:")
    if is_compressed(path):
        raise UnsureRead(f"{path} is compressed")
    spans = {"share": row[SHARE], "shares": row[SHARES], "length": row[LENGTH]}
    return read_lines(path, columns, event_time, **spans)  # type: ignore[arg-type]


@dataclass(frozen=True)
class LineRecords:
    """Reads columns of JSON lines, and TIME: from the column `event_time`, if there is one. Refuses what may be bad.

    - columns: those that lines have; wanted: the names of those to give
    """

    columns: pa.Schema
    wanted: tuple[str, ...]
    event_time: str | None = None

    def read_ranges(self, ranges: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yields the records of these shares of files in batches, each with its partition, if there are several."""
        for row in ranges.to_pylist():
            for batch in read_range(row, self.columns, self.event_time):
                unread = batch.column(TEXT)
                if unread.null_count < len(unread):
                    raise UnsureRead(f"{row[PATH]} has a line that is left to Spark: {unread.drop_null()[0].as_py()!r}")
                yield row.get(PART), self._timed(batch)

    def _timed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        nothing = pa.nulls(batch.num_rows, pa.int64())
        times = nothing if self.event_time is None else checked_times(batch.column(self.event_time))
        return batch.select(list(self.wanted)).append_column(TIME, times)
