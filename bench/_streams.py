"""What the benchmarks of streams share: data that arrives batch by batch, and what each micro-batch took."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headrace as hr
from headrace.engine.spark.session import spark_session

FILES = 2  # of a batch, one per core
SCHEMA = "user long, amount long, ts timestamp"
MINUTE = 60_000_000

_RIVAL = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""Rivals get the settings that Headrace gives itself."""


def session() -> SparkSession:
    """Two cores, and room to remember what every batch took."""
    config = {"spark.driver.memory": "4g", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    return spark_session("local[2]", config)


class Feed:
    """A directory in which whole batches appear: each is made beside it, and renamed into it."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder
        self._random = np.random.default_rng(seed)
        self._numbers = itertools.count()
        (folder / "in").mkdir(parents=True)
        self.arrive(np.zeros(1, np.int64))  # a source wants to see a file

    @property
    def path(self) -> str:
        return f"{self.folder}/in/*"

    def users(self, rows: int, keys: int) -> np.ndarray:
        """So many draws of so many users."""
        return self._random.integers(0, keys, rows)

    def arrive(self, users: np.ndarray, at: int = 0) -> None:
        """A batch with a row for each of these users, within a minute from `at`."""
        name = f"batch-{next(self._numbers):06d}"
        made = self.folder / f".{name}"
        made.mkdir()
        for part, some in enumerate(np.array_split(users, FILES)):
            table = pa.table(
                {
                    "user": pa.array(some),
                    "amount": pa.array(self._random.integers(0, 1000, len(some))),
                    "ts": pa.array(at + self._random.integers(0, MINUTE, len(some)), pa.timestamp("us", tz="UTC")),
                }
            )
            pq.write_table(table, made / f"{part}.parquet")
        made.rename(self.folder / "in" / name)


class Running:
    """A stream that is fed, and how long its batches took, in milliseconds."""

    def __init__(self, query: StreamingQuery, stop: Callable[[], None]) -> None:
        self.query, self.stop = query, stop

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def done(self) -> None:
        """Waits until all that has arrived is through."""
        self.query.processAllAvailable()

    def progress(self) -> list[dict[str, Any]]:
        """What Spark tells of each batch that had rows."""
        return [each for each in self.query.recentProgress if each["numInputRows"]]

    def batches(self) -> list[float]:
        return [each["durationMs"]["triggerExecution"] for each in self.progress()]

    def parts(self, last: int) -> dict[str, float]:
        """Where the time of the last batches went, by Spark's own account: medians."""
        told = [each["durationMs"] for each in self.progress()[-last:]]
        names = sorted({name for each in told for name in each} - {"triggerExecution"})
        parts = {name: statistics.median(each.get(name, 0) for each in told) for name in names}
        return {name: ms for name, ms in parts.items() if ms >= 1}


def headrace_stream(pipeline: hr.Pipeline, folder: Path, name: str, **options: Any) -> Running:
    """Starts a pipeline whose source is a feed."""
    handle: Any = pipeline.run(stream=True, trigger=0, checkpoint=f"{folder}/checkpoint-{name}", **options)
    return Running(handle.query, handle.stop)


def rival_stream(
    spark: SparkSession,
    frame: DataFrame,
    mode: str,
    folder: Path,
    name: str,
    sink: Callable[[DataFrame, int], None] | None = None,
) -> Running:
    """Starts a query that writes each batch as Parquet, as the sinks of Headrace do, or to a sink."""
    before = {setting: spark.conf.get(setting, None) for setting in _RIVAL}
    for setting, value in _RIVAL.items():
        spark.conf.set(setting, value)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.parquet(f"{folder}/out-{name}/batch-{number:06d}")

    writer = frame.writeStream.outputMode(mode).foreachBatch(sink or write).trigger(processingTime="1 milliseconds")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint-{name}").start()
    for setting, held in before.items():
        if held is None:
            spark.conf.unset(setting)
        else:
            spark.conf.set(setting, held)
    return Running(query, query.stop)


def arriving(spark: SparkSession, feed: Feed) -> DataFrame:
    """The feed as a streaming frame."""
    return spark.readStream.schema(SCHEMA).parquet(feed.path)


def rows_of(p: hr.Pipeline, feed: Feed) -> hr.PCollection:
    """The feed as a collection of rows."""
    return p | hr.ReadParquet(feed.path, schema=SCHEMA, event_time="ts")
