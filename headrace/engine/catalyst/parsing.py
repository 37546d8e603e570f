"""From records to columns, and what is wrong with those that cannot be: Catalyst reads them, and tells by row.

What comes of it is a frame of the elements' columns, their event time TIME, and BAD: null, or the reason, a message,
the position and the record as text. A bad record has no event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType, DataType, StringType, StructField, StructType

from headrace.engine.worker.hidden import BAD, TIME
from headrace.model.badrecords import ABSURD_TIME, MALFORMED, NO_TIME, WRONG_TYPE
from headrace.model.schema import schema_of

TEXT: Final = "__text"
"""The column of records that are text."""
CORRUPT: Final = "__corrupt"
"""The column in which Spark keeps a record it could not read."""
_PARSED: Final = "__parsed"
_SHOWN: Final = 100  # characters of a field in a message


@dataclass(frozen=True)
class Records:
    """Records as columns of a frame: which those are, and, in Catalyst, what was wrong and what it was that was read.

    - malformed, mistyped: whether the record is none of its format, or has a field that is not of its column's type
    - text: the record; fields: by name, what it has for its columns, as text; position: where it is from
    - scaffold: columns of the frame that are of no use but for this
    """

    data: DataFrame
    columns: StructType
    text: Column
    position: Column
    malformed: Column | None = None
    mistyped: Column | None = None
    fields: Column | None = None
    shape: str = ""  # what a record that is not malformed is
    scaffold: Sequence[str] = ()


def json_records(data: DataFrame, columns: StructType, position: Column) -> Records:
    """Objects as JSON in the column TEXT. Columns that the frame has already are not looked for there."""
    written = StructType([field for field in columns if field.name not in data.columns])
    # Jackson reads no further than to the end of a value: what follows it shows in that this one has no end.
    whole = StructType(
        [StructField("value", written), StructField("end", BooleanType()), StructField(CORRUPT, StringType())]
    )
    wrapped = F.concat(F.lit('{"value":'), F.col(TEXT), F.lit(',"end":true}'))
    parsed = F.from_json(wrapped, whole, {"columnNameOfCorruptRecord": CORRUPT})
    rows = data.withColumn(_PARSED, parsed)
    value, result = F.col(_PARSED)["value"], F.col(_PARSED)
    # Of those alone that have a flaw: from_json may go on behind a field that it cannot read, and lose count of braces.
    corrupt = result[CORRUPT].isNotNull()
    own = [
        (F.col(quoted(field.name)).cast(field.dataType) if field not in written else value[field.name]).alias(
            field.name
        )
        for field in columns
    ]
    rest = [F.col(quoted(name)) for name in rows.columns if name not in columns.names]
    return Records(
        rows.select(*own, *rest),
        columns,
        F.col(TEXT),
        position,
        malformed=result["end"].isNull() | value.isNull() | (corrupt & F.get_json_object(wrapped, "$.end").isNull()),
        mistyped=corrupt,
        fields=F.from_json(F.col(TEXT), "map<string,string>"),
        shape="a JSON object",
        scaffold=(TEXT, _PARSED),
    )


def csv_records(data: DataFrame, columns: StructType, named: Sequence[str], position: Column) -> Records:
    """Lines of CSV that Spark has read, with CORRUPT, which were to have these columns and so many of them `named`."""
    line = F.coalesce(F.col(CORRUPT), F.to_csv(_row(columns)))
    strings = ", ".join(f"{quoted(name)} string" for name in (*named, CORRUPT))
    again = F.from_csv(F.col(CORRUPT), strings, {"columnNameOfCorruptRecord": CORRUPT})
    corrupt = F.col(CORRUPT).isNotNull()
    return Records(
        data,
        columns,
        line,
        position,
        malformed=corrupt & F.coalesce(again[CORRUPT].isNotNull(), F.lit(True)),
        mistyped=corrupt,
        fields=_as_map(again.dropFields(CORRUPT)),
        shape=f"a line of {len(named)} fields",
        scaffold=(CORRUPT,),
    )


def typed_records(data: DataFrame, columns: StructType, shown: Sequence[str], position: Column) -> Records:
    """Rows of columns, of which nothing but the event time can be bad; these are shown of one that is."""
    text = F.to_json(F.struct(*[F.col(quoted(name)) for name in shown]), {"ignoreNullFields": "false"})
    return Records(data, columns, text, position)


def checked(records: Records, event_time: str | None, time: Column) -> DataFrame:
    """The frame of these records. `time` is the event time in microseconds: of the column of that name, if there is."""
    never = F.lit(False)
    malformed = never if records.malformed is None else records.malformed
    mistyped = never if records.mistyped is None else records.mistyped
    data = records.data.withColumn(TIME, time)
    flawed = malformed | mistyped
    reason = F.when(malformed, MALFORMED).when(mistyped, WRONG_TYPE)
    message = F.when(malformed, f"it is not {records.shape}").when(mistyped, _mistyped(records))
    if event_time is not None:
        flawed = flawed | F.col(TIME).isNull()
        given = F.col(quoted(event_time))
        read = given
        if isinstance(records.columns[event_time].dataType, StringType):
            read = text_time(given)
        said = F.concat(F.lit(f"the event time {event_time!r} is "), F.substring(given.cast("string"), 1, _SHOWN))
        reason = reason.when(read.isNull(), NO_TIME).otherwise(ABSURD_TIME)
        message = (
            message.when(given.isNull(), f"the event time {event_time!r} is missing")
            .when(read.isNull(), F.concat(said, F.lit(", which is no time")))
            .otherwise(F.concat(said, F.lit(", which is not in the years 1 to 9999")))
        )
    bad = F.struct(
        reason.alias("reason"),
        message.alias("message"),
        records.position.alias("position"),
        F.make_valid_utf8(records.text).alias("record"),
    )
    data = data.withColumns({TIME: F.when(~flawed, F.col(TIME)), BAD: F.when(flawed, bad)})
    return data.drop(*records.scaffold)


def text_time(text: Column) -> Column:
    """The time that a text says, or null."""
    # Of a time without a date, Spark would say that it is today.
    return F.when(text.rlike(r"^\s*\d{4}"), F.try_to_timestamp(text))


def file_position() -> Column:
    """The file a row was read from."""
    return F.regexp_replace(F.input_file_name(), "^file:/+", "/")


def quoted(name: str) -> str:
    """A column's name where Spark would read expressions into it.

    >>> quoted("odd.name")
    '`odd.name`'
    """
    return "`" + name.replace("`", "``") + "`"


def struct_of(schema: Any) -> StructType:
    """Returns the columns that a source's `schema` names: of a class, of DDL text, or of Spark's own type.

    Raises AnalysisException for DDL text that Spark cannot read, and TypeError for what names no columns.
    """
    declared = schema_of(schema) if isinstance(schema, type) else None
    if declared is not None:
        return from_arrow_schema(pa.schema(list(zip(declared.names, declared.types, strict=True))))
    struct = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise TypeError(f"schema is columns such as 'user string, ts timestamp', got {schema!r}")
    return struct


def _mistyped(records: Records) -> Column:
    """What field is not of its column's type: the first that is there and was not read."""
    if records.fields is None or not records.columns.names:
        return F.lit(None).cast("string")
    kinds = [(field.name, field.dataType.simpleString()) for field in records.columns]
    types = F.create_map(*[F.lit(each) for kind in kinds for each in kind])
    said = F.map_filter(records.fields, lambda name, value: value.isNotNull() & types[name].isNotNull())
    name = F.get(F.array_except(F.map_keys(said), F.map_keys(_as_map(_row(records.columns)))), F.lit(0))
    value = F.substring(said[name], 1, _SHOWN)
    known = F.concat(F.lit("'"), name, F.lit("' is no "), types[name], F.lit(": "), value)
    return F.coalesce(known, F.lit("a part of a field is not of its type"))


def _row(columns: StructType) -> Column:
    return F.struct(*[F.col(quoted(name)) for name in columns.names])


def _as_map(struct: Column) -> Column:
    """What is not null in a struct, by name, as text."""
    return F.from_json(F.to_json(struct), "map<string,string>")
