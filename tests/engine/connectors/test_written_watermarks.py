"""Tests watermarks that travel with topics, on Spark: what a stream writes says how far it is, and another reads it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.stream.handle import StreamHandle
from headrace.log import Log
from headrace.model.times import MAX_TIME, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker


class Streams:
    """Two streams: the first counts visits in windows and writes them to a topic, which the second sums up."""

    def __init__(self, spark: SparkSession, folder: pathlib.Path, minutes: str, schema: str | None = None) -> None:
        self.spark, self.folder, self.minutes, self.schema = spark, folder, minutes, schema
        self.log = str(folder / "log")
        self.fired: dict[str, list[tuple[int, int]]] = {"direct": [], "selected": []}

    def counting(self, visits: str) -> hr.Pipeline:
        p = hr.Pipeline(spark=self.spark)
        read = p | hr.ReadTopic(visits, log=self.log, event_time="ts")
        counts = read | hr.WindowInto(hr.FixedWindows(10)) | hr.GroupBy("user").aggregate(n=hr.count())
        counts | "minutes" >> hr.WriteTopic(self.minutes, key="user", watermarks=True)
        return p

    def summing(self) -> hr.Pipeline:
        p = hr.Pipeline(spark=self.spark)
        for name in self.fired:

            def take(elements: list[Any], batch: int, name: str = name) -> None:
                self.fired[name] += [(each.window.start // SECOND, each.value) for each in elements]

            rows = p | name >> hr.ReadTopic(self.minutes, schema=self.schema, watermark="stream")
            if name == "selected":  # so it is Spark that reads
                rows = rows | hr.Where("n > 0") | hr.Select(n="try_add(n, 0)")
            windowed = rows | f"window {name}" >> hr.WindowInto(hr.FixedWindows(20))
            sums = windowed | f"numbers {name}" >> hr.Map(lambda row: row.n) | f"sum {name}" >> hr.CombineGlobally(sum)
            sums | f"take {name}" >> hr.ForEachBatch(take)
        return p

    @contextmanager
    def running(self, pipeline: hr.Pipeline, name: str) -> Iterator[StreamHandle]:
        handle = pipeline.run(checkpoint=str(self.folder / name))
        assert isinstance(handle, StreamHandle)
        try:
            yield handle
        finally:
            handle.stop()

    def arrivals(self, visits: str) -> Callable[..., None]:
        topic = Log(self.log).create(visits, partitions=1, values="user string, ts timestamp")

        def arrive(*seconds: int) -> None:
            rows: list[object] = [{"user": f"u{second % 3}", "ts": second} for second in seconds]
            topic.append(0, topic.batch(rows, timestamps=[0] * len(rows)))

        return arrive


def watermarks(handle: StreamHandle) -> set[int | None]:
    return {source.watermark for source in handle.status().sources.values()}


@pytest.mark.slow("streams are started five times")
def test_a_second_stream_has_the_watermark_of_the_first(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    topic = Log(tmp_path / "log").create("minutes", partitions=2, values="user string, n bigint")
    streams = Streams(spark, tmp_path, f"topic:{tmp_path}/log/minutes")
    arrive = streams.arrivals("visits")
    with streams.running(streams.summing(), "summing") as second:
        with streams.running(streams.counting("visits"), "counting") as first:
            arrive(1, 2, 3, 12, 25)  # two windows are complete, and with them the first 20 seconds
            first.query.processAllAvailable()
            second.query.processAllAvailable()
            assert watermarks(second) == {25 * SECOND}
            assert streams.fired == {"direct": [(0, 4)], "selected": [(0, 4)]}
            arrive(39)  # time goes on, though nothing is written for [20, 40)
            first.query.processAllAvailable()
            second.query.processAllAvailable()
            assert watermarks(second) == {39 * SECOND}
        # A stream that goes on is the same writer; another one is waited for as well.
        another = streams.arrivals("others")
        with (
            streams.running(streams.counting("visits"), "counting") as first,
            streams.running(streams.counting("others"), "others") as other,
        ):
            another(24, 45)
            other.query.processAllAvailable()
            arrive(70)
            first.query.processAllAvailable()
            second.query.processAllAvailable()
            assert watermarks(second) == {45 * SECOND}
            assert streams.fired["direct"] == streams.fired["selected"] == [(0, 4), (20, 3)]
            other.stop(drain=True)  # it has ended, and is waited for no more
            second.query.processAllAvailable()
            assert watermarks(second) == {70 * SECOND}
            assert [each.late for each in second.status().exchanges.values()] == [0, 0]
    # Who does not ask for watermarks does not see them.
    assert sum(record.value["n"] for number in (0, 1) for record in topic.read(number)) == 8
    assert sum(partition.next_offset() for partition in topic.partitions) > 8
    p = hr.Pipeline(spark=spark)
    rows = p | hr.ReadTopic(streams.minutes, end="latest") | hr.Collect()
    p.run().wait()
    assert sum(row.n for row in rows) == 8


def test_a_batch_says_that_all_is_written(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    Log(tmp_path / "log").create("minutes", partitions=2, values="user string, n bigint")
    streams = Streams(spark, tmp_path, f"topic:{tmp_path}/log/minutes")
    p = hr.Pipeline(spark=spark)
    rows = p | hr.Create([("ann", 3), ("bob", 4)]) | hr.Select(user="_1", n="_2")
    grouped = rows | hr.GroupBy("user").aggregate(n=hr.sum("n"))
    grouped | hr.WriteTopic(streams.minutes, watermarks=True, timestamp=lambda row: 7)
    p.run().wait()
    with streams.running(streams.summing(), "summing") as second:
        second.query.processAllAvailable()
        assert watermarks(second) == {MAX_TIME}
        assert streams.fired == {"direct": [(0, 7)], "selected": [(0, 7)]}


def test_a_stream_without_groupings_has_no_watermark_to_write(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    Log(tmp_path / "log").create("minutes")
    p = hr.Pipeline(spark=spark)
    p | hr.Rate(1) | hr.WriteTopic("minutes", log=str(tmp_path / "log"), watermarks=True)
    with pytest.raises(hr.PipelineError, match="with watermarks=True there must be a grouping between source and"):
        p.run()


@pytest.mark.slow("a broker, and streams that are started three times")
def test_watermarks_travel_through_kafka(spark: SparkSession, broker: Broker, tmp_path: pathlib.Path) -> None:
    uri = broker.create("minutes", partitions=2)
    streams = Streams(spark, tmp_path, uri, "user string, n bigint")
    arrive = streams.arrivals("visits")
    with (
        streams.running(streams.summing(), "summing") as second,
        streams.running(streams.counting("visits"), "counting") as first,
    ):
        arrive(1, 2, 3, 12, 25)
        first.query.processAllAvailable()
        second.query.processAllAvailable()
        assert watermarks(second) == {25 * SECOND}
        assert streams.fired == {"direct": [(0, 4)], "selected": [(0, 4)]}
    p = hr.Pipeline(spark=spark)
    rows = p | hr.ReadTopic(uri, schema="user string, n bigint", end="latest") | hr.Collect()
    p.run().wait()
    assert sorted((row.user, row.n) for row in rows) == [("u0", 1), ("u0", 1), ("u1", 1), ("u2", 1)]
