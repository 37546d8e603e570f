"""Aggregations of times, and first and last values: as columns in shards they are what a batch gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr
from headrace.model.schema import UTC_TIMES

AGGREGATES: dict[str, Any] = {
    "first": hr.first("x"),
    "last": hr.last("seen"),
    "earliest": hr.min("seen"),
    "latest": hr.max("seen"),
    "x_latest": hr.max_by("x", "seen"),
}


def test_a_stream_of_times_gives_what_a_batch_gives(spark: SparkSession, tmp_path: Path) -> None:
    """In files and as elements; one group has no times at all, another gets its earliest in a later micro-batch."""
    seen = [1_700_000_000_000_000, None, 1, None, None, -62_000_000_000_000_000]
    columns = {"user": ["a", "a", "b", "none", "none", "b"], "x": [1, None, 3, 4, None, 6]}
    rows = pa.table({**columns, "seen": pa.array(seen, UTC_TIMES), "at": pa.array([5, 3, 2, 8, 9, 1], UTC_TIMES)})
    (tmp_path / "in").mkdir()
    for number in range(3):
        pq.write_table(rows.slice(2 * number, 2), tmp_path / f"in/{number}.parquet")

    def run(name: str, *, stream: bool) -> list[Any]:
        p = hr.Pipeline(spark=spark)
        kinds = "user string, x bigint, seen timestamp, at timestamp"
        read = hr.ReadParquet(f"{tmp_path}/in", schema=kinds, event_time="at", watermark=hr.BoundedDisorder("1 day"))
        windowed = p | read | hr.WindowInto(hr.FixedWindows("1 hour"))
        answers = windowed | hr.GroupBy("user").aggregate(**AGGREGATES)
        answers | "files" >> hr.WriteParquet(f"{tmp_path}/{name}")
        listed = answers | hr.Collect()
        p.run(stream=stream, max_files_per_batch=1 if stream else None).wait()
        return sorted(listed, key=repr)

    batch = run("batch", stream=False)
    assert [row.user for row in batch] == ["a", "b", "none"]
    assert repr(run("stream", stream=True)) == repr(batch)
    files = [
        spark.read.option("recursiveFileLookup", True).parquet(f"{tmp_path}/{name}") for name in ("batch", "stream")
    ]
    written = [frame.select("user", *AGGREGATES) for frame in files]
    assert written[0].schema == written[1].schema
    assert sorted(map(repr, written[0].toArrow().to_pylist())) == sorted(map(repr, written[1].toArrow().to_pylist()))
