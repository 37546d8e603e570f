"""CSV files as Spark reads and writes them: its options for a format, and what must not be written.

Without multi_line, files are read as lines, each then parsed by an expression, so that a bad record is known as it
stands in the file. Spark's reader of CSV gives these lines, since it alone can leave out the header of each file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from headrace.engine.catalyst import parsing
from headrace.engine.catalyst.parsing import ParsedRecords
from headrace.engine.worker.blame import MARK
from headrace.model.csvformat import CsvFormat
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.sinks import WriteCsv

# Characters that Unicode reserves for a program's own use: no text has them.
_NO_QUOTE: Final = "\ufdd0"
_NO_SEPARATOR: Final = "\ufdd1"
_NO_TEXT: Final = "\ufdd2"
_NUL: Final = "\x00"
_UNPAIRED: Final = (
    "its quotes are not in pairs: a record of several lines needs multi_line=True, and where quotes mean nothing, "
    "quote=None"
)
_TEXT: Final = (StringType, BinaryType)
_UNWRITABLE: Final = (ArrayType, MapType, StructType, VariantType)
_FOREIGN: Final = {"US-ASCII": r"[^\x00-\x7f]", "ISO-8859-1": r"[^\x00-\xff]"}  # which Java would replace by "?"
_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"  # Spark's own form has milliseconds only


def read_options(format: CsvFormat) -> dict[str, Any]:
    """Returns the options with which Spark reads files: as records with multi_line, else as lines in one column."""
    shared = {"header": format.header, "encoding": format.java_encoding, "multiLine": format.multi_line}
    if format.multi_line:
        return {**shared, **parse_options(format)}
    return {**shared, "sep": _NO_SEPARATOR, "quote": _NO_QUOTE, "escape": _NO_QUOTE, "nullValue": _NO_TEXT}


def parse_options(format: CsvFormat) -> dict[str, str]:
    """Returns the options with which Spark parses a record to texts; a field of nothing is null, `""` is not."""
    return {**_characters(format), "nullValue": _NO_TEXT, "columnNameOfCorruptRecord": parsing.CORRUPT}


def infer_options(format: CsvFormat) -> dict[str, Any]:
    """Returns the options with which Spark finds the names and types of columns."""
    shared = {"header": format.header, "encoding": format.java_encoding, "multiLine": format.multi_line}
    return {**shared, **_characters(format), "nullValue": format.null, "inferSchema": True}


def write_options(format: CsvFormat) -> dict[str, Any]:
    """Returns the options with which Spark writes files."""
    assert format.quote is not None
    return {
        **_characters(format),
        "header": format.header,
        "encoding": format.java_encoding,
        "nullValue": format.null,
        "emptyValue": 2 * format.quote,
        "ignoreLeadingWhiteSpace": False,
        "ignoreTrailingWhiteSpace": False,
        "timestampFormat": f"{_TIME}XXX",
        "timestampNTZFormat": _TIME,
    }


def _characters(format: CsvFormat) -> dict[str, str]:
    quote, escape = format.quote or _NO_QUOTE, format.escape or _NO_QUOTE
    return {"sep": format.separator, "quote": quote, "escape": escape}


def csv_records(
    data: DataFrame, columns: StructType, named: Sequence[str], format: CsvFormat, position: Column
) -> ParsedRecords:
    """Parses the records of files. They have the columns `named`; the others are in the names of directories."""
    strings = [*named, parsing.CORRUPT]
    if format.multi_line:
        rows = data.withColumn(parsing.PARSED, F.struct(*map(parsing.quoted, strings))).drop(*strings)
    else:
        schema = ", ".join(f"{parsing.quoted(name)} string" for name in strings)
        lines = data.withColumnRenamed(data.columns[0], parsing.TEXT)
        rows = lines.withColumn(parsing.PARSED, F.from_csv(F.col(parsing.TEXT), schema, parse_options(format)))
    parsed, corrupt = F.col(parsing.PARSED), F.col(parsing.PARSED)[parsing.CORRUPT]
    kinds = {name: columns[name].dataType for name in named}
    texts = {name: _text(format, parsed[name], kind) for name, kind in kinds.items()}
    typed = {name: _typed(text, kinds[name]) for name, text in texts.items()}
    wrong = [
        texts[name].isNotNull() & F.col(parsing.quoted(name)).isNull()  # the column, so that it is not cast again
        for name, kind in kinds.items()
        if not isinstance(kind, _TEXT)
    ]
    few = F.lit(f"it is not a record of {len(named)} fields")
    if format.multi_line:
        text = F.coalesce(F.rtrim(corrupt), F.to_csv(parsed.dropFields(parsing.CORRUPT), _characters(format)))
        malformed, flaw, scaffold = corrupt.isNotNull(), few, [parsing.PARSED]
    else:
        text, unpaired = F.col(parsing.TEXT), _unpaired(format, F.col(parsing.TEXT))
        has_nul = text.contains(_NUL)  # which Spark's parser may lose
        malformed = corrupt.isNotNull() | unpaired | has_nul
        flaw = F.when(unpaired, _UNPAIRED).when(has_nul, "it has the character NUL").otherwise(few)
        scaffold = [parsing.PARSED, parsing.TEXT]
    fields = parsing.as_map(F.struct(*[texts[name].alias(name) for name in named]))
    cells = [typed.get(name, F.col(parsing.quoted(name))).alias(name) for name in columns.names]
    rest = [F.col(parsing.quoted(name)) for name in rows.columns if name not in columns.names]
    return ParsedRecords(
        rows.select(*cells, *rest),
        columns,
        text,
        position,
        malformed=malformed,
        mistyped=reduce(or_, wrong, F.lit(False)),
        fields=fields,
        flaw=flaw,
        scaffold=scaffold,
    )


def _unpaired(format: CsvFormat, line: Column) -> Column:
    """Returns whether the quotes of a line are not in pairs, so that a text in quotes has no end there."""
    if format.quote is None:
        return F.lit(False)
    if format.escape != format.quote:
        line = F.regexp_replace(line, rf"\Q{format.escape}\E.", "")
    without, size = F.replace(line, F.lit(format.quote), F.lit("")), len(format.quote.encode())
    return (F.octet_length(line) - F.octet_length(without)) % (2 * size) == size


def _text(format: CsvFormat, text: Column, kind: DataType) -> Column:
    """Returns the text of a field; null where it says null and, in columns that are not text, where it is empty."""
    if not isinstance(kind, _TEXT):
        return F.when((text != "") & (text != format.null), text)
    return text if not format.null else F.when(~text.eqNullSafe(format.null), F.coalesce(text, F.lit("")))


def _typed(text: Column, kind: DataType) -> Column:
    """Returns a field as its column's type; null where it does not have that type."""
    if isinstance(kind, TimestampType):
        return parsing.text_time(text)
    return text.cast(kind) if isinstance(kind, _TEXT) else text.try_cast(kind)


