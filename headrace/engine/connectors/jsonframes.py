"""JSON lines as frames whose columns a program of Python has read, with the lines it left for Spark to parse.

Arrow's parser takes about a third of the time of Spark's. The frame has every line either as columns or as text, so a
bad line costs nobody but itself, and what is bad is said in one place (`catalyst/parsing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.edges.jsonlines import TEXT, is_plain
from headrace.engine.connectors.avroframes import FILE
from headrace.engine.connectors.fileranges import sizes_of
from headrace.engine.connectors.fromfiles import PATH, escaped
from headrace.engine.connectors.fromlines import is_compressed, read_range
from headrace.engine.connectors.fromrecords import has_times
from headrace.engine.worker.hidden import PART
from headrace.model.sources import ReadJson

_ENOUGH: Final = 16 << 20
"""Bytes of files for which it is worth to start tasks of Python."""
_SETTINGS: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.legacy.timeParserPolicy": "CORRECTED"}


def is_read_by_program(spark: SparkSession, source: ReadJson, files: list[str], columns: StructType) -> bool:
    """Tells whether a program is to read JSON lines, of which these local files are there at the beginning.

    It is if they are some megabytes and not compressed, all columns are of plain types, and times are in UTC.
    """
    schema = to_arrow_schema(columns, timezone="UTC")
    return (
        sum(sizes_of(files)) >= _ENOUGH
        and len(columns) > 0
        and all(is_plain(field.type) for field in schema)
        and (source.event_time is None or any(f.name == source.event_time and has_times(f.type) for f in schema))
        and all(spark.conf.get(name) == value for name, value in _SETTINGS.items())
        and not any(map(is_compressed, files))
    )


def lines_frame(ranges: DataFrame, columns: StructType, event_time: str | None) -> DataFrame:
    """Returns the lines of ranges of files: their columns, or TEXT, with FILE and, if there are several, PART."""
    schema = to_arrow_schema(columns, timezone="UTC")
    of_several = [(PART, pa.string())] if PART in ranges.columns else []
    out = pa.schema([*schema, (TEXT, pa.string()), (FILE, pa.string()), *of_several])
    return ranges.mapInArrow(LineReader(schema, event_time), from_arrow_schema(out))


@dataclass(frozen=True)
class LineReader:
    """Reads ranges of files; callable by mapInArrow."""

    columns: pa.Schema
    event_time: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in (row for batch in batches for row in batch.to_pylist()):
            file = escaped(row[PATH].removeprefix("file:"))
            for lines in read_range(row, self.columns, self.event_time):
                # Of lines that were read, nobody asks where they are.
                files = pc.if_else(lines.column(TEXT).is_valid(), file, pa.scalar(None, pa.string()))
                # Spark's texts may have any bytes: a cast would refuse what is not UTF-8.
                texts = lines.set_column(len(self.columns), TEXT, lines.column(TEXT).view(pa.string()))
                placed = texts.append_column(FILE, files)
                yield placed.append_column(PART, pa.repeat(row[PART], len(lines))) if PART in row else placed
