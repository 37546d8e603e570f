"""Tests pipelines that read from and write to a real Kafka broker, on Spark."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.spark import kafkajars
from headrace.log.partitioning import partitions_of
from headrace.model.times import SECOND
from tests.edges import kafka
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker

ROOT = Path(__file__).parents[3]
VISITS = "user string, n int"


class Visit(NamedTuple):
    user: str
    n: int


def visit(second: int) -> tuple[bytes, bytes, int]:
    user = f"u{second % 3}"
    return user.encode(), json.dumps({"user": user, "n": second}).encode(), 1000 * second


def in_windows(elements: Any) -> Counter[Any]:
    return Counter((repr(each.value), each.timestamp, each.window) for each in elements)


@pytest.mark.slow("batches and streams of Kafka")
def test_batch_and_stream_read_the_same(spark: SparkSession, broker: Broker) -> None:
    """Columns, named tuples and bytes, from the whole topic and from a time on; "latest" is the end at the start."""
    uri = broker.create("visits_by_age", partitions=3)
    broker.send("visits_by_age", *map(visit, range(1, 40)))

    def read(**options: Any) -> dict[str, Counter[Any]]:
        p, results = hr.Pipeline(spark=spark), {}
        rows = p | "rows" >> hr.ReadTopic(uri, schema=VISITS, end="latest")
        sums = hr.GroupBy("user").aggregate(n=hr.count(), total=hr.sum("n"))
        results["sums"] = rows | hr.WindowInto(hr.FixedWindows(20)) | sums | "c1" >> hr.Collect()
        timed = p | "timed" >> hr.ReadTopic(uri, schema=Visit, event_time="n", start=30, end=35)
        results["timed"] = timed | hr.Filter(lambda each: each.n != 33) | "c2" >> hr.Collect()
        octets = p | "octets" >> hr.ReadTopic(uri, end="latest")
        results["octets"] = octets | hr.Map(json.loads) | "c3" >> hr.Collect()
        p.run(**options).wait()
        return {name: in_windows(collected.windowed) for name, collected in results.items()}

    batch = read()
    assert read(stream=True, max_records_per_batch=20) == batch
    assert {name for name, _, _ in batch["timed"]} == {repr(Visit(f"u{n % 3}", n)) for n in (30, 31, 32, 34)}
    assert sum(batch["octets"].values()) == 39
    assert ("Row(user='u1', n=7, total=70)", 0) in {(name, window.start) for name, _, window in batch["sums"]}


@only_full("test_clocks.py has the slowest partition of files")
def test_a_partition_without_records_holds_the_watermark_until_it_is_idle(spark: SparkSession, broker: Broker) -> None:
    uri = broker.create("two", partitions=2)
    fired = threading.Event()

    def counting(name: str, policy: hr.WatermarkPolicy) -> tuple[list[Any], hr.Pipeline]:
        p, results = hr.Pipeline(spark=spark), list[Any]()

        def take(elements: list[Any], batch: int) -> None:
            results.extend((each.value, each.window.start // SECOND) for each in elements)
            if (2, 10) in results:
                fired.set()

        read = p | name >> hr.ReadTopic(uri, schema=VISITS, watermark=policy)
        read | hr.WindowInto(hr.FixedWindows(10)) | hr.Count.globally() | hr.ForEachBatch(take)
        return results, p

    broker.send("two", *map(visit, (1, 2, 15)), partition=0)
    results, p = counting("waits", hr.Monotonic())
    handle = p.run()
    handle.query.processAllAvailable()
    assert results == []  # for all that is known, partition 1 may bring the same times
    broker.send("two", *map(visit, (3, 12)), partition=1)
    handle.query.processAllAvailable()
    assert results == [(3, 0)]
    broker.send("two", visit(25), partition=0)
    handle.query.processAllAvailable()
    assert results == [(3, 0)]
    status = handle.status().sources["waits"]
    assert (status.offsets, status.lag) == ({0: 4, 1: 2}, 0)
    handle.stop()

    _, p = counting("does not wait", hr.Monotonic(idle_after="1 second"))
    handle = p.run()
    for second in range(26, 146):  # partition 1 has come to 12 only, but is idle while partition 0 goes on
        broker.send("two", visit(second), partition=0)
        if fired.wait(1):
            break
    handle.stop()
    assert fired.is_set()


def test_elements_become_messages(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """In a batch and in a stream: rows as JSON objects, text as it is, keys in the partitions that Kafka chooses."""
    lines = [json.dumps({"user": f"u{n}", "n": n, "ts": 100 + n}) for n in range(10)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    for stream in (False, True):
        rows, text = f"rows-{stream}", f"text-{stream}"
        rows_uri, text_uri = broker.create(rows, partitions=3), broker.create(text)
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadJson(str(tmp_path / "in"), schema="user string, n int, ts double", event_time="ts")
        read | hr.Select("user", "n") | "rows" >> hr.WriteTopic(rows_uri, key="user")
        names = read | hr.Map(lambda row: row.user).with_output_types(str)
        names | "text" >> hr.WriteTopic(text_uri, timestamp=lambda name: 7)
        p.run(stream=stream).wait()
        messages = broker.contents(rows)
        assert sorted((each.key(), each.value(), each.timestamp()[1]) for each in messages) == [
            (b"u%d" % n, b'{"user":"u%d","n":%d}' % (n, n), 100_000 + 1000 * n) for n in range(10)
        ]
        keys = pa.array([each.key() for each in messages])
        assert [each.partition() for each in messages] == partitions_of(keys, 3).tolist()
        plain = broker.contents(text)
        assert sorted(each.value() for each in plain) == [b"u%d" % n for n in range(10)]
        assert {(each.key(), each.timestamp()[1]) for each in plain} == {(None, 7000)}


def test_a_crash_after_the_transaction_and_before_sparks_commit_doubles_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    source, sink = broker.create("crash-in", partitions=2), broker.create("crash-out", partitions=2)
    broker.send("crash-in", *map(visit, range(1, 21)))

    def run(check: Callable[[int], None]) -> hr.Handle:
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadTopic(source, schema=Visit)
        read | "write" >> hr.WriteTopic(sink, key="user")
        read | "check" >> hr.ForEachBatch(lambda elements, batch: check(batch))
        return p.run(checkpoint=str(tmp_path / "checkpoint"), max_records_per_batch=8)

    def crash(batch: int) -> None:
        if batch == 1:
            raise RuntimeError("crash")

    with pytest.raises(hr.TransformError, match="crash"):
        run(crash).wait()
    assert len(broker.contents("crash-out")) == 16  # the second batch is there, but Spark does not know
    handle = run(lambda batch: None)
    handle.query.processAllAvailable()
    handle.stop()
    assert sorted(json.loads(each.value())["n"] for each in broker.contents("crash-out")) == list(range(1, 21))


@only_full("test_brokers.py has a broker that stops under a stream, test_kafkatransactions.py under a writer")
@pytest.mark.slow("a broker stops and starts")
def test_a_broker_that_is_stopped_and_started_again_costs_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """From topic to topic and to a table, while the broker stops and starts; then once more from the checkpoint."""
    source, sink = broker.create("bounce-in", partitions=2), broker.create("bounce-out", partitions=2)

    def run() -> hr.Handle:
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadTopic(source, schema=Visit)
        read | hr.WriteTopic(sink, key="user")
        read | hr.WriteTable(f"sqlite:///{tmp_path}/table", "visits")
        return p.run(checkpoint=str(tmp_path / "checkpoint"))

    handle = run()
    broker.send("bounce-in", *map(visit, range(1, 101)))
    handle.query.processAllAvailable()
    broker.stop()
    broker.start()
    broker.send("bounce-in", *map(visit, range(101, 201)))
    handle.query.processAllAvailable()
    handle.stop()
    broker.send("bounce-in", *map(visit, range(201, 301)))
    handle = run()
    handle.query.processAllAvailable()
    handle.stop()
    expected = list(range(1, 301))
    with sqlite3.connect(tmp_path / "table") as table:
        assert [n for (n,) in table.execute("SELECT n FROM visits ORDER BY n")] == expected
    assert sorted(json.loads(each.value())["n"] for each in broker.contents("bounce-out")) == expected


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_what_is_not_there_is_named_before_anything_runs(
    stream: bool, spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.edges.kafkaclient._PATIENCE", 1.0)
    here, nowhere = f"kafka://{broker.address}/nothing", "kafka://127.0.0.1:1/visits"
    for uri, match in (
        (here, rf"no topic 'nothing' at {broker.address}; create it"),
        (nowhere, r"no Kafka broker answers at 127\.0\.0\.1:1; check that it runs"),
    ):
        p = hr.Pipeline(spark=spark)
        p | hr.ReadTopic(uri, end="latest") | hr.Collect()
        with pytest.raises(hr.PipelineError, match=match):
            p.run(stream=stream).wait()
        p = hr.Pipeline(spark=spark)
        p | hr.Create(["a"]) | hr.WriteTopic(uri)
        with pytest.raises(hr.PipelineError, match=match):
            p.run(stream=stream).wait()


def test_bad_records_are_dead_letters(spark: SparkSession, broker: Broker) -> None:
    uri = broker.create("bad")
    broker.send("bad", visit(1), (None, b"{oops", 2000), visit(3))
    p = hr.Pipeline(spark=spark)
    read = p | hr.ReadTopic(uri, schema=VISITS, end="latest").with_exception_handling()
    good, dead = read.main | "good" >> hr.Collect(), read.dead_letters | "dead" >> hr.Collect()
    p.run().wait()
    assert sorted(row.n for row in good) == [1, 3]
    assert [(letter.element, letter.error, letter.position) for letter in dead] == [("{oops", "malformed", "bad/0@1")]


def test_a_session_without_the_connector_is_told_how_to_get_it(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafkajars, "_PROVIDER", "org.apache.spark.sql.kafka010.None")
    p = hr.Pipeline(spark=spark)
    p | hr.ReadTopic(f"kafka://{broker.address}/visits", end="latest") | hr.Collect()
    with pytest.raises(hr.PipelineError, match=rf"make kafka.*--packages {re.escape(kafkajars.PACKAGE)}"):
        p.run().wait()


def test_what_is_fetched_is_what_is_looked_for() -> None:
    for name, version in (("connector", kafkajars.VERSION), ("broker", kafka.VERSION)):
        pom = (ROOT / "scripts" / "jars" / f"{name}.xml").read_text("utf-8")
        assert re.findall(r"^  <version>(.*)</version>$", pom, flags=re.MULTILINE) == [version]
    jars = ["/cache/kafkajars.jar", "/cache/clients.jar"]
    settings = [kafkajars.session_settings(master, jars) for master in ("local[2]", "spark://host:7077")]
    assert settings == [
        {"spark.driver.extraClassPath": "/cache/kafkajars.jar:/cache/clients.jar"},
        {"spark.jars": "/cache/kafkajars.jar,/cache/clients.jar"},
    ]
    assert kafkajars.session_settings("local", []) == {}


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("kafka", "1 error")])
def test_without_its_jars_these_tests_are_skipped_unless_they_are_required(
    required: str, outcome: str, tmp_path: Path
) -> None:
    test = "tests/edges/test_kafkatransactions.py::test_a_missing_topic_is_named"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rsE", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HEADRACE_REQUIRE": required},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert outcome in done.stdout
    assert "`make kafka` fetches them from Maven Central" in done.stdout
