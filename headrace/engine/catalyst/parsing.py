"""Parses records to columns in Catalyst, and describes those that are bad, row by row.

The result is a frame of the elements' columns, their event time TIME, and BAD: null, or the reason, a message, the
position and the record as text. A bad record has no event time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType, DataType, StringType, StructField, StructType

from headrace.edges import jsonlines
from headrace.engine.worker.hidden import BAD, TIME
from headrace.model.badrecords import ABSURD_TIME, MALFORMED, NO_TIME, WRONG_TYPE
from headrace.model.schema import schema_of

TEXT: Final = jsonlines.TEXT
"""The column of records that are text."""
CORRUPT: Final = "__corrupt"
"""The column in which Spark stores a record that it could not parse."""
PARSED: Final = "__parsed"
"""The column of parsed records, before they are columns."""
RAW: Final = "__raw"
"""The column of records that Python decodes."""
FLAW: Final = "__flaw"
"""The column in which Python says what is wrong with a record."""
_LONGEST_TEXT: Final = 100  # characters of a field in a message


@dataclass(frozen=True)
class ParsedRecords:
    """A frame of parsed records, with Catalyst expressions for what is wrong with a record.

    - malformed, mistyped: whether the record is not in its format, or has a field that is not of its column's type
    - text: the record; fields: its fields by name, as text; position: where it was read
    - flaw: what is wrong with a malformed record, in words; without `fields`, what is wrong with any
    - scaffold: columns of the frame that only these expressions need
    """

    data: DataFrame
    columns: StructType
    text: Column
    position: Column
    malformed: Column | None = None
    mistyped: Column | None = None
    fields: Column | None = None
    flaw: Column | None = None
    scaffold: Sequence[str] = ()


def json_records(data: DataFrame, columns: StructType, position: Column) -> ParsedRecords:
    """Parses JSON objects in the column TEXT. Columns that the frame already has are not looked up there."""
    written = StructType([field for field in columns if field.name not in data.columns])
    records, value = _json(data, written, position)
    columns_read = [
        (F.col(quoted(field.name)).cast(field.dataType) if field not in written else value[field.name]).alias(
            field.name
        )
        for field in columns
    ]
    rest = [F.col(quoted(name)) for name in records.data.columns if name not in columns.names]
    return replace(records, data=records.data.select(*columns_read, *rest), columns=columns)


def _json(data: DataFrame, written: StructType, position: Column) -> tuple[ParsedRecords, Column]:
    """Adds the column PARSED of records in TEXT; returns also the struct of their columns."""
    # Jackson stops at the end of a value; if anything follows the record, the field "end" is missing.
    whole = StructType(
        [StructField("value", written), StructField("end", BooleanType()), StructField(CORRUPT, StringType())]
    )
    wrapped = F.concat(F.lit('{"value":'), F.col(TEXT), F.lit(',"end":true}'))
    parsed = F.from_json(wrapped, whole, {"columnNameOfCorruptRecord": CORRUPT})
    value, result = F.col(PARSED)["value"], F.col(PARSED)
    # Only of corrupt records: from_json may continue after a field that it cannot read, and lose count of braces.
    corrupt = result[CORRUPT].isNotNull()
    records = ParsedRecords(
        data.withColumn(PARSED, parsed),
        written,
        F.col(TEXT),
        position,
        malformed=result["end"].isNull() | value.isNull() | (corrupt & F.get_json_object(wrapped, "$.end").isNull()),
        mistyped=corrupt,
        fields=F.from_json(F.col(TEXT), "map<string,string>"),
        flaw=F.lit("it is not a JSON object"),
        scaffold=(TEXT, PARSED),
    )
    return records, value


def partly_read(
    data: DataFrame, columns: StructType, position: Column, event_time: str | None, time: Callable[[Column], Column]
) -> DataFrame:
    """Returns the frame, with TIME and BAD, of JSON objects that were read to columns before, but for those in TEXT.

    `time` makes the event time, in microseconds, of its column. A row without TEXT is good, and nothing of it is copied
    or computed but for TIME: all is one projection behind the one that parses.
    """
    records, value = _json(data, columns, position)
    cells = {name: value[name] for name in columns.names}
    read = {name: F.coalesce(F.col(quoted(name)), cell) for name, cell in cells.items()}
    at = F.lit(None).cast("long") if event_time is None else time(read[event_time])
    flawed, bad = _judged(records, event_time, cells, at)
    left = F.col(TEXT).isNotNull()
    rest = [F.col(quoted(name)) for name in data.columns if name not in (TEXT, *columns.names)]
    own = [read[name].alias(name) for name in columns.names]
    return records.data.select(
        *own, *rest, F.when(~left | ~flawed, at).alias(TIME), F.when(left & flawed, bad).alias(BAD)
    )


def typed_records(data: DataFrame, columns: StructType, shown: Sequence[str], position: Column) -> ParsedRecords:
    """Returns rows of columns, in which only the event time can be bad; a bad record's text has the columns `shown`."""
    text = F.to_json(F.struct(*[F.col(quoted(name)) for name in shown]), {"ignoreNullFields": "false"})
    return ParsedRecords(data, columns, text, position)


def decoded_records(data: DataFrame, columns: StructType, position: Column) -> ParsedRecords:
    """Returns rows that Python has decoded, with RAW, the record, and FLAW, its reason and message if it is bad."""
    flaw = F.col(FLAW)
    return ParsedRecords(
        data,
        columns,
        F.hex(RAW),
        position,
        malformed=flaw["reason"].eqNullSafe(MALFORMED),
        mistyped=flaw["reason"].eqNullSafe(WRONG_TYPE),
        flaw=flaw["message"],
        scaffold=(RAW, FLAW),
    )