def check_columns(node: Node, columns: StructType) -> None:
    """Refuses columns that CSV has no form for."""
    for field in columns:
        if isinstance(field.dataType, _UNWRITABLE):
            raise PipelineError(
                f"{node}: the column {field.name!r} is {field.dataType.simpleString()}, which CSV has no form for; "
                "make it a string, which a Select can convert by to_json and from_json"
            )


def written(node: Node, data: DataFrame) -> DataFrame:
    """Returns the frame to write; it fails at a row that could not be read back."""
    sink = node.transform
    assert isinstance(sink, WriteCsv)
    check_columns(node, data.schema)
    if binary := [field.name for field in data.schema if isinstance(field.dataType, BinaryType)]:
        raise PipelineError(f"{node}: the column {binary[0]!r} is bytes; make it text with a Select, e.g. by base64")
    for name in data.columns:
        try:
            name.encode(sink.csv.encoding)
        except UnicodeEncodeError as error:
            raise PipelineError(f"{node}: the name of the column {name!r}: {error}; pass encoding='utf-8'") from None
    alone = len(data.columns) == 1
    checked = {field.name: _checked(node, sink.csv, field, alone) for field in data.schema}
    return data.withColumns({name: column for name, column in checked.items() if column is not None})


def _checked(node: Node, format: CsvFormat, field: StructField, alone: bool) -> Column | None:
    """Returns a column that fails where it would be read back as something else; None if that cannot be."""
    column, is_text = F.col(parsing.quoted(field.name)), isinstance(field.dataType, StringType)
    skipped = f"would be a blank line, which readers skip, as {field.name!r} is the only column; write another one, too"
    wrong = []
    if is_text:
        wrong.append(
            (column.contains(_NUL), f"a text in {field.name!r} has the character NUL, which most readers lose")
        )
    if is_text and format.null:
        wrong.append(
            (column == format.null, f"{format.null!r} in {field.name!r} would be null; choose another null=...")
        )
    if is_text and (others := _FOREIGN.get(format.java_encoding or "")) is not None:
        why = f"a text in {field.name!r} has characters that {format.encoding} has not; pass encoding='utf-8'"
        wrong.append((column.rlike(others), why))
    if alone and not format.null:
        wrong.append((column.isNull(), f"a null {skipped}, or pass null='NA'"))
    if alone and is_text:
        wrong.append((column.rlike(r"\A[\x00-\x20]+\z"), f"white space {skipped}"))
    if not wrong:
        return None
    checked = column
    for condition, why in wrong:
        report = json.dumps({"label": node.label, "error": why, "trace": []}, ensure_ascii=False)
        checked = F.when(condition, F.raise_error(F.lit(MARK + report)).cast(field.dataType)).otherwise(checked)
    return checked
