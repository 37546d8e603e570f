"""DStreams that are saved to topics: each element once, whatever fails, and read by event time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.dstreams import ManualClock, StreamingContext
from headrace.engine.stream.handle import StreamHandle
from headrace.log import Log
from headrace.model.times import SECOND
from tests.dialects.dstreams.programs import START, collected
from tests.edges.kafka import Broker
from tests.scale import only_full

# Elements are (user, second of the event); the second batch has one that comes late, by ten seconds.
BATCHES = [[("ann", 1), ("dan", 3)], [("ann", 12), ("dan", 2)], [], [("ann", 25)], [("dan", 31)]]


class Failing:
    """Fails in the second batch, the first time: when it is in the topic, but not done."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, rdd: Any) -> None:
        if ("ann", 12) in rdd.collect() and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("Broken")


def run_program(spark: SparkSession, folder: Path, topic: str, log: str | None) -> None:
    """Runs a program that saves the batches, fails once, and goes on."""
    clock = ManualClock(START)

    def setup() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1, clock=clock)
        visits = ssc.queueStream(BATCHES)
        named = visits.map(lambda visit: {"user": visit[0], "second": visit[1]})
        named.saveToTopic(topic, log=log, key="user", timestamp="second")
        visits.foreachRDD(Failing(folder / "failed"))
        ssc.checkpoint(str(folder / "program"))
        return ssc

    for start in (1, 2):
        ssc = StreamingContext.getOrCreate(str(folder / "program"), setup, clock=clock)
        ssc.start()
        clock.advance(len(BATCHES) if start == 1 else 1)
        try:
            if start == 1:
                with pytest.raises(Exception, match="Broken"):
                    ssc.awaitTermination(60)
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=start == 2)


EXPECTED = sorted((user, second) for batch in BATCHES for user, second in batch)


def test_a_pipeline_reads_a_saved_stream_by_event_time(spark: SparkSession, tmp_path: Path) -> None:
    topic = Log(tmp_path / "log").create("visits", partitions=2)
    run_program(spark, tmp_path, "visits", str(tmp_path / "log"))
    records = [record for number in (0, 1) for record in topic.read(number)]
    assert sorted((record.value["user"], record.timestamp // SECOND) for record in records) == EXPECTED
    assert {record.key for record in topic.read(0)}.isdisjoint(record.key for record in topic.read(1))
    p = hr.Pipeline(spark=spark)
    disorder = hr.BoundedDisorder("5 seconds")
    visits = p | hr.ReadTopic("visits", log=str(tmp_path / "log"), watermark=disorder)
    panes: list[Any] = []
    (
        visits
        | hr.WindowInto(hr.FixedWindows("10 seconds"))
        | hr.Map(lambda visit: visit["user"])
        | hr.Count.per_element()
        | hr.ForEachBatch(lambda elements, batch: panes.extend((each.window.start, *each.value) for each in elements))
    )
    handle = p.run(checkpoint=str(tmp_path / "stream"))
    assert isinstance(handle, StreamHandle)
    try:
        handle.query.processAllAvailable()
    finally:
        handle.stop()
    # Ann is at 25 s and Dan at 31 s, so that the watermark is at 20 s.
    assert sorted(panes) == [(0, "ann", 1), (0, "dan", 2), (10 * SECOND, "ann", 1)]


def test_what_is_no_topic_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = StreamingContext(spark.sparkContext, 1).queueStream([[1]])
    with pytest.raises(hr.PipelineError, match="a topic must be a name in the embedded log"):
        stream.saveToTopic("a/b")
    with pytest.raises(hr.PipelineError, match="saveToTopic: key must be a column or a function of the element, got 7"):
        stream.saveToTopic("visits", key=7)  # type: ignore[arg-type]
    Log(tmp_path).create("visits")

    def build(numbers: Any) -> dict[str, Any]:
        numbers.saveToTopic("visits", log=str(tmp_path))
        return {"numbers": numbers}

    collected(spark.sparkContext, [[[7, 8], [9]]], build, 2)
    found = [(record.value, record.timestamp) for record in Log(tmp_path).topic("visits").read(0)]
    assert found == [(7, (START + 1000) * 1000), (8, (START + 1000) * 1000), (9, (START + 2000) * 1000)]


@pytest.mark.slow("waits for a broker")
@only_full("topics of the log are written in every run, and batches of Kafka by injectors")
def test_topics_of_kafka(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    uri = broker.create("dstreams-saved", 2)
    run_program(spark, tmp_path, uri, None)
    found = [
        (json.loads(each.value())["user"], each.timestamp()[1] // 1000) for each in broker.contents("dstreams-saved")
    ]
    assert sorted(found) == EXPECTED