def checked(records: ParsedRecords, event_time: str | None, time: Column) -> DataFrame:
    """Returns the frame of these records with TIME and BAD. `time` is the event time in microseconds."""
    data = records.data.withColumn(TIME, time)
    cells = {name: F.col(quoted(name)) for name in records.columns.names}
    flawed, bad = _judged(records, event_time, cells, F.col(TIME))
    data = data.withColumns({TIME: F.when(~flawed, F.col(TIME)), BAD: F.when(flawed, bad)})
    return data.drop(*records.scaffold)


def _judged(
    records: ParsedRecords, event_time: str | None, cells: Mapping[str, Column], time: Column
) -> tuple[Column, Column]:
    """Returns whether a record is bad, and what is wrong with it. `cells` are its columns."""
    never = F.lit(False)
    malformed = never if records.malformed is None else records.malformed
    mistyped = never if records.mistyped is None else records.mistyped
    flawed = malformed | mistyped
    reason = F.when(malformed, MALFORMED).when(mistyped, WRONG_TYPE)
    message = F.when(malformed, _flaw(records)).when(mistyped, _mistyped(records, cells))
    if event_time is not None:
        flawed = flawed | time.isNull()
        value = cells[event_time]
        parsed = value
        if isinstance(records.columns[event_time].dataType, StringType):
            parsed = text_time(value)
        subject = F.concat(
            F.lit(f"the event time {event_time!r} is "), F.substring(value.cast("string"), 1, _LONGEST_TEXT)
        )
        reason = reason.when(parsed.isNull(), NO_TIME).otherwise(ABSURD_TIME)
        message = (
            message.when(value.isNull(), f"the event time {event_time!r} is missing")
            .when(parsed.isNull(), F.concat(subject, F.lit(", which is no time")))
            .otherwise(F.concat(subject, F.lit(", which is not in the years 1 to 9999")))
        )
    bad = F.struct(
        reason.alias("reason"),
        message.alias("message"),
        records.position.alias("position"),
        F.make_valid_utf8(records.text).alias("record"),
    )
    return flawed, bad


def text_time(text: Column) -> Column:
    """Parses the time in a text; null if it is none."""
    # For a time without a date, Spark would assume today.
    return F.when(text.rlike(r"^\s*\d{4}"), F.try_to_timestamp(text))


def whole_texts(data: DataFrame) -> ParsedRecords:
    """Decodes files in the columns `filename` and `content`."""
    text = F.col("content").cast("string")
    columns = StructType([StructField(name, StringType()) for name in ("filename", "content")])
    read = data.select("filename", F.make_valid_utf8(text).alias("content"), (~F.is_valid_utf8(text)).alias(CORRUPT))
    return ParsedRecords(
        read,
        columns,
        F.col("content"),
        F.col("filename"),
        malformed=F.col(CORRUPT),
        flaw=F.lit("it is not UTF-8 text"),
        scaffold=(CORRUPT,),
    )


def file_position() -> Column:
    """Returns the file that a row was read from."""
    return local_path(F.input_file_name())


def file_name() -> Column:
    """Returns the path of the file that a row was read from, as one opens it: Spark gives it escaped, as in a URL."""
    return F.url_decode(F.replace(file_position(), F.lit("+"), F.lit("%2B")))


def local_path(path: Column) -> Column:
    """Returns the path of a file; of a local one without a scheme."""
    return F.regexp_replace(path, "^file:/+", "/")


def quoted(name: str) -> str:
    """Quotes the name of a column, which Spark would otherwise parse as an expression.

    >>> quoted("odd.name")
    '`odd.name`'
    """
    return "`" + name.replace("`", "``") + "`"


def struct_of(schema: Any) -> StructType:
    """Returns the columns that a source's `schema` names: of a class, of DDL text, or of Spark's or Arrow's own type.

    Raises AnalysisException for DDL text that Spark cannot read, and TypeError for what names no columns.
    """
    declared = schema_of(schema) if isinstance(schema, type) else None
    if declared is not None:
        return from_arrow_schema(pa.schema(list(zip(declared.names, declared.types, strict=True))))
    if isinstance(schema, pa.Schema):
        return from_arrow_schema(schema)
    struct = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise TypeError(f"schema is columns such as 'user string, ts timestamp', got {schema!r}")
    return struct


def _flaw(records: ParsedRecords) -> Column:
    return F.lit(None).cast("string") if records.flaw is None else records.flaw


def _mistyped(records: ParsedRecords, cells: Mapping[str, Column]) -> Column:
    """Returns a message about the first field that is not of its column's type."""
    if records.fields is None or not records.columns.names:
        return _flaw(records)
    kinds = [(field.name, field.dataType.simpleString()) for field in records.columns]
    types = F.create_map(*[F.lit(text) for kind in kinds for text in kind])
    row = F.struct(*[cell.alias(name) for name, cell in cells.items()])
    present = F.map_filter(records.fields, lambda name, value: value.isNotNull() & types[name].isNotNull())
    name = F.get(F.array_except(F.map_keys(present), F.map_keys(as_map(row))), F.lit(0))
    value = F.substring(present[name], 1, _LONGEST_TEXT)
    known = F.concat(F.lit("'"), name, F.lit("' is no "), types[name], F.lit(": "), value)
    return F.coalesce(known, F.lit("a part of a field is not of its type"))


def as_map(struct: Column) -> Column:
    """Returns the fields of a struct that are not null, by name, as text."""
    return F.from_json(F.to_json(struct), "map<string,string>")
