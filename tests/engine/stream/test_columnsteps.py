"""Column transforms that a stream's own program computes: where, with which answers, and what is left to Catalyst."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import headrace as hr
from headrace.log import Log
from headrace.model.times import SECOND
from tests.engine.stream.ways import way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST, GREATEST = -(2**63), 2**63 - 1


def write(folder: Path, number: int, n: list[int | None], m: list[int]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({"n": pa.array(n, pa.int64()), "m": pa.array(m, pa.int64())}), path)
    os.utime(path, (number, number))  # or files of one moment might come in any order


def written(out: Path) -> list[Any]:
    rows = [row for part in out.glob("batch-*/part-*") for row in pq.read_table(part).to_pylist()]
    return sorted((tuple(row.values()) for row in rows), key=str)


def started(spark: SparkSession, folder: Path, *transforms: Any, **options: Any) -> Any:
    p = hr.Pipeline(spark=spark)
    rows = p | "rows" >> hr.ReadParquet(str(folder / "in"), schema="n long, m long, text string")
    for number, transform in enumerate(transforms):
        rows = rows | f"transform {number}" >> transform
    rows | "out" >> hr.WriteParquet(str(folder / "out"))
    return p.run(stream=True, max_files_per_batch=1, **options)


def test_a_row_that_arrow_is_not_sure_of_is_computed_by_catalyst(spark: SparkSession, tmp_path: Path) -> None:
    """The stream goes on where it was, from batch to batch as from run to run."""
    checkpoint = str(tmp_path / "checkpoint")
    rest = hr.Select("n", rest="n % m")
    write(tmp_path / "in", 0, [7, None], [4, 1])
    handle = started(spark, tmp_path, hr.Where("m > -5"), rest, checkpoint=checkpoint, trigger="100 ms")
    try:
        handle.query.processAllAvailable()
        assert handle._stream.direct_files == {"rows"} and handle._stream._in_flight_only
    finally:
        handle.stop()
    write(tmp_path / "in", 1, [LEAST, 1], [-1, -5])
    write(tmp_path / "in", 2, [-7], [4])
    handle = started(spark, tmp_path, hr.Where("m > -5"), rest, checkpoint=checkpoint)
    assert handle.wait().state == "done"
    assert handle._stream.direct_files == set() and not handle._stream.may_leave_to_spark
    assert written(tmp_path / "out") == [(-7, -3), (LEAST, 0), (7, 3), (None, None)]


def test_an_expression_that_fails_fails_the_stream_as_ever(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", 0, [1], [1])
    write(tmp_path / "in", 1, [GREATEST], [1])
    for name in ("programs", "catalyst"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "in").symlink_to(tmp_path / "in")
        with way(name, monkeypatch), pytest.raises((PySparkException, hr.TransformError), match=r"n \+ 1"):
            started(spark, folder, hr.Select(more="n + 1")).wait()
        assert written(folder / "out") == [(2,)]


def test_columns_before_a_grouping_are_computed_where_files_and_topics_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log")
    topic = log.create("sales", values="user string, price long, extra string", partitions=2)
    sales = [{"user": f"u{n % 3}", "price": n, "extra": "x" * n} for n in range(40)]
    for partition in range(2):
        rows = sales[partition::2]
        topic.append(partition, topic.batch(rows, timestamps=[row["price"] * SECOND for row in rows]))
    pq.write_table(pa.Table.from_pylist([{**row, "at": row["price"]} for row in sales]), tmp_path / "in.parquet")

    def run(source: Any, name: str, direct: bool) -> list[Any]:
        p = hr.Pipeline(spark=spark)
        cents = p | "sales" >> source | hr.Where("price % 4 <> 1") | hr.Select("user", cents="price * 100")
        sums = cents | hr.WindowInto(hr.FixedWindows("10 seconds")) | hr.GroupBy("user").aggregate(n=hr.sum("cents"))
        found: list[Any] = []
        sums | hr.ForEachBatch(lambda rows, batch: found.extend(row.value for row in rows))
        with way(name, monkeypatch):
            handle: Any = p.run(stream=True)
            assert handle.wait().state == "done"
        assert handle._stream._reads_by_spark is not direct
        assert handle.metrics()["Select(user, cents)"]["out"] == 30
        return sorted(found)

    for source in (
        hr.ReadTopic("sales", log=str(log.path), end="latest"),
        hr.ReadParquet(str(tmp_path / "in.parquet"), event_time="at"),
    ):
        assert run(source, "programs", direct=True) == run(source, "general", direct=False) != []
