"""Records of a feed as a DataFrame: the columns of values, PARTITION, OFFSET and TIMESTAMP, and BAD if not strict."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from headrace.engine.catalyst import parsing
from headrace.engine.connectors import fromrecords, kafkareader, topicdatasource
from headrace.engine.spark import kafkajars
from headrace.engine.worker import hidden
from headrace.log.values import VALUE
from headrace.views.feeds.embedded import EmbeddedFeed
from headrace.views.feeds.feed import BAD, OFFSET, PARTITION, TIMESTAMP, Feed
from headrace.views.feeds.kafka import KafkaFeed
from headrace.views.offsets import Offsets

_RAW: Final = "__raw"
_RECORD_TIME: Final = "__time_of_record"


def records_between(spark: SparkSession, feed: Feed, since: Offsets, until: Offsets) -> DataFrame:
    """Reads all records of a feed from `since` to before `until`."""
    if isinstance(feed, KafkaFeed):
        return _kafka_records(spark, feed, since, until)
    assert isinstance(feed, EmbeddedFeed)
    return _embedded_records(spark, feed, since, until)


def _embedded_records(spark: SparkSession, feed: EmbeddedFeed, since: Offsets, until: Offsets) -> DataFrame:
    name, tasks = feed.topic.name, spark.sparkContext.defaultParallelism
    scan = topicdatasource.Scan(f"topic {name}", feed.folder, name, dict(since), dict(until), tasks)
    records = topicdatasource.load(spark, scan)
    added = (hidden.TIME, hidden.PART, fromrecords.OFFSET)
    return records.select(
        *[column for column in records.columns if column not in added],
        F.timestamp_micros(hidden.TIME).alias(TIMESTAMP),
        F.col(hidden.PART).cast("int").alias(PARTITION),
        F.col(fromrecords.OFFSET).alias(OFFSET),
    )


def _kafka_records(spark: SparkSession, feed: KafkaFeed, since: Offsets, until: Offsets) -> DataFrame:
    kafkajars.check(spark, feed.label)
    feed.check_kept(since, until)
    records = kafkareader.between(spark, feed.address, dict(since), dict(until)).select(
        F.col(VALUE).cast("string").alias(parsing.TEXT),
        F.col(VALUE).alias(_RAW),
        hidden.TIME,
        F.timestamp_micros(hidden.TIME).alias(_RECORD_TIME),
        hidden.PART,
        fromrecords.OFFSET,
    )
    # As the source of a stream reads them. Event times are judged by who reads the archive, as in all topics.
    columns = DataType.fromDDL(feed.topic.schema)
    assert isinstance(columns, StructType)
    checked = parsing.checked(parsing.json_records(records, columns, F.lit("")), None, F.col(hidden.TIME))
    wrong = F.col(hidden.BAD)
    bad = F.struct(wrong["reason"].alias("reason"), wrong["message"].alias("message"), F.col(_RAW).alias("record"))
    return checked.select(
        *feed.topic.columns,
        F.col(_RECORD_TIME).alias(TIMESTAMP),
        F.col(hidden.PART).cast("int").alias(PARTITION),
        F.col(fromrecords.OFFSET).alias(OFFSET),
        F.when(wrong.isNotNull(), bad).alias(BAD),
    )
