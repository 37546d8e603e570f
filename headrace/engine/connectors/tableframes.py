"""Opens tables and queries of databases as frames: read by Python tasks, a range each, or by Spark's JDBC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import NumericType, StructType

from headrace.edges.databases import DatabaseError
from headrace.edges.tablescan import TableScan, one_snapshot, table_scan
from headrace.engine.catalyst import parsing
from headrace.engine.connectors.laketables import lake_frame
from headrace.engine.worker.blame import blame
from headrace.model.errors import PipelineError
from headrace.model.knowncolumns import no_column
from headrace.model.lakes import LakeSource
from headrace.model.pipeline import Node
from headrace.model.tablesources import ReadJdbc, ReadTable, TableSource

_NO_DRIVER: Final = ("No suitable driver", "ClassNotFoundException", "CLASS_NOT_FOUND")


def table_frame(spark: SparkSession, node: Node, source: TableSource, resources: ExitStack) -> DataFrame:
    """Opens the frame of a table; what must stay open while it is read is closed with the `resources`."""
    if isinstance(source, LakeSource):
        return lake_frame(spark, node, source)
    columns = None if source.schema is None else parsing.struct_of(source.schema)
    partitions = source.partitions or (spark.sparkContext.defaultParallelism if source.partition_column else 1)
    if isinstance(source, ReadTable):
        return _read_by_tasks(spark, node, source, columns, partitions, resources)
    assert isinstance(source, ReadJdbc)
    try:
        return _read_by_jdbc(spark, source, columns, partitions)
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None
    except (Py4JJavaError, PySparkException) as error:
        message = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        if any(sign in message for sign in _NO_DRIVER):
            database = ":".join(source.url.split(":")[:2])
            raise PipelineError(
                f"{node}: this Spark session has no JDBC driver for {database!r}; make the session with the jar of one "
                "(spark.jars, or spark-submit --jars DRIVER.jar), and say driver=... if the jar does not declare its "
                "class; SQLite and PostgreSQL need no jar with ReadTable"
            ) from None
        raise PipelineError(f"{node}: {message.splitlines()[0]}") from None


def _read_by_tasks(
    spark: SparkSession,
    node: Node,
    source: ReadTable,
    columns: StructType | None,
    partitions: int,
    resources: ExitStack,
) -> DataFrame:
    wanted = None if columns is None else to_arrow_schema(columns, timezone="UTC")
    column = source.partition_column
    try:
        scan = table_scan(
            source.url, source.table, source.query, wanted=wanted, partition_column=column, partitions=partitions
        )
        scan = resources.enter_context(one_snapshot(scan))
    except (DatabaseError, PipelineError) as error:
        raise PipelineError(f"{node}: {source}: {error}") from None
    ranges = spark.range(0, scan.partitions, 1, scan.partitions)
    return ranges.mapInArrow(TableReader(node.label, scan), from_arrow_schema(scan.schema()))


@dataclass(frozen=True)
class TableReader:
    """Reads the partitions of a table whose numbers it gets; callable by mapInArrow."""

    label: str
    scan: TableScan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                with blame(self.label):
                    yield from self.scan.read(partition)


def _read_by_jdbc(spark: SparkSession, source: ReadJdbc, columns: StructType | None, partitions: int) -> DataFrame:
    table = source.table or f"({source.query}) q"
    options: dict[str, Any] = {"url": source.url, **source.properties}
    if source.driver is not None:
        options["driver"] = source.driver
    data = _jdbc(spark, options, table)
    if source.partition_column is not None and partitions > 1:
        bounds = _jdbc_bounds(spark, options, table, data, source.partition_column)
        if bounds is not None:
            low, high = bounds
            ranges = {"lowerBound": low, "upperBound": high, "numPartitions": partitions}
            data = _jdbc(spark, {**options, **ranges, "partitionColumn": source.partition_column}, table)
    if columns is None:
        return data
    return data.select(*[F.col(parsing.quoted(field.name)).cast(field.dataType) for field in columns])


def _jdbc(spark: SparkSession, options: dict[str, Any], table: str) -> DataFrame:
    return spark.read.format("jdbc").options(**options, dbtable=table).load()


def _jdbc_bounds(
    spark: SparkSession, options: dict[str, Any], table: str, data: DataFrame, column: str
) -> tuple[str, str] | None:
    """Returns the least and the greatest value of a column, as Spark takes them; None if there is none."""
    field = next((field for field in data.schema if field.name.lower() == column.lower()), None)
    if field is None:
        raise PipelineError(no_column(column, data.columns))
    jvm: Any = spark._jvm
    name = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"]).quoteIdentifier(field.name)
    least_and_greatest = _jdbc(spark, options, f"(SELECT MIN({name}) AS low, MAX({name}) AS high FROM {table}) b")
    numeric = isinstance(field.dataType, NumericType)
    row = least_and_greatest.select(
        *[F.col(at).cast("long" if numeric else "string") for at in ("low", "high")]
    ).first()
    assert row is not None
    return None if row[0] is None else (str(row[0]), str(row[1]))
