"""Describes tables of data lakes as writers and readers see them, whatever their format.

A table is opened in the driver, which commits; its files are written and read in workers. Files travel between them as
bytes that only the format understands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
from pyarrow import types

from headrace.model.errors import HeadraceError

_SECRETS: Final = ("secret", "password", "token", "key", "credential", "uri")
"""Parts of the names of options whose values are not shown."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST: Final = 300  # characters of a library's message
_FAMILIES: Final = (types.is_signed_integer, types.is_floating)
"""Kinds of types of which a wider one takes the values of a narrower one unchanged."""


class LakeError(HeadraceError, RuntimeError):
    """A table of a data lake refused what a sink or source wanted."""


class LakeConflict(LakeError):
    """Another writer committed first, so that nothing was committed."""


class LakeFiles(Protocol):
    """Writes and reads data files of one table, in a worker."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        """Writes rows with the columns of the table to new files, and yields each file once it is complete."""
        ...

    def read(self, file: bytes, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields these columns of a file of the table, its rows always in the same order."""
        ...


class LakeTable(Protocol):
    """A table of a data lake, as it was when it was opened, or last refreshed, or committed to."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the table."""
        ...

    def refresh(self) -> None:
        """Looks at what others have committed."""
        ...

    def check_writable(self, *, merges: bool) -> None:
        """Refuses a table that needs more of its writers than files of rows; `merges`: rows are replaced, too."""
        ...

    def written(self, writer: str) -> int:
        """Returns the number of the last batch that this writer committed; -1 if there is none."""
        ...

    def data_files(self) -> list[bytes]:
        """Returns the files of the table."""
        ...

    def files(self) -> LakeFiles:
        """Returns what writes and reads its files, in workers."""
        ...

    def commit(self, writer: str | None, batch: int, added: Sequence[bytes], removed: Sequence[bytes]) -> None:
        """Adds and removes files; raises LakeConflict if others were first.

        The commit says that it is this batch of this writer, unless nobody will ever ask.
        """
        ...


def check_columns(table: pa.Schema, elements: pa.Schema, *, merges: bool) -> None:
    """Refuses columns of elements that a table cannot take, or columns of the table that they leave without a value.

    >>> check_columns(pa.schema({"n": pa.int64()}), pa.schema({"n": pa.int32()}), merges=False)
    >>> try:
    ...     check_columns(pa.schema({"n": pa.int32()}), pa.schema({"n": pa.int64()}), merges=False)
    ... except LakeError as error:
    ...     print(error)
    the column 'n' of the table is int32, but elements have int64; convert it with Select
    """
    for field in elements:
        if field.name not in table.names:
            raise LakeError(
                f"the table has no column {field.name!r}, which elements have; its columns are "
                f"{', '.join(table.names)}: add it to the table, or leave it out with Select"
            )
        if not _takes(table.field(field.name).type, field.type):
            raise LakeError(
                f"the column {field.name!r} of the table is {table.field(field.name).type}, but elements have "
                f"{field.type}; convert it with Select"
            )
    for field in table:
        if field.name in elements.names:
            continue
        if not field.nullable:
            raise LakeError(
                f"the column {field.name!r} of the table needs a value, but elements have none; their columns are "
                f"{', '.join(elements.names)}"
            )
        if merges:
            raise LakeError(
                f"the table has a column {field.name!r}, which elements have not, and a row is replaced as a whole; "
                "add the column with Select, or write mode='append'"
            )


def _takes(column: pa.DataType, values: pa.DataType) -> bool:
    """Tells whether a column takes the values of a type unchanged."""
    column, values = plain_type(column), plain_type(values)
    if column == values or types.is_null(values):
        return True
    if types.is_list(column) and types.is_list(values):
        return _takes(column.value_type, values.value_type)
    if types.is_decimal(column) and types.is_decimal(values):
        whole = column.precision - column.scale >= values.precision - values.scale
        return bool(column.scale >= values.scale and whole)
    return any(each(column) and each(values) and column.bit_width >= values.bit_width for each in _FAMILIES)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns a type without what makes no difference to its values: how long offsets are, and names of items.

    >>> plain_type(pa.large_list(pa.large_string()))
    ListType(list<item: string>)
    """
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def plain_schema(columns: pa.Schema) -> pa.Schema:
    """Returns columns with plain types, and without notes."""
    return pa.schema([pa.field(field.name, plain_type(field.type), field.nullable) for field in columns])


def conformed(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Returns a batch with these columns: those that it has not are null.

    >>> conformed(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.schema({"a": pa.string(), "n": pa.int64()}))
    pyarrow.RecordBatch
    a: string
    n: int64
    ----
    a: [null]
    n: [1]
    """
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.record_batch(arrays, schema=columns)


def error_text(error: Exception, options: Mapping[str, str]) -> str:
    """Returns the message of a library's error in one line, without the secrets among these options.

    >>> error_text(ValueError("no such user: hunter2"), {"s3.secret-access-key": "hunter2"})
    'no such user: ***'
    """
    text = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
    for name, value in options.items():
        if value and any(part in name.lower() for part in _SECRETS):
            text = text.replace(value, "***")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
