"""Computations on Spark: each a stream of its own between topics, and low watermarks that travel with them."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace import millwheel as mw
from headrace.dialects.millwheel.graph.computationgraph import counts_topic
from headrace.engine.stream.handle import StreamHandle
from headrace.log import Log
from headrace.model.times import MAX_TIME, SECOND
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Windower(mw.Computation):
    """Counts queries in buckets of ten seconds."""

    inputs = {"queries": mw.key("query")}
    outputs = {"windows": "query"}
    buckets = mw.Persistent(dict)

    def process_record(self, record: mw.Record) -> None:
        end = record.timestamp // (10 * SECOND) * 10 + 10
        self.buckets[end] = self.buckets.get(end, 0) + 1
        self.set_timer(end)

    def process_timer(self, timer: mw.Timer) -> None:
        end = timer.timestamp // SECOND
        self.produce("windows", {"query": timer.key, "end": end, "n": self.buckets.pop(end)})


class ByUser(mw.Computation):
    """Keys the same stream by another field, and says each user's third query at once."""

    inputs = {"queries": mw.key(lambda record: record.value["user"])}
    outputs = ("thirds",)
    late = "process"
    productions = "weak"
    seen = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.seen += 1
        if self.seen == 3:
            self.produce("thirds", record.key)


class Totals(mw.Computation):
    """Reads two streams: sums windows over all queries, by end, and counts thirds."""

    inputs = {
        "windows": mw.key(lambda record: record.value["end"]),
        "thirds": mw.key(lambda record: "thirds"),
    }
    outputs = ("totals", "users")
    n = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        if record.stream == "thirds":
            self.produce("users", record.value)
            return
        self.n += record.value["n"]
        self.set_timer(at=record.timestamp + "1 second", tag="total")

    def process_timer(self, timer: mw.Timer) -> None:
        self.produce("totals", {"end": timer.key, "n": self.n})
        del self.n


class Streams:
    def __init__(self, spark: SparkSession, folder: pathlib.Path) -> None:
        self.spark, self.folder, self.log = spark, folder, str(folder / "log")
        Log(self.log).create("queries", partitions=2)

    @contextmanager
    def running(self, *computations: mw.Computation) -> Iterator[list[StreamHandle]]:
        with ExitStack() as stack:
            handles = []
            for each in computations:
                name = type(each).__name__
                mw.create_streams(each, self.log, name)
                p = hr.Pipeline(spark=self.spark)
                mw.build(p, name, each, self.log, own=True)
                handle = p.run(checkpoint=str(self.folder / name))
                assert isinstance(handle, StreamHandle)
                stack.callback(handle.stop)
                handles.append(handle)
            yield handles

    def values(self, stream: str) -> list[Any]:
        topic = Log(self.log).topic(stream)
        return [record.value for number in range(len(topic.partitions)) for record in topic.read(number)]

    def counts(self, name: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for counts in self.values(counts_topic(name)):
            total.update(counts)
        return +total


def low(handle: StreamHandle) -> tuple[int, int]:
    (exchange,) = handle.status().exchanges.values()
    return exchange.watermark // SECOND, exchange.output_watermark // SECOND


@only_full("the page of docs and the mills' tests run graphs, too")
@pytest.mark.slow("three computations, each started twice")
def test_a_graph_of_computations(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    streams = Streams(spark, tmp_path)
    injector = mw.Injector("queries", log=streams.log, name="frontend")

    def arrive(watermark: int, *queries: tuple[str, str, int]) -> None:
        for query, user, second in queries:
            injector.send({"query": query, "user": user}, timestamp=second, key=query)
        injector.advance(watermark)
        injector.flush()

    with streams.running(Windower(), ByUser(), Totals()) as handles:
        windower, by_user, totals = handles

        def run() -> None:
            for handle in handles:
                handle.query.processAllAvailable()

        arrive(5, ("mill", "ann", 1), ("wheel", "ann", 2), ("mill", "bob", 12), ("mill", "ann", 21))
        run()
        assert streams.values("windows") == []
        # The oldest work is the timer at 10 s; upstream is at 5 s.
        assert (low(windower), low(by_user), low(totals)) == ((5, 5), (5, 5), (5, 5))
        assert streams.values("thirds") == streams.values("users") == ["ann"]
        arrive(15, ("wheel", "bob", 16))
        run()
        assert sorted(each["query"] for each in streams.values("windows")) == ["mill", "wheel"]
        assert (low(windower), low(totals)) == ((15, 15), (15, 15))
        assert streams.values("totals") == [{"end": 10, "n": 2}]
        with pytest.raises(mw.ComputationError):
            arrive(15, ("mill", "eve", 3))
        another = mw.Injector("queries", log=streams.log, name="backfill", watermark=mw.Heuristic())
        another.send({"query": "mill", "user": "bob"}, timestamp=3)  # late, as the first injector goes by
        another.flush()
        run()
        assert streams.counts("Windower") == {
            "records": 6,
            "late": 1,
            "timers_set": 5,
            "timers_fired": 2,
            "produced": 2,
        }
        assert streams.counts("ByUser") == {"records": 6, "late": 1, "produced": 2}
        assert Counter(streams.values("thirds")) == Counter({"ann": 1, "bob": 1})
        another.finish()
    with streams.running(Windower(), ByUser(), Totals()) as handles:  # without one of them, the last would wait for it
        arrive(16, ("mill", "eve", 18))
        for handle in handles:
            handle.query.processAllAvailable()
        injector.finish()
        for handle in handles:
            handle.query.processAllAvailable()
        assert low(handles[0])[1] == MAX_TIME // SECOND
    assert Counter(each["n"] for each in streams.values("windows")) == Counter({1: 4, 2: 1})
    found = sorted((each["end"], each["n"]) for each in streams.values("totals"))
    assert found == [(10, 2), (20, 3), (30, 1)]
    assert streams.counts("Windower") == {"records": 7, "late": 1, "timers_set": 5, "timers_fired": 5, "produced": 5}
