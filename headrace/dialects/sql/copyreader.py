"""Reads the rows of files for COPY: CSV, JSON lines and Parquet, as columns of a stream's types."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyarrow import types

from headrace.dialects.sql.sqlerrors import SqlError
from headrace.model.knowncolumns import no_column
from headrace.model.times import instant

_ROWS: Final = 20_000  # of a batch
_IN_JSON: Final = (types.is_boolean, types.is_integer, types.is_floating, types.is_string)
"""Types that JSON has; others are text there."""
_NOT_OF_THE_TYPE: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, TypeError)
"""What is raised for a value that a column cannot have."""


def read_rows(
    file: BinaryIO, form: str, columns: pa.StructType, names: Sequence[str] | None = None, *, header: bool = False
) -> Iterator[pa.StructArray]:
    """Yields the rows of a file in batches. `form` is csv, json (lines) or parquet.

    `names` are the columns that rows of CSV have, in their order, if it is not that of the stream; with `header` the
    first row says it. Columns that the file has not are null. A bad row is refused by its number.

    >>> trades = pa.struct([("symbol", pa.string()), ("price", pa.float64())])
    >>> [batch.to_pylist() for batch in read_rows(io.BytesIO(b"IBM,142.5"), "csv", trades)]
    [[{'symbol': 'IBM', 'price': 142.5}]]
    >>> list(read_rows(io.BytesIO(b"IBM,142.5\\nSAP,dear"), "csv", trades))
    Traceback (most recent call last):
        ...
    headrace.dialects.sql.sqlerrors.SqlError: row 2: the column 'price' is double, got 'dear'
    """
    batches = _csv(file, columns, names, header=header) if form == "csv" else _FORMS[form](file, columns)
    for batch in batches:
        yield pa.StructArray.from_arrays([batch[field.name] for field in columns], fields=list(columns))


Batch = Mapping[str, pa.Array]


def _csv(file: BinaryIO, columns: pa.StructType, names: Sequence[str] | None, *, header: bool) -> Iterator[Batch]:
    bad: list[csv.InvalidRow] = []

    def refuse(row: csv.InvalidRow) -> str:
        bad.append(row)
        return "error"

    try:
        reader = csv.open_csv(
            file,
            csv.ReadOptions(use_threads=False, column_names=None if header else names or _names(columns)),
            csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
            # As text, so that a value of another type is known by its row.
            csv.ConvertOptions(
                column_types=dict.fromkeys(_names(columns), pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
        _check_names(reader.schema.names, columns)
        yield from _numbered(reader, columns)
    except pa.ArrowInvalid as error:
        if str(error) == "Empty CSV file":
            return
        if not bad:
            raise SqlError(f"this is no CSV: {error}") from None
        row = bad[0]
        number = "a row" if row.number is None else f"row {row.number - header}"
        raise SqlError(
            f"{number} has {row.actual_columns} values, and not {row.expected_columns}: {row.text}"
        ) from None


def _json(file: BinaryIO, columns: pa.StructType) -> Iterator[Batch]:
    parsed = [(field.name, field.type if _is_in_json(field.type) else pa.string()) for field in columns]
    options = pj.ParseOptions(explicit_schema=pa.schema(parsed), unexpected_field_behavior="error")

    def parse(lines: Sequence[bytes]) -> pa.Table:
        data = b"\n".join(lines)
        return pj.read_json(io.BytesIO(data), pj.ReadOptions(use_threads=False, block_size=len(data) + 1), options)

    numbered = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    while some := list(islice(numbered, _ROWS)):
        numbers, lines = zip(*some, strict=True)
        try:
            table = parse(lines).combine_chunks()
        except pa.ArrowInvalid:
            at = next((at for at, line in enumerate(lines) if _refusal(parse, [line])), 0)
            shown = lines[at].decode("utf-8", "replace").strip()
            reason = (_refusal(parse, [lines[at]]) or "it is not one object").removesuffix(" in row 0")
            expected = ", ".join(f"{field.name} {field.type}" for field in columns)
            raise SqlError(f"line {numbers[at]}: {reason}; expected {expected}; got {shown!r:.80}") from None
        arrays = {name: table.column(name).combine_chunks() for name in table.schema.names}
        yield _converted(arrays, columns, numbers, "line")


def _refusal(parse: Callable[[Sequence[bytes]], pa.Table], lines: Sequence[bytes]) -> str | None:
    """Returns why lines are refused; None if they are not."""
    try:
        parse(lines)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _parquet(file: BinaryIO, columns: pa.StructType) -> Iterator[Batch]:
    try:
        parquet = pq.ParquetFile(file)
        _check_names(parquet.schema_arrow.names, columns)
        yield from _numbered(parquet.iter_batches(batch_size=_ROWS), columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise SqlError(f"this is no Parquet: {error}") from None


_FORMS: Final[dict[str, Callable[[BinaryIO, pa.StructType], Iterator[Batch]]]] = {"json": _json, "parquet": _parquet}
FORMS: Final = ("csv", *_FORMS)
"""The formats of files that can be read."""


def _numbered(batches: Iterable[pa.RecordBatch], columns: pa.StructType) -> Iterator[Batch]:
    """Converts batches of a file whose rows are numbered from 1 on."""
    rows = 0
    for batch in batches:
        named = dict(zip(batch.schema.names, batch.columns, strict=True))
        yield _converted(named, columns, range(rows + 1, rows + 1 + batch.num_rows))
        rows += batch.num_rows


def _converted(batch: Batch, columns: pa.StructType, numbers: Sequence[int], unit: str = "row") -> Batch:
    """Converts columns to their types; a value that is not of its column's is refused by the number of its row."""
    converted = {}
    rows = len(next(iter(batch.values())))
    for field in columns:
        column = batch.get(field.name)
        if column is None:
            converted[field.name] = pa.nulls(rows, field.type)
            continue
        try:
            converted[field.name] = _cast(column, field.type)
        except _NOT_OF_THE_TYPE:
            at = next(at for at in range(rows) if not _fits(column.slice(at, 1), field.type))
            value, kind = column[at].as_py(), "timestamp" if types.is_timestamp(field.type) else field.type
            raise SqlError(f"{unit} {numbers[at]}: the column {field.name!r} is {kind}, got {value!r:.60}") from None
    return converted


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not (types.is_timestamp(kind) and types.is_string(column.type)):
        return column.cast(kind)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # a time without a zone is UTC, as everywhere
        return pa.array([None if each is None else instant(each) for each in column.to_pylist()], kind)


def _fits(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        _cast(column, kind)
    except _NOT_OF_THE_TYPE:
        return False
    return True


def _is_in_json(kind: pa.DataType) -> bool:
    return any(each(kind) for each in _IN_JSON)


def _names(columns: pa.StructType) -> list[str]:
    return [field.name for field in columns]


def _check_names(names: Sequence[str], columns: pa.StructType) -> None:
    for name in names:
        if name not in _names(columns):
            raise SqlError(no_column(name, _names(columns)))
