"""COPY: the rows of a file, or of the standard input, are appended to a stream."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from headrace.dialects.sql.copyreader import FORMS, read_rows
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import Copy
from headrace.log.producers import Producer
from headrace.log.topics import Topic

_SUFFIXES: Final = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet"}


def copy_format(statement: Copy) -> tuple[str, bool]:
    """Returns the format of the file that COPY reads, and whether its first row has names."""
    suffix = Path(statement.file or "").suffix.removeprefix(".").lower()
    form = str(statement.options.get("format", _SUFFIXES.get(suffix, "csv"))).lower()
    if form not in FORMS:
        raise SqlError(f"COPY reads {', '.join(FORMS)}, got FORMAT {form}")
    header = statement.options.get("header", False)
    if not isinstance(header, bool) or (form != "csv" and (header or statement.columns)):
        raise SqlError("HEADER is true or false, and as columns only for CSV: rows of JSON and Parquet have names")
    if form == "parquet" and statement.file is None:
        raise SqlError("the standard input is no Parquet, which is read from its end; write COPY ... FROM 'file'")
    return form, header


def open_file(file: str) -> BinaryIO:
    """Opens a file for reading."""
    try:
        return open(file, "rb")
    except OSError as error:
        raise SqlError(f"cannot read {file!r}: {error.strerror}") from None


def copy_rows(statement: Copy, topic: Topic, stdin: BinaryIO | None) -> int:
    """Appends the rows of a file to a topic; without a file, those of the standard input. Returns their number."""
    form, header = copy_format(statement)
    if statement.file is None and stdin is None:
        raise SqlError("there is no standard input here; write COPY ... FROM 'file'")
    rows, columns = 0, topic.values.type()
    with ExitStack() as opened:
        file = stdin if statement.file is None else opened.enter_context(open_file(statement.file))
        assert file is not None
        producer = Producer(topic)
        try:
            for batch in read_rows(file, form, columns, statement.columns, header=header):
                producer.send_rows(batch)
                rows += len(batch)
        except SqlError as error:
            raise SqlError(f"{error}; {f'the first {rows} rows were' if rows else 'no row was'} appended") from None
    return rows
