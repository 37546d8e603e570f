"""Reads Parquet files as columns of stated types, and only where the answer is the one that Spark's reader gives.

Columns are found by name in any case, those that a file has not are null, and narrow numbers become wide ones. All that
Spark's reader might read in another way, or would refuse, is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.errors import HeadraceError

BATCH_ROWS: Final = 100_000
"""Rows of a batch that is read: enough for arrays, few enough to stay in memory many at a time."""

_WIDER: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int16(): (pa.int8(),),
    pa.int32(): (pa.int8(), pa.int16()),
    pa.int64(): (pa.int8(), pa.int16(), pa.int32()),
    pa.float64(): (pa.float32(),),
    pa.string(): (pa.large_string(),),
    pa.binary(): (pa.large_binary(),),
}
"""Types of columns, and the other types in files that become them without a change of any value."""

_PLAIN: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    types.is_boolean,
    types.is_signed_integer,
    types.is_float32,
    types.is_float64,
    types.is_string,
    types.is_binary,
    types.is_date32,
    types.is_decimal128,
)
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION: Final = b"org.apache.spark.version"


class UnsureRead(HeadraceError):
    """A file that Spark's reader might read in another way, or would refuse, is refused."""


def is_plain(kind: pa.DataType) -> bool:
    """Tells whether columns of this type can be read.

    >>> is_plain(pa.timestamp("us", "UTC")), is_plain(pa.list_(pa.int64()))
    (True, False)
    """
    return kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")) or any(each(kind) for each in _PLAIN)


def read_columns(path: str, columns: pa.Schema, share: int = 0, shares: int = 1) -> Iterator[pa.RecordBatch]:
    """Yields these columns of a file in batches; of several shares, the row groups of one.

    >>> import tempfile
    >>> pq.write_table(pa.table({"N": pa.array([1, 2], pa.int32())}), path := tempfile.mktemp())
    >>> [batch.to_pylist() for batch in read_columns(path, pa.schema([("n", pa.int64()), ("user", pa.string())]))]
    [[{'n': 1, 'user': None}, {'n': 2, 'user': None}]]
    """
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us", page_checksum_verification=True) as file:
            found = [_find(file, field) for field in columns]
            _refuse_old_calendar(file, columns)
            groups = _groups_of(file, share, shares)
            names = [name for name in found if name is not None]
            int96 = [name for name in names if _is_int96(file, name)]
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
                _refuse_absurd_times(batch, int96)
                yield _conformed(batch, found, columns)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UnsureRead(f"{path}: {error}") from error


def _find(file: pq.ParquetFile, field: pa.Field) -> str | None:
    """Returns the name that a column has in a file; None if there is no such column."""
    matches = [each for each in file.schema_arrow if each.name.casefold() == field.name.casefold()]
    if not matches:
        return None
    if len(matches) > 1:
        raise UnsureRead(f"the file has several columns {field.name!r}")
    (match,) = matches
    if not _becomes(file, match, field.type):
        raise UnsureRead(f"the column {match.name!r} of the file is {match.type}, not {field.type}")
    return str(match.name)


def _becomes(file: pq.ParquetFile, found: pa.Field, wanted: pa.DataType) -> bool:
    kind = found.type.value_type if types.is_dictionary(found.type) else found.type
    if not types.is_timestamp(wanted):
        return bool(kind == wanted or kind in _WIDER.get(wanted, ()))
    if not types.is_timestamp(kind) or kind.unit not in ("ms", "us"):
        return False
    if _is_int96(file, found.name):
        return wanted.tz is not None
    return (kind.tz is None) == (wanted.tz is None)


def _is_int96(file: pq.ParquetFile, name: str) -> bool:
    columns = (file.schema.column(number) for number in range(len(file.schema.names)))
    return any(each.path == name and each.physical_type == "INT96" for each in columns)


def _refuse_old_calendar(file: pq.ParquetFile, columns: pa.Schema) -> None:
    """Refuses times that an old Spark wrote, or a new one as the old ones did: in another calendar before 1582."""
    notes = file.metadata.metadata or {}
    old = any(note in notes for note in _LEGACY) or notes.get(_VERSION, b"3")[:2] in (b"1.", b"2.")
    if old and any(types.is_temporal(field.type) for field in columns):
        raise UnsureRead("the file has times of an old calendar")


def _refuse_absurd_times(batch: pa.RecordBatch, int96: list[str]) -> None:
    """Refuses times in columns of INT96 that are so far away that Arrow reads others than Spark."""
    for name in int96:
        times = pc.min_max(batch.column(name).cast(pa.timestamp("us")).view(pa.int64())).as_py()
        if times["min"] is not None and not YEAR_1 <= times["min"] <= times["max"] < YEAR_10000:
            raise UnsureRead(f"the column {name!r} of the file, of INT96, has times outside the years 1 to 9999")


def _groups_of(file: pq.ParquetFile, share: int, shares: int) -> list[int]:
    """Returns the row groups of a share: those whose middle, in bytes, is in that part of the file."""
    sizes = np.array([file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups)])
    middles = np.cumsum(sizes) - sizes / 2
    of_share = np.minimum(middles * shares / max(sizes.sum(), 1), shares - 1).astype(np.int64)
    return [int(number) for number in np.flatnonzero(of_share == share)]


def _conformed(batch: pa.RecordBatch, found: list[str | None], columns: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.nulls(batch.num_rows, field.type) if name is None else _cast(batch.column(name), field.type)
        for name, field in zip(found, columns, strict=True)
    ]
    return pa.record_batch(arrays, schema=columns) if arrays else batch  # which then only has a number of rows


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_timestamp(kind) and column.type.tz != kind.tz:  # the instants stay, whatever the zone is called
        column = column.cast(pa.timestamp(column.type.unit)) if column.type.tz is None else column
        return column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64()).view(kind)
    return column if column.type == kind else column.cast(kind)
