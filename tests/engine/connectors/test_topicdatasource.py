"""Tests pipelines that read embedded topics, on Spark, and the data source alone, without it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import headrace as hr
from headrace.edges.topicranges import end_offsets
from headrace.engine.connectors.fromrecords import PLACE
from headrace.engine.connectors.topicdatasource import Scan, TopicReader, TopicStreamReader
from headrace.engine.worker.blame import WorkerFailure
from headrace.log import Group, Log, LogError, Topic
from headrace.model.times import SECOND
from tests.scale import only_full

VISITS = "user string, n int, ts timestamp"


class Visit(NamedTuple):
    user: str
    n: int
    ts: dt.datetime


def create_topic(log: Log, name: str, values: str, partitions: int = 2, **settings: Any) -> Topic:
    return log.create(name, values=values, partitions=partitions, **settings)


def append(topic: Topic, partition: int, rows: list[Any], times: list[int]) -> None:
    """Appends records with these timestamps, in seconds."""
    topic.append(partition, topic.batch(rows, timestamps=[time * SECOND for time in times]))


def visits(*times: int) -> list[Any]:
    return [{"user": f"u{time % 3}", "n": time, "ts": time} for time in times]


# The data source, by itself


def scan_of(topic: Topic, log: Log, **options: Any) -> Scan:
    numbers = range(len(topic.partitions))
    return Scan("read", str(log.path), topic.name, dict.fromkeys(numbers, 0), None, tasks=2, group="g", **options)


def test_offsets_go_as_far_as_the_limit_says_and_the_group_follows(log: Log) -> None:
    topic = create_topic(log, "visits", "json")
    append(topic, 0, [1, 2, 3], [1, 2, 3])
    append(topic, 1, [4], [4])
    scan = scan_of(topic, log, max_records=2)
    assert Scan.read(scan.write()) == scan
    reader = TopicStreamReader(scan)
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    assert reader.latestOffset(start, ReadMaxRows(2)) == {"0": 2, "1": 0}
    assert reader.latestOffset(start, ReadAllAvailable()) == reader.reportLatestOffset() == {"0": 3, "1": 1}
    [partition] = reader.partitions({"0": 2, "1": 0}, {"0": 3, "1": 1})
    assert [(each.partition, each.first, each.until) for each in partition.value] == [(0, 2, 3), (1, 0, 1)]
    group = Group(log, "visits", "g")
    assert group.committed() == {0: 2, 1: 0}  # what is being read is still needed
    reader.latestOffset({"0": 3, "1": 1}, ReadAllAvailable())
    assert group.lag() == {0: 0, 1: 0}
    assert reader.partitions({"0": 3, "1": 1}, {"0": 3, "1": 1}) == []


def test_there_is_no_reading_past_the_end_nor_in_a_topic_that_is_another(log: Log) -> None:
    topic = create_topic(log, "visits", "json", 1)
    append(topic, 0, [1, 2, 3], [1, 2, 3])
    scan = scan_of(topic, log)
    ending = TopicStreamReader(replace(scan, end={0: 2}))
    assert ending.latestOffset({"0": 0}, ReadAllAvailable()) == {"0": 2}
    with pytest.raises(
        WorkerFailure, match=r"visits/0 ends at offset 3, but the stream has read up to 7: .*checkpoint"
    ):
        TopicStreamReader(scan).latestOffset({"0": 7}, ReadAllAvailable())
    with pytest.raises(WorkerFailure, match=r"visits has 1 partitions, but the stream has read 2"):
        TopicStreamReader(scan).latestOffset({"0": 1, "1": 0}, ReadAllAvailable())


def test_what_a_task_gives_has_the_columns_that_spark_was_told(log: Log) -> None:
    append(create_topic(log, "visits", VISITS), 1, visits(1, 2), [1, 2])
    append(create_topic(log, "json", "json"), 0, [{"a": 1}], [1])
    for name, form in (("visits", "columns"), ("visits", "ranges"), ("json", "columns"), ("json", "blocks")):
        topic = log.topic(name)
        scan = replace(scan_of(topic, log, form=form), end=end_offsets(topic))
        reader = TopicReader(scan)
        [partition] = reader.partitions()
        batches = list(reader.read(partition))
        assert sum(batch.num_rows for batch in batches) == (1 if form == "ranges" or name == "json" else 2)
        assert all(batch.schema == scan.schema() for batch in batches)


def test_a_task_gives_no_column_that_nobody_reads(log: Log) -> None:
    topic = create_topic(log, "visits", VISITS)
    append(topic, 1, visits(1, 2), [1, 2])
    scan = scan_of(topic, log, columns=("n",), timed=False, placed=False)
    assert Scan.read(scan.write()) == scan
    reader = TopicReader(replace(scan, end=end_offsets(topic)))
    [partition] = reader.partitions()
    [batch] = reader.read(partition)
    assert batch.to_pylist() == [{"n": 1}, {"n": 2}]
    assert replace(scan, placed=True).schema().names == ["n", PLACE]


# Errors, before anything runs


@pytest.mark.parametrize(
    ("read", "match"),
    [
        (
            lambda log: hr.ReadTopic("orders", log=log),
            r"no topic 'orders'.*topics: json, visits.*headrace topic create",
        ),
        (lambda log: hr.ReadTopic("visits", log=log, event_time="at"), r"event_time='at' is no column; .* user, n, ts"),
        (lambda log: hr.ReadTopic("json", log=log, event_time="ts"), r"event_time='ts' is no column, .*with schema="),
        (
            lambda log: hr.ReadTopic("visits", log=log, schema="user string, age int"),
            r"'age', which the topic does not",
        ),
        (lambda log: hr.ReadTopic("visits", log=log, schema="n string"), r"'n' is string, but the topic's is int32"),
        (
            lambda log: hr.ReadTopic("json", log=log, schema="oops"),
            r"schema='oops': a column is a name and a type, such as 'user string', got 'oops'",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(spark: SparkSession, log: Log, read: Any, match: str) -> None:
    create_topic(log, "visits", VISITS)
    create_topic(log, "json", "json")
    p = hr.Pipeline(spark=spark)
    with pytest.raises((hr.PipelineError, LogError), match=match):
        p | read(str(log.path)) | hr.Collect()
        p.run(stream=True)


# On Spark


@pytest.mark.slow("a batch and a stream for each kind of topic")
def test_batch_and_stream_read_the_same_of_every_kind_of_topic(spark: SparkSession, log: Log) -> None:
    """Rows as named tuples, and transformed by Catalyst; JSON with and without a schema; and bytes."""
    rows, texts, octets = (
        create_topic(log, "visits", VISITS, 3),
        create_topic(log, "json", "json"),
        create_topic(log, "bytes", "bytes"),
    )
    for number in range(3):
        append(rows, number, visits(*range(number, 40, 3)), list(range(number, 40, 3)))
    append(texts, 0, [{"user": "a", "n": 1, "ts": "1970-01-01T00:00:05Z"}, {"user": "b"}], [50, 60])
    append(octets, 1, [b"x", b"y"], [3, 70])

    def read(**options: Any) -> dict[str, Counter[Any]]:
        p, results = hr.Pipeline(spark=spark), {}

        def topic(name: str, **how: Any) -> hr.PCollection:
            return p | f"{name} {len(results)}" >> hr.ReadTopic(name, log=str(log.path), end="latest", **how)  # type: ignore[no-any-return]

        minutes = hr.WindowInto(hr.FixedWindows(30))
        sums = hr.GroupBy("user").aggregate(n=hr.count(), total=hr.sum("n"))
        plain = topic("visits", event_time="ts", schema=Visit, start=3)
        results["sums"] = plain | "minutes" >> minutes | "sums" >> sums | "c1" >> hr.Collect()
        results["named"] = plain | "c2" >> hr.Collect()
        large = topic("visits", event_time="ts") | hr.Where("n % 2 = 0") | hr.Select("user", "n")
        results["large"] = large | "minutes too" >> minutes | "large sums" >> sums | "c3" >> hr.Collect()
        parsed = topic("json", schema="user string, n int, ts timestamp", event_time="ts")
        results["parsed"] = parsed | "c5" >> hr.Collect()
        results["objects"] = topic("json") | "c6" >> hr.Collect()
        results["bytes"] = topic("bytes") | "c7" >> hr.Collect()
        p.run(**options).wait()
        return {
            name: Counter((repr(each.value), each.timestamp, each.window) for each in collected.windowed)
            for name, collected in results.items()
        }

    batch = read()
    assert read(stream=True, max_records_per_batch=20) == batch
    assert sum(batch["named"].values()) == 37
    assert {key[0].partition(", ts")[0] for key in batch["named"]} >= {"Visit(user='u0', n=30"}
    assert {key[0] for key in batch["objects"]} == {
        "{'user': 'a', 'n': 1, 'ts': '1970-01-01T00:00:05Z'}",
        "{'user': 'b'}",
    }
    assert {key[:2] for key in batch["bytes"]} == {("b'x'", 3 * SECOND), ("b'y'", 70 * SECOND)}
    assert {key[0] for key in batch["sums"]} >= {"Row(user='u0', n=9, total=135)"}
    assert {key[0] for key in batch["large"]} >= {"Row(user='u0', n=5, total=60)"}
    assert [key[1] for key in batch["parsed"]] == [5 * SECOND]  # the other has no event time: a bad record


def test_a_stream_goes_on_where_it_was(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """Stopped and run again, it emits what an undisturbed run emits, and retention spares what it has not read."""
    topic = create_topic(log, "visits", VISITS, 2, segment_bytes=1, keep_bytes=1)
    results: list[Any] = []

    def run(**options: Any) -> Any:
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadTopic("visits", log=str(log.path), event_time="ts", start=2, watermark=hr.BoundedDisorder(5))
        counts = read | hr.WindowInto(hr.FixedWindows(10)) | hr.GroupBy("user").aggregate(n=hr.count())
        counts | hr.ForEachBatch(lambda elements, batch: results.extend((each.value, each.window) for each in elements))
        return p.run(checkpoint=str(tmp_path / "counts"), **options)

    def through(handle: Any, *, drain: bool = False) -> Any:
        handle.query.processAllAvailable()
        status = handle.status()
        handle.stop(drain=drain)
        return status

    append(topic, 0, visits(*range(0, 20, 2)), list(range(0, 20, 2)))
    append(topic, 1, visits(*range(1, 20, 2)), list(range(1, 20, 2)))
    status = through(run(max_records_per_batch=6))
    assert status.sources["ReadTopic"].offsets == {0: 10, 1: 10}
    assert status.sources["ReadTopic"].lag == 0
    assert status.batches >= 3
    assert "ReadTopic has read to 0/10, 1/10: 0 records behind" in str(status)
    [name] = Group.names(log, "visits")
    assert name.startswith("counts-")
    assert name.endswith("-ReadTopic")
    group = Group(log, "visits", name)
    assert group.lag() == {0: 0, 1: 0}
    for time in (20, 30):
        append(topic, 0, visits(time), [time])
        append(topic, 1, visits(time + 1), [time + 1])
    assert topic.partition(0).earliest() == 10  # what it has read is gone, and what it has not is there
    through(run(), drain=True)
    undisturbed = Counter((f"u{time % 3}", time // 10) for time in (*range(2, 22), 30, 31))
    assert Counter({(row.user, window.start // SECOND // 10): row.n for row, window in results}) == undisturbed
    assert len(results) == len(undisturbed)


def test_a_stream_whose_records_are_gone_says_so(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    topic = create_topic(log, "visits", "json", 1, segment_bytes=1, keep_bytes=1)
    for time in range(3):
        append(topic, 0, [time], [time])

    def run() -> Any:
        p = hr.Pipeline(spark=spark)
        p | hr.ReadTopic("visits", log=str(log.path)) | hr.ForEachBatch(lambda elements, batch: None)
        return p.run(checkpoint=str(tmp_path / "checkpoint"))

    handle = run()
    handle.query.processAllAvailable()
    handle.stop()
    for time in range(3, 6):
        append(topic, 0, [time], [time])
    topic.retain(force=True)
    with pytest.raises(hr.TransformError, match=r"(?s)visits/0: offset 3, where the stream goes on, is gone"):
        run().wait()


def test_the_watermark_waits_for_every_partition_but_not_for_idle_ones(spark: SparkSession, log: Log) -> None:
    """Each micro-batch reads a record; the second partition has none."""
    topic = create_topic(log, "visits", VISITS)
    append(topic, 0, visits(5, 15, 25, 35, 45), [0] * 5)
    p = hr.Pipeline(spark=spark)
    policy = hr.Monotonic(idle_after=60)
    read = p | hr.ReadTopic("visits", log=str(log.path), event_time="ts", end="latest", watermark=policy)
    clock = p | hr.TestStream().advance_watermark(1000).advance_clock(30).advance_clock(59).advance_clock(60)
    events = (read | hr.Map(lambda visit: "a visit"), clock) | hr.Flatten() | hr.WindowInto(hr.FixedWindows(10))
    counts = events | hr.Count.per_element() | hr.Collect()
    p.run(max_records_per_batch=1).wait()
    fired = {batch: sorted(each.window.start // SECOND for each in got) for batch, got in counts.batches.items() if got}
    assert min(fired) == 3
    assert fired[3] == [0, 10, 20]  # the second has been silent for 60 seconds


def test_the_first_batches_are_small_and_start_at_the_end_or_at_a_time(spark: SparkSession, log: Log) -> None:
    topic = create_topic(log, "numbers", "n int", 1)
    append(topic, 0, [{"n": 0}] * 50_000, list(range(50_000)))
    sizes: dict[str, list[int]] = {"paced": [], "late": [], "none": []}
    p = hr.Pipeline(spark=spark)

    def taken(name: str) -> hr.ForEachBatch:
        return hr.ForEachBatch(lambda elements, batch: sizes[name].append(len(elements)))

    p | "all" >> hr.ReadTopic("numbers", log=str(log.path), end=35_000) | "paced" >> taken("paced")
    p | "some" >> hr.ReadTopic("numbers", log=str(log.path), start=49_990, end="latest") | "late" >> taken("late")
    p | "none" >> hr.ReadTopic("numbers", log=str(log.path), start="latest", end="latest") | "n" >> taken("none")
    p.run(stream=True, batch_time="1 hour").wait()
    assert sizes == {"paced": [10_000, 20_000, 5_000], "late": [10], "none": []}


# What Spark compiles


@pytest.mark.parametrize(
    ("transform", "sink", "interpreted"),
    [
        (hr.WindowInto(hr.FixedWindows(10)), "collect", True),
        pytest.param(hr.Where("n > 0"), "collect", True, marks=only_full("which programs compute, too")),
        (hr.Where("upper(user) > 'A'"), "collect", False),
        pytest.param(
            hr.WindowInto(hr.FixedWindows(10)),
            "parquet",
            True,
            marks=only_full("which programs write, as they compute"),
        ),
        pytest.param(
            hr.WindowInto(hr.FixedWindows(10)), "json", False, marks=only_full("as Spark computes what programs cannot")
        ),
    ],
)
def test_spark_compiles_no_code_for_rows_in_flight(
    log: Log, spark: SparkSession, tmp_path: Path, transform: Any, sink: str, interpreted: bool
) -> None:
    topic = create_topic(log, "visits", VISITS)
    append(topic, 0, visits(1, 2, 11), [1, 2, 11])
    settings = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = {name: spark.conf.get(name, None) for name in settings}
    for name in settings:
        spark.conf.unset(name)
    try:
        p = hr.Pipeline(spark=spark)
        rows = p | hr.ReadTopic("visits", log=str(log.path), event_time="ts", end="latest") | transform
        counts = rows | hr.GroupBy("user").aggregate(n=hr.count())
        sinks = {"parquet": hr.WriteParquet, "json": hr.WriteJson}
        collected = counts | (sinks[sink](str(tmp_path / "out")) if sink in sinks else hr.Collect())
        handle: Any = p.run(stream=True)
        handle.wait()
        of_query = handle.query._jsq.streamingQuery().sparkSessionForStream().conf()
        assert [of_query.get(name) for name in settings] == (
            ["false", "NO_CODEGEN"] if interpreted else ["true", "FALLBACK"]
        )
        assert sink in sinks or Counter(row.user for row in collected for _ in range(row.n)) == Counter(u1=1, u2=2)
    finally:
        for name, value in before.items():
            if value is not None:
                spark.conf.set(name, value)
