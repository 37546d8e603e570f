"""Reads the records of files as columns, straight from the files. No Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.edges.parquetfiles import read_columns
from headrace.engine.connectors.fromrecords import checked_times
from headrace.engine.worker.hidden import BAD, BAD_TYPE, PART, TIME
from headrace.model.badrecords import ABSURD_TIME, NO_TIME, YEAR_1
from headrace.model.times import DAY

PATH: Final = "path"
LENGTH: Final = "length"
SHARE: Final = "share"
SHARES: Final = "shares"
"""The columns of a range: a file, its length, and which of how many shares of it."""
_ERA: Final = 146_097 * DAY
"""400 years, after which the calendar repeats itself."""


@dataclass(frozen=True)
class FileRecords:
    """Reads columns of Parquet files, and TIME: from the column `event_time`, if there is one. With it, also BAD."""

    columns: pa.Schema
    event_time: pa.Field | None = None

    def read_ranges(self, ranges: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yields the records of these shares of files in batches, each with its partition, if there are several."""
        wanted = self.columns
        if self.event_time is not None and self.event_time.name not in wanted.names:
            wanted = wanted.append(self.event_time)
        for row in ranges.to_pylist():
            path = row[PATH].removeprefix("file:")
            for batch in read_columns(path, wanted, row[SHARE], row[SHARES]):
                yield row.get(PART), self._timed(path, batch)

    def _timed(self, path: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.select(self.columns.names)
        if self.event_time is None:
            return rows.append_column(TIME, pa.nulls(batch.num_rows, pa.int64()))
        values = batch.column(self.event_time.name)
        times = checked_times(values)
        return rows.append_column(TIME, times).append_column(BAD, self._bad(path, values, times))

    def _bad(self, path: str, values: pa.Array, times: pa.Array) -> pa.Array:
        """Returns the column BAD, which describes the records without an event time."""
        if not times.null_count:
            return pa.nulls(len(times), BAD_TYPE)
        assert self.event_time is not None
        name = self.event_time.name
        wrong: list[dict[str, str] | None] = [None] * len(times)
        for at in np.flatnonzero(np.asarray(times.is_null())).tolist():
            value = values[at]
            shown, field = _as_text(value) if value.is_valid else ("missing", None)
            absurd = f"{shown}, which is not in the years 1 to 9999"
            wrong[at] = {
                "reason": ABSURD_TIME if value.is_valid else NO_TIME,
                "message": f"the event time {name!r} is {absurd if value.is_valid else shown}",
                "position": escaped(path),
                "record": json.dumps({name: field}, ensure_ascii=False, separators=(",", ":")),
            }
        return pa.array(wrong, BAD_TYPE)


def _as_text(value: pa.Scalar) -> tuple[str, str | int]:
    """Returns seconds or a time, which may be in any year, as Spark casts it to text, and as it writes it as JSON.

    >>> _as_text(pa.scalar(253_402_300_800_000_010, pa.timestamp("us", "UTC")))
    ('+10000-01-01 00:00:00.00001', '+10000-01-01T00:00:00.000Z')
    """
    if not pa.types.is_timestamp(value.type):
        return str(value.as_py()), value.as_py()
    eras, within = divmod(value.value - YEAR_1, _ERA)
    near = datetime(1, 1, 1) + timedelta(microseconds=within)
    year = near.year + 400 * eras
    date = f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04d}-{near:%m-%d}"
    fraction = f".{near:%f}".rstrip("0").rstrip(".")
    zone = "Z" if value.type.tz else ""
    return f"{date} {near:%H:%M:%S}{fraction}", f"{date}T{near:%H:%M:%S}.{near.microsecond // 1000:03d}{zone}"


def escaped(path: str) -> str:
    """Escapes a path as Spark does in its column of files' names.

    >>> escaped("/in/a b%é+.parquet")
    '/in/a%20b%25é+.parquet'
    """
    return re.sub(r"[^\w\-./!~*'(),;:$&+=@]", lambda match: f"%{ord(match[0]):02X}", path)
